/* A libnixl_capi.so that forwards every call of the library to the real one and, by a plan, makes chosen
 * calls answer otherwise: so the library's ways out of NIXL's failures can be tested with the real NIXL
 * around them. It also counts what is taken and given back, and ends the process when a handle is used
 * that is not alive, when an agent is called from two threads at once, after a fork, or when NIXL's own
 * static objects are gone.
 *
 * The real library is looked for in the folder `real` beside this file. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "objects.h"
#include "plan.h"

/* NIXL's statuses that mean something here. */
enum { SUCCESS = 0, IN_PROGRESS = 1 };

/* The real functions. Without prototypes: they are those of the functions below. */
static int (*reals[CALL_COUNT])();

#define REAL(name) reals[CALL_##name]

static pid_t home;
static bool exiting;
static long released_running, posted_probes;

__attribute__((constructor)) static void load(void)
{
    Dl_info info;
    char path[PATH_MAX], file[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)dt_proxy_plan, &info))
        tripped("where is this?");
    snprintf(path, sizeof path, "%s", info.dli_fname);
    *strrchr(path, '/') = '\0';
    strncat(path, "/real/libnixl_capi.so", sizeof path - strlen(path) - 1);
    if (!realpath(path, file))
        tripped(path);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        tripped(dlerror());
