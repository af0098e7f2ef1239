/* A peer that takes its memory away without closing its transport, which its caller must not do. */
#include <stdio.h>
#include <stdlib.h>

#include "node.h"

#define BLOCKS 64
#define LEN 65536

static uint32_t all[BLOCKS];

/* With a budget of 1 us a poll moves one piece, so that a transfer of all blocks needs several. */
static struct node slow_node(void)
{
    dt_options options = DT_OPTIONS_INIT;
    options.poll_budget_us = 1;
    return node_open_with(memory_new(MEMORY_ANONYMOUS, (size_t)BLOCKS * LEN, 0), BLOCKS, LEN,
                          options);
}

/* Moves `count` blocks, there or back, and gives the status of the completion. */
static dt_status copy(const struct node *node, size_t count, bool write)
{
    dt_xfer_id id = 0;
    if (write)
        CHECK_OK(dt_write_blocks(node->transport, "peer", all, all, count, 0, &id));
    else
        CHECK_OK(dt_read_blocks(node->transport, "peer", all, all, count, 0, &id));
    dt_completion done = node_finish(node, "peer", id);
    CHECK(done.bytes == (done.status == DT_OK ? (uint64_t)count * LEN : 0));
    return done.status;
}

/* The kernel cannot copy to where nothing is: each transfer fails, three in a row fault the peer,
 * and adding it again heals it as soon as the memory is back. */
static void foreign_memory(enum memory_kind kind)
{
    struct node node = slow_node();
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 2);
    struct content *there = contents_of(1, BLOCKS);
    dt_xfer_id ids[2], id = 0;
    size_t n = 77;

    node_fill(&node, 1);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    for (int i = 0; i < 2; i++)
        CHECK_OK(dt_write_blocks(node.transport, "peer", all, all, BLOCKS, 0, &ids[i]));
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    CHECK(node_stats(&node).inflight == 2);
    remote_unmap(&peer);
    for (int i = 0; i < 2; i++)
        CHECK(node_finish(&node, "peer", ids[i]).status == DT_ERR_BACKEND);
    CHECK_OK(dt_peer_status(node.transport, "peer"));

    /* A success between starts the count anew. */
    remote_map_again(&peer);
    CHECK(copy(&node, 1, true) == DT_OK);
    remote_unmap(&peer);
    CHECK(copy(&node, BLOCKS, true) == DT_ERR_BACKEND);
    CHECK(copy(&node, 1, false) == DT_ERR_BACKEND);
    CHECK_OK(dt_peer_status(node.transport, "peer"));
    CHECK(copy(&node, BLOCKS, false) == DT_ERR_BACKEND);
    CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_BACKEND);
    CHECK_STATUS(dt_write_blocks(node.transport, "peer", all, all, 1, 0, &id), DT_ERR_PEER_LOST);
    CHECK_STATUS(dt_read_blocks(node.transport, "peer", all, all, BLOCKS, 0, &id),
                 DT_ERR_PEER_LOST);

    /* Adding it in vain changes nothing. */
    CHECK(node_add(&node, "peer", &peer.card) < 0);
    CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_BACKEND);
    remote_map_again(&peer);
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_BACKEND);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_OK(dt_peer_status(node.transport, "peer"));
    node_fill(&node, 1); /* a read that failed may have brought some bytes */
    CHECK(copy(&node, BLOCKS, true) == DT_OK);
    remote_check(&peer, there, NULL);
    dt_stats stats = node_stats(&node);
    CHECK(stats.failed == 5 && stats.done == 2 && stats.inflight == 0);
    remote_quit(&peer);
    node_close(&node);
    free(there);
    printf("%s unmapped: failures, then a fault, then healed\n", memory_kind_name(kind));
}

/* A file lives on: whoever maps it does not even notice, and nobody gets SIGBUS. */
static void mapped_memory(enum memory_kind kind)
{
    struct node node = slow_node();
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 2);
    struct content *here = contents_of(1, BLOCKS);
    dt_xfer_id id = 0;
    size_t n = 77;

    node_fill(&node, 1);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", all, all, BLOCKS, 0, &id));
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    CHECK(node_stats(&node).inflight == 1);
    remote_unmap(&peer);
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    node_fill(&node, 3);
    CHECK(copy(&node, BLOCKS, false) == DT_OK);
    node_check(&node, here, NULL);
    for (int i = 0; i < 4; i++)
        CHECK(copy(&node, BLOCKS, true) == DT_OK);
    CHECK_OK(dt_peer_status(node.transport, "peer"));
    remote_map_again(&peer);
    remote_check(&peer, here, NULL);
    remote_quit(&peer);
    node_close(&node);
    free(here);
    printf("%s unmapped: served all the same\n", memory_kind_name(kind));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    for (uint32_t i = 0; i < BLOCKS; i++)
        all[i] = i;
    foreign_memory(MEMORY_ANONYMOUS);
    foreign_memory(MEMORY_FD_UNSEALED);
    mapped_memory(MEMORY_ALLOC);
    mapped_memory(MEMORY_FD_SEALED);
    return 0;
}
