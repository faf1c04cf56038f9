/* SPDX-License-Identifier: Apache-2.0 */
/* comm/engine/mpi.c - ranks that an MPI has started: the only file that knows MPI. Compiled once with each MPI there
 * is, into a module of its own that the program loads when it needs it; uses nothing of the program.
 *
 * The library is called by one thread at a time and never waits, but for starting, ending and shared windows, which all
 * ranks reach together. It makes no sums and no collective calls of its own with data.
 */
#include "comm/engine.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WINDOWS = 80 };

typedef struct {
    MPI_Comm        world, host;
    pthread_mutex_t lock;
    MPI_Win         window[WINDOWS];
    int             n_windows, local, locals, rank, size;
    int            *host_of;
    char (*host_name)[TM_COMM_HOST_NAME];
} library;

/* What a request keeps. */
typedef struct {
    MPI_Request request;
    size_t      bytes; /* that are to come; 0: it is sent */
} pending;

_Static_assert(sizeof(pending) <= sizeof(tm_comm_request), "a request of MPI fits");

static _Thread_local char complaint[512];

static const char *failed(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  length;
    (void)MPI_Error_string(code, text, &length);
    snprintf(complaint, sizeof complaint, "%s: %.400s", what, text);
    return complaint;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* What all ranks of this host are about to take must be free: a file in memory that is not backed kills its users. */
static const char *check_room(library *l, size_t bytes)
{
    unsigned long long own = bytes, all = 0;
    struct statvfs     disk;
    int                code = MPI_Allreduce(&own, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, l->host);
    if (code != MPI_SUCCESS) return failed("MPI_Allreduce", code);
    if (statvfs("/dev/shm", &disk) != 0) return NULL;
    unsigned long long free_bytes = (unsigned long long)disk.f_bavail * disk.f_frsize;
    if (all <= free_bytes) return NULL;
    snprintf(complaint, sizeof complaint, "the ranks of this host need %llu MiB, /dev/shm has %llu MiB free", all >> 20,
             free_bytes >> 20);
    return complaint;
}

/* Memory of the `local`-th rank, from its first whole page on: the same distance for all who see it. */
static const char *segment(library *l, MPI_Win window, int local, void **where)
{
    MPI_Aint size;
    int      unit, code = MPI_Win_shared_query(window, local, &size, &unit, where);
    (void)l;
    if (code != MPI_SUCCESS) return failed("MPI_Win_shared_query", code);
    *where = (void *)(((uintptr_t)*where + PAGE - 1) / PAGE * PAGE);
    return NULL;
}

static const char *share_locked(library *l, size_t bytes, void **where)
{
    MPI_Win     window;
    MPI_Info    info;
    void       *base;
    const char *why = check_room(l, bytes + PAGE);
    if (!why && l->n_windows == WINDOWS) why = "too many windows";
    if (why) return why;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    int code = MPI_Win_allocate_shared((MPI_Aint)(bytes + PAGE), 1, info, l->host, &base, &window);
    MPI_Info_free(&info);
    if (code != MPI_SUCCESS) return failed("MPI_Win_allocate_shared", code);
    l->window[l->n_windows++] = window;
    for (int r = 0; r < l->locals && !why; r++) why = segment(l, window, r, &where[r]);
    if (why) return why;
    memset(where[l->local], 0, bytes); /* touched first by who uses it most */
    code = MPI_Barrier(l->host);       /* nobody writes to memory that is still being cleared */
    return code == MPI_SUCCESS ? NULL : failed("MPI_Barrier", code);
}

static const char *mpi_share(void *own, size_t bytes, void **where)
{
    library *l = own;
    pthread_mutex_lock(&l->lock);
    const char *why = share_locked(l, bytes, where);
    pthread_mutex_unlock(&l->lock);
    return why;
}

/* --- messages -------------------------------------------------------------------------------- */

static const char *mpi_send(void *own, int to, int tag, const void *data, size_t bytes, tm_comm_request *request)
{
    library *l = own;
    pending  p = { .bytes = 0 };
    pthread_mutex_lock(&l->lock);
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, l->world, &p.request);
    pthread_mutex_unlock(&l->lock);
    memcpy(request, &p, sizeof p);
    return code == MPI_SUCCESS ? NULL : failed("MPI_Isend", code);
}

