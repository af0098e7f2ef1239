#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "backend.h"
#include "child.h"
#include "dt_check.h"
#include "leaks.h"

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#else
#error "the architecture of system calls is not known here"
#endif

#define MOST_ERRORS 5

/* ---- what fails how ---- */

struct call {
    const char *name;
    int number;
    int errors[MOST_ERRORS];
    /* Others make this call too: only those that come out of the library itself are meant. */
    bool own_only;
};

static const struct call calls[] = {
#ifdef SYS_open
    {"open", SYS_open, {EMFILE, ENOMEM, EACCES, EINTR}, false},
#endif
    {"openat", SYS_openat, {EMFILE, ENOMEM, EACCES, EINTR}, false},
    {"read", SYS_read, {ENOMEM, EINTR}, false},
    {"pread64", SYS_pread64, {ENOMEM, EINTR}, false},
    {"pwrite64", SYS_pwrite64, {ENOMEM, ENOSPC, EINTR}, false},
#ifdef SYS_readlink
    {"readlink", SYS_readlink, {ENOMEM, EACCES}, false},
#endif
    {"readlinkat", SYS_readlinkat, {ENOMEM, EACCES}, false},
#ifdef SYS_stat
    {"stat", SYS_stat, {ENOMEM, EACCES}, false},
#endif
    {"newfstatat", SYS_newfstatat, {ENOMEM, EACCES}, false},
    {"fstat", SYS_fstat, {ENOMEM}, false},
    {"getdents64", SYS_getdents64, {ENOMEM}, false},
    {"statx", SYS_statx, {ENOMEM, EACCES}, false},
    {"memfd_create", SYS_memfd_create, {EMFILE, ENOMEM, EPERM, ENOSYS}, false},
    {"ftruncate", SYS_ftruncate, {ENOMEM, EINTR}, false},
    {"fallocate", SYS_fallocate, {ENOMEM, ENOSPC, EINTR}, false},
    {"mmap", SYS_mmap, {ENOMEM, EAGAIN}, true},
    {"madvise", SYS_madvise, {ENOMEM, EAGAIN}, true},
    {"mprotect", SYS_mprotect, {ENOMEM}, true},
    {"mremap", SYS_mremap, {ENOMEM, EAGAIN}, true},
    {"write", SYS_write, {ENOSPC, EINTR}, true},
    {"pidfd_open", SYS_pidfd_open, {EMFILE, ENOMEM, EPERM, ENOSYS}, false},
#ifdef SYS_poll
    {"poll", SYS_poll, {ENOMEM, EINTR}, false},
#endif
    {"ppoll", SYS_ppoll, {ENOMEM, EINTR}, false},
    {"epoll_create1", SYS_epoll_create1, {EMFILE, ENOMEM}, false},
    {"epoll_ctl", SYS_epoll_ctl, {ENOMEM, ENOSPC}, false},
    {"epoll_pwait", SYS_epoll_pwait, {EINTR}, false},
#ifdef SYS_epoll_wait
    {"epoll_wait", SYS_epoll_wait, {EINTR}, false},
#endif
#ifdef SYS_epoll_pwait2
    {"epoll_pwait2", SYS_epoll_pwait2, {EINTR, ENOSYS}, false},
#endif
    {"getrandom", SYS_getrandom, {EINTR, ENOSYS, EPERM}, false},
    {"process_vm_readv", SYS_process_vm_readv, {ENOMEM, EPERM, ENOSYS}, false},
    {"process_vm_writev", SYS_process_vm_writev, {ENOMEM, EPERM, ENOSYS}, false},
};

#define CALLS (sizeof calls / sizeof calls[0])

/* What only gives something back, waits, or cannot fail. Any other call of the library is not known
 * here, and ends the test. */
static const int harmless[] = {
    SYS_close,        SYS_munmap,      SYS_brk,         SYS_futex,     SYS_sched_yield,
    SYS_nanosleep,    SYS_clock_gettime, SYS_clock_nanosleep, SYS_getpid, SYS_gettid,
    SYS_prlimit64,    SYS_lseek,       SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_getaffinity,
    SYS_rt_sigaction, SYS_sigaltstack, SYS_set_robust_list, SYS_restart_syscall, SYS_getcpu,
    SYS_gettimeofday, SYS_clock_getres, SYS_membarrier, SYS_rt_sigpending, SYS_rt_sigtimedwait,
#ifdef SYS_rseq
    SYS_rseq,
#endif
};

#define HARMLESS (sizeof harmless / sizeof harmless[0])

/* fcntl is many calls. */
static const struct call fcntl_calls[] = {
    {"fcntl(F_DUPFD_CLOEXEC)", F_DUPFD_CLOEXEC, {EMFILE, ENOMEM}, false},
    {"fcntl(F_OFD_SETLK)", F_OFD_SETLK, {ENOLCK}, false},
    {"fcntl(F_OFD_GETLK)", F_OFD_GETLK, {ENOMEM}, false},
    {"fcntl(F_ADD_SEALS)", F_ADD_SEALS, {EPERM}, false},
};

static enum fault_kind kind_of(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case ENOSYS:
        return FAULT_DENIED;
    case EINTR:
        return FAULT_INTERRUPTED;
    default:
        return FAULT_EXHAUSTED;
    }
}

/* ---- where the library is ---- */

static uintptr_t library_start, library_end;

