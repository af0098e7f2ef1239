/* The system's own copy between processes, 64 pieces a call, with nothing around it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "lane.h"
#include "util.h"

/* More in a call brings nothing. */
enum { BATCH = 64 };

static void refused(struct lane *lane, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    lane_failed(lane, text);
}

/* Moves all of a batch. The system may stop in between, for instance at 2 GiB. */
static void move(struct lane *lane, const struct transfer *transfer, struct iovec *here,
                 struct iovec *there, size_t count)
{
    pid_t pid = (pid_t)lane->links->pid[transfer->peer];
    size_t first = 0;

    while (first < count) {
        ssize_t n = (transfer->op == WRITE ? process_vm_writev : process_vm_readv)(
            pid, here + first, count - first, there + first, count - first, 0);
        if (n <= 0)
            refused(lane, transfer->op == WRITE ? "process_vm_writev" : "process_vm_readv");
        for (size_t left = (size_t)n; left > 0;) {
            size_t part = left < here[first].iov_len ? left : here[first].iov_len;
            here[first].iov_base = (char *)here[first].iov_base + part;
            there[first].iov_base = (char *)there[first].iov_base + part;
            here[first].iov_len -= part;
            there[first].iov_len -= part;
            left -= part;
            if (here[first].iov_len == 0)
                first++;
        }
    }
}

static void submit(struct lane *lane, const struct transfer *transfer, uint32_t slot)
{
    struct iovec here[BATCH], there[BATCH];
    size_t len = lane->block_len, count = 0;

    (void)slot;
    for (size_t k = 0, n; k < transfer->count; k += n) {
        n = lane_run(transfer, k);
        here[count] = (struct iovec){lane->local->base + transfer->local[k] * len, n * len};
        there[count] =
            (struct iovec){lane->remote[transfer->peer] + transfer->remote[k] * len, n * len};
        if (++count == BATCH || k + n == transfer->count) {
            move(lane, transfer, here, there, count);
            count = 0;
        }
    }
}

bool lane_process_vm_setup(struct lane *lane, char *why, size_t cap)
{
    lane->submit = submit;
    for (uint32_t i = 0; i < lane->links->count; i++) {
        char byte;
        struct iovec here = {&byte, 1}, there = {lane->remote[i], 1};
        if (process_vm_readv((pid_t)lane->links->pid[i], &here, 1, &there, 1, 0) != 1) {
            snprintf(why, cap, "process_vm_readv: %s", strerror(errno));
            return false;
        }
    }
    return true;
}
