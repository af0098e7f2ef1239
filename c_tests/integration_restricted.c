/* Processes that may not do what others may: everything works without it, or the call that needs it
 * says so, and holds nothing afterwards. Needs root for some of it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "faults.h"
#include "leaks.h"
#include "life.h"
#include "procfs.h"
#include "skip.h"

/* ---- what is forbidden ---- */

enum restriction {
    NOTHING,
    PROCESS_VM_DENIED,   /* by a seccomp profile, as some containers do */
    PROCESS_VM_UNKNOWN,
    PIDFD_DENIED,
    PIDFD_UNKNOWN,       /* before Linux 5.3 */
    MEMFD_DENIED,
    THREADS_REFUSED,     /* RLIMIT_NPROC, or the cgroup's pids.max */
    NO_LOCKED_MEMORY,
    NO_PROC,
    FULL_SHM,
    ONE_USER,
    OTHER_USER,
    NOT_DUMPABLE,        /* of ONE_USER */
    RESTRICTIONS
};

static const char *const names[RESTRICTIONS] = {
    "nothing",
    "process_vm (EPERM)",
    "process_vm (ENOSYS)",
    "pidfd_open (EPERM)",
    "pidfd_open (ENOSYS)",
    "memfd_create (EPERM)",
    "new threads",
    "locked memory",
    "/proc",
    "room in /dev/shm",
    "root",
    "root, as another user",
    "root, and not dumpable",
};

static bool deny(int first, int second, int error)
{
    const int numbers[] = {first, second};
    return deny_calls(numbers, 2, error);
}

static bool become(uid_t uid, int dumpable)
{
    if (geteuid() != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0)
        return false;
    /* NIXL looks for its settings there, and gives up if it may not. */
    CHECK(setenv("HOME", "/", 1) == 0);
    /* A change of the user has cleared both. */
    return prctl(PR_SET_DUMPABLE, dumpable) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

/* A file system of two pages, over `path`, for this process alone. */
static bool cover(const char *path)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", path, "tmpfs", 0, "size=8k") == 0;
}

