/* Signals that come a little later, from another thread: in the midst of what the survivor does then. */
#ifndef CHAOS_FATE_H
#define CHAOS_FATE_H

#include <stdint.h>
#include <sys/types.h>

void fate_start(void);
/* After all signals that were asked for before. */
void fate_send(pid_t pid, int number, uint64_t after_ns);
/* Waits until all have been sent. */
void fate_settle(void);
void fate_end(void);

#endif
