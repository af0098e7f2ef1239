/* What a careless or hostile caller passes: every pointer NULL or misaligned, sizes that cannot be,
 * unknown enum values, handles that are none. Nothing crashes, nothing is written, nothing is lost. */
#include <string.h>

#include "refused.h"
#include "unit_pair.h"

#define INVALID(call) CHECK_STATUS(call, DT_ERR_INVALID_ARG)

/* A pointer that is not aligned for anything but bytes. */
#define ODD(type, memory) ((type *)(void *)((char *)(memory) + 1))

static struct pair pair;
static uint8_t metadata[65536];
static size_t metadata_len;
static uint8_t handshake[65536];
static size_t handshake_len;
static char long_id[1002];

static void null_handles(void)
{
    /* A handle that was never one, a misaligned one, and none. */
    static const uint64_t garbage[64] = {1, 2, 3};
    dt_transport *const handles[] = {NULL, (dt_transport *)(uintptr_t)garbage,
                                     ODD(dt_transport, (uintptr_t)garbage)};
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        dt_transport *t = handles[i];
        expect_all_refused(t, DT_ERR_INVALID_ARG, "transport");
        CHECK(dt_base_addr(t) == 0);
        CHECK(dt_num_blocks(t) == 0);
        CHECK(dt_block_len(t) == 0);
        CHECK(strcmp(dt_config_fingerprint(t), "") == 0);
        CHECK(strcmp(dt_agent_name(t), "") == 0);
        CHECK(dt_backend_kind(t) == DT_BACKEND_AUTO);
        dt_destroy(t);
    }
}

static void peer_ids(void)
{
    uint32_t index = 0;
    dt_xfer_id id = 7;
    dt_completion completion;
    size_t n = 77;
    const char *const bad[] = {NULL, "", "\xff", "ab\xc3", long_id};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        INVALID(dt_add_remote_peer(pair.ours.t, bad[i], metadata, metadata_len,
                                   dt_base_addr(pair.peer.t), 8, 64));
        INVALID(dt_remove_remote_peer(pair.ours.t, bad[i]));
        INVALID(dt_peer_status(pair.ours.t, bad[i]));
        INVALID(dt_write_blocks(pair.ours.t, bad[i], &index, &index, 1, 0, &id));
        INVALID(dt_read_blocks(pair.ours.t, bad[i], &index, &index, 1, 0, &id));
        if (bad[i] != NULL) { /* NULL means every peer here */
            INVALID(dt_poll(pair.ours.t, bad[i], &completion, 1, &n));
            INVALID(dt_wait(pair.ours.t, bad[i], &completion, 1, 1, &n));
        }
        CHECK(strstr(dt_last_error(), "peer_id") != NULL);
        INVALID(dt_import_handshake(pair.ours.t, bad[i], handshake, handshake_len));
        CHECK(strstr(dt_last_error(), "peer_id") != NULL);
        INVALID(dt_post_read(pair.ours.t, bad[i], &index, &index, 1, "m", 1, &id));
        CHECK(strstr(dt_last_error(), "agent_name") != NULL);
        INVALID(dt_send_notif(pair.ours.t, bad[i], "m", 1));
        CHECK(strstr(dt_last_error(), "agent_name") != NULL);
    }
    CHECK(n == 77 && id == 7);
}

