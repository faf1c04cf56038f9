/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/address.c - addresses of hosts, and sockets at them. */
#include "comm/engine/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static struct sockaddr_in *four(const tm_comm_address *a)
{
    return a->at.ss_family == AF_INET ? (struct sockaddr_in *)(void *)&a->at : NULL;
}

static struct sockaddr_in6 *six(const tm_comm_address *a)
{
    return a->at.ss_family == AF_INET6 ? (struct sockaddr_in6 *)(void *)&a->at : NULL;
}

bool tm_comm_address_is_any(const tm_comm_address *a)
{
    if (four(a)) return four(a)->sin_addr.s_addr == htonl(INADDR_ANY);
    return six(a) && IN6_IS_ADDR_UNSPECIFIED(&six(a)->sin6_addr);
}

bool tm_comm_address_is_loopback(const tm_comm_address *a)
{
    if (four(a)) return ntohl(four(a)->sin_addr.s_addr) >> 24 == 127;
    if (!six(a)) return false;
    const struct in6_addr *it = &six(a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(it) || (IN6_IS_ADDR_V4MAPPED(it) && it->s6_addr[12] == 127);
}

bool tm_comm_address_says_loopback(const char *text)
{
    tm_comm_address a = { 0 };
    struct in_addr  in;
    struct in6_addr in6;
    if (strcmp(text, "localhost") == 0) return true;
    if (inet_pton(AF_INET, text, &in) == 1) {
        a.at.ss_family = AF_INET;
        four(&a)->sin_addr = in;
    } else if (inet_pton(AF_INET6, text, &in6) == 1) {
        a.at.ss_family = AF_INET6;
        six(&a)->sin6_addr = in6;
    }
    return tm_comm_address_is_loopback(&a);
}

/* Only such an address can be bound. */
bool tm_comm_address_is_own(const tm_comm_address *a)
{
    tm_comm_address some = *a;
    int             fd = socket(a->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    tm_comm_address_set_port(&some, 0);
    bool own = bind(fd, (struct sockaddr *)&some.at, (socklen_t)some.length) == 0;
    close(fd);
    return own;
}

void tm_comm_address_set_any(tm_comm_address *a)
{
    if (four(a)) four(a)->sin_addr.s_addr = htonl(INADDR_ANY);
    if (six(a)) six(a)->sin6_addr = in6addr_any;
}

void tm_comm_address_set_loopback(tm_comm_address *a)
{
    if (four(a)) four(a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (six(a)) six(a)->sin6_addr = in6addr_loopback;
}

void tm_comm_address_set_port(tm_comm_address *a, uint32_t port)
{
    if (four(a)) four(a)->sin_port = htons((uint16_t)port);
    if (six(a)) six(a)->sin6_port = htons((uint16_t)port);
}

uint32_t tm_comm_address_port(const tm_comm_address *a)
{
    return four(a) ? ntohs(four(a)->sin_port) : six(a) ? ntohs(six(a)->sin6_port) : 0;
}

const char *tm_comm_address_find(const char *name, const char *port, bool far, tm_comm_address *out)
{
    struct addrinfo hint = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
    int             code = getaddrinfo(name, port, &hint, &found);
    bool            well = false;
    if (code != 0) return gai_strerror(code);
    memset(out, 0, sizeof *out);
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        tm_comm_address a = { .length = at->ai_addrlen };
        memcpy(&a.at, at->ai_addr, at->ai_addrlen);
        if (well && !(far && tm_comm_address_is_loopback(out) && !tm_comm_address_is_loopback(&a))) continue;
        *out = a;
        well = true;
    }
    freeaddrinfo(found);
    return NULL;
}

static void keep(tm_comm_address *out, int code, socklen_t length)
{
    if (code != 0) memset(out, 0, sizeof *out);
    out->length = code == 0 ? length : 0;
}

void tm_comm_address_of_own(int fd, tm_comm_address *out)
{
    socklen_t length = sizeof out->at;
    memset(out, 0, sizeof *out);
    int code = getsockname(fd, (struct sockaddr *)&out->at, &length);
    keep(out, code, length);
}

void tm_comm_address_of_peer(int fd, tm_comm_address *out)
{
    socklen_t length = sizeof out->at;
    memset(out, 0, sizeof *out);
    int code = getpeername(fd, (struct sockaddr *)&out->at, &length);
    keep(out, code, length);
}

int tm_comm_address_bind(const tm_comm_address *a)
{
    int one = 1, fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&a->at, (socklen_t)a->length) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int tm_comm_address_listen(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return listen(fd, BACKLOG);
}

int tm_comm_address_connect(const tm_comm_address *a, int seconds)
{
    int       fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t bytes = sizeof why;
    if (fd < 0) return -1;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    if (connect(fd, (const struct sockaddr *)&a->at, (socklen_t)a->length) == 0) return fd;
    why = errno;
    if (why == EINPROGRESS && poll(&p, 1, seconds * 1000) > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &bytes);
    if (why == 0) return fd;
    close(fd);
    errno = why;
    return -1;
}
