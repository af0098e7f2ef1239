#include "util.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "progress.h"

__attribute__((noreturn))
static void end(int status, const char *format, va_list args)
{
    char line[1024];
    progress_clear();
    fflush(stdout);
    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "dt_perf: %s\n", line);
    /* Not exit: it would wait for locks that a library's thread may have here. */
    fflush(stderr);
    _Exit(status);
}

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    end(1, format, args);
}

void die_with(int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    end(status, format, args);
}

void *must_alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        die("there is no memory for %zu x %zu bytes", count, size);
    return memory;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void sleep_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        continue;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            values[n++] = values[i];
    if (n == 0)
        return NAN;
    qsort(values, n, sizeof *values, compare);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct text bytes_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    struct text text;
    size_t unit = 0;
    uint64_t value = bytes;

    while (value > 0 && value % 1024 == 0 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(text.chars, sizeof text.chars, "%llu %s", (unsigned long long)value,
             bytes == 1 ? "byte" : units[unit]);
    return text;
}

void read_line(const char *path, char *line, size_t cap)
{
    FILE *file = fopen(path, "r");
    line[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(line, (int)cap, file) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}
