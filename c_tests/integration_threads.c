/* Everything at once on one transport, each thread in its own way: push, poll, cancel, pull, messages,
 * adding and removing, questions, failures, the log. Meanwhile a peer is killed and comes back. Every
 * id ends once, over all threads; every message comes once and in order; and bytes are checked. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define LEN 16384
#define SHARE 8 /* blocks that a thread has for itself */
#define BLOCKS (5 * SHARE)
#define MOST 400000

/* What is known of the transfer whose user_data is the index. */
struct track {
    _Atomic uint64_t id;
    _Atomic int reports;
    _Atomic dt_status status;
    _Atomic uint64_t dropped_ns; /* when a call had returned by which it is none, or dropped */
};

static struct track tracks[MOST];
static _Atomic uint64_t track_count, read_back, pulled, cancelled, lost, received, adds, logged;
static struct node node, other;
static struct remote steady, victim;
static atomic_bool stop, stop_polling;

/* ---- push: who submits is not who polls ---- */

static void report(uint64_t start, const dt_completion *ended, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct track *track = &tracks[ended[i].user_data];
        CHECK(ended[i].user_data < track_count);
        track->status = ended[i].status;
        /* The submitter may not know the id yet. */
        uint64_t unknown = 0;
        if (!atomic_compare_exchange_strong(&track->id, &unknown, ended[i].id))
            CHECK(unknown == ended[i].id);
        CHECK(atomic_fetch_add(&track->reports, 1) == 0);
        uint64_t dropped = track->dropped_ns;
        CHECK(dropped == 0 || start <= dropped);
    }
}

static void *poll_all(void *waits)
{
    while (!stop_polling) {
        dt_completion ended[16];
        size_t n = 0;
        uint64_t start = now_ns();
        if (waits != NULL)
            CHECK_OK(dt_wait(node.transport, NULL, ended, 16, 1, &n));
        else
            CHECK_OK(dt_poll(node.transport, NULL, ended, 16, &n));
        report(start, ended, n);
    }
    return NULL;
}

static dt_status submit(bool write, const char *peer_id, const uint32_t *local,
                        const uint32_t *remote, uint64_t *k)
{
    dt_xfer_id id = 0;
    uint64_t unknown = 0;
    *k = atomic_fetch_add(&track_count, 1);
    if (*k >= MOST)
        test_fail("more transfers than this test keeps track of");
    dt_status status = (write ? dt_write_blocks : dt_read_blocks)(node.transport, peer_id, local,
                                                                  remote, SHARE, *k, &id);
    if (status != DT_OK) {
        tracks[*k].dropped_ns = now_ns();
        return status;
    }
    if (!atomic_compare_exchange_strong(&tracks[*k].id, &unknown, id))
        CHECK(unknown == id);
    return DT_OK;
}

static dt_status outcome(uint64_t k)
{
    for (uint64_t deadline = now_ms() + BOUND_MS; tracks[k].reports == 0; sched_yield())
        CHECK(now_ms() < deadline);
    return tracks[k].status;
}

static void share(uint32_t *idxs, uint32_t first)
{
    for (uint32_t i = 0; i < SHARE; i++)
        idxs[i] = first + i;
}

static void fill(uint32_t first, uint64_t seed)
{
    for (uint32_t i = 0; i < SHARE; i++)
        pattern_fill(node_block(&node, first + i), LEN, seed, first + i);
}

/* Writes its share there, makes it another, and reads it back. `arg` is where its share begins. */
static void *push(void *arg)
{
    uint32_t first = *(uint32_t *)arg, idxs[SHARE];
    share(idxs, first);
    for (uint64_t seed = 1; !stop; seed++) {
        uint64_t k;
        fill(first, seed);
        CHECK_OK(submit(true, "steady", idxs, idxs, &k));
        CHECK_OK(outcome(k));
        fill(first, seed + 1);
        CHECK_OK(submit(false, "steady", idxs, idxs, &k));
        CHECK_OK(outcome(k));
        for (uint32_t i = first; i < first + SHARE; i++)
            CHECK(pattern_mismatch(node_block(&node, i), LEN, (struct content){seed, i}) < 0);
        read_back++;
    }
    return NULL;
}

/* To a peer that comes and goes, and with second thoughts. */
static void *push_and_cancel(void *arg)
{
    uint32_t first = *(uint32_t *)arg, idxs[SHARE];
    uint64_t random = test_seed();
    share(idxs, first);
    /* The others may be slow, and have enough room after it. */
    while (!stop && track_count < MOST / 2) {
        uint64_t ks[8];
        dt_xfer_id ids[8], still[8];
        size_t count = 0, still_count = 0;
        for (int i = 0; i < 8; i++) {
            dt_status status = submit(true, i % 2 == 0 ? "victim" : "steady", idxs, idxs, &ks[count]);
            if (status == DT_OK)
                ids[count] = tracks[ks[count]].id, count++;
            else if (status != DT_ERR_PEER_LOST && status != DT_ERR_BACKEND)
                test_fail("a write for the victim: %s: %s", dt_status_str(status), dt_last_error());
        }
        bool wait = random_next(&random) % 2 == 0;
        spin_ns(random_next(&random) % 200000);
        CHECK_OK(dt_cancel(node.transport, ids, count, wait ? DT_CANCEL_WAIT : DT_CANCEL_IMMEDIATE,
                           still, &still_count));
        uint64_t returned = now_ns();
        for (size_t i = 0; i < count; i++) {
            bool stays = false;
            for (size_t s = 0; s < still_count; s++)
                stays = stays || still[s] == ids[i];
            if (!stays)
                tracks[ks[i]].dropped_ns = returned;
            else if (outcome(ks[i]) != DT_OK)
                lost++;
        }
        cancelled += count - still_count;
        /* What was dropped IMMEDIATEly drains; a bound for how much of that there can be. */
        for (uint64_t end = now_ms() + BOUND_MS; node_stats(&node).draining > 64; sched_yield())
            CHECK(now_ms() < end);
    }
    return NULL;
}

