/* A process that may open no more files: at every number of descriptors that are left, each call
 * works or says DT_ERR_NO_MEMORY, works when there are some again, and nothing is left over.
 *
 * With NIXL that holds for dt_create and for adding peers. Later UCX needs some when it connects, and
 * calls a peer lost that it has none for. */
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend.h"
#include "life.h"
#include "procfs.h"

static struct rlimit whole;

static void allow(rlim_t files)
{
    struct rlimit limit = {files, whole.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static rlim_t lowest_free(void)
{
    int fd = dup(0);
    CHECK(fd >= 0 && close(fd) == 0);
    return (rlim_t)fd;
}

static bool enough;

/* There is no descriptor to open the peer's mailbox with: the message waits for one. */
static void have_some_again(void)
{
    if (enough)
        printf("    a read waits until its message can be sent\n");
    enough = false;
    allow(whole.rlim_cur);
}

/* All steps. From step `from` on there are so many descriptors, until a step finds none: it is taken
 * again with plenty of them. True if all found what they needed. */
static bool life(struct remote *peer, size_t from, rlim_t files)
{
    enough = true;
    life_begin(peer);
    for (size_t i = 0; i < LIFE_STEPS; i++) {
        if (i == from)
            allow(lowest_free() + files);
        dt_status status = life_steps[i].run();
        if (status == DT_OK)
            continue;
        printf("    %llu left: %s: %s: %s\n", (unsigned long long)files, life_steps[i].name,
               dt_status_str(status), dt_last_error());
        fflush(stdout);
        CHECK(enough);
        CHECK_STATUS(status, DT_ERR_NO_MEMORY);
        CHECK(strstr(dt_last_error(), "file") != NULL);
        enough = false;
        allow(whole.rlim_cur);
        CHECK_OK(life_steps[i].run());
    }
    allow(whole.rlim_cur);
    life_end();
    return enough;
}

static void from_step(struct remote *peer, size_t from, rlim_t stride)
{
    struct holdings before, after;
    rlim_t files = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(life(peer, LIFE_STEPS, 0));
        before = holdings_now();
    }
    while (!life(peer, from, files)) {
        if (!holdings_are_back(&before, &after) || after.maps > before.maps + MAPS_SLACK)
            test_fail("%+ld descriptors, %+ld mappings, %+ld threads stay", after.fds - before.fds,
                      after.maps - before.maps, after.threads - before.threads);
        files += stride;
    }
    printf("from %s on: %llu descriptors are enough\n", life_steps[from].name,
           (unsigned long long)files);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);
    CHECK(getrlimit(RLIMIT_NOFILE, &whole) == 0);
    life_lacks_room = have_some_again;
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        struct remote peer = remote_simple(kinds[k], LIFE_BLOCKS, LIFE_BLOCK_LEN, 0);
        printf("a peer of %s\n", memory_kind_name(kinds[k]));
        if (on_nixl()) {
            /* It says beforehand whether there are as many as it may need. */
            from_step(&peer, 0, 13);
            from_step(&peer, 2, 6);
        } else {
            from_step(&peer, 0, 1);
        }
        remote_quit(&peer);
    }
    return 0;
}
