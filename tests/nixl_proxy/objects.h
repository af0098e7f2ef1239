/* What the library holds of NIXL. Each handle that it gets is one of these, so that every use of it can
 * be checked: that it lives, and is of the right kind. What is wrong ends the process. */
#ifndef OBJECTS_H
#define OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The letter is what the journal calls it. */
enum kind {
    AGENT = 'a',
    BACKEND = 'b',
    PARAMS = 'c',
    OPT_ARGS = 'o',
    REG_LIST = 'g',
    XFER_LIST = 'l',
    NOTIF_MAP = 'n',
    REQUEST = 'r',
    REMOTE = 'p',
    REGISTRATION = 'm',
    /* A request whose owner was told that it has ended, and gave it back, but which runs. */
    ZOMBIE = 'z',
};

struct desc {
    uintptr_t addr;
    size_t len;
    uint64_t dev;
};

struct object {
    uint32_t magic;
    enum kind kind;
    /* NIXL's handle, if it has one. */
    void *real;
    /* Whose it is, if it belongs to an agent. */
    struct object *agent;
    struct object *next;
    /* AGENT: a call is inside. Its owner promised that there is only one at a time. */
    atomic_bool entered;
    /* REMOTE, REQUEST: the remote agent. */
    char peer[128];
    /* XFER_LIST: what is in it. */
    struct desc *descs;
    size_t count, room;
    /* REQUEST: its bytes, NIXL's last answer about it, and what was answered to its owner. */
    size_t bytes;
    int actual, told;
};

/* Says what is wrong, and ends the process. */
_Noreturn void tripped(const char *what);

void objects_lock(void);
void objects_unlock(void);

struct object *object_new(enum kind kind, void *real, struct object *agent);

/* The object behind a handle of the library's; NULL for NULL. */
struct object *object_of(void *handle, enum kind kind);

/* It is gone, and the journal says so: with its letter, or in capitals if nobody gave it back. */
void object_gone(struct object *object, bool given_back);

/* The first living one of `agent` (NULL: of any), after `from` unless that is NULL. */
struct object *object_next(struct object *from, enum kind kind, const struct object *agent);

long objects_living(enum kind kind);

/* What is gone since the last call of dt_proxy_forget, in order. */
const char *dt_proxy_journal(void);
void dt_proxy_forget(void);

#endif
