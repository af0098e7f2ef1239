/* Nodes in other processes: both ends of a small request and reply protocol. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "dt_time.h"
#include "node.h"

enum op {
    OP_FILL,
    OP_CHECK,
    OP_ADD,
    OP_COPY,
    OP_MAIL,
    OP_UNMAP,
    OP_MAP,
    OP_QUIT,
    OP_EXIT,
    OP_EXEC,
    OP_FORK_EXEC
};

struct request {
    enum op op;
    bool flag;        /* CHECK: a second list follows; COPY: write */
    uint64_t number;  /* FILL: the seed; COPY, MAIL: the count */
    char peer_id[64];
};

struct reply {
    dt_status status;
    char text[REMOTE_TEXT];
};

/* ---- the process that has the node ---- */

static void *receive_array(int socket, size_t bytes)
{
    void *data = malloc(bytes);
    CHECK(data != NULL);
    message_receive(socket, data, bytes);
    return data;
}

static void serve_check(const struct node *node, int socket, bool either)
{
    size_t bytes = node->num_blocks * sizeof(struct content);
    struct content *want = receive_array(socket, bytes);
    struct content *other = either ? receive_array(socket, bytes) : NULL;
    node_check(node, want, other);
    free(want);
    free(other);
}

static dt_status serve_add(const struct node *node, int socket, const char *peer_id)
{
    struct card card;
    message_receive(socket, &card, sizeof card);
    return node_add(node, peer_id, &card);
}

static dt_status serve_copy(const struct node *node, int socket, const struct request *request)
{
    size_t count = request->number;
    uint32_t *local = receive_array(socket, count * sizeof *local);
    uint32_t *remote = receive_array(socket, count * sizeof *remote);
    dt_status (*copy)(dt_transport *, const char *, const uint32_t *, const uint32_t *, size_t,
                      uint64_t, dt_xfer_id *) = request->flag ? dt_write_blocks : dt_read_blocks;
    dt_xfer_id id = 0;
    dt_status status = copy(node->transport, request->peer_id, local, remote, count, 0, &id);
    free(local);
    free(remote);
    return status == DT_OK ? node_finish(node, request->peer_id, id).status : status;
}

static struct mail *collect_mail(const struct node *node, size_t count)
{
    struct mail *mail = calloc(count, sizeof *mail);
    uint64_t deadline = now_ms() + BOUND_MS;
    CHECK(mail != NULL);
    for (size_t have = 0; have < count; have += mail_take(node->transport, mail + have, count - have))
        CHECK(now_ms() < deadline);
    return mail;
}

static void become(uint32_t uid, bool dumpable)
{
    CHECK(setresgid(uid, uid, uid) == 0);
    CHECK(setresuid(uid, uid, uid) == 0);
    /* A change of the user has cleared both. */
    CHECK(prctl(PR_SET_DUMPABLE, dumpable ? 1 : 0) == 0);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
}

/* It has a copy of all that this process has, but for the talk with the test. */
static void fork_a_child(int socket)
{
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        close(socket);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
}

void node_role(int socket)
{
    struct node_spec spec;
    message_receive(socket, &spec, sizeof spec);
    if (spec.uid != 0)
        become(spec.uid, spec.dumpable);
    dt_options options = DT_OPTIONS_INIT;
    options.agent_name = spec.name[0] != '\0' ? spec.name : NULL;
    struct node node =
        node_open_with(memory_new(spec.kind, spec.num_blocks * spec.block_len, spec.at),
                       spec.num_blocks, spec.block_len, options);
    if (spec.fill_seed != 0)
        node_fill(&node, spec.fill_seed);
    struct card card = node_card(&node);
    message_send(socket, &card, sizeof card);

    for (;;) {
        struct request request;
        struct reply reply;
        struct mail *mail = NULL;
        memset(&reply, 0, sizeof reply);
        message_waiting(socket, -1);
        message_receive(socket, &request, sizeof request);
        switch (request.op) {
        case OP_FILL:
            node_fill(&node, request.number);
            break;
        case OP_CHECK:
            serve_check(&node, socket, request.flag);
            break;
        case OP_ADD:
            reply.status = serve_add(&node, socket, request.peer_id);
            break;
        case OP_COPY:
            reply.status = serve_copy(&node, socket, &request);
            break;
        case OP_MAIL:
            mail = collect_mail(&node, request.number);
            break;
        case OP_UNMAP:
            memory_unmap(&node.memory);
            break;
        case OP_MAP:
            memory_map_again(&node.memory);
            break;
        case OP_QUIT:
            node_close(&node);
            return;
        case OP_EXIT:
            exit(0);
        case OP_FORK_EXEC:
            fork_a_child(socket);
            child_exec(socket, "idle");
        case OP_EXEC:
            child_exec(socket, "idle");
        }
        if (reply.status != DT_OK)
            strncpy(reply.text, dt_last_error(), sizeof reply.text - 1);
        message_send(socket, &reply, sizeof reply);
        if (mail != NULL)
            message_send(socket, mail, request.number * sizeof *mail);
        free(mail);
    }
}

