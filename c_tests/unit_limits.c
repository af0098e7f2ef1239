/* The smallest and the largest: blocks, regions beyond 4 GiB, names. */
#include <string.h>
#include <sys/mman.h>

#include "memory.h"
#include "pattern.h"
#include "unit_pair.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define LONGEST_NAME 1000

/* ---- a pair over memory that is not touched but where the test says ---- */

static struct side side_over(const struct memory *memory, size_t num_blocks, size_t block_len)
{
    struct side side = {(uint8_t *)memory->base, num_blocks, block_len, NULL};
    dt_options options = test_options();
    options.region_has_fd = memory->fd >= 0;
    options.region_fd = memory->fd;
    CHECK_OK(dt_create(side.base, num_blocks, block_len, &options, &side.t));
    return side;
}

static void close_pair(struct pair *pair)
{
    pair_close_ours(pair);
    CHECK_OK(dt_close(pair->peer.t, BOUND_MS));
    dt_destroy(pair->ours.t);
    dt_destroy(pair->peer.t);
}

static void finish(const struct pair *pair, dt_xfer_id id)
{
    dt_completion done;
    pair_collect(pair, "peer", &done, 1);
    CHECK(done.id == id && done.status == DT_OK);
}

/* ---- small ---- */

static void one_of(size_t num_blocks, size_t block_len)
{
    struct pair pair = pair_open(num_blocks, block_len);
    uint32_t last = (uint32_t)num_blocks - 1;
    dt_xfer_id id = 0;
    pair_fill(&pair, 1);
    side_fill(&pair.ours, 101);
    finish(&pair, pair_write(&pair, 0, last));
    CHECK(side_block_is(&pair.peer, last, 101));
    CHECK(num_blocks == 1 || side_block_is(&pair.peer, 0, 1));
    CHECK_OK(dt_read_blocks(pair.ours.t, "peer", &last, &last, 1, 0, &id));
    finish(&pair, id);
    CHECK(side_block_is(&pair.ours, last, 101));
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", &last, &(uint32_t){last + 1}, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    pair_close(&pair);
}

