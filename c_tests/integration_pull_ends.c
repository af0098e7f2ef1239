/* Reads that end otherwise: processes that die, stand still, close or are removed before, during and
 * after reads. States end, messages are those of the reads that were done, and others go on. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "reader.h"

#define LEN 16384
#define BLOCKS 128
#define SEED 9
#define IN_FLIGHT 4
#define PER_READ (BLOCKS / IN_FLIGHT)

/* ---- this process reads ---- */

/* Posts a read of a quarter of the blocks, each to its own place, with message `number`. */
static dt_status post(const struct node *node, const char *agent, uint64_t number, dt_xfer_id *id)
{
    uint32_t idxs[PER_READ];
    uint8_t message[MAIL_MOST];
    size_t len = mail_make(message, SEED, number);
    for (uint32_t i = 0; i < PER_READ; i++)
        idxs[i] = (uint32_t)(number % IN_FLIGHT * PER_READ) + i;
    return dt_post_read(node->transport, agent, idxs, idxs, PER_READ, message, len, id);
}

/* Sends message `number` to "producer", once more if there is no room or no connection yet. */
static void send_number(const struct node *node, uint64_t number)
{
    uint8_t message[MAIL_MOST];
    size_t n, len = mail_make(message, SEED, number);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = dt_send_notif(node->transport, "producer", message, len)) == DT_ERR_BUSY) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(node->transport, NULL, NULL, 0, &n));
    }
    CHECK_OK(status);
}

static dt_xfer_state check(const struct node *node, dt_xfer_id id)
{
    dt_xfer_state state = 77;
    CHECK_OK(dt_check_xfer_state(node->transport, id, &state));
    return state;
}

/* Waits for the end, and checks that it is final and that the bytes are there if it says so. */
static dt_xfer_state finish(const struct node *node, uint64_t number, dt_xfer_id id)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_xfer_state state;
    while ((state = check(node, id)) == DT_XFER_PROC)
        CHECK(now_ms() < deadline);
    for (size_t i = 0; i < PER_READ && state == DT_XFER_DONE; i++) {
        size_t block = number % IN_FLIGHT * PER_READ + i;
        CHECK(pattern_mismatch(node_block(node, block), LEN, (struct content){SEED, block}) < 0);
    }
    CHECK(check(node, id) == state);
    return state;
}

static void release(const struct node *node, dt_xfer_id id)
{
    dt_xfer_state state;
    CHECK_OK(dt_release_xfer(node->transport, id));
    CHECK_STATUS(dt_check_xfer_state(node->transport, id, &state), DT_ERR_NOT_FOUND);
}

/* Posts one read, which must be done, and gets its message there. */
static void expect_works(const struct node *node, const char *agent, struct remote *producer)
{
    struct mail mail;
    dt_xfer_id id = 0;
    node_fill(node, 8);
    CHECK_OK(post(node, agent, 0, &id));
    CHECK(finish(node, 0, id) == DT_XFER_DONE);
    release(node, id);
    remote_mail(producer, &mail, 1);
    CHECK(mail_number(&mail, SEED) == 0);
    CHECK(strcmp(mail.sender, dt_agent_name(node->transport)) == 0);
}

/* After a removal the engine of NIXL may still hold the old one. */
static void add(const struct node *node, const char *agent, const struct card *card)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    size_t n;
    while ((status = node_add(node, agent, card)) == DT_ERR_BUSY && now_ms() < deadline)
        CHECK_OK(dt_poll(node->transport, NULL, NULL, 0, &n));
    CHECK_OK(status);
}

struct killing {
    struct remote *victim;
    uint64_t after_ns;
};

static void *kill_later(void *arg)
{
    struct killing *killing = arg;
    spin_ns(killing->after_ns);
    remote_kill(killing->victim);
    return NULL;
}