static const char *mpi_receive(void *own, int from, int tag, void *data, size_t bytes, tm_comm_request *request)
{
    library *l = own;
    pending  p = { .bytes = bytes };
    pthread_mutex_lock(&l->lock);
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, l->world, &p.request);
    pthread_mutex_unlock(&l->lock);
    memcpy(request, &p, sizeof p);
    return code == MPI_SUCCESS ? NULL : failed("MPI_Irecv", code);
}

static const char *mpi_test(void *own, tm_comm_request *request, bool *done)
{
    library   *l = own;
    pending    p;
    MPI_Status status;
    int        flag = 0, came = 0;
    memcpy(&p, request, sizeof p);
    pthread_mutex_lock(&l->lock);
    int code = MPI_Test(&p.request, &flag, &status);
    if (code == MPI_SUCCESS && flag && p.bytes > 0) code = MPI_Get_count(&status, MPI_BYTE, &came);
    pthread_mutex_unlock(&l->lock);
    memcpy(request, &p, sizeof p);
    *done = flag || code != MPI_SUCCESS;
    if (code != MPI_SUCCESS) return failed("MPI_Test", code);
    if (!flag || p.bytes == 0 || (size_t)came == p.bytes) return NULL;
    snprintf(complaint, sizeof complaint, "a message has %d bytes, expected were %zu", came, p.bytes);
    return complaint;
}

static void mpi_cancel(void *own, tm_comm_request *request)
{
    library *l = own;
    pending  p;
    memcpy(&p, request, sizeof p);
    pthread_mutex_lock(&l->lock);
    if (p.bytes > 0) MPI_Cancel(&p.request);
    MPI_Request_free(&p.request);
    pthread_mutex_unlock(&l->lock);
}

/* A small message counts as sent when the library has copied it. */
static void mpi_move_on(void *own)
{
    library *l = own;
    int      flag;
    pthread_mutex_lock(&l->lock);
    MPI_Iprobe(MPI_ANY_SOURCE, TM_COMM_TAGS, l->world, &flag, MPI_STATUS_IGNORE); /* nobody sends with that tag */
    pthread_mutex_unlock(&l->lock);
}

/* --- from beginning to end ------------------------------------------------------------------- */

static void mpi_abort(void *own, int code, const char *message)
{
    library *l = own;
    char     line[4400];
    if (message) {
        int n = snprintf(line, sizeof line, "trainmark: rank %d: %s\n", l->rank, message);
        if (n >= (int)sizeof line) n = (int)sizeof line - 1;
        if (write(STDERR_FILENO, line, (size_t)n) < 0) code = code ? code : 1;
    } else {
        /* The rank that speaks ends us all; this is for the case that it cannot. */
        nanosleep(&(struct timespec){ .tv_sec = 2 }, NULL);
    }
#ifdef OPEN_MPI
    MPI_Abort(l->world, code);
#endif
    _exit(code); /* MPICH's launcher ends the others as soon as one goes like this, and after MPI_Abort only when all
                    have */
}

#ifndef OPEN_MPI
static atomic_bool finalized;

static void *finalize(void *nothing)
{
    MPI_Finalize();
    atomic_store(&finalized, true);
    return nothing;
}

/* MPICH's end over TCP was seen to wait for ever when ranks outnumber processors; all have said goodbye already. A rank
 * that does not wait any longer ends with its own exit code. */
static void end_library(bool several_hosts)
{
    enum { LOOKS = 500, LOOK_NS = 10000000, LAST = 100 };
    pthread_t thread;
    /* One rank's last answers to another go out only while it is in a call that is not yet the end. */
    for (int i = 0, flag; i < LAST && several_hosts; i++) {
        MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS / 5 }, NULL);
    }
    if (pthread_create(&thread, NULL, finalize, NULL) != 0) {
        MPI_Finalize();
        return;
    }
    for (int i = 0; i < LOOKS && !atomic_load(&finalized); i++)
        nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
    if (atomic_load(&finalized))
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
}
#else
static void end_library(bool several_hosts)
{
    (void)several_hosts;
    MPI_Finalize();
}
#endif

