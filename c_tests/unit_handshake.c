/* dt_export_handshake and dt_import_handshake: round trip, damage, forgery, and nodes that do not fit
 * together. The format is in src/handshake.rs. */
#include <string.h>

#include "../examples/sha256.h"
#include "unit_pair.h"

#define NUM 16
#define LEN 256

/* Where the fields are. */
enum {
    AT_VERSION = 8,
    AT_LENGTH = 12,
    AT_BACKEND = 20,
    AT_BASE = 24,
    AT_BLOCKS = 32,
    AT_BLOCK_LEN = 40,
    AT_FINGERPRINT_LEN = 48,
    AT_FINGERPRINT = 49,
    DIGEST = 32
};

struct blob {
    uint8_t bytes[65536];
    size_t len;
};

static struct side ours;

static void export_from(const struct side *side, struct blob *blob)
{
    uint8_t *poisoned = (uint8_t *)malloc(sizeof blob->bytes);
    size_t len = 77;
    CHECK(poisoned != NULL);
    CHECK_STATUS(dt_export_handshake(side->t, NULL, 0, &blob->len), DT_ERR_BUFFER_TOO_SMALL);
    CHECK(blob->len > 0 && blob->len < sizeof blob->bytes);
    memset(poisoned, 0xee, sizeof blob->bytes);
    CHECK_STATUS(dt_export_handshake(side->t, poisoned, blob->len - 1, &len),
                 DT_ERR_BUFFER_TOO_SMALL);
    CHECK(len == blob->len && poisoned[0] == 0xee);
    CHECK_OK(dt_export_handshake(side->t, poisoned, blob->len, &len));
    CHECK(len == blob->len && poisoned[len] == 0xee);
    /* The same on every call. */
    CHECK_OK(dt_export_handshake(side->t, blob->bytes, sizeof blob->bytes, &len));
    CHECK(len == blob->len && memcmp(blob->bytes, poisoned, len) == 0);
    free(poisoned);
}

/* Nothing stays of what is refused. The copy is of just this size: a look beyond it would be seen. */
static void refused(const void *bytes, size_t len, dt_status status, const char *const words[])
{
    uint8_t *copy = (uint8_t *)malloc(len > 0 ? len : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, len);
    CHECK_STATUS(dt_import_handshake(ours.t, "peer", copy, len), status);
    for (; *words != NULL; words++) {
        if (strstr(dt_last_error(), *words) == NULL) {
            fprintf(stderr, "there is no \"%s\" in: %s\n", *words, dt_last_error());
            exit(1);
        }
    }
    CHECK_STATUS(dt_peer_status(ours.t, "peer"), DT_ERR_NOT_FOUND);
    CHECK(side_stats(&ours).peers == 0);
    free(copy);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* One blob over any channel is all that it takes to reach a peer. */
static void round_trip(const struct side *theirs)
{
    static struct blob blob;
    dt_completion completion;
    dt_xfer_id id = 0;
    const struct pair pair = {ours, *theirs};
    export_from(theirs, &blob);
    CHECK_OK(dt_import_handshake(ours.t, "peer", blob.bytes, blob.len));
    CHECK_OK(dt_peer_status(ours.t, "peer"));
    pair_fill(&pair, 1);
    CHECK_OK(dt_write_blocks(ours.t, "peer", (uint32_t[]){2}, (uint32_t[]){NUM - 1}, 1, 9, &id));
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(theirs, NUM - 1, 3));
    id = pair_read(&pair, 4, 0);
    CHECK(pair_end(&pair, id) == DT_XFER_DONE);
    CHECK(side_block_is(&ours, 0, 5));
    CHECK_OK(dt_release_xfer(ours.t, id));

    /* A second time it is a new registration, and a bad blob does not harm it. */
    uint64_t deadline = now_ms() + BOUND_MS;
    dt_status status;
    while ((status = dt_import_handshake(ours.t, "peer", blob.bytes, blob.len)) == DT_ERR_BUSY &&
           now_ms() < deadline)
        pair_poll(&pair);
    CHECK_OK(status);
    CHECK(side_stats(&ours).peers == 1);
    CHECK_STATUS(dt_import_handshake(ours.t, "peer", blob.bytes, blob.len - 1), DT_ERR_INVALID_ARG);
    CHECK_OK(dt_peer_status(ours.t, "peer"));
    CHECK_OK(dt_remove_remote_peer(ours.t, "peer"));
}

static void damaged(const struct blob *blob)
{
    static struct blob bent;
    for (size_t len = 0; len < blob->len; len++)
        refused(blob->bytes, len, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    bent = *blob;
    bent.bytes[bent.len] = 0;
    refused(bent.bytes, bent.len + 1, DT_ERR_INVALID_ARG, WORDS("bytes"));
    for (size_t at = 0; at < blob->len; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bent.bytes[at] = (uint8_t)(blob->bytes[at] ^ 1 << bit);
            refused(bent.bytes, blob->len, DT_ERR_INVALID_ARG, WORDS("\"peer\""));
        }
        bent.bytes[at] = blob->bytes[at];
    }
    refused("garbage", 7, DT_ERR_INVALID_ARG, WORDS("no handshake blob"));
}

/* ---- forgery: the check sum fits ---- */

static void seal(struct blob *blob)
{
    char hex[65];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, blob->bytes, blob->len - DIGEST);
    sha256_hex(&hash, hex);
    for (size_t i = 0; i < DIGEST; i++) {
        unsigned byte;
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        blob->bytes[blob->len - DIGEST + i] = (uint8_t)byte;
    }
}

