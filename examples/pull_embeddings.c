/* Pulls embeddings from one process into another, as a language model does from its encoder.
 *
 *     pull_embeddings [--backend auto|local|nixl]
 *
 * The encoder has computed the embeddings of some images, a few blocks of each. The language model
 * takes those that it needs when it needs them: it reads the blocks, and the message that goes with
 * the read tells the encoder that they are free. All that the language model must know of the encoder
 * is in one blob, here over a socket; the encoder need not know who reads.
 */
#include <dt.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    IMAGES = 100,
    BLOCKS_EACH = 16,
    BLOCKS = IMAGES * BLOCKS_EACH, /* of the encoder */
    AT_A_TIME = 4,                 /* images that the language model has room for */
    BLOCK_LEN = 8192,              /* 2048 numbers of a token */
    PATIENCE_S = 30
};

struct node { /* a transport, and the memory that it is for */
    dt_transport *transport;
    float *memory;
    int32_t fd;
    size_t num_blocks;
};

static const char *role = "pull_embeddings";

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", role, what);
    exit(1);
}

static void ok(dt_status status)
{
    if (status != DT_OK) {
        fprintf(stderr, "%s: %s: %s\n", role, dt_status_str(status), dt_last_error());
        exit(1);
    }
}

static void in_time(time_t start)
{
    if (time(NULL) - start > PATIENCE_S)
        fail("the other process does nothing");
}

static struct node create(dt_backend backend, size_t num_blocks)
{
    struct node node = {NULL, NULL, -1, num_blocks};
    dt_options options = DT_OPTIONS_INIT;
    void *memory = NULL;

    ok(dt_region_alloc(num_blocks * BLOCK_LEN, &memory, &node.fd));
    node.memory = memory;
    options.backend = backend;
    options.config_json = "{\"encoder\": \"an example\", \"hidden_size\": 2048}";
    options.region_fd = node.fd;
    options.region_has_fd = true;
    ok(dt_create(memory, num_blocks, BLOCK_LEN, &options, &node.transport));
    return node;
}

static void destroy(struct node *node)
{
    ok(dt_close(node->transport, PATIENCE_S * 1000));
    dt_destroy(node->transport);
    dt_region_free(node->memory, node->num_blocks * BLOCK_LEN, node->fd);
}

/* The number at place `i` of block `block` of an image. */
static float embedding(uint32_t image, uint32_t block, size_t i)
{
    return (float)image * 1000.0f + (float)block + (float)i / 4096.0f;
}

/* ---- the control plane: one blob ---- */

