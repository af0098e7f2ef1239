/* The kinds of memory that a caller may bring as a region. */
#ifndef DT_TEST_MEMORY_H
#define DT_TEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum memory_kind {
    MEMORY_ALLOC,        /* dt_region_alloc */
    MEMORY_ANONYMOUS,    /* private mmap */
    MEMORY_HEAP,         /* malloc */
    MEMORY_FD_SEALED,    /* the caller's memfd at an offset, sealed against shrinking */
    MEMORY_FD_UNSEALED,  /* the same, not sealed */
    MEMORY_KINDS
};

struct memory {
    enum memory_kind kind;
    void *base;
    size_t bytes;
    int32_t fd;        /* -1: none */
    uint64_t offset;   /* of base in fd */
};

const char *memory_kind_name(enum memory_kind kind);

/* LOCAL reaches each kind of memory in its own way. NIXL registers them all alike: then one of them
 * does, except where the kinds themselves are the matter. */
bool memory_kind_matters(enum memory_kind kind);

/* True when peers can map it. */
int memory_is_mappable(enum memory_kind kind);

/* `at`: 0, or the address that an ANONYMOUS one must have. Fails the test if there is none. */
struct memory memory_new(enum memory_kind kind, size_t bytes, uint64_t at);
void memory_free(struct memory *memory);

/* Unmaps it, without a word to the library, and maps it again where it was: from its file, or
 * zeroed. Not for HEAP. */
void memory_unmap(const struct memory *memory);
void memory_map_again(const struct memory *memory);

/* Puts new, zeroed anonymous memory in place of `memory`, which the library has given up: unmaps
 * it and maps other pages at the same address. Not for HEAP. */
void memory_replace(struct memory *memory);

#endif
