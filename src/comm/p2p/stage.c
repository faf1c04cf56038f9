/* SPDX-License-Identifier: Apache-2.0 */
/* comm/p2p/stage.c - large buffered sends within a host: a copy lies in shared memory, and the packet says where. The
 * receiver takes it from there when it comes to it; nobody looks after it meanwhile, as the processor of a thread that
 * would is the sender's, which computes.
 *
 * A staging file (memory.c) is memory with the data of one message at a time. The ranks of a host can open each other's
 * files once they have shared memory; before, and where they cannot, the engine carries such messages (send_queue.c).
 */
#include "comm/p2p/p2p.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STAGES = 64, PAGE = 4096 };

struct tm_comm_stage {
    tm_comm_stage *next;
    tm_comm_file   file;
    void          *memory;
    int            to; /* own ones: whom the last message was for, and the end of its packet */
    uint64_t       end;
};

static tm_comm_stage *add_stage(tm_comm_stage **list, const tm_comm_file *file, void *memory)
{
    tm_comm_stage *stage = tm_alloc(sizeof *stage);
    *stage = (tm_comm_stage){ .next = *list, .file = *file, .memory = memory, .to = -1 };
    return *list = stage;
}

static bool is_taken(const tm_comm_world *world, const tm_comm_stage *stage)
{
    return stage->to < 0 || tm_comm_ring_taken(world, stage->to, stage->end);
}

/* The smallest one that is free and large enough, or a new one; NULL: there are too many, or the system gives none. */
static tm_comm_stage *find_stage(tm_comm_world *world, size_t bytes)
{
    int            count = 0;
    tm_comm_stage *best = NULL;
    for (tm_comm_stage *t = world->stages; t; t = t->next, count++)
        if (t->file.bytes >= bytes && (!best || t->file.bytes < best->file.bytes) && is_taken(world, t)) best = t;
    if (best || count == STAGES) return best;
    void        *memory = NULL;
    tm_comm_file file = tm_comm_file_make((bytes + PAGE - 1) / PAGE * PAGE);
    if (tm_comm_file_map(&file, getpid(), &memory) == 0) return add_stage(&world->stages, &file, memory);
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

bool tm_comm_stage_put(tm_comm_world *world, int to, int tag, const tm_comm_header *header, const void *data,
                       size_t bytes)
{
    if (!are_open(world)) return false;
    pthread_mutex_lock(&world->lock);
    tm_comm_stage *stage = find_stage(world, bytes);
    uint64_t       end;
    bool           laid = false;
    if (stage) {
        memcpy(stage->memory, data, bytes);
        laid = tm_comm_ring_put(world, to, tag, header, TM_COMM_STAGED, &stage->file, sizeof stage->file, &end);
    }
    if (laid) stage->to = to, stage->end = end;
    pthread_mutex_unlock(&world->lock);
    return laid;
}

const void *tm_comm_stage_map(tm_comm_stage **seen, const tm_comm_file *file, int64_t pid, int *why)
{
    for (const tm_comm_stage *t = *seen; t; t = t->next)
        if (t->file.inode == file->inode && t->file.device == file->device) return t->memory;
    void *memory;
    *why = tm_comm_file_map(file, pid, &memory);
    return *why ? NULL : add_stage(seen, file, memory)->memory;
}

void tm_comm_stages_unmap(tm_comm_stage *seen)
{
    while (seen) {
        tm_comm_stage *stage = seen;
        seen = stage->next;
        munmap(stage->memory, stage->file.bytes);
        free(stage);
    }
}

void tm_comm_stages_close(tm_comm_world *world)
{
    int64_t until = tm_now_ns() + (int64_t)(world->deadline_s * 1e9);
    for (const tm_comm_stage *t = world->stages; t; t = t->next) {
        while (!is_taken(world, t) && !world->failed && tm_now_ns() < until)
            nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
        close((int)t->file.fd);
    }
    tm_comm_stages_unmap(world->stages);
    world->stages = NULL;
}
