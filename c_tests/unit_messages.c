/* dt_send_notif, dt_get_new_notifs, and the messages of posted reads. */
#include <string.h>

#include "unit_pair.h"

#define LONGEST 65536
#define LEN ((size_t)4 << 20)

static struct pair pair;
static uint8_t bytes[LONGEST + 1];

/* Any bytes, those of strings that end among them. */
static void make(size_t len, uint8_t seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 251 + seed);
}

/* One look at what the peer has got. */
static dt_status look(dt_notif *buf, size_t cap, void *arena, size_t arena_cap, size_t *count,
                      size_t *used)
{
    size_t n;
    CHECK_OK(dt_poll(pair.ours.t, NULL, NULL, 0, &n));
    *count = *used = 77;
    return dt_get_new_notifs(pair.peer.t, buf, cap, arena, arena_cap, count, used);
}

/* Waits for the next message alone, which must be of `want_len` bytes. */
static void next_is(const void *want, size_t want_len)
{
    static uint8_t arena[LONGEST + 1100];
    uint64_t deadline = now_ms() + BOUND_MS;
    const char *sender = dt_agent_name(pair.ours.t);
    dt_notif got;
    size_t count, used;
    do {
        CHECK(now_ms() < deadline);
        CHECK_OK(look(&got, 1, arena, sizeof arena, &count, &used));
    } while (count == 0);
    CHECK(count == 1 && used == strlen(sender) + 1 + want_len);
    CHECK(strcmp(got.agent_name, sender) == 0);
    CHECK(got.msg_len == want_len && memcmp(got.msg, want, want_len) == 0);
    /* Both lie in the arena. */
    CHECK((const uint8_t *)got.agent_name >= arena && (const uint8_t *)got.msg >= arena);
    CHECK((const uint8_t *)got.msg + want_len <= arena + used);
}

/* Once more if there is no room, or, with NIXL, no connection yet. */
static void send_one(size_t len)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = dt_send_notif(pair.ours.t, "peer", bytes, len)) == DT_ERR_BUSY &&
           now_ms() < deadline)
        pair_poll(&pair);
    CHECK_OK(status);
}

/* What was sent last is the only message that is there: all others have been seen. */
static void nothing_else(void)
{
    send_one((bytes[0] = 'E', 1));
    next_is("E", 1);
}

static dt_xfer_id read_with(uint32_t from, const void *msg, size_t len)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_post_read(pair.ours.t, "peer", (uint32_t[]){7}, &from, 1, msg, len, &id));
    return id;
}

/* The peer knows nobody, and learns who sends. */
static void lengths(void)
{
    static const size_t lens[] = {1, 2, 15, 255, 4095, 65535, LONGEST};
    dt_stats before = pair_stats(&pair), before_there = side_stats(&pair.peer);
    CHECK(before_there.peers == 0);
    for (size_t i = 0; i < 7; i++) {
        make(lens[i], (uint8_t)i);
        send_one(lens[i]);
        /* Copied by the call. */
        memset(bytes, 0xcc, lens[i]);
        make(lens[i], (uint8_t)i);
        next_is(bytes, lens[i]);

        dt_xfer_id id = read_with(0, bytes, lens[i]);
        memset(bytes, 0xcc, lens[i]);
        CHECK(pair_end(&pair, id) == DT_XFER_DONE);
        CHECK_OK(dt_release_xfer(pair.ours.t, id));
        make(lens[i], (uint8_t)i);
        next_is(bytes, lens[i]);
    }
    CHECK(pair_stats(&pair).notifs_sent == before.notifs_sent + 14);
    CHECK(side_stats(&pair.peer).notifs_received == before_there.notifs_received + 14);
    CHECK(side_stats(&pair.peer).notifs_sent == 0);
    CHECK(side_stats(&pair.peer).notifs_refused == 0);
    nothing_else();
}

static void refused(void)
{
    dt_xfer_id id = 7;
    dt_stats before = pair_stats(&pair);
    CHECK_STATUS(dt_send_notif(pair.ours.t, "peer", bytes, LONGEST + 1), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "65537") != NULL && strstr(dt_last_error(), "65536") != NULL);
    CHECK_STATUS(dt_send_notif(pair.ours.t, "peer", bytes, 0), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_post_read(pair.ours.t, "peer", (uint32_t[]){0}, (uint32_t[]){0}, 1, bytes,
                              LONGEST + 1, &id),
                 DT_ERR_INVALID_ARG);
    /* The peer has not added us. */
    CHECK_STATUS(dt_send_notif(pair.peer.t, dt_agent_name(pair.ours.t), bytes, 1),
                 DT_ERR_NOT_FOUND);
    CHECK(id == 7 && pair_stats(&pair).notifs_sent == before.notifs_sent);
    nothing_else();
}

