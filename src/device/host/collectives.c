/* SPDX-License-Identifier: Apache-2.0 */
/* device/collectives.c - kernels of collective ops where the device's memory is the host's: the group does the work;
 * and their operands, which lie where other ranks reach them.
 *
 * A kernel's `run` returns nothing, so a failure is kept in the device until a call that can tell it. After the first
 * one the group refuses everything: what is computed meanwhile is not looked at.
 */
#include "base/arena.h"
#include "base/log.h"
#include "device/backend.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <stdlib.h>
#include <string.h>

/* What `prepare` found out. */
typedef struct {
    tm_device *device;
    tm_comm   *comm; /* NULL: a group of one */
} member;

static int64_t ranks_of(const tm_call *call)
{
    return ((const tm_group_attr *)call->attr)->ranks;
}

/* So that the bytes of several ranks, one after the other, are those of their elements. */
static bool whole_bytes(const tm_view *x)
{
    int64_t n = tm_shape_elements(x->shape);
    return tm_dtype_blocked(x->dtype) ? n % TM_NF4_GROUP == 0 : n * tm_dtype_bits(x->dtype) % 8 == 0;
}

static const char *collective_refuse(const tm_call *call)
{
    tm_dtype dtype = call->in[0].dtype;
    if (dtype != call->out[0].dtype) return "a collective keeps the format";
    if (call->op == &tm_op_all_gather)
        return whole_bytes(&call->in[0]) && !call->accumulate ? NULL : "needs whole bytes of each rank";
    if (dtype != TM_F32 && dtype != TM_BF16 && dtype != TM_F64) return "sums float32, bfloat16 and float64";
    if (call->accumulate && call->op == &tm_op_all_reduce) return "does not add to what is there";
    return NULL;
}

/* Sums of float32 that travel as bfloat16. */
static bool narrows(const tm_call *call)
{
    const tm_group_attr *attr = call->attr;
    return attr->narrow && attr->ranks > 1 && call->in[0].dtype == TM_F32 && call->op != &tm_op_all_gather;
}

/* Sums that are added to what is there are received apart; what is rounded lies apart as well. */
static size_t collective_workspace(const tm_call *call)
{
    if (narrows(call)) return tm_tensor_bytes(call->in[0].shape, TM_BF16);
    return call->accumulate && ranks_of(call) > 1 ? tm_tensor_bytes(call->out[0].shape, call->out[0].dtype) : 0;
}

tm_status tm_host_group(const tm_device *device, const char *op, const tm_group_attr *attr, tm_comm **out,
                        tm_error *err)
{
    *out = NULL;
    if (attr->ranks == 1) return TM_OK;
    tm_comm *comm = tm_device_group(device, (unsigned)attr->axes);
    if (!comm || tm_comm_size(comm) != attr->ranks)
        return tm_fail(err, TM_INVALID, "%s '%.64s' is planned for %lld ranks, and the device has joined a group of %d",
                       op, attr->what, (long long)attr->ranks, comm ? tm_comm_size(comm) : 1);
    *out = comm;
    return TM_OK;
}

static tm_status collective_prepare(const void *context, const tm_call *call, void **state, tm_error *err)
{
    tm_comm *comm;
    TM_TRY(tm_host_group(context, call->op->name, call->attr, &comm, err));
    if (!comm) return TM_OK;
    member *own = tm_alloc(sizeof *own);
    *own = (member){ (tm_device *)context, comm };
    *state = own;
    return TM_OK;
}

static void add_to(const tm_view *y, const void *x)
{
    int64_t n = tm_shape_elements(y->shape);
    if (y->dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)y->data)[i] += ((const float *)x)[i];
    else if (y->dtype == TM_F64)
        for (int64_t i = 0; i < n; i++) ((double *)y->data)[i] += ((const double *)x)[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)y->data)[i] =
                tm_bf16_round(tm_bf16_value(((const uint16_t *)y->data)[i]) + tm_bf16_value(((const uint16_t *)x)[i]));
}

