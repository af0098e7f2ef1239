/* dt_compute_fingerprint, dt_fingerprints_compatible, and the fingerprint of a transport. */
#include <string.h>

#include "unit_pair.h"

static const char golden_json[] = "{\"model\": \"m/\xc3\xa9\",\"dtype\": \"bfloat16\","
                                  "\"block_size\": 16,\"x\": {\"b\": 1, \"a\": [1.5, null]}}";
static const char golden[] = "b38181f3b0d6952d";

int main(void)
{
    char out[18];

    /* 17 bytes, and none behind them. */
    memset(out, 'x', sizeof out);
    CHECK_OK(dt_compute_fingerprint(golden_json, out));
    CHECK(memcmp(out, golden, 17) == 0 && out[17] == 'x');

    /* Nothing is known: the empty fingerprint. */
    memset(out, 'x', sizeof out);
    CHECK_OK(dt_compute_fingerprint(NULL, out));
    CHECK(strcmp(out, "") == 0);
    memset(out, 'x', sizeof out);
    CHECK_OK(dt_compute_fingerprint(" { } ", out));
    CHECK(strcmp(out, "") == 0);

    /* What is refused writes nothing, and the sentence is about it. */
    static const char *const bad[] = {"", "[1]", "{\"a\":}", "{\"a\":1} x", "{\"a\":\"\xff\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(out, 'x', sizeof out);
        CHECK_STATUS(dt_compute_fingerprint(bad[i], out), DT_ERR_INVALID_ARG);
        CHECK(out[0] == 'x' && out[17] == 'x');
        CHECK(strlen(dt_last_error()) > 10);
    }
    CHECK_STATUS(dt_compute_fingerprint(golden_json, NULL), DT_ERR_INVALID_ARG);

    CHECK(dt_fingerprints_compatible(golden, golden));
    CHECK(dt_fingerprints_compatible(golden, ""));
    CHECK(dt_fingerprints_compatible("", golden));
    CHECK(dt_fingerprints_compatible("", ""));
    CHECK(dt_fingerprints_compatible(NULL, golden));
    CHECK(dt_fingerprints_compatible(golden, NULL));
    CHECK(!dt_fingerprints_compatible(golden, "b38181f3b0d6952e"));
    CHECK(!dt_fingerprints_compatible(golden, "b38181f3b0d6952"));
    CHECK(!dt_fingerprints_compatible(golden, "\xff"));

    /* A transport has the same one. */
    static uint8_t region[4096];
    dt_options options = test_options();
    dt_transport *t = NULL;
    options.config_json = golden_json;
    CHECK_OK(dt_create(region, 4, 1024, &options, &t));
    CHECK(strcmp(dt_config_fingerprint(t), golden) == 0);
    CHECK_OK(dt_close(t, BOUND_MS));
    CHECK(strcmp(dt_config_fingerprint(t), golden) == 0);
    dt_destroy(t);

    options.config_json = "[]";
    CHECK_STATUS(dt_create(region, 4, 1024, &options, &t), DT_ERR_INVALID_ARG);
    return 0;
}
