#include "target.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"
#include "util.h"
#include "verify.h"
#include "wire.h"

struct target {
    int fd;
    bool progress_thread;
    bool busy;         /* bytes need this process: it must not sleep while they move */
    int nap_ms;        /* between two looks at NIXL, if it is not busy */
    bool measuring;
    enum subject active;
    uint64_t cpu_start;
    struct pool pool[MEMORIES];
    struct endpoint **endpoint;
    size_t endpoints, room;
};

static void hello(struct target *target, const struct request *request, struct reply *reply)
{
    target->progress_thread = request->progress_thread;
    /* Targets that spin on all cores would take them from the initiator, and many that look around
     * often would, too. */
    target->busy = request->busy && (long)request->peers < sysconf(_SC_NPROCESSORS_ONLN);
    target->nap_ms = 1 + (int)(request->peers / 16);
    if (request->ucx_tls[0] != '\0')
        setenv("UCX_TLS", request->ucx_tls, 1);
    reply->pid = (uint32_t)getpid();
    wire_host(reply->host, sizeof reply->host);
}

/* Whether blocks of that shape are in the memory. */
static bool holds(const struct pool *pool, const struct request *request)
{
    return pool->base != NULL && request->block_len > 0 && request->num_blocks > 0 &&
           request->num_blocks <= pool->bytes / request->block_len;
}

/* Anybody may have connected: what is asked for must not reach beyond the memory, nor take it away
 * from a transport. */
static bool is_within_bounds(const struct target *target, const struct request *request)
{
    switch (request->what) {
    case POOLS:
        return target->endpoints == 0 && request->pool > 0 && request->pool <= MOST_POOL &&
               request->region <= MOST_POOL;
    case OPEN:
        return request->subject < SUBJECTS && has_target(request->subject) &&
               holds(&target->pool[memory_of(request->subject)], request);
    case FILL:
        return target->pool[request->memory].base != NULL;
    case CHECK:
        return holds(&target->pool[request->memory], request) && request->op < OPS &&
               request->pattern < PATTERNS && request->peer < request->peers &&
               request->peers <= UINT32_MAX / request->num_blocks && request->slice > 0 &&
               request->slice <= request->num_blocks;
    default:
        return true;
    }
}

static bool make_pools(struct target *target, const struct request *request, struct reply *reply)
{
    for (enum memory memory = 0; memory < MEMORIES; memory++) {
        pool_free(&target->pool[memory]);
        if ((request->memories >> memory & 1) == 0)
            continue;
        if (!pool_make(&target->pool[memory], memory, request->pool, request->region,
                       request->huge_pages, reply->text, sizeof reply->text))
            return false;
        pool_fill(&target->pool[memory], stream_of_target(request->peer));
    }
    return true;
}

static bool open_endpoint(struct target *target, const struct request *request,
                          struct reply *reply)
{
    struct shape shape = {request->num_blocks, request->block_len, target->progress_thread, 0};
    struct pool *pool = &target->pool[memory_of(request->subject)];
    struct endpoint *endpoint = must_alloc(1, sizeof *endpoint);

    if (!endpoint_open(endpoint, request->subject, pool, shape, reply->text,
                       sizeof reply->text)) {
        free(endpoint);
        return false;
    }
    if (target->endpoints == target->room) {
        target->room = 2 * target->room + 8;
        target->endpoint = realloc(target->endpoint, target->room * sizeof *target->endpoint);
        if (target->endpoint == NULL)
            die("there is no memory");
    }
    target->endpoint[target->endpoints++] = endpoint;
    reply->base = (uint64_t)(uintptr_t)pool->base;
    return endpoint_describe(endpoint, reply);
}

static void close_endpoints(struct target *target)
{
    while (target->endpoints > 0) {
        struct endpoint *endpoint = target->endpoint[--target->endpoints];
        endpoint_close(endpoint);
        free(endpoint);
    }
}

