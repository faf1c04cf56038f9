/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/attention_library.c - attention of bfloat16 and its gradients by NVIDIA's cuDNN (gpu/dnn.h): what it
 * takes, and its workspace. */
#include "device/gpu/own.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SIZE = 256 };

/* So many sequences in one call of the library, and heads of keys. */
typedef struct {
    int64_t sequences, groups;
} piece;

static tm_gpu_own *own_of(const void *device)
{
    return ((const tm_device *)device)->own;
}

/* NULL: it is there, or is taken for granted. The library is begun for the first attention of bfloat16. One that is
 * there but fails is found when the call is prepared. */
static const char *missing(tm_gpu_own *own)
{
    if (!own->dnn_asked) {
        own->dnn_asked = true;
        own->no_dnn.status = TM_OK;
        tm_status st = own->gpu ? tm_gpu_dnn_open(own->gpu, &own->dnn, &own->no_dnn) : tm_gpu_dnn_expect(&own->no_dnn);
        (void)st; /* the error has it */
    }
    return own->no_dnn.status == TM_UNSUPPORTED ? own->no_dnn.text : NULL;
}

/* --- what it takes --------------------------------------------------------------------------------------------------
 */

/* grads: of q, k and v; NULL: forward. */
static tm_gpu_attention_shape shape_of(const tm_attention_attr *t, const tm_view *qkv, const tm_view *grads, piece of)
{
    return (tm_gpu_attention_shape){ .gradients = grads != NULL,
                                     .sequences = of.sequences,
                                     .queries = t->seq_q,
                                     .keys = t->seq_k,
                                     .heads = of.groups * (t->heads / t->kv_heads),
                                     .kv_heads = of.groups,
                                     .dim_qk = t->dim_qk,
                                     .dim_v = t->dim_v,
                                     .ld_q = tm_view_ld(&qkv[0]),
                                     .ld_k = tm_view_ld(&qkv[1]),
                                     .ld_v = tm_view_ld(&qkv[2]),
                                     .ld_o = t->heads * t->dim_v,
                                     .ld_dq = grads ? tm_view_ld(&grads[0]) : 0,
                                     .ld_dk = grads ? tm_view_ld(&grads[1]) : 0,
                                     .ld_dv = grads ? tm_view_ld(&grads[2]) : 0,
                                     .heads_of_all = t->heads,
                                     .causal = t->causal,
                                     .window = t->window };
}

static int64_t sequences_of(const tm_attention_attr *t, const tm_view *qkv)
{
    return qkv[0].shape.n[0] / t->seq_q;
}

/* As many sequences as may be stored at once; else of one sequence as many heads. {0}: not even one. */
static piece piece_of(const tm_call *call)
{
    const tm_attention_attr *t = call->attr;
    const tm_view           *qkv = &call->in[1], *grads = call->out;
    size_t                   most = own_of(call->device)->most_stored;
    int64_t                  all = sequences_of(t, qkv);
    for (int64_t n = all; n > 0; n--) {
        tm_gpu_attention_shape s = shape_of(t, qkv, grads, (piece){ n, t->kv_heads });
        if (all % n == 0 && tm_gpu_dnn_bytes(&s) <= most) return (piece){ n, t->kv_heads };
    }
    for (int64_t n = t->kv_heads - 1; n > 0; n--) {
        tm_gpu_attention_shape s = shape_of(t, qkv, grads, (piece){ 1, n });
        if (t->kv_heads % n == 0 && tm_gpu_dnn_bytes(&s) <= most) return (piece){ 1, n };
    }
    return (piece){ 0, 0 };
}

static const char *refuse_gradients(const tm_attention_attr *t, const tm_view *qkv, piece p)
{
    if (p.sequences == 0) return "the library would store more than 1.25 GiB of gradients of scores";
    if ((p.sequences < sequences_of(t, qkv) || p.groups < t->kv_heads) && t->seq_q % 4)
        return "in pieces the library takes multiples of 4 queries";
    return NULL;
}

