/* Two processes copy permuted blocks both ways, over every kind of memory: every byte of every
 * block is checked on both sides, also of blocks that nobody named, and the log tells that the
 * expected way to the peer's memory was taken. */
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "dt_time.h"
#include "logbook.h"
#include "node.h"

#define LOCAL_SEED 1000
#define REMOTE_SEED 2000

struct shape {
    size_t local_blocks;
    size_t remote_blocks;
    size_t block_len;
    size_t count;
};

/* Odd lengths, one page, and blocks larger than any piece; few, many and all blocks; more blocks
 * on either side. */
static const struct shape shapes[] = {
    {7, 7, 1, 3},        {64, 64, 333, 40},      {100, 7, 4096, 6},
    {7, 100, 4096, 7},   {512, 300, 16384, 256}, {6, 5, 3 * 1024 * 1024 + 8, 4},
};

static void expect_way(enum memory_kind remote_kind)
{
    const char *way = on_nixl() ? "NIXL" : memory_is_mappable(remote_kind) ? "mapped" : "process_vm";
    if (!logbook_has(way)) {
        logbook_print();
        test_fail("nothing in the log says \"%s\" for %s", way, memory_kind_name(remote_kind));
    }
}

static void copy(enum memory_kind local_kind, enum memory_kind remote_kind,
                 const struct shape *shape, uint64_t *random)
{
    struct node node = node_open(local_kind, shape->local_blocks, shape->block_len);
    struct remote peer =
        remote_simple(remote_kind, shape->remote_blocks, shape->block_len, REMOTE_SEED);
    struct content *here = contents_of(LOCAL_SEED, shape->local_blocks);
    struct content *there = contents_of(REMOTE_SEED, shape->remote_blocks);
    uint32_t *local = malloc(shape->local_blocks * sizeof *local);
    uint32_t *remote = malloc(shape->remote_blocks * sizeof *remote);
    size_t count = shape->count;
    dt_xfer_id id = 0;

    node_fill(&node, LOCAL_SEED);
    random_permutation(local, shape->local_blocks, random);
    random_permutation(remote, shape->remote_blocks, random);
    logbook_start();
    CHECK_OK(node_add(&node, "peer", &peer.card));
    expect_way(remote_kind);
    logbook_stop();

    CHECK_OK(dt_write_blocks(node.transport, "peer", local, remote, count, 77, &id));
    dt_completion done = node_finish(&node, "peer", id);
    CHECK(done.status == DT_OK);
    CHECK(done.user_data == 77);
    CHECK(done.bytes == count * shape->block_len);
    contents_copy(there, remote, LOCAL_SEED, local, count);
    remote_check(&peer, there, NULL);
    node_check(&node, here, NULL);

    remote_fill(&peer, REMOTE_SEED + 1);
    CHECK_OK(dt_read_blocks(node.transport, "peer", local, remote, count, 78, &id));
    done = node_finish(&node, "peer", id);
    CHECK(done.status == DT_OK);
    CHECK(done.user_data == 78);
    CHECK(done.bytes == count * shape->block_len);
    contents_copy(here, local, REMOTE_SEED + 1, remote, count);
    node_check(&node, here, NULL);

    dt_stats stats = node_stats(&node);
    CHECK(stats.submitted == 2 && stats.done == 2 && stats.inflight == 0);
    CHECK(stats.bytes_written == count * shape->block_len);
    CHECK(stats.bytes_read == count * shape->block_len);

    remote_quit(&peer);
    node_close(&node);
    free(here);
    free(there);
    free(local);
    free(remote);
}

