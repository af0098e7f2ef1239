/* A transport in a forked child: refused there, unharmed here. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leaks.h"
#include "procfs.h"
#include "refused.h"
#include "unit_pair.h"

/* When the parent has closed all that it had, its children are as good as it is. */
static void a_child_of_an_idle_process(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pair own = pair_open(4, 64);
        dt_completion completion;
        pair_write(&own, 0, 1);
        pair_collect(&own, NULL, &completion, 1);
        CHECK(completion.status == DT_OK && side_block_is(&own.peer, 1, 1));
        pair_close(&own);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static atomic_int entered;
static atomic_bool go_on;

static void hold(dt_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
    entered++;
    while (!go_on)
        sched_yield();
}

static void *log_something(void *unused)
{
    struct pair pair = pair_open(4, 64);
    (void)unused;
    pair_close(&pair);
    return NULL;
}

/* A thread that is inside the log callback does not exist in the child: nobody waits for it there. */
static void forked_while_a_thread_logs(void)
{
    pthread_t thread;
    int status;
    dt_set_log_callback(hold, NULL, DT_LOG_DEBUG);
    CHECK(pthread_create(&thread, NULL, log_something, NULL) == 0);
    for (uint64_t deadline = now_ms() + BOUND_MS; entered == 0; sched_yield())
        CHECK(now_ms() < deadline);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(BOUND_MS / 1000);
        leaks_cannot_be_found();
        /* The child's own calls are logged as the parent's were. */
        go_on = true;
        int before = entered;
        dt_transport *t = NULL;
        static uint8_t region[4096];
        dt_options options = test_options();
        options.backend = DT_BACKEND_LOCAL;
        CHECK_OK(dt_create(region, 1, sizeof region, &options, &t));
        CHECK(entered > before);
        dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
        before = entered;
        dt_destroy(t);
        CHECK(entered == before);
        /* NIXL and UCX may have locks that the other thread held, and exit would take them. */
        if (on_nixl())
            _exit(0);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    go_on = true;
    CHECK(pthread_join(thread, NULL) == 0);
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
}

int main(void)
{
    long fds = holdings_now().fds;
    struct pair pair = pair_open(4, (size_t)4 << 20);
    dt_completion completion;
    dt_xfer_id id = pair_write(&pair, 0, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect_all_refused(pair.ours.t, DT_ERR_FORKED, "fork");
        expect_none_left_out();
        expect_rest_answers(pair.ours.t, (uint64_t)(uintptr_t)pair.ours.base, 4, (size_t)4 << 20);
        dt_destroy(pair.ours.t);
        dt_destroy(pair.peer.t);
        /* Of NIXL's transports the child has sockets that it must not touch. */
        CHECK(on_nixl() || holdings_now().fds == fds);
        if (on_nixl()) {
            /* UCX does not outlive a fork: then there is a sentence, and no hang. */
            static uint8_t region[4096];
            dt_options options = test_options();
            dt_transport *t = NULL;
            CHECK_STATUS(dt_create(region, 1, sizeof region, &options, &t), DT_ERR_UNAVAILABLE);
            CHECK(strstr(dt_last_error(), "forked") != NULL);
            exit(0);
        }
        /* The child has transports of its own. */
        struct pair own = pair_open(4, 64);
        pair_write(&own, 0, 1);
        pair_collect(&own, NULL, &completion, 1);
        CHECK(completion.status == DT_OK && side_block_is(&own.peer, 1, 1));
        pair_close(&own);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* The parent's transfer goes on. */
    CHECK_OK(dt_peer_status(pair.ours.t, "peer"));
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(&pair.peer, 1, 1));
    pair_close(&pair);
    CHECK(on_nixl() || holdings_now().fds == fds);
    if (on_nixl())
        a_child_of_an_idle_process();
    forked_while_a_thread_logs();
    return 0;
}