void idle_role(int socket)
{
    event_send(socket, 'i');
    message_waiting(socket, -1);
}

/* ---- the test ---- */

struct remote remote_start(const struct node_spec *spec)
{
    struct remote remote;
    remote.child = child_start("node");
    message_send(remote.child.socket, spec, sizeof *spec);
    message_receive(remote.child.socket, &remote.card, sizeof remote.card);
    return remote;
}

struct remote remote_simple(enum memory_kind kind, size_t num_blocks, size_t block_len,
                            uint64_t fill_seed)
{
    struct node_spec spec;
    memset(&spec, 0, sizeof spec); /* the gaps too: it is sent as bytes */
    spec.kind = kind;
    spec.num_blocks = num_blocks;
    spec.block_len = block_len;
    spec.fill_seed = fill_seed;
    return remote_start(&spec);
}

static void ask(struct remote *remote, enum op op, bool flag, uint64_t number, const char *peer_id)
{
    struct request request;
    memset(&request, 0, sizeof request);
    request.op = op;
    request.flag = flag;
    request.number = number;
    if (peer_id != NULL) {
        CHECK(strlen(peer_id) < sizeof request.peer_id);
        strcpy(request.peer_id, peer_id);
    }
    message_send(remote->child.socket, &request, sizeof request);
}

static dt_status answer(struct remote *remote, char text[REMOTE_TEXT])
{
    struct reply reply;
    message_receive(remote->child.socket, &reply, sizeof reply);
    if (text != NULL)
        memcpy(text, reply.text, REMOTE_TEXT);
    return reply.status;
}

void remote_fill(struct remote *remote, uint64_t seed)
{
    ask(remote, OP_FILL, false, seed, NULL);
    CHECK_OK(answer(remote, NULL));
}

void remote_check(struct remote *remote, const struct content *want, const struct content *other)
{
    size_t bytes = remote->card.num_blocks * sizeof *want;
    ask(remote, OP_CHECK, other != NULL, 0, NULL);
    message_send(remote->child.socket, want, bytes);
    if (other != NULL)
        message_send(remote->child.socket, other, bytes);
    CHECK_OK(answer(remote, NULL));
}

dt_status remote_add(struct remote *remote, const char *peer_id, const struct card *card,
                     char text[REMOTE_TEXT])
{
    ask(remote, OP_ADD, false, 0, peer_id);
    message_send(remote->child.socket, card, sizeof *card);
    return answer(remote, text);
}

dt_status remote_copy(struct remote *remote, bool write, const char *peer_id,
                      const uint32_t *local, const uint32_t *remote_blocks, size_t count)
{
    ask(remote, OP_COPY, write, count, peer_id);
    message_send(remote->child.socket, local, count * sizeof *local);
    message_send(remote->child.socket, remote_blocks, count * sizeof *remote_blocks);
    return answer(remote, NULL);
}

void remote_mail(struct remote *remote, struct mail *buf, size_t count)
{
    ask(remote, OP_MAIL, false, count, NULL);
    CHECK_OK(answer(remote, NULL));
    message_receive(remote->child.socket, buf, count * sizeof *buf);
}

void remote_unmap(struct remote *remote)
{
    ask(remote, OP_UNMAP, false, 0, NULL);
    CHECK_OK(answer(remote, NULL));
}

void remote_map_again(struct remote *remote)
{
    ask(remote, OP_MAP, false, 0, NULL);
    CHECK_OK(answer(remote, NULL));
}

void remote_quit(struct remote *remote)
{
    ask(remote, OP_QUIT, false, 0, NULL);
    child_expect_success(&remote->child);
}

void remote_exit_unclosed(struct remote *remote)
{
    ask(remote, OP_EXIT, false, 0, NULL);
    child_expect_success(&remote->child);
}

void remote_exec_unclosed(struct remote *remote)
{
    ask(remote, OP_EXEC, false, 0, NULL);
    event_expect(remote->child.socket, 'i');
}

void remote_fork_and_exec_unclosed(struct remote *remote)
{
    ask(remote, OP_FORK_EXEC, false, 0, NULL);
    event_expect(remote->child.socket, 'i');
}

void remote_kill(struct remote *remote)
{
    child_kill(&remote->child);
}
