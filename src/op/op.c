/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops, and the words of op/describe.h. */
#include "op/op.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tm_op *const ops[TM_OP_COUNT] = {
#define TM_OP(name) [TM_OP_##name] = &tm_op_##name,
#include "op/ops.def"
#undef TM_OP
};

const char *tm_stream_label(tm_stream stream)
{
    static const char *const names[TM_STREAMS] = {
#define X(id, name) [TM_ON_##id] = name,
        TM_STREAM_ROWS(X)
#undef X
    };
    return names[stream];
}

const tm_op *tm_op_get(tm_op_id id)
{
    TM_ASSERT((unsigned)id < TM_OP_COUNT);
    return ops[id];
}

tm_op_id tm_op_id_of(const tm_op *op)
{
    int id = 0;
    while (id < TM_OP_COUNT && ops[id] != op) id++;
    TM_ASSERT(id < TM_OP_COUNT);
    return (tm_op_id)id;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Element i of the permutation p -> (a p + b) mod n with a and n coprime, or of its inverse. */
static int64_t place_of(int64_t i, int64_t n, bool inverse)
{
    int64_t a = n * 3 / 8 + 1, b = n / 3;
    while (common_divisor(a, n) != 1) a++;
    if (!inverse) return (a % n * i + b) % n;
    for (int64_t p = 0; p < n; p++)
        if ((a % n * p + b) % n == i) return p;
    return -1;
}

double tm_example_value(const tm_example *example, int k, int64_t i, uint64_t seed)
{
    double scale = example->scale[k] != 0 ? example->scale[k] : 1;
    if (example->role[k] != TM_ROLE_INPUT && example->role[k] != TM_ROLE_INDEX) {
        double value = example->offset[k] + scale * tm_random_normal(seed, (uint64_t)k, (uint64_t)i);
        double held[1] = { 0 };
        if (example->dtype[k] == TM_F64) return value;
        tm_value_set(held, example->dtype[k], 0, value);
        return tm_value_get(held, example->dtype[k], 0);
    }
    if (example->ignored_every > 0 && i % example->ignored_every == example->ignored_every - 1)
        return TM_IGNORED_TARGET;
    int64_t n = tm_shape_elements(example->in[k]);
    if (example->whole[k] == TM_WHOLE_OFFSETS) return (double)(example->limit[k] * i * i / ((n - 1) * (n - 1)));
    if (example->whole[k] == TM_WHOLE_ONE) return i > n / 2 ? (double)example->limit[k] : 0;
    if (example->whole[k] != TM_WHOLE_ANY) return (double)place_of(i, n, example->whole[k] == TM_WHOLE_INVERSE);
    return (double)tm_random_below(seed, (uint64_t)k, (uint64_t)i, (uint64_t)example->limit[k]);
}

tm_call tm_example_call(const tm_op *op, const tm_example *example, const tm_precision *precision)
{
    tm_call  call = { .op = op, .attr = example->attr_bytes ? example->attr : NULL, .threads = 1 };
    tm_shape out[TM_MAX_OUT];
    memcpy(out, example->out, sizeof out);
    TM_ASSERT(op->infer(example->in, call.attr, out) == NULL);
    for (int k = 0; k < TM_MAX_IN; k++) {
        bool    copied = example->role[k] == TM_ROLE_PARAMETER && !(op->any_dtype_in >> k & 1U);
        tm_role role = copied ? TM_ROLE_WEIGHT_COPY : example->role[k];
        call.in[k] = (tm_view){ .dtype = op->byte_in >> k & 1U ? TM_U8 : tm_precision_of(precision, role),
                                .shape = example->in[k] };
        if (example->dtype[k] != TM_F64) call.in[k].dtype = example->dtype[k];
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        call.out[k] = (tm_view){ .dtype = tm_precision_of(precision, op->out_role[k]), .shape = out[k] };
        if (op->byte_out >> k & 1U) call.out[k].dtype = TM_U8;
        if (example->out_dtype[k] != TM_F64) call.out[k].dtype = example->out_dtype[k];
        if (k >= op->n_out) call.out[k].shape.rank = -1;
    }
    return call;
}

void *tm_undefined_values(tm_dtype dtype, tm_shape shape)
{
    int64_t count = tm_shape_elements(shape);
    TM_ASSERT(dtype == TM_F64 || dtype == TM_I32);
    void *data = tm_alloc((size_t)count * tm_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++) {
        if (dtype == TM_F64) ((double *)data)[i] = (double)NAN;
        if (dtype == TM_I32) ((int32_t *)data)[i] = INT32_MIN;
    }
    return data;
}

void tm_call_make(tm_call *call, const tm_op *op, const tm_example *example, uint64_t seed)
{
    tm_shape out[TM_MAX_OUT];
    *call = (tm_call){ .op = op, .attr = example->attr_bytes ? example->attr : NULL, .threads = 1 };
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = example->out[k];
    TM_ASSERT(op->infer(example->in, call->attr, out) == NULL);
    for (int k = 0; k < TM_MAX_IN; k++) {
        tm_view *view = &call->in[k];
        *view = (tm_view){ .shape = { .rank = -1 } };
        if (example->in[k].rank < 0) continue;
        bool whole = example->role[k] == TM_ROLE_INPUT || example->role[k] == TM_ROLE_INDEX;
        *view = (tm_view){ .dtype = whole ? TM_I32 : TM_F64, .shape = example->in[k] };
        view->data = tm_undefined_values(view->dtype, view->shape);
        int64_t count = tm_shape_elements(view->shape);
        for (int64_t i = 0; i < count; i++) {
            double value = tm_example_value(example, k, i, seed);
            if (view->dtype == TM_I32) ((int32_t *)view->data)[i] = (int32_t)value;
            if (view->dtype == TM_F64) ((double *)view->data)[i] = value;
        }
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        call->out[k] = (tm_view){ .shape = { .rank = -1 } };
        if (k >= op->n_out || out[k].rank < 0) continue;
        tm_dtype dtype = op->out_role[k] == TM_ROLE_INDEX ? TM_I32 : TM_F64;
        call->out[k] = (tm_view){ .dtype = dtype, .shape = out[k], .data = tm_undefined_values(dtype, out[k]) };
    }
}

void tm_call_free(tm_call *call)
{
    for (int k = 0; k < TM_MAX_IN; k++) free(call->in[k].data);
    for (int k = 0; k < TM_MAX_OUT; k++) free(call->out[k].data);
}

const char *tm_shape_fit(tm_shape *out, tm_shape wanted, const char *reason)
{
    if (tm_shape_present(*out) && !tm_shape_equal(*out, wanted)) return reason;
    *out = wanted;
    return NULL;
}

const char *tm_shape_fit_optional(tm_shape *out, tm_shape wanted, const char *reason)
{
    return tm_shape_present(*out) ? tm_shape_fit(out, wanted, reason) : NULL;
}

int64_t tm_view_rows_of(const tm_view *view)
{
    int64_t columns = view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
    return tm_shape_elements(view->shape) / columns;
}

double tm_view_bytes(const tm_view *view)
{
    if (!tm_view_present(view)) return 0;
    return (double)tm_tensor_bytes(view->shape, view->dtype);
}

tm_cost tm_call_cost(const tm_call *call, double flops)
{
    tm_cost cost = { .flops = flops };
    if (tm_view_present(&call->in[0])) cost.vector = call->op->vector * (double)tm_shape_elements(call->in[0].shape);
    for (int k = 0; k < call->op->n_in; k++) cost.bytes += tm_view_bytes(&call->in[k]);
    for (int k = 0; k < call->op->n_out; k++)
        cost.bytes += tm_view_bytes(&call->out[k]) * (tm_call_adds(call, k) ? 2 : 1);
    return cost;
}

tm_cost tm_cost_moved(const tm_call *call)
{
    return tm_call_cost(call, 0);
}

tm_rounding tm_rounding_f64(const tm_call *call, int k)
{
    (void)call;
    (void)k;
    return (tm_rounding){ .terms = 0, .stores = 1 };
}

double *tm_call_sums(const tm_call *call, int k)
{
    const tm_view *out = &call->out[k];
    if (!tm_view_present(out)) return NULL;
    if (!tm_call_adds(call, k)) memset(out->data, 0, (size_t)tm_shape_elements(out->shape) * sizeof(double));
    return out->data;
}

void tm_example_begin(tm_example *example, const void *attr, size_t attr_bytes)
{
    TM_ASSERT(attr_bytes <= sizeof example->attr);
    memset(example, 0, sizeof *example);
    for (int k = 0; k < TM_MAX_IN; k++) example->in[k].rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) example->out[k].rank = -1;
    if (attr_bytes > 0) memcpy(example->attr, attr, attr_bytes);
    example->attr_bytes = attr_bytes;
}

void tm_example_in(tm_example *example, int k, tm_role role, tm_shape shape, double offset, double scale)
{
    example->in[k] = shape;
    example->role[k] = role;
    example->offset[k] = offset;
    example->scale[k] = scale;
}

void tm_example_int(tm_example *example, int k, tm_shape shape, int64_t limit)
{
    example->in[k] = shape;
    example->role[k] = TM_ROLE_INPUT;
    example->limit[k] = limit;
}

void tm_example_offsets(tm_example *example, int k, int64_t experts, int64_t rows)
{
    tm_example_int(example, k, tm_shape_1(experts + 1), rows);
    example->whole[k] = TM_WHOLE_OFFSETS;
}

void tm_example_order(tm_example *example, int k, int64_t n, bool inverse)
{
    tm_example_int(example, k, tm_shape_1(n), n);
    example->whole[k] = inverse ? TM_WHOLE_INVERSE : TM_WHOLE_ORDER;
}
