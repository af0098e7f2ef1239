/* Cancelling and removing: what the source holds afterwards never lands, and every id ends once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dt_time.h"
#include "node.h"

#define BLOCKS 128
#define LEN 65536

static uint32_t all_blocks[BLOCKS];

struct pair {
    struct node node;
    struct remote peer;
    struct content *old_bytes, *new_bytes;
};

static struct pair pair_new(enum memory_kind kind)
{
    struct pair pair = {node_open(MEMORY_ANONYMOUS, BLOCKS, LEN),
                        remote_simple(kind, BLOCKS, LEN, 2), contents_of(2, BLOCKS),
                        contents_of(1, BLOCKS)};
    node_fill(&pair.node, 1);
    CHECK_OK(node_add(&pair.node, "peer", &pair.peer.card));
    return pair;
}

static void pair_free(struct pair *pair)
{
    remote_quit(&pair->peer);
    node_close(&pair->node);
    free(pair->old_bytes);
    free(pair->new_bytes);
}

static dt_xfer_id write_all(const struct node *node)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(node->transport, "peer", all_blocks, all_blocks, BLOCKS, 0, &id));
    return id;
}

static void poll_some(const struct node *node, int times)
{
    size_t n = 0;
    while (times-- > 0)
        CHECK_OK(dt_poll(node->transport, NULL, NULL, 0, &n));
}

/* Cancels at different points of the way; then scribbles over the source. The target holds bytes
 * from before and bytes of the source, and none of the scribble. */
static void cancel_then_scribble(struct pair *pair, dt_cancel_mode mode)
{
    for (int polls = 0; polls < 20; polls++) {
        dt_xfer_id ids[3], still[3];
        dt_completion ended[8];
        size_t still_count = 99, n = 0;

        for (int i = 0; i < 3; i++)
            ids[i] = write_all(&pair->node);
        poll_some(&pair->node, polls);
        CHECK_OK(dt_cancel(pair->node.transport, ids, 3, mode, still, &still_count));
        CHECK(still_count <= (mode == DT_CANCEL_WAIT ? 3 : 0));
        /* What is still in flight surfaces once; the others never. */
        for (size_t left = still_count; left > 0; left -= n) {
            CHECK_OK(dt_wait(pair->node.transport, "peer", ended, 8, BOUND_MS, &n));
            CHECK(n > 0 && n <= left);
        }
        uint64_t deadline = now_ms() + BOUND_MS;
        while (node_stats(&pair->node).draining > 0) {
            CHECK(now_ms() < deadline);
            poll_some(&pair->node, 1);
        }
        memset(pair->node.memory.base, 0xa5, pair->node.memory.bytes);
        poll_some(&pair->node, 50);
        CHECK_OK(dt_poll(pair->node.transport, NULL, ended, 8, &n));
        CHECK(n == 0);
        remote_check(&pair->peer, pair->new_bytes, pair->old_bytes);
        CHECK(node_stats(&pair->node).inflight == 0);

        /* Cancelling again, or what was never there, is nothing. */
        dt_xfer_id nobody[] = {ids[0], ids[0], 0, 1u << 30};
        CHECK_OK(dt_cancel(pair->node.transport, nobody, 4, mode, still, &still_count));
        CHECK(still_count == 0);

        /* The peer is as good as before. */
        node_fill(&pair->node, 1);
        CHECK(node_finish(&pair->node, "peer", write_all(&pair->node)).status == DT_OK);
        remote_check(&pair->peer, pair->new_bytes, NULL);
        remote_fill(&pair->peer, 2);
    }
}

struct surfaced {
    dt_xfer_id id;
    dt_status status;
};

static size_t drain(const struct node *node, const char *scope, struct surfaced *out, size_t want)
{
    size_t have = 0, n = 0;
    while (have < want) {
        dt_completion ended;
        CHECK_OK(dt_wait(node->transport, scope, &ended, 1, BOUND_MS, &n));
        CHECK(n == 1);
        for (size_t i = 0; i < have; i++)
            CHECK(out[i].id != ended.id);
        out[have++] = (struct surfaced){ended.id, ended.status};
    }
    CHECK_OK(dt_poll(node->transport, scope, NULL, 0, &n));
    return have;
}

/* Removing a peer with ids that nobody has asked for yet: each surfaces once, under the old peer id
 * or to a poll of all, also when that peer id is in use again. */
