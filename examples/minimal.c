/* Two processes: the parent writes one block into the memory of its child. */
#include <dt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 8, BLOCK_LEN = 4096 };

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

static dt_transport *create(void **memory)
{
    dt_options options = DT_OPTIONS_INIT;
    dt_transport *transport;
    options.backend = DT_BACKEND_LOCAL;
    ok(dt_region_alloc(BLOCKS * BLOCK_LEN, memory, &options.region_fd));
    options.region_has_fd = true;
    ok(dt_create(*memory, BLOCKS, BLOCK_LEN, &options, &transport));
    return transport;
}

int main(void)
{
    int control[2]; /* the control plane: any channel will do */
    struct card card = {0};
    void *memory;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
        return 1;
    if (fork() == 0) { /* before any transport exists: they do not survive a fork */
        char written;
        close(control[0]);
        dt_transport *transport = create(&memory);
        card.base = dt_base_addr(transport);
        ok(dt_get_agent_metadata(transport, card.metadata, sizeof card.metadata,
                                 &card.metadata_len));
        if (write(control[1], &card, sizeof card) != sizeof card ||
            read(control[1], &written, 1) != 1)
            return 1;
        dt_destroy(transport);
        const char *block = (char *)memory + 5 * BLOCK_LEN;
        printf("block 5 holds \"%s\"\n", block);
        return strcmp(block, "hello") != 0;
    }

    close(control[1]);
    dt_transport *transport = create(&memory);
    const uint32_t from = 2, to = 5;
    dt_completion done;
    dt_xfer_id id;
    size_t count;
    int status;

    if (read(control[0], &card, sizeof card) != sizeof card)
        return 1;
    ok(dt_add_remote_peer(transport, "child", card.metadata, card.metadata_len, card.base, BLOCKS,
                          BLOCK_LEN));
    strcpy((char *)memory + from * BLOCK_LEN, "hello");
    ok(dt_write_blocks(transport, "child", &from, &to, 1, 0, &id));
    ok(dt_wait(transport, "child", &done, 1, 1000, &count));
    if (count != 1 || done.status != DT_OK)
        return 1;
    if (write(control[0], "w", 1) != 1)
        return 1;
    wait(&status);
    dt_destroy(transport);
    return status != 0;
}
