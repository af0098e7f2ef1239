/* dt_poll and dt_wait: capacity, scope, order, time. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "unit_pair.h"

static dt_xfer_id write_to(const struct pair *pair, const char *peer_id, uint64_t user_data)
{
    uint32_t block = 0;
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(pair->ours.t, peer_id, &block, &block, 1, user_data, &id));
    return id;
}

/* Drives with no room for completions, until `count` transfers are done. */
static void drive(const struct pair *pair, uint64_t count)
{
    while (pair_stats(pair).done < count)
        pair_poll(pair);
}

static void small_caps(const struct pair *pair)
{
    dt_completion buf[4];
    dt_xfer_id ids[5];
    size_t n = 77;
    uint64_t before = pair_stats(pair).done;
    for (uint64_t i = 0; i < 5; i++)
        ids[i] = write_to(pair, "a", 100 + i);
    drive(pair, before + 5);

    /* Two at a time, each one once, and not a byte beyond what is said. */
    bool seen[5] = {false};
    static const size_t expected[] = {2, 2, 1, 0};
    for (int round = 0; round < 4; round++) {
        memset(buf, 0xee, sizeof buf);
        CHECK_OK(dt_poll(pair->ours.t, "a", buf, 2, &n));
        CHECK(n == expected[round]);
        for (size_t i = 0; i < n; i++) {
            uint64_t which = buf[i].user_data - 100;
            CHECK(which < 5 && !seen[which] && buf[i].id == ids[which]);
            seen[which] = true;
        }
        for (const uint8_t *at = (const uint8_t *)(buf + n); at < (const uint8_t *)(buf + 4); at++)
            CHECK(*at == 0xee);
    }
}

static void scopes(const struct pair *pair)
{
    dt_completion buf[4];
    size_t n = 77;
    uint64_t before = pair_stats(pair).done;
    dt_xfer_id a = write_to(pair, "a", 1), b = write_to(pair, "b", 2);
    /* A poll for one peer drives the work of all. */
    while (pair_stats(pair).done < before + 2) {
        CHECK_OK(dt_poll(pair->ours.t, "nobody", buf, 4, &n));
        side_drive(&pair->peer);
    }
    CHECK_OK(dt_poll(pair->ours.t, "nobody", buf, 4, &n));
    CHECK(n == 0);
    CHECK_OK(dt_poll(pair->ours.t, "b", buf, 4, &n));
    CHECK(n == 1 && buf[0].id == b && buf[0].user_data == 2);
    CHECK_OK(dt_poll(pair->ours.t, "b", buf, 4, &n));
    CHECK(n == 0);
    CHECK_OK(dt_poll(pair->ours.t, NULL, buf, 4, &n));
    CHECK(n == 1 && buf[0].id == a && buf[0].user_data == 1);
}

static atomic_bool stop;

/* Over sockets a call that waits needs a peer that goes on meanwhile. */
static void *drive_peer(void *peer)
{
    while (!atomic_load(&stop)) {
        dt_completion buf[1];
        size_t n;
        CHECK_OK(dt_wait(((const struct side *)peer)->t, NULL, buf, 1, 1, &n));
    }
    return NULL;
}

static void waiting(const struct pair *pair)
{
    dt_completion buf[4];
    size_t n = 77;
    uint64_t start = now_ms();
    CHECK_OK(dt_wait(pair->ours.t, NULL, buf, 4, 50, &n));
    CHECK(n == 0);
    CHECK(now_ms() - start >= 49);

    n = 77;
    CHECK_OK(dt_wait(pair->ours.t, NULL, buf, 4, 0, &n));
    CHECK(n == 0);

    dt_xfer_id id = write_to(pair, "a", 3);
    start = now_ms();
    CHECK_OK(dt_wait(pair->ours.t, "a", buf, 4, BOUND_MS, &n));
    CHECK(n == 1 && buf[0].id == id);
    CHECK(now_ms() - start < BOUND_MS / 2);

    /* Another peer's completion does not end the wait, and stays. */
    id = write_to(pair, "a", 4);
    CHECK_OK(dt_wait(pair->ours.t, "b", buf, 4, 20, &n));
    CHECK(n == 0);
    CHECK_OK(dt_wait(pair->ours.t, NULL, NULL, 0, BOUND_MS, &n));
    CHECK(n == 0);
    CHECK_OK(dt_wait(pair->ours.t, NULL, buf, 4, BOUND_MS, &n));
    CHECK(n == 1 && buf[0].id == id);
}

int main(void)
{
    /* 4 MiB blocks: a transfer does not fit into the call that submits it. */
    static const size_t lengths[] = {64, 4 << 20};
    for (int i = 0; i < 2; i++) {
        struct pair pair = pair_open(2, lengths[i]);
        CHECK_OK(pair_add(&pair, "a"));
        CHECK_OK(pair_add(&pair, "b"));
        small_caps(&pair);
        scopes(&pair);
        pthread_t driver;
        atomic_store(&stop, false);
        CHECK(pthread_create(&driver, NULL, drive_peer, &pair.peer) == 0);
        waiting(&pair);
        atomic_store(&stop, true);
        CHECK(pthread_join(driver, NULL) == 0);
        CHECK(pair_stats(&pair).polls > 0);
        pair_close(&pair);
    }
    return 0;
}
