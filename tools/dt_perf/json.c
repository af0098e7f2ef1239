#include <math.h>
#include <stdio.h>

#include "output.h"

static void print_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_string_or_null(const char *text)
{
    if (text[0] == '\0')
        fputs("null", stdout);
    else
        print_string(text);
}

static void print_number(const char *name, double value)
{
    if (isnan(value))
        printf("\"%s\":null", name);
    else
        printf("\"%s\":%.9g", name, value);
}

static void print_times(const char *name, const struct sample *sample, enum metric p50)
{
    if (isnan(sample->value[p50])) {
        printf("\"%s\":null", name);
        return;
    }
    printf("\"%s\":{", name);
    print_number("p50", sample->value[p50]);
    putchar(',');
    print_number("p99", sample->value[p50 + 1]);
    putchar(',');
    print_number("p999", sample->value[p50 + 2]);
    putchar('}');
}

static void print_sample(enum test test, const struct sample *sample)
{
    const double *value = sample->value;

    putchar('{');
    switch (test) {
    case TRANSFER:
        print_number("gb_per_s", value[GB_PER_S]);
        putchar(',');
        print_number("transfers_per_s", value[TRANSFERS_PER_S]);
        putchar(',');
        print_times("submit_ns", sample, SUBMIT_P50);
        putchar(',');
        print_times("poll_ns", sample, POLL_P50);
        putchar(',');
        print_times("completion_ns", sample, COMPLETION_P50);
        fputs(",\"cpu_s_per_gb\":{", stdout);
        print_number("initiator", value[CPU_INITIATOR]);
        putchar(',');
        print_number("target", value[CPU_TARGET]);
        putchar('}');
        break;
    case ADD_PEER:
        print_number("add_ns", value[ADD_NS]);
        putchar(',');
        print_number("rss_bytes", value[RSS_BYTES]);
        break;
    case IN_FLIGHT:
        print_number("poll_ns", value[POLL_NS]);
        if (!isnan(value[NS_PER_BYTE])) {
            putchar(',');
            print_number("ns_per_byte", value[NS_PER_BYTE]);
        }
        break;
    default:
        print_number("cpu_share", value[CPU_SHARE]);
    }
    putchar('}');
}

static void print_rows(const struct result *result)
{
    fputs("\"rows\":[", stdout);
    for (size_t i = 0; i < result->rows; i++) {
        const struct row *row = &result->row[i];
        struct sample middle = row_median(result, row);
        printf("%s\n    {\"subject\":\"%s\",", i > 0 ? "," : "", subject_names[row->subject]);
        if (row->mode != NULL)
            printf("\"mode\":\"%s\",", row->mode);
        fputs("\"rounds\":[", stdout);
        for (uint32_t round = 0; round < result->rounds; round++) {
            if (round > 0)
                putchar(',');
            print_sample(result->test, &row->round[round]);
        }
        fputs("],\"median\":", stdout);
        print_sample(result->test, &middle);
        putchar('}');
    }
    putchar(']');
}

static void print_result(const struct report *report, const struct result *result)
{
    const struct settings *settings = report->settings;

    printf("{\"test\":\"%s\",", test_names[result->test]);
    if (result->test == TRANSFER)
        printf("\"op\":\"%s\",\"block_size\":%llu,\"blocks\":%llu,\"pattern\":\"%s\","
               "\"depth\":%llu,\"peers\":%u,\"pool_bytes\":%llu,"
               "\"region_bytes\":%llu,\"rounds\":%u,",
               op_names[result->op], (unsigned long long)result->block_size,
               (unsigned long long)result->blocks, pattern_names[result->pattern],
               (unsigned long long)result->depth, settings->peers,
               (unsigned long long)settings->pool,
               (unsigned long long)whole_region(settings), result->rounds);
    else if (result->test == ADD_PEER)
        printf("\"blocks\":%llu,", (unsigned long long)result->blocks);
    else if (result->test == IN_FLIGHT)
        printf("\"in_flight\":%llu,", (unsigned long long)result->depth);
    print_rows(result);
    putchar('}');
}

void print_json(const struct report *report)
{
    const struct machine *machine = &report->machine;
    const struct results *results = report->results;

    printf("{\"dt_perf\":1,\"version\":\"%s\",\n \"machine\":{\"cpu\":", DT_PERF_VERSION);
    print_string(machine->cpu);
    printf(",\"cores\":%ld,\"memory_bytes\":%llu,\"kernel\":", machine->cores,
           (unsigned long long)machine->memory_bytes);
    print_string(machine->kernel);
    fputs(",\"thp\":", stdout);
    print_string(machine->thp);
    printf(",\"l3_bytes\":%llu},\n \"nixl\":", (unsigned long long)machine->l3_bytes);
    print_string_or_null(report->nixl);
    fputs(",\"ucx_tls\":", stdout);
    print_string_or_null(report->ucx_tls);
    printf(",\"started\":\"%s\",\n \"missing\":[", report->started);
    for (size_t i = 0; i < results->missing_count; i++) {
        printf("%s\n  {\"subject\":\"%s\",\"why\":", i > 0 ? "," : "",
               subject_names[results->missing[i].subject]);
        print_string(results->missing[i].why);
        putchar('}');
    }
    fputs("],\n \"results\":[", stdout);
    for (size_t i = 0; i < results->count; i++) {
        printf("%s\n  ", i > 0 ? "," : "");
        print_result(report, results->result[i]);
    }
    fputs("]}\n", stdout);
}
