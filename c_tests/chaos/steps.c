/* What happens in step n: it follows from the seed and n alone. What cannot be done then is skipped. */
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "journal.h"
#include "survivor.h"

enum action {
    WRITE, READ, POST, THEY_WRITE, THEY_READ, THEY_POST, SEND, THEY_SEND, CANCEL, REMOVE, ADD,
    LOOK, REST, CONTINUE, STOP, CLOSE, KILL, VANISH, QUIT, RECREATE, CHECKPOINT, ACTIONS
};

/* In 10000 steps. */
static const unsigned shares[ACTIONS] = {
    [WRITE] = 2400, [READ] = 1200, [POST] = 1300, [THEY_WRITE] = 1200, [THEY_READ] = 600,
    [THEY_POST] = 700, [SEND] = 500, [THEY_SEND] = 400, [CANCEL] = 500, [REMOVE] = 60,
    [ADD] = 260, [LOOK] = 200, [REST] = 500, [CONTINUE] = 80, [STOP] = 30, [CLOSE] = 22,
    [KILL] = 22, [VANISH] = 6, [QUIT] = 6, [RECREATE] = 24, [CHECKPOINT] = 6};

static enum action draw(uint64_t *random)
{
    unsigned sum = 0, at;
    for (int i = 0; i < ACTIONS; i++)
        sum += shares[i];
    at = (unsigned)(random_next(random) % sum);
    for (int i = 0;; i++) {
        if (at < shares[i])
            return (enum action)i;
        at -= shares[i];
    }
}

void drive(uint64_t *random)
{
    static uint64_t rounds;
    slots_listen();
    post_take();
    xfers_poll(random);
    if (++rounds % 64 == 0) {
        xfers_check_age();
        stats_check(false);
        spaces_reap();
    }
}

/* A peer that has none gets a process, one without a transport opens one, and both sides meet. */
static void revive(struct slot *slot, uint64_t *random)
{
    if (slot->phase == EMPTY) {
        slot_start(slot, random);
    } else if (slot->phase == CLOSED) {
        if (random_next(random) % 4 == 0)
            slot_quit(slot);
        else
            slot_open(slot, random);
    } else if (slot_is_well(slot)) {
        if (!slot->met)
            slot_meet(slot, random);
        if (!slot->regs[0].live || slot->regs[0].number != slot->number)
            reg_add(slot, (enum meeting)(random_next(random) % (MEETINGS - 1)), random);
    }
}

static uint32_t count_of(uint64_t *random)
{
    static const uint32_t most[] = {1, 4, 24, MOST_BLOCKS};
    return 1 + (uint32_t)(random_next(random) % most[random_next(random) % 4]);
}

static uint32_t letter_of(uint64_t *random)
{
    static const uint32_t sizes[] = {1, 200, 2000, LETTER_MOST};
    uint64_t kind = random_next(random) % 16;
    uint32_t size = sizes[kind < 6 ? 0 : kind < 12 ? 1 : kind < 15 ? 2 : 3];
    return on_nixl() && size > it.longest_on_nixl ? it.longest_on_nixl : size;
}

/* Faults shall meet work: large transfers of all kinds, both ways. */
static void burst(struct slot *slot, uint64_t *random)
{
    for (uint64_t n = 2 + random_next(random) % 5; n > 0; n--) {
        enum copy_kind kind = (enum copy_kind)(random_next(random) % COPY_KINDS);
        uint32_t count = MOST_BLOCKS / 4 + (uint32_t)(random_next(random) % (MOST_BLOCKS * 3 / 4));
        uint32_t letter = random_next(random) % 4 ? letter_of(random) : 0;
        unsigned which = random_next(random) % 3 == 0;
        if (random_next(random) % 3 == 0)
            xfer_order(slot, kind, count, letter, random);
        else if (xfers_running(slot) < WINDOW)
            xfer_submit(slot, which, kind, count, letter, random);
    }
}

static bool submit(struct slot *slot, unsigned which, enum copy_kind kind, uint64_t *random)
{
    uint32_t count = count_of(random), letter = random_next(random) % 8 ? letter_of(random) : 0;
    uint64_t deadline = now_ms() + BOUND_MS;
    /* Full: the step waits, unless it is the peer that stands still. */
    while (xfers_running(slot) >= WINDOW && !slot->stopped) {
        if (now_ms() > deadline)
            xfers_check_age();
        drive(random);
    }
    return xfers_running(slot) < WINDOW && xfer_submit(slot, which, kind, count, letter, random);
}

