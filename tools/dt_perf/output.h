/* Results for people, and for programs. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <dt.h>

#include "machine.h"
#include "result.h"

#define DT_PERF_STRING_OF(x) #x
#define DT_PERF_STRING(x) DT_PERF_STRING_OF(x)
#define DT_PERF_VERSION                                                                           \
    DT_PERF_STRING(DT_VERSION_MAJOR) "." DT_PERF_STRING(DT_VERSION_MINOR) "."                      \
    DT_PERF_STRING(DT_VERSION_PATCH)

struct report {
    const struct settings *settings;
    const struct results *results;
    struct machine machine;
    char nixl[64];    /* its version, "" without it */
    char ucx_tls[256]; /* "" if it is not set */
    char started[32];
};

void print_table(const struct report *report);
void print_json(const struct report *report);

#endif
