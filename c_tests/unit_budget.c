/* poll_budget_us: how much of a large transfer one dt_poll does. Polls are counted, not timed. */
#include <inttypes.h>

#include "unit_self.h"

#define BLOCKS 32
#define LEN ((size_t)4 << 20)
/* Half of the blocks are copied to the other half. */
#define BYTES (BLOCKS / 2 * LEN)
/* The largest piece of work that a poll does not interrupt. */
#define PIECE ((size_t)1 << 20)

static uint64_t polls_with(uint32_t poll_budget_us)
{
    dt_options options = self_options();
    options.poll_budget_us = poll_budget_us;
    struct self self = self_open_with(BLOCKS, LEN, options);
    uint32_t from[BLOCKS / 2], to[BLOCKS / 2];
    uint64_t polls = 0, deadline = now_ms() + BOUND_MS;
    dt_completion done;
    dt_xfer_id id = 0;
    size_t n = 0;

    for (uint32_t i = 0; i < BLOCKS / 2; i++) {
        from[i] = i;
        to[i] = BLOCKS / 2 + i;
    }
    /* Once before, so that all memory is there. */
    for (int round = 0; round < 2; round++) {
        CHECK_OK(dt_write_blocks(self.t, "self", from, to, BLOCKS / 2, 0, &id));
        for (polls = 0, n = 0; n == 0; polls++) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_poll(self.t, NULL, &done, 1, &n));
        }
        CHECK(done.id == id && done.status == DT_OK && done.bytes == BYTES);
    }
    for (uint32_t i = 0; i < BLOCKS / 2; i++)
        CHECK(self_block_is(&self, to[i], (uint8_t)(from[i] + 1)));
    self_close(&self);
    printf("64 MiB with a budget of %" PRIu32 " us: %" PRIu64 " polls\n", poll_budget_us, polls);
    return polls;
}

int main(void)
{
    uint64_t least = polls_with(1), most = polls_with(100000), by_default = polls_with(0);
    CHECK(least >= BYTES / PIECE);
    CHECK(most * 10 <= least);
    /* 500 us are in between, and not one of the two. */
    CHECK(by_default < least && by_default > most);
    return 0;
}
