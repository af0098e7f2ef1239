/* Under valgrind: the whole life of transports in one process, with what can fail on the way. */
#include <stdlib.h>

#include "dt_time.h"
#include "logbook.h"
#include "node.h"

#define BLOCKS 8
#define LEN 4096

static void refused_calls(const struct node *node)
{
    uint32_t one = 1, beyond = BLOCKS;
    struct card card = node_card(node);
    dt_xfer_id id = 0;
    size_t len = 0;

    CHECK_STATUS(dt_write_blocks(node->transport, "peer", &one, &beyond, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_STATUS(dt_write_blocks(node->transport, "nobody", &one, &one, 1, 0, &id),
                 DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_add_remote_peer(node->transport, "bad", "not metadata", 12, card.base, BLOCKS,
                                    LEN),
                 DT_ERR_INVALID_ARG);
    for (size_t i = 0; i < card.metadata_len; i += 7) {
        card.metadata[i] ^= 0x5a;
        CHECK(node_add(node, "bad", &card) < 0);
        card.metadata[i] ^= 0x5a;
    }
    card.block_len = 2 * LEN;
    CHECK_STATUS(node_add(node, "bad", &card), DT_ERR_INCOMPATIBLE);
    CHECK_STATUS(dt_get_agent_metadata(node->transport, NULL, 0, &len), DT_ERR_BUFFER_TOO_SMALL);
}

static void cycle(enum memory_kind kind, int round)
{
    struct node node = node_open(kind, BLOCKS, LEN);
    struct node other = node_open(kind, BLOCKS, LEN);
    struct card own = node_card(&node), others = node_card(&other);
    struct content *there = contents_of(2, BLOCKS);
    uint32_t from[] = {1, 2, 5}, to[] = {3, 7, 0};
    dt_xfer_id ids[3], still[3];
    dt_completion ended[4];
    size_t n = 0;

    node_fill(&node, 1);
    node_fill(&other, 2);
    CHECK_OK(node_add(&node, "peer", &others));
    CHECK_OK(node_add(&node, "self", &own));
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &ids[0]));
    CHECK(node_finish(&node, "peer", ids[0]).status == DT_OK);
    contents_copy(there, to, 1, from, 3);
    node_check(&other, there, NULL);
    CHECK_OK(dt_read_blocks(node.transport, "peer", from, to, 3, 0, &ids[0]));
    CHECK(node_finish(&node, "peer", ids[0]).status == DT_OK);
    refused_calls(&node);

    /* Cancelled, removed and unreported ones. */
    for (int i = 0; i < 3; i++)
        CHECK_OK(dt_write_blocks(node.transport, "self", from, to, 3, 0, &ids[i]));
    CHECK_OK(dt_cancel(node.transport, ids, 2,
                       round % 2 == 0 ? DT_CANCEL_WAIT : DT_CANCEL_IMMEDIATE, still, &n));
    CHECK_OK(dt_remove_remote_peer(node.transport, "self"));
    CHECK_OK(dt_wait(node.transport, "self", ended, 4, BOUND_MS, &n));
    CHECK(n >= 1);

    /* A peer that closes, is refused, and is replaced. */
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &ids[0]));
    CHECK_OK(dt_close(other.transport, BOUND_MS));
    CHECK_OK(dt_wait(node.transport, "peer", ended, 4, BOUND_MS, &n));
    CHECK(n == 1);
    CHECK(node_add(&node, "peer", &others) < 0);
    CHECK_OK(node_add(&node, "peer", &own));
    node_destroy(&other);

    /* Half of the rounds close, all destroy, with work in flight. */
    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 3, 0, &ids[0]));
    if (round % 2 == 0)
        CHECK_OK(dt_close(node.transport, BOUND_MS));
    node_destroy(&node);
    free(there);
}

static void failing_creations(void)
{
    dt_transport *none = NULL;
    dt_options options = DT_OPTIONS_INIT;
    char block[64];
    char fingerprint[17];
    void *base = NULL;
    int32_t fd = -1;

    options.backend = DT_BACKEND_LOCAL;
    options.config_json = "{\"broken\": ";
    CHECK_STATUS(dt_create(block, 1, sizeof block, &options, &none), DT_ERR_INVALID_ARG);
    options.config_json = NULL;
    options.region_has_fd = true;
    options.region_fd = -1;
    CHECK_STATUS(dt_create(block, 1, sizeof block, &options, &none), DT_ERR_INVALID_ARG);
    options.region_fd = 0; /* not what backs the block */
    CHECK(dt_create(block, 1, sizeof block, &options, &none) < 0);
    CHECK(none == NULL);
    CHECK_OK(dt_compute_fingerprint("{\"a\": [1, 2.5, {\"b\": null}]}", fingerprint));
    CHECK_STATUS(dt_compute_fingerprint("[1]", fingerprint), DT_ERR_INVALID_ARG);
    CHECK(dt_region_alloc(SIZE_MAX, &base, &fd) < 0);
    CHECK_STATUS(dt_region_alloc(0, &base, &fd), DT_ERR_INVALID_ARG);
}

int main(void)
{
    logbook_start();
    failing_creations();
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < MEMORY_KINDS; kind++)
            cycle((enum memory_kind)kind, round);
    logbook_stop();
    return 0;
}
