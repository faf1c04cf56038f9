/* SPDX-License-Identifier: Apache-2.0 */
/* device/late - the kernels of the CPU behind the most awkward queue there can be, for tests.
 *
 * Nothing is done before somebody waits for it, so that what was not waited for shows: a read holds 0xff bytes until
 * then (NaN), a write takes what its source holds then. Memory is apart: full of 0xff bytes at first, and out of reach
 * (PROT_NONE) of everybody while the queue stands still.
 *
 * Beside the queue of computations the others are as late as a wait allows, and at every second wait of the host as
 * early: then what they must wait for shows, too. What nobody waits for may never be done.
 */
#include "base/arena.h"
#include "base/clock.h"
#include "device/cpu/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, POISON = 0xff };

typedef struct {
    tm_address memory;
    size_t     bytes;
} block;

typedef struct {
    tm_cpu    cpu; /* first: tm_cpu_choose and tm_cpu_limit find it there */
    block    *blocks;
    size_t    n_blocks, room;
    tm_bound *binding; /* where calls go meanwhile */
    bool      early;   /* next time the other queues go first, as far as they may */
} late;

typedef enum { WRITE, READ, COPY, FILL, LAUNCH, RECORD, WAIT_FOR } command_kind;

typedef struct {
    command_kind     kind;
    void            *to;
    const void      *from;
    size_t           bytes;
    unsigned char    value;
    const tm_kernel *kernel;
    const tm_call   *call;
    tm_instant      *instant;
    tm_queue        *other;  /* WAIT_FOR */
    size_t           number; /* WAIT_FOR: how much of the other queue */
} command;

struct tm_queue {
    tm_device *device;
    command   *commands;
    size_t     count, done, room;
    size_t     before; /* commands that were done and forgotten */
};

/* Calls in their order, each with its queue. */
struct tm_bound {
    tm_queue **queues;
    command   *commands;
    size_t     count, room;
};

struct tm_instant {
    tm_queue *queue;  /* NULL: not recorded yet */
    size_t    number; /* commands of the queue up to and with the recording */
    int64_t   ns;
};

static void info(tm_device *device, int threads)
{
    tm_cpu_info(device, sizeof(late), threads);
    device->info.own_memory = true;
}

static void close_late(tm_device *device)
{
    free(((late *)device->own)->blocks);
    tm_host_close(device);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static tm_status protect(const block *b, int access, tm_error *err)
{
    if (mprotect(tm_host_pointer(b->memory), (b->bytes + PAGE - 1) / PAGE * PAGE, access) == 0) return TM_OK;
    return tm_fail(err, TM_DEVICE, "cannot change who may use %zu bytes: %s", b->bytes, strerror(errno));
}

static tm_status alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    late *own = device->own;
    block b = { .bytes = bytes };
    TM_TRY(tm_host_alloc(device, bytes, &b.memory, err));
    memset(tm_host_pointer(b.memory), POISON, bytes);
    tm_status st = protect(&b, PROT_NONE, err);
    if (st != TM_OK) {
        tm_host_free(device, b.memory, bytes);
        return st;
    }
    if (own->n_blocks == own->room) {
        own->room = own->room ? 2 * own->room : 8;
        own->blocks = tm_realloc(own->blocks, own->room * sizeof *own->blocks);
    }
    own->blocks[own->n_blocks++] = b;
    *out = b.memory;
    return TM_OK;
}

static void free_late(tm_device *device, tm_address memory, size_t bytes)
{
    late  *own = device->own;
    size_t i = 0;
    while (i < own->n_blocks && own->blocks[i].memory.at != memory.at) i++;
    TM_ASSERT(i < own->n_blocks && own->blocks[i].bytes == bytes);
    own->blocks[i] = own->blocks[--own->n_blocks];
    tm_host_free(device, memory, bytes);
}

