/* Very many at once: blocks of one transfer, transfers of one peer, messages. Each ends once, with the
 * right bytes, and what they took comes back. */
#include <malloc.h>
#include <string.h>

#include "procfs.h"
#include "unit_pair.h"

/* What a sanitizer keeps of what is freed, to know it again, and its notes of it. */
#ifdef DT_SANITIZED
#define KEPT_KIB (1024 * 1024)
#else
#define KEPT_KIB 0
#endif

/* ---- blocks ---- */

/* One transfer of ten million blocks: one run, or none that can be merged. */
static void blocks(bool scattered)
{
    enum { BLOCKS = 10000000 };
    /* NIXL's engine takes microseconds for each run. */
    const size_t count = scattered && on_nixl() ? BLOCKS / 100 : BLOCKS;
    struct pair pair = pair_open(BLOCKS, 1);
    uint32_t *from = (uint32_t *)malloc(count * sizeof *from);
    uint32_t *to = (uint32_t *)malloc(count * sizeof *to);
    dt_xfer_id id = 0;
    dt_completion done;
    CHECK(from != NULL && to != NULL);
    for (size_t i = 0; i < count; i++) {
        from[i] = (uint32_t)i;
        to[i] = (uint32_t)(scattered ? count - 1 - i : i);
        pair.ours.base[i] = (uint8_t)(i * 7 + i / 251);
    }
    memset(pair.peer.base, 0xee, BLOCKS);
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", from, to, count, 5, &id));
    /* They are the caller's again. */
    memset(to, 0xff, count * sizeof *to);
    pair_collect(&pair, "peer", &done, 1);
    CHECK(done.id == id && done.status == DT_OK && done.bytes == count && done.user_data == 5);
    for (size_t i = 0; i < count; i++)
        CHECK(pair.peer.base[scattered ? count - 1 - i : i] == (uint8_t)(i * 7 + i / 251));
    for (size_t i = count; i < BLOCKS; i++)
        CHECK(pair.peer.base[i] == 0xee);

    /* One that is wrong among all: nothing is moved. */
    memset(to, 0, count * sizeof *to);
    to[count - 1] = BLOCKS;
    memset(pair.peer.base, 0xdd, BLOCKS);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", from, to, count, 5, &id),
                 DT_ERR_OUT_OF_RANGE);
    pair_poll(&pair);
    CHECK(side_block_is(&pair.peer, 0, 0xdd) && pair_stats(&pair).submitted == 1);
    free(from);
    free(to);
    pair_close(&pair);
}

/* ---- transfers ---- */

#define TRANSFERS 100000
#define LARGE 64
#define LEN 64

static dt_xfer_id ids[TRANSFERS];

/* Nobody polls: all wait behind one that has too many runs to be done at once. */
static void submit_all(const struct pair *pair)
{
    uint32_t from[LARGE], to[LARGE];
    for (uint32_t i = 0; i < LARGE; i++) {
        from[i] = i;
        to[i] = LARGE - 1 - i;
    }
    CHECK_OK(dt_write_blocks(pair->ours.t, "peer", from, to, LARGE, 0, &ids[0]));
    for (uint32_t i = 1; i < TRANSFERS; i++) {
        uint32_t block = LARGE + i % 8;
        CHECK_OK(dt_write_blocks(pair->ours.t, "peer", &block, &block, 1, i, &ids[i]));
        CHECK(ids[i] > ids[i - 1]);
    }
}

/* All are reported, each once, with one of two statuses. */
static void collect_all(const struct pair *pair, dt_status one, dt_status other)
{
    static bool seen[TRANSFERS];
    static dt_completion done[1000];
    uint64_t deadline = now_ms() + BOUND_MS;
    size_t n;
    memset(seen, 0, sizeof seen);
    for (size_t left = TRANSFERS; left > 0; left -= n) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(pair->ours.t, "peer", done, 1000, &n));
        side_drive(&pair->peer);
        /* The bound is one of standing still: so many take their time on a busy machine. */
        if (n > 0)
            deadline = now_ms() + BOUND_MS;
        for (size_t i = 0; i < n; i++) {
            size_t at = done[i].user_data;
            CHECK(at < TRANSFERS && done[i].id == ids[at] && !seen[at]);
            CHECK(done[i].status == one || done[i].status == other);
            seen[at] = true;
        }
    }
    CHECK_OK(dt_poll(pair->ours.t, NULL, done, 1000, &n));
    CHECK(n == 0);
}

