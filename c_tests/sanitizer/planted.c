/* Faults that a sanitizer must find, or it is not at work. The library does what is wrong, on bytes of
 * ours, wherever it can. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit_pair.h"

/* The compiler must not see what comes. */
static void *volatile hidden;

static void read_beyond(void)
{
    struct pair pair = pair_open(4, 64);
    uint32_t *idxs = calloc(2, sizeof *idxs);
    dt_xfer_id id;
    dt_write_blocks(pair.ours.t, "peer", idxs, idxs, 3, 0, &id);
}

static void read_freed(void)
{
    struct pair pair = pair_open(4, 64);
    dt_xfer_id id;
    hidden = calloc(2, sizeof(uint32_t));
    uint32_t *idxs = hidden;
    free(hidden);
    dt_write_blocks(pair.ours.t, "peer", idxs, idxs, 2, 0, &id);
}

static void write_beyond(void)
{
    struct pair pair = pair_open(4, 64);
    size_t len = 0;
    CHECK(dt_get_agent_metadata(pair.ours.t, NULL, 0, &len) == DT_ERR_BUFFER_TOO_SMALL);
    dt_get_agent_metadata(pair.ours.t, malloc(len - 1), len, &len);
}

/* Of the program. Nothing else refers to what it loses. */
static void lose_memory(void)
{
    hidden = malloc(4321);
    hidden = NULL;
}

/* Of the library: a transport that nobody destroys. */
static void lose_transport(void)
{
    static uint8_t region[64];
    dt_options options = test_options();
    dt_transport *t;
    CHECK_OK(dt_create(region, 1, sizeof region, &options, &t));
    hidden = t;
    CHECK_OK(dt_close(hidden, BOUND_MS));
    hidden = t = NULL;
}

static int overflow(int a)
{
    hidden = &a;
    return *(int *)hidden + 2147483647;
}

/* Two threads, of which one is inside the library: neither knows of the other. */
static uint32_t shared[1 << 16];

static void *submit(void *arg)
{
    struct pair *pair = arg;
    dt_xfer_id id;
    dt_write_blocks(pair->ours.t, "peer", shared, shared, sizeof shared / sizeof *shared, 0, &id);
    return NULL;
}

static void race(void)
{
    struct pair pair = pair_open(4, 64);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, submit, &pair) == 0);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        ((uint32_t volatile *)shared)[i] = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "read_beyond") == 0)
        read_beyond();
    else if (strcmp(what, "read_freed") == 0)
        read_freed();
    else if (strcmp(what, "write_beyond") == 0)
        write_beyond();
    else if (strcmp(what, "lose_memory") == 0)
        lose_memory();
    else if (strcmp(what, "lose_transport") == 0)
        lose_transport();
    else if (strcmp(what, "overflow") == 0)
        printf("%d\n", overflow(argc));
    else if (strcmp(what, "race") == 0)
        race();
    else
        return 2;
    return 0;
}
