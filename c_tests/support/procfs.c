#include "procfs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "dt_check.h"
#include "dt_time.h"

/* Without links to `left_out`, which may be NULL. */
static long count_entries(const char *path, const char *left_out)
{
    long count = 0;
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char target[64];
        ssize_t len = left_out == NULL ? -1 : readlinkat(dirfd(dir), entry->d_name, target, sizeof target);
        bool is_left_out = len >= 0 && (size_t)len == strlen(left_out) && memcmp(target, left_out, (size_t)len) == 0;
        count += entry->d_name[0] != '.' && !is_left_out;
    }
    closedir(dir);
    return count;
}

struct holdings holdings_now(void)
{
    struct holdings now = {0, 0, 0, 0};
    char line[512];

    /* Less the one that counts, and the numbers of lost sockets, which the library keeps by opening /dev/null. */
    now.fds = count_entries("/proc/self/fd", on_nixl() ? "/dev/null" : NULL) - 1;
    now.threads = count_entries("/proc/self/task", NULL);

    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        now.maps += strchr(line, '\n') != NULL;
    fclose(maps);

    FILE *status = fopen("/proc/self/status", "re");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmRSS: %ld kB", &now.rss_kib);
    fclose(status);
    return now;
}

bool holdings_are_back(const struct holdings *before, struct holdings *now)
{
    static const struct timespec moment = {0, 1000000};
    const long ucx_fds = on_nixl() ? 3 : 0, ucx_threads = on_nixl() ? 1 : 0;
    for (uint64_t deadline = now_ms() + BOUND_MS; now_ms() < deadline; nanosleep(&moment, NULL)) {
        *now = holdings_now();
        if (now->fds <= before->fds + ucx_fds && now->threads <= before->threads + ucx_threads)
            return true;
    }
    return false;
}
