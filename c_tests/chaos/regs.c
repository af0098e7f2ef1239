/* What the survivor knows of its peers. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "descriptor.h"
#include "journal.h"
#include "survivor.h"

/* ---- memory descriptors ---- */

size_t write_descriptor(uint8_t *out, size_t cap, uint64_t base, size_t block_len,
                        const uint32_t *map, uint32_t count)
{
    struct list list = {out, 0, cap};
    list_put_count(&list, count);
    for (uint32_t i = 0; i < count; i++)
        list_put_row(&list, base + map[i] * block_len, block_len, 0);
    return list.len;
}

uint32_t *random_map(size_t blocks, uint32_t *count, uint64_t *random)
{
    uint32_t *map = malloc(blocks * sizeof *map);
    CHECK(map != NULL);
    random_permutation(map, blocks, random);
    *count = (uint32_t)(blocks - random_next(random) % (blocks / 3));
    return map;
}

/* ---- memory of transports that are gone ---- */

static struct space *gone[256];
static size_t gone_count;

void space_put(struct space *space)
{
    if (--space->users > 0)
        return;
    CHECK(gone_count < sizeof gone / sizeof *gone);
    gone[gone_count++] = space;
}

void spaces_reap(void)
{
    for (size_t i = gone_count; i-- > 0;) {
        if (gone[i]->leased > 0)
            continue;
        space_check(gone[i]);
        space_free(gone[i]);
        gone[i] = gone[--gone_count];
    }
}

/* ---- registrations ---- */

void reg_forget(struct reg *reg)
{
    if (!reg->live)
        return;
    space_put(reg->space);
    free(reg->map);
    *reg = (struct reg){.live = false};
}

/* NIXL refuses an agent while another one of its name is known, dead or not. */
static bool has_rival(const struct slot *slot, unsigned which)
{
    const struct reg *other = &slot->regs[1 - which];
    return on_nixl() && other->live && other->number != slot->number &&
           strcmp(other->agent, slot->agent) == 0;
}

static bool is_current(const struct slot *slot, const struct reg *reg)
{
    return slot_is_well(slot) && reg->number == slot->number;
}

void reg_add(struct slot *slot, enum meeting how, uint64_t *random)
{
    static uint8_t descriptor[8 + 600 * 20];
    unsigned which = how == MEET_AGENT;
    struct reg *reg = &slot->regs[which];
    struct reg new = {true, "", slot->number, "", slot->space, NULL, (uint32_t)slot->space->blocks};
    uint32_t first = 0;
    dt_status status;
    size_t len = 0;
    /* The agent has another name now: then it is another peer. */
    if (reg->live && which == 1 && strcmp(reg->id, slot->agent) != 0)
        reg_remove(slot, which);
    else if (reg->live && random_next(random) % 2 == 0)
        reg_remove(slot, which);
    strcpy(new.agent, slot->agent);
    if (how == MEET_AGENT) {
        char name[1001];
        new.map = random_map(slot->space->blocks, &new.map_len, random);
        len = write_descriptor(descriptor, sizeof descriptor, slot->base, it.block_len, new.map,
                               new.map_len);
        status = dt_add_remote_agent(it.transport, slot->metadata, slot->metadata_len, descriptor,
                                     len, name, sizeof name, &len);
        CHECK(status != DT_OK || strcmp(name, slot->agent) == 0);
        strcpy(new.id, slot->agent);
    } else {
        strcpy(new.id, "peer-0");
        new.id[5] = (char)('0' + slot->index);
        if (how == MEET_PART) {
            first = (uint32_t)(random_next(random) % (slot->space->blocks / 2));
            new.map_len -= first + (uint32_t)(random_next(random) % (slot->space->blocks / 4));
            CHECK((new.map = malloc(new.map_len * sizeof *new.map)) != NULL);
            for (uint32_t i = 0; i < new.map_len; i++)
                new.map[i] = first + i;
        }
        if (how == MEET_HANDSHAKE) {
            /* A damaged one changes nothing. */
            size_t at = random_next(random) % slot->handshake_len;
            slot->handshake[at] ^= 0x40;
            CHECK(dt_import_handshake(it.transport, new.id, slot->handshake, slot->handshake_len) <
                  0);
            slot->handshake[at] ^= 0x40;
            status = dt_import_handshake(it.transport, new.id, slot->handshake,
                                         slot->handshake_len);
        } else {
            status = dt_add_remote_peer(it.transport, new.id, slot->metadata, slot->metadata_len,
                                        slot->base + first * it.block_len, new.map_len,
                                        it.block_len);
        }
    }
    journal("%s: added number %llu, how %d: %s", new.id, (unsigned long long)new.number, (int)how,
            dt_status_str(status));
    if (status != DT_OK) {
        bool fits = (status == DT_ERR_INCOMPATIBLE && has_rival(slot, which)) ||
                    (status == DT_ERR_PEER_LOST && !slot_is_well(slot));
        if (!fits)
            test_fail("%s, number %llu, could not be added: %s, %s", new.id,
                      (unsigned long long)new.number, dt_status_str(status), dt_last_error());
        free(new.map);
        return;
    }
    it.tally.adds++;
    xfers_may_cancel(slot, which);
    reg_forget(reg);
    *reg = new;
    reg->space->users++;
}

void reg_remove(struct slot *slot, unsigned which)
{
    struct reg *reg = &slot->regs[which];
    journal("%s: removed", reg->id);
    CHECK_OK(dt_remove_remote_peer(it.transport, reg->id));
    CHECK_STATUS(dt_peer_status(it.transport, reg->id), DT_ERR_NOT_FOUND);
    it.tally.removes++;
    xfers_may_cancel(slot, which);
    reg_forget(reg);
}

void reg_check(struct slot *slot, unsigned which)
{
    struct reg *reg = &slot->regs[which];
    if (!reg->live)
        return;
    dt_status status = dt_peer_status(it.transport, reg->id);
    if (status != DT_OK && (status != DT_ERR_PEER_LOST || is_current(slot, reg)))
        test_fail("%s, number %llu, is %s, %s", reg->id, (unsigned long long)reg->number,
                  dt_status_str(status), dt_last_error());
    /* LOCAL needs no transfer to find out. */
    bool gone = slot->phase == EMPTY || slot->number != reg->number;
    if (!on_nixl() && gone && status == DT_OK) {
        size_t n = 0;
        for (int i = 0; i < 20; i++)
            CHECK_OK(dt_poll(it.transport, NULL, NULL, 0, &n));
        CHECK_STATUS(dt_peer_status(it.transport, reg->id), DT_ERR_PEER_LOST);
    }
}
