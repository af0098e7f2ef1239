/* Calls that must not take long: submitting much, each poll of it, submitting 100,000 scattered
 * blocks, and adding a peer with a million blocks. Where it can be seen what a call did, that is
 * checked, and the times are printed only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define LEN 65536
/* 256 MiB: far more than the processor could have copied unseen. */
#define MUCH 4096

/* Permuted: as many runs as blocks. Otherwise: one run. */
static void large(enum memory_kind kind, uint32_t blocks, bool permuted)
{
    struct node node = node_open(MEMORY_ALLOC, blocks, LEN);
    struct remote peer = remote_simple(kind, blocks, LEN, 2);
    struct content *there = contents_of(2, blocks);
    uint32_t *from = malloc(blocks * sizeof *from), *to = malloc(blocks * sizeof *to);
    uint64_t random = test_seed(), slowest = 0, polls = 0;
    dt_xfer_id id = 0;
    dt_completion done;
    size_t n = 0;

    node_fill(&node, 1);
    for (uint32_t i = 0; i < blocks; i++)
        from[i] = to[i] = i;
    if (permuted) {
        random_permutation(from, blocks, &random);
        random_permutation(to, blocks, &random);
    }
    CHECK_OK(node_add(&node, "peer", &peer.card));

    uint64_t start = now_ns();
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, blocks, 0, &id));
    uint64_t submit = now_ns() - start;
    /* Submitting has not copied anything: that alone keeps it short. */
    remote_check(&peer, there, NULL);
    start = now_ns();
    uint64_t deadline = now_ms() + BOUND_MS;
    while (n == 0) {
        uint64_t before = now_ns();
        CHECK_OK(dt_poll(node.transport, "peer", &done, 1, &n));
        uint64_t took = now_ns() - before;
        slowest = took > slowest ? took : slowest;
        polls++;
        CHECK(now_ms() < deadline);
    }
    uint64_t total = now_ns() - start;
    CHECK(done.id == id && done.status == DT_OK && done.bytes == (uint64_t)blocks * LEN);
    contents_copy(there, to, 1, from, blocks);
    remote_check(&peer, there, NULL);
    printf("%u MiB to %s, %s: submit %" PRIu64 " us, %" PRIu64 " polls, the slowest %" PRIu64
           " us, %.2f GB/s\n",
           blocks / 16, memory_kind_name(kind), permuted ? "permuted" : "in order", submit / 1000,
           polls, slowest / 1000, (double)blocks * LEN / (double)total);
    CHECK(polls > 4);

    remote_quit(&peer);
    node_close(&node);
    free(there);
    free(from);
    free(to);
}

/* How many blocks have been read, by the first word of each. */
static size_t arrived(const struct node *node)
{
    size_t count = 0;
    for (size_t i = 0; i < node->num_blocks; i++)
        count += *(const uint64_t *)node_block(node, i) != 0;
    return count;
}

/* With the smallest budget no poll moves more than one piece, however much there is to do. What a
 * read has brought can be seen from here between the polls. Not over sockets: there a poll takes in
 * what has come since the last one. */
static void one_piece_per_poll(enum memory_kind kind, uint32_t blocks, bool permuted)
{
    const size_t piece = on_nixl() ? 4 << 20 : 1 << 20;
    dt_options options = DT_OPTIONS_INIT;
    options.poll_budget_us = 1;
    struct node node = node_open_with(memory_new(MEMORY_ANONYMOUS, (size_t)blocks * LEN, 0), blocks,
                                      LEN, options);
    struct remote peer = remote_simple(kind, blocks, LEN, 2);
    uint32_t *to = malloc(blocks * sizeof *to), *from = malloc(blocks * sizeof *from);
    uint64_t random = test_seed(), deadline = now_ms() + BOUND_MS, polls = 0;
    size_t before = 0, most = 0, n = 0;
    dt_completion done;
    dt_xfer_id id = 0;

    for (uint32_t i = 0; i < blocks; i++)
        to[i] = from[i] = i;
    if (permuted) {
        random_permutation(to, blocks, &random);
        random_permutation(from, blocks, &random);
    }
    CHECK_OK(node_add(&node, "peer", &peer.card));
    /* Once before, so that all memory is there: a poll that does not stop gets far then. */
    for (int round = 0; round < 2; round++) {
        memset(node.memory.base, 0, node.memory.bytes);
        CHECK_OK(dt_read_blocks(node.transport, "peer", to, from, blocks, 0, &id));
        CHECK(arrived(&node) == 0);
        for (polls = 0, before = 0, n = 0; n == 0; polls++) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_poll(node.transport, NULL, &done, 1, &n));
            size_t now = arrived(&node);
            most = now - before > most ? now - before : most;
            before = now;
        }
        CHECK(done.id == id && done.status == DT_OK && before == blocks);
    }
    for (uint32_t k = 0; k < blocks; k++) {
        struct content want = {2, from[k]};
        CHECK(pattern_mismatch(node_block(&node, to[k]), LEN, want) < 0);
    }
    printf("%u MiB from %s, %s, with a budget of 1 us: %" PRIu64 " polls, at most %zu KiB each\n",
           blocks / 16, memory_kind_name(kind), permuted ? "permuted" : "in order", polls,
           most * LEN / 1024);
    /* One block more: a piece may end inside of one, and the next begin there. */
    CHECK(over_tcp() || most * LEN <= piece + LEN);
    remote_quit(&peer);
    node_close(&node);
    free(to);
    free(from);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Nothing of these 100,000 runs of 64 bytes can be merged. */
