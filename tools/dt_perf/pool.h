/* The memory of one side, with guards around, and what its bytes must be. */
#ifndef POOL_H
#define POOL_H

#include "perf.h"

struct pool {
    unsigned char *base; /* behind the first guard, at an address that suits huge pages */
    size_t bytes;
    size_t region;       /* what a transport is told to have there; behind `bytes` it is not touched */
    int32_t fd;          /* of dt_region_alloc, else -1 */
    void *mapped;
    size_t mapped_bytes;
};

/* What such a pool takes of the memory, with its guards. */
uint64_t pool_takes(uint64_t bytes);
/* Of a larger `region` it is the beginning. False: there is no memory, and `why` says the reason. */
bool pool_make(struct pool *pool, enum memory memory, size_t bytes, size_t region, bool huge_pages,
               char *why, size_t cap);
void pool_free(struct pool *pool);

/* Fills it with bytes that differ everywhere; another `stream` is other bytes. */
void pool_fill(struct pool *pool, uint64_t stream);
void pool_clear(struct pool *pool, unsigned char with);

/* True if `bytes` at `offset` are those that pool_fill has put at offset `origin` of a pool filled
 * with `stream`. */
bool pool_holds(const struct pool *pool, size_t offset, size_t bytes, uint64_t stream,
                size_t origin);
bool pool_is_clear(const struct pool *pool, size_t offset, size_t bytes, unsigned char with);
bool pool_guards_hold(const struct pool *pool);

#endif
