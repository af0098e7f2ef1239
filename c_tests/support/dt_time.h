/* Time for bounds and rates. Tests never wait for time, only for events with a bound. */
#ifndef DT_TEST_TIME_H
#define DT_TEST_TIME_H

#include <stdint.h>
#include <time.h>

/* The bound of every wait: far beyond what a slow, busy machine needs. With a sanitizer all is several
 * times slower. */
#ifdef DT_SANITIZED
#define BOUND_MS 240000
#else
#define BOUND_MS 60000
#endif

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ms(void)
{
    return now_ns() / 1000000u;
}

/* Busy for `ns`: moves a fault to another moment of what runs elsewhere at the same time. */
static inline void spin_ns(uint64_t ns)
{
    uint64_t end = now_ns() + ns;
    while (now_ns() < end) {
    }
}

#endif
