#include "node.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"

/* The transports of all nodes of this process. */
static dt_transport *transports[64];
static size_t transport_count;
static pthread_mutex_t transports_lock = PTHREAD_MUTEX_INITIALIZER;

/* Polls all but `busy`, and those with work of their own only if `all`. */
static void poll_others(const dt_transport *busy, bool all)
{
    pthread_mutex_lock(&transports_lock);
    for (size_t i = 0; i < transport_count; i++) {
        dt_stats stats = {.struct_size = sizeof stats};
        size_t n = 0;
        if (transports[i] == busy || dt_get_stats(transports[i], &stats) != DT_OK)
            continue;
        /* A closed one is refused, and that is fine. */
        if (all || stats.inflight == 0)
            dt_poll(transports[i], NULL, NULL, 0, &n);
    }
    pthread_mutex_unlock(&transports_lock);
}

static void poll_idle_ones(void)
{
    poll_others(NULL, false);
}

static void remember(dt_transport *transport)
{
    pthread_mutex_lock(&transports_lock);
    CHECK(transport_count < sizeof transports / sizeof *transports);
    transports[transport_count++] = transport;
    pthread_mutex_unlock(&transports_lock);
    if (on_nixl())
        message_meanwhile = poll_idle_ones;
}

static void forget(const dt_transport *transport)
{
    pthread_mutex_lock(&transports_lock);
    size_t i = 0;
    while (i < transport_count && transports[i] != transport)
        i++;
    CHECK(i < transport_count);
    transports[i] = transports[--transport_count];
    pthread_mutex_unlock(&transports_lock);
}

struct node node_open_with(struct memory memory, size_t num_blocks, size_t block_len,
                           dt_options options)
{
    struct node node = {memory, num_blocks, block_len, NULL};
    options.backend = test_backend();
    if (memory.fd >= 0) {
        options.region_has_fd = true;
        options.region_fd = memory.fd;
        options.region_offset = memory.offset;
    }
    CHECK_OK(dt_create(memory.base, num_blocks, block_len, &options, &node.transport));
    remember(node.transport);
    return node;
}

struct node node_open_over(struct memory memory, size_t num_blocks, size_t block_len)
{
    dt_options options = DT_OPTIONS_INIT;
    return node_open_with(memory, num_blocks, block_len, options);
}

struct node node_open(enum memory_kind kind, size_t num_blocks, size_t block_len)
{
    return node_open_over(memory_new(kind, num_blocks * block_len, 0), num_blocks, block_len);
}

void node_close(struct node *node)
{
    CHECK_OK(dt_close(node->transport, BOUND_MS));
    node_destroy(node);
}

void node_destroy(struct node *node)
{
    node_destroy_transport(node);
    memory_free(&node->memory);
}

void node_destroy_transport(struct node *node)
{
    forget(node->transport);
    dt_destroy(node->transport);
    node->transport = NULL;
}

struct card node_card(const struct node *node)
{
    struct card card;
    size_t len = 0;
    memset(&card, 0, sizeof card);
    card.base = dt_base_addr(node->transport);
    card.num_blocks = node->num_blocks;
    card.block_len = node->block_len;
    CHECK_OK(dt_get_agent_metadata(node->transport, card.metadata, sizeof card.metadata, &len));
    card.metadata_len = len;
    return card;
}

dt_status node_add(const struct node *node, const char *peer_id, const struct card *card)
{
    return dt_add_remote_peer(node->transport, peer_id, card->metadata, card->metadata_len,
                              card->base, card->num_blocks, card->block_len);
}

void *node_block(const struct node *node, size_t block)
{
    return (unsigned char *)node->memory.base + block * node->block_len;
}

void node_fill(const struct node *node, uint64_t seed)
{
    for (size_t i = 0; i < node->num_blocks; i++)
        pattern_fill(node_block(node, i), node->block_len, seed, i);
}

void node_check(const struct node *node, const struct content *want, const struct content *other)
{
    for (size_t i = 0; i < node->num_blocks; i++) {
        int64_t at = pattern_mismatch_either(node_block(node, i), node->block_len, want[i],
                                             other != NULL ? other[i] : want[i]);
        if (at >= 0)
            test_fail("byte %lld of block %zu (%s) is not block %llu of pattern %llu",
                      (long long)at, i, memory_kind_name(node->memory.kind),
                      (unsigned long long)want[i].block, (unsigned long long)want[i].seed);
    }
}

size_t node_wait(const struct node *node, const char *peer_id, dt_completion *buf, size_t cap)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    size_t count = 0;
    if (!on_nixl()) {
        CHECK_OK(dt_wait(node->transport, peer_id, buf, cap, BOUND_MS, &count));
        return count;
    }
    do {
        CHECK_OK(dt_wait(node->transport, peer_id, buf, cap, 1, &count));
        poll_others(node->transport, true);
    } while (count == 0 && now_ms() < deadline);
    return count;
}

dt_completion node_finish(const struct node *node, const char *peer_id, dt_xfer_id id)
{
    dt_completion done;
    memset(&done, 0, sizeof done);
    if (node_wait(node, peer_id, &done, 1) != 1)
        test_fail("transfer %llu did not end within %d ms", (unsigned long long)id, BOUND_MS);
    CHECK(done.id == id);
    return done;
}

dt_stats node_stats(const struct node *node)
{
    dt_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(dt_get_stats(node->transport, &stats));
    return stats;
}

struct content *contents_of(uint64_t seed, size_t num_blocks)
{
    struct content *contents = calloc(num_blocks, sizeof *contents);
    CHECK(contents != NULL);
    for (size_t i = 0; i < num_blocks; i++)
        contents[i] = (struct content){seed, i};
    return contents;
}

void contents_copy(struct content *contents, const uint32_t *to, uint64_t seed,
                   const uint32_t *from, size_t count)
{
    for (size_t k = 0; k < count; k++)
        contents[to[k]] = (struct content){seed, from[k]};
}
