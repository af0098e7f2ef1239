/* Eight processes with two transports each. All are created at once, each transport adds all
 * sixteen, with LOCAL itself included, and writes one block to every one of them at the same time. */
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "dt_time.h"
#include "node.h"

#define PROCESSES 8
#define EACH 2
#define NODES (PROCESSES * EACH)
#define LEN 20000

/* Node i writes its own block NODES + j to block i of node j. */
#define BLOCKS (2 * NODES)

/* NIXL reaches other agents only. */
static bool can_reach(uint32_t from, uint32_t to)
{
    return !on_nixl() || from != to;
}

static void process(int socket)
{
    struct node nodes[EACH];
    struct card cards[NODES];
    uint32_t first;
    char peer_id[16];

    message_receive(socket, &first, sizeof first);
    for (uint32_t k = 0; k < EACH; k++) {
        nodes[k] = node_open(k == 0 ? MEMORY_ALLOC : MEMORY_ANONYMOUS, BLOCKS, LEN);
        node_fill(&nodes[k], 100 + first + k);
        struct card card = node_card(&nodes[k]);
        message_send(socket, &card, sizeof card);
    }
    message_receive(socket, cards, sizeof cards);
    for (uint32_t k = 0; k < EACH; k++) {
        for (uint32_t j = 0; j < NODES; j++) {
            snprintf(peer_id, sizeof peer_id, "node%u", j);
            if (!can_reach(first + k, j))
                continue;
            CHECK_OK(node_add(&nodes[k], peer_id, &cards[j]));
        }
    }
    for (uint32_t k = 0; k < EACH; k++) {
        uint32_t own = first + k;
        size_t submitted = 0, ended = 0;
        for (uint32_t j = 0; j < NODES; j++) {
            uint32_t from = NODES + j;
            dt_xfer_id id = 0;
            if (!can_reach(own, j))
                continue;
            submitted++;
            snprintf(peer_id, sizeof peer_id, "node%u", j);
            CHECK_OK(dt_write_blocks(nodes[k].transport, peer_id, &from, &own, 1, j, &id));
        }
        while (ended < submitted) {
            dt_completion got[NODES];
            size_t n = node_wait(&nodes[k], NULL, got, NODES);
            CHECK(n > 0);
            for (size_t i = 0; i < n; i++)
                CHECK(got[i].status == DT_OK && got[i].bytes == LEN);
            ended += n;
        }
        CHECK(ended == submitted);
    }
    event_send(socket, 'd');
    event_expect(socket, 'c'); /* all have written */
    for (uint32_t k = 0; k < EACH; k++) {
        struct content *want = contents_of(100 + first + k, BLOCKS);
        uint32_t source = NODES + first + k;
        for (uint32_t i = 0; i < NODES; i++)
            if (can_reach(i, first + k))
                contents_copy(want, &i, 100 + i, &source, 1);
        node_check(&nodes[k], want, NULL);
        free(want);
    }
    event_send(socket, 'o');
    event_expect(socket, 'e'); /* all have looked */
    for (uint32_t k = 0; k < EACH; k++)
        node_close(&nodes[k]);
}

static void round_of_all(void)
{
    struct child children[PROCESSES];
    static struct card cards[NODES];

    for (uint32_t i = 0; i < PROCESSES; i++) {
        uint32_t first = i * EACH;
        children[i] = child_start("process");
        message_send(children[i].socket, &first, sizeof first);
    }
    for (int i = 0; i < PROCESSES; i++)
        message_receive(children[i].socket, &cards[i * EACH], EACH * sizeof cards[0]);
    for (int i = 0; i < PROCESSES; i++)
        message_send(children[i].socket, cards, sizeof cards);
    for (int i = 0; i < PROCESSES; i++)
        event_expect(children[i].socket, 'd');
    for (int i = 0; i < PROCESSES; i++)
        event_send(children[i].socket, 'c');
    for (int i = 0; i < PROCESSES; i++)
        event_expect(children[i].socket, 'o');
    for (int i = 0; i < PROCESSES; i++)
        event_send(children[i].socket, 'e');
    for (int i = 0; i < PROCESSES; i++)
        child_expect_success(&children[i]);
}

int main(int argc, char **argv)
{
    static const struct role roles[] = {{"process", process}, {NULL, NULL}};
    child_main(argc, argv, roles);
    const int rounds = on_nixl() ? 1 : 5;
    for (int i = 0; i < rounds; i++) {
        uint64_t start = now_ms();
        round_of_all();
        printf("round %d: %llu ms\n", i, (unsigned long long)(now_ms() - start));
    }
    return 0;
}
