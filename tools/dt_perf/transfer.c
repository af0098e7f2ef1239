/* --test transfer: how fast blocks move, how long calls take, and what it costs both sides. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "progress.h"
#include "util.h"

/* No transfer takes a part of it, except with a target that stands still. */
#define STANDSTILL_NS 60000000000u

enum { MOST_ENDS = 256 }; /* taken by one poll */

/* What one subject does in one round: transfers of all targets in turn, over and over. */
struct burst {
    uint64_t limit, deadline; /* transfers, and when no more are started */
    uint64_t sent, moved_ns;
};

static void next_transfer(const struct bench *bench, uint64_t number, struct transfer *transfer)
{
    uint32_t peers = bench->job->links->count;
    uint32_t peer = (uint32_t)(number % peers);
    const struct plan *plan = &bench->plan[peer];
    size_t first = number / peers % plan->slices * plan->slice;

    /* Only when warming up is there a last one that is not whole: it takes some blocks again. */
    if (first + plan->slice > plan->pairs)
        first = plan->pairs - plan->slice;
    *transfer = (struct transfer){bench->shape.op, peer, plan->local + first, plan->remote + first,
                                  plan->slice};
}

static void run_burst(struct bench *bench, struct lane *lane, struct burst *burst)
{
    uint32_t depth = bench->shape.depth, left = depth;
    uint32_t ended[MOST_ENDS];
    uint64_t begin = now_ns(), now = begin, last = begin;
    bool over = false;

    for (uint32_t i = 0; i < depth; i++)
        bench->free[i] = depth - 1 - i;
    while (!over || left < depth) {
        while (left > 0 && !over) {
            struct transfer transfer;
            uint32_t slot = bench->free[--left];
            next_transfer(bench, burst->sent++, &transfer);
            bench->start[slot] = now_ns();
            lane->submit(lane, &transfer, slot);
            now = now_ns();
            histogram_add(&bench->submit, now - bench->start[slot]);
            if (lane->poll == NULL) {
                histogram_add(&bench->completion, now - bench->start[slot]);
                bench->free[left++] = slot;
                last = now;
            }
            over = burst->sent >= burst->limit || now >= burst->deadline;
        }
        if (left == depth)
            continue;
        uint64_t before = now_ns();
        size_t count = lane->poll(lane, ended, MOST_ENDS);
        now = now_ns();
        histogram_add(&bench->poll, now - before);
        for (size_t i = 0; i < count; i++) {
            histogram_add(&bench->completion, now - bench->start[ended[i]]);
            bench->free[left++] = ended[i];
            last = now;
        }
        over = over || now >= burst->deadline;
        if (now - last > STANDSTILL_NS)
            lane_failed(lane, "no transfer has ended for 60 s");
    }
    burst->moved_ns = last - begin;
}

static void clear_histograms(struct bench *bench)
{
    histogram_clear(&bench->submit);
    histogram_clear(&bench->poll);
    histogram_clear(&bench->completion);
}

static void begin(struct bench *bench, enum subject subject)
{
    links_must(bench->job->links, (struct request){.what = BEGIN, .subject = subject});
}

static double end(struct bench *bench)
{
    struct links *links = bench->job->links;
    double ns = 0;
    links_must(links, (struct request){.what = END});
    for (uint32_t i = 0; i < links->count; i++)
        ns += (double)links->reply[i].cpu_ns;
    return ns;
}

static void make_plans(struct bench *bench)
{
    struct links *links = bench->job->links;
    bench->plan = must_alloc(links->count, sizeof *bench->plan);
    for (uint32_t i = 0; i < links->count; i++)
        plan_make(&bench->plan[i], bench->shape.pattern, bench->job->settings->seed, i,
                  links->count, bench->shape.peer_blocks, bench->shape.blocks);
    bench->start = must_alloc(bench->shape.depth, sizeof *bench->start);
    bench->free = must_alloc(bench->shape.depth, sizeof *bench->free);
}

static void free_plans(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->job->links->count; i++)
        plan_free(&bench->plan[i]);
    free(bench->plan);
    free(bench->start);
    free(bench->free);
}

