/* Memory of dt_region_alloc is there in huge pages before anybody touches it, in the process that has it
 * and in a peer that maps it; and a size that the machine does not have costs nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "node.h"
#include "skip.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGES 24
/* The end is no whole huge page. */
#define BYTES (PAGES * HUGE_PAGE + 3 * 4096)

/* Sum over the mappings of this process whose file is called `name`. */
static size_t sum_of(const char *name, const char *key)
{
    char line[512];
    bool inside = false;
    size_t kib, sum = 0;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    CHECK(smaps != NULL);
    while (fgets(line, sizeof line, smaps) != NULL) {
        if (strchr(line, '-') != NULL && strchr(line, '-') < strchr(line, ' '))
            inside = strstr(line, name) != NULL;
        else if (inside && strncmp(line, key, strlen(key)) == 0
                 && sscanf(line + strlen(key), " %zu", &kib) == 1)
            sum += kib << 10;
    }
    fclose(smaps);
    return sum;
}

/* What the library does, without it: as many huge pages as the tests need. */
static bool kernel_can(void)
{
    const size_t len = PAGES * HUGE_PAGE;
    int fd = memfd_create("probe", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)len) == 0);
    uint8_t *base = mmap(NULL, len + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(base != MAP_FAILED);
    uint8_t *huge = base + (-(uintptr_t)base & (HUGE_PAGE - 1));
    CHECK(mmap(huge, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == huge);
    bool can = true;
    for (size_t at = 0; can && at < len; at += HUGE_PAGE)
        can = madvise(huge + at, 4096, MADV_POPULATE_WRITE) == 0
              && madvise(huge + at, HUGE_PAGE, MADV_COLLAPSE) == 0;
    CHECK(munmap(base, len + HUGE_PAGE) == 0 && close(fd) == 0);
    return can;
}

static size_t bytes_in_memory(int fd)
{
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    return (size_t)stat.st_blocks * 512;
}

static void is_there_untouched(void)
{
    void *base = NULL;
    int32_t fd = -1;
    CHECK_OK(dt_region_alloc(BYTES, &base, &fd));
    CHECK(bytes_in_memory(fd) == PAGES * HUGE_PAGE);
    CHECK(sum_of("dt-region", "ShmemPmdMapped:") == PAGES * HUGE_PAGE);
    for (size_t i = 0; i < BYTES; i += 512)
        CHECK(((const uint8_t *)base)[i] == 0);
    dt_region_free(base, BYTES, fd);
    CHECK(sum_of("dt-region", "Rss:") == 0);
}

/* One byte of each huge page of a peer, and the peer's whole memory is mapped by huge pages here. */
static void is_huge_for_a_peer(void)
{
    enum { BLOCK = 4096 };
    const size_t blocks = BYTES / BLOCK;
    struct node node = node_open(MEMORY_ANONYMOUS, PAGES, BLOCK);
    struct remote peer = remote_simple(MEMORY_ALLOC, blocks, BLOCK, 0);
    uint32_t local[PAGES], remote[PAGES];
    dt_xfer_id id = 0;

    CHECK_OK(node_add(&node, "peer", &peer.card));
    CHECK(sum_of("dt-region", "Rss:") == 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        local[i] = i;
        remote[i] = i * (uint32_t)(HUGE_PAGE / BLOCK) + i;
    }
    CHECK_OK(dt_write_blocks(node.transport, "peer", local, remote, PAGES, 0, &id));
    CHECK(node_finish(&node, "peer", id).status == DT_OK);
    CHECK(sum_of("dt-region", "ShmemPmdMapped:") == PAGES * HUGE_PAGE);

    remote_quit(&peer);
    node_close(&node);
}

/* Twice what the machine has. */
static void no_machine_has_so_much(void)
{
    size_t bytes = 2 * (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    void *base = NULL;
    int32_t fd = -1;
    CHECK_OK(dt_region_alloc(bytes, &base, &fd));
    CHECK(bytes_in_memory(fd) == 0);
    /* A region all the same. */
    ((uint8_t *)base)[bytes - 1] = 1;
    CHECK(bytes_in_memory(fd) > 0 && bytes_in_memory(fd) <= HUGE_PAGE);
    dt_region_free(base, bytes, fd);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);
    no_machine_has_so_much();
    if (!kernel_can()) {
        test_skipped("huge pages of dt_region_alloc: this kernel cannot collapse the pages of a memfd; Linux 6.1 "
                     "or newer can, with memory that is not in pieces");
        return 0;
    }
    is_there_untouched();
    is_huge_for_a_peer();
    return 0;
}
