/* Peers that die, restart, exit or exec without a word. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define LEN 65536
#define BLOCKS 128

static uint32_t all_blocks[BLOCKS];

/* Polls until `count` ids have ended and checks that each ended once, as done or lost. */
static void expect_each_once(const struct node *node, const char *peer_id, const dt_xfer_id *ids,
                             size_t count)
{
    dt_completion got[8];
    size_t seen[64] = {0}, ended = 0, n = 0;
    uint64_t deadline = now_ms() + BOUND_MS;

    CHECK(count <= 64);
    while (ended < count) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(node->transport, peer_id, got, 8, 100, &n));
        for (size_t i = 0; i < n; i++) {
            size_t k = 0;
            while (k < count && ids[k] != got[i].id)
                k++;
            CHECK(k < count && seen[k]++ == 0);
            CHECK(got[i].status == DT_OK || got[i].status == DT_ERR_PEER_LOST);
            CHECK(got[i].bytes == (got[i].status == DT_OK ? (uint64_t)BLOCKS * LEN : 0));
            ended++;
        }
    }
    CHECK_OK(dt_poll(node->transport, NULL, got, 8, &n));
    CHECK(n == 0);
}

static void wait_until_lost(const struct node *node, const char *peer_id)
{
    uint64_t deadline = now_ms() + (on_nixl() ? BOUND_MS : 2000);
    dt_completion got;
    dt_xfer_id id = 0;
    size_t n = 0;
    while (dt_peer_status(node->transport, peer_id) == DT_OK) {
        CHECK(now_ms() < deadline);
        if (on_nixl())
            dt_write_blocks(node->transport, peer_id, all_blocks, all_blocks, 1, 0, &id);
        CHECK_OK(dt_poll(node->transport, peer_id, &got, 1, &n));
    }
    CHECK_STATUS(dt_peer_status(node->transport, peer_id), DT_ERR_PEER_LOST);
    while (node_stats(node).inflight > 0)
        CHECK_OK(dt_wait(node->transport, peer_id, &got, 1, 100, &n));
    do
        CHECK_OK(dt_poll(node->transport, peer_id, &got, 1, &n));
    while (n > 0);
}

static void expect_works(const struct node *node, uint64_t seed, const char *peer_id,
                         struct remote *peer)
{
    struct content *there = contents_of(9, BLOCKS);
    dt_xfer_id id = 0;
    remote_fill(peer, 9);
    CHECK_OK(dt_write_blocks(node->transport, peer_id, all_blocks, all_blocks, BLOCKS, 0, &id));
    CHECK(node_finish(node, peer_id, id).status == DT_OK);
    contents_copy(there, all_blocks, seed, all_blocks, BLOCKS);
    remote_check(peer, there, NULL);
    free(there);
}

struct killing {
    struct remote *victim;
    uint64_t after_ns;
};

static void *kill_later(void *arg)
{
    struct killing *killing = arg;
    spin_ns(killing->after_ns);
    remote_kill(killing->victim);
    return NULL;
}

/* SIGKILL at many moments of running writes and reads. The survivor serves a third peer after
 * each, and the victim's successor under the same peer id. */
static void killed_while_busy(enum memory_kind kind)
{
    enum { IN_FLIGHT = 4 };
    const unsigned rounds = on_nixl() ? 6 : 50;
    uint64_t random = test_seed();
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote third = remote_simple(kind, BLOCKS, LEN, 9);

    node_fill(&node, 8);
    CHECK_OK(node_add(&node, "third", &third.card));
    for (unsigned round = 0; round < rounds; round++) {
        struct remote victim = remote_simple(kind, BLOCKS, LEN, 0);
        struct killing killing = {&victim, random_next(&random) % 40000000u};
        dt_xfer_id ids[IN_FLIGHT];
        pthread_t killer;
        size_t count = 0;

        CHECK_OK(node_add(&node, "victim", &victim.card));
        CHECK(pthread_create(&killer, NULL, kill_later, &killing) == 0);
        for (; count < IN_FLIGHT; count++) {
            dt_status status = dt_write_blocks(node.transport, "victim", all_blocks, all_blocks,
                                               BLOCKS, round, &ids[count]);
            if (status != DT_OK) {
                CHECK(status == DT_ERR_PEER_LOST);
                break;
            }
        }
        expect_each_once(&node, "victim", ids, count);
        CHECK(pthread_join(killer, NULL) == 0);

        /* Dead and buried: whatever the timing was, a few polls later it is known. The first may come
         * within the microseconds for which a peer is believed to be alive. */
        size_t n = 0;
        wait_until_lost(&node, "victim");
        CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
        CHECK_STATUS(dt_peer_status(node.transport, "victim"), DT_ERR_PEER_LOST);
        dt_xfer_id id = 0;
        CHECK_STATUS(dt_write_blocks(node.transport, "victim", all_blocks, all_blocks, 1, 0, &id),
                     DT_ERR_PEER_LOST);
        CHECK_OK(dt_peer_status(node.transport, "third"));
        if (round % 5 == 0)
            expect_works(&node, 8, "third", &third);
        /* Half of the rounds remove it, the others replace it in the next round. */
        if (round % 2 == 0)
            CHECK_OK(dt_remove_remote_peer(node.transport, "victim"));
    }
    dt_stats stats = node_stats(&node);
    CHECK(stats.inflight == 0 && stats.draining == 0 && stats.cancelled == 0);
    CHECK(stats.submitted == stats.done + stats.failed);
    printf("%u kills over %s: %llu transfers done, %llu lost\n", rounds, memory_kind_name(kind),
           (unsigned long long)stats.done, (unsigned long long)stats.failed);
    remote_quit(&third);
    node_close(&node);
}

