#include "reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend.h"
#include "dt_time.h"

#define MOST_BLOCKS 256
#define MOST_IN_FLIGHT 16

struct reader_spec {
    char name[32];
    char source[128];
    char tally_path[64];
    uint64_t seed;
    uint64_t window;
    struct card card;
    uint64_t list_len;
    uint8_t list[MOST_BLOCKS * 20];
};

struct order {
    char what;   /* 'r'ead, 'h'ammer, 's'end, 'q'uit */
    uint64_t count;
};

/* ---- the process that reads ---- */

struct flight {
    dt_xfer_id id;
    uint32_t from[MOST_BLOCKS];
    uint32_t to[MOST_BLOCKS];
};

struct work {
    struct reader_spec spec;
    struct node node;
    struct tally *tally;
    uint64_t random;
    uint64_t next;     /* number of the next message */
    uint64_t blocks;   /* of one read */
    struct flight flights[MOST_IN_FLIGHT];
};

static struct flight *flight_of(struct work *work, uint64_t number)
{
    return &work->flights[number % work->spec.window];
}

static dt_status post(struct work *work)
{
    uint64_t number = work->next;
    struct flight *flight = flight_of(work, number);
    uint8_t message[MAIL_MOST];
    size_t len = mail_make(message, work->spec.seed, number);
    for (uint32_t i = 0; i < work->blocks; i++) {
        flight->from[i] = (uint32_t)(random_next(&work->random) % work->node.num_blocks);
        flight->to[i] = (uint32_t)(number % work->spec.window * work->blocks + i);
    }
    dt_status status = dt_post_read(work->node.transport, work->spec.source, flight->to,
                                    flight->from, work->blocks, message, len, &flight->id);
    /* Copied by the call. */
    memset(message, 0xcc, sizeof message);
    if (status == DT_OK) {
        work->next++;
        work->tally->posted++;
    }
    return status;
}

/* Waits for the end of a read, and checks its bytes. */
static dt_xfer_state finish(struct work *work, uint64_t number)
{
    struct flight *flight = flight_of(work, number);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_xfer_state state = DT_XFER_PROC, again;
    while (state == DT_XFER_PROC) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_check_xfer_state(work->node.transport, flight->id, &state));
    }
    if (state == DT_XFER_DONE)
        work->tally->done++;
    for (uint64_t i = 0; i < work->blocks && state == DT_XFER_DONE; i++) {
        const struct content want = {work->spec.seed, flight->from[i]};
        int64_t at = pattern_mismatch(node_block(&work->node, flight->to[i]), work->node.block_len,
                                      want);
        if (at >= 0)
            test_fail("%s: byte %lld of block %u is not what was there", work->spec.name,
                      (long long)at, flight->from[i]);
    }
    CHECK_OK(dt_check_xfer_state(work->node.transport, flight->id, &again));
    CHECK(again == state);
    CHECK_OK(dt_release_xfer(work->node.transport, flight->id));
    return state;
}

static void read_some(struct work *work, uint64_t count)
{
    uint64_t first = work->next, end = first + count;
    for (uint64_t number = first; number < end + work->spec.window; number++) {
        if (number >= first + work->spec.window)
            CHECK(finish(work, number - work->spec.window) == DT_XFER_DONE);
        if (number < end)
            CHECK_OK(post(work));
    }
}

static struct reader_report hammer(struct work *work, int socket)
{
    uint64_t oldest = work->next, deadline = now_ms() + BOUND_MS;
    struct reader_report report = {0, DT_XFER_DONE};
    while (report.last == DT_XFER_DONE || oldest < work->next) {
        CHECK(now_ms() < deadline);
        while (report.last == DT_XFER_DONE && work->next < oldest + work->spec.window)
            report.last = post(work);
        if (oldest == work->next)
            break;
        dt_xfer_state state = finish(work, oldest++);
        if (state != DT_XFER_DONE)
            report.last = state;
        else if (report.done++ == 0)
            event_send(socket, 'w');
    }
    return report;
}

static void send_next(struct work *work)
{
    uint8_t message[MAIL_MOST];
    size_t n, len = mail_make(message, work->spec.seed, work->next++);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = dt_send_notif(work->node.transport, work->spec.source, message, len)) ==
           DT_ERR_BUSY) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_poll(work->node.transport, NULL, NULL, 0, &n));
    }
    CHECK_OK(status);
}

