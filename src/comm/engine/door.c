/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/door.c - callers are looked after all at once: one that says nothing, or little, holds up nobody. Each
 * has a few seconds, and there are only so many at a time.
 */
#include "comm/engine/proof.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tm_comm_caller {
    int             fd;
    int64_t         since_ns;
    size_t          have; /* bytes of the claim */
    unsigned char   random[TM_COMM_KEY];
    tm_comm_claim   claim;
    tm_comm_address from;
};

void tm_comm_door_open(tm_comm_door *door, int listening, int rank, const tm_comm_key *secret)
{
    *door = (tm_comm_door){ .listening = listening, .rank = rank, .secret = *secret };
    door->caller = tm_alloc(TM_COMM_CALLERS * sizeof *door->caller);
}

/* The last one takes its place. The connection stays. */
static void forget(tm_comm_door *door, int i)
{
    door->caller[i] = door->caller[--door->count];
}

static void drop(tm_comm_door *door, int i)
{
    close(door->caller[i].fd);
    forget(door, i);
}

static void drop_oldest(tm_comm_door *door)
{
    int oldest = 0;
    for (int i = 1; i < door->count; i++)
        if (door->caller[i].since_ns < door->caller[oldest].since_ns) oldest = i;
    drop(door, oldest);
}

static void drop_late(tm_comm_door *door)
{
    int64_t begin = tm_now_ns() - (int64_t)TM_COMM_CALLER_S * 1000000000;
    for (int i = door->count - 1; i >= 0; i--)
        if (door->caller[i].since_ns < begin) drop(door, i);
}

void tm_comm_door_add(tm_comm_door *door, int fd, const tm_comm_address *from)
{
    if (door->count == TM_COMM_CALLERS) drop_oldest(door);
    tm_comm_caller *c = &door->caller[door->count++];
    tm_comm_hello   hello = { .magic = TM_COMM_MAGIC };
    *c = (tm_comm_caller){ .fd = fd, .since_ns = tm_now_ns(), .from = *from };
    randombytes_buf(c->random, sizeof c->random);
    memcpy(hello.random, c->random, sizeof hello.random);
    /* A new connection always has room for so little. */
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof hello)
        drop(door, door->count - 1);
}

static void take_callers(tm_comm_door *door)
{
    enum { AT_ONCE = 256 };
    for (int i = 0; i < AT_ONCE; i++) {
        tm_comm_address from = { 0 };
        socklen_t       length = sizeof from.at;
        int fd = accept4(door->listening, (struct sockaddr *)&from.at, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
        from.length = length;
        if (fd >= 0)
            tm_comm_door_add(door, fd, &from);
        else if ((errno == EMFILE || errno == ENFILE) && door->count > 0)
            drop_oldest(door); /* this process may open no more */
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* What has come of its claim; false: it has gone. */
static bool hear(tm_comm_caller *c)
{
    while (c->have < sizeof c->claim) {
        ssize_t n = recv(c->fd, (char *)&c->claim + c->have, sizeof c->claim - c->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (n <= 0) return false;
        c->have += (size_t)n;
    }
    return true;
}

static tm_comm_encounter encounter_with(const tm_comm_door *door, const tm_comm_caller *c)
{
    tm_comm_encounter e = { .card = c->claim.card, .door = door->rank };
    memcpy(e.listener, c->random, sizeof e.listener);
    memcpy(e.caller, c->claim.random, sizeof e.caller);
    return e;
}

/* The first one is told of: it may be a rank with another secret, and many may come. */
static void send_away(tm_comm_door *door, int i)
{
    const tm_comm_answer  answer = { .verdict = TM_COMM_STRANGER };
    const tm_comm_caller *c = &door->caller[i];
    char                  from[NI_MAXHOST] = "somewhere";
    (void)getnameinfo((const struct sockaddr *)&c->from.at, (socklen_t)c->from.length, from, sizeof from, NULL, 0,
                      NI_NUMERICHOST);
    (void)!send(c->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    drop(door, i);
    if (door->strangers++ == 0)
        tm_warn("a caller from %s does not know the secret of this job and was sent away; more will not be told of",
                from);
}

bool tm_comm_door_look(tm_comm_door *door, int wait_ms, tm_comm_arrival *out)
{
    static const short events = POLLIN;
    bool               arrived = false;
    drop_late(door);
    int            n = door->count;
    struct pollfd *p = tm_alloc(((size_t)n + 1) * sizeof *p);
    for (int i = 0; i < n; i++) p[i] = (struct pollfd){ .fd = door->caller[i].fd, .events = events };
    p[n] = (struct pollfd){ .fd = door->listening, .events = events };
    if (poll(p, (nfds_t)n + 1, wait_ms) > 0) {
        /* From the last to the first: what takes a dropped one's place was looked at. */
        for (int i = n - 1; i >= 0 && !arrived; i--) {
            if (!p[i].revents) continue;
            tm_comm_caller *c = &door->caller[i];
            if (!hear(c)) {
                drop(door, i);
                continue;
            }
            if (c->have < sizeof c->claim) continue;
            *out = (tm_comm_arrival){ c->fd, encounter_with(door, c) };
            arrived = tm_comm_caller_is_proven(&door->secret, &out->encounter, &c->claim.proof);
            if (arrived)
                forget(door, i);
            else
                send_away(door, i);
        }
        if (p[n].revents) take_callers(door);
    }
    free(p);
    return arrived;
}

bool tm_comm_door_answer(const tm_comm_door *door, const tm_comm_arrival *arrival, tm_comm_verdict verdict)
{
    tm_comm_answer answer = { .verdict = (int32_t)verdict };
    tm_comm_prove_listener(&door->secret, &arrival->encounter, answer.verdict, &answer.proof);
    bool told = send(arrival->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof answer;
    if (told && verdict == TM_COMM_WELCOME) return true;
    close(arrival->fd);
    return false;
}

void tm_comm_door_close(tm_comm_door *door)
{
    while (door->count > 0) drop(door, door->count - 1);
    if (door->listening >= 0) close(door->listening);
    free(door->caller);
    sodium_memzero(door, sizeof *door);
    door->listening = -1; /* 0 is a file of somebody else */
}
