#include "space.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "child.h"
#include "dt_check.h"

uint64_t bytes_checked;

/* Patterns of transfers have other numbers. */
#define SENTINEL ((uint64_t)1 << 63)

static unsigned char *at(const struct space *space, size_t block)
{
    return space->base + block * space->len;
}

static void scribble(struct space *space, size_t block)
{
    static uint64_t number;
    struct content want = {SENTINEL | ++number, block};
    pattern_fill(at(space, block), space->len, want.seed, want.block);
    space->table[block].want = want;
}

static void expect(const struct space *space, size_t block, struct content a, struct content b,
                   const char *what)
{
    int64_t wrong = pattern_mismatch_either(at(space, block), space->len, a, b);
    bytes_checked += space->len;
    if (wrong < 0)
        return;
    size_t end = (size_t)wrong + 1;
    while (end < space->len && end < (size_t)wrong + 64)
        end++;
    unsigned found = at(space, block)[wrong];
    uint64_t lease = space->table[block].lease;
    /* Did it come late, from the transfer itself? */
    test_fail("%s: byte %lld of block %zu of %s is 0x%02x: expected block %llu of pattern %llx%s, the "
              "block's transfer is %llu",
              what, (long long)wrong, block, space->name, found, (unsigned long long)a.block,
              (unsigned long long)a.seed, a.seed != b.seed ? " or what was there before" : "",
              (unsigned long long)lease);
}

struct space *space_over(const char *name, void *base, size_t blocks, size_t len)
{
    struct space *space = calloc(1, sizeof *space);
    CHECK(space != NULL);
    strncpy(space->name, name, sizeof space->name - 1);
    space->base = base;
    space->blocks = blocks;
    space->len = len;
    space->fd = -1;
    space->table = calloc(blocks, sizeof *space->table);
    CHECK(space->table != NULL);
    space_scribble(space);
    return space;
}

struct space *space_new(const char *name, size_t blocks, size_t len, bool sealed)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)(blocks * len)) == 0);
    if (sealed)
        CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void *base = mmap(NULL, blocks * len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    struct space *space = space_over(name, base, blocks, len);
    space->fd = fd;
    return space;
}

void space_free(struct space *space)
{
    CHECK(space->leased == 0);
    if (space->fd >= 0) {
        CHECK(munmap(space->base, space->blocks * space->len) == 0);
        close(space->fd);
    }
    free(space->table);
    free(space);
}

static size_t block_of(const uint32_t *map, size_t index)
{
    return map != NULL ? map[index] : index;
}

bool space_lease(struct space *space, const uint32_t *map, size_t map_len, uint32_t *out,
                 size_t count, uint64_t tag, uint64_t *random)
{
    size_t start = random_next(random) % map_len, have = 0;
    for (size_t i = 0; i < map_len && have < count; i++) {
        size_t index = (start + i) % map_len;
        if (space->table[block_of(map, index)].lease == 0)
            out[have++] = (uint32_t)index;
    }
    uint64_t order = random_next(random);
    if (have < count)
        return false;
    for (size_t k = 0; k < count; k++) {
        struct block *block = &space->table[block_of(map, out[k])];
        expect(space, block_of(map, out[k]), block->want, block->want, "a block at rest");
        block->lease = tag;
    }
    space->leased += count;
    /* Runs to be merged, or single blocks in any order. */
    for (size_t k = count; order % 2 == 0 && k > 1; k--) {
        size_t j = random_next(random) % k;
        uint32_t moved = out[j];
        out[j] = out[k - 1];
        out[k - 1] = moved;
    }
    return true;
}

void space_fill(struct space *space, const uint32_t *blocks, size_t count, uint64_t tag)
{
    for (size_t k = 0; k < count; k++)
        pattern_fill(at(space, blocks[k]), space->len, tag, k);
}

void space_expect(const struct space *space, const uint32_t *blocks, size_t count, uint64_t tag,
                  bool either, const char *what)
{
    for (size_t k = 0; k < count; k++) {
        const struct content new = {tag, k};
        expect(space, blocks[k], new, either ? space->table[blocks[k]].want : new, what);
    }
}

void space_return(struct space *space, const uint32_t *blocks, size_t count, uint64_t tag)
{
    for (size_t k = 0; k < count; k++) {
        CHECK(space->table[blocks[k]].lease == tag);
        space->table[blocks[k]].lease = 0;
        scribble(space, blocks[k]);
    }
    space->leased -= count;
}

void space_check(const struct space *space)
{
    for (size_t i = 0; i < space->blocks; i++) {
        const struct block *block = &space->table[i];
        if (block->lease == 0)
            expect(space, i, block->want, block->want, "a block at rest");
    }
}

void space_scribble(struct space *space)
{
    for (size_t i = 0; i < space->blocks; i++)
        scribble(space, i);
}
