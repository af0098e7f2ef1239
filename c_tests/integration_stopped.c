/* Stopped processes: a stopped target is served, a stopped initiator never holds up dt_close for
 * longer than its bound. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dt_time.h"
#include "hammer.h"

#define BLOCKS 64
#define LEN 65536

static void stopped_target(enum memory_kind kind)
{
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 2);
    struct content *here = contents_of(1, BLOCKS), *there = contents_of(2, BLOCKS);
    uint32_t from[BLOCKS], to[BLOCKS];
    uint64_t random = test_seed();
    dt_xfer_id id = 0;

    random_permutation(from, BLOCKS, &random);
    random_permutation(to, BLOCKS, &random);
    node_fill(&node, 1);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    child_stop(&peer.child);
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, BLOCKS / 2, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, to, 1, from, BLOCKS / 2);
    CHECK_OK(dt_read_blocks(node.transport, "peer", from, to + BLOCKS / 2, BLOCKS / 2, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(here, from, 2, to + BLOCKS / 2, BLOCKS / 2);
    node_check(&node, here, NULL);
    CHECK_OK(dt_peer_status(node.transport, "peer"));
    child_continue(&peer.child);
    remote_check(&peer, there, NULL);
    remote_quit(&peer);
    node_close(&node);
    free(here);
    free(there);
}

/* SIGSTOP falls anywhere into the work of an initiator. dt_close is in time, whatever it says; and
 * when it says DT_OK, not a byte comes, even after the initiator runs again. */
static void stopped_initiator(enum memory_kind kind, unsigned rounds)
{
    const uint32_t timeout_ms = 20;
    uint64_t random = test_seed(), slowest = 0;
    unsigned timeouts = 0;

    for (unsigned round = 0; round < rounds; round++) {
        struct node node = node_open(kind, 8, 1 << 20);
        struct content *mine = contents_of(3, 8);
        struct child hammer = hammer_start(&node, 1, true);
        event_expect(hammer.socket, 'w');
        spin_ns(random_next(&random) % 2000000);
        child_stop(&hammer);

        uint64_t start = now_ms();
        dt_status status = dt_close(node.transport, timeout_ms);
        uint64_t took = now_ms() - start;
        slowest = took > slowest ? took : slowest;
        CHECK(took < timeout_ms + 3000);
        if (status == DT_OK)
            node_fill(&node, 3);
        else
            CHECK(status == DT_ERR_TIMEOUT);
        child_continue(&hammer);
        if (status == DT_ERR_TIMEOUT) {
            timeouts++;
            CHECK_OK(dt_close(node.transport, BOUND_MS));
            node_fill(&node, 3);
        }
        CHECK(hammer_finish(&hammer).last == DT_ERR_PEER_LOST);
        node_check(&node, mine, NULL);
        dt_destroy(node.transport);
        memory_free(&node.memory);
        free(mine);
    }
    printf("%u closes with a stopped initiator over %s: %u ran into the timeout of %" PRIu32
           " ms, the slowest took %" PRIu64 " ms\n",
           rounds, memory_kind_name(kind), timeouts, timeout_ms, slowest);
}

/* dt_destroy has to come back too, and a dead initiator is none. */
static void destroy_with_a_stopped_initiator(enum memory_kind kind)
{
    uint64_t random = test_seed();
    for (int round = 0; round < 6; round++) {
        struct node node = node_open(kind, 8, 1 << 20);
        struct child hammer = hammer_start(&node, 1, true);
        event_expect(hammer.socket, 'w');
        spin_ns(random_next(&random) % 2000000);
        child_stop(&hammer);
        uint64_t start = now_ms();
        dt_destroy(node.transport);
        CHECK(now_ms() - start < 5000);
        child_kill(&hammer);
        memory_free(&node.memory);
    }
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, HAMMER_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        stopped_target((enum memory_kind)kind);
    stopped_initiator(MEMORY_ALLOC, 60);
    stopped_initiator(MEMORY_ANONYMOUS, 60);
    destroy_with_a_stopped_initiator(MEMORY_ALLOC);
    destroy_with_a_stopped_initiator(MEMORY_ANONYMOUS);
    return 0;
}