static void settle(const struct pair *pair)
{
    uint64_t deadline = now_ms() + BOUND_MS, draining = UINT64_MAX;
    dt_stats stats;
    do {
        CHECK(now_ms() < deadline);
        pair_poll(pair);
        stats = pair_stats(pair);
        if (stats.draining < draining)
            draining = stats.draining, deadline = now_ms() + BOUND_MS;
    } while (stats.draining > 0);
    CHECK(stats.inflight == 0);
}

static void transfers(void)
{
    struct pair pair = pair_open(LARGE + 8, LEN);
    size_t still = 77;
    long before = 0;
    /* NIXL takes its time. */
    const int rounds = on_nixl() ? 2 : 3;
    for (int round = 0; round < rounds; round++) {
        dt_xfer_id *list = (dt_xfer_id *)malloc(sizeof ids);
        CHECK(list != NULL);
        /* All done. */
        side_fill(&pair.peer, 100);
        submit_all(&pair);
        CHECK(on_nixl() || pair_stats(&pair).inflight == TRANSFERS);
        collect_all(&pair, DT_OK, DT_OK);
        for (size_t i = 0; i < LARGE + 8; i++)
            CHECK(side_block_is(&pair.peer, i, (uint8_t)(1 + (i < LARGE ? LARGE - 1 - i : i))));
        /* All cancelled, in one call. */
        submit_all(&pair);
        memcpy(list, ids, sizeof ids);
        CHECK_OK(dt_cancel(pair.ours.t, list, TRANSFERS, DT_CANCEL_IMMEDIATE, NULL, &still));
        CHECK(still == 0);
        settle(&pair);
        /* Those that cannot be stopped are listed, and reported. */
        submit_all(&pair);
        CHECK_OK(dt_cancel(pair.ours.t, ids, TRANSFERS, DT_CANCEL_WAIT, list, &still));
        CHECK(still <= TRANSFERS);
        uint64_t deadline = now_ms() + BOUND_MS;
        for (size_t i = 0, n; i < still; i += n) {
            static dt_completion done[100];
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_wait(pair.ours.t, "peer", done, 100, 1, &n));
            side_drive(&pair.peer);
            CHECK(i + n <= still);
            if (n > 0)
                deadline = now_ms() + BOUND_MS;
        }
        settle(&pair);
        /* All taken away with their peer. */
        submit_all(&pair);
        CHECK_OK(dt_remove_remote_peer(pair.ours.t, "peer"));
        collect_all(&pair, DT_OK, DT_ERR_CANCELLED);
        CHECK_OK(pair_add(&pair, "peer"));
        free(list);
        malloc_trim(0);
        long now = holdings_now().rss_kib;
        printf("%d transfers, round %d: %ld KiB\n", TRANSFERS, round, now);
        CHECK(round == 0 || now <= before + 4096 + KEPT_KIB);
        before = now;
    }
    submit_all(&pair);
    pair_close(&pair);
}

/* ---- messages ---- */

/* So many that wait are not thrown away with NIXL, which cannot make senders wait. */
#define MOST_ON_NIXL 500

