/* dt_status_str and dt_version. */
#include <string.h>

#include "dt_check.h"

int main(void)
{
    static const struct {
        dt_status status;
        int number;
        const char *name;
    } all[] = {
        {DT_OK, 0, "DT_OK"},
        {DT_ERR_INVALID_ARG, -1, "DT_ERR_INVALID_ARG"},
        {DT_ERR_OUT_OF_RANGE, -2, "DT_ERR_OUT_OF_RANGE"},
        {DT_ERR_NOT_FOUND, -3, "DT_ERR_NOT_FOUND"},
        {DT_ERR_INCOMPATIBLE, -4, "DT_ERR_INCOMPATIBLE"},
        {DT_ERR_BUFFER_TOO_SMALL, -5, "DT_ERR_BUFFER_TOO_SMALL"},
        {DT_ERR_CLOSED, -6, "DT_ERR_CLOSED"},
        {DT_ERR_BACKEND, -7, "DT_ERR_BACKEND"},
        {DT_ERR_UNAVAILABLE, -8, "DT_ERR_UNAVAILABLE"},
        {DT_ERR_PEER_LOST, -9, "DT_ERR_PEER_LOST"},
        {DT_ERR_CANCELLED, -10, "DT_ERR_CANCELLED"},
        {DT_ERR_TIMEOUT, -11, "DT_ERR_TIMEOUT"},
        {DT_ERR_BUSY, -12, "DT_ERR_BUSY"},
        {DT_ERR_NO_MEMORY, -13, "DT_ERR_NO_MEMORY"},
        {DT_ERR_FORKED, -14, "DT_ERR_FORKED"},
        {DT_ERR_INTERNAL, -15, "DT_ERR_INTERNAL"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK(all[i].status == all[i].number);
        CHECK(strcmp(dt_status_str(all[i].status), all[i].name) == 0);
    }
    static const dt_status unknown[] = {1, -16, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(strcmp(dt_status_str(unknown[i]), "DT_ERR_UNKNOWN") == 0);

    CHECK(dt_version() == (DT_VERSION_MAJOR << 16 | DT_VERSION_MINOR << 8 | DT_VERSION_PATCH));
    CHECK(DT_ABI_VERSION == (DT_VERSION_MAJOR << 16 | DT_VERSION_MINOR));
    CHECK(strcmp(dt_last_error(), "") == 0);
    return 0;
}
