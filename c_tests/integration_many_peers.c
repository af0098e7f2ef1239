/* A thousand peers of one transport, in a few processes: each is written to, read from, and writes and
 * sends a message itself. And how many there may be at most. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"
#include "procfs.h"
#include "skip.h"

#define PROCESSES 4
#define MOST 2000
#define LEN 4096
/* What a control page and a mailbox have room for. */
#define MOST_CONNECTIONS 1023
#define MOST_SENDERS 1021

struct blob {
    size_t len;
    uint8_t bytes[2048];
};

struct order {
    uint32_t first;
    uint32_t count;
    struct blob hub;
};

/* Files may be open as many as the system allows. */
static rlim_t raise_limit(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit.rlim_max;
}

static struct blob blob_of(dt_transport *t)
{
    struct blob blob;
    memset(&blob, 0, sizeof blob);
    CHECK_OK(dt_export_handshake(t, blob.bytes, sizeof blob.bytes, &blob.len));
    return blob;
}

/* All transports of this process, which NIXL needs driven. */
static dt_transport *all[MOST];
static size_t all_count;

static void drive_all(void)
{
    size_t n;
    for (size_t i = 0; i < all_count; i++)
        dt_poll(all[i], NULL, NULL, 0, &n);
}

static void finish(dt_transport *t, size_t count)
{
    uint64_t deadline = now_ms() + BOUND_MS;
    static dt_completion done[256];
    for (size_t have = 0, n; have < count; have += n) {
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_wait(t, NULL, done, 256, on_nixl() ? 1 : BOUND_MS, &n));
        for (size_t i = 0; i < n; i++)
            CHECK(done[i].status == DT_OK && done[i].bytes == LEN);
    }
}

/* ---- peers ---- */

/* Block 0 of each is for the hub to write, block 1 is its own. */
static void peers_role(int socket)
{
    struct order order;
    message_receive(socket, &order, sizeof order);
    raise_limit();
    uint8_t *memory = malloc((size_t)order.count * 2 * LEN);
    CHECK(memory != NULL);
    for (uint32_t i = 0; i < order.count; i++) {
        uint8_t *base = memory + (size_t)i * 2 * LEN;
        dt_options options = test_options();
        memset(base, 0, LEN);
        pattern_fill(base + LEN, LEN, 2, order.first + i);
        CHECK_OK(dt_create(base, 2, LEN, &options, &all[i]));
        all_count = i + 1;
        struct blob blob = blob_of(all[i]);
        message_send(socket, &blob, sizeof blob);
    }
    if (on_nixl())
        message_meanwhile = drive_all;
    for (uint32_t i = 0; i < order.count; i++) {
        uint32_t there = order.first + i;
        dt_xfer_id id;
        dt_status status;
        uint64_t deadline = now_ms() + BOUND_MS;
        CHECK_OK(dt_import_handshake(all[i], "hub", order.hub.bytes, order.hub.len));
        CHECK_OK(dt_write_blocks(all[i], "hub", &(uint32_t){1}, &there, 1, 0, &id));
        finish(all[i], 1);
        while ((status = dt_send_notif(all[i], "hub", &there, sizeof there)) == DT_ERR_BUSY) {
            CHECK(now_ms() < deadline);
            drive_all();
        }
        CHECK_OK(status);
    }
    event_send(socket, 'd');
    event_expect(socket, 'c'); /* the hub has written */
    for (uint32_t i = 0; i < order.count; i++)
        CHECK(pattern_mismatch(memory + (size_t)i * 2 * LEN, LEN,
                               (struct content){1, order.first + i}) < 0);
    event_send(socket, 'o');
    event_expect(socket, 'e');
    for (uint32_t i = 0; i < order.count; i++) {
        CHECK_OK(dt_close(all[i], BOUND_MS));
        dt_destroy(all[i]);
    }
    free(memory);
    event_send(socket, 'g');
}

/* ---- the hub ---- */