/* documents, sinks: operands; grads as above. */
static const char *refuse(const tm_call *call, const tm_view *qkv, const tm_view *grads, const tm_view *documents,
                          const tm_view *sinks)
{
    const tm_attention_attr *t = call->attr;
    tm_gpu_own              *own = own_of(call->device);
    tm_gpu_dnn_attention    *found;
    tm_error                 ignored = { 0 }; /* of a failure: preparing it meets it again, and tells */
    piece                    p = { sequences_of(t, qkv), t->kv_heads };
    const char              *why;
    if (own->maker == TM_GPU_HIP) return "cuDNN is NVIDIA's";
    if (((const tm_device *)call->device)->own_kernels) return "own kernels are asked for";
    if (qkv[0].dtype != TM_BF16) return "takes bfloat16";
    if (tm_view_present(documents)) return "the library knows no documents";
    if (tm_view_present(sinks)) return "the library is not asked for sinks";
    if (t->q_offset != 0) return "takes queries from position 0 on";
    if (t->dim_qk % 8 || t->dim_v % 8 || t->dim_qk > MOST_SIZE || t->dim_v > MOST_SIZE)
        return "takes heads of 8, 16, 24, ... 256 elements";
    for (int k = 0; k < 3; k++)
        if (tm_view_ld(&qkv[k]) % 8 || (grads && tm_view_ld(&grads[k]) % 8))
            return "takes rows that begin at multiples of 16 bytes";
    why = missing(own);
    if (!why && grads) {
        p = piece_of(call);
        why = refuse_gradients(t, qkv, p);
    }
    if (why || !own->dnn) return why; /* no library: opened to plan, or it failed */
    tm_gpu_attention_shape s = shape_of(t, qkv, grads, p);
    return tm_gpu_dnn_find(own->dnn, &s, &found, &why, &ignored) == TM_UNSUPPORTED ? why : NULL;
}

static tm_status prepare(const void *device, const tm_gpu_attention_shape *shape, void **state, tm_error *err)
{
    tm_gpu_own           *own = own_of(device);
    tm_gpu_dnn_attention *found;
    const char           *why = missing(own);
    if (why || !own->dnn) return tm_fail(err, own->no_dnn.status, "%s", own->no_dnn.text);
    tm_gpu_note_none(device, state);
    TM_TRY(tm_gpu_dnn_find(own->dnn, shape, &found, &why, err));
    own->attends = true;
    tm_gpu_name_sums(own);
    return TM_OK;
}

static tm_status attend(const tm_call *call, const tm_gpu_attention_shape *shape, const tm_gpu_attention_operands *o,
                        tm_error *err)
{
    tm_gpu_own           *own = own_of(call->device);
    tm_gpu_dnn_attention *found;
    const char           *why;
    TM_TRY(tm_gpu_dnn_find(own->dnn, shape, &found, &why, err)); /* was asked for when the call was prepared */
    return tm_gpu_dnn_attend(own->dnn, found, tm_gpu_stream_of(call->queue), o, err);
}

/* --- forward
 * ---------------------------------------------------------------------------------------------------------- */

/* in: q, k, v, [first_key], [sinks]; out: o, lse */
static const char *refuse_forward(const tm_call *call)
{
    const char *why = tm_gpu_refuse_attention(call);
    return why ? why : refuse(call, call->in, NULL, &call->in[3], &call->in[4]);
}

static tm_gpu_attention_shape shape_forward(const tm_call *call)
{
    const tm_attention_attr *t = call->attr;
    return shape_of(t, call->in, NULL, (piece){ sequences_of(t, call->in), t->kv_heads });
}

static size_t workspace_forward(const tm_call *call)
{
    tm_gpu_attention_shape s = shape_forward(call);
    return tm_gpu_dnn_bytes(&s);
}

static tm_status prepare_forward(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_attention_shape s = shape_forward(call);
    return prepare(device, &s, state, err);
}

