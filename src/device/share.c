/* SPDX-License-Identifier: Apache-2.0 */
/* device/share.c - the memory of a device that the collectives of other ranks reach without copies. */
#include "base/arena.h"
#include "base/log.h"
#include "device/backend.h"

#include <stdlib.h>

enum { PAGE = 4096, MOST_RANGES = 16 };

typedef struct {
    uintptr_t begin, end; /* whole pages */
} span;

typedef struct {
    span  *all;
    size_t count, room;
} spans;

static void add_span(spans *s, const void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)data;
    if (!data || bytes == 0) return;
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->all = tm_realloc(s->all, s->room * sizeof *s->all);
    }
    s->all[s->count++] = (span){ begin / PAGE * PAGE, (begin + bytes + PAGE - 1) / PAGE * PAGE };
}

static void add_view(spans *s, const tm_plan *plan, tm_tensor_id id, const tm_view *view)
{
    if (id == TM_NONE || tm_graph_at(plan->graph, id)->space != TM_SPACE_DEVICE) return;
    add_span(s, view->data, tm_tensor_bytes(view->shape, view->dtype));
}

static void add_program(spans *s, const tm_plan *plan, const tm_program *program)
{
    for (size_t x = 0; x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        if (i->stream != TM_ON_COMMUNICATION) continue;
        for (int k = 0; k < TM_MAX_IN; k++) add_view(s, plan, i->node->in[k], &i->call.in[k]);
        for (int k = 0; k < TM_MAX_OUT; k++) add_view(s, plan, i->node->out[k], &i->call.out[k]);
        add_span(s, i->call.workspace, i->call.workspace_bytes);
    }
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Into ascending spans with gaps of more than `gap` bytes. */
static size_t join(span *all, size_t count, size_t gap)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (n > 0 && all[i].begin <= all[n - 1].end + gap)
            all[n - 1].end = all[i].end > all[n - 1].end ? all[i].end : all[n - 1].end;
        else
            all[n++] = all[i];
    return n;
}

/* What collectives use, in few ranges: gaps are closed, the smallest first. */
static int collective_ranges(const tm_plan *plan, tm_comm_range out[MOST_RANGES])
{
    spans s = { 0 };
    for (size_t p = 0; p < plan->n_programs; p++) add_program(&s, plan, &plan->programs[p]);
    for (size_t k = 0; plan->in_slot && k < (size_t)plan->graph->slots * plan->n_programs; k++)
        add_program(&s, plan, &plan->in_slot[k]);
    if (s.count > 0) qsort(s.all, s.count, sizeof *s.all, by_begin);
    size_t n = join(s.all, s.count, 0);
    for (size_t gap = PAGE; n > MOST_RANGES; gap *= 2) n = join(s.all, n, gap);
    for (size_t i = 0; i < n; i++)
        out[i] = (tm_comm_range){ (void *)s.all[i].begin, // NOLINT(performance-no-int-to-ptr): of addresses
                                  s.all[i].end - s.all[i].begin };
    free(s.all);
    return (int)n;
}

tm_status tm_device_share(tm_device *device, const tm_plan *plan, tm_error *err)
{
    tm_comm_range ranges[MOST_RANGES];
    tm_error      own = { 0 };
    tm_comm      *world = device->groups ? device->groups->world : NULL;
    TM_TRY(tm_device_ready(device, err));
    TM_ASSERT(device->share < 0);
    if (!world || tm_comm_size(world) == 1 || !device->backend->share) return TM_OK;
    int       n = collective_ranges(plan, ranges);
    tm_status st = device->backend->share(device, world, ranges, n, &device->share, &own);
    for (int i = 0; i < n && st == TM_OK; i++) device->shared_bytes += (int64_t)ranges[i].bytes;
    if (st != TM_UNSUPPORTED) return tm_device_noted(device, st, &own, err);
    tm_warn("collective calls copy their data through blocks: %s", own.text);
    return TM_OK;
}

void tm_device_unshare(tm_device *device)
{
    if (device->share >= 0) tm_comm_unshare(device->groups->world, device->share);
    device->share = -1;
    device->shared_bytes = 0;
}

int64_t tm_device_shared_bytes(const tm_device *device)
{
    return device->shared_bytes;
}
