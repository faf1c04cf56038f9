/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/device.c - faults of a device: bits of results and of memory, and how long a launch takes.
 *
 * An opened device gets a table of calls that passes everything on, with a launch of our own. Programs are launched
 * instruction by instruction (no `bind`). A bit is changed by the device's own calls, so any device can have it. */
#include "faults.h"

#include "base/arena.h"
#include "device/backend.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A bit of memory that reads `to`, whatever is written. */
typedef struct {
    const fault *fault;
    tm_address   at;
    unsigned     bit;
    bool         told;
} stuck_bit;

/* An opened device: device->backend is &table. */
typedef struct {
    tm_backend        table;
    const tm_backend *real;
    const tm_plan    *plan; /* that is loaded; NULL: none */
    tm_arenas         memory;
    stuck_bit        *stuck;
    size_t            n_stuck;
    fault_place       place; /* its events */
    int64_t           launches;
} faulty;

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err);

/* NULL: it was opened to plan, or by a test. */
static faulty *faulty_of(const tm_device *device)
{
    /* The table is its first member. */
    return device && device->backend->launch == launch ? (faulty *)(uintptr_t)device->backend : NULL;
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

enum { CLEAR, SET, FLIP };

/* *changed: it was otherwise before. */
static tm_status change_bit(const faulty *w, tm_queue *queue, tm_address base, uint64_t bit, int how, bool *changed,
                            tm_error *err)
{
    unsigned char byte, mask = (unsigned char)(1U << bit % 8);
    tm_address    at = tm_address_add(base, bit / 8);
    TM_TRY(w->real->read(queue, &byte, at, 1, err));
    TM_TRY(w->real->wait(queue, err));
    unsigned char now = (unsigned char)(how == FLIP ? byte ^ mask : how == SET ? byte | mask : byte & ~mask);
    *changed = now != byte;
    if (!*changed) return TM_OK;
    TM_TRY(w->real->write(queue, at, &now, 1, err));
    return w->real->wait(queue, err);
}

static int64_t drawn_bit(const fault *f, int what, int64_t bits)
{
    return f->bit >= 0 ? f->bit % bits : (int64_t)fault_draw(f, what, (uint64_t)bits);
}

/* One bit of one element of one output. */
static tm_status flip_result(const faulty *w, const fault *f, tm_queue *queue, const tm_call *call, tm_error *err)
{
    int n = 0, out[TM_MAX_OUT];
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (tm_view_present(&call->out[k]) && call->out[k].data && tm_shape_elements(call->out[k].shape) > 0)
            out[n++] = k;
    if (n == 0) return TM_OK;
    int            k = out[fault_draw(f, 0, (uint64_t)n)];
    const tm_view *view = &call->out[k];
    int64_t        element = (int64_t)fault_draw(f, 1, (uint64_t)tm_shape_elements(view->shape));
    int64_t        columns = view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
    int64_t        bits = tm_dtype_bits(view->dtype), bit = drawn_bit(f, 2, bits);
    int64_t        at = element / columns * tm_view_ld(view) + element % columns;
    bool           changed;
    fault_tell(f, "\"where\": \"result\", \"op\": \"%s\", \"out\": %d, \"element\": %lld, \"bit\": %lld",
               call->op->name, k, (long long)element, (long long)bit);
    return change_bit(w, queue, (tm_address){ (uintptr_t)view->data }, (uint64_t)(at * bits + bit), FLIP, &changed,
                      err);
}

static bool keeps(const tm_plan *plan, tm_tensor_id id, const fault *f)
{
    const tm_tensor *t = tm_graph_at(plan->graph, id);
    if (plan->places[id].program != TM_PERSISTENT || t->space != TM_SPACE_DEVICE || plan->places[id].bytes == 0)
        return false;
    return f->name[0] ? t->name && strstr(t->name, f->name) : strcmp(tm_role_memory_class(t->role), "weights") == 0;
}

/* One bit of one element of a tensor that outlives programs: a weight, or one of those that are named. */
static tm_status flip_memory(const faulty *w, const fault *f, tm_queue *queue, tm_error *err)
{
    uint64_t n = 0, wanted;
    for (size_t id = 0; w->plan && id < w->plan->graph->n_tensors; id++) n += keeps(w->plan, (tm_tensor_id)id, f);
    if (n == 0) return TM_OK;
    wanted = fault_draw(f, 0, n);
    tm_tensor_id id = 0;
    while (!keeps(w->plan, id, f) || wanted-- > 0) id++;
    const tm_tensor *t = tm_graph_at(w->plan->graph, id);
    int64_t          bits = tm_dtype_bits(t->dtype), bit = drawn_bit(f, 2, bits);
    uint64_t         element = fault_draw(f, 1, (uint64_t)tm_shape_elements(t->shape));
    bool             changed;
    fault_tell(f, "\"where\": \"memory\", \"tensor\": \"%s\", \"element\": %llu, \"bit\": %lld", t->name ? t->name : "",
               (unsigned long long)element, (long long)bit);
    return change_bit(w, queue, tm_plan_address(w->plan, &w->memory, id), element * (uint64_t)bits + (uint64_t)bit,
                      FLIP, &changed, err);
}

/* What was written lies there as the cells keep it. */
static tm_status hold_stuck(faulty *w, tm_queue *queue, tm_error *err)
{
    for (size_t i = 0; i < w->n_stuck; i++) {
        stuck_bit *s = &w->stuck[i];
        bool       changed;
        if (!fault_is_here(s->fault)) continue;
        TM_TRY(change_bit(w, queue, s->at, s->bit, s->fault->to ? SET : CLEAR, &changed, err));
        if (changed && !s->told) fault_tell(s->fault, "\"bit\": %u, \"to\": %lld", s->bit, (long long)s->fault->to);
        s->told = s->told || changed;
    }
    return TM_OK;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static bool has_shape(const tm_view *views, int n, const char *wanted)
{
    for (int i = 0; i < n; i++) {
        char text[96] = "";
        int  length = 0;
        for (int d = 0; d < views[i].shape.rank; d++)
            length += snprintf(text + length, sizeof text - (size_t)length, "%s%lld", d ? "x" : "",
                               (long long)views[i].shape.n[d]);
        if (views[i].shape.rank > 0 && strcmp(text, wanted) == 0) return true;
    }
    return false;
}

static bool is_of(const fault *f, const tm_call *call)
{
    if (f->op[0] && strcmp(f->op, call->op->name) != 0) return false;
    if (!f->shape[0]) return true;
    return has_shape(call->in, TM_MAX_IN, f->shape) || has_shape(call->out, TM_MAX_OUT, f->shape);
}

static tm_status before_launch(const faulty *w, tm_queue *queue, const tm_call *call, tm_error *err)
{
    const faults *all = faults_planted();
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        bool         memory = f->kind == FAULT_FLIP && strcmp(f->where, "memory") == 0;
        bool         hang = f->kind == FAULT_HANG && strcmp(f->before, "launch") == 0;
        if ((!memory && !hang) || !fault_is_here(f) || !is_of(f, call) || !fault_turn(f)) continue;
        if (hang)
            fault_hang(f);
        else
            TM_TRY(flip_memory(w, f, queue, err));
    }
    return TM_OK;
}

static tm_status after_launch(faulty *w, tm_queue *queue, const tm_call *call, tm_error *err)
{
    const faults *all = faults_planted();
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        if (f->kind == FAULT_FLIP && strcmp(f->where, "result") == 0 && fault_is_here(f) && is_of(f, call) &&
            fault_turn(f))
            TM_TRY(flip_result(w, f, queue, call, err));
    }
    return hold_stuck(w, queue, err);
}