/* Three messages of 5, 5 and 9 bytes wait. Room for them is tried in every size. */
static void arenas(void)
{
    const size_t name = strlen(dt_agent_name(pair.ours.t)) + 1;
    const size_t first = name + 5, all = 2 * first + name + 9;
    uint64_t deadline = now_ms() + BOUND_MS;
    static uint8_t arena[4096];
    dt_notif got[4];
    size_t count, used;
    for (size_t cap = 0; cap <= all + 1; cap++) {
        static const char *const texts[] = {"one\0\xff", "two\0\xff", "three\0\0\xff\xff"};
        size_t done = 0;
        for (size_t i = 0; i < 3; i++) {
            memcpy(bytes, texts[i], i < 2 ? 5 : 9);
            send_one(i < 2 ? 5 : 9);
        }
        /* No room for elements: nothing is handed out, whatever has come. */
        CHECK_OK(look(NULL, 0, arena, sizeof arena, &count, &used));
        CHECK(count == 0 && used == 0);
        CHECK_OK(look(got, 0, NULL, 0, &count, &used));
        CHECK(count == 0 && used == 0);

        while (done < 3) {
            memset(arena, 0xee, sizeof arena);
            memset(got, 0xee, sizeof got);
            dt_status status = look(got, 4, cap == 0 ? NULL : arena, cap, &count, &used);
            CHECK(now_ms() < deadline);
            if (status == DT_ERR_BUFFER_TOO_SMALL) {
                /* The next one does not fit, and is still the next one. */
                CHECK(count == 77 && used == (done < 2 ? first : name + 9) && cap < used);
                CHECK(arena[0] == 0xee && got[0].msg_len != 5);
                CHECK(strstr(dt_last_error(), "arena_cap") != NULL);
                CHECK_OK(dt_get_new_notifs(pair.peer.t, got, 1, arena, used, &count, &used));
                CHECK(count == 1);
            } else {
                CHECK_OK(status);
                CHECK(count <= 3 - done && used <= cap);
                /* All have come by now with LOCAL, and all that fit are handed out. */
                CHECK(on_nixl() || done + count == 3 ||
                      used + (done + count < 2 ? first : name + 9) > cap);
            }
            for (size_t i = 0; i < count; i++, done++) {
                size_t len = done < 2 ? 5 : 9;
                CHECK(strcmp(got[i].agent_name, dt_agent_name(pair.ours.t)) == 0);
                CHECK(got[i].msg_len == len && memcmp(got[i].msg, texts[done], len) == 0);
            }
            if (count < 4 && count != 77)
                CHECK(arena[used] == 0xee && ((uint8_t *)&got[count])[0] == 0xee);
        }
    }
    nothing_else();
}

/* All that come at once, in their order, as many as there is room for. */
static void in_order(void)
{
    enum { COUNT = 500, ROOM = 7 };
    static uint8_t arena[8192];
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_notif got[ROOM + 1];
    size_t count, used, seen = 0;
    uint32_t sent = 0;
    dt_xfer_id id = 0;
    while (seen < COUNT) {
        CHECK(now_ms() < deadline);
        /* By turns alone and with a read, which ends before the next one is sent. */
        for (int burst = 0; burst < 50 && sent < COUNT; burst++, sent++) {
            memcpy(bytes, &sent, sizeof sent);
            if (sent % 5 != 0) {
                send_one(sizeof sent + sent % 60);
                continue;
            }
            id = read_with(0, bytes, sizeof sent + sent % 60);
            CHECK(pair_end(&pair, id) == DT_XFER_DONE);
            CHECK_OK(dt_release_xfer(pair.ours.t, id));
        }
        memset(&got[ROOM], 0xee, sizeof *got);
        CHECK_OK(look(got, ROOM, arena, sizeof arena, &count, &used));
        CHECK(count <= ROOM && ((uint8_t *)&got[ROOM])[0] == 0xee);
        for (size_t i = 0; i < count; i++, seen++) {
            uint32_t number;
            memcpy(&number, got[i].msg, sizeof number);
            CHECK(number == seen && got[i].msg_len == sizeof number + number % 60);
        }
    }
    nothing_else();
}

/* No message goes for a read that was given up before the library had found it complete. */
static void given_up(void)
{
    dt_xfer_id ids[4], still[4];
    size_t n;
    static const dt_cancel_mode modes[] = {DT_CANCEL_IMMEDIATE, DT_CANCEL_WAIT};
    for (int how = 0; how < 3; how++) {
        dt_stats before = pair_stats(&pair);
        uint64_t deadline = now_ms() + BOUND_MS;
        for (uint32_t i = 0; i < 4; i++)
            ids[i] = read_with(i, "no", 2);
        if (how == 2) {
            for (int i = 0; i < 4; i++)
                CHECK_OK(dt_release_xfer(pair.ours.t, ids[i]));
        } else {
            CHECK_OK(dt_cancel(pair.ours.t, ids, 4, modes[how], still, &n));
            CHECK(n == 0);
        }
        do {
            CHECK(now_ms() < deadline);
            pair_poll(&pair);
        } while (pair_stats(&pair).draining > 0);
        CHECK(pair_stats(&pair).notifs_sent == before.notifs_sent);
        nothing_else();
    }
    /* Nor with one that has none, while the others keep theirs. */
    ids[0] = read_with(0, NULL, 0);
    ids[1] = read_with(1, "yes", 3);
    for (int i = 0; i < 2; i++) {
        CHECK(pair_end(&pair, ids[i]) == DT_XFER_DONE);
        CHECK_OK(dt_release_xfer(pair.ours.t, ids[i]));
    }
    next_is("yes", 3);
    nothing_else();
}

