/* Every way to end a process that has open transports and work in flight: it ends, at once, with the
 * code that it wanted. Each is tried in a process of its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"
#include "unit_pair.h"

#define CODE 7

static struct pair pair;
static pthread_t main_thread;

/* Has moved something, and has something in flight. */
static void open_and_work(void)
{
    dt_completion done;
    pair = pair_open(16, (size_t)1 << 20);
    pair_write(&pair, 1, 2);
    pair_collect(&pair, NULL, &done, 1);
    CHECK(done.status == DT_OK && side_block_is(&pair.peer, 2, 2));
    for (uint32_t i = 0; i < 4; i++)
        pair_write(&pair, i, 8 + i);
    side_drive(&pair.peer);
}

static void return_from_main(void)
{
    open_and_work();
    exit(CODE);
}

static void quickly(void)
{
    open_and_work();
    quick_exit(CODE);
}

static void *leave(void *unused)
{
    (void)unused;
    exit(CODE);
}

static void start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
}

static void from_another_thread(void)
{
    open_and_work();
    start(leave, NULL);
    for (;;)
        pause();
}

static void *join_main(void *unused)
{
    (void)unused;
    CHECK(pthread_join(main_thread, NULL) == 0);
    /* The thread that made the transport is gone; the transport is as good as before. */
    pair_write(&pair, 1, 3);
    side_drive(&pair.peer);
    exit(CODE);
}

static void main_ends_first(void)
{
    open_and_work();
    start(join_main, NULL);
    pthread_exit(NULL);
}

/* ---- while other threads are inside calls ---- */

static atomic_int calling;

static void *keep_polling(void *side)
{
    size_t n;
    dt_completion done;
    for (;;) {
        dt_poll(((struct side *)side)->t, NULL, &done, 1, &n);
        calling++;
    }
    return NULL;
}

static void *keep_writing(void *unused)
{
    (void)unused;
    const uint32_t all[] = {0, 1, 2, 3, 4, 5, 6, 7}, there[] = {8, 9, 10, 11, 12, 13, 14, 15};
    for (;;) {
        dt_xfer_id id;
        dt_write_blocks(pair.ours.t, "peer", all, there, 8, 0, &id);
        dt_cancel(pair.ours.t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL);
        calling++;
    }
    return NULL;
}

static void *keep_waiting(void *unused)
{
    size_t n;
    (void)unused;
    for (;;) {
        dt_wait(pair.ours.t, "nobody", NULL, 0, BOUND_MS, &n);
        calling++;
    }
    return NULL;
}

static void others_call(void)
{
    open_and_work();
    start(keep_polling, &pair.ours);
    start(keep_polling, &pair.peer);
    start(keep_writing, NULL);
    start(keep_waiting, NULL);
    for (uint64_t deadline = now_ms() + BOUND_MS; calling < 200;)
        CHECK(now_ms() < deadline);
}

static void while_others_call(void)
{
    others_call();
    exit(CODE);
}

static void quickly_while_others_call(void)
{
    others_call();
    quick_exit(CODE);
}

static void main_returns_while_others_call(void)
{
    others_call();
    start(leave, NULL);
    pthread_exit(NULL);
}

static void close_both(void)
{
    /* The other threads go on, so that freeing is out of the question. */
    dt_status status = dt_close(pair.ours.t, BOUND_MS);
    if (status != DT_OK)
        _exit(3);
    status = dt_close(pair.peer.t, BOUND_MS);
    if (status != DT_OK)
        _exit(4);
}

static void closed_late_while_others_call(void)
{
    CHECK(atexit(close_both) == 0);
    while_others_call();
}

static void closed_early_while_others_call(void)
{
    others_call();
    CHECK(atexit(close_both) == 0);
    exit(CODE);
}

/* ---- from inside the library ---- */

static void leave_from_the_log(dt_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
    exit(CODE);
}

static void from_the_log(void)
{
    open_and_work();
    dt_set_log_callback(leave_from_the_log, NULL, DT_LOG_DEBUG);
    for (;;)
        pair_write(&pair, 1, 2), pair_poll(&pair);
}

static void *keep_creating(void *unused)
{
    (void)unused;
    static _Alignas(4096) uint8_t region[4][4096];
    dt_status status;
    do {
        dt_options options = test_options();
        dt_transport *t = NULL;
        status = dt_create(region, 4, 4096, &options, &t);
        dt_destroy(t);
        calling++;
    } while (status == DT_OK);
    /* A transport that would be made too late. */
    if (status != DT_ERR_UNAVAILABLE || !on_nixl())
        _exit(5);
    return NULL;
}

static void while_another_creates(void)
{
    open_and_work();
    start(keep_creating, NULL);
    start(keep_creating, NULL);
    while (calling < 4)
        sched_yield();
    exit(CODE);
}

/* The very first one, which loads what there is to load. */
static void while_another_creates_the_first(void)
{
    uint64_t random = test_seed() ^ (uint64_t)getpid();
    start(keep_creating, NULL);
    spin_ns(random_next(&random) % (on_nixl() ? 400000000 : 1000000));
    exit(CODE);
}

static void with_threads_of_the_engine(void)
{
    dt_options options = test_options();
    dt_completion done;
    options.progress_thread = true;
    options.nixl_num_threads = 1;
    pair = pair_open_with(16, (size_t)1 << 20, options);
    pair_write(&pair, 1, 2);
    pair_collect(&pair, NULL, &done, 1);
    for (uint32_t i = 0; i < 4; i++)
        pair_write(&pair, i, 8 + i);
    side_drive(&pair.peer);
    exit(CODE);
}

static void in_a_child(const char *name, void (*run)(void))
{
    uint64_t begin = now_ms();
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        main_thread = pthread_self();
        /* What hangs dies of this, and is seen. */
        alarm(BOUND_MS / 1000);
        run();
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("%s: %llu ms\n", name, (unsigned long long)(now_ms() - begin));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != CODE) {
        fprintf(stderr, "%s: wait status 0x%x\n", name, (unsigned)status);
        exit(1);
    }
}

int main(void)
{
    /* What depends on the moment is tried more often where a process starts fast. */
    const int rounds = on_nixl() ? 1 : 10;
#define IN_A_CHILD(run) in_a_child(#run, run)
    IN_A_CHILD(return_from_main);
    IN_A_CHILD(quickly);
    IN_A_CHILD(from_another_thread);
#ifdef DT_SANITIZED
    /* AddressSanitizer has the main thread joined already. */
    (void)main_ends_first;
#else
    IN_A_CHILD(main_ends_first);
#endif
    IN_A_CHILD(from_the_log);
    for (int round = 0; round < rounds; round++) {
        IN_A_CHILD(while_others_call);
        IN_A_CHILD(quickly_while_others_call);
        IN_A_CHILD(main_returns_while_others_call);
        IN_A_CHILD(closed_early_while_others_call);
        IN_A_CHILD(closed_late_while_others_call);
        IN_A_CHILD(while_another_creates);
        IN_A_CHILD(while_another_creates_the_first);
        IN_A_CHILD(with_threads_of_the_engine);
    }
    return 0;
}