/* By how many percent a launch is slower. */
static double slower(const tm_call *call)
{
    const faults *all = faults_planted();
    double        percent = 0;
    for (int i = 0; i < all->n; i++)
        if (all->all[i].kind == FAULT_SLOW && fault_is_here(&all->all[i]) && is_of(&all->all[i], call))
            percent += all->all[i].percent;
    return percent;
}

/* A launch that began at begin_ns of the machine's clock. What calls other ranks is collectives.c's. */
static void take_time(faulty *w, const tm_call *call, int64_t begin_ns)
{
    const fault_rank *own = faults_rank();
    w->launches++;
    if (own->called) return;
    double percent = slower(call);
    if (own->made) {
        clock_work(llround((double)clock_launch_ns(call, w->place.number, w->launches) * (1 + percent / 100)));
        return;
    }
    if (!(percent > 0)) return;
    int64_t took = clock_machine_ns() - begin_ns, until = begin_ns + llround((double)took * (1 + percent / 100));
    while (clock_machine_ns() < until) {
    }
}

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    faulty     *w = faulty_of(call->device);
    fault_rank *own = faults_rank();
    own->place = &w->place;
    tm_status st = before_launch(w, queue, call, err);
    own->called = false;
    int64_t begin = clock_machine_ns();
    if (st == TM_OK) st = w->real->launch(queue, kernel, call, err);
    if (st == TM_OK) {
        take_time(w, call, begin);
        st = after_launch(w, queue, call, err);
    }
    own->place = NULL;
    return st;
}

/* --- the device's calls ------------------------------------------------------------------------------------------- */

/* From 1 on; anew when faults are planted. */
static int next_device(void)
{
    static _Atomic int      count;
    static _Atomic unsigned times;
    if (atomic_exchange(&times, faults_planted()->times) != faults_planted()->times) count = 0;
    return ++count % FAULT_DEVICES;
}

