/* A peer: does what the survivor orders, and tells what came of it. It checks what it can see alone:
 * ids end once, messages come once and in order, counters add up. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend.h"
#include "child.h"
#include "dt_check.h"
#include "dt_time.h"
#include "letter.h"
#include "wire.h"

#define MOST_PAYLOAD (1u << 20)
/* After the last read has ended, until what the library itself reads has ended as well. */
#define HUSH_MS 20

struct job {
    uint64_t tag;
    dt_xfer_id id;
    enum copy_kind kind;
    uint32_t lane;
    bool with_letter, ghost;   /* ghost: dropped, but still draining */
};

/* A survivor's transport, and what has come of it. */
struct sender {
    uint64_t number, all;
    struct line lines[2];
};
#define SENDERS 8

static struct {
    int socket;
    dt_transport *transport;
    void *base;
    size_t blocks, block_len;
    uint64_t number;            /* of this transport */
    uint64_t survivor;          /* number of the one that is known; 0: none */
    uint32_t lane;
    char known_as[1001];
    struct job jobs[PEER_JOBS];
    size_t job_count;
    struct line sent[2];
    struct sender senders[SENDERS];
    uint64_t hush_at;           /* ms; 0: not asked for */
    uint64_t ended;             /* transfers of this transport */
} me;

static uint8_t payload[MOST_PAYLOAD];

static void tell(struct news news, const void *bytes, size_t len)
{
    news.len = (uint32_t)len;
    message_send(me.socket, &news, sizeof news);
    if (len > 0)
        message_send(me.socket, bytes, len);
}

static void tell_status(enum news_kind kind, uint64_t tag, dt_status status)
{
    tell((struct news){.kind = kind, .tag = tag, .status = status, .lane = me.lane}, NULL, 0);
}

static void drop_job(size_t k)
{
    me.jobs[k] = me.jobs[--me.job_count];
}

/* ---- what goes on by itself ---- */

static void ended(size_t k, dt_status status)
{
    struct job job = me.jobs[k];
    drop_job(k);
    me.ended++;
    if (job.with_letter && status == DT_OK)
        me.sent[job.lane].reads++;
    tell_status(NEWS_ENDED, job.tag, status);
}

static void take_completions(void)
{
    dt_completion got[PEER_JOBS];
    size_t n = 0;
    CHECK_OK(dt_poll(me.transport, NULL, got, PEER_JOBS, &n));
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < me.job_count && (me.jobs[k].id != got[i].id || me.jobs[k].ghost))
            k++;
        if (k == me.job_count)
            test_fail("peer: transfer %llu ends, which was not in flight",
                      (unsigned long long)got[i].id);
        CHECK(me.jobs[k].kind != COPY_POSTED && me.jobs[k].tag == got[i].user_data);
        CHECK(got[i].bytes == 0 || got[i].status == DT_OK);
        ended(k, got[i].status);
    }
}

static dt_stats stats_now(void)
{
    dt_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(dt_get_stats(me.transport, &stats));
    CHECK(stats.submitted == stats.done + stats.failed + stats.cancelled + stats.inflight);
    CHECK(stats.draining <= stats.cancelled);
    return stats;
}

static void look_at_reads(void)
{
    bool is_dry = false;
    for (size_t k = me.job_count; k-- > 0;) {
        dt_xfer_state state = DT_XFER_PROC, again = DT_XFER_PROC;
        if (me.jobs[k].ghost) {
            is_dry = is_dry || stats_now().draining == 0;
            if (is_dry)
                ended(k, DT_ERR_CANCELLED);
        } else if (me.jobs[k].kind == COPY_POSTED) {
            CHECK_OK(dt_check_xfer_state(me.transport, me.jobs[k].id, &state));
            if (state == DT_XFER_PROC)
                continue;
            CHECK_OK(dt_check_xfer_state(me.transport, me.jobs[k].id, &again));
            CHECK(state == again);
            CHECK_OK(dt_release_xfer(me.transport, me.jobs[k].id));
            ended(k, state);
        }
    }
}