#define CALL(name) \
    reals[CALL_##name] = (int (*)())(uintptr_t)dlsym(library, "nixl_capi_" #name); \
    if (!reals[CALL_##name]) \
        tripped("the real library lacks nixl_capi_" #name);
    CALLS(CALL)
#undef CALL
}

static void *real_of(void *handle, enum kind kind)
{
    struct object *object = object_of(handle, kind);
    return object ? object->real : NULL;
}

/* One call on its way. */
struct way {
    struct verdict verdict;
    struct object *agent;
    struct subject subject;
};

static struct way enter_about(enum call call, void *agent, struct subject subject)
{
    struct way way = {.agent = object_of(agent, AGENT), .subject = subject};
    if (home != getpid() && home != 0)
        tripped("NIXL is called in a forked child");
    if (exiting)
        tripped("NIXL is called when its static objects are gone");
    if (way.agent && atomic_exchange(&way.agent->entered, true))
        tripped("two threads are in one agent");
    way.verdict = plan_judge(call, &subject);
    return way;
}

static struct way enter(enum call call, void *agent)
{
    return enter_about(call, agent, (struct subject){0});
}

/* What the library gets to hear. */
static int leave(struct way way, int status)
{
    if (way.verdict.drop && way.agent && way.subject.peer)
        REAL(invalidate_remote_md)(way.agent->real, way.subject.peer);
    if (way.agent)
        atomic_store(&way.agent->entered, false);
    return way.verdict.answers ? way.verdict.answer : status;
}

/* The end of a call that made `*out`, if it did. */
static int leave_with(struct way way, int status, enum kind kind, void **out)
{
    if (way.verdict.forward && status == SUCCESS)
        *out = object_new(kind, *out, way.agent);
    return leave(way, status);
}

/* The end of a call that gave `object` back. */
static int leave_without(struct way way, int status, struct object *object)
{
    if (way.verdict.forward && status == SUCCESS) {
        if (!object)
            tripped("more is given back than was taken");
        object_gone(object, true);
    }
    return leave(way, status);
}

#define FORWARD(way, name, ...) ((way).verdict.forward ? REAL(name)(__VA_ARGS__) : SUCCESS)

/* Functions that make or free a plain container, or do something with one. */
#define MAKE(name, kind) \
    int nixl_capi_##name(void **out) \
    { \
        struct way way = enter(CALL_##name, NULL); \
        return leave_with(way, FORWARD(way, name, out), kind, out); \
    }
#define MAKE_FOR(name, kind) \
    int nixl_capi_##name(int memory, void **out) \
    { \
        struct way way = enter(CALL_##name, NULL); \
        return leave_with(way, FORWARD(way, name, memory, out), kind, out); \
    }
#define FREE(name, kind) \
    int nixl_capi_##name(void *handle) \
    { \
        struct way way = enter(CALL_##name, NULL); \
        struct object *object = object_of(handle, kind); \
        return leave_without(way, FORWARD(way, name, object->real), object); \
    }

MAKE(create_params, PARAMS)
FREE(destroy_params, PARAMS)
MAKE(create_opt_args, OPT_ARGS)
FREE(destroy_opt_args, OPT_ARGS)
MAKE_FOR(create_reg_dlist, REG_LIST)
FREE(destroy_reg_dlist, REG_LIST)
MAKE_FOR(create_xfer_dlist, XFER_LIST)
FREE(destroy_xfer_dlist, XFER_LIST)
MAKE(create_notif_map, NOTIF_MAP)
FREE(destroy_notif_map, NOTIF_MAP)
FREE(destroy_backend, BACKEND)

int nixl_capi_params_add(void *params, const char *key, const char *value)
{
    struct way way = enter(CALL_params_add, NULL);
    return leave(way, FORWARD(way, params_add, real_of(params, PARAMS), key, value));
}

int nixl_capi_opt_args_add_backend(void *args, void *backend)
{
    struct way way = enter(CALL_opt_args_add_backend, NULL);
    return leave(way, FORWARD(way, opt_args_add_backend, real_of(args, OPT_ARGS),
                              real_of(backend, BACKEND)));
}

int nixl_capi_reg_dlist_clear(void *list)
{
    struct way way = enter(CALL_reg_dlist_clear, NULL);
    return leave(way, FORWARD(way, reg_dlist_clear, real_of(list, REG_LIST)));
}

int nixl_capi_reg_dlist_add_desc(void *list, uintptr_t addr, size_t len, uint64_t dev,
                                 const void *metadata, size_t metadata_len)
{
    struct way way = enter(CALL_reg_dlist_add_desc, NULL);
    return leave(way, FORWARD(way, reg_dlist_add_desc, real_of(list, REG_LIST), addr, len, dev,
                              metadata, metadata_len));
}

int nixl_capi_xfer_dlist_clear(void *handle)
{
    struct way way = enter(CALL_xfer_dlist_clear, NULL);
    struct object *list = object_of(handle, XFER_LIST);
    if (way.verdict.forward)
        list->count = 0;
    return leave(way, FORWARD(way, xfer_dlist_clear, list->real));
}

int nixl_capi_xfer_dlist_add_desc(void *handle, uintptr_t addr, size_t len, uint64_t dev)
{
    struct way way = enter(CALL_xfer_dlist_add_desc, NULL);
    struct object *list = object_of(handle, XFER_LIST);
    if (way.verdict.forward) {
        if (list->count == list->room) {
            list->room = list->room ? 2 * list->room : 16;
            list->descs = realloc(list->descs, list->room * sizeof *list->descs);
            if (!list->descs)
                tripped("no memory");
        }
        list->descs[list->count++] = (struct desc){addr, len, dev};
    }
    return leave(way, FORWARD(way, xfer_dlist_add_desc, list->real, addr, len, dev));
}

int nixl_capi_notif_map_size(void *map, size_t *size)
{
    struct way way = enter(CALL_notif_map_size, NULL);
    return leave(way, FORWARD(way, notif_map_size, real_of(map, NOTIF_MAP), size));
}

int nixl_capi_notif_map_get_agent_at(void *map, size_t index, const char **name)
{
    struct way way = enter(CALL_notif_map_get_agent_at, NULL);
    return leave(way, FORWARD(way, notif_map_get_agent_at, real_of(map, NOTIF_MAP), index, name));
}

int nixl_capi_notif_map_get_notifs_size(void *map, const char *name, size_t *size)
{
    struct way way = enter(CALL_notif_map_get_notifs_size, NULL);
    return leave(way, FORWARD(way, notif_map_get_notifs_size, real_of(map, NOTIF_MAP), name, size));
}

int nixl_capi_notif_map_get_notif(void *map, const char *name, size_t index, const void **data,
                                  size_t *len)
{
    struct way way = enter(CALL_notif_map_get_notif, NULL);
    return leave(way, FORWARD(way, notif_map_get_notif, real_of(map, NOTIF_MAP), name, index, data,
                              len));
}

int nixl_capi_notif_map_clear(void *map)
{
    struct way way = enter(CALL_notif_map_clear, NULL);
    return leave(way, FORWARD(way, notif_map_clear, real_of(map, NOTIF_MAP)));
}

/* The agent. */

static void begin_exit(void)
{
    exiting = true;
}

int nixl_capi_create_configured_agent(const char *name, const void *config, void **out)
{
    struct way way = enter(CALL_create_configured_agent, NULL);
    int status = FORWARD(way, create_configured_agent, name, config, out);
    if (home == 0)
        atexit(begin_exit);
    home = getpid();
    return leave_with(way, status, AGENT, out);
}

/* Gives back the zombies that have ended; with `force` all. */
static void bury_zombies(struct object *agent, bool force)
{
    for (struct object *at = object_next(NULL, ZOMBIE, agent), *next; at; at = next) {
        next = object_next(at, ZOMBIE, agent);
        int status = REAL(get_xfer_status)(at->agent->real, at->real);
        if (!force && status == IN_PROGRESS)
            continue;
        REAL(release_xfer_req)(at->agent->real, at->real);
        REAL(destroy_xfer_req)(at->real);
        object_gone(at, true);
    }
}

int nixl_capi_destroy_agent(void *handle)
{
    struct way way = enter(CALL_destroy_agent, handle);
    struct object *agent = way.agent;
    bury_zombies(agent, true);
    const enum kind kinds[] = {REQUEST, REMOTE, REGISTRATION, BACKEND};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (struct object *at; (at = object_next(NULL, kinds[i], agent));)
            object_gone(at, false);
    way.agent = NULL;
    return leave_without(way, FORWARD(way, destroy_agent, agent->real), agent);
}

int nixl_capi_create_backend(void *agent, const char *plugin, void *params, void **out)
{
    struct way way = enter(CALL_create_backend, agent);
    return leave_with(way, FORWARD(way, create_backend, way.agent->real, plugin,
                                   real_of(params, PARAMS), out), BACKEND, out);
}

int nixl_capi_register_mem(void *agent, void *list, void *args)
{
    struct way way = enter(CALL_register_mem, agent);
    int status = FORWARD(way, register_mem, way.agent->real, real_of(list, REG_LIST),
                         real_of(args, OPT_ARGS));
    void *none = NULL;
    return leave_with(way, status, REGISTRATION, &none);
}

int nixl_capi_deregister_mem(void *agent, void *list, void *args)
{
    struct way way = enter(CALL_deregister_mem, agent);
    int status = FORWARD(way, deregister_mem, way.agent->real, real_of(list, REG_LIST),
                         real_of(args, OPT_ARGS));
    return leave_without(way, status, object_next(NULL, REGISTRATION, way.agent));
}

int nixl_capi_get_local_md(void *agent, void **data, size_t *len)
{
    struct way way = enter(CALL_get_local_md, agent);
    return leave(way, FORWARD(way, get_local_md, way.agent->real, data, len));
}

/* Peers. */

static struct object *remote_called(const struct object *agent, const char *name)
{
    struct object *at = NULL;
    while ((at = object_next(at, REMOTE, agent)) && strcmp(at->peer, name) != 0)
        ;
    return at;
}

int nixl_capi_load_remote_md(void *agent, const void *data, size_t len, char **name)
{
    /* "nixlSerDes|Agent", the length of the name, the name. */
    const size_t head = 24;
    char peer[128] = "";
    if (len > head + sizeof peer) {
        uint64_t length;
        memcpy(&length, (const char *)data + head - sizeof length, sizeof length);
        snprintf(peer, sizeof peer, "%.*s", (int)length, (const char *)data + head);
    }
    struct way way = enter_about(CALL_load_remote_md, agent, (struct subject){.peer = peer});
    int status = FORWARD(way, load_remote_md, way.agent->real, data, len, name);
    if (way.verdict.forward && status == SUCCESS && !remote_called(way.agent, *name)) {
        struct object *remote = object_new(REMOTE, NULL, way.agent);
        snprintf(remote->peer, sizeof remote->peer, "%s", *name);
    }
    return leave(way, status);
}

int nixl_capi_invalidate_remote_md(void *agent, const char *name)
{
    struct subject subject = {.peer = name};
    struct way way = enter_about(CALL_invalidate_remote_md, agent, subject);
    int status = FORWARD(way, invalidate_remote_md, way.agent->real, name);
    struct object *remote = remote_called(way.agent, name);
    /* NIXL may have dropped it by itself, which it calls not found. */
    if (way.verdict.forward && remote)
        object_gone(remote, true);
    return leave(way, status);
}

int nixl_capi_check_remote_md(void *agent, const char *name, void *list)
{
    struct subject subject = {.peer = name};
    struct way way = enter_about(CALL_check_remote_md, agent, subject);
    return leave(way, FORWARD(way, check_remote_md, way.agent->real, name,
                              real_of(list, XFER_LIST)));
}

/* Messages. */

int nixl_capi_gen_notif(void *agent, const char *name, const void *data, size_t len, void *args)
{
    struct way way = enter_about(CALL_gen_notif, agent, (struct subject){.peer = name});
    return leave(way, FORWARD(way, gen_notif, way.agent->real, name, data, len,
                              real_of(args, OPT_ARGS)));
}

int nixl_capi_get_notifs(void *agent, void *map, void *args)
{
    struct way way = enter(CALL_get_notifs, agent);
    return leave(way, FORWARD(way, get_notifs, way.agent->real, real_of(map, NOTIF_MAP),
                              real_of(args, OPT_ARGS)));
}

/* Requests. */

static void *first_of(const struct object *list, size_t parts)
{
    void *some = NULL;
    if (REAL(create_xfer_dlist)(0, &some) != SUCCESS)
        tripped("no list");
    for (size_t i = 0; i < parts && i < list->count; i++)
        REAL(xfer_dlist_add_desc)(some, list->descs[i].addr, list->descs[i].len, list->descs[i].dev);
    return some;
}

int nixl_capi_create_xfer_req(void *agent, int operation, void *local, void *remote,
                              const char *name, void **out, void *args)
{
    struct object *here = object_of(local, XFER_LIST), *there = object_of(remote, XFER_LIST);
    struct subject subject = {.peer = name};
    for (size_t i = 0; here && i < here->count; i++)
        subject.bytes += here->descs[i].len;
    struct way way = enter_about(CALL_create_xfer_req, agent, subject);
    void *lists[] = {here ? here->real : NULL, there ? there->real : NULL};
    const size_t parts = here && there ? way.verdict.parts : 0;
    if (parts) {
        lists[0] = first_of(here, parts);
        lists[1] = first_of(there, parts);
    }
    int status = FORWARD(way, create_xfer_req, way.agent->real, operation, lists[0], lists[1], name,
                         out, real_of(args, OPT_ARGS));
    for (size_t i = 0; parts && i < 2; i++)
        REAL(destroy_xfer_dlist)(lists[i]);
    status = leave_with(way, status, REQUEST, out);
    if (status == SUCCESS) {
        struct object *request = object_of(*out, REQUEST);
        snprintf(request->peer, sizeof request->peer, "%s", name);
        request->bytes = subject.bytes;
    }
    return status;
}

static struct subject of_request(const struct object *request)
{
    return (struct subject){
        .peer = request->peer,
        .bytes = request->bytes,
        .running = request->actual == IN_PROGRESS && request->told == IN_PROGRESS,
    };
}

int nixl_capi_post_xfer_req(void *agent, void *handle, void *args)
{
    struct object *request = object_of(handle, REQUEST);
    struct way way = enter_about(CALL_post_xfer_req, agent, of_request(request));
    posted_probes += request->bytes == 1;
    request->actual = FORWARD(way, post_xfer_req, way.agent->real, request->real,
                              real_of(args, OPT_ARGS));
    return request->told = leave(way, request->actual);
}

int nixl_capi_get_xfer_status(void *agent, void *handle)
{
    struct object *request = object_of(handle, REQUEST);
    struct way way = enter_about(CALL_get_xfer_status, agent, of_request(request));
    if (way.verdict.forward)
        request->actual = REAL(get_xfer_status)(way.agent->real, request->real);
    return request->told = leave(way, request->actual);
}

int nixl_capi_release_xfer_req(void *agent, void *handle)
{
    struct object *request = object_of(handle, REQUEST);
    if (request->actual == IN_PROGRESS)
        request->actual = REAL(get_xfer_status)(object_of(agent, AGENT)->real, request->real);
    struct subject subject = of_request(request);
    struct way way = enter_about(CALL_release_xfer_req, agent, subject);
    released_running += subject.running;
    if (request->actual == IN_PROGRESS && !subject.running) {
        /* A NIXL that says such a thing would know what it has to keep. */
        object_new(ZOMBIE, request->real, way.agent);
        request->real = NULL;
        return leave(way, SUCCESS);
    }
    return leave(way, FORWARD(way, release_xfer_req, way.agent->real, request->real));
}

int nixl_capi_destroy_xfer_req(void *handle)
{
    struct object *request = object_of(handle, REQUEST);
    struct way way = enter(CALL_destroy_xfer_req, NULL);
    int status = request->real ? FORWARD(way, destroy_xfer_req, request->real) : SUCCESS;
    return leave_without(way, status, request);
}

/* How many live of a kind (its letter) and "zombies"; how many requests were given back while they ran
 * ("released_running"), how many of one byte were posted ("posted_probes"), and the bytes of those that
 * run, as their owner knows it ("running_bytes"); or what plan_count knows. */
long dt_proxy_count(const char *name)
{
    long count = plan_count(name);
    if (count >= 0)
        return count;
    if (strcmp(name, "zombies") == 0) {
        bury_zombies(NULL, false);
        return objects_living(ZOMBIE);
    }
    if (strcmp(name, "released_running") == 0)
        return released_running;
    if (strcmp(name, "posted_probes") == 0)
        return posted_probes;
    if (strcmp(name, "running_bytes") == 0) {
        long bytes = 0;
        for (struct object *at = NULL; (at = object_next(at, REQUEST, NULL));)
            bytes += at->told == IN_PROGRESS ? (long)at->bytes : 0;
        return bytes;
    }
    if (strlen(name) != 1)
        tripped(name);
    return objects_living((enum kind)name[0]);
}