/* SIGKILL of the producer, from before the first read to after the last one. */
static void producer_killed(enum memory_kind kind)
{
    const unsigned rounds = on_nixl() ? 6 : 30;
    uint64_t random = test_seed();
    unsigned done = 0, lost = 0, refused = 0;
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote third = remote_simple(kind, BLOCKS, LEN, SEED);
    CHECK_OK(node_add(&node, "third", &third.card));
    for (unsigned round = 0; round < rounds; round++) {
        struct remote victim = remote_simple(kind, BLOCKS, LEN, SEED);
        struct killing killing = {&victim, round < 2 ? 0 : random_next(&random) % 5000000u};
        dt_xfer_id ids[IN_FLIGHT], late = 0;
        pthread_t killer;
        size_t count = 0;
        add(&node, "victim", &victim.card);
        if (round % 3 == 0)
            expect_works(&node, "victim", &victim);
        node_fill(&node, 8);
        if (round == 0)
            remote_kill(&victim);
        else if (round > 1)
            CHECK(pthread_create(&killer, NULL, kill_later, &killing) == 0);
        for (; count < IN_FLIGHT; count++) {
            dt_status status = post(&node, "victim", count, &ids[count]);
            if (status != DT_OK) {
                CHECK(status == DT_ERR_PEER_LOST);
                break;
            }
        }
        refused += IN_FLIGHT - (unsigned)count;
        dt_xfer_state states[IN_FLIGHT];
        for (size_t i = 0; i < count; i++) {
            states[i] = finish(&node, i, ids[i]);
            CHECK(states[i] == DT_XFER_DONE || (states[i] == DT_ERR_PEER_LOST && round != 1));
            done += states[i] == DT_XFER_DONE;
            lost += states[i] != DT_XFER_DONE;
        }
        if (round == 1)
            remote_kill(&victim);
        else if (round > 1)
            CHECK(pthread_join(killer, NULL) == 0);
        /* Nobody is there any more, and the next one to ask is told so. */
        uint64_t deadline = now_ms() + BOUND_MS;
        while (dt_peer_status(node.transport, "victim") == DT_OK) {
            CHECK(now_ms() < deadline);
            if (post(&node, "victim", 0, &late) == DT_OK) {
                dt_xfer_state state = finish(&node, 0, late);
                CHECK(state == DT_ERR_PEER_LOST);
                release(&node, late);
            }
        }
        CHECK_STATUS(post(&node, "victim", 0, &late), DT_ERR_PEER_LOST);
        CHECK_STATUS(dt_send_notif(node.transport, "victim", "m", 1), DT_ERR_PEER_LOST);
        for (size_t i = 0; i < count; i++) {
            CHECK(check(&node, ids[i]) == states[i]);
            release(&node, ids[i]);
        }
        CHECK_OK(dt_peer_status(node.transport, "third"));
        expect_works(&node, "third", &third);
        /* Half of the rounds remove it, the others replace it in the next round. */
        if (round % 2 == 0)
            CHECK_OK(dt_remove_remote_peer(node.transport, "victim"));
    }
    dt_stats stats = node_stats(&node);
    CHECK(stats.inflight == 0 && stats.draining == 0 && stats.cancelled == 0);
    printf("%u producers killed over %s: %u reads done, %u lost, %u refused\n", rounds,
           memory_kind_name(kind), done, lost, refused);
    remote_quit(&third);
    node_close(&node);
}

/* A producer that stands still is read from, or over sockets waited for; its messages wait for it. */
static void producer_stopped(enum memory_kind kind)
{
    enum { COUNT = 2 * IN_FLIGHT };
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote producer = remote_simple(kind, BLOCKS, LEN, SEED);
    struct mail mails[COUNT + 1];
    dt_xfer_id ids[COUNT];
    CHECK_OK(node_add(&node, "producer", &producer.card));
    expect_works(&node, "producer", &producer); /* NIXL connects with its help */
    node_fill(&node, 8);
    child_stop(&producer.child);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_OK(post(&node, "producer", i, &ids[i]));
        if (!on_nixl())
            CHECK(finish(&node, i, ids[i]) == DT_XFER_DONE);
    }
    for (int i = 0; i < 20 && on_nixl(); i++)
        CHECK(check(&node, ids[i % COUNT]) >= DT_XFER_DONE);
    CHECK_OK(dt_peer_status(node.transport, "producer"));
    if (on_nixl())
        child_continue(&producer.child);
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK(finish(&node, i, ids[i]) == DT_XFER_DONE);
        release(&node, ids[i]);
    }
    send_number(&node, COUNT);
    if (!on_nixl())
        child_continue(&producer.child);
    remote_mail(&producer, mails, COUNT + 1);
    bool come[COUNT] = {false};
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t number = mail_number(&mails[i], SEED);
        CHECK(number < COUNT && !come[number]);
        CHECK(on_nixl() || number == i); /* there several were in flight at a time */
        come[number] = true;
    }
    CHECK(mail_number(&mails[COUNT], SEED) == COUNT);
    remote_quit(&producer);
    node_close(&node);
    printf("stopped producer over %s: ok\n", memory_kind_name(kind));
}