/* The blocks that were read are ours again, so they are used at once. */
static void reuse(const struct letter *letter, const uint32_t *blocks)
{
    for (uint32_t i = 0; i < letter->count; i++) {
        CHECK(blocks[i] < me.blocks);
        memset((char *)me.base + blocks[i] * me.block_len, 0xee, me.block_len);
    }
}

static struct sender *sender_of(uint64_t number)
{
    struct sender *oldest = me.senders;
    for (struct sender *at = me.senders; at < me.senders + SENDERS; at++) {
        if (at->number == number)
            return at;
        if (at->number < oldest->number)
            oldest = at;
    }
    *oldest = (struct sender){.number = number};
    return oldest;
}

static void take_mail(void)
{
    static uint8_t arena[LETTER_MOST + 1024];
    static uint32_t blocks[LETTER_MOST / 4];
    dt_notif notifs[8];
    size_t n = 0, used = 0;
    CHECK_OK(dt_get_new_notifs(me.transport, notifs, 8, arena, sizeof arena, &n, &used));
    for (size_t i = 0; i < n; i++) {
        struct letter letter = letter_read(notifs[i].msg, notifs[i].msg_len, blocks);
        CHECK(letter.to == me.number && letter.lane < 2);
        struct sender *sender = sender_of(letter.from);
        line_take(&sender->lines[letter.lane], &letter, false);
        sender->all++;
        if (letter.is_read)
            reuse(&letter, blocks);
        tell((struct news){.kind = NEWS_MAIL, .tag = letter.number, .number = letter.from,
                           .lane = letter.lane, .is_read = letter.is_read}, NULL, 0);
    }
}

static bool reads_run(void)
{
    for (size_t k = 0; k < me.job_count; k++)
        if (me.jobs[k].kind != COPY_WRITE)
            return true;
    return false;
}

static void hush(void)
{
    if (me.hush_at == 0)
        return;
    if (reads_run())
        me.hush_at = now_ms() + HUSH_MS;
    if (now_ms() < me.hush_at)
        return;
    me.hush_at = 0;
    tell_status(NEWS_HUSHED, 0, DT_OK);
}

static void live(void)
{
    if (me.transport == NULL)
        return;
    take_completions();
    look_at_reads();
    take_mail();
    hush();
}

/* ---- orders ---- */

static void open_transport(const struct order *order)
{
    dt_options options = test_options();
    size_t bytes = order->as.region.blocks * order->as.region.block_len;
    int fd = open(order->as.region.path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && me.transport == NULL);
    void *at = (void *)(uintptr_t)order->as.region.at;
    me.base = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    if (me.base == MAP_FAILED) /* taken, by memory of a transport that is closed */
        me.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(me.base != MAP_FAILED);
    options.agent_name = order->as.region.name;
    options.progress_thread = order->as.region.progress_thread != 0;
    options.poll_budget_us = order->as.region.budget_us;
    options.region_has_fd = order->as.region.with_fd != 0;
    options.region_fd = fd;
    me.blocks = order->as.region.blocks;
    me.block_len = order->as.region.block_len;
    me.number = order->as.region.number;
    me.survivor = 0;
    me.ended = me.hush_at = 0;
    memset(me.senders, 0, sizeof me.senders);
    CHECK_OK(dt_create(me.base, me.blocks, me.block_len, &options, &me.transport));
    close(fd);

    size_t len[3] = {0}, at_byte = 0;
    CHECK_OK(dt_get_agent_metadata(me.transport, payload, MOST_PAYLOAD, &len[0]));
    at_byte = len[0];
    CHECK_OK(dt_export_handshake(me.transport, payload + at_byte, MOST_PAYLOAD - at_byte, &len[1]));
    at_byte += len[1];
    tell((struct news){.kind = NEWS_OPENED, .tag = me.number, .base = dt_base_addr(me.transport),
                       .part = {(uint32_t)len[0], (uint32_t)len[1], 0}}, payload, at_byte);
}

