#include "memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend.h"
#include "dt_check.h"

/* Not a multiple of the page size of a huge page, to see that offsets are honoured. */
#define FD_OFFSET (3 * 4096)

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[] = {"dt_region_alloc", "anonymous mmap", "malloc",
                                        "own memfd, sealed", "own memfd, unsealed"};
    return names[kind];
}

bool memory_kind_matters(enum memory_kind kind)
{
    return !on_nixl() || kind == MEMORY_ALLOC;
}

int memory_is_mappable(enum memory_kind kind)
{
    return kind == MEMORY_ALLOC || kind == MEMORY_FD_SEALED;
}

static void *map(void *at, size_t bytes, int flags, int fd, uint64_t offset)
{
    void *base = mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, (off_t)offset);
    CHECK(base != MAP_FAILED);
    CHECK(at == NULL || base == at);
    return base;
}

static void from_memfd(struct memory *memory, int seal)
{
    memory->fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(memory->fd >= 0);
    CHECK(ftruncate(memory->fd, (off_t)(FD_OFFSET + memory->bytes)) == 0);
    if (seal)
        CHECK(fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    memory->offset = FD_OFFSET;
    memory->base = map(NULL, memory->bytes, MAP_SHARED, memory->fd, FD_OFFSET);
}

struct memory memory_new(enum memory_kind kind, size_t bytes, uint64_t at)
{
    struct memory memory = {kind, NULL, bytes, -1, 0};
    int fixed = at != 0 ? MAP_FIXED_NOREPLACE : 0;
    CHECK(at == 0 || kind == MEMORY_ANONYMOUS);
    switch (kind) {
    case MEMORY_ALLOC:
        CHECK_OK(dt_region_alloc(bytes, &memory.base, &memory.fd));
        break;
    case MEMORY_ANONYMOUS:
        memory.base =
            map((void *)(uintptr_t)at, bytes, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
        break;
    case MEMORY_HEAP:
        memory.base = malloc(bytes);
        CHECK(memory.base != NULL);
        break;
    case MEMORY_FD_SEALED:
    case MEMORY_FD_UNSEALED:
        from_memfd(&memory, kind == MEMORY_FD_SEALED);
        break;
    case MEMORY_KINDS:
        abort();
    }
    return memory;
}

void memory_free(struct memory *memory)
{
    switch (memory->kind) {
    case MEMORY_ALLOC:
        dt_region_free(memory->base, memory->bytes, memory->fd);
        break;
    case MEMORY_HEAP:
        free(memory->base);
        break;
    default:
        CHECK(munmap(memory->base, memory->bytes) == 0);
        if (memory->fd >= 0)
            CHECK(close(memory->fd) == 0);
    }
    memory->base = NULL;
}

void memory_unmap(const struct memory *memory)
{
    CHECK(memory->kind != MEMORY_HEAP);
    CHECK(munmap(memory->base, memory->bytes) == 0);
}

void memory_map_again(const struct memory *memory)
{
    int flags = memory->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    CHECK(memory->kind != MEMORY_HEAP);
    map(memory->base, memory->bytes, flags | MAP_FIXED_NOREPLACE, memory->fd, memory->offset);
}

void memory_replace(struct memory *memory)
{
    void *at = memory->base;
    CHECK(memory->kind != MEMORY_HEAP);
    memory_free(memory);
    *memory = (struct memory){MEMORY_ANONYMOUS, at, memory->bytes, -1, 0};
    map(at, memory->bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
