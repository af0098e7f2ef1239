/* Keeps what the library logs, for tests that ask what it chose. */
#ifndef DT_TEST_LOGBOOK_H
#define DT_TEST_LOGBOOK_H

#include <stdbool.h>

void logbook_start(void);        /* from now on, up to DEBUG; forgets what it has */
void logbook_stop(void);
bool logbook_has(const char *text);
/* To stderr, for a test that fails. */
void logbook_print(void);

#endif
