/* A transport in a forked child: refused there, unharmed here. */
#include <sys/wait.h>
#include <unistd.h>

#include "procfs.h"
#include "refused.h"
#include "unit_pair.h"

/* When the parent has closed all that it had, its children are as good as it is. */
static void a_child_of_an_idle_process(void)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct pair own = pair_open(4, 64);
        dt_completion completion;
        pair_write(&own, 0, 1);
        pair_collect(&own, NULL, &completion, 1);
        CHECK(completion.status == DT_OK && side_block_is(&own.peer, 1, 1));
        pair_close(&own);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
    long fds = holdings_now().fds;
    struct pair pair = pair_open(4, (size_t)4 << 20);
    dt_completion completion;
    dt_xfer_id id = pair_write(&pair, 0, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        expect_all_refused(pair.ours.t, DT_ERR_FORKED, "fork");
        CHECK(dt_num_blocks(pair.ours.t) == 4);
        dt_destroy(pair.ours.t);
        dt_destroy(pair.peer.t);
        /* Of NIXL's transports the child has sockets that it must not touch. */
        CHECK(on_nixl() || holdings_now().fds == fds);
        if (on_nixl()) {
            /* UCX does not outlive a fork: then there is a sentence, and no hang. */
            static uint8_t region[4096];
            dt_options options = test_options();
            dt_transport *t = NULL;
            CHECK_STATUS(dt_create(region, 1, sizeof region, &options, &t), DT_ERR_UNAVAILABLE);
            CHECK(strstr(dt_last_error(), "forked") != NULL);
            exit(0);
        }
        /* The child has transports of its own. */
        struct pair own = pair_open(4, 64);
        pair_write(&own, 0, 1);
        pair_collect(&own, NULL, &completion, 1);
        CHECK(completion.status == DT_OK && side_block_is(&own.peer, 1, 1));
        pair_close(&own);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* The parent's transfer goes on. */
    CHECK_OK(dt_peer_status(pair.ours.t, "peer"));
    pair_collect(&pair, "peer", &completion, 1);
    CHECK(completion.id == id && completion.status == DT_OK);
    CHECK(side_block_is(&pair.peer, 1, 1));
    pair_close(&pair);
    CHECK(on_nixl() || holdings_now().fds == fds);
    if (on_nixl())
        a_child_of_an_idle_process();
    return 0;
}
