#include "wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"

bool wire_send(int fd, const void *data, size_t bytes)
{
    for (const char *from = data; bytes > 0;) {
        ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool wire_receive(int fd, void *data, size_t bytes)
{
    for (char *to = data; bytes > 0;) {
        ssize_t n = recv(fd, to, bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        bytes -= (size_t)n;
    }
    return true;
}

void wire_patience(int fd, unsigned seconds)
{
    struct timeval time = {(time_t)seconds, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

void wire_host(char *host, size_t cap)
{
    char boot[64], space[48];
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    space[n > 0 ? n : 0] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(host, cap, "%s %s", boot, space);
}

/* "[ADDRESS:]PORT"; an IPv6 address stands in brackets. */
static struct addrinfo *resolve(const char *address, bool passive)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
    struct addrinfo *found;
    char host[256];
    const char *colon = strrchr(address, ':');
    const char *port = colon != NULL ? colon + 1 : address;
    const char *from = address;
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;

    if (n >= 2 && from[0] == '[' && from[n - 1] == ']') {
        from++;
        n -= 2;
    }
    if (n >= sizeof host || *port == '\0')
        die("\"%s\" is not [ADDRESS:]PORT", address);
    memcpy(host, from, n);
    host[n] = '\0';
    int error = getaddrinfo(n > 0 ? host : NULL, port, &hints, &found);
    if (error != 0)
        die("cannot find the address \"%s\": %s", address, gai_strerror(error));
    return found;
}

/* A socket of the first address with which `use` works. */
static int open_first(const char *address, bool passive,
                      bool (*use)(int fd, const struct addrinfo *at), const char *what)
{
    struct addrinfo *found = resolve(address, passive);
    int fd = -1, error = 0;

    for (struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0 || !use(fd, at)) {
            error = errno;
            if (fd >= 0)
                close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        die("cannot %s %s: %s", what, address, strerror(error));
    return fd;
}

static bool use_to_listen(int fd, const struct addrinfo *at)
{
    int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1024) == 0;
}

int wire_listen(const char *address)
{
    return open_first(address, true, use_to_listen, "listen on");
}

static void tune(int fd)
{
    int yes = 1, idle = 10;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A host that vanishes is noticed in the end. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
}

int wire_accept(int listener)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 &&
           (errno == EINTR || errno == ECONNABORTED))
        continue;
    if (fd < 0)
        die("cannot accept a connection: %s", strerror(errno));
    tune(fd);
    return fd;
}

static bool use_to_connect(int fd, const struct addrinfo *at)
{
    return connect(fd, at->ai_addr, at->ai_addrlen) == 0;
}

int wire_connect(const char *address)
{
    int fd = open_first(address, false, use_to_connect, "connect to");
    tune(fd);
    return fd;
}
