/* SPDX-License-Identifier: Apache-2.0 */
/* device/reference - every op by its double reference, one thread; ops of several ranks by their group. Also the CPU's
 * last resort: the same reference through float64 copies of whatever is stored. */
#include "device/host/host.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <stdio.h>

static void run_reference(const tm_call *call)
{
    call->op->reference(call);
}

static bool floating(const tm_view *view)
{
    return tm_view_present(view) && view->dtype != TM_I32;
}

static size_t copy_bytes(const tm_view *view)
{
    return floating(view) && view->dtype != TM_F64 ? (size_t)tm_shape_elements(view->shape) * sizeof(double) : 0;
}

/* Where element i, counted row by row, is stored. */
static int64_t element_of(const tm_view *view, int64_t i)
{
    if (tm_view_dense(view)) return i;
    int64_t columns = view->shape.n[view->shape.rank - 1];
    return i / columns * view->ld + i % columns;
}

static size_t workspace_converted(const tm_call *call)
{
    size_t bytes = 0;
    for (int i = 0; i < TM_MAX_IN; i++) bytes += copy_bytes(&call->in[i]);
    for (int k = 0; k < TM_MAX_OUT; k++) bytes += copy_bytes(&call->out[k]);
    return bytes;
}

/* Puts a double copy of a view at *at; moves *at on. */
static tm_view widen(const tm_view *view, char **at)
{
    tm_view wide = *view;
    size_t  bytes = copy_bytes(view);
    if (!bytes) return wide;
    wide.dtype = TM_F64;
    wide.data = *at;
    wide.ld = 0; /* the copy is dense */
    for (int64_t i = 0, n = tm_shape_elements(view->shape); i < n; i++)
        ((double *)wide.data)[i] = tm_value_get(view->data, view->dtype, element_of(view, i));
    *at += bytes;
    return wide;
}

static void run_converted(const tm_call *call)
{
    tm_call wide = *call;
    char   *at = call->workspace;
    for (int i = 0; i < TM_MAX_IN; i++) wide.in[i] = widen(&call->in[i], &at);
    for (int k = 0; k < TM_MAX_OUT; k++) wide.out[k] = widen(&call->out[k], &at);
    call->op->reference(&wide);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (copy_bytes(&call->out[k]))
            for (int64_t i = 0, n = tm_shape_elements(call->out[k].shape); i < n; i++)
                tm_value_set(call->out[k].data, call->out[k].dtype, element_of(&call->out[k], i),
                             ((const double *)wide.out[k].data)[i]);
}

const tm_kernel *tm_reference_kernel(tm_op_id op, bool converted)
{
    static const tm_kernel plain[TM_OP_COUNT] = {
#define TM_OP(id) { .op = TM_OP_##id, .name = #id "/reference", .run = run_reference },
#include "op/ops.def"
#undef TM_OP
    };
    static const tm_kernel through_double[TM_OP_COUNT] = {
#define TM_OP(id)                                                                                                      \
    { .op = TM_OP_##id, .name = #id "/reference-converted", .workspace = workspace_converted, .run = run_converted },
#include "op/ops.def"
#undef TM_OP
    };
    return converted ? &through_double[op] : &plain[op];
}

static void info(tm_device *device, int threads)
{
    (void)threads;
    tm_host_info(device, sizeof(tm_host), 1);
    device->info.float64_only = true;
    snprintf(device->info.text, sizeof device->info.text, "reference: float64, one thread");
}

/* Fields of a sample may have any format. What several ranks do together is no function of one rank's values. */
static const tm_kernel *choose_reference(const tm_device *device, const tm_call *call, tm_text *refusals)
{
    (void)device;
    (void)refusals;
    const tm_kernel *const tables[] = { tm_host_collectives, tm_host_exchange, tm_host_messages, tm_host_ring };
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const tm_kernel *kernel = tables[t]; kernel->name; kernel++)
            if (kernel->op == tm_op_id_of(call->op) && ((const tm_group_attr *)call->attr)->ranks > 1) return kernel;
    return tm_reference_kernel(tm_op_id_of(call->op), workspace_converted(call) > 0);
}

const tm_backend tm_backend_reference = {
    .name = "reference", .info = info, .choose = choose_reference, TM_HOST_CALLS
};
