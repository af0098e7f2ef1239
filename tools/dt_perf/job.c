#include <stdio.h>

#include "tests.h"
#include "util.h"
#include "verify.h"

/* Kilobytes that can be had without taking them from somebody. */
static uint64_t available_kib(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;

    if (file == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    fclose(file);
    return kib != 0 ? kib : UINT64_MAX;
}

/* To what people want to know of it. */
static struct text rounded(uint64_t bytes)
{
    unsigned shift = bytes >> 36 != 0 ? 30 : 20;
    return bytes_text(bytes >> shift << shift);
}

/* Memory is given when it is touched, and who touches too much is ended: so it is asked before. */
static void check_memory(const struct job *job, const bool *needed, uint64_t bytes)
{
    uint64_t peers = job->settings->peers, need = 0;
    uint64_t of_targets = job->settings->connect == NULL ? peers * pool_takes(bytes / peers) : 0;

    for (enum memory memory = 0; memory < MEMORIES; memory++)
        if (needed[memory])
            need += pool_takes(bytes) + (memory == REFERENCE ? 0 : of_targets);
    if (need / 1024 > available_kib())
        die("this needs %s of memory, and %s are free: choose a smaller --pool, or fewer "
            "--subjects",
            rounded(need).chars, rounded(available_kib() << 10).chars);
}

void job_make_pools(struct job *job, struct pool *pools, uint64_t bytes)
{
    const struct settings *settings = job->settings;
    bool needed[MEMORIES] = {false};
    uint32_t memories = 0;
    char why[512];

    for (enum subject subject = 0; subject < SUBJECTS; subject++) {
        if (!settings->subject[subject])
            continue;
        needed[memory_of(subject)] = true;
        if (!has_target(subject))
            needed[REFERENCE] = true;
    }
    check_memory(job, needed, bytes);
    for (enum memory memory = 0; memory < MEMORIES; memory++) {
        pools[memory] = (struct pool){.fd = -1};
        if (!needed[memory])
            continue;
        if (!pool_make(&pools[memory], memory, bytes, settings->region, settings->huge_pages, why,
                       sizeof why))
            die("memory of %s: %s", bytes_text(pools[memory].region).chars, why);
        pool_fill(&pools[memory], memory == REFERENCE ? stream_of_target(0) : 0);
        if (memory != REFERENCE)
            memories |= 1u << memory;
    }
    links_must(job->links, (struct request){.what = POOLS,
                                            .pool = bytes / settings->peers,
                                            .region = settings->region / settings->peers,
                                            .memories = memories,
                                            .huge_pages = settings->huge_pages});
}

void job_free_pools(struct pool *pools)
{
    for (enum memory memory = 0; memory < MEMORIES; memory++)
        pool_free(&pools[memory]);
}

void job_has_nothing(const struct job *job)
{
    die("nothing can be measured: %s: %s", subject_names[job->results->missing[0].subject],
        job->results->missing[0].why);
}

void job_must_have_subject(const struct job *job)
{
    enum subject subjects[SUBJECTS];
    job_subjects(job, subjects);
}

size_t job_subjects(const struct job *job, enum subject *subjects)
{
    size_t count = 0;
    for (enum subject subject = 0; subject < SUBJECTS; subject++)
        if (job->settings->subject[subject] && !results_lack(job->results, subject))
            subjects[count++] = subject;
    if (count == 0)
        job_has_nothing(job);
    return count;
}
