/* --test add-peer: what it takes to make a target known, by the number of its blocks. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"
#include "progress.h"
#include "tests.h"
#include "util.h"

enum { OWN_BLOCKS = 16 };

/* A subject and a number of blocks. Opening the lane has made a first target known, which took what
 * only the first one takes. */
struct candidate {
    struct lane lane;
    size_t blocks;
    struct row *row;
    void **prepared; /* by round: NIXL's lists, which stay as long as their targets */
};

/* Memory of this process that is its own alone. What was freed goes back to the system first: else
 * what grows here would grow into it. */
static double own_bytes(void)
{
    char line[128];
    unsigned long long kib = 0;

    malloc_trim(0);
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (file == NULL)
        die("cannot read /proc/self/smaps_rollup");
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Anonymous: %llu", &kib) == 1)
            break;
    fclose(file);
    return (double)kib * 1024;
}

static void add_to_transport(struct candidate *candidate, const struct reply *target,
                             uint32_t round)
{
    char name[32];
    snprintf(name, sizeof name, "round %u", round);
    endpoint_must(dt_import_handshake(candidate->lane.endpoint.transport, name, target->blob,
                                      target->blob_len),
                  "dt_import_handshake");
}

/* As NIXL's users do it: one descriptor for each block, prepared once. */
static void *add_to_agent(struct candidate *candidate, const struct reply *target)
{
    const struct nixl_agent *agent = &candidate->lane.endpoint.agent;
    const struct nixl *nixl = agent->nixl;
    void *list, *prepared;
    char *name;
    size_t len = candidate->lane.block_len;

    if (nixl->load_remote_md(agent->agent, target->blob, target->blob_len, &name) != 0 ||
        nixl->create_xfer_dlist(NIXL_DRAM, &list) != 0)
        lane_failed(&candidate->lane, "NIXL's load_remote_md has failed");
    for (size_t i = 0; i < candidate->blocks; i++)
        nixl->xfer_dlist_add_desc(list, (uintptr_t)target->base + i * len, len, 0);
    if (nixl->prep_xfer_dlist(agent->agent, name, list, &prepared, NULL) != 0)
        lane_failed(&candidate->lane, "NIXL's prep_xfer_dlist has failed");
    nixl->destroy_xfer_dlist(list);
    free(name);
    return prepared;
}

/* Each round adds another target: a new transport or agent of the same process, and memory. */
static struct sample add(struct candidate *candidate, uint32_t round)
{
    struct links *links = candidate->lane.links;
    const struct reply *target = &links->reply[0];
    struct sample sample;

    links_must(links, (struct request){.what = OPEN,
                                       .subject = candidate->lane.subject,
                                       .num_blocks = candidate->blocks,
                                       .block_len = candidate->lane.block_len});
    double before = own_bytes();
    uint64_t start = now_ns();
    if (candidate->lane.subject == NIXL_RAW)
        candidate->prepared[round] = add_to_agent(candidate, target);
    else
        add_to_transport(candidate, target, round);
    uint64_t end = now_ns();
    sample_clear(&sample);
    sample.value[ADD_NS] = (double)(end - start);
    sample.value[RSS_BYTES] = own_bytes() - before;
    return sample;
}

static void close_candidate(struct candidate *candidate, uint32_t rounds)
{
    const struct nixl_agent *agent = &candidate->lane.endpoint.agent;
    for (uint32_t i = 0; i < rounds; i++)
        if (candidate->prepared[i] != NULL)
            agent->nixl->release_xfer_dlist_handle(agent->agent, candidate->prepared[i]);
    free(candidate->prepared);
    lane_close(&candidate->lane);
}

static size_t open_candidates(struct job *job, struct pool *pools, struct candidate *candidates)
{
    const struct settings *settings = job->settings;
    size_t count = 0;

    for (size_t b = 0; b < settings->blocks.count; b++) {
        struct result *result = results_add(job->results, ADD_PEER, settings->rounds);
        enum subject subjects[SUBJECTS];
        size_t wanted = job_subjects(job, subjects);
        result->blocks = settings->blocks.value[b];
        for (size_t i = 0; i < wanted; i++) {
            struct candidate *candidate = &candidates[count];
            struct lanes_setup setup = {
                job->links, pools,
                {OWN_BLOCKS, settings->block_sizes.value[0], settings->progress_thread, 0},
                result->blocks, 1};
            char why[512];
            candidate->blocks = result->blocks;
            if (!lane_open(&candidate->lane, subjects[i], &setup, why, sizeof why)) {
                results_missing(job->results, subjects[i], why);
                continue;
            }
            candidate->prepared = must_alloc(settings->rounds, sizeof *candidate->prepared);
            candidate->row = result_row(result, subjects[i], NULL);
            count++;
        }
    }
    return count;
}

void test_add_peer(struct job *job)
{
    const struct settings *settings = job->settings;
    struct pool pools[MEMORIES];
    struct candidate *candidates =
        must_alloc(settings->blocks.count * SUBJECTS, sizeof *candidates);
    uint64_t most = OWN_BLOCKS;
    char what[64];

    for (size_t b = 0; b < settings->blocks.count; b++)
        if (settings->blocks.value[b] > most)
            most = settings->blocks.value[b];
    job_make_pools(job, pools, most * settings->block_sizes.value[0]);
    size_t count = open_candidates(job, pools, candidates);
    progress_start(count * settings->rounds, !settings->quiet);
    for (uint32_t round = 0; round < settings->rounds; round++)
        for (size_t i = 0; i < count; i++) {
            struct candidate *candidate = &candidates[(i + round) % count];
            snprintf(what, sizeof what, "%zu blocks, round %u: %s", candidate->blocks, round + 1,
                     subject_names[candidate->lane.subject]);
            progress_step(what);
            candidate->row->round[round] = add(candidate, round);
        }
    for (size_t i = 0; i < count; i++)
        close_candidate(&candidates[i], settings->rounds);
    links_must(job->links, (struct request){.what = CLOSE});
    job_free_pools(pools);
    free(candidates);
}
