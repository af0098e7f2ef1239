/* Signals: calls are interrupted all the time by handlers that do not ask for a restart, peers and
 * this process are stopped and continued, peers die. No call fails of it, no SIGPIPE is raised, and no
 * thread has another mask than before. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "hammer.h"
#include "node.h"

#define BLOCKS 16
#define HALF (BLOCKS / 2)
#define LEN 65536

static struct node node;
static struct remote peer;
static atomic_bool stop;
static _Atomic uint64_t interrupted, broken_pipes;

static void on_signal(int signal)
{
    atomic_fetch_add(signal == SIGPIPE ? &broken_pipes : &interrupted, 1);
}

static void handle(int signal)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* ---- masks ---- */

static uint64_t term_alone(void)
{
    return 1ull << (SIGTERM - 1);
}

static uint64_t mask_of(const char *task)
{
    char path[300], line[256];
    unsigned long long mask = ~0ull;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *status = fopen(path, "re");
    if (status == NULL)
        return term_alone(); /* it has ended */
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "SigBlk: %llx", &mask);
    fclose(status);
    return mask;
}

/* What a thread has blocked, but for what a thread of NIXL's may have besides: to meet a limit for files is
 * an error there, and the signal for it goes to no other thread. */
static uint64_t mask_of_any(const char *task)
{
    uint64_t mask = mask_of(task);
    return (pid_t)atoi(task) == getpid() ? mask : mask & ~(1ull << (SIGXFSZ - 1));
}

/* Every thread, whoever made it, has what main has; but for a moment, when it makes another, begins, or
 * runs a handler, it has more. */
static long expect_masks(void)
{
    long count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        for (uint64_t deadline = now_ms() + BOUND_MS; mask_of_any(entry->d_name) != term_alone();)
            CHECK(now_ms() < deadline);
        count++;
    }
    closedir(tasks);
    return count;
}

/* Also those that NIXL makes when it is asked for threads. */
static void masks_of_the_engine(void)
{
    dt_options options = DT_OPTIONS_INIT;
    struct memory memory = memory_new(MEMORY_ALLOC, (size_t)BLOCKS * LEN, 0);
    options.progress_thread = true;
    options.nixl_num_threads = 1;
    struct node own = node_open_with(memory, BLOCKS, LEN, options);
    CHECK(expect_masks() >= (on_nixl() ? 3 : 1));
    node_close(&own);
}

/* ---- what is interrupted ---- */

static void finish(dt_xfer_id id)
{
    dt_completion done;
    size_t n = 0;
    for (uint64_t deadline = now_ms() + BOUND_MS; n == 0;) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(node.transport, "peer", &done, 1, 20, &n));
    }
    CHECK(done.id == id && done.status == DT_OK);
}

/* There and back. */
static uint64_t push(uint64_t seed)
{
    uint32_t low[HALF], high[HALF];
    dt_xfer_id id = 0;
    for (uint32_t i = 0; i < HALF; i++) {
        low[i] = i, high[i] = HALF + i;
        pattern_fill(node_block(&node, i), LEN, seed, i);
    }
    CHECK_OK(dt_write_blocks(node.transport, "peer", low, low, HALF, 0, &id));
    finish(id);
    CHECK_OK(dt_read_blocks(node.transport, "peer", high, low, HALF, 0, &id));
    finish(id);
    for (size_t i = 0; i < HALF; i++) {
        struct content want = {seed, i};
        CHECK(pattern_mismatch(node_block(&node, HALF + i), LEN, want) < 0);
    }
    return 1;
}

/* Everything that a transport does, from the first to the last call. */
static uint64_t whole_life(uint64_t seed)
{
    struct node own = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    uint32_t from = 1, to = BLOCKS - 1;
    dt_xfer_id id = 0;
    dt_xfer_state state = DT_XFER_PROC;
    const char message[] = "read";
    node_fill(&own, seed);
    CHECK_OK(node_add(&own, "peer", &peer.card));
    CHECK_OK(dt_write_blocks(own.transport, "peer", &from, &to, 1, 0, &id));
    CHECK(node_finish(&own, "peer", id).status == DT_OK);
    CHECK_OK(dt_post_read(own.transport, "peer", &from, &to, 1, message, sizeof message, &id));
    for (uint64_t deadline = now_ms() + BOUND_MS; state == DT_XFER_PROC;) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_check_xfer_state(own.transport, id, &state));
    }
    CHECK(state == DT_XFER_DONE);
    struct content want = {seed, 1};
    CHECK(pattern_mismatch(node_block(&own, 1), LEN, want) < 0);
    CHECK_OK(dt_release_xfer(own.transport, id));
    CHECK_OK(dt_remove_remote_peer(own.transport, "peer"));
    node_close(&own);
    return 1;
}

