/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/tcp.c - ranks that no MPI has started: messages over connections between any two (comm/rendezvous.c makes
 * them), memory of a host through /proc/PID/fd. A message is a frame {tag, bytes} and the bytes. Whoever asks whether
 * one has ended moves all of them on; there is no thread.
 */
#include "comm/group.h"
#include "comm/engine/tcp.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"

enum { PAGE = 4096, TAG_OFFER = TM_COMM_TAGS, TAG_MAPPED, FAREWELL_MS = 2000 };

typedef struct {
    uint64_t tag, bytes;
} frame;

/* A message that goes out. */
typedef struct outgoing {
    struct outgoing *next;
    frame            head;
    const char      *data;
    size_t           at; /* of head and data */
    bool             done;
} outgoing;

/* One that is waited for. */
typedef struct wanted {
    struct wanted *next;
    uint64_t       tag;
    size_t         bytes;
    void          *data;
    bool           done, other_size;
    int            from;
} wanted;

/* One that has come, or is coming, before it was waited for. */
typedef struct parcel {
    struct parcel *next;
    frame          head;
    char          *data;
    size_t         at;
    wanted        *goes_to; /* somebody waits for it by now */
} parcel;

typedef struct {
    int       fd; /* -1: gone */
    outgoing *out;
    wanted   *wanted;
    parcel   *parcels; /* complete, but for the last, which may be `coming` */
    frame     head;    /* that is coming */
    size_t    head_at;
    wanted   *into; /* the bytes behind it go there ... */
    size_t    into_at;
    parcel   *coming; /* ... or there */
} peer;

typedef struct {
    void  *memory;
    size_t bytes;
} mapping;

typedef struct {
    tm_comm_tcp_mesh mesh;
    pthread_mutex_t  lock;
    peer            *peer; /* (size) */
    struct pollfd   *poll; /* (size) */
    int             *host; /* (size) */
    char (*host_name)[TM_COMM_HOST_NAME];
    mapping *mapped;
    int      n_mapped;
    double   deadline_s;
} library;

static _Thread_local char complaint[512];

#define COMPLAIN(...) (snprintf(complaint, sizeof complaint, __VA_ARGS__), complaint)

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    if (!memory) abort();
    return memory;
}

/* --- moving on ------------------------------------------------------------------------------- */

static void lose(peer *p)
{
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
}

static void push(peer *p)
{
    while (p->fd >= 0 && p->out) {
        outgoing *o = p->out;
        bool      head = o->at < sizeof o->head;
        size_t    at = head ? o->at : o->at - sizeof o->head;
        ssize_t   n =
            send(p->fd, (head ? (const char *)&o->head : o->data) + at, (head ? sizeof o->head : o->head.bytes) - at,
                 MSG_NOSIGNAL | (head && o->head.bytes ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0) {
            lose(p);
            return;
        }
        o->at += (size_t)n;
        if (o->at < sizeof o->head + o->head.bytes) continue;
        p->out = o->next;
        o->done = true;
    }
}

static wanted *find_wanted(peer *p, uint64_t tag)
{
    for (wanted **at = &p->wanted; *at; at = &(*at)->next) {
        wanted *w = *at;
        if (w->tag != tag) continue;
        *at = w->next;
        return w;
    }
    return NULL;
}

static void append_parcel(peer *p, parcel *new)
{
    parcel **at = &p->parcels;
    while (*at) at = &(*at)->next;
    *at = new;
}

static void remove_parcel(peer *p, const parcel *old)
{
    parcel **at = &p->parcels;
    while (*at != old) at = &(*at)->next;
    *at = old->next;
}

static void deliver(peer *p, parcel *from, wanted *to)
{
    to->other_size = from->head.bytes != to->bytes;
    if (!to->other_size && to->bytes > 0) memcpy(to->data, from->data, to->bytes);
    to->done = true;
    remove_parcel(p, from);
    free(from->data);
    free(from);
}

/* The head is complete: where do its bytes go? */
static void begin_message(peer *p)
{
    wanted *w = find_wanted(p, p->head.tag);
    if (w && w->bytes == p->head.bytes) {
        p->into = w;
        p->into_at = 0;
        return;
    }
    parcel *new = take(sizeof *new);
    *new = (parcel){ .head = p->head, .data = take(p->head.bytes), .goes_to = w };
    append_parcel(p, new);
    p->coming = new;
}

static bool end_message(peer *p)
{
    if (p->into ? p->into_at < p->head.bytes : p->coming->at < p->head.bytes) return false;
    if (p->into)
        p->into->done = true;
    else if (p->coming->goes_to)
        deliver(p, p->coming, p->coming->goes_to);
    p->into = NULL;
    p->coming = NULL;
    p->head_at = 0;
    return true;
}

static void pull(peer *p)
{
    while (p->fd >= 0) {
        bool    head = !p->into && !p->coming;
        char   *to = head      ? (char *)&p->head + p->head_at
                     : p->into ? (char *)p->into->data + p->into_at
                               : p->coming->data + p->coming->at;
        size_t  have = head ? p->head_at : p->into ? p->into_at : p->coming->at;
        size_t  want = (head ? sizeof p->head : p->head.bytes) - have;
        ssize_t n = want > 0 ? recv(p->fd, to, want, 0) : 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n < 0 || (n == 0 && want > 0)) {
            lose(p);
            return;
        }
        if (head)
            p->head_at += (size_t)n;
        else if (p->into)
            p->into_at += (size_t)n;
        else
            p->coming->at += (size_t)n;
        if (head && p->head_at < sizeof p->head) continue;
        if (head) begin_message(p);
        (void)end_message(p);
    }
}

