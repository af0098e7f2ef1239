/* Bytes that tell where they came from, and random numbers that can be had again. */
#ifndef DT_TEST_PATTERN_H
#define DT_TEST_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one block must hold: block `block` of the pattern `seed`. */
struct content {
    uint64_t seed;
    uint64_t block;
};

/* Fills `bytes` at `at` with block `block` of pattern `seed`. Every byte depends on the seed, on
 * the block and on its place in the block. */
void pattern_fill(void *at, size_t bytes, uint64_t seed, uint64_t block);

/* The first byte of `bytes` at `at` that differs from the pattern, or -1. */
int64_t pattern_mismatch(const void *at, size_t bytes, struct content want);

/* The first byte that is neither `a`'s nor `b`'s, or -1. */
int64_t pattern_mismatch_either(const void *at, size_t bytes, struct content a, struct content b);

/* The seed of this run: $DT_TEST_SEED, or a new one. Printed once, so that a failure can be had
 * again. */
uint64_t test_seed(void);

/* Next of a sequence of random numbers; `state` is any number. */
uint64_t random_next(uint64_t *state);

/* A random order of 0..count-1. */
void random_permutation(uint32_t *out, size_t count, uint64_t *state);

#ifdef __cplusplus
}
#endif

#endif