static void fill(struct target *target, const struct request *request)
{
    struct pool *pool = &target->pool[request->memory];
    if (request->fill == FILL_STREAM)
        pool_fill(pool, stream_of_target(request->peer));
    else
        pool_clear(pool, (unsigned char)request->fill);
}

static bool check(struct target *target, const struct request *request, struct reply *reply)
{
    const struct pool *pool = &target->pool[request->memory];

    if (request->op == WRITE) {
        struct plan plan;
        plan_make(&plan, request->pattern, request->seed, request->peer, request->peers,
                  request->num_blocks, request->slice);
        struct landing landing = {.pool = pool,
                                  .to = plan.remote,
                                  .from = plan.local,
                                  .pairs = plan.pairs,
                                  .touched = plan_touched(&plan, request->peer, request->peers,
                                                          request->transfers),
                                  .block_len = request->block_len,
                                  .before = (unsigned char)request->fill};
        verify_landing(&landing, reply->text, sizeof reply->text);
        plan_free(&plan);
    } else if (!pool_holds(pool, 0, pool->bytes, stream_of_target(request->peer), 0)) {
        snprintf(reply->text, sizeof reply->text, "memory was changed that was only read");
    }
    if (reply->text[0] == '\0' && !pool_guards_hold(pool))
        snprintf(reply->text, sizeof reply->text, "memory beside the blocks was changed");
    return reply->text[0] == '\0';
}

static void answer(struct target *target, const struct request *request, struct reply *reply)
{
    uint64_t cpu = cpu_ns() - target->cpu_start;
    bool ok = true;

    memset(reply, 0, sizeof *reply);
    switch (request->what) {
    case HELLO:
        hello(target, request, reply);
        break;
    case POOLS:
        ok = make_pools(target, request, reply);
        break;
    case OPEN:
        ok = open_endpoint(target, request, reply);
        break;
    case FILL:
        fill(target, request);
        break;
    case BEGIN:
        target->measuring = true;
        target->active = request->subject;
        break;
    case END:
        target->measuring = false;
        reply->cpu_ns = cpu;
        break;
    case CHECK:
        ok = check(target, request, reply);
        break;
    case CLOSE:
        close_endpoints(target);
        break;
    case BYE:
        break;
    default:
        die("the initiator asks for nonsense; is it dt_perf of this version?");
    }
    reply->ok = ok;
}

/* Works for the other side until it says something. Sleeps between where it can. */
static void await(struct target *target)
{
    struct pollfd ready = {target->fd, POLLIN, 0};
    bool nixl = false;

    for (size_t i = 0; i < target->endpoints; i++)
        nixl = nixl || is_nixl(target->endpoint[i]->subject);
    bool busy = target->busy && target->measuring && is_nixl(target->active);
    while (poll(&ready, 1, busy ? 0 : nixl ? target->nap_ms : -1) <= 0) {
        for (size_t i = 0; i < target->endpoints; i++)
            if (!target->measuring || target->endpoint[i]->subject == target->active)
                endpoint_progress(target->endpoint[i]);
        if (busy)
            sched_yield();
    }
}

void target_serve(int fd)
{
    struct target target = {.fd = fd};
    static struct request request;
    static struct reply reply;

    do {
        await(&target);
        if (!wire_receive(fd, &request, sizeof request))
            /* The initiator has failed, and said so; or was ended. */
            _exit(1);
        if (request.magic != WIRE_MAGIC || request.memory >= MEMORIES ||
            !is_within_bounds(&target, &request))
            die("what has connected is not dt_perf of this version, on such a machine");
        request.ucx_tls[sizeof request.ucx_tls - 1] = '\0';
        answer(&target, &request, &reply);
        if (!wire_send(fd, &reply, sizeof reply))
            _exit(1);
        /* Answering is no part of what a round costs. */
        target.cpu_start = cpu_ns();
    } while (request.what != BYE);
    close_endpoints(&target);
    for (enum memory memory = 0; memory < MEMORIES; memory++)
        pool_free(&target.pool[memory]);
    free(target.endpoint);
    close(fd);
}
