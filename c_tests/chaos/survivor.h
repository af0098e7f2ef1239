/* The survivor: the one process that is never killed, and that knows what everything must be. */
#ifndef CHAOS_SURVIVOR_H
#define CHAOS_SURVIVOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "child.h"
#include "dt_check.h"
#include "letter.h"
#include "memory.h"
#include "space.h"
#include "wire.h"

#define MOST_SLOTS 5
#define SURVIVOR_BLOCKS 2048
/* Of one transfer. */
#define MOST_BLOCKS 96
/* Transfers of the survivor with one peer at a time. */
#define WINDOW 10

/* ---- peers ---- */

enum phase {
    EMPTY,     /* no process */
    STARTING,  /* a process that is to open a transport */
    OPEN,
    CLOSING,   /* told to close */
    CLOSED,    /* a process without a transport */
    QUITTING   /* told to end, or to be killed */
};

/* What the survivor has registered. */
struct reg {
    bool live;
    char id[NAME_BYTES];
    uint64_t number;       /* of the peer's transport */
    char agent[NAME_BYTES];
    struct space *space;
    uint32_t *map;         /* its blocks; NULL: all */
    uint32_t map_len;
};

struct slot {
    unsigned index;
    enum phase phase;
    struct child child;
    bool doomed;           /* the process is about to die without closing */
    bool stopped;
    bool hushed;           /* reads nothing any more; a kill waits for the news */
    bool kill_on_hush;
    uint64_t moved_ms;     /* when it was last started, continued or killed */
    uint64_t number;       /* of its transport: none is met twice */
    char agent[NAME_BYTES];
    struct space *space;
    uint64_t base;
    uint8_t metadata[4096], handshake[8192];
    size_t metadata_len, handshake_len;
    struct reg regs[2];
    /* Peer to survivor. */
    bool met;              /* it was told of this survivor */
    uint32_t lane;
    uint32_t *map, map_len;
    unsigned jobs;
    /* Survivor to peer, to this transport of it. */
    struct line sent[2];
    uint64_t letters, letters_come;
    /* What it has told and was not read yet. */
    uint8_t *in;
    size_t in_len;
};

/* ---- transfers ---- */

enum life { RUNS, GHOST, ENDED };
enum mail_state {
    NO_MAIL,      /* none, and none is waited for any more */
    MAIL_OPEN,    /* goes when the read is done */
    MAIL_UNTOLD,  /* the same, but its receiver is gone */
    MAIL_OWED,    /* the read is done */
    MAIL_MAYBE,   /* it may have been done */
    MAIL_COME
};

struct xfer {
    uint64_t tag;
    struct slot *slot;
    bool by_peer;
    enum copy_kind kind;
    enum life life;
    enum mail_state mail;
    bool may_fail, may_cancel, must_mail;
    bool unsure;             /* the peer uses the source as soon as it has the message */
    dt_xfer_id id;
    char scope[NAME_BYTES];  /* the peer id under which it surfaces */
    uint32_t lane;
    uint64_t number, epoch;  /* of the transports */
    uint64_t since_ms;
    uint32_t count;
    struct space *from, *to;
    bool from_held, to_held;
    uint32_t source[MOST_BLOCKS], target[MOST_BLOCKS];
};

/* Over so many peers UCX keeps a few more. */
#define CHAOS_MAPS_SLACK (MAPS_SLACK + 4)

/* What the counters of the transport must be. */
struct model {
    uint64_t submitted, done, failed, cancelled;
    uint64_t unknown;        /* ended in one of these ways before they were dropped */
    uint64_t written, read, sent, received;
};

struct tally {
    uint64_t steps, skipped, done, failed, cancelled, dropped, refused, peer_done, peer_failed;
    uint64_t mail_come, mail_sent, mail_busy, kills, vanished, stops, starts, opens, closes, recreated, checkpoints;
    uint64_t adds, removes, quarantined;
};

struct survivor {
    uint64_t seed;
    size_t block_len;
    uint32_t longest_on_nixl;  /* message */
    unsigned slots;
    struct slot slot[MOST_SLOTS];
    dt_transport *transport;
    struct memory memory;
    struct space *space;
    uint64_t epoch;          /* number of the transport */
    bool closing;
    uint8_t metadata[4096], handshake[8192];
    size_t metadata_len, handshake_len;
    struct model model;
    struct tally tally;
};

extern struct survivor it;

