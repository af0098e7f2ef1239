/* With the LeakSanitizer: peers in other processes that are added, die, are refused and are replaced. */
#include "dt_time.h"
#include "node.h"

#define BLOCKS 8
#define LEN 4096

static void cycle(enum memory_kind kind)
{
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 2);
    struct remote next = remote_simple(kind, BLOCKS, LEN, 2);
    uint32_t from[] = {1, 2, 5}, to[] = {3, 7, 0};
    dt_xfer_id id = 0;
    dt_completion ended[4];
    size_t n = 0;

    node_fill(&node, 1);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    CHECK_OK(dt_read_blocks(node.transport, "peer", from, to, 3, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);

    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &id));
    remote_kill(&peer);
    CHECK_OK(dt_wait(node.transport, "peer", ended, 4, BOUND_MS, &n));
    CHECK(n == 1);
    CHECK_STATUS(node_add(&node, "peer", &peer.card), DT_ERR_PEER_LOST);
    CHECK_OK(node_add(&node, "peer", &next.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &id));
    node_close(&node);
    remote_quit(&next);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        cycle((enum memory_kind)kind);
    return 0;
}
