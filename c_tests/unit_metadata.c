/* dt_get_agent_metadata: the way in which buffers are filled. */
#include <string.h>

#include "unit_pair.h"

int main(void)
{
    struct pair pair = pair_open(4, 64);
    static uint8_t first[65536], second[65536], poison[65536];
    size_t size = 0, len = 77;
    memset(poison, 0xee, sizeof poison);

    CHECK_STATUS(dt_get_agent_metadata(pair.ours.t, NULL, 0, &size), DT_ERR_BUFFER_TOO_SMALL);
    CHECK(size > 0 && size <= sizeof first);

    /* One byte too few: nothing is written, and the size is said again. */
    memcpy(first, poison, sizeof first);
    CHECK_STATUS(dt_get_agent_metadata(pair.ours.t, first, size - 1, &len), DT_ERR_BUFFER_TOO_SMALL);
    CHECK(len == size);
    CHECK(memcmp(first, poison, sizeof first) == 0);
    CHECK(strstr(dt_last_error(), "cap") != NULL);

    /* Just enough, and more than enough: the same bytes, and none behind them. */
    CHECK_OK(dt_get_agent_metadata(pair.ours.t, first, size, &len));
    CHECK(len == size);
    CHECK(memcmp(first, poison, size) != 0);
    CHECK(memcmp(first + size, poison, sizeof first - size) == 0);
    memcpy(second, poison, sizeof second);
    CHECK_OK(dt_get_agent_metadata(pair.ours.t, second, sizeof second, &len));
    CHECK(len == size);
    CHECK(memcmp(first, second, sizeof first) == 0);

    pair_close(&pair);
    return 0;
}
