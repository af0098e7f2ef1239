/* dt_close while other threads are inside calls of every kind: each of them learns of it, soon, and
 * by DT_ERR_CLOSED alone; and every thread has the sentence of its own failures. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "unit_pair.h"

#define BLOCKS 16
#define LEN 65536

static struct pair pair;
static uint8_t metadata[8192], descriptor[8192], handshake[8192];
static size_t metadata_len, descriptor_len, handshake_len;
static char agent[1024];

struct caller {
    const char *name;
    /* One or a few calls; the status of the first that was refused. */
    dt_status (*call)(struct caller *caller);
    atomic_uint calls;
    pthread_t thread;
};

static const uint32_t low[] = {0, 1, 2, 3}, high[] = {8, 9, 10, 11};

static dt_status call_write(struct caller *caller)
{
    dt_xfer_id id = 0;
    dt_status status = dt_write_blocks(pair.ours.t, "peer", low, high, 4, caller->calls, &id);
    return status != DT_OK ? status
                           : dt_cancel(pair.ours.t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL);
}

static dt_status call_read(struct caller *caller)
{
    dt_xfer_id id = 0, still = 0;
    size_t n = 0;
    dt_status status = dt_read_blocks(pair.ours.t, "peer", high, low, 4, caller->calls, &id);
    return status != DT_OK ? status : dt_cancel(pair.ours.t, &id, 1, DT_CANCEL_WAIT, &still, &n);
}

static dt_status call_poll(struct caller *caller)
{
    dt_completion ended[4];
    size_t n;
    (void)caller;
    return dt_poll(pair.ours.t, NULL, ended, 4, &n);
}

static dt_status call_wait(struct caller *caller)
{
    dt_completion ended[4];
    size_t n;
    (void)caller;
    return dt_wait(pair.ours.t, "nobody", ended, 4, 10 * BOUND_MS, &n);
}

static dt_status call_pull(struct caller *caller)
{
    dt_xfer_id id = 0;
    dt_xfer_state state = 0;
    const char message[] = "have read";
    (void)caller;
    dt_status status = dt_post_read(pair.ours.t, "peer", high, low, 4, message, sizeof message, &id);
    if (status == DT_OK)
        status = dt_check_xfer_state(pair.ours.t, id, &state);
    return status != DT_OK ? status : dt_release_xfer(pair.ours.t, id);
}

static dt_status call_messages(struct caller *caller)
{
    static _Thread_local char arena[65536];
    dt_notif notifs[4];
    size_t n, used;
    dt_status status = dt_send_notif(pair.ours.t, "peer", "hello", 5);
    (void)caller;
    /* The peer takes nothing out. */
    if (status != DT_OK && status != DT_ERR_BUSY && status != DT_ERR_NO_MEMORY)
        return status;
    return dt_get_new_notifs(pair.ours.t, notifs, 4, arena, sizeof arena, &n, &used);
}

static dt_status call_add(struct caller *caller)
{
    (void)caller;
    dt_status status = dt_import_handshake(pair.ours.t, "added", handshake, handshake_len);
    if (status == DT_OK)
        status = dt_remove_remote_peer(pair.ours.t, "added");
    /* UCX keeps something of each. */
    if (on_nixl())
        usleep(20000);
    return status;
}

static dt_status call_add_others(struct caller *caller)
{
    size_t n;
    (void)caller;
    dt_status status = dt_add_remote_peer(pair.ours.t, "other", metadata, metadata_len,
                                          dt_base_addr(pair.peer.t), BLOCKS, LEN);
    if (status == DT_OK)
        status = dt_add_remote_agent(pair.ours.t, metadata, metadata_len, descriptor,
                                     descriptor_len, agent, sizeof agent, &n);
    if (on_nixl())
        usleep(20000);
    return status;
}

static dt_status call_questions(struct caller *caller)
{
    uint8_t bytes[8192];
    size_t n;
    (void)caller;
    dt_status status = dt_peer_status(pair.ours.t, "peer");
    if (status == DT_OK)
        status = dt_get_agent_metadata(pair.ours.t, bytes, sizeof bytes, &n);
    if (status == DT_OK)
        status = dt_get_mem_descriptor(pair.ours.t, bytes, sizeof bytes, &n);
    if (status == DT_OK)
        status = dt_export_handshake(pair.ours.t, bytes, sizeof bytes, &n);
    dt_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(dt_get_stats(pair.ours.t, &stats));
    CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled + stats.inflight);
    CHECK(dt_num_blocks(pair.ours.t) == BLOCKS);
    return status;
}

