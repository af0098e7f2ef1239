#include "args.h"

#include <dt.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

/* A name for each value of an enum. */
struct names {
    const char *const *name;
    size_t count;
};

enum kind {
    FLAG,    /* a bool */
    TEXT,    /* a const char * */
    NUMBER,  /* a uint32_t */
    LARGE,   /* a uint64_t, with a unit */
    SECONDS, /* a double */
    NUMBERS, /* a struct list of numbers, with units */
    NAMES,   /* a struct list of values of an enum */
    CHOICE,  /* one value of an enum */
    SUBJECT_NAMES
};

struct option {
    const char *name;
    enum kind kind;
    size_t at; /* in struct settings */
    uint64_t least, most;
    struct names names;
};

#define AT(field) offsetof(struct settings, field)
static const struct option options[] = {
    {"--test", CHOICE, AT(test), 0, 0, {test_names, TESTS}},
    {"--subjects", SUBJECT_NAMES, AT(subject), 0, 0, {subject_names, SUBJECTS}},
    {"--op", NAMES, AT(ops), 0, 0, {op_names, OPS}},
    {"--pattern", NAMES, AT(patterns), 0, 0, {pattern_names, PATTERNS}},
    {"--block-size", NUMBERS, AT(block_sizes), 1, 1u << 30, {0}},
    {"--blocks", NUMBERS, AT(blocks), 1, UINT32_MAX, {0}},
    {"--depth", NUMBERS, AT(depths), 1, 1000000, {0}},
    {"--peers", NUMBER, AT(peers), 1, 10000, {0}},
    {"--pool", LARGE, AT(pool), 1, MOST_POOL, {0}},
    {"--region", LARGE, AT(region), 1, MOST_POOL, {0}},
    {"--rounds", NUMBER, AT(rounds), 1, 100000, {0}},
    {"--seconds", SECONDS, AT(seconds), 0, 0, {0}},
    {"--transfers", LARGE, AT(transfers), 1, UINT64_MAX, {0}},
    {"--warmup", NUMBER, AT(warmup), 0, 1000, {0}},
    {"--poll-budget", NUMBER, AT(poll_budget_us), 1, 1000000, {0}},
    {"--seed", LARGE, AT(seed), 0, UINT64_MAX, {0}},
    {"--ucx-tls", TEXT, AT(ucx_tls), 0, 0, {0}},
    {"--progress-thread", FLAG, AT(progress_thread), 0, 0, {0}},
    {"--huge-pages", FLAG, AT(huge_pages), 0, 0, {0}},
    {"--verify", FLAG, AT(verify), 0, 0, {0}},
    {"--json", FLAG, AT(json), 0, 0, {0}},
    {"--quiet", FLAG, AT(quiet), 0, 0, {0}},
    {"--listen", TEXT, AT(listen), 0, 0, {0}},
    {"--connect", TEXT, AT(connect), 0, 0, {0}},
};

/* "write, read or both": for people. */
static const char *alternatives(struct names names)
{
    static char text[256];
    text[0] = '\0';
    for (size_t i = 0; i < names.count; i++) {
        if (i > 0)
            strcat(text, i + 1 == names.count ? " or " : ", ");
        strcat(text, names.name[i]);
    }
    return text;
}

/* A number of up to `len` characters with K, M or G behind it, which are powers of 1024. */
static uint64_t number_of(const struct option *option, const char *text, size_t len)
{
    char digits[32] = "", *end;
    unsigned shift = 0;
    uint64_t value = 0;

    if (len < sizeof digits)
        memcpy(digits, text, len);
    errno = 0;
    if (digits[0] >= '0' && digits[0] <= '9')
        value = strtoull(digits, &end, 10);
    else
        end = digits, errno = EINVAL;
    if (errno == 0 && *end != '\0') {
        shift = *end == 'K' || *end == 'k' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        end += shift != 0;
        if (strcmp(end, "iB") == 0)
            end += 2;
    }
    if (errno != 0 || *end != '\0' || value > UINT64_MAX >> shift ||
        value << shift < option->least || value << shift > option->most)
        die("%s is \"%.*s\", but must be a number from %llu to %llu (K, M and G behind it are "
            "powers of 1024)",
            option->name, (int)len, text, (unsigned long long)option->least,
            (unsigned long long)option->most);
    return value << shift;
}

static size_t name_of(const struct option *option, const char *text, size_t len)
{
    for (size_t i = 0; i < option->names.count; i++)
        if (strlen(option->names.name[i]) == len && memcmp(option->names.name[i], text, len) == 0)
            return i;
    die("%s is \"%.*s\", but must be %s", option->name, (int)len, text,
        alternatives(option->names));
}

static void set_list(const struct option *option, struct settings *settings, const char *text)
{
    void *field = (char *)settings + option->at;
    struct list *list = field;

    if (option->kind == SUBJECT_NAMES)
        memset(field, 0, sizeof settings->subject);
    else
        list->count = 0;
    for (;; text++) {
        size_t len = strcspn(text, ",");
        if (option->kind == SUBJECT_NAMES)
            ((bool *)field)[name_of(option, text, len)] = true;
        else if (list->count == LIST_MAX)
            die("%s has more than %d values", option->name, LIST_MAX);
        else
            list->value[list->count++] = option->kind == NAMES ? name_of(option, text, len)
                                                               : number_of(option, text, len);
        text += len;
        if (*text == '\0')
            return;
    }
}

