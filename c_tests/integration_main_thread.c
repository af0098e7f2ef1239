/* A process goes on when its first thread has ended by pthread_exit, and a thread can have descriptors of
 * its own. The kernel then shows neither where it shows those of other processes; peers find them all the
 * same, and so does the process itself. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dt_time.h"
#include "node.h"

#define BLOCKS 64
#define LEN 65536

/* ---- processes whose node is another thread's ---- */

static pthread_t first;
static int test_socket;

static void *node_of_a_thread(void *unused)
{
    (void)unused;
    node_role(test_socket);
    exit(0);
}

static void *node_after_the_end(void *unused)
{
    CHECK(pthread_join(first, NULL) == 0);
    return node_of_a_thread(unused);
}

static void *node_with_own_descriptors(void *ready)
{
    CHECK(unshare(CLONE_FILES) == 0);
    pthread_barrier_wait(ready);
    return node_of_a_thread(NULL);
}

static void start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
}

/* The first thread ends when it is told to. */
static void ends_later_role(int socket)
{
    sigset_t set;
    int signal;
    test_socket = socket;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    start(node_of_a_thread, NULL);
    CHECK(sigwait(&set, &signal) == 0);
    pthread_exit(NULL);
}

static void ends_first_role(int socket)
{
    test_socket = socket;
    first = pthread_self();
    start(node_after_the_end, NULL);
    pthread_exit(NULL);
}

static void own_descriptors_role(int socket)
{
    static pthread_barrier_t ready;
    test_socket = socket;
    CHECK(pthread_barrier_init(&ready, NULL, 2) == 0);
    start(node_with_own_descriptors, &ready);
    pthread_barrier_wait(&ready);
    /* The numbers that the other thread will use mean other files here. */
    for (int i = 0; i < 32; i++)
        CHECK(open("/dev/null", O_RDWR | O_CLOEXEC) >= 0);
    for (;;)
        pause();
}

/* ---- the test ---- */

static struct remote start_node(const char *role, enum memory_kind kind)
{
    struct node_spec spec;
    struct remote remote = {.child = child_start(role)};
    memset(&spec, 0, sizeof spec);
    spec.kind = kind;
    spec.num_blocks = BLOCKS;
    spec.block_len = LEN;
    spec.fill_seed = 20;
    message_send(remote.child.socket, &spec, sizeof spec);
    message_receive(remote.child.socket, &remote.card, sizeof remote.card);
    return remote;
}

static char state_of(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *stat = fopen(path, "re");
    CHECK(stat != NULL && fgets(text, sizeof text, stat) != NULL);
    fclose(stat);
    const char *end = strrchr(text, ')');
    CHECK(end != NULL);
    return end[2];
}

static void end_first_thread(const struct remote *remote)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    CHECK(remote->child.pid > 0 && kill(remote->child.pid, SIGUSR1) == 0);
    while (state_of(remote->child.pid) != 'Z') {
        CHECK(now_ms() < deadline);
        sched_yield();
    }
}

static dt_xfer_id write_all(const struct node *node, const char *peer, const uint32_t *idxs)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(node->transport, peer, idxs, idxs, BLOCKS, 0, &id));
    return id;
}

/* Everything works, both ways, with what was there before and with what is new. */
static void works(struct node *node, struct remote *remote, const char *peer, uint64_t seed)
{
    uint32_t idxs[BLOCKS];
    char text[REMOTE_TEXT];
    struct mail mail;
    struct card ours = node_card(node);
    struct content *all = contents_of(seed, BLOCKS), *theirs = contents_of(seed + 1, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        idxs[i] = i;
    node_fill(node, seed);
    CHECK(node_finish(node, peer, write_all(node, peer, idxs)).status == DT_OK);
    remote_check(remote, all, NULL);
    CHECK_OK(dt_send_notif(node->transport, peer, "hello", 5));
    remote_mail(remote, &mail, 1);
    CHECK(mail.len == 5 && memcmp(mail.bytes, "hello", 5) == 0);
    CHECK_OK(dt_peer_status(node->transport, peer));

    remote_fill(remote, seed + 1);
    dt_status added = remote_add(remote, "us", &ours, text);
    if (added != DT_OK)
        test_fail("%s: %s", dt_status_str(added), text);
    CHECK_OK(remote_copy(remote, true, "us", idxs, idxs, BLOCKS));
    node_check(node, theirs, NULL);
    free(all);
    free(theirs);
}

static void is_lost(const struct node *node, const char *peer)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    size_t n = 0;
    while (dt_peer_status(node->transport, peer) != DT_ERR_PEER_LOST) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(node->transport, NULL, NULL, 0, &n));
    }
}

static void ends_later(struct node *node, enum memory_kind kind)
{
    uint32_t idxs[BLOCKS];
    struct content *all = contents_of(40, BLOCKS);
    struct remote remote = start_node("ends later", kind);
    for (uint32_t i = 0; i < BLOCKS; i++)
        idxs[i] = i;
    CHECK_OK(node_add(node, "old", &remote.card));
    works(node, &remote, "old", 30);
    /* In the middle of a transfer. */
    node_fill(node, 40);
    dt_xfer_id id = write_all(node, "old", idxs);
    end_first_thread(&remote);
    CHECK(node_finish(node, "old", id).status == DT_OK);
    remote_check(&remote, all, NULL);
    works(node, &remote, "old", 50);
    CHECK_OK(node_add(node, "new", &remote.card));
    works(node, &remote, "new", 60);
    works(node, &remote, "old", 70);
    remote_kill(&remote);
    is_lost(node, "old");
    is_lost(node, "new");
    free(all);
}

static void from_the_start(struct node *node, const char *role, enum memory_kind kind)
{
    struct remote remote = start_node(role, kind);
    CHECK_OK(node_add(node, "peer", &remote.card));
    works(node, &remote, "peer", 30);
    remote_kill(&remote);
    is_lost(node, "peer");
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"ends later", ends_later_role},
                                        {"ends first", ends_first_role},
                                        {"own descriptors", own_descriptors_role},
                                        {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);

    struct node node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    for (int i = 0; i < 2; i++) {
        ends_later(&node, kinds[i]);
        from_the_start(&node, "ends first", kinds[i]);
        from_the_start(&node, "own descriptors", kinds[i]);
    }
    node_close(&node);
    return 0;
}
