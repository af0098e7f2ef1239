/* How transfers and messages begin, and how the survivor gives them up. */
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "journal.h"
#include "survivor.h"

static const char *const verbs[] = {"writes", "reads", "posts a read of"};

static bool reg_is_well(const struct slot *slot, const struct reg *reg)
{
    return slot_is_well(slot) && reg->number == slot->number;
}

static void resolve(const uint32_t *map, const uint32_t *idxs, uint32_t *blocks, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++)
        blocks[k] = map != NULL ? map[idxs[k]] : idxs[k];
}

/* Takes blocks on both sides. `here` and `there` are indexes for the call of the initiator, which the
 * survivor is or is not. */
static bool take_blocks(struct xfer *xfer, struct space *mine, const uint32_t *my_map,
                        size_t my_len, struct space *theirs, const uint32_t *their_map,
                        size_t their_len, uint32_t *here, uint32_t *there, uint64_t *random)
{
    uint32_t *my_blocks = xfer->kind == COPY_WRITE ? xfer->source : xfer->target;
    uint32_t *their_blocks = xfer->kind == COPY_WRITE ? xfer->target : xfer->source;
    if (!space_lease(mine, my_map, my_len, here, xfer->count, xfer->tag, random))
        return false;
    resolve(my_map, here, my_blocks, xfer->count);
    if (!space_lease(theirs, their_map, their_len, there, xfer->count, xfer->tag, random)) {
        space_return(mine, my_blocks, xfer->count, xfer->tag);
        return false;
    }
    resolve(their_map, there, their_blocks, xfer->count);
    xfer->from = xfer->kind == COPY_WRITE ? mine : theirs;
    xfer->to = xfer->kind == COPY_WRITE ? theirs : mine;
    xfer->from_held = xfer->to_held = true;
    space_fill(xfer->from, xfer->source, xfer->count, xfer->tag);
    return true;
}

static struct letter next_letter(const struct slot *slot, const struct reg *reg, uint32_t lane)
{
    const struct line *sent = &slot->sent[lane];
    return (struct letter){.from = it.epoch, .to = reg->number, .lane = lane,
                           .number = sent->sends, .sends_before = sent->sends,
                           .reads_before = sent->reads};
}

bool xfer_submit(struct slot *slot, unsigned which, enum copy_kind kind, uint32_t count,
                 uint32_t letter, uint64_t *random)
{
    static uint8_t text[LETTER_MOST];
    uint32_t here[MOST_BLOCKS], there[MOST_BLOCKS];
    struct reg *reg = &slot->regs[which];
    dt_status status;
    size_t len = 0;
    if (!reg->live)
        return false;
    struct xfer *xfer = xfer_new(slot, kind, count, reg->number);
    xfer->lane = which;
    strcpy(xfer->scope, reg->id);
    if (!take_blocks(xfer, it.space, NULL, it.space->blocks, reg->space, reg->map, reg->map_len,
                     here, there, random)) {
        xfer_forget(xfer);
        return false;
    }
    /* Messages to a transport that is gone are of no interest to anybody. */
    if (kind == COPY_POSTED && letter > 0 && reg_is_well(slot, reg)) {
        struct letter about = next_letter(slot, reg, which);
        about.is_read = 1;
        about.number = xfer->tag;
        about.count = count;
        len = letter_write(text, about, xfer->source, letter);
        xfer->mail = MAIL_OPEN;
        xfer->unsure = true;
    }
    if (kind == COPY_WRITE)
        status = dt_write_blocks(it.transport, reg->id, here, there, count, xfer->tag, &xfer->id);
    else if (kind == COPY_READ)
        status = dt_read_blocks(it.transport, reg->id, here, there, count, xfer->tag, &xfer->id);
    else
        status = dt_post_read(it.transport, reg->id, here, there, count, text, len, &xfer->id);
    memset(text, 0, len);
    memset(here, 0xff, sizeof here);
    memset(there, 0xff, sizeof there);
    bool well = reg_is_well(slot, reg);
    journal("%s: %llu %s %u blocks, message of %zu bytes, id %llu: %s", reg->id,
            (unsigned long long)xfer->tag, verbs[kind], count, len, (unsigned long long)xfer->id,
            dt_status_str(status));
    if (status == DT_OK) {
        it.model.submitted++;
        xfer->may_fail = !well;
        return true;
    }
    if (status != DT_ERR_PEER_LOST || well)
        test_fail("%s, number %llu, refuses a transfer: %s, %s", reg->id,
                  (unsigned long long)reg->number, dt_status_str(status), dt_last_error());
    it.tally.refused++;
    xfer->mail = NO_MAIL;
    xfer_drop(xfer);
    return true;
}