static void adding(void)
{
    uint64_t base = dt_base_addr(pair.peer.t);
    INVALID(dt_add_remote_peer(pair.ours.t, "x", NULL, metadata_len, base, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", NULL, 0, base, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, 0, base, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, SIZE_MAX, base, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, (size_t)PTRDIFF_MAX + 1, base, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, metadata_len, 0, 8, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, metadata_len, base, 0, 64));
    INVALID(dt_add_remote_peer(pair.ours.t, "x", metadata, metadata_len, base, SIZE_MAX, 64));
    CHECK_STATUS(dt_peer_status(pair.ours.t, "x"), DT_ERR_NOT_FOUND);
}

static void submitting(void)
{
    uint32_t idxs[3] = {0, 1, 2};
    dt_xfer_id ids[2] = {7, 7};
    dt_stats before = pair_stats(&pair);
    typedef dt_status submit(dt_transport *, const char *, const uint32_t *, const uint32_t *, size_t,
                             uint64_t, dt_xfer_id *);
    submit *const both[] = {dt_write_blocks, dt_read_blocks};
    for (int i = 0; i < 2; i++) {
        INVALID(both[i](pair.ours.t, "peer", NULL, idxs, 1, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", idxs, NULL, 1, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", idxs, idxs, 1, 0, NULL));
        INVALID(both[i](pair.ours.t, "peer", idxs, idxs, 0, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", NULL, NULL, 0, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", idxs, idxs, SIZE_MAX, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", idxs, idxs, (size_t)PTRDIFF_MAX / 4 + 1, 0, ids));
        CHECK(strstr(dt_last_error(), "count") != NULL);
        INVALID(both[i](pair.ours.t, "peer", ODD(uint32_t, idxs), idxs, 1, 0, ids));
        INVALID(both[i](pair.ours.t, "peer", idxs, ODD(uint32_t, idxs), 1, 0, ids));
        CHECK(strstr(dt_last_error(), "remote_idxs") != NULL);
        INVALID(both[i](pair.ours.t, "peer", idxs, idxs, 1, 0, ODD(dt_xfer_id, ids)));
        CHECK_STATUS(both[i](pair.ours.t, "nobody", idxs, idxs, 1, 0, ids), DT_ERR_NOT_FOUND);
        static const uint32_t beyond[] = {8, 1u << 31, UINT32_MAX};
        for (size_t k = 0; k < sizeof beyond / sizeof *beyond; k++) {
            idxs[2] = beyond[k];
            CHECK_STATUS(both[i](pair.ours.t, "peer", idxs, (uint32_t[]){3, 4, 5}, 3, 0, ids),
                         DT_ERR_OUT_OF_RANGE);
            CHECK(strstr(dt_last_error(), "local_idxs[2]") != NULL);
            CHECK_STATUS(both[i](pair.ours.t, "peer", (uint32_t[]){3, 4, 5}, idxs, 3, 0, ids),
                         DT_ERR_OUT_OF_RANGE);
            CHECK(strstr(dt_last_error(), "remote_idxs[2]") != NULL);
        }
        idxs[2] = 2;
    }
    /* No id, no transfer, no byte. */
    CHECK(ids[0] == 7 && ids[1] == 7);
    CHECK(pair_stats(&pair).submitted == before.submitted);
    for (size_t i = 0; i < pair.ours.num_blocks; i++)
        CHECK(side_block_is(&pair.peer, i, (uint8_t)(i + 1)));
}

/* Bad arguments consume no completion. */
static void reporting(void)
{
    dt_completion completions[2];
    dt_stats stats;
    size_t n[2] = {77, 77};
    dt_xfer_id id = pair_write(&pair, 0, 0);
    do
        pair_poll(&pair);
    while (pair_stats(&pair).done == 0);

    INVALID(dt_poll(pair.ours.t, NULL, NULL, 1, n));
    INVALID(dt_poll(pair.ours.t, NULL, completions, 2, NULL));
    INVALID(dt_poll(pair.ours.t, NULL, NULL, 0, NULL));
    INVALID(dt_poll(pair.ours.t, NULL, completions, 2, ODD(size_t, n)));
    INVALID(dt_poll(pair.ours.t, NULL, ODD(dt_completion, completions), 1, n));
    INVALID(dt_poll(pair.ours.t, NULL, completions, SIZE_MAX, n));
    INVALID(dt_poll(pair.ours.t, NULL, completions, (size_t)PTRDIFF_MAX / 32 + 1, n));
    INVALID(dt_wait(pair.ours.t, NULL, NULL, 1, 1, n));
    INVALID(dt_wait(pair.ours.t, NULL, completions, 2, 1, NULL));
    INVALID(dt_wait(pair.ours.t, NULL, NULL, 0, 1, NULL));
    INVALID(dt_wait(pair.ours.t, NULL, completions, 2, 1, ODD(size_t, n)));
    INVALID(dt_wait(pair.ours.t, NULL, ODD(dt_completion, completions), 1, 1, n));
    INVALID(dt_wait(pair.ours.t, NULL, completions, SIZE_MAX, 1, n));
    CHECK(n[0] == 77);
    CHECK_OK(dt_poll(pair.ours.t, NULL, completions, 2, n));
    CHECK(n[0] == 1 && completions[0].id == id);

    INVALID(dt_get_agent_metadata(pair.ours.t, NULL, 1, n));
    INVALID(dt_get_agent_metadata(pair.ours.t, completions, sizeof completions, NULL));
    INVALID(dt_get_agent_metadata(pair.ours.t, completions, SIZE_MAX, n));
    INVALID(dt_get_agent_metadata(pair.ours.t, completions, sizeof completions, ODD(size_t, n)));
    CHECK(n[0] == 1);

    INVALID(dt_get_stats(pair.ours.t, NULL));
    INVALID(dt_get_stats(pair.ours.t, ODD(dt_stats, &stats)));
}

static void cancelling(void)
{
    dt_xfer_id ids[2] = {1, 2}, still[3] = {7, 7, 7};
    size_t n[2] = {77, 77};
    static const int unknown[] = {-1, 2, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        dt_cancel_mode mode;
        memcpy(&mode, &unknown[i], sizeof mode);
        INVALID(dt_cancel(pair.ours.t, ids, 2, mode, still, n));
        CHECK(strstr(dt_last_error(), "mode") != NULL);
    }
    static const dt_cancel_mode modes[] = {DT_CANCEL_IMMEDIATE, DT_CANCEL_WAIT};
    for (int i = 0; i < 2; i++) {
        INVALID(dt_cancel(pair.ours.t, NULL, 2, modes[i], still, n));
        INVALID(dt_cancel(pair.ours.t, ODD(dt_xfer_id, ids), 1, modes[i], still, n));
        INVALID(dt_cancel(pair.ours.t, ids, 2, modes[i], ODD(dt_xfer_id, still), n));
        INVALID(dt_cancel(pair.ours.t, ids, 2, modes[i], still, ODD(size_t, n)));
        INVALID(dt_cancel(pair.ours.t, ids, SIZE_MAX, modes[i], still, n));
    }
    INVALID(dt_cancel(pair.ours.t, ids, 2, DT_CANCEL_WAIT, NULL, n));
    INVALID(dt_cancel(pair.ours.t, ids, 2, DT_CANCEL_WAIT, still, NULL));
    INVALID(dt_cancel(pair.ours.t, NULL, 0, DT_CANCEL_WAIT, NULL, NULL));
    CHECK(n[0] == 77 && still[0] == 7);
}

static void pulling(void)
{
    uint32_t idxs[3] = {0, 1, 2};
    dt_xfer_id ids[2] = {7, 7};
    dt_xfer_state states[2] = {77, 77};
    dt_stats before = pair_stats(&pair);
    INVALID(dt_post_read(pair.ours.t, "peer", NULL, idxs, 1, "m", 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, NULL, 1, "m", 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, idxs, 1, "m", 1, NULL));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, idxs, 1, NULL, 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, idxs, 1, "m", SIZE_MAX, ids));
    CHECK(strstr(dt_last_error(), "notif_len") != NULL);
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, idxs, SIZE_MAX, "m", 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", ODD(uint32_t, idxs), idxs, 1, "m", 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, ODD(uint32_t, idxs), 1, "m", 1, ids));
    INVALID(dt_post_read(pair.ours.t, "peer", idxs, idxs, 1, "m", 1, ODD(dt_xfer_id, ids)));
    CHECK(ids[0] == 7 && ids[1] == 7 && pair_stats(&pair).submitted == before.submitted);

    CHECK_OK(dt_post_read(pair.ours.t, "peer", idxs, idxs, 1, NULL, 0, ids));
    INVALID(dt_check_xfer_state(pair.ours.t, ids[0], NULL));
    INVALID(dt_check_xfer_state(pair.ours.t, ids[0], ODD(dt_xfer_state, states)));
    CHECK(states[0] == 77 && states[1] == 77);
    CHECK(pair_end(&pair, ids[0]) == DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair.ours.t, ids[0]));
}

static void descriptors_and_blobs(void)
{
    static uint8_t list[4096];
    char name[1001] = "";
    size_t len = 0, n[2] = {77, 77};
    INVALID(dt_get_mem_descriptor(pair.ours.t, NULL, 1, n));
    INVALID(dt_get_mem_descriptor(pair.ours.t, list, sizeof list, NULL));
    INVALID(dt_get_mem_descriptor(pair.ours.t, list, SIZE_MAX, n));
    INVALID(dt_get_mem_descriptor(pair.ours.t, list, sizeof list, ODD(size_t, n)));
    INVALID(dt_export_handshake(pair.ours.t, NULL, 1, n));
    INVALID(dt_export_handshake(pair.ours.t, list, sizeof list, NULL));
    INVALID(dt_export_handshake(pair.ours.t, list, SIZE_MAX, n));
    INVALID(dt_export_handshake(pair.ours.t, list, sizeof list, ODD(size_t, n)));
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, list, sizeof list, &len));

