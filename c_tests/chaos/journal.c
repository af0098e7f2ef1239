#include "journal.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dt_time.h"

#define KEPT (1u << 20)
/* Of it, for people. */
#define SHOWN 3000

static char ring[KEPT];
static size_t end;   /* bytes written so far */
static uint64_t the_seed, the_step, start_ns;
static const char *the_path;
static volatile sig_atomic_t running;

static void put(int fd, const char *from, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, from, bytes);
        if (n <= 0)
            return;
        from += n;
        bytes -= (size_t)n;
    }
}

/* The last `most` bytes. Called by signal handlers, too. */
static void put_last(int fd, size_t most)
{
    size_t kept = end < KEPT ? end : KEPT, bytes = kept < most ? kept : most;
    size_t from = (end - bytes) % KEPT, first = KEPT - from < bytes ? KEPT - from : bytes;
    put(fd, ring + from, first);
    put(fd, ring, bytes - first);
}

static void show(void)
{
    char line[256];
    if (!running)
        return;
    running = 0;
    put(2, "the last of the journal:\n", 25);
    put_last(2, SHOWN);
    int n = snprintf(line, sizeof line, "\nchaos FAILED: seed %llu, step %llu%s%s\n",
                     (unsigned long long)the_seed, (unsigned long long)the_step,
                     the_path != NULL ? ", journal in " : "", the_path != NULL ? the_path : "");
    put(2, line, (size_t)n);
    int fd = the_path != NULL ? open(the_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        put_last(fd, KEPT);
        put(fd, line, (size_t)n);
        close(fd);
    }
}

static void crashed(int number)
{
    show();
    signal(number, SIG_DFL);
    raise(number);
}

void journal_start(uint64_t seed, const char *path)
{
    static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTERM};
    the_seed = seed;
    the_path = path;
    start_ns = now_ns();
    running = 1;
    atexit(show);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], crashed);
}

void journal_step(uint64_t step)
{
    the_step = step;
}

void journal(const char *format, ...)
{
    char line[512];
    va_list args;
    int n = snprintf(line, sizeof line, "%10.3f ms %llu: ", (double)(now_ns() - start_ns) / 1e6,
                     (unsigned long long)the_step);
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t bytes = (size_t)n + (m < 0 ? 0 : (size_t)m);
    if (bytes > sizeof line - 2)
        bytes = sizeof line - 2;
    line[bytes++] = '\n';
    for (size_t i = 0; i < bytes; i++)
        ring[end++ % KEPT] = line[i];
}

void journal_end(void)
{
    running = 0;
}
