/* SPDX-License-Identifier: Apache-2.0 */
/* comm/memory.c - memory that the ranks of a host have in common.
 *
 * A rank makes a file that lies in memory only (memfd) and has no name; the others open it through the table of open
 * files that the system shows of every process (/proc/PID/fd) and map it. It counts as memory of who touches it, is
 * limited by nothing but the memory there is, and is gone with the last process that has it. Whose process it is, is
 * not taken from what a rank says: each has written its number into its part of the host's memory, where only a process
 * of this host can have written it. A range begins in the file at the same place of a huge page as in memory, so that
 * both can be huge pages where the system gives them to files.
 */
#include "comm/group.h"

#include "base/arena.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, WORLD_SLOT = 0 };
/* The size of a file in memory stays, so that no access ends behind it. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static void *take(size_t bytes)
{
    return memset(tm_alloc(bytes), 0, bytes);
}

/* --- files ----------------------------------------------------------------------------------- */

/* Lays the ranges out in the window's file. Returns its size. */
static size_t lay_out(tm_comm_window *window, const tm_comm_range *ranges, int n)
{
    size_t end = 0;
    window->parts = take((size_t)(n > 0 ? n : 1) * sizeof *window->parts);
    for (int i = 0; i < n; i++) {
        uintptr_t begin = (uintptr_t)ranges[i].memory;
        TM_ASSERT(begin % PAGE == 0 && ranges[i].bytes % PAGE == 0);
        if (ranges[i].bytes == 0) continue;
        size_t at = end + (HUGE_PAGE + begin % HUGE_PAGE - end % HUGE_PAGE) % HUGE_PAGE;
        window->parts[window->n_parts++] = (tm_comm_part){ begin, ranges[i].bytes, at };
        end = at + ranges[i].bytes;
    }
    return end;
}

tm_comm_file tm_comm_file_make(size_t bytes)
{
    struct stat  facts;
    tm_comm_file own = { .pid = getpid(), .fd = -1, .bytes = bytes };
    if (bytes == 0) return own;
    int fd = memfd_create("trainmark", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0 || fstat(fd, &facts) != 0) {
        own.why = errno;
        if (fd >= 0) close(fd);
        return own;
    }
    own.fd = fd;
    own.device = facts.st_dev;
    own.inode = facts.st_ino;
    return own;
}

/* A file that begins with a huge page, in this process too; MAP_FAILED with errno. */
static void *map_aligned(int fd, size_t bytes)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char  *span = mmap(NULL, whole + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (span == MAP_FAILED) return MAP_FAILED;
    char *begin = span + (HUGE_PAGE - (uintptr_t)span % HUGE_PAGE) % HUGE_PAGE, *end = begin + whole;
    if (begin > span) munmap(span, (size_t)(begin - span));
    if (span + whole + HUGE_PAGE > end) munmap(end, (size_t)(span + whole + HUGE_PAGE - end));
    return mmap(begin, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
}

/* What is open there is a file of a rank of this user, and the one that is meant. Returns 0 or the errno. */
static int check_file(int fd, const tm_comm_file *its)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0) return errno;
    /* Where ranks do not see each other's processes, that number may be another one's: then it is another file. */
    if (facts.st_dev != its->device || facts.st_ino != its->inode) return ESRCH;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || facts.st_uid != geteuid()) return EPERM;
    return facts.st_size >= 0 && (uint64_t)facts.st_size >= its->bytes ? 0 : EPERM;
}

int tm_comm_file_map(const tm_comm_file *its, int64_t pid, void **where)
{
    char path[64];
    *where = NULL;
    if (its->why) return (int)its->why;
    if (its->bytes == 0) return 0;
    if (its->pid != pid) return EPERM;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)its->pid, (long long)its->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    int   why = check_file(fd, its);
    void *memory = why ? MAP_FAILED : map_aligned(fd, its->bytes);
    if (!why && memory == MAP_FAILED) why = errno;
    close(fd);
    if (why) return why;
    madvise(memory, its->bytes, MADV_HUGEPAGE);
    *where = memory;
    return 0;
}