static struct tally *map_tally(int fd)
{
    void *at = mmap(NULL, sizeof(struct tally), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

void reader_role(int socket)
{
    static struct work work;
    dt_options options = DT_OPTIONS_INIT;
    char name[1001];
    size_t name_len = 0;
    message_receive(socket, &work.spec, sizeof work.spec);
    const struct reader_spec *spec = &work.spec;
    int fd = open(spec->tally_path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    work.tally = map_tally(fd);
    work.random = spec->seed;
    work.blocks = spec->card.num_blocks / spec->window;
    options.agent_name = spec->name;
    work.node = node_open_with(
        memory_new(MEMORY_ANONYMOUS, spec->card.num_blocks * spec->card.block_len, 0),
        spec->card.num_blocks, spec->card.block_len, options);
    CHECK_OK(dt_add_remote_agent(work.node.transport, spec->card.metadata, spec->card.metadata_len,
                                 spec->list, spec->list_len, name, sizeof name, &name_len));
    CHECK(strcmp(name, spec->source) == 0);
    event_send(socket, 'a');

    struct order order = {0, 0};
    while (order.what != 'q') {
        message_waiting(socket, -1);
        message_receive(socket, &order, sizeof order);
        if (order.what == 'r') {
            read_some(&work, order.count);
            event_send(socket, 'd');
        } else if (order.what == 's') {
            send_next(&work);
            event_send(socket, 'd');
        } else if (order.what == 'h') {
            struct reader_report report = hammer(&work, socket);
            message_send(socket, &report, sizeof report);
        }
    }
    node_close(&work.node);
}

/* ---- the test ---- */

struct reader reader_start(const struct node *node, const char *name, uint64_t seed,
                           uint64_t window)
{
    static struct reader_spec spec;
    struct reader reader;
    size_t len = 0;
    CHECK(node->num_blocks <= MOST_BLOCKS && window <= MOST_IN_FLIGHT);
    memset(&spec, 0, sizeof spec);
    reader.tally_fd = memfd_create("tally", MFD_CLOEXEC);
    CHECK(reader.tally_fd >= 0 && ftruncate(reader.tally_fd, sizeof(struct tally)) == 0);
    reader.tally = map_tally(reader.tally_fd);
    CHECK(strlen(name) < sizeof reader.name);
    CHECK(strlen(dt_agent_name(node->transport)) < sizeof spec.source);
    strcpy(reader.name, name);
    strcpy(spec.name, name);
    strcpy(spec.source, dt_agent_name(node->transport));
    snprintf(spec.tally_path, sizeof spec.tally_path, "/proc/%d/fd/%d", (int)getpid(),
             reader.tally_fd);
    spec.seed = seed;
    spec.window = window;
    spec.card = node_card(node);
    CHECK_OK(dt_get_mem_descriptor(node->transport, spec.list, sizeof spec.list, &len));
    spec.list_len = len;
    reader.child = child_start("reader");
    message_send(reader.child.socket, &spec, sizeof spec);
    event_expect(reader.child.socket, 'a');
    return reader;
}

static void give(struct reader *reader, char what, uint64_t count)
{
    struct order order;
    memset(&order, 0, sizeof order);
    order.what = what;
    order.count = count;
    message_send(reader->child.socket, &order, sizeof order);
}

void reader_begin(struct reader *reader, uint64_t count)
{
    give(reader, 'r', count);
}

void reader_await(struct reader *reader)
{
    event_expect(reader->child.socket, 'd');
}

void reader_hammer(struct reader *reader)
{
    give(reader, 'h', 0);
}

struct reader_report reader_report(struct reader *reader)
{
    struct reader_report report;
    message_receive(reader->child.socket, &report, sizeof report);
    return report;
}

void reader_send(struct reader *reader)
{
    give(reader, 's', 0);
    event_expect(reader->child.socket, 'd');
}

void reader_forget(struct reader *reader)
{
    CHECK(munmap(reader->tally, sizeof *reader->tally) == 0);
    close(reader->tally_fd);
}

void reader_quit(struct reader *reader)
{
    give(reader, 'q', 0);
    /* With NIXL it may need this side's help to close. */
    if (message_meanwhile != NULL)
        message_waiting(reader->child.socket, BOUND_MS);
    child_expect_success(&reader->child);
    reader_forget(reader);
}

void reader_kill(struct reader *reader)
{
    child_kill(&reader->child);
}

struct inbox *inbox_new(const char *name, uint64_t seed, uint64_t window)
{
    struct inbox *inbox = calloc(1, sizeof *inbox);
    CHECK(inbox != NULL);
    inbox->name = name;
    inbox->seed = seed;
    inbox->window = window;
    return inbox;
}

static void enter(struct inbox *const *inboxes, size_t count, const struct mail *mail)
{
    size_t k = 0;
    while (k < count && strcmp(inboxes[k]->name, mail->sender) != 0)
        k++;
    if (k == count)
        test_fail("a message from %s, whom nobody has started", mail->sender);
    struct inbox *inbox = inboxes[k];
    uint64_t number = mail_number(mail, inbox->seed);
    CHECK(number < INBOX_MOST);
    if (inbox->come[number])
        test_fail("message %llu of %s comes twice", (unsigned long long)number, inbox->name);
    if (number >= inbox->lowest + inbox->window)
        test_fail("message %llu of %s comes before %llu", (unsigned long long)number, inbox->name,
                  (unsigned long long)inbox->lowest);
    inbox->come[number] = true;
    inbox->count++;
    while (inbox->lowest < INBOX_MOST && inbox->come[inbox->lowest])
        inbox->lowest++;
}

size_t inbox_fill(const struct node *node, struct inbox *const *inboxes, size_t count)
{
    static struct mail mails[64];
    size_t all = 0, n;
    do {
        n = mail_take(node->transport, mails, 64);
        for (size_t i = 0; i < n; i++)
            enter(inboxes, count, &mails[i]);
        all += n;
    } while (n == 64);
    return all;
}
