/* poll_budget_us: how much of a large transfer one dt_poll does. Polls are counted, not timed. */
#include <inttypes.h>

#include "unit_pair.h"

#define BLOCKS 32
#define LEN ((size_t)4 << 20)
/* Half of the blocks are copied to the other half. */
#define BYTES (BLOCKS / 2 * LEN)
/* The largest piece of work that a poll does not interrupt. */
#define LOCAL_PIECE ((size_t)1 << 20)
#define NIXL_PIECE ((size_t)4 << 20)

static uint64_t polls_with(uint32_t poll_budget_us)
{
    dt_options options = test_options();
    options.poll_budget_us = poll_budget_us;
    struct pair pair = pair_open_with(BLOCKS, LEN, options);
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
        CHECK_OK(dt_write_blocks(pair.ours.t, "peer", from, to, BLOCKS / 2, 0, &id));
        for (polls = 0, n = 0; n == 0; polls++) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_poll(pair.ours.t, NULL, &done, 1, &n));
            side_drive(&pair.peer);
        }
        CHECK(done.id == id && done.status == DT_OK && done.bytes == BYTES);
    }
    for (uint32_t i = 0; i < BLOCKS / 2; i++)
        CHECK(side_block_is(&pair.peer, to[i], (uint8_t)(from[i] + 1)));
    pair_close(&pair);
    printf("64 MiB with a budget of %" PRIu32 " us: %" PRIu64 " polls\n", poll_budget_us, polls);
    return polls;
}

int main(void)
{
    uint64_t least = polls_with(1), most = polls_with(100000), by_default = polls_with(0);
    /* Over sockets polls are not for copying: there are as many as there is time for. */
    if (over_tcp())
        return 0;
    CHECK(least >= BYTES / (on_nixl() ? NIXL_PIECE : LOCAL_PIECE));
    CHECK(most * 10 <= least);
    /* 500 us are in between, and not one of the two. */
    CHECK(by_default < least && by_default > most);
    return 0;
}
