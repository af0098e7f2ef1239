#include "child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dt_check.h"
#include "dt_time.h"

/* Where a child finds its socket. */
#define CHILD_SOCKET 3
#define ROLE_FLAG "--role"

extern char **environ;

/* Not /proc/self/exe: under valgrind that is valgrind. */
static char *own_path;

void test_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

void child_main(int argc, char **argv, const struct role *roles)
{
    own_path = realpath(argv[0], NULL);
    CHECK(own_path != NULL);
    if (argc < 3 || strcmp(argv[1], ROLE_FLAG) != 0)
        return;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    for (; roles->name != NULL; roles++) {
        if (strcmp(roles->name, argv[2]) == 0) {
            roles->run(CHILD_SOCKET);
            exit(0);
        }
    }
    test_fail("no role %s", argv[2]);
}

struct child child_start(const char *role)
{
    int pair[2];
    struct child child = {-1, -1, role};
    char *argv[] = {own_path, (char *)ROLE_FLAG, (char *)(uintptr_t)role, NULL};
    posix_spawn_file_actions_t actions;

    fflush(stdout);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, pair[1], CHILD_SOCKET) == 0);
    /* Those of UCX, which has no FD_CLOEXEC on them: with a copy here, a peer of this process would not
     * notice that its transport has gone. */
    CHECK(posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_SOCKET + 1) == 0);
    int error = posix_spawn(&child.pid, own_path, &actions, NULL, argv, environ);
    if (error != 0)
        test_fail("posix_spawn(%s): %s", own_path, strerror(error));
    posix_spawn_file_actions_destroy(&actions);
    close(pair[1]);
    child.socket = pair[0];
    return child;
}

/* Nothing but system calls: what this process is doing otherwise does not exist in the new one. */
static pid_t start_in_namespaces(int flags, int socket, char *const argv[])
{
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid != 0)
        return pid;
    if (dup2(socket, CHILD_SOCKET) == CHILD_SOCKET) {
        closefrom(CHILD_SOCKET + 1);
        execve(own_path, argv, environ);
    }
    _exit(127);
}

bool child_start_twins(struct child twins[2], const char *role, int flags)
{
    int pairs[2][2];
    char *argv[] = {own_path, (char *)ROLE_FLAG, (char *)(uintptr_t)role, NULL};
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]) == 0);
        CHECK(pairs[i][1] > CHILD_SOCKET);
    }
    for (int i = 0; i < 2; i++)
        twins[i] = (struct child){start_in_namespaces(flags, pairs[i][1], argv), pairs[i][0], role};
    bool permitted = twins[0].pid > 0;
    CHECK(permitted ? twins[1].pid > 0 : errno == EPERM);
    for (int i = 0; i < 2; i++) {
        close(pairs[i][1]);
        if (!permitted)
            close(pairs[i][0]);
    }
    return permitted;
}

void child_exec(int socket, const char *role)
{
    char *argv[] = {own_path, (char *)ROLE_FLAG, (char *)(uintptr_t)role, NULL};
    CHECK(socket == CHILD_SOCKET);
    execv(own_path, argv);
    test_fail("execv(%s): %s", own_path, strerror(errno));
}

void (*message_meanwhile)(void);

static bool is_ready(int socket, const struct timespec *timeout)
{
    struct pollfd ready = {socket, POLLIN, 0};
    int count;
    do {
        count = ppoll(&ready, 1, timeout, NULL);
    } while (count < 0 && errno == EINTR);
    return count == 1;
}

bool message_waiting(int socket, int timeout_ms)
{
    const struct timespec nap = {0, 100000}, span = {timeout_ms / 1000,
                                                     timeout_ms % 1000 * 1000000L};
    if (message_meanwhile == NULL)
        return is_ready(socket, timeout_ms < 0 ? NULL : &span);
    uint64_t deadline = now_ms() + (uint64_t)timeout_ms;
    while (!is_ready(socket, &nap)) {
        if (timeout_ms >= 0 && now_ms() >= deadline)
            return false;
        message_meanwhile();
    }
    return true;
}

void message_send(int socket, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            test_fail("cannot send to the other process: %s", strerror(errno));
        from += n;
        bytes -= (size_t)n;
    }
}

void message_receive(int socket, void *data, size_t bytes)
{
    char *to = data;
    while (bytes > 0) {
        if (!message_waiting(socket, BOUND_MS))
            test_fail("no message from the other process within %d ms", BOUND_MS);
        ssize_t n = recv(socket, to, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            test_fail("the other process is gone in the middle of a talk; it may have said why");
        to += n;
        bytes -= (size_t)n;
    }
}

void event_send(int socket, char event)
{
    message_send(socket, &event, 1);
}

void event_expect(int socket, char event)
{
    char got;
    message_receive(socket, &got, 1);
    if (got != event)
        test_fail("expected event '%c', got '%c'", event, got);
}

/* Waits, with the bound, for a change that waitpid shows with `flags`. */
static int wait_change(struct child *child, int flags)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    int status;
    for (;;) {
        pid_t pid = waitpid(child->pid, &status, flags | WNOHANG);
        if (pid == child->pid)
            return status;
        if (pid < 0 && errno != EINTR)
            test_fail("waitpid: %s", strerror(errno));
        if (now_ms() > deadline) {
            kill(child->pid, SIGKILL);
            test_fail("child %s did not end within %d ms", child->role, BOUND_MS);
        }
        usleep(200);
    }
}

/* The pid of a child that was reaped is -1 here, which would mean every process of the machine. */
static void signal_child(const struct child *child, int signal)
{
    CHECK(child->pid > 0);
    CHECK(kill(child->pid, signal) == 0);
}

void child_kill(struct child *child)
{
    signal_child(child, SIGKILL);
    int status = wait_change(child, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child->socket);
    child->pid = -1;
}

void child_stop(struct child *child)
{
    signal_child(child, SIGSTOP);
    int status = wait_change(child, WUNTRACED);
    CHECK(WIFSTOPPED(status));
}

void child_continue(struct child *child)
{
    signal_child(child, SIGCONT);
}

bool child_hold_at_syscall(struct child *child, long number)
{
    if (ptrace(PTRACE_SEIZE, child->pid, NULL, PTRACE_O_TRACESYSGOOD) != 0) {
        CHECK(errno == EPERM || errno == ENOSYS);
        return false;
    }
    CHECK(ptrace(PTRACE_INTERRUPT, child->pid, NULL, NULL) == 0);
    uint64_t deadline = now_ms() + BOUND_MS;
    for (;;) {
        int status = wait_change(child, 0);
        struct __ptrace_syscall_info info;
        CHECK(WIFSTOPPED(status) && now_ms() < deadline);
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child->pid, sizeof info, &info) > 0);
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY && (long)info.entry.nr == number)
                return true;
        }
        CHECK(ptrace(PTRACE_SYSCALL, child->pid, NULL, NULL) == 0);
    }
}

void child_let_go(struct child *child)
{
    CHECK(ptrace(PTRACE_DETACH, child->pid, NULL, NULL) == 0);
}

void child_expect_success(struct child *child)
{
    int status = wait_change(child, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        test_fail("child %s ended with wait status 0x%x", child->role, (unsigned)status);
    close(child->socket);
    child->pid = -1;
}
