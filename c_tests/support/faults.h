/* System calls that fail as the kernel can make them fail.
 *
 * The library calls the kernel without the C library, so that nothing can be put in between but a
 * filter of the kernel's (seccomp). */
#ifndef DT_TEST_FAULTS_H
#define DT_TEST_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

/* What an error number says. */
enum fault_kind {
    FAULT_NONE,
    FAULT_EXHAUSTED,    /* memory, descriptors, room */
    FAULT_DENIED,       /* a permission is missing, or the call is unknown to the kernel */
    FAULT_INTERRUPTED   /* a signal came */
};

struct fault {
    bool hit;               /* there were so many calls, and that one has failed */
    const char *name;       /* of the call */
    int error;
    enum fault_kind kind;
    unsigned choices;       /* in how many ways that call fails */
    long calls;             /* that could fail in all */
};

/* From now on the calls of this thread can be made to fail. Processes that it starts later can be
 * told apart, but wait for this one at each call: start them before. False, with the reason, where
 * the kernel does not permit it. */
bool faults_start(const char **why_not);

/* The `nth` call (from 1 on) that the library makes until faults_end fails, in the `choice`th of the
 * ways in which that call can. Not counted are calls that only give something back, those of the
 * memory allocator, without which a process is aborted, and those of NIXL. 0: all go through. */
void faults_begin(long nth, unsigned choice);
struct fault faults_end(void);

/* Every one of these calls of this thread, and of what it starts, fails with `error` from now on.
 * False where the kernel does not permit it. */
bool deny_calls(const int *numbers, size_t count, int error);

#endif