static struct sample measure(struct bench *bench, struct lane *lane)
{
    const struct settings *settings = bench->job->settings;
    struct burst burst = {settings->transfers, UINT64_MAX, 0, 0};
    struct sample sample;

    if (settings->verify)
        bench_clear_destination(bench, lane->subject);
    clear_histograms(bench);
    begin(bench, lane->subject);
    if (settings->transfers == 0) {
        burst.limit = UINT64_MAX;
        burst.deadline = now_ns() + (uint64_t)(settings->seconds * 1e9);
    }
    uint64_t cpu = cpu_ns();
    run_burst(bench, lane, &burst);
    cpu = cpu_ns() - cpu;
    double target_cpu = end(bench);

    double bytes = (double)burst.sent * (double)(bench->shape.blocks * bench->shape.block_len);
    sample_clear(&sample);
    sample.value[GB_PER_S] = bytes / (double)burst.moved_ns;
    sample.value[TRANSFERS_PER_S] = (double)burst.sent * 1e9 / (double)burst.moved_ns;
    sample_times(&sample, SUBMIT_P50, &bench->submit);
    sample_times(&sample, POLL_P50, &bench->poll);
    sample_times(&sample, COMPLETION_P50, &bench->completion);
    /* Nanoseconds per byte are seconds per 10^9 bytes. */
    sample.value[CPU_INITIATOR] = (double)cpu / bytes;
    sample.value[CPU_TARGET] = target_cpu / bytes;
    if (settings->verify)
        bench_check(bench, lane->subject, burst.sent);
    return sample;
}

/* All subjects, round after round; each round begins with another one. */
static void run_rounds(struct bench *bench)
{
    const struct settings *settings = bench->job->settings;
    const struct shape_of_test *shape = &bench->shape;
    struct result *result = results_add(bench->job->results, TRANSFER, settings->rounds);
    char what[128];

    result->op = shape->op;
    result->pattern = shape->pattern;
    result->block_size = shape->block_len;
    result->blocks = shape->blocks;
    result->depth = shape->depth;
    for (size_t i = 0; i < bench->subjects; i++)
        result_row(result, bench->subject[i], NULL);
    make_plans(bench);
    if (settings->verify)
        bench_fill_sources(bench);
    for (uint32_t round = 0; round < settings->rounds; round++)
        for (size_t i = 0; i < bench->subjects; i++) {
            size_t turn = (i + round) % bench->subjects;
            enum subject subject = bench->subject[turn];
            snprintf(what, sizeof what, "%s, %zu x %zu bytes, round %u: %s", op_names[shape->op],
                     shape->blocks, shape->block_len, round + 1, subject_names[subject]);
            progress_step(what);
            result->row[turn].round[round] = measure(bench, &bench->lane[subject]);
        }
    free_plans(bench);
}

/* The pages of all memory become known to all who use it, connections are made. */
static void warm_up(struct bench *bench)
{
    const struct shape_of_test kept = bench->shape;

    bench->shape.pattern = CONTIGUOUS;
    bench->shape.blocks = kept.peer_blocks < 256 ? kept.peer_blocks : 256;
    bench->shape.depth = 1;
    make_plans(bench);
    for (uint32_t i = 0; i < bench->job->links->count; i++)
        bench->plan[i].slices += bench->plan[i].pairs % bench->plan[i].slice != 0;
    for (size_t i = 0; i < bench->subjects; i++) {
        uint64_t cycle = (uint64_t)bench->plan[0].slices * bench->job->links->count;
        struct burst burst = {bench->job->settings->warmup * cycle, UINT64_MAX, 0, 0};
        if (burst.limit == 0)
            continue;
        begin(bench, bench->subject[i]);
        run_burst(bench, &bench->lane[bench->subject[i]], &burst);
        end(bench);
    }
    free_plans(bench);
    bench->shape = kept;
}

