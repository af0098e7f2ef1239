#include "links.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "progress.h"
#include "target.h"
#include "util.h"

/* A target needs a socket here, and LOCAL and UCX some more. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* A child that dies with its parent. True in the child. */
static bool start(pid_t *child)
{
    pid_t parent = getpid();
    *child = fork();
    if (*child < 0)
        die("cannot start a process: %s", strerror(errno));
    if (*child != 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return true;
}

/* What answers may be anything, or somebody who is busy with another run. */
enum { HELLO_SECONDS = 30 };
/* The initiator speaks as soon as it has all its connections, and must not lose patience because of
 * somebody who says nothing. */
enum { FIRST_WORD_SECONDS = 10 };

static void connect_all(struct links *links, const char *address)
{
    for (uint32_t i = 0; i < links->count; i++) {
        links->fd[i] = wire_connect(address);
        wire_patience(links->fd[i], HELLO_SECONDS);
    }
}

static void start_children(struct links *links)
{
    for (uint32_t i = 0; i < links->count; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            die("cannot make a socket: %s", strerror(errno));
        if (start(&links->child[i])) {
            close(pair[0]);
            for (uint32_t k = 0; k < i; k++)
                close(links->fd[k]);
            target_serve(pair[1]);
            exit(0);
        }
        close(pair[1]);
        links->fd[i] = pair[0];
    }
}

/* Whether bytes go over sockets, so that the target has to work for each of them. */
static bool over_sockets(const struct links *links)
{
    return !links->same_host || !ucx_copies_by_kernel(getenv("UCX_TLS"));
}

static struct request hello(const struct links *links, const struct settings *settings)
{
    struct request request = {.what = HELLO,
                              .peers = links->count,
                              .progress_thread = settings->progress_thread,
                              .busy = over_sockets(links) && !settings->progress_thread};
    if (settings->ucx_tls != NULL)
        snprintf(request.ucx_tls, sizeof request.ucx_tls, "%s", settings->ucx_tls);
    return request;
}

void links_start(struct links *links, const struct settings *settings)
{
    char host[sizeof links->reply->host];

    raise_file_limit();
    *links = (struct links){.count = settings->peers, .same_host = true};
    links->fd = must_alloc(links->count, sizeof *links->fd);
    links->child = must_alloc(links->count, sizeof *links->child);
    links->reply = must_alloc(links->count, sizeof *links->reply);
    links->pid = must_alloc(links->count, sizeof *links->pid);
    if (settings->connect == NULL)
        start_children(links);
    else
        connect_all(links, settings->connect);
    if (settings->ucx_tls != NULL)
        setenv("UCX_TLS", settings->ucx_tls, 1);
    links_must(links, hello(links, settings));
    wire_host(host, sizeof host);
    for (uint32_t i = 0; i < links->count; i++) {
        wire_patience(links->fd[i], 0);
        links->pid[i] = links->reply[i].pid;
        if (strcmp(host, links->reply[i].host) != 0)
            links->same_host = false;
    }
    if (!links->same_host)
        links_must(links, hello(links, settings));
}

/* What a target of ours could say itself was said by it, and ends this process without a word. */
__attribute__((noreturn))
static void gone(const struct links *links, uint32_t i)
{
    int status;
    if (links->child[i] == 0)
        die("target %u does not answer, or has ended; what it says is over there", i);
    /* One that was stopped is not gone. */
    if (waitpid(links->child[i], &status, 0) == links->child[i] && WIFSIGNALED(status))
        die("target %u was ended by signal %d (%s)", i, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    progress_clear();
    _exit(1);
}

void links_check(struct links *links)
{
    for (uint32_t i = 0; i < links->count; i++) {
        char byte;
        if (recv(links->fd[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            gone(links, i);
    }
}

bool links_ask(struct links *links, struct request request, uint32_t *bad)
{
    bool ok = true;

    request.magic = WIRE_MAGIC;
    for (uint32_t i = 0; i < links->count; i++) {
        request.peer = i;
        if (!wire_send(links->fd[i], &request, sizeof request))
            gone(links, i);
    }
    for (uint32_t i = 0; i < links->count; i++) {
        struct reply *reply = &links->reply[i];
        if (!wire_receive(links->fd[i], reply, sizeof *reply))
            gone(links, i);
        reply->text[sizeof reply->text - 1] = '\0';
        reply->host[sizeof reply->host - 1] = '\0';
        if (reply->blob_len > sizeof reply->blob)
            die("target %u sends nonsense; is it dt_perf of this version?", i);
        if (!reply->ok && ok) {
            ok = false;
            *bad = i;
        }
    }
    return ok;
}

void links_must(struct links *links, struct request request)
{
    uint32_t bad = 0;
    if (!links_ask(links, request, &bad))
        die("target %u: %s", bad, links->reply[bad].text);
}

void links_end(struct links *links)
{
    links_must(links, (struct request){.what = BYE});
    for (uint32_t i = 0; i < links->count; i++) {
        int status;
        close(links->fd[i]);
        if (links->child[i] == 0)
            continue;
        if (waitpid(links->child[i], &status, 0) != links->child[i] || status != 0)
            die("target %u has done its work, but then failed with status %#x", i,
                (unsigned)status);
    }
    free(links->fd);
    free(links->child);
    free(links->reply);
    free(links->pid);
}

/* A connection that says something, which is left to be read. Others are closed. */
static int accept_speaker(int listener, struct request *first)
{
    for (;;) {
        int fd = wire_accept(listener);
        wire_patience(fd, FIRST_WORD_SECONDS);
        if (recv(fd, first, sizeof *first, MSG_PEEK | MSG_WAITALL) == sizeof *first) {
            wire_patience(fd, 0);
            return fd;
        }
        close(fd);
    }
}

void links_listen(const char *address)
{
    int listener = wire_listen(address);
    bool failed = false;
    uint32_t peers = 1;

    raise_file_limit();
    for (uint32_t i = 0; i < peers; i++) {
        struct request first;
        pid_t child;
        int fd = accept_speaker(listener, &first), status;
        /* How many there will be is in what the first one says. */
        if (i == 0 && first.magic == WIRE_MAGIC && first.what == HELLO && first.peers > 0) {
            peers = first.peers;
            /* They are all made before it speaks. */
            wire_patience(listener, HELLO_SECONDS);
        }
        if (start(&child)) {
            close(listener);
            target_serve(fd);
            exit(0);
        }
        close(fd);
        if (i + 1 < peers)
            continue;
        while (wait(&status) > 0)
            failed = failed || status != 0;
    }
    close(listener);
    if (failed)
        _exit(1);
}
