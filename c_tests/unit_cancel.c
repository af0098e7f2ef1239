/* dt_cancel. */
#include <string.h>

#include "unit_pair.h"

#define LEN ((size_t)16 << 20)
#define NUM 8

static void nothing_surfaces(const struct pair *pair)
{
    dt_completion buf[NUM];
    size_t n = 77;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dt_poll(pair->ours.t, NULL, buf, NUM, &n));
        CHECK(n == 0);
        side_drive(&pair->peer);
    }
}

/* Until nothing that was cancelled can touch memory any more. */
static void drain(const struct pair *pair)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    while (pair_stats(pair).draining > 0) {
        CHECK(now_ms() < deadline);
        pair_poll(pair);
    }
}

static void in_flight(const struct pair *pair, dt_cancel_mode mode)
{
    /* The first of three large transfers has begun, at most; the middle one lives. */
    dt_xfer_id ids[3], still[5] = {7, 7, 7, 7, 7};
    dt_completion completion;
    size_t n = 77;
    pair_fill(pair, 1);
    dt_stats before = pair_stats(pair);
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_write(pair, i, 4 + i);
    CHECK_OK(dt_poll(pair->ours.t, NULL, NULL, 0, &n));

    /* Ids that are unknown, and repetitions, are ignored. */
    dt_xfer_id list[] = {ids[0], ids[2], UINT64_MAX, 0, ids[0]};
    CHECK_OK(dt_cancel(pair->ours.t, list, 5, mode, still, &n));
    dt_stats after = pair_stats(pair);
    CHECK(after.cancelled + after.done + n == before.cancelled + before.done + 2);
    /* What NIXL has begun it also ends: in the background, or reported once. */
    CHECK(n == 0 || (on_nixl() && mode == DT_CANCEL_WAIT && n == 1 && still[0] == ids[0]));
    CHECK(after.draining == 0 || (on_nixl() && mode == DT_CANCEL_IMMEDIATE));
    size_t left = 1 + n;
    for (size_t i = 0; i < left; i++) {
        pair_collect(pair, NULL, &completion, 1);
        CHECK(completion.id == ids[1] || (n == 1 && completion.id == ids[0]));
        CHECK(completion.status == DT_OK || completion.id == ids[0]);
        CHECK(completion.bytes == (completion.status == DT_OK ? LEN : 0));
    }
    drain(pair);
    CHECK(side_block_is(&pair->peer, 5, 2));
    CHECK(side_block_is(&pair->peer, 6, 7)); /* never begun */
    nothing_surfaces(pair);
    after = pair_stats(pair);

    /* Reported ids are ignored, too. */
    still[0] = 7;
    CHECK_OK(dt_cancel(pair->ours.t, ids, 3, mode, still, &n));
    CHECK(n == 0 && still[0] == 7);
    CHECK(pair_stats(pair).submitted == after.submitted);
    CHECK(pair_stats(pair).cancelled == after.cancelled);
}

static void done_but_not_reported(const struct pair *pair, dt_cancel_mode mode)
{
    size_t n = 77;
    dt_xfer_id id, still = 7;
    uint64_t done = pair_stats(pair).done;
    id = pair_write(pair, 0, 1);
    while (pair_stats(pair).done == done)
        pair_poll(pair);
    CHECK_OK(dt_cancel(pair->ours.t, &id, 1, mode, &still, &n));
    CHECK(n == 0);
    nothing_surfaces(pair);
}

static void optional_pointers(const struct pair *pair)
{
    size_t n = 77;
    dt_xfer_id id = pair_write(pair, 0, 1);
    CHECK_OK(dt_cancel(pair->ours.t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    nothing_surfaces(pair);
    CHECK_OK(dt_cancel(pair->ours.t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, &n));
    CHECK(n == 0);
    n = 77;
    CHECK_OK(dt_cancel(pair->ours.t, NULL, 0, DT_CANCEL_WAIT, NULL, &n));
    CHECK(n == 0);
    CHECK_OK(dt_cancel(pair->ours.t, NULL, 0, DT_CANCEL_IMMEDIATE, NULL, NULL));

    /* The list may be given back in place. */
    id = pair_write(pair, 0, 1);
    CHECK_OK(dt_cancel(pair->ours.t, &id, 1, DT_CANCEL_WAIT, &id, &n));
    CHECK(n == 0);
    nothing_surfaces(pair);
}

int main(void)
{
    struct pair pair = pair_open(NUM, LEN);
    static const dt_cancel_mode modes[] = {DT_CANCEL_IMMEDIATE, DT_CANCEL_WAIT};
    for (int i = 0; i < 2; i++) {
        in_flight(&pair, modes[i]);
        done_but_not_reported(&pair, modes[i]);
    }
    optional_pointers(&pair);
    pair_close(&pair);
    return 0;
}
