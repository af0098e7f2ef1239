/* dt_add_remote_peer, dt_remove_remote_peer, dt_peer_status. */
#include <string.h>

#include "unit_self.h"

static uint8_t metadata[65536];
static size_t len;

static dt_status add(const struct self *self, uint64_t base, size_t num, size_t block_len)
{
    return dt_add_remote_peer(self->t, "p", metadata, len, base, num, block_len);
}

int main(void)
{
    struct self self = self_open(8, 64);
    const uint64_t base = dt_base_addr(self.t);
    dt_completion completions[4];
    dt_xfer_id id;
    size_t n = 77;
    CHECK_OK(dt_get_agent_metadata(self.t, metadata, sizeof metadata, &len));

    CHECK_STATUS(dt_peer_status(self.t, "p"), DT_ERR_NOT_FOUND);
    CHECK(strstr(dt_last_error(), "\"p\"") != NULL);
    CHECK_STATUS(dt_remove_remote_peer(self.t, "p"), DT_ERR_NOT_FOUND);

    CHECK_STATUS(add(&self, base, 8, 32), DT_ERR_INCOMPATIBLE);
    CHECK(strstr(dt_last_error(), "32") != NULL && strstr(dt_last_error(), "64") != NULL);
    CHECK_STATUS(add(&self, base, 9, 64), DT_ERR_INCOMPATIBLE);
    CHECK_STATUS(add(&self, base - 64, 8, 64), DT_ERR_INCOMPATIBLE);
    CHECK_STATUS(dt_add_remote_peer(self.t, "p", "garbage", 7, base, 8, 64), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_add_remote_peer(self.t, "p", metadata, len - 1, base, 8, 64),
                 DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_peer_status(self.t, "p"), DT_ERR_NOT_FOUND);
    CHECK(self_stats(&self).peers == 1);

    CHECK_OK(add(&self, base, 8, 64));
    CHECK_OK(dt_peer_status(self.t, "p"));
    CHECK(self_stats(&self).peers == 2);

    /* Added again over a part of the region: block 0 of the peer is block 4 of ours. */
    CHECK_OK(add(&self, base + 4 * 64, 4, 64));
    CHECK(self_stats(&self).peers == 2);
    CHECK_STATUS(dt_write_blocks(self.t, "p", (uint32_t[]){0}, (uint32_t[]){4}, 1, 0, &id),
                 DT_ERR_OUT_OF_RANGE);
    CHECK_OK(dt_write_blocks(self.t, "p", (uint32_t[]){1}, (uint32_t[]){0}, 1, 9, &id));
    self_collect(&self, "p", completions, 1);
    CHECK(completions[0].id == id && completions[0].status == DT_OK);
    CHECK(self_block_is(&self, 4, 2));

    /* Removed with an id that was not reported: it surfaces once, under the name. */
    CHECK_OK(dt_write_blocks(self.t, "p", (uint32_t[]){1}, (uint32_t[]){1}, 1, 9, &id));
    CHECK_OK(dt_remove_remote_peer(self.t, "p"));
    CHECK_STATUS(dt_peer_status(self.t, "p"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_remove_remote_peer(self.t, "p"), DT_ERR_NOT_FOUND);
    CHECK_STATUS(dt_write_blocks(self.t, "p", (uint32_t[]){1}, (uint32_t[]){1}, 1, 9, &id),
                 DT_ERR_NOT_FOUND);
    self_collect(&self, "p", completions, 1);
    CHECK(completions[0].id == id);
    CHECK(completions[0].status == DT_OK || completions[0].status == DT_ERR_CANCELLED);
    CHECK_OK(dt_poll(self.t, NULL, completions, 4, &n));
    CHECK(n == 0);

    /* The other peer has seen nothing of it. */
    CHECK_OK(dt_peer_status(self.t, "self"));
    CHECK(self_stats(&self).peers == 1);
    self_close(&self);
    return 0;
}