bool xfer_order(struct slot *slot, enum copy_kind kind, uint32_t count, uint32_t letter,
                uint64_t *random)
{
    uint32_t payload[3 * MOST_BLOCKS], *here = payload, *there = payload + count;
    struct order order = {.kind = ORDER_COPY};
    if (!slot_is_well(slot) || slot->stopped || !slot->met || slot->jobs == PEER_JOBS)
        return false;
    if (kind != COPY_WRITE && slot->hushed)
        return false;
    struct xfer *xfer = xfer_new(slot, kind, count, slot->number);
    xfer->by_peer = true;
    if (!take_blocks(xfer, slot->space, NULL, slot->space->blocks, it.space, slot->map,
                     slot->map_len, here, there, random)) {
        xfer_forget(xfer);
        return false;
    }
    memcpy(there + count, xfer->source, count * sizeof *payload);
    xfer->mail = kind == COPY_POSTED && letter > 0 ? MAIL_OPEN : NO_MAIL;
    order.as.copy.tag = xfer->tag;
    order.as.copy.copy = kind;
    order.as.copy.count = count;
    order.as.copy.size = kind == COPY_POSTED ? letter : 0;
    slot_order(slot, order, payload, 3 * count * sizeof *payload);
    slot->jobs++;
    journal("peer-%u, number %llu: %llu %s %u blocks, message of %u bytes", slot->index,
            (unsigned long long)slot->number, (unsigned long long)xfer->tag, verbs[kind], count,
            order.as.copy.size);
    return true;
}

void xfer_send(struct slot *slot, unsigned which, uint32_t size)
{
    static uint8_t text[LETTER_MOST];
    struct reg *reg = &slot->regs[which];
    if (!reg->live || !reg_is_well(slot, reg))
        return;
    struct letter letter = next_letter(slot, reg, which);
    size_t len = letter_write(text, letter, NULL, size);
    dt_status status = dt_send_notif(it.transport, reg->id, text, len);
    memset(text, 0, len);
    journal("%s: message %llu of %zu bytes: %s", reg->id, (unsigned long long)letter.number, len,
            dt_status_str(status));
    if (status == DT_OK) {
        slot->sent[which].sends++;
        slot->letters++;
        it.model.sent++;
        it.tally.mail_sent++;
    } else if (status == DT_ERR_BUSY) {
        it.tally.mail_busy++;
    } else {
        test_fail("%s takes no message: %s, %s", reg->id, dt_status_str(status), dt_last_error());
    }
}

/* ---- giving up ---- */

static void cancel_there(struct xfer *xfer, uint32_t mode)
{
    struct order order = {.kind = ORDER_CANCEL};
    if (!slot_is_well(xfer->slot) || xfer->slot->stopped || xfer->number != xfer->slot->number)
        return;
    order.as.cancel.tag = xfer->tag;
    order.as.cancel.mode = mode;
    xfer->may_cancel = true;
    slot_order(xfer->slot, order, NULL, 0);
    journal("peer-%u: %llu is to be cancelled, mode %u", xfer->slot->index,
            (unsigned long long)xfer->tag, mode);
}

