/* How far a program has come, on stdout. Nothing here needs the library. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdint.h>

struct progress {
    uint64_t file_bytes;
    uint64_t moved;      /* bytes that are at the receiver */
    double transferring; /* seconds spent in transfers */
    int last_percent;    /* shown; below -10: nothing yet */
};

/* A bar that stays on its line on a terminal, and a line for every tenth elsewhere. */
void progress_show(struct progress *progress);

#endif
