/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/rendezvous.c - ranks find each other: each comes to the first one, at MASTER_ADDR and MASTER_PORT, and
 * says who it is and where it listens; when all have come, the first one tells everybody of everybody, and each rank
 * connects to those below it. Who speaks something else, or of another job, is sent away.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "comm/engine/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAGIC = 0x746d7231, BACKLOG = 1024, STRANGER_S = 2, AGAIN_NS = 50000000, LATER_S = 5 };

/* What the first rank answers. */
enum { WELCOME = 1, OTHER_SIZE, OTHER_JOB, TWICE };

/* Where a rank listens, as the first one sees it. */
typedef struct {
    tm_comm_tcp_card        card;
    struct sockaddr_storage address;
    uint32_t                length;
} entry;

/* What everybody gets when all have come, or not: then the words. */
typedef struct {
    int32_t complete;
    char    words[508];
} news;

typedef struct {
    tm_comm_tcp_mesh *mesh;
    entry            *entry; /* (size) */
    tm_comm_tcp_card  own;
    const char       *address;
    char              port[16];
    int64_t           end_ns;
    double            deadline_s;
    bool              one_host;  /* all ranks are here, as far as the launcher says */
    int               listening; /* socket */
} meeting;

static _Thread_local char complaint[1024];

#define COMPLAIN(...) (snprintf(complaint, sizeof complaint, __VA_ARGS__), complaint)

/* --- sockets --------------------------------------------------------------------------------- */

/* All of it, within `seconds`. */
static bool transfer(int fd, void *data, size_t bytes, bool out, double seconds)
{
    int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9);
    for (size_t at = 0; at < bytes;) {
        struct pollfd p = { .fd = fd, .events = out ? POLLOUT : POLLIN };
        int64_t       left = (end - tm_now_ns()) / 1000000;
        if (left <= 0 || poll(&p, 1, (int)left) <= 0) {
            if (left > 0 && errno == EINTR) continue;
            return false;
        }
        ssize_t n =
            out ? send(fd, (char *)data + at, bytes - at, MSG_NOSIGNAL) : recv(fd, (char *)data + at, bytes - at, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static void wait_all(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool is_loopback(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET) return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    if (a->ss_family != AF_INET6) return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

static void set_port(struct sockaddr_storage *a, uint32_t port)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
}

static uint32_t port_of(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET ? ((const struct sockaddr_in *)a)->sin_port
                                         : ((const struct sockaddr_in6 *)a)->sin6_port);
}

static void any_address(struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)a)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)a)->sin6_addr = in6addr_any;
}

