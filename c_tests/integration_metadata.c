/* What a peer tells about itself is checked: nothing that is wrong in it is taken, none of it does
 * harm, and an honest peer is taken afterwards. NIXL's metadata has no checksum: bytes of it may change
 * and still make sense. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "node.h"

#define BLOCKS 16
#define LEN 4096

static struct node node;

/* Refused, with one line that says why, and nothing left behind. Or taken, and given up. */
static dt_status tried(const struct card *card, const uint8_t *metadata, size_t len)
{
    dt_status status = dt_add_remote_peer(node.transport, "evil", metadata, len, card->base,
                                          card->num_blocks, card->block_len);
    if (status == DT_OK) {
        CHECK_OK(dt_remove_remote_peer(node.transport, "evil"));
        return DT_OK;
    }
    const char *text = dt_last_error();
    CHECK(status < 0 && status != DT_ERR_INTERNAL);
    CHECK(strlen(text) > 0 && strlen(text) < 512 && strchr(text, '\n') == NULL);
    CHECK_STATUS(dt_peer_status(node.transport, "evil"), DT_ERR_NOT_FOUND);
    return status;
}

static dt_status refused(const struct card *card, const uint8_t *metadata, size_t len)
{
    dt_status status = tried(card, metadata, len);
    CHECK(status != DT_OK);
    return status;
}

static void every_byte_changed(const struct card *card)
{
    uint8_t changed[sizeof card->metadata];
    for (size_t i = 0; i < card->metadata_len; i++) {
        static const uint8_t flips[] = {0xff, 0x01, 0x80, 0x10};
        for (size_t k = 0; k < sizeof flips; k++) {
            memcpy(changed, card->metadata, card->metadata_len);
            changed[i] ^= flips[k];
            (on_nixl() ? tried : refused)(card, changed, card->metadata_len);
        }
    }
}

static void every_length(const struct card *card)
{
    for (size_t len = 0; len < card->metadata_len; len++) {
        /* Of its very size, so that reading past the end is seen by memory checkers. */
        uint8_t *cut = malloc(len > 0 ? len : 1);
        CHECK(cut != NULL);
        memcpy(cut, card->metadata, len);
        CHECK(refused(card, cut, len) == DT_ERR_INVALID_ARG);
        free(cut);
    }
    uint8_t longer[sizeof card->metadata];
    memcpy(longer, card->metadata, sizeof longer);
    CHECK(refused(card, longer, card->metadata_len + 1) == DT_ERR_INVALID_ARG);
    CHECK(refused(card, longer, sizeof longer) == DT_ERR_INVALID_ARG);
}

static void noise(const struct card *card)
{
    enum { MOST = 1 << 18 };
    uint64_t random = test_seed();
    uint8_t *bytes = malloc(MOST);
    CHECK(bytes != NULL);
    for (int i = 0; i < 2000; i++) {
        size_t len = random_next(&random) % (i % 20 == 0 ? MOST : 600);
        pattern_fill(bytes, len, random_next(&random), 0);
        /* With an honest beginning, noise comes further. */
        size_t honest = random_next(&random) % card->metadata_len;
        if (i % 2 == 0)
            memcpy(bytes, card->metadata, honest < len ? honest : len);
        (on_nixl() ? tried : refused)(card, bytes, len);
    }
    memset(bytes, 0, MOST);
    refused(card, bytes, MOST);
    free(bytes);
}

