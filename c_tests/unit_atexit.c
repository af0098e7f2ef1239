/* Transports may be closed by what runs at exit, in whatever order it was registered. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_pair.h"

static struct pair pair;

/* Registered before there was a transport, so it runs after everything that the library has there. */
static void close_late(void)
{
    dt_status status = dt_close(pair.ours.t, BOUND_MS);
    if (status != DT_OK && status != DT_ERR_TIMEOUT)
        _exit(3);
    size_t n;
    if (dt_poll(pair.peer.t, NULL, NULL, 0, &n) != DT_OK)
        _exit(4);
    side_free(&pair.ours);
    side_free(&pair.peer);
}

static void destroy_early(void)
{
    side_free(&pair.ours);
    side_free(&pair.peer);
}

static void leave(bool before, bool in_flight)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (before)
            CHECK(atexit(close_late) == 0);
        pair = pair_open(16, 4096);
        if (!before)
            CHECK(atexit(destroy_early) == 0);
        dt_xfer_id id = pair_write(&pair, 1, 2);
        dt_completion done;
        size_t n = 0;
        for (uint64_t end = now_ms() + BOUND_MS; n == 0 && now_ms() < end;) {
            CHECK_OK(dt_poll(pair.ours.t, NULL, &done, 1, &n));
            side_drive(&pair.peer);
        }
        CHECK(n == 1 && done.id == id && done.status == DT_OK);
        if (in_flight)
            pair_write(&pair, 3, 4);
        exit(7);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
    for (int round = 0; round < 4; round++)
        leave((round & 1) != 0, (round & 2) != 0);
    return 0;
}
