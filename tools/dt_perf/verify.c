#include "verify.h"

#include <stdio.h>

void verify_landing(const struct landing *landing, char *text, size_t cap)
{
    size_t len = landing->block_len;

    text[0] = '\0';
    for (size_t k = 0; k < landing->pairs; k++) {
        size_t at = landing->to[k] * len;
        if (k < landing->touched
                ? !pool_holds(landing->pool, at, len, landing->stream, landing->from[k] * len)
                : !pool_is_clear(landing->pool, at, len, landing->before)) {
            snprintf(text, cap, "block %u %s", landing->to[k],
                     k < landing->touched ? "does not hold what was moved there"
                                          : "was changed, but nothing was moved there");
            return;
        }
    }
}
