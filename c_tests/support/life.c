#include "life.h"

#include <string.h>

#include "backend.h"
#include "descriptor.h"
#include "dt_time.h"

#define BLOCKS LIFE_BLOCKS
#define LEN LIFE_BLOCK_LEN
#define BYTES ((size_t)BLOCKS * LEN)
#define MESSAGES 11
/* So often a read is looked at that has arrived: then its message waits. */
#define LOOKS 1000

void (*life_lacks_room)(void);

static struct remote *remote;
static uint8_t descriptor[5 + BLOCKS * 20];
static size_t descriptor_len;

static void describe(void)
{
    struct list list = {descriptor, 0, sizeof descriptor};
    list_put_count(&list, BLOCKS);
    for (uint64_t i = 0; i < BLOCKS; i++)
        list_put_row(&list, remote->card.base + i * LEN, LEN, 0);
    descriptor_len = list.len;
}

static void *base;
static int32_t fd;
static dt_transport *t;
static dt_xfer_id read_id;
static uint64_t sent, sent_to_self;
static uint64_t seed;

static dt_status alloc(void)
{
    return dt_region_alloc(BYTES, &base, &fd);
}

static dt_status create(void)
{
    dt_options options = test_options();
    options.region_has_fd = true;
    options.region_fd = fd;
    return dt_create(base, BLOCKS, LEN, &options, &t);
}

static dt_status add(void)
{
    const struct card *card = &remote->card;
    return dt_add_remote_peer(t, "peer", card->metadata, card->metadata_len, card->base, BLOCKS,
                              LEN);
}

static dt_status add_agent(void)
{
    const struct card *card = &remote->card;
    char name[128];
    size_t len;
    return dt_add_remote_agent(t, card->metadata, card->metadata_len, descriptor, descriptor_len,
                               name, sizeof name, &len);
}

/* A peer of this process, which NIXL does not have. */
static dt_status add_self(void)
{
    uint8_t blob[4096];
    size_t len;
    if (on_nixl())
        return DT_OK;
    CHECK_OK(dt_export_handshake(t, blob, sizeof blob, &len));
    return dt_import_handshake(t, "self", blob, len);
}

static dt_status finish(dt_xfer_id id)
{
    dt_completion done;
    size_t n = 0;
    uint64_t deadline = now_ms() + BOUND_MS;
    do {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(t, NULL, &done, 1, 10, &n));
    } while (n == 0);
    CHECK(done.id == id && done.bytes == (done.status == DT_OK ? done.user_data : 0));
    return done.status;
}

/* Blocks 0 to `count` here are those from `count` on there, at once or with dt_wait. */
static dt_status copy(bool write, const char *peer, uint32_t count)
{
    uint32_t low[BLOCKS], high[BLOCKS];
    dt_xfer_id id = 0;
    for (uint32_t i = 0; i < count; i++) {
        low[i] = i;
        high[i] = BLOCKS - 1 - i;
    }
    dt_status status = (write ? dt_write_blocks : dt_read_blocks)(
        t, peer, low, high, count, (uint64_t)count * LEN, &id);
    if (status != DT_OK) {
        CHECK(id == 0);
        return status;
    }
    return finish(id);
}

static void fill(uint32_t count, uint64_t pattern)
{
    for (uint32_t i = 0; i < count; i++)
        pattern_fill((uint8_t *)base + i * LEN, LEN, pattern, i);
}

static void check(uint32_t count, uint64_t pattern)
{
    for (uint32_t i = 0; i < count; i++)
        CHECK(pattern_mismatch((uint8_t *)base + i * LEN, LEN,
                               (struct content){pattern, i}) < 0);
}

static dt_status write_few(void)
{
    fill(1, seed);
    return copy(true, "peer", 1);
}

static dt_status write_many(void)
{
    fill(BLOCKS / 2, seed + 1);
    return copy(true, "peer", BLOCKS / 2);
}

static dt_status read_many(void)
{
    fill(BLOCKS / 2, seed + 2);
    dt_status status = copy(false, "peer", BLOCKS / 2);
    if (status == DT_OK)
        check(BLOCKS / 2, seed + 1);
    return status;
}

static size_t message(uint8_t bytes[MAIL_MOST])
{
    return mail_make(bytes, MESSAGES, sent);
}

