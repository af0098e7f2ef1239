/* Under a limit for the sizes of files (RLIMIT_FSIZE) everything works or is DT_ERR_NO_MEMORY with that word
 * in the sentence. The system's way to refuse is a signal that ends the process: none comes through, and
 * none is left over. Each runs in a child. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "unit_pair.h"

#define BLOCKS 16
#define LEN 4096

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static bool refused_for_the_limit(dt_status status)
{
    return status == DT_ERR_NO_MEMORY && strstr(dt_last_error(), "RLIMIT_FSIZE") != NULL;
}

static void no_signal_is_left(void)
{
    sigset_t set;
    CHECK(sigpending(&set) == 0 && sigismember(&set, SIGXFSZ) == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0 && sigismember(&set, SIGXFSZ) == 0);
}

static void from_the_start(rlim_t bytes)
{
    static uint8_t region[BLOCKS * LEN];
    dt_options options = test_options();
    dt_transport *t = NULL;
    limit_files(bytes);
    dt_status status = dt_create(region, BLOCKS, LEN, &options, &t);
    printf("%llu bytes: %s\n", (unsigned long long)bytes, dt_status_str(status));
    no_signal_is_left();
    if (status != DT_OK) {
        CHECK(refused_for_the_limit(status));
        /* With more the same call works. */
        limit_files(RLIM_INFINITY);
        CHECK_OK(dt_create(region, BLOCKS, LEN, &options, &t));
    }
    CHECK_OK(dt_close(t, BOUND_MS));
    dt_destroy(t);
}

struct card {
    uint64_t base;
    size_t len;
    uint8_t metadata[4096];
};

/* Sends and receives so many messages, while it writes, too. */
static void talk(int other, rlim_t bytes)
{
    enum { MESSAGES = 300 };
    static uint8_t message[60000], arena[65536];
    uint64_t deadline = now_ms() + BOUND_MS;
    struct card card = {0};
    size_t sent = 0, came = 0, n, used;
    char end = 'e';
    dt_completion done;
    dt_notif notif;
    dt_xfer_id id;
    uint32_t from = 1, to = 5;
    limit_files((rlim_t)1 << 30);
    struct side side = side_open(BLOCKS, LEN);
    card.base = dt_base_addr(side.t);
    CHECK_OK(dt_get_agent_metadata(side.t, card.metadata, sizeof card.metadata, &card.len));
    message_send(other, &card, sizeof card);
    message_receive(other, &card, sizeof card);
    CHECK_OK(dt_add_remote_peer(side.t, "peer", card.metadata, card.len, card.base, BLOCKS, LEN));
    limit_files(bytes);
    while (sent < MESSAGES || came < MESSAGES) {
        dt_status status = DT_OK;
        CHECK(now_ms() < deadline);
        while (sent < MESSAGES && status == DT_OK) {
            status = dt_send_notif(side.t, "peer", message, sent % 3 == 0 ? 4000 : sizeof message);
            sent += status == DT_OK;
        }
        if (!on_nixl() && sent == 0 && refused_for_the_limit(status)) {
            /* There is no other way for a message: both sides are told. */
            sent = came = MESSAGES;
        } else {
            CHECK(status == DT_OK || status == DT_ERR_BUSY);
        }
        CHECK_OK(dt_write_blocks(side.t, "peer", &from, &to, 1, 0, &id));
        do {
            CHECK_OK(dt_get_new_notifs(side.t, &notif, 1, arena, sizeof arena, &n, &used));
            came += n;
        } while (n > 0);
        CHECK_OK(dt_poll(side.t, "peer", &done, 1, &n));
        CHECK(n == 0 || done.status == DT_OK);
    }
    no_signal_is_left();
    /* Neither goes before the other has all. */
    message_send(other, &end, 1);
    while (!message_waiting(other, 1))
        side_drive(&side);
    side_close_early(&side);
    no_signal_is_left();
    message_receive(other, &end, 1);
}

/* What runs goes on when the limit is lowered. */
static void less_and_less(rlim_t bytes)
{
    int ends[2], status;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    close(ends[child == 0]);
    talk(ends[child != 0], bytes);
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

static void in_a_child(void (*run)(rlim_t), rlim_t bytes)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(2 * BOUND_MS / 1000);
        run(bytes);
        fflush(stdout);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0)
        test_fail("with %llu bytes: wait status %#x", (unsigned long long)bytes, (unsigned)status);
}

int main(void)
{
    /* What they are written to may be a file. */
    static const rlim_t limits[] = {16 << 10, 200 << 10, 1 << 20, 5 << 20};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        in_a_child(from_the_start, limits[i]);
    in_a_child(less_and_less, 16 << 10);
    return 0;
}