static void find_library(void)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        if (strstr(line, "/libdatatransport.so") == NULL ||
            sscanf(line, "%lx-%lx", &start, &end) != 2)
            continue;
        if (library_start == 0)
            library_start = start;
        library_end = end;
    }
    fclose(maps);
    CHECK(library_start != 0);
}

/* NIXL and UCX make many calls of their own, and what becomes of these is theirs. Most of ours go
 * through the C library, as theirs do; then it is the file that tells. */
static bool is_ours(const struct call *call, const struct seccomp_data *data)
{
    uintptr_t at = (uintptr_t)data->instruction_pointer;
    if (at >= library_start && at < library_end)
        return true;
    if (call->own_only)
        return false;
    if (!on_nixl())
        return true;
    return call->number == SYS_openat &&
           strcmp((const char *)(uintptr_t)data->args[1], "/proc/thread-self/maps") == 0;
}

/* ---- who stands in for the kernel ---- */

static atomic_int listener = -1;
static pid_t victim;

/* The plan, and what came of it. The two threads take turns. */
static atomic_bool armed;
static long planned;
static unsigned planned_choice;
static struct fault fault;

static const struct call *find(const struct seccomp_data *data)
{
    if (data->nr == SYS_fcntl) {
        for (size_t i = 0; i < sizeof fcntl_calls / sizeof fcntl_calls[0]; i++) {
            /* Unlocking gives something back. */
            if ((int)data->args[1] == fcntl_calls[i].number &&
                (data->args[1] != F_OFD_SETLK ||
                 ((const struct flock *)(uintptr_t)data->args[2])->l_type != F_UNLCK))
                return &fcntl_calls[i];
        }
        return NULL;
    }
    for (size_t i = 0; i < CALLS; i++)
        if (data->nr == calls[i].number)
            return &calls[i];
    return NULL;
}

/* The error that this call fails with; 0: none. */
static int judge(const struct seccomp_notif *asked)
{
    if ((pid_t)asked->pid != victim || !atomic_load(&armed))
        return 0;
    const struct call *call = find(&asked->data);
    if (call == NULL && asked->data.nr != SYS_fcntl && !on_nixl())
        test_fail("system call %d of the library is not known to the test", asked->data.nr);
    if (call == NULL || !is_ours(call, &asked->data) || ++fault.calls != planned)
        return 0;
    while (fault.choices < MOST_ERRORS && call->errors[fault.choices] != 0)
        fault.choices++;
    fault.hit = true;
    fault.name = call->name;
    fault.error = call->errors[planned_choice];
    fault.kind = kind_of(fault.error);
    return fault.error;
}

static void *stand_in(void *unused)
{
    /* A newer kernel may have more to say. */
    union {
        struct seccomp_notif notif;
        struct seccomp_notif_resp resp;
        char room[1024];
    } asked, answer;
    (void)unused;
    while (atomic_load(&listener) < 0)
        usleep(100);
    for (;;) {
        memset(&asked, 0, sizeof asked);
        memset(&answer, 0, sizeof answer);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked.notif) != 0)
            continue;
        int error = judge(&asked.notif);
        answer.resp.id = asked.notif.id;
        answer.resp.error = -error;
        answer.resp.flags = error == 0 ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
        /* ENOENT: a signal has ended the call. Without an answer it would wait for ever. */
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer.resp) != 0 && errno != ENOENT)
            test_fail("a system call cannot be answered: %s", strerror(errno));
    }
    return NULL;
}

/* ---- filters ---- */

#define MOST_NUMBERS 64

/* Puts one action on these calls of this thread, and another on the others; what seccomp(2) returns. */
static int install(const int *numbers, size_t count, uint32_t action, uint32_t others,
                   unsigned flags)
{
    struct sock_filter code[2 * MOST_NUMBERS + 5];
    unsigned short n = 0;
    CHECK(count <= MOST_NUMBERS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                 (uint32_t)numbers[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    struct sock_fprog program = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

bool deny_calls(const int *numbers, size_t count, int error)
{
    return install(numbers, count, SECCOMP_RET_ERRNO | (uint32_t)error, SECCOMP_RET_ALLOW, 0) == 0;
}

/* Linux 5.5 was the first to let a call through that it had asked about. */
static bool kernel_lets_through(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    CHECK(uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2);
    return major > 5 || (major == 5 && minor >= 5);
}

bool faults_start(const char **why_not)
{
    int numbers[CALLS];
    pthread_t thread;
    *why_not = "it takes Linux 5.5";
    if (!kernel_lets_through())
        return false;
    for (size_t i = 0; i < CALLS; i++)
        numbers[i] = calls[i].number;
    find_library();
    victim = (pid_t)syscall(SYS_gettid);
    /* First, for making a thread takes calls that would wait for it. */
    CHECK(pthread_create(&thread, NULL, stand_in, NULL) == 0);
    /* With NIXL there are very many that are none of ours. And all of fcntl's are alike: those that
     * look for room, which integration_out_of_files is about. */
    int fd = on_nixl() ? install(numbers, CALLS, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ALLOW,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER)
                       : install(harmless, HARMLESS, SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER);
    *why_not = strerror(errno);
    atomic_store(&listener, fd);
    /* The sanitizer's calls would wait for a thread that it has stopped itself. */
    leaks_cannot_be_found();
    return fd >= 0;
}

void faults_begin(long nth, unsigned choice)
{
    fault = (struct fault){0};
    planned = nth;
    planned_choice = choice;
    atomic_store(&armed, true);
}

struct fault faults_end(void)
{
    atomic_store(&armed, false);
    return fault;
}
