/* Which calls of NIXL shall answer otherwise, and how. */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stddef.h>

/* Every function that the library calls. */
#define CALLS(CALL) \
    CALL(create_configured_agent) CALL(destroy_agent) CALL(create_backend) CALL(destroy_backend) \
    CALL(create_params) CALL(params_add) CALL(destroy_params) \
    CALL(create_opt_args) CALL(opt_args_add_backend) CALL(destroy_opt_args) \
    CALL(create_reg_dlist) CALL(reg_dlist_add_desc) CALL(reg_dlist_clear) CALL(destroy_reg_dlist) \
    CALL(create_xfer_dlist) CALL(xfer_dlist_add_desc) CALL(xfer_dlist_clear) CALL(destroy_xfer_dlist) \
    CALL(register_mem) CALL(deregister_mem) CALL(get_local_md) \
    CALL(load_remote_md) CALL(check_remote_md) CALL(invalidate_remote_md) \
    CALL(create_xfer_req) CALL(post_xfer_req) CALL(get_xfer_status) CALL(release_xfer_req) \
    CALL(destroy_xfer_req) CALL(gen_notif) CALL(get_notifs) \
    CALL(create_notif_map) CALL(notif_map_size) CALL(notif_map_get_agent_at) \
    CALL(notif_map_get_notifs_size) CALL(notif_map_get_notif) CALL(notif_map_clear) \
    CALL(destroy_notif_map)

enum call {
#define CALL(name) CALL_##name,
    CALLS(CALL)
#undef CALL
    CALL_COUNT
};

/* What a call is about, as far as a rule can ask for it. */
struct subject {
    /* The remote agent; NULL: none. */
    const char *peer;
    /* Bytes of the request; 0: none. */
    size_t bytes;
    /* The request runs, and its owner was not told otherwise. */
    bool running;
};

/* What shall become of a call. */
struct verdict {
    bool fires;
    /* NIXL gets the call. */
    bool forward;
    /* In place of NIXL's answer. */
    bool answers;
    int answer;
    /* NIXL forgets the peer, as it does when it finds it dead. */
    bool drop;
    /* Only so many descriptors go into the request; 0: all. */
    size_t parts;
};

struct verdict plan_judge(enum call call, const struct subject *subject);

/* Replaces the plan: rules separated by ';', each the name of a function (without nixl_capi_, or * for
 * any) and words KEY=NUMBER:
 *
 *     answer   the status to answer; without it the real one
 *     forward  1: the real function is called, 0: it is not. Unless said: only for functions that free
 *              something, whose objects would otherwise leak by the plan, and where there is no answer
 *     skip     so many calls pass first
 *     times    so many calls are hit (1); -1: all
 *     peer     only calls about the remote agent whose name ends in '>' and this number
 *     probe    1: only requests of one byte, 0: only others
 *     running  1: only for requests that still run
 *     drop     1: the peer's metadata is dropped, too
 *     parts    create_xfer_req: only so many descriptors go into the request
 *
 * The first rule that fits decides. An unknown word ends the process. */
void dt_proxy_plan(const char *text);

/* How often a function was called, rules hit ("fired"), or any call ("calls"); -1: no such name. */
long plan_count(const char *name);

#endif