static void mpi_close(void *own, bool world_failed)
{
    library *l = own;
    if (!world_failed) { /* else others may never come, and the library would wait for them */
        for (int i = 0; i < l->n_windows; i++) MPI_Win_free(&l->window[i]);
        bool several_hosts = l->locals < l->size;
        MPI_Comm_free(&l->host);
        MPI_Comm_free(&l->world);
        end_library(several_hosts);
    }
    pthread_mutex_destroy(&l->lock);
    free(l->host_of);
    free(l->host_name);
    free(l);
}

#ifdef OPEN_MPI
#define NAME "openmpi"
#define END_S 5
#else
#define NAME "mpich"
#define END_S 7 /* more than end_library */
#endif

static const tm_comm_engine mpi = {
    .name = NAME,
    .end_s = END_S,
    .share = mpi_share,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .move_on = mpi_move_on,
    .abort = mpi_abort,
    .close = mpi_close,
};

/* Numbers of hosts in the order of their first ranks, and their names. */
static const char *find_hosts(library *l, int size)
{
    int  leader = l->rank, *leaders = malloc((size_t)size * sizeof *leaders), hosts = 0;
    char name[TM_COMM_HOST_NAME] = "", (*names)[TM_COMM_HOST_NAME] = malloc((size_t)size * sizeof *names);
    l->host_of = malloc((size_t)size * sizeof *l->host_of);
    if (!leaders || !names || !l->host_of) abort();
    const char *node = getenv("SLURMD_NODENAME"); /* virtual nodes of one machine have one name of the system's */
    if (gethostname(name, sizeof name - 1) != 0) strcpy(name, "unknown");
    if (node && getenv("SLURM_STEP_ID")) snprintf(name, sizeof name, "%s", node);
    int code = MPI_Bcast(&leader, 1, MPI_INT, 0, l->host);
    if (code == MPI_SUCCESS) code = MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, l->world);
    if (code == MPI_SUCCESS)
        code = MPI_Allgather(name, TM_COMM_HOST_NAME, MPI_CHAR, names, TM_COMM_HOST_NAME, MPI_CHAR, l->world);
    for (int r = 0; r < size && code == MPI_SUCCESS; r++) {
        l->host_of[r] = leaders[r] == r ? hosts : l->host_of[leaders[r]];
        if (leaders[r] == r) memmove(names[hosts++], names[r], TM_COMM_HOST_NAME);
    }
    l->host_name = names;
    free(leaders);
    return code == MPI_SUCCESS ? NULL : failed("MPI_Allgather", code);
}

const char *tm_comm_module(tm_comm_ports *out);

const char *tm_comm_module(tm_comm_ports *out)
{
    int given, size, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    if (code != MPI_SUCCESS) return failed("MPI_Init_thread", code);
    if (given < MPI_THREAD_SERIALIZED) return "this MPI lets only one thread of a process call it";
    library *l = calloc(1, sizeof *l);
    if (!l) abort();
    pthread_mutex_init(&l->lock, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &l->world);
    MPI_Comm_set_errhandler(l->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(l->world, &l->rank);
    MPI_Comm_size(l->world, &size);
    l->size = size;
    code = MPI_Comm_split_type(l->world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &l->host);
    if (code != MPI_SUCCESS) return failed("MPI_Comm_split_type", code);
    MPI_Comm_set_errhandler(l->host, MPI_ERRORS_RETURN);
    MPI_Comm_rank(l->host, &l->local);
    MPI_Comm_size(l->host, &l->locals);
    const char *why = find_hosts(l, size);
    if (why) return why;
    *out = (tm_comm_ports){ &mpi, l, l->rank, size, l->host_of, (const char(*)[TM_COMM_HOST_NAME])l->host_name };
    return NULL;
}