static dt_status post_read(void)
{
    uint8_t bytes[MAIL_MOST];
    uint32_t here = 3, there = BLOCKS - 1;
    dt_xfer_state state = DT_XFER_PROC;
    uint64_t deadline = now_ms() + BOUND_MS;
    read_id = 0;
    dt_status status =
        dt_post_read(t, "peer", &here, &there, 1, bytes, message(bytes), &read_id);
    if (status != DT_OK)
        return status;
    for (unsigned looks = 0; state == DT_XFER_PROC; looks++) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_check_xfer_state(t, read_id, &state));
        if (looks > LOOKS && life_lacks_room != NULL && !on_nixl())
            life_lacks_room();
    }
    CHECK_OK(dt_release_xfer(t, read_id));
    if (state != DT_XFER_DONE)
        return state;
    sent++;
    CHECK(pattern_mismatch((uint8_t *)base + 3 * LEN, LEN, (struct content){seed + 1, 0}) < 0);
    return DT_OK;
}

static dt_status send(void)
{
    uint8_t bytes[MAIL_MOST];
    dt_status status;
    uint64_t deadline = now_ms() + BOUND_MS;
    /* NIXL has to connect first. */
    while ((status = dt_send_notif(t, "peer", bytes, message(bytes))) == DT_ERR_BUSY &&
           now_ms() < deadline) {
        size_t n;
        CHECK_OK(dt_poll(t, NULL, NULL, 0, &n));
    }
    sent += status == DT_OK;
    return status;
}

static dt_status send_to_self(void)
{
    if (on_nixl())
        return DT_OK;
    dt_status status = dt_send_notif(t, "self", "to self", 7);
    sent_to_self += status == DT_OK;
    return status;
}

/* One message has come. */
static dt_status receive(void)
{
    dt_notif notif;
    uint8_t arena[256];
    size_t count = 0, used;
    uint64_t deadline = now_ms() + BOUND_MS;
    while (sent_to_self > 0) {
        CHECK(now_ms() < deadline);
        dt_status status = dt_get_new_notifs(t, &notif, 1, arena, sizeof arena, &count, &used);
        if (status != DT_OK)
            return status;
        CHECK(count == 0 || (notif.msg_len == 7 && memcmp(notif.msg, "to self", 7) == 0));
        sent_to_self -= count;
    }
    return DT_OK;
}

static dt_status copy_to_self(void)
{
    if (on_nixl())
        return DT_OK;
    fill(BLOCKS / 2, seed + 3);
    return copy(true, "self", BLOCKS / 2);
}

static dt_status poll(void)
{
    size_t n = 0;
    dt_status status = DT_OK;
    for (int i = 0; i < 3 && status == DT_OK; i++)
        status = dt_poll(t, NULL, NULL, 0, &n);
    CHECK(n == 0);
    return status;
}

/* Over the old registration, which stays if this one fails. */
static dt_status replace(void)
{
    dt_status status = add();
    CHECK_OK(dt_peer_status(t, "peer"));
    return status;
}

static dt_status drop(void)
{
    return dt_remove_remote_peer(t, "peer");
}

static dt_status close_it(void)
{
    return dt_close(t, BOUND_MS);
}

static dt_status destroy(void)
{
    dt_destroy(t);
    t = NULL;
    return DT_OK;
}

const struct life_step life_steps[LIFE_STEPS] = {
    {"dt_region_alloc", alloc},
    {"dt_create", create},
    {"dt_add_remote_peer", add},
    {"dt_add_remote_agent", add_agent},
    {"dt_import_handshake of itself", add_self},
    {"a small dt_write_blocks", write_few},
    {"dt_write_blocks", write_many},
    {"dt_read_blocks", read_many},
    {"dt_post_read", post_read},
    {"dt_send_notif", send},
    {"dt_send_notif again", send},
    {"dt_send_notif to itself", send_to_self},
    {"dt_get_new_notifs", receive},
    {"dt_write_blocks to itself", copy_to_self},
    {"dt_poll", poll},
    {"dt_add_remote_peer once more", replace},
    {"dt_write_blocks once more", write_many},
    {"dt_read_blocks once more", read_many},
    {"dt_remove_remote_peer", drop},
    {"dt_close", close_it},
    {"dt_destroy", destroy},
};

void life_begin(struct remote *peer)
{
    remote = peer;
    describe();
    seed += 10;
    sent = sent_to_self = 0;
}

void life_end(void)
{
    static struct mail mail[8];
    dt_region_free(base, BYTES, fd);
    base = NULL;
    CHECK(sent <= 8);
    remote_mail(remote, mail, sent);
    for (uint64_t i = 0; i < sent; i++)
        CHECK(mail_number(&mail[i], MESSAGES) == i);
}

void life_give_up(void)
{
    dt_destroy(t);
    t = NULL;
    dt_region_free(base, BYTES, fd);
    base = NULL;
}
