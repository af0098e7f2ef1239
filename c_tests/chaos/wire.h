/* What the survivor orders a peer to do, and what the peer tells. Each is a head and `len` bytes. */
#ifndef CHAOS_WIRE_H
#define CHAOS_WIRE_H

#include <stdbool.h>
#include <stdint.h>

/* Transfers of its own that a peer has at a time. */
#define PEER_JOBS 16
#define NAME_BYTES 64

enum order_kind {
    ORDER_OPEN,    /* make a transport over the file of `region` */
    ORDER_MEET,    /* make the survivor known, by what follows */
    ORDER_COPY,    /* start a transfer: local indexes, remote ones, and those of `letter` follow */
    ORDER_CANCEL,  /* that transfer */
    ORDER_SEND,    /* a message of `size` bytes */
    ORDER_HUSH,    /* say when no read of the peer's is under way any more */
    ORDER_CLOSE,   /* when the messages `expect` have come, close the transport */
    ORDER_QUIT,    /* end */
    ORDER_VANISH   /* end without closing */
};

/* How a peer is made known. */
enum meeting { MEET_ADD, MEET_PART, MEET_HANDSHAKE, MEET_AGENT, MEETINGS };

enum copy_kind { COPY_WRITE, COPY_READ, COPY_POSTED, COPY_KINDS };

struct order {
    uint32_t kind;
    uint32_t len;
    union {
        struct {
            char path[NAME_BYTES];
            char name[NAME_BYTES];
            uint64_t number, blocks, block_len, at;
            uint32_t with_fd, progress_thread, budget_us;
        } region;
        struct {
            uint64_t number, base, blocks;
            uint32_t how, remove_first, metadata_len, descriptor_len;
        } meet;
        struct {
            uint64_t tag;
            uint32_t copy, count, size;  /* size of the message of a posted read; 0: none */
        } copy;
        struct {
            uint64_t tag;
            uint32_t mode;
        } cancel;
        struct {
            uint64_t size;
        } send;
        struct {
            uint64_t from, expect;
            uint32_t unmap;
        } close;
    } as;
};

enum news_kind {
    NEWS_OPENED,   /* metadata, handshake and descriptor follow, lengths in `part` */
    NEWS_MET,      /* number `tag` */
    NEWS_REFUSED,  /* transfer `tag` was not started */
    NEWS_ENDED,    /* transfer `tag` */
    NEWS_SENT,     /* ORDER_SEND */
    NEWS_MAIL,     /* a message has come: `tag` of a read, or its number */
    NEWS_HUSHED,
    NEWS_CLOSED    /* `tag`: messages sent since it was opened */
};

struct news {
    uint32_t kind;
    uint32_t len;
    uint64_t tag;
    int32_t status;
    uint32_t part[3];
    uint64_t number, base;
    uint32_t lane, is_read;
};

void peer_role(int socket);

#endif
