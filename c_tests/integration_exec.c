/* Processes that start another program while they have a transport, in ways that hide it: the pid
 * stays, the memory goes. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dt_time.h"
#include "hammer.h"

#define BLOCKS 8
#define LEN (1 << 20)

/* A target leaves a forked child behind, which holds on to all descriptors that the target had.
 * What is written to the target reaches nobody any more, and must not be called done. */
static void target_with_a_forked_child(enum memory_kind kind)
{
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 2);
    struct content *there = contents_of(2, BLOCKS);
    uint32_t all[BLOCKS];
    dt_xfer_id id = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        all[i] = i;
    node_fill(&node, 1);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", all, all, BLOCKS / 2, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, all, 1, all, BLOCKS / 2);
    remote_check(&peer, there, NULL);
    remote_fork_and_exec_unclosed(&peer);

    dt_status status = DT_OK;
    unsigned done = 0;
    uint64_t deadline = now_ms() + 2000;
    while (status == DT_OK && now_ms() < deadline) {
        status = dt_write_blocks(node.transport, "peer", all, all, BLOCKS, 0, &id);
        if (status == DT_OK)
            status = node_finish(&node, "peer", id).status;
        done += status == DT_OK;
    }
    printf("a target of %s that has forked and started another program: %s after %u transfers\n",
           memory_kind_name(kind), dt_status_str(status), done);
    fflush(stdout);
    CHECK(status == DT_ERR_PEER_LOST);
    CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_PEER_LOST);
    CHECK_STATUS(node_add(&node, "peer", &peer.card), DT_ERR_PEER_LOST);
    child_kill(&peer.child);
    node_close(&node);
    free(there);
}

/* One thread of an initiator starts another program while another one is inside a copy. That copy
 * has ended with its thread, so that the target can close. */
static void initiator_with_threads(enum memory_kind kind)
{
    enum { ROUNDS = 20, TIMEOUT_MS = 10000 };
    uint64_t random = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        struct node node = node_open(kind, BLOCKS, LEN);
        struct content *mine = contents_of(3, BLOCKS);
        struct child hammer = hammer_start_threaded(&node, 1);
        event_expect(hammer.socket, 'w');
        usleep(random_next(&random) % 2000);
        hammer_exec(&hammer);
        CHECK_OK(dt_close(node.transport, TIMEOUT_MS));
        node_fill(&node, 3);
        child_kill(&hammer);
        node_check(&node, mine, NULL);
        node_destroy(&node);
        free(mine);
    }
    printf("%d initiators of %s that started another program: ok\n", ROUNDS,
           memory_kind_name(kind));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, HAMMER_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    target_with_a_forked_child(MEMORY_ANONYMOUS);
    target_with_a_forked_child(MEMORY_ALLOC);
    initiator_with_threads(MEMORY_ANONYMOUS);
    initiator_with_threads(MEMORY_ALLOC);
    return 0;
}
