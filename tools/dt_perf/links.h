/* The targets, as the initiator sees them: processes of its own, or others behind sockets. */
#ifndef LINKS_H
#define LINKS_H

#include <sys/types.h>

#include "wire.h"

struct links {
    uint32_t count;
    int *fd;
    pid_t *child;     /* 0 if it is not a process of ours */
    struct reply *reply; /* the last one of each */
    bool same_host;
    uint32_t *pid;    /* of targets of the same host */
};

/* Starts the targets, or connects to them. Before anything that does not survive a fork. */
void links_start(struct links *links, const struct settings *settings);
/* Asks all targets the same, each with its own number, and waits for all the replies. True if all
 * are ok; otherwise `links->reply[*bad]` says why. */
bool links_ask(struct links *links, struct request request, uint32_t *bad);
/* The same, but a refusal ends the process. */
void links_must(struct links *links, struct request request);
/* Ends the process, if a target has ended before its time; says how. */
void links_check(struct links *links);
/* Lets the targets end, and waits for those that are processes of ours. */
void links_end(struct links *links);

/* The other end: serves all connections that one initiator makes. Returns when they have ended. */
void links_listen(const char *address);

#endif