/* ---- pull and messages, with a second transport of this process ---- */

static void *pull(void *arg)
{
    uint32_t first = *(uint32_t *)arg, idxs[SHARE];
    share(idxs, first);
    for (uint64_t number = 0; !stop; number++) {
        dt_xfer_id id = 0;
        dt_xfer_state state = DT_XFER_PROC;
        fill(first, 5);
        CHECK_OK(dt_post_read(node.transport, "other", idxs, idxs, SHARE, &number, sizeof number,
                              &id));
        for (uint64_t deadline = now_ms() + BOUND_MS; state == DT_XFER_PROC;) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_check_xfer_state(node.transport, id, &state));
        }
        CHECK(state == DT_XFER_DONE);
        CHECK_OK(dt_release_xfer(node.transport, id));
        CHECK_STATUS(dt_check_xfer_state(node.transport, id, &state), DT_ERR_NOT_FOUND);
        for (uint32_t i = first; i < first + SHARE; i++)
            CHECK(pattern_mismatch(node_block(&node, i), LEN, (struct content){6, i}) < 0);
        pulled++;
    }
    return NULL;
}

/* Takes what has come, which must be the numbers from *next on. */
static void take_numbers(dt_transport *t, uint64_t *next)
{
    dt_notif notifs[16];
    uint64_t number;
    char arena[4096];
    size_t n = 0, used = 0;
    CHECK_OK(dt_get_new_notifs(t, notifs, 16, arena, sizeof arena, &n, &used));
    for (size_t i = 0; i < n; i++) {
        CHECK(notifs[i].msg_len == sizeof number);
        memcpy(&number, notifs[i].msg, sizeof number);
        CHECK(number == *next);
        ++*next;
    }
}

static _Atomic uint64_t at_other, sent;

/* The other transport is one thread's: it takes the messages of the reads, and sends its own. */
static void *run_other(void *unused)
{
    uint64_t next = 0;
    (void)unused;
    while (!stop_polling) {
        uint64_t number = sent;
        take_numbers(other.transport, &next);
        at_other = next;
        if (stop || number > received + 100)
            continue;
        dt_status status = dt_send_notif(other.transport, "us", &number, sizeof number);
        CHECK(status == DT_OK || status == DT_ERR_BUSY || status == DT_ERR_NO_MEMORY);
        sent += status == DT_OK;
    }
    return NULL;
}

static void *receive(void *unused)
{
    uint64_t next = 0;
    (void)unused;
    while (!stop_polling) {
        take_numbers(node.transport, &next);
        received = next;
    }
    return NULL;
}

/* ---- the rest ---- */

static void *add_and_remove(void *unused)
{
    uint8_t blob[8192];
    size_t len = 0;
    (void)unused;
    CHECK_OK(dt_export_handshake(other.transport, blob, sizeof blob, &len));
    while (!stop) {
        CHECK_OK(dt_import_handshake(node.transport, "extra", blob, len));
        CHECK_OK(dt_peer_status(node.transport, "extra"));
        CHECK_OK(dt_remove_remote_peer(node.transport, "extra"));
        adds++;
        /* UCX keeps something of each. */
        if (on_nixl())
            usleep(20000);
    }
    return NULL;
}

static void *ask_and_fail(void *arg)
{
    for (uint64_t round = 0; !stop; round++) {
        char name[64];
        dt_xfer_state state;
        dt_stats stats = node_stats(&node);
        CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled + stats.inflight);
        CHECK(stats.draining <= stats.cancelled);
        snprintf(name, sizeof name, "nobody %p %llu", arg, (unsigned long long)round);
        CHECK_STATUS(dt_remove_remote_peer(node.transport, name), DT_ERR_NOT_FOUND);
        sched_yield();
        CHECK(strstr(dt_last_error(), name) != NULL);
        CHECK_STATUS(dt_check_xfer_state(node.transport, UINT64_MAX, &state), DT_ERR_NOT_FOUND);
        CHECK(strstr(dt_last_error(), name) == NULL);
    }
    return NULL;
}

static void note(dt_log_level level, const char *message, void *user)
{
    CHECK(level <= DT_LOG_DEBUG && strlen(message) > 0);
    ++*(_Atomic uint64_t *)user;
}

