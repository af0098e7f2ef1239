/* A transport that is its own peer: LOCAL serves it, NIXL reaches other agents only. */
#include <string.h>

#include "unit_pair.h"

static void served(struct side *side)
{
    dt_completion completion;
    dt_xfer_id id = 0;
    size_t n = 0;
    const uint32_t from[] = {0, 5}, to[] = {7, 2};

    CHECK_OK(side_add(side, "me", side));
    CHECK_OK(dt_write_blocks(side->t, "me", from, to, 2, 3, &id));
    CHECK_OK(dt_wait(side->t, "me", &completion, 1, BOUND_MS, &n));
    CHECK(n == 1 && completion.id == id && completion.status == DT_OK);
    CHECK(completion.bytes == 2 * side->block_len);
    for (size_t i = 0; i < side->num_blocks; i++)
        CHECK(side_block_is(side, i, (uint8_t)(i == 7 ? 1 : i == 2 ? 6 : i + 1)));

    CHECK_OK(dt_read_blocks(side->t, "me", from, to, 1, 3, &id));
    CHECK_OK(dt_wait(side->t, NULL, &completion, 1, BOUND_MS, &n));
    CHECK(n == 1 && completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(side, 0, 1));
    CHECK_OK(dt_remove_remote_peer(side->t, "me"));
}

static void refused(struct side *side)
{
    CHECK_STATUS(side_add(side, "me", side), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "own name") != NULL);
    CHECK_STATUS(dt_peer_status(side->t, "me"), DT_ERR_NOT_FOUND);
    /* Nor is another one taken that has this transport's name. */
    dt_options options = test_options();
    options.agent_name = dt_agent_name(side->t);
    struct side namesake = side_open_with(side->num_blocks, side->block_len, options);
    CHECK_STATUS(side_add(side, "namesake", &namesake), DT_ERR_INVALID_ARG);
    side_close(&namesake);
}

int main(void)
{
    /* 1 MiB: not copied by the call that submits it. */
    static const size_t lengths[] = {64, 1 << 20};
    for (int i = 0; i < 2; i++) {
        struct side side = side_open(8, lengths[i]);
        (on_nixl() ? refused : served)(&side);
        CHECK(side_stats(&side).peers == 0);
        side_close(&side);
    }
    return 0;
}
