/* What a process holds, from /proc. */
#ifndef DT_TEST_PROCFS_H
#define DT_TEST_PROCFS_H

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

/* Of this process. Opens and closes what it needs. */
struct holdings holdings_now(void);

/* The same, as soon as there are no more descriptors and threads than `before`, or when no wait has helped:
 * UCX's thread closes sockets when it comes to it, and the system shows a thread for a moment after it has
 * been joined. */
struct holdings holdings_back_to(const struct holdings *before);

#endif
