/* Sends a file from one process to another as KV-cache blocks.
 *
 *     push_file [--backend auto|local|nixl] [--config FILE.json] [--window BLOCKS] FILE
 *
 * The program starts both processes. The receiver has memory of WINDOW blocks; the sender cuts the
 * file into blocks, pushes them there in a random order, a window at a time, and the receiver puts
 * the file together again. In the end both compare the SHA-256 of what they have. The length of a
 * block is that of a model's KV cache, taken from the model's configuration.
 *
 * What the library does not do is the control plane: who the peer is, and when it may look at its
 * blocks. Here that is a socket between the two processes with four kinds of messages.
 */
#include <dt.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"
#include "sha256.h"

#define BATCH 8               /* blocks in one transfer */
#define PATIENCE_MS 30000     /* for a transfer, and for closing */
#define SILENCE_MS 600000     /* of the other process, which may have much to read or to write */
#define MAX_WINDOW 4096

struct settings {
    dt_backend backend;
    const char *config_path;
    const char *file_path;
    uint32_t window;          /* blocks */
    char *config;             /* text of config_path */
    size_t block_len;         /* from it */
};

/* The receiver introduces itself; the sender answers with one byte, ACCEPTED or REFUSED. */
struct hello {
    uint64_t base;
    uint64_t num_blocks;
    uint64_t block_len;
    uint64_t metadata_len;
    char fingerprint[17];
    unsigned char metadata[65536];
};
enum { REFUSED = 'r', ACCEPTED = 'a' };

/* The sender tells that a window has arrived: block i of it is in place[i]. Count 0: end of file.
 * The receiver answers with the number of bytes that it has written to its file. */
struct window {
    uint64_t count;
    uint64_t bytes;
    uint32_t place[MAX_WINDOW];
};

/* The receiver's last message. */
struct result {
    uint64_t bytes;
    char sha256[65];
};

/* ---- small things ---- */

static const char *role = "push_file";
static pid_t receiver_pid; /* known to the sender only */

__attribute__((format(printf, 1, 2), noreturn))
static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "%s: ", role);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void check(dt_status status, const char *what)
{
    if (status != DT_OK)
        die("%s: %s: %s", what, dt_status_str(status), dt_last_error());
}

/* The other process ends before its time when something fails there, and says what. Only what it
 * could not say is told here. */
