/* What a process holds, from /proc. */
#ifndef DT_TEST_PROCFS_H
#define DT_TEST_PROCFS_H

struct holdings {
    long fds;
    long maps;
    long threads;
    long rss_kib;
};

/* Of this process. Opens and closes what it needs. */
struct holdings holdings_now(void);

#endif
