/* Two processes: the parent writes one block into the memory of its child. C11 or C++17. */
#include <dt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 8, BLOCK_LEN = 4096 };

struct node { /* a transport, and the memory that it is for */
    dt_transport *transport;
    void *memory;
    int32_t fd;
};

struct card { /* what the one who writes must know of the other */
    uint64_t base;
    size_t metadata_len;
    unsigned char metadata[4096];
};

static void ok(dt_status status)
{
    if (status != DT_OK) {
        fprintf(stderr, "%s: %s\n", dt_status_str(status), dt_last_error());
        exit(1);
    }
}

static struct node create(void)
{
    struct node node;
    dt_options options = DT_OPTIONS_INIT;

    ok(dt_region_alloc(BLOCKS * BLOCK_LEN, &node.memory, &node.fd));
    options.backend = DT_BACKEND_LOCAL;
    options.region_fd = node.fd;
    options.region_has_fd = true;
    ok(dt_create(node.memory, BLOCKS, BLOCK_LEN, &options, &node.transport));
    return node;
}

static void destroy(struct node node)
{
    ok(dt_close(node.transport, 1000)); /* until then a peer may touch the memory */
    dt_destroy(node.transport);
    dt_region_free(node.memory, BLOCKS * BLOCK_LEN, node.fd);
}

static int child(int control)
{
    struct node node = create();
    static struct card card;
    char word;

    card.base = dt_base_addr(node.transport);
    ok(dt_get_agent_metadata(node.transport, card.metadata, sizeof card.metadata,
                             &card.metadata_len));
    if (write(control, &card, sizeof card) != sizeof card || read(control, &word, 1) != 1)
        return 1;
    const char *block = (const char *)node.memory + 5 * BLOCK_LEN;
    bool same = strcmp(block, "hello") == 0;
    printf("block 5 holds \"%s\"\n", block);
    destroy(node);
    return same ? 0 : 1;
}

static int parent(int control)
{
    struct node node = create();
    static struct card card;
    const uint32_t from = 2, to = 5;
    dt_completion done;
    dt_xfer_id id;
    size_t count;

    if (read(control, &card, sizeof card) != sizeof card)
        return 1;
    ok(dt_add_remote_peer(node.transport, "child", card.metadata, card.metadata_len, card.base,
                          BLOCKS, BLOCK_LEN));
    strcpy((char *)node.memory + from * BLOCK_LEN, "hello");
    ok(dt_write_blocks(node.transport, "child", &from, &to, 1, 0, &id));
    ok(dt_wait(node.transport, "child", &done, 1, 1000, &count));
    if (count == 0 || done.status != DT_OK) {
        const char *why = count == 0 ? "no answer within 1000 ms" : dt_status_str(done.status);
        fprintf(stderr, "block 2 was not written: %s\n", why);
        return 1;
    }
    if (write(control, "w", 1) != 1)
        return 1;
    destroy(node);
    return 0;
}

int main(void)
{
    int control[2], status; /* the control plane: any channel will do */

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
        return 1;
    pid_t pid = fork(); /* before any transport exists: they do not survive a fork */
    close(control[pid == 0 ? 0 : 1]);
    if (pid == 0)
        return child(control[1]);
    int result = parent(control[0]);
    close(control[0]);
    return wait(&status) == pid && status == 0 ? result : 1;
}
