/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "device/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tm_backend *const backends[] = {
#define TM_BACKEND(name) &tm_backend_##name,
#include "device/backends.def"
#undef TM_BACKEND
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

/* --- opening and closing ------------------------------------------------------------------------------------------ */

/* "cuda:1" is `cuda` and 1. */
static bool names_backend(const tm_backend *backend, const char *name, int *ordinal)
{
    size_t length = strlen(backend->name);
    *ordinal = 0;
    if (strcmp(name, backend->name) == 0) return true;
    if (!backend->numbered || strncmp(name, backend->name, length) != 0 || name[length] != ':') return false;
    const char *digits = name + length + 1;
    size_t      n = strspn(digits, "0123456789");
    if (n == 0 || n > 4 || digits[n]) return false;
    *ordinal = atoi(digits);
    return true;
}

/* `auto`: the first kind of GPU of which there is one, else the CPU. */
static const char *settled(const char *name)
{
    if (strcmp(name, "auto") != 0) return name;
    for (int i = 0; i < BACKENDS; i++)
        if (backends[i]->count && backends[i]->count() > 0) return backends[i]->name;
    return "cpu";
}

void tm_device_name_of_rank(char out[80], const char *name, int local)
{
    name = settled(name);
    snprintf(out, 80, "%.79s", name);
    for (int i = 0; i < BACKENDS; i++) {
        if (!backends[i]->count || strcmp(name, backends[i]->name) != 0) continue;
        int there = backends[i]->count();
        snprintf(out, 80, "%s:%d", name, there > 0 ? local % there : local);
    }
}

static tm_status find_backend(const char *given, const tm_backend **out, int *ordinal, tm_error *err)
{
    const char *name = settled(given);
    for (int i = 0; i < BACKENDS; i++)
        if (names_backend(backends[i], name, ordinal)) {
            *out = backends[i];
            return TM_OK;
        }
    tm_text list = { 0 };
    for (int i = 0; i < BACKENDS; i++)
        if (!backends[i]->for_tests)
            tm_text_printf(&list, "%s%s%s", list.length ? ", " : "", backends[i]->name,
                           backends[i]->numbered ? "[:N]" : "");
    tm_fail(err, TM_INVALID, "unknown device '%.100s' (--device); this build has: auto, %s", name, list.data);
    tm_text_fini(&list);
    return TM_INVALID;
}

static tm_status open_numbered(const tm_backend *backend, int ordinal, int threads, bool planning, tm_device **out,
                               tm_error *err)
{
    tm_device *device = tm_alloc(sizeof *device);
    device->backend = backend;
    device->planning = planning;
    device->ordinal = ordinal;
    device->share = -1;
    device->info.name = backend->name;
    backend->info(device, threads);
    tm_status st = TM_OK;
    if (!planning) st = backend->probe(err);
    if (!planning && st == TM_OK) st = backend->open(device, err);
    for (int s = 0; s < TM_STREAMS && !planning && st == TM_OK; s++)
        st = backend->queue_open(device, &device->queues[s], err);
    if (st != TM_OK) {
        tm_device_close(device);
        return st;
    }
    *out = device;
    return TM_OK;
}

tm_status tm_device_open_backend(const tm_backend *backend, int threads, bool planning, tm_device **out, tm_error *err)
{
    return open_numbered(backend, 0, threads, planning, out, err);
}

tm_status tm_device_open(const char *name, int threads, tm_device **out, tm_error *err)
{
    const tm_backend *backend;
    int               ordinal;
    TM_TRY(find_backend(name, &backend, &ordinal, err));
    return open_numbered(backend, ordinal, threads, false, out, err);
}

tm_status tm_device_open_planning(const char *name, int threads, tm_device **out, tm_error *err)
{
    const tm_backend *backend;
    int               ordinal;
    TM_TRY(find_backend(name, &backend, &ordinal, err));
    return open_numbered(backend, ordinal, threads, true, out, err);
}

