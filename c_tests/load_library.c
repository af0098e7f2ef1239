/* The library as a program meets it that was not linked with it: opened at run time, in each of the
 * ways of dlopen, and given back again, used or not. The program is given the path of the library.
 *
 * Nothing here may ask for the library otherwise, so this stands alone. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dt.h"
#include "dt_time.h"

#define BLOCKS 8
#define LEN 65536

static const char *library_path;
static bool on_nixl;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond))                                                                               \
            fail("%s:%d: this does not hold: %s", __FILE__, __LINE__, #cond);                      \
    } while (0)

/* ---- the library ---- */

struct api {
    void *handle;
    uint32_t (*version)(void);
    const char *(*last_error)(void);
    void (*set_log_callback)(dt_log_fn, void *, dt_log_level);
    dt_status (*create)(void *, size_t, size_t, const dt_options *, dt_transport **);
    dt_status (*close)(dt_transport *, uint32_t);
    void (*destroy)(dt_transport *);
    dt_status (*export_handshake)(dt_transport *, void *, size_t, size_t *);
    dt_status (*import_handshake)(dt_transport *, const char *, const void *, size_t);
    dt_status (*write_blocks)(dt_transport *, const char *, const uint32_t *, const uint32_t *,
                              size_t, uint64_t, dt_xfer_id *);
    dt_status (*poll)(dt_transport *, const char *, dt_completion *, size_t, size_t *);
    dt_status (*peer_status)(dt_transport *, const char *);
};

static void find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL)
        fail("%s", dlerror());
    memcpy(function, &symbol, sizeof symbol);
}

static struct api api_of(void *handle)
{
    struct api api = {.handle = handle};
    if (handle == NULL)
        fail("%s", dlerror());
    find(handle, "dt_version", &api.version);
    find(handle, "dt_last_error", &api.last_error);
    find(handle, "dt_set_log_callback", &api.set_log_callback);
    find(handle, "dt_create", &api.create);
    find(handle, "dt_close", &api.close);
    find(handle, "dt_destroy", &api.destroy);
    find(handle, "dt_export_handshake", &api.export_handshake);
    find(handle, "dt_import_handshake", &api.import_handshake);
    find(handle, "dt_write_blocks", &api.write_blocks);
    find(handle, "dt_poll", &api.poll);
    find(handle, "dt_peer_status", &api.peer_status);
    return api;
}

static struct api load(int flags)
{
    return api_of(dlopen(library_path, flags));
}

static void ok(const struct api *api, dt_status status, const char *call)
{
    if (status != DT_OK)
        fail("%s gives %d: %s", call, status, api->last_error());
}

/* ---- what the process holds ---- */

