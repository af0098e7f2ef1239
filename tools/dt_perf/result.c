#include "result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

void sample_clear(struct sample *sample)
{
    for (size_t i = 0; i < METRICS; i++)
        sample->value[i] = NAN;
}

void sample_times(struct sample *sample, enum metric p50, const struct histogram *histogram)
{
    sample->value[p50] = histogram_at(histogram, 0.5);
    sample->value[p50 + 1] = histogram_at(histogram, 0.99);
    sample->value[p50 + 2] = histogram_at(histogram, 0.999);
}

struct result *results_add(struct results *results, enum test test, uint32_t rounds)
{
    struct result *result = must_alloc(1, sizeof *result);
    results->result =
        realloc(results->result, (results->count + 1) * sizeof *results->result);
    if (results->result == NULL)
        die("there is no memory");
    result->test = test;
    result->rounds = rounds;
    results->result[results->count++] = result;
    return result;
}

struct row *result_row(struct result *result, enum subject subject, const char *mode)
{
    struct row *row = &result->row[result->rows++];
    *row = (struct row){subject, mode, must_alloc(result->rounds, sizeof *row->round)};
    for (uint32_t i = 0; i < result->rounds; i++)
        sample_clear(&row->round[i]);
    return row;
}

bool results_lack(const struct results *results, enum subject subject)
{
    for (size_t i = 0; i < results->missing_count; i++)
        if (results->missing[i].subject == subject)
            return true;
    return false;
}

void results_missing(struct results *results, enum subject subject, const char *why)
{
    for (size_t i = 0; i < results->missing_count; i++)
        if (results->missing[i].subject == subject && strcmp(results->missing[i].why, why) == 0)
            return;
    results->missing =
        realloc(results->missing, (results->missing_count + 1) * sizeof *results->missing);
    if (results->missing == NULL)
        die("there is no memory");
    struct missing *missing = &results->missing[results->missing_count++];
    missing->subject = subject;
    snprintf(missing->why, sizeof missing->why, "%s", why);
}

static bool lacks_a_round(const struct result *result, const struct row *row)
{
    for (uint32_t i = 0; i < result->rounds; i++) {
        bool any = false;
        for (size_t metric = 0; metric < METRICS; metric++)
            any = any || !isnan(row->round[i].value[metric]);
        if (!any)
            return true;
    }
    return false;
}

void results_finish(struct results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        struct result *result = results->result[i];
        size_t kept = 0;
        for (size_t k = 0; k < result->rows; k++)
            if (lacks_a_round(result, &result->row[k]))
                free(result->row[k].round);
            else
                result->row[kept++] = result->row[k];
        result->rows = kept;
    }
}

void results_free(struct results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        for (size_t k = 0; k < results->result[i]->rows; k++)
            free(results->result[i]->row[k].round);
        free(results->result[i]);
    }
    free(results->result);
    free(results->missing);
}

struct sample row_median(const struct result *result, const struct row *row)
{
    struct sample sample;
    double *values = must_alloc(result->rounds, sizeof *values);

    for (size_t metric = 0; metric < METRICS; metric++) {
        for (uint32_t i = 0; i < result->rounds; i++)
            values[i] = row->round[i].value[metric];
        sample.value[metric] = median(values, result->rounds);
    }
    free(values);
    return sample;
}

double row_ratio(const struct result *result, const struct row *row, enum subject reference,
                 enum metric metric)
{
    double *values, ratio;
    const struct row *other = NULL;

    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].subject == reference)
            other = &result->row[i];
    if (other == NULL)
        return NAN;
    values = must_alloc(result->rounds, sizeof *values);
    for (uint32_t i = 0; i < result->rounds; i++)
        values[i] = row->round[i].value[metric] / other->round[i].value[metric];
    ratio = median(values, result->rounds);
    free(values);
    return ratio;
}
