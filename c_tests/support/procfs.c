#include "procfs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend.h"
#include "dt_check.h"
#include "dt_time.h"

static long count_entries(const char *path)
{
    long count = 0;
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Without the numbers of lost sockets, which the library keeps by opening /dev/null. */
static long count_files(void)
{
    static const char null[] = "/dev/null";
    long count = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char target[sizeof null];
        if (entry->d_name[0] == '.')
            continue;
        ssize_t len = on_nixl() ? readlinkat(dirfd(dir), entry->d_name, target, sizeof target) : -1;
        count += len != sizeof null - 1 || memcmp(target, null, sizeof null - 1) != 0;
    }
    closedir(dir);
    return count - 1; /* less the one that counts */
}

struct holdings holdings_now(void)
{
    struct holdings now = {0, 0, 0, 0};
    char line[512];

    now.fds = count_files();
    now.threads = count_entries("/proc/self/task");

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
