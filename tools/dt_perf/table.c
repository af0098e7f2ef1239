#include <math.h>
#include <stdio.h>
#include <string.h>

#include "output.h"
#include "util.h"

/* A number with about three digits, right-aligned; "-" where there is none. */
static void cell(int width, double value)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

/* Nanoseconds as microseconds. */
static void times(const struct sample *sample, enum metric p50)
{
    for (size_t i = 0; i < 3; i++)
        cell(9, sample->value[p50 + i] / 1e3);
}

static void extremes(const struct result *result, const struct row *row, enum metric metric)
{
    double least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < result->rounds; i++) {
        least = fmin(least, row->round[i].value[metric]);
        most = fmax(most, row->round[i].value[metric]);
    }
    cell(6, least);
    cell(6, most);
}

static void print_transfer(const struct report *report, const struct result *result)
{
    static const enum subject references[] = {MEMCPY, COPY_NT, PROCESS_VM, NIXL_RAW};
    const struct settings *settings = report->settings;
    uint64_t bytes = result->blocks * result->block_size;

    printf("\n%s, %llu block%s of %s (%s), %s, %llu in flight, %u target%s, pool %s, %u rounds\n",
           op_names[result->op], (unsigned long long)result->blocks,
           result->blocks == 1 ? "" : "s", bytes_text(result->block_size).chars,
           bytes_text(bytes).chars, pattern_names[result->pattern],
           (unsigned long long)result->depth, settings->peers, settings->peers == 1 ? "" : "s",
           bytes_text(settings->pool).chars, result->rounds);
    printf("                 ------- GB/s -------  transfers  - CPU s/GB - "
           "---------- GB/s, times those of -----------\n"
           "                 median    min    max         /s  init.  targ. "
           "  memcpy   copy-nt  process-vm    nixl-raw\n");
    for (size_t i = 0; i < result->rows; i++) {
        const struct row *row = &result->row[i];
        struct sample middle = row_median(result, row);
        printf("%-16s", subject_names[row->subject]);
        cell(6, middle.value[GB_PER_S]);
        extremes(result, row, GB_PER_S);
        cell(10, middle.value[TRANSFERS_PER_S]);
        cell(6, middle.value[CPU_INITIATOR]);
        cell(6, middle.value[CPU_TARGET]);
        for (size_t k = 0; k < sizeof references / sizeof *references; k++)
            cell(k < 2 ? 9 : 11, row_ratio(result, row, references[k], GB_PER_S));
        putchar('\n');
    }
    printf("\n                 --------- submit, us --------  ---------- poll, us ---------  "
           "------- completion, us ------\n"
           "                       p50       p99     p99.9        p50       p99     p99.9  "
           "      p50       p99     p99.9\n");
    for (size_t i = 0; i < result->rows; i++) {
        struct sample middle = row_median(result, &result->row[i]);
        printf("%-16s", subject_names[result->row[i].subject]);
        times(&middle, SUBMIT_P50);
        putchar(' ');
        times(&middle, POLL_P50);
        putchar(' ');
        times(&middle, COMPLETION_P50);
        putchar('\n');
    }
}

static void print_add_peer(const struct result *result)
{
    printf("\nadding a target of %llu blocks, %u rounds\n"
           "                  time, us     growth, KiB\n",
           (unsigned long long)result->blocks, result->rounds);
    for (size_t i = 0; i < result->rows; i++) {
        struct sample middle = row_median(result, &result->row[i]);
        printf("%-16s", subject_names[result->row[i].subject]);
        cell(9, middle.value[ADD_NS] / 1e3);
        cell(15, middle.value[RSS_BYTES] / 1024);
        putchar('\n');
    }
}

static void print_in_flight(const struct result *result)
{
    printf("\nasking with %llu in flight and nothing done, %u rounds\n"
           "                   poll, us     ns per byte\n",
           (unsigned long long)result->depth, result->rounds);
    for (size_t i = 0; i < result->rows; i++) {
        struct sample middle = row_median(result, &result->row[i]);
        printf("%-16s", subject_names[result->row[i].subject]);
        cell(10, middle.value[POLL_NS] / 1e3);
        if (isnan(middle.value[NS_PER_BYTE]))
            cell(15, NAN);
        else
            printf(" %15.4f", middle.value[NS_PER_BYTE]);
        putchar('\n');
    }
}

static void print_idle(const struct result *result)
{
    printf("\nidle, %u rounds\n"
           "                 mode               %% of a core\n",
           result->rounds);
    for (size_t i = 0; i < result->rows; i++) {
        struct sample middle = row_median(result, &result->row[i]);
        printf("%-16s %-16s %12.3f\n", subject_names[result->row[i].subject], result->row[i].mode,
               100 * middle.value[CPU_SHARE]);
    }
}

void print_table(const struct report *report)
{
    const struct machine *machine = &report->machine;
    const struct results *results = report->results;

    printf("dt_perf %s on %s, %ld core%s, L3 %s, %s, %s, huge pages %s\n", DT_PERF_VERSION,
           machine->cpu, machine->cores, machine->cores == 1 ? "" : "s",
           bytes_text(machine->l3_bytes).chars, bytes_text(machine->memory_bytes >> 30 << 30).chars,
           machine->kernel, machine->thp);
    if (report->nixl[0] != '\0')
        printf("NIXL %s, UCX_TLS %s\n", report->nixl,
               report->ucx_tls[0] != '\0' ? report->ucx_tls : "not set");
    for (size_t i = 0; i < results->count; i++) {
        const struct result *result = results->result[i];
        if (result->test == TRANSFER)
            print_transfer(report, result);
        else if (result->test == ADD_PEER)
            print_add_peer(result);
        else if (result->test == IN_FLIGHT)
            print_in_flight(result);
        else
            print_idle(result);
    }
    for (size_t i = 0; i < results->missing_count; i++)
        printf("%snot measured: %s: %s\n", i == 0 ? "\n" : "",
               subject_names[results->missing[i].subject], results->missing[i].why);
}
