/* One end of what moves blocks between processes: a transport of this library, or a bare agent of
 * NIXL. Both sides make one for each subject. */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <dt.h>

#include "nixl_capi.h"
#include "perf.h"
#include "wire.h"

struct endpoint {
    enum subject subject;
    dt_transport *transport; /* LOCAL, LOCAL_UNMAPPED, NIXL */
    struct nixl_agent agent; /* NIXL_RAW */
    bool progress_thread;
};

struct shape {
    size_t num_blocks, block_len;
    bool progress_thread;
    uint32_t poll_budget_us;
};

/* False: `why` says the reason. */
bool endpoint_open(struct endpoint *endpoint, enum subject subject, const struct pool *pool,
                   struct shape shape, char *why, size_t cap);
void endpoint_close(struct endpoint *endpoint);
/* Writes what the other side must know of it. */
bool endpoint_describe(struct endpoint *endpoint, struct reply *reply);
/* Lets NIXL work for the other side. */
void endpoint_progress(struct endpoint *endpoint);

/* dt_perf: what: DT_ERR_..., and why. Ends the process. */
void endpoint_must(dt_status status, const char *what);

#endif
