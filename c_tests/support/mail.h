/* Messages of a transport, and short ones that tell which they are. */
#ifndef DT_TEST_MAIL_H
#define DT_TEST_MAIL_H

#include <stddef.h>
#include <stdint.h>

#include "dt.h"

#define MAIL_MOST 256

struct mail {
    char sender[128];
    size_t len;
    uint8_t bytes[MAIL_MOST];
};

/* What has come by now: at most `cap`, none of them longer than MAIL_MOST. Drives the transport. */
size_t mail_take(dt_transport *t, struct mail *buf, size_t cap);

/* Message `number` of the sequence `seed`: 16 to MAIL_MOST bytes of any value. */
size_t mail_make(uint8_t bytes[MAIL_MOST], uint64_t seed, uint64_t number);

/* The number of a message of this sequence; any other one fails the test. */
uint64_t mail_number(const struct mail *mail, uint64_t seed);

#endif