/* A new number for a transport, or a tag. */
uint64_t new_number(void);
/* MessagePack of blocks of a region. */
size_t write_descriptor(uint8_t *out, size_t cap, uint64_t base, size_t block_len,
                        const uint32_t *map, uint32_t count);
/* Some of `blocks` blocks in any order; free() it. */
uint32_t *random_map(size_t blocks, uint32_t *count, uint64_t *random);

/* ---- slot.c: processes and what they tell ---- */

void slot_start(struct slot *slot, uint64_t *random);
void slot_open(struct slot *slot, uint64_t *random);
void slot_meet(struct slot *slot, uint64_t *random);
void slot_close(struct slot *slot);
void slot_quit(struct slot *slot);
void slot_vanish(struct slot *slot);
/* Kills it, or makes it ready for that. */
void slot_kill(struct slot *slot, uint64_t after_ns);
void slot_stop(struct slot *slot, uint64_t after_ns);
void slot_continue(struct slot *slot, uint64_t after_ns);
/* Reads what all have told, and buries the dead. */
void slots_listen(void);
/* It has an open transport and will have it until something is said. */
bool slot_is_well(const struct slot *slot);
void slot_order(struct slot *slot, struct order order, const void *bytes, size_t len);

/* ---- regs.c: what the survivor knows of its peers ---- */

void reg_add(struct slot *slot, enum meeting how, uint64_t *random);
void reg_remove(struct slot *slot, unsigned which);
/* Without a word to the library, which has forgotten it. */
void reg_forget(struct reg *reg);
/* The health that the library tells of must be the true one. */
void reg_check(struct slot *slot, unsigned which);
/* Memory of transports that are gone. */
void space_put(struct space *space);
void spaces_reap(void);

/* ---- submit.c: how transfers begin ---- */

bool xfer_submit(struct slot *slot, unsigned which, enum copy_kind kind, uint32_t count,
                 uint32_t letter, uint64_t *random);
bool xfer_order(struct slot *slot, enum copy_kind kind, uint32_t count, uint32_t letter,
                uint64_t *random);
void xfer_send(struct slot *slot, unsigned which, uint32_t size);
void xfer_cancel(struct slot *slot, uint64_t *random);

/* ---- xfer.c: how they go on and end ---- */

extern struct xfer *xfers[];
extern size_t xfer_count;
struct xfer *xfer_new(struct slot *slot, enum copy_kind kind, uint32_t count, uint64_t number);
/* The transfer has ended, and nothing touches its blocks. `held` ones are checked and given back. */
void xfer_end(struct xfer *xfer, dt_status status);
/* As xfer_end, for one that was dropped: whether it was done is not known. */
void xfer_drop(struct xfer *xfer);
dt_stats stats_now(void);
/* Polls in some way, and enters what it brings. */
void xfers_poll(uint64_t *random);
struct xfer *xfer_find(uint64_t tag);
void xfer_forget(struct xfer *xfer);
/* Its message has come to the peer. */
void xfer_mail_there(struct xfer *xfer);
/* Its message has come from the peer: then its bytes are there. */
void xfer_mail_here(struct xfer *xfer);
unsigned xfers_running(const struct slot *slot);
/* How one that a peer had started has ended. */
void xfer_told(struct slot *slot, uint64_t tag, dt_status status, bool refused);
/* Events that concern many. `slot` NULL: all. */
void xfers_may_fail(const struct slot *slot, uint64_t number);
void xfers_may_cancel(const struct slot *slot, unsigned which);
void xfers_peer_may_cancel(const struct slot *slot);
void xfers_close_ordered(struct slot *slot);
void xfers_peer_gone(struct slot *slot, bool closed);
void xfers_survivor_closed(bool quiet);
/* Nothing is left to be waited for. */
bool xfers_at_rest(void);
void xfers_forget(void);
/* None takes longer than the bound. */
void xfers_check_age(void);
void stats_check(bool at_rest);

/* ---- post.c: messages to the survivor ---- */

void post_open(uint64_t number);
void post_owed(uint64_t number, uint64_t epoch);
void post_dead(uint64_t number, bool closed);
void post_take(void);
bool post_at_rest(void);
void post_forget(void);

/* ---- steps.c ---- */

void step_run(uint64_t number);
/* Lets everything go on for one round. */
void drive(uint64_t *random);

/* ---- life.c: the survivor's own transport ---- */

void survivor_open(uint64_t *random);
void survivor_close(uint64_t *random);
void survivor_recreate(uint64_t *random);
void checkpoint(uint64_t *random);

#endif
