/* The library changes nothing of the process that it works in: signals, environment, threads,
 * stdout and stderr are looked at before, during and after. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "procfs.h"

#define BLOCKS 64
#define LEN 65536

extern char **environ;

struct state {
    char signals[256];  /* blocked, ignored and caught ones, as /proc has them */
    char *environment;  /* every string of environ, in order, and where it is */
    char *directory;
    mode_t umask;
    long threads;
};

static void read_signals(char *text, size_t room)
{
    char line[256];
    FILE *status = fopen("/proc/thread-self/status", "re");
    CHECK(status != NULL);
    text[0] = '\0';
    while (fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0 ||
            strncmp(line, "SigCgt:", 7) == 0) {
            unsigned long long set = strtoull(line + 7, NULL, 16);
            /* Those with which glibc serves threads, as soon as there are any: 32 and 33. */
            set &= ~(3ull << 31);
            CHECK(strlen(text) + 32 < room);
            snprintf(text + strlen(text), 32, "%.7s %016llx\n", line, set);
        }
    }
    fclose(status);
    CHECK(strlen(text) > 3 * 16);
}

static char *read_environment(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *into = open_memstream(&text, &size);
    CHECK(into != NULL);
    for (char **at = environ; *at != NULL; at++)
        fprintf(into, "%p %s\n", (void *)*at, *at);
    CHECK(fclose(into) == 0);
    return text;
}

static struct state state_now(void)
{
    struct state state;
    read_signals(state.signals, sizeof state.signals);
    state.environment = read_environment();
    state.directory = getcwd(NULL, 0);
    CHECK(state.directory != NULL);
    state.umask = umask(0);
    umask(state.umask);
    state.threads = holdings_now().threads;
    return state;
}

static void state_free(struct state *state)
{
    free(state->environment);
    free(state->directory);
}

static void expect_same(const struct state *before, const char *when)
{
    struct state now = state_now();
    /* UCX has one that sleeps until something happens to a connection. */
    if (now.threads > before->threads + (on_nixl() ? 1 : 0))
        test_fail("%s: %ld threads instead of %ld", when, now.threads,
                  before->threads);
    if (strcmp(now.signals, before->signals) != 0)
        test_fail("%s: signals were\n%sand are\n%s", when, before->signals, now.signals);
    if (strcmp(now.environment, before->environment) != 0)
        test_fail("%s: the environment was\n%sand is\n%s", when, before->environment,
                  now.environment);
    if (strcmp(now.directory, before->directory) != 0 || now.umask != before->umask)
        test_fail("%s: another working directory or umask", when);
    state_free(&now);
}

static void handler(int signal)
{
    (void)signal;
}

/* What is not the default is what a library is most likely to change. */
static void set_signals(void)
{
    struct sigaction act;
    sigset_t set;
    memset(&act, 0, sizeof act);
    act.sa_handler = handler;
    CHECK(sigaction(SIGUSR1, &act, NULL) == 0);
    act.sa_handler = SIG_IGN;
    CHECK(sigaction(SIGUSR2, &act, NULL) == 0);
    CHECK(sigemptyset(&set) == 0 && sigaddset(&set, SIGTERM) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void work(const struct state *before, struct remote *peer, enum memory_kind kind)
{
    uint32_t idxs[BLOCKS];
    dt_xfer_id id = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        idxs[i] = i;

    struct node node = node_open(kind, BLOCKS, LEN);
    expect_same(before, "after dt_create");
    CHECK_OK(node_add(&node, "peer", &peer->card));
    expect_same(before, "after dt_add_remote_peer");
    CHECK_OK(dt_write_blocks(node.transport, "peer", idxs, idxs, BLOCKS, 0, &id));
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    expect_same(before, "with a transfer in flight");
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    CHECK_OK(dt_read_blocks(node.transport, "peer", idxs, idxs, BLOCKS, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    expect_same(before, "after transfers");
    /* Trouble too: a peer that is not there, and one that goes. */
    CHECK_STATUS(dt_peer_status(node.transport, "nobody"), DT_ERR_NOT_FOUND);
    remote_kill(peer);
    uint64_t deadline = now_ms() + BOUND_MS;
    while (on_nixl() && dt_peer_status(node.transport, "peer") == DT_OK) {
        dt_completion done;
        CHECK(now_ms() < deadline);
        dt_write_blocks(node.transport, "peer", idxs, idxs, 1, 0, &id);
        CHECK_OK(dt_poll(node.transport, NULL, &done, 1, &n));
    }
    CHECK_OK(dt_poll(node.transport, NULL, NULL, 0, &n));
    CHECK_STATUS(dt_peer_status(node.transport, "peer"), DT_ERR_PEER_LOST);
    expect_same(before, "after the death of a peer");
    CHECK_OK(dt_close(node.transport, 60000));
    expect_same(before, "after dt_close");
    node_destroy(&node);
    expect_same(before, "after dt_destroy");
    CHECK(holdings_now().threads == before->threads);
}

static int out, keep;

/* Shows what was printed: the text of a check that failed, or what the library should not say. */
static void show_output(void)
{
    char text[4096];
    ssize_t n = pread(out, text, sizeof text, 0);
    if (n > 0)
        dprintf(keep, "printed meanwhile: %.*s\n", (int)n, text);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);
    CHECK(unsetenv("DT_LOG") == 0);

    struct remote peers[2];
    for (int k = 0; k < 2; k++)
        peers[k] = remote_simple(kinds[k], BLOCKS, LEN, 1);

    set_signals();
    out = memfd_create("output", MFD_CLOEXEC);
    keep = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    CHECK(out >= 0 && keep >= 0 && atexit(show_output) == 0);
    CHECK(dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0);
    struct state before = state_now();
    for (int k = 0; k < 2; k++)
        work(&before, &peers[k], kinds[k]);

    struct stat printed;
    CHECK(fstat(out, &printed) == 0);
    state_free(&before);
    return printed.st_size == 0 ? 0 : 1;
}