static tm_status launch_forward(const tm_call *call, tm_error *err)
{
    tm_gpu_attention_shape    s = shape_forward(call);
    tm_gpu_attention_operands o = { .q = call->in[0].data,
                                    .k = call->in[1].data,
                                    .v = call->in[2].data,
                                    .o = call->out[0].data,
                                    .statistics = call->out[1].data,
                                    .workspace = call->workspace,
                                    .scale = (float)((const tm_attention_attr *)call->attr)->scale };
    TM_TRY(tm_gpu_check_places(call->in, 3, err));
    return attend(call, &s, &o, err);
}

/* --- backward
 * --------------------------------------------------------------------------------------------------------- */

/* in: do, q, k, v, o, lse, [first_key], [sinks]; out: dq, dk, dv, [dsinks] */
static const char *refuse_backward(const tm_call *call)
{
    const char *why = tm_gpu_refuse_attention_grad(call);
    return why ? why : refuse(call, &call->in[1], call->out, &call->in[6], &call->in[7]);
}

static tm_gpu_attention_shape shape_backward(const tm_call *call)
{
    const tm_attention_attr *t = call->attr;
    return shape_of(t, &call->in[1], call->out, piece_of(call));
}

static size_t workspace_backward(const tm_call *call)
{
    tm_gpu_attention_shape s = shape_backward(call);
    return tm_gpu_dnn_bytes(&s);
}

static tm_status prepare_backward(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_attention_shape s = shape_backward(call);
    return prepare(device, &s, state, err);
}

/* The first element of a sequence's heads of bfloat16. */
static void *heads_at(const tm_view *view, int64_t row, int64_t column)
{
    return (char *)view->data + (row * tm_view_ld(view) + column) * 2;
}

static tm_status launch_piece(const tm_call *call, const tm_gpu_attention_shape *s, int64_t sequence, int64_t group,
                              tm_error *err)
{
    const tm_attention_attr *t = call->attr;
    const tm_view           *in = call->in, *out = call->out;
    int64_t head = group * (t->heads / t->kv_heads), query = sequence * t->seq_q, key = sequence * t->seq_k;
    tm_gpu_attention_operands o = { .d_o = heads_at(&in[0], query, head * t->dim_v),
                                    .q = heads_at(&in[1], query, head * t->dim_qk),
                                    .k = heads_at(&in[2], key, group * t->dim_qk),
                                    .v = heads_at(&in[3], key, group * t->dim_v),
                                    .o = heads_at(&in[4], query, head * t->dim_v),
                                    .statistics = (float *)in[5].data + (sequence * t->heads + head) * t->seq_q,
                                    .dq = heads_at(&out[0], query, head * t->dim_qk),
                                    .dk = heads_at(&out[1], key, group * t->dim_qk),
                                    .dv = heads_at(&out[2], key, group * t->dim_v),
                                    .workspace = call->workspace,
                                    .scale = (float)t->scale };
    return attend(call, s, &o, err);
}

static tm_status launch_backward(const tm_call *call, tm_error *err)
{
    const tm_attention_attr *t = call->attr;
    tm_gpu_attention_shape   s = shape_backward(call);
    TM_TRY(tm_gpu_check_places(call->in, 5, err));
    TM_TRY(tm_gpu_check_places(call->out, 3, err));
    for (int64_t b = 0; b < sequences_of(t, &call->in[1]); b += s.sequences)
        for (int64_t j = 0; j < t->kv_heads; j += s.kv_heads) TM_TRY(launch_piece(call, &s, b, j, err));
    return TM_OK;
}

const tm_kernel tm_gpu_attention_library[] = { { .op = TM_OP_attention,
                                                 .name = "attention/cudnn",
                                                 .refuse = refuse_forward,
                                                 .workspace = workspace_forward,
                                                 .launch = launch_forward,
                                                 .prepare = prepare_forward,
                                                 .release = tm_gpu_forget },
                                               { .op = TM_OP_attention_grad,
                                                 .name = "attention_grad/cudnn",
                                                 .refuse = refuse_backward,
                                                 .workspace = workspace_backward,
                                                 .launch = launch_backward,
                                                 .prepare = prepare_backward,
                                                 .release = tm_gpu_forget },
                                               { .name = NULL } };
