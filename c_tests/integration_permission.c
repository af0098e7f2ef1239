/* Processes that may not look into each other: a clear refusal that names the way out. Needs root,
 * to become other users. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "node.h"
#include "skip.h"

#define BLOCKS 8
#define LEN 4096

static struct remote start(enum memory_kind kind, uint32_t uid, bool dumpable)
{
    struct node_spec spec = {.kind = kind, .num_blocks = BLOCKS, .block_len = LEN, .fill_seed = 6,
                             .uid = uid, .dumpable = dumpable};
    return remote_start(&spec);
}

static bool has_word(const char *text, const char *word)
{
    return strcasestr(text, word) != NULL;
}

static void expect_refused(enum memory_kind kind, uint32_t uid, bool dumpable)
{
    struct remote initiator = start(MEMORY_ANONYMOUS, 65534, true);
    struct remote target = start(kind, uid, dumpable);
    char text[REMOTE_TEXT];
    dt_status status = remote_add(&initiator, "target", &target.card, text);

    printf("user 65534 to %s of user %u%s: %s: %s\n", memory_kind_name(kind), uid,
           dumpable ? "" : ", not dumpable", dt_status_str(status), text);
    CHECK(status == DT_ERR_UNAVAILABLE);
    CHECK(has_word(text, "user") || has_word(text, "uid") || has_word(text, "dumpable") ||
          has_word(text, "CAP_SYS_PTRACE"));
    /* Nothing is left behind, and the one who asked is as good as before. */
    struct remote friendly = start(kind, 65534, true);
    uint32_t from = 1, to = 2;
    CHECK_OK(remote_add(&initiator, "target", &friendly.card, NULL));
    CHECK_OK(remote_copy(&initiator, true, "target", &from, &to, 1));
    struct content *there = contents_of(6, BLOCKS);
    contents_copy(there, &to, 6, &from, 1);
    remote_check(&friendly, there, NULL);
    free(there);
    remote_quit(&initiator);
    remote_quit(&target);
    remote_quit(&friendly);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    if (geteuid() != 0) {
        test_skipped("becoming another user needs root; run ctest as root to check this");
        return 0;
    }
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        expect_refused((enum memory_kind)kind, 65534, false);
        expect_refused((enum memory_kind)kind, 65533, true);
    }
    return 0;
}
