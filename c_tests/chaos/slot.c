/* Processes of peers, as the survivor sees them. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "fate.h"
#include "journal.h"
#include "survivor.h"

#define IN_BYTES 65536

bool slot_is_well(const struct slot *slot)
{
    return slot->phase == OPEN && !slot->doomed;
}

/* To a process that may be dead; whether it is, is found out elsewhere. */
static void put(struct slot *slot, const void *bytes, size_t len)
{
    const char *from = bytes;
    while (len > 0) {
        ssize_t n = send(slot->child.socket, from, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return;
        CHECK(n > 0);
        from += n;
        len -= (size_t)n;
    }
}

void slot_order(struct slot *slot, struct order order, const void *bytes, size_t len)
{
    order.len = (uint32_t)len;
    put(slot, &order, sizeof order);
    put(slot, bytes, len);
}

void slot_start(struct slot *slot, uint64_t *random)
{
    CHECK(slot->phase == EMPTY);
    slot->child = child_start("peer");
    slot->doomed = slot->stopped = slot->hushed = slot->kill_on_hush = false;
    slot->in_len = 0;
    slot->phase = CLOSED;
    it.tally.starts++;
    journal("peer-%u: process %d", slot->index, (int)slot->child.pid);
    slot_open(slot, random);
}

void slot_open(struct slot *slot, uint64_t *random)
{
    struct order order = {.kind = ORDER_OPEN};
    char name[32];
    CHECK(slot->phase == CLOSED && slot->space == NULL);
    uint64_t kind = random_next(random) % 3, place = random_next(random) % 4;
    size_t blocks = 100 + random_next(random) % 400;
    slot->number = new_number();
    snprintf(name, sizeof name, "memory of peer %llu", (unsigned long long)slot->number);
    slot->space = space_new(name, blocks, it.block_len, kind == 0);
    slot->space->users = 1;
    /* Often it calls itself as the one before did. */
    if (slot->agent[0] == '\0' || random_next(random) % 2 == 0)
        snprintf(slot->agent, sizeof slot->agent, "agent-%u-%llu", slot->index,
                 (unsigned long long)slot->number);
    snprintf(order.as.region.path, sizeof order.as.region.path, "/proc/%d/fd/%d", (int)getpid(),
             slot->space->fd);
    strcpy(order.as.region.name, slot->agent);
    order.as.region.number = slot->number;
    order.as.region.blocks = blocks;
    order.as.region.block_len = it.block_len;
    order.as.region.at = 0x200000000000u + (place << 32);
    order.as.region.with_fd = kind < 2;
    order.as.region.progress_thread = on_nixl() && random_next(random) % 4 == 0;
    order.as.region.budget_us = random_next(random) % 2 == 0 ? 0 : 50;
    slot_order(slot, order, NULL, 0);
    slot->phase = STARTING;
    slot->moved_ms = now_ms();
    slot->met = false;
    slot->jobs = 0;
    slot->letters = slot->letters_come = 0;
    memset(slot->sent, 0, sizeof slot->sent);
    it.tally.opens++;
    journal("peer-%u: opens number %llu as %s with %zu blocks, kind %llu", slot->index,
            (unsigned long long)slot->number, slot->agent, blocks, (unsigned long long)kind);
}

void slot_meet(struct slot *slot, uint64_t *random)
{
    static uint8_t bytes[sizeof it.metadata + SURVIVOR_BLOCKS * 20];
    uint32_t how = (uint32_t)(random_next(random) % MEETINGS), count = SURVIVOR_BLOCKS, first = 0;
    struct order order = {.kind = ORDER_MEET};
    size_t second = it.handshake_len;
    xfers_peer_may_cancel(slot);
    free(slot->map);
    if (how == MEET_PART) {
        first = (uint32_t)(random_next(random) % (SURVIVOR_BLOCKS / 2));
        count -= first + (uint32_t)(random_next(random) % (SURVIVOR_BLOCKS / 4));
    }
    if (how == MEET_AGENT) {
        slot->map = random_map(SURVIVOR_BLOCKS, &count, random);
    } else {
        slot->map = malloc(count * sizeof *slot->map);
        CHECK(slot->map != NULL);
        for (uint32_t i = 0; i < count; i++)
            slot->map[i] = first + i;
    }
    slot->map_len = count;
    slot->lane = how == MEET_AGENT;
    slot->met = true;
    uint64_t base = dt_base_addr(it.transport);
    memcpy(bytes, it.metadata, it.metadata_len);
    if (how == MEET_AGENT)
        second = write_descriptor(bytes + it.metadata_len, sizeof bytes - it.metadata_len, base,
                                  it.block_len, slot->map, count);
    else
        memcpy(bytes + it.metadata_len, it.handshake, second);
    order.as.meet.number = it.epoch;
    order.as.meet.base = base + first * it.block_len;
    order.as.meet.blocks = count;
    order.as.meet.how = how;
    order.as.meet.remove_first = (uint32_t)(random_next(random) % 2);
    order.as.meet.metadata_len = (uint32_t)it.metadata_len;
    order.as.meet.descriptor_len = (uint32_t)second;
    slot_order(slot, order, bytes, it.metadata_len + second);
    journal("peer-%u: meets survivor %llu, how %u, %u blocks", slot->index,
            (unsigned long long)it.epoch, how, count);
}

void slot_close(struct slot *slot)
{
    struct order order = {.kind = ORDER_CLOSE};
    CHECK(slot_is_well(slot) && !slot->stopped);
    order.as.close.from = it.epoch;
    order.as.close.expect = slot->letters;
    /* What the kernel copies for UCX goes on until the survivor learns of the close. */
    order.as.close.unmap = !over_cma();
    slot->phase = CLOSING;
    slot->moved_ms = now_ms();
    xfers_may_fail(slot, slot->number);
    xfers_close_ordered(slot);
    slot_order(slot, order, NULL, 0);
    it.tally.closes++;
    journal("peer-%u: closes number %llu, expects %llu messages", slot->index,
            (unsigned long long)slot->number, (unsigned long long)slot->letters);
}

void slot_quit(struct slot *slot)
{
    CHECK(slot->phase == CLOSED);
    slot_order(slot, (struct order){.kind = ORDER_QUIT}, NULL, 0);
    slot->phase = QUITTING;
    slot->moved_ms = now_ms();
    journal("peer-%u: quits", slot->index);
}

static void doom(struct slot *slot)
{
    slot->doomed = true;
    slot->phase = QUITTING;
    slot->moved_ms = now_ms();
    xfers_may_fail(slot, slot->number);
}

void slot_vanish(struct slot *slot)
{
    CHECK(slot_is_well(slot) && !slot->stopped);
    doom(slot);
    slot_order(slot, (struct order){.kind = ORDER_VANISH}, NULL, 0);
    it.tally.vanished++;
    journal("peer-%u: vanishes", slot->index);
}

static void kill_now(struct slot *slot, uint64_t after_ns)
{
    doom(slot);
    slot->stopped = false;
    fate_send(slot->child.pid, SIGKILL, after_ns);
    it.tally.kills++;
    journal("peer-%u: killed in %llu us", slot->index, (unsigned long long)after_ns / 1000);
}

void slot_kill(struct slot *slot, uint64_t after_ns)
{
    if (!over_tcp()) {
        kill_now(slot, after_ns);
        return;
    }
    /* UCX over sockets would abort this process if the peer were reading from it. */
    if (slot->stopped)
        slot_continue(slot, 0);
    slot->hushed = slot->kill_on_hush = true;
    slot_order(slot, (struct order){.kind = ORDER_HUSH}, NULL, 0);
    journal("peer-%u: hushed, to be killed", slot->index);
}

void slot_stop(struct slot *slot, uint64_t after_ns)
{
    CHECK(slot_is_well(slot) && !slot->stopped);
    slot->stopped = true;
    fate_send(slot->child.pid, SIGSTOP, after_ns);
    it.tally.stops++;
    journal("peer-%u: stopped in %llu us", slot->index, (unsigned long long)after_ns / 1000);
}

void slot_continue(struct slot *slot, uint64_t after_ns)
{
    CHECK(slot->stopped);
    slot->stopped = false;
    slot->moved_ms = now_ms() + after_ns / 1000000;
    fate_send(slot->child.pid, SIGCONT, after_ns);
    journal("peer-%u: continued in %llu us", slot->index, (unsigned long long)after_ns / 1000);
}

/* ---- what they tell ---- */

static void opened(struct slot *slot, const struct news *news, const uint8_t *bytes)
{
    CHECK(news->tag == slot->number);
    if (slot->phase != STARTING)
        return; /* doomed meanwhile */
    CHECK(news->part[0] <= sizeof slot->metadata && news->part[1] <= sizeof slot->handshake);
    slot->metadata_len = news->part[0];
    slot->handshake_len = news->part[1];
    memcpy(slot->metadata, bytes, slot->metadata_len);
    memcpy(slot->handshake, bytes + slot->metadata_len, slot->handshake_len);
    slot->base = news->base;
    slot->phase = OPEN;
    post_open(slot->number);
    journal("peer-%u: number %llu is open", slot->index, (unsigned long long)slot->number);
}

static void closed(struct slot *slot)
{
    CHECK(slot->phase == CLOSING);
    slot->phase = CLOSED;
    slot->moved_ms = now_ms();
    journal("peer-%u: number %llu has closed", slot->index, (unsigned long long)slot->number);
    post_dead(slot->number, true);
    xfers_peer_gone(slot, true);
    space_put(slot->space);
    slot->space = NULL;
}

static void mail(struct slot *slot, const struct news *news)
{
    if (news->number == it.epoch) {
        slot->letters_come++;
        CHECK(news->is_read || news->tag < slot->sent[news->lane].sends);
    }
    if (!news->is_read)
        return;
    struct xfer *xfer = xfer_find(news->tag);
    if (xfer == NULL || xfer->by_peer || xfer->number != slot->number)
        test_fail("peer-%u has got the message of read %llu, which was not done", slot->index,
                  (unsigned long long)news->tag);
    if (xfer->mail == MAIL_COME || xfer->mail == NO_MAIL)
        test_fail("peer-%u has got the message of read %llu twice, or though it has none",
                  slot->index, (unsigned long long)news->tag);
    xfer_mail_there(xfer);
}

static void hear(struct slot *slot, const struct news *news, const uint8_t *bytes)
{
    switch ((enum news_kind)news->kind) {
    case NEWS_OPENED:
        opened(slot, news, bytes);
        break;
    case NEWS_MET:
        /* The survivor may have closed since. */
        if (news->status != DT_OK && news->tag == it.epoch && !it.closing)
            test_fail("peer-%u could not make survivor %llu known: %s", slot->index,
                      (unsigned long long)news->tag, dt_status_str(news->status));
        break;
    case NEWS_REFUSED:
    case NEWS_ENDED:
        xfer_told(slot, news->tag, news->status, news->kind == NEWS_REFUSED);
        break;
    case NEWS_SENT:
        journal("peer-%u, number %llu, has sent message %llu of %llu bytes: %s", slot->index,
                (unsigned long long)slot->number, (unsigned long long)news->number,
                (unsigned long long)news->base, dt_status_str(news->status));
        if (news->status == DT_OK)
            post_owed(slot->number, news->tag);
        else if (news->status == DT_ERR_BUSY)
            it.tally.mail_busy++;
        else if (news->tag == it.epoch && !it.closing)
            test_fail("peer-%u could not send: %s", slot->index, dt_status_str(news->status));
        break;
    case NEWS_MAIL:
        mail(slot, news);
        break;
    case NEWS_HUSHED:
        CHECK(slot->kill_on_hush);
        slot->kill_on_hush = false;
        if (slot_is_well(slot))
            kill_now(slot, (uint64_t)(news->number % 1000) * 1000);
        break;
    case NEWS_CLOSED:
        closed(slot);
        break;
    }
}

/* Takes what is there; what was told only in part waits. */
static void listen_to(struct slot *slot)
{
    for (;;) {
        ssize_t n = recv(slot->child.socket, slot->in + slot->in_len, IN_BYTES - slot->in_len,
                         MSG_DONTWAIT);
        if (n <= 0)
            return;
        slot->in_len += (size_t)n;
        size_t at = 0;
        struct news news;
        while (slot->in_len - at >= sizeof news) {
            memcpy(&news, slot->in + at, sizeof news);
            CHECK(sizeof news + news.len <= IN_BYTES);
            if (slot->in_len - at < sizeof news + news.len)
                break;
            hear(slot, &news, slot->in + at + sizeof news);
            at += sizeof news + news.len;
        }
        memmove(slot->in, slot->in + at, slot->in_len - at);
        slot->in_len -= at;
    }
}

static void bury(struct slot *slot)
{
    int status = 0;
    siginfo_t ended = {.si_pid = 0};
    CHECK(waitid(P_PID, (id_t)slot->child.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0);
    if (ended.si_pid == 0)
        return;
    /* A signal may still be on its way to that number. */
    fate_settle();
    CHECK(waitpid(slot->child.pid, &status, 0) == slot->child.pid);
    listen_to(slot);
    bool as_told = slot->doomed ? (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                                      (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                                : slot->phase == QUITTING && WIFEXITED(status) &&
                                      WEXITSTATUS(status) == 0;
    if (!as_told)
        test_fail("peer-%u, number %llu, ended with wait status 0x%x in phase %d", slot->index,
                  (unsigned long long)slot->number, (unsigned)status, (int)slot->phase);
    journal("peer-%u: process %d has ended", slot->index, (int)slot->child.pid);
    close(slot->child.socket);
    slot->child.pid = -1;
    slot->phase = EMPTY;
    slot->moved_ms = now_ms();
    if (slot->space == NULL)
        return;
    post_dead(slot->number, false);
    xfers_peer_gone(slot, false);
    space_put(slot->space);
    slot->space = NULL;
}

void slots_listen(void)
{
    for (unsigned i = 0; i < it.slots; i++) {
        struct slot *slot = &it.slot[i];
        if (slot->phase == EMPTY)
            continue;
        if (slot->in == NULL)
            CHECK((slot->in = malloc(IN_BYTES)) != NULL);
        listen_to(slot);
        if (slot->phase != OPEN || slot->doomed || it.tally.steps % 16 == 0)
            bury(slot);
        bool waits = slot->phase != EMPTY && slot->phase != OPEN && slot->phase != CLOSED;
        if (waits && !slot->stopped && now_ms() > slot->moved_ms + BOUND_MS)
            test_fail("peer-%u has been in phase %d for %d ms", slot->index, (int)slot->phase,
                      BOUND_MS);
    }
}
