/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/attention_matrix.c - attention of bfloat16 and its gradients by matrix units (source/attention_matrix.cu);
 * on Hopper, of heads of 64 and 128 elements, by its warpgroups' products (source/attention_forward.cu, its gradients:
 * source/attention_wgmma.cu). */
#include "device/gpu/own.h"

#include <string.h>

enum {
    MOST = 65535,
    MOST_SIZE = 128,
    MOST_WIDE = 192,
    MOST_SHARED = 320,
    MOST_ELEMENTS = 1 << 30,
    MOST_ROW = 1 << 22,
    TILE = 256,
    DELTA_THREADS = 256
};

/* Of each kernel. */
typedef struct {
    tm_gpu_attention_block forward, queries, keys;
} blocks_of;

static int64_t size_of(const tm_attention_attr *attr)
{
    return attr->dim_qk > attr->dim_v ? attr->dim_qk : attr->dim_v;
}

/* As tiles have it. */
static int64_t wide(int64_t size)
{
    return (size + 31) / 32 * 32;
}

/* As many rows a wave as its registers hold. */
static blocks_of blocks(const void *device, const tm_attention_attr *attr)
{
    const tm_gpu_own *own = ((const tm_device *)device)->own;
    bool              large = size_of(attr) > 64;
    int               two = large ? 128 : 256; /* a wave has one or two units of 32 queries */
    if (own->maker == TM_GPU_HIP && size_of(attr) > MOST_SIZE)
        return (blocks_of){ { 128, 256, true, 0 }, { 128, 256, true, 0 }, { 128, 256, true, 0 } };
    if (own->maker == TM_GPU_HIP)
        return (blocks_of){ { two, 256, true, 0 }, { two, 256, true, 0 }, { 256, 512, true, 0 } };
    return (blocks_of){ { large ? 64 : 128, 128, true, 0 }, { large ? 64 : 128, 128, true, 0 }, { 64, 128, true, 0 } };
}

static tm_gpu_defines definitions(const void *device, const tm_attention_attr *attr, const tm_view *sinks)
{
    blocks_of      b = blocks(device, attr);
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "S", tm_view_present(sinks) ? sinks->dtype : TM_F32);
    tm_gpu_define(&d, "QK", attr->dim_qk);
    tm_gpu_define(&d, "VO", attr->dim_v);
    tm_gpu_define(&d, "DIM", wide(size_of(attr)));
    tm_gpu_define(&d, "FORWARD_THREADS", b.forward.threads);
    tm_gpu_define(&d, "FORWARD_ROWS", b.forward.rows);
    tm_gpu_define(&d, "QUERIES_THREADS", b.queries.threads);
    tm_gpu_define(&d, "QUERIES_ROWS", b.queries.rows);
    tm_gpu_define(&d, "KEYS_THREADS", b.keys.threads);
    tm_gpu_define(&d, "KEYS_ROWS", b.keys.rows);
    return d;
}

/* Runs of eight elements are loaded at once; positions and elements of a sequence are counted in 32 bits. */
static const char *refuse_shape(const void *device, const tm_attention_attr *attr, const tm_view qkv[3])
{
    int64_t batches = qkv[0].shape.n[0] / attr->seq_q;
    bool    hip = ((const tm_gpu_own *)((const tm_device *)device)->own)->maker == TM_GPU_HIP;
    if (attr->dim_qk % 8 || attr->dim_v % 8 || size_of(attr) > MOST_WIDE)
        return "takes heads of 8, 16, 24, ... 192 elements";
    if (!hip && wide(attr->dim_qk) + wide(attr->dim_v) > MOST_SHARED)
        return "takes heads of two sizes that together are at most 320 elements"; /* two stages in 48 KiB */
    if (!(attr->scale > 0)) return "takes a positive scale";
    if (attr->heads > MOST || batches > MOST) return "more sequences or heads than a grid takes";
    if (attr->q_offset > MOST_ELEMENTS || attr->window > MOST_ELEMENTS || attr->key0 > MOST_ELEMENTS)
        return "positions beyond 32 bits";
    for (int k = 0; k < 3; k++) {
        if (tm_view_ld(&qkv[k]) % 8) return "takes rows that begin at multiples of 16 bytes";
        if (tm_view_ld(&qkv[k]) >= MOST_ROW) return "takes rows of less than 4,194,304 elements";
        /* places of the rows of a tile behind the last one, in bytes, are below 2^32 */
        if ((k ? attr->seq_k : attr->seq_q) + TILE > MOST_ELEMENTS / tm_view_ld(&qkv[k]))
            return "a sequence is too large";
    }
    if (attr->seq_q > MOST_ELEMENTS / (attr->heads * attr->dim_v)) return "a sequence is too large";
    return tm_gpu_by_matrix(device, qkv[0].dtype, qkv[1].dtype);
}

