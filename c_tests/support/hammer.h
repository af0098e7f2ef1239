/* Processes that copy into or from a node of the test without a pause, until they lose it. */
#ifndef DT_TEST_HAMMER_H
#define DT_TEST_HAMMER_H

#include "child.h"
#include "node.h"

struct hammer_spec {
    struct card target;
    uint64_t seed;  /* WRITE: what is written; READ: what an undisturbed read must give */
    bool write;
};

/* What a hammer tells when it has lost its target. */
struct hammer_report {
    uint64_t done;
    uint64_t failed;
    dt_status last;  /* of the last submission or completion */
};

/* Starts one; it sends 'w' as soon as its first transfer is done. A hammer checks by itself that
 * every id ends once, and that a read which ended as done holds the bytes of `seed` alone. */
struct child hammer_start(const struct node *target, uint64_t seed, bool write);
struct hammer_report hammer_finish(struct child *hammer);

/* As hammer_start, for writing; but the copying is done by a second thread, and hammer_exec makes
 * the first one start another program (the role "idle") in the midst of it. */
struct child hammer_start_threaded(const struct node *target, uint64_t seed);
void hammer_exec(struct child *hammer);

void hammer_role(int socket);
void threaded_hammer_role(int socket);
#define HAMMER_ROLES {"hammer", hammer_role}, {"threaded hammer", threaded_hammer_role}

#endif
