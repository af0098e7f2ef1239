/* What memory must hold after a round. */
#ifndef VERIFY_H
#define VERIFY_H

#include "plan.h"
#include "pool.h"

/* The memory of the initiator is filled with stream 0, that of target i with stream i + 1. */
static inline uint64_t stream_of_target(uint32_t peer)
{
    return peer + 1;
}

struct landing {
    const struct pool *pool;
    const uint32_t *to;   /* blocks of the pool */
    const uint32_t *from; /* blocks of the other side's, which was filled with `stream` */
    uint64_t stream;
    size_t pairs, touched; /* those from `touched` on were not moved */
    size_t block_len;
    unsigned char before;  /* every byte of the pool, before the round */
};

/* "" if all is right, otherwise what is wrong. The guards of the pool are not looked at. */
void verify_landing(const struct landing *landing, char *text, size_t cap);

#endif
