#include "fate.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "dt_check.h"
#include "dt_time.h"

#define MOST 64

struct event {
    pid_t pid;
    int number;
    uint64_t at_ns;
};

static struct event queue[MOST];
static size_t count;
static bool ends;
static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;

static void *run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!ends) {
        if (count == 0) {
            pthread_cond_wait(&change, &lock);
            continue;
        }
        uint64_t now = now_ns();
        if (queue[0].at_ns > now) {
            struct timespec left = {0, (long)((queue[0].at_ns - now) % 1000000000u)};
            pthread_mutex_unlock(&lock);
            nanosleep(&left, NULL);
            pthread_mutex_lock(&lock);
            continue;
        }
        /* It may have ended, but whoever reaps it settles all this first: its number is not another's. */
        CHECK(kill(queue[0].pid, queue[0].number) == 0);
        for (size_t i = 1; i < count; i++)
            queue[i - 1] = queue[i];
        count--;
        pthread_cond_broadcast(&change);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void fate_start(void)
{
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
}

void fate_send(pid_t pid, int number, uint64_t after_ns)
{
    pthread_mutex_lock(&lock);
    CHECK(count < MOST);
    uint64_t at = now_ns() + after_ns;
    if (count > 0 && queue[count - 1].at_ns > at)
        at = queue[count - 1].at_ns;
    queue[count++] = (struct event){pid, number, at};
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

void fate_settle(void)
{
    pthread_mutex_lock(&lock);
    while (count > 0)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

void fate_end(void)
{
    pthread_mutex_lock(&lock);
    ends = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    CHECK(pthread_join(thread, NULL) == 0);
}
