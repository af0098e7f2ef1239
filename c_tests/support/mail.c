#include "mail.h"

#include <string.h>

#include "child.h"
#include "dt_check.h"
#include "pattern.h"

size_t mail_take(dt_transport *t, struct mail *buf, size_t cap)
{
    /* Some go in at a time, so that messages are also left for the next call. */
    dt_notif notifs[16];
    uint8_t arena[4096];
    size_t taken = 0, count, used;
    do {
        size_t room = cap - taken < 16 ? cap - taken : 16;
        CHECK_OK(dt_get_new_notifs(t, notifs, room, arena, sizeof arena, &count, &used));
        CHECK(count <= room && used <= sizeof arena);
        for (size_t i = 0; i < count; i++) {
            struct mail *mail = &buf[taken++];
            CHECK(strlen(notifs[i].agent_name) < sizeof mail->sender);
            CHECK(notifs[i].msg_len <= MAIL_MOST);
            strcpy(mail->sender, notifs[i].agent_name);
            mail->len = notifs[i].msg_len;
            memcpy(mail->bytes, notifs[i].msg, mail->len);
        }
    } while (count > 0 && taken < cap);
    return taken;
}

size_t mail_make(uint8_t bytes[MAIL_MOST], uint64_t seed, uint64_t number)
{
    size_t len = 16 + (seed * 31 + number * 97) % (MAIL_MOST - 15);
    pattern_fill(bytes, len, seed, number);
    memcpy(bytes, &number, sizeof number);
    return len;
}

uint64_t mail_number(const struct mail *mail, uint64_t seed)
{
    uint8_t want[MAIL_MOST];
    uint64_t number = 0;
    if (mail->len >= sizeof number)
        memcpy(&number, mail->bytes, sizeof number);
    size_t len = mail_make(want, seed, number);
    if (len != mail->len || memcmp(want, mail->bytes, len) != 0)
        test_fail("a message of %zu bytes from %s is none of sequence %llu", mail->len, mail->sender,
                  (unsigned long long)seed);
    return number;
}