/* --- forward
 * ---------------------------------------------------------------------------------------------------------- */

static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_attention(call);
    return why ? why : refuse_shape(call->device, call->attr, call->in);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = definitions(device, call->attr, &call->in[4]);
    (void)err;
    tm_gpu_note(device, "attention_matrix", tm_gpu_text_attention_matrix, &d, "attention_matrix", state);
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    TM_TRY(tm_gpu_check_places(call->in, 3, err));
    return tm_gpu_start_attention(call, blocks(call->device, call->attr).forward, err);
}

/* NULL: warpgroups of Hopper multiply these. */
static const char *refuse_warpgroups(const void *device, const tm_attention_attr *attr)
{
    const tm_gpu_own *own = ((const tm_device *)device)->own;
    if (!own->gpu || strcmp(tm_gpu_facts_of(own->gpu)->arch, "sm_90") != 0) return "is for sm_90";
    if (attr->dim_qk != attr->dim_v || (attr->dim_v != 64 && attr->dim_v != 128))
        return "takes heads of 64 or of 128 elements";
    return NULL;
}

static const char *refuse_forward(const tm_call *call)
{
    const char *why = refuse_warpgroups(call->device, call->attr);
    if (!why && !tm_gpu_has_maps(((const tm_gpu_own *)((const tm_device *)call->device)->own)->gpu))
        return "takes a driver of CUDA 12 or later";
    return why ? why : refuse(call);
}

static tm_status prepare_forward(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "S", tm_view_present(&call->in[4]) ? call->in[4].dtype : TM_F32);
    tm_gpu_define(&d, "DIM", ((const tm_attention_attr *)call->attr)->dim_v);
    tm_gpu_note(device, "attention_forward", tm_gpu_text_attention_forward, &d, "attention_wgmma", state);
    return TM_OK;
}

/* Blocks of 128 queries. Shared memory has their tile, and 2 stages (heads of 64: 4) of tiles of 128 keys and values.
 */
static tm_status launch_forward(const tm_call *call, tm_error *err)
{
    enum { ROWS = 128, THREADS = 384 };
    const tm_attention_attr *t = call->attr;
    unsigned                 tile = ROWS * 2 * (unsigned)t->dim_v, tiles = 1 + 2 * (t->dim_v == 64 ? 4 : 2);
    tm_gpu_arguments         a = { .shared = tiles * tile + 1024 };
    TM_TRY(tm_gpu_check_places(call->in, 3, err));
    for (int k = 0; k < 3; k++) TM_TRY(tm_gpu_pass_map(&a, call, &call->in[k], k ? t->seq_k : t->seq_q, ROWS, err));
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 3; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    const int64_t sizes[] = { t->seq_q, t->seq_k, t->q_offset, t->heads, t->kv_heads, t->causal, t->window, t->key0 };
    for (int k = 0; k < (int)(sizeof sizes / sizeof sizes[0]); k++) tm_gpu_pass_int(&a, (int)sizes[k]);
    tm_gpu_pass_float(&a, t->scale);
    return tm_gpu_start(call, 0, (t->seq_q + ROWS - 1) / ROWS, t->heads, call->in[0].shape.n[0] / t->seq_q, THREADS, &a,
                        err);
}

/* --- backward
 * --------------------------------------------------------------------------------------------------------- */

/* in: do, q, k, v, o, lse, [first_key], [sinks]; out: dq, dk, dv, [dsinks] */
static const char *refuse_grad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_attention_grad(call);
    if (!why) why = refuse_shape(call->device, call->attr, &call->in[1]);
    return why ? why : refuse_shape(call->device, call->attr, call->out);
}

static const char *refuse_wgmma(const tm_call *call)
{
    const char *why = refuse_warpgroups(call->device, call->attr);
    return why ? why : refuse_grad(call);
}

