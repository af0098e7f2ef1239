/* What initiator and target say to each other: the initiator asks, the target answers. Both are
 * dt_perf of the same version on machines of the same kind. */
#ifndef WIRE_H
#define WIRE_H

#include "perf.h"

enum what { HELLO, POOLS, OPEN, FILL, BEGIN, END, CHECK, CLOSE, BYE };

/* Ordered so that there is no padding. A field is for those messages that name it. */
struct request {
    uint64_t magic;       /* of every message */
    uint64_t pool;        /* POOLS: bytes */
    uint64_t region;      /* POOLS: bytes, 0: as many */
    uint64_t num_blocks;  /* OPEN, CHECK */
    uint64_t block_len;   /* OPEN, CHECK */
    uint64_t seed, slice, transfers; /* CHECK */
    uint32_t what;
    uint32_t subject;     /* OPEN, BEGIN */
    uint32_t memory;      /* FILL, CHECK */
    uint32_t memories;    /* POOLS: one bit each */
    uint32_t peer;        /* which target this one is, in every message */
    uint32_t peers;       /* HELLO, CHECK */
    uint32_t fill;        /* FILL, CHECK: enum fill, or the byte that was there before */
    uint32_t op, pattern; /* CHECK */
    uint32_t huge_pages;  /* POOLS */
    uint32_t progress_thread, busy; /* HELLO */
    char ucx_tls[256];    /* HELLO */
};

/* What a target's memory is filled with: bytes that differ everywhere, or one byte (0 to 255). */
enum fill { FILL_STREAM = 256 };

struct reply {
    uint64_t base;        /* OPEN */
    uint64_t cpu_ns;      /* END */
    uint32_t ok;
    uint32_t pid;         /* HELLO */
    uint32_t blob_len;    /* OPEN */
    uint32_t reserved;
    char host[128];       /* HELLO: names the running kernel and the PID namespace */
    char text[512];       /* why it is not ok */
    char blob[8192];      /* OPEN: handshake, or NIXL's metadata */
};

#define WIRE_MAGIC 0x3130667265707464u /* "dtperf01", so that it tells the byte order, too */

/* False: the other side is gone. */
bool wire_send(int fd, const void *data, size_t bytes);
bool wire_receive(int fd, void *data, size_t bytes);

/* How long wire_receive waits; 0: for ever. Then the other side counts as gone. */
void wire_patience(int fd, unsigned seconds);

/* Names the host as a process sees it. */
void wire_host(char *host, size_t cap);

/* Sockets of "[ADDRESS:]PORT". */
int wire_listen(const char *address);
int wire_accept(int listener);
int wire_connect(const char *address);

#endif
