#include "letter.h"

#include <string.h>

#include "child.h"
#include "dt_check.h"
#include "pattern.h"

static uint64_t seed_of(const struct letter *letter)
{
    return letter->from * 1000003 + letter->to * 10007 + letter->number * 31 + letter->lane * 2 +
           letter->is_read;
}

size_t letter_write(void *out, struct letter letter, const uint32_t *blocks, size_t len)
{
    size_t head = sizeof letter + letter.count * sizeof *blocks;
    CHECK(head <= LETTER_MOST);
    letter.len = (uint32_t)(len < head ? head : len);
    memcpy(out, &letter, sizeof letter);
    if (letter.count > 0)
        memcpy((char *)out + sizeof letter, blocks, letter.count * sizeof *blocks);
    pattern_fill((char *)out + head, letter.len - head, seed_of(&letter), 0);
    return letter.len;
}

struct letter letter_read(const void *bytes, size_t len, uint32_t *blocks)
{
    struct letter letter;
    if (len < sizeof letter)
        test_fail("a message of %zu bytes is none of ours", len);
    memcpy(&letter, bytes, sizeof letter);
    size_t head = sizeof letter + (size_t)letter.count * sizeof *blocks;
    const struct content rest = {seed_of(&letter), 0};
    if (letter.len != len || head > len ||
        pattern_mismatch((const char *)bytes + head, len - head, rest) >= 0)
        test_fail("a message of %zu bytes that says %u, from %llu to %llu, number %llu, is damaged",
                  len, letter.len, (unsigned long long)letter.from, (unsigned long long)letter.to,
                  (unsigned long long)letter.number);
    memcpy(blocks, (const char *)bytes + sizeof letter, letter.count * sizeof *blocks);
    return letter;
}

void line_take(struct line *line, const struct letter *letter, bool lossy)
{
    bool in_order = letter->is_read ? line->sends >= letter->sends_before
                                    : line->sends == letter->number;
    in_order &= line->reads >= letter->reads_before;
    if (!in_order && !(lossy && (letter->is_read || letter->number >= line->sends)))
        test_fail("%s message %llu from %llu to %llu in lane %u: before it there were %llu sends and "
                  "%llu of reads, but %llu and %llu have come",
                  letter->is_read ? "read" : "sent", (unsigned long long)letter->number,
                  (unsigned long long)letter->from, (unsigned long long)letter->to, letter->lane,
                  (unsigned long long)letter->sends_before,
                  (unsigned long long)letter->reads_before, (unsigned long long)line->sends,
                  (unsigned long long)line->reads);
    if (letter->is_read)
        line->reads++;
    else
        line->sends = letter->number + 1;
}
