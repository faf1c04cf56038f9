/* SPDX-License-Identifier: Apache-2.0 */
#include "device/trial.h"

#include "base/arena.h"
#include "device/backend.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a call */

static tm_view *view_at(tm_trial *t, int i)
{
    return i < TM_MAX_IN ? &t->call.in[i] : &t->call.out[i - TM_MAX_IN];
}

static int64_t columns_of(const tm_view *view)
{
    return view->shape.rank > 0 ? view->shape.n[view->shape.rank - 1] : 1;
}

static int64_t gap_of(const tm_trial *t, int i)
{
    const tm_op *op = t->judge->op;
    unsigned     may = i < TM_MAX_IN ? op->strided_in >> i : op->strided_out >> (i - TM_MAX_IN);
    return may & 1U ? t->gap : 0;
}

int64_t tm_trial_place(const tm_trial *t, int i, int64_t e)
{
    int64_t columns = columns_of(i < TM_MAX_IN ? &t->call.in[i] : &t->call.out[i - TM_MAX_IN]), gap = gap_of(t, i);
    return gap ? t->shift + e / columns * (columns + gap) + e % columns : e;
}

void tm_trial_open(tm_trial *t, const tm_judge *judge, tm_device *device, const tm_kernel *kernel,
                   const tm_precision *precision, int64_t gap, int64_t shift)
{
    *t = (tm_trial){ .judge = judge,
                     .kernel = kernel,
                     .device = device,
                     .precision = precision->name,
                     .gap = gap,
                     .shift = gap ? shift : 0 };
    t->call = tm_example_call(judge->op, judge->example, precision);
    t->call.attr = judge->call.attr;
    t->call.device = tm_device_chooser(device).context;
    t->call.threads = tm_device_describe(device)->threads;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(t, i);
        if (!tm_view_present(view)) continue;
        int64_t columns = columns_of(view), rows = columns ? tm_shape_elements(view->shape) / columns : 0;
        view->ld = gap_of(t, i) ? columns + gap : 0;
        t->bytes[i] = gap_of(t, i) ? (size_t)(t->shift + rows * view->ld) * tm_dtype_bytes(view->dtype)
                                   : tm_tensor_bytes(view->shape, view->dtype);
        t->image[i] = tm_alloc(t->bytes[i] + 1);
    }
}

void tm_trial_close(tm_trial *t)
{
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) free(t->image[i]);
}

/* Bytes in front of an operand; where its memory begins. */
static size_t shift_of(tm_trial *t, int i)
{
    return gap_of(t, i) ? (size_t)t->shift * tm_dtype_bytes(view_at(t, i)->dtype) : 0;
}

static tm_address memory_of(tm_trial *t, int i)
{
    return (tm_address){ (uintptr_t)view_at(t, i)->data - shift_of(t, i) };
}

static tm_status put_there(tm_device *device, const void *from, size_t bytes, void **data, tm_error *err)
{
    tm_address at;
    TM_TRY(tm_device_alloc(device, bytes, &at, err));
    *data = (void *)at.at; // NOLINT(performance-no-int-to-ptr)
    return from ? tm_device_write(device, at, from, bytes, err) : TM_OK;
}

/* Outputs that are added to hold what was there, the others NaN. */
static tm_status fill(tm_trial *t, unsigned adds, int alias, tm_error *err)
{
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(t, i);
        int      k = i - TM_MAX_IN;
        if (!tm_view_present(view)) continue;
        memset(t->image[i], 0xff, t->bytes[i]);
        for (int64_t e = 0, n = tm_shape_elements(view->shape); e < n; e++) {
            const tm_view *from = k < 0 ? &t->judge->call.in[i] : NULL;
            int64_t        place = tm_trial_place(t, i, e);
            if (from)
                tm_value_set(t->image[i], view->dtype, place, tm_value_get(from->data, from->dtype, e));
            else if (adds >> k & 1U)
                tm_value_set(t->image[i], view->dtype, place, t->judge->old[k][e]);
        }
    }
    if (t->filled) t->filled(t);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(t, i);
        if (!tm_view_present(view)) continue;
        if (i == TM_MAX_IN && alias >= 0) {
            view->data = t->call.in[alias].data;
            continue;
        }
        tm_status st = put_there(t->device, t->image[i], t->bytes[i], &view->data, err);
        if (view->data) view->data = (char *)view->data + shift_of(t, i);
        if (st != TM_OK) return st;
    }
    return TM_OK;
}

