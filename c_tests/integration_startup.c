/* Eight processes make two transports each at the same moment, again and again: all of them start, and
 * each reaches the next. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define PROCESSES 8
#define BLOCKS 4
#define LEN 4096

/* ---- one of them ---- */

static void *open_one(void *node)
{
    *(struct node *)node = node_open(MEMORY_ALLOC, BLOCKS, LEN);
    return NULL;
}

static void open_both(struct node nodes[2])
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, open_one, &nodes[1]) == 0);
    open_one(&nodes[0]);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void write_block(const struct node *node, const char *peer_id, uint32_t from, uint32_t to)
{
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(node->transport, peer_id, &from, &to, 1, 0, &id));
    CHECK(node_finish(node, peer_id, id).status == DT_OK);
}

static void starter_role(int socket)
{
    uint64_t seeds[2]; /* ours, and that of the one before us */
    char event;
    message_receive(socket, seeds, sizeof seeds);
    for (;;) {
        struct node nodes[2];
        struct card next;
        message_receive(socket, &event, 1);
        if (event == 'q')
            return;
        open_both(nodes);
        for (int i = 0; i < 2; i++)
            node_fill(&nodes[i], seeds[0]);
        struct card cards[2] = {node_card(&nodes[0]), node_card(&nodes[1])};
        message_send(socket, &cards[0], sizeof cards[0]);
        CHECK_OK(node_add(&nodes[0], "other", &cards[1]));
        write_block(&nodes[0], "other", 0, 2);
        message_receive(socket, &next, sizeof next);
        CHECK_OK(node_add(&nodes[1], "next", &next));
        write_block(&nodes[1], "next", 1, 3);
        event_send(socket, 'w');
        event_expect(socket, 'c');
        struct content own = {seeds[0], 0}, come = {seeds[1], 1};
        CHECK(pattern_mismatch(node_block(&nodes[1], 2), LEN, own) < 0);
        CHECK(pattern_mismatch(node_block(&nodes[0], 3), LEN, come) < 0);
        for (int i = 0; i < 2; i++)
            node_close(&nodes[i]);
        event_send(socket, 'e');
    }
}

/* ---- the test ---- */

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"starter", starter_role}, {NULL, NULL}};
    static struct card cards[PROCESSES];
    struct child children[PROCESSES];
    const int rounds = on_nixl() ? 3 : 30;
    child_main(argc, argv, roles);

    for (uint64_t i = 0; i < PROCESSES; i++) {
        uint64_t seeds[2] = {100 + i, 100 + (i + PROCESSES - 1) % PROCESSES};
        children[i] = child_start("starter");
        message_send(children[i].socket, seeds, sizeof seeds);
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < PROCESSES; i++)
            event_send(children[i].socket, 'g');
        for (int i = 0; i < PROCESSES; i++)
            message_receive(children[i].socket, &cards[i], sizeof cards[i]);
        for (int i = 0; i < PROCESSES; i++)
            message_send(children[i].socket, &cards[(i + 1) % PROCESSES], sizeof cards[0]);
        for (int i = 0; i < PROCESSES; i++)
            event_expect(children[i].socket, 'w');
        for (int i = 0; i < PROCESSES; i++)
            event_send(children[i].socket, 'c');
        for (int i = 0; i < PROCESSES; i++)
            event_expect(children[i].socket, 'e');
    }
    for (int i = 0; i < PROCESSES; i++)
        event_send(children[i].socket, 'q');
    for (int i = 0; i < PROCESSES; i++)
        child_expect_success(&children[i]);
    return 0;
}
