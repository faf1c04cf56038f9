/* SPDX-License-Identifier: Apache-2.0 */
/* comm/tray.c - large messages within a host that nobody waits for: a copy lies in memory that both ends have in
 * common, and the letter says where. The receiver takes it from there when it comes to it; nobody looks after it
 * meanwhile, as the processor of a thread that would is the sender's, which computes.
 *
 * A tray is a file (memory.c) with the data of one message at a time. The ranks of a host can open each other's files
 * once they have shared memory; before, and where they cannot, the engine carries such messages (post.c).
 */
#include "comm/group.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TRAYS = 64, PAGE = 4096 };

struct tm_comm_tray {
    tm_comm_tray *next;
    tm_comm_file  file;
    void         *memory;
    int           to; /* own ones: whom the last message was for, and the end of its letter */
    uint64_t      end;
};

static tm_comm_tray *add_tray(tm_comm_tray **list, const tm_comm_file *file, void *memory)
{
    tm_comm_tray *tray = tm_alloc(sizeof *tray);
    *tray = (tm_comm_tray){ .next = *list, .file = *file, .memory = memory, .to = -1 };
    return *list = tray;
}

static bool is_taken(const tm_comm_world *world, const tm_comm_tray *tray)
{
    return tray->to < 0 || tm_comm_mail_taken(world, tray->to, tray->end);
}

/* The smallest one that is free and large enough, or a new one; NULL: there are too many, or the system gives none. */
static tm_comm_tray *find_tray(tm_comm_world *world, size_t bytes)
{
    int           count = 0;
    tm_comm_tray *best = NULL;
    for (tm_comm_tray *t = world->trays; t; t = t->next, count++)
        if (t->file.bytes >= bytes && (!best || t->file.bytes < best->file.bytes) && is_taken(world, t)) best = t;
    if (best || count == TRAYS) return best;
    void        *memory = NULL;
    tm_comm_file file = tm_comm_file_make((bytes + PAGE - 1) / PAGE * PAGE);
    if (tm_comm_file_map(&file, &memory) == 0) return add_tray(&world->trays, &file, memory);
    if (file.fd >= 0) close((int)file.fd);
    return NULL;
}

/* Can the ranks of this host open each other's files? All have, if any memory is shared. */
static bool are_open(const tm_comm_world *world)
{
    bool any = false;
    for (int i = 0, n = world->n_windows; i < n && !any; i++) any = atomic_load(&world->window[i]->open);
    return any;
}

bool tm_comm_lay_out(tm_comm_world *world, int to, int tag, const tm_comm_notice *notice, const void *data,
                     size_t bytes)
{
    if (!are_open(world)) return false;
    pthread_mutex_lock(&world->lock);
    tm_comm_tray *tray = find_tray(world, bytes);
    uint64_t      end;
    bool          laid = false;
    if (tray) {
        memcpy(tray->memory, data, bytes);
        laid = tm_comm_mail_put(world, to, tag, notice, TM_COMM_LAID_OUT, &tray->file, sizeof tray->file, &end);
    }
    if (laid) tray->to = to, tray->end = end;
    pthread_mutex_unlock(&world->lock);
    return laid;
}

const void *tm_comm_see_tray(tm_comm_tray **seen, const tm_comm_file *file, int *why)
{
    for (const tm_comm_tray *t = *seen; t; t = t->next)
        if (t->file.inode == file->inode && t->file.device == file->device) return t->memory;
    void *memory;
    *why = tm_comm_file_map(file, &memory);
    return *why ? NULL : add_tray(seen, file, memory)->memory;
}

void tm_comm_close_seen(tm_comm_tray *seen)
{
    while (seen) {
        tm_comm_tray *tray = seen;
        seen = tray->next;
        munmap(tray->memory, tray->file.bytes);
        free(tray);
    }
}

void tm_comm_close_trays(tm_comm_world *world)
{
    int64_t until = tm_now_ns() + (int64_t)(world->deadline_s * 1e9);
    for (const tm_comm_tray *t = world->trays; t; t = t->next) {
        while (!is_taken(world, t) && !world->failed && tm_now_ns() < until)
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        close((int)t->file.fd);
    }
    tm_comm_close_seen(world->trays);
    world->trays = NULL;
}