static void scattered(enum memory_kind kind)
{
    enum { COUNT = 100000, SMALL = 64, TIMES = 101 };
    struct node node = node_open(MEMORY_ANONYMOUS, 2 * COUNT, SMALL);
    struct remote peer = remote_simple(kind, 2 * COUNT, SMALL, 0);
    uint32_t *from = malloc(COUNT * sizeof *from), *to = malloc(COUNT * sizeof *to);
    static uint64_t took[TIMES];
    uint64_t random = test_seed();

    /* Every other block, in no order. */
    random_permutation(from, COUNT, &random);
    random_permutation(to, COUNT, &random);
    for (int k = 0; k < COUNT; k++) {
        from[k] *= 2;
        to[k] *= 2;
    }
    CHECK_OK(node_add(&node, "peer", &peer.card));
    for (int i = 0; i < TIMES; i++) {
        dt_xfer_id id = 0;
        uint64_t start = now_ns();
        CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, COUNT, 0, &id));
        took[i] = now_ns() - start;
        CHECK_OK(dt_cancel(node.transport, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    }
    qsort(took, TIMES, sizeof took[0], by_size);
    printf("submitting 100,000 scattered blocks to %s: median %" PRIu64 " us, worst %" PRIu64
           " us of %d\n",
           memory_kind_name(kind), took[TIMES / 2] / 1000, took[TIMES - 1] / 1000, TIMES);
    CHECK(took[TIMES / 2] < 5 * 1000000u);
    remote_quit(&peer);
    node_close(&node);
    free(from);
    free(to);
}

/* The cost of adding and removing does not depend on how many blocks the peer has. */
static void adding(enum memory_kind kind)
{
    enum { PAGE = 4096, FEW = 1000, MANY = 1000000, TIMES = 201 };
    struct node node = node_open(MEMORY_ANONYMOUS, 1, PAGE);
    struct remote peers[2] = {remote_simple(kind, FEW, PAGE, 0), remote_simple(kind, MANY, PAGE, 0)};
    static uint64_t took[2][TIMES];

    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t start = now_ns();
            CHECK_OK(node_add(&node, "peer", &peers[k].card));
            took[k][i] = now_ns() - start;
            CHECK_OK(dt_remove_remote_peer(node.transport, "peer"));
        }
    }
    for (int k = 0; k < 2; k++)
        qsort(took[k], TIMES, sizeof took[k][0], by_size);
    uint64_t few = took[0][TIMES / 2], many = took[1][TIMES / 2];
    printf("adding a peer of %s: %" PRIu64 " us with 1,000 blocks, %" PRIu64
           " us with 1,000,000, ratio %.2f\n",
           memory_kind_name(kind), few / 1000, many / 1000, (double)many / (double)few);
    CHECK(many < 5 * few);

    uint32_t zero = 0, last = MANY - 1;
    dt_xfer_id id = 0;
    *(unsigned char *)node_block(&node, 0) = 1;
    CHECK_OK(node_add(&node, "peer", &peers[1].card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", &zero, &last, 1, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    *(unsigned char *)node_block(&node, 0) = 0;
    CHECK_OK(dt_read_blocks(node.transport, "peer", &zero, &last, 1, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    CHECK(*(unsigned char *)node_block(&node, 0) == 1);

    remote_quit(&peers[0]);
    remote_quit(&peers[1]);
    node_close(&node);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        large(kinds[k], MUCH, true);
        large(kinds[k], MUCH, false);
        one_piece_per_poll(kinds[k], MUCH / 4, true);
        one_piece_per_poll(kinds[k], MUCH / 4, false);
        scattered(kinds[k]);
        adding(kinds[k]);
    }
    return 0;
}
