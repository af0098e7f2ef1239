/* What a process holds, from /proc. */
#ifndef DT_TEST_PROCFS_H
#define DT_TEST_PROCFS_H

#include <stdbool.h>

/* The allocators of libc and UCX keep a mapping here and there; what leaks with each use is far more. That of
 * a sanitizer maps a piece for every size there is, and reuses what is freed late. */
#ifdef DT_SANITIZED
#define MAPS_SLACK 10000
#else
#define MAPS_SLACK 8
#endif

struct holdings {
    long fds;
    long maps;
    long threads;
    long rss_kib;
};

/* Of this process. Opens and closes what it needs. On NIXL, what is open on /dev/null is left out: see below. */
struct holdings holdings_now(void);

/* True as soon as this process holds no more descriptors and threads than `before`; false if that does not
 * come, and `now` is what it holds. UCX closes sockets when it comes to it, and the system shows a thread for
 * a moment after it was joined. When a peer connects while no descriptor is left, UCX does not take back what
 * watched its listening socket: its own thread stays then, one in a process, with a pipe and an event set, and
 * the library keeps the socket's number, one each time. These are left out on NIXL. */
bool holdings_are_back(const struct holdings *before, struct holdings *now);

#endif
