/* No memory for what the caller makes large: DT_ERR_NO_MEMORY, nothing has changed, and with memory the
 * same call works. Each runs in a child, whose address space is limited (RLIMIT_AS). */
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_pair.h"

#define MIB ((size_t)1 << 20)

#ifdef DT_SANITIZED
/* Its allocator would end the process; no other does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
#endif

/* ---- how much there is ---- */

static struct rlimit whole;

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    CHECK(statm != NULL && fscanf(statm, "%zu", &pages) == 1);
    fclose(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* From now on this process gets about `more` bytes. What the allocator has is too little for
 * anything large. */
static void leave(size_t more)
{
    struct rlimit limit = {address_space() + more, whole.rlim_max};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void leave_all(void)
{
    CHECK(setrlimit(RLIMIT_AS, &whole) == 0);
}

/* ---- what is large ---- */

#define MANY 10000000

static struct pair pair;
/* MANY of them, none that can be merged with the next. */
static uint32_t *indexes, *others;

static void make_indexes(void)
{
    indexes = (uint32_t *)malloc(MANY * sizeof *indexes);
    others = (uint32_t *)malloc(MANY * sizeof *others);
    CHECK(indexes != NULL && others != NULL);
    for (size_t i = 0; i < MANY; i++) {
        indexes[i] = i % 2;
        others[i] = 3 - i % 2;
    }
}

static void region(void)
{
    void *base = NULL;
    int32_t fd = -1;
    leave(64 * MIB);
    CHECK_STATUS(dt_region_alloc(512 * MIB, &base, &fd), DT_ERR_NO_MEMORY);
    CHECK(base == NULL && fd == -1 && strstr(dt_last_error(), "536870912") != NULL);
    leave_all();
    CHECK_OK(dt_region_alloc(512 * MIB, &base, &fd));
    dt_region_free(base, 512 * MIB, fd);
}

static void transfer(void)
{
    dt_xfer_id id = 0;
    dt_completion done;
    uint64_t deadline = now_ms() + BOUND_MS;
    make_indexes();
    leave(64 * MIB);
    CHECK_STATUS(dt_write_blocks(pair.ours.t, "peer", indexes, others, MANY, 0, &id),
                 DT_ERR_NO_MEMORY);
    CHECK_STATUS(dt_read_blocks(pair.ours.t, "peer", indexes, others, MANY, 0, &id),
                 DT_ERR_NO_MEMORY);
    CHECK_STATUS(dt_post_read(pair.ours.t, "peer", indexes, others, MANY, "m", 1, &id),
                 DT_ERR_NO_MEMORY);
    CHECK(id == 0 && strstr(dt_last_error(), "10000000") != NULL);
    CHECK(pair_stats(&pair).submitted == 0);
    /* The peer is not to blame, and small ones go on. */
    CHECK_OK(dt_peer_status(pair.ours.t, "peer"));
    id = pair_write(&pair, 0, 1);
    pair_collect(&pair, "peer", &done, 1);
    CHECK(done.id == id && done.status == DT_OK);
    leave_all();
    CHECK_OK(dt_write_blocks(pair.ours.t, "peer", indexes, others, MANY, 0, &id));
    CHECK_OK(dt_cancel(pair.ours.t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL));
    while (pair_stats(&pair).draining > 0) {
        CHECK(now_ms() < deadline);
        pair_poll(&pair);
    }
}

static void cancel(void)
{
    enum { RUNNING = 4 };
    dt_xfer_id *ids = (dt_xfer_id *)malloc(MANY * sizeof *ids);
    size_t still = 77;
    dt_xfer_id running[RUNNING];
    CHECK(ids != NULL);
    for (size_t i = 0; i < MANY; i++)
        ids[i] = 1000 + i;
    make_indexes();
    for (int i = 0; i < RUNNING; i++) {
        CHECK_OK(dt_write_blocks(pair.ours.t, "peer", indexes, others, 1000, 0, &running[i]));
        ids[MANY / RUNNING * i] = running[i];
    }
    leave(16 * MIB);
    /* Few of so many ids exist: the list takes no memory to speak of. */
    CHECK_OK(dt_cancel(pair.ours.t, ids, MANY, DT_CANCEL_WAIT, ids, &still));
    CHECK(still <= RUNNING);
    dt_completion done;
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t i = 0, n; i < still; i += n) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(pair.ours.t, "peer", &done, 1, 1, &n));
        side_drive(&pair.peer);
    }
    leave_all();
}

static void descriptor(void)
{
    /* More than the 64 MiB of an arena, which the allocator may have reserved for a thread. */
    enum { BLOCKS = 9000000 };
    struct pair small = pair_open(4, 8);
    struct side large = side_open(BLOCKS, 8);
    uint8_t metadata[65536];
    char name[1001];
    size_t len, metadata_len, name_len;
    CHECK_OK(dt_get_agent_metadata(large.t, metadata, sizeof metadata, &metadata_len));
    CHECK_STATUS(dt_get_mem_descriptor(large.t, NULL, 0, &len), DT_ERR_BUFFER_TOO_SMALL);
    uint8_t *list = (uint8_t *)malloc(len);
    CHECK(list != NULL);
    leave(16 * MIB);
    CHECK_STATUS(dt_get_mem_descriptor(large.t, list, len, &len), DT_ERR_NO_MEMORY);
    leave_all();
    CHECK_OK(dt_get_mem_descriptor(large.t, list, len, &len));
    /* The first two blocks change places: the list can only be kept as it is. */
    uint8_t spare[32];
    size_t entry = (len - 5) / BLOCKS;
    CHECK(entry <= sizeof spare);
    memcpy(spare, list + 5, entry);
    memcpy(list + 5, list + 5 + entry, entry);
    memcpy(list + 5 + entry, spare, entry);
    leave(16 * MIB);
    CHECK_STATUS(dt_add_remote_agent(small.ours.t, metadata, metadata_len, list, len, name,
                                     sizeof name, &name_len),
                 DT_ERR_NO_MEMORY);
    CHECK(pair_stats(&small).peers == 1);
    leave_all();
    CHECK_OK(dt_add_remote_agent(small.ours.t, metadata, metadata_len, list, len, name, sizeof name,
                                 &name_len));
    CHECK_OK(dt_remove_remote_peer(small.ours.t, name));
    free(list);
    side_close(&large);
    pair_close(&small);
}

/* ---- each in a process of its own ---- */

static void in_a_child(void (*run)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pair = pair_open(4, 64);
        run();
        pair_close(&pair);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

int main(void)
{
    CHECK(getrlimit(RLIMIT_AS, &whole) == 0);
    in_a_child(region);
    in_a_child(transfer);
    in_a_child(cancel);
    in_a_child(descriptor);
    return 0;
}
