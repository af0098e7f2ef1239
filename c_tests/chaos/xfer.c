/* How transfers go on and end: what is reported must be true, and nothing is forgotten. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "journal.h"
#include "survivor.h"

#define MOST_XFERS 4096

struct xfer *xfers[MOST_XFERS];
size_t xfer_count;

struct xfer *xfer_new(struct slot *slot, enum copy_kind kind, uint32_t count, uint64_t number)
{
    struct xfer *xfer = calloc(1, sizeof *xfer);
    CHECK(xfer != NULL && xfer_count < MOST_XFERS && count <= MOST_BLOCKS);
    xfer->tag = new_number();
    xfer->slot = slot;
    xfer->kind = kind;
    xfer->count = count;
    xfer->number = number;
    xfer->epoch = it.epoch;
    xfer->since_ms = now_ms();
    xfers[xfer_count++] = xfer;
    return xfer;
}

void xfer_forget(struct xfer *xfer)
{
    size_t k = 0;
    CHECK(!xfer->from_held && !xfer->to_held);
    while (xfers[k] != xfer)
        k++;
    xfers[k] = xfers[--xfer_count];
    free(xfer);
}

struct xfer *xfer_find(uint64_t tag)
{
    for (size_t k = 0; k < xfer_count; k++)
        if (xfers[k]->tag == tag)
            return xfers[k];
    return NULL;
}

unsigned xfers_running(const struct slot *slot)
{
    unsigned count = 0;
    for (size_t k = 0; k < xfer_count; k++)
        count += xfers[k]->slot == slot && !xfers[k]->by_peer && xfers[k]->life == RUNS;
    return count;
}

/* ---- blocks ---- */

static void give_source(struct xfer *xfer, const char *what)
{
    if (!xfer->from_held)
        return;
    if (!xfer->unsure)
        space_expect(xfer->from, xfer->source, xfer->count, xfer->tag, false, what);
    space_return(xfer->from, xfer->source, xfer->count, xfer->tag);
    xfer->from_held = false;
}

static void give_target(struct xfer *xfer, bool done, const char *what)
{
    if (!xfer->to_held)
        return;
    space_expect(xfer->to, xfer->target, xfer->count, xfer->tag, !done, what);
    space_return(xfer->to, xfer->target, xfer->count, xfer->tag);
    xfer->to_held = false;
}

/* Those of one side. */
static void give_side(struct xfer *xfer, const struct space *space, const char *what)
{
    if (xfer->from == space)
        give_source(xfer, what);
    if (xfer->to == space)
        give_target(xfer, false, what);
}

static void forget_if_over(struct xfer *xfer)
{
    bool mail = xfer->mail == MAIL_OPEN || xfer->mail == MAIL_OWED || xfer->mail == MAIL_MAYBE;
    if (xfer->life != ENDED || mail || xfer->from_held || xfer->to_held)
        return;
    xfer_forget(xfer);
}

/* ---- the end of one ---- */

static void check_status(const struct xfer *xfer, dt_status status)
{
    bool fits = status == DT_OK || (status == DT_ERR_CANCELLED && xfer->may_cancel) ||
                (status == DT_ERR_PEER_LOST && xfer->may_fail);
    if (!fits)
        test_fail("transfer %llu (%s%s, peer-%u, number %llu, id %llu) ended with %s",
                  (unsigned long long)xfer->tag, xfer->by_peer ? "by the peer, " : "",
                  xfer->kind == COPY_WRITE ? "write" : "read", xfer->slot->index,
                  (unsigned long long)xfer->number, (unsigned long long)xfer->id,
                  dt_status_str(status));
}

static void count_end(const struct xfer *xfer, dt_status status)
{
    uint64_t bytes = xfer->count * it.block_len;
    struct model *model = &it.model;
    if (status == DT_OK && xfer->kind == COPY_WRITE)
        model->written += bytes;
    else if (status == DT_OK)
        model->read += bytes;
    *(status == DT_OK ? &model->done
                      : status == DT_ERR_CANCELLED ? &model->cancelled : &model->failed) += 1;
    *(status == DT_OK ? &it.tally.done
                      : status == DT_ERR_CANCELLED ? &it.tally.cancelled : &it.tally.failed) += 1;
}

static void count_letter(struct xfer *xfer)
{
    it.model.sent++;
    it.tally.mail_sent++;
    if (xfer->number != xfer->slot->number)
        return;
    xfer->slot->sent[xfer->lane].reads++;
    xfer->slot->letters++;
}