/* Returns 0 or the errno. */
static int map_file(const tm_comm_world *world, const tm_comm_file *its, tm_comm_window *window, int local)
{
    int why = tm_comm_file_map(its, world->segment[local]->pid, &window->where[local]);
    if (!why && its->bytes > 0) window->mapped[local] = its->bytes;
    return why;
}

/* This rank's ranges become the file. Returns 0 or the errno. */
static int place(const tm_comm_window *window, int fd)
{
    for (int i = 0; i < window->n_parts; i++) {
        const tm_comm_part *part = &window->parts[i];
        void               *at = (void *)part->begin; // NOLINT(performance-no-int-to-ptr): it came from a pointer
        if (mmap(at, part->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)part->at) == MAP_FAILED)
            return errno;
        madvise(at, part->bytes, MADV_HUGEPAGE);
    }
    return 0;
}

/* --- windows --------------------------------------------------------------------------------- */

void tm_comm_window_close(tm_comm_window *window)
{
    for (int l = 0; l < TM_COMM_LOCAL; l++)
        if (window->where[l]) munmap(window->where[l], window->mapped[l]);
    if (window->own) munmap(window->own, window->own_bytes);
    free(window->parts);
    free(window);
}

static tm_status gather(tm_comm *comm, const void *own, size_t bytes, void *all, tm_error *err)
{
    tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                           .format = TM_COMM_BYTES,
                           .send = own,
                           .receive = all,
                           .count = bytes,
                           .what = "memory for collective calls",
                           .step = -1 };
    return tm_comm_run(comm, &call, err);
}

/* TM_UNSUPPORTED on all ranks if one of them has a reason. */
static tm_status agree(tm_comm *comm, int64_t why, tm_error *err)
{
    int64_t  *all = take((size_t)comm->size * sizeof *all);
    tm_status st = gather(comm, &why, sizeof why, all, err);
    for (int r = 0; r < comm->size && st == TM_OK; r++)
        if (all[r])
            st = tm_fail(err, TM_UNSUPPORTED, "rank %d cannot reach the memory of the ranks of its host: %s%s", r,
                         strerror((int)all[r]),
                         all[r] == ENOENT || all[r] == EACCES || all[r] == ESRCH
                             ? " (they have to see each other's processes in /proc, as the same user)"
                             : "");
    free(all);
    return st;
}

static tm_status open_files(tm_comm *comm, const tm_comm_file *all, tm_comm_window *window, tm_error *err)
{
    const tm_comm_world *world = comm->world;
    int                  me = world->ports.rank, why = 0;
    for (int r = 0; r < comm->size && !why; r++) {
        if (world->ports.host[r] != world->ports.host[me]) continue;
        why = (int)all[r].why;
        if (r != me && !why) why = map_file(world, &all[r], window, world->local[r]);
    }
    return agree(comm, why, err);
}

/* The window is the world's from here on, whatever becomes of it: its number is that of all ranks. */
static tm_status add_window(tm_comm *comm, tm_comm_window *window, int *share, tm_error *err)
{
    tm_comm_world *world = comm->world;
    if (world->n_windows == TM_COMM_WINDOWS) {
        tm_comm_window_close(window);
        return tm_comm_fail(comm, TM_INVALID, err, "memory was shared %d times in a world, more is not supported",
                            TM_COMM_WINDOWS);
    }
    *share = world->n_windows;
    world->window[world->n_windows] = window;
    world->n_windows++; /* last: other threads look for memory meanwhile */
    return TM_OK;
}

tm_status tm_comm_share(tm_comm *comm, const tm_comm_range *ranges, int n, int *share, tm_error *err)
{
    tm_comm_world  *world = comm->world;
    tm_comm_window *window = take(sizeof *window);
    size_t          bytes = lay_out(window, ranges, n);
    tm_comm_file    own = tm_comm_file_make(world->local_size > 1 ? bytes : 0);
    int             why = 0;
    TM_ASSERT(comm->slot == WORLD_SLOT);
    tm_comm_file *all = take((size_t)comm->size * sizeof *all);
    tm_status     st = gather(comm, &own, sizeof own, all, err);
    if (st == TM_OK) st = open_files(comm, all, window, err);
    if (st == TM_OK && world->local_size > 1) why = place(window, (int)own.fd);
    if (own.fd >= 0) close((int)own.fd);
    free(all);
    if (st != TM_OK) {
        tm_comm_window_close(window);
        return st;
    }
    TM_TRY(add_window(comm, window, share, err));
    if (why)
        return tm_comm_fail(comm, TM_NOMEM, err, "rank %d cannot share %llu bytes of memory: %s", comm->rank,
                            (unsigned long long)own.bytes, strerror(why));
    atomic_store_explicit(&window->open, true, memory_order_release);
    return TM_OK;
}