static tm_status protect_all(const tm_device *device, int access, tm_error *err)
{
    const late *own = device->own;
    for (size_t i = 0; i < own->n_blocks; i++) TM_TRY(protect(&own->blocks[i], access, err));
    return TM_OK;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

static tm_status queue_open(tm_device *device, tm_queue **out, tm_error *err)
{
    (void)err;
    *out = tm_alloc(sizeof **out);
    (*out)->device = device;
    return TM_OK;
}

static void queue_close(tm_queue *queue)
{
    free(queue->commands);
    free(queue);
}

static tm_status keep(tm_bound *b, tm_queue *queue, command c)
{
    if (b->count == b->room) {
        b->room = b->room ? 2 * b->room : 64;
        b->commands = tm_realloc(b->commands, b->room * sizeof *b->commands);
        b->queues = tm_realloc(b->queues, b->room * sizeof(tm_queue *));
    }
    b->queues[b->count] = queue;
    b->commands[b->count++] = c;
    return TM_OK;
}

static tm_status put(tm_queue *queue, command c)
{
    tm_bound *binding = ((late *)queue->device->own)->binding;
    if (binding) return keep(binding, queue, c);
    if (queue->count == queue->room) {
        queue->room = queue->room ? 2 * queue->room : 256;
        queue->commands = tm_realloc(queue->commands, queue->room * sizeof *queue->commands);
    }
    queue->commands[queue->count++] = c;
    return TM_OK;
}

static tm_status put_write(tm_queue *queue, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    (void)err;
    return put(queue, (command){ .kind = WRITE, .to = tm_host_pointer(to), .from = from, .bytes = bytes });
}

static tm_status put_read(tm_queue *queue, void *to, tm_address from, size_t bytes, tm_error *err)
{
    (void)err;
    memset(to, POISON, bytes);
    return put(queue, (command){ .kind = READ, .to = to, .from = tm_host_pointer(from), .bytes = bytes });
}

static tm_status put_copy(tm_queue *queue, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    (void)err;
    return put(queue,
               (command){ .kind = COPY, .to = tm_host_pointer(to), .from = tm_host_pointer(from), .bytes = bytes });
}

static tm_status put_fill(tm_queue *queue, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    (void)err;
    return put(queue, (command){ .kind = FILL, .to = tm_host_pointer(to), .value = value, .bytes = bytes });
}

static tm_status put_launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    (void)err;
    return put(queue, (command){ .kind = LAUNCH, .kernel = kernel, .call = call });
}

static bool binds(const tm_queue *queue)
{
    return ((const late *)queue->device->own)->binding != NULL;
}

static tm_status put_record(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    (void)err;
    if (binds(queue)) return put(queue, (command){ .kind = RECORD, .instant = instant });
    *instant = (tm_instant){ .queue = queue, .number = queue->before + queue->count + 1 };
    return put(queue, (command){ .kind = RECORD, .instant = instant });
}

static tm_status put_wait_for(tm_queue *queue, tm_instant *instant, tm_error *err)
{
    (void)err;
    if (binds(queue)) return put(queue, (command){ .kind = WAIT_FOR, .instant = instant });
    TM_ASSERT(instant->queue);
    return put(queue, (command){ .kind = WAIT_FOR, .other = instant->queue, .number = instant->number });
}

static tm_status run_until(tm_queue *queue, size_t number, tm_error *err);

static tm_status run_next(tm_queue *queue, tm_error *err)
{
    const command *c = &queue->commands[queue->done++];
    switch (c->kind) {
    case WRITE:
    case READ:
    case COPY:
        memcpy(c->to, c->from, c->bytes);
        break;
    case FILL:
        memset(c->to, c->value, c->bytes);
        break;
    case LAUNCH:
        return tm_kernel_run(c->kernel, c->call, err);
    case RECORD:
        c->instant->ns = tm_now_ns();
        break;
    case WAIT_FOR:
        return run_until(c->other, c->number, err);
    }
    return TM_OK;
}

/* Is all done that the queue waits for next? */
static bool may_go_on(const tm_queue *queue)
{
    const command *c = &queue->commands[queue->done];
    if (queue->done == queue->count) return false;
    return c->kind != WAIT_FOR || c->other->before + c->other->done >= c->number;
}

/* Does the first `number` commands of a queue, and before each that waits for another queue what it waits for. */
static tm_status run_until(tm_queue *queue, size_t number, tm_error *err)
{
    while (queue->before + queue->done < number) TM_TRY(run_next(queue, err));
    return TM_OK;
}

