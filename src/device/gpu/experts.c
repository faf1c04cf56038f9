/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/experts.c - which experts rows are sent to (source/route.cu), rows to them and back, and what is summed
 * over their rows (source/experts.cu). */
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

/* Pairs of row and slot are counted in 32 bits, and so are runs of eight columns. */
static const char *refuse_many(int64_t pairs, int64_t rows, int64_t columns)
{
    if (pairs > INT32_MAX) return "more than 2^31 - 1 pairs of row and slot";
    return rows * ((columns + 7) / 8) > UINT32_MAX || columns > INT32_MAX / 2 ? "more columns than 32 bits count"
                                                                              : NULL;
}

/* Rows of a block that has a wave for each. */
static int64_t waves_of(const tm_call *call)
{
    return THREADS / tm_gpu_wave(call->device);
}

/* --- route, route_grad ----------------------------------------------------------------------------------------------
 */

/* logits or their gradient, scores, bias or the weights' gradient, the scores' gradient; absent: float32. */
static tm_gpu_defines route_formats(const tm_view *l, const tm_view *s, const tm_view *d, const tm_view *g)
{
    static const char *const name[] = { "L", "S", "D", "G" };
    const tm_view           *of[] = { l, s, d, g };
    tm_gpu_defines           out = { .n = 0 };
    int64_t                  experts = s->shape.n[1], most = 64;
    while (most < experts) most *= 2;
    tm_gpu_define(&out, "MOST", most);
    for (int k = 0; k < 4; k++)
        tm_gpu_define_format(&out, name[k], of[k] && tm_view_present(of[k]) ? of[k]->dtype : TM_F32);
    return out;
}

/* in: logits, [bias]; out: weights, ids, scores */
static const char *refuse_route(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->out[2]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->out[2].dtype);
    if (!why) why = tm_gpu_refuse_whole(&call->out[1]);
    return why ? why : refuse_many(tm_shape_elements(call->out[1].shape), 0, 0);
}

static tm_status prepare_route(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = route_formats(&call->in[0], &call->out[2], &call->in[1], NULL);
    (void)err;
    tm_gpu_note(device, "route", tm_gpu_text_route, &d, "route", state);
    return TM_OK;
}

static tm_status launch_route(const tm_call *call, tm_error *err)
{
    const tm_route_attr *attr = call->attr;
    int64_t              rows = call->in[0].shape.n[0], waves = waves_of(call);
    tm_gpu_arguments     a = { .bytes = 0 };
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)call->in[0].shape.n[1]);
    tm_gpu_pass_int(&a, (int)attr->top_k);
    tm_gpu_pass_int(&a, attr->score == TM_SCORE_SIGMOID);
    tm_gpu_pass_int(&a, attr->normalise != 0);
    tm_gpu_pass_float(&a, attr->scale);
    tm_gpu_pass_int(&a, (int)attr->groups);
    tm_gpu_pass_int(&a, (int)attr->top_groups);
    tm_gpu_pass_int(&a, (int)attr->group_best);
    tm_gpu_pass_int(&a, attr->uniform != 0);
    return tm_gpu_start(call, 0, (rows + waves - 1) / waves, 1, 1, THREADS, &a, err);
}

/* in: [dweights], [dscores], ids, scores; out: dlogits */
static const char *refuse_route_grad(const tm_call *call)
{
    const tm_view *floats[] = { &call->in[0], &call->in[1], &call->in[3], &call->out[0] };
    const char    *why = tm_gpu_refuse_whole(&call->in[2]);
    for (int k = 0; k < 4 && !why; k++) why = tm_gpu_refuse_view(floats[k]);
    return why ? why : refuse_many(tm_shape_elements(call->in[2].shape), 0, 0);
}

static tm_status prepare_route_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = route_formats(&call->out[0], &call->in[3], &call->in[0], &call->in[1]);
    (void)err;
    tm_gpu_note(device, "route", tm_gpu_text_route, &d, "route_grad", state);
    return TM_OK;
}

static tm_status launch_route_grad(const tm_call *call, tm_error *err)
{
    const tm_route_attr *attr = call->attr;
    int64_t              rows = call->in[3].shape.n[0], waves = waves_of(call);
    tm_gpu_arguments     a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)call->in[3].shape.n[1]);
    tm_gpu_pass_int(&a, (int)attr->top_k);
    tm_gpu_pass_int(&a, attr->score == TM_SCORE_SIGMOID);
    tm_gpu_pass_int(&a, attr->normalise != 0);
    tm_gpu_pass_float(&a, attr->scale);
    return tm_gpu_start(call, 0, (rows + waves - 1) / waves, 1, 1, THREADS, &a, err);
}

/* --- gather_rows, combine, combine_weights_grad ---------------------------------------------------------------------
 */

static tm_status note_rows(const void *device, tm_dtype x, tm_dtype y, const tm_view *w, const char *kernel,
                           void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "Y", y);
    tm_gpu_define_format(&d, "W", w && tm_view_present(w) ? w->dtype : TM_F32);
    tm_gpu_note(device, "experts", tm_gpu_text_experts, &d, kernel, state);
    return TM_OK;
}

