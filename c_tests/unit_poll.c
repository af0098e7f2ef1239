/* dt_poll and dt_wait: capacity, scope, order, time. */
#include <string.h>

#include "unit_self.h"

static dt_xfer_id write_to(const struct self *self, const char *peer_id, uint64_t user_data)
{
    uint32_t block = 0;
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(self->t, peer_id, &block, &block, 1, user_data, &id));
    return id;
}

/* Drives with no room for completions, until `count` transfers are done. */
static void drive(const struct self *self, uint64_t count)
{
    size_t n = 77;
    while (self_stats(self).done < count)
        CHECK_OK(dt_poll(self->t, NULL, NULL, 0, &n));
    CHECK(n == 77 || n == 0);
}

static void small_caps(const struct self *self)
{
    dt_completion buf[4];
    dt_xfer_id ids[5];
    size_t n = 77;
    uint64_t before = self_stats(self).done;
    for (uint64_t i = 0; i < 5; i++)
        ids[i] = write_to(self, "a", 100 + i);
    drive(self, before + 5);

    /* Two at a time, each one once, and not a byte beyond what is said. */
    bool seen[5] = {false};
    static const size_t expected[] = {2, 2, 1, 0};
    for (int round = 0; round < 4; round++) {
        memset(buf, 0xee, sizeof buf);
        CHECK_OK(dt_poll(self->t, "a", buf, 2, &n));
        CHECK(n == expected[round]);
        for (size_t i = 0; i < n; i++) {
            uint64_t which = buf[i].user_data - 100;
            CHECK(which < 5 && !seen[which] && buf[i].id == ids[which]);
            seen[which] = true;
        }
        for (const uint8_t *at = (const uint8_t *)(buf + n); at < (const uint8_t *)(buf + 4); at++)
            CHECK(*at == 0xee);
    }
}

static void scopes(const struct self *self)
{
    dt_completion buf[4];
    size_t n = 77;
    uint64_t before = self_stats(self).done;
    dt_xfer_id a = write_to(self, "a", 1), b = write_to(self, "b", 2);
    /* A poll for one peer drives the work of all. */
    while (self_stats(self).done < before + 2)
        CHECK_OK(dt_poll(self->t, "nobody", buf, 4, &n));
    CHECK_OK(dt_poll(self->t, "nobody", buf, 4, &n));
    CHECK(n == 0);
    CHECK_OK(dt_poll(self->t, "b", buf, 4, &n));
    CHECK(n == 1 && buf[0].id == b && buf[0].user_data == 2);
    CHECK_OK(dt_poll(self->t, "b", buf, 4, &n));
    CHECK(n == 0);
    CHECK_OK(dt_poll(self->t, NULL, buf, 4, &n));
    CHECK(n == 1 && buf[0].id == a && buf[0].user_data == 1);
}

static void waiting(const struct self *self)
{
    dt_completion buf[4];
    size_t n = 77;
    uint64_t start = now_ms();
    CHECK_OK(dt_wait(self->t, NULL, buf, 4, 50, &n));
    CHECK(n == 0);
    CHECK(now_ms() - start >= 49);

    n = 77;
    CHECK_OK(dt_wait(self->t, NULL, buf, 4, 0, &n));
    CHECK(n == 0);

    dt_xfer_id id = write_to(self, "a", 3);
    start = now_ms();
    CHECK_OK(dt_wait(self->t, "a", buf, 4, BOUND_MS, &n));
    CHECK(n == 1 && buf[0].id == id);
    CHECK(now_ms() - start < BOUND_MS / 2);

    /* Another peer's completion does not end the wait, and stays. */
    id = write_to(self, "a", 4);
    CHECK_OK(dt_wait(self->t, "b", buf, 4, 20, &n));
    CHECK(n == 0);
    CHECK_OK(dt_wait(self->t, NULL, NULL, 0, BOUND_MS, &n));
    CHECK(n == 0);
    CHECK_OK(dt_wait(self->t, NULL, buf, 4, BOUND_MS, &n));
    CHECK(n == 1 && buf[0].id == id);
}

int main(void)
{
    /* 4 MiB blocks: a transfer does not fit into the call that submits it. */
    static const size_t lengths[] = {64, 4 << 20};
    for (int i = 0; i < 2; i++) {
        struct self self = self_open(2, lengths[i]);
        CHECK_OK(self_add(&self, "a"));
        CHECK_OK(self_add(&self, "b"));
        small_caps(&self);
        scopes(&self);
        waiting(&self);
        CHECK(self_stats(&self).polls > 0);
        self_close(&self);
    }
    return 0;
}
