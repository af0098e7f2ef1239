/* For tests in one process: a transport that has itself as a peer. */
#ifndef UNIT_SELF_H
#define UNIT_SELF_H

#include <stdint.h>
#include <string.h>

#include "dt_check.h"
#include "dt_time.h"

struct self {
    uint8_t *base;
    size_t num_blocks;
    size_t block_len;
    dt_transport *t;
};

static inline dt_options self_options(void)
{
    dt_options options = DT_OPTIONS_INIT;
    options.backend = DT_BACKEND_LOCAL;
    return options;
}

static inline dt_status self_add(const struct self *self, const char *peer_id)
{
    uint8_t metadata[65536];
    size_t len = 0;
    CHECK_OK(dt_get_agent_metadata(self->t, metadata, sizeof metadata, &len));
    return dt_add_remote_peer(self->t, peer_id, metadata, len, dt_base_addr(self->t),
                              self->num_blocks, self->block_len);
}

/* Every byte of block i is `seed + i`. */
static inline void self_fill(const struct self *self, uint8_t seed)
{
    for (size_t i = 0; i < self->num_blocks; i++)
        memset(self->base + i * self->block_len, (uint8_t)(seed + i), self->block_len);
}

static inline bool self_block_is(const struct self *self, size_t block, uint8_t byte)
{
    const uint8_t *at = self->base + block * self->block_len;
    for (size_t i = 0; i < self->block_len; i++)
        if (at[i] != byte)
            return false;
    return true;
}

/* A transport over new memory, filled from 1 on, with the peer "self". */
static inline struct self self_open_with(size_t num_blocks, size_t block_len, dt_options options)
{
    struct self self = {NULL, num_blocks, block_len, NULL};
    self.base = (uint8_t *)malloc(num_blocks * block_len);
    CHECK(self.base != NULL);
    self_fill(&self, 1);
    CHECK_OK(dt_create(self.base, num_blocks, block_len, &options, &self.t));
    CHECK_OK(self_add(&self, "self"));
    return self;
}

static inline struct self self_open(size_t num_blocks, size_t block_len)
{
    return self_open_with(num_blocks, block_len, self_options());
}

static inline void self_close(struct self *self)
{
    CHECK_OK(dt_close(self->t, BOUND_MS));
    dt_destroy(self->t);
    free(self->base);
}

static inline dt_xfer_id self_write(const struct self *self, uint32_t from, uint32_t to)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(self->t, "self", &from, &to, 1, from, &id));
    CHECK(id != 0);
    return id;
}

static inline dt_stats self_stats(const struct self *self)
{
    dt_stats stats;
    memset(&stats, 0xff, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(dt_get_stats(self->t, &stats));
    CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled + stats.inflight);
    return stats;
}

/* Waits until exactly `count` transfers of `peer_id` have been reported, in the order given out. */
static inline void self_collect(const struct self *self, const char *peer_id,
                                dt_completion *completions, size_t count)
{
    size_t have = 0;
    while (have < count) {
        size_t n = 0;
        CHECK_OK(dt_wait(self->t, peer_id, completions + have, count - have, BOUND_MS, &n));
        CHECK(n > 0 && n <= count - have);
        have += n;
    }
}

#endif
