/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/tcp.c - ranks that no MPI has started: messages over connections between any two (rendezvous.c makes
 * them, frames.c says what goes over them), memory of a host through /proc/PID/fd. Whoever asks whether a message has
 * ended moves all of them on; there is no thread.
 */
#include "comm/group.h"
#include "comm/engine/frames.h"
#include "comm/engine/tcp.h"

#include "base/arena.h"
#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, TAG_OFFER = TM_COMM_TAGS, TAG_MAPPED, TAGS, FAREWELL_MS = 2000 };

_Static_assert((int)TAGS == (int)TM_COMM_FRAME_TAGS, "a tag for each kind of message");

typedef struct {
    void  *memory;
    size_t bytes;
} mapping;

typedef struct {
    tm_comm_tcp_mesh mesh;
    pthread_mutex_t  lock;
    tm_comm_peer    *peer; /* (size) */
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
    return memset(tm_alloc(bytes), 0, bytes);
}

static void move_on(library *l, int wait_ms)
{
    for (int r = 0; r < l->mesh.size; r++) {
        tm_comm_peer *p = &l->peer[r];
        tm_comm_peer_push(p);
        l->poll[r] = (struct pollfd){ .fd = p->fd, .events = (short)(POLLIN | (p->out && !p->ends ? POLLOUT : 0)) };
    }
    if (poll(l->poll, (nfds_t)l->mesh.size, wait_ms) <= 0) return;
    for (int r = 0; r < l->mesh.size; r++)
        if (l->poll[r].revents) tm_comm_peer_pull(&l->peer[r]);
}

/* --- messages -------------------------------------------------------------------------------- */

/* What a request keeps: word 0 the message, word 1 whether it goes out, word 2 the other rank. */
static const char *tcp_send(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    library *l = own;
    pthread_mutex_lock(&l->lock);
    const tm_comm_outgoing *o = tm_comm_peer_send(&l->peer[to], tag, data, bytes);
    pthread_mutex_unlock(&l->lock);
    *request = (tm_comm_request){ { (uint64_t)(uintptr_t)o, 1, (uint64_t)to } };
    return NULL;
}

static const char *tcp_receive(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    library *l = own;
    pthread_mutex_lock(&l->lock);
    const tm_comm_wanted *w = tm_comm_peer_receive(&l->peer[from], tag, data, bytes);
    pthread_mutex_unlock(&l->lock);
    *request = (tm_comm_request){ { (uint64_t)(uintptr_t)w, 0, (uint64_t)from } };
    return NULL;
}

static const char *gone(const library *l, int rank)
{
    const char *host = l->mesh.card[rank].host_name, *fault = l->peer[rank].fault;
    if (*fault) return COMPLAIN("the connection to rank %d on %.63s was ended: it has sent %s", rank, host, fault);
    return COMPLAIN("rank %d on %.63s has gone: its connection is closed", rank, host);
}

static const char *tcp_test(void *own, tm_comm_request *request, bool *done)
{
    library          *l = own;
    void             *message = (void *)(uintptr_t)request->word[0]; // NOLINT(performance-no-int-to-ptr): it was one
    int               other = (int)request->word[2];
    const char       *why = NULL;
    tm_comm_outgoing *o = request->word[1] ? message : NULL;
    tm_comm_wanted   *w = o ? NULL : message;
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
    tm_comm_peer_cancel(&l->peer[request->word[2]], message);
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
    for (int r = 0; r < l->mesh.size; r++) {
        tm_comm_peer_push(&l->peer[r]);
        l->peer[r].ends = true;
        if (l->peer[r].fd >= 0) shutdown(l->peer[r].fd, SHUT_WR);
    }
    for (int open = 1; open > 0 && tm_now_ns() < end;) {
        move_on(l, 10);
        open = 0;
        for (int r = 0; r < l->mesh.size; r++) open += l->peer[r].fd >= 0;
    }
}

static void tcp_close(void *own, bool failed)
{
    library *l = own;
    if (!failed) say_goodbye(l);
    for (int r = 0; r < l->mesh.size; r++) tm_comm_peer_free(&l->peer[r]);
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
