/* A subject on the initiator's side: what submits transfers and says which have ended. */
#ifndef LANE_H
#define LANE_H

#include "endpoint.h"
#include "links.h"
#include "plan.h"
#include "pool.h"

struct transfer {
    enum op op;
    uint32_t peer;
    const uint32_t *local, *remote;
    size_t count;
};

struct lane {
    enum subject subject;
    struct links *links;
    const struct pool *local;
    size_t block_len;
    uint32_t depth;      /* most transfers in flight */
    unsigned char **remote; /* base of each target's blocks, in its own addresses or here */
    struct endpoint endpoint;
    /* Starts a transfer, and calls it `slot` (below depth). */
    void (*submit)(struct lane *lane, const struct transfer *transfer, uint32_t slot);
    /* Writes the slots of transfers that have ended. NULL: they end in submit. */
    size_t (*poll)(struct lane *lane, uint32_t *slots, size_t cap);
    void (*close)(struct lane *lane);
    void *own; /* more, of some subjects */
};

struct lanes_setup {
    struct links *links;
    struct pool *pools;  /* of the initiator, by enum memory */
    struct shape shape;  /* of the initiator's side */
    size_t peer_blocks;  /* of each target */
    uint32_t depth;
};

/* Opens the subject on both sides and makes all targets known. False: `why` says the reason. */
bool lane_open(struct lane *lane, enum subject subject, const struct lanes_setup *setup, char *why,
               size_t cap);
/* Only this side; the targets are asked with CLOSE, for all subjects together. */
void lane_close(struct lane *lane);

/* A transfer has failed: tells why, and first of all, if a target is gone. */
__attribute__((noreturn)) void lane_failed(struct lane *lane, const char *what);

/* Blocks from the k-th on that follow on each other on both sides. */
static inline size_t lane_run(const struct transfer *transfer, size_t k)
{
    size_t n = 1;
    while (k + n < transfer->count && transfer->local[k + n] == transfer->local[k] + n &&
           transfer->remote[k + n] == transfer->remote[k] + n)
        n++;
    return n;
}

/* Each returns false with a reason. The remote bases are there, and so is the endpoint. */
bool lane_dt_setup(struct lane *lane, char *why, size_t cap);
bool lane_copy_setup(struct lane *lane, char *why, size_t cap);
bool lane_process_vm_setup(struct lane *lane, char *why, size_t cap);
bool lane_nixl_setup(struct lane *lane, char *why, size_t cap);
/* Makes target `peer` known by what the reply says of it. */
bool lane_dt_add(struct lane *lane, uint32_t peer, char *why, size_t cap);

#endif
