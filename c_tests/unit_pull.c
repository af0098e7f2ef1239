/* dt_post_read, dt_check_xfer_state, dt_xfer_state_str, dt_release_xfer, and what other calls do with
 * posted reads. Messages have unit_messages. */
#include <string.h>

#include "unit_pair.h"

/* One of these takes more than one slice of work. */
#define LEN ((size_t)16 << 20)
#define NUM 8

static void is_unknown(const struct pair *pair, dt_xfer_id id)
{
    dt_xfer_state state = 77;
    CHECK_STATUS(dt_check_xfer_state(pair->ours.t, id, &state), DT_ERR_NOT_FOUND);
    CHECK(state == 77);
    CHECK_STATUS(dt_release_xfer(pair->ours.t, id), DT_ERR_NOT_FOUND);
}

/* An end is final: no call makes another one of it. */
static void stays(const struct pair *pair, dt_xfer_id id, dt_xfer_state state)
{
    for (int i = 0; i < 3; i++) {
        CHECK(pair_state(pair, id) == state);
        pair_poll(pair);
    }
}

static void drain(const struct pair *pair)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    while (pair_stats(pair).draining > 0) {
        CHECK(now_ms() < deadline);
        pair_poll(pair);
    }
}

static void names(void)
{
    static const dt_xfer_state unknown[] = {2, -16, INT32_MAX, INT32_MIN};
    CHECK(DT_XFER_DONE == 0 && DT_XFER_PROC == 1);
    CHECK(strcmp(dt_xfer_state_str(DT_XFER_DONE), "DONE") == 0);
    CHECK(strcmp(dt_xfer_state_str(DT_XFER_PROC), "PROC") == 0);
    for (dt_status status = -15; status < 0; status++)
        CHECK(strcmp(dt_xfer_state_str(status), dt_status_str(status)) == 0);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(strcmp(dt_xfer_state_str(unknown[i]), "DT_ERR_UNKNOWN") == 0);
}

/* From the post to the release. The bytes are those of the peer, and no others are touched. */
static void life(const struct pair *pair)
{
    pair_fill(pair, 1);
    side_fill(&pair->peer, 101);
    dt_stats before = pair_stats(pair);
    dt_xfer_id ids[3];
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_read(pair, i, 7 - i);
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    CHECK(pair_stats(pair).inflight == 3);
    CHECK(pair_state(pair, ids[2]) == DT_XFER_PROC);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(pair_end(pair, ids[i]) == DT_XFER_DONE);
    for (uint32_t i = 0; i < NUM; i++)
        CHECK(side_block_is(&pair->ours, i, (uint8_t)(i >= 5 ? 101 + 7 - i : 1 + i)));

    dt_stats after = pair_stats(pair);
    CHECK(after.submitted == before.submitted + 3 && after.done == before.done + 3);
    CHECK(after.bytes_read == before.bytes_read + 3 * LEN);
    CHECK(after.bytes_written == before.bytes_written && after.inflight == 0);

    for (int i = 0; i < 3; i++)
        stays(pair, ids[i], DT_XFER_DONE);
    /* One is released while the others stay. */
    CHECK_OK(dt_release_xfer(pair->ours.t, ids[1]));
    is_unknown(pair, ids[1]);
    stays(pair, ids[0], DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair->ours.t, ids[0]));
    CHECK_OK(dt_release_xfer(pair->ours.t, ids[2]));
    CHECK(pair_stats(pair).done == after.done);
}

/* dt_poll and dt_wait drive posted reads and never report them. */
static void not_reported(const struct pair *pair)
{
    dt_completion completions[4];
    size_t n = 77;
    dt_xfer_id read = pair_read(pair, 0, 7);
    dt_xfer_id written = pair_write(pair, 1, 6);
    pair_collect(pair, NULL, completions, 1);
    CHECK(completions[0].id == written && completions[0].user_data == 1);
    uint64_t deadline = now_ms() + BOUND_MS;
    while (pair_stats(pair).inflight > 0) {
        CHECK(now_ms() < deadline);
        pair_poll(pair);
    }
    static const char *const scopes[] = {NULL, "peer"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(dt_poll(pair->ours.t, scopes[i], completions, 4, &n));
        CHECK(n == 0);
        CHECK_OK(dt_wait(pair->ours.t, scopes[i], completions, 4, 1, &n));
        CHECK(n == 0);
    }
    stays(pair, read, DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair->ours.t, read));
    CHECK_OK(dt_poll(pair->ours.t, NULL, completions, 4, &n));
    CHECK(n == 0);
}