static int top_k_of(const tm_call *call)
{
    return (int)((const tm_slots_attr *)call->attr)->top_k;
}

static tm_status start_runs(const tm_call *call, int64_t rows, int64_t columns, const tm_gpu_arguments *a,
                            tm_error *err)
{
    return tm_gpu_start_each(call, 0, rows * ((columns + 7) / 8), a, err);
}

/* in: x, order, inverse, [weights], of combine [addend]; out: y */
static const char *refuse_slots(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_gpu_refuse_whole(&call->in[k]);
    if (!why) why = tm_gpu_refuse_view(&call->in[3]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why && call->op == &tm_op_combine) why = tm_gpu_refuse_view(&call->in[4]);
    if (!why && call->op == &tm_op_combine) why = tm_gpu_refuse_other(&call->in[4], call->out[0].dtype);
    int64_t pairs = tm_shape_elements(call->in[1].shape);
    return why ? why : refuse_many(pairs, pairs, call->in[0].shape.n[1]);
}

static tm_status prepare_slots(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    return note_rows(device, call->in[0].dtype, call->out[0].dtype, &call->in[3], call->op->name, state);
}

static tm_status launch_slots(const tm_call *call, tm_error *err)
{
    bool             back = call->op == &tm_op_combine;
    int64_t          rows = call->out[0].shape.n[0], columns = call->out[0].shape.n[1];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[back ? 2 : 1].data);
    tm_gpu_pass(&a, call->in[3].data);
    if (back) tm_gpu_pass(&a, call->in[4].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, top_k_of(call));
    return start_runs(call, rows, columns, &a, err);
}

/* in: a, b, inverse; out: dw */
static const char *refuse_weights(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_whole(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    return why ? why : refuse_many(call->in[1].shape.n[0], 0, call->in[1].shape.n[1]);
}

static tm_status prepare_weights(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    return note_rows(device, call->in[0].dtype, call->in[1].dtype, &call->out[0], "combine_weights_grad", state);
}

static tm_status launch_weights(const tm_call *call, tm_error *err)
{
    int64_t          pairs = call->in[1].shape.n[0], waves = waves_of(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, pairs);
    tm_gpu_pass_int(&a, (int)call->in[1].shape.n[1]);
    tm_gpu_pass_int(&a, top_k_of(call));
    return tm_gpu_start(call, 0, (pairs + waves - 1) / waves, 1, 1, THREADS, &a, err);
}

/* --- put_rows -------------------------------------------------------------------------------------------------------
 */

/* in: table, x, row; out: y */
static const char *refuse_put(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_strided(&call->in[1]);
    if (!why) why = tm_gpu_refuse_other(&call->in[1], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_whole(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    return why ? why : refuse_many(0, call->in[1].shape.n[0], call->in[1].shape.n[1]);
}

static tm_status prepare_put(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    return note_rows(device, call->in[0].dtype, call->in[0].dtype, NULL, "put_rows", state);
}

static tm_status launch_put(const tm_call *call, tm_error *err)
{
    const tm_view   *table = &call->in[0], *x = &call->in[1], *y = &call->out[0];
    tm_gpu_arguments a = { .bytes = 0 };
    if (y->data != table->data)
        TM_TRY(tm_gpu_copy_of(call, y->data, table->data, tm_tensor_bytes(table->shape, table->dtype), err));
    tm_gpu_pass(&a, y->data);
    tm_gpu_pass(&a, x->data);
    tm_gpu_pass(&a, call->in[2].data);
    tm_gpu_pass_i64(&a, x->shape.n[0]);
    tm_gpu_pass_int(&a, (int)x->shape.n[1]);
    tm_gpu_pass_i64(&a, tm_view_ld(x));
    return start_runs(call, x->shape.n[0], x->shape.n[1], &a, err);
}

/* --- grouped_bias_grad ----------------------------------------------------------------------------------------------
 */

/* in: dy, offsets; out: db */
static const char *refuse_bias(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_whole(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    return why ? why : refuse_many(call->in[0].shape.n[0], 0, call->in[0].shape.n[1]);
}

static tm_status prepare_bias(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    return note_rows(device, call->in[0].dtype, call->out[0].dtype, NULL, "grouped_bias_grad", state);
}

static tm_status launch_bias(const tm_call *call, tm_error *err)
{
    int64_t          columns = call->in[0].shape.n[1], experts = call->in[1].shape.n[0] - 1;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, 0, (columns + THREADS - 1) / THREADS, experts, 1, THREADS, &a, err);
}

#define ROW(id, of)                                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_##of, .launch = launch_##of, .prepare = prepare_##of,   \
        .release = tm_gpu_forget                                                                                       \
    }
const tm_kernel tm_gpu_experts[] = { ROW(route, route),
                                     ROW(route_grad, route_grad),
                                     ROW(gather_rows, slots),
                                     ROW(combine, slots),
                                     ROW(combine_weights_grad, weights),
                                     ROW(put_rows, put),
                                     ROW(grouped_bias_grad, bias),
                                     { .name = NULL } };
