/* dt_get_mem_descriptor and dt_add_remote_agent: the bytes, lists of every kind made by hand, and what
 * is refused. */
#include <string.h>

#include "descriptor.h"
#include "memory.h"
#include "unit_pair.h"

/* ---- what is exported ---- */

/* The size alone, too little room, just enough, more than enough: as with all buffers. */
static void exported(const struct side *side, const uint8_t *want, size_t want_len)
{
    uint8_t *got = (uint8_t *)malloc(want_len + 1);
    size_t len = 77;
    CHECK(got != NULL);
    memset(got, 0xee, want_len + 1);
    CHECK_STATUS(dt_get_mem_descriptor(side->t, NULL, 0, &len), DT_ERR_BUFFER_TOO_SMALL);
    CHECK(len == want_len);
    len = 77;
    CHECK_STATUS(dt_get_mem_descriptor(side->t, got, want_len - 1, &len), DT_ERR_BUFFER_TOO_SMALL);
    CHECK(len == want_len && strstr(dt_last_error(), "cap") != NULL);
    for (size_t i = 0; i <= want_len; i++)
        CHECK(got[i] == 0xee);
    for (size_t more = 0; more < 2; more++) {
        len = 77;
        CHECK_OK(dt_get_mem_descriptor(side->t, got, want_len + more, &len));
        CHECK(len == want_len && memcmp(got, want, want_len) == 0 && got[want_len] == 0xee);
    }
    free(got);
}

/* msgspec's bytes for regions at these addresses, which are as good as any others. */
static void golden(void)
{
    static const struct {
        uint64_t at;
        size_t blocks, len;
        const char *bytes;
        size_t size;
    } all[] = {
        {0x7f1200000000, 1, 64, "\x91\x93\xcf\0\0\x7f\x12\0\0\0\0\x40\0", 13},
        {0x10000000, 1, 65536, "\x91\x93\xce\x10\0\0\0\xce\0\x01\0\0\0", 13},
        {0xfffff000, 2, 4096,
         "\x92\x93\xce\xff\xff\xf0\0\xcd\x10\0\0\x93\xcf\0\0\0\x01\0\0\0\0\xcd\x10\0\0", 25},
        {0x7f1200000000, 2, 255, "\x92\x93\xcf\0\0\x7f\x12\0\0\0\0\xcc\xff\0\x93\xcf\0\0\x7f\x12\0\0\0\xff"
         "\xcc\xff\0", 27},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
#ifdef DT_SANITIZED
        /* A sanitizer has low addresses for itself, and the heap at the high ones. */
        continue;
#endif
        struct memory memory = memory_new(MEMORY_ANONYMOUS, all[i].blocks * all[i].len, all[i].at);
        dt_options options = test_options();
        struct side side = {(uint8_t *)memory.base, all[i].blocks, all[i].len, NULL};
        CHECK_OK(dt_create(side.base, side.num_blocks, side.block_len, &options, &side.t));
        exported(&side, (const uint8_t *)all[i].bytes, all[i].size);
        CHECK_OK(dt_close(side.t, BOUND_MS));
        dt_destroy(side.t);
        memory_free(&memory);
    }
}

/* Around every change of a form, at addresses above 2^32 as those of the heap are. */
static void sizes(void)
{
    static const struct {
        size_t blocks, len, size;
    } all[] = {
        {1, 64, 13},          {15, 64, 181},      {16, 64, 195},        {255, 4096, 3573},
        {256, 4096, 3587},    {10000, 4096, 140003}, {256, 65536, 4099}, {65535, 64, 786423},
        {65536, 64, 786437},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct memory memory = memory_new(MEMORY_ANONYMOUS, all[i].blocks * all[i].len, 0);
        struct list want = list_new(1 << 20);
        dt_options options = test_options();
        struct side side = {(uint8_t *)memory.base, all[i].blocks, all[i].len, NULL};
        CHECK((uintptr_t)memory.base > UINT32_MAX);
        CHECK_OK(dt_create(side.base, side.num_blocks, side.block_len, &options, &side.t));
        list_put_count(&want, side.num_blocks);
        for (size_t k = 0; k < side.num_blocks; k++)
            list_put_row(&want, (uintptr_t)memory.base + k * side.block_len, side.block_len, 0);
        CHECK(want.len == all[i].size);
        exported(&side, want.bytes, want.len);
        free(want.bytes);
        CHECK_OK(dt_close(side.t, BOUND_MS));
        dt_destroy(side.t);
        memory_free(&memory);
    }
}