static void *change_the_log(void *unused)
{
    (void)unused;
    for (int round = 0; !stop; round++) {
        dt_set_log_callback(round % 3 == 0 ? NULL : note, &logged,
                            round % 2 == 0 ? DT_LOG_DEBUG : DT_LOG_WARN);
        usleep(500);
    }
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
    return NULL;
}

static void victim_returns(void)
{
    victim = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 2);
    CHECK_OK(node_add(&node, "victim", &victim.card));
}

static uint64_t at_most(uint64_t count, uint64_t most)
{
    return count < most ? count : most;
}

/* How much of what is asked for has been done; all of it: `whole`. */
static uint64_t progress(uint64_t *whole)
{
    uint64_t least = on_nixl() ? 20 : 100;
    *whole = 5 * least + least / 4;
    return at_most(read_back, least) + at_most(pulled, least) + at_most(cancelled, least) +
           at_most(received, least) + at_most(logged, least) + at_most(adds, least / 4);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static uint32_t firsts[] = {0, SHARE, 2 * SHARE, 3 * SHARE};
    const struct {
        void *(*run)(void *);
        void *arg;
    } jobs[] = {{push, &firsts[0]},      {push, &firsts[1]},    {push_and_cancel, &firsts[2]},
                {pull, &firsts[3]},      {add_and_remove, NULL},
                {ask_and_fail, &firsts[0]}, {ask_and_fail, &firsts[1]}, {change_the_log, NULL}};
    const size_t job_count = sizeof jobs / sizeof *jobs;
    pthread_t pollers[4], threads[sizeof jobs / sizeof *jobs];
    child_main(argc, argv, roles);
    test_seed();

    node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    other = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    steady = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 2);
    node_fill(&other, 6);
    struct card ours = node_card(&node), theirs = node_card(&other);
    CHECK_OK(node_add(&node, "steady", &steady.card));
    CHECK_OK(node_add(&node, "other", &theirs));
    CHECK_OK(node_add(&other, "us", &ours));
    victim_returns();

    CHECK(pthread_create(&pollers[0], NULL, poll_all, NULL) == 0);
    CHECK(pthread_create(&pollers[1], NULL, poll_all, &node) == 0);
    CHECK(pthread_create(&pollers[2], NULL, run_other, NULL) == 0);
    CHECK(pthread_create(&pollers[3], NULL, receive, NULL) == 0);
    for (size_t i = 0; i < job_count; i++)
        CHECK(pthread_create(&threads[i], NULL, jobs[i].run, jobs[i].arg) == 0);
    uint64_t deadline = now_ms() + BOUND_MS, done = 0, now, whole;
    const int least_deaths = on_nixl() ? 2 : 6;
    for (int deaths = 0; (now = progress(&whole)) < whole || deaths < least_deaths; deaths++) {
        /* The bound is one of standing still. */
        if (now > done || deaths < least_deaths)
            deadline = now_ms() + BOUND_MS;
        done = now;
        CHECK(now_ms() < deadline);
        /* In the midst of whatever is done. */
        uint64_t before = cancelled;
        while (cancelled < before + 20 && track_count < MOST / 2 && now_ms() < deadline)
            sched_yield();
        remote_kill(&victim);
        victim_returns();
    }
    stop = true;
    for (size_t i = 0; i < job_count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    deadline = now_ms() + BOUND_MS;
    while (node_stats(&node).inflight > 0 || node_stats(&node).draining > 0 || at_other < pulled ||
           received < sent)
        CHECK(now_ms() < deadline);
    stop_polling = true;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(pollers[i], NULL) == 0);
    dt_completion ended[16];
    size_t n;
    do {
        CHECK_OK(dt_poll(node.transport, NULL, ended, 16, &n));
        report(now_ns(), ended, n);
    } while (n > 0);

    uint64_t reported = 0;
    for (uint64_t k = 0; k < track_count; k++) {
        reported += (uint64_t)tracks[k].reports;
        CHECK(tracks[k].reports == 1 || (tracks[k].reports == 0 && tracks[k].dropped_ns != 0));
    }
    printf("%llu transfers reported, %llu shares read back, %llu pulled, %llu cancelled, %llu lost, "
           "%llu messages, %llu adds, %llu lines of log\n",
           (unsigned long long)reported, (unsigned long long)read_back, (unsigned long long)pulled,
           (unsigned long long)cancelled, (unsigned long long)lost, (unsigned long long)received,
           (unsigned long long)adds, (unsigned long long)logged);
    CHECK(at_other == pulled && received == sent);
    CHECK_OK(dt_peer_status(node.transport, "steady"));
    remote_kill(&victim);
    remote_quit(&steady);
    /* NIXL's messages have arrived when the other side has said so. */
    dt_status status;
    deadline = now_ms() + BOUND_MS;
    while ((status = dt_close(node.transport, 10)) == DT_ERR_TIMEOUT && now_ms() < deadline)
        CHECK_OK(dt_poll(other.transport, NULL, NULL, 0, &n));
    CHECK_OK(status);
    node_destroy(&node);
    node_close(&other);
    return 0;
}
