/* The limit: the same blocks copied inside this process, into memory of the same kind. */
#include <stdio.h>
#include <string.h>

#include "lane.h"
#include "nt_copy.h"
#include "util.h"

struct copy {
    nt_copy_fn fn;
};

static inline void copy_all(struct lane *lane, const struct transfer *transfer, nt_copy_fn fn)
{
    unsigned char *local = lane->local->base, *remote = lane->remote[transfer->peer];
    size_t len = lane->block_len;

    for (size_t k = 0, n; k < transfer->count; k += n) {
        n = lane_run(transfer, k);
        unsigned char *here = local + transfer->local[k] * len;
        unsigned char *there = remote + transfer->remote[k] * len;
        if (transfer->op == WRITE)
            fn(there, here, n * len);
        else
            fn(here, there, n * len);
    }
}

static void plain(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void submit_plain(struct lane *lane, const struct transfer *transfer, uint32_t slot)
{
    (void)slot;
    copy_all(lane, transfer, plain);
}

static void submit_nt(struct lane *lane, const struct transfer *transfer, uint32_t slot)
{
    const struct copy *copy = lane->own;
    (void)slot;
    copy_all(lane, transfer, copy->fn);
    nt_copy_fence();
}

bool lane_copy_setup(struct lane *lane, char *why, size_t cap)
{
    const char *name;
    struct copy *copy = lane->own = must_alloc(1, sizeof *copy);

    lane->submit = lane->subject == MEMCPY ? submit_plain : submit_nt;
    copy->fn = nt_copy_find(&name);
    if (lane->subject == COPY_NT && copy->fn == NULL) {
        snprintf(why, cap, "for this processor no copy past the caches is known here");
        return false;
    }
    return true;
}
