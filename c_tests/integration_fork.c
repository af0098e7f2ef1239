/* fork: the child's copy of a handle is dead, and the child's end does the parent no harm. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "procfs.h"
#include "refused.h"

#define BLOCKS 8
#define LEN 4096

static struct node node;
static struct remote peer;
/* Of the process before it had a transport; the memory has its own. */
static long fds;

static void in_the_child(void)
{
    dt_xfer_id id = 0;
    expect_all_refused(node.transport, DT_ERR_FORKED, "fork");
    if (on_nixl())
        return; /* it cannot have one of its own: unit_fork */

    /* A handle of its own works. */
    struct node own = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    node_fill(&own, 8);
    CHECK_OK(node_add(&own, "peer", &peer.card));
    uint32_t zero = 0;
    CHECK_OK(dt_write_blocks(own.transport, "peer", &zero, &zero, 1, 0, &id));
    CHECK(node_finish(&own, "peer", id).status == DT_OK);
    node_close(&own);
}

enum child_end { EXIT, UNDERSCORE_EXIT, DESTROY };

static void fork_with_work_in_flight(enum child_end end)
{
    uint32_t from[] = {1, 2, 3}, to[] = {4, 5, 6}, zero = 0;
    struct content *there = contents_of(2, BLOCKS);
    dt_xfer_id id = 0;
    int status;

    remote_fill(&peer, 2);
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &id));
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        in_the_child();
        if (end == DESTROY) {
            node_destroy_transport(&node);
            CHECK(on_nixl() || holdings_now().fds == fds);
        }
        if (end == UNDERSCORE_EXIT)
            _exit(0);
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, to, 1, from, 3);
    if (!on_nixl())
        contents_copy(there, &zero, 8, &zero, 1); /* the child's own work */
    remote_check(&peer, there, NULL);
    free(there);

    /* Others still reach us, and we them. */
    struct card card = node_card(&node);
    uint32_t seven = 7;
    CHECK_OK(remote_add(&peer, "parent", &card, NULL));
    CHECK_OK(remote_copy(&peer, true, "parent", &seven, &seven, 1));
    struct content want = {2, 7};
    CHECK(pattern_mismatch(node_block(&node, 7), LEN, want) < 0);
    CHECK_OK(dt_peer_status(node.transport, "peer"));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);

    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        peer = remote_simple(kinds[k], BLOCKS, LEN, 2);
        struct memory memory = memory_new(kinds[k], (size_t)BLOCKS * LEN, 0);
        fds = holdings_now().fds;
        node = node_open_over(memory, BLOCKS, LEN);
        node_fill(&node, 1);
        CHECK_OK(node_add(&node, "peer", &peer.card));
        fork_with_work_in_flight(EXIT);
        fork_with_work_in_flight(UNDERSCORE_EXIT);
        fork_with_work_in_flight(DESTROY);
        remote_quit(&peer);
        node_close(&node);
    }
    return 0;
}