void tm_device_close(tm_device *device)
{
    if (!device) return;
    tm_marks_close(device);
    if (device->begins) device->backend->instant_close(device->begins);
    for (int s = 0; s < TM_STREAMS; s++) {
        if (device->ends[s]) device->backend->instant_close(device->ends[s]);
        if (device->queues[s]) device->backend->queue_close(device->queues[s]);
    }
    device->backend->close(device);
    free(device);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

const tm_device_info *tm_device_describe(const tm_device *device)
{
    return &device->info;
}

tm_status tm_device_limit_isa(tm_device *device, const char *isa, tm_error *err)
{
    if (device->backend->limit) return device->backend->limit(device, isa, err);
    return tm_fail(err, TM_UNSUPPORTED, "--isa %.100s is for device cpu, found device %s; leave it out", isa,
                   device->info.name);
}

void tm_device_allow_reference(tm_device *device, bool allowed)
{
    device->reference_allowed = allowed;
}

tm_gpu_sensors *tm_device_sensors(const tm_device *device, tm_text *why)
{
    const tm_device_info *info = &device->info;
    tm_gpu_maker          maker = strcmp(info->name, "hip") == 0 ? TM_GPU_HIP : TM_GPU_CUDA;
    return info->bus ? tm_gpu_sensors_open(maker, info->bus, "", why) : NULL;
}

void tm_device_one_by_one(tm_device *device, bool wanted)
{
    device->one_by_one = wanted;
}

void tm_device_own_kernels(tm_device *device, bool wanted)
{
    device->own_kernels = wanted;
}

void tm_device_other_library(tm_device *device, bool wanted)
{
    device->other_library = wanted;
}

void tm_device_tf32(tm_device *device, bool allowed)
{
    device->tf32 = allowed;
}

void tm_device_plan_bytes(tm_device *device, int64_t bytes)
{
    if (device->info.own_memory) device->info.plan_bytes = bytes;
}

static const tm_kernel *choose(const void *context, const tm_call *call, tm_text *refusals)
{
    const tm_device *device = context;
    return device->backend->choose(device, call, refusals);
}

tm_chooser tm_device_chooser(const tm_device *device)
{
    const tm_device_info *info = &device->info;
    return (tm_chooser){ .choose = choose,
                         .context = device,
                         .threads = info->threads,
                         .align = info->align,
                         .weight_copies = info->weight_copies,
                         .fuses = info->fuses,
                         .loss_rows = info->loss_rows,
                         .room = info->plan_bytes };
}

const tm_gemm_kernel *tm_device_gemm(const tm_device *device)
{
    return device->backend->gemm ? device->backend->gemm(device) : NULL;
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

tm_status tm_device_ready(const tm_device *device, tm_error *err)
{
    if (device->planning)
        return tm_fail(err, TM_UNSUPPORTED, "device %s was opened to plan for it and cannot run", device->info.name);
    if (device->failure.status == TM_OK) return TM_OK;
    return tm_fail(err, device->failure.status, "%s", device->failure.text);
}

tm_status tm_device_noted(tm_device *device, tm_status st, tm_error *own, tm_error *err)
{
    if (st == TM_OK) return TM_OK;
    if (st != TM_DEVICE) return tm_fail(err, st, "%s", own->text);
    tm_fail(&device->failure, TM_DEVICE, "device %s failed: %s", device->info.name, own->text);
    return tm_device_ready(device, err);
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

void tm_device_join(tm_device *device, const tm_mesh_groups *groups)
{
    device->groups = groups;
}

tm_status tm_device_connect(tm_device *device, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    if (!device->groups || tm_comm_size(device->groups->world) == 1 || !device->backend->connect) return TM_OK;
    return tm_device_noted(device, device->backend->connect(device, &own), &own, err);
}

tm_comm *tm_device_group(const tm_device *device, unsigned axes)
{
    return device->groups ? tm_mesh_find(device->groups, axes) : NULL;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

tm_status tm_device_alloc(tm_device *device, size_t bytes, tm_address *out, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->alloc(device, bytes, out, &own), &own, err);
}

void tm_device_release(tm_device *device, tm_address memory, size_t bytes)
{
    if (memory.at) device->backend->free(device, memory, bytes);
}

tm_status tm_device_alloc_host(tm_device *device, size_t bytes, void **out, tm_error *err)
{
    tm_address memory = { 0 };
    if (device->info.own_memory)
        return tm_fail(err, TM_UNSUPPORTED,
                       "device %s has its own memory, and this needs a device in the host's memory: use device cpu",
                       device->info.name);
    TM_TRY(tm_device_alloc(device, bytes, &memory, err));
    TM_TRY(tm_device_fill(device, memory, 0, bytes, err));
    TM_TRY(tm_device_wait(device, err));
    *out = (void *)memory.at; // NOLINT(performance-no-int-to-ptr)
    return TM_OK;
}

void tm_device_release_host(tm_device *device, void *memory, size_t bytes)
{
    tm_device_release(device, (tm_address){ (uintptr_t)memory }, bytes);
}

int64_t tm_device_used_bytes(tm_device *device, tm_address memory, size_t bytes)
{
    return device->backend->used(device, memory, bytes);
}

tm_device_beside tm_device_look_beside(tm_device *device)
{
    tm_device_beside out = { 0 };
    if (device->backend->beside && !device->planning) device->backend->beside(device, &out);
    return out;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

tm_status tm_device_write(tm_device *device, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->write(device->queues[TM_ON_COMPUTE], to, from, bytes, &own), &own,
                           err);
}

tm_status tm_device_read(tm_device *device, void *to, tm_address from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->read(device->queues[TM_ON_COMPUTE], to, from, bytes, &own), &own,
                           err);
}

tm_status tm_device_copy(tm_device *device, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->copy(device->queues[TM_ON_COMPUTE], to, from, bytes, &own), &own,
                           err);
}

tm_status tm_device_fill(tm_device *device, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->fill(device->queues[TM_ON_COMPUTE], to, value, bytes, &own), &own,
                           err);
}

