/* dt_close against peers that keep copying: from the line after it on, the memory is ours alone. Where
 * NIXL has the kernel copy, that does not hold: there peers go on until they learn of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "hammer.h"

struct shape {
    size_t blocks;
    size_t block_len;
};

/* The second is longer than any piece, so that a close falls into the middle of a block. */
#define BLOCKS 24
#define LEN 32768
static const struct shape shapes[] = {{BLOCKS, LEN}, {1, 4 << 20}};

enum after_close { KEEP_MAPPED, REPLACE };

/* Peers write all the time. We close, and at once put other bytes there, in the same memory
 * or, with `after` REPLACE, in new memory at the same address. Those bytes must stay. */
static void writers(enum memory_kind kind, enum after_close after, struct shape shape,
                    uint64_t *random)
{
    struct memory memory = memory_new(kind, shape.blocks * shape.block_len, 0);
    struct node node = node_open_over(memory, shape.blocks, shape.block_len);
    struct content *mine = contents_of(3, shape.blocks);
    struct child hammers[2];

    for (int i = 0; i < 2; i++)
        hammers[i] = hammer_start(&node, 1 + (uint64_t)i, true);
    for (int i = 0; i < 2; i++)
        event_expect(hammers[i].socket, 'w');
    spin_ns(random_next(random) % 300000);

    uint64_t start = now_ms();
    CHECK_OK(dt_close(node.transport, BOUND_MS));
    CHECK(now_ms() - start < 10000);
    if (after == REPLACE)
        memory_replace(&node.memory);
    node_fill(&node, 3);

    for (int i = 0; i < 2; i++) {
        struct hammer_report report = hammer_finish(&hammers[i]);
        CHECK(report.last == DT_ERR_PEER_LOST);
        CHECK(report.done > 0);
    }
    if (!over_cma())
        node_check(&node, mine, NULL);
    CHECK_OK(dt_close(node.transport, 0));
    node_destroy(&node);
    free(mine);
}

/* A reader either gets the bytes from before the close, or a failure: never what came later, which it
 * checks itself. */
static void reader(enum memory_kind kind, struct shape shape, uint64_t *random)
{
    struct node node = node_open(kind, shape.blocks, shape.block_len);
    node_fill(&node, 7);
    struct child hammer = hammer_start(&node, 7, false);
    event_expect(hammer.socket, 'w');
    spin_ns(random_next(random) % 300000);

    CHECK_OK(dt_close(node.transport, BOUND_MS));
    if (!over_cma())
        memset(node.memory.base, 0xa5, node.memory.bytes);
    struct hammer_report report = hammer_finish(&hammer);
    CHECK(report.last == DT_ERR_PEER_LOST);
    node_destroy(&node);
}

/* dt_destroy alone does the same as dt_close before it. */
static void destroy_alone(enum memory_kind kind)
{
    struct node node = node_open(kind, BLOCKS, LEN);
    struct content *mine = contents_of(3, BLOCKS);
    struct child hammer = hammer_start(&node, 1, true);
    event_expect(hammer.socket, 'w');
    node_destroy_transport(&node);
    node_fill(&node, 3);
    CHECK(hammer_finish(&hammer).last == DT_ERR_PEER_LOST);
    if (!over_cma())
        node_check(&node, mine, NULL);
    memory_free(&node.memory);
    free(mine);
}

/* Our own transfers in flight end with the close; their target keeps working. */
static void own_transfers(void)
{
    struct node node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    struct remote peer = remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 5);
    struct content *before = contents_of(5, BLOCKS), *after = contents_of(4, BLOCKS);
    uint32_t idxs[BLOCKS];
    dt_xfer_id id = 0;
    size_t n = 0;

    for (uint32_t i = 0; i < BLOCKS; i++)
        idxs[i] = i;
    node_fill(&node, 4);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    for (int i = 0; i < 1000; i++)
        CHECK_OK(dt_write_blocks(node.transport, "peer", idxs, idxs, BLOCKS, 0, &id));
    CHECK_OK(dt_close(node.transport, BOUND_MS));
    /* Nothing of these bytes may arrive any more. */
    memset(node.memory.base, 0xa5, node.memory.bytes);
    CHECK_STATUS(dt_poll(node.transport, NULL, NULL, 0, &n), DT_ERR_CLOSED);
    dt_stats stats = node_stats(&node);
    CHECK(stats.submitted == 1000 && stats.inflight == 0 && stats.draining == 0);
    CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled);
    remote_check(&peer, after, before);
    node_destroy(&node);
    remote_quit(&peer);
    free(before);
    free(after);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, HAMMER_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    uint64_t random = test_seed();
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    /* A process needs about half a second to load NIXL: each shape once. */
    const int rounds = on_nixl() ? 2 : 60;
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        for (int round = 0; round < rounds; round++) {
            struct shape shape = shapes[round % 2];
            writers(kinds[k], KEEP_MAPPED, shape, &random);
            writers(kinds[k], REPLACE, shape, &random);
            reader(kinds[k], shape, &random);
        }
        printf("%d closes under fire of %s: ok\n", rounds * 3, memory_kind_name(kinds[k]));
        destroy_alone(kinds[k]);
    }
    own_transfers();
    return 0;
}
