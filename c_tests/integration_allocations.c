/* A transfer of up to 64 runs allocates nothing, whatever its shape and whatever is in flight, once as
 * much has been in flight before. That is counted for LOCAL; NIXL allocates itself, and its count is
 * printed. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "skip.h"

#ifdef DT_SANITIZED
int main(void)
{
    test_skipped("allocations are not counted, as the sanitizer has the allocator: run without it");
    return 0;
}
#else

/* ---- every allocation of this thread is counted ---- */

/* The compiler believes that malloc changes nothing that it can see. */
static _Thread_local volatile size_t allocations;

/* What dlsym itself takes while it is asked for the allocator. It is never freed. */
static _Alignas(16) uint8_t first_bytes[4096];
static size_t first_used;

static bool is_first(const void *at)
{
    return (const uint8_t *)at >= first_bytes && (const uint8_t *)at < first_bytes + sizeof first_bytes;
}

static void *first(size_t bytes)
{
    void *at = first_bytes + first_used;
    first_used += (bytes + 15) & ~(size_t)15;
    return first_used <= sizeof first_bytes ? at : NULL;
}

/* The next function of this name behind this program. */
#define FIND(name) (*(void **)&next = dlsym(RTLD_NEXT, name))

void *malloc(size_t bytes)
{
    static void *(*next)(size_t);
    static bool finding;
    allocations++;
    if (next == NULL) {
        if (finding)
            return first(bytes);
        finding = true;
        FIND("malloc");
    }
    return next(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    static void *(*next)(size_t, size_t);
    static bool finding;
    allocations++;
    if (next == NULL) {
        if (finding)
            return first(count * bytes);
        finding = true;
        FIND("calloc");
    }
    return next(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    static void *(*next)(void *, size_t);
    allocations++;
    if (next == NULL)
        FIND("realloc");
    return next(old, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    static int (*next)(void **, size_t, size_t);
    allocations++;
    if (next == NULL)
        FIND("posix_memalign");
    return next(out, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    static void *(*next)(size_t, size_t);
    allocations++;
    if (next == NULL)
        FIND("aligned_alloc");
    return next(alignment, bytes);
}

void free(void *old)
{
    static void (*next)(void *);
    if (is_first(old))
        return;
    if (next == NULL)
        FIND("free");
    next(old);
}

/* ---- transfers ---- */

#define LEN 512
#define BLOCKS 4096
#define MOST_DEPTH 1000
#define PEERS 3

static struct node node, other;
static const char *const peers[PEERS] = {"mapped", "by the kernel", "this process"};

/* `count` blocks, with a gap behind each that is followed by another run. */
struct shape {
    const char *what;
    size_t count;
    size_t runs;
};

static const struct shape shapes[] = {
    {"1 block", 1, 1},
    {"16 runs", 16, 16},
    {"64 runs", 64, 64},
    /* More than is copied at once. */
    {"1 run of 300 blocks", 300, 1},
    {"3 runs of 100 blocks", 300, 3},
};

/* It goes with posted reads. */
static const char message[] = "your blocks were read";

static uint32_t list[MOST_DEPTH];
static dt_xfer_id reads[MOST_DEPTH];
static dt_completion done[64];

static void make_list(const struct shape *shape)
{
    const size_t each = shape->count / shape->runs;
    for (size_t i = 0; i < shape->count; i++)
        list[i] = (uint32_t)(i + i / each);
}

/* Drives the other node of this process. Who gets a message has to allocate it, which is not counted. */
static void drive_other(void)
{
    const size_t before = allocations;
    dt_notif notif;
    char arena[2048];
    size_t n, used;
    do
        CHECK_OK(dt_get_new_notifs(other.transport, &notif, 1, arena, sizeof arena, &n, &used));
    while (n > 0);
    allocations = before;
}

enum way { WRITE, READ, POSTED_READ, WAYS };

/* `depth` transfers at once, over one peer or over each in turn, until all have ended. */
static void round_of(const struct shape *shape, size_t depth, int peer, bool one_scope)
{
    size_t posted = 0, pushed = 0, n;
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t i = 0; i < depth; i++) {
        const char *to = peers[peer < 0 ? i % PEERS : (size_t)peer];
        dt_xfer_id id = 0;
        switch ((enum way)(i % WAYS)) {
        case WRITE:
            CHECK_OK(dt_write_blocks(node.transport, to, list, list, shape->count, i, &id));
            pushed++;
            break;
        case READ:
            CHECK_OK(dt_read_blocks(node.transport, to, list, list, shape->count, i, &id));
            pushed++;
            break;
        default:
            /* The others do not read theirs here, and their mailboxes would be full in the end. */
            CHECK_OK(dt_post_read(node.transport, to, list, list, shape->count, message,
                                  to == peers[PEERS - 1] ? sizeof message : 0, &reads[posted++]));
        }
    }
    while (pushed > 0) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(node.transport, one_scope ? peers[peer] : NULL, done, 64, 1, &n));
        for (size_t i = 0; i < n; i++)
            CHECK(done[i].status == DT_OK && done[i].bytes == shape->count * LEN);
        pushed -= n;
        drive_other();
    }
    for (size_t i = 0; i < posted; i++) {
        dt_xfer_state state;
        do {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_check_xfer_state(node.transport, reads[i], &state));
            drive_other();
        } while (state == DT_XFER_PROC);
        CHECK(state == DT_XFER_DONE);
        CHECK_OK(dt_release_xfer(node.transport, reads[i]));
    }
}