/* Ids that dt_poll reports are not those of posted reads, before and after the report. */
static void others_ids(const struct pair *pair)
{
    dt_completion completion;
    dt_xfer_id id = 0;
    CHECK_OK(dt_read_blocks(pair->ours.t, "peer", (uint32_t[]){7}, (uint32_t[]){0}, 1, 5, &id));
    is_unknown(pair, id);
    pair_collect(pair, NULL, &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK && completion.user_data == 5);
    is_unknown(pair, id);
    is_unknown(pair, 0);
    is_unknown(pair, UINT64_MAX);
}

/* Released while it runs: forgotten at once, and in the end it touches nothing any more. */
static void released_early(const struct pair *pair)
{
    dt_xfer_id ids[3];
    pair_fill(pair, 1);
    dt_stats before = pair_stats(pair);
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_read(pair, i, 5 + i);
    CHECK(pair_state(pair, ids[2]) == DT_XFER_PROC);
    for (int i = 2; i >= 0; i--) {
        CHECK_OK(dt_release_xfer(pair->ours.t, ids[i]));
        is_unknown(pair, ids[i]);
    }
    dt_stats after = pair_stats(pair);
    CHECK(after.inflight == 0);
    CHECK(after.done + after.cancelled == before.done + before.cancelled + 3);
    CHECK(after.cancelled > before.cancelled);
    drain(pair);
    CHECK(side_block_is(&pair->ours, 7, 8)); /* never begun */
    CHECK_OK(dt_peer_status(pair->ours.t, "peer"));
}

static void cancelled(const struct pair *pair, dt_cancel_mode mode)
{
    dt_xfer_id ids[3], still[4] = {7, 7, 7, 7};
    size_t n = 77;
    pair_fill(pair, 1);
    side_fill(&pair->peer, 101);
    dt_stats before = pair_stats(pair);
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_read(pair, i, 5 + i);
    CHECK(pair_state(pair, ids[2]) == DT_XFER_PROC);

    dt_xfer_id list[] = {ids[0], ids[2], UINT64_MAX, ids[0]};
    CHECK_OK(dt_cancel(pair->ours.t, list, 4, mode, still, &n));
    CHECK(n == 0 || (on_nixl() && mode == DT_CANCEL_WAIT && n == 1 && still[0] == ids[0]));
    is_unknown(pair, ids[2]);
    if (n == 0) {
        is_unknown(pair, ids[0]);
    } else {
        /* It ends by itself, and stays until it is released. */
        dt_xfer_state end = pair_end(pair, ids[0]);
        CHECK(end == DT_XFER_DONE || end == DT_ERR_CANCELLED);
        CHECK(end != DT_XFER_DONE || side_block_is(&pair->ours, 5, 101));
        stays(pair, ids[0], end);
        CHECK_OK(dt_release_xfer(pair->ours.t, ids[0]));
    }
    CHECK(pair_end(pair, ids[1]) == DT_XFER_DONE);
    CHECK(side_block_is(&pair->ours, 6, 102));
    drain(pair);
    CHECK(side_block_is(&pair->ours, 7, 8)); /* never begun */

    /* One that is done is dropped, too. */
    CHECK_OK(dt_cancel(pair->ours.t, &ids[1], 1, mode, still, &n));
    CHECK(n == 0);
    is_unknown(pair, ids[1]);
    dt_stats after = pair_stats(pair);
    CHECK(after.submitted == before.submitted + 3 && after.inflight == 0);
    CHECK(after.failed == before.failed);
}

/* What runs ends with its peer, and can still be asked for. */
static void removed(struct pair *pair)
{
    dt_xfer_id ids[3];
    pair_fill(pair, 1);
    dt_xfer_id done = pair_read(pair, 0, 1);
    CHECK(pair_end(pair, done) == DT_XFER_DONE);
    for (uint32_t i = 0; i < 3; i++)
        ids[i] = pair_read(pair, i, 5 + i);
    CHECK(pair_state(pair, ids[2]) == DT_XFER_PROC);
    CHECK_OK(dt_remove_remote_peer(pair->ours.t, "peer"));
    for (int i = 0; i < 3; i++) {
        dt_xfer_state end = pair_end(pair, ids[i]);
        CHECK(end == DT_ERR_CANCELLED || (i == 0 && end == DT_XFER_DONE));
        stays(pair, ids[i], end);
    }
    CHECK(side_block_is(&pair->ours, 7, 8)); /* never begun */

    /* The name, known again, has nothing to do with them. */
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = pair_add(pair, "peer")) == DT_ERR_BUSY && now_ms() < deadline)
        pair_poll(pair);
    CHECK_OK(status);
    CHECK(pair_end(pair, pair_read(pair, 3, 4)) == DT_XFER_DONE);
    CHECK(side_block_is(&pair->ours, 4, 4));
    stays(pair, ids[2], DT_ERR_CANCELLED);
    stays(pair, done, DT_XFER_DONE);
    for (int i = 0; i < 3; i++)
        CHECK_OK(dt_release_xfer(pair->ours.t, ids[i]));
    CHECK_OK(dt_release_xfer(pair->ours.t, done));
    is_unknown(pair, ids[2]);
}