/* The usual restart: the successor has the same peer id; the bytes are right each time. */
static void restarts(void)
{
    const int rounds = on_nixl() ? 4 : 50;
    struct node node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    node_fill(&node, 8);
    for (int round = 0; round < rounds; round++) {
        enum memory_kind kind = round % 2 == 0 ? MEMORY_ALLOC : MEMORY_ANONYMOUS;
        struct remote peer = remote_simple(kind, BLOCKS, LEN, 0);
        dt_xfer_id id = 0;
        size_t n = 0;
        CHECK_OK(node_add(&node, "peer", &peer.card));
        expect_works(&node, 8, "peer", &peer);
        CHECK_OK(dt_write_blocks(node.transport, "peer", all_blocks, all_blocks, BLOCKS, 0, &id));
        CHECK_OK(dt_poll(node.transport, "peer", NULL, 0, &n));
        remote_kill(&peer);
        expect_each_once(&node, "peer", &id, 1);
        CHECK_OK(dt_remove_remote_peer(node.transport, "peer"));
    }
    node_close(&node);
    printf("%d restarts: ok\n", rounds);
}

/* With nothing in flight, polling alone shows that a peer has gone, and the fault lasts. NIXL finds
 * out when it tries to reach the peer. */
static void gone_while_idle(void)
{
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    node_fill(&node, 8);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (!memory_kind_matters((enum memory_kind)kind))
            continue;
        struct remote killed = remote_simple((enum memory_kind)kind, BLOCKS, LEN, 0);
        struct remote exited = remote_simple((enum memory_kind)kind, BLOCKS, LEN, 0);
        struct remote closed = remote_simple((enum memory_kind)kind, BLOCKS, LEN, 0);
        struct remote stays = remote_simple((enum memory_kind)kind, BLOCKS, LEN, 0);
        CHECK_OK(node_add(&node, "killed", &killed.card));
        CHECK_OK(node_add(&node, "exited", &exited.card));
        CHECK_OK(node_add(&node, "closed", &closed.card));
        CHECK_OK(node_add(&node, "stays", &stays.card));
        remote_kill(&killed);
        remote_exit_unclosed(&exited);
        remote_quit(&closed);
        wait_until_lost(&node, "killed");
        wait_until_lost(&node, "exited");
        wait_until_lost(&node, "closed");
        CHECK_OK(dt_peer_status(node.transport, "stays"));
        expect_works(&node, 8, "stays", &stays);
        CHECK_STATUS(dt_peer_status(node.transport, "killed"), DT_ERR_PEER_LOST);
        /* Its metadata is of no use any more. */
        if (!on_nixl()) {
            CHECK_STATUS(node_add(&node, "killed", &killed.card), DT_ERR_PEER_LOST);
            CHECK_STATUS(node_add(&node, "again", &exited.card), DT_ERR_PEER_LOST);
            CHECK_STATUS(dt_peer_status(node.transport, "again"), DT_ERR_NOT_FOUND);
        }
        remote_quit(&stays);
    }
    node_close(&node);
    printf("gone while idle: ok\n");
}

/* One process under many names: its death is known of all of them at once. */
static void gone_under_many_names(enum memory_kind kind)
{
    enum { NAMES = 40 };
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote peer = remote_simple(kind, BLOCKS, LEN, 0);
    char name[16];
    size_t n = 0;
    int lost = 0;
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "peer-%d", i);
        CHECK_OK(node_add(&node, name, &peer.card));
    }
    remote_kill(&peer);
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "peer-%d", i);
        lost += dt_peer_status(node.transport, name) == DT_ERR_PEER_LOST;
    }
    printf("gone under %d names, %s: one poll has found %d\n", NAMES, memory_kind_name(kind), lost);
    CHECK(lost == NAMES);
    node_close(&node);
}

/* exec() keeps the process and its id, but its memory is gone. Not over sockets: those of UCX stay
 * open in the new program, which is then like a stopped peer. */
static void exec_without_close(void)
{
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    node_fill(&node, 8);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        if (!memory_kind_matters((enum memory_kind)kind))
            continue;
        struct remote peer = remote_simple((enum memory_kind)kind, BLOCKS, LEN, 0);
        dt_xfer_id id = 0;
        CHECK_OK(node_add(&node, "peer", &peer.card));
        expect_works(&node, 8, "peer", &peer);
        remote_exec_unclosed(&peer);
        dt_status status = dt_write_blocks(node.transport, "peer", all_blocks, all_blocks, BLOCKS,
                                           0, &id);
        if (status == DT_OK)
            status = node_finish(&node, "peer", id).status;
        CHECK(status == DT_ERR_PEER_LOST);
        CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_PEER_LOST);
        if (!on_nixl())
            CHECK_STATUS(node_add(&node, "peer", &peer.card), DT_ERR_PEER_LOST);
        child_kill(&peer.child);
    }
    node_close(&node);
    printf("exec without close: ok\n");
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    for (uint32_t i = 0; i < BLOCKS; i++)
        all_blocks[i] = i;
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    for (int k = 0; k < 2; k++)
        if (memory_kind_matters(kinds[k]))
            killed_while_busy(kinds[k]);
    restarts();
    gone_while_idle();
    /* With NIXL each name has a connection of its own, and finds out by itself. */
    if (!on_nixl()) {
        gone_under_many_names(MEMORY_ALLOC);
        gone_under_many_names(MEMORY_ANONYMOUS);
    }
    if (!over_tcp())
        exec_without_close();
    return 0;
}