static void move_on(library *l, int wait_ms)
{
    for (int r = 0; r < l->mesh.size; r++) {
        peer *p = &l->peer[r];
        if (p->out) push(p);
        l->poll[r] = (struct pollfd){ .fd = p->fd, .events = (short)(POLLIN | (p->out ? POLLOUT : 0)) };
    }
    if (poll(l->poll, (nfds_t)l->mesh.size, wait_ms) <= 0) return;
    for (int r = 0; r < l->mesh.size; r++)
        if (l->poll[r].revents) pull(&l->peer[r]);
}

/* --- messages -------------------------------------------------------------------------------- */

/* What a request keeps: word 0 the message, word 1 whether it goes out, word 2 the other rank. */
static const char *tcp_send(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    library  *l = own;
    outgoing *o = take(sizeof *o), **at = &l->peer[to].out;
    *o = (outgoing){ .head = { (uint64_t)tag, bytes }, .data = data };
    pthread_mutex_lock(&l->lock);
    while (*at) at = &(*at)->next;
    *at = o;
    push(&l->peer[to]);
    pthread_mutex_unlock(&l->lock);
    *request = (tm_comm_request){ { (uint64_t)(uintptr_t)o, 1, (uint64_t)to } };
    return NULL;
}

static const char *tcp_receive(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    library *l = own;
    peer    *p = &l->peer[from];
    wanted  *w = take(sizeof *w), **at = &p->wanted;
    parcel  *there;
    *w = (wanted){ .tag = (uint64_t)tag, .bytes = bytes, .data = data, .from = from };
    pthread_mutex_lock(&l->lock);
    there = p->parcels;
    while (there && (there->head.tag != w->tag || there->goes_to)) there = there->next;
    if (there && there == p->coming) {
        there->goes_to = w;
    } else if (there) {
        deliver(p, there, w);
    } else {
        while (*at) at = &(*at)->next;
        *at = w;
    }
    pthread_mutex_unlock(&l->lock);
    *request = (tm_comm_request){ { (uint64_t)(uintptr_t)w, 0, (uint64_t)from } };
    return NULL;
}

static const char *gone(const library *l, int rank)
{
    return COMPLAIN("rank %d on %.63s has gone: its connection is closed", rank, l->mesh.card[rank].host_name);
}

static const char *tcp_test(void *own, tm_comm_request *request, bool *done)
{
    library    *l = own;
    void       *message = (void *)(uintptr_t)request->word[0]; // NOLINT(performance-no-int-to-ptr): it was a pointer
    int         other = (int)request->word[2];
    const char *why = NULL;
    outgoing   *o = request->word[1] ? message : NULL;
    wanted     *w = o ? NULL : message;
    pthread_mutex_lock(&l->lock);
    if (!(o ? o->done : w->done)) move_on(l, 0);
    *done = o ? o->done : w->done;
    if (*done && w && w->other_size)
        why = COMPLAIN("a message of rank %d has another size than the %zu bytes that are expected", other, w->bytes);
    if (*done)
        free(message);
    else if (l->peer[other].fd < 0 && other != l->mesh.rank)
        why = gone(l, other);
    pthread_mutex_unlock(&l->lock);
    return why;
}

