#include "perf.h"

#include <string.h>

const char *const subject_names[SUBJECTS] = {"local",   "local-unmapped", "nixl",    "memcpy",
                                             "copy-nt", "process-vm",     "nixl-raw"};
const char *const test_names[TESTS] = {"transfer", "add-peer", "in-flight", "idle"};
const char *const op_names[OPS] = {"write", "read"};
const char *const pattern_names[PATTERNS] = {"contiguous", "scattered", "permuted"};

enum memory memory_of(enum subject subject)
{
    return subject == LOCAL || subject == MEMCPY || subject == COPY_NT ? REGION : ORDINARY;
}

bool has_target(enum subject subject)
{
    return subject != MEMCPY && subject != COPY_NT;
}

bool is_nixl(enum subject subject)
{
    return subject == NIXL || subject == NIXL_RAW;
}

static bool has_word(const char *list, const char *word)
{
    for (;; list++) {
        size_t len = strcspn(list, ",");
        if (strlen(word) == len && memcmp(list, word, len) == 0)
            return true;
        list += len;
        if (*list == '\0')
            return false;
    }
}

bool ucx_copies_by_kernel(const char *tls)
{
    /* The first ones name cma, alone or with others; UCX is rarely built with the rest. */
    static const char *const by_kernel[] = {"cma", "shm", "sm", "all", "xpmem", "knem"};
    enum { OF_CMA = 4, ALL = sizeof by_kernel / sizeof *by_kernel };

    if (tls == NULL || tls[0] == '\0')
        return true;
    bool without = tls[0] == '^';
    for (size_t i = 0; i < (without ? OF_CMA : ALL); i++)
        if (has_word(tls + without, by_kernel[i]))
            return !without;
    return without;
}