static void meet(const struct order *order)
{
    uint32_t how = order->as.meet.how, lane = how == MEET_AGENT;
    const uint8_t *second = payload + order->as.meet.metadata_len;
    size_t second_len = order->as.meet.descriptor_len, name_len = 0;
    char name[1001] = "survivor";
    dt_status status = DT_OK;
    /* An agent may have another name by now, and would be another peer. */
    bool remove = order->as.meet.remove_first || lane != me.lane || how == MEET_AGENT;
    if (me.survivor != 0 && remove)
        CHECK_OK(dt_remove_remote_peer(me.transport, me.known_as));
    if (how == MEET_AGENT)
        status = dt_add_remote_agent(me.transport, payload, order->as.meet.metadata_len, second,
                                     second_len, name, sizeof name, &name_len);
    else if (how == MEET_HANDSHAKE)
        status = dt_import_handshake(me.transport, name, second, second_len);
    else
        status = dt_add_remote_peer(me.transport, name, payload, order->as.meet.metadata_len,
                                    order->as.meet.base, order->as.meet.blocks, me.block_len);
    if (status == DT_OK) {
        me.lane = lane;
        strcpy(me.known_as, name);
        if (me.survivor != order->as.meet.number)
            memset(me.sent, 0, sizeof me.sent);
        me.survivor = order->as.meet.number;
    } else {
        if (remove)
            me.survivor = 0;
        if (status != DT_ERR_PEER_LOST)
            fprintf(stderr, "peer %llu: survivor %llu: %s\n", (unsigned long long)me.number,
                    (unsigned long long)order->as.meet.number, dt_last_error());
    }
    tell_status(NEWS_MET, order->as.meet.number, status);
}

static struct letter next_letter(void)
{
    const struct line *line = &me.sent[me.lane];
    return (struct letter){.from = me.number, .to = me.survivor, .lane = me.lane,
                           .number = line->sends, .sends_before = line->sends,
                           .reads_before = line->reads};
}

static void copy(const struct order *order)
{
    static uint8_t text[LETTER_MOST];
    uint32_t count = order->as.copy.count;
    const uint32_t *here = (const uint32_t *)(const void *)payload, *there = here + count;
    struct job job = {order->as.copy.tag, 0, order->as.copy.copy, me.lane, order->as.copy.size > 0,
                      false};
    dt_status status = DT_ERR_NOT_FOUND;
    size_t len = 0;
    CHECK(me.job_count < PEER_JOBS);
    if (me.survivor == 0) {
        tell_status(NEWS_REFUSED, job.tag, status);
        return;
    }
    if (job.with_letter) {
        struct letter letter = next_letter();
        letter.is_read = 1;
        letter.number = job.tag;
        letter.count = count;
        len = letter_write(text, letter, there + count, order->as.copy.size);
    }
    if (job.kind == COPY_WRITE)
        status = dt_write_blocks(me.transport, me.known_as, here, there, count, job.tag, &job.id);
    else if (job.kind == COPY_READ)
        status = dt_read_blocks(me.transport, me.known_as, here, there, count, job.tag, &job.id);
    else
        status = dt_post_read(me.transport, me.known_as, here, there, count, text, len, &job.id);
    memset(text, 0, len); /* copied by the call */
    if (status == DT_OK)
        me.jobs[me.job_count++] = job;
    else
        tell_status(NEWS_REFUSED, job.tag, status);
}

