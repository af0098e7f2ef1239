/* A handle that is of no use: closed, forked, or never one. */
#ifndef DT_TEST_REFUSED_H
#define DT_TEST_REFUSED_H

#include "dt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls every function on `t` but dt_destroy and the accessors: each gives `status`, the sentence
 * of each holds `word`, and no result is written. Of a closed one (DT_ERR_CLOSED), dt_get_stats
 * gives DT_OK, and dt_close is left to the caller. */
void expect_all_refused(dt_transport *t, dt_status status, const char *word);

#ifdef __cplusplus
}
#endif

#endif
