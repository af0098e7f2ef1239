#include "hammer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "dt_time.h"

/* Transfers that are in flight at any time. */
#define DEPTH 3

struct flight {
    dt_xfer_id id[DEPTH];
    size_t count;
};

/* Every transfer moves all blocks, one to one. */
static dt_status submit(const struct node *node, bool write, const uint32_t *idxs,
                        struct flight *flight)
{
    dt_xfer_id id = 0;
    dt_status status =
        write ? dt_write_blocks(node->transport, "target", idxs, idxs, node->num_blocks, 0, &id)
              : dt_read_blocks(node->transport, "target", idxs, idxs, node->num_blocks, 0, &id);
    if (status == DT_OK)
        flight->id[flight->count++] = id;
    return status;
}

static void land(struct flight *flight, dt_xfer_id id)
{
    size_t k = 0;
    while (k < flight->count && flight->id[k] != id)
        k++;
    if (k == flight->count)
        test_fail("hammer: id %llu ended, but was not in flight", (unsigned long long)id);
    flight->id[k] = flight->id[--flight->count];
}

static void run(int socket, struct hammer_spec spec)
{
    size_t blocks = spec.target.num_blocks;
    struct node node = node_open(MEMORY_ANONYMOUS, blocks, spec.target.block_len);
    struct content *want = contents_of(spec.seed, blocks);
    uint32_t *idxs = malloc(blocks * sizeof *idxs);
    struct hammer_report report = {0, 0, DT_OK};
    struct flight flight = {{0}, 0};
    uint64_t deadline = now_ms() + BOUND_MS;
    /* Readers look at their memory after each transfer, so they run one at a time. */
    size_t depth = spec.write ? DEPTH : 1;

    for (uint32_t i = 0; i < blocks; i++)
        idxs[i] = i;
    if (spec.write)
        node_fill(&node, spec.seed);
    CHECK_OK(node_add(&node, "target", &spec.target));

    while (report.last == DT_OK || flight.count > 0) {
        dt_completion ended[DEPTH];
        size_t n = 0;
        CHECK(now_ms() < deadline);
        while (report.last == DT_OK && flight.count < depth)
            report.last = submit(&node, spec.write, idxs, &flight);
        CHECK_OK(dt_poll(node.transport, "target", ended, DEPTH, &n));
        for (size_t i = 0; i < n; i++) {
            land(&flight, ended[i].id);
            if (ended[i].status != DT_OK) {
                report.failed++;
                report.last = ended[i].status;
                continue;
            }
            if (!spec.write)
                node_check(&node, want, NULL);
            if (report.done++ == 0)
                event_send(socket, 'w');
        }
    }
    /* A handle of a target that is gone does no more harm, and says so at once. */
    dt_xfer_id id = 0;
    CHECK_STATUS(dt_write_blocks(node.transport, "target", idxs, idxs, blocks, 0, &id),
                 DT_ERR_PEER_LOST);
    message_send(socket, &report, sizeof report);
    node_close(&node);
    free(want);
    free(idxs);
}

void hammer_role(int socket)
{
    struct hammer_spec spec;
    message_receive(socket, &spec, sizeof spec);
    run(socket, spec);
}

struct job {
    int socket;
    struct hammer_spec spec;
};

static void *run_job(void *arg)
{
    struct job *job = arg;
    run(job->socket, job->spec);
    return NULL;
}

void threaded_hammer_role(int socket)
{
    static struct job job;
    pthread_t thread;
    job.socket = socket;
    message_receive(socket, &job.spec, sizeof job.spec);
    CHECK(pthread_create(&thread, NULL, run_job, &job) == 0);
    event_expect(socket, 'x');
    child_exec(socket, "idle");
}

static struct child start(const char *role, const struct node *target, uint64_t seed, bool write)
{
    struct child hammer = child_start(role);
    struct hammer_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.target = node_card(target);
    spec.seed = seed;
    spec.write = write;
    message_send(hammer.socket, &spec, sizeof spec);
    return hammer;
}

struct child hammer_start(const struct node *target, uint64_t seed, bool write)
{
    return start("hammer", target, seed, write);
}

struct child hammer_start_threaded(const struct node *target, uint64_t seed)
{
    return start("threaded hammer", target, seed, true);
}

void hammer_exec(struct child *hammer)
{
    event_send(hammer->socket, 'x');
    event_expect(hammer->socket, 'i');
}

struct hammer_report hammer_finish(struct child *hammer)
{
    struct hammer_report report;
    message_receive(hammer->socket, &report, sizeof report);
    child_expect_success(hammer);
    return report;
}
