/* The process whose memory is written to and read from. */
#ifndef TARGET_H
#define TARGET_H

/* Does what the initiator at the other end of `fd` asks, until it says goodbye. */
void target_serve(int fd);

#endif
