/* --test in-flight: what asking costs by the number of transfers that are in flight. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "lane.h"
#include "progress.h"
#include "tests.h"
#include "util.h"

#define MEMORY ((uint64_t)64 << 20)
#define FILLER ((size_t)32 << 20)        /* more than sockets hold */
#define LOCAL_BYTES ((size_t)128 << 10)  /* of a transfer: nothing of it is copied at submission */
#define LOCAL_ROUND ((size_t)64 << 20)   /* at least, however few are in flight */
#define STANDSTILL_NS 60000000000u
#define ROUND_NS 20000000u
enum { SETTLE = 2000, ENDS = 256 };

struct stage {
    struct job *job;
    struct lane lane[SUBJECTS];
    bool open[SUBJECTS];
    uint32_t flying[SUBJECTS];
    uint32_t *count; /* block numbers from 0 on */
    size_t blocks;
    struct histogram polls;
};

static void submit(struct stage *stage, enum subject subject, size_t first, size_t count)
{
    struct transfer transfer = {WRITE, 0, stage->count + first, stage->count + first, count};
    stage->lane[subject].submit(&stage->lane[subject], &transfer, stage->flying[subject]++);
}

/* Until nothing is in flight. Slots are then all free again. Returns the time inside of polls. */
static uint64_t drain(struct stage *stage, enum subject subject)
{
    struct lane *lane = &stage->lane[subject];
    uint32_t left = stage->flying[subject], slots[ENDS];
    uint64_t inside = 0, last = now_ns();

    while (left > 0) {
        uint64_t before = now_ns();
        size_t n = lane->poll(lane, slots, ENDS);
        uint64_t now = now_ns();
        inside += now - before;
        left -= (uint32_t)n;
        if (n > 0)
            last = now;
        if (now - last > STANDSTILL_NS)
            lane_failed(lane, "no transfer has ended for 60 s");
    }
    stage->flying[subject] = 0;
    return inside;
}

static void open_lanes(struct stage *stage, struct pool *pools, uint32_t most)
{
    struct job *job = stage->job;
    enum subject subjects[SUBJECTS];
    size_t count = job_subjects(job, subjects);
    struct lanes_setup setup = {
        job->links, pools,
        {stage->blocks, job->settings->block_sizes.value[0], job->settings->progress_thread, 0},
        stage->blocks, most};
    char why[512];

    for (size_t i = 0; i < count; i++) {
        enum subject subject = subjects[i];
        if (!lane_open(&stage->lane[subject], subject, &setup, why, sizeof why)) {
            results_missing(job->results, subject, why);
            continue;
        }
        stage->open[subject] = true;
        /* The first transfer makes the connection. */
        submit(stage, subject, 0, 1);
        drain(stage, subject);
    }
    job_must_have_subject(job);
}