/* A refused post gives no id, moves no byte and is no failure of the peer. */
static void refused(const struct pair *pair)
{
    static uint8_t message[65537];
    dt_xfer_id id = 7;
    const uint32_t good[] = {0, 1, 2}, bad[] = {0, 1, NUM};
    pair_fill(pair, 1);
    side_fill(&pair->peer, 101);
    dt_stats before = pair_stats(pair);
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(dt_post_read(pair->ours.t, "peer", good, bad, 3, "m", 1, &id),
                     DT_ERR_OUT_OF_RANGE);
        CHECK(strstr(dt_last_error(), "remote_idxs[2] is 8") != NULL);
        CHECK_STATUS(dt_post_read(pair->ours.t, "peer", bad, good, 3, "m", 1, &id),
                     DT_ERR_OUT_OF_RANGE);
        CHECK(strstr(dt_last_error(), "local_idxs[2] is 8") != NULL);
    }
    CHECK_STATUS(dt_post_read(pair->ours.t, "peer", good, good, 0, "m", 1, &id),
                 DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_post_read(pair->ours.t, "peer", good, good, 3, message, sizeof message, &id),
                 DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "65537") != NULL && strstr(dt_last_error(), "65536") != NULL);
    CHECK_STATUS(dt_post_read(pair->ours.t, "nobody", good, good, 3, "m", 1, &id),
                 DT_ERR_NOT_FOUND);
    CHECK(strstr(dt_last_error(), "\"nobody\"") != NULL);
    CHECK(id == 7);
    CHECK(pair_stats(pair).submitted == before.submitted);
    for (size_t i = 0; i < NUM; i++)
        CHECK(side_block_is(&pair->ours, i, (uint8_t)(1 + i)));
    CHECK_OK(dt_peer_status(pair->ours.t, "peer"));
}

/* The last word on each read outlives its peer. */
static void lost(struct pair *pair)
{
    dt_xfer_id done = pair_read(pair, 0, 1), late = 0;
    CHECK(pair_end(pair, done) == DT_XFER_DONE);
    side_close_early(&pair->peer);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_xfer_state state = DT_XFER_PROC;
    dt_status status = dt_post_read(pair->ours.t, "peer", (uint32_t[]){1}, (uint32_t[]){1}, 1, "m",
                                    1, &late);
    if (status == DT_OK) {
        while (state == DT_XFER_PROC) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_check_xfer_state(pair->ours.t, late, &state));
        }
        CHECK(state == DT_ERR_PEER_LOST);
        for (int i = 0; i < 3; i++) {
            CHECK_OK(dt_check_xfer_state(pair->ours.t, late, &state));
            CHECK(state == DT_ERR_PEER_LOST);
        }
        CHECK_OK(dt_release_xfer(pair->ours.t, late));
    } else {
        CHECK_STATUS(status, DT_ERR_PEER_LOST);
    }
    CHECK_STATUS(dt_peer_status(pair->ours.t, "peer"), DT_ERR_PEER_LOST);
    CHECK_STATUS(dt_post_read(pair->ours.t, "peer", (uint32_t[]){1}, (uint32_t[]){1}, 1, NULL, 0,
                              &late),
                 DT_ERR_PEER_LOST);
    CHECK_OK(dt_check_xfer_state(pair->ours.t, done, &state));
    CHECK(state == DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair->ours.t, done));
}

int main(void)
{
    struct pair pair = pair_open(NUM, LEN);
    names();
    life(&pair);
    not_reported(&pair);
    others_ids(&pair);
    released_early(&pair);
    cancelled(&pair, DT_CANCEL_IMMEDIATE);
    cancelled(&pair, DT_CANCEL_WAIT);
    removed(&pair);
    refused(&pair);
    lost(&pair);
    side_close(&pair.ours);
    free(pair.peer.base);

    /* Handles that were not released end with the transport. */
    pair = pair_open(NUM, LEN);
    pair_read(&pair, 0, 1);
    pair_read(&pair, 1, 2);
    pair_close(&pair);
    return 0;
}
