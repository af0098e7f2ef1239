/* A transport in a forked child: refused there, unharmed here. */
#include <sys/wait.h>
#include <unistd.h>

#include "procfs.h"
#include "refused.h"
#include "unit_self.h"

int main(void)
{
    long fds = holdings_now().fds;
    struct self self = self_open(4, (size_t)4 << 20);
    dt_completion completion;
    dt_xfer_id id = self_write(&self, 0, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect_all_refused(self.t, DT_ERR_FORKED, "fork");
        CHECK(dt_num_blocks(self.t) == 4);
        dt_destroy(self.t);
        CHECK(holdings_now().fds == fds);
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
    CHECK(holdings_now().fds == fds);
    return 0;
}
