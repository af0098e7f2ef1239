/* Addresses: the same one in two processes, and far ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "node.h"

/* Far from where the system puts anything by itself. */
#define FIXED_ADDRESS 0x210000000000u

/* A peer whose region has the very address of ours is not us, not even under our own name, which NIXL
 * does not take. */
static void same_address_in_both(const char *name)
{
    enum { BLOCKS = 8, LEN = 4096 };
    struct node_spec spec = {.kind = MEMORY_ANONYMOUS, .num_blocks = BLOCKS, .block_len = LEN,
                             .fill_seed = 21, .at = FIXED_ADDRESS};
    if (name != NULL)
        strcpy(spec.name, name);
    struct remote peer = remote_start(&spec);
    dt_options options = DT_OPTIONS_INIT;
    options.agent_name = name;
    struct node node =
        node_open_with(memory_new(MEMORY_ANONYMOUS, (size_t)BLOCKS * LEN, FIXED_ADDRESS), BLOCKS,
                       LEN, options);
    struct content *here = contents_of(20, BLOCKS);
    struct content *there = contents_of(21, BLOCKS);
    uint32_t from[] = {1, 7}, to[] = {6, 0};
    struct card own = node_card(&node);
    dt_xfer_id id = 0;

    CHECK(dt_base_addr(node.transport) == peer.card.base);
    CHECK(name == NULL || strcmp(dt_agent_name(node.transport), name) == 0);
    node_fill(&node, 20);
    if (on_nixl() && name != NULL) {
        CHECK_STATUS(node_add(&node, "peer", &peer.card), DT_ERR_INVALID_ARG);
        remote_check(&peer, there, NULL);
        remote_quit(&peer);
        node_close(&node);
        free(here);
        free(there);
        return;
    }
    CHECK_OK(node_add(&node, "peer", &peer.card));

    CHECK_OK(dt_write_blocks(node.transport, "peer", from, to, 2, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, to, 20, from, 2);
    node_check(&node, here, NULL);
    remote_check(&peer, there, NULL);

    if (!on_nixl()) {
        uint32_t own_from = 2, own_to = 3;
        CHECK_OK(node_add(&node, "self", &own));
        CHECK_OK(dt_write_blocks(node.transport, "self", &own_from, &own_to, 1, 0, &id));
        CHECK(node_finish(&node, "self", id).status == DT_OK);
        contents_copy(here, &own_to, 20, &own_from, 1);
        node_check(&node, here, NULL);
        remote_check(&peer, there, NULL);
    }

    remote_quit(&peer);
    node_close(&node);
    free(here);
    free(there);
    printf("same address in both processes, %s: ok\n", name != NULL ? "same name" : "other name");
}

/* 6 GiB of which only a few blocks are touched; the borders at 2 and 4 GiB are crossed. */
static void beyond_four_gib(enum memory_kind kind)
{
    enum { LEN = 1 << 20 };
    const uint64_t gib = 1u << 30;
    const size_t blocks = 6 * gib / LEN;
    struct node node = node_open(kind, blocks, LEN);
    struct node other = node_open(kind, blocks, LEN);
    struct remote peer = remote_simple(kind, blocks, LEN, 0);
    uint32_t at[] = {2047, 2048, 2049, 4095, 4096, 4097, 6143, 0};
    uint32_t back[] = {4096, 6143, 0, 2048, 4095, 1, 2047, 4097};
    enum { COUNT = sizeof at / sizeof at[0] };
    struct card card = node_card(&other);
    dt_xfer_id id = 0;

    for (int k = 0; k < COUNT; k++)
        pattern_fill(node_block(&node, at[k]), LEN, 30, at[k]);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_OK(dt_write_blocks(node.transport, "peer", at, back, COUNT, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    /* The peer carries it on to our second region: its own far addresses are right too. */
    CHECK_OK(remote_add(&peer, "other", &card, NULL));
    CHECK_OK(remote_copy(&peer, true, "other", back, at, COUNT));
    for (int k = 0; k < COUNT; k++) {
        struct content want = {30, at[k]};
        CHECK(pattern_mismatch(node_block(&other, at[k]), LEN, want) < 0);
    }
    static const char zeros[LEN];
    CHECK(memcmp(node_block(&other, 1), zeros, LEN) == 0);
    CHECK(memcmp(node_block(&other, 2046), zeros, LEN) == 0);
    CHECK(memcmp(node_block(&other, 4098), zeros, LEN) == 0);

    uint32_t beyond = (uint32_t)blocks, zero = 0;
    CHECK_STATUS(dt_write_blocks(node.transport, "peer", &zero, &beyond, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);

    remote_quit(&peer);
    node_close(&node);
    node_close(&other);
    printf("6 GiB of %s: ok\n", memory_kind_name(kind));
}

/* Each side's own number of blocks bounds its own indexes. */
static void different_numbers_of_blocks(void)
{
    struct node node = node_open(MEMORY_ANONYMOUS, 100, 512);
    struct remote peer = remote_simple(MEMORY_ANONYMOUS, 7, 512, 41);
    struct content *there = contents_of(41, 7);
    uint32_t six = 6, seven = 7, last = 99, beyond = 100;
    dt_xfer_id id = 0;

    node_fill(&node, 40);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK_STATUS(dt_write_blocks(node.transport, "peer", &last, &seven, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_STATUS(dt_write_blocks(node.transport, "peer", &beyond, &six, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_STATUS(dt_read_blocks(node.transport, "peer", &last, &seven, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    remote_check(&peer, there, NULL);
    CHECK_OK(dt_write_blocks(node.transport, "peer", &last, &six, 1, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    contents_copy(there, &six, 40, &last, 1);
    remote_check(&peer, there, NULL);

    remote_quit(&peer);
    node_close(&node);
    free(there);
    printf("100 blocks here, 7 there: ok\n");
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    same_address_in_both(NULL);
    same_address_in_both("decode-0");
    different_numbers_of_blocks();
    beyond_four_gib(MEMORY_ALLOC);
    if (memory_kind_matters(MEMORY_ANONYMOUS))
        beyond_four_gib(MEMORY_ANONYMOUS);
    return 0;
}
