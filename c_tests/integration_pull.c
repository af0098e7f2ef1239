/* Several processes read from one, which gets a message of each read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "reader.h"

#define READERS 3
/* What NIXL does for a message takes longer than the same on LOCAL, and is the same each time. */
#define READS (on_nixl() ? 400u : 1000u)

static void fill_until(const struct node *node, struct inbox *const *inboxes, uint64_t each)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t i = 0; i < READERS; i++) {
        while (inboxes[i]->count < each) {
            CHECK(now_ms() < deadline);
            inbox_fill(node, inboxes, READERS);
        }
        CHECK(inboxes[i]->count == each && inboxes[i]->lowest == each);
    }
}

/* Each message comes once, from whom it says, and in its sender's order: first with a drain that
 * comes when all has been read, then while they read. The producer has never heard of the readers. */
static void crowd(enum memory_kind kind, uint64_t window)
{
    static const char *const names[READERS] = {"reader-0", "reader-1", "reader / \xc3\xa9"};
    struct node node = node_open(kind, 64, 4096);
    struct reader readers[READERS];
    struct inbox *inboxes[READERS];
    const uint64_t more = on_nixl() ? READS / 4 : READS, all = READS + more;
    node_fill(&node, 5);
    for (int i = 0; i < READERS; i++) {
        inboxes[i] = inbox_new(names[i], 5, window);
        readers[i] = reader_start(&node, names[i], 5, window);
    }
    for (int i = 0; i < READERS; i++)
        reader_begin(&readers[i], READS);
    for (int i = 0; i < READERS; i++)
        reader_await(&readers[i]);
    fill_until(&node, inboxes, READS);

    for (int i = 0; i < READERS; i++)
        reader_begin(&readers[i], more);
    fill_until(&node, inboxes, all);
    for (int i = 0; i < READERS; i++)
        reader_await(&readers[i]);

    /* The last messages of those who leave. */
    for (int i = 0; i < READERS; i++) {
        CHECK(readers[i].tally->posted == all && readers[i].tally->done == all);
        reader_begin(&readers[i], 10);
        reader_await(&readers[i]);
        reader_send(&readers[i]);
        reader_quit(&readers[i]);
    }
    fill_until(&node, inboxes, all + 11);
    CHECK(inbox_fill(&node, inboxes, READERS) == 0);

    dt_stats stats = node_stats(&node);
    CHECK(stats.notifs_received == READERS * (all + 11));
    CHECK(stats.peers == 0 && stats.submitted == 0 && stats.notifs_sent == 0);
    CHECK(stats.notifs_refused == 0);
    struct content *same = contents_of(5, 64);
    node_check(&node, same, NULL);
    free(same);
    for (int i = 0; i < READERS; i++)
        free(inboxes[i]);
    node_close(&node);
    printf("%d readers over %s, %d in flight each: ok\n", READERS, memory_kind_name(kind),
           (int)window);
}

/* ---- data before message ---- */

#define BLOCKS 256
#define LEN 1024
#define SCATTERED 64

static void write_generation(const struct node *node, uint32_t block, uint64_t generation)
{
    uint64_t *words = node_block(node, block);
    for (uint64_t i = 0; i < LEN / sizeof *words; i++)
        words[i] = generation << 32 | (uint64_t)block << 16 | i;
}

/* Which blocks a round reads. */
static void choose(uint32_t blocks[BLOCKS], uint64_t generation)
{
    random_permutation(blocks, BLOCKS, &generation);
}

struct rounds {
    struct card card;
    uint64_t count;
};

static void careful_role(int socket)
{
    struct rounds rounds;
    uint32_t from[BLOCKS], to[BLOCKS];
    message_receive(socket, &rounds, sizeof rounds);
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    CHECK_OK(node_add(&node, "source", &rounds.card));
    for (uint64_t generation = 1; generation <= rounds.count; generation++) {
        uint64_t deadline = now_ms() + BOUND_MS;
        dt_xfer_state state = DT_XFER_PROC;
        dt_xfer_id id = 0;
        choose(from, generation);
        choose(to, generation + rounds.count);
        CHECK_OK(dt_post_read(node.transport, "source", to, from, SCATTERED, &generation,
                              sizeof generation, &id));
        while (state == DT_XFER_PROC) {
            CHECK(now_ms() < deadline);
            CHECK_OK(dt_check_xfer_state(node.transport, id, &state));
        }
        CHECK(state == DT_XFER_DONE);
        for (size_t k = 0; k < SCATTERED; k++) {
            const uint64_t *words = node_block(&node, to[k]);
            for (uint64_t i = 0; i < LEN / sizeof *words; i++)
                if (words[i] != (generation << 32 | (uint64_t)from[k] << 16 | i))
                    test_fail("round %llu: word %llu of block %u is %#llx, which was written when "
                              "the message had come",
                              (unsigned long long)generation, (unsigned long long)i, from[k],
                              (unsigned long long)words[i]);
        }
        CHECK_OK(dt_release_xfer(node.transport, id));
        event_expect(socket, 'n');
    }
    node_close(&node);
    event_send(socket, 'd');
}

/* The producer overwrites its blocks at the instant at which it gets the message, the last one
 * first: what the reader has must be older. */
static void data_before_message(enum memory_kind kind)
{
    static struct rounds rounds;
    struct node node = node_open(kind, BLOCKS, LEN);
    struct child reader = child_start("careful");
    uint32_t blocks[BLOCKS];
    memset(&rounds, 0, sizeof rounds);
    rounds.card = node_card(&node);
    rounds.count = on_nixl() ? 1000 : 3000; /* one takes longer there */
    for (uint32_t i = 0; i < BLOCKS; i++)
        write_generation(&node, i, 1);
    message_send(reader.socket, &rounds, sizeof rounds);
    for (uint64_t generation = 1; generation <= rounds.count; generation++) {
        uint64_t deadline = now_ms() + BOUND_MS;
        struct mail mail;
        while (mail_take(node.transport, &mail, 1) == 0)
            CHECK(now_ms() < deadline);
        choose(blocks, generation);
        for (size_t k = SCATTERED; k-- > 0;)
            write_generation(&node, blocks[k], generation + 1);
        for (size_t k = SCATTERED; k < BLOCKS; k++)
            write_generation(&node, blocks[k], generation + 1);
        CHECK(mail.len == sizeof generation &&
              memcmp(mail.bytes, &generation, sizeof generation) == 0);
        event_send(reader.socket, 'n');
    }
    event_expect(reader.socket, 'd');
    child_expect_success(&reader);
    node_close(&node);
    printf("data before message over %s, %llu rounds: ok\n", memory_kind_name(kind),
           (unsigned long long)rounds.count);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {READER_ROLE, {"careful", careful_role}, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);
    for (int i = 0; i < 2; i++) {
        if (!memory_kind_matters(kinds[i]))
            continue;
        crowd(kinds[i], 1);
        crowd(kinds[i], 8);
        data_before_message(kinds[i]);
    }
    return 0;
}