/* The other process drives: it writes into our memory and reads from it, and we do nothing. */
static void copy_by_the_other(enum memory_kind kind)
{
    enum { BLOCKS = 32, LEN = 8192 };
    struct node node = node_open(kind, BLOCKS, LEN);
    struct remote peer = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, REMOTE_SEED);
    struct content *here = contents_of(LOCAL_SEED, BLOCKS);
    struct content *there = contents_of(REMOTE_SEED, BLOCKS);
    uint32_t from[] = {3, 1, 30}, to[] = {0, 31, 7};
    struct card card = node_card(&node);

    node_fill(&node, LOCAL_SEED);
    CHECK_OK(remote_add(&peer, "home", &card, NULL));
    CHECK_OK(remote_copy(&peer, true, "home", from, to, 3));
    contents_copy(here, to, REMOTE_SEED, from, 3);
    node_check(&node, here, NULL);
    uint32_t own[] = {9}, ours[] = {10};
    CHECK_OK(remote_copy(&peer, false, "home", own, ours, 1));
    contents_copy(there, own, LOCAL_SEED, ours, 1);
    remote_check(&peer, there, NULL);

    remote_quit(&peer);
    node_close(&node);
    free(here);
    free(there);
}

/* Two transports of one process, and with LOCAL a transport with itself. */
static void copy_within_a_process(enum memory_kind kind)
{
    enum { BLOCKS = 16, LEN = 5000 };
    struct node a = node_open(kind, BLOCKS, LEN);
    struct node b = node_open(kind, BLOCKS, LEN);
    struct content *in_a = contents_of(LOCAL_SEED, BLOCKS);
    struct content *in_b = contents_of(REMOTE_SEED, BLOCKS);
    uint32_t from[] = {15, 2, 8}, to[] = {1, 14, 0};
    struct card card_a = node_card(&a), card_b = node_card(&b);
    dt_xfer_id id = 0;

    node_fill(&a, LOCAL_SEED);
    node_fill(&b, REMOTE_SEED);
    CHECK_OK(node_add(&a, "b", &card_b));
    if (!on_nixl())
        CHECK_OK(node_add(&a, "self", &card_a));
    CHECK_OK(dt_write_blocks(a.transport, "b", from, to, 3, 0, &id));
    CHECK(node_finish(&a, "b", id).status == DT_OK);
    contents_copy(in_b, to, LOCAL_SEED, from, 3);
    node_check(&a, in_a, NULL);
    node_check(&b, in_b, NULL);

    if (!on_nixl()) {
        CHECK_OK(dt_read_blocks(a.transport, "self", to, from, 3, 0, &id));
        CHECK(node_finish(&a, "self", id).status == DT_OK);
        contents_copy(in_a, to, LOCAL_SEED, from, 3);
        node_check(&a, in_a, NULL);
    }

    /* The other one closes: its memory is out of reach, ourselves is not. NIXL lets us go on until
     * we learn of it; what is written then is what is there already. */
    CHECK_OK(dt_close(b.transport, BOUND_MS));
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    do {
        status = dt_write_blocks(a.transport, "b", from, to, 3, 0, &id);
        if (status == DT_OK)
            status = node_finish(&a, "b", id).status;
    } while (over_cma() && status == DT_OK && now_ms() < deadline);
    CHECK(status == DT_ERR_PEER_LOST);
    node_check(&b, in_b, NULL);
    if (!on_nixl()) {
        CHECK_STATUS(node_add(&a, "b", &card_b), DT_ERR_PEER_LOST);
        CHECK_OK(dt_write_blocks(a.transport, "self", from, to, 3, 0, &id));
        CHECK(node_finish(&a, "self", id).status == DT_OK);
    }

    node_close(&a);
    node_destroy(&b);
    free(in_a);
    free(in_b);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    uint64_t random = test_seed();
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        bool matters = memory_kind_matters((enum memory_kind)kind);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            /* All shapes with one kind, all kinds with one shape. */
            if (i > 0 && !matters)
                break;
            copy((enum memory_kind)kind, (enum memory_kind)kind, &shapes[i], &random);
            if (!on_nixl())
                copy(MEMORY_ANONYMOUS, (enum memory_kind)kind, &shapes[i], &random);
        }
        if (matters) {
            copy_by_the_other((enum memory_kind)kind);
            copy_within_a_process((enum memory_kind)kind);
        }
        printf("%s: ok\n", memory_kind_name((enum memory_kind)kind));
    }
    return 0;
}
