/* What the rounds of --test transfer work with, and the check of their bytes. */
#ifndef BENCH_H
#define BENCH_H

#include "lane.h"
#include "tests.h"

/* One combination of the lists in the settings, for one block size. */
struct shape_of_test {
    enum op op;
    enum pattern pattern;
    size_t block_len, blocks, peer_blocks;
    uint32_t depth;
};

struct bench {
    struct job *job;
    struct pool pool[MEMORIES];
    struct lane lane[SUBJECTS];
    enum subject subject[SUBJECTS]; /* that have a lane, in the order of the first round */
    size_t subjects;
    struct shape_of_test shape;
    struct plan *plan; /* by target */
    struct histogram submit, poll, completion;
    uint64_t *start;   /* by slot */
    uint32_t *free;    /* slots */
    unsigned char before; /* what destinations are cleared to, when they are verified */
};

/* For one combination: every source is filled. */
void bench_fill_sources(struct bench *bench);
/* Every byte of the destination becomes the same, so that each block that moves can be seen. */
void bench_clear_destination(struct bench *bench, enum subject subject);
/* After `sent` transfers. Ends the process with status 3, if a byte is wrong on either side. */
void bench_check(struct bench *bench, enum subject subject, uint64_t sent);

#endif
