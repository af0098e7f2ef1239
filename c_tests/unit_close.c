/* dt_close and dt_destroy. */
#include <pthread.h>
#include <sched.h>

#include "procfs.h"
#include "refused.h"
#include "unit_self.h"

static void closed_is_closed(void)
{
    struct self self = self_open(4, 64);
    CHECK_OK(dt_close(self.t, 0));
    expect_all_refused(self.t, DT_ERR_CLOSED, "closed");
    CHECK_OK(dt_close(self.t, 0));
    CHECK_OK(dt_close(self.t, BOUND_MS));
    expect_all_refused(self.t, DT_ERR_CLOSED, "closed");
    CHECK(dt_num_blocks(self.t) == 4);
    CHECK(self_stats(&self).submitted == 0);
    dt_destroy(self.t);
    free(self.base);
}

/* What is in flight ends, and the memory is the caller's again. */
static void close_ends_transfers(void)
{
    struct self self = self_open(8, (size_t)4 << 20);
    size_t n;
    for (uint32_t i = 0; i < 4; i++)
        self_write(&self, i, 4 + i);
    CHECK_OK(dt_poll(self.t, NULL, NULL, 0, &n));
    CHECK_OK(dt_close(self.t, BOUND_MS));
    self_fill(&self, 50);
    dt_stats stats = self_stats(&self);
    CHECK(stats.submitted == 4 && stats.inflight == 0 && stats.draining == 0);
    CHECK(stats.cancelled >= 1 && stats.peers == 0);
    dt_destroy(self.t);
    for (size_t i = 0; i < 8; i++)
        CHECK(self_block_is(&self, i, (uint8_t)(50 + i)));
    free(self.base);
}

/* Without dt_close, too, all that the transport had is given back. */
static void destroy_closes(void)
{
    long before = holdings_now().fds;
    struct self self = self_open(8, (size_t)4 << 20);
    CHECK(holdings_now().fds > before);
    self_write(&self, 0, 1);
    dt_destroy(self.t);
    CHECK(holdings_now().fds == before);
    self_fill(&self, 50);
    free(self.base);
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
    struct self self = self_open(4, 64);
    struct waiter waiter = {self.t, DT_OK};
    pthread_t thread;
    uint64_t polls = self_stats(&self).polls;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, &waiter) == 0);
    while (self_stats(&self).polls == polls)
        sched_yield();
    CHECK_OK(dt_close(self.t, BOUND_MS));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiter.status == DT_ERR_CLOSED);
    dt_destroy(self.t);
    free(self.base);
}

static void *close_it(void *t)
{
    CHECK_OK(dt_close(t, BOUND_MS));
    return NULL;
}

static void two_may_close(void)
{
    for (int round = 0; round < 100; round++) {
        struct self self = self_open(4, 64);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, close_it, self.t) == 0);
        close_it(self.t);
        CHECK(pthread_join(thread, NULL) == 0);
        dt_destroy(self.t);
        free(self.base);
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
