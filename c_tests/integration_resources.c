/* Whatever is done over and over, a process holds no more descriptors, mappings, threads or memory
 * than after the first few times. NIXL keeps the sockets of a connection as long as the peer lives. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "procfs.h"

#define LEN 4096
#define BLOCKS 64

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

/* Has a node, and a forked child that lives as long as the test wants, with copies of all descriptors. */
static void parent_role(int socket)
{
    struct node node = node_open(MEMORY_ALLOC, 4, LEN);
    struct card card = node_card(&node);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pollfd test = {.fd = socket, .events = 0};
        while (poll(&test, 1, -1) <= 0) {
        }
        _exit(0);
    }
    message_send(socket, &card, sizeof card);
    for (;;)
        pause();
}

/* The child of a dead peer keeps its locks: for what it has not read nobody needs to wait all the same. */
static void dead_peer_has_a_child(struct node *node, bool removed_first)
{
    static const char message[60000];
    struct remote peer = {.child = child_start("parent")};
    uint64_t deadline = now_ms() + BOUND_MS;
    siginfo_t end;
    dt_status sent;
    size_t n = 0;
    message_receive(peer.child.socket, &peer.card, sizeof peer.card);
    struct holdings before = holdings_now(), after;
    CHECK_OK(node_add(node, "parent", &peer.card));
    do
        sent = dt_send_notif(node->transport, "parent", message, sizeof message);
    while (sent == DT_OK);
    CHECK_STATUS(sent, DT_ERR_BUSY);
    if (removed_first)
        CHECK_OK(dt_remove_remote_peer(node->transport, "parent"));
    CHECK(peer.child.pid > 0 && kill(peer.child.pid, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)peer.child.pid, &end, WEXITED | WNOWAIT) == 0);
    if (!removed_first)
        CHECK_OK(dt_remove_remote_peer(node->transport, "parent"));
    do {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(node->transport, NULL, NULL, 0, &n));
        after = holdings_now();
    } while (after.fds > before.fds || after.maps > before.maps + MAPS_SLACK);
    /* Now the child ends, too. */
    remote_kill(&peer);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"parent", parent_role}, NODE_ROLES, {NULL, NULL}};
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
    if (!on_nixl()) {
        dead_peer_has_a_child(&test.node, false);
        dead_peer_has_a_child(&test.node, true);
    }
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