static void take_messages(dt_transport *hub, size_t count)
{
    static bool come[MOST];
    uint64_t deadline = now_ms() + BOUND_MS;
    for (size_t have = 0, n, used; have < count; have += n) {
        dt_notif got[64];
        uint8_t arena[8192];
        CHECK(now_ms() < deadline);
        CHECK_OK(dt_get_new_notifs(hub, got, 64, arena, sizeof arena, &n, &used));
        for (size_t i = 0; i < n; i++) {
            uint32_t from;
            CHECK(got[i].msg_len == sizeof from);
            memcpy(&from, got[i].msg, sizeof from);
            CHECK(from < count && !come[from]);
            come[from] = true;
        }
    }
}

static void hub_with(uint32_t peers)
{
    static struct order order;
    static struct blob blobs[MOST];
    struct child children[PROCESSES];
    uint8_t *memory = malloc((size_t)2 * peers * LEN);
    dt_transport *hub;
    dt_options options = test_options();
    char name[32];
    dt_xfer_id id;
    const uint32_t each = peers / PROCESSES;
    uint64_t start = now_ms();
    CHECK(memory != NULL && peers % PROCESSES == 0);
    /* Block i is for peer i to write, block peers + i goes to it. */
    memset(memory, 0, (size_t)peers * LEN);
    for (uint32_t i = 0; i < peers; i++)
        pattern_fill(memory + (size_t)(peers + i) * LEN, LEN, 1, i);
    CHECK_OK(dt_create(memory, 2 * (size_t)peers, LEN, &options, &hub));
    all[0] = hub;
    all_count = 1;
    if (on_nixl())
        message_meanwhile = drive_all;

    order.hub = blob_of(hub);
    order.count = each;
    for (uint32_t k = 0; k < PROCESSES; k++) {
        children[k] = child_start("peers");
        order.first = k * each;
        message_send(children[k].socket, &order, sizeof order);
    }
    for (uint32_t i = 0; i < peers; i++)
        message_receive(children[i / each].socket, &blobs[i], sizeof blobs[0]);
    for (int k = 0; k < PROCESSES; k++)
        event_expect(children[k].socket, 'd');
    for (uint32_t i = 0; i < peers; i++)
        CHECK(pattern_mismatch(memory + (size_t)i * LEN, LEN, (struct content){2, i}) < 0);
    take_messages(hub, peers);
    printf("%u peers have written and sent after %llu ms\n", peers,
           (unsigned long long)(now_ms() - start));

    for (uint32_t i = 0; i < peers; i++) {
        snprintf(name, sizeof name, "peer %u", i);
        CHECK_OK(dt_import_handshake(hub, name, blobs[i].bytes, blobs[i].len));
    }
    struct holdings with = holdings_now();
    memset(memory, 0, (size_t)peers * LEN);
    for (int read = 0; read < 2; read++) {
        for (uint32_t i = 0; i < peers; i++) {
            uint32_t here = read ? i : peers + i, there = (uint32_t)read;
            snprintf(name, sizeof name, "peer %u", i);
            CHECK_OK((read ? dt_read_blocks : dt_write_blocks)(hub, name, &here, &there, 1, i,
                                                               &id));
        }
        finish(hub, peers);
    }
    for (uint32_t i = 0; i < peers; i++)
        CHECK(pattern_mismatch(memory + (size_t)i * LEN, LEN, (struct content){2, i}) < 0);
    printf("%u peers, written to and read from after %llu ms: %ld descriptors, %ld mappings, "
           "%ld KiB\n",
           peers, (unsigned long long)(now_ms() - start), with.fds, with.maps, with.rss_kib);
    for (int k = 0; k < PROCESSES; k++)
        event_send(children[k].socket, 'c');
    for (int k = 0; k < PROCESSES; k++)
        event_expect(children[k].socket, 'o');
    for (uint32_t i = 0; i < peers; i += 2) {
        snprintf(name, sizeof name, "peer %u", i);
        CHECK_OK(dt_remove_remote_peer(hub, name));
    }
    for (int k = 0; k < PROCESSES; k++)
        event_send(children[k].socket, 'e');
    for (int k = 0; k < PROCESSES; k++) {
        event_expect(children[k].socket, 'g');
        child_expect_success(&children[k]);
    }
    /* The other half is gone, and so must this one be with them. */
    CHECK_OK(dt_close(hub, BOUND_MS));
    all_count = 0;
    dt_destroy(hub);
    free(memory);
}

