/* A transport in a forked child: refused there, unharmed here. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_self.h"

static void every_call_is_refused(struct self *self)
{
    dt_transport *t = self->t;
    uint8_t bytes[64];
    uint32_t index = 0;
    dt_completion completion;
    dt_stats stats;
    dt_xfer_id id = 7;
    size_t n = 77;
    stats.struct_size = sizeof stats;
    CHECK_STATUS(dt_close(t, 0), DT_ERR_FORKED);
    CHECK_STATUS(dt_get_agent_metadata(t, bytes, sizeof bytes, &n), DT_ERR_FORKED);
    CHECK_STATUS(dt_add_remote_peer(t, "p", bytes, 8, 4096, 1, 64), DT_ERR_FORKED);
    CHECK_STATUS(dt_remove_remote_peer(t, "self"), DT_ERR_FORKED);
    CHECK_STATUS(dt_peer_status(t, "self"), DT_ERR_FORKED);
    CHECK_STATUS(dt_write_blocks(t, "self", &index, &index, 1, 0, &id), DT_ERR_FORKED);
    CHECK_STATUS(dt_read_blocks(t, "self", &index, &index, 1, 0, &id), DT_ERR_FORKED);
    CHECK_STATUS(dt_poll(t, NULL, &completion, 1, &n), DT_ERR_FORKED);
    CHECK_STATUS(dt_wait(t, NULL, &completion, 1, BOUND_MS, &n), DT_ERR_FORKED);
    CHECK_STATUS(dt_cancel(t, &id, 1, DT_CANCEL_IMMEDIATE, NULL, NULL), DT_ERR_FORKED);
    CHECK_STATUS(dt_get_stats(t, &stats), DT_ERR_FORKED);
    CHECK(strstr(dt_last_error(), "fork") != NULL);
    CHECK(dt_num_blocks(t) == 4);
    CHECK(n == 77 && id == 7);
}

int main(void)
{
    struct self self = self_open(4, (size_t)4 << 20);
    dt_completion completion;
    dt_xfer_id id = self_write(&self, 0, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        every_call_is_refused(&self);
        dt_destroy(self.t);
        /* The child has transports of its own. */
        struct self own = self_open(4, 64);
        self_write(&own, 0, 1);
        self_collect(&own, NULL, &completion, 1);
        CHECK(completion.status == DT_OK && self_block_is(&own, 1, 1));
        self_close(&own);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* The parent's transfer goes on. */
    CHECK_OK(dt_peer_status(self.t, "self"));
    self_collect(&self, "self", &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(self_block_is(&self, 1, 1));
    self_close(&self);
    return 0;
}
