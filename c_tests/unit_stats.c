/* dt_get_stats: the counters, and a struct of any size. */
#include <string.h>

#include "unit_pair.h"

/* Of the first version, which had all but the last counter. */
#define FIRST_SIZE 104

/* A dt_stats of a caller that is newer than the library. */
struct newer {
    dt_stats known;
    uint8_t unknown[24];
};

static void sizes(const struct pair *pair)
{
    struct newer newer, poison;
    const uint8_t *all = (const uint8_t *)&newer;
    memset(&poison, 0xee, sizeof poison);
    CHECK(offsetof(dt_stats, notifs_refused) == FIRST_SIZE);

    static const size_t bad[] = {0, 8, FIRST_SIZE - 1, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        newer = poison;
        newer.known.struct_size = bad[i];
        CHECK_STATUS(dt_get_stats(pair->ours.t, &newer.known), DT_ERR_INVALID_ARG);
        CHECK(strstr(dt_last_error(), "struct_size") != NULL);
        newer.known.struct_size = poison.known.struct_size;
        CHECK(memcmp(&newer, &poison, sizeof newer) == 0);
    }

    /* Exactly as many bytes are filled as the caller says; those that are not known with 0. */
    for (size_t size = FIRST_SIZE; size <= sizeof newer; size++) {
        newer = poison;
        newer.known.struct_size = size;
        CHECK_OK(dt_get_stats(pair->ours.t, &newer.known));
        CHECK(newer.known.struct_size == size);
        CHECK(newer.known.submitted == 0 && newer.known.peers == 1);
        /* The last counter is 0, too, or a part of it. */
        for (size_t at = FIRST_SIZE; at < sizeof newer; at++)
            CHECK(all[at] == (at < size ? 0 : 0xee));
    }
}

int main(void)
{
    struct pair pair = pair_open(4, (size_t)4 << 20);
    dt_completion completions[4];
    size_t n;
    sizes(&pair);

    dt_stats stats = pair_stats(&pair);
    CHECK(stats.submitted == 0 && stats.done == 0 && stats.failed == 0 && stats.cancelled == 0);
    CHECK(stats.draining == 0 && stats.inflight == 0 && stats.polls == 0 && stats.peers == 1);
    CHECK(stats.bytes_written == 0 && stats.bytes_read == 0);
    CHECK(stats.notifs_sent == 0 && stats.notifs_received == 0 && stats.notifs_refused == 0);

    dt_xfer_id ids[3];
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_write(&pair, i, 3);
    stats = pair_stats(&pair);
    CHECK(stats.submitted == 3 && stats.inflight == 3);

    CHECK_OK(dt_cancel(pair.ours.t, &ids[1], 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    stats = pair_stats(&pair);
    CHECK(stats.submitted == 3 && stats.inflight == 2 && stats.cancelled == 1);

    /* What has ended counts by its outcome before it is reported. */
    do {
        CHECK_OK(dt_poll(pair.ours.t, "nobody", completions, 4, &n));
        CHECK(n == 0);
        side_drive(&pair.peer);
        stats = pair_stats(&pair);
    } while (stats.inflight > 0);
    CHECK(stats.done == 2 && stats.cancelled == 1 && stats.failed == 0);
    CHECK(stats.bytes_written == (uint64_t)8 << 20 && stats.bytes_read == 0);
    uint64_t polls = stats.polls;
    CHECK(polls > 0);
    pair_collect(&pair, NULL, completions, 2);
    stats = pair_stats(&pair);
    CHECK(stats.submitted == 3 && stats.done == 2 && stats.polls > polls);

    /* A refused submission is none. */
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", (uint32_t[]){9}, (uint32_t[]){0}, 1, 0, ids),
                 DT_ERR_OUT_OF_RANGE);
    CHECK(pair_stats(&pair).submitted == 3);

    /* They answer after the close, too. */
    CHECK_OK(dt_close(pair.ours.t, BOUND_MS));
    stats = pair_stats(&pair);
    CHECK(stats.submitted == 3 && stats.done == 2 && stats.cancelled == 1 && stats.peers == 0);
    pair_close(&pair);
    return 0;
}
