/* One life of a transport, step by step, for tests that make a step fail: memory, transport, peers,
 * transfers both ways, messages, and the end. Each step checks the bytes that it has moved. One that
 * has failed can be taken again. */
#ifndef DT_TEST_LIFE_H
#define DT_TEST_LIFE_H

#include "node.h"

struct life_step {
    const char *name;
    /* Of the call, or of the transfer. */
    dt_status (*run)(void);
};

#define LIFE_STEPS 21

extern const struct life_step life_steps[LIFE_STEPS];

/* The peer that `life_begin` wants. */
#define LIFE_BLOCKS 40
#define LIFE_BLOCK_LEN 8192

/* Before the first step. */
void life_begin(struct remote *peer);
/* In place of the steps that are left: gives back what there is. */
void life_give_up(void);

/* Called, unless it is NULL, when the message of a read cannot be sent, so that the read goes on. */
extern void (*life_lacks_room)(void);
/* After the last one. What came to the peer is what was sent, each once and in its order. */
void life_end(void);

#endif
