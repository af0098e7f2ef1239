/* dt_write_blocks and dt_read_blocks: which bytes move, and what is said about them. */
#include <string.h>

#include "unit_pair.h"

/* The two sides differ in everything, so that they cannot be mixed up. */
static struct pair pair;

/* All blocks of both sides are as after fill, except block `at` of `side`, which is `byte`. */
static void check_all(const struct side *side, const uint32_t *at, const uint8_t *byte, size_t count)
{
    const struct side *both[] = {&pair.ours, &pair.peer};
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < both[s]->num_blocks; i++) {
            uint8_t expected = (uint8_t)((both[s] == &pair.ours ? 1 : 101) + i);
            for (size_t k = 0; k < count; k++)
                if (both[s] == side && at[k] == i)
                    expected = byte[k];
            CHECK(side_block_is(both[s], i, expected));
        }
    }
}

static void check_completion(dt_xfer_id id, uint64_t user_data, uint64_t bytes)
{
    dt_completion completion;
    memset(&completion, 0xff, sizeof completion);
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.id == id);
    CHECK(completion.user_data == user_data);
    CHECK(completion.bytes == bytes);
    CHECK(completion.status == DT_OK);
    CHECK(completion.reserved == 0);
}

static void fill(void)
{
    side_fill(&pair.ours, 1);
    side_fill(&pair.peer, 101);
}

int main(void)
{
    pair.ours = side_open(16, 4096);
    pair.peer = side_open(7, 4096);
    CHECK_OK(pair_add(&pair, "peer"));
    static const uint32_t local[] = {15, 3, 4, 0}, remote[] = {0, 5, 6, 2};
    dt_xfer_id id = 0, second = 0;

    fill();
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", local, remote, 4, UINT64_MAX, &id));
    CHECK(id != 0);
    check_completion(id, UINT64_MAX, 4 * 4096);
    check_all(&pair.peer, remote, (const uint8_t[]){16, 4, 5, 1}, 4);

    fill();
    CHECK_OK(dt_read_blocks(pair.ours.t, "peer", local, remote, 4, 0, &second));
    CHECK(second != 0 && second != id);
    check_completion(second, 0, 4 * 4096);
    check_all(&pair.ours, local, (const uint8_t[]){101, 106, 107, 103}, 4);

    /* The lists are the caller's again when the call returns. */
    fill();
    uint32_t from[] = {9}, to[] = {1};
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", from, to, 1, 5, &id));
    from[0] = to[0] = UINT32_MAX;
    check_completion(id, 5, 4096);
    check_all(&pair.peer, (const uint32_t[]){1}, (const uint8_t[]){10}, 1);

    /* The counters know both directions. */
    dt_stats stats = pair_stats(&pair);
    CHECK(stats.submitted == 3 && stats.done == 3 && stats.failed == 0 && stats.inflight == 0);
    CHECK(stats.bytes_written == 5 * 4096 && stats.bytes_read == 4 * 4096);

    /* The far side's transport closes: what is submitted then fails, and the peer is lost. NIXL lets
     * an initiator go on until it learns of the close. */
    CHECK_OK(dt_close(pair.peer.t, BOUND_MS));
    from[0] = to[0] = 1;
    fill();
    dt_status status;
    uint64_t deadline = now_ms() + BOUND_MS;
    do {
        CHECK(now_ms() < deadline);
        status = dt_write_blocks(pair.ours.t, "peer", from, to, 1, 5, &id);
        if (status == DT_OK) {
            dt_completion completion;
            pair_collect(&pair, "peer", &completion, 1);
            CHECK(completion.id == id);
            CHECK(completion.bytes == (completion.status == DT_OK ? 4096 : 0));
            status = completion.status;
        }
    } while (over_cma() && status == DT_OK);
    CHECK(status == DT_ERR_PEER_LOST);
    if (over_cma())
        side_fill(&pair.peer, 101);
    check_all(NULL, NULL, NULL, 0);
    CHECK_STATUS(dt_peer_status(pair.ours.t, "peer"), DT_ERR_PEER_LOST);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", from, to, 1, 5, &id), DT_ERR_PEER_LOST);

    pair_close(&pair);
    return 0;
}
