/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/heads.c - norms of heads, alone and followed by a rotation, and their gradients (source/heads.cu).
 * Gradients of weights are summed by chunks of rows, the chunks and heads in a fixed order: the same bits in every run.
 */
#include "device/gpu/gpu.h"

enum { THREADS = 256, CHUNK = 32, SPAN = 4, ACROSS = 8, MOST_HEAD = 1024 };

/* One launch: rows of one matrix of an op. Absent operands have data NULL. */
typedef struct {
    int64_t        heads, dim, first, stride, second;
    int64_t        part, all, offset, seq; /* where its rows are in y: see source/heads.cu */
    int64_t        turns;
    double         eps;
    const tm_view *y, *rstd, *x, *w, *table, *positions; /* y: or dy */
    const tm_view *dx, *dw;
    bool           adds;
} job;

enum { APART = 1, TOGETHER = 2 }; /* turns; 0: none */

/* Operands of the four ops (op/head_norm.c, op/head_rope.c). */
static job norm_job(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    bool                     grad = call->op == &tm_op_head_norm_grad;
    static const tm_view     none = { .shape = { .rank = -1 } };
    return (job){ .heads = attr->heads,
                  .dim = attr->head_dim,
                  .first = attr->first,
                  .stride = attr->stride ? attr->stride : attr->head_dim,
                  .second = attr->second,
                  .part = 1,
                  .all = 1,
                  .seq = 1,
                  .eps = attr->eps,
                  .y = grad ? &call->in[0] : &call->out[0],
                  .rstd = grad ? &call->in[3] : &call->out[1],
                  .x = &call->in[grad ? 1 : 0],
                  .w = &call->in[grad ? 2 : 1],
                  .table = &none,
                  .positions = &none,
                  .dx = grad ? &call->out[0] : &none,
                  .dw = grad ? &call->out[1] : &none,
                  .adds = call->accumulate >> 1 & 1U };
}

/* part: 0: the rows of a, 1: those of b. */
static job rope_job(const tm_call *call, int part)
{
    const tm_head_rope_attr *attr = call->attr;
    bool                     grad = call->op == &tm_op_head_rope_grad;
    static const tm_view     none = { .shape = { .rank = -1 } };
    int64_t                  first = attr->first_rows, rows = first == 0 ? attr->seq : part ? attr->seq - first : first;
    return (job){ .heads = attr->heads,
                  .dim = attr->head_dim,
                  .stride = attr->head_dim,
                  .second = attr->second,
                  .part = rows,
                  .all = attr->seq,
                  .offset = part ? first : 0,
                  .seq = attr->seq,
                  .turns = attr->layout == TM_ROPE_HALF ? APART : TOGETHER,
                  .eps = attr->eps,
                  .y = grad ? &call->in[0] : &call->out[0],
                  .rstd = grad ? &call->in[3] : &call->out[1],
                  .x = &call->in[grad ? (part ? 6 : 1) : (part ? 4 : 0)],
                  .w = &call->in[grad ? (part ? 7 : 2) : (part ? 5 : 1)],
                  .table = &call->in[grad ? 4 : 2],
                  .positions = &call->in[grad ? 5 : 3],
                  .dx = grad ? &call->out[part ? 2 : 0] : &none,
                  .dw = grad ? &call->out[part ? 3 : 1] : &none,
                  .adds = call->accumulate >> (part ? 3 : 1) & 1U };
}

static int parts_of(const tm_call *call)
{
    bool turns = call->op == &tm_op_head_rope || call->op == &tm_op_head_rope_grad;
    return turns && ((const tm_head_rope_attr *)call->attr)->first_rows > 0 ? 2 : 1;
}

static job job_of(const tm_call *call, int part)
{
    bool norm = call->op == &tm_op_head_norm || call->op == &tm_op_head_norm_grad;
    return norm ? norm_job(call) : rope_job(call, part);
}

static bool is_grad(const tm_call *call)
{
    return call->op == &tm_op_head_norm_grad || call->op == &tm_op_head_rope_grad;
}

static int64_t chunks_of(const job *j)
{
    return (j->x->shape.n[0] + CHUNK - 1) / CHUNK;
}

/* --- what is refused
 * ----------------------------------------------------------------------------------------------------- */

static const char *refuse_job(const job *j)
{
    const tm_view *const of_x[] = { j->y, j->x, j->dx };
    const char          *why = NULL;
    for (int i = 0; i < 3 && !why; i++) {
        why = tm_gpu_refuse_strided(of_x[i]);
        if (!why) why = tm_gpu_refuse_other(of_x[i], j->x->dtype);
    }
    if (!why) why = tm_gpu_refuse_view(j->w);
    if (!why) why = tm_gpu_refuse_view(j->dw);
    if (!why && j->rstd->dtype != TM_F32) why = "takes statistics in float32";
    if (!why && j->turns && j->table->dtype != TM_F32) why = "takes a table of float32";
    if (!why && j->dim > MOST_HEAD) why = "takes heads of at most 1,024 elements";
    int64_t rows = j->y->shape.n[0], width = j->x->shape.n[1];
    if (!why && rows * (j->heads + width / 64 + 1) > INT32_MAX) why = "takes fewer than 2^31 heads";
    return why;
}

static const char *refuse(const tm_call *call)
{
    const char *why = NULL;
    for (int part = 0; part < parts_of(call) && !why; part++) {
        job j = job_of(call, part);
        why = refuse_job(&j);
        if (!why && j.x->dtype != job_of(call, 0).x->dtype) why = "takes a and b in one format";
        if (!why && j.w->dtype != job_of(call, 0).w->dtype) why = "takes the weights of both in one format";
    }
    return !why && is_grad(call) && call->accumulate & 5U ? "does not add to dx" : why;
}

