/* dt_close and dt_destroy. */
#include <pthread.h>
#include <sched.h>

#include "procfs.h"
#include "refused.h"
#include "unit_pair.h"

static void closed_is_closed(void)
{
    struct pair pair = pair_open(4, 64);
    CHECK_OK(dt_close(pair.ours.t, 0));
    expect_all_refused(pair.ours.t, DT_ERR_CLOSED, "closed");
    CHECK_OK(dt_close(pair.ours.t, 0));
    CHECK_OK(dt_close(pair.ours.t, BOUND_MS));
    expect_all_refused(pair.ours.t, DT_ERR_CLOSED, "closed");
    CHECK(dt_num_blocks(pair.ours.t) == 4);
    CHECK(pair_stats(&pair).submitted == 0);
    side_free(&pair.ours);
    side_close(&pair.peer);
}

/* What is in flight ends, and the memory is the caller's again. */
static void close_ends_transfers(void)
{
    struct pair pair = pair_open(8, (size_t)4 << 20);
    size_t n;
    for (uint32_t i = 0; i < 4; i++)
        pair_write(&pair, i, 4 + i);
    CHECK_OK(dt_poll(pair.ours.t, NULL, NULL, 0, &n));
    pair_close_ours(&pair);
    pair_fill(&pair, 50);
    dt_stats stats = pair_stats(&pair);
    CHECK(stats.submitted == 4 && stats.inflight == 0 && stats.draining == 0);
    CHECK(stats.cancelled >= 1 && stats.peers == 0);
    for (int i = 0; i < 100; i++)
        side_drive(&pair.peer);
    side_free(&pair.ours);
    for (size_t i = 0; i < 8; i++)
        CHECK(side_block_is(&pair.peer, i, (uint8_t)(50 + i)));
    side_close(&pair.peer);
}

/* Without dt_close, too, all that the transport had is given back. */
static void destroy_closes(void)
{
    /* NIXL has some of its own, which it keeps: those before it have seen to them. */
    long before = holdings_now().fds;
    struct pair pair = pair_open(8, (size_t)4 << 20);
    CHECK(holdings_now().fds > before);
    pair_write(&pair, 0, 1);
    dt_destroy(pair.ours.t);
    dt_destroy(pair.peer.t);
    CHECK(holdings_now().fds == before);
    pair_fill(&pair, 50);
    free(pair.ours.base);
    free(pair.peer.base);
}

struct waiter {
    dt_transport *t;
    dt_status status;
};

static void *wait_for_ever(void *arg)
{
    struct waiter *waiter = arg;
    dt_completion completion;
    size_t n;
    do
        waiter->status = dt_wait(waiter->t, NULL, &completion, 1, 4 * BOUND_MS, &n);
    while (waiter->status == DT_OK);
    return NULL;
}

/* A thread that waits learns of it, long before its own time is over. */
static void close_wakes_others(void)
{
    struct pair pair = pair_open(4, 64);
    struct waiter waiter = {pair.ours.t, DT_OK};
    pthread_t thread;
    uint64_t polls = pair_stats(&pair).polls;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, &waiter) == 0);
    while (pair_stats(&pair).polls == polls)
        sched_yield();
    CHECK_OK(dt_close(pair.ours.t, BOUND_MS));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiter.status == DT_ERR_CLOSED);
    pair_close(&pair);
}

static void *close_it(void *t)
{
    CHECK_OK(dt_close(t, BOUND_MS));
    return NULL;
}

static void two_may_close(void)
{
    /* NIXL needs some 20 ms to create a transport. */
    const int rounds = on_nixl() ? 20 : 100;
    for (int round = 0; round < rounds; round++) {
        struct pair pair = pair_open(4, 64);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, close_it, pair.ours.t) == 0);
        close_it(pair.ours.t);
        CHECK(pthread_join(thread, NULL) == 0);
        pair_close(&pair);
    }
}

int main(void)
{
    closed_is_closed();
    close_ends_transfers();
    destroy_closes();
    close_wakes_others();
    two_may_close();
    return 0;
}