tm_status __real_tm_device_open(const char *name, int threads, tm_device **out, tm_error *err);
tm_status __wrap_tm_device_open(const char *name, int threads, tm_device **out, tm_error *err);
tm_status __wrap_tm_device_open(const char *name, int threads, tm_device **out, tm_error *err)
{
    TM_TRY(__real_tm_device_open(name, threads, out, err));
    tm_device *device = *out;
    bool       late = device->info.own_memory;
    if (late && faults_planted()->made) {
        tm_device_close(device);
        return tm_fail(err, TM_UNSUPPORTED, "TM_FAULT: clock=made is for devices that compute at once, found %s", name);
    }
    faulty *w = memset(tm_alloc(sizeof *w), 0, sizeof *w);
    w->real = device->backend;
    w->table = *device->backend;
    w->table.launch = launch;
    w->table.bind = NULL; /* all four, or none */
    w->table.bound = NULL;
    w->table.play = NULL;
    w->table.unbind = NULL;
    w->place.number = next_device();
    device->backend = &w->table;
    clock_open();
    return TM_OK;
}

void __real_tm_device_close(tm_device *device);
void __wrap_tm_device_close(tm_device *device);
void __wrap_tm_device_close(tm_device *device)
{
    faulty *w = faulty_of(device);
    __real_tm_device_close(device);
    if (w) free(w->stuck);
    free(w);
}

tm_status __real_tm_device_load(tm_device *device, tm_plan *plan, const tm_arenas *memory, tm_loaded **out,
                                tm_error *err);
tm_status __wrap_tm_device_load(tm_device *device, tm_plan *plan, const tm_arenas *memory, tm_loaded **out,
                                tm_error *err);
tm_status __wrap_tm_device_load(tm_device *device, tm_plan *plan, const tm_arenas *memory, tm_loaded **out,
                                tm_error *err)
{
    TM_TRY(__real_tm_device_load(device, plan, memory, out, err));
    faulty *w = faulty_of(device);
    if (w) w->plan = plan;
    if (w) w->memory = *memory;
    return TM_OK;
}

/* --- its memory --------------------------------------------------------------------------------------------------- */

tm_status __real_tm_device_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
tm_status __wrap_tm_device_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err);
tm_status __wrap_tm_device_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    const faults *all = faults_planted();
    faulty       *w = faulty_of(device);
    TM_TRY(__real_tm_device_alloc(device, bytes, out, err));
    if (w) faults_rank()->place = &w->place;
    for (int i = 0; w && i < all->n; i++) {
        const fault *f = &all->all[i];
        if (f->kind != FAULT_STUCK || bytes < 8) continue;
        w->place.seen[f->index]++; /* words of another allocation */
        w->stuck = tm_realloc(w->stuck, (w->n_stuck + (size_t)f->words) * sizeof *w->stuck);
        for (int64_t k = 0; k < f->words; k++)
            w->stuck[w->n_stuck++] = (stuck_bit){ .fault = f,
                                                  .at = tm_address_add(*out, 8 * fault_draw(f, 2 * (int)k, bytes / 8)),
                                                  .bit = (unsigned)drawn_bit(f, 2 * (int)k + 1, 64) };
    }
    faults_rank()->place = NULL;
    return TM_OK;
}

void __real_tm_device_release(tm_device *device, tm_address memory, size_t bytes);
void __wrap_tm_device_release(tm_device *device, tm_address memory, size_t bytes);
void __wrap_tm_device_release(tm_device *device, tm_address memory, size_t bytes)
{
    faulty *w = faulty_of(device);
    size_t  kept = 0;
    if (w && w->memory.base[TM_SPACE_DEVICE].at == memory.at) w->plan = NULL;
    for (size_t i = 0; w && i < w->n_stuck; i++)
        if (w->stuck[i].at.at - memory.at >= bytes) w->stuck[kept++] = w->stuck[i];
    if (w) w->n_stuck = kept;
    __real_tm_device_release(device, memory, bytes);
}

static tm_status written(tm_device *device, size_t bytes, tm_error *err)
{
    faulty *w = faulty_of(device);
    if (faults_rank()->made) clock_work(clock_copy_ns(bytes));
    if (!w) return TM_OK;
    faults_rank()->place = &w->place;
    tm_status st = hold_stuck(w, device->queues[TM_ON_COMPUTE], err);
    faults_rank()->place = NULL;
    return st;
}

#define WRITES(name, parameters, arguments)                                                                            \
    tm_status __real_tm_device_##name parameters;                                                                      \
    tm_status __wrap_tm_device_##name parameters;                                                                      \
    tm_status __wrap_tm_device_##name parameters                                                                       \
    {                                                                                                                  \
        TM_TRY(__real_tm_device_##name arguments);                                                                     \
        return written(device, bytes, err);                                                                            \
    }
WRITES(write, (tm_device * device, tm_address to, const void *from, size_t bytes, tm_error *err),
       (device, to, from, bytes, err))
WRITES(read, (tm_device * device, void *to, tm_address from, size_t bytes, tm_error *err),
       (device, to, from, bytes, err))
WRITES(copy, (tm_device * device, tm_address to, tm_address from, size_t bytes, tm_error *err),
       (device, to, from, bytes, err))
WRITES(fill, (tm_device * device, tm_address to, unsigned char value, size_t bytes, tm_error *err),
       (device, to, value, bytes, err))