#define ADD(metadata, metadata_len, list, len, name, cap, name_len) \
    INVALID(dt_add_remote_agent(pair.ours.t, metadata, metadata_len, list, len, name, cap, name_len))
    ADD(NULL, metadata_len, list, len, name, sizeof name, n);
    ADD(metadata, 0, list, len, name, sizeof name, n);
    ADD(metadata, SIZE_MAX, list, len, name, sizeof name, n);
    ADD(metadata, metadata_len, NULL, len, name, sizeof name, n);
    ADD(metadata, metadata_len, list, 0, name, sizeof name, n);
    ADD(metadata, metadata_len, list, SIZE_MAX, name, sizeof name, n);
    ADD(metadata, metadata_len, list, len, NULL, 1, n);
    ADD(metadata, metadata_len, list, len, name, SIZE_MAX, n);
    ADD(metadata, metadata_len, list, len, name, sizeof name, NULL);
    ADD(metadata, metadata_len, list, len, name, sizeof name, ODD(size_t, n));
#undef ADD
    CHECK(name[0] == '\0' && n[0] == 77 && n[1] == 77);
    INVALID(dt_import_handshake(pair.ours.t, "x", NULL, handshake_len));
    INVALID(dt_import_handshake(pair.ours.t, "x", NULL, 0));
    INVALID(dt_import_handshake(pair.ours.t, "x", handshake, 0));
    INVALID(dt_import_handshake(pair.ours.t, "x", handshake, SIZE_MAX));
    CHECK_STATUS(dt_peer_status(pair.ours.t, "x"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_peer_status(pair.ours.t, dt_agent_name(pair.peer.t)), DT_ERR_NOT_FOUND);
}

