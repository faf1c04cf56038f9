/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/preference.c - the loss of two answers to a prompt, and its gradient (source/preference.cu). */
#include "device/gpu/own.h"
#include "op/preference.h"

#include <math.h>

enum { THREADS = 256, TOLD = 1 + TM_PREFERRED_COUNT };
enum { FIND, PAIRS, SUM }; /* kernels of a call */

static bool is_grad(const tm_call *call)
{
    return call->op == &tm_op_preference_loss_grad;
}

static int64_t samples_of(const tm_call *call)
{
    return call->in[0].shape.n[0] / ((const tm_preference_attr *)call->attr)->seq;
}

/* in: losses, targets, first_key, [reference], of the gradient scalars; out: loss and record, or dlosses */
static const char *refuse(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    const char               *why = NULL;
    for (int k = 0; k < 4 && !why; k++)
        if (tm_view_present(&call->in[k]))
            why = k % 3 ? tm_gpu_refuse_whole(&call->in[k]) : tm_gpu_refuse_view(&call->in[k]);
    if (!why && attr->seq >= INT32_MAX / 2) why = "more rows of a sample than 31 bits count";
    if (why) return why;
    if (!is_grad(call))
        return call->out[0].dtype == TM_F64 && call->out[1].dtype == TM_F64
                   ? NULL
                   : "keeps the loss and the record in float64";
    if (call->in[4].dtype != TM_F64) return "takes scalars in float64";
    return call->accumulate ? "does not add to what is there" : tm_gpu_refuse_view(&call->out[0]);
}

/* What is told of each sample; behind it, where the sequences of each are. */
static size_t told_bytes(const tm_call *call)
{
    return is_grad(call) ? 0 : (size_t)samples_of(call) * TOLD * sizeof(double);
}

static size_t workspace(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    return told_bytes(call) + (size_t)samples_of(call) * (size_t)(attr->seq + 2) * sizeof(int32_t);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "L", call->in[0].dtype);
    tm_gpu_define_format(&d, "R", tm_view_present(&call->in[3]) ? call->in[3].dtype : TM_F32);
    tm_gpu_define_format(&d, "D", is_grad(call) ? call->out[0].dtype : TM_F32);
    for (int k = 0; k < 2; k++)
        tm_gpu_note(device, "preference", tm_gpu_text_preference, &d, k > 0 ? call->op->name : "preference_find",
                    state);
    if (!is_grad(call)) tm_gpu_note(device, "preference", tm_gpu_text_preference, &d, "preference_sum", state);
    return TM_OK;
}

static void *behind(const void *address, size_t bytes)
{
    return (void *)((uintptr_t)address + bytes); // NOLINT(performance-no-int-to-ptr): of the device
}

static void pass_rows(tm_gpu_arguments *a, const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    tm_gpu_pass_i64(a, call->in[0].shape.n[0] / (attr->ranks > 1 ? attr->ranks : 1));
    tm_gpu_pass_int(a, (int)samples_of(call));
    tm_gpu_pass_int(a, (int)attr->seq);
    tm_gpu_pass_int(a, (int)attr->ranks);
    tm_gpu_pass_int(a, (int)attr->chunk);
}

static tm_status start_find(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, behind(call->workspace, told_bytes(call)));
    tm_gpu_pass(&a, call->in[2].data);
    pass_rows(&a, call);
    return tm_gpu_start(call, FIND, samples_of(call), 1, 1, THREADS, &a, err);
}

/* A block for each sample, into `to`. */
static tm_status start_pairs(const tm_call *call, const void *to, tm_error *err)
{
    const tm_preference_attr *attr = call->attr;
    tm_gpu_arguments          a = { .bytes = 0 };
    tm_gpu_pass(&a, to);
    tm_gpu_pass(&a, behind(call->workspace, told_bytes(call)));
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass(&a, call->in[tm_view_present(&call->in[3]) ? 3 : 0].data);
    pass_rows(&a, call);
    tm_gpu_pass_int(&a, tm_view_present(&call->in[3]));
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    tm_gpu_pass_int(&a, (int)attr->kind);
    tm_gpu_pass_double(&a, attr->beta);
    tm_gpu_pass_double(&a, attr->label_smoothing);
    tm_gpu_pass_double(&a, log1p(-attr->label_smoothing));
    tm_gpu_pass_double(&a, log(attr->label_smoothing));
    if (is_grad(call)) {
        tm_gpu_pass(&a, behind(call->in[4].data, TM_SCALAR_LOSS_SCALE * sizeof(double)));
        tm_gpu_pass_double(&a, tm_preference_share(attr));
    }
    return tm_gpu_start(call, PAIRS, samples_of(call), 1, 1, THREADS, &a, err);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    TM_TRY(start_find(call, err));
    TM_TRY(start_pairs(call, is_grad(call) ? call->out[0].data : call->workspace, err));
    if (is_grad(call)) return TM_OK;
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_int(&a, (int)samples_of(call));
    tm_gpu_pass_int(&a, (int)call->accumulate);
    tm_gpu_pass_double(&a, tm_preference_share(call->attr));
    return tm_gpu_start(call, SUM, 1, 1, 1, THREADS, &a, err);
}

#define ROW(id)                                                                                                        \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse, .workspace = workspace, .prepare = prepare,            \
        .launch = launch, .release = tm_gpu_forget                                                                     \
    }
const tm_kernel tm_gpu_preference[] = { ROW(preference_loss), ROW(preference_loss_grad), { .name = NULL } };
