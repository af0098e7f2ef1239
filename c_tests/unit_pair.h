/* For tests in one process: a transport, and another one that is its peer "peer". */
#ifndef UNIT_PAIR_H
#define UNIT_PAIR_H

#include <stdint.h>
#include <string.h>

#include "backend.h"
#include "dt_check.h"
#include "dt_time.h"

struct side {
    uint8_t *base;
    size_t num_blocks;
    size_t block_len;
    dt_transport *t;
};

struct pair {
    struct side ours;
    struct side peer;
};

/* ---- one side ---- */

/* Every byte of block i is `seed + i`. */
static inline void side_fill(const struct side *side, uint8_t seed)
{
    for (size_t i = 0; i < side->num_blocks; i++)
        memset(side->base + i * side->block_len, (uint8_t)(seed + i), side->block_len);
}

static inline bool side_block_is(const struct side *side, size_t block, uint8_t byte)
{
    const uint8_t *at = side->base + block * side->block_len;
    for (size_t i = 0; i < side->block_len; i++)
        if (at[i] != byte)
            return false;
    return true;
}

/* A transport over new memory, filled from 1 on. */
static inline struct side side_open_with(size_t num_blocks, size_t block_len, dt_options options)
{
    struct side side = {NULL, num_blocks, block_len, NULL};
    side.base = (uint8_t *)malloc(num_blocks * block_len);
    CHECK(side.base != NULL);
    side_fill(&side, 1);
    CHECK_OK(dt_create(side.base, num_blocks, block_len, &options, &side.t));
    return side;
}

static inline struct side side_open(size_t num_blocks, size_t block_len)
{
    return side_open_with(num_blocks, block_len, test_options());
}

static inline void side_free(struct side *side)
{
    dt_destroy(side->t);
    free(side->base);
}

static inline void side_close(struct side *side)
{
    CHECK_OK(dt_close(side->t, BOUND_MS));
    side_free(side);
}

/* Its memory stays for free(): over NIXL a peer may use it until it learns of the close. */
static inline void side_close_early(struct side *side)
{
    CHECK_OK(dt_close(side->t, BOUND_MS));
    dt_destroy(side->t);
    side->t = NULL;
}

static inline dt_status side_add(const struct side *side, const char *peer_id,
                                 const struct side *peer)
{
    uint8_t metadata[65536];
    size_t len = 0;
    CHECK_OK(dt_get_agent_metadata(peer->t, metadata, sizeof metadata, &len));
    return dt_add_remote_peer(side->t, peer_id, metadata, len, dt_base_addr(peer->t),
                              peer->num_blocks, peer->block_len);
}

static inline dt_stats side_stats(const struct side *side)
{
    dt_stats stats;
    memset(&stats, 0xff, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(dt_get_stats(side->t, &stats));
    CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled + stats.inflight);
    return stats;
}

/* A poll of a target that has nothing to do itself. NIXL connects with its help, and over sockets
 * nothing arrives without it. */
static inline void side_drive(const struct side *side)
{
    size_t n;
    dt_poll(side->t, NULL, NULL, 0, &n);
}

/* ---- both ---- */

static inline struct pair pair_open_with(size_t num_blocks, size_t block_len, dt_options options)
{
    struct pair pair;
    pair.ours = side_open_with(num_blocks, block_len, options);
    pair.peer = side_open(num_blocks, block_len);
    CHECK_OK(side_add(&pair.ours, "peer", &pair.peer));
    return pair;
}

static inline struct pair pair_open(size_t num_blocks, size_t block_len)
{
    return pair_open_with(num_blocks, block_len, test_options());
}

static inline dt_status pair_add(const struct pair *pair, const char *peer_id)
{
    return side_add(&pair->ours, peer_id, &pair->peer);
}

static inline void pair_fill(const struct pair *pair, uint8_t seed)
{
    side_fill(&pair->ours, seed);
    side_fill(&pair->peer, seed);
}

/* Polls both sides, ours with no room for completions. */
static inline void pair_poll(const struct pair *pair)
{
    size_t n = 77;
    CHECK_OK(dt_poll(pair->ours.t, NULL, NULL, 0, &n));
    CHECK(n == 0);
    side_drive(&pair->peer);
}

/* dt_close of ours, with a peer that goes on. */
static inline void pair_close_ours(const struct pair *pair)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = dt_close(pair->ours.t, 10)) == DT_ERR_TIMEOUT && now_ms() < deadline)
        side_drive(&pair->peer);
    CHECK_OK(status);
}

static inline void pair_close(struct pair *pair)
{
    pair_close_ours(pair);
    side_free(&pair->ours);
    side_close(&pair->peer);
}

static inline dt_xfer_id pair_write(const struct pair *pair, uint32_t from, uint32_t to)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(pair->ours.t, "peer", &from, &to, 1, from, &id));
    CHECK(id != 0);
    return id;
}

/* Starts to read block `from` of the peer into our block `to`, without a message. */
static inline dt_xfer_id pair_read(const struct pair *pair, uint32_t from, uint32_t to)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_post_read(pair->ours.t, "peer", &to, &from, 1, NULL, 0, &id));
    CHECK(id != 0);
    return id;
}

/* Nothing but this call drives our side. */
static inline dt_xfer_state pair_state(const struct pair *pair, dt_xfer_id id)
{
    dt_xfer_state state = 77;
    CHECK_OK(dt_check_xfer_state(pair->ours.t, id, &state));
    CHECK(state <= DT_XFER_PROC);
    side_drive(&pair->peer);
    return state;
}

static inline dt_xfer_state pair_end(const struct pair *pair, dt_xfer_id id)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_xfer_state state;
    while ((state = pair_state(pair, id)) == DT_XFER_PROC)
        CHECK(now_ms() < deadline);
    return state;
}

static inline dt_stats pair_stats(const struct pair *pair)
{
    return side_stats(&pair->ours);
}

/* Waits until exactly `count` transfers of `peer_id` have been reported, in the order given out. */
static inline void pair_collect(const struct pair *pair, const char *peer_id,
                                dt_completion *completions, size_t count)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t have = 0, n = 0; have < count; have += n) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(pair->ours.t, peer_id, completions + have, count - have,
                         on_nixl() ? 1 : BOUND_MS, &n));
        CHECK(n <= count - have);
        side_drive(&pair->peer);
    }
}

#endif
