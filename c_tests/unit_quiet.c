/* What reaches stdout and stderr: nothing, unless DT_LOG asks for it and no callback was set. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_self.h"

/* Work, failures included, that has something to tell on every level but "error". */
static void work(void)
{
    struct self self = self_open(4, 64);
    struct self peer = self_open(4, 64);
    uint8_t metadata[65536];
    size_t len;
    uint32_t index = 0;
    dt_xfer_id id;
    dt_completion completion;
    self_write(&self, 0, 1);
    self_collect(&self, "self", &completion, 1);
    CHECK_STATUS(dt_peer_status(self.t, "nobody"), DT_ERR_NOT_FOUND);
    CHECK_OK(dt_get_agent_metadata(peer.t, metadata, sizeof metadata, &len));
    CHECK_OK(dt_add_remote_peer(self.t, "peer", metadata, len, dt_base_addr(peer.t), 4, 64));
    self_close(&peer);
    do
        CHECK_OK(dt_poll(self.t, NULL, NULL, 0, &len));
    while (dt_peer_status(self.t, "peer") == DT_OK);
    CHECK_STATUS(dt_write_blocks(self.t, "peer", &index, &index, 1, 0, &id), DT_ERR_PEER_LOST);
    self_close(&self);
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
