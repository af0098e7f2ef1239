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

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* A line for each row: its subject, then the cells that `print` prints of it and of its median. */
static void print_rows(const struct result *result,
                       void (*print)(const struct result *result, const struct row *row,
                                     const struct sample *middle))
{
    for (size_t i = 0; i < result->rows; i++) {
        const struct row *row = &result->row[i];
        struct sample middle = row_median(result, row);
        printf("%-16s", subject_names[row->subject]);
        print(result, row, &middle);
        putchar('\n');
    }
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

static void transfer_rates(const struct result *result, const struct row *row,
                           const struct sample *middle)
{
    static const enum subject references[] = {MEMCPY, COPY_NT, PROCESS_VM, NIXL_RAW};

    cell(6, middle->value[GB_PER_S]);
    extremes(result, row, GB_PER_S);
    cell(10, middle->value[TRANSFERS_PER_S]);
    cell(6, middle->value[CPU_INITIATOR]);
    cell(6, middle->value[CPU_TARGET]);
    for (size_t k = 0; k < sizeof references / sizeof *references; k++)
        cell(k < 2 ? 9 : 11, row_ratio(result, row, references[k], GB_PER_S));
}

static void transfer_times(const struct result *result, const struct row *row,
                           const struct sample *middle)
{
    (void)result, (void)row;
    times(middle, SUBMIT_P50);
    putchar(' ');
    times(middle, POLL_P50);
    putchar(' ');
    times(middle, COMPLETION_P50);
}

static void print_transfer(const struct report *report, const struct result *result)
{
    const struct settings *settings = report->settings;
    uint64_t bytes = result->blocks * result->block_size;

    printf("\n%s, %llu block%s of %s (%s), %s, %llu in flight, %u target%s, pool %s, %u round%s\n",
           op_names[result->op], (unsigned long long)result->blocks, plural(result->blocks),
           bytes_text(result->block_size).chars, bytes_text(bytes).chars,
           pattern_names[result->pattern], (unsigned long long)result->depth, settings->peers,
           plural(settings->peers), bytes_text(settings->pool).chars, result->rounds,
           plural(result->rounds));
    printf("                 ------- GB/s -------  transfers  - CPU s/GB - "
           "---------- GB/s, times those of -----------\n"
           "                 median    min    max         /s  init.  targ. "
           "  memcpy   copy-nt  process-vm    nixl-raw\n");
    print_rows(result, transfer_rates);
    printf("\n                 --------- submit, us --------  ---------- poll, us ---------  "
           "------- completion, us ------\n"
           "                       p50       p99     p99.9        p50       p99     p99.9  "
           "      p50       p99     p99.9\n");
    print_rows(result, transfer_times);
}

static void add_peer_cells(const struct result *result, const struct row *row,
                           const struct sample *middle)
{
    (void)result, (void)row;
    cell(9, middle->value[ADD_NS] / 1e3);
    cell(15, middle->value[RSS_BYTES] / 1024);
}

static void print_add_peer(const struct result *result)
{
    printf("\nadding a target of %llu block%s, %u round%s\n"
           "                  time, us     growth, KiB\n",
           (unsigned long long)result->blocks, plural(result->blocks), result->rounds,
           plural(result->rounds));
    print_rows(result, add_peer_cells);
}

static void in_flight_cells(const struct result *result, const struct row *row,
                            const struct sample *middle)
{
    (void)result, (void)row;
    cell(10, middle->value[POLL_NS] / 1e3);
    if (isnan(middle->value[NS_PER_BYTE]))
        cell(15, NAN);
    else
        printf(" %15.4f", middle->value[NS_PER_BYTE]);
}

static void print_in_flight(const struct result *result)
{
    printf("\nasking with %llu in flight and nothing done, %u round%s\n"
           "                   poll, us     ns per byte\n",
           (unsigned long long)result->depth, result->rounds, plural(result->rounds));
    print_rows(result, in_flight_cells);
}

static void idle_cells(const struct result *result, const struct row *row,
                       const struct sample *middle)
{
    (void)result;
    printf(" %-16s %12.3f", row->mode, 100 * middle->value[CPU_SHARE]);
}

static void print_idle(const struct result *result)
{
    printf("\nidle, %u round%s\n"
           "                 mode               %% of a core\n",
           result->rounds, plural(result->rounds));
    print_rows(result, idle_cells);
}

void print_table(const struct report *report)
{
    const struct machine *machine = &report->machine;
    const struct results *results = report->results;

    printf("dt_perf %s on %s, %ld core%s, L3 %s, %s, %s, huge pages %s\n", DT_PERF_VERSION,
           machine->cpu, machine->cores, plural((uint64_t)machine->cores),
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
