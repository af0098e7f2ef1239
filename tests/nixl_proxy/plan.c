#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

static const char *const names[CALL_COUNT] = {
#define CALL(name) #name,
    CALLS(CALL)
#undef CALL
};

struct rule {
    int call; /* CALL_COUNT: any */
    long answer, forward, skip, times, peer, probe, running, drop, parts;
    bool answers;
};

enum { MOST_RULES = 32 };

static struct rule rules[MOST_RULES];
static size_t rule_count;
static long counts[CALL_COUNT], fired, calls;

static int call_named(const char *name)
{
    for (int call = 0; call < CALL_COUNT; call++)
        if (strcmp(names[call], name) == 0)
            return call;
    return -1;
}

static void parse_rule(char *text)
{
    char *rest = NULL;
    const char *word = strtok_r(text, " \n", &rest);
    if (!word)
        return;
    if (rule_count == MOST_RULES)
        tripped("too many rules");
    struct rule rule = {.times = 1, .forward = -1, .peer = -1, .probe = -1, .running = -1};
    rule.call = strcmp(word, "*") == 0 ? CALL_COUNT : call_named(word);
    if (rule.call < 0)
        tripped(word);
    while ((word = strtok_r(NULL, " \n", &rest))) {
        const struct {
            const char *key;
            long *value;
        } keys[] = {{"answer=", &rule.answer}, {"forward=", &rule.forward}, {"skip=", &rule.skip},
                    {"times=", &rule.times},   {"peer=", &rule.peer},       {"probe=", &rule.probe},
                    {"running=", &rule.running}, {"drop=", &rule.drop},     {"parts=", &rule.parts}};
        size_t at = 0;
        const size_t all = sizeof keys / sizeof *keys;
        while (at < all && strncmp(word, keys[at].key, strlen(keys[at].key)) != 0)
            at++;
        if (at == all)
            tripped(word);
        *keys[at].value = strtol(word + strlen(keys[at].key), NULL, 0);
        rule.answers |= at == 0;
    }
    rules[rule_count++] = rule;
}

void dt_proxy_plan(const char *text)
{
    objects_lock();
    rule_count = 0;
    fired = 0;
    char *copy = strdup(text), *rest = NULL;
    for (char *rule = strtok_r(copy, ";", &rest); rule; rule = strtok_r(NULL, ";", &rest))
        parse_rule(rule);
    free(copy);
    objects_unlock();
}

static bool is_about(const struct rule *rule, const struct subject *subject)
{
    if (rule->peer >= 0) {
        char end[32];
        snprintf(end, sizeof end, ">%ld", rule->peer);
        size_t len = subject->peer ? strlen(subject->peer) : 0;
        if (len < strlen(end) || strcmp(subject->peer + len - strlen(end), end) != 0)
            return false;
    }
    if (rule->probe >= 0 && (subject->bytes == 0 || (subject->bytes == 1) != (rule->probe == 1)))
        return false;
    return rule->running < 0 || subject->running == (rule->running == 1);
}

static bool is_free(enum call call)
{
    return strncmp(names[call], "destroy_", 8) == 0 || call == CALL_deregister_mem
        || call == CALL_invalidate_remote_md || call == CALL_release_xfer_req;
}

struct verdict plan_judge(enum call call, const struct subject *subject)
{
    struct verdict verdict = {.forward = true};
    objects_lock();
    counts[call]++;
    calls++;
    for (struct rule *rule = rules; rule < rules + rule_count; rule++) {
        if ((rule->call != CALL_COUNT && rule->call != (int)call) || rule->times == 0
            || !is_about(rule, subject))
            continue;
        if (rule->skip > 0) {
            rule->skip--;
            continue;
        }
        if (rule->times > 0)
            rule->times--;
        fired++;
        verdict.fires = true;
        verdict.answers = rule->answers;
        verdict.answer = (int)rule->answer;
        verdict.forward = rule->forward >= 0 ? rule->forward == 1 : !rule->answers || is_free(call);
        verdict.drop = rule->drop == 1;
        verdict.parts = (size_t)rule->parts;
        break;
    }
    objects_unlock();
    return verdict;
}

long plan_count(const char *name)
{
    if (strcmp(name, "fired") == 0)
        return fired;
    if (strcmp(name, "calls") == 0)
        return calls;
    int call = call_named(name);
    return call < 0 ? -1 : counts[call];
}
