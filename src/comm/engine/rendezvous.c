/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/rendezvous.c - ranks find each other: each comes to the first one, at MASTER_ADDR and MASTER_PORT, and
 * says who it is and where it listens; when all have come, the first one tells everybody of everybody, and each rank
 * connects to those below it. At every connection both ends prove that they know the secret of the job. Who does not,
 * or is of another job, is sent away.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "comm/engine/address.h"
#include "comm/engine/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { AGAIN_NS = 50000000, LATER_S = 5, LOOK_MS = 200 };

/* Where a rank listens, as the first one sees it. */
typedef struct {
    tm_comm_tcp_card card;
    tm_comm_address  address;
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
    bool              one_host, wild; /* all ranks are here, as far as the launcher says; MASTER_ADDR is any address */
    tm_comm_key       secret;
    bool              knows;          /* the secret */
    bool              given;          /* by the user */
    char              kept[PATH_MAX]; /* the file that the first rank has made; "": none */
    tm_comm_door      door;
    bool              opened; /* the door */
} meeting;

/* --- sending and receiving ------------------------------------------------------------------- */

/* All of it, within `seconds`. */
static bool transfer(int fd, void *data, size_t bytes, bool out, double seconds)
{
    int64_t end = tm_now_ns() + (int64_t)(seconds * 1e9);
    for (size_t at = 0; at < bytes;) {
        struct pollfd p = { .fd = fd, .events = out ? POLLOUT : POLLIN };
        int64_t       left = (end - tm_now_ns()) / 1000000;
        int           ready = left <= 0 ? 0 : poll(&p, 1, (int)left);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t n =
            out ? send(fd, (char *)data + at, bytes - at, MSG_NOSIGNAL) : recv(fd, (char *)data + at, bytes - at, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

/* With a proof behind it that it is from the other end of this connection. */
static bool tell(int fd, const tm_comm_key *key, const char *purpose, void *data, size_t bytes, double seconds)
{
    tm_comm_key proof;
    tm_comm_prove(key, purpose, data, bytes, &proof);
    return transfer(fd, data, bytes, true, seconds) && transfer(fd, &proof, sizeof proof, true, seconds);
}

static bool hear(int fd, const tm_comm_key *key, const char *purpose, void *data, size_t bytes, double seconds)
{
    tm_comm_key proof;
    return transfer(fd, data, bytes, false, seconds) && transfer(fd, &proof, sizeof proof, false, seconds) &&
           tm_comm_is_proven(key, purpose, data, bytes, &proof);
}

static void wait_all(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool in_time(const meeting *m)
{
    return tm_now_ns() < m->end_ns;
}

static double left(const meeting *m)
{
    return (double)(m->end_ns - tm_now_ns()) * 1e-9;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
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

static tm_status introduce(meeting *m, tm_error *err)
{
    const char *address = getenv("MASTER_ADDR"), *job = getenv("TORCHELASTIC_RUN_ID");
    const char *taken = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int         port = tm_comm_number("MASTER_PORT", 0), local = tm_comm_number("LOCAL_WORLD_SIZE", 0);
    m->own.rank = tm_comm_number("RANK", -1);
    m->own.size = tm_comm_number("WORLD_SIZE", -1);
    if (m->own.rank < 0 || m->own.rank >= m->own.size)
        return tm_fail(err, TM_INVALID, "RANK is %d, WORLD_SIZE is %d: no rank of a world", m->own.rank, m->own.size);
    if (!address || !*address || port < 1 || port > 65534)
        return tm_fail(
            err, TM_INVALID,
            "this is rank %d of %d, launched by torchrun or its like, but MASTER_ADDR and MASTER_PORT do not "
            "say where ranks meet; set them, or use --ranks %d, mpirun, or srun --mpi=pmix",
            m->own.rank, m->own.size, m->own.size);
    /* Then the launcher itself listens there. */
    if (taken && strcmp(taken, "True") == 0) port++;
    m->address = address;
    snprintf(m->port, sizeof m->port, "%d", port);
    m->one_host = local == 0 || local == m->own.size;
    m->own.pid = (uint32_t)getpid();
    m->own.job = tm_hash(job ? job : "", job ? strlen(job) : 0);
    if (gethostname(m->own.host_name, sizeof m->own.host_name - 1) != 0) strcpy(m->own.host_name, "unknown");
    m->own.host = host_hash(m->own.host_name);
    return TM_OK;
}

static tm_status resolve(meeting *m, tm_comm_address *out, tm_error *err)
{
    const char *why = tm_comm_address_find(m->address, m->port, !m->one_host, out);
    if (why) return tm_fail(err, TM_IO, "MASTER_ADDR '%.200s' is no address: %s", m->address, why);
    m->wild = tm_comm_address_is_any(out);
    if (m->wild && m->one_host) tm_comm_address_set_loopback(out);
    return TM_OK;
}

/* --- the secret ------------------------------------------------------------------------------ */

/* One meeting place, one file: who listens there makes it. */
static uint64_t name_of_secret(const meeting *m)
{
    char text[512];
    int  n = snprintf(text, sizeof text, "%.300s %s", m->address, m->port);
    return tm_hash(text, (size_t)n);
}

/* Where none is given and ranks are on several hosts, as far as this one can tell, there can be no secret. */
static tm_status look_for_secret(meeting *m, const tm_comm_address *master, tm_error *err)
{
    TM_TRY(tm_comm_secret_given(&m->secret, &m->given, err));
    m->knows = m->given;
    bool here = tm_comm_address_is_loopback(master) || (m->one_host && tm_comm_address_is_own(master));
    if (m->given || here) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "ranks on several hosts need a secret in common, and this one (rank %d on %.64s) has none; "
                   "`export TRAINMARK_SECRET=$(openssl rand -hex 16)`, the same on all hosts, before the launcher "
                   "(srun hands it on by itself), or TRAINMARK_SECRET_FILE=FILE of mode 0600",
                   m->own.rank, m->own.host_name);
}

/* --- the first rank -------------------------------------------------------------------------- */

static tm_status bind_first(meeting *m, tm_error *err)
{
    tm_comm_address a;
    TM_TRY(resolve(m, &a, err));
    TM_TRY(look_for_secret(m, &a, err));
    if (!m->one_host && !m->wild && tm_comm_address_is_loopback(&a) && !tm_comm_address_says_loopback(m->address))
        return tm_fail(err, TM_INVALID,
                       "MASTER_ADDR '%.200s' is an address here that other hosts do not reach (a line of /etc/hosts?); "
                       "give this host's own address in its network",
                       m->address);
    int fd = tm_comm_address_bind(&a);
    if (fd < 0 && errno == EADDRNOTAVAIL)
        return tm_fail(err, TM_INVALID,
                       "rank 0 cannot listen at MASTER_ADDR %.200s, port %s: it is no address of this host (%.64s); on "
                       "the first host, set MASTER_ADDR to one of its own",
                       m->address, m->port, m->own.host_name);
    if (fd < 0)
        return tm_fail(err, TM_IO, "rank 0 cannot listen at MASTER_ADDR %.200s, port %s: %s", m->address, m->port,
                       strerror(errno));
    /* Before anybody can call: who is answered finds the file of this run, not one that was left. */
    tm_status st = m->given ? TM_OK : tm_comm_secret_make(name_of_secret(m), &m->secret, m->kept, err);
    if (st == TM_OK && tm_comm_address_listen(fd) != 0)
        st = tm_fail(err, TM_IO, "rank 0 cannot listen at MASTER_ADDR %.200s, port %s: %s", m->address, m->port,
                     strerror(errno));
    if (st != TM_OK) {
        close(fd);
        return st;
    }
    m->knows = m->opened = true;
    tm_comm_door_open(&m->door, fd, m->own.rank, &m->secret);
    return TM_OK;
}

static tm_comm_verdict judge(const meeting *m, const tm_comm_tcp_card *card)
{
    if (card->size != m->own.size || card->rank <= m->own.rank || card->rank >= card->size) return TM_COMM_OTHER_SIZE;
    if (card->job != m->own.job) return TM_COMM_OTHER_JOB;
    if (m->mesh->fd[card->rank] >= 0) return TM_COMM_TWICE;
    /* Ranks but the first know by now who there is. */
    if (m->own.rank > 0 && memcmp(card, &m->entry[card->rank].card, sizeof *card) != 0) return TM_COMM_TWICE;
    return TM_COMM_WELCOME;
}

/* One that has proven itself. */
static bool let_in(meeting *m)
{
    tm_comm_arrival a;
    if (!tm_comm_door_look(&m->door, LOOK_MS, &a)) return false;
    const tm_comm_tcp_card *card = &a.encounter.card;
    if (!tm_comm_door_answer(&m->door, &a, judge(m, card))) return false;
    if (m->own.rank == 0) {
        entry *e = &m->entry[card->rank];
        e->card = *card;
        e->card.host_name[sizeof e->card.host_name - 1] = '\0';
        tm_comm_address_of_peer(a.fd, &e->address);
        tm_comm_address_set_port(&e->address, card->port);
    }
    m->mesh->fd[card->rank] = a.fd;
    tm_comm_connection_key(&m->secret, &a.encounter, &m->mesh->key[card->rank]);
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
    n += (size_t)snprintf(out + n, room - n, "%s of %d did not come to rank 0 on %.64s (port %s) within %g s",
                          missing > NAMED ? " and others" : "", m->own.size, m->own.host_name, m->port, m->deadline_s);
    if (m->door.strangers > 0)
        snprintf(out + n, room - n, "; %lld caller%s did not know the secret of this job", (long long)m->door.strangers,
                 m->door.strangers > 1 ? "s" : "");
}

static tm_status wait_for_all(meeting *m, tm_error *err)
{
    news told = { .complete = 1 };
    TM_TRY(bind_first(m, err));
    m->entry[0] = (entry){ .card = m->own };
    for (int came = 1; came < m->own.size && told.complete;) {
        came += let_in(m);
        if (came < m->own.size && !in_time(m)) told.complete = 0;
    }
    if (!told.complete) name_missing(m, told.words, sizeof told.words);
    size_t bytes = (size_t)m->own.size * sizeof *m->entry;
    for (int r = 1; r < m->own.size; r++) {
        int                fd = m->mesh->fd[r];
        const tm_comm_key *key = &m->mesh->key[r];
        if (fd < 0) continue;
        bool sent = tell(fd, key, "trainmark news", &told, sizeof told, LATER_S) &&
                    (!told.complete || tell(fd, key, "trainmark ranks", m->entry, bytes, LATER_S));
        if (!sent && told.complete) return tm_fail(err, TM_IO, "rank %d came, and has gone again", r);
    }
    return told.complete ? TM_OK : tm_fail(err, TM_IO, "%s", told.words);
}

/* --- the others ------------------------------------------------------------------------------ */

/* Both ends of this connection prove themselves. 0: not yet, who listens has said nothing or gone. *st: it cannot. */
static int greet(meeting *m, int fd, int rank, tm_status *st, tm_error *err)
{
    tm_comm_hello     hello;
    tm_comm_claim     claim = { .card = m->own };
    tm_comm_encounter e = { .card = m->own, .door = rank };
    tm_comm_answer    answer;
    /* Who listens may have others to listen to first. */
    if (!transfer(fd, &hello, sizeof hello, false, left(m) + 1)) return 0;
    if (hello.magic != TM_COMM_MAGIC) return TM_COMM_FOREIGN;
    if (!m->knows) *st = tm_comm_secret_find(name_of_secret(m), &m->secret, err);
    if (*st != TM_OK) return 0;
    m->knows = true;
    randombytes_buf(claim.random, sizeof claim.random);
    memcpy(e.listener, hello.random, sizeof e.listener);
    memcpy(e.caller, claim.random, sizeof e.caller);
    tm_comm_prove_caller(&m->secret, &e, &claim.proof);
    if (!transfer(fd, &claim, sizeof claim, true, LATER_S) || !transfer(fd, &answer, sizeof answer, false, left(m) + 1))
        return 0;
    if (answer.verdict == TM_COMM_STRANGER) return TM_COMM_STRANGER;
    if (!tm_comm_listener_is_proven(&m->secret, &e, &answer)) return TM_COMM_UNPROVEN;
    tm_comm_connection_key(&m->secret, &e, &m->mesh->key[rank]);
    return answer.verdict;
}

static tm_status refused(const meeting *m, int verdict, tm_error *err)
{
    bool        secret = verdict == TM_COMM_STRANGER || verdict == TM_COMM_UNPROVEN;
    const char *why = verdict == TM_COMM_OTHER_SIZE  ? "its WORLD_SIZE is another"
                      : verdict == TM_COMM_OTHER_JOB ? "its TORCHELASTIC_RUN_ID is another"
                      : verdict == TM_COMM_TWICE     ? "there is one of this RANK already"
                      : secret                       ? "their secrets (TRAINMARK_SECRET) are not the same"
                                                     : "it is no rank of this program";
    return tm_fail(err, secret ? TM_INVALID : TM_IO, "rank 0 at %.200s, port %s does not take rank %d of %d: %s",
                   m->address, m->port, m->own.rank, m->own.size, why);
}

/* Where ranks above this one will find it: the address by which it has come to the first. */
static tm_status listen_here(meeting *m, int to_first, tm_error *err)
{
    tm_comm_address own;
    tm_comm_address_of_own(to_first, &own);
    tm_comm_address_set_port(&own, 0);
    /* Its neighbour has come over its own host; others come from elsewhere. */
    if (m->wild && !m->one_host) tm_comm_address_set_any(&own);
    int fd = tm_comm_address_bind(&own);
    if (fd < 0 || tm_comm_address_listen(fd) != 0) {
        int why = errno;
        if (fd >= 0) close(fd);
        return tm_fail(err, TM_IO, "rank %d cannot listen: %s", m->own.rank, strerror(why));
    }
    tm_comm_address_of_own(fd, &own);
    m->own.port = tm_comm_address_port(&own);
    m->opened = true;
    tm_comm_door_open(&m->door, fd, m->own.rank, &m->secret); /* the secret follows */
    return TM_OK;
}

/* Until rank 0 has answered. */
static tm_status knock(meeting *m, const tm_comm_address *master, tm_error *err)
{
    tm_status st = TM_OK;
    bool      reached = false;
    for (int verdict = 0, why = 0;;) {
        int fd = tm_comm_address_connect(master, LATER_S);
        if (fd < 0) why = errno;
        if (fd >= 0 && !m->opened) st = listen_here(m, fd, err);
        if (fd >= 0 && st == TM_OK) verdict = greet(m, fd, 0, &st, err);
        if (verdict == TM_COMM_WELCOME && st == TM_OK) {
            m->mesh->fd[0] = fd;
            m->door.secret = m->secret;
            return TM_OK;
        }
        if (fd >= 0) close(fd);
        if (st != TM_OK) return st;
        if (verdict) return refused(m, verdict, err);
        reached = reached || fd >= 0;
        if (!in_time(m) && reached)
            return tm_fail(err, TM_IO, "rank 0 at MASTER_ADDR %.200s, port %s, did not answer within %g s", m->address,
                           m->port, m->deadline_s);
        if (!in_time(m))
            return tm_fail(err, TM_IO, "rank 0 was not at MASTER_ADDR %.200s, port %s, within %g s: %s", m->address,
                           m->port, m->deadline_s, strerror(why));
        nap();
    }
}

static tm_status come(meeting *m, tm_comm_address *master, tm_error *err)
{
    news told;
    TM_TRY(resolve(m, master, err));
    TM_TRY(look_for_secret(m, master, err));
    TM_TRY(knock(m, master, err));
    int                fd = m->mesh->fd[0];
    const tm_comm_key *key = &m->mesh->key[0];
    if (!hear(fd, key, "trainmark news", &told, sizeof told, left(m) + LATER_S))
        return tm_fail(err, TM_IO, "rank 0 at %.200s, port %s, has gone before all ranks had come", m->address,
                       m->port);
    told.words[sizeof told.words - 1] = '\0';
    if (!told.complete) return tm_fail(err, TM_IO, "%s", told.words);
    if (!hear(fd, key, "trainmark ranks", m->entry, (size_t)m->own.size * sizeof *m->entry, LATER_S))
        return tm_fail(err, TM_IO, "rank 0 has gone while it told of the others");
    return TM_OK;
}

static tm_status reach(meeting *m, int rank, const tm_comm_address *a, tm_error *err)
{
    tm_status st = TM_OK;
    for (int verdict = 0;;) {
        int fd = tm_comm_address_connect(a, LATER_S);
        if (fd >= 0) verdict = greet(m, fd, rank, &st, err);
        if (verdict == TM_COMM_WELCOME) {
            m->mesh->fd[rank] = fd;
            return TM_OK;
        }
        if (fd >= 0) close(fd);
        if (verdict || !in_time(m))
            return tm_fail(err, TM_IO, "rank %d does not reach rank %d on %.64s", m->own.rank, rank,
                           m->entry[rank].card.host_name);
        nap();
    }
}

/* To the ranks below, but the first; then those above come. */
static tm_status meet_others(meeting *m, const tm_comm_address *master, tm_error *err)
{
    tm_comm_address via;
    tm_comm_address_of_own(m->mesh->fd[0], &via);
    for (int r = 1; r < m->own.rank; r++) {
        tm_comm_address a = m->entry[r].address;
        /* A neighbour of the first rank has come to it over its own machine: it is where the first one is. */
        if (tm_comm_address_is_loopback(&a) && !tm_comm_address_is_loopback(&via)) {
            a = *master;
            tm_comm_address_set_port(&a, m->entry[r].card.port);
        }
        TM_TRY(reach(m, r, &a, err));
    }
    for (int left_over = m->own.size - 1 - m->own.rank; left_over > 0;) {
        left_over -= let_in(m);
        if (left_over == 0 || in_time(m)) continue;
        for (int r = m->own.rank + 1; r < m->own.size; r++)
            if (m->mesh->fd[r] < 0)
                return tm_fail(err, TM_IO, "rank %d on %.64s has not reached rank %d within %g s", r,
                               m->entry[r].card.host_name, m->own.rank, m->deadline_s);
    }
    return TM_OK;
}

/* --- both ------------------------------------------------------------------------------------ */

void tm_comm_tcp_mesh_free(tm_comm_tcp_mesh *mesh)
{
    if (mesh->key) sodium_memzero(mesh->key, (size_t)mesh->size * sizeof *mesh->key);
    free(mesh->fd);
    free(mesh->card);
    free(mesh->key);
    *mesh = (tm_comm_tcp_mesh){ 0 };
}

static void *take(size_t bytes)
{
    return memset(tm_alloc(bytes), 0, bytes);
}

static void part(meeting *m, bool well)
{
    for (int r = 0; r < m->own.size; r++) {
        m->mesh->card[r] = m->entry[r].card;
        m->mesh->card[r].host_name[TM_COMM_HOST_NAME - 1] = '\0';
        if (m->mesh->fd[r] >= 0 && well) wait_all(m->mesh->fd[r]);
        if (m->mesh->fd[r] >= 0 && !well) close(m->mesh->fd[r]);
    }
    if (m->opened) tm_comm_door_close(&m->door);
    if (m->kept[0]) unlink(m->kept);
    sodium_memzero(&m->secret, sizeof m->secret);
    free(m->entry);
    if (!well) tm_comm_tcp_mesh_free(m->mesh);
}

tm_status tm_comm_tcp_meet(double deadline_seconds, tm_comm_tcp_mesh *out, tm_error *err)
{
    meeting         m = { .mesh = out, .deadline_s = deadline_seconds };
    tm_comm_address master;
    m.end_ns = tm_now_ns() + (int64_t)(deadline_seconds * 1e9);
    TM_TRY(tm_comm_proof_begin(err));
    TM_TRY(introduce(&m, err));
    size_t n = (size_t)m.own.size;
    *out = (tm_comm_tcp_mesh){ m.own.rank, m.own.size, take(n * sizeof(int)), take(n * sizeof(tm_comm_tcp_card)),
                               take(n * sizeof(tm_comm_key)) };
    m.entry = take(n * sizeof *m.entry);
    for (size_t r = 0; r < n; r++) out->fd[r] = -1;
    tm_status st = m.own.rank == 0 ? wait_for_all(&m, err) : come(&m, &master, err);
    if (st == TM_OK && m.own.rank > 0) st = meet_others(&m, &master, err);
    part(&m, st == TM_OK);
    return st;
}
