/* Whatever is done over and over, a process holds no more descriptors, mappings, threads or memory
 * than after the first few times. NIXL keeps the sockets of a connection as long as the peer lives. */
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "procfs.h"

#define LEN 4096
#define BLOCKS 64

/* The allocator's own keeping; a leak of one mapping or page per round is far above. */
#define MAPS_SLACK 8
#define RSS_SLACK_KIB 2048

struct test {
    struct node node;
    struct remote mapped, foreign;
};

typedef void (*round_fn)(struct test *test, unsigned round);

static void flat(struct test *test, const char *what, round_fn run, unsigned rounds)
{
    /* Some make processes or transports, for which NIXL needs its time. */
    if (on_nixl())
        rounds /= 20;
    for (unsigned i = 0; i < rounds / 10; i++)
        run(test, i);
    struct holdings before = holdings_now();
    for (unsigned i = 0; i < rounds; i++)
        run(test, i);
    struct holdings after = holdings_now();
    printf("%u rounds of %s: %+ld descriptors, %+ld mappings, %+ld threads, %+ld KiB\n", rounds,
           what, after.fds - before.fds, after.maps - before.maps, after.threads - before.threads,
           after.rss_kib - before.rss_kib);
    /* The last connection may still be coming or going. */
    CHECK(after.fds == before.fds ||
          (on_nixl() && after.fds <= before.fds + 2 * (long)rounds + 2));
    CHECK(after.threads == before.threads);
    CHECK(after.maps <= before.maps + MAPS_SLACK);
    CHECK(after.rss_kib <= before.rss_kib + RSS_SLACK_KIB);
}

static void add_write_remove(struct test *test, unsigned round)
{
    struct remote *peer = round % 2 == 0 ? &test->mapped : &test->foreign;
    uint32_t from[] = {1, 2}, to[] = {7, 5};
    dt_xfer_id id = 0;
    CHECK_OK(node_add(&test->node, "peer", &peer->card));
    CHECK_OK(dt_write_blocks(test->node.transport, "peer", from, to, 2, 0, &id));
    CHECK(node_finish(&test->node, "peer", id).status == DT_OK);
    CHECK_OK(dt_remove_remote_peer(test->node.transport, "peer"));
}

/* Ids that nobody asks for, and cancelled ones. */
static void remove_in_flight(struct test *test, unsigned round)
{
    uint32_t idxs[BLOCKS];
    dt_xfer_id ids[4];
    dt_completion ended[8];
    size_t n = 0, still = 0, left = 2;
    (void)round;
    for (uint32_t i = 0; i < BLOCKS; i++)
        idxs[i] = i;
    CHECK_OK(node_add(&test->node, "peer", &test->foreign.card));
    for (int i = 0; i < 4; i++)
        CHECK_OK(dt_write_blocks(test->node.transport, "peer", idxs, idxs, BLOCKS, 0, &ids[i]));
    CHECK_OK(dt_cancel(test->node.transport, ids, 2, DT_CANCEL_IMMEDIATE, NULL, &still));
    CHECK_OK(dt_remove_remote_peer(test->node.transport, "peer"));
    while (left > 0) {
        CHECK_OK(dt_wait(test->node.transport, "peer", ended, 8, 60000, &n));
        CHECK(n > 0 && n <= left);
        left -= n;
    }
}

static void add_fails(struct test *test, unsigned round)
{
    struct card card = round % 2 == 0 ? test->mapped.card : test->foreign.card;
    switch (round % 4) {
    case 0:
        /* Bytes of NIXL's metadata may change and still make sense, but not the first eight. */
        card.metadata[round % (on_nixl() ? 8 : card.metadata_len)] ^= 0xff;
        break;
    case 1:
        card.block_len *= 2;
        break;
    case 2:
        card.base += 1u << 30;
        break;
    case 3:
        card.metadata_len = round % card.metadata_len;
        break;
    }
    CHECK(node_add(&test->node, "bad", &card) < 0);
    CHECK_STATUS(dt_peer_status(test->node.transport, "bad"), DT_ERR_NOT_FOUND);
}

static void create_and_destroy(struct test *test, unsigned round)
{
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS, MEMORY_FD_SEALED};
    struct node node = node_open(kinds[round % 3], 4, LEN);
    uint32_t zero = 0;
    dt_xfer_id id = 0;
    CHECK_OK(node_add(&node, "peer", &test->mapped.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", &zero, &zero, 1, 0, &id));
    if (round % 2 == 0)
        CHECK(node_finish(&node, "peer", id).status == DT_OK);
    node_close(&node);
}

static void peer_dies(struct test *test, unsigned round)
{
    struct remote peer = remote_simple(round % 2 == 0 ? MEMORY_ALLOC : MEMORY_ANONYMOUS, 4, LEN, 0);
    size_t n = 0;
    CHECK_OK(node_add(&test->node, "mortal", &peer.card));
    remote_kill(&peer);
    if (on_nixl()) {
        uint32_t zero = 0;
        dt_xfer_id id = 0;
        if (dt_write_blocks(test->node.transport, "mortal", &zero, &zero, 1, 0, &id) == DT_OK)
            CHECK(node_finish(&test->node, "mortal", id).status == DT_ERR_PEER_LOST);
    }
    CHECK_OK(dt_poll(test->node.transport, NULL, NULL, 0, &n));
    CHECK_OK(dt_remove_remote_peer(test->node.transport, "mortal"));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    struct test test = {node_open(MEMORY_ANONYMOUS, BLOCKS, LEN),
                        remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 1),
                        remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 1)};
    add_write_remove(&test, 0);
    long fds = holdings_now().fds;
    flat(&test, "add, write, remove", add_write_remove, 2000);
    flat(&test, "removing with work in flight", remove_in_flight, 2000);
    flat(&test, "adding in vain", add_fails, 10000);
    flat(&test, "create, add, write, close", create_and_destroy, 500);
    flat(&test, "a peer that dies", peer_dies, 100);
    CHECK(node_stats(&test.node).peers == 0);

    remote_quit(&test.mapped);
    remote_quit(&test.foreign);
    for (uint64_t deadline = now_ms() + BOUND_MS; holdings_now().fds > fds;) {
        size_t n = 0;
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(test.node.transport, NULL, NULL, 0, &n));
    }
    node_close(&test.node);
    return 0;
}