/* LOCAL has room for so many connections to one transport, and for so many senders. */
static void most(void)
{
    static uint8_t memory[2][LEN];
    dt_options options = test_options();
    dt_transport *target, *us;
    char name[32];
    size_t n, senders = 0;
    CHECK_OK(dt_create(memory[0], 1, LEN, &options, &target));
    CHECK_OK(dt_create(memory[1], 1, LEN, &options, &us));
    struct blob blob = blob_of(target);
    for (int i = 0; i < MOST_CONNECTIONS; i++) {
        snprintf(name, sizeof name, "%d", i);
        CHECK_OK(dt_import_handshake(us, name, blob.bytes, blob.len));
    }
    CHECK_STATUS(dt_import_handshake(us, "one more", blob.bytes, blob.len), DT_ERR_NO_MEMORY);
    CHECK(strstr(dt_last_error(), "1023") != NULL);
    CHECK_STATUS(dt_peer_status(us, "one more"), DT_ERR_NOT_FOUND);
    CHECK_OK(dt_remove_remote_peer(us, "500"));
    CHECK_OK(dt_import_handshake(us, "one more", blob.bytes, blob.len));
    CHECK_OK(dt_close(us, BOUND_MS));
    dt_destroy(us);

    /* Each sender is a transport. */
    static dt_transport *each[MOST_SENDERS + 1];
    for (; senders <= MOST_SENDERS; senders++) {
        CHECK_OK(dt_create(memory[1], 1, LEN, &options, &each[senders]));
        CHECK_OK(dt_import_handshake(each[senders], "target", blob.bytes, blob.len));
        dt_status status = dt_send_notif(each[senders], "target", &senders, sizeof senders);
        if (senders < MOST_SENDERS) {
            CHECK_OK(status);
        } else {
            CHECK_STATUS(status, DT_ERR_BUSY);
            CHECK(strstr(dt_last_error(), "1021") != NULL);
        }
    }
    /* One that leaves makes room, when its message has been taken. */
    CHECK_OK(dt_close(each[0], BOUND_MS));
    for (size_t have = 0; have < MOST_SENDERS; have += n) {
        dt_notif got[64];
        uint8_t arena[8192];
        size_t used;
        CHECK_OK(dt_get_new_notifs(target, got, 64, arena, sizeof arena, &n, &used));
        CHECK(n > 0);
    }
    CHECK_OK(dt_send_notif(each[MOST_SENDERS], "target", "m", 1));
    for (size_t i = 0; i < senders; i++)
        dt_destroy(each[i]);
    CHECK_OK(dt_close(target, BOUND_MS));
    dt_destroy(target);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"peers", peers_role}, {NULL, NULL}};
    child_main(argc, argv, roles);
    /* With NIXL each takes a tenth of a second and megabytes; $DT_TEST_PEERS says otherwise. */
    uint32_t peers = on_nixl() ? 40 : 1000;
    const char *wanted = getenv("DT_TEST_PEERS");
    if (wanted != NULL)
        peers = (uint32_t)atoi(wanted);
    CHECK(peers > 0 && peers <= MOST);
    rlim_t files = raise_limit();
    if (!on_nixl() && files < 12 * 1024) {
        char text[128];
        snprintf(text, sizeof text, "1000 peers need 12288 file descriptors, but the limit is %llu",
                 (unsigned long long)files);
        test_skipped(text);
        return 0;
    }
    hub_with(peers);
    if (!on_nixl())
        most();
    return 0;
}
