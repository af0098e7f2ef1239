/* The survivor's own transport, and what it must hold when nobody is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "fate.h"
#include "journal.h"
#include "procfs.h"
#include "survivor.h"

uint64_t new_number(void)
{
    static uint64_t number;
    return ++number;
}

static void read_out(void)
{
    CHECK_OK(dt_get_agent_metadata(it.transport, it.metadata, sizeof it.metadata, &it.metadata_len));
    CHECK_OK(dt_export_handshake(it.transport, it.handshake, sizeof it.handshake,
                                 &it.handshake_len));
}

static void new_memory(uint64_t *random)
{
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS, MEMORY_FD_SEALED};
    enum memory_kind kind = kinds[random_next(random) % 3];
    it.memory = memory_new(kind, SURVIVOR_BLOCKS * it.block_len, 0);
    it.space = space_over("the survivor's memory", it.memory.base, SURVIVOR_BLOCKS, it.block_len);
    journal("the survivor has new memory: %s", memory_kind_name(kind));
}

static void drop_memory(void)
{
    space_check(it.space);
    space_free(it.space);
    memory_free(&it.memory);
    it.space = NULL;
}

void survivor_open(uint64_t *random)
{
    static const uint32_t budgets[] = {0, 50, 2000};
    dt_options options = test_options();
    char name[32];
    uint64_t same_name = random_next(random) % 2;
    if (it.space == NULL)
        new_memory(random);
    it.epoch = new_number();
    snprintf(name, sizeof name, "survivor-%llu", same_name ? 0 : (unsigned long long)it.epoch);
    options.agent_name = name;
    options.poll_budget_us = budgets[random_next(random) % 3];
    if (it.memory.fd >= 0) {
        options.region_has_fd = true;
        options.region_fd = it.memory.fd;
        options.region_offset = it.memory.offset;
    }
    CHECK_OK(dt_create(it.memory.base, SURVIVOR_BLOCKS, it.block_len, &options, &it.transport));
    memset(&it.model, 0, sizeof it.model);
    read_out();
    journal("the survivor is number %llu, %s", (unsigned long long)it.epoch, name);
}

static void continue_all(void)
{
    for (unsigned i = 0; i < it.slots; i++)
        if (it.slot[i].stopped)
            slot_continue(&it.slot[i], 0);
    fate_settle();
}

static void close_in_steps(uint32_t timeout_ms)
{
    uint64_t start = now_ms();
    dt_status status;
    while ((status = dt_close(it.transport, timeout_ms)) == DT_ERR_TIMEOUT) {
        if (now_ms() > start + BOUND_MS)
            test_fail("dt_close has not ended for %d ms: %s", BOUND_MS, dt_last_error());
        /* Those that stand still may be what it waits for. */
        if (now_ms() > start + 100)
            continue_all();
        slots_listen();
    }
    CHECK_OK(status);
}

void survivor_close(uint64_t *random)
{
    uint64_t how = random_next(random);
    uint64_t submitted = it.model.submitted;
    bool quiet = !over_cma();
    size_t n = 0;
    journal("the survivor closes");
    it.closing = true;
    xfers_may_fail(NULL, 0);
    if (!over_tcp() && how % 4 == 0) {
        /* Whoever stands in the middle of a copy would go on with it. */
        continue_all();
    } else {
        close_in_steps((uint32_t)(how / 4 % 20));
        CHECK_STATUS(dt_poll(it.transport, NULL, NULL, 0, &n), DT_ERR_CLOSED);
        CHECK_OK(dt_close(it.transport, 0));
        dt_stats stats = {.struct_size = sizeof stats};
        CHECK_OK(dt_get_stats(it.transport, &stats));
        CHECK(stats.submitted == submitted && stats.inflight == 0 && stats.draining == 0);
        CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled && stats.peers == 0);
        CHECK(stats.notifs_received == it.model.received);
    }
    dt_destroy(it.transport);
    it.transport = NULL;
    it.closing = false;
    journal("the survivor has closed");
    xfers_survivor_closed(quiet);
    for (unsigned i = 0; i < it.slots; i++) {
        struct slot *slot = &it.slot[i];
        reg_forget(&slot->regs[0]);
        reg_forget(&slot->regs[1]);
        memset(slot->sent, 0, sizeof slot->sent);
        slot->letters = slot->letters_come = 0;
        slot->met = false;
    }
    post_forget();
    space_check(it.space);
}

