/* Two programs that are started apart and meet by the library's handshake.
 *
 *     handshake serve SOCKET [MODEL]      in one terminal: decode, whose memory is written to
 *     handshake connect SOCKET [MODEL]    in another one: prefill, which writes
 *
 * Decode gives its handshake away and says which of its blocks are free. Prefill makes it known,
 * writes there, and says so when the library has reported the write. Decode then looks at the bytes.
 *
 * All of that is said over the control plane, which is the caller's: here a Unix socket at the path
 * SOCKET, that keeps messages apart. $DT_BACKEND chooses the backend, for both alike. MODEL is what
 * both must agree on; start them with different ones to see what is said then.
 */
#include <dt.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 64, BLOCK_LEN = 16384, COUNT = 16, PATIENCE_S = 30 };

struct node { /* a transport, and the memory that it is for */
    dt_transport *transport;
    unsigned char *memory;
    int32_t fd;
};

static const char *role = "handshake";

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s%s%s\n", role, what, *why ? ": " : "", why);
    exit(1);
}

static void ok(dt_status status)
{
    if (status != DT_OK)
        fail(dt_status_str(status), dt_last_error());
}

static struct node create(const char *model)
{
    struct node node;
    dt_options options = DT_OPTIONS_INIT;
    void *memory;
    char config[256];

    snprintf(config, sizeof config, "{\"model\": \"%s\", \"dtype\": \"bfloat16\"}", model);
    ok(dt_region_alloc(BLOCKS * BLOCK_LEN, &memory, &node.fd));
    node.memory = memory;
    options.config_json = config;
    options.region_fd = node.fd;
    options.region_has_fd = true;
    ok(dt_create(memory, BLOCKS, BLOCK_LEN, &options, &node.transport));
    return node;
}

static void destroy(struct node node)
{
    ok(dt_close(node.transport, PATIENCE_S * 1000)); /* until then a peer may touch the memory */
    dt_destroy(node.transport);
    dt_region_free(node.memory, BLOCKS * BLOCK_LEN, node.fd);
}

/* Byte i of the block that is number k of the request. */
static unsigned char content(uint32_t k, size_t i)
{
    return (unsigned char)(k * 37 + i * 11 + i / 256);
}

/* ---- the control plane ---- */

/* The socket of the other program, for both. */
static int meet(const char *path, bool serve)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), peer;

    if (control < 0 || strlen(path) >= sizeof address.sun_path)
        fail(path, control < 0 ? strerror(errno) : "too long for the path of a socket");
    strcpy(address.sun_path, path);
    if (!serve) {
        if (connect(control, (struct sockaddr *)&address, sizeof address) != 0)
            fail(path, errno == ENOENT || errno == ECONNREFUSED
                           ? "nobody serves there: start \"handshake serve\" first"
                           : strerror(errno));
        return control;
    }
    if (bind(control, (struct sockaddr *)&address, sizeof address) != 0)
        fail(path, errno == EADDRINUSE ? "it is there already: remove it, unless it is in use"
                                       : strerror(errno));
    if (listen(control, 1) != 0)
        fail(path, strerror(errno));
    printf("%s: waits at %s\n", role, path);
    fflush(stdout);
    peer = accept(control, NULL, NULL);
    if (peer < 0)
        fail(path, strerror(errno));
    unlink(path);
    close(control);
    return peer;
}

static void tell(int control, const void *message, size_t len)
{
    if (send(control, message, len, MSG_NOSIGNAL) != (ssize_t)len)
        fail("the other program is gone", strerror(errno));
}

/* The length of the next message, 0 when the other program has ended. Who waits has to poll: over
 * NIXL nothing gets here otherwise. An engine polls in its scheduler's loop, and never waits. */
static size_t hear(int control, struct node node, void *message, size_t cap)
{
    time_t start = time(NULL);
    for (;;) {
        ssize_t n = recv(control, message, cap, MSG_DONTWAIT);
        size_t count;
        if (n >= 0)
            return (size_t)n;
        if (errno == ECONNRESET)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            fail("recv", strerror(errno));
        if (time(NULL) - start > PATIENCE_S)
            fail("the other program says nothing", "");
        ok(dt_wait(node.transport, NULL, NULL, 0, 1, &count));
    }
}

static void expect(int control, struct node node, const char *word)
{
    char message[16] = "";
    if (hear(control, node, message, sizeof message - 1) == 0)
        fail("the other program has ended", "what it has said tells why");
    if (strcmp(message, word) != 0)
        fail("a message that makes no sense", message);
}

/* ---- the two programs ---- */

static void decode(int control, struct node node)
{
    static unsigned char blob[65536];
    uint32_t vacant[COUNT];
    size_t len;

    ok(dt_export_handshake(node.transport, blob, sizeof blob, &len));
    tell(control, blob, len);
    for (uint32_t k = 0; k < COUNT; k++)
        vacant[k] = BLOCKS - 1 - 2 * k; /* wherever there is room */
    tell(control, vacant, sizeof vacant);

    expect(control, node, "written");
    for (uint32_t k = 0; k < COUNT; k++)
        for (size_t i = 0; i < BLOCK_LEN; i++)
            if (node.memory[vacant[k] * (size_t)BLOCK_LEN + i] != content(k, i))
                fail("a block does not hold what prefill has written", "");
    printf("%s: %d blocks are here, every byte as it was written\n", role, COUNT);
    tell(control, "seen", 4);
    /* Who was written to closes last: the other one has nothing to ask of it any more then. */
    hear(control, node, blob, sizeof blob);
}

static void prefill(int control, struct node node)
{
    static unsigned char blob[65536];
    uint32_t here[COUNT], there[COUNT];
    dt_completion done;
    dt_xfer_id id;
    size_t count, len = hear(control, node, blob, sizeof blob);

    /* Backend, model and block length must be the same: what is not, the sentence names. */
    ok(dt_import_handshake(node.transport, "decode", blob, len));
    if (hear(control, node, there, sizeof there) != sizeof there)
        fail("decode does not say where there is room", "");

    for (uint32_t k = 0; k < COUNT; k++) {
        here[k] = k;
        for (size_t i = 0; i < BLOCK_LEN; i++)
            node.memory[k * (size_t)BLOCK_LEN + i] = content(k, i);
    }
    ok(dt_write_blocks(node.transport, "decode", here, there, COUNT, 7, &id));
    ok(dt_wait(node.transport, NULL, &done, 1, PATIENCE_S * 1000, &count));
    if (count == 0 || done.status != DT_OK) /* more about a failure is in the log: DT_LOG=warn */
        fail("the write failed", count == 0 ? "no answer" : dt_status_str(done.status));
    printf("%s: request %d, %d bytes written\n", role, (int)done.user_data, (int)done.bytes);
    tell(control, "written", 7);
    expect(control, node, "seen");
}

int main(int argc, char **argv)
{
    bool serve = argc > 1 && strcmp(argv[1], "serve") == 0;

    if (argc < 3 || argc > 4 || (!serve && strcmp(argv[1], "connect") != 0))
        fail("usage: handshake serve|connect SOCKET [MODEL]", "");
    role = serve ? "decode" : "prefill";
    struct node node = create(argc == 4 ? argv[3] : "an example");
    int control = meet(argv[2], serve);
    (serve ? decode : prefill)(control, node);
    destroy(node);
    close(control); /* the other one has waited for this */
    return 0;
}
