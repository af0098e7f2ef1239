/* Processes that number, name and see things differently: what looks the same from outside is never
 * taken for the same, and what cannot work says so. */
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"
#include "leaks.h"
#include "node.h"
#include "skip.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define BLOCKS 8
#define LEN 4096
/* Where all nodes have their memory. */
#define ADDRESS 0x230000000000u

/* ---- processes in namespaces of their own ---- */

/* Tells the test whether this machine lets us. */
static void enter(int test, int flags)
{
    bool entered = unshare(flags) == 0;
    leaks_cannot_be_found();
    event_send(test, entered ? 'y' : 'n');
    if (!entered)
        exit(0);
}

/* The first process of its pid namespace; what waits for it ends as it does. */
static void become_first(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        CHECK(getpid() == 1);
        return;
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static unsigned long long start_time(void)
{
    char text[1024];
    FILE *stat = fopen("/proc/self/stat", "re");
    CHECK(stat != NULL && fgets(text, sizeof text, stat) != NULL);
    fclose(stat);
    const char *at = strrchr(text, ')');
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    CHECK(at != NULL);
    return strtoull(at, NULL, 10);
}

static void twin_role(int test)
{
    leaks_cannot_be_found();
    CHECK(getpid() == 1);
    CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
    unsigned long long start = start_time();
    message_send(test, &start, sizeof start);
    node_role(test);
}

static void write_file(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
}

static void other_user_role(int test)
{
    enter(test, CLONE_NEWUSER);
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 0 1");
    write_file("/proc/self/gid_map", "0 0 1");
    node_role(test);
}

static void other_net_role(int test)
{
    struct ifreq request;
    enter(test, CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS);
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memset(&request, 0, sizeof request);
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    CHECK(any >= 0 && ioctl(any, SIOCSIFFLAGS, &request) == 0);
    close(any);
    node_role(test);
}

/* Counts its time from another boot. */
static void other_clock_role(int test)
{
    enter(test, CLONE_NEWTIME);
    write_file("/proc/self/timens_offsets", "boottime 100000 0");
    /* Only children are in it. */
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        node_role(test);
        exit(0);
    }
    CHECK(waitpid(pid, NULL, 0) == pid);
}

struct refusal {
    dt_status status;
    char text[512];
};

/* Sends what becomes of dt_create here. */
static void try_to_create(int test)
{
    static uint8_t region[LEN];
    struct refusal refusal;
    dt_options options = test_options();
    dt_transport *t = NULL;
    memset(&refusal, 0, sizeof refusal);
    refusal.status = dt_create(region, 1, LEN, &options, &t);
    strncpy(refusal.text, dt_last_error(), sizeof refusal.text - 1);
    if (refusal.status == DT_OK) {
        CHECK_OK(dt_close(t, BOUND_MS));
        dt_destroy(t);
    }
    message_send(test, &refusal, sizeof refusal);
}

/* In a pid namespace of its own, with the /proc of the one around it. */
static void others_proc_role(int test)
{
    enter(test, CLONE_NEWPID);
    become_first();
    try_to_create(test);
}

static void without_proc_role(int test)
{
    char folder[] = "/tmp/dt-root-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    bool changed = chroot(folder) == 0 && chdir("/") == 0;
    leaks_cannot_be_found();
    event_send(test, changed ? 'y' : 'n');
    if (changed)
        try_to_create(test);
    /* It is empty, and cannot be reached from here any more: the test removes it. */
    message_send(test, folder, sizeof folder);
}

/* ---- the test ---- */

static void not_permitted(const char *role)
{
    char what[256];
    snprintf(what, sizeof what, "%s: namespaces need root, or a container that may make some", role);
    test_skipped(what);
}

static bool permitted(struct child *child)
{
    char answer;
    message_receive(child->socket, &answer, 1);
    if (answer != 'y')
        not_permitted(child->role);
    return answer == 'y';
}

