#include "pool.h"

#include <dt.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "util.h"

/* What lies nearest to the blocks is filled and looked at. */
enum { GUARD_BYTE = 0x5c, GUARD = 64 << 10, HUGE_PAGE = 2 << 20 };

/* What lies before the base keeps it where it suits huge pages. A pool that is smaller than one has
 * no use for that, and there may be thousands of them. */
static size_t before_base(uint64_t bytes)
{
    return bytes < HUGE_PAGE ? GUARD : HUGE_PAGE;
}

uint64_t pool_takes(uint64_t bytes)
{
    return before_base(bytes) + bytes + GUARD;
}

static bool make_ordinary(struct pool *pool, size_t bytes, bool huge_pages, char *why, size_t cap)
{
    pool->mapped_bytes = pool_takes(bytes) + HUGE_PAGE;
    pool->mapped = mmap(NULL, pool->mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool->mapped == MAP_FAILED) {
        snprintf(why, cap, "no memory: %s", strerror(errno));
        return false;
    }
    uintptr_t start = ((uintptr_t)pool->mapped + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    pool->base = (unsigned char *)start + before_base(bytes);
    /* Where the system has none, ordinary pages do. */
    if (huge_pages)
        madvise(pool->mapped, pool->mapped_bytes, MADV_HUGEPAGE);
    return true;
}

static bool make_region(struct pool *pool, size_t bytes, char *why, size_t cap)
{
    pool->mapped_bytes = pool_takes(bytes);
    if (dt_region_alloc(pool->mapped_bytes, &pool->mapped, &pool->fd) != DT_OK) {
        snprintf(why, cap, "%s", dt_last_error());
        return false;
    }
    pool->base = (unsigned char *)pool->mapped + before_base(bytes);
    return true;
}

bool pool_make(struct pool *pool, enum memory memory, size_t bytes, size_t region, bool huge_pages,
               char *why, size_t cap)
{
    size_t all = region > bytes ? region : bytes;
    *pool = (struct pool){.bytes = bytes, .region = all, .fd = -1};
    if (memory == ORDINARY ? !make_ordinary(pool, all, huge_pages, why, cap)
                           : !make_region(pool, all, why, cap)) {
        pool->base = NULL;
        return false;
    }
    memset(pool->base - GUARD, GUARD_BYTE, GUARD);
    memset(pool->base + bytes, GUARD_BYTE, GUARD);
    return true;
}

void pool_free(struct pool *pool)
{
    if (pool->base == NULL)
        return;
    if (pool->fd >= 0)
        dt_region_free(pool->mapped, pool->mapped_bytes, pool->fd);
    else
        munmap(pool->mapped, pool->mapped_bytes);
    pool->base = NULL;
}

/* The bytes at `origin` of a stream. */
static void generate(unsigned char *to, size_t bytes, uint64_t stream, size_t origin)
{
    uint64_t start = mix(stream);
    while (bytes > 0) {
        uint64_t word = mix(start + origin / 8);
        size_t skip = origin % 8;
        size_t n = 8 - skip < bytes ? 8 - skip : bytes;
        memcpy(to, (const unsigned char *)&word + skip, n);
        to += n;
        origin += n;
        bytes -= n;
    }
}

void pool_fill(struct pool *pool, uint64_t stream)
{
    generate(pool->base, pool->bytes, stream, 0);
}

void pool_clear(struct pool *pool, unsigned char with)
{
    memset(pool->base, with, pool->bytes);
}

bool pool_holds(const struct pool *pool, size_t offset, size_t bytes, uint64_t stream,
                size_t origin)
{
    unsigned char expected[4096];
    while (bytes > 0) {
        size_t n = bytes < sizeof expected ? bytes : sizeof expected;
        generate(expected, n, stream, origin);
        if (memcmp(pool->base + offset, expected, n) != 0)
            return false;
        offset += n;
        origin += n;
        bytes -= n;
    }
    return true;
}

static bool all_are(const unsigned char *at, size_t bytes, unsigned char with)
{
    return bytes == 0 || (at[0] == with && memcmp(at, at + 1, bytes - 1) == 0);
}

bool pool_is_clear(const struct pool *pool, size_t offset, size_t bytes, unsigned char with)
{
    return all_are(pool->base + offset, bytes, with);
}

bool pool_guards_hold(const struct pool *pool)
{
    return all_are(pool->base - GUARD, GUARD, GUARD_BYTE) &&
           all_are(pool->base + pool->bytes, GUARD, GUARD_BYTE);
}