static void none(void)
{
    static uint8_t memory[64];
    dt_options options = test_options();
    dt_transport *t = NULL;
    CHECK_STATUS(dt_create(memory, 0, 64, &options, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(memory, 64, 0, &options, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(memory, SIZE_MAX, 64, &options, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(memory, 2, SIZE_MAX / 2, &options, &t), DT_ERR_INVALID_ARG);
    CHECK(t == NULL);

    struct pair pair = pair_open(2, 64);
    struct side nothing = {pair.peer.base, 0, 64, pair.peer.t};
    CHECK_STATUS(side_add(&pair.ours, "nothing", &nothing), DT_ERR_INVALID_ARG);
    struct side far = {pair.peer.base, SIZE_MAX / 64, 64, pair.peer.t};
    CHECK_STATUS(side_add(&pair.ours, "far", &far), DT_ERR_INVALID_ARG);
    pair_close(&pair);
}

/* ---- beyond 4 GiB ---- */

/* The blocks around 2 and 4 GiB, and the last: a number of 32 bits anywhere would lead elsewhere. */
static void around_4_gib(void)
{
    enum { BLOCKS = 6 * 1024, COUNT = 9 };
    static const uint32_t at[COUNT] = {0, 1, 2047, 2048, 2049, 4095, 4096, 4097, BLOCKS - 1};
    static const uint32_t to[COUNT] = {4096, 2048, 1, 4097, BLOCKS - 1, 0, 2047, 2049, 4095};
    struct memory ours = memory_new(MEMORY_ALLOC, 6 * GIB, 0);
    struct memory theirs = memory_new(MEMORY_ALLOC, 6 * GIB, 0);
    struct pair pair = {side_over(&ours, BLOCKS, MIB), side_over(&theirs, BLOCKS, MIB)};
    dt_xfer_id id = 0;
    CHECK_OK(side_add(&pair.ours, "peer", &pair.peer));
    for (int i = 0; i < COUNT; i++)
        pattern_fill(pair.ours.base + at[i] * MIB, MIB, 1, at[i]);
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", at, to, COUNT, 0, &id));
    finish(&pair, id);
    for (int i = 0; i < COUNT; i++)
        CHECK(pattern_mismatch(pair.peer.base + to[i] * MIB, MIB, (struct content){1, at[i]}) < 0);
    /* Nothing came to a neighbour. */
    CHECK(pair.peer.base[2 * MIB] == 0 && pair.peer.base[2050 * MIB] == 0 &&
          pair.peer.base[4098 * MIB] == 0);

    for (int i = 0; i < COUNT; i++)
        memset(pair.ours.base + at[i] * MIB, 0, MIB);
    CHECK_OK(dt_read_blocks(pair.ours.t, "peer", at, to, COUNT, 0, &id));
    finish(&pair, id);
    for (int i = 0; i < COUNT; i++)
        CHECK(pattern_mismatch(pair.ours.base + at[i] * MIB, MIB, (struct content){1, at[i]}) < 0);
    close_pair(&pair);
    memory_free(&ours);
    memory_free(&theirs);
}

/* More blocks than an index can name. */
static void more_than_2_to_32(void)
{
    const size_t many = ((size_t)1 << 32) + 10;
    const uint32_t last = UINT32_MAX;
    struct memory ours = memory_new(MEMORY_ALLOC, many, 0);
    struct memory theirs = memory_new(MEMORY_ALLOC, many, 0);
    struct pair pair = {side_over(&ours, many, 1), side_over(&theirs, many, 1)};
    dt_xfer_id id = 0;
    size_t len;
    CHECK_OK(side_add(&pair.ours, "peer", &pair.peer));
    pair.ours.base[last] = 7;
    pair.ours.base[0] = 9;
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", (uint32_t[]){last, 0}, (uint32_t[]){last, 5}, 2,
                             0, &id));
    finish(&pair, id);
    CHECK(pair.peer.base[last] == 7 && pair.peer.base[5] == 9);
    CHECK(pair.peer.base[last - 1] == 0 && pair.peer.base[(size_t)last + 1] == 0);
    CHECK_STATUS(dt_get_mem_descriptor(pair.ours.t, NULL, 0, &len), DT_ERR_INCOMPATIBLE);
    close_pair(&pair);
    memory_free(&ours);
    memory_free(&theirs);
}

/* ---- long lists and names ---- */

/* Each block's entry in the list that dt_get_mem_descriptor makes, in the opposite order. */
static void reverse(uint8_t *list, size_t head, size_t entry, size_t blocks)
{
    uint8_t spare[32];
    CHECK(entry <= sizeof spare);
    for (size_t i = 0, k = blocks - 1; i < k; i++, k--) {
        uint8_t *low = list + head + i * entry, *high = list + head + k * entry;
        memcpy(spare, low, entry);
        memcpy(low, high, entry);
        memcpy(high, spare, entry);
    }
}

/* A list of a million blocks, of which the first and the last are read. */
static void a_long_descriptor(bool reversed)
{
    enum { BLOCKS = 1000000, LEN = 16 };
    struct pair pair = pair_open(BLOCKS, LEN);
    uint8_t metadata[65536];
    char name[LONGEST_NAME + 1];
    size_t len, metadata_len, name_len;
    uint32_t ends[] = {0, BLOCKS - 1};
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &metadata_len));
    CHECK_STATUS(dt_get_mem_descriptor(pair.peer.t, NULL, 0, &len), DT_ERR_BUFFER_TOO_SMALL);
    uint8_t *list = (uint8_t *)malloc(len);
    CHECK(list != NULL);
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list, len, &len));
    CHECK((len - 5) % BLOCKS == 0);
    if (reversed)
        reverse(list, 5, (len - 5) / BLOCKS, BLOCKS);
    CHECK_OK(dt_add_remote_agent(pair.ours.t, metadata, metadata_len, list, len, name, sizeof name,
                                 &name_len));
    free(list);
    memset(pair.peer.base, 71, LEN);
    memset(pair.peer.base + (size_t)(BLOCKS - 1) * LEN, 72, LEN);
    dt_xfer_id id = 0;
    CHECK_OK(dt_post_read(pair.ours.t, name, (uint32_t[]){5, 9}, ends, 2, NULL, 0, &id));
    CHECK(pair_end(&pair, id) == DT_XFER_DONE);
    CHECK(side_block_is(&pair.ours, 5, reversed ? 72 : 71));
    CHECK(side_block_is(&pair.ours, 9, reversed ? 71 : 72));
    pair_close(&pair);
}