void xfer_end(struct xfer *xfer, dt_status status)
{
    CHECK(xfer->life == RUNS);
    journal("%llu ended: %s", (unsigned long long)xfer->tag, dt_status_str(status));
    check_status(xfer, status);
    if (!xfer->by_peer)
        count_end(xfer, status);
    else
        *(status == DT_OK ? &it.tally.peer_done : &it.tally.peer_failed) += 1;
    xfer->life = ENDED;
    if (status != DT_OK && xfer->mail == MAIL_COME)
        test_fail("transfer %llu has sent its message, but ended with %s",
                  (unsigned long long)xfer->tag, dt_status_str(status));
    if (status != DT_OK)
        xfer->mail = NO_MAIL;
    if (status == DT_OK && !xfer->by_peer && xfer->mail != NO_MAIL)
        count_letter(xfer);
    if (xfer->mail == MAIL_OPEN)
        xfer->mail = MAIL_OWED;
    else if (xfer->mail == MAIL_UNTOLD)
        xfer->mail = NO_MAIL;
    give_target(xfer, status == DT_OK, status == DT_OK ? "a target that is done" : "a target");
    if (xfer->mail != MAIL_OWED)
        give_source(xfer, "a source");
    forget_if_over(xfer);
}

void xfer_drop(struct xfer *xfer)
{
    xfer->life = ENDED;
    give_target(xfer, false, "the target of a dropped transfer");
    give_source(xfer, "the source of a dropped transfer");
    if (xfer->mail != MAIL_MAYBE)
        xfer->mail = NO_MAIL;
    forget_if_over(xfer);
}

void xfer_mail_there(struct xfer *xfer)
{
    if (xfer->to_held)
        space_expect(xfer->to, xfer->target, xfer->count, xfer->tag, false,
                     "the target of a read whose message has come");
    journal("the message of %llu is there", (unsigned long long)xfer->tag);
    xfer->mail = MAIL_COME;
    if (xfer->life == ENDED)
        give_source(xfer, "a source");
    forget_if_over(xfer);
}

void xfer_mail_here(struct xfer *xfer)
{
    if (xfer->to_held)
        space_expect(xfer->to, xfer->target, xfer->count, xfer->tag, false,
                     "the target of a peer's read whose message has come");
    journal("the message of %llu is here", (unsigned long long)xfer->tag);
    xfer->mail = MAIL_COME;
    /* The blocks are ours again from now on, also if the peer has not told yet. */
    give_source(xfer, "the source of a peer's read whose message has come");
    forget_if_over(xfer);
}

void xfer_told(struct slot *slot, uint64_t tag, dt_status status, bool refused)
{
    struct xfer *xfer = xfer_find(tag);
    if (xfer == NULL || !xfer->by_peer || xfer->slot != slot || xfer->life != RUNS)
        test_fail("peer-%u tells of the end of %llu, which it does not have", slot->index,
                  (unsigned long long)tag);
    slot->jobs--;
    /* One that does not know this survivor yet knows none. */
    if (refused && status == DT_ERR_NOT_FOUND && xfer->may_fail)
        status = DT_ERR_PEER_LOST;
    if (status == DT_OK && xfer->mail != NO_MAIL)
        post_owed(slot->number, xfer->epoch);
    xfer_end(xfer, status);
}

/* ---- what concerns many ---- */

void xfers_may_fail(const struct slot *slot, uint64_t number)
{
    for (size_t k = 0; k < xfer_count; k++)
        if (slot == NULL || (xfers[k]->slot == slot && xfers[k]->number == number))
            xfers[k]->may_fail = xfers[k]->may_cancel = true;
}

void xfers_may_cancel(const struct slot *slot, unsigned which)
{
    for (size_t k = 0; k < xfer_count; k++)
        if (xfers[k]->slot == slot && !xfers[k]->by_peer && xfers[k]->lane == which)
            xfers[k]->may_cancel = true;
}

void xfers_peer_may_cancel(const struct slot *slot)
{
    for (size_t k = 0; k < xfer_count; k++)
        if (xfers[k]->slot == slot && xfers[k]->by_peer)
            xfers[k]->may_cancel = true;
}

void xfers_close_ordered(struct slot *slot)
{
    for (size_t k = 0; k < xfer_count; k++) {
        struct xfer *xfer = xfers[k];
        xfer->must_mail |= xfer->slot == slot && !xfer->by_peer && xfer->mail == MAIL_OWED &&
                           xfer->number == slot->number && xfer->epoch == it.epoch;
    }
}

