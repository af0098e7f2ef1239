/* dt_region_alloc and dt_region_free. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "logbook.h"
#include "unit_pair.h"

static bool is_mapped(const void *base, size_t bytes)
{
    /* msync fails with ENOMEM for pages that are not mapped. */
    return msync((void *)(uintptr_t)base, bytes, MS_ASYNC) == 0;
}

static void memory_and_descriptor(size_t bytes)
{
    uint8_t *base = NULL;
    void *out = NULL;
    int32_t fd = -1;
    struct stat stat;
    CHECK_OK(dt_region_alloc(bytes, &out, &fd));
    base = out;
    CHECK(base != NULL && fd >= 0);
    CHECK(((uintptr_t)base & 4095) == 0);

    /* Zeroed, writable, and the same as what the descriptor has. */
    for (size_t i = 0; i < bytes; i++)
        CHECK(base[i] == 0);
    memset(base, 0x5a, bytes);
    uint8_t *view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(view != MAP_FAILED);
    CHECK(memcmp(view, base, bytes) == 0);
    base[bytes - 1] = 1;
    CHECK(view[bytes - 1] == 1);
    CHECK(munmap(view, bytes) == 0);

    /* It does not leak into programs that are started, and cannot shrink under a peer. */
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0);
    CHECK(fstat(fd, &stat) == 0 && (size_t)stat.st_size >= bytes);

    dt_region_free(base, bytes, fd);
    CHECK(!is_mapped(base, bytes));
    CHECK(fcntl(fd, F_GETFD) == -1);
}

static void descriptor_of_its_own(void)
{
    void *base = NULL;
    int32_t fd = -1;
    CHECK_OK(dt_region_alloc(8192, &base, &fd));
    /* A negative descriptor is not closed, and NULL is nothing at all. */
    dt_region_free(base, 8192, -1);
    CHECK(!is_mapped(base, 8192));
    CHECK(fcntl(fd, F_GETFD) != -1);
    dt_region_free(NULL, 8192, fd);
    CHECK(fcntl(fd, F_GETFD) != -1);
    CHECK(close(fd) == 0);
}

static void limits(void)
{
    static char anything;
    void *const untouched = &anything;
    void *base = untouched;
    int32_t fd = -7;
    CHECK_STATUS(dt_region_alloc(0, &base, &fd), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_region_alloc(SIZE_MAX, &base, &fd), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_region_alloc((size_t)1 << 60, &base, &fd), DT_ERR_NO_MEMORY);
    CHECK(strlen(dt_last_error()) > 0);
    CHECK(base == untouched && fd == -7);
}

/* What is no region is left alone, which the log tells, and the right call still works. */
static void wrong_frees(void)
{
    void *base = NULL;
    int32_t fd = -1;
    CHECK_OK(dt_region_alloc(8192, &base, &fd));
    const struct {
        size_t offset, bytes;
    } wrong[] = {{0, 0}, {1, 8192}, {4096, 4096}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        logbook_start();
        dt_region_free((uint8_t *)base + wrong[i].offset, wrong[i].bytes, fd);
        CHECK(logbook_has("are no region"));
        logbook_stop();
    }
    memset(base, 7, 8192);
    CHECK(fcntl(fd, F_GETFD) >= 0);
    dt_region_free(base, 8192, fd);
    CHECK(fcntl(fd, F_GETFD) < 0);
}

static void as_a_region(void)
{
    void *base = NULL;
    int32_t fd = -1;
    dt_transport *t = NULL;
    dt_options options = test_options();
    dt_completion completion;
    CHECK_OK(dt_region_alloc(8 * 4096, &base, &fd));
    /* The region may start inside of the memory. */
    options.region_fd = fd;
    options.region_has_fd = true;
    options.region_offset = 2 * 4096;
    CHECK_OK(dt_create((uint8_t *)base + 2 * 4096, 4, 4096, &options, &t));
    struct side region = {(uint8_t *)base + 2 * 4096, 4, 4096, t};
    struct pair pair = {side_open(4, 4096), region};
    CHECK_OK(pair_add(&pair, "peer"));
    pair_fill(&pair, 1);
    pair_write(&pair, 0, 3);
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.status == DT_OK);
    CHECK(side_block_is(&pair.peer, 3, 1));
    side_close(&pair.ours);
    CHECK_OK(dt_close(t, BOUND_MS));
    dt_destroy(t);
    dt_region_free(base, 8 * 4096, fd);
}

static void no_region(void *base, size_t bytes)
{
    dt_options options = test_options();
    dt_transport *t = NULL;
    CHECK(dt_create(base, 1, bytes, &options, &t) == DT_ERR_INVALID_ARG);
    CHECK(t == NULL);
}

/* Memory that is not there for reading and writing is refused by every backend. */
static void checks_the_region(void)
{
    size_t bytes = 4 * (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK(mprotect(pages + bytes / 2, bytes / 4, PROT_READ) == 0);
    no_region(pages, bytes);
    CHECK(mprotect(pages + bytes / 2, bytes / 4, PROT_NONE) == 0);
    no_region(pages, bytes);
    CHECK(munmap(pages + bytes / 2, bytes / 4) == 0);
    no_region(pages, bytes);
}

int main(void)
{
    checks_the_region();
    static const size_t sizes[] = {1, 4096, 4097, (size_t)5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        memory_and_descriptor(sizes[i]);
    descriptor_of_its_own();
    limits();
    wrong_frees();
    as_a_region();
    return 0;
}