/* Removed: what was on its way arrives, what was not does not. */
static void removed(void)
{
    dt_xfer_id done = read_with(0, "done", 4), running;
    dt_xfer_state state;
    CHECK(pair_end(&pair, done) == DT_XFER_DONE);
    for (int i = 0; i < 3; i++)
        running = read_with(1, "running", 7);
    CHECK_OK(dt_remove_remote_peer(pair.ours.t, "peer"));
    CHECK_STATUS(dt_send_notif(pair.ours.t, "peer", "m", 1), DT_ERR_NOT_FOUND);
    CHECK(pair_end(&pair, running) == DT_ERR_CANCELLED);
    next_is("done", 4);
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = pair_add(&pair, "peer")) == DT_ERR_BUSY && now_ms() < deadline)
        pair_poll(&pair);
    CHECK_OK(status);
    CHECK_OK(dt_check_xfer_state(pair.ours.t, running, &state));
    CHECK(state == DT_ERR_CANCELLED);
    nothing_else();
}

/* A peer that never asks gets what it has room for. What waits goes when there is room again, in
 * its order, and nothing overtakes it. */
static void full(void)
{
    size_t sent = 0;
    dt_xfer_state state;
    while (true) {
        memcpy(bytes, &sent, sizeof sent);
        dt_status status = dt_send_notif(pair.ours.t, "peer", bytes, 60000);
        if (status != DT_OK) {
            CHECK_STATUS(status, DT_ERR_BUSY);
            break;
        }
        sent++;
        CHECK(sent < 10000);
    }
    CHECK(sent > 0 && pair_stats(&pair).notifs_refused > 0);
    CHECK(pair_stats(&pair).notifs_sent >= sent);
    memcpy(bytes, &sent, sizeof sent);
    dt_xfer_id waits = read_with(2, bytes, 60000);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(dt_check_xfer_state(pair.ours.t, waits, &state));
        CHECK(state == DT_XFER_PROC);
    }
    /* The bytes are there, and what waits is no failure: reads without a message go on. */
    dt_xfer_id other = read_with(3, NULL, 0);
    CHECK(pair_end(&pair, other) == DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair.ours.t, other));
    CHECK_STATUS(dt_send_notif(pair.ours.t, "peer", "late", 4), DT_ERR_BUSY);
    CHECK_OK(dt_peer_status(pair.ours.t, "peer"));
    for (size_t i = 0; i <= sent; i++) {
        memcpy(bytes, &i, sizeof i);
        next_is(bytes, 60000);
    }
    CHECK(pair_end(&pair, waits) == DT_XFER_DONE);
    CHECK_OK(dt_release_xfer(pair.ours.t, waits));
    nothing_else();

    /* One that waits can be given up, and its message never goes. */
    while (dt_send_notif(pair.ours.t, "peer", bytes, 60000) == DT_OK)
        sent++;
    waits = read_with(2, "never", 5);
    for (int i = 0; i < 20; i++)
        pair_poll(&pair);
    CHECK_OK(dt_release_xfer(pair.ours.t, waits));
}

int main(void)
{
    pair = pair_open(8, LEN);
    lengths();
    refused();
    arenas();
    in_order();
    given_up();
    removed();
    if (!on_nixl()) /* which keeps all that comes, up to a bound */
        full();

    /* What was accepted arrives, though the sender closes at once and is never asked again. */
    pair_close_ours(&pair);
    side_free(&pair.ours);
    side_close(&pair.peer);
    pair = pair_open(8, LEN);
    char name[1001];
    strcpy(name, dt_agent_name(pair.ours.t));
    memcpy(bytes, "last", 4);
    send_one(4);
    pair_close_ours(&pair);
    CHECK(pair_stats(&pair).notifs_sent == 1);
    side_free(&pair.ours);
    uint64_t deadline = now_ms() + BOUND_MS;
    uint8_t arena[2000];
    dt_notif got;
    size_t count = 0, used;
    while (count == 0) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_get_new_notifs(pair.peer.t, &got, 1, arena, sizeof arena, &count, &used));
    }
    CHECK(strcmp(got.agent_name, name) == 0 && got.msg_len == 4 && memcmp(got.msg, "last", 4) == 0);
    side_close(&pair.peer);
    return 0;
}
