/* Small things: failing, clocks, numbers for people. */
#ifndef UTIL_H
#define UTIL_H

#include <stddef.h>
#include <stdint.h>

/* Says one sentence on stderr and ends the process with status 1. */
__attribute__((format(printf, 1, 2), noreturn))
void die(const char *format, ...);
/* The same with another status. */
__attribute__((format(printf, 2, 3), noreturn))
void die_with(int status, const char *format, ...);

void *must_alloc(size_t count, size_t size); /* zeroed */

uint64_t now_ns(void);
/* Processor time of this process, with all its threads. */
uint64_t cpu_ns(void);
void sleep_ns(uint64_t ns);

/* Sorts, and ignores what is no number; NAN if there is nothing else. */
double median(double *values, size_t count);

struct text {
    char chars[64];
};
/* A number of bytes, in units of 1024: "64 KiB". */
struct text bytes_text(uint64_t bytes);

/* The first line of a small file without its newline, "" if it cannot be read. */
void read_line(const char *path, char *line, size_t cap);

/* splitmix64: a number that looks random, of any number. */
static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
