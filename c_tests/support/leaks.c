#include "leaks.h"

static int off;

void leaks_cannot_be_found(void)
{
    off = 1;
}

/* The sanitizer asks this when the process ends. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return off;
}
