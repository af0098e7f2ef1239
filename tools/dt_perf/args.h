/* The command line. */
#ifndef ARGS_H
#define ARGS_H

#include "perf.h"

/* Ends the process: with one sentence and status 1 for what is wrong, or after --help. */
void args_parse(struct settings *settings, int argc, char **argv);

extern const char *const help_text[]; /* parts, the last one NULL */

#endif
