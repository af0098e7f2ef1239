/* A bar on stderr, where that is a terminal. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

void progress_start(size_t steps, bool wanted);
/* One step was done; `what` comes next. */
void progress_step(const char *what);
void progress_clear(void);

#endif
