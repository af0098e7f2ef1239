#include "lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "util.h"

void lane_failed(struct lane *lane, const char *what)
{
    /* The end of a process may be known to the one before it is to the other. */
    sleep_ns(100000000);
    links_check(lane->links);
    die("%s: %s", subject_names[lane->subject], what);
}

static bool open_targets(struct lane *lane, const struct lanes_setup *setup, char *why, size_t cap)
{
    uint32_t bad = 0;
    struct request request = {.what = OPEN,
                              .subject = lane->subject,
                              .num_blocks = setup->peer_blocks,
                              .block_len = lane->block_len};

    if (!lane->links->same_host && !is_nixl(lane->subject)) {
        snprintf(why, cap, "the target is on another host, or in another PID namespace");
        return false;
    }
    if (!links_ask(lane->links, request, &bad)) {
        snprintf(why, cap, "at the target: %s", lane->links->reply[bad].text);
        return false;
    }
    for (uint32_t i = 0; i < lane->links->count; i++)
        lane->remote[i] = (unsigned char *)(uintptr_t)lane->links->reply[i].base;
    return true;
}

bool lane_open(struct lane *lane, enum subject subject, const struct lanes_setup *setup, char *why,
               size_t cap)
{
    bool (*const prepare[SUBJECTS])(struct lane *, char *, size_t) = {
        [LOCAL] = lane_dt_setup,       [LOCAL_UNMAPPED] = lane_dt_setup,
        [NIXL] = lane_dt_setup,        [MEMCPY] = lane_copy_setup,
        [COPY_NT] = lane_copy_setup,   [PROCESS_VM] = lane_process_vm_setup,
        [NIXL_RAW] = lane_nixl_setup};

    *lane = (struct lane){.subject = subject,
                          .links = setup->links,
                          .local = &setup->pools[memory_of(subject)],
                          .block_len = setup->shape.block_len,
                          .depth = setup->depth};
    lane->remote = must_alloc(setup->links->count, sizeof *lane->remote);
    if (!has_target(subject))
        for (uint32_t i = 0; i < setup->links->count; i++)
            lane->remote[i] =
                setup->pools[REFERENCE].base + i * setup->peer_blocks * setup->shape.block_len;
    if (endpoint_open(&lane->endpoint, subject, lane->local, setup->shape, why, cap) &&
        (!has_target(subject) || open_targets(lane, setup, why, cap)) &&
        prepare[subject](lane, why, cap))
        return true;
    lane_close(lane);
    return false;
}

void lane_close(struct lane *lane)
{
    if (lane->close != NULL)
        lane->close(lane);
    endpoint_close(&lane->endpoint);
    free(lane->own);
    free(lane->remote);
    lane->own = lane->remote = NULL;
}
