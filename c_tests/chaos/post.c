/* Messages that come to the survivor: each once, in order, after its data, and none missing. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "journal.h"
#include "survivor.h"

/* What a transport of a peer has sent to this transport of the survivor. */
struct post {
    uint64_t number;
    uint64_t owed;    /* the peer has told of so many */
    uint64_t come;
    bool lossy;       /* it has ended without closing, which NIXL may not survive */
    bool over;
    struct line lines[2];
};

static struct post *posts;
static size_t count, room;

static struct post *post_of(uint64_t number)
{
    for (size_t k = count; k-- > 0;)
        if (posts[k].number == number)
            return &posts[k];
    if (count == room) {
        room = room == 0 ? 64 : 2 * room;
        CHECK((posts = realloc(posts, room * sizeof *posts)) != NULL);
    }
    posts[count] = (struct post){.number = number};
    return &posts[count++];
}

void post_open(uint64_t number)
{
    post_of(number);
}

void post_owed(uint64_t number, uint64_t epoch)
{
    if (epoch == it.epoch)
        post_of(number)->owed++;
}

void post_dead(uint64_t number, bool closed)
{
    struct post *post = post_of(number);
    post->over = true;
    post->lossy = !closed && on_nixl();
}

static void take(const dt_notif *notif)
{
    static uint32_t blocks[LETTER_MOST / 4];
    struct letter letter = letter_read(notif->msg, notif->msg_len, blocks);
    if (letter.to != it.epoch || letter.lane > 1)
        test_fail("a message from %llu to survivor %llu, lane %u, has come to %llu",
                  (unsigned long long)letter.from, (unsigned long long)letter.to, letter.lane,
                  (unsigned long long)it.epoch);
    size_t known = count;
    struct post *post = post_of(letter.from);
    if (count > known)
        test_fail("a message from %llu (%s), which was never opened",
                  (unsigned long long)letter.from, notif->agent_name);
    /* Whose death is not known yet may be dead. */
    bool lossy = post->lossy;
    for (unsigned i = 0; i < it.slots; i++)
        lossy |= on_nixl() && it.slot[i].number == letter.from && it.slot[i].doomed;
    line_take(&post->lines[letter.lane], &letter, lossy);
    post->come++;
    it.model.received++;
    it.tally.mail_come++;
    if (!letter.is_read)
        return;
    struct xfer *xfer = xfer_find(letter.number);
    if (xfer == NULL || !xfer->by_peer || xfer->mail == NO_MAIL || xfer->mail == MAIL_COME)
        test_fail("a message from %llu of read %llu, which %s", (unsigned long long)letter.from,
                  (unsigned long long)letter.number,
                  xfer == NULL ? "was not done, or had its message" : "has none to send");
    if (letter.count != xfer->count || memcmp(blocks, xfer->source, letter.count * 4) != 0)
        test_fail("a message of read %llu names other blocks", (unsigned long long)letter.number);
    xfer_mail_here(xfer);
}

void post_take(void)
{
    static uint8_t arena[LETTER_MOST + 1024];
    dt_notif notifs[16];
    size_t n = 0, used = 0;
    CHECK_OK(dt_get_new_notifs(it.transport, notifs, 16, arena, sizeof arena, &n, &used));
    CHECK(n <= 16 && used <= sizeof arena);
    for (size_t i = 0; i < n; i++)
        take(&notifs[i]);
}

bool post_at_rest(void)
{
    for (size_t k = 0; k < count; k++)
        if (posts[k].come < posts[k].owed && !posts[k].lossy) {
            journal("of %llu messages of number %llu, %llu have come",
                    (unsigned long long)posts[k].owed, (unsigned long long)posts[k].number,
                    (unsigned long long)posts[k].come);
            return false;
        }
    return true;
}

/* As many as were sent, and no more. */
void post_forget(void)
{
    count = 0;
}