static void peer_of_own_gone(struct xfer *xfer, bool closed)
{
    if (closed && xfer->must_mail && xfer->mail != MAIL_COME)
        test_fail("the message of read %llu has not come", (unsigned long long)xfer->tag);
    /* Its message may have gone, or goes when it is found done. Nobody will tell. */
    bool owed = xfer->mail == MAIL_OWED || xfer->mail == MAIL_MAYBE;
    if (owed)
        xfer->mail = NO_MAIL;
    else if (xfer->mail == MAIL_OPEN)
        xfer->mail = MAIL_UNTOLD;
    /* Nothing is written to or read from what was closed, but where UCX has the kernel copy. */
    if (closed && !over_cma())
        give_side(xfer, xfer->slot->space, "memory of a peer that has closed");
    else if (xfer->life == ENDED)
        give_source(xfer, "a source");
}

static void own_of_peer_gone(struct xfer *xfer, bool closed)
{
    if (xfer->life == ENDED) {
        /* Told as done, so its message is on its way. */
        if (xfer->mail == MAIL_OWED && on_nixl() && !closed)
            xfer->mail = MAIL_MAYBE;
        give_source(xfer, "the source of a peer's read");
        return;
    }
    give_side(xfer, xfer->slot->space, "memory of a peer that is gone");
    if (xfer->mail == MAIL_OPEN)
        xfer->mail = MAIL_MAYBE;
    if (over_tcp() && !closed && xfer->kind == COPY_WRITE) {
        /* What the peer had sent lies in sockets of ours, until we close. */
        xfer->life = GHOST;
        it.tally.quarantined++;
        return;
    }
    xfer->life = ENDED;
    give_side(xfer, it.space, "our memory, of a peer that is gone");
}

void xfers_peer_gone(struct slot *slot, bool closed)
{
    for (size_t k = xfer_count; k-- > 0;) {
        struct xfer *xfer = xfers[k];
        if (xfer->slot != slot || xfer->number != slot->number)
            continue;
        if (xfer->by_peer)
            own_of_peer_gone(xfer, closed);
        else
            peer_of_own_gone(xfer, closed);
        forget_if_over(xfer);
    }
    slot->jobs = 0;
}

void xfers_survivor_closed(bool quiet)
{
    for (size_t k = xfer_count; k-- > 0;) {
        struct xfer *xfer = xfers[k];
        xfer->may_fail = xfer->may_cancel = true;
        if (!xfer->by_peer) {
            if (xfer->life == ENDED)
                continue;
            xfer->life = ENDED;
            give_target(xfer, false, "a target after dt_close");
            /* It may have been done, and sent its message, without our having asked. */
            if (xfer->mail == MAIL_OPEN)
                xfer->mail = MAIL_MAYBE;
            else
                give_source(xfer, "a source after dt_close");
        } else {
            if (xfer->mail != MAIL_COME)
                xfer->mail = NO_MAIL;
            if (quiet || xfer->life != RUNS)
                give_side(xfer, it.space, "our memory after dt_close");
            if (xfer->life == GHOST)
                xfer->life = ENDED;
        }
        forget_if_over(xfer);
    }
}

void xfers_forget(void)
{
    for (size_t k = xfer_count; k-- > 0;) {
        struct xfer *xfer = xfers[k];
        if (xfer->mail == MAIL_MAYBE)
            xfer->mail = NO_MAIL;
        forget_if_over(xfer);
    }
}

bool xfers_at_rest(void)
{
    for (size_t k = 0; k < xfer_count; k++) {
        const struct xfer *xfer = xfers[k];
        bool quarantined = xfer->by_peer && xfer->life == GHOST;
        if ((xfer->life != ENDED && !quarantined) || xfer->mail == MAIL_OWED)
            return false;
    }
    return true;
}

void xfers_check_age(void)
{
    for (size_t k = 0; k < xfer_count; k++) {
        const struct xfer *xfer = xfers[k];
        bool waits = xfer->life == RUNS || (xfer->life == GHOST && !xfer->by_peer);
        uint64_t since = xfer->since_ms;
        if (since < xfer->slot->moved_ms)
            since = xfer->slot->moved_ms;
        if (waits && !xfer->slot->stopped && now_ms() > since + BOUND_MS)
            test_fail("transfer %llu (%speer-%u, number %llu, id %llu, life %d) has not ended for %d ms",
                      (unsigned long long)xfer->tag, xfer->by_peer ? "by " : "", xfer->slot->index,
                      (unsigned long long)xfer->number, (unsigned long long)xfer->id,
                      (int)xfer->life, BOUND_MS);
    }
}