/* Removal, and the close of the reader, with reads in flight: what is not done ends or is gone, and
 * only what is done has a message. */
static void given_up(enum memory_kind kind, bool close)
{
    const unsigned rounds = on_nixl() ? (close ? 6 : 20) : 60;
    uint64_t random = test_seed();
    unsigned done = 0, cancelled = 0;
    struct remote producer = remote_simple(kind, BLOCKS, LEN, SEED);
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    add(&node, "producer", &producer.card);
    for (unsigned round = 0; round < rounds; round++) {
        struct mail mails[IN_FLIGHT + 1];
        dt_xfer_id ids[IN_FLIGHT];
        bool is_done[IN_FLIGHT] = {false}, come[IN_FLIGHT + 1] = {false};
        size_t finished = 0;
        uint64_t sent = node_stats(&node).notifs_sent;
        for (uint64_t i = 0; i < IN_FLIGHT; i++)
            CHECK_OK(post(&node, "producer", i, &ids[i]));
        for (uint64_t k = random_next(&random) % 12; k > 0; k--)
            check(&node, ids[0]);
        if (close) {
            dt_stats stats = node_stats(&node);
            CHECK_OK(dt_close(node.transport, BOUND_MS));
            /* Nothing is written to it any more. */
            node_fill(&node, 3);
            CHECK(node_stats(&node).done == stats.done);
            finished = stats.notifs_sent - sent;
            node_destroy(&node);
            node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
        } else {
            dt_stats before = node_stats(&node);
            CHECK_OK(dt_remove_remote_peer(node.transport, "producer"));
            for (uint64_t i = 0; i < IN_FLIGHT; i++) {
                dt_xfer_state state = finish(&node, i, ids[i]);
                CHECK(state == DT_XFER_DONE || state == DT_ERR_CANCELLED);
                is_done[i] = state == DT_XFER_DONE;
                finished += is_done[i];
                release(&node, ids[i]);
            }
            CHECK(node_stats(&node).notifs_sent == before.notifs_sent);
        }
        done += (unsigned)finished;
        cancelled += IN_FLIGHT - (unsigned)finished;

        add(&node, "producer", &producer.card);
        send_number(&node, IN_FLIGHT);
        remote_mail(&producer, mails, finished + 1);
        for (size_t i = 0; i <= finished; i++) {
            uint64_t number = mail_number(&mails[i], SEED);
            CHECK(number <= IN_FLIGHT && !come[number]);
            CHECK(number == IN_FLIGHT || close || is_done[number]);
            come[number] = true;
        }
        CHECK(come[IN_FLIGHT]);
    }
    printf("%u %s over %s: %u reads done, %u given up\n", rounds, close ? "closes" : "removals",
           memory_kind_name(kind), done, cancelled);
    remote_quit(&producer);
    node_close(&node);
}

/* A read that fails while its producer lives on has no message. Memory that is taken away is what
 * LOCAL alone bears. */
static void failed(void)
{
    struct remote producer = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, SEED);
    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct mail mail;
    dt_xfer_id id = 0;
    CHECK_OK(node_add(&node, "producer", &producer.card));
    expect_works(&node, "producer", &producer);
    remote_unmap(&producer);
    CHECK_OK(post(&node, "producer", 1, &id));
    dt_xfer_state state = finish(&node, 1, id);
    CHECK(state < 0);
    CHECK(node_stats(&node).failed == 1);
    release(&node, id);
    remote_map_again(&producer);
    remote_fill(&producer, SEED);
    add(&node, "producer", &producer.card);
    CHECK_OK(post(&node, "producer", 2, &id));
    CHECK(finish(&node, 2, id) == DT_XFER_DONE);
    release(&node, id);
    remote_mail(&producer, &mail, 1);
    CHECK(mail_number(&mail, SEED) == 2);
    remote_quit(&producer);
    node_close(&node);
    printf("a failed read has no message, it ends with %s: ok\n", dt_xfer_state_str(state));
}