static void cancel(const struct order *order)
{
    size_t k = 0, still = 77;
    while (k < me.job_count && me.jobs[k].tag != order->as.cancel.tag)
        k++;
    if (k == me.job_count || me.jobs[k].ghost)
        return;
    if (me.jobs[k].kind == COPY_POSTED) {
        /* If it runs now, it is cancelled before it is found complete, and has no message. */
        dt_xfer_state state = DT_XFER_PROC;
        CHECK_OK(dt_check_xfer_state(me.transport, me.jobs[k].id, &state));
        if (state != DT_XFER_PROC)
            return;
    }
    dt_xfer_id id = me.jobs[k].id, left = 0;
    CHECK_OK(dt_cancel(me.transport, &id, 1, (dt_cancel_mode)order->as.cancel.mode, &left, &still));
    CHECK(still == 0 || (still == 1 && left == id && order->as.cancel.mode == DT_CANCEL_WAIT));
    if (still == 1)
        return;
    me.jobs[k].with_letter = false;
    if (order->as.cancel.mode == DT_CANCEL_WAIT || stats_now().draining == 0)
        ended(k, DT_ERR_CANCELLED);
    else
        me.jobs[k].ghost = true;
}

static void send_letter(uint64_t size)
{
    static uint8_t text[LETTER_MOST];
    dt_status status = DT_ERR_NOT_FOUND;
    uint64_t number = me.sent[me.lane].sends;
    size_t len = 0;
    if (me.survivor != 0) {
        len = letter_write(text, next_letter(), NULL, size);
        status = dt_send_notif(me.transport, me.known_as, text, len);
        memset(text, 0, len);
    }
    if (status == DT_OK)
        me.sent[me.lane].sends++;
    tell((struct news){.kind = NEWS_SENT, .tag = me.survivor, .status = status, .lane = me.lane,
                       .number = number, .base = len}, NULL, 0);
}

static void close_transport(const struct order *order)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    while (order->as.close.expect > 0 &&
           sender_of(order->as.close.from)->all < order->as.close.expect) {
        if (now_ms() > deadline)
            test_fail("peer %llu: of %llu messages of survivor %llu, %llu have come",
                      (unsigned long long)me.number, (unsigned long long)order->as.close.expect,
                      (unsigned long long)order->as.close.from,
                      (unsigned long long)sender_of(order->as.close.from)->all);
        live();
        usleep(100);
    }
    CHECK_OK(dt_close(me.transport, BOUND_MS));
    dt_stats stats = stats_now();
    CHECK(stats.inflight == 0 && stats.draining == 0 && stats.peers == 0);
    CHECK(stats.submitted == me.ended + me.job_count);
    me.job_count = 0;
    dt_destroy(me.transport);
    me.transport = NULL;
    if (order->as.close.unmap)
        CHECK(munmap(me.base, me.blocks * me.block_len) == 0);
    tell_status(NEWS_CLOSED, stats.notifs_sent, DT_OK);
}

/* False: the end. */
static bool obey(const struct order *order)
{
    switch ((enum order_kind)order->kind) {
    case ORDER_OPEN:
        open_transport(order);
        break;
    case ORDER_MEET:
        meet(order);
        break;
    case ORDER_COPY:
        copy(order);
        break;
    case ORDER_CANCEL:
        cancel(order);
        break;
    case ORDER_SEND:
        send_letter(order->as.send.size);
        break;
    case ORDER_HUSH:
        me.hush_at = now_ms() + HUSH_MS;
        break;
    case ORDER_CLOSE:
        close_transport(order);
        break;
    case ORDER_QUIT:
        CHECK(me.transport == NULL);
        return false;
    case ORDER_VANISH:
        exit(0);
    }
    return true;
}

void peer_role(int socket)
{
    /* Without work of its own a peer need not be awake all the time. */
    const struct timespec nap = {0, 300000}, none = {0, 0};
    me.socket = socket;
    for (;;) {
        struct pollfd ready = {socket, POLLIN, 0};
        struct order order;
        if (ppoll(&ready, 1, me.job_count > 0 ? &none : &nap, NULL) == 1) {
            message_receive(socket, &order, sizeof order);
            CHECK(order.len <= MOST_PAYLOAD);
            message_receive(socket, payload, order.len);
            if (!obey(&order))
                return;
        }
        live();
    }
}
