#include "logbook.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dt_check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[1 << 16];
static size_t used;

static void keep(dt_log_level level, const char *message, void *user)
{
    (void)level;
    (void)user;
    pthread_mutex_lock(&lock);
    size_t len = strlen(message);
    if (used + len + 2 < sizeof text) {
        memcpy(text + used, message, len);
        used += len;
        text[used++] = '\n';
        text[used] = '\0';
    }
    pthread_mutex_unlock(&lock);
}

void logbook_start(void)
{
    pthread_mutex_lock(&lock);
    used = 0;
    text[0] = '\0';
    pthread_mutex_unlock(&lock);
    dt_set_log_callback(keep, NULL, DT_LOG_DEBUG);
}

void logbook_stop(void)
{
    dt_set_log_callback(NULL, NULL, DT_LOG_OFF);
}

bool logbook_has(const char *wanted)
{
    pthread_mutex_lock(&lock);
    bool has = strstr(text, wanted) != NULL;
    pthread_mutex_unlock(&lock);
    return has;
}

void logbook_print(void)
{
    pthread_mutex_lock(&lock);
    fprintf(stderr, "the library logged:\n%s", text);
    pthread_mutex_unlock(&lock);
}
