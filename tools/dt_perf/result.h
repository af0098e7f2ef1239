/* What was measured, before it becomes a table or JSON. */
#ifndef RESULT_H
#define RESULT_H

#include "histogram.h"
#include "perf.h"

enum metric {
    GB_PER_S, TRANSFERS_PER_S,
    SUBMIT_P50, SUBMIT_P99, SUBMIT_P999,
    POLL_P50, POLL_P99, POLL_P999,
    COMPLETION_P50, COMPLETION_P99, COMPLETION_P999,
    CPU_INITIATOR, CPU_TARGET,
    ADD_NS, RSS_BYTES,
    POLL_NS, NS_PER_BYTE,
    CPU_SHARE,
    METRICS
};

/* NAN: the subject has no such thing. */
struct sample {
    double value[METRICS];
};

struct row {
    enum subject subject;
    const char *mode;     /* IDLE only */
    struct sample *round; /* of each round */
};

struct result {
    enum test test;
    enum op op;
    enum pattern pattern;
    uint64_t block_size, blocks, depth;
    uint32_t rounds;
    struct row row[4 * SUBJECTS];
    size_t rows;
};

struct missing {
    enum subject subject;
    char why[512];
};

struct results {
    struct result **result;
    size_t count;
    struct missing *missing;
    size_t missing_count;
};

void sample_clear(struct sample *sample);
/* Sets three metrics, from `p50` on. */
void sample_times(struct sample *sample, enum metric p50, const struct histogram *histogram);

/* A new one without rows. */
struct result *results_add(struct results *results, enum test test, uint32_t rounds);
struct row *result_row(struct result *result, enum subject subject, const char *mode);
/* Every reason for a subject is kept once: one block size may have it, and another one not. */
void results_missing(struct results *results, enum subject subject, const char *why);
bool results_lack(const struct results *results, enum subject subject);
/* Rows that lack a round go away. */
void results_finish(struct results *results);
void results_free(struct results *results);

struct sample row_median(const struct result *result, const struct row *row);
/* The median of the rounds' ratios; NAN if there is no such subject. */
double row_ratio(const struct result *result, const struct row *row, enum subject reference,
                 enum metric metric);

#endif
