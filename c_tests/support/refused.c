#include "refused.h"

#include <string.h>

#include "child.h"
#include "dt_check.h"
#include "dt_time.h"

static void expect(const char *call, dt_status got, dt_status status, const char *word)
{
    if (got != status)
        test_fail("%s gives %s, not %s", call, dt_status_str(got), dt_status_str(status));
    if (status != DT_OK && strstr(dt_last_error(), word) == NULL)
        test_fail("%s: there is no \"%s\" in \"%s\"", call, word, dt_last_error());
}

void expect_all_refused(dt_transport *t, dt_status status, const char *word)
{
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
    expect("dt_get_stats", dt_get_stats(t, &stats), closed ? DT_OK : status, word);
    CHECK(n == 77 && id == 7 && still == 7 && state == 77 && notif.msg_len == 77);
    CHECK(name[0] == '\0');
    CHECK(memcmp(bytes, untouched, sizeof bytes) == 0);
    CHECK(closed || stats.submitted == 77);
}
