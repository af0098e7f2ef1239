/* NIXL's C library as its users call it: for each transfer two lists of descriptors, neighbours
 * merged, and one request; then its status is asked for until it is done. */
#include <stdio.h>
#include <stdlib.h>

#include "lane.h"
#include "util.h"

struct requests {
    char **name;        /* of the targets' agents */
    void **request;     /* by slot */
    uint32_t *flying;   /* slots that have a request */
    uint32_t count;
};

static void fill(struct lane *lane, const struct transfer *transfer, void *here, void *there)
{
    const struct nixl *nixl = lane->endpoint.agent.nixl;
    uintptr_t local = (uintptr_t)lane->local->base;
    uintptr_t remote = (uintptr_t)lane->remote[transfer->peer];
    size_t len = lane->block_len;

    for (size_t k = 0, n; k < transfer->count; k += n) {
        n = lane_run(transfer, k);
        nixl->xfer_dlist_add_desc(here, local + transfer->local[k] * len, n * len, 0);
        nixl->xfer_dlist_add_desc(there, remote + transfer->remote[k] * len, n * len, 0);
    }
}

static void submit(struct lane *lane, const struct transfer *transfer, uint32_t slot)
{
    const struct nixl *nixl = lane->endpoint.agent.nixl;
    struct requests *requests = lane->own;
    void *agent = lane->endpoint.agent.agent, *here, *there;

    if (nixl->create_xfer_dlist(NIXL_DRAM, &here) != 0 ||
        nixl->create_xfer_dlist(NIXL_DRAM, &there) != 0)
        lane_failed(lane, "NIXL's create_xfer_dlist has failed");
    fill(lane, transfer, here, there);
    if (nixl->create_xfer_req(agent, transfer->op == WRITE ? NIXL_WRITE : NIXL_READ, here, there,
                              requests->name[transfer->peer], &requests->request[slot], NULL) != 0)
        lane_failed(lane, "NIXL's create_xfer_req has failed");
    nixl->destroy_xfer_dlist(here);
    nixl->destroy_xfer_dlist(there);
    if (nixl->post_xfer_req(agent, requests->request[slot], NULL) < 0)
        lane_failed(lane, "NIXL's post_xfer_req has failed");
    requests->flying[requests->count++] = slot;
}

static size_t poll(struct lane *lane, uint32_t *slots, size_t cap)
{
    const struct nixl *nixl = lane->endpoint.agent.nixl;
    struct requests *requests = lane->own;
    void *agent = lane->endpoint.agent.agent;
    uint32_t i, kept = 0;
    size_t ended = 0;

    for (i = 0; i < requests->count && ended < cap; i++) {
        uint32_t slot = requests->flying[i];
        void *request = requests->request[slot];
        int status = nixl->get_xfer_status(agent, request);
        if (status == NIXL_IN_PROGRESS) {
            requests->flying[kept++] = slot;
            continue;
        }
        if (status != NIXL_DONE || nixl->release_xfer_req(agent, request) != 0)
            lane_failed(lane, "a transfer has failed");
        nixl->destroy_xfer_req(request);
        slots[ended++] = slot;
    }
    for (; i < requests->count; i++)
        requests->flying[kept++] = requests->flying[i];
    requests->count = kept;
    return ended;
}

static void close_lane(struct lane *lane)
{
    const struct nixl *nixl = lane->endpoint.agent.nixl;
    struct requests *requests = lane->own;

    for (uint32_t i = 0; i < requests->count; i++) {
        void *request = requests->request[requests->flying[i]];
        nixl->release_xfer_req(lane->endpoint.agent.agent, request);
        nixl->destroy_xfer_req(request);
    }
    for (uint32_t i = 0; i < lane->links->count; i++)
        free(requests->name[i]);
    free(requests->name);
    free(requests->request);
    free(requests->flying);
}

bool lane_nixl_setup(struct lane *lane, char *why, size_t cap)
{
    const struct nixl_agent *agent = &lane->endpoint.agent;
    struct requests *requests = lane->own = must_alloc(1, sizeof *requests);

    requests->name = must_alloc(lane->links->count, sizeof *requests->name);
    requests->request = must_alloc(lane->depth, sizeof *requests->request);
    requests->flying = must_alloc(lane->depth, sizeof *requests->flying);
    lane->submit = submit;
    lane->poll = poll;
    lane->close = close_lane;
    for (uint32_t i = 0; i < lane->links->count; i++) {
        const struct reply *reply = &lane->links->reply[i];
        if (agent->nixl->load_remote_md(agent->agent, reply->blob, reply->blob_len,
                                        &requests->name[i]) != 0) {
            snprintf(why, cap, "NIXL's load_remote_md has failed");
            return false;
        }
    }
    return true;
}
