/* What reaches stdout and stderr: nothing, unless DT_LOG asks for it and no callback was set. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_pair.h"

/* Work, failures included, that has something to tell on every level but "error". */
static void work(void)
{
    struct pair pair = pair_open(4, 64);
    size_t n;
    uint32_t index = 0;
    dt_xfer_id id;
    dt_completion completion;
    pair_write(&pair, 0, 1);
    pair_collect(&pair, "peer", &completion, 1);
    CHECK_STATUS(dt_peer_status(pair.ours.t, "nobody"), DT_ERR_NOT_FOUND);
    side_close_early(&pair.peer);
    do {
        /* NIXL learns of it when it tries to reach the peer. */
        if (on_nixl())
            dt_write_blocks(pair.ours.t, "peer", &index, &index, 1, 0, &id);
        CHECK_OK(dt_poll(pair.ours.t, NULL, &completion, 1, &n));
    } while (dt_peer_status(pair.ours.t, "peer") == DT_OK);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", &index, &index, 1, 0, &id),
                 DT_ERR_PEER_LOST);
    side_close(&pair.ours);
    free(pair.peer.base);
}

static void callback(dt_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

/* Runs the work in a child and gives the size of what it printed. */
static off_t printed(const char *dt_log, dt_log_fn fn, bool set)
{
    int out = memfd_create("output", 0);
    CHECK(out >= 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK((dt_log != NULL ? setenv("DT_LOG", dt_log, 1) : unsetenv("DT_LOG")) == 0);
        if (set)
            dt_set_log_callback(fn, NULL, DT_LOG_DEBUG);
        int keep = dup(2);
        CHECK(dup2(out, 1) == 1 && dup2(out, 2) == 2);
        work();
        CHECK(dup2(keep, 2) == 2);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    off_t size = lseek(out, 0, SEEK_END);
    if (status != 0) {
        char text[4096];
        ssize_t n = pread(out, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        fprintf(stderr, "the child failed: %s\n", text);
    }
    CHECK(status == 0);
    CHECK(close(out) == 0);
    return size;
}

int main(void)
{
    /* NIXL prints of its own what fails in it; this is how to stop that. */
    CHECK(setenv("NIXL_LOG_LEVEL", "FATAL", 1) == 0);
    /* The process itself never calls the library before it forks. */
    CHECK(printed(NULL, NULL, false) == 0);
    CHECK(printed("error", NULL, false) == 0);
    off_t warn = printed("warn", NULL, false), info = printed("info", NULL, false);
    off_t debug = printed("debug", NULL, false);
    CHECK(warn > 0 && info > warn && debug > info);
    /* A level that does not exist is told, and taken as warn. */
    CHECK(printed("nonsense", NULL, false) > warn);
    CHECK(printed("nonsense", callback, true) == 0);
    CHECK(printed("debug", callback, true) == 0);
    CHECK(printed("debug", NULL, true) == 0);
    return 0;
}