/* The world has failed: what is left of the connection is of no use. */
static void tcp_cancel(void *own, tm_comm_request *request)
{
    library *l = own;
    void    *message = (void *)(uintptr_t)request->word[0]; // NOLINT(performance-no-int-to-ptr): it was a pointer
    pthread_mutex_lock(&l->lock);
    peer *p = &l->peer[request->word[2]];
    lose(p);
    for (outgoing **at = &p->out; *at && request->word[1]; at = &(*at)->next)
        if (*at == message) {
            *at = (*at)->next;
            break;
        }
    for (wanted **at = &p->wanted; *at && !request->word[1]; at = &(*at)->next)
        if (*at == message) {
            *at = (*at)->next;
            break;
        }
    free(message);
    pthread_mutex_unlock(&l->lock);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Of small messages while the world begins: to and from every rank of this host. */
static const char *swap(library *l, int tag, const void *own, size_t bytes, void *all)
{
    int              size = l->mesh.size, me = l->mesh.rank;
    tm_comm_request *request = take((size_t)size * 2 * sizeof *request);
    bool            *open = take((size_t)size * 2 * sizeof *open), waits = true;
    const char      *why = NULL;
    int64_t          end = tm_now_ns() + (int64_t)(l->deadline_s * 1e9);
    for (int r = 0; r < size; r++) {
        if (r == me || l->host[r] != l->host[me]) continue;
        (void)tcp_send(l, r, tag, own, bytes, &request[2 * r]);
        (void)tcp_receive(l, r, tag, (char *)all + (size_t)r * bytes, bytes, &request[2 * r + 1]);
        open[2 * r] = open[2 * r + 1] = true;
    }
    while (waits && !why) {
        waits = false;
        for (int i = 0; i < 2 * size && !why; i++) {
            bool done = false;
            if (!open[i]) continue;
            why = tcp_test(l, &request[i], &done);
            open[i] = !done;
            waits = waits || !done;
            if (!done && !why && tm_now_ns() > end)
                why = COMPLAIN("rank %d on %.63s is late: no word of it for %g s while the world begins", i / 2,
                               l->mesh.card[i / 2].host_name, l->deadline_s);
        }
        if (waits && !why) move_on(l, 1);
    }
    memcpy((char *)all + (size_t)me * bytes, own, bytes);
    free(request);
    free(open);
    return why;
}

/* What a rank writes behind its memory for each other one of its host: only who knows the key of their connection can
 * write it, and only a process of this host can have written it there. */
typedef struct {
    uint64_t device, inode, bytes;
    int64_t  owner, reader;
} label;

static const char memory_proof[] = "trainmark memory";

static tm_comm_key *proofs_in(void *memory, const tm_comm_file *file)
{
    return (tm_comm_key *)(void *)((char *)memory + file->bytes - TM_COMM_LOCAL * sizeof(tm_comm_key));
}

/* Into the file of this rank, a proof for each rank of the host in their order. */
static const char *sign_memory(library *l, const tm_comm_file *mine)
{
    void *memory;
    int   me = l->mesh.rank, local = 0, why = tm_comm_file_map(mine, getpid(), &memory);
    if (why) return COMPLAIN("the memory of rank %d: %s", me, strerror(why));
    for (int r = 0; r < l->mesh.size; r++) {
        if (l->host[r] != l->host[me]) continue;
        label it = { mine->device, mine->inode, mine->bytes, me, r };
        if (r != me) tm_comm_prove(&l->mesh.key[r], memory_proof, &it, sizeof it, &proofs_in(memory, mine)[local]);
        local++;
    }
    munmap(memory, mine->bytes);
    return NULL;
}

static bool is_signed(const library *l, int rank, int own_local, void *memory, const tm_comm_file *file)
{
    const label it = { file->device, file->inode, file->bytes, rank, l->mesh.rank };
    return rank == l->mesh.rank ||
           tm_comm_is_proven(&l->mesh.key[rank], memory_proof, &it, sizeof it, &proofs_in(memory, file)[own_local]);
}

/* Of all ranks of this host. */
static const char *map_all(library *l, const tm_comm_file *all, size_t least, void **where)
{
    int me = l->mesh.rank, own_local = 0, local = 0;
    for (int r = 0; r < me; r++) own_local += l->host[r] == l->host[me];
    l->mapped = tm_realloc(l->mapped, (size_t)(l->n_mapped + l->mesh.size) * sizeof *l->mapped);
    for (int r = 0; r < l->mesh.size; r++) {
        if (l->host[r] != l->host[me]) continue;
        if (all[r].bytes < least && !all[r].why) return COMPLAIN("the memory of rank %d is too small", r);
        int cannot = tm_comm_file_map(&all[r], l->mesh.card[r].pid, &where[local]);
        if (cannot) return COMPLAIN("the memory of rank %d: %s", r, strerror(cannot));
        l->mapped[l->n_mapped++] = (mapping){ where[local], all[r].bytes };
        if (!is_signed(l, r, own_local, where[local], &all[r]))
            return COMPLAIN("the memory of rank %d has no proof that it is its own", r);
        local++;
    }
    return NULL;
}

static const char *tcp_share(void *own, size_t bytes, void **where)
{
    library      *l = own;
    size_t        proofs = TM_COMM_LOCAL * sizeof(tm_comm_key), whole = (bytes + PAGE - 1) / PAGE * PAGE + proofs;
    tm_comm_file *all = take((size_t)l->mesh.size * sizeof *all), mine = tm_comm_file_make(whole);
    const char   *why = mine.why ? NULL : sign_memory(l, &mine); /* the others hear of a failure */
    if (!why) why = swap(l, TAG_OFFER, &mine, sizeof mine, all);
    if (!why) why = map_all(l, all, proofs, where);
    free(all);
    /* The file is there until all have it; one that could not map says so by going. */
    char mapped = 1, *answers = take((size_t)l->mesh.size);
    if (!why) why = swap(l, TAG_MAPPED, &mapped, 1, answers);
    free(answers);
    if (!mine.why) close((int)mine.fd);
    return why;
}

/* --- from beginning to end ------------------------------------------------------------------- */

static void tcp_abort(void *own, int code, const char *message)
{
    library *l = own;
    char     line[4400];
    if (message) {
        int n = snprintf(line, sizeof line, "trainmark: rank %d: %s\n", l->mesh.rank, message);
        if (n >= (int)sizeof line) n = (int)sizeof line - 1;
        if (write(STDERR_FILENO, line, (size_t)n) < 0) code = code ? code : 1;
    } else {
        /* The rank that speaks goes first: launchers report the first. */
        nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
    }
    _exit(code);
}

/* What others have sent last is read before the connection is closed: else what was sent to them may be lost. */
static void say_goodbye(library *l)
{
    int64_t end = tm_now_ns() + (int64_t)FAREWELL_MS * 1000000;
    for (int r = 0; r < l->mesh.size; r++)
        if (l->peer[r].fd >= 0) shutdown(l->peer[r].fd, SHUT_WR);
    for (int open = 1; open > 0 && tm_now_ns() < end;) {
        move_on(l, 10);
        open = 0;
        for (int r = 0; r < l->mesh.size; r++) open += l->peer[r].fd >= 0;
    }
}

static void free_peer(peer *p)
{
    lose(p);
    while (p->parcels) {
        parcel *next = p->parcels->next;
        free(p->parcels->data);
        free(p->parcels);
        p->parcels = next;
    }
}

static void tcp_close(void *own, bool failed)
{
    library *l = own;
    if (!failed) say_goodbye(l);
    for (int r = 0; r < l->mesh.size; r++) free_peer(&l->peer[r]);
    for (int i = 0; i < l->n_mapped; i++) munmap(l->mapped[i].memory, l->mapped[i].bytes);
    pthread_mutex_destroy(&l->lock);
    tm_comm_tcp_mesh_free(&l->mesh);
    free(l->mapped);
    free(l->peer);
    free(l->poll);
    free(l->host);
    free(l->host_name);
    free(l);
}

static const tm_comm_engine tcp = {
    .name = "tcp",
    .share = tcp_share,
    .send = tcp_send,
    .receive = tcp_receive,
    .test = tcp_test,
    .cancel = tcp_cancel,
    .abort = tcp_abort,
    .close = tcp_close,
};

tm_status tm_comm_tcp_open(double deadline_seconds, tm_comm_ports *out, tm_error *err)
{
    library  *l = take(sizeof *l);
    tm_status st = tm_comm_tcp_meet(deadline_seconds, &l->mesh, err);
    if (st != TM_OK) {
        free(l);
        return st;
    }
    int size = l->mesh.size, hosts = 0;
    pthread_mutex_init(&l->lock, NULL);
    l->deadline_s = deadline_seconds;
    l->peer = take((size_t)size * sizeof *l->peer);
    l->poll = take((size_t)size * sizeof *l->poll);
    l->host = take((size_t)size * sizeof *l->host);
    l->host_name = take((size_t)size * sizeof *l->host_name);
    for (int r = 0; r < size; r++) {
        int first = 0;
        while (l->mesh.card[first].host != l->mesh.card[r].host) first++;
        l->host[r] = first < r ? l->host[first] : hosts++;
        memcpy(l->host_name[l->host[r]], l->mesh.card[first].host_name, TM_COMM_HOST_NAME);
        l->peer[r].fd = l->mesh.fd[r];
    }
    *out = (tm_comm_ports){ &tcp, l, l->mesh.rank, size, l->host, (const char(*)[TM_COMM_HOST_NAME])l->host_name };
    return TM_OK;
}