/* ---- this process is read from ---- */

/* SIGKILL of the reader. Of each read that it has found done there is a message, of none there are
 * two, and the order holds; its successor has the same name. Over sockets it dies between reads only:
 * UCX aborts the process that is to answer a request of a peer that is gone. */
static void reader_killed(enum memory_kind kind)
{
    const unsigned rounds = on_nixl() ? 6 : 30;
    uint64_t random = test_seed(), reads = 0, messages = 0;
    struct node node = node_open(kind, BLOCKS, LEN);
    struct reader steady;
    struct inbox *stays = inbox_new("steady", SEED, 1);
    node_fill(&node, SEED);
    steady = reader_start(&node, "steady", SEED, 1);
    for (unsigned round = 0; round < rounds; round++) {
        struct reader victim = reader_start(&node, "victim", SEED, 2);
        struct inbox *inbox = inbox_new("victim", SEED, 2), *all[] = {stays, inbox};
        if (over_tcp() && round % 5 != 0) {
            reader_begin(&victim, 5);
            reader_await(&victim);
        } else if (round % 5 != 0) { /* else before its first read */
            reader_hammer(&victim);
            event_expect(victim.child.socket, 'w');
            uint64_t end = now_ns() + random_next(&random) % 20000000u;
            while (now_ns() < end)
                inbox_fill(&node, all, 2);
        }
        reader_begin(&steady, 3);
        reader_kill(&victim);
        uint64_t done = victim.tally->done, posted = victim.tally->posted;
        uint64_t deadline = now_ms() + BOUND_MS;
        while (inbox->count < done || stays->count < 3 * (round + 1)) {
            CHECK(now_ms() < deadline);
            inbox_fill(&node, all, 2);
        }
        reader_await(&steady);
        inbox_fill(&node, all, 2);
        CHECK(inbox->count <= posted);
        reads += done;
        messages += inbox->count;
        reader_forget(&victim);
        free(inbox);
    }
    reader_quit(&steady);
    struct content *same = contents_of(SEED, BLOCKS);
    node_check(&node, same, NULL);
    free(same);
    printf("%u readers killed over %s: %llu reads, %llu messages\n", rounds, memory_kind_name(kind),
           (unsigned long long)reads, (unsigned long long)messages);
    free(stays);
    node_close(&node);
}

/* The producer closes under a reader, and scribbles at once: no read says that it is done with what
 * was not there before. Over UCX's own choice a reader goes on until it learns of the close. */
static void producer_closes(enum memory_kind kind)
{
    const unsigned rounds = on_nixl() ? 4 : 30;
    uint64_t random = test_seed(), reads = 0;
    for (unsigned round = 0; round < rounds; round++) {
        struct node node = node_open(kind, BLOCKS, LEN);
        struct inbox *inbox = inbox_new("reader", SEED, 2);
        node_fill(&node, SEED);
        struct reader reader = reader_start(&node, "reader", SEED, 2);
        reader_hammer(&reader);
        event_expect(reader.child.socket, 'w');
        uint64_t end = now_ns() + random_next(&random) % 5000000u;
        while (now_ns() < end)
            inbox_fill(&node, &inbox, 1);
        CHECK_OK(dt_close(node.transport, BOUND_MS));
        if (!over_cma())
            node_fill(&node, 3);
        struct reader_report report = reader_report(&reader);
        CHECK(report.last == DT_ERR_PEER_LOST);
        CHECK(report.done == reader.tally->done);
        reads += report.done;
        reader_quit(&reader);
        node_destroy(&node);
        free(inbox);
    }
    printf("%u producers closed over %s under %llu reads: ok\n", rounds, memory_kind_name(kind),
           (unsigned long long)reads);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, READER_ROLE, {NULL, NULL}};
    static const enum memory_kind kinds[] = {MEMORY_ALLOC, MEMORY_ANONYMOUS};
    child_main(argc, argv, roles);
    for (int i = 0; i < 2; i++) {
        if (!memory_kind_matters(kinds[i]))
            continue;
        producer_killed(kinds[i]);
        producer_stopped(kinds[i]);
        given_up(kinds[i], false);
        given_up(kinds[i], true);
        reader_killed(kinds[i]);
        producer_closes(kinds[i]);
    }
    if (!on_nixl())
        failed();
    return 0;
}
