#include "refused.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend.h"
#include "child.h"
#include "dt_check.h"
#include "dt_time.h"

/* Names of the functions that were called, "dt_poll(" for instance. */
static const char *called[64];
static size_t called_count;

static void expect(const char *call, dt_status got, dt_status status, const char *word)
{
    if (called_count < sizeof called / sizeof *called)
        called[called_count++] = call;
    if (got != status)
        test_fail("%s gives %s, not %s", call, dt_status_str(got), dt_status_str(status));
    if (status != DT_OK && strstr(dt_last_error(), word) == NULL)
        test_fail("%s: there is no \"%s\" in \"%s\"", call, word, dt_last_error());
}

/* What has no transport, or answers all the same. */
static const char *const not_refused[] = {
    "dt_create", "dt_destroy", "dt_base_addr", "dt_num_blocks", "dt_block_len",
    "dt_config_fingerprint", "dt_agent_name", "dt_backend_kind", "dt_compute_fingerprint",
    "dt_fingerprints_compatible", "dt_status_str", "dt_xfer_state_str", "dt_last_error",
    "dt_version", "dt_region_alloc", "dt_region_free", "dt_set_log_callback"};

static bool was_called(const char *name)
{
    for (size_t i = 0; i < called_count; i++)
        if (strncmp(called[i], name, strlen(name)) == 0 && called[i][strlen(name)] == '(')
            return true;
    return false;
}

static bool is_not_refused(const char *name)
{
    for (size_t i = 0; i < sizeof not_refused / sizeof *not_refused; i++)
        if (strcmp(name, not_refused[i]) == 0)
            return true;
    return false;
}

void expect_none_left_out(void)
{
    char name[128];
    size_t count = 0, refused = 0;
    FILE *exports = fopen(DT_TEST_EXPORTS, "re");
    CHECK(exports != NULL);
    while (fscanf(exports, "%127s", name) == 1) {
        if (was_called(name) == is_not_refused(name))
            test_fail("%s: is it refused or not? Say so in refused.c", name);
        count++;
        refused += was_called(name);
    }
    fclose(exports);
    CHECK(count - refused == sizeof not_refused / sizeof *not_refused);
}

void expect_rest_answers(const dt_transport *t, uint64_t base, size_t num_blocks, size_t block_len)
{
    char fingerprint[17];
    void *memory = NULL;
    int32_t fd = -1;
    CHECK(dt_base_addr(t) == base && dt_num_blocks(t) == num_blocks);
    CHECK(dt_block_len(t) == block_len && dt_backend_kind(t) == test_backend());
    CHECK(dt_config_fingerprint(t) != NULL && strlen(dt_agent_name(t)) > 0);
    CHECK_OK(dt_compute_fingerprint("{\"a\":1}", fingerprint));
    CHECK(dt_fingerprints_compatible(fingerprint, fingerprint));
    CHECK(strcmp(dt_status_str(DT_ERR_FORKED), "DT_ERR_FORKED") == 0);
    CHECK(strcmp(dt_xfer_state_str(DT_XFER_DONE), "DONE") == 0);
    CHECK(dt_version() >> 16 == DT_VERSION_MAJOR);
    CHECK_OK(dt_region_alloc(100, &memory, &fd));
    memset(memory, 1, 100);
    dt_region_free(memory, 100, fd);
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
}

void expect_all_refused(dt_transport *t, dt_status status, const char *word)
{
    uint64_t start = now_ms();
    uint8_t bytes[8] = {0}, untouched[8] = {0};
    uint32_t index = 0;
    dt_completion completion;
    dt_xfer_id id = 7, still = 7;
    size_t n = 77;
    dt_stats stats = {.struct_size = sizeof stats, .submitted = 77};
    dt_xfer_state state = 77;
    dt_notif notif = {.msg_len = 77};
    char name[8] = {0};
    bool closed = status == DT_ERR_CLOSED;

#define REFUSED(call) expect(#call, (call), status, word)
    REFUSED(dt_get_agent_metadata(t, bytes, sizeof bytes, &n));
    REFUSED(dt_add_remote_peer(t, "p", bytes, sizeof bytes, 4096, 1, 64));
    REFUSED(dt_remove_remote_peer(t, "p"));
    REFUSED(dt_peer_status(t, "p"));
    REFUSED(dt_write_blocks(t, "p", &index, &index, 1, 0, &id));
    REFUSED(dt_read_blocks(t, "p", &index, &index, 1, 0, &id));
    REFUSED(dt_poll(t, NULL, &completion, 1, &n));
    REFUSED(dt_wait(t, NULL, &completion, 1, BOUND_MS, &n));
    REFUSED(dt_cancel(t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    REFUSED(dt_cancel(t, &id, 1, DT_CANCEL_WAIT, &still, &n));
    REFUSED(dt_get_mem_descriptor(t, bytes, sizeof bytes, &n));
    REFUSED(dt_add_remote_agent(t, bytes, sizeof bytes, bytes, sizeof bytes, name, sizeof name, &n));
    REFUSED(dt_post_read(t, "p", &index, &index, 1, bytes, sizeof bytes, &id));
    REFUSED(dt_check_xfer_state(t, 1, &state));
    REFUSED(dt_release_xfer(t, 1));
    REFUSED(dt_get_new_notifs(t, &notif, 1, bytes, sizeof bytes, &n, &n));
    REFUSED(dt_send_notif(t, "p", bytes, sizeof bytes));
    REFUSED(dt_export_handshake(t, bytes, sizeof bytes, &n));
    REFUSED(dt_import_handshake(t, "p", bytes, sizeof bytes));
    if (!closed)
        REFUSED(dt_close(t, BOUND_MS));
#undef REFUSED
    expect("dt_get_stats(t, &stats)", dt_get_stats(t, &stats), closed ? DT_OK : status, word);
    CHECK(n == 77 && id == 7 && still == 7 && state == 77 && notif.msg_len == 77);
    CHECK(name[0] == '\0');
    CHECK(memcmp(bytes, untouched, sizeof bytes) == 0);
    CHECK(closed || stats.submitted == 77);
    /* None has waited as long as it was allowed to. */
    CHECK(now_ms() - start < BOUND_MS);
}
