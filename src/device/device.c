/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "device/backend.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const tm_backend *const backends[] = { &tm_backend_cpu, &tm_backend_reference, &tm_backend_null };
enum { BACKENDS = sizeof backends / sizeof backends[0] };

tm_status tm_device_open(const char *name, int threads, tm_device **out, tm_error *err)
{
    const tm_backend *backend = NULL;
    for (int i = 0; i < BACKENDS; i++)
        if (strcmp(backends[i]->name, name) == 0) backend = backends[i];
    if (!backend) {
        tm_text list = { 0 };
        for (int i = 0; i < BACKENDS; i++) tm_text_printf(&list, "%s%s", i ? ", " : "", backends[i]->name);
        tm_fail(err, TM_INVALID, "unknown device '%.100s' (--device); this build has: %s", name, list.data);
        tm_text_fini(&list);
        return TM_INVALID;
    }
    tm_device *device = tm_alloc(sizeof *device);
    device->backend = backend;
    device->info.name = backend->name;
    tm_status st = backend->open(device, threads, err);
    if (st != TM_OK) {
        free(device);
        return st;
    }
    *out = device;
    return TM_OK;
}

void tm_device_close(tm_device *device)
{
    free(device);
}

const tm_device_info *tm_device_describe(const tm_device *device)
{
    return &device->info;
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

enum { HUGE_PAGE = 2 << 20, PAGE = 4096 };

tm_status tm_device_alloc(tm_device *device, size_t bytes, void **out, tm_error *err)
{
    int64_t available = tm_memory_available_bytes("");
    if (available > 0 && bytes > (size_t)available) {
        char want[32], have[32];
        return tm_fail(err, TM_NOMEM, "the plan needs %s and %s are available; lower training.local_batch_size or "
                       "training.seq_len, or set activation_checkpoint.mode: full or training.offload: all",
                       tm_format_bytes(want, (double)bytes), tm_format_bytes(have, (double)available));
    }
    /* Aligned to huge pages inside a larger mapping; what sticks out at both ends is given back. */
    size_t span = bytes + HUGE_PAGE;
    char  *map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        char want[32];
        return tm_fail(err, TM_NOMEM, "cannot reserve %s for the plan: %s", tm_format_bytes(want, (double)bytes),
                       strerror(errno));
    }
    size_t head = (HUGE_PAGE - (size_t)((uintptr_t)map % HUGE_PAGE)) % HUGE_PAGE;
    size_t used = (bytes + PAGE - 1) / PAGE * PAGE;
    char  *base = map + head;
    if (head) munmap(map, head);
    if (span - head > used) munmap(base + used, span - head - used);
    madvise(base, used, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static) num_threads(device->info.threads)
    for (size_t i = 0; i < used; i += PAGE) base[i] = 0;
    *out = base;
    return TM_OK;
}

void tm_device_release(tm_device *device, void *memory, size_t bytes)
{
    (void)device;
    if (memory) munmap(memory, (bytes + PAGE - 1) / PAGE * PAGE);
}

int64_t tm_device_used_bytes(const tm_device *device, void *memory, size_t bytes)
{
    (void)device;
    enum { PART = 1 << 16 };
    unsigned char resident[PART];
    int64_t       used = 0;
    for (size_t at = 0; at < bytes; at += (size_t)PART * PAGE) {
        size_t part = bytes - at < (size_t)PART * PAGE ? bytes - at : (size_t)PART * PAGE;
        if (mincore((char *)memory + at, part, resident) != 0) return -1;
        for (size_t i = 0; i < (part + PAGE - 1) / PAGE; i++)
            if (resident[i] & 1) used += (int64_t)(part - i * PAGE < PAGE ? part - i * PAGE : PAGE);
    }
    return used;
}

void tm_ledger_add(tm_ledger *ledger, const char *name, double seconds)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (strcmp(ledger->lines[i].name, name) == 0) {
            ledger->lines[i].value += seconds;
            return;
        }
    TM_ASSERT(ledger->count < TM_LEDGER_LINES);
    ledger->lines[ledger->count++] = (tm_named_f64){ name, seconds };
}

void tm_ledger_reset(tm_ledger *ledger)
{
    for (size_t i = 0; i < ledger->count; i++) ledger->lines[i].value = 0;
}

/* "forward linear": the groups of op.h times the phases, as static text. */
static const char *line_of(const tm_instruction *instruction)
{
    static const char *const names[][3] = {
        { "linear", "forward linear", "backward linear" },
        { "attention", "forward attention", "backward attention" },
        { "norm", "forward norm", "backward norm" },
        { "elementwise", "forward elementwise", "backward elementwise" },
        { "embedding", "forward embedding", "backward embedding" },
        { "cast", "forward cast", "backward cast" },
    };
    const char *group = instruction->call.op->group;
    int         column = instruction->node->phase == TM_PHASE_BACKWARD ? 2 : 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], group) == 0) return names[i][column];
    return group;
}

void tm_device_run(tm_device *device, const tm_program *program, tm_ledger *ledger)
{
    (void)device;
    int64_t before = ledger ? tm_now_ns() : 0;
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *instruction = &program->instructions[x];
        instruction->kernel->run(&instruction->call);
        if (!ledger) continue;
        int64_t now = tm_now_ns();
        tm_ledger_add(ledger, line_of(instruction), (double)(now - before) * 1e-9);
        before = now;
    }
}