static void cancel_posted(struct xfer *xfer, bool release)
{
    dt_xfer_state state = DT_XFER_PROC;
    uint64_t before, draining;
    size_t still = 77;
    CHECK_OK(dt_check_xfer_state(it.transport, xfer->id, &state));
    before = stats_now().cancelled;
    if (release || state != DT_XFER_PROC)
        CHECK_OK(dt_release_xfer(it.transport, xfer->id));
    else
        CHECK_OK(dt_cancel(it.transport, &xfer->id, 1, DT_CANCEL_IMMEDIATE, NULL, &still));
    CHECK_STATUS(dt_release_xfer(it.transport, xfer->id), DT_ERR_NOT_FOUND);
    if (state != DT_XFER_PROC) {
        xfer_end(xfer, state);
        return;
    }
    /* It was found running, so it has no message. */
    CHECK(stats_now().cancelled == before + 1);
    draining = stats_now().draining;
    CHECK(draining == 0 || on_nixl());
    it.model.cancelled++;
    it.tally.dropped++;
    xfer->mail = NO_MAIL;
    journal("%llu is released, %llu drain", (unsigned long long)xfer->tag,
            (unsigned long long)draining);
    if (draining > 0)
        xfer->life = GHOST;
    else
        xfer_drop(xfer);
}

static void cancel_here(struct xfer **chosen, size_t count, dt_cancel_mode mode)
{
    dt_xfer_id ids[WINDOW + 1], left[WINDOW + 1];
    size_t still = 77;
    for (size_t i = 0; i < count; i++)
        ids[i] = chosen[i]->id;
    ids[count] = ids[0]; /* a repetition is ignored */
    uint64_t before = stats_now().cancelled;
    CHECK_OK(dt_cancel(it.transport, ids, count + 1, mode, left, &still));
    dt_stats stats = stats_now();
    CHECK(still <= count && (still == 0 || (on_nixl() && mode == DT_CANCEL_WAIT)));
    CHECK(stats.draining == 0 || on_nixl());
    CHECK(stats.cancelled >= before && stats.cancelled - before <= count - still);
    it.model.cancelled += stats.cancelled - before;
    it.model.unknown += count - still - (stats.cancelled - before);
    journal("%zu are cancelled, mode %d: %zu stay, %llu drain", count, (int)mode, still,
            (unsigned long long)stats.draining);
    for (size_t i = 0; i < count; i++) {
        bool stays = false;
        for (size_t k = 0; k < still; k++)
            stays |= left[k] == chosen[i]->id;
        if (stays) {
            chosen[i]->may_cancel = true;
            continue;
        }
        it.tally.dropped++;
        if (mode == DT_CANCEL_IMMEDIATE && stats.draining > 0)
            chosen[i]->life = GHOST;
        else
            xfer_drop(chosen[i]);
    }
}

void xfer_cancel(struct slot *slot, uint64_t *random)
{
    struct xfer *chosen[WINDOW];
    size_t count = 0, most = 1 + random_next(random) % 3;
    uint64_t what = random_next(random);
    for (size_t i = 0; i < xfer_count && count < most; i++) {
        struct xfer *xfer = xfers[(what / 8 + i) % xfer_count];
        if (xfer->slot != slot || xfer->life != RUNS || xfer->may_cancel)
            continue;
        if (xfer->by_peer) {
            cancel_there(xfer, what % 2 ? DT_CANCEL_WAIT : DT_CANCEL_IMMEDIATE);
            return;
        }
        if (xfer->kind == COPY_POSTED) {
            if (count > 0)
                continue;
            cancel_posted(xfer, what % 2);
            return;
        }
        chosen[count++] = xfer;
    }
    if (count > 0)
        cancel_here(chosen, count, what % 2 ? DT_CANCEL_WAIT : DT_CANCEL_IMMEDIATE);
}