static double seconds_of(const struct option *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0 && value <= 86400))
        die("%s is \"%s\", but must be a number above 0, up to 86400", option->name, text);
    return value;
}

static void set(const struct option *option, struct settings *settings, const char *text)
{
    void *field = (char *)settings + option->at;

    switch (option->kind) {
    case FLAG:
        *(bool *)field = true;
        break;
    case TEXT:
        *(const char **)field = text;
        break;
    case NUMBER:
        *(uint32_t *)field = (uint32_t)number_of(option, text, strlen(text));
        break;
    case LARGE:
        *(uint64_t *)field = number_of(option, text, strlen(text));
        break;
    case SECONDS:
        *(double *)field = seconds_of(option, text);
        break;
    case CHOICE:
        settings->test = (enum test)name_of(option, text, strlen(text));
        break;
    default:
        set_list(option, settings, text);
    }
}

static const struct option *find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
            return &options[i];
    die("there is no option \"%.*s\"; --help tells all", (int)len, name);
}

__attribute__((noreturn))
static void print_and_exit(const char *const *parts)
{
    for (; *parts != NULL; parts++)
        fputs(*parts, stdout);
    exit(fflush(stdout) == 0 ? 0 : 1);
}

/* What the tests differ in. A value that the user has given stays. */
static void set_defaults(struct settings *settings)
{
    static const struct settings by_test[TESTS] = {
        [TRANSFER] = {.block_sizes = {{65536}, 1}, .blocks = {{256}, 1}, .seconds = 0.5,
                      .rounds = 5},
        [ADD_PEER] = {.block_sizes = {{64}, 1}, .blocks = {{1000, 1000000}, 2}, .rounds = 9},
        [IN_FLIGHT] = {.block_sizes = {{4096}, 1}, .blocks = {{1}, 1}, .rounds = 5,
                       .depths = {{1, 100, 10000}, 3}},
        [IDLE] = {.block_sizes = {{4096}, 1}, .blocks = {{1}, 1}, .seconds = 2, .rounds = 3},
    };
    const struct settings *other = &by_test[settings->test];

    if (settings->block_sizes.count == 0)
        settings->block_sizes = other->block_sizes;
    if (settings->blocks.count == 0)
        settings->blocks = other->blocks;
    if (settings->depths.count == 0)
        settings->depths = other->depths.count != 0 ? other->depths : (struct list){{1}, 1};
    if (settings->rounds == 0)
        settings->rounds = other->rounds;
    if (settings->seconds == 0)
        settings->seconds = other->seconds;
}

/* Not every subject has what a test looks for. */
static void keep_subjects(struct settings *settings)
{
    static const bool has[TESTS][SUBJECTS] = {
        [TRANSFER] = {true, true, true, true, true, true, true},
        [ADD_PEER] = {[LOCAL] = true, [LOCAL_UNMAPPED] = true, [NIXL] = true, [NIXL_RAW] = true},
        [IN_FLIGHT] = {[LOCAL] = true, [LOCAL_UNMAPPED] = true, [NIXL] = true, [NIXL_RAW] = true},
        [IDLE] = {[LOCAL] = true, [NIXL] = true},
    };
    bool any = false;

    for (enum subject subject = 0; subject < SUBJECTS; subject++) {
        settings->subject[subject] = settings->subject[subject] && has[settings->test][subject];
        any = any || settings->subject[subject];
    }
    if (!any)
        die("none of the --subjects has what --test %s looks for", test_names[settings->test]);
    if (settings->test != TRANSFER && settings->peers != 1)
        die("--test %s has one target, not --peers %u", test_names[settings->test],
            settings->peers);
    if (settings->test == IN_FLIGHT && settings->connect != NULL)
        die("--test in-flight stops its target, so it does not work with --connect");
}

void args_parse(struct settings *settings, int argc, char **argv)
{
    char version[64];
    int given = 0;

    *settings = (struct settings){.ops = {{WRITE}, 1},
                                  .patterns = {{SCATTERED}, 1},
                                  .peers = 1,
                                  .pool = 512 << 20,
                                  .warmup = 1,
                                  .seed = 1};
    for (enum subject subject = 0; subject < SUBJECTS; subject++)
        settings->subject[subject] = true;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i], *equals = strchr(text, '=');
        if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0)
            print_and_exit(help_text);
        if (strcmp(text, "--version") == 0) {
            uint32_t v = dt_version();
            snprintf(version, sizeof version, "dt_perf %d.%d.%d, libdatatransport %u.%u.%u\n",
                     DT_VERSION_MAJOR, DT_VERSION_MINOR, DT_VERSION_PATCH, v >> 16 & 255,
                     v >> 8 & 255, v & 255);
            print_and_exit((const char *const[]){version, NULL});
        }
        const struct option *option =
            find(text, equals != NULL ? (size_t)(equals - text) : strlen(text));
        if (option->kind == FLAG && equals != NULL)
            die("%s takes no value", option->name);
        if (option->kind != FLAG && equals == NULL && ++i == argc)
            die("%s needs a value", option->name);
        given++;
        set(option, settings, equals != NULL ? equals + 1 : argv[i]);
    }
    if (settings->listen != NULL && given != 1)
        die("--listen takes no other option: what is measured is said at the other side");
    if (settings->ucx_tls != NULL && strlen(settings->ucx_tls) > 255)
        die("--ucx-tls is longer than 255 characters");
    set_defaults(settings);
    keep_subjects(settings);
}