static struct remote continue_as_node(struct child child, const char *name, uint64_t fill_seed)
{
    struct node_spec spec;
    struct remote remote = {.child = child};
    memset(&spec, 0, sizeof spec);
    spec.kind = MEMORY_ANONYMOUS;
    spec.num_blocks = BLOCKS;
    spec.block_len = LEN;
    spec.fill_seed = fill_seed;
    spec.at = ADDRESS;
    strcpy(spec.name, name);
    message_send(child.socket, &spec, sizeof spec);
    message_receive(child.socket, &remote.card, sizeof remote.card);
    return remote;
}

static void expect_text(const char *text, const char *word)
{
    if (strstr(text, word) == NULL)
        test_fail("there is no \"%s\" in \"%s\"", word, text);
}

static void expect_untouched(struct remote *remote, uint64_t seed)
{
    struct content *all = contents_of(seed, BLOCKS);
    remote_check(remote, all, NULL);
    free(all);
}

/* Two processes, each the first of its namespace, started in the same clock tick: two calls in a row, so that
 * few tries are needed, however busy the machine is. */
static bool start_twins(struct child twins[2])
{
    for (int attempt = 0; attempt < 300; attempt++) {
        unsigned long long starts[2];
        if (!child_start_twins(twins, "twin", CLONE_NEWPID | CLONE_NEWNS)) {
            not_permitted("twin");
            return false;
        }
        for (int i = 0; i < 2; i++)
            message_receive(twins[i].socket, &starts[i], sizeof starts[i]);
        if (starts[0] == starts[1])
            return true;
        for (int i = 0; i < 2; i++)
            child_kill(&twins[i]);
    }
    test_fail("no two processes were started in one clock tick");
}

/* Same pid, start instant, addresses, and, where that is allowed, the same name. */
static void twins(const struct node *node)
{
    struct child children[2];
    struct remote both[2];
    char text[REMOTE_TEXT];
    const uint32_t from[] = {1, 2}, to[] = {5, 6};
    struct card ours = node_card(node);
    if (!start_twins(children))
        return;
    for (int i = 0; i < 2; i++)
        both[i] = continue_as_node(children[i], on_nixl() && i == 1 ? "twin2" : "twin",
                                   20 + (uint64_t)i);
    CHECK(both[0].card.base == both[1].card.base && both[0].card.base == ours.base);
    struct content *want = contents_of(on_nixl() ? 21 : 20, BLOCKS);
    if (on_nixl()) {
        /* Sockets know no pids: the right one of the two gets the bytes. */
        CHECK_OK(remote_add(&both[0], "other", &both[1].card, text));
        CHECK_OK(remote_copy(&both[0], true, "other", from, to, 2));
        contents_copy(want, to, 20, from, 2);
        remote_check(&both[1], want, NULL);
        expect_untouched(&both[0], 20);
    } else {
        CHECK_STATUS(remote_add(&both[0], "other", &both[1].card, text), DT_ERR_INCOMPATIBLE);
        expect_text(text, "pid namespace");
        CHECK_STATUS(remote_add(&both[1], "around", &ours, text), DT_ERR_INCOMPATIBLE);
        expect_text(text, "pid namespace");
        CHECK_STATUS(node_add(node, "twin", &both[0].card), DT_ERR_INCOMPATIBLE);
        expect_text(dt_last_error(), "pid namespace");
        /* Each finds itself, and not the other. */
        CHECK_OK(remote_add(&both[0], "itself", &both[0].card, text));
        CHECK_OK(remote_copy(&both[0], true, "itself", from, to, 2));
        contents_copy(want, to, 20, from, 2);
        remote_check(&both[0], want, NULL);
        expect_untouched(&both[1], 21);
    }
    free(want);
    for (int i = 0; i < 2; i++)
        remote_quit(&both[i]);
}