/* --- launches
 * ------------------------------------------------------------------------------------------------------------ */

/* Room of the gradients of weights, of one part after the other. */
static size_t workspace(const tm_call *call)
{
    size_t most = 0;
    for (int part = 0; part < parts_of(call); part++) {
        job    j = job_of(call, part);
        size_t bytes = (size_t)(chunks_of(&j) * j.heads * j.dim) * sizeof(float);
        if (tm_view_present(j.dw) && bytes > most) most = bytes;
    }
    return most;
}

/* Kernels of part p have the numbers 2 p: the rows, and 2 p + 1: the sums. */
static void note(const void *device, const job *j, bool grad, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", j->x->dtype);
    tm_gpu_define_format(&d, "W", j->w->dtype);
    tm_gpu_define_format(&d, "D", tm_view_present(j->dw) ? j->dw->dtype : TM_F32);
    tm_gpu_define(&d, "HEAD", j->dim);
    tm_gpu_define(&d, "TURNS", j->turns);
    tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, grad ? "heads_grad" : "heads_norm", state);
    if (tm_view_present(j->dw))
        tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, "heads_sums", state);
    else
        tm_gpu_note_none(device, state);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    for (int part = 0; part < parts_of(call); part++) {
        job j = job_of(call, part);
        note(device, &j, is_grad(call), state);
    }
    return TM_OK;
}

/* By runs: all that the kernel steps by are multiples of one. */
static bool is_wide(const job *j, int run)
{
    const tm_view *const strided[] = { j->y, j->x, j->dx }, *const dense[] = { j->w, j->table };
    bool wide = j->dim % (2 * (int64_t)run) == 0 && j->first % run == 0 && j->stride % run == 0;
    for (int i = 0; i < 3; i++)
        if (tm_view_present(strided[i])) wide = wide && tm_gpu_is_wide(strided[i]) && tm_view_ld(strided[i]) % run == 0;
    for (int i = 0; i < 2; i++) wide = wide && tm_gpu_is_wide(dense[i]);
    return wide && j->x->shape.n[1] % run == 0;
}

/* Heads that a wave has at once: lanes are powers of two. */
static int64_t heads_at_once(const job *j, int run, int wave)
{
    int64_t half = (j->dim + 1) / 2, lanes = 1;
    while (lanes * run < half && lanes < wave) lanes *= 2;
    return wave / lanes;
}

static tm_status start(const tm_call *call, int part, const job *j, tm_error *err)
{
    bool             grad = is_grad(call);
    int              run = tm_gpu_run(j->x->dtype, j->w->dtype), wave = tm_gpu_wave(call->device);
    bool             wide = is_wide(j, run), copies = !grad || (j->dx->data && j->dx->data != j->y->data);
    int64_t          rows = j->x->shape.n[0], width = j->x->shape.n[1], each = wide ? run : 1;
    int64_t          others = j->first > 0 || j->stride > j->dim ? 0 : j->heads * j->dim, span = SPAN * wave * each;
    int64_t          spans = copies && j->heads * j->dim < width ? (width - others + span - 1) / span : 0;
    int64_t          at_once = heads_at_once(j, (int)each, wave);
    int64_t          pieces = (j->heads + at_once - 1) / at_once + spans;
    tm_gpu_arguments a = { .bytes = 0 };
    if (grad) tm_gpu_pass(&a, j->dx->data);
    if (grad) tm_gpu_pass(&a, tm_view_present(j->dw) ? call->workspace : NULL);
    tm_gpu_pass(&a, j->y->data);
    if (!grad) tm_gpu_pass(&a, j->rstd->data);
    tm_gpu_pass(&a, j->x->data);
    tm_gpu_pass(&a, j->w->data);
    if (grad) tm_gpu_pass(&a, j->rstd->data);
    tm_gpu_pass(&a, j->table->data);
    tm_gpu_pass(&a, j->positions->data);
    const int64_t sizes[] = { rows,   width, j->heads, j->first, j->stride, j->second,
                              others, spans, j->part,  j->all,   j->offset, j->seq };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) tm_gpu_pass_int(&a, (int)sizes[i]);
    tm_gpu_pass_i64(&a, tm_view_ld(j->x));
    tm_gpu_pass_i64(&a, tm_view_ld(j->y));
    if (grad)
        tm_gpu_pass_i64(&a, tm_view_present(j->dx) ? tm_view_ld(j->dx) : 0);
    else
        tm_gpu_pass_float(&a, j->eps);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, 2 * part, (grad ? chunks_of(j) : rows) * pieces * wave, &a, err);
}

static tm_status start_sums(const tm_call *call, int part, const job *j, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    if (!tm_view_present(j->dw)) return TM_OK;
    tm_gpu_pass(&a, j->dw->data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_int(&a, (int)chunks_of(j));
    tm_gpu_pass_int(&a, (int)j->heads);
    tm_gpu_pass_int(&a, (int)j->second);
    tm_gpu_pass_int(&a, j->adds);
    int64_t weights = (j->second ? 2 : 1) * j->dim;
    return tm_gpu_start(call, 2 * part + 1, (weights + ACROSS - 1) / ACROSS, 1, 1, THREADS, &a, err);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    for (int part = 0; part < parts_of(call); part++) {
        job j = job_of(call, part);
        TM_TRY(start(call, part, &j, err));
        TM_TRY(start_sums(call, part, &j, err));
    }
    return TM_OK;
}

#define HEADS(id)                                                                                                      \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse, .workspace = workspace, .launch = launch,              \
        .prepare = prepare, .release = tm_gpu_forget                                                                   \
    }
const tm_kernel tm_gpu_heads[] = {
    HEADS(head_norm), HEADS(head_norm_grad), HEADS(head_rope), HEADS(head_rope_grad), { .name = NULL }
};