/* Honest metadata with a range that does not fit. */
static void wrong_ranges(const struct card *honest)
{
    struct card card = *honest;
#define REFUSED_AS(status) CHECK(refused(&card, card.metadata, card.metadata_len) == (status))
    card.block_len = LEN + 1;
    REFUSED_AS(DT_ERR_INCOMPATIBLE);
    card.block_len = 2 * LEN;
    REFUSED_AS(DT_ERR_INCOMPATIBLE);
    card.block_len = 0;
    CHECK(refused(&card, card.metadata, card.metadata_len) < 0);
    card = *honest;
    card.num_blocks = 0;
    REFUSED_AS(DT_ERR_INVALID_ARG);
    card.num_blocks = BLOCKS + 1;
    REFUSED_AS(DT_ERR_INCOMPATIBLE);
    card = *honest;
    card.base -= 1;
    REFUSED_AS(DT_ERR_INCOMPATIBLE);
    card.base = honest->base + 1;
    REFUSED_AS(DT_ERR_INCOMPATIBLE);
    card.base = 0;
    CHECK(refused(&card, card.metadata, card.metadata_len) < 0);
    card.base = UINT64_MAX - LEN;
    CHECK(refused(&card, card.metadata, card.metadata_len) < 0);
    card = *honest;
    card.num_blocks = UINT64_MAX / LEN;
    CHECK(refused(&card, card.metadata, card.metadata_len) < 0);
    card.num_blocks = UINT64_MAX;
    CHECK(refused(&card, card.metadata, card.metadata_len) < 0);
#undef REFUSED_AS
    /* A part of the region is fine, but it starts where one of its blocks does. NIXL knows no blocks. */
    card = *honest;
    card.num_blocks = BLOCKS - 1;
    card.base += 100;
    CHECK(tried(&card, card.metadata, card.metadata_len) ==
          (on_nixl() ? DT_OK : DT_ERR_INCOMPATIBLE));
    card.base += LEN - 100;
    CHECK_OK(node_add(&node, "part", &card));
    CHECK_OK(dt_remove_remote_peer(node.transport, "part"));
}

/* The metadata of one peer and the address of another. */
static void swapped(const struct card *a, const struct card *b)
{
    struct card card = *a;
    card.base = b->base;
    if (a->base != b->base)
        CHECK(refused(&card, card.metadata, card.metadata_len) == DT_ERR_INCOMPATIBLE);
}

/* NIXL finds out when it tries to reach the peer. */
static void expect_gone(const struct card *card)
{
    if (!on_nixl()) {
        CHECK(refused(card, card->metadata, card->metadata_len) == DT_ERR_PEER_LOST);
        return;
    }
    uint32_t zero = 0;
    dt_xfer_id id = 0;
    dt_status status = node_add(&node, "gone", card);
    if (status != DT_OK) {
        CHECK(status == DT_ERR_INCOMPATIBLE); /* nobody answers at its address */
        return;
    }
    status = dt_write_blocks(node.transport, "gone", &zero, &zero, 1, 0, &id);
    if (status == DT_OK)
        status = node_finish(&node, "gone", id).status;
    CHECK(status == DT_ERR_PEER_LOST);
    CHECK_OK(dt_remove_remote_peer(node.transport, "gone"));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);

    node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    node_fill(&node, 1);
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        struct remote peer = remote_simple(kinds[k], BLOCKS, LEN, 2);
        struct remote other = remote_simple(kinds[k], BLOCKS, LEN, 3);
        struct content *there = contents_of(2, BLOCKS);
        uint32_t from = 4, to = 11;
        dt_xfer_id id = 0;

        every_byte_changed(&peer.card);
        every_length(&peer.card);
        noise(&peer.card);
        wrong_ranges(&peer.card);
        swapped(&peer.card, &other.card);
        CHECK(node_stats(&node).peers == 0);

        CHECK_OK(node_add(&node, "evil", &peer.card));
        CHECK_OK(dt_write_blocks(node.transport, "evil", &from, &to, 1, 0, &id));
        CHECK(node_finish(&node, "evil", id).status == DT_OK);
        contents_copy(there, &to, 1, &from, 1);
        remote_check(&peer, there, NULL);
        CHECK_OK(dt_remove_remote_peer(node.transport, "evil"));

        remote_kill(&other);
        expect_gone(&other.card);
        remote_quit(&peer);
        expect_gone(&peer.card);
        free(there);
    }
    node_close(&node);
    return 0;
}