struct worker {
    uint64_t (*round)(uint64_t seed);
    _Atomic uint64_t rounds;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (uint64_t seed = 1; !stop; seed++)
        worker->rounds += worker->round(seed);
    return NULL;
}

/* So many signals a round has to bear. Then it is left alone until it has moved: a call that begins anew
 * each time, as fallocate does, needs a while without any, and how long depends on the machine. */
#define MOST_IN_A_ROUND 500

struct sender {
    struct worker *to;
    uint64_t round;
    int sent;
};

static bool send_signal(struct sender *sender)
{
    uint64_t round = sender->to->rounds;
    if (round != sender->round)
        sender->round = round, sender->sent = 0;
    if (sender->sent == MOST_IN_A_ROUND)
        return false;
    sender->sent++;
    CHECK(pthread_kill(sender->to->thread, SIGUSR1) == 0);
    return true;
}

static void storm(void)
{
    struct worker workers[] = {{push, 0, 0}, {whole_life, 0, 0}};
    struct sender senders[] = {{&workers[0], 0, 0}, {&workers[1], 0, 0}};
    const uint64_t rounds = on_nixl() ? 15 : 60;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    for (uint64_t deadline = now_ms() + BOUND_MS;
         workers[0].rounds < rounds || workers[1].rounds < rounds;) {
        CHECK(now_ms() < deadline);
        bool all = send_signal(&senders[0]);
        all &= send_signal(&senders[1]);
        /* To whoever takes it. */
        if (all)
            CHECK(kill(getpid(), SIGUSR1) == 0);
        spin_ns(30000);
    }
    expect_masks();
    stop = true;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    stop = false;
    printf("%llu signals during %llu and %llu rounds\n", (unsigned long long)interrupted,
           (unsigned long long)workers[0].rounds, (unsigned long long)workers[1].rounds);
    CHECK(interrupted > 1000);
}

/* Stops and continues the test that has started it. */
static void waker_role(int socket)
{
    pid_t test = getppid();
    for (int i = 0; i < 10; i++) {
        CHECK(kill(test, SIGSTOP) == 0);
        usleep(5000);
        CHECK(kill(test, SIGCONT) == 0);
        usleep(5000);
    }
    event_send(socket, 'd');
}

static void stopped_ourselves(void)
{
    struct child waker = child_start("waker");
    uint64_t seed = 1000;
    while (!message_waiting(waker.socket, 0))
        push(seed++);
    event_expect(waker.socket, 'd');
    child_expect_success(&waker);
    push(seed);
}

/* Those who write to us stop and go on; then they die. */
static void stopped_and_killed_peers(void)
{
    struct child hammer = hammer_start(&node, 77, true);
    event_expect(hammer.socket, 'w');
    for (int i = 0; i < 10; i++) {
        child_stop(&hammer);
        child_continue(&hammer);
    }
    child_kill(&hammer);

    struct remote victim = remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 3);
    uint32_t all[BLOCKS];
    dt_xfer_id id = 0;
    dt_completion ended;
    size_t n = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        all[i] = i;
    CHECK_OK(node_add(&node, "victim", &victim.card));
    CHECK_OK(dt_write_blocks(node.transport, "victim", all, all, BLOCKS, 0, &id));
    CHECK(node_finish(&node, "victim", id).status == DT_OK);
    remote_kill(&victim);
    for (uint64_t deadline = now_ms() + BOUND_MS;
         dt_peer_status(node.transport, "victim") == DT_OK;) {
        CHECK(now_ms() < deadline);
        dt_write_blocks(node.transport, "victim", all, all, BLOCKS, 0, &id);
        CHECK_OK(dt_poll(node.transport, "victim", &ended, 1, &n));
    }
    CHECK_OK(dt_remove_remote_peer(node.transport, "victim"));
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, HAMMER_ROLES, {"waker", waker_role},
                                        {NULL, NULL}};
    sigset_t term;
    child_main(argc, argv, roles);

    handle(SIGUSR1);
    handle(SIGPIPE);
    CHECK(sigemptyset(&term) == 0 && sigaddset(&term, SIGTERM) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &term, NULL) == 0);
    peer = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 2);
    node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    CHECK_OK(node_add(&node, "peer", &peer.card));
    masks_of_the_engine();
    storm();
    stopped_ourselves();
    stopped_and_killed_peers();
    push(5000);
    CHECK(broken_pipes == 0);
    remote_quit(&peer);
    node_close(&node);
    return 0;
}