static tm_comm_format format_of(const tm_call *call)
{
    if (call->op == &tm_op_all_gather) return TM_COMM_BYTES;
    return call->in[0].dtype == TM_F32   ? TM_COMM_FLOAT32
           : call->in[0].dtype == TM_F64 ? TM_COMM_FLOAT64
                                         : TM_COMM_BFLOAT16;
}

/* Elements as the group counts them: of what is sent, or of the part that a rank gets. */
static size_t count_of(const tm_call *call)
{
    const tm_view *x = &call->in[0];
    if (call->op == &tm_op_all_gather) return tm_tensor_bytes(x->shape, x->dtype);
    return (size_t)tm_shape_elements(call->op == &tm_op_reduce_scatter ? call->out[0].shape : x->shape);
}

/* The workspace has x in bfloat16; the sum comes into its place. */
static void round_operand(const tm_call *call)
{
    const float *x = call->in[0].data;
    uint16_t    *half = call->workspace;
    int64_t      n = tm_shape_elements(call->in[0].shape);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < n; i++) half[i] = tm_bf16_round(x[i]);
}

static void widen_result(const tm_call *call, const uint16_t *half)
{
    float  *y = call->out[0].data;
    int64_t n = tm_shape_elements(call->out[0].shape);
#pragma omp parallel for schedule(static) num_threads(call->threads)
    for (int64_t i = 0; i < n; i++) y[i] = tm_bf16_value(half[i]) + (call->accumulate ? y[i] : 0);
}

/* What is sent, and where this rank's result is to come. */
static void place_operands(const tm_call *call, const member *own, tm_collective *what)
{
    what->send = call->in[0].data;
    what->receive = call->accumulate ? call->workspace : call->out[0].data;
    if (!narrows(call)) return;
    uint16_t *half = call->workspace;
    round_operand(call);
    what->format = TM_COMM_BFLOAT16;
    what->send = half;
    what->receive = half + (call->op == &tm_op_reduce_scatter ? (size_t)tm_comm_rank(own->comm) * what->count : 0);
}

static void collective_run(const tm_call *call)
{
    const tm_group_attr *attr = call->attr;
    member              *own = call->state;
    const tm_view       *x = &call->in[0], *y = &call->out[0];
    const void          *result = x->data;
    if (own) {
        tm_collective what = { .kind = call->op == &tm_op_all_reduce       ? TM_COMM_ALL_REDUCE
                                       : call->op == &tm_op_reduce_scatter ? TM_COMM_REDUCE_SCATTER
                                                                           : TM_COMM_ALL_GATHER,
                               .op = attr->largest ? TM_COMM_MAX : TM_COMM_SUM,
                               .format = format_of(call),
                               .count = count_of(call),
                               .what = attr->what,
                               .step = -1 };
        tm_error      err = { 0 };
        if (own->device->collective.status != TM_OK) return;
        place_operands(call, own, &what);
        if (tm_comm_run(own->comm, &what, &err) != TM_OK) {
            own->device->collective = err;
            return;
        }
        result = what.receive;
        if (narrows(call)) {
            widen_result(call, result);
            return;
        }
    }
    if (call->accumulate)
        add_to(y, result);
    else if (result != y->data)
        memcpy(y->data, result, tm_tensor_bytes(y->shape, y->dtype));
}

static const char *share_refuse(const tm_call *call)
{
    return call->in[0].dtype != call->out[0].dtype || call->accumulate ? "it keeps format and values" : NULL;
}

static void share_run(const tm_call *call)
{
    if (call->in[0].data != call->out[0].data)
        memcpy(call->out[0].data, call->in[0].data, tm_tensor_bytes(call->out[0].shape, call->out[0].dtype));
}

#define COLLECTIVE(id)                                                                                                 \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/base", .refuse = collective_refuse, .workspace = collective_workspace,         \
        .run = collective_run, .prepare = collective_prepare, .release = free                                          \
    }
const tm_kernel tm_host_collectives[] = {
    COLLECTIVE(all_reduce), COLLECTIVE(reduce_scatter),
    COLLECTIVE(all_gather), { .op = TM_OP_share, .name = "share/base", .refuse = share_refuse, .run = share_run },
    { .run = NULL },
};

/* --- memory that others reach ------------------------------------------------------------------------------------- */

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
