/* Every system call that the library makes fails once, in every way in which it can: the call of the
 * library then says so clearly, or does without; it can be made again; and when the transport is
 * closed, the process holds what it held before. What was interrupted by a signal always goes on. */
#include <string.h>

#include "backend.h"
#include "faults.h"
#include "life.h"
#include "procfs.h"
#include "skip.h"

static void expect(const struct life_step *step, const struct fault *fault, dt_status status)
{
    bool fits = status == DT_OK;
    if (fault->kind == FAULT_EXHAUSTED)
        fits |= status == DT_ERR_NO_MEMORY;
    if (fault->kind == FAULT_DENIED)
        fits |= status == DT_ERR_UNAVAILABLE;
    if (!fits)
        test_fail("%s, when %s fails (%s): %s: %s", step->name, fault->name,
                  strerror(fault->error), dt_status_str(status), dt_last_error());
}

/* Goes through all steps, with a fault in one of them; 0: none. */
static struct fault life(struct remote *peer, size_t faulted, long nth, unsigned choice)
{
    struct fault fault = {0};
    life_begin(peer);
    for (size_t i = 0; i < LIFE_STEPS; i++) {
        if (i != faulted) {
            CHECK_OK(life_steps[i].run());
            continue;
        }
        faults_begin(nth, choice);
        dt_status status = life_steps[i].run();
        fault = faults_end();
        if (!fault.hit) {
            CHECK_OK(status);
            continue;
        }
        expect(&life_steps[i], &fault, status);
        if (status != DT_OK)
            CHECK_OK(life_steps[i].run());
    }
    life_end();
    return fault;
}

static void flat(const struct holdings *before, size_t step, const struct fault *fault)
{
    struct holdings now;
    if (!holdings_are_back(before, &now) || now.maps > before->maps + MAPS_SLACK)
        test_fail("%s, when %s had failed (%s): %+ld descriptors, %+ld mappings, %+ld threads stay",
                  life_steps[step].name, fault->name, strerror(fault->error),
                  now.fds - before->fds, now.maps - before->maps, now.threads - before->threads);
}

static unsigned long every_call_of(struct remote *peer, size_t step,
                                   const struct holdings *before)
{
    unsigned long lives = 0;
    for (long nth = 1;; nth++) {
        for (unsigned choice = 0;; choice++) {
            struct fault fault = life(peer, step, nth, choice);
            lives++;
            if (fault.hit)
                flat(before, step, &fault);
            if (!fault.hit) {
                printf("    %s: %ld calls, %lu failures\n", life_steps[step].name, fault.calls,
                       lives - 1);
                return lives - 1;
            }
            if (choice + 1 == fault.choices)
                break;
        }
    }
}

static void with(struct remote *peer, enum memory_kind kind)
{
    struct holdings before;
    unsigned long failures = 0;
    /* Also what is loaded and kept for good. */
    for (int i = 0; i < 3; i++) {
        life(peer, LIFE_STEPS, 0, 0);
        before = holdings_now();
    }
    for (size_t step = 0; step < LIFE_STEPS; step++) {
        /* With NIXL all other calls are the engine's. */
        if (!on_nixl() || strcmp(life_steps[step].name, "dt_create") == 0)
            failures += every_call_of(peer, step, &before);
    }
    printf("a peer of %s: %lu failures\n", memory_kind_name(kind), failures);
    CHECK(failures > 0);
    remote_quit(peer);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    struct remote peers[2];
    const char *why_not;
    child_main(argc, argv, roles);

    for (int k = 0; k < 2; k++)
        if (memory_kind_matters(kinds[k]))
            peers[k] = remote_simple(kinds[k], LIFE_BLOCKS, LIFE_BLOCK_LEN, 0);
    if (!faults_start(&why_not)) {
        char text[128];
        snprintf(text, sizeof text, "a filter for system calls (seccomp) is not permitted: %s",
                 why_not);
        test_skipped(text);
        return 0;
    }
    for (int k = 0; k < 2; k++)
        if (memory_kind_matters(kinds[k]))
            with(&peers[k], kinds[k]);
    return 0;
}
