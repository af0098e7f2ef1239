/* The measurements. Each adds what it has found to the results. */
#ifndef TESTS_H
#define TESTS_H

#include "links.h"
#include "pool.h"
#include "result.h"

struct job {
    const struct settings *settings;
    struct links *links;
    struct results *results;
};

void test_transfer(struct job *job);
void test_add_peer(struct job *job);
void test_in_flight(struct job *job);
void test_idle(struct job *job);

/* For all of them: memory on both sides for the subjects that are wanted. Takes away those for
 * which there is none. */
void job_make_pools(struct job *job, struct pool *pools, uint64_t bytes);
void job_free_pools(struct pool *pools);
/* Those that are wanted and not missing. Ends the process if there are none. */
size_t job_subjects(const struct job *job, enum subject *subjects);
/* The same, for who has found out that some are missing. */
void job_must_have_subject(const struct job *job);
/* All are missing: says why, and ends the process. */
__attribute__((noreturn)) void job_has_nothing(const struct job *job);

#endif