static void move(int control, void *data, size_t bytes, bool out)
{
    for (char *at = data; bytes > 0;) {
        ssize_t n = out ? send(control, at, bytes, MSG_NOSIGNAL) : recv(control, at, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            exit(1); /* the other process has said why it is gone */
        at += n;
        bytes -= (size_t)n;
    }
}

static void tell_blob(int control, dt_transport *transport)
{
    static unsigned char blob[65536];
    uint64_t len = 0;
    size_t size = 0;
    ok(dt_export_handshake(transport, blob, sizeof blob, &size));
    len = size;
    move(control, &len, sizeof len, true);
    move(control, blob, size, true);
}

static void hear_blob(int control, dt_transport *transport, const char *peer_id)
{
    static unsigned char blob[65536];
    uint64_t len = 0;
    move(control, &len, sizeof len, false);
    if (len > sizeof blob)
        fail("this is no handshake");
    move(control, blob, len, false);
    /* Backend, model, block length: what does not fit together is said here. */
    ok(dt_import_handshake(transport, peer_id, blob, len));
}

/* ---- the encoder ---- */

/* Computes all embeddings, and frees each image's blocks when the message says that they were
 * read. It never learns who the readers are, nor waits for them. */
static void encode(dt_backend backend, int control)
{
    role = "encoder";
    struct node node = create(backend, BLOCKS);
    bool is_free[IMAGES] = {false};
    time_t start = time(NULL);

    for (uint32_t image = 0; image < IMAGES; image++)
        for (uint32_t block = 0; block < BLOCKS_EACH; block++)
            for (size_t i = 0; i < BLOCK_LEN / sizeof(float); i++)
                node.memory[(image * BLOCKS_EACH + block) * (BLOCK_LEN / sizeof(float)) + i] =
                    embedding(image, block, i);
    tell_blob(control, node.transport);

    for (int left = IMAGES; left > 0;) {
        dt_notif notifs[16];
        char arena[4096]; /* for what the messages hold */
        size_t count, used;
        in_time(start);
        ok(dt_get_new_notifs(node.transport, notifs, 16, arena, sizeof arena, &count, &used));
        for (size_t i = 0; i < count; i++, left--) {
            uint32_t image;
            if (notifs[i].msg_len != sizeof image)
                fail("a message that makes no sense");
            memcpy(&image, notifs[i].msg, sizeof image);
            if (image >= IMAGES || is_free[image])
                fail("an image that was freed, or never was");
            is_free[image] = true;
            /* To be used again at once. */
            memset(&node.memory[image * BLOCKS_EACH * (BLOCK_LEN / sizeof(float))], 0,
                   BLOCKS_EACH * BLOCK_LEN);
        }
    }
    destroy(&node);
}

/* ---- the language model ---- */

/* Starts to read an image's blocks into ours from `slot` on. */
static dt_xfer_id fetch(const struct node *node, uint32_t image, uint32_t slot)
{
    uint32_t here[BLOCKS_EACH], there[BLOCKS_EACH];
    dt_xfer_id id;
    for (uint32_t block = 0; block < BLOCKS_EACH; block++) {
        here[block] = slot * BLOCKS_EACH + block;
        there[block] = image * BLOCKS_EACH + block;
    }
    ok(dt_post_read(node->transport, "encoder", here, there, BLOCKS_EACH, &image, sizeof image,
                    &id));
    return id;
}

static void use(const struct node *node, uint32_t image, uint32_t slot)
{
    for (uint32_t block = 0; block < BLOCKS_EACH; block++)
        for (size_t i = 0; i < BLOCK_LEN / sizeof(float); i++)
            if (node->memory[(slot * BLOCKS_EACH + block) * (BLOCK_LEN / sizeof(float)) + i] !=
                embedding(image, block, i))
                fail("an embedding is not what the encoder has computed");
}

static void generate(dt_backend backend, int control)
{
    role = "language model";
    struct node node = create(backend, AT_A_TIME * BLOCKS_EACH);
    dt_xfer_id ids[AT_A_TIME];
    time_t start = time(NULL);

    hear_blob(control, node.transport, "encoder");
    for (uint32_t slot = 0; slot < AT_A_TIME; slot++)
        ids[slot] = fetch(&node, slot, slot);
    for (uint32_t image = 0; image < IMAGES; image++) {
        uint32_t slot = image % AT_A_TIME;
        dt_xfer_state state = DT_XFER_PROC;
        while (state == DT_XFER_PROC) { /* an engine does other work meanwhile */
            in_time(start);
            ok(dt_check_xfer_state(node.transport, ids[slot], &state));
        }
        if (state != DT_XFER_DONE)
            fail(dt_xfer_state_str(state));
        ok(dt_release_xfer(node.transport, ids[slot]));
        use(&node, image, slot);
        if (image + AT_A_TIME < IMAGES)
            ids[slot] = fetch(&node, image + AT_A_TIME, slot);
    }
    printf("backend   %s\nread      %d images in %d blocks, every number as it was computed\n",
           dt_backend_kind(node.transport) == DT_BACKEND_LOCAL ? "LOCAL" : "NIXL", IMAGES, BLOCKS);
    destroy(&node);
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: pull_embeddings [--backend auto|local|nixl]";
    static const char *const names[] = {"auto", "local", "nixl"};
    int control[2], status, backend = DT_BACKEND_AUTO;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts(usage);
        return 0;
    }
    if (argc != 1) {
        if (argc != 3 || strcmp(argv[1], "--backend") != 0)
            fail(usage);
        while (backend < 3 && strcmp(names[backend], argv[2]) != 0)
            backend++;
        if (backend == 3)
            fail("--backend must be auto, local or nixl");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
        fail(strerror(errno));
    pid_t encoder = fork(); /* before any transport exists: they do not survive a fork */
    if (encoder < 0)
        fail(strerror(errno));
    close(control[encoder == 0 ? 0 : 1]);
    if (encoder == 0) {
        encode((dt_backend)backend, control[1]);
        return 0;
    }
    generate((dt_backend)backend, control[0]);
    if (waitpid(encoder, &status, 0) != encoder || status != 0)
        fail("the encoder has failed");
    printf("freed     all of them, on the messages that went with the reads\n");
    return 0;
}