static tm_status prepare_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const kernels[] = { [TM_GPU_DELTA] = "attention_matrix_delta",
                                           [TM_GPU_QUERIES] = "attention_matrix_queries",
                                           [TM_GPU_KEYS] = "attention_matrix_keys" };
    tm_gpu_defines           d = definitions(device, call->attr, &call->in[7]);
    (void)err;
    for (int k = 0; k < 3; k++)
        tm_gpu_note(device, "attention_matrix", tm_gpu_text_attention_matrix, &d, kernels[k], state);
    if (tm_view_present(&call->out[3])) tm_gpu_note_sinks(device, call, state);
    return TM_OK;
}

static tm_status prepare_wgmma(const void *device, const tm_call *call, void **state, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    tm_gpu_defines           of_delta = definitions(device, attr, &call->in[7]), d = { .n = 0 };
    (void)err;
    tm_gpu_define(&d, "DIM", attr->dim_v);
    tm_gpu_note(device, "attention_matrix", tm_gpu_text_attention_matrix, &of_delta, "attention_matrix_delta", state);
    tm_gpu_note(device, "attention_wgmma", tm_gpu_text_attention_wgmma, &d, "attention_wgmma_queries", state);
    tm_gpu_note(device, "attention_wgmma", tm_gpu_text_attention_wgmma, &d, "attention_wgmma_keys", state);
    if (tm_view_present(&call->out[3])) tm_gpu_note_sinks(device, call, state);
    return TM_OK;
}

static tm_status launch_delta(const tm_call *call, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    int                      team = 1;
    tm_gpu_arguments         a = { .bytes = 0 };
    while (8 * team < attr->dim_v) team *= 2;
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[4].data);
    tm_gpu_pass_int(&a, (int)attr->seq_q);
    tm_gpu_pass_int(&a, (int)attr->heads);
    int64_t rows = DELTA_THREADS / team;
    return tm_gpu_start(call, TM_GPU_DELTA, (attr->seq_q + rows - 1) / rows, attr->heads,
                        call->in[1].shape.n[0] / attr->seq_q, DELTA_THREADS, &a, err);
}

static tm_status launch_in(const tm_call *call, tm_gpu_attention_block queries, tm_gpu_attention_block keys,
                           tm_error *err)
{
    TM_TRY(tm_gpu_check_places(call->in, 5, err));
    TM_TRY(tm_gpu_check_places(call->out, 3, err));
    TM_TRY(launch_delta(call, err));
    TM_TRY(tm_gpu_start_attention_grad(call, TM_GPU_QUERIES, queries, err));
    TM_TRY(tm_gpu_start_attention_grad(call, TM_GPU_KEYS, keys, err));
    return tm_view_present(&call->out[3]) ? tm_gpu_start_sinks(call, err) : TM_OK;
}

static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    blocks_of b = blocks(call->device, call->attr);
    return launch_in(call, b.queries, b.keys, err);
}

/* Eight tiles of 64 rows, from a multiple of 1,024 bytes on (room_of). */
static tm_status launch_wgmma(const tm_call *call, tm_error *err)
{
    unsigned               tile = 64 * 2 * (unsigned)((const tm_attention_attr *)call->attr)->dim_v;
    tm_gpu_attention_block block = { .rows = 128, .threads = 256, .narrow = true, .shared = 8 * tile + 1024 };
    return launch_in(call, block, block, err);
}

const tm_kernel tm_gpu_attention_matrix[] = { { .op = TM_OP_attention,
                                                .name = "attention/wgmma",
                                                .refuse = refuse_forward,
                                                .launch = launch_forward,
                                                .prepare = prepare_forward,
                                                .release = tm_gpu_forget },
                                              { .op = TM_OP_attention,
                                                .name = "attention/matrix",
                                                .refuse = refuse,
                                                .launch = launch,
                                                .prepare = prepare,
                                                .release = tm_gpu_forget },
                                              { .op = TM_OP_attention_grad,
                                                .name = "attention_grad/wgmma",
                                                .refuse = refuse_wgmma,
                                                .workspace = tm_gpu_attention_workspace,
                                                .launch = launch_wgmma,
                                                .prepare = prepare_wgmma,
                                                .release = tm_gpu_forget },
                                              { .op = TM_OP_attention_grad,
                                                .name = "attention_grad/matrix",
                                                .refuse = refuse_grad,
                                                .workspace = tm_gpu_attention_workspace,
                                                .launch = launch_grad,
                                                .prepare = prepare_grad,
                                                .release = tm_gpu_forget },
                                              { .name = NULL } };
