/* SHA-256 as FIPS 180-4 defines it. */
#ifndef EXAMPLE_SHA256_H
#define EXAMPLE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;            /* taken in so far */
    unsigned char block[64];   /* the last bytes % 64 of them */
};

void sha256_init(struct sha256 *hash);
void sha256_update(struct sha256 *hash, const void *data, size_t bytes);
/* 64 lower-case hex digits and a NUL. */
void sha256_hex(struct sha256 *hash, char out[65]);

#endif
