#include "histogram.h"

#include <math.h>
#include <string.h>

/* Below 2 * 128 a class is one nanosecond wide; above, it keeps the 8 leading bits. */
static unsigned class_of(uint64_t ns)
{
    unsigned shift = 0;
    unsigned class;

    if (ns >> (HISTOGRAM_BITS + 1) != 0)
        shift = 63 - (unsigned)__builtin_clzll(ns) - HISTOGRAM_BITS;
    class = (shift << HISTOGRAM_BITS) + (unsigned)(ns >> shift);
    return class < HISTOGRAM_CLASSES ? class : HISTOGRAM_CLASSES - 1;
}

static double middle_of(unsigned class)
{
    unsigned shift = class >> HISTOGRAM_BITS;
    uint64_t low;

    if (shift < 2)
        return class;
    shift--;
    low = (uint64_t)(class - (shift << HISTOGRAM_BITS)) << shift;
    return (double)low + (double)(((uint64_t)1 << shift) - 1) / 2;
}

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->class[class_of(ns)]++;
}

double histogram_at(const struct histogram *histogram, double part)
{
    uint64_t wanted = (uint64_t)ceil(part * (double)histogram->count);
    uint64_t seen = 0;

    if (histogram->count == 0)
        return NAN;
    if (wanted == 0)
        wanted = 1;
    for (unsigned class = 0; class < HISTOGRAM_CLASSES; class++) {
        seen += histogram->class[class];
        if (seen >= wanted)
            return middle_of(class);
    }
    return NAN;
}
