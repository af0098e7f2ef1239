/* Which block goes where. Both processes compute it from the seed. */
#ifndef PLAN_H
#define PLAN_H

#include "perf.h"

/* Pairs of one initiator's and one target's block: each block of either side is in at most one, so
 * that transfers may overlap in time without a question of what a block holds in the end. */
struct plan {
    uint32_t *local, *remote;
    size_t pairs;  /* blocks of the target */
    size_t slice;  /* pairs of one transfer */
    size_t slices; /* transfers until the first one comes again */
};

/* For target `peer` of `peers`, which has `pairs` blocks; the initiator has peers * pairs. */
void plan_make(struct plan *plan, enum pattern pattern, uint64_t seed, uint32_t peer,
               uint32_t peers, size_t pairs, size_t slice);
/* Pairs that `transfers` have moved, which go to all targets in turn, from the first on. */
size_t plan_touched(const struct plan *plan, uint32_t peer, uint32_t peers, uint64_t transfers);
void plan_free(struct plan *plan);

#endif