/* Writes a block of ours there, and has one written to us; or has a clear answer. */
static void exchange(struct node *node, struct remote *peer, const char *what, bool must_work)
{
    char text[REMOTE_TEXT];
    const uint32_t from = 1, to = 5;
    struct card ours = node_card(node);
    struct content *there = contents_of(30, BLOCKS);
    dt_xfer_id id = 0;
    dt_status out = node_add(node, "peer", &peer->card);
    const char *why = dt_last_error();
    if (out == DT_OK)
        out = dt_write_blocks(node->transport, "peer", &from, &to, 1, 0, &id);
    if (out == DT_OK)
        out = node_finish(node, "peer", id).status;
    printf("%s: to it %s%s%s\n", what, dt_status_str(out), out == DT_OK ? "" : ": ",
           out == DT_OK ? "" : why);
    if (out == DT_OK)
        contents_copy(there, &to, 10, &from, 1);
    remote_check(peer, there, NULL);

    dt_status in = remote_add(peer, "us", &ours, text);
    printf("%s: from it %s%s%s\n", what, dt_status_str(in), in == DT_OK ? "" : ": ",
           in == DT_OK ? "" : text);
    /* Nothing else keeps one from another here. */
    if (in != DT_OK && !on_nixl())
        expect_text(text, "(it is in another user namespace)");
    if (in == DT_OK)
        in = remote_copy(peer, true, "us", &from, &to, 1);
    struct content from_it = {30, 1}, own = {10, 5};
    CHECK(pattern_mismatch(node_block(node, to), LEN, in == DT_OK ? from_it : own) < 0);
    node_fill(node, 10);
    if (must_work)
        CHECK(out == DT_OK && in == DT_OK);
    CHECK(out == DT_OK || out == DT_ERR_UNAVAILABLE || on_nixl());
    CHECK(in == DT_OK || in == DT_ERR_UNAVAILABLE || on_nixl());
    if (node_stats(node).peers > 0)
        CHECK_OK(dt_remove_remote_peer(node->transport, "peer"));
    free(there);
    remote_kill(peer);
}

static void refused_without_proc(const char *role)
{
    struct refusal refusal;
    struct child child = child_start(role);
    if (permitted(&child)) {
        message_receive(child.socket, &refusal, sizeof refusal);
        printf("%s: %s: %s\n", role, dt_status_str(refusal.status), refusal.text);
        /* NIXL asks /proc for nothing that a pid names. */
        bool works = on_nixl() && strcmp(role, "others proc") == 0;
        CHECK(refusal.status == (works ? DT_OK : DT_ERR_UNAVAILABLE));
        if (!works)
            expect_text(refusal.text, "/proc");
        CHECK(!on_nixl() || strstr(refusal.text, "LOCAL") == NULL);
    }
    if (strcmp(role, "without proc") == 0) {
        char folder[sizeof "/tmp/dt-root-XXXXXX"];
        message_receive(child.socket, folder, sizeof folder);
        CHECK(rmdir(folder) == 0);
    }
    child_expect_success(&child);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"twin", twin_role},
                                        {"other user", other_user_role},
                                        {"other net", other_net_role},
                                        {"other clock", other_clock_role},
                                        {"others proc", others_proc_role},
                                        {"without proc", without_proc_role},
                                        NODE_ROLES,
                                        {NULL, NULL}};
    child_main(argc, argv, roles);

    struct memory memory = memory_new(MEMORY_ANONYMOUS, (size_t)BLOCKS * LEN, ADDRESS);
    struct node node = node_open_over(memory, BLOCKS, LEN);
    node_fill(&node, 10);
    twins(&node);

    struct child child = child_start("other user");
    if (permitted(&child)) {
        struct remote peer = continue_as_node(child, "user", 30);
        exchange(&node, &peer, "another user namespace", false);
    }
    child = child_start("other net");
    if (permitted(&child)) {
        struct remote peer = continue_as_node(child, "net", 30);
        exchange(&node, &peer, "other net, ipc and uts namespaces", !on_nixl());
    }
    child = child_start("other clock");
    if (permitted(&child)) {
        struct remote peer = continue_as_node(child, "clock", 30);
        exchange(&node, &peer, "another time namespace", true);
    }
    refused_without_proc("others proc");
    refused_without_proc("without proc");

    struct content *own = contents_of(10, BLOCKS);
    node_check(&node, own, NULL);
    free(own);
    node_close(&node);
    return 0;
}