/* Nothing is handed out by a wrong call, nor sent. */
static void messaging(void)
{
    dt_notif notifs[3];
    uint8_t arena[2000], untouched[2000];
    size_t n[2] = {77, 77}, used[2] = {77, 77};
    dt_stats before = pair_stats(&pair);
    memset(arena, 0xee, sizeof arena);
    memcpy(untouched, arena, sizeof arena);
    INVALID(dt_get_new_notifs(pair.ours.t, NULL, 1, arena, sizeof arena, n, used));
    INVALID(dt_get_new_notifs(pair.ours.t, ODD(dt_notif, notifs), 1, arena, sizeof arena, n, used));
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, SIZE_MAX, arena, sizeof arena, n, used));
    CHECK(strstr(dt_last_error(), "cap") != NULL);
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, NULL, 1, n, used));
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, arena, SIZE_MAX, n, used));
    CHECK(strstr(dt_last_error(), "arena_cap") != NULL);
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, arena, sizeof arena, NULL, used));
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, arena, sizeof arena, n, NULL));
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, arena, sizeof arena, ODD(size_t, n), used));
    INVALID(dt_get_new_notifs(pair.ours.t, notifs, 3, arena, sizeof arena, n, ODD(size_t, used)));
    CHECK(n[0] == 77 && used[0] == 77 && memcmp(arena, untouched, sizeof arena) == 0);
    /* An arena need not be aligned. */
    CHECK_OK(dt_get_new_notifs(pair.ours.t, notifs, 3, arena + 1, sizeof arena - 1, n, used));
    CHECK(n[0] == 0 && used[0] == 0);

    INVALID(dt_send_notif(pair.ours.t, "peer", NULL, 1));
    INVALID(dt_send_notif(pair.ours.t, "peer", NULL, 0));
    INVALID(dt_send_notif(pair.ours.t, "peer", "m", 0));
    INVALID(dt_send_notif(pair.ours.t, "peer", "m", SIZE_MAX));
    CHECK_STATUS(dt_send_notif(pair.ours.t, "nobody", "m", 1), DT_ERR_NOT_FOUND);
    CHECK(pair_stats(&pair).notifs_sent == before.notifs_sent);
}

static void the_rest(void)
{
    void *base = NULL;
    int32_t fd = -1;
    char out[17];
    INVALID(dt_region_alloc(4096, NULL, &fd));
    INVALID(dt_region_alloc(4096, &base, NULL));
    INVALID(dt_region_alloc(4096, ODD(void *, &base), &fd));
    INVALID(dt_region_alloc(0, &base, &fd));
    INVALID(dt_region_alloc(SIZE_MAX, &base, &fd));
    CHECK(base == NULL && fd == -1);
    dt_region_free(NULL, 4096, -1);
    INVALID(dt_compute_fingerprint("{}", NULL));
    INVALID(dt_compute_fingerprint("\xff", out));
    CHECK(dt_fingerprints_compatible(NULL, NULL));
    dt_destroy(NULL);
}

int main(void)
{
    memset(long_id, 'p', 1001);
    pair = pair_open(8, 64);
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &metadata_len));
    CHECK_OK(dt_export_handshake(pair.peer.t, handshake, sizeof handshake, &handshake_len));
    null_handles();
    peer_ids();
    adding();
    submitting();
    reporting();
    cancelling();
    pulling();
    descriptors_and_blobs();
    messaging();
    the_rest();

    /* After all that it still works. */
    dt_completion completion;
    dt_xfer_id id = pair_write(&pair, 2, 5);
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(&pair.peer, 5, 3));
    pair_close(&pair);
    return 0;
}