static void order_send(struct slot *slot, uint64_t size)
{
    struct order order = {.kind = ORDER_SEND};
    order.as.send.size = size;
    slot_order(slot, order, NULL, 0);
}

static bool run(enum action action, struct slot *slot, uint64_t *random)
{
    bool well = slot_is_well(slot), listens = well && !slot->stopped, busy = listens && slot->met;
    unsigned which = random_next(random) % 3 == 0;
    uint64_t after_ns = random_next(random) % 3000000;
    if (slot->hushed)
        listens = false;
    switch (action) {
    case WRITE:
        return submit(slot, which, COPY_WRITE, random);
    case READ:
        return submit(slot, which, COPY_READ, random);
    case POST:
        return submit(slot, which, COPY_POSTED, random);
    case THEY_WRITE:
    case THEY_READ:
    case THEY_POST:
        return xfer_order(slot, (enum copy_kind)(action - THEY_WRITE), count_of(random),
                          random_next(random) % 8 ? letter_of(random) : 0, random);
    case SEND:
        xfer_send(slot, which, letter_of(random));
        return true;
    case THEY_SEND:
        if (busy && !slot->hushed)
            order_send(slot, letter_of(random));
        return busy;
    case CANCEL:
        burst(slot, random);
        xfer_cancel(slot, random);
        return true;
    case REMOVE:
        burst(slot, random);
        if (slot->regs[which].live)
            reg_remove(slot, which);
        return true;
    case ADD:
        if (slot->space == NULL || slot->phase == STARTING || slot->phase == CLOSED)
            return false;
        if (random_next(random) % 4 == 0 && busy && !slot->hushed)
            slot_meet(slot, random);
        else
            reg_add(slot, (enum meeting)(random_next(random) % MEETINGS), random);
        return true;
    case LOOK:
        reg_check(slot, which);
        return true;
    case REST:
        for (uint64_t n = random_next(random) % 40; n > 0; n--)
            drive(random);
        return true;
    case CONTINUE:
        if (slot->stopped)
            slot_continue(slot, after_ns);
        return true;
    case STOP:
        if (!listens)
            return false;
        if (random_next(random) % 2)
            slot_stop(slot, after_ns);
        burst(slot, random);
        if (!slot->stopped)
            slot_stop(slot, after_ns);
        return true;
    case CLOSE:
        if (!listens)
            return false;
        burst(slot, random);
        slot_close(slot);
        return true;
    case KILL:
        if (!well || slot->hushed)
            return false;
        burst(slot, random);
        slot_kill(slot, after_ns);
        return true;
    case VANISH:
        if (!listens || over_tcp())
            return false;
        burst(slot, random);
        slot_vanish(slot);
        return true;
    case QUIT:
        if (slot->phase == CLOSED)
            slot_quit(slot);
        return true;
    case RECREATE:
        /* Peers write and read at this very moment. */
        for (unsigned i = 0; i < it.slots; i++) {
            burst(&it.slot[i], random);
            xfer_order(&it.slot[i], COPY_READ, MOST_BLOCKS, 0, random);
            for (int n = 0; n < 4; n++)
                xfer_order(&it.slot[i], COPY_WRITE, MOST_BLOCKS, 0, random);
        }
        survivor_recreate(random);
        return true;
    case CHECKPOINT:
        checkpoint(random);
        return true;
    case ACTIONS:
        break;
    }
    return false;
}

void step_run(uint64_t number)
{
    uint64_t random = it.seed + number * 0x9e3779b97f4a7c15u;
    journal_step(number);
    random = random_next(&random);
    enum action action = draw(&random);
    struct slot *slot = &it.slot[random_next(&random) % it.slots];
    uint64_t rounds = random_next(&random) % 3;
    it.tally.steps++;
    if (!run(action, slot, &random)) {
        it.tally.skipped++;
        usleep(300); /* peers that start need the processor */
    }
    revive(&it.slot[random_next(&random) % it.slots], &random);
    for (uint64_t n = 0; n < rounds; n++)
        drive(&random);
}