/* Names as long as they may be, everywhere. */
static void long_names(void)
{
    enum { LONGEST_MESSAGE = 65536 };
    static char names[2][LONGEST_NAME + 2], peer_id[LONGEST_NAME + 2];
    static uint8_t blob[65536], arena[LONGEST_MESSAGE + LONGEST_NAME + 1], message[LONGEST_MESSAGE];
    dt_options options = test_options();
    struct side sides[2];
    size_t len, count = 0, used;
    dt_notif notif;
    char agent[LONGEST_NAME + 1];
    memset(peer_id, 'p', LONGEST_NAME);
    for (int i = 0; i < 2; i++) {
        memset(names[i], 'a' + i, LONGEST_NAME + 1);
        options.agent_name = names[i];
        dt_transport *t = NULL;
        CHECK_STATUS(dt_create(message, 2, 64, &options, &t), DT_ERR_INVALID_ARG);
        names[i][LONGEST_NAME] = '\0';
        sides[i] = side_open_with(2, 64, options);
        CHECK(strcmp(dt_agent_name(sides[i].t), names[i]) == 0);
    }
    CHECK_OK(dt_export_handshake(sides[1].t, blob, sizeof blob, &len));
    printf("a handshake with the longest name has %zu bytes\n", len);
    CHECK_OK(dt_import_handshake(sides[0].t, peer_id, blob, len));
    CHECK_OK(dt_peer_status(sides[0].t, peer_id));
    peer_id[LONGEST_NAME] = 'p';
    CHECK_STATUS(dt_import_handshake(sides[0].t, peer_id, blob, len), DT_ERR_INVALID_ARG);
    peer_id[LONGEST_NAME] = '\0';

    CHECK_OK(dt_get_agent_metadata(sides[1].t, blob, sizeof blob, &len));
    printf("metadata with the longest name has %zu bytes\n", len);
    uint8_t list[256];
    size_t list_len;
    CHECK_OK(dt_get_mem_descriptor(sides[1].t, list, sizeof list, &list_len));
    CHECK_STATUS(dt_add_remote_agent(sides[0].t, blob, len, list, list_len, agent,
                                     sizeof agent - 1, &used),
                 DT_ERR_BUFFER_TOO_SMALL);
    CHECK(used == LONGEST_NAME + 1);
    CHECK_OK(dt_add_remote_agent(sides[0].t, blob, len, list, list_len, agent, sizeof agent, &used));
    CHECK(strcmp(agent, names[1]) == 0);

    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    pattern_fill(message, sizeof message, 3, 3);
    while ((status = dt_send_notif(sides[0].t, agent, message, sizeof message)) == DT_ERR_BUSY) {
        CHECK(now_ms() < deadline);
        side_drive(&sides[0]);
        side_drive(&sides[1]);
    }
    CHECK_OK(status);
    while (count == 0) {
        CHECK(now_ms() < deadline);
        side_drive(&sides[0]);
        CHECK_OK(dt_get_new_notifs(sides[1].t, &notif, 1, arena, sizeof arena, &count, &used));
    }
    CHECK(used == sizeof arena && strcmp(notif.agent_name, names[0]) == 0);
    CHECK(notif.msg_len == sizeof message && memcmp(notif.msg, message, sizeof message) == 0);
    while ((status = dt_close(sides[0].t, 10)) == DT_ERR_TIMEOUT && now_ms() < deadline)
        side_drive(&sides[1]);
    CHECK_OK(status);
    side_free(&sides[0]);
    side_close(&sides[1]);
}

int main(void)
{
    none();
    one_of(1, 1);
    one_of(1, 4096);
    one_of(1000, 1);
    one_of(1, 64 * MIB + 1);
    around_4_gib();
    more_than_2_to_32();
    a_long_descriptor(false);
    a_long_descriptor(true);
    long_names();
    return 0;
}
