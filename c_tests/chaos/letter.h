/* Messages that tell whether one before them is missing. */
#ifndef CHAOS_LETTER_H
#define CHAOS_LETTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LETTER_MOST 65536

/* The head of a message. `lane` is the peer id under which it is sent: the order holds for each. */
struct letter {
    uint64_t from, to;       /* transports, by number: none is met twice */
    uint32_t lane;
    uint32_t is_read;        /* it goes with a posted read */
    uint64_t number;         /* read: its tag; else: how many were sent alone before */
    uint64_t sends_before;   /* that were accepted when this call was made */
    uint64_t reads_before;   /* that were found done when this call was made */
    uint32_t count;          /* read: its source blocks, whose indexes follow */
    uint32_t len;            /* of all of it */
};

/* Writes the message, of about `len` bytes, to `out` of LETTER_MOST bytes; gives its length. */
size_t letter_write(void *out, struct letter letter, const uint32_t *blocks, size_t len);
/* Checks every byte. `blocks` has room for LETTER_MOST / 4. */
struct letter letter_read(const void *bytes, size_t len, uint32_t *blocks);

/* What one side has got of the other, or sent to it, in one lane. */
struct line {
    uint64_t from, to;
    uint64_t sends, reads;
};

/* Enters a message that has come: none before it is missing. `lossy`: some may be, their sender is dead. */
void line_take(struct line *line, const struct letter *letter, bool lossy);

#endif
