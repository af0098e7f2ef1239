/* Two threads poll, one cancels, one submits, on one transport with three peers: every id ends in
 * exactly one way, and none is reported by a poll that began after a cancel had dropped it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define BLOCKS 64
#define LEN 4096
#define MOST 30000
#define PEERS 3

/* What is known of the transfer whose user_data is the index. */
struct track {
    _Atomic uint64_t id;           /* 0: not submitted yet */
    _Atomic unsigned reports;
    _Atomic uint64_t dropped_ns;   /* when a cancel that dropped it had returned */
};

/* A transfer over sockets takes its time. */
static uint64_t transfers = MOST;
static struct track tracks[MOST];
static struct node node;
static atomic_bool submitted_all;
/* The last one is ourselves with LOCAL. */
static const char *const peer_ids[PEERS] = {"mapped", "foreign", "third"};

static void *poller(void *scope)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    while (!submitted_all || node_stats(&node).inflight > 0) {
        dt_completion ended[16];
        size_t n = 0;
        uint64_t start = now_ns();
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(node.transport, scope, ended, 16, &n));
        for (size_t i = 0; i < n; i++) {
            struct track *track = &tracks[ended[i].user_data];
            CHECK(ended[i].user_data < transfers);
            /* The submitter stores the id after the call: a poll may be faster. */
            while (track->id == 0)
                CHECK(now_ms() < deadline);
            CHECK(track->id == ended[i].id);
            CHECK(ended[i].status == DT_OK);
            CHECK(atomic_fetch_add(&track->reports, 1) == 0);
            uint64_t dropped = track->dropped_ns;
            CHECK(dropped == 0 || start <= dropped);
        }
    }
    return NULL;
}

static void *canceller(void *unused)
{
    uint64_t random = test_seed() + 1;
    (void)unused;
    while (!submitted_all) {
        dt_xfer_id ids[8], still[8];
        size_t which[8], still_count = 0;
        bool wait = random_next(&random) % 2 == 0;
        size_t count = 0;
        for (int i = 0; i < 8; i++) {
            size_t k = random_next(&random) % transfers;
            if (tracks[k].id != 0 && tracks[k].dropped_ns == 0) {
                which[count] = k;
                ids[count++] = tracks[k].id;
            }
        }
        CHECK_OK(dt_cancel(node.transport, ids, count, wait ? DT_CANCEL_WAIT : DT_CANCEL_IMMEDIATE,
                           still, &still_count));
        uint64_t returned = now_ns();
        for (size_t i = 0; i < count; i++) {
            bool stays = false;
            for (size_t k = 0; k < still_count; k++)
                stays = stays || still[k] == ids[i];
            if (!stays)
                tracks[which[i]].dropped_ns = returned;
        }
    }
    return NULL;
}

static void submit_all(void)
{
    uint64_t random = test_seed() + 2;
    for (uint64_t k = 0; k < transfers; k++) {
        uint32_t from[32], to[32];
        size_t count = 1 + random_next(&random) % 32;
        for (size_t i = 0; i < count; i++) {
            from[i] = (uint32_t)(random_next(&random) % (BLOCKS / 2));
            /* With oneself, sources and targets are apart. */
            to[i] = BLOCKS / 2 + from[i];
        }
        dt_xfer_id id = 0;
        CHECK_OK(dt_write_blocks(node.transport, peer_ids[k % PEERS], from, to, count, k, &id));
        tracks[k].id = id;
    }
    submitted_all = true;
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    struct remote mapped = remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 2);
    struct remote foreign = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 2);
    struct remote other = {.card = node_card(&node)};
    if (on_nixl()) {
        other = remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 2);
        transfers = 6000;
    }
    pthread_t threads[4];

    node_fill(&node, 1);
    CHECK_OK(node_add(&node, peer_ids[0], &mapped.card));
    CHECK_OK(node_add(&node, peer_ids[1], &foreign.card));
    CHECK_OK(node_add(&node, peer_ids[2], &other.card));
    CHECK(pthread_create(&threads[0], NULL, poller, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, poller, NULL) == 0);
    CHECK(pthread_create(&threads[2], NULL, poller, (void *)(uintptr_t)peer_ids[1]) == 0);
    CHECK(pthread_create(&threads[3], NULL, canceller, NULL) == 0);
    submit_all();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    /* What ended last may still wait to be reported. */
    dt_completion ended[16];
    size_t n = 0;
    do {
        CHECK_OK(dt_poll(node.transport, NULL, ended, 16, &n));
        for (size_t i = 0; i < n; i++)
            CHECK(atomic_fetch_add(&tracks[ended[i].user_data].reports, 1) == 0);
    } while (n > 0);

    uint64_t reported = 0, dropped = 0;
    for (size_t k = 0; k < transfers; k++) {
        reported += tracks[k].reports;
        if (tracks[k].reports == 0) {
            CHECK(tracks[k].dropped_ns != 0);
            dropped++;
        }
    }
    CHECK(reported + dropped == transfers);
    dt_stats stats = node_stats(&node);
    CHECK(stats.submitted == transfers && stats.inflight == 0 && stats.draining == 0);
    CHECK(stats.done + stats.failed + stats.cancelled == transfers);
    CHECK(stats.failed == 0 && stats.done >= reported && stats.cancelled <= dropped);
    printf("%llu reported, %llu dropped by a cancel\n", (unsigned long long)reported,
           (unsigned long long)dropped);

    struct content *from_us = contents_of(2, BLOCKS), *before = contents_of(2, BLOCKS);
    for (uint32_t i = BLOCKS / 2; i < BLOCKS; i++) {
        uint32_t source = i - BLOCKS / 2;
        contents_copy(from_us, &i, 1, &source, 1);
    }
    remote_check(&mapped, from_us, before);
    remote_check(&foreign, from_us, before);
    remote_quit(&mapped);
    remote_quit(&foreign);
    if (on_nixl()) {
        remote_check(&other, from_us, before);
        remote_quit(&other);
    }
    node_close(&node);
    free(from_us);
    free(before);
    return 0;
}
