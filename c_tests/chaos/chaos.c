/* Chaos: one process that lives on, and peers that are killed, stopped, closed and started again while
 * blocks and messages go both ways. Every byte is checked on both sides.
 *
 *     chaos [--seconds N] [--seed S] [--journal FILE] [--longest BYTES]
 *
 * The backend is that of the environment, as for the tests. With one seed the steps are the same each
 * time; what they meet depends on time. --longest is that of messages over NIXL: of those with more than
 * 64,000 bytes, the sender's name included, one may be lost with a removal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "fate.h"
#include "journal.h"
#include "procfs.h"
#include "survivor.h"

#define PROGRESS_MS 10000

struct survivor it;

static void progress(uint64_t start)
{
    const struct tally *t = &it.tally;
    printf("%4" PRIu64 " s: %" PRIu64 " steps (%" PRIu64 " skipped); transfers %" PRIu64 " done, %" PRIu64
           " failed, %" PRIu64 " cancelled, %" PRIu64 " dropped, %" PRIu64 " refused, by peers %" PRIu64
           " done, %" PRIu64 " not; messages %" PRIu64 " in, %" PRIu64 " out, %" PRIu64 " had no room\n"
           "        %" PRIu64 " killed, %" PRIu64 " vanished, %" PRIu64 " stopped, %" PRIu64
           " started, %" PRIu64 " opened, %" PRIu64 " closed, %" PRIu64 " added, %" PRIu64
           " removed, survivor re-created %" PRIu64 ", checkpoints %" PRIu64 "; %" PRIu64
           " MiB checked\n",
           (now_ms() - start) / 1000, t->steps, t->skipped, t->done, t->failed, t->cancelled,
           t->dropped, t->refused, t->peer_done, t->peer_failed, t->mail_come, t->mail_sent,
           t->mail_busy, t->kills, t->vanished, t->stops, t->starts, t->opens, t->closes, t->adds,
           t->removes, t->recreated, t->checkpoints, bytes_checked >> 20);
    fflush(stdout);
}

/* Work until `end`, then a checkpoint. */
static void work(uint64_t *step, uint64_t end, uint64_t start)
{
    uint64_t next = now_ms() + PROGRESS_MS;
    while (now_ms() < end) {
        step_run((*step)++);
        if (now_ms() >= next) {
            progress(start);
            next += PROGRESS_MS;
        }
    }
    uint64_t random = it.seed ^ *step;
    checkpoint(&random);
}

static void close_at_the_end(void)
{
    uint64_t random = 1; /* with dt_close */
    survivor_close(&random);
    xfers_forget();
    CHECK(xfer_count == 0);
    space_free(it.space);
    memory_free(&it.memory);
    it.space = NULL;
}

static uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 0);
    return otherwise;
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"peer", peer_role}, {NULL, NULL}};
    static const size_t lengths[] = {4096, 16384 + 24, 32768, 49152};
    child_main(argc, argv, roles);

    const char *path = NULL;
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--journal") == 0)
            path = argv[i + 1];
    uint64_t seconds = argument(argc, argv, "--seconds", 10);
    it.seed = argument(argc, argv, "--seed", 0);
    it.longest_on_nixl = (uint32_t)argument(argc, argv, "--longest", 60000);
    if (it.seed == 0)
        it.seed = test_seed() >> 16;
    printf("chaos on %s: seed %" PRIu64 ", %" PRIu64 " s\n",
           over_tcp() ? "nixl_tcp" : on_nixl() ? "nixl" : "local", it.seed, seconds);
    fflush(stdout);
    uint64_t random = it.seed, step = 0, start = now_ms();
    it.block_len = lengths[random_next(&random) % 4];
    it.slots = 3 + (unsigned)(random_next(&random) % 3);
    for (unsigned i = 0; i < it.slots; i++)
        it.slot[i].index = i;
    journal_start(it.seed, path);
    fate_start();

    /* What a process keeps from its first time on is there after this. */
    survivor_open(&random);
    work(&step, start + (on_nixl() ? 2500 : 500), start);
    close_at_the_end();
    struct holdings before = holdings_now();

    survivor_open(&random);
    work(&step, start + seconds * 1000, start);
    close_at_the_end();
    struct holdings after = holdings_now();
    progress(start);
    printf("at the end, compared with the start: %+ld descriptors, %+ld mappings, %+ld threads, %+ld KiB\n",
           after.fds - before.fds, after.maps - before.maps, after.threads - before.threads,
           after.rss_kib - before.rss_kib);
    CHECK(after.fds == before.fds && after.threads == before.threads);
    CHECK(after.maps <= before.maps + CHAOS_MAPS_SLACK);
    fate_end();
    journal_end();
    printf("chaos: all is well, seed %" PRIu64 "\n", it.seed);
    return 0;
}