tm_status tm_device_wait(tm_device *device, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    tm_status st = device->backend->wait(device->queues[TM_ON_COMPUTE], &own);
    if (st == TM_OK) st = tm_marks_settle(device, &own);
    return tm_device_noted(device, st, &own, err);
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

/* An instant of a program's begin or end, taken at the first use. */
static tm_status mark(tm_device *device, tm_stream stream, tm_instant **instant, tm_error *err)
{
    if (!*instant) TM_TRY(device->backend->instant_open(device, instant, err));
    return device->backend->record(device->queues[stream], *instant, err);
}

/* The other streams of a program begin behind what was queued before it. */
static tm_status fork_streams(tm_device *device, const tm_program *program, tm_error *err)
{
    if ((program->streams & ~(1U << TM_ON_COMPUTE)) == 0) return TM_OK;
    TM_TRY(mark(device, TM_ON_COMPUTE, &device->begins, err));
    for (int s = 0; s < TM_STREAMS; s++)
        if (s != TM_ON_COMPUTE && program->streams >> s & 1U)
            TM_TRY(device->backend->wait_for(device->queues[s], device->begins, err));
    return TM_OK;
}

/* The ledger's marks of a program that is timed by operation. */
typedef struct {
    tm_marked   what;             /* of the last mark */
    const char *last[TM_STREAMS]; /* line of the last instruction of each stream */
} marking;

/* From here on the queue of computations works on this line, or waits for it. */
static tm_status mark_line(tm_device *device, marking *m, const char *line, tm_error *err)
{
    if (!m->what.ledger || line == m->what.line) return TM_OK;
    m->what.line = line;
    TM_TRY(tm_marks_add(device, &m->what, err));
    m->what.first = false;
    return TM_OK;
}

/* What comes behind a program begins behind all of its streams. */
static tm_status join_streams(tm_device *device, const tm_program *program, marking *m, tm_error *err)
{
    for (int s = 0; s < TM_STREAMS; s++) {
        if (s == TM_ON_COMPUTE || !(program->streams >> s & 1U)) continue;
        if (m->last[s]) TM_TRY(mark_line(device, m, m->last[s], err));
        TM_TRY(mark(device, (tm_stream)s, &device->ends[s], err));
        TM_TRY(device->backend->wait_for(device->queues[TM_ON_COMPUTE], device->ends[s], err));
    }
    return TM_OK;
}

/* Puts an instruction into its queue, behind those of other streams that it waits for: that time is theirs. Those in
 * front of `from` are done before. */
static tm_status queue_one(tm_device *device, const tm_program *program, size_t from, const tm_instruction *i,
                           marking *m, tm_error *err)
{
    tm_queue *queue = device->queues[i->stream];
    for (int s = 0; s < TM_STREAMS; s++) {
        if (i->waits[s] < (int64_t)from) continue;
        const tm_instruction *other = &program->instructions[i->waits[s]];
        if (i->stream == TM_ON_COMPUTE) TM_TRY(mark_line(device, m, other->line, err));
        TM_TRY(device->backend->wait_for(queue, other->done, err));
    }
    TM_TRY(mark_line(device, m, i->line, err));
    const tm_watch *watch = device->watch && device->watch->wants(device->watch->context, i) ? device->watch : NULL;
    if (watch) TM_TRY(watch->look(watch->context, i, false, err));
    TM_TRY(device->backend->launch(queue, i->kernel, &i->call, err));
    if (watch) TM_TRY(watch->look(watch->context, i, true, err));
    m->last[i->stream] = i->line;
    return i->done ? device->backend->record(queue, i->done, err) : TM_OK;
}

/* The ledger's lines change in the queue of computations: of copies and messages beside it, what is waited for counts.
 */
tm_status tm_device_queue(tm_device *device, const tm_program *program, size_t from, size_t to, tm_ledger *ledger,
                          tm_error *err)
{
    tm_played *played = program->bound;
    bool       all = from == 0 && to == program->count; /* a part's time says nothing of the whole's */
    marking    m = { .what = { .ledger = ledger, .shares = played && all ? &played->shares : NULL, .first = true } };
    TM_TRY(fork_streams(device, program, err));
    for (size_t x = from; x < to; x++) TM_TRY(queue_one(device, program, from, &program->instructions[x], &m, err));
    TM_TRY(join_streams(device, program, &m, err));
    return ledger ? tm_marks_add(device, &(tm_marked){ 0 }, err) : TM_OK;
}

/* A bound program: each part launched as one, as far as it can be. With a ledger its time is measured as a whole, and
 * known to nobody else until then. */
static tm_status play(tm_device *device, const tm_program *program, tm_ledger *ledger, tm_error *err)
{
    tm_played *played = program->bound;
    if (ledger) TM_TRY(tm_marks_add(device, &(tm_marked){ .ledger = ledger, .shares = &played->shares }, err));
    for (size_t k = 0; k < played->n; k++) {
        const tm_part *part = &played->parts[k];
        TM_TRY(part->work ? device->backend->play(device, part->work, err)
                          : tm_device_queue(device, program, part->from, part->to, NULL, err));
    }
    return ledger ? tm_marks_add(device, &(tm_marked){ 0 }, err) : TM_OK;
}

/* By operation: the first times, and each 16th from there on. */
static bool is_detailed(tm_played *played)
{
    enum { FIRST = 2, EVERY = 16 };
    int64_t run = played->timed++;
    return run < FIRST || run % EVERY == 0 || played->shares.count == 0;
}

void tm_device_watch(tm_device *device, const tm_watch *watch)
{
    TM_ASSERT(!device->info.own_memory);
    device->watch = watch;
}

tm_status tm_device_run(tm_device *device, const tm_program *program, tm_ledger *ledger, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    bool whole = program->bound && !device->one_by_one && !device->watch && !(ledger && is_detailed(program->bound));
    tm_status st =
        whole ? play(device, program, ledger, &own) : tm_device_queue(device, program, 0, program->count, ledger, &own);
    return tm_device_noted(device, st, &own, err);
}

tm_status tm_device_run_part(tm_device *device, const tm_program *program, size_t from, size_t to, tm_ledger *ledger,
                             tm_error *err)
{
    tm_error own = { 0 };
    TM_ASSERT(from <= to && to <= program->count);
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, tm_device_queue(device, program, from, to, ledger, &own), &own, err);
}