static void send_signal(struct stage *stage, int number)
{
    pid_t target = stage->job->links->child[0];
    siginfo_t info;

    if (kill(target, number) != 0)
        die("cannot stop the target: %s", strerror(errno));
    /* It has stopped when the system says so, and stays a child to be waited for. */
    if (number == SIGSTOP &&
        (waitid(P_PID, (id_t)target, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 ||
         info.si_code != CLD_STOPPED))
        links_check(stage->job->links);
}

/* False if something ends, which then does not hang on the target. */
static bool time_polls(struct stage *stage, enum subject subject, struct sample *sample)
{
    struct lane *lane = &stage->lane[subject];
    uint32_t slots[ENDS];
    uint64_t begin = now_ns(), now = begin;

    histogram_clear(&stage->polls);
    while (now - begin < ROUND_NS) {
        uint64_t before = now_ns();
        if (lane->poll(lane, slots, ENDS) > 0)
            return false;
        now = now_ns();
        histogram_add(&stage->polls, now - before);
    }
    sample->value[POLL_NS] = histogram_at(&stage->polls, 0.5);
    return true;
}

/* Brings the subject to `wanted` transfers in flight. */
static bool fly(struct stage *stage, enum subject subject, uint32_t wanted)
{
    struct lane *lane = &stage->lane[subject];
    uint32_t slots[ENDS];

    if (stage->flying[subject] == 0)
        submit(stage, subject, 0, FILLER / lane->block_len);
    while (stage->flying[subject] < wanted)
        submit(stage, subject, stage->flying[subject] % stage->blocks, 1);
    uint64_t begin = now_ns();
    /* The first polls post what there is room for. */
    for (int i = 0; i < SETTLE && now_ns() - begin < 10 * (uint64_t)ROUND_NS; i++)
        if (lane->poll(lane, slots, ENDS) > 0)
            return false;
    return true;
}

static void give_up(struct stage *stage, struct result *result, enum subject subject)
{
    results_missing(stage->job->results, subject,
                    "transfers end while the target is stopped: set UCX_TLS to tcp");
    for (size_t i = 0; i < result->rows; i++)
        if (result->row[i].subject == subject)
            for (uint32_t k = 0; k < result->rounds; k++)
                sample_clear(&result->row[i].round[k]);
}

static void run_nixl(struct stage *stage, struct result *result)
{
    struct results *results = stage->job->results;

    for (size_t i = 0; i < result->rows; i++) {
        enum subject subject = result->row[i].subject;
        if (is_nixl(subject) && !results_lack(results, subject) &&
            !fly(stage, subject, (uint32_t)result->depth))
            give_up(stage, result, subject);
    }
    for (uint32_t round = 0; round < result->rounds; round++)
        for (size_t i = 0; i < result->rows; i++) {
            struct row *row = &result->row[(i + round) % result->rows];
            if (!is_nixl(row->subject) || results_lack(results, row->subject))
                continue;
            progress_step(subject_names[row->subject]);
            if (!time_polls(stage, row->subject, &row->round[round]))
                give_up(stage, result, row->subject);
        }
}

/* Takes all of the memory in turn, so that few transfers are not faster because they find their
 * blocks in the caches. */
static double time_copies(struct stage *stage, enum subject subject, uint32_t depth)
{
    size_t blocks = LOCAL_BYTES / stage->lane[subject].block_len;
    size_t places = stage->blocks / blocks, sent = 0;
    uint64_t inside = 0;

    while (sent * LOCAL_BYTES < LOCAL_ROUND) {
        for (uint32_t n = 0; n < depth; n++, sent++)
            submit(stage, subject, sent % places * blocks, blocks);
        inside += drain(stage, subject);
    }
    return (double)inside / ((double)LOCAL_BYTES * (double)sent);
}

static void run_local(struct stage *stage, struct result *result)
{
    for (uint32_t round = 0; round < result->rounds; round++)
        for (size_t i = 0; i < result->rows; i++) {
            struct row *row = &result->row[(i + round) % result->rows];
            if (is_nixl(row->subject))
                continue;
            progress_step(subject_names[row->subject]);
            row->round[round].value[NS_PER_BYTE] =
                time_copies(stage, row->subject, (uint32_t)result->depth);
        }
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void run(struct stage *stage)
{
    struct job *job = stage->job;
    struct list depths = job->settings->depths;
    struct result *result[LIST_MAX];

    /* What is in flight stays there. */
    qsort(depths.value, depths.count, sizeof *depths.value, ascending);
    for (size_t d = 0; d < depths.count; d++) {
        result[d] = results_add(job->results, IN_FLIGHT, job->settings->rounds);
        result[d]->depth = depths.value[d];
        for (enum subject subject = 0; subject < SUBJECTS; subject++)
            if (stage->open[subject])
                result_row(result[d], subject, NULL);
    }
    send_signal(stage, SIGSTOP);
    for (size_t d = 0; d < depths.count; d++)
        run_nixl(stage, result[d]);
    send_signal(stage, SIGCONT);
    for (enum subject subject = 0; subject < SUBJECTS; subject++)
        if (stage->open[subject] && is_nixl(subject) && !results_lack(job->results, subject))
            drain(stage, subject);
    for (size_t d = 0; d < depths.count; d++)
        run_local(stage, result[d]);
}

void test_in_flight(struct job *job)
{
    const struct settings *settings = job->settings;
    struct stage *stage = must_alloc(1, sizeof *stage);
    struct pool pools[MEMORIES];
    enum subject subjects[SUBJECTS];
    uint32_t most = 1;

    if (settings->block_sizes.value[0] > LOCAL_BYTES)
        die("--test in-flight needs a --block-size of at most %s", bytes_text(LOCAL_BYTES).chars);
    for (size_t d = 0; d < settings->depths.count; d++)
        if (settings->depths.value[d] > most)
            most = (uint32_t)settings->depths.value[d];
    stage->job = job;
    stage->blocks = MEMORY / settings->block_sizes.value[0];
    stage->count = must_alloc(stage->blocks, sizeof *stage->count);
    for (size_t i = 0; i < stage->blocks; i++)
        stage->count[i] = (uint32_t)i;
    job_make_pools(job, pools, MEMORY);
    open_lanes(stage, pools, most);
    progress_start(job_subjects(job, subjects) * settings->depths.count * settings->rounds,
                   !settings->quiet);
    run(stage);
    for (enum subject subject = 0; subject < SUBJECTS; subject++)
        if (stage->open[subject])
            lane_close(&stage->lane[subject]);
    links_must(job->links, (struct request){.what = CLOSE});
    job_free_pools(pools);
    free(stage->count);
    free(stage);
}
