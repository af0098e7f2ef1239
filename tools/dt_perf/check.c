/* --verify: bytes before and after a round. */
#include <stdio.h>

#include "bench.h"
#include "util.h"
#include "verify.h"

/* Target `peer`'s part of the memory that stands for the targets' in this process. */
static struct pool part_of_reference(const struct bench *bench, uint32_t peer)
{
    struct pool part = bench->pool[REFERENCE];
    part.bytes = bench->shape.peer_blocks * bench->shape.block_len;
    part.base += peer * part.bytes;
    return part;
}

void bench_fill_sources(struct bench *bench)
{
    struct links *links = bench->job->links;

    for (enum memory memory = 0; memory < REFERENCE; memory++) {
        if (bench->pool[memory].base == NULL)
            continue;
        if (bench->shape.op == WRITE)
            pool_fill(&bench->pool[memory], 0);
        else
            links_must(links,
                       (struct request){.what = FILL, .memory = memory, .fill = FILL_STREAM});
    }
    if (bench->pool[REFERENCE].base == NULL || bench->shape.op == WRITE)
        return;
    for (uint32_t i = 0; i < links->count; i++) {
        struct pool part = part_of_reference(bench, i);
        pool_fill(&part, stream_of_target(i));
    }
}

/* Where bytes land in this process, if they do. */
static struct pool *destination_here(struct bench *bench, enum subject subject)
{
    return &bench->pool[bench->shape.op == READ ? memory_of(subject) : REFERENCE];
}

void bench_clear_destination(struct bench *bench, enum subject subject)
{
    bench->before = (unsigned char)(bench->before + 7);
    if (bench->shape.op == READ || !has_target(subject))
        pool_clear(destination_here(bench, subject), bench->before);
    else
        links_must(bench->job->links, (struct request){.what = FILL,
                                                       .memory = memory_of(subject),
                                                       .fill = bench->before});
}

__attribute__((noreturn))
static void wrong(const struct bench *bench, enum subject subject, const char *what)
{
    die_with(3, "%s: %s of %zu blocks of %zu bytes: %s", subject_names[subject],
             op_names[bench->shape.op], bench->shape.blocks, bench->shape.block_len, what);
}

static void check_destination_here(struct bench *bench, enum subject subject, uint64_t sent)
{
    uint32_t peers = bench->job->links->count;
    char text[256];

    for (uint32_t i = 0; i < peers; i++) {
        const struct plan *plan = &bench->plan[i];
        struct pool part = part_of_reference(bench, i);
        struct landing landing = {.pairs = plan->pairs,
                                  .touched = plan_touched(plan, i, peers, sent),
                                  .block_len = bench->shape.block_len,
                                  .before = bench->before};
        if (bench->shape.op == READ) {
            landing.pool = destination_here(bench, subject);
            landing.to = plan->local;
            landing.from = plan->remote;
            landing.stream = stream_of_target(i);
        } else {
            landing.pool = &part;
            landing.to = plan->remote;
            landing.from = plan->local;
            landing.stream = 0;
        }
        verify_landing(&landing, text, sizeof text);
        if (text[0] != '\0')
            wrong(bench, subject, text);
    }
    if (!pool_guards_hold(destination_here(bench, subject)))
        wrong(bench, subject, "memory beside the blocks was changed");
}

/* Both where bytes have landed, and where they were only read. */
static void check_targets(struct bench *bench, enum subject subject, uint64_t sent)
{
    struct links *links = bench->job->links;
    uint32_t bad = 0;
    struct request request = {.what = CHECK,
                              .memory = memory_of(subject),
                              .op = bench->shape.op,
                              .pattern = bench->shape.pattern,
                              .num_blocks = bench->shape.peer_blocks,
                              .block_len = bench->shape.block_len,
                              .seed = bench->job->settings->seed,
                              .slice = bench->shape.blocks,
                              .peers = links->count,
                              .transfers = sent,
                              .fill = bench->before};
    if (!links_ask(links, request, &bad)) {
        char text[600];
        snprintf(text, sizeof text, "target %u: %s", bad, links->reply[bad].text);
        wrong(bench, subject, text);
    }
}

void bench_check(struct bench *bench, enum subject subject, uint64_t sent)
{
    const struct pool *local = &bench->pool[memory_of(subject)];

    if (bench->shape.op == READ || !has_target(subject))
        check_destination_here(bench, subject, sent);
    if (has_target(subject))
        check_targets(bench, subject, sent);
    if (bench->shape.op == WRITE &&
        (!pool_holds(local, 0, local->bytes, 0, 0) || !pool_guards_hold(local)))
        wrong(bench, subject, "memory of the initiator was changed that was only read");
}