static tm_status compute(tm_trial *t, tm_error *err)
{
    const tm_kernel *kernel = t->kernel;
    t->call.workspace_bytes = kernel->workspace ? kernel->workspace(&t->call) : 0;
    if (t->call.workspace_bytes) TM_TRY(put_there(t->device, NULL, t->call.workspace_bytes, &t->call.workspace, err));
    t->call.queue = t->device->queues[TM_ON_COMPUTE];
    if (kernel->prepare) TM_TRY(kernel->prepare(t->call.device, &t->call, &t->call.state, err));
    if (t->device->backend->prepared) TM_TRY(t->device->backend->prepared(t->device, err));
    TM_TRY(tm_kernel_run(kernel, &t->call, err));
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (tm_view_present(&t->call.out[k]))
            TM_TRY(tm_device_read(t->device, t->image[TM_MAX_IN + k], memory_of(t, TM_MAX_IN + k),
                                  t->bytes[TM_MAX_IN + k], err));
    return tm_device_wait(t->device, err);
}

tm_status tm_trial_run(tm_trial *t, unsigned adds, int alias, tm_error *err)
{
    t->call.accumulate = adds;
    t->call.state = t->call.workspace = NULL;
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) view_at(t, i)->data = NULL;
    tm_status st = fill(t, adds, alias, err);
    if (st == TM_OK) st = compute(t, err);
    if (t->kernel->release) t->kernel->release(t->call.state);
    for (int i = 0; i < TM_MAX_IN + TM_MAX_OUT; i++) {
        tm_view *view = view_at(t, i);
        if (view->data && !(i == TM_MAX_IN && alias >= 0)) tm_device_release(t->device, memory_of(t, i), t->bytes[i]);
    }
    if (t->call.workspace)
        tm_device_release(t->device, (tm_address){ (uintptr_t)t->call.workspace }, t->call.workspace_bytes);
    return st;
}

/* --- the judgement */

/* The spread of an element or, of few probes it may be near 0 by chance, the mean of the eight around it. */
static double spread_near(const tm_judge *j, int k, int64_t i)
{
    int64_t n = tm_shape_elements(j->call.out[k].shape), from = i / 8 * 8, end = from + 8 < n ? from + 8 : n;
    double  sum = 0;
    for (int64_t e = from; e < end; e++) sum += j->spread[k][e];
    return fmax(j->spread[k][i], sum / (double)(end - from));
}

/* Factors that a kernel makes of bfloat16 may be rounded to it (tm_rounding): a relative error of 2^-9 each, where the
 * judge moves inputs by 2 units of float32. */
tm_trial_worst tm_trial_judge(const tm_trial *t, unsigned adds)
{
    const tm_judge *j = t->judge;
    tm_trial_worst  worst = { .part = -1 };
    bool            narrow = t->call.in[0].dtype == TM_BF16;
    for (int k = 0; k < j->op->n_out; k++) {
        const tm_view *view = &t->call.out[k];
        if (!tm_judge_has(j, k) || !tm_view_present(view)) continue;
        for (int64_t i = 0, n = tm_shape_elements(view->shape); i < n; i++) {
            double wanted,
                got = tm_value_get(t->image[TM_MAX_IN + k], view->dtype, tm_trial_place(t, TM_MAX_IN + k, i));
            double bound = tm_judge_bound(j, k, i, adds >> k & 1U, view->dtype, &wanted);
            if (narrow && j->rounding[k].narrow) bound += 24 * spread_near(j, k, i) * (0x1p-9 / (2 * TM_JUDGE_UNIT));
            double error = fabs(got - wanted), part = bound > 0 ? error / bound : error > 0 ? (double)INFINITY : 0;
            if (got == wanted) part = 0; /* infinities, too */
            if (isnan(part)) part = (double)INFINITY;
            if (part > worst.part) worst = (tm_trial_worst){ k, i, got, wanted, bound, part };
        }
    }
    return worst;
}

/* --- all examples of an op */

static void note(tm_tried *out, const tm_trial *t, unsigned adds)
{
    tm_trial_worst worst = tm_trial_judge(t, adds);
    bool           wrong = worst.part > 1;
    out->calls++;
    if (wrong ? out->wrong == 0 : out->wrong == 0 && worst.part > out->worst.part) {
        out->worst = worst;
        snprintf(out->where, sizeof out->where, "%s, example %d, %s%s", t->kernel->name, t->judge->number, t->precision,
                 adds ? ", added to what is there" : "");
    }
    out->wrong += wrong;
}