static bool fill_shm(void)
{
    static const char page[4096];
    if (!cover("/dev/shm"))
        return false;
    int fd = open("/dev/shm/full", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    while (write(fd, page, sizeof page) > 0) {
    }
    CHECK(errno == ENOSPC && close(fd) == 0);
    return true;
}

/* False where this user cannot take it away. */
static bool restrict_to(enum restriction what)
{
    const struct rlimit none = {0, 0};
    leaks_cannot_be_found();
    switch (what) {
    case NOTHING:
        return true;
    case PROCESS_VM_DENIED:
        return deny(SYS_process_vm_readv, SYS_process_vm_writev, EPERM);
    case PROCESS_VM_UNKNOWN:
        return deny(SYS_process_vm_readv, SYS_process_vm_writev, ENOSYS);
    case PIDFD_DENIED:
        return deny(SYS_pidfd_open, SYS_pidfd_open, EPERM);
    case PIDFD_UNKNOWN:
        return deny(SYS_pidfd_open, SYS_pidfd_open, ENOSYS);
    case MEMFD_DENIED:
        return deny(SYS_memfd_create, SYS_memfd_create, EPERM);
    case THREADS_REFUSED:
        return deny(SYS_clone3, SYS_clone, EAGAIN);
    case NO_LOCKED_MEMORY:
        return setrlimit(RLIMIT_MEMLOCK, &none) == 0;
    case NO_PROC:
        return cover("/proc");
    case FULL_SHM:
        return fill_shm();
    case ONE_USER:
        return become(65534, 1);
    case OTHER_USER:
        return become(65533, 1);
    case NOT_DUMPABLE:
        return become(65534, 0);
    case RESTRICTIONS:
        break;
    }
    return false;
}

/* ---- processes ---- */

/* What a process with a restriction is started with. */
struct task {
    enum restriction own;
    enum restriction peer;
    enum memory_kind kind;
};

struct report {
    bool restricted;     /* both could be */
    size_t steps;        /* that worked */
    dt_status status;    /* of the next */
    char text[REMOTE_TEXT];
};

static void peer_role(int socket)
{
    struct task task;
    message_receive(socket, &task, sizeof task);
    event_send(socket, restrict_to(task.peer) ? 'r' : 'n');
    node_role(socket);
}

/* As remote_start. */
static struct remote start_peer(const struct task *task, bool *restricted)
{
    struct remote remote;
    struct node_spec spec;
    char event;
    memset(&spec, 0, sizeof spec);
    spec.kind = task->kind;
    spec.num_blocks = LIFE_BLOCKS;
    spec.block_len = LIFE_BLOCK_LEN;
    remote.child = child_start("peer");
    message_send(remote.child.socket, task, sizeof *task);
    message_receive(remote.child.socket, &event, 1);
    *restricted = event == 'r';
    message_send(remote.child.socket, &spec, sizeof spec);
    message_receive(remote.child.socket, &remote.card, sizeof remote.card);
    return remote;
}

static void life_role(int socket)
{
    struct task task;
    struct report report;
    struct holdings before, after;
    memset(&report, 0, sizeof report);
    message_receive(socket, &task, sizeof task);
    struct remote peer = start_peer(&task, &report.restricted);
    report.restricted = report.restricted && restrict_to(task.own);
    /* Twice: the first time things are loaded and kept for good. */
    for (int round = 0; report.restricted && round < 2; round++) {
        if (task.own != NO_PROC)
            before = holdings_now();
        life_begin(&peer);
        size_t i = 0;
        while (i < LIFE_STEPS && (report.status = life_steps[i].run()) == DT_OK)
            i++;
        CHECK(round == 0 || report.steps == i);
        report.steps = i;
        if (i == LIFE_STEPS) {
            life_end();
        } else {
            strncpy(report.text, dt_last_error(), sizeof report.text - 1);
            life_give_up();
        }
        if (task.own != NO_PROC && round > 0) {
            CHECK(holdings_are_back(&before, &after));
        }
    }
    message_send(socket, &report, sizeof report);
    remote_quit(&peer);
}

/* ---- the test ---- */

static size_t step_named(const char *name)
{
    size_t i = 0;
    while (i < LIFE_STEPS && strcmp(life_steps[i].name, name) != 0)
        i++;
    CHECK(i < LIFE_STEPS);
    return i;
}

/* `step`: the one that says `status`, with `word` in its sentence; NULL: all works. */
static void expect(enum restriction own, enum restriction peer, enum memory_kind kind,
                   const char *step, dt_status status, const char *word)
{
    struct task task;
    struct report report;
    memset(&task, 0, sizeof task);
    task.own = own;
    task.peer = peer;
    task.kind = kind;
    struct child child = child_start("life");
    message_send(child.socket, &task, sizeof task);
    message_receive(child.socket, &report, sizeof report);
    child_expect_success(&child);
    if (!report.restricted) {
        char text[160];
        snprintf(text, sizeof text, "a process without %s, and a peer without %s, need root",
                 names[own], names[peer]);
        test_skipped(text);
        return;
    }
    printf("without %s, to %s of a process without %s: ", names[own], memory_kind_name(kind),
           names[peer]);
    if (report.steps == LIFE_STEPS)
        printf("all works\n");
    else
        printf("%s: %s: %s\n", life_steps[report.steps].name, dt_status_str(report.status),
               report.text);
    fflush(stdout);
    CHECK(report.steps == (step != NULL ? step_named(step) : LIFE_STEPS));
    CHECK(report.status == status && (step == NULL || strstr(report.text, word) != NULL));
}

static void local(enum memory_kind kind)
{
    const char *add = "dt_add_remote_peer", *alloc = "dt_region_alloc", *create = "dt_create";
    /* What is mapped needs no help of the kernel's. */
    bool mapped = memory_is_mappable(kind);
    const char *copied = mapped ? NULL : add;
    dt_status denied = mapped ? DT_OK : DT_ERR_UNAVAILABLE;
    expect(PROCESS_VM_DENIED, NOTHING, kind, copied, denied, "seccomp");
    expect(PROCESS_VM_UNKNOWN, NOTHING, kind, copied, denied, "seccomp");
    expect(PIDFD_DENIED, NOTHING, kind, add, DT_ERR_UNAVAILABLE, "seccomp");
    expect(PIDFD_UNKNOWN, NOTHING, kind, add, DT_ERR_UNAVAILABLE, "Linux 5.3");
    expect(MEMFD_DENIED, NOTHING, kind, alloc, DT_ERR_UNAVAILABLE, "memfd_create");
    expect(THREADS_REFUSED, NOTHING, kind, NULL, DT_OK, NULL);
    expect(NO_PROC, NOTHING, kind, create, DT_ERR_UNAVAILABLE, "/proc");
    expect(ONE_USER, OTHER_USER, kind, add, DT_ERR_UNAVAILABLE, "uid");
    expect(ONE_USER, NOT_DUMPABLE, kind, add, DT_ERR_UNAVAILABLE, "dumpable");
    /* Root may look into all. */
    expect(NOTHING, NOT_DUMPABLE, kind, NULL, DT_OK, NULL);
}

static void nixl(enum memory_kind kind)
{
    const char *alloc = "dt_region_alloc", *create = "dt_create";
    /* UCX takes another way. */
    expect(PROCESS_VM_DENIED, NOTHING, kind, NULL, DT_OK, NULL);
    expect(MEMFD_DENIED, NOTHING, kind, alloc, DT_ERR_UNAVAILABLE, "memfd_create");
    expect(THREADS_REFUSED, NOTHING, kind, create, DT_ERR_NO_MEMORY, "RLIMIT_NPROC");
    expect(NO_PROC, NOTHING, kind, create, DT_ERR_UNAVAILABLE, "/proc");
    expect(ONE_USER, OTHER_USER, kind, NULL, DT_OK, NULL);
    expect(ONE_USER, NOT_DUMPABLE, kind, NULL, DT_OK, NULL);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {
        NODE_ROLES, {"peer", peer_role}, {"life", life_role}, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    static const enum restriction harmless[] = {NOTHING, NO_LOCKED_MEMORY, FULL_SHM};
    static const enum restriction of_the_peer[] = {PROCESS_VM_DENIED, FULL_SHM, PROCESS_VM_UNKNOWN,
                                                   PIDFD_DENIED, NO_LOCKED_MEMORY};
    child_main(argc, argv, roles);
    for (int k = 0; k < 2; k++) {
        if (!memory_kind_matters(kinds[k]))
            continue;
        for (int i = 0; i < 3; i++)
            expect(harmless[i], NOTHING, kinds[k], NULL, DT_OK, NULL);
        for (int i = 0; i < (on_nixl() ? 2 : 5); i++)
            expect(NOTHING, of_the_peer[i], kinds[k], NULL, DT_OK, NULL);
        (on_nixl() ? nixl : local)(kinds[k]);
    }
    return 0;
}