/* ---- what is taken ---- */

#define NUM 64
#define LEN 256

static struct pair pair;
static uint8_t metadata[65536];
static size_t metadata_len;

static dt_status add(const void *bytes, size_t len)
{
    char name[1001];
    size_t name_len = 77;
    dt_status status = dt_add_remote_agent(pair.ours.t, metadata, metadata_len, bytes, len, name,
                                           sizeof name, &name_len);
    if (status == DT_OK) {
        CHECK(strcmp(name, dt_agent_name(pair.peer.t)) == 0);
        CHECK(name_len == strlen(name) + 1);
    } else {
        CHECK(name_len == 77);
    }
    return status;
}

static uint64_t block_at(size_t block)
{
    return dt_base_addr(pair.peer.t) + block * LEN;
}

/* Takes the list, whose entry k lies `offsets[k]` bytes behind block 0 there, and reads all of it. */
static void taken(const struct list *list, const size_t *offsets, size_t count)
{
    const char *name = dt_agent_name(pair.peer.t);
    uint32_t here[NUM], there[NUM];
    dt_xfer_id id = 0;
    CHECK(count <= NUM);
    side_fill(&pair.ours, 1);
    for (size_t i = 0; i < NUM * LEN; i++)
        pair.peer.base[i] = (uint8_t)(i * 7 + i / LEN);
    CHECK_OK(add(list->bytes, list->len));
    CHECK_OK(dt_peer_status(pair.ours.t, name));
    for (uint32_t k = 0; k < count; k++) {
        here[k] = (uint32_t)count - 1 - k;
        there[k] = k;
    }
    CHECK_OK(dt_post_read(pair.ours.t, name, here, there, count, NULL, 0, &id));
    CHECK(pair_end(&pair, id) == DT_XFER_DONE);
    for (size_t k = 0; k < count; k++)
        CHECK(memcmp(pair.ours.base + here[k] * LEN, pair.peer.base + offsets[k], LEN) == 0);
    CHECK_OK(dt_release_xfer(pair.ours.t, id));
    there[0] = (uint32_t)count;
    CHECK_STATUS(dt_post_read(pair.ours.t, name, here, there, 1, NULL, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_OK(dt_remove_remote_peer(pair.ours.t, name));
}

static void own_list(void)
{
    struct list list = list_new(4096);
    size_t offsets[NUM];
    for (size_t k = 0; k < NUM; k++)
        offsets[k] = k * LEN;
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list.bytes, list.cap, &list.len));
    taken(&list, offsets, NUM);
    free(list.bytes);
}

/* Blocks in any order, with gaps, unaligned, overlapping, and the same ones again. */
static void any_list(void)
{
    enum { KINDS = 5 };
    for (int kind = 0; kind < KINDS; kind++) {
        struct list list = list_new(4096);
        size_t offsets[NUM], count = kind == 1 ? 15 : NUM / 2;
        for (size_t k = 0; k < count; k++) {
            size_t of[KINDS] = {(NUM - 1 - k) * LEN, 2 * k * LEN, k * 37 % NUM * LEN, k * LEN + 1 + k,
                                k % 3 * LEN};
            offsets[k] = of[kind];
        }
        list_put_count(&list, count);
        for (size_t k = 0; k < count; k++)
            list_put_row(&list, block_at(0) + offsets[k], LEN, 0);
        taken(&list, offsets, count);
        free(list.bytes);
    }
}

/* Other programs may write a number longer than it need be, or as a signed one. */
static void any_form(void)
{
    struct list list = list_new(4096);
    size_t offsets[4];
    list_put_long(&list, 0xdd, 4, 4);
    for (size_t k = 0; k < 4; k++) {
        static const unsigned markers[4][2] = {{0xcf, 8}, {0xd3, 8}, {0xce, 4}, {0xd1, 2}};
        offsets[k] = (k * 5 + 1) * LEN;
        if (k % 2 == 0)
            list_put_long(&list, 0xdc, 2, 3);
        else
            list_put_long(&list, 0xdd, 4, 3);
        list_put_long(&list, k % 2 == 0 ? 0xcf : 0xd3, 8, block_at(0) + offsets[k]);
        list_put_long(&list, markers[k][0], (int)markers[k][1], LEN);
        list_put_long(&list, k == 0 ? 0xd0 : markers[k][0], k == 0 ? 1 : (int)markers[k][1], 0);
    }
    taken(&list, offsets, 4);
    free(list.bytes);
}

