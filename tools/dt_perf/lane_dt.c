/* This library: dt_write_blocks or dt_read_blocks, then dt_poll. */
#include <stdio.h>
#include <stdlib.h>

#include "lane.h"
#include "util.h"

/* Names of peers are made once: to write them is no part of what is measured. */
struct names {
    char (*peer)[24];
    dt_completion *buf;
    size_t cap;
};

static void submit(struct lane *lane, const struct transfer *transfer, uint32_t slot)
{
    struct names *names = lane->own;
    dt_xfer_id id;
    dt_status status = (transfer->op == WRITE ? dt_write_blocks : dt_read_blocks)(
        lane->endpoint.transport, names->peer[transfer->peer], transfer->local, transfer->remote,
        transfer->count, slot, &id);
    if (status != DT_OK)
        lane_failed(lane, dt_last_error());
}

static size_t poll(struct lane *lane, uint32_t *slots, size_t cap)
{
    struct names *names = lane->own;
    size_t count;

    if (cap > names->cap)
        cap = names->cap;
    if (dt_poll(lane->endpoint.transport, NULL, names->buf, cap, &count) != DT_OK)
        lane_failed(lane, dt_last_error());
    for (size_t i = 0; i < count; i++) {
        if (names->buf[i].status != DT_OK)
            lane_failed(lane, dt_status_str(names->buf[i].status));
        slots[i] = (uint32_t)names->buf[i].user_data;
    }
    return count;
}

static void close_lane(struct lane *lane)
{
    struct names *names = lane->own;
    free(names->peer);
    free(names->buf);
}

bool lane_dt_add(struct lane *lane, uint32_t peer, char *why, size_t cap)
{
    struct names *names = lane->own;
    const struct reply *reply = &lane->links->reply[peer];

    if (dt_import_handshake(lane->endpoint.transport, names->peer[peer], reply->blob,
                            reply->blob_len) == DT_OK)
        return true;
    snprintf(why, cap, "%s", dt_last_error());
    return false;
}

bool lane_dt_setup(struct lane *lane, char *why, size_t cap)
{
    struct names *names = lane->own = must_alloc(1, sizeof *names);

    names->cap = lane->depth < 256 ? lane->depth : 256;
    names->buf = must_alloc(names->cap, sizeof *names->buf);
    names->peer = must_alloc(lane->links->count, sizeof *names->peer);
    lane->submit = submit;
    lane->poll = poll;
    lane->close = close_lane;
    for (uint32_t i = 0; i < lane->links->count; i++) {
        snprintf(names->peer[i], sizeof names->peer[i], "target %u", i);
        if (!lane_dt_add(lane, i, why, cap))
            return false;
    }
    return true;
}
