/* What every part of dt_perf speaks of: the things that are measured, and the user's settings. */
#ifndef PERF_H
#define PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What moves the blocks: three ways of this library, then what it is compared with. */
enum subject { LOCAL, LOCAL_UNMAPPED, NIXL, MEMCPY, COPY_NT, PROCESS_VM, NIXL_RAW, SUBJECTS };
/* What memory is made of: dt_region_alloc; ordinary pages; and dt_region_alloc again, as the
 * destination of the copies inside one process. */
enum memory { REGION, ORDINARY, REFERENCE, MEMORIES };
enum test { TRANSFER, ADD_PEER, IN_FLIGHT, IDLE, TESTS };
enum op { WRITE, READ, OPS };
enum pattern { CONTIGUOUS, SCATTERED, PERMUTED, PATTERNS };

extern const char *const subject_names[SUBJECTS];
extern const char *const test_names[TESTS];
extern const char *const op_names[OPS];
extern const char *const pattern_names[PATTERNS];

/* Where a subject's blocks are, on both sides. */
enum memory memory_of(enum subject subject);
/* False for those that copy within the process of the initiator. */
bool has_target(enum subject subject);
bool is_nixl(enum subject subject);
/* Whether UCX with such a UCX_TLS (NULL: none) has the kernel copy between processes of one host. If
 * not, the target has to work for each byte. */
bool ucx_copies_by_kernel(const char *tls);

#define MOST_POOL ((uint64_t)1 << 44)

enum { LIST_MAX = 32 };
struct list {
    uint64_t value[LIST_MAX];
    size_t count;
};

struct settings {
    enum test test;
    bool subject[SUBJECTS];
    struct list ops, block_sizes, blocks, patterns, depths;
    uint32_t peers, rounds, warmup;
    uint32_t poll_budget_us; /* 0: the library's own */
    double seconds;     /* of a round; not looked at if transfers is not 0 */
    uint64_t transfers; /* of a round */
    uint64_t pool;
    uint64_t region; /* of which the pool is the beginning; less: the pool is all */
    uint64_t seed;
    const char *ucx_tls;
    const char *listen, *connect;
    bool progress_thread, huge_pages, verify, json, quiet;
};

/* All of the region, of which the pool may be the beginning only. */
static inline uint64_t whole_region(const struct settings *settings)
{
    return settings->region > settings->pool ? settings->region : settings->pool;
}

#endif