/* The longest ones, as fast as they can be sent, to a receiver that takes few at a time. */
static void messages(void)
{
    enum { COUNT = 5000, LONGEST = 65536, FEW = 3 };
    static uint8_t bytes[LONGEST], arena[FEW * (LONGEST + 100)];
    struct pair pair = pair_open(1, 64);
    size_t sent = 0, seen = 0, busy = 0, count, used;
    uint64_t deadline = now_ms() + BOUND_MS;
    long before = holdings_now().rss_kib, most = before;
    while (seen < COUNT) {
        CHECK(now_ms() < deadline);
        for (int tries = 0; tries < 20 && sent < COUNT; tries++) {
            if (on_nixl() && sent - seen >= MOST_ON_NIXL)
                break;
            memset(bytes, (int)(sent * 31), sizeof bytes);
            memcpy(bytes, &sent, sizeof sent);
            dt_status status = dt_send_notif(pair.ours.t, "peer", bytes, sizeof bytes);
            if (status != DT_OK) {
                CHECK_STATUS(status, DT_ERR_BUSY);
                busy++;
                break;
            }
            sent++;
        }
        side_drive(&pair.ours);
        dt_notif got[FEW];
        CHECK_OK(dt_get_new_notifs(pair.peer.t, got, FEW, arena, sizeof arena, &count, &used));
        if (count > 0)
            deadline = now_ms() + BOUND_MS;
        for (size_t i = 0; i < count; i++, seen++) {
            const uint8_t *msg = (const uint8_t *)got[i].msg;
            size_t number;
            memcpy(&number, msg, sizeof number);
            CHECK(number == seen && got[i].msg_len == LONGEST);
            CHECK(msg[sizeof number] == (uint8_t)(seen * 31) &&
                  memcmp(msg + sizeof number, msg + sizeof number + 1,
                         LONGEST - sizeof number - 1) == 0);
        }
        if (seen % 100 == 0) {
            long now = holdings_now().rss_kib;
            most = now > most ? now : most;
        }
    }
    dt_stats ours = pair_stats(&pair), theirs = side_stats(&pair.peer);
    printf("%d messages of 64 KiB: %zu times no room, at most %ld KiB more than before\n", COUNT,
           busy, most - before);
    CHECK(ours.notifs_sent == COUNT && theirs.notifs_received == COUNT);
    CHECK(theirs.notifs_refused == 0 && (on_nixl() || busy > 0));
    CHECK(most - before < (on_nixl() ? 128 : 8) * 1024 + KEPT_KIB);
    pair_close(&pair);
}

/* A receiver that never asks: LOCAL stops the sender, and what NIXL throws away is counted. */
static void a_receiver_that_never_asks(void)
{
    enum { COUNT = 1500, LONGEST = 65536 };
    static uint8_t bytes[LONGEST], arena[LONGEST + 100];
    struct pair pair = pair_open(1, 64);
    size_t sent = 0, seen = 0, count, used, last = 0;
    uint64_t deadline = now_ms() + BOUND_MS;
    long before = holdings_now().rss_kib;
    while (sent < COUNT) {
        CHECK(now_ms() < deadline);
        memcpy(bytes, &sent, sizeof sent);
        dt_status status = dt_send_notif(pair.ours.t, "peer", bytes, sizeof bytes);
        if (status == DT_OK)
            sent++, deadline = now_ms() + BOUND_MS;
        else
            CHECK_STATUS(status, DT_ERR_BUSY);
        if (!on_nixl() && status == DT_ERR_BUSY)
            break;
        pair_poll(&pair);
    }
    long most = holdings_now().rss_kib - before;
    deadline = now_ms() + BOUND_MS;
    while (seen + side_stats(&pair.peer).notifs_refused < sent) {
        dt_notif got;
        CHECK(now_ms() < deadline);
        side_drive(&pair.ours);
        CHECK_OK(dt_get_new_notifs(pair.peer.t, &got, 1, arena, sizeof arena, &count, &used));
        if (count == 0)
            continue;
        size_t number;
        memcpy(&number, got.msg, sizeof number);
        CHECK(got.msg_len == LONGEST && (seen == 0 || number > last));
        last = number;
        seen++;
        deadline = now_ms() + BOUND_MS;
    }
    printf("%zu messages to one that never asked: %zu have come, at most %ld KiB\n", sent, seen,
           most);
    CHECK(seen > 0 && (on_nixl() ? seen < sent : seen == sent));
    CHECK(most < (on_nixl() ? 160 : 8) * 1024 + KEPT_KIB);
    pair_close(&pair);
}

int main(void)
{
    blocks(false);
    blocks(true);
    transfers();
    messages();
    a_receiver_that_never_asks();
    return 0;
}
