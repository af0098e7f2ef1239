/* What a call is given is the caller's again when the call returns: here it is unmapped in the next
 * line, while what the call has started goes on. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit_pair.h"

enum { BLOCKS = 64, LEN = 1 << 16, TIMES = 4 };

/* A copy of `bytes` that ends where its pages end. */
static void *lend(const void *bytes, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (len + page - 1) / page * page;
    char *at = (char *)mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return memcpy(at + room - len, bytes, len);
}

static void take_back(void *lent, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)lent & ~(page - 1);
    CHECK(munmap((void *)start, (uintptr_t)lent + len - start) == 0);
}

#define LEND(array) lend(array, sizeof array)
#define TAKE_BACK(lent, array) take_back(lent, sizeof array)

static uint32_t local[BLOCKS / 2], remote[BLOCKS / 2];

/* The even blocks of one side and the odd ones of the other: no two can be merged. */
static void choose(uint32_t shift)
{
    for (uint32_t k = 0; k < BLOCKS / 2; k++) {
        local[k] = 2 * k;
        remote[k] = (2 * k + shift) % BLOCKS;
    }
}

typedef dt_status submit(dt_transport *, const char *, const uint32_t *, const uint32_t *, size_t,
                         uint64_t, dt_xfer_id *);

static void submissions(const struct pair *pair, submit *how)
{
    static const char name[] = "peer";
    dt_xfer_id ids[TIMES];
    dt_completion ended[TIMES];
    for (size_t i = 0; i < TIMES; i++) {
        choose(2 * (uint32_t)i + 1);
        char *peer_id = (char *)LEND(name);
        uint32_t *from = (uint32_t *)LEND(local), *to = (uint32_t *)LEND(remote);
        CHECK_OK(how(pair->ours.t, peer_id, from, to, BLOCKS / 2, i, &ids[i]));
        TAKE_BACK(peer_id, name);
        TAKE_BACK(from, local);
        TAKE_BACK(to, remote);
    }
    pair_collect(pair, "peer", ended, TIMES);
    for (size_t i = 0; i < TIMES; i++)
        CHECK(ended[i].status == DT_OK && ended[i].bytes == (uint64_t)BLOCKS / 2 * LEN);
}

/* The last transfer has the last word on each block. */
static void check_bytes(const struct side *written, uint8_t seed, const uint32_t *to,
                        const uint32_t *from)
{
    for (size_t k = 0; k < BLOCKS / 2; k++)
        CHECK(side_block_is(written, to[k], (uint8_t)(seed + from[k])));
}

static void reads_with_messages(const struct pair *pair)
{
    static const char name[] = "peer", text[] = "these blocks are free";
    dt_xfer_id ids[TIMES];
    for (size_t i = 0; i < TIMES; i++) {
        choose(2 * (uint32_t)i + 1);
        char *peer_id = (char *)LEND(name), *message = (char *)LEND(text);
        uint32_t *to = (uint32_t *)LEND(local), *from = (uint32_t *)LEND(remote);
        CHECK_OK(dt_post_read(pair->ours.t, peer_id, to, from, BLOCKS / 2, message, sizeof text,
                              &ids[i]));
        TAKE_BACK(peer_id, name);
        TAKE_BACK(message, text);
        TAKE_BACK(to, local);
        TAKE_BACK(from, remote);
    }
    for (size_t i = 0; i < TIMES; i++) {
        CHECK(pair_end(pair, ids[i]) == DT_XFER_DONE);
        CHECK_OK(dt_release_xfer(pair->ours.t, ids[i]));
    }
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t have = 0; have < TIMES;) {
        static uint8_t arena[4096];
        dt_notif notifs[TIMES];
        size_t n = 0, used = 0;
        CHECK(now_ms() < deadline);
        side_drive(&pair->ours);
        CHECK_OK(dt_get_new_notifs(pair->peer.t, notifs, TIMES, arena, sizeof arena, &n, &used));
        for (size_t k = 0; k < n; k++)
            CHECK(notifs[k].msg_len == sizeof text && memcmp(notifs[k].msg, text, sizeof text) == 0);
        have += n;
    }
}

/* Options, names, metadata, descriptors and handshakes are copied as well. */
static void peers(void)
{
    static const char ours_name[] = "the one", peer_id_text[] = "peer";
    static uint8_t metadata[65536], list[65536], blob[65536];
    size_t metadata_len = 0, list_len = 0, blob_len = 0;
    char agent[1001];
    struct pair pair;

    dt_options options = test_options();
    char *name = (char *)LEND(ours_name), *config = (char *)LEND("{\"model\": 1}");
    options.agent_name = name;
    options.config_json = config;
    dt_options *lent = (dt_options *)lend(&options, sizeof options);
    pair.ours = (struct side){(uint8_t *)calloc(BLOCKS, LEN), BLOCKS, LEN, NULL};
    CHECK_OK(dt_create(pair.ours.base, BLOCKS, LEN, lent, &pair.ours.t));
    take_back(lent, sizeof options);
    TAKE_BACK(name, ours_name);
    take_back(config, sizeof "{\"model\": 1}");
    CHECK(strcmp(dt_agent_name(pair.ours.t), ours_name) == 0);

    pair.peer = side_open(BLOCKS, LEN);
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &metadata_len));
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list, sizeof list, &list_len));
    CHECK_OK(dt_export_handshake(pair.peer.t, blob, sizeof blob, &blob_len));

    for (int way = 0; way < 3; way++) {
        char *peer_id = (char *)LEND(peer_id_text);
        void *lent_metadata = lend(metadata, metadata_len), *lent_list = lend(list, list_len);
        void *lent_blob = lend(blob, blob_len);
        size_t agent_len = 0;
        if (way == 0)
            CHECK_OK(dt_add_remote_peer(pair.ours.t, peer_id, lent_metadata, metadata_len,
                                        dt_base_addr(pair.peer.t), BLOCKS, LEN));
        else if (way == 1)
            CHECK_OK(dt_import_handshake(pair.ours.t, peer_id, lent_blob, blob_len));
        else
            CHECK_OK(dt_add_remote_agent(pair.ours.t, lent_metadata, metadata_len, lent_list,
                                         list_len, agent, sizeof agent, &agent_len));
        TAKE_BACK(peer_id, peer_id_text);
        take_back(lent_metadata, metadata_len);
        take_back(lent_list, list_len);
        take_back(lent_blob, blob_len);

        uint32_t block = (uint32_t)way;
        dt_xfer_id id = 0;
        dt_completion done;
        const char *known_as = way == 2 ? agent : "peer";
        CHECK_OK(dt_read_blocks(pair.ours.t, known_as, &block, &block, 1, 0, &id));
        pair_collect(&pair, known_as, &done, 1);
        CHECK(done.status == DT_OK && side_block_is(&pair.ours, block, (uint8_t)(1 + way)));
        CHECK_OK(dt_remove_remote_peer(pair.ours.t, known_as));
    }
    pair_close(&pair);
}

int main(void)
{
    struct pair pair = pair_open(BLOCKS, LEN);
    pair_fill(&pair, 1);
    side_fill(&pair.ours, 101);
    submissions(&pair, dt_write_blocks);
    check_bytes(&pair.peer, 101, remote, local);
    pair_fill(&pair, 1);
    side_fill(&pair.peer, 101);
    submissions(&pair, dt_read_blocks);
    check_bytes(&pair.ours, 101, local, remote);
    pair_fill(&pair, 1);
    side_fill(&pair.peer, 51);
    reads_with_messages(&pair);
    check_bytes(&pair.ours, 51, local, remote);
    pair_close(&pair);
    peers();
    return 0;
}
