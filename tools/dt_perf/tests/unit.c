/* The parts of dt_perf that a run does not show to be wrong: classes of times, patterns, the check
 * of bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "histogram.h"
#include "plan.h"
#include "pool.h"
#include "result.h"
#include "util.h"
#include "verify.h"

#define CHECK(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void times_are_within_one_percent(void)
{
    struct histogram *histogram = must_alloc(1, sizeof *histogram);
    CHECK(isnan(histogram_at(histogram, 0.5)));
    for (uint64_t ns = 1; ns < (uint64_t)1 << 41; ns += 1 + ns / 97) {
        histogram_clear(histogram);
        histogram_add(histogram, ns);
        for (double part = 0; part <= 1; part += 0.5) {
            double told = histogram_at(histogram, part);
            CHECK(fabs(told - (double)ns) <= 0.005 * (double)ns);
        }
    }
    free(histogram);
}

static void percentiles_are_those_of_all_times(void)
{
    struct histogram *histogram = must_alloc(1, sizeof *histogram);
    for (uint64_t ns = 1000; ns > 0; ns--)
        histogram_add(histogram, ns * 1000);
    CHECK(fabs(histogram_at(histogram, 0.5) - 500e3) < 5e3);
    CHECK(fabs(histogram_at(histogram, 0.99) - 990e3) < 9e3);
    CHECK(fabs(histogram_at(histogram, 0.999) - 999e3) < 9e3);
    CHECK(fabs(histogram_at(histogram, 1) - 1000e3) < 9e3);
    histogram_add(histogram, UINT64_MAX);
    CHECK(histogram_at(histogram, 1) > 1e12);
    free(histogram);
}

static void medians_leave_out_what_is_no_number(void)
{
    double values[] = {NAN, 3, 1, NAN, 2, 10};
    CHECK(median(values, 6) == 2.5);
    CHECK(median(values, 3) == 2);
    CHECK(isnan(median(values, 0)));
}

/* Every block of either side once, over all targets together. */
static void each_block_is_in_one_pair(void)
{
    enum { PEERS = 3, PAIRS = 100, SLICE = 7 };
    for (enum pattern pattern = 0; pattern < PATTERNS; pattern++) {
        char local[PEERS * PAIRS] = {0};
        for (uint32_t peer = 0; peer < PEERS; peer++) {
            char remote[PAIRS] = {0};
            struct plan plan;
            size_t runs = 0;
            plan_make(&plan, pattern, 5, peer, PEERS, PAIRS, SLICE);
            CHECK(plan.slices == PAIRS / SLICE);
            for (size_t k = 0; k < PAIRS; k++) {
                CHECK(plan.local[k] < PEERS * PAIRS && local[plan.local[k]]++ == 0);
                CHECK(plan.remote[k] < PAIRS && remote[plan.remote[k]]++ == 0);
                runs += k == 0 || plan.local[k] != plan.local[k - 1] + 1 ||
                        plan.remote[k] != plan.remote[k - 1] + 1;
                /* A permuted transfer stays within its neighbours. */
                if (pattern == PERMUTED && k < plan.slices * SLICE)
                    CHECK(plan.remote[k] / SLICE == k / SLICE);
            }
            CHECK(pattern == CONTIGUOUS ? runs == 1 : runs > PAIRS / 2);
            plan_free(&plan);
        }
    }
}

static void touched_pairs_are_those_of_whole_transfers(void)
{
    struct plan plan = {.pairs = 100, .slice = 7, .slices = 14};
    CHECK(plan_touched(&plan, 0, 1, 0) == 0);
    CHECK(plan_touched(&plan, 0, 1, 3) == 21);
    CHECK(plan_touched(&plan, 0, 2, 3) == 14 && plan_touched(&plan, 1, 2, 3) == 7);
    CHECK(plan_touched(&plan, 0, 1, 15) == 98);
}