/* Fails all the time, each thread in its own way. */
static dt_status call_wrongly(struct caller *caller)
{
    char name[64];
    snprintf(name, sizeof name, "nobody-%u-%p", (unsigned)caller->calls, (void *)caller);
    dt_status status = dt_peer_status(pair.ours.t, name);
    if (status == DT_ERR_CLOSED)
        return status;
    CHECK(status == DT_ERR_NOT_FOUND);
    sched_yield();
    CHECK(strstr(dt_last_error(), name) != NULL);
    return DT_OK;
}

static void *keep_calling(void *arg)
{
    struct caller *caller = arg;
    dt_status status;
    while ((status = caller->call(caller)) == DT_OK)
        caller->calls++;
    if (status != DT_ERR_CLOSED) {
        fprintf(stderr, "%s: %s\n", caller->name, dt_last_error());
        exit(1);
    }
    CHECK(strstr(dt_last_error(), "closed") != NULL);
    return NULL;
}

static atomic_bool stop;

static void *drive_peer(void *unused)
{
    (void)unused;
    while (!stop) {
        side_drive(&pair.peer);
        sched_yield();
    }
    return NULL;
}

static void *close_it(void *t)
{
    CHECK_OK(dt_close(t, BOUND_MS));
    return NULL;
}

#define CALLER(call) {#call, call, 0, 0}

static void round_of_all(void)
{
    struct caller callers[] = {CALLER(call_write),     CALLER(call_read),      CALLER(call_poll),
                               CALLER(call_wait),      CALLER(call_pull),      CALLER(call_messages),
                               CALLER(call_add),       CALLER(call_add_others), CALLER(call_questions),
                               CALLER(call_wrongly),   CALLER(call_wrongly),   CALLER(call_wrongly)};
    const size_t count = sizeof callers / sizeof *callers;
    pthread_t driver, closers[2];
    size_t n;
    pair = pair_open(BLOCKS, LEN);
    CHECK_OK(dt_get_agent_metadata(pair.peer.t, metadata, sizeof metadata, &metadata_len));
    CHECK_OK(dt_get_mem_descriptor(pair.peer.t, descriptor, sizeof descriptor, &descriptor_len));
    CHECK_OK(dt_export_handshake(pair.peer.t, handshake, sizeof handshake, &handshake_len));
    stop = false;
    CHECK(pthread_create(&driver, NULL, drive_peer, NULL) == 0);
    uint64_t polls = pair_stats(&pair).polls;
    for (size_t i = 0; i < count; i++)
        CHECK(pthread_create(&callers[i].thread, NULL, keep_calling, &callers[i]) == 0);
    /* All are at it. The one in dt_wait is inside its first call. */
    for (size_t i = 0; i < count; i++)
        for (uint64_t deadline = now_ms() + BOUND_MS;
             callers[i].call == call_wait ? pair_stats(&pair).polls == polls : callers[i].calls < 3;
             sched_yield())
            CHECK(now_ms() < deadline);

    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&closers[i], NULL, close_it, pair.ours.t) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(closers[i], NULL) == 0);
    /* From here on the memory is ours, whatever the others had submitted. */
    side_fill(&pair.ours, 100);
    for (size_t i = 0; i < count; i++)
        CHECK(pthread_join(callers[i].thread, NULL) == 0);
    CHECK_STATUS(dt_poll(pair.ours.t, NULL, NULL, 0, &n), DT_ERR_CLOSED);
    dt_stats stats = pair_stats(&pair);
    CHECK(stats.inflight == 0 && stats.draining == 0 && stats.peers == 0);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK(side_block_is(&pair.ours, i, (uint8_t)(100 + i)));
    stop = true;
    CHECK(pthread_join(driver, NULL) == 0);
    /* Nothing has come to the peer but what was ours before; what was given up may be there in part. */
    for (size_t i = 0; i < (size_t)BLOCKS * LEN; i++) {
        size_t own = 1 + i / LEN, written = own - 8;
        CHECK(pair.peer.base[i] == own || (own > 8 && pair.peer.base[i] == written));
    }
    side_free(&pair.ours);
    side_close(&pair.peer);
}

int main(void)
{
    for (int round = 0; round < (on_nixl() ? 5 : 20); round++)
        round_of_all();
    return 0;
}