/* All commands of the queue of computations, and before each of them what the others may do by now. */
static tm_status run_early(tm_queue *queue, tm_error *err)
{
    while (queue->done < queue->count) {
        for (int s = 0; s < TM_STREAMS; s++) {
            tm_queue *other = queue->device->queues[s];
            while (other && other != queue && may_go_on(other)) TM_TRY(run_next(other, err));
        }
        TM_TRY(run_next(queue, err));
    }
    return TM_OK;
}

/* What was done, or comes behind a failure, is forgotten. */
static void forget(tm_queue *queue, bool all)
{
    size_t n = all ? queue->count : queue->done;
    if (queue->count > n) memmove(queue->commands, queue->commands + n, (queue->count - n) * sizeof *queue->commands);
    queue->before += n;
    queue->count -= n;
    queue->done = 0;
}

static tm_status wait(tm_queue *queue, tm_error *err)
{
    late *own = queue->device->own;
    if (queue->count == 0) return TM_OK;
    TM_TRY(protect_all(queue->device, PROT_READ | PROT_WRITE, err));
    bool      computes = queue == queue->device->queues[TM_ON_COMPUTE];
    tm_status st = computes && own->early ? run_early(queue, err) : run_until(queue, queue->before + queue->count, err);
    if (computes) own->early = !own->early;
    for (int s = 0; s < TM_STREAMS; s++)
        if (queue->device->queues[s]) forget(queue->device->queues[s], st != TM_OK);
    tm_error  ignored = { 0 };
    tm_status closed = protect_all(queue->device, PROT_NONE, st == TM_OK ? err : &ignored);
    return st == TM_OK ? closed : st;
}

/* --- programs that are played ------------------------------------------------------------------------------------- */

static tm_status bind(tm_device *device, tm_error *err)
{
    (void)err;
    ((late *)device->own)->binding = tm_alloc(sizeof(tm_bound));
    return TM_OK;
}

static tm_status bound(tm_device *device, tm_bound **out, tm_error *err)
{
    late *own = device->own;
    (void)err;
    *out = own->binding;
    own->binding = NULL;
    return TM_OK;
}

static tm_status play(tm_device *device, tm_bound *b, tm_error *err)
{
    (void)device;
    for (size_t i = 0; i < b->count; i++) {
        tm_queue *queue = b->queues[i];
        if (b->commands[i].kind == RECORD)
            TM_TRY(put_record(queue, b->commands[i].instant, err));
        else if (b->commands[i].kind == WAIT_FOR)
            TM_TRY(put_wait_for(queue, b->commands[i].instant, err));
        else
            TM_TRY(put(queue, b->commands[i]));
    }
    return TM_OK;
}

static void unbind(tm_bound *b)
{
    free(b->queues);
    free(b->commands);
    free(b);
}

static tm_status instant_open(tm_device *device, tm_instant **out, tm_error *err)
{
    (void)device;
    (void)err;
    *out = tm_alloc(sizeof **out);
    return TM_OK;
}

static void instant_close(tm_instant *instant)
{
    free(instant);
}

static tm_status time_between(const tm_instant *a, const tm_instant *b, double *seconds, tm_error *err)
{
    (void)err;
    *seconds = (double)(b->ns - a->ns) * 1e-9;
    return TM_OK;
}

const tm_backend tm_backend_late = {
    .name = "late",
    .for_tests = true,
    .info = info,
    .limit = tm_cpu_limit,
    .choose = tm_cpu_choose,
    .close = close_late,
    .probe = tm_host_probe,
    .open = tm_cpu_open,
    .alloc = alloc,
    .free = free_late,
    .used = tm_host_used,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .write = put_write,
    .read = put_read,
    .copy = put_copy,
    .fill = put_fill,
    .launch = put_launch,
    .wait = wait,
    .instant_open = instant_open,
    .instant_close = instant_close,
    .record = put_record,
    .wait_for = put_wait_for,
    .bind = bind,
    .bound = bound,
    .play = play,
    .unbind = unbind,
    .time = time_between,
};
