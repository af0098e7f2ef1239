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

/* After expect_all_refused with a status other than DT_ERR_CLOSED: every function that the library
 * exports was called there, or is known to answer. */
void expect_none_left_out(void);

/* Those that answer for any transport, and those that need none. The log is off after it. */
void expect_rest_answers(const dt_transport *t, uint64_t base, size_t num_blocks, size_t block_len);

#ifdef __cplusplus
}
#endif

#endif
