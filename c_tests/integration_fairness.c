/* One process pushes 1 GiB (with NIXL 256 MiB) to one peer and small transfers to another at the same
 * time: the small ones end while the large one runs, and no byte goes astray. They are not so small
 * that they would be copied when they are submitted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define LEN 65536
#define MOST_BLOCKS 16384
#define SMALL_BLOCKS 128
#define SMALL_TRANSFERS 32
#define EACH (SMALL_BLOCKS / SMALL_TRANSFERS)

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    const uint32_t large_blocks = on_nixl() ? MOST_BLOCKS / 4 : MOST_BLOCKS;
    struct node node = node_open(MEMORY_ALLOC, large_blocks, LEN);
    struct remote large = remote_simple(MEMORY_ALLOC, large_blocks, LEN, 5);
    struct remote small = remote_simple(MEMORY_ANONYMOUS, SMALL_BLOCKS, LEN, 6);
    struct content *in_large = contents_of(5, large_blocks);
    struct content *in_small = contents_of(6, SMALL_BLOCKS);
    uint32_t *from = malloc(large_blocks * sizeof *from);
    uint32_t *to = malloc(large_blocks * sizeof *to);
    uint64_t random = test_seed(), slowest = 0;
    dt_xfer_id large_id = 0;
    size_t count = 0;
    dt_completion done;

    node_fill(&node, 4);
    random_permutation(from, large_blocks, &random);
    random_permutation(to, large_blocks, &random);
    CHECK_OK(node_add(&node, "large", &large.card));
    CHECK_OK(node_add(&node, "small", &small.card));
    CHECK_OK(dt_write_blocks(node.transport, "large", from, to, large_blocks, 1, &large_id));

    for (uint32_t i = 0; i < SMALL_TRANSFERS; i++) {
        uint32_t places[EACH];
        dt_xfer_id id = 0;
        for (uint32_t k = 0; k < EACH; k++)
            places[k] = k * SMALL_TRANSFERS + i;
        uint64_t start = now_ns();
        CHECK_OK(dt_write_blocks(node.transport, "small", &from[i * EACH], places, EACH, 2, &id));
        CHECK(node_finish(&node, "small", id).status == DT_OK);
        uint64_t took = now_ns() - start;
        slowest = took > slowest ? took : slowest;
        contents_copy(in_small, places, 4, &from[i * EACH], EACH);
    }
    CHECK_OK(dt_poll(node.transport, "large", &done, 1, &count));
    CHECK(count == 0 && node_stats(&node).inflight == 1);
    remote_check(&small, in_small, NULL);

    done = node_finish(&node, "large", large_id);
    CHECK(done.status == DT_OK && done.bytes == (uint64_t)large_blocks * LEN);
    contents_copy(in_large, to, 4, from, large_blocks);
    remote_check(&large, in_large, NULL);
    printf("%d transfers of %d KiB beside the large one: the slowest took %" PRIu64 " us\n",
           SMALL_TRANSFERS, EACH * LEN / 1024, slowest / 1000);

    remote_quit(&large);
    remote_quit(&small);
    node_close(&node);
    free(in_large);
    free(in_small);
    free(from);
    free(to);
    return 0;
}
