/* NIXL's C library, opened at run time. Only what the bare requests need. */
#ifndef NIXL_CAPI_H
#define NIXL_CAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool.h"

enum { NIXL_DONE = 0, NIXL_IN_PROGRESS = 1, NIXL_DRAM = 0, NIXL_READ = 0, NIXL_WRITE = 1 };

struct nixl_config {
    bool progress_thread;
    bool listen_thread;
    int listen_port;
    int thread_sync; /* 0: none */
    unsigned workers;
    uint64_t progress_delay_us;
    uint64_t listen_delay_us;
    bool telemetry;
};

/* Handles are opaque. Functions return 0, 1 (in progress) or a negative status. */
struct nixl {
    int (*create_configured_agent)(const char *name, const struct nixl_config *, void **agent);
    int (*destroy_agent)(void *agent);
    int (*create_params)(void **params);
    int (*destroy_params)(void *params);
    int (*create_backend)(void *agent, const char *plugin, void *params, void **backend);
    int (*destroy_backend)(void *backend);
    int (*create_opt_args)(void **args);
    int (*destroy_opt_args)(void *args);
    int (*opt_args_add_backend)(void *args, void *backend);
    int (*create_reg_dlist)(int type, void **list);
    int (*destroy_reg_dlist)(void *list);
    int (*reg_dlist_add_desc)(void *list, uintptr_t address, size_t bytes, uint64_t device,
                              const void *metadata, size_t metadata_len);
    int (*register_mem)(void *agent, void *list, void *args);
    int (*deregister_mem)(void *agent, void *list, void *args);
    int (*get_local_md)(void *agent, void **data, size_t *len);
    int (*load_remote_md)(void *agent, const void *data, size_t len, char **name);
    int (*create_xfer_dlist)(int type, void **list);
    int (*destroy_xfer_dlist)(void *list);
    int (*xfer_dlist_add_desc)(void *list, uintptr_t address, size_t bytes, uint64_t device);
    int (*prep_xfer_dlist)(void *agent, const char *name, void *list, void **prepared, void *args);
    int (*release_xfer_dlist_handle)(void *agent, void *prepared);
    int (*invalidate_remote_md)(void *agent, const char *name);
    int (*create_xfer_req)(void *agent, int op, void *local, void *remote, const char *name,
                           void **request, void *args);
    int (*post_xfer_req)(void *agent, void *request, void *args);
    int (*get_xfer_status)(void *agent, void *request);
    int (*release_xfer_req)(void *agent, void *request);
    int (*destroy_xfer_req)(void *request);
    int (*create_notif_map)(void **map);
    int (*destroy_notif_map)(void *map);
    int (*get_notifs)(void *agent, void *map, void *args);
};

/* NULL: it cannot be had, and `why` says the reason. */
const struct nixl *nixl_load(char *why, size_t cap);
/* The version of the Python package that it came in, "unknown" if it came otherwise, "" if there
 * is none. */
void nixl_version(char *version, size_t cap);

/* An agent with UCX and one piece of memory. */
struct nixl_agent {
    const struct nixl *nixl;
    void *agent, *backend, *list, *notifs;
};

bool nixl_agent_open(struct nixl_agent *agent, const void *base, size_t bytes,
                     bool progress_thread, char *why, size_t cap);
void nixl_agent_close(struct nixl_agent *agent);
/* What a side has to do that does nothing else. */
void nixl_agent_progress(struct nixl_agent *agent);

#endif