/* `size` bytes at `at` say `value`, and the rest is as it was. */
static void forged(const struct blob *blob, size_t at, int size, uint64_t value, dt_status status,
                   const char *const words[])
{
    static struct blob bent;
    bent = *blob;
    for (int i = 0; i < size; i++)
        bent.bytes[at + (size_t)i] = (uint8_t)(value >> 8 * i);
    seal(&bent);
    refused(bent.bytes, bent.len, status, words);
}

static void forgeries(const struct side *theirs, const struct blob *blob)
{
    uint64_t base = dt_base_addr(theirs->t);
    const char *here = on_nixl() ? "NIXL here" : "LOCAL here";
    const char *there = on_nixl() ? "LOCAL there" : "NIXL there";
    forged(blob, AT_VERSION, 4, 2, DT_ERR_INCOMPATIBLE,
           WORDS("newer library", "format 2", "reads 1"));
    forged(blob, AT_VERSION, 4, 0, DT_ERR_INVALID_ARG, WORDS("format 0"));
    forged(blob, AT_BACKEND, 4, on_nixl() ? 1 : 2, DT_ERR_INCOMPATIBLE,
           WORDS("backend is", there, here));
    forged(blob, AT_BACKEND, 4, 3, DT_ERR_INVALID_ARG, WORDS("backend 3"));
    forged(blob, AT_BLOCK_LEN, 8, LEN / 2, DT_ERR_INCOMPATIBLE,
           WORDS("block_len is 128 there", "256 here"));
    forged(blob, AT_BLOCK_LEN, 8, 0, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    /* More than the metadata speaks of. */
    forged(blob, AT_BLOCKS, 8, NUM + 1, DT_ERR_INCOMPATIBLE, WORDS("\"peer\""));
    forged(blob, AT_BLOCKS, 8, 0, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_BLOCKS, 8, UINT64_MAX, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_BASE, 8, base - 1, DT_ERR_INCOMPATIBLE, WORDS("\"peer\""));
    forged(blob, AT_BASE, 8, base + 1, DT_ERR_INCOMPATIBLE, WORDS("\"peer\""));
    forged(blob, AT_BASE, 8, 0, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_BASE, 8, UINT64_MAX - 255, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_FINGERPRINT_LEN, 1, 15, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_FINGERPRINT_LEN, 1, 255, DT_ERR_INVALID_ARG, WORDS("handshake blob"));
    forged(blob, AT_FINGERPRINT, 1, 'A', DT_ERR_INVALID_ARG, WORDS("fingerprint"));
    forged(blob, AT_LENGTH, 8, UINT64_MAX, DT_ERR_INVALID_ARG, WORDS("18446744073709551615"));
    size_t at_metadata = AT_FINGERPRINT + 16;
    forged(blob, at_metadata, 8, UINT64_MAX, DT_ERR_INVALID_ARG, WORDS("agent metadata"));
    forged(blob, at_metadata, 8, blob->len - DIGEST - at_metadata - 9, DT_ERR_INVALID_ARG,
           WORDS("1 bytes behind its last field"));
}

/* ---- real nodes ---- */

static struct side open_with_config(const char *config)
{
    dt_options options = test_options();
    options.config_json = config;
    return side_open_with(NUM, LEN, options);
}

static void models(void)
{
    static struct blob blob;
    struct side other = open_with_config("{\"model\": \"b\"}");
    struct side silent = open_with_config(NULL);
    const char *own = dt_config_fingerprint(ours.t);
    CHECK(strlen(own) == 16);
    export_from(&other, &blob);
    refused(blob.bytes, blob.len, DT_ERR_INCOMPATIBLE,
            WORDS("fingerprint", own, dt_config_fingerprint(other.t)));
    /* Who makes no statement goes with everybody, either way. */
    round_trip(&silent);
    struct side mine = ours;
    export_from(&other, &blob);
    ours = silent;
    CHECK_OK(dt_import_handshake(ours.t, "peer", blob.bytes, blob.len));
    CHECK_OK(dt_remove_remote_peer(ours.t, "peer"));
    ours = mine;
    side_close(&other);
    side_close(&silent);
}

static void sizes(void)
{
    static struct blob blob;
    struct side other = side_open(NUM, 2 * LEN);
    export_from(&other, &blob);
    refused(blob.bytes, blob.len, DT_ERR_INCOMPATIBLE,
            WORDS("block_len is 512 there", "256 here"));
    side_close(&other);
    /* The number of blocks need not agree. */
    other = side_open(NUM / 2, LEN);
    export_from(&other, &blob);
    CHECK_OK(dt_import_handshake(ours.t, "peer", blob.bytes, blob.len));
    dt_xfer_id id;
    CHECK_STATUS(dt_post_read(ours.t, "peer", (uint32_t[]){0}, (uint32_t[]){NUM / 2}, 1, NULL, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_OK(dt_remove_remote_peer(ours.t, "peer"));
    side_close(&other);
}

static void backends(void)
{
    static struct blob blob;
    if (!on_nixl()) /* then there may be no NIXL; the forgeries have this case */
        return;
    dt_options options = test_options();
    options.backend = DT_BACKEND_LOCAL;
    struct side local = side_open_with(NUM, LEN, options);
    export_from(&local, &blob);
    refused(blob.bytes, blob.len, DT_ERR_INCOMPATIBLE, WORDS("LOCAL there", "NIXL here"));
    side_close(&local);
}

int main(void)
{
    static struct blob blob;
    ours = open_with_config("{\"model\": \"a\"}");
    struct side theirs = open_with_config("{\"model\":\"a\"}");
    round_trip(&theirs);
    export_from(&theirs, &blob);
    damaged(&blob);
    forgeries(&theirs, &blob);
    models();
    sizes();
    backends();
    round_trip(&theirs);
    side_close(&ours);
    side_close(&theirs);
    return 0;
}
