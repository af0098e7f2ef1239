/* --test idle: what a transport costs that has nothing to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "progress.h"
#include "tests.h"
#include "util.h"

/* SLEEP: what the wake-ups of POLL cost without the library. */
enum mode { NOBODY, WAIT, POLL, SLEEP, THREAD, MODES };
static const char *const mode_names[MODES] = {"none", "wait", "poll-1ms", "sleep-1ms",
                                              "progress-thread"};

enum { BLOCKS = 16, POLL_NS_APART = 1000000 };

static void spend(struct lane *lane, enum mode mode, double seconds)
{
    dt_transport *transport = lane->endpoint.transport;
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    dt_completion done;
    size_t count;

    for (uint64_t now; (now = now_ns()) < end;) {
        uint64_t left = end - now;
        if (mode == WAIT) {
            uint32_t ms = (uint32_t)(left / 1000000 + 1);
            endpoint_must(dt_wait(transport, NULL, &done, 1, ms, &count), "dt_wait");
        } else if (mode == POLL || mode == SLEEP) {
            if (mode == POLL)
                endpoint_must(dt_poll(transport, NULL, &done, 1, &count), "dt_poll");
            sleep_ns(left < POLL_NS_APART ? left : POLL_NS_APART);
        } else {
            sleep_ns(left);
        }
    }
}

static void move_one(struct lane *lane)
{
    const uint32_t block = 0;
    struct transfer transfer = {WRITE, 0, &block, &block, 1};
    uint32_t slot;

    lane->submit(lane, &transfer, 0);
    for (uint64_t begin = now_ns(); lane->poll(lane, &slot, 1) == 0;)
        if (now_ns() - begin > 60000000000u)
            lane_failed(lane, "the first transfer does not end");
}

/* A transport of its own, so that no other one is in the process meanwhile. */
static void measure(struct job *job, struct pool *pools, struct row *row, uint32_t round,
                    enum mode mode)
{
    const struct settings *settings = job->settings;
    struct lanes_setup setup = {job->links, pools,
                                {BLOCKS, settings->block_sizes.value[0], mode == THREAD, 0},
                                BLOCKS,
                                1};
    struct lane lane;
    char why[512];

    if (results_lack(job->results, row->subject))
        return;
    if (lane_open(&lane, row->subject, &setup, why, sizeof why)) {
        move_one(&lane);
        /* A transport rests longer some time after the last transfer: only then it is idle. */
        spend(&lane, mode, settings->seconds);
        uint64_t start = now_ns(), cpu = cpu_ns();
        spend(&lane, mode, settings->seconds);
        cpu = cpu_ns() - cpu;
        row->round[round].value[CPU_SHARE] = (double)cpu / (double)(now_ns() - start);
        lane_close(&lane);
    } else {
        results_missing(job->results, row->subject, why);
    }
    links_must(job->links, (struct request){.what = CLOSE});
}

void test_idle(struct job *job)
{
    const struct settings *settings = job->settings;
    struct pool pools[MEMORIES];
    struct result *result = results_add(job->results, IDLE, settings->rounds);
    enum mode modes[MODES * SUBJECTS];
    enum subject subjects[SUBJECTS];
    size_t count = job_subjects(job, subjects);
    char what[64];

    job_make_pools(job, pools, BLOCKS * settings->block_sizes.value[0]);
    for (size_t i = 0; i < count; i++)
        for (enum mode mode = 0; mode < MODES; mode++)
            /* LOCAL has no thread of its own, whatever is asked for. */
            if (mode != THREAD || subjects[i] == NIXL) {
                modes[result->rows] = mode;
                result_row(result, subjects[i], mode_names[mode]);
            }
    progress_start(result->rows * settings->rounds, !settings->quiet);
    for (uint32_t round = 0; round < settings->rounds; round++)
        for (size_t i = 0; i < result->rows; i++) {
            size_t turn = (i + round) % result->rows;
            snprintf(what, sizeof what, "%s, %s, round %u",
                     subject_names[result->row[turn].subject], mode_names[modes[turn]], round + 1);
            progress_step(what);
            measure(job, pools, &result->row[turn], round, modes[turn]);
        }
    job_must_have_subject(job);
    job_free_pools(pools);
}
