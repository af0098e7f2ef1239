/* Files that a caller may name as what backs a region: those that are not are refused, and with the
 * others a peer reaches the memory, mapped or not. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend.h"
#include "logbook.h"
#include "node.h"
#include "skip.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define BLOCKS 8
#define LEN 4096
#define BYTES ((size_t)BLOCKS * LEN)

static struct remote peer;

static int memory_file(size_t bytes)
{
    int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static void *map(int fd, int flags, size_t offset)
{
    void *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    CHECK(base != MAP_FAILED);
    return base;
}

/* How the same file is open in another way. */
static int open_again(int fd, int how)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, how | O_CLOEXEC);
    CHECK(again >= 0);
    return again;
}

static dt_status create(void *base, int fd, uint64_t offset, dt_transport **t)
{
    dt_options options = test_options();
    options.region_has_fd = true;
    options.region_fd = fd;
    options.region_offset = offset;
    return dt_create(base, BLOCKS, LEN, &options, t);
}

/* ---- not what backs the region ---- */

static void refused(const char *what, void *base, int fd, uint64_t offset)
{
    dt_transport *t = NULL;
    dt_status status = create(base, fd, offset, &t);
    printf("%s: %s: %s\n", what, dt_status_str(status), dt_last_error());
    CHECK(status == DT_ERR_INVALID_ARG && t == NULL);
    CHECK(strstr(dt_last_error(), "region_fd") != NULL ||
          strstr(dt_last_error(), "region_offset") != NULL);
}

static void what_is_refused(void)
{
    int file = memory_file(2 * BYTES), other = memory_file(2 * BYTES), pair[2];
    void *base = map(file, MAP_SHARED, 0), *private = map(file, MAP_PRIVATE, 0);
    void *anonymous = map(-1, MAP_SHARED | MAP_ANONYMOUS, 0);
    refused("another page of the file", base, file, LEN);
    refused("no page of the file", base, file, 100);
    refused("an offset beyond all files", base, file, UINT64_MAX - LEN + 1);
    refused("another file", base, other, 0);
    refused("memory of no file", anonymous, file, 0);
    refused("a private mapping", private, file, 0);
    CHECK(ftruncate(other, (off_t)BYTES - 1) == 0);
    void *beyond = map(other, MAP_SHARED, 0);
    refused("a file that is too short", beyond, other, 0);

    CHECK(pipe(pair) == 0);
    refused("a pipe", base, pair[0], 0);
    CHECK(close(pair[0]) == 0);
    refused("what is closed", base, pair[0], 0);
    CHECK(close(pair[1]) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    refused("a socket", base, pair[0], 0);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
    static const char *const paths[] = {"/", "/dev/zero", "/dev/null"};
    for (int i = 0; i < 3; i++) {
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        refused(paths[i], base, fd, 0);
        CHECK(close(fd) == 0);
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    refused("an epoll", base, epoll, 0);
    CHECK(close(epoll) == 0 && close(file) == 0 && close(other) == 0);
    CHECK(munmap(base, BYTES) == 0 && munmap(private, BYTES) == 0);
    CHECK(munmap(anonymous, BYTES) == 0 && munmap(beyond, BYTES) == 0);
}

/* ---- all that peers can reach ---- */

/* A peer writes its block 1 to block 2, and reads it into its block 3; with `status`. */
static void reached(dt_transport *t, uint8_t *base, dt_status status)
{
    struct node node = {{MEMORY_ANONYMOUS, base, BYTES, -1, 0}, BLOCKS, LEN, t};
    struct card card = node_card(&node);
    const uint32_t from = 1, to = 2, back = 3;
    remote_fill(&peer, 9);
    CHECK_OK(remote_add(&peer, "region", &card, NULL));
    CHECK_STATUS(remote_copy(&peer, true, "region", &from, &to, 1), status);
    CHECK_STATUS(remote_copy(&peer, false, "region", &back, &to, 1), status);
    struct content *there = contents_of(9, BLOCKS);
    if (status == DT_OK) {
        CHECK(pattern_mismatch(base + to * LEN, LEN, (struct content){9, from}) < 0);
        contents_copy(there, &back, 9, &from, 1);
    }
    remote_check(&peer, there, NULL);
    free(there);
}

/* `warned`: that peers cannot map it. `fd` is closed. */
static void works(const char *what, void *base, int fd, bool warned)
{
    dt_transport *t = NULL;
    printf("%s\n", what);
    fflush(stdout);
    memset(base, 0, BYTES);
    logbook_start();
    CHECK_OK(create(base, fd, 0, &t));
    CHECK(logbook_has("process_vm") == warned);
    logbook_stop();
    CHECK(close(fd) == 0);
    reached(t, base, DT_OK);
    CHECK_OK(dt_close(t, 60000));
    dt_destroy(t);
    CHECK(munmap(base, BYTES) == 0);
}

static void what_works(void)
{
    static const int seals[] = {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
                                F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE};
    static const char *const names[] = {"no seals", "F_SEAL_SHRINK", "all seals of the size",
                                        "F_SEAL_GROW",
                                        "F_SEAL_FUTURE_WRITE, so that peers cannot map it"};
    for (int i = 0; i < 5; i++) {
        int fd = memory_file(BYTES);
        void *base = map(fd, MAP_SHARED, 0);
        CHECK(fcntl(fd, F_ADD_SEALS, seals[i]) == 0);
        works(names[i], base, fd, (seals[i] & F_SEAL_SHRINK) == 0);
    }
    int fd = memory_file(BYTES);
    void *base = map(fd, MAP_SHARED, 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    works("open for reading", base, open_again(fd, O_RDONLY), false);
    CHECK(close(fd) == 0);

    char path[] = "/tmp/dt-region-XXXXXX";
    fd = mkstemp(path);
    CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, (off_t)BYTES) == 0);
    base = map(fd, MAP_SHARED, 0);
    works("a file of a file system", base, fd, true);
}

/* ---- a file system without room ---- */

static void without_room(void)
{
    static const char page[LEN];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/mnt", "tmpfs", 0, "size=32k") != 0) {
        test_skipped("mounting a file system that has no room needs root");
        return;
    }
    int fd = open("/mnt/region", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int full = open("/mnt/full", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    dt_transport *t = NULL;
    CHECK(fd >= 0 && full >= 0 && ftruncate(fd, (off_t)BYTES) == 0);
    uint8_t *base = map(fd, MAP_SHARED, 0);
    CHECK_OK(create(base, fd, 0, &t));
    /* The ends must be there when a peer comes. */
    base[0] = base[BYTES - 1] = 1;
    while (write(full, page, sizeof page) > 0) {
    }
    CHECK(errno == ENOSPC);
    printf("a file system without room\n");
    fflush(stdout);
    reached(t, base, DT_ERR_BACKEND);
    /* With room it goes on. */
    CHECK(ftruncate(full, 0) == 0);
    reached(t, base, DT_OK);
    CHECK_OK(dt_close(t, 60000));
    dt_destroy(t);
    CHECK(munmap(base, BYTES) == 0 && close(fd) == 0 && close(full) == 0);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);
    peer = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 0);
    what_is_refused();
    what_works();
    without_room();
    remote_quit(&peer);
    return 0;
}
