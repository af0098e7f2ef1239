/* Checks for tests: the first one that does not hold ends the test. */
#ifndef DT_CHECK_H
#define DT_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "dt.h"

/* The condition holds. */
#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            dt_check_failed(__FILE__, __LINE__, #cond);                                            \
    } while (0)

/* The call returns the status. */
#define CHECK_STATUS(call, status) dt_check_status(__FILE__, __LINE__, #call, (call), (status))

/* The call returns DT_OK. */
#define CHECK_OK(call) CHECK_STATUS(call, DT_OK)

static inline void dt_check_failed(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n    last error: \"%s\"\n", file, line, text,
            dt_last_error());
    exit(1);
}

static inline void dt_check_status(const char *file, int line, const char *text, dt_status got,
                                   dt_status expected)
{
    if (got == expected)
        return;
    fprintf(stderr, "%s:%d: %s, not %s: %s\n    last error: \"%s\"\n", file, line,
            dt_status_str(got), dt_status_str(expected), text, dt_last_error());
    exit(1);
}

#endif
