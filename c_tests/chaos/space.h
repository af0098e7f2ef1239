/* Memory that blocks are moved to and from, and what each block of it must hold.
 *
 * The memory of a peer is a file that the survivor made and has mapped, too. So it can fill and check
 * every byte on both sides, also of a peer that is stopped or dead. */
#ifndef CHAOS_SPACE_H
#define CHAOS_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pattern.h"

struct block {
    struct content want;  /* what it holds while no transfer has it */
    uint64_t lease;       /* tag of the transfer that has it; 0: none */
};

struct space {
    char name[32];
    unsigned char *base;
    size_t blocks, len;
    int fd;               /* -1: not made here */
    struct block *table;
    size_t leased;
    unsigned users;       /* besides transfers: a process, registrations */
};

/* Bytes that were compared so far. */
extern uint64_t bytes_checked;

/* A file of `blocks` blocks, sealed against shrinking or not, with sentinels in it. */
struct space *space_new(const char *name, size_t blocks, size_t len, bool sealed);
/* Over memory of the caller, which is filled with sentinels. */
struct space *space_over(const char *name, void *base, size_t blocks, size_t len);
void space_free(struct space *space);

/* Picks `count` blocks that no transfer has, checks them, and gives them to transfer `tag`. False, and
 * nothing is changed, if there are not so many, or none at all among the `map_len` of `map` (NULL:
 * every block). `out` are indexes of `map`. */
bool space_lease(struct space *space, const uint32_t *map, size_t map_len, uint32_t *out,
                 size_t count, uint64_t tag, uint64_t *random);
/* Puts block k of pattern `tag` there. */
void space_fill(struct space *space, const uint32_t *blocks, size_t count, uint64_t tag);
/* Each block k holds block k of pattern `tag`, or, if `either`, bytes of what it held before as well. */
void space_expect(const struct space *space, const uint32_t *blocks, size_t count, uint64_t tag,
                  bool either, const char *what);
/* Ends the lease: new sentinels. */
void space_return(struct space *space, const uint32_t *blocks, size_t count, uint64_t tag);
/* Every block that no transfer has holds its sentinel. */
void space_check(const struct space *space);
/* New sentinels everywhere: for memory that nobody has. */
void space_scribble(struct space *space);

#endif
