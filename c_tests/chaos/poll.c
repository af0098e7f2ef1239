/* Asking the library, in each way that there is. */
#include <string.h>

#include "backend.h"
#include "journal.h"
#include "survivor.h"

dt_stats stats_now(void)
{
    dt_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(dt_get_stats(it.transport, &stats));
    if (stats.submitted != stats.done + stats.failed + stats.cancelled + stats.inflight ||
        stats.submitted != it.model.submitted || stats.draining > stats.cancelled)
        test_fail("counters: %llu submitted (expected %llu), %llu done, %llu failed, %llu cancelled, "
                  "%llu in flight, %llu draining",
                  (unsigned long long)stats.submitted, (unsigned long long)it.model.submitted,
                  (unsigned long long)stats.done, (unsigned long long)stats.failed,
                  (unsigned long long)stats.cancelled, (unsigned long long)stats.inflight,
                  (unsigned long long)stats.draining);
    return stats;
}

static void expect_count(const char *what, uint64_t found, uint64_t expected, uint64_t more)
{
    if (found < expected || found > expected + more)
        test_fail("counter %s is %llu, expected %llu to %llu", what, (unsigned long long)found,
                  (unsigned long long)expected, (unsigned long long)(expected + more));
}

/* When all that has ended was reported, every counter is known. */
void stats_check(bool at_rest)
{
    const struct model *model = &it.model;
    dt_stats stats = stats_now();
    expect_count("notifs_received", stats.notifs_received, model->received, 0);
    if (!at_rest)
        return;
    uint64_t most = model->unknown * MOST_BLOCKS * it.block_len;
    expect_count("inflight", stats.inflight, 0, 0);
    expect_count("draining", stats.draining, 0, 0);
    expect_count("done", stats.done, model->done, model->unknown);
    expect_count("failed", stats.failed, model->failed, model->unknown);
    expect_count("cancelled", stats.cancelled, model->cancelled, model->unknown);
    expect_count("bytes_written", stats.bytes_written, model->written, most);
    expect_count("bytes_read", stats.bytes_read, model->read, most);
    expect_count("notifs_sent", stats.notifs_sent, model->sent, 0);
    CHECK(stats.submitted == model->done + model->failed + model->cancelled + model->unknown);
}

static void reported(const dt_completion *got, const char *scope)
{
    struct xfer *xfer = xfer_find(got->user_data);
    if (xfer == NULL || xfer->by_peer || xfer->life != RUNS || xfer->id != got->id ||
        xfer->kind == COPY_POSTED || xfer->epoch != it.epoch)
        test_fail("id %llu of transfer %llu is reported (%s), but %s", (unsigned long long)got->id,
                  (unsigned long long)got->user_data, dt_status_str(got->status),
                  xfer == NULL ? "has ended before" : "must not be");
    if (scope != NULL && strcmp(scope, xfer->scope) != 0)
        test_fail("transfer %llu of %s is reported to a poll of %s",
                  (unsigned long long)got->user_data, xfer->scope, scope);
    CHECK(got->reserved == 0);
    CHECK(got->bytes == (got->status == DT_OK ? (uint64_t)xfer->count * it.block_len : 0));
    xfer_end(xfer, got->status);
}

static void look_at_reads(const struct slot *slot)
{
    for (size_t k = xfer_count; k-- > 0;) {
        struct xfer *xfer = xfers[k];
        dt_xfer_state state = DT_XFER_PROC, again = DT_XFER_PROC;
        if (xfer->slot != slot || xfer->by_peer || xfer->kind != COPY_POSTED || xfer->life != RUNS)
            continue;
        CHECK_OK(dt_check_xfer_state(it.transport, xfer->id, &state));
        if (state == DT_XFER_PROC)
            return; /* those of one peer mostly end in order */
        CHECK_OK(dt_check_xfer_state(it.transport, xfer->id, &again));
        CHECK(state == again);
        CHECK_OK(dt_release_xfer(it.transport, xfer->id));
        CHECK_STATUS(dt_check_xfer_state(it.transport, xfer->id, &again), DT_ERR_NOT_FOUND);
        xfer_end(xfer, state);
    }
}

static void free_ghosts(void)
{
    bool any = false;
    for (size_t k = 0; k < xfer_count; k++)
        any |= xfers[k]->life == GHOST && !xfers[k]->by_peer;
    if (!any || stats_now().draining > 0)
        return;
    for (size_t k = xfer_count; k-- > 0;)
        if (xfers[k]->life == GHOST && !xfers[k]->by_peer)
            xfer_drop(xfers[k]);
}

void xfers_poll(uint64_t *random)
{
    dt_completion got[16];
    struct slot *slot = &it.slot[random_next(random) % it.slots];
    const struct reg *reg = &slot->regs[random_next(random) % 2];
    size_t n = 0, cap = 1 + random_next(random) % 16;
    uint64_t how = random_next(random) % 8;
    /* The name goes away when its last transfer is reported. */
    char scope[NAME_BYTES] = "";
    if (how < 2 && reg->live)
        strcpy(scope, reg->id);
    const char *peer_id = scope[0] != '\0' ? scope : NULL;
    memset(got, 0, sizeof got);
    if (how == 3)
        CHECK_OK(dt_wait(it.transport, peer_id, got, cap, 1, &n));
    else if (how == 4)
        CHECK_OK(dt_poll(it.transport, peer_id, NULL, 0, &n));
    else
        CHECK_OK(dt_poll(it.transport, peer_id, got, cap, &n));
    CHECK(n <= cap && (n < 16 ? got[n].id == 0 : true));
    for (size_t i = 0; i < n; i++)
        reported(&got[i], peer_id);
    look_at_reads(slot);
    free_ghosts();
}
