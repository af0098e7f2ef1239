/* Stopped processes: a stopped target is served, or over sockets waited for without harm; a stopped
 * initiator never holds up dt_close for longer than its bound. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "hammer.h"
#include "logbook.h"
#include "refused.h"
#include "skip.h"

#define BLOCKS 64
#define LEN 65536
/* Of dt_close. */
#define TIMEOUT_MS 20

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
    /* NIXL connects with its help. */
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 1, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    child_stop(&peer.child);
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, BLOCKS / 2, 0, &id));
    if (over_tcp()) {
        dt_completion none;
        size_t n = 0;
        for (int i = 0; i < 20; i++) {
            CHECK_OK(dt_wait(node.transport, "peer", &none, 1, 10, &n));
            CHECK(n == 0);
        }
        CHECK_OK(dt_peer_status(node.transport, "peer"));
        child_continue(&peer.child);
    }
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, to, 1, from, BLOCKS / 2);
    CHECK_OK(dt_read_blocks(node.transport, "peer", from, to + BLOCKS / 2, BLOCKS / 2, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(here, from, 2, to + BLOCKS / 2, BLOCKS / 2);
    node_check(&node, here, NULL);
    CHECK_OK(dt_peer_status(node.transport, "peer"));
    if (!over_tcp())
        child_continue(&peer.child);
    remote_check(&peer, there, NULL);
    remote_quit(&peer);
    node_close(&node);
    free(here);
    free(there);
}

/* A node, and a hammer on it that does not run. */
struct stopped {
    struct node node;
    struct child hammer;
};

static struct stopped stop_somewhere(enum memory_kind kind)
{
    static uint64_t random;
    struct stopped at = {node_open(kind, 8, 1 << 20), {0}};
    random += test_seed();
    at.hammer = hammer_start(&at.node, 1, true);
    event_expect(at.hammer.socket, 'w');
    /* Sleeps rather than spins: on a busy machine the hammer would not get to run. */
    usleep(random_next(&random) % 2000);
    child_stop(&at.hammer);
    return at;
}

static dt_status close_in_time(const struct node *node)
{
    uint64_t start = now_ms();
    dt_status status = dt_close(node->transport, TIMEOUT_MS);
    uint64_t took = now_ms() - start;
    CHECK(status == DT_OK || status == DT_ERR_TIMEOUT);
    CHECK(status == DT_OK || took >= TIMEOUT_MS - 1);
    CHECK(took < TIMEOUT_MS + 3000);
    return status;
}

/* Continues the hammer, which must learn that its target is gone. */
static void run_out(struct child *hammer)
{
    child_continue(hammer);
    CHECK(hammer_finish(hammer).last == DT_ERR_PEER_LOST);
}

/* SIGSTOP falls anywhere into the work of an initiator. dt_close is in time, whatever it says; and
 * when it says DT_OK, not a byte comes, even after the initiator runs again. */
static void stopped_anywhere(enum memory_kind kind, unsigned rounds)
{
    unsigned timeouts = 0;
    for (unsigned round = 0; round < rounds; round++) {
        struct stopped at = stop_somewhere(kind);
        struct content *mine = contents_of(3, 8);
        if (close_in_time(&at.node) == DT_OK) {
            node_fill(&at.node, 3);
            run_out(&at.hammer);
        } else {
            timeouts++;
            child_continue(&at.hammer);
            CHECK_OK(dt_close(at.node.transport, BOUND_MS));
            node_fill(&at.node, 3);
            CHECK(hammer_finish(&at.hammer).last == DT_ERR_PEER_LOST);
        }
        if (!over_cma()) /* there the hammer goes on until it learns of the close */
            node_check(&at.node, mine, NULL);
        node_destroy(&at.node);
        free(mine);
    }
    printf("%u closes with a stopped initiator over %s: %u ran into the timeout of %d ms\n",
           rounds, memory_kind_name(kind), timeouts, TIMEOUT_MS);
}

/* A node whose dt_close gave DT_ERR_TIMEOUT, because the stop has hit the hammer inside a copy. */
static struct stopped stop_inside(enum memory_kind kind)
{
    enum { TRIES = 200 };
    for (int i = 0; i < TRIES; i++) {
        struct stopped at = stop_somewhere(kind);
        if (close_in_time(&at.node) == DT_ERR_TIMEOUT)
            return at;
        run_out(&at.hammer);
        node_destroy(&at.node);
    }
    test_fail("none of %d stops hit a copy over %s", TRIES, memory_kind_name(kind));
}

static void names_the_process(const char *text, const struct child *child)
{
    char name[32];
    snprintf(name, sizeof name, "process %d ", (int)child->pid);
    if (strstr(text, name) == NULL)
        test_fail("there is no \"%s\" in: %s", name, text);
}

/* What a transport is after DT_ERR_TIMEOUT, and how it becomes free. */
static void timeout_of_close(enum memory_kind kind)
{
    struct stopped at = stop_inside(kind);
    struct content *mine = contents_of(3, 8);
    names_the_process(dt_last_error(), &at.hammer);
    expect_all_refused(at.node.transport, DT_ERR_CLOSED, "closed");
    dt_stats stats = node_stats(&at.node);
    CHECK(stats.submitted == 0 && stats.inflight == 0 && stats.peers == 0);
    CHECK(dt_num_blocks(at.node.transport) == 8);
    CHECK_STATUS(dt_close(at.node.transport, 0), DT_ERR_TIMEOUT);
    CHECK(close_in_time(&at.node) == DT_ERR_TIMEOUT);
    names_the_process(dt_last_error(), &at.hammer);

    child_kill(&at.hammer);
    CHECK_OK(dt_close(at.node.transport, TIMEOUT_MS));
    node_fill(&at.node, 3);
    CHECK_OK(dt_close(at.node.transport, 0));
    node_check(&at.node, mine, NULL);
    node_destroy(&at.node);
    free(mine);
    printf("DT_ERR_TIMEOUT over %s: ok\n", memory_kind_name(kind));
}

/* dt_destroy after DT_ERR_TIMEOUT comes back while the hammer still stands, and says who stands. */
static void destroy_in_time(struct stopped *at)
{
    logbook_start();
    uint64_t start = now_ms();
    node_destroy_transport(&at->node);
    CHECK(now_ms() - start < 5000);
    logbook_stop();
    char name[32];
    snprintf(name, sizeof name, "process %d ", (int)at->hammer.pid);
    if (!logbook_has(name)) {
        logbook_print();
        test_fail("dt_destroy did not log \"%s\"", name);
    }
}

/* Then the caller has other memory at the address, of which not a byte may change. */
static void nothing_comes_late(struct stopped *at, void (*resume)(struct child *))
{
    struct content *mine = contents_of(3, 8);
    memory_replace(&at->node.memory);
    node_fill(&at->node, 3);
    resume(&at->hammer);
    CHECK(hammer_finish(&at->hammer).last == DT_ERR_PEER_LOST);
    node_check(&at->node, mine, NULL);

    /* The process is as good as before, also at this very address. */
    struct node again = node_open_over(at->node.memory, 8, 1 << 20);
    struct remote peer = remote_simple(MEMORY_ALLOC, 8, 1 << 20, 2);
    struct card card = node_card(&again);
    uint32_t one = 1, two = 2;
    CHECK_OK(remote_add(&peer, "again", &card, NULL));
    CHECK_OK(remote_copy(&peer, true, "again", &one, &two, 1));
    contents_copy(mine, &two, 2, &one, 1);
    node_check(&again, mine, NULL);
    remote_quit(&peer);
    node_close(&again);
    free(mine);
}

static void destroy_after_timeout(enum memory_kind kind)
{
    struct stopped at = stop_inside(kind);
    destroy_in_time(&at);
    nothing_comes_late(&at, child_continue);
    printf("dt_destroy after DT_ERR_TIMEOUT over %s: ok\n", memory_kind_name(kind));
}

/* The worst moment, which a stop hits by luck only: the peer has found the gate open, and has not
 * yet called the kernel to copy into memory that is about to be another's. */
static void held_before_the_copy(void)
{
    struct stopped at = {node_open(MEMORY_ANONYMOUS, 8, 1 << 20), {0}};
    at.hammer = hammer_start(&at.node, 1, true);
    event_expect(at.hammer.socket, 'w');
    if (!child_hold_at_syscall(&at.hammer, SYS_process_vm_writev)) {
        test_skipped("a peer held right before its copy: ptrace is not permitted here");
        CHECK_OK(dt_close(at.node.transport, BOUND_MS));
        CHECK(hammer_finish(&at.hammer).last == DT_ERR_PEER_LOST);
        node_destroy(&at.node);
        return;
    }
    CHECK(close_in_time(&at.node) == DT_ERR_TIMEOUT);
    names_the_process(dt_last_error(), &at.hammer);
    destroy_in_time(&at);
    nothing_comes_late(&at, child_let_go);
    printf("held right before the copy: ok\n");
}

/* Without dt_close before it, dt_destroy has to come back too. */
static void destroy_with_a_stopped_initiator(enum memory_kind kind)
{
    for (int round = 0; round < 6; round++) {
        struct stopped at = stop_somewhere(kind);
        uint64_t start = now_ms();
        node_destroy_transport(&at.node);
        CHECK(now_ms() - start < 5000);
        child_kill(&at.hammer);
        memory_free(&at.node.memory);
    }
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, HAMMER_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        if (memory_kind_matters((enum memory_kind)kind))
            stopped_target((enum memory_kind)kind);
    if (on_nixl()) {
        /* Who is in the middle of a copy is not known, and not waited for. */
        stopped_anywhere(MEMORY_ALLOC, 4);
        return 0;
    }
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    for (int k = 0; k < 2; k++) {
        stopped_anywhere(kinds[k], 20);
        timeout_of_close(kinds[k]);
        destroy_after_timeout(kinds[k]);
        destroy_with_a_stopped_initiator(kinds[k]);
    }
    held_before_the_copy();
    return 0;
}
