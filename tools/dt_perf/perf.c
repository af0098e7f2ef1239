#include "perf.h"

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
