#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { PATIENCE_MS = 60000 };

void endpoint_must(dt_status status, const char *what)
{
    if (status != DT_OK)
        die("%s: %s: %s", what, dt_status_str(status), dt_last_error());
}

static bool open_transport(struct endpoint *endpoint, const struct pool *pool, struct shape shape,
                           char *why, size_t cap)
{
    dt_options options = DT_OPTIONS_INIT;

    options.backend = endpoint->subject == NIXL ? DT_BACKEND_NIXL : DT_BACKEND_LOCAL;
    options.progress_thread = shape.progress_thread;
    options.poll_budget_us = shape.poll_budget_us;
    if (pool->fd >= 0) {
        options.region_has_fd = true;
        options.region_fd = pool->fd;
        options.region_offset = (uint64_t)(pool->base - (unsigned char *)pool->mapped);
    }
    if (dt_create(pool->base, shape.num_blocks, shape.block_len, &options,
                  &endpoint->transport) == DT_OK)
        return true;
    snprintf(why, cap, "%s", dt_last_error());
    endpoint->transport = NULL;
    return false;
}

bool endpoint_open(struct endpoint *endpoint, enum subject subject, const struct pool *pool,
                   struct shape shape, char *why, size_t cap)
{
    *endpoint = (struct endpoint){.subject = subject, .progress_thread = shape.progress_thread};
    if (pool->region > pool->bytes)
        shape.num_blocks = pool->region / shape.block_len;
    switch (subject) {
    case LOCAL:
    case LOCAL_UNMAPPED:
    case NIXL:
        return open_transport(endpoint, pool, shape, why, cap);
    case NIXL_RAW:
        return nixl_agent_open(&endpoint->agent, pool->base, shape.num_blocks * shape.block_len,
                               shape.progress_thread, why, cap);
    default:
        return true; /* needs no more than the memory */
    }
}

void endpoint_close(struct endpoint *endpoint)
{
    if (endpoint->transport != NULL) {
        endpoint_must(dt_close(endpoint->transport, PATIENCE_MS), "dt_close");
        dt_destroy(endpoint->transport);
        endpoint->transport = NULL;
    }
    if (endpoint->agent.agent != NULL)
        nixl_agent_close(&endpoint->agent);
}

static bool describe_agent(struct nixl_agent *agent, struct reply *reply)
{
    void *data;
    size_t len;

    if (agent->nixl->get_local_md(agent->agent, &data, &len) != 0) {
        snprintf(reply->text, sizeof reply->text, "NIXL's get_local_md has failed");
        return false;
    }
    if (len > sizeof reply->blob) {
        snprintf(reply->text, sizeof reply->text, "NIXL's metadata is %zu bytes long", len);
        return false;
    }
    memcpy(reply->blob, data, len);
    reply->blob_len = (uint32_t)len;
    free(data);
    return true;
}

bool endpoint_describe(struct endpoint *endpoint, struct reply *reply)
{
    size_t len;

    if (endpoint->agent.agent != NULL)
        return describe_agent(&endpoint->agent, reply);
    if (endpoint->transport == NULL)
        return true;
    if (dt_export_handshake(endpoint->transport, reply->blob, sizeof reply->blob, &len) != DT_OK) {
        snprintf(reply->text, sizeof reply->text, "%s", dt_last_error());
        return false;
    }
    reply->blob_len = (uint32_t)len;
    return true;
}

void endpoint_progress(struct endpoint *endpoint)
{
    size_t count;
    if (endpoint->subject == NIXL)
        endpoint_must(dt_poll(endpoint->transport, NULL, NULL, 0, &count), "dt_poll");
    else if (endpoint->agent.agent != NULL)
        nixl_agent_progress(&endpoint->agent);
}