static void wrong_bytes_are_found(enum memory memory)
{
    enum { PAIRS = 64, SLICE = 8, LEN = 1001, BEFORE = 9 };
    struct pool source, pool;
    struct plan plan;
    char text[256];

    CHECK(pool_make(&source, memory, PAIRS * LEN, 0, false, text, sizeof text));
    CHECK(pool_make(&pool, memory, PAIRS * LEN, 0, false, text, sizeof text));
    plan_make(&plan, SCATTERED, 3, 0, 1, PAIRS, SLICE);
    struct landing landing = {&pool, plan.remote, plan.local, 0, PAIRS, 5 * SLICE, LEN, BEFORE};
    pool_fill(&source, 0);
    pool_clear(&pool, BEFORE);
    for (size_t k = 0; k < landing.touched; k++)
        memcpy(pool.base + plan.remote[k] * LEN, source.base + plan.local[k] * LEN, LEN);
    verify_landing(&landing, text, sizeof text);
    CHECK(strcmp(text, "") == 0);
    /* A byte of a block that was moved, and of one that was not; the first and the last. */
    const size_t at[] = {plan.remote[0] * LEN, plan.remote[39] * LEN + LEN - 1,
                         plan.remote[40] * LEN, plan.remote[63] * LEN + LEN - 1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        pool.base[at[i]] ^= 1;
        verify_landing(&landing, text, sizeof text);
        CHECK(strcmp(text, "") != 0);
        pool.base[at[i]] ^= 1;
    }
    /* The right bytes at another place. */
    landing.stream = 1;
    verify_landing(&landing, text, sizeof text);
    CHECK(strcmp(text, "") != 0);
    CHECK(pool_guards_hold(&pool));
    pool.base[-1] ^= 1;
    CHECK(!pool_guards_hold(&pool));
    pool.base[-1] ^= 1;
    pool.base[PAIRS * LEN] ^= 1;
    CHECK(!pool_guards_hold(&pool));
    plan_free(&plan);
    pool_free(&source);
    pool_free(&pool);
}

/* A system with a thousand targets has a thousand pools. */
static void pools_take_what_they_say(void)
{
    const uint64_t sizes[] = {1, 16 << 10, (2 << 20) - 1, 2 << 20, 5000001};
    char text[256];

    CHECK(pool_takes(16 << 10) < 1 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pool pool;
        CHECK(pool_make(&pool, REGION, sizes[i], 0, false, text, sizeof text));
        CHECK(pool.mapped_bytes == pool_takes(sizes[i]));
        CHECK(sizes[i] < 2 << 20 || (uintptr_t)pool.base % (2 << 20) == 0);
        CHECK(pool_guards_hold(&pool));
        pool_free(&pool);
    }
}

static struct row *row_with_rounds(struct result *result, enum subject subject, uint32_t rounds)
{
    struct row *row = result_row(result, subject, NULL);
    for (uint32_t i = 0; i < rounds; i++)
        row->round[i].value[GB_PER_S] = 1;
    return row;
}

/* A subject that cannot do one block size has figures of the others. */
static void only_rows_without_figures_go_away(void)
{
    struct results results = {0};
    struct result *one = results_add(&results, TRANSFER, 2);
    struct result *other = results_add(&results, TRANSFER, 2);

    row_with_rounds(one, LOCAL, 2);
    row_with_rounds(one, NIXL, 2);
    row_with_rounds(other, LOCAL, 1);
    row_with_rounds(other, MEMCPY, 2);
    results_missing(&results, NIXL, "not with such blocks");
    results_missing(&results, NIXL, "not with such blocks");
    results_missing(&results, NIXL, "not with others");
    results_finish(&results);
    CHECK(one->rows == 2 && one->row[1].subject == NIXL);
    CHECK(other->rows == 1 && other->row[0].subject == MEMCPY);
    CHECK(results.missing_count == 2);
    results_free(&results);
}

static void ucx_is_known_by_its_transports(void)
{
    CHECK(ucx_copies_by_kernel(NULL) && ucx_copies_by_kernel("") && ucx_copies_by_kernel("all"));
    CHECK(ucx_copies_by_kernel("tcp,cma") && ucx_copies_by_kernel("sm"));
    CHECK(!ucx_copies_by_kernel("tcp") && !ucx_copies_by_kernel("tcp,self"));
    CHECK(ucx_copies_by_kernel("^tcp") && ucx_copies_by_kernel("^xpmem"));
    CHECK(!ucx_copies_by_kernel("^cma") && !ucx_copies_by_kernel("^xpmem,sm"));
}

int main(void)
{
    times_are_within_one_percent();
    percentiles_are_those_of_all_times();
    medians_leave_out_what_is_no_number();
    each_block_is_in_one_pair();
    touched_pairs_are_those_of_whole_transfers();
    wrong_bytes_are_found(ORDINARY);
    wrong_bytes_are_found(REGION);
    pools_take_what_they_say();
    only_rows_without_figures_go_away();
    ucx_is_known_by_its_transports();
    return 0;
}
