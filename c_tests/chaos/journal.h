/* What the survivor did last, kept for the case that something is wrong. */
#ifndef CHAOS_JOURNAL_H
#define CHAOS_JOURNAL_H

#include <stdint.h>

/* `path`: where the journal goes at a failure; NULL: the last lines go to stderr only. */
void journal_start(uint64_t seed, const char *path);
void journal_step(uint64_t step);
/* One line without a newline. */
void journal(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From here on the end of the process is no failure. */
void journal_end(void);

#endif
