#include "progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct text {
    char chars[32];
};

/* A number of bytes, for people. */
static struct text size_text(uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    struct text text;
    double value = (double)bytes / 1e3;
    size_t unit = 0;

    if (bytes < 1000) {
        snprintf(text.chars, sizeof text.chars, "%d byte%s", (int)bytes, bytes == 1 ? "" : "s");
        return text;
    }
    /* 999.95 would be printed as 1000.0. */
    for (; value >= 999.95 && unit < 3; unit++)
        value /= 1e3;
    snprintf(text.chars, sizeof text.chars, "%.1f %s", value, units[unit]);
    return text;
}

void progress_show(struct progress *progress)
{
    uint64_t moved =
        progress->moved < progress->file_bytes ? progress->moved : progress->file_bytes;
    int percent = progress->file_bytes == 0 ? 100 : (int)(moved * 100 / progress->file_bytes);
    bool terminal = isatty(STDOUT_FILENO);
    int step = terminal ? 1 : 10;
    char bar[41];

    if (percent / step == progress->last_percent / step)
        return;
    progress->last_percent = percent;
    memset(bar, ' ', 40);
    memset(bar, '#', (size_t)percent * 40 / 100);
    bar[40] = '\0';
    printf("%s          [%s] %3d %%  %10s", terminal ? "\r" : "", bar, percent,
           size_text(moved).chars);
    /* The rate is that of whole blocks: the file's last one is moved whole. */
    if (progress->transferring > 0)
        printf("  %6.2f GB/s", (double)progress->moved / progress->transferring / 1e9);
    printf("%s", terminal && percent < 100 ? "" : "\n");
    fflush(stdout);
}