static long count_fds(void)
{
    long count = 0;
    DIR *dir = opendir("/proc/self/fd");
    REQUIRE(dir != NULL);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

/* Lines of /proc/self/maps that hold `text`. */
static long count_maps(const char *text)
{
    char line[1024];
    long count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    REQUIRE(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, text) != NULL;
    fclose(maps);
    return count;
}

/* Pages of memory of any kind, used or not. */
static long count_pages(void)
{
    long pages = -1;
    FILE *statm = fopen("/proc/self/statm", "re");
    REQUIRE(statm != NULL && fscanf(statm, "%ld", &pages) == 1);
    fclose(statm);
    return pages;
}

static void expect_unloaded(void)
{
    const char *name = strrchr(library_path, '/');
    REQUIRE(name != NULL);
    REQUIRE(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    REQUIRE(count_maps(name) == 0);
}

/* ---- work ---- */

struct end {
    struct api api;
    uint8_t *memory;
    dt_transport *t;
};

static struct end end_open(const struct api *api, uint8_t fill)
{
    struct end end = {*api, malloc((size_t)BLOCKS * LEN), NULL};
    dt_options options = DT_OPTIONS_INIT;
    REQUIRE(end.memory != NULL);
    memset(end.memory, fill, (size_t)BLOCKS * LEN);
    ok(api, api->create(end.memory, BLOCKS, LEN, &options, &end.t), "dt_create");
    return end;
}

static void end_add(const struct end *end, const struct end *peer)
{
    uint8_t blob[8192];
    size_t len = 0;
    ok(&peer->api, peer->api.export_handshake(peer->t, blob, sizeof blob, &len), "export");
    ok(&end->api, end->api.import_handshake(end->t, "peer", blob, len), "import");
}

/* Writes a block of ours over one of the peer's. */
static void end_write(const struct end *end, const struct end *peer, uint32_t block)
{
    dt_xfer_id id = 0;
    dt_completion done;
    size_t n = 0;
    memset(peer->memory + (size_t)block * LEN, 0xee, LEN);
    ok(&end->api, end->api.write_blocks(end->t, "peer", &block, &block, 1, block, &id), "write");
    for (uint64_t deadline = now_ms() + BOUND_MS; n == 0;) {
        REQUIRE(now_ms() < deadline);
        ok(&end->api, end->api.poll(end->t, NULL, &done, 1, &n), "poll");
        size_t none;
        ok(&peer->api, peer->api.poll(peer->t, NULL, NULL, 0, &none), "poll of the peer");
    }
    REQUIRE(done.id == id && done.status == DT_OK && done.user_data == block);
    REQUIRE(memcmp(peer->memory + (size_t)block * LEN, end->memory + (size_t)block * LEN, LEN) == 0);
}

static void end_close(struct end *end)
{
    ok(&end->api, end->api.close(end->t, BOUND_MS), "close");
    end->api.destroy(end->t);
    free(end->memory);
}

/* Two transports, of two copies of the library or of one, that write to each other. */
static void use_both(const struct api *a, const struct api *b)
{
    struct end one = end_open(a, 1), two = end_open(b, 2);
    end_add(&one, &two);
    end_add(&two, &one);
    end_write(&one, &two, 3);
    end_write(&two, &one, 5);
    /* A failure has its own sentence in each. */
    REQUIRE(one.api.peer_status(one.t, "nobody") == DT_ERR_NOT_FOUND);
    REQUIRE(strstr(a->last_error(), "nobody") != NULL);
    end_close(&one);
    end_close(&two);
}

static void use(const struct api *api)
{
    use_both(api, api);
}

/* ---- tests, each in a process of its own ---- */

static void unused(void)
{
    long fds = 0, pages = 0;
    for (int round = 0; round < 100; round++) {
        struct api api = load(RTLD_NOW);
        REQUIRE(api.version() >> 16 == DT_VERSION_MAJOR);
        REQUIRE(dlclose(api.handle) == 0);
        expect_unloaded();
        if (round == 20)
            fds = count_fds(), pages = count_pages();
    }
    REQUIRE(count_fds() == fds);
    REQUIRE(count_pages() <= pages);
}

static void *use_in_a_thread(void *api)
{
    use(api);
    return NULL;
}

/* The library goes when no thread is left that has used it; what it keeps for each of them is why.
 * NIXL stays: it cannot be unloaded. What comes next finds it. */
static void used(void)
{
    const int rounds = on_nixl ? 8 : 100;
    long fds = 0, pages = 0;
    for (int round = 0; round < rounds; round++) {
        struct api api = load(RTLD_NOW);
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, use_in_a_thread, &api) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
        REQUIRE(dlclose(api.handle) == 0);
        expect_unloaded();
        if (round == rounds / 2)
            fds = count_fds(), pages = count_pages();
    }
    REQUIRE(count_fds() == fds);
    /* The heap may grow by a piece; pages that are left behind each time would be more. */
    printf("%ld pages after half of %d rounds, %ld after all\n", pages, rounds, count_pages());
    REQUIRE(on_nixl || count_pages() < pages + rounds / 4);
}

static pthread_barrier_t step;

static void *use_and_linger(void *arg)
{
    struct api *api = arg;
    use(api);
    /* Something to remember, and a log. */
    REQUIRE(api->peer_status(NULL, "x") == DT_ERR_INVALID_ARG);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return NULL;
}

/* A thread that has used it ends when it is unloaded: what the library keeps for the thread is freed
 * by code that must still be there. */
static void unloaded_before_a_thread_ends(void)
{
    for (int round = 0; round < 3; round++) {
        struct api api = load(RTLD_NOW);
        pthread_t thread;
        REQUIRE(pthread_barrier_init(&step, NULL, 2) == 0);
        REQUIRE(pthread_create(&thread, NULL, use_and_linger, &api) == 0);
        pthread_barrier_wait(&step);
        REQUIRE(dlclose(api.handle) == 0);
        pthread_barrier_wait(&step);
        REQUIRE(pthread_join(thread, NULL) == 0);
        pthread_barrier_destroy(&step);
    }
    struct api api = load(RTLD_NOW);
    use(&api);
}

static void *load_use_unload(void *flags)
{
    struct api api = load((int)(intptr_t)flags);
    use(&api);
    REQUIRE(dlclose(api.handle) == 0);
    return NULL;
}

static void by_threads_at_once(void)
{
    pthread_t threads[4];
    for (int round = 0; round < (on_nixl ? 1 : 10); round++) {
        for (int i = 0; i < 4; i++)
            REQUIRE(pthread_create(&threads[i], NULL, load_use_unload, (void *)RTLD_NOW) == 0);
        for (int i = 0; i < 4; i++)
            REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
}

/* As interpreters open their extensions. */
static void in_every_way(void)
{
    static const int ways[] = {RTLD_NOW | RTLD_LOCAL, RTLD_LAZY | RTLD_LOCAL,
                               RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, RTLD_LAZY | RTLD_GLOBAL};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        load_use_unload((void *)(intptr_t)ways[i]);
}

static void count_call(dt_log_level level, const char *message, void *user)
{
    (void)level, (void)message;
    ++*(int *)user;
}

static char *copy_of_library(void)
{
    static char path[] = "/tmp/dt-copy-XXXXXX.so";
    struct stat stat;
    int from = open(library_path, O_RDONLY | O_CLOEXEC), to = mkostemps(path, 3, O_CLOEXEC);
    REQUIRE(from >= 0 && to >= 0 && fstat(from, &stat) == 0);
    for (off_t at = 0; at < stat.st_size;)
        REQUIRE(sendfile(to, from, &at, (size_t)(stat.st_size - at)) > 0);
    close(from);
    close(to);
    return path;
}

/* Two engines that each bring their own copy: neither knows of the other. */
static void two_copies(void)
{
    static const int ways[] = {RTLD_NOW | RTLD_LOCAL, RTLD_NOW | RTLD_GLOBAL,
                               RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND};
    char *path = copy_of_library();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct api first = load(ways[i]), second = api_of(dlopen(path, ways[i]));
        int calls = 0;
        REQUIRE(first.create != second.create);
        second.set_log_callback(count_call, &calls, DT_LOG_DEBUG);
        use(&first);
        REQUIRE(calls == 0);
        use_both(&first, &second);
        REQUIRE(calls > 0);
        REQUIRE(second.peer_status(NULL, "x") == DT_ERR_INVALID_ARG);
        REQUIRE(strstr(first.last_error(), "nobody") != NULL);
        /* One goes, the other works on. */
        second.set_log_callback(NULL, NULL, DT_LOG_OFF);
        REQUIRE(dlclose(second.handle) == 0);
        use(&first);
        REQUIRE(dlclose(first.handle) == 0);
    }
    unlink(path);
}

/* A copy with a C library of its own. */
static void in_a_namespace_of_its_own(void)
{
    struct api outer = load(RTLD_NOW);
    struct api inner = api_of(dlmopen(LM_ID_NEWLM, library_path, RTLD_NOW | RTLD_LOCAL));
    REQUIRE(outer.create != inner.create);
    use(&outer);
    use(&inner);
    use_both(&outer, &inner);
    REQUIRE(dlclose(inner.handle) == 0);
    use(&outer);
}

static void run(const char *name, void (*test)(void))
{
    uint64_t start = now_ms();
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(BOUND_MS / 1000);
        test();
        exit(7);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    printf("%s: %llu ms\n", name, (unsigned long long)(now_ms() - start));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
        fail("%s ended with wait status 0x%x", name, (unsigned)status);
}

int main(int argc, char **argv)
{
    const char *backend = getenv("DT_BACKEND");
    REQUIRE(argc == 2 && (library_path = realpath(argv[1], NULL)) != NULL);
    on_nixl = backend != NULL && strcmp(backend, "nixl") == 0;
    run("unused", unused);
    run("used", used);
    run("unloaded before a thread ends", unloaded_before_a_thread_ends);
    run("by threads at once", by_threads_at_once);
    run("in every way", in_every_way);
    run("two copies", two_copies);
    run("in a namespace of its own", in_a_namespace_of_its_own);
    free((void *)(uintptr_t)library_path);
    return 0;
}
