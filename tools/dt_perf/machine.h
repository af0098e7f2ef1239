/* What it ran on. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

struct machine {
    char cpu[128], kernel[160], thp[32];
    long cores;
    uint64_t memory_bytes, l3_bytes;
};

void machine_read(struct machine *machine);

#endif