static tm_status try_precision(tm_device *device, const tm_judge *judge, const tm_precision *precision, tm_tried *out,
                               tm_error *err)
{
    tm_chooser chooser = tm_device_chooser(device);
    tm_trial   t;
    tm_call    call = tm_example_call(judge->op, judge->example, precision);
    call.attr = judge->call.attr;
    call.device = chooser.context;
    call.threads = tm_device_describe(device)->threads;
    const tm_kernel *kernel = chooser.choose(chooser.context, &call, NULL);
    if (!kernel) return TM_OK;
    out->kernel = true;
    tm_trial_open(&t, judge, device, kernel, precision, 0, 0);
    tm_status st = tm_trial_run(&t, 0, -1, err);
    if (st == TM_OK) note(out, &t, 0);
    t.call.accumulate = judge->adds;
    if (st == TM_OK && judge->adds && (!kernel->refuse || !kernel->refuse(&t.call))) {
        st = tm_trial_run(&t, judge->adds, -1, err);
        if (st == TM_OK) note(out, &t, judge->adds);
    }
    if (st != TM_OK)
        snprintf(out->where, sizeof out->where, "%s, example %d, %s", kernel->name, judge->number, precision->name);
    tm_trial_close(&t);
    return st;
}

static bool within(const tm_op *op, const tm_example *example, double flops, int64_t values)
{
    tm_call call = tm_example_call(op, example, &tm_precision_f32);
    call.attr = example->attr;
    for (int k = 0; k < op->n_in; k++)
        if (tm_view_present(&call.in[k])) values -= tm_shape_elements(call.in[k].shape);
    return values >= 0 && op->cost(&call).flops <= flops;
}

tm_status tm_try_op(tm_device *device, const tm_op *op, double flops, int64_t values, tm_tried *out, tm_error *err)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    tm_example                       example;
    *out = (tm_tried){ .worst.part = -1 };
    for (int number = 0; op->example(number, &example); number++)
        for (int p = 0; p < 3 && within(op, &example, flops, values); p++) {
            tm_judge judge;
            tm_judge_open(&judge, op, &example, number, p > 0);
            tm_status st = try_precision(device, &judge, precisions[p], out, err);
            tm_judge_close(&judge);
            if (st != TM_OK) return st;
        }
    return TM_OK;
}

/* --- random numbers */

enum { DRAWN = 1 << 16 };

static tm_status draw(tm_device *device, const tm_random_rows *rows, tm_dtype dtype, char *found, tm_error *err)
{
    tm_address memory;
    size_t     bytes = DRAWN * tm_dtype_bytes(dtype);
    TM_TRY(tm_device_alloc(device, bytes, &memory, err));
    tm_status st = tm_device_draw(device, memory, dtype, rows, 0, DRAWN, err);
    if (st == TM_OK) st = tm_device_read(device, found, memory, bytes, err);
    if (st == TM_OK) st = tm_device_wait(device, err);
    tm_device_release(device, memory, bytes);
    return st;
}

static void judge_drawn(const char *name, const tm_random_rows *rows, tm_dtype dtype, const char *found, tm_tried *out)
{
    float         *values = tm_alloc(DRAWN * sizeof *values);
    tm_trial_worst worst = { .part = 0 };
    tm_random_make(rows, 0, DRAWN, values);
    for (int64_t i = 0; i < DRAWN && worst.part == 0; i++) {
        char wanted[8];
        tm_value_set(wanted, dtype, 0, (double)values[i]);
        if (memcmp(found + (size_t)i * tm_dtype_bytes(dtype), wanted, tm_dtype_bytes(dtype)) == 0) continue;
        worst = (tm_trial_worst){ 0, i, tm_value_get(found, dtype, i), tm_value_get(wanted, dtype, 0), 0, INFINITY };
    }
    free(values);
    out->calls++;
    if (out->wrong == 0 && (out->calls == 1 || worst.part > 0)) {
        out->worst = worst;
        snprintf(out->where, sizeof out->where, "%s, %s", name, tm_dtype_name(dtype));
    }
    out->wrong += worst.part > 0;
}

tm_status tm_try_draw(tm_device *device, tm_tried *out, tm_error *err)
{
    static const struct {
        const char    *name;
        tm_random_rows rows;
    } all[] = {
        { "normal", { .seed = 1, .stream = 2, .std = 0.02, .columns = DRAWN, .ld = DRAWN } },
        { "cut", { .seed = 3, .stream = 4, .mean = 1, .std = 2, .cut = 3, .columns = DRAWN, .ld = DRAWN } },
        { "of columns", { .seed = 5, .stream = 6, .std = 1, .first = 3, .columns = 61, .ld = 203 } },
        { "uniform", { .seed = 7, .stream = 8, .std = 0.1, .uniform = true, .columns = DRAWN, .ld = DRAWN } },
    };
    static const tm_dtype formats[] = { TM_F32, TM_BF16 };
    char                 *found = tm_alloc(DRAWN * sizeof(float));
    tm_status             st = TM_OK;
    *out = (tm_tried){ .kernel = true };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int f = 0; f < 2 && st == TM_OK; f++) {
            st = draw(device, &all[i].rows, formats[f], found, err);
            if (st == TM_OK) judge_drawn(all[i].name, &all[i].rows, formats[f], found, out);
        }
    free(found);
    return st;
}