/* Its place stays taken: numbers of windows are the same on all ranks. */
void tm_comm_unshare(tm_comm *comm, int share)
{
    tm_comm_world *world = comm->world;
    TM_ASSERT(share >= 0 && share < world->n_windows);
    tm_comm_window *window = world->window[share];
    atomic_store_explicit(&window->open, false, memory_order_release);
    for (int l = 0; l < TM_COMM_LOCAL; l++) {
        if (window->where[l]) munmap(window->where[l], window->mapped[l]);
        window->where[l] = NULL;
    }
}

tm_status tm_comm_alloc(tm_comm *comm, size_t bytes, void **memory, tm_error *err)
{
    size_t whole = bytes == 0 ? PAGE : (bytes + PAGE - 1) / PAGE * PAGE;
    void  *taken = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int    share = -1;
    char   text[32];
    *memory = NULL;
    if (taken == MAP_FAILED)
        return tm_comm_fail(comm, TM_NOMEM, err, "rank %d cannot reserve %s for collective calls: %s", comm->rank,
                            tm_format_bytes(text, (double)bytes), strerror(errno));
    tm_status st = tm_comm_share(comm, &(tm_comm_range){ taken, whole }, 1, &share, err);
    if (st != TM_OK) {
        munmap(taken, whole);
        return st;
    }
    comm->world->window[share]->own = taken;
    comm->world->window[share]->own_bytes = whole;
    *memory = taken;
    return TM_OK;
}

void tm_comm_free(tm_comm *comm, void *memory)
{
    tm_comm_world *world = comm->world;
    for (int i = 0; i < world->n_windows && memory; i++) {
        tm_comm_window *window = world->window[i];
        if (window->own != memory) continue;
        tm_comm_unshare(comm, i);
        munmap(memory, window->own_bytes);
        window->own = NULL;
        return;
    }
    TM_ASSERT(!memory);
}

/* --- what lies where ------------------------------------------------------------------------- */

void tm_comm_extents(const tm_comm *comm, const tm_collective *call, size_t *sends, size_t *receives)
{
    size_t one = call->count * tm_comm_bytes_of(call->format);
    *sends = *receives = one;
    if (call->kind == TM_COMM_REDUCE_SCATTER) *sends = one * (size_t)comm->size;
    if (call->kind == TM_COMM_ALL_GATHER) *receives = one * (size_t)comm->size;
    if (call->kind == TM_COMM_BROADCAST && comm->rank != call->peer) *sends = 0;
}

void tm_comm_locate(const tm_comm_world *world, const void *memory, size_t bytes, int32_t *window, uint64_t *at)
{
    int       count = world->n_windows;
    uintptr_t begin = (uintptr_t)memory;
    *window = bytes > 0 || count == 0 ? -1 : 0;
    *at = 0;
    for (int i = 0; i < count && *window < 0; i++) {
        const tm_comm_window *w = world->window[i];
        if (!atomic_load_explicit(&w->open, memory_order_acquire)) continue;
        for (int k = 0; k < w->n_parts && *window < 0; k++) {
            const tm_comm_part *part = &w->parts[k];
            if (begin < part->begin || begin + bytes > part->begin + part->bytes) continue;
            *window = i;
            *at = part->at + (begin - part->begin);
        }
    }
}

void *tm_comm_reach(const tm_comm *comm, int rank, int32_t window, uint64_t at)
{
    static char          nothing; /* of no bytes */
    const tm_comm_world *world = comm->world;
    char                *file = world->window[window]->where[world->local[comm->member[rank]]];
    return file ? file + at : &nothing;
}
