/* What a peer that is gone, and calls that are refused again and again, leave in the log: a handful of
 * lines that name the peer, however long it is asked for. */
#include <stdlib.h>
#include <string.h>

#include "dt_time.h"
#include "logbook.h"
#include "node.h"

enum { BLOCKS = 16, LEN = 65536, IN_FLIGHT = 64, ROUNDS = 3000, HANDFUL = 6 };

static unsigned lines, naming;

static void count(dt_log_level level, const char *message, void *user)
{
    (void)user;
    CHECK(level == DT_LOG_WARN || level == DT_LOG_ERROR);
    lines++;
    naming += strstr(message, "\"victim\"") != NULL;
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {NODE_ROLES, {NULL, NULL}};
    child_main(argc, argv, roles);

    struct node node = node_open(MEMORY_ANONYMOUS, BLOCKS, LEN);
    struct remote victim = remote_simple(MEMORY_ANONYMOUS, BLOCKS, LEN, 0);
    uint32_t all[BLOCKS];
    dt_completion ended[IN_FLIGHT];
    dt_xfer_id id;
    size_t n = 0, lost = 0, in_flight = 0;
    for (uint32_t k = 0; k < BLOCKS; k++)
        all[k] = k;
    CHECK_OK(node_add(&node, "victim", &victim.card));
    CHECK_OK(dt_write_blocks(node.transport, "victim", all, all, 1, 0, &id));
    CHECK(node_finish(&node, "victim", id).status == DT_OK);

    dt_set_log_callback(count, NULL, DT_LOG_WARN);
    for (; in_flight < IN_FLIGHT; in_flight++)
        CHECK_OK(dt_write_blocks(node.transport, "victim", all, all, BLOCKS, 0, &id));
    remote_kill(&victim);
    for (size_t have = 0; have < IN_FLIGHT; have += n) {
        n = node_wait(&node, NULL, ended, IN_FLIGHT);
        CHECK(n > 0);
        for (size_t k = 0; k < n; k++)
            lost += ended[k].status != DT_OK;
    }
    for (int round = 0; round < ROUNDS; round++) {
        dt_status status = dt_write_blocks(node.transport, "victim", all, all, BLOCKS, 0, &id);
        CHECK(status == DT_OK || status == DT_ERR_PEER_LOST);
        CHECK_OK(dt_poll(node.transport, NULL, ended, IN_FLIGHT, &n));
        dt_send_notif(node.transport, "victim", "m", 1);
    }
    CHECK_STATUS(dt_peer_status(node.transport, "victim"), DT_ERR_PEER_LOST);
    CHECK(lines >= 1 && lines <= HANDFUL && naming == lines);
    printf("%zu of %d transfers lost, %u lines\n", lost, IN_FLIGHT, lines);
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
    node_close(&node);
    return 0;
}