/* What becomes of the memory right after: nothing that a peer does may show there. */
static void use_memory(uint64_t *random)
{
    uint64_t how = random_next(random) % 3;
    if (over_cma())
        return;
    if (how == 0) {
        drop_memory();
    } else if (how == 1) {
        journal("the survivor puts other memory at the same address");
        memory_replace(&it.memory);
        space_scribble(it.space);
    } else {
        space_scribble(it.space);
    }
}

void survivor_recreate(uint64_t *random)
{
    survivor_close(random);
    use_memory(random);
    survivor_open(random);
    it.tally.recreated++;
    for (unsigned i = 0; i < it.slots; i++) {
        struct slot *slot = &it.slot[i];
        if (slot->phase == OPEN || slot->phase == CLOSING)
            post_open(slot->number);
        if (!slot_is_well(slot))
            continue;
        slot_meet(slot, random);
        reg_add(slot, (enum meeting)(random_next(random) % MEETINGS), random);
    }
}

/* ---- when nobody is there ---- */

static bool all_gone(void)
{
    bool gone = xfers_at_rest() && post_at_rest() && stats_now().draining == 0;
    for (unsigned i = 0; i < it.slots; i++) {
        struct slot *slot = &it.slot[i];
        gone &= slot->phase == EMPTY;
        if (slot->phase == CLOSED)
            slot_quit(slot);
        /* One that had not opened its transport yet when all were told to close. */
        if (slot_is_well(slot) && !slot->hushed)
            slot_close(slot);
    }
    return gone;
}

static void compare(const char *what, long before, long now, long slack)
{
    if (now > before + slack)
        test_fail("%s: %ld at the start, %ld now, %ld are allowed", what, before, now,
                  before + slack);
}

static void list_descriptors(void)
{
    char path[64], what[256];
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, what, sizeof what - 1);
        if (n > 0)
            fprintf(stderr, "descriptor %d: %.*s\n", fd, (int)n, what);
    }
}

/* Of the process, with an open transport that knows nobody, by the kind of its memory. */
static void check_holdings(void)
{
    static struct holdings starts[MEMORY_KINDS];
    struct holdings start = starts[it.memory.kind];
    bool started = start.maps != 0;
    struct holdings now;
    uint64_t deadline = now_ms() + BOUND_MS;
    size_t n = 0;
    /* What LOCAL keeps until its peers have read it goes with polls, one at a time. */
    for (int i = 0; i < 200; i++)
        CHECK_OK(dt_poll(it.transport, NULL, NULL, 0, &n));
    now = holdings_now();
    /* UCX closes the sockets of the dead when it is asked to work. */
    while (on_nixl() && started && now.fds > start.fds && now_ms() < deadline) {
        CHECK_OK(dt_wait(it.transport, NULL, NULL, 0, 1, &n));
        now = holdings_now();
    }
    journal("%ld descriptors, %ld mappings, %ld threads, %ld KiB", now.fds, now.maps, now.threads,
            now.rss_kib);
    if (!started) {
        starts[it.memory.kind] = now;
        return;
    }
    if (now.fds > start.fds)
        list_descriptors();
    compare("descriptors", start.fds, now.fds, 0);
    compare("threads", start.threads, now.threads, 0);
    compare("mappings", start.maps, now.maps, CHAOS_MAPS_SLACK);
}

void checkpoint(uint64_t *random)
{
    uint64_t deadline = now_ms() + 2 * BOUND_MS;
    size_t n = 0;
    journal("checkpoint");
    continue_all();
    /* Half of them let everything end in its own way first. */
    bool wait = random_next(random) % 2 == 0;
    while (wait && !xfers_at_rest()) {
        drive(random);
        if (now_ms() > deadline)
            xfers_check_age();
    }
    for (unsigned i = 0; i < it.slots; i++) {
        struct slot *slot = &it.slot[i];
        for (unsigned which = 0; which < 2; which++)
            if (slot->regs[which].live)
                reg_remove(slot, which);
    }
    while (!all_gone()) {
        if (now_ms() > deadline)
            test_fail("the checkpoint has not been reached for %d ms", 2 * BOUND_MS);
        drive(random);
    }
    xfers_forget();
    CHECK_OK(dt_poll(it.transport, NULL, NULL, 0, &n));
    stats_check(true);
    CHECK(stats_now().peers == 0);
    space_check(it.space);
    spaces_reap();
    check_holdings();
    post_forget();
    it.tally.checkpoints++;
    journal("checkpoint passed");
}
