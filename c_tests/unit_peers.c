/* dt_add_remote_peer, dt_remove_remote_peer, dt_peer_status. */
#include <string.h>

#include "unit_pair.h"

static uint8_t metadata[65536];
static size_t len;

static dt_status add(const struct pair *pair, uint64_t base, size_t num, size_t block_len)
{
    return dt_add_remote_peer(pair->ours.t, "p", metadata, len, base, num, block_len);
}

int main(void)
{
    struct pair pair = pair_open(8, 64);
    const uint64_t base = dt_base_addr(pair.peer.t);
    dt_completion completions[4];
    dt_xfer_id id;
    size_t n = 77;
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &len));

    CHECK_STATUS(dt_peer_status(pair.ours.t, "p"), DT_ERR_NOT_FOUND);
    CHECK(strstr(dt_last_error(), "\"p\"") != NULL);
    CHECK_STATUS(dt_remove_remote_peer(pair.ours.t, "p"), DT_ERR_NOT_FOUND);

    CHECK_STATUS(add(&pair, base, 8, 32), DT_ERR_INCOMPATIBLE);
    CHECK(strstr(dt_last_error(), "32") != NULL && strstr(dt_last_error(), "64") != NULL);
    CHECK_STATUS(add(&pair, base, 9, 64), DT_ERR_INCOMPATIBLE);
    CHECK_STATUS(add(&pair, base - 64, 8, 64), DT_ERR_INCOMPATIBLE);
    CHECK_STATUS(dt_add_remote_peer(pair.ours.t, "p", "garbage", 7, base, 8, 64),
                 DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_add_remote_peer(pair.ours.t, "p", metadata, len - 1, base, 8, 64),
                 DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_peer_status(pair.ours.t, "p"), DT_ERR_NOT_FOUND);
    CHECK(pair_stats(&pair).peers == 1);

    CHECK_OK(add(&pair, base, 8, 64));
    CHECK_OK(dt_peer_status(pair.ours.t, "p"));
    CHECK(pair_stats(&pair).peers == 2);

    /* Added again over a part of the region: block 0 of "p" is block 4 of its memory. */
    CHECK_OK(add(&pair, base + 4 * 64, 4, 64));
    CHECK(pair_stats(&pair).peers == 2);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "p", (uint32_t[]){0}, (uint32_t[]){4}, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_OK(dt_write_blocks(pair.ours.t, "p", (uint32_t[]){1}, (uint32_t[]){0}, 1, 9, &id));
    pair_collect(&pair, "p", completions, 1);
    CHECK(completions[0].id == id && completions[0].status == DT_OK);
    CHECK(side_block_is(&pair.peer, 4, 2));

    /* Removed with an id that was not reported: it surfaces once, under the name. */
    CHECK_OK(dt_write_blocks(pair.ours.t, "p", (uint32_t[]){1}, (uint32_t[]){1}, 1, 9, &id));
    CHECK_OK(dt_remove_remote_peer(pair.ours.t, "p"));
    CHECK_STATUS(dt_peer_status(pair.ours.t, "p"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_remove_remote_peer(pair.ours.t, "p"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "p", (uint32_t[]){1}, (uint32_t[]){1}, 1, 9, &id),
                 DT_ERR_NOT_FOUND);
    pair_collect(&pair, "p", completions, 1);
    CHECK(completions[0].id == id);
    CHECK(completions[0].status == DT_OK || completions[0].status == DT_ERR_CANCELLED);
    CHECK_OK(dt_poll(pair.ours.t, NULL, completions, 4, &n));
    CHECK(n == 0);

    /* The other peer has seen nothing of it. */
    CHECK_OK(dt_peer_status(pair.ours.t, "peer"));
    CHECK(pair_stats(&pair).peers == 1);
    pair_close(&pair);
    return 0;
}
