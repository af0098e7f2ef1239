/* Times in nanoseconds, counted in classes that are less than 1 % wide. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

/* 128 classes for each power of two, as in HdrHistogram: a time is told within 0.4 %. */
enum { HISTOGRAM_BITS = 7, HISTOGRAM_CLASSES = (1 << HISTOGRAM_BITS) * 36 };

struct histogram {
    uint64_t count;
    uint64_t class[HISTOGRAM_CLASSES];
};

void histogram_clear(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t ns);
/* The time that `part` (0 to 1) of all times do not exceed; NAN if there are none. */
double histogram_at(const struct histogram *histogram, double part);

#endif
