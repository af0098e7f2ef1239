/* dt_last_error: one sentence per thread, as long as the thread lives. */
#include <pthread.h>
#include <string.h>

#include "unit_pair.h"

static pthread_barrier_t both;

static void *fail_otherwise(void *arg)
{
    char out[17];
    (void)arg;
    CHECK(strcmp(dt_last_error(), "") == 0);
    pthread_barrier_wait(&both);
    CHECK_STATUS(dt_compute_fingerprint("[", out), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "transport") == NULL);
    pthread_barrier_wait(&both);
    return NULL;
}

static void each_thread_has_its_own(void)
{
    pthread_t thread;
    char before[512], out[17];
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, fail_otherwise, NULL) == 0);
    CHECK_STATUS(dt_close(NULL, 0), DT_ERR_INVALID_ARG);
    const char *sentence = dt_last_error();
    CHECK(strlen(sentence) < sizeof before);
    memcpy(before, sentence, strlen(sentence) + 1);
    CHECK(strstr(before, "transport") != NULL);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(sentence, before) == 0);

    /* A success leaves it, the next failure replaces it. */
    CHECK_OK(dt_compute_fingerprint(NULL, out));
    CHECK(strcmp(dt_last_error(), before) == 0);
    CHECK_STATUS(dt_compute_fingerprint("[", out), DT_ERR_INVALID_ARG);
    CHECK(strcmp(dt_last_error(), before) != 0);
}

static bool is_utf8(const char *text)
{
    char json[2048], out[17];
    /* The library knows what UTF-8 is: such a text is a string in JSON. */
    size_t n = 0;
    json[n++] = '{';
    json[n++] = '"';
    for (; *text != 0; text++)
        if (*text != '"' && *text != '\\')
            json[n++] = *text;
    memcpy(json + n, "\":1}", 5);
    return dt_compute_fingerprint(json, out) == DT_OK;
}

/* Whatever the caller's names are: one line, shorter than 512 bytes, whole characters. */
static void a_sentence_is_one_short_line(void)
{
    struct pair pair = pair_open(1, 64);
    static const char *const pieces[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n",
                                         "\r\t\x1b"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t shift = 0; shift < 4; shift++) {
            char id[1000];
            size_t n = 0, piece = strlen(pieces[i]);
            while (n < shift)
                id[n++] = 'a';
            while (n + piece < sizeof id)
                memcpy(id + n, pieces[i], piece), n += piece;
            id[n] = 0;
            CHECK_STATUS(dt_peer_status(pair.ours.t, id), DT_ERR_NOT_FOUND);
            const char *sentence = dt_last_error();
            CHECK(strlen(sentence) < 512);
            CHECK(strstr(sentence, "is not registered") != NULL);
            for (const char *c = sentence; *c != 0; c++)
                CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
            CHECK(is_utf8(sentence));
        }
    }
    pair_close(&pair);
}

static struct pair shared;
static int ended;

static void take(dt_log_level level, const char *message, void *user)
{
    (void)level, (void)message, (void)user;
}

static void at_the_end(void *arg)
{
    dt_completion completion;
    size_t n;
    (void)arg;
    CHECK(strstr(dt_last_error(), "before") != NULL);
    CHECK_STATUS(dt_peer_status(shared.ours.t, "nobody"), DT_ERR_NOT_FOUND);
    CHECK(strstr(dt_last_error(), "nobody") != NULL);
    /* A transfer has something to tell. */
    pair_write(&shared, 0, 0);
    pair_collect(&shared, NULL, &completion, 1);
    CHECK_OK(dt_poll(shared.ours.t, NULL, &completion, 1, &n));
    pair_close_ours(&shared);
    dt_destroy(shared.ours.t);
    ended++;
}

static pthread_key_t key;

static void *call_while_ending(void *arg)
{
    (void)arg;
    CHECK_STATUS(dt_peer_status(shared.ours.t, "before"), DT_ERR_NOT_FOUND);
    CHECK(pthread_setspecific(key, &key) == 0);
    return NULL;
}

/* Destructors of the caller's thread-local data run when those of the library have run. */
static void a_thread_may_call_while_it_ends(void)
{
    pthread_t thread;
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    dt_set_log_callback(take, NULL, DT_LOG_DEBUG);
    shared = pair_open(1, 64);
    CHECK(pthread_create(&thread, NULL, call_while_ending, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ended == 1);
    free(shared.ours.base);
    side_close(&shared.peer);
}

int main(void)
{
    CHECK(strcmp(dt_last_error(), "") == 0);
    each_thread_has_its_own();
    a_sentence_is_one_short_line();
    a_thread_may_call_while_it_ends();
    return 0;
}
