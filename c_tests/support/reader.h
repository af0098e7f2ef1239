/* Processes that pull from a node of the test, each read with a message, and what the test keeps of
 * the messages. */
#ifndef DT_TEST_READER_H
#define DT_TEST_READER_H

#include <stdatomic.h>

#include "child.h"
#include "mail.h"
#include "node.h"

/* How far a reader got, also if it was killed. In memory that it shares with the test. */
struct tally {
    _Atomic uint64_t posted;
    _Atomic uint64_t done;   /* found so by dt_check_xfer_state */
};

struct reader {
    struct child child;
    char name[32];
    int tally_fd;
    struct tally *tally;
};

struct reader_report {
    uint64_t done;
    dt_xfer_state last;   /* the state or the status that ended it */
};

/* A process that has made `node` known by its metadata and memory descriptor. The node holds pattern
 * `seed`, and so are the reader's messages of sequence `seed`. With `window` reads in flight, the
 * reads share the blocks. */
struct reader reader_start(const struct node *node, const char *name, uint64_t seed,
                           uint64_t window);
/* Lets it do `count` reads; it numbers its messages on, posts one read after the one `window` before
 * it is done, and checks all bytes. */
void reader_begin(struct reader *reader, uint64_t count);
void reader_await(struct reader *reader);
/* Lets it read until a read fails. It says so with event 'w' when the first one is done. */
void reader_hammer(struct reader *reader);
struct reader_report reader_report(struct reader *reader);
/* Lets it send a message that goes with no read, with the next number. */
void reader_send(struct reader *reader);
void reader_quit(struct reader *reader);
/* SIGKILL. The tally stays, until it is forgotten. */
void reader_kill(struct reader *reader);
void reader_forget(struct reader *reader);

void reader_role(int socket);
#define READER_ROLE {"reader", reader_role}

/* ---- what has come from one sender ---- */

#define INBOX_MOST 200000

struct inbox {
    const char *name;
    uint64_t seed;
    uint64_t window;
    uint64_t lowest;   /* all below have come */
    uint64_t count;
    bool come[INBOX_MOST];
};

struct inbox *inbox_new(const char *name, uint64_t seed, uint64_t window);
/* Takes what has come at the node by now, and enters it. Each message is from one of `inboxes`, comes
 * once, and no message comes before one that was sent before it. */
size_t inbox_fill(const struct node *node, struct inbox *const *inboxes, size_t count);

#endif
