/* dt_cancel. */
#include <string.h>

#include "unit_self.h"

#define LEN ((size_t)16 << 20)
#define NUM 8

static void nothing_surfaces(const struct self *self)
{
    dt_completion buf[NUM];
    size_t n = 77;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dt_poll(self->t, NULL, buf, NUM, &n));
        CHECK(n == 0);
    }
}

static void in_flight(const struct self *self, dt_cancel_mode mode)
{
    /* The first of three large transfers has begun, at most; the middle one lives. */
    dt_xfer_id ids[3], still[5] = {7, 7, 7, 7, 7};
    dt_completion completion;
    size_t n = 77;
    self_fill(self, 1);
    dt_stats before = self_stats(self);
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = self_write(self, i, 4 + i);
    CHECK_OK(dt_poll(self->t, NULL, NULL, 0, &n));

    /* Ids that are unknown, and repetitions, are ignored. */
    dt_xfer_id list[] = {ids[0], ids[2], UINT64_MAX, 0, ids[0]};
    CHECK_OK(dt_cancel(self->t, list, 5, mode, still, &n));
    CHECK(n == 0);
    dt_stats after = self_stats(self);
    CHECK(after.cancelled + after.done == before.cancelled + before.done + 2);
    CHECK(after.draining == 0);
    self_collect(self, NULL, &completion, 1);
    CHECK(completion.id == ids[1] && completion.status == DT_OK && completion.bytes == LEN);
    CHECK(self_block_is(self, 5, 2));
    CHECK(self_block_is(self, 6, 7)); /* never begun */
    nothing_surfaces(self);

    /* Reported ids are ignored, too. */
    CHECK_OK(dt_cancel(self->t, ids, 3, mode, still, &n));
    CHECK(n == 0 && still[0] == 7);
    CHECK(self_stats(self).submitted == after.submitted);
    CHECK(self_stats(self).cancelled == after.cancelled);
}

static void done_but_not_reported(const struct self *self, dt_cancel_mode mode)
{
    size_t n = 77;
    dt_xfer_id id, still = 7;
    uint64_t done = self_stats(self).done;
    id = self_write(self, 0, 1);
    while (self_stats(self).done == done)
        CHECK_OK(dt_poll(self->t, NULL, NULL, 0, &n));
    CHECK_OK(dt_cancel(self->t, &id, 1, mode, &still, &n));
    CHECK(n == 0);
    nothing_surfaces(self);
}

static void optional_pointers(const struct self *self)
{
    size_t n = 77;
    dt_xfer_id id = self_write(self, 0, 1);
    CHECK_OK(dt_cancel(self->t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    nothing_surfaces(self);
    CHECK_OK(dt_cancel(self->t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, &n));
    CHECK(n == 0);
    n = 77;
    CHECK_OK(dt_cancel(self->t, NULL, 0, DT_CANCEL_WAIT, NULL, &n));
    CHECK(n == 0);
    CHECK_OK(dt_cancel(self->t, NULL, 0, DT_CANCEL_IMMEDIATE, NULL, NULL));

    /* The list may be given back in place. */
    id = self_write(self, 0, 1);
    CHECK_OK(dt_cancel(self->t, &id, 1, DT_CANCEL_WAIT, &id, &n));
    CHECK(n == 0);
    nothing_surfaces(self);
}

int main(void)
{
    struct self self = self_open(NUM, LEN);
    static const dt_cancel_mode modes[] = {DT_CANCEL_IMMEDIATE, DT_CANCEL_WAIT};
    for (int i = 0; i < 2; i++) {
        in_flight(&self, modes[i]);
        done_but_not_reported(&self, modes[i]);
    }
    optional_pointers(&self);
    self_close(&self);
    return 0;
}
