#include "pattern.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dt_time.h"

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The start of a block's sequence of words; word w is mix(start + w * STEP). */
static uint64_t block_start(struct content what)
{
    return mix(what.seed * 0x9e3779b97f4a7c15u + what.block + 1);
}

#define STEP 0x9e3779b97f4a7c15u

void pattern_fill(void *at, size_t bytes, uint64_t seed, uint64_t block)
{
    unsigned char *to = at;
    uint64_t x = block_start((struct content){seed, block});
    for (size_t done = 0; done < bytes; done += 8, x += STEP) {
        uint64_t word = mix(x);
        memcpy(to + done, &word, bytes - done < 8 ? bytes - done : 8);
    }
}

int64_t pattern_mismatch(const void *at, size_t bytes, struct content want)
{
    return pattern_mismatch_either(at, bytes, want, want);
}

int64_t pattern_mismatch_either(const void *at, size_t bytes, struct content a, struct content b)
{
    const unsigned char *from = at;
    uint64_t x = block_start(a), y = block_start(b);
    for (size_t done = 0; done < bytes; done += 8, x += STEP, y += STEP) {
        size_t n = bytes - done < 8 ? bytes - done : 8;
        uint64_t first = mix(x), word = first;
        memcpy(&word, from + done, n);
        if (word == first)
            continue;
        uint64_t second = mix(y);
        for (size_t i = 0; i < n; i++) {
            unsigned char have = from[done + i];
            if (have != ((unsigned char *)&first)[i] && have != ((unsigned char *)&second)[i])
                return (int64_t)(done + i);
        }
    }
    return -1;
}

static uint64_t seed;

static void choose_seed(void)
{
    const char *given = getenv("DT_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : mix(now_ns());
    seed |= 1;
    printf("DT_TEST_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
}

/* Threads ask at the same moment, and all must get what was printed. */
uint64_t test_seed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose_seed);
    return seed;
}

uint64_t random_next(uint64_t *state)
{
    return mix(*state += STEP);
}

void random_permutation(uint32_t *out, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        size_t j = random_next(state) % (i + 1);
        out[i] = out[j];
        out[j] = (uint32_t)i;
    }
}
