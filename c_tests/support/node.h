/* A node: memory and the transport over it, here or in another process. */
#ifndef DT_TEST_NODE_H
#define DT_TEST_NODE_H

#include <stddef.h>
#include <stdint.h>

#include "child.h"
#include "dt_check.h"
#include "mail.h"
#include "memory.h"
#include "pattern.h"

/* What a peer must know of a node. */
struct card {
    uint64_t base;
    uint64_t num_blocks;
    uint64_t block_len;
    uint64_t metadata_len;
    uint8_t metadata[4096];
};

struct node {
    struct memory memory;
    size_t num_blocks;
    size_t block_len;
    dt_transport *transport;
};

/* On the backend of backend.h. The memory is as the system gives it.
 *
 * With NIXL over sockets nothing arrives at a node that is not polled. So whoever waits for a message
 * or in node_wait polls the other nodes of its process meanwhile. A node that has transfers in flight
 * is polled in node_wait only: elsewhere it is the test that drives it. LOCAL needs none of it, and
 * gets none. */
struct node node_open(enum memory_kind kind, size_t num_blocks, size_t block_len);
/* As node_open, over memory that the caller has; a file descriptor is handed over. */
struct node node_open_over(struct memory memory, size_t num_blocks, size_t block_len);
/* As node_open_over, with what `options` sets besides the backend and the descriptor. */
struct node node_open_with(struct memory memory, size_t num_blocks, size_t block_len,
                           dt_options options);
/* Closes, destroys and frees the memory. */
void node_close(struct node *node);
/* The same without closing. */
void node_destroy(struct node *node);
/* dt_destroy alone. */
void node_destroy_transport(struct node *node);

struct card node_card(const struct node *node);
dt_status node_add(const struct node *node, const char *peer_id, const struct card *card);
void *node_block(const struct node *node, size_t block);
/* Block i becomes block i of the pattern. */
void node_fill(const struct node *node, uint64_t seed);
/* Every byte of every block must be as `want` says, or, unless it is NULL, as `other` says. */
void node_check(const struct node *node, const struct content *want, const struct content *other);
/* dt_wait with BOUND_MS. */
size_t node_wait(const struct node *node, const char *peer_id, dt_completion *buf, size_t cap);
/* Waits for `id` of `peer_id`, which must be the only one, and gives its completion. */
dt_completion node_finish(const struct node *node, const char *peer_id, dt_xfer_id id);
dt_stats node_stats(const struct node *node);

/* What the blocks hold after node_fill; free() it. */
struct content *contents_of(uint64_t seed, size_t num_blocks);
/* After blocks from[k] of pattern `seed` were copied to to[k]. */
void contents_copy(struct content *contents, const uint32_t *to, uint64_t seed,
                   const uint32_t *from, size_t count);

/* ---- nodes in other processes ---- */

struct node_spec {
    enum memory_kind kind;
    size_t num_blocks;
    size_t block_len;
    uint64_t fill_seed;  /* 0: leave the memory untouched */
    uint64_t at;         /* address of the memory; 0: any */
    uint32_t uid;        /* drop to this user first; 0: stay */
    bool dumpable;       /* with uid: let others of that user look into it */
    char name[32];       /* of the agent; "": a generated one */
};

struct remote {
    struct child child;
    struct card card;
};

/* Starts a process with a node. Programs that use it have NODE_ROLES in their roles. */
struct remote remote_start(const struct node_spec *spec);
struct remote remote_simple(enum memory_kind kind, size_t num_blocks, size_t block_len,
                            uint64_t fill_seed);

#define REMOTE_TEXT 512

void remote_fill(struct remote *remote, uint64_t seed);
/* node_check over there. */
void remote_check(struct remote *remote, const struct content *want, const struct content *other);
/* The remote node adds a peer; `text`: its last error, may be NULL. */
dt_status remote_add(struct remote *remote, const char *peer_id, const struct card *card,
                     char text[REMOTE_TEXT]);
/* The remote node copies and waits; the status is the submission's or the completion's. */
dt_status remote_copy(struct remote *remote, bool write, const char *peer_id,
                      const uint32_t *local, const uint32_t *remote_blocks, size_t count);
/* Waits until `count` messages have come there, and brings them. */
void remote_mail(struct remote *remote, struct mail *buf, size_t count);
/* memory_unmap and memory_map_again over there; the transport stays open. */
void remote_unmap(struct remote *remote);
void remote_map_again(struct remote *remote);
/* Ends in good order. */
void remote_quit(struct remote *remote);
/* exit(0) without closing the transport. */
void remote_exit_unclosed(struct remote *remote);
/* exec() without closing the transport; the process lives on and does nothing. */
void remote_exec_unclosed(struct remote *remote);
/* The same, but first it forks a child, which lives on as long as the process does. */
void remote_fork_and_exec_unclosed(struct remote *remote);
void remote_kill(struct remote *remote);

void node_role(int socket);
void idle_role(int socket);
#define NODE_ROLES {"node", node_role}, {"idle", idle_role}

#endif