__attribute__((noreturn))
static void other_is_gone(void)
{
    int status;
    if (receiver_pid != 0 && waitpid(receiver_pid, &status, 0) == receiver_pid &&
        WIFSIGNALED(status))
        die("the receiver was ended by signal %d", WTERMSIG(status));
    exit(1);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void tell(int control, const void *data, size_t bytes)
{
    for (const char *from = data; bytes > 0;) {
        ssize_t n = send(control, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            other_is_gone();
        from += n;
        bytes -= (size_t)n;
    }
}

/* Waits for the other side's message. Polling the transport meanwhile is what lets a backend that
 * needs this side's help get on. */
static void hear(int control, dt_transport *transport, void *data, size_t bytes)
{
    double deadline = seconds() + SILENCE_MS / 1e3;
    for (char *to = data; bytes > 0;) {
        struct pollfd ready = {control, POLLIN, 0};
        size_t count;
        if (transport != NULL)
            check(dt_poll(transport, NULL, NULL, 0, &count), "dt_poll");
        if (poll(&ready, 1, 1) <= 0) {
            if (seconds() > deadline)
                die("the other process says nothing");
            continue;
        }
        ssize_t n = recv(control, to, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            other_is_gone();
        to += n;
        bytes -= (size_t)n;
    }
}

/* ---- geometry: what one block of the model's KV cache is ---- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 65536);
    if (file == NULL)
        die("cannot open %s: %s", path, strerror(errno));
    if (text == NULL || fread(text, 1, 65535, file) == 0)
        die("cannot read %s", path);
    fclose(file);
    return text;
}

static size_t config_number(const char *config, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(config, key);
    long value = at != NULL ? strtol(at + strlen(key), NULL, 10) : 0;
    if (value <= 0 || value > 1 << 20)
        die("the configuration does not state %s as a number", name);
    return (size_t)value;
}

static size_t block_len_of(const char *config)
{
    size_t layers = config_number(config, "num_hidden_layers");
    size_t heads = config_number(config, "num_key_value_heads");
    size_t dim = config_number(config, "head_dim");
    size_t tokens = config_number(config, "tokens_per_block");
    size_t element;

    if (strstr(config, "\"bfloat16\"") != NULL || strstr(config, "\"float16\"") != NULL)
        element = 2;
    else if (strstr(config, "\"float32\"") != NULL)
        element = 4;
    else
        die("the configuration's torch_dtype is not bfloat16, float16 or float32");
    printf("model     %zu layers x %zu KV heads x %zu x %zu bytes, keys and values, %zu tokens:\n",
           layers, heads, dim, element, tokens);
    return 2 * layers * heads * dim * element * tokens;
}

/* ---- a transport over memory of its own ---- */

struct node {
    dt_transport *transport;
    unsigned char *memory;
    size_t bytes;
    int32_t fd;
};

static struct node node_create(const struct settings *settings, const char *config)
{
    struct node node = {NULL, NULL, settings->window * settings->block_len, -1};
    dt_options options = DT_OPTIONS_INIT;
    void *base;

    check(dt_region_alloc(node.bytes, &base, &node.fd), "dt_region_alloc");
    node.memory = base;
    /* The system gives pages when they are first touched, which takes longer than to fill them. An
     * engine's cache has been touched long before it serves. */
    memset(base, 0, node.bytes);
    options.backend = settings->backend;
    options.config_json = config;
    options.region_fd = node.fd;
    options.region_has_fd = true;
    check(dt_create(base, settings->window, settings->block_len, &options, &node.transport),
          "dt_create");
    return node;
}

static void node_destroy(struct node *node)
{
    check(dt_close(node->transport, PATIENCE_MS), "dt_close");
    dt_destroy(node->transport);
    dt_region_free(node->memory, node->bytes, node->fd);
}

/* ---- the receiver ---- */

/* True when the sender takes us. */
static bool introduce(const struct node *node, int control)
{
    static struct hello hello;
    size_t len = 0;
    char answer;

    hello.base = dt_base_addr(node->transport);
    hello.num_blocks = dt_num_blocks(node->transport);
    hello.block_len = dt_block_len(node->transport);
    strcpy(hello.fingerprint, dt_config_fingerprint(node->transport));
    check(dt_get_agent_metadata(node->transport, hello.metadata, sizeof hello.metadata, &len),
          "dt_get_agent_metadata");
    hello.metadata_len = len;
    tell(control, &hello, sizeof hello);
    hear(control, node->transport, &answer, 1);
    return answer == ACCEPTED;
}

/* Comes first with the configuration of another model, whose cache must not get in here. */
static void introduce_as_another_model(const struct settings *settings, int control)
{
    struct settings small = *settings; /* no block will move */
    char *config = strdup(settings->config);
    char *brace = config != NULL ? strrchr(config, '}') : NULL;
    if (brace == NULL)
        die("the configuration is not a JSON object");
    config = realloc(config, strlen(config) + 64);
    if (config == NULL)
        die("out of memory");
    strcpy(strrchr(config, '}'), ", \"model_type\": \"another\"}");
    small.window = 1;
    struct node other = node_create(&small, config);
    if (introduce(&other, control))
        die("the sender took a receiver of another model");
    node_destroy(&other);
    free(config);
}

static void hash_file(FILE *file, char out[65])
{
    static unsigned char buffer[1 << 20];
    struct sha256 hash;
    size_t n;

    rewind(file);
    sha256_init(&hash);
    while ((n = fread(buffer, 1, sizeof buffer, file)) > 0)
        sha256_update(&hash, buffer, n);
    if (ferror(file))
        die("cannot read back what was received");
    sha256_hex(&hash, out);
}

static void receive(const struct settings *settings, int control)
{
    role = "receiver";
    introduce_as_another_model(settings, control);
    struct node node = node_create(settings, settings->config);
    if (!introduce(&node, control))
        die("the sender refused us");

    static struct window window;
    struct result result = {0, ""};
    FILE *output = tmpfile();
    if (output == NULL)
        die("cannot make a temporary file: %s", strerror(errno));
    for (;;) {
        hear(control, node.transport, &window, sizeof window);
        if (window.count == 0)
            break;
        if (window.count > settings->window || window.bytes > window.count * settings->block_len)
            die("the sender speaks of %" PRIu64 " blocks", window.count);
        uint64_t left = window.bytes;
        for (uint64_t i = 0; i < window.count; i++) {
            size_t n = left < settings->block_len ? (size_t)left : settings->block_len;
            if (window.place[i] >= settings->window)
                die("the sender speaks of block %" PRIu32, window.place[i]);
            if (fwrite(node.memory + window.place[i] * settings->block_len, 1, n, output) != n)
                die("cannot write the temporary file: %s", strerror(errno));
            left -= n;
        }
        result.bytes += window.bytes;
        tell(control, &result.bytes, sizeof result.bytes);
    }
    if (fflush(output) != 0)
        die("cannot write the temporary file: %s", strerror(errno));
    hash_file(output, result.sha256);
    fclose(output);
    tell(control, &result, sizeof result);
    node_destroy(&node);
}

/* ---- the sender ---- */

/* Takes a receiver that fits, and refuses any other. */
static bool meet(const struct node *node, int control)
{
    static struct hello hello;
    hear(control, node->transport, &hello, sizeof hello);
    hello.fingerprint[sizeof hello.fingerprint - 1] = '\0';
    const char *own = dt_config_fingerprint(node->transport);
    char answer = dt_fingerprints_compatible(own, hello.fingerprint) ? ACCEPTED : REFUSED;

    printf("peer      fingerprint %s, ours %s: %s\n", hello.fingerprint, own,
           answer == ACCEPTED ? "accepted" : "refused, another model");
    if (answer == ACCEPTED) {
        if (hello.num_blocks < dt_num_blocks(node->transport) ||
            hello.metadata_len > sizeof hello.metadata)
            die("the receiver's memory does not fit");
        check(dt_add_remote_peer(node->transport, "receiver", hello.metadata, hello.metadata_len,
                                 hello.base, hello.num_blocks, hello.block_len),
              "dt_add_remote_peer");
    }
    tell(control, &answer, 1);
    return answer == ACCEPTED;
}

static uint64_t next_random(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void shuffle(uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(next_random() % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* Pushes blocks 0..count-1 of our memory to the places that `place` tells. The transfers are
 * submitted all at once and reported by dt_poll in any order; nothing here waits for the other
 * side. */
static void push(const struct node *node, const uint32_t *place, uint32_t count,
                 struct progress *progress)
{
    uint32_t local[MAX_WINDOW];
    uint32_t pending = 0;
    double start = seconds(), last = start;

    for (uint32_t i = 0; i < count; i++)
        local[i] = i;
    for (uint32_t first = 0; first < count; first += BATCH, pending++) {
        uint32_t n = count - first < BATCH ? count - first : BATCH;
        dt_xfer_id id;
        check(dt_write_blocks(node->transport, "receiver", local + first, place + first, n, 0, &id),
              "dt_write_blocks");
    }
    while (pending > 0) {
        dt_completion done[16];
        size_t n;
        check(dt_poll(node->transport, "receiver", done, 16, &n), "dt_poll");
        double now = seconds();
        for (size_t i = 0; i < n; i++, pending--) {
            if (done[i].status != DT_OK)
                die("a transfer failed: %s", dt_status_str(done[i].status));
            progress->moved += done[i].bytes;
            progress->transferring += now - last;
            last = now;
            progress_show(progress);
        }
        if (now - last > PATIENCE_MS / 1e3)
            die("no transfer ends");
    }
}

static struct result send_file(const struct node *node, const struct settings *settings,
                               FILE *file, int control, struct progress *progress, char own[65])
{
    static struct window window;
    struct result result;
    struct sha256 hash;
    size_t n;

    sha256_init(&hash);
    while ((n = fread(node->memory, 1, node->bytes, file)) > 0) {
        uint64_t written = 0;
        sha256_update(&hash, node->memory, n);
        window.bytes = n;
        window.count = (n + settings->block_len - 1) / settings->block_len;
        /* The last block of the file is filled up with zeros. */
        memset(node->memory + n, 0, window.count * settings->block_len - n);
        shuffle(window.place, settings->window);
        push(node, window.place, (uint32_t)window.count, progress);
        tell(control, &window, sizeof window);
        /* Its blocks are free again when the receiver says so. */
        hear(control, node->transport, &written, sizeof written);
    }
    if (ferror(file))
        die("cannot read %s", settings->file_path);
    window.count = 0;
    tell(control, &window, sizeof window);
    sha256_hex(&hash, own);
    hear(control, node->transport, &result, sizeof result);
    return result;
}

/* Waits until the receiver has made its transport and introduces itself. What fails in both
 * processes has then been told by one of them, and this one ends without a word. */
static void await_receiver(int control)
{
    struct pollfd ready = {control, POLLIN, 0};
    char first;
    int n;

    while ((n = poll(&ready, 1, SILENCE_MS)) < 0 && errno == EINTR)
        continue;
    if (n == 0)
        die("the receiver says nothing");
    if (n < 0 || recv(control, &first, 1, MSG_PEEK) <= 0)
        other_is_gone();
}

static bool transmit(const struct settings *settings, FILE *file, uint64_t file_bytes, int control)
{
    role = "sender";
    struct progress progress = {file_bytes, 0, 0, -100};
    double start = seconds();
    char own[65];

    await_receiver(control);
    struct node node = node_create(settings, settings->config);
    printf("backend   %s\n",
           dt_backend_kind(node.transport) == DT_BACKEND_LOCAL ? "LOCAL" : "NIXL");
    if (meet(&node, control))
        die("took a receiver of another model");
    if (!meet(&node, control))
        die("refused the receiver");
    progress_show(&progress);
    struct result result = send_file(&node, settings, file, control, &progress, own);
    node_destroy(&node);

    double total = seconds() - start;
    bool same = result.bytes == file_bytes && strcmp(result.sha256, own) == 0;
    printf("sent      %s\nreceived  %s\n", own, result.sha256);
    if (progress.transferring > 0)
        printf("rate      %.2f GB/s in transfers; %.2f s in all, with files and hashes\n",
               (double)progress.moved / progress.transferring / 1e9, total);
    printf("result    %s, %" PRIu64 " byte%s\n", same ? "the same" : "NOT THE SAME", result.bytes,
           result.bytes == 1 ? "" : "s");
    return same;
}

/* ---- start ---- */

#define USAGE \
    "usage: push_file [--backend auto|local|nixl] [--config FILE.json] [--window BLOCKS] FILE"

static dt_backend backend_of(const char *name)
{
    if (strcmp(name, "auto") == 0)
        return DT_BACKEND_AUTO;
    if (strcmp(name, "local") == 0)
        return DT_BACKEND_LOCAL;
    if (strcmp(name, "nixl") == 0)
        return DT_BACKEND_NIXL;
    die("--backend is \"%s\", but must be auto, local or nixl", name);
}

static uint32_t window_of(const char *number)
{
    char *end;
    long blocks = strtol(number, &end, 10);
    if (end == number || *end != '\0' || blocks < 1 || blocks > MAX_WINDOW)
        die("--window is \"%s\", but must be 1 to %d blocks", number, MAX_WINDOW);
    return (uint32_t)blocks;
}

static struct settings parse(int argc, char **argv)
{
    struct settings settings = {DT_BACKEND_AUTO, DEFAULT_CONFIG, NULL, 64, NULL, 0};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (strcmp(option, "--help") == 0) {
            puts(USAGE);
            exit(0);
        }
        if (option[0] != '-') {
            if (settings.file_path != NULL)
                die("two files, %s and %s, but one at a time is sent", settings.file_path, option);
            settings.file_path = option;
            continue;
        }
        if (strcmp(option, "--backend") != 0 && strcmp(option, "--config") != 0 &&
            strcmp(option, "--window") != 0)
            die("there is no option %s\n%s", option, USAGE);
        if (++i == argc)
            die("%s needs a value\n%s", option, USAGE);
        if (strcmp(option, "--backend") == 0)
            settings.backend = backend_of(argv[i]);
        else if (strcmp(option, "--config") == 0)
            settings.config_path = argv[i];
        else
            settings.window = window_of(argv[i]);
    }
    if (settings.file_path == NULL)
        die("no file was named\n%s", USAGE);
    return settings;
}

int main(int argc, char **argv)
{
    struct settings settings = parse(argc, argv);
    FILE *file = fopen(settings.file_path, "rb");
    struct stat about;
    int control[2], status;

    if (file == NULL || fstat(fileno(file), &about) != 0)
        die("cannot open %s: %s", settings.file_path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        die("%s is not a regular file", settings.file_path);
    uint64_t bytes = (uint64_t)about.st_size;
    printf("file      %s, %" PRIu64 " byte%s\n", settings.file_path, bytes, bytes == 1 ? "" : "s");
    settings.config = read_text(settings.config_path);
    settings.block_len = block_len_of(settings.config);
    uint64_t blocks = bytes / settings.block_len + (bytes % settings.block_len > 0);
    /* Memory that the file cannot fill would be taken from the system for nothing. */
    if (blocks < settings.window)
        settings.window = blocks > 0 ? (uint32_t)blocks : 1;
    printf("          blocks of %zu bytes: %" PRIu64 " in the file, %" PRIu32 " in a window\n",
           settings.block_len, blocks, settings.window);
    if (bytes == 0)
        printf("          the file is empty: peers will meet, and no block will move\n");
    fflush(stdout);

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0)
        die("socketpair: %s", strerror(errno));
    /* Before any transport exists: a transport does not survive a fork. */
    pid_t receiver = fork();
    if (receiver < 0)
        die("fork: %s", strerror(errno));
    if (receiver == 0) {
        close(control[0]);
        receive(&settings, control[1]);
        fclose(file);
        free(settings.config);
        return 0;
    }
    close(control[1]);
    receiver_pid = receiver;
    bool same = transmit(&settings, file, bytes, control[0]);
    if (waitpid(receiver, &status, 0) != receiver || status != 0)
        die("the receiver has sent its result, but then failed");
    fclose(file);
    free(settings.config);
    return same ? 0 : 1;
}