static void open_lanes(struct bench *bench)
{
    struct job *job = bench->job;
    struct lanes_setup setup = {.links = job->links,
                                .pools = bench->pool,
                                .shape = {bench->shape.peer_blocks * job->settings->peers,
                                          bench->shape.block_len, job->settings->progress_thread,
                                          job->settings->poll_budget_us},
                                .peer_blocks = bench->shape.peer_blocks};
    char why[512];

    for (size_t i = 0; i < job->settings->depths.count; i++)
        if (job->settings->depths.value[i] > setup.depth)
            setup.depth = (uint32_t)job->settings->depths.value[i];
    bench->subjects = 0;
    for (enum subject subject = 0; subject < SUBJECTS; subject++) {
        if (!job->settings->subject[subject])
            continue;
        if (lane_open(&bench->lane[subject], subject, &setup, why, sizeof why))
            bench->subject[bench->subjects++] = subject;
        else
            results_missing(job->results, subject, why);
    }
}

static void close_lanes(struct bench *bench)
{
    for (size_t i = 0; i < bench->subjects; i++)
        lane_close(&bench->lane[bench->subject[i]]);
    links_must(bench->job->links, (struct request){.what = CLOSE});
}

/* What cannot be measured is said before anything is. */
static void check_settings(const struct settings *settings)
{
    if (whole_region(settings) > settings->pool && settings->verify)
        die("--verify looks at all memory, and most of a --region of %s is not there",
            bytes_text(settings->region).chars);
    for (size_t i = 0; i < settings->block_sizes.count; i++)
        for (size_t k = 0; k < settings->blocks.count; k++) {
            uint64_t len = settings->block_sizes.value[i], blocks = settings->blocks.value[k];
            uint64_t room = settings->pool / settings->peers / len;
            if (blocks > room)
                die("a --pool of %s for %u target%s has room for %llu blocks of %s at each, but "
                    "a transfer has %llu",
                    bytes_text(settings->pool).chars, settings->peers,
                    settings->peers == 1 ? "" : "s", (unsigned long long)room,
                    bytes_text(len).chars, (unsigned long long)blocks);
            uint64_t all = whole_region(settings);
            if (all / len > UINT32_MAX)
                die("a %s of %s has more than 2^32 blocks of %s",
                    all == settings->pool ? "--pool" : "--region", bytes_text(all).chars,
                    bytes_text(len).chars);
        }
}

/* False: no subject can do it. */
static bool run_block_size(struct bench *bench)
{
    const struct settings *settings = bench->job->settings;

    open_lanes(bench);
    for (size_t o = 0; o < settings->ops.count && bench->subjects > 0; o++) {
        bench->shape.op = (enum op)settings->ops.value[o];
        warm_up(bench);
        for (size_t p = 0; p < settings->patterns.count; p++)
            for (size_t b = 0; b < settings->blocks.count; b++)
                for (size_t d = 0; d < settings->depths.count; d++) {
                    bench->shape.pattern = (enum pattern)settings->patterns.value[p];
                    bench->shape.blocks = settings->blocks.value[b];
                    bench->shape.depth = (uint32_t)settings->depths.value[d];
                    run_rounds(bench);
                }
    }
    close_lanes(bench);
    return bench->subjects > 0;
}

void test_transfer(struct job *job)
{
    const struct settings *settings = job->settings;
    struct bench *bench = must_alloc(1, sizeof *bench);
    enum subject subjects[SUBJECTS];
    bool any = false;

    check_settings(settings);
    bench->job = job;
    job_make_pools(job, bench->pool, settings->pool);
    progress_start(job_subjects(job, subjects) * settings->rounds * settings->ops.count *
                       settings->block_sizes.count * settings->blocks.count *
                       settings->patterns.count * settings->depths.count,
                   !settings->quiet);
    for (size_t i = 0; i < settings->block_sizes.count; i++) {
        bench->shape.block_len = settings->block_sizes.value[i];
        bench->shape.peer_blocks = settings->pool / settings->peers / bench->shape.block_len;
        any = run_block_size(bench) || any;
    }
    if (!any)
        job_has_nothing(job);
    job_free_pools(bench->pool);
    free(bench);
}
