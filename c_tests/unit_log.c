/* dt_set_log_callback. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "unit_pair.h"

struct book {
    atomic_int messages;
    int max_level;
};

static struct book book, other;

static void note(dt_log_level level, const char *message, void *user)
{
    struct book *to = user;
    CHECK(to == &book || to == &other);
    CHECK(level >= DT_LOG_ERROR && (int)level <= to->max_level);
    CHECK(message != NULL && strlen(message) > 0 && strchr(message, '\n') == NULL);
    atomic_fetch_add(&to->messages, 1);
}

/* Some work that has something to tell on every level but "error". */
static void work(void)
{
    struct pair pair = pair_open(4, 64);
    dt_completion completion;
    pair_write(&pair, 0, 1);
    pair_collect(&pair, "peer", &completion, 1);
    pair_close(&pair);
}

static int messages_at(dt_log_level level)
{
    atomic_store(&book.messages, 0);
    book.max_level = (int)level;
    dt_set_log_callback(note, &book, level);
    work();
    return atomic_load(&book.messages);
}

static void levels(void)
{
    CHECK(messages_at(DT_LOG_OFF) == 0);
    int error = messages_at(DT_LOG_ERROR), warn = messages_at(DT_LOG_WARN);
    int info = messages_at(DT_LOG_INFO), debug = messages_at(DT_LOG_DEBUG);
    CHECK(error == 0 && warn >= error && info > warn && debug > info);

    /* Off, in two ways. */
    dt_set_log_callback(NULL, NULL, DT_LOG_DEBUG);
    atomic_store(&book.messages, 0);
    work();
    CHECK(atomic_load(&book.messages) == 0);
}

static void an_unknown_level_changes_nothing(void)
{
    static const int unknown[] = {-1, 5, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        dt_log_level level;
        memcpy(&level, &unknown[i], sizeof level);
        book.max_level = DT_LOG_DEBUG;
        dt_set_log_callback(note, &book, DT_LOG_DEBUG);
        dt_set_log_callback(note, &other, level);
        CHECK(strstr(dt_last_error(), "max_level") != NULL);
        atomic_store(&book.messages, 0);
        work();
        CHECK(atomic_load(&book.messages) > 0);
        CHECK(atomic_load(&other.messages) == 0);
    }
}

static void one_callback_replaces_another(void)
{
    book.max_level = other.max_level = DT_LOG_DEBUG;
    dt_set_log_callback(note, &book, DT_LOG_DEBUG);
    dt_set_log_callback(note, &other, DT_LOG_DEBUG);
    atomic_store(&book.messages, 0);
    atomic_store(&other.messages, 0);
    work();
    CHECK(atomic_load(&book.messages) == 0);
    CHECK(atomic_load(&other.messages) > 0);
}

static struct pair nested;
static atomic_int nested_calls;

static void call_back(dt_log_level level, const char *message, void *user)
{
    dt_completion completion;
    size_t n;
    (void)level, (void)message, (void)user;
    if (nested.ours.t == NULL)
        return;
    /* The library can be called, whatever it is doing; only the callback stays as it is. */
    atomic_fetch_add(&nested_calls, 1);
    CHECK_OK(dt_poll(nested.ours.t, NULL, &completion, 1, &n));
    CHECK_STATUS(dt_peer_status(nested.ours.t, "nobody"), DT_ERR_NOT_FOUND);
    pair_stats(&nested);
    dt_set_log_callback(note, &other, DT_LOG_DEBUG);
}

static void the_callback_may_call(void)
{
    dt_completion completion;
    size_t n;
    dt_xfer_id id;
    nested = pair_open(4, 64);
    dt_set_log_callback(call_back, NULL, DT_LOG_DEBUG);
    atomic_store(&other.messages, 0);
    pair_write(&nested, 0, 1);
    do {
        CHECK_OK(dt_wait(nested.ours.t, NULL, &completion, 1, 1, &n));
        side_drive(&nested.peer);
    } while (pair_stats(&nested).done == 0);
    CHECK(atomic_load(&nested_calls) > 0);
    CHECK(atomic_load(&other.messages) == 0);

    /* A call that fails says why itself, also when the callback has failed after it. */
    int calls = atomic_load(&nested_calls);
    CHECK_STATUS(
        dt_write_blocks(nested.ours.t, "peer", (uint32_t[]){0}, (uint32_t[]){9}, 1, 0, &id),
        DT_ERR_OUT_OF_RANGE);
    CHECK(strstr(dt_last_error(), "remote_idxs") != NULL);
    CHECK_OK(dt_remove_remote_peer(nested.ours.t, "peer"));
    CHECK(atomic_load(&nested_calls) >= calls);
    struct pair closing = nested;
    nested.ours.t = NULL;
    pair_close(&closing);
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
}

static atomic_bool stop;

static void *keep_working(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop))
        work();
    return NULL;
}

static atomic_int use_after_free;

static void note_owned(dt_log_level level, const char *message, void *user)
{
    atomic_int *alive = user;
    (void)level, (void)message;
    if (atomic_load(alive) != 1)
        atomic_fetch_add(&use_after_free, 1);
}

/* When dt_set_log_callback returns, the user data of the old callback is nobody's any more. */
static void the_old_callback_is_over(void)
{
    static atomic_int alive[200];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, keep_working, NULL) == 0);
    for (int i = 0; i < 200; i++) {
        atomic_store(&alive[i], 1);
        dt_set_log_callback(note_owned, &alive[i], DT_LOG_DEBUG);
        if (i > 0)
            atomic_store(&alive[i - 1], 2);
        sched_yield();
    }
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
    atomic_store(&alive[199], 2);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&use_after_free) == 0);
}

int main(void)
{
    levels();
    an_unknown_level_changes_nothing();
    one_callback_replaces_another();
    the_callback_may_call();
    the_old_callback_is_over();
    return 0;
}
