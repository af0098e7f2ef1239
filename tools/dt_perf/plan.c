#include "plan.h"

#include <stdlib.h>

#include "util.h"

static void shuffle(uint32_t *values, size_t count, uint64_t seed)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)(mix(seed + i) % i);
        uint32_t kept = values[i - 1];
        values[i - 1] = values[j];
        values[j] = kept;
    }
}

static void count_up(uint32_t *values, size_t count, uint32_t from)
{
    for (size_t i = 0; i < count; i++)
        values[i] = from + (uint32_t)i;
}

void plan_make(struct plan *plan, enum pattern pattern, uint64_t seed, uint32_t peer,
               uint32_t peers, size_t pairs, size_t slice)
{
    size_t first = peer * pairs;

    plan->pairs = pairs;
    plan->slice = slice;
    plan->slices = pairs / slice;
    plan->local = must_alloc(pairs, sizeof *plan->local);
    plan->remote = must_alloc(pairs, sizeof *plan->remote);
    count_up(plan->local, pairs, (uint32_t)first);
    count_up(plan->remote, pairs, 0);
    if (pattern == SCATTERED) {
        /* Over the whole memory of the initiator, so all are shuffled, and one part is kept. */
        uint32_t *all = must_alloc(peers * pairs, sizeof *all);
        count_up(all, peers * pairs, 0);
        shuffle(all, peers * pairs, mix(seed));
        for (size_t i = 0; i < pairs; i++)
            plan->local[i] = all[first + i];
        free(all);
        shuffle(plan->remote, pairs, mix(seed + 1 + peer));
    } else if (pattern == PERMUTED) {
        for (size_t i = 0; i < plan->slices; i++)
            shuffle(plan->remote + i * slice, slice, mix(seed + 1 + peer) + i * pairs);
    }
}

size_t plan_touched(const struct plan *plan, uint32_t peer, uint32_t peers, uint64_t transfers)
{
    uint64_t slices = transfers / peers + (peer < transfers % peers);
    return (slices < plan->slices ? (size_t)slices : plan->slices) * plan->slice;
}

void plan_free(struct plan *plan)
{
    free(plan->local);
    free(plan->remote);
    plan->local = plan->remote = NULL;
}