static void rounds_of(const struct shape *shape, size_t depth, int peer, bool one_scope)
{
    const size_t transfers = on_nixl() ? 300 : 10000;
    make_list(shape);
    for (int warm = 0; warm < 2; warm++)
        for (size_t i = 0; i <= transfers / depth / 4; i++)
            round_of(shape, depth, peer, one_scope);
    const size_t before = allocations;
    size_t count = 0;
    for (; count < transfers; count += depth)
        round_of(shape, depth, peer, one_scope);
    const size_t made = allocations - before;
    if (made > 0)
        printf("%s, %zu at once, %s: %.2f allocations each\n", shape->what, depth,
               peer < 0 ? "all peers" : peers[peer], (double)made / (double)count);
    CHECK(on_nixl() || made == 0);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    struct remote mapped = remote_simple(MEMORY_ALLOC, BLOCKS, LEN, 5);
    struct remote by_kernel = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 6);
    /* One poll can move all that is in flight. Otherwise chance says how many end in one, and memory is
     * taken whenever there were never so many before. */
    dt_options options = DT_OPTIONS_INIT;
    options.poll_budget_us = 1000000;
    node = node_open_with(memory_new(MEMORY_ALLOC, BLOCKS * LEN, 0), BLOCKS, LEN, options);
    other = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    struct card card = node_card(&other);
    node_fill(&node, 4);
    node_fill(&other, 4);
    CHECK_OK(node_add(&node, peers[0], &mapped.card));
    CHECK_OK(node_add(&node, peers[1], &by_kernel.card));
    CHECK_OK(node_add(&node, peers[2], &card));

    /* It counts. */
    const size_t before = allocations;
    void *volatile kept = malloc(1);
    free(kept);
    CHECK(allocations == before + 1);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int peer = 0; peer < PEERS; peer++) {
            rounds_of(&shapes[i], 1, peer, true);
            rounds_of(&shapes[i], MOST_DEPTH, peer, true);
        }
        rounds_of(&shapes[i], MOST_DEPTH, -1, false);
    }

    /* Over NIXL it waits until the other one has its messages. */
    uint64_t deadline = now_ms() + BOUND_MS;
    while (dt_close(node.transport, 10) == DT_ERR_TIMEOUT) {
        CHECK(now_ms() < deadline);
        drive_other();
    }
    remote_quit(&mapped);
    remote_quit(&by_kernel);
    node_close(&node);
    node_close(&other);
    return 0;
}
#endif
