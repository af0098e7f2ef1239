/* Child processes under remote control.
 *
 * A child is this same program, started again by fork and exec, so that it may be started at any
 * time: nothing of the library's state goes with it. It runs one role, and talks with the test
 * over one socket. It dies with the test.
 */
#ifndef DT_TEST_CHILD_H
#define DT_TEST_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    int socket;
    const char *role;
};

/* What a child does. `socket` leads to the test. Returning ends the child with success. */
struct role {
    const char *name;
    void (*run)(int socket);
};

/* First call of main: returns in the test; in a child it runs the role and exits. The last role has
 * no name. */
void child_main(int argc, char **argv, const struct role *roles);

struct child child_start(const char *role);

/* Two at once, in namespaces of their own: `flags` are those of clone(2). False if this process may not. */
bool child_start_twins(struct child twins[2], const char *role, int flags);

/* The receiver knows the size. Both fail the test when the other side is gone, and receiving also
 * after BOUND_MS. */
void message_send(int socket, const void *data, size_t bytes);
void message_receive(int socket, void *data, size_t bytes);
/* True when a message is there, or the other side is gone, within `timeout_ms`; -1: no bound, for a
 * child that waits for what the test does next. */
bool message_waiting(int socket, int timeout_ms);

/* Called again and again while a process waits for a message, unless it is NULL: what others need of
 * this process meanwhile. */
extern void (*message_meanwhile)(void);

/* Events are single letters. */
void event_send(int socket, char event);
void event_expect(int socket, char event);

void child_kill(struct child *child);       /* SIGKILL, and waits for the end */
void child_stop(struct child *child);       /* SIGSTOP, and waits until it stands */
void child_continue(struct child *child);
/* As a debugger does it: lets the child run until it is about to do system call `number`, and holds
 * it there. False, with the child as it was, where this machine does not permit ptrace. */
bool child_hold_at_syscall(struct child *child, long number);
void child_let_go(struct child *child);
void child_expect_success(struct child *child);  /* waits for exit code 0 */

/* From inside a child: becomes another role of this program by exec, with the same socket. */
void child_exec(int socket, const char *role) __attribute__((noreturn));

/* Prints and ends the test as failed. */
void test_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