/* ---- what is refused ---- */

/* Nothing of it stays. */
static void refused(const void *bytes, size_t len, dt_status status, const char *word)
{
    /* Of just this size, so that a look beyond it would be seen. */
    uint8_t *copy = (uint8_t *)malloc(len > 0 ? len : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, len);
    CHECK_STATUS(add(copy, len), status);
    if (strstr(dt_last_error(), word) == NULL) {
        fprintf(stderr, "there is no \"%s\" in: %s\n", word, dt_last_error());
        exit(1);
    }
    CHECK_STATUS(dt_peer_status(pair.ours.t, dt_agent_name(pair.peer.t)), DT_ERR_NOT_FOUND);
    CHECK(pair_stats(&pair).peers == 0);
    free(copy);
}

static void not_a_list(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *word;
    } all[] = {
        {"", 0, "cut short"},
        {"\xc0", 1, "array"},                                  /* nil */
        {"\x81\x01\x02", 3, "array"},                          /* a map */
        {"\xc4\x01\x00", 3, "array"},                          /* bytes */
        {"\xa1" "a", 2, "array"},                              /* a string */
        {"\x07", 1, "array"},                                  /* a number */
        {"\xc1", 1, "array"},                                  /* never used */
        {"\x90", 1, "no block"},                               /* no entry */
        {"\x91\xc0\xc0\xc0\xc0", 5, "block 0"},                /* an entry that is none */
        {"\x91\x07\x00\x00\x00", 5, "block 0"},
        {"\x91\x92\x01\x02\x00", 5, "array of 2"},
        {"\x91\x94\x01\x02\x00\x00", 6, "array of 4"},
        {"\x91\x93\xff\x40\x00", 5, "-1"},                     /* a negative address */
        {"\x91\x93\xcb\x40\x50\0\0\0\0\0\0\x40\0", 13, "address"}, /* a float */
        {"\x91\x93\xa1" "0\x40\x00", 6, "address"},            /* a string */
        {"\x91\x93\xc3\x40\x00", 5, "address"},                /* true */
        {"\x91\x93\x01\xc0\x00", 5, "length"},
        {"\xdd\xff\xff\xff\xff", 5, "4294967295"},             /* what it says is not there */
        {"\xdc\xff\xff\x93\x01\x02\x03", 7, "65535"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refused(all[i].bytes, all[i].len, DT_ERR_INVALID_ARG, all[i].word);
}

/* The right list, but for one entry in the middle. */
static void one_bad(uint64_t address, uint64_t len, uint64_t device, dt_status status,
                    const char *word)
{
    struct list list = list_new(4096);
    list_put_count(&list, 20);
    for (size_t k = 0; k < 20; k++) {
        if (k == 13)
            list_put_row(&list, address, len, device);
        else
            list_put_row(&list, block_at(k), LEN, 0);
    }
    refused(list.bytes, list.len, status, word);
    free(list.bytes);
}

static void bad_blocks(void)
{
    one_bad(0, LEN, 0, DT_ERR_INVALID_ARG, "block 13");
    one_bad(UINT64_MAX, LEN, 0, DT_ERR_INVALID_ARG, "block 13");
    one_bad(UINT64_MAX - LEN + 1, LEN, 0, DT_ERR_INVALID_ARG, "block 13"); /* ends at 2^64 */
    one_bad(block_at(13), LEN - 1, 0, DT_ERR_INCOMPATIBLE, "length of block 13 is 255");
    one_bad(block_at(13), 0, 0, DT_ERR_INCOMPATIBLE, "length of block 13 is 0");
    one_bad(block_at(13), UINT64_C(1) << 63, 0, DT_ERR_INCOMPATIBLE, "length of block 13");
    one_bad(block_at(13), LEN, 1, DT_ERR_INCOMPATIBLE, "device id of block 13 is 1");
    /* Memory that nobody has offered. */
    one_bad(block_at(NUM), LEN, 0, DT_ERR_INCOMPATIBLE, "");
    one_bad(block_at(NUM - 1) + 1, LEN, 0, DT_ERR_INCOMPATIBLE, "");
    one_bad(block_at(0) - 1, LEN, 0, DT_ERR_INCOMPATIBLE, "");
    one_bad(1, LEN, 0, DT_ERR_INCOMPATIBLE, "");
    one_bad(UINT64_MAX - LEN, LEN, 0, DT_ERR_INCOMPATIBLE, "");
}

static void cut_and_continued(void)
{
    struct list list = list_new(4096);
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list.bytes, list.cap, &list.len));
    for (size_t len = 0; len < list.len; len++)
        refused(list.bytes, len, DT_ERR_INVALID_ARG, "");
    list_put(&list, 0);
    refused(list.bytes, list.len, DT_ERR_INVALID_ARG, "goes on for 1 bytes");
    free(list.bytes);
}