static void remove_with_unreported_ids(struct pair *pair, bool again, const char *scope)
{
    const uint64_t before = node_stats(&pair->node).done;
    struct surfaced got[5];
    dt_xfer_id ids[5];
    uint32_t one = 7;
    dt_completion ended[8];
    size_t n = 0;

    /* Two small ones that end, and three large ones that do not. */
    for (int i = 0; i < 2; i++)
        CHECK_OK(dt_write_blocks(pair->node.transport, "peer", &one, &one, 1, 0, &ids[i]));
    uint64_t deadline = now_ms() + BOUND_MS;
    while (node_stats(&pair->node).done < before + 2) {
        CHECK(now_ms() < deadline);
        poll_some(&pair->node, 1);
    }
    for (int i = 2; i < 5; i++)
        ids[i] = write_all(&pair->node);
    CHECK_OK(dt_remove_remote_peer(pair->node.transport, "peer"));
    CHECK_STATUS(dt_remove_remote_peer(pair->node.transport, "peer"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_peer_status(pair->node.transport, "peer"), DT_ERR_NOT_FOUND);
    dt_xfer_id id = 0;
    CHECK_STATUS(dt_write_blocks(pair->node.transport, "peer", &one, &one, 1, 0, &id),
                 DT_ERR_NOT_FOUND);
    if (again)
        CHECK_OK(node_add(&pair->node, "peer", &pair->peer.card));

    CHECK(drain(&pair->node, scope, got, 5) == 5);
    for (int i = 0; i < 5; i++) {
        size_t k = 0;
        while (k < 5 && got[k].id != ids[i])
            k++;
        CHECK(k < 5);
        /* An outcome that was known is not changed. */
        CHECK(got[k].status == DT_OK || (i >= 2 && got[k].status == DT_ERR_CANCELLED));
    }
    CHECK_OK(dt_poll(pair->node.transport, NULL, ended, 8, &n));
    CHECK(n == 0);

    memset(pair->node.memory.base, 0xa5, pair->node.memory.bytes);
    poll_some(&pair->node, 50);
    remote_check(&pair->peer, pair->new_bytes, pair->old_bytes);
    node_fill(&pair->node, 1);
    if (!again)
        CHECK_OK(node_add(&pair->node, "peer", &pair->peer.card));
    CHECK(node_finish(&pair->node, "peer", write_all(&pair->node)).status == DT_OK);
    remote_check(&pair->peer, pair->new_bytes, NULL);
    remote_fill(&pair->peer, 2);
}

/* Adding over a registration with work in flight is a removal and an addition. */
static void replace_with_work_in_flight(enum memory_kind kind)
{
    struct pair pair = pair_new(kind);
    struct remote other = remote_simple(kind, BLOCKS, LEN, 2);
    dt_xfer_id old_id = write_all(&pair.node);
    CHECK_OK(node_add(&pair.node, "peer", &other.card));
    dt_xfer_id new_id = write_all(&pair.node);
    struct surfaced got[2];
    drain(&pair.node, "peer", got, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(got[i].id == old_id || got[i].id == new_id);
        CHECK(got[i].status == (got[i].id == new_id ? DT_OK : DT_ERR_CANCELLED));
    }
    remote_check(&other, pair.new_bytes, NULL);
    remote_check(&pair.peer, pair.new_bytes, pair.old_bytes);
    remote_quit(&other);
    pair_free(&pair);
}

/* The same blocks are sent to one peer and filled from another at once, and the two are given up in
 * either order: neither takes the other with it. */
static void both_directions(struct pair *pair, struct remote *source, dt_cancel_mode mode,
                            bool reads_first)
{
    struct content *others = contents_of(3, BLOCKS);
    for (int polls = 0; polls < 6; polls += 2) {
        dt_xfer_id ids[2], still = 0, other = 0;
        size_t still_count = 99, left = 0, n = 0;

        ids[reads_first] = write_all(&pair->node);
        CHECK_OK(dt_read_blocks(pair->node.transport, "source", all_blocks, all_blocks, BLOCKS, 0,
                                &ids[!reads_first]));
        poll_some(&pair->node, polls);
        CHECK_OK(dt_cancel(pair->node.transport, &ids[0], 1, mode, &still, &still_count));
        left = still_count;
        if (left > 0)
            CHECK(still == ids[0]);
        /* The second is there still, whatever has become of the first. */
        CHECK_OK(dt_cancel(pair->node.transport, &ids[1], 1, mode, &other, &still_count));
        left += still_count;
        for (; left > 0; left -= n) {
            dt_completion ended[2];
            n = node_wait(&pair->node, NULL, ended, 2);
            CHECK(n > 0 && n <= left);
            for (size_t k = 0; k < n; k++) {
                CHECK(ended[k].id == still || ended[k].id == other);
                CHECK(ended[k].status == DT_OK || ended[k].status == DT_ERR_CANCELLED);
            }
        }
        uint64_t deadline = now_ms() + BOUND_MS;
        while (node_stats(&pair->node).draining > 0) {
            CHECK(now_ms() < deadline);
            poll_some(&pair->node, 1);
        }
        CHECK(node_stats(&pair->node).inflight == 0);
        node_check(&pair->node, pair->new_bytes, others);
        remote_check(source, others, NULL);
        /* Both go on. */
        CHECK_OK(dt_read_blocks(pair->node.transport, "source", all_blocks, all_blocks, BLOCKS, 0,
                                &ids[0]));
        CHECK(node_finish(&pair->node, "source", ids[0]).status == DT_OK);
        node_check(&pair->node, others, NULL);
        CHECK(node_finish(&pair->node, "peer", write_all(&pair->node)).status == DT_OK);
        remote_check(&pair->peer, others, NULL);
        node_fill(&pair->node, 1);
    }
    free(others);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);

    for (uint32_t i = 0; i < BLOCKS; i++)
        all_blocks[i] = i;
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        /* Processes need their time; each of these leaves them as it has found them. */
        struct pair pair = pair_new(kinds[k]);
        struct remote source = remote_simple(kinds[k], BLOCKS, LEN, 3);
        CHECK_OK(node_add(&pair.node, "source", &source.card));
        cancel_then_scribble(&pair, DT_CANCEL_IMMEDIATE);
        cancel_then_scribble(&pair, DT_CANCEL_WAIT);
        remove_with_unreported_ids(&pair, false, "peer");
        remove_with_unreported_ids(&pair, true, "peer");
        remove_with_unreported_ids(&pair, false, NULL);
        remove_with_unreported_ids(&pair, true, NULL);
        for (int order = 0; order < 2; order++) {
            both_directions(&pair, &source, DT_CANCEL_IMMEDIATE, order);
            both_directions(&pair, &source, DT_CANCEL_WAIT, order);
        }
        remote_quit(&source);
        pair_free(&pair);
        replace_with_work_in_flight(kinds[k]);
    }
    return 0;
}
