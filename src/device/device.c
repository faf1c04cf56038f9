/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "device/backend.h"

#include <stdlib.h>
#include <string.h>

static const tm_backend *const backends[] = {
#define TM_BACKEND(name) &tm_backend_##name,
#include "device/backends.def"
#undef TM_BACKEND
};
enum { BACKENDS = sizeof backends / sizeof backends[0] };

/* --- opening and closing ------------------------------------------------------------------------------------------ */

static tm_status find_backend(const char *name, const tm_backend **out, tm_error *err)
{
    for (int i = 0; i < BACKENDS; i++)
        if (strcmp(backends[i]->name, name) == 0) {
            *out = backends[i];
            return TM_OK;
        }
    tm_text list = { 0 };
    for (int i = 0; i < BACKENDS; i++)
        if (!backends[i]->for_tests) tm_text_printf(&list, "%s%s", list.length ? ", " : "", backends[i]->name);
    tm_fail(err, TM_INVALID, "unknown device '%.100s' (--device); this build has: %s", name, list.data);
    tm_text_fini(&list);
    return TM_INVALID;
}

tm_status tm_device_open_backend(const tm_backend *backend, int threads, bool planning, tm_device **out, tm_error *err)
{
    tm_device *device = tm_alloc(sizeof *device);
    device->backend = backend;
    device->planning = planning;
    device->share = -1;
    device->info.name = backend->name;
    backend->info(device, threads);
    tm_status st = TM_OK;
    if (!planning) st = backend->probe(err);
    if (!planning && st == TM_OK) st = backend->open(device, err);
    if (!planning && st == TM_OK) st = backend->queue_open(device, &device->queue, err);
    if (st != TM_OK) {
        tm_device_close(device);
        return st;
    }
    *out = device;
    return TM_OK;
}

tm_status tm_device_open(const char *name, int threads, tm_device **out, tm_error *err)
{
    const tm_backend *backend;
    TM_TRY(find_backend(name, &backend, err));
    return tm_device_open_backend(backend, threads, false, out, err);
}

tm_status tm_device_open_planning(const char *name, int threads, tm_device **out, tm_error *err)
{
    const tm_backend *backend;
    TM_TRY(find_backend(name, &backend, err));
    return tm_device_open_backend(backend, threads, true, out, err);
}

void tm_device_close(tm_device *device)
{
    if (!device) return;
    tm_marks_close(device);
    if (device->queue) device->backend->queue_close(device->queue);
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

static const tm_kernel *choose(const void *context, const tm_call *call, tm_text *refusals)
{
    const tm_device *device = context;
    return device->backend->choose(device, call, refusals);
}

tm_chooser tm_device_chooser(const tm_device *device)
{
    return (tm_chooser){ .choose = choose, .context = device, .threads = device->info.threads };
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

tm_comm *tm_device_group(const tm_device *device, unsigned axes)
{
    return device->groups ? tm_mesh_find(device->groups, axes) : NULL;
}

/* What a collective met that was done since. */
static tm_status collective_failure(const tm_device *device, tm_error *err)
{
    const tm_error *met = &device->collective;
    if (met->status == TM_OK) return TM_OK;
    return tm_fail(err, met->status == TM_INVALID ? TM_INVALID : TM_DEVICE, "%s", met->text);
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

/* --- the queue ---------------------------------------------------------------------------------------------------- */

tm_status tm_device_write(tm_device *device, tm_address to, const void *from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->write(device->queue, to, from, bytes, &own), &own, err);
}

tm_status tm_device_read(tm_device *device, void *to, tm_address from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->read(device->queue, to, from, bytes, &own), &own, err);
}

tm_status tm_device_copy(tm_device *device, tm_address to, tm_address from, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->copy(device->queue, to, from, bytes, &own), &own, err);
}

tm_status tm_device_fill(tm_device *device, tm_address to, unsigned char value, size_t bytes, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, device->backend->fill(device->queue, to, value, bytes, &own), &own, err);
}

tm_status tm_device_wait(tm_device *device, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    tm_status st = device->backend->wait(device->queue, &own);
    if (st == TM_OK) st = collective_failure(device, &own);
    if (st == TM_OK) st = tm_marks_settle(device, &own);
    return tm_device_noted(device, st, &own, err);
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

static tm_status run_all(tm_device *device, const tm_program *program, tm_ledger *ledger, tm_error *err)
{
    const tm_backend *backend = device->backend;
    const char       *line = NULL;
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *instruction = &program->instructions[x];
        if (ledger && instruction->line != line) {
            line = instruction->line;
            TM_TRY(tm_marks_add(device, ledger, line, err));
        }
        TM_TRY(backend->launch(device->queue, instruction->kernel, &instruction->call, err));
    }
    if (ledger) TM_TRY(tm_marks_add(device, NULL, NULL, err));
    TM_TRY(collective_failure(device, err));
    return backend->error ? backend->error(device, err) : TM_OK;
}

tm_status tm_device_run(tm_device *device, const tm_program *program, tm_ledger *ledger, tm_error *err)
{
    tm_error own = { 0 };
    TM_TRY(tm_device_ready(device, err));
    return tm_device_noted(device, run_all(device, program, ledger, &own), &own, err);
}