/* At this address, if it is one of this machine's that others reach, else at all of them. Returns the socket or -1. */
static int listen_at(const meeting *m, const struct sockaddr_storage *where, uint32_t length)
{
    struct sockaddr_storage a = *where;
    int                     one = 1, fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (is_loopback(&a) && !m->one_host) any_address(&a);
    int code = bind(fd, (struct sockaddr *)&a, length);
    if (code != 0 && errno == EADDRNOTAVAIL) {
        any_address(&a);
        code = bind(fd, (struct sockaddr *)&a, length);
    }
    if (code == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static int connect_to(const struct sockaddr_storage *a, uint32_t length)
{
    int       fd = socket(a->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), why = 0;
    socklen_t bytes = sizeof why;
    if (fd < 0) return -1;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    if (connect(fd, (const struct sockaddr *)a, length) == 0) return fd;
    why = errno;
    if (why == EINPROGRESS && poll(&p, 1, LATER_S * 1000) > 0) getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &bytes);
    if (why == 0) return fd;
    close(fd);
    errno = why;
    return -1;
}

static bool in_time(const meeting *m)
{
    return tm_now_ns() < m->end_ns;
}

static double left(const meeting *m)
{
    return (double)(m->end_ns - tm_now_ns()) * 1e-9;
}

/* --- who this is ----------------------------------------------------------------------------- */

/* Ranks share memory if they see each other's processes, and the launcher counts them to one node. */
static uint64_t host_hash(const char *name)
{
    char    text[512], boot[64] = "", space[64] = "";
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (n < 0) n = 0;
    (void)tm_file_read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    int length = snprintf(text, sizeof text, "%s %s %s %d", name, boot, space, tm_comm_number("GROUP_RANK", 0));
    return tm_hash(text, (size_t)length);
}

static const char *introduce(meeting *m)
{
    const char *address = getenv("MASTER_ADDR"), *job = getenv("TORCHELASTIC_RUN_ID");
    const char *taken = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int         port = tm_comm_number("MASTER_PORT", 0), local = tm_comm_number("LOCAL_WORLD_SIZE", 0);
    m->own.magic = MAGIC;
    m->own.rank = tm_comm_number("RANK", -1);
    m->own.size = tm_comm_number("WORLD_SIZE", -1);
    if (m->own.rank < 0 || m->own.rank >= m->own.size)
        return COMPLAIN("RANK is %d, WORLD_SIZE is %d: no rank of a world", m->own.rank, m->own.size);
    if (!address || !*address || port < 1 || port > 65534)
        return COMPLAIN(
            "this is rank %d of %d, launched by torchrun or its like, but MASTER_ADDR and MASTER_PORT do not "
            "say where ranks meet; set them, or use --ranks %d, mpirun, or srun --mpi=pmix",
            m->own.rank, m->own.size, m->own.size);
    /* Then the launcher itself listens there. */
    if (taken && strcmp(taken, "True") == 0) port++;
    m->address = address;
    snprintf(m->port, sizeof m->port, "%d", port);
    m->one_host = local == 0 || local == m->own.size;
    m->own.job = tm_hash(job ? job : "", job ? strlen(job) : 0);
    if (gethostname(m->own.host_name, sizeof m->own.host_name - 1) != 0) strcpy(m->own.host_name, "unknown");
    m->own.host = host_hash(m->own.host_name);
    return NULL;
}

static const char *resolve(const meeting *m, struct sockaddr_storage *out, uint32_t *length)
{
    struct addrinfo hint = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
    int             code = getaddrinfo(m->address, m->port, &hint, &found);
    if (code != 0) return COMPLAIN("MASTER_ADDR '%.200s' is no address: %s", m->address, gai_strerror(code));
    memcpy(out, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return NULL;
}

/* --- the first rank -------------------------------------------------------------------------- */

static int32_t judge(const meeting *m, const tm_comm_tcp_card *card)
{
    if (card->size != m->own.size || card->rank < 1 || card->rank >= card->size) return OTHER_SIZE;
    if (card->job != m->own.job) return OTHER_JOB;
    return m->mesh->fd[card->rank] >= 0 ? TWICE : WELCOME;
}

/* One that knocks. */
static bool let_in(meeting *m)
{
    tm_comm_tcp_card card;
    int              fd = accept4(m->listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return false;
    if (!transfer(fd, &card, sizeof card, false, STRANGER_S) || card.magic != MAGIC) {
        close(fd);
        return false;
    }
    int32_t answer = judge(m, &card);
    if (!transfer(fd, &answer, sizeof answer, true, STRANGER_S) || answer != WELCOME) {
        close(fd);
        return false;
    }
    entry    *e = &m->entry[card.rank];
    socklen_t length = sizeof e->address;
    e->card = card;
    e->card.host_name[sizeof e->card.host_name - 1] = '\0';
    getpeername(fd, (struct sockaddr *)&e->address, &length);
    e->length = length;
    set_port(&e->address, card.port);
    m->mesh->fd[card.rank] = fd;
    return true;
}

static void name_missing(const meeting *m, char *out, size_t room)
{
    enum { NAMED = 16 };
    int missing = 0;
    for (int r = 1; r < m->own.size; r++) missing += m->mesh->fd[r] < 0;
    size_t n = (size_t)snprintf(out, room, "rank%s", missing > 1 ? "s" : "");
    int    named = 0;
    for (int r = 1; r < m->own.size && named < NAMED; r++)
        if (m->mesh->fd[r] < 0) n += (size_t)snprintf(out + n, room - n, "%s %d", named++ ? "," : "", r);
    snprintf(out + n, room - n, "%s of %d did not come to rank 0 on %.64s (port %s) within %g s",
             missing > NAMED ? " and others" : "", m->own.size, m->own.host_name, m->port, m->deadline_s);
}

static const char *wait_for_all(meeting *m)
{
    enum { LOOK_MS = 200 };
    struct sockaddr_storage a;
    uint32_t                length;
    news                    told = { .complete = 1 };
    const char             *why = resolve(m, &a, &length);
    if (why) return why;
    m->listening = listen_at(m, &a, length);
    if (m->listening < 0)
        return COMPLAIN("rank 0 cannot listen at MASTER_ADDR %.200s, port %s: %s", m->address, m->port,
                        strerror(errno));
    m->entry[0] = (entry){ .card = m->own };
    for (int came = 1; came < m->own.size && told.complete;) {
        struct pollfd p = { .fd = m->listening, .events = POLLIN };
        if (poll(&p, 1, LOOK_MS) > 0) came += let_in(m);
        if (came < m->own.size && !in_time(m)) told.complete = 0;
    }
    if (!told.complete) name_missing(m, told.words, sizeof told.words);
    size_t bytes = (size_t)m->own.size * sizeof *m->entry;
    for (int r = 1; r < m->own.size; r++) {
        if (m->mesh->fd[r] < 0) continue;
        bool sent = transfer(m->mesh->fd[r], &told, sizeof told, true, LATER_S) &&
                    (!told.complete || transfer(m->mesh->fd[r], m->entry, bytes, true, LATER_S));
        if (!sent && told.complete) return COMPLAIN("rank %d came, and has gone again", r);
    }
    return told.complete ? NULL : COMPLAIN("%s", told.words);
}

/* --- the others ------------------------------------------------------------------------------ */

/* Connects and says who this is. Returns the socket; -1: not yet. *answer: of who is there. */
static int knock(const meeting *m, const struct sockaddr_storage *a, uint32_t length, int32_t *answer)
{
    tm_comm_tcp_card card = m->own;
    int              fd = connect_to(a, length);
    *answer = 0;
    if (fd < 0) return -1;
    /* Who listens may have others to listen to first; who knocks twice would be there twice. */
    if (transfer(fd, &card, sizeof card, true, STRANGER_S) && transfer(fd, answer, sizeof *answer, false, left(m) + 1))
        return fd;
    close(fd);
    return -1;
}

static const char *refused(const meeting *m, int32_t answer)
{
    const char *why = answer == OTHER_SIZE  ? "its WORLD_SIZE is another"
                      : answer == OTHER_JOB ? "its TORCHELASTIC_RUN_ID is another"
                      : answer == TWICE     ? "there is one of this RANK already"
                                            : "it is no rank of this program";
    return COMPLAIN("rank 0 at %.200s, port %s does not take rank %d of %d: %s", m->address, m->port, m->own.rank,
                    m->own.size, why);
}

/* Where ranks above this one will find it: the address by which it has come to the first. */
static const char *listen_here(meeting *m, const struct sockaddr_storage *master, uint32_t master_length)
{
    struct sockaddr_storage own;
    socklen_t               length = sizeof own;
    int                     fd = -1;
    while (fd < 0) {
        fd = connect_to(master, master_length); /* only to learn it */
        if (fd >= 0) break;
        if (!in_time(m))
            return COMPLAIN("rank 0 was not at MASTER_ADDR %.200s, port %s, within %g s: %s", m->address, m->port,
                            m->deadline_s, strerror(errno));
        nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
    }
    getsockname(fd, (struct sockaddr *)&own, &length);
    close(fd);
    set_port(&own, 0);
    m->listening = listen_at(m, &own, length);
    if (m->listening < 0) return COMPLAIN("rank %d cannot listen: %s", m->own.rank, strerror(errno));
    length = sizeof own;
    getsockname(m->listening, (struct sockaddr *)&own, &length);
    m->own.port = port_of(&own);
    return NULL;
}

static const char *come(meeting *m, struct sockaddr_storage *master, uint32_t *length)
{
    int32_t     answer = 0;
    news        told;
    int         fd = -1;
    const char *why = resolve(m, master, length);
    if (!why) why = listen_here(m, master, *length);
    if (why) return why;
    while ((fd = knock(m, master, *length, &answer)) < 0) {
        if (!in_time(m))
            return COMPLAIN("rank 0 at MASTER_ADDR %.200s, port %s, did not answer within %g s", m->address, m->port,
                            m->deadline_s);
        nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
    }
    m->mesh->fd[0] = fd;
    if (answer != WELCOME) return refused(m, answer);
    if (!transfer(fd, &told, sizeof told, false, left(m) + LATER_S))
        return COMPLAIN("rank 0 at %.200s, port %s, has gone before all ranks had come", m->address, m->port);
    told.words[sizeof told.words - 1] = '\0';
    if (!told.complete) return COMPLAIN("%s", told.words);
    if (!transfer(fd, m->entry, (size_t)m->own.size * sizeof *m->entry, false, LATER_S))
        return COMPLAIN("rank 0 has gone while it told of the others");
    return NULL;
}

/* To the ranks below, but the first; then those above come. */
static const char *meet_others(meeting *m, const struct sockaddr_storage *master)
{
    struct sockaddr_storage via;
    socklen_t               length = sizeof via;
    getsockname(m->mesh->fd[0], (struct sockaddr *)&via, &length);
    for (int r = 1; r < m->own.rank; r++) {
        struct sockaddr_storage a = m->entry[r].address;
        int32_t                 answer = 0;
        /* A neighbour of the first rank has come to it over its own machine: it is where the first one is. */
        if (is_loopback(&a) && !is_loopback(&via)) {
            a = *master;
            set_port(&a, m->entry[r].card.port);
        }
        while ((m->mesh->fd[r] = knock(m, &a, m->entry[r].length, &answer)) < 0 && in_time(m))
            nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
        if (answer != WELCOME)
            return COMPLAIN("rank %d does not reach rank %d on %.64s", m->own.rank, r, m->entry[r].card.host_name);
    }
    for (int left_over = m->own.size - 1 - m->own.rank; left_over > 0;) {
        struct pollfd p = { .fd = m->listening, .events = POLLIN };
        if (poll(&p, 1, 200) > 0) left_over -= let_in(m);
        if (left_over > 0 && !in_time(m)) {
            for (int r = m->own.rank + 1; r < m->own.size; r++)
                if (m->mesh->fd[r] < 0)
                    return COMPLAIN("rank %d on %.64s has not reached rank %d within %g s", r,
                                    m->entry[r].card.host_name, m->own.rank, m->deadline_s);
        }
    }
    return NULL;
}

const char *tm_comm_tcp_meet(double deadline_seconds, tm_comm_tcp_mesh *out)
{
    meeting                 m = { .mesh = out, .deadline_s = deadline_seconds, .listening = -1 };
    struct sockaddr_storage master;
    uint32_t                length;
    m.end_ns = tm_now_ns() + (int64_t)(deadline_seconds * 1e9);
    const char *why = introduce(&m);
    if (why) return why;
    size_t n = (size_t)m.own.size;
    *out = (tm_comm_tcp_mesh){ m.own.rank, m.own.size, malloc(n * sizeof(int)), calloc(n, sizeof(tm_comm_tcp_card)) };
    m.entry = calloc(n, sizeof *m.entry);
    if (!out->fd || !out->card || !m.entry) abort();
    for (size_t r = 0; r < n; r++) out->fd[r] = -1;
    if (m.own.rank == 0)
        why = wait_for_all(&m);
    else if (!(why = come(&m, &master, &length)))
        why = meet_others(&m, &master);
    for (int r = 0; r < m.own.size; r++) {
        out->card[r] = m.entry[r].card;
        if (out->fd[r] >= 0 && !why) wait_all(out->fd[r]);
        if (out->fd[r] >= 0 && why) close(out->fd[r]);
    }
    if (m.listening >= 0) close(m.listening);
    free(m.entry);
    if (why) free(out->fd), free(out->card);
    return why;
}