static void bad_metadata(void)
{
    struct list list = list_new(4096);
    char name[64];
    size_t len = 77;
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list.bytes, list.cap, &list.len));
    CHECK_STATUS(dt_add_remote_agent(pair.ours.t, "garbage", 7, list.bytes, list.len, name,
                                     sizeof name, &len),
                 DT_ERR_INVALID_ARG);
    for (size_t cut = 0; cut < metadata_len; cut++)
        CHECK_STATUS(dt_add_remote_agent(pair.ours.t, metadata, cut, list.bytes, list.len, name,
                                         sizeof name, &len),
                     DT_ERR_INVALID_ARG);
    CHECK(len == 77 && pair_stats(&pair).peers == 0);
    free(list.bytes);
}

/* The name is told whole, or the agent is not known. */
static void the_name(void)
{
    const char *want = dt_agent_name(pair.peer.t);
    size_t all = strlen(want) + 1, len = 77;
    struct list list = list_new(4096);
    char name[1001];
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list.bytes, list.cap, &list.len));
    for (size_t cap = 0; cap < all; cap++) {
        memset(name, 'x', sizeof name);
        len = 77;
        CHECK_STATUS(dt_add_remote_agent(pair.ours.t, metadata, metadata_len, list.bytes, list.len,
                                         cap == 0 ? NULL : name, cap, &len),
                     DT_ERR_BUFFER_TOO_SMALL);
        CHECK(len == all && name[0] == 'x' && strstr(dt_last_error(), "name_cap") != NULL);
        CHECK_STATUS(dt_peer_status(pair.ours.t, want), DT_ERR_NOT_FOUND);
    }
    CHECK(pair_stats(&pair).peers == 0);
    CHECK_OK(dt_add_remote_agent(pair.ours.t, metadata, metadata_len, list.bytes, list.len, name,
                                 all, &len));
    CHECK(len == all && strcmp(name, want) == 0 && name[all] == 'x');

    /* It is a peer id like any other. */
    dt_completion completion;
    dt_xfer_id id = 0;
    CHECK_OK(dt_peer_status(pair.ours.t, name));
    side_fill(&pair.ours, 1);
    CHECK_OK(dt_write_blocks(pair.ours.t, name, (uint32_t[]){2}, (uint32_t[]){5}, 1, 0, &id));
    pair_collect(&pair, name, &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(&pair.peer, 5, 3));

    /* Known again, it is another list that counts; refused, the old one stays. */
    list.len = 0;
    list_put_count(&list, 1);
    list_put_row(&list, block_at(3), LEN, 0);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = add(list.bytes, list.len)) == DT_ERR_BUSY && now_ms() < deadline)
        pair_poll(&pair);
    CHECK_OK(status);
    CHECK(pair_stats(&pair).peers == 1);
    CHECK_STATUS(add("\x90", 1), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, name, (uint32_t[]){2}, (uint32_t[]){5}, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_OK(dt_write_blocks(pair.ours.t, name, (uint32_t[]){8}, (uint32_t[]){0}, 1, 0, &id));
    pair_collect(&pair, name, &completion, 1);
    CHECK(completion.status == DT_OK && side_block_is(&pair.peer, 3, 9));
    CHECK_OK(dt_remove_remote_peer(pair.ours.t, name));
    free(list.bytes);
}

int main(void)
{
    golden();
    sizes();

    pair.ours = side_open(NUM, LEN);
    dt_options options = test_options();
    options.agent_name = "encoder / caf\xc3\xa9";
    pair.peer = side_open_with(NUM, LEN, options);
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &metadata_len));
    own_list();
    any_list();
    any_form();
    not_a_list();
    bad_blocks();
    cut_and_continued();
    bad_metadata();
    the_name();
    own_list();
    pair_close(&pair);
    return 0;
}
