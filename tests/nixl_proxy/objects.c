#include "objects.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVING = 0x11ee11ee, GONE = 0xdeaddead & 0x7fffffff };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static char journal[1 << 20];
static size_t journal_len;

void tripped(const char *what)
{
    fprintf(stderr, "proxy: %s\n", what);
    abort();
}

void objects_lock(void)
{
    pthread_mutex_lock(&lock);
}

void objects_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct object *object_new(enum kind kind, void *real, struct object *agent)
{
    struct object *object = calloc(1, sizeof *object);
    if (!object)
        tripped("no memory");
    object->magic = LIVING;
    object->kind = kind;
    object->real = real;
    object->agent = agent;
    objects_lock();
    object->next = objects;
    objects = object;
    objects_unlock();
    return object;
}

struct object *object_of(void *handle, enum kind kind)
{
    struct object *object = handle;
    if (!object)
        return NULL;
    if (object->magic == GONE)
        tripped("a handle is used that was given back");
    if (object->magic != LIVING || object->kind != kind)
        tripped("a handle is not what it should be");
    if (object->agent && object->agent->magic != LIVING)
        tripped("a handle is used whose agent is gone");
    return object;
}

void object_gone(struct object *object, bool given_back)
{
    objects_lock();
    struct object **link = &objects;
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    object->magic = GONE;
    if (journal_len + 1 < sizeof journal)
        journal[journal_len++] = (char)(given_back ? object->kind : toupper(object->kind));
    free(object->descs);
    object->descs = NULL;
    objects_unlock();
    /* The rest of it stays, so that it is known for ever. */
}

struct object *object_next(struct object *from, enum kind kind, const struct object *agent)
{
    objects_lock();
    struct object *object = from ? from->next : objects;
    while (object && (object->kind != kind || (agent && object->agent != agent)))
        object = object->next;
    objects_unlock();
    return object;
}

long objects_living(enum kind kind)
{
    long count = 0;
    for (struct object *at = NULL; (at = object_next(at, kind, NULL));)
        count++;
    return count;
}

const char *dt_proxy_journal(void)
{
    journal[journal_len] = '\0';
    return journal;
}

void dt_proxy_forget(void)
{
    journal_len = 0;
}
