/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/dispatch.c - rows in the order of their experts, what is counted of them (source/dispatch.cu), and the
 * balance of their load (source/balance.cu). */
#include "device/gpu/gpu.h"
#include "op/quantize.h"

enum { THREADS = 256, MOST_CHUNKS = 128, PIECE = 1024 };

static int64_t divided(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Address `bytes` behind the workspace's beginning. */
static void *behind(const tm_call *call, size_t bytes)
{
    return (void *)((uintptr_t)call->workspace + bytes); // NOLINT(performance-no-int-to-ptr): of the device
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static tm_status prepare_plain(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_note(device, "dispatch", tm_gpu_text_dispatch, &d, call->op->name, state);
    return TM_OK;
}

static const char *refuse_f64(const tm_view *view)
{
    return view->dtype == TM_F64 && tm_view_dense(view) ? NULL : "takes counts and sums in float64";
}

/* --- dispatch -------------------------------------------------------------------------------------------------------
 */

/* in: ids; out: offsets, order, inverse */
static const char *refuse_dispatch(const tm_call *call)
{
    const char *why = tm_gpu_refuse_whole(&call->in[0]);
    for (int k = 0; k < 3 && !why; k++) why = tm_gpu_refuse_whole(&call->out[k]);
    return !why && tm_shape_elements(call->in[0].shape) > INT32_MAX ? "more than 2^31 - 1 pairs of row and slot" : why;
}

/* Pairs that a block counts, and how many such blocks there are. */
static int64_t chunk_of(const tm_call *call)
{
    int64_t pairs = tm_shape_elements(call->in[0].shape);
    return divided(divided(pairs, MOST_CHUNKS), THREADS) * THREADS;
}

static int64_t chunks_of(const tm_call *call)
{
    return divided(tm_shape_elements(call->in[0].shape), chunk_of(call));
}

static size_t counts_bytes(const tm_call *call)
{
    const tm_dispatch_attr *attr = call->attr;
    return aligned((size_t)(chunks_of(call) * attr->experts) * sizeof(int32_t));
}

static size_t dispatch_workspace(const tm_call *call)
{
    return 2 * counts_bytes(call);
}

static tm_status prepare_dispatch(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const kernels[] = { "dispatch_counts", "dispatch_bases", "dispatch_places" };
    tm_gpu_defines           d = { .n = 0 };
    (void)call;
    (void)err;
    for (int k = 0; k < 3; k++) tm_gpu_note(device, "dispatch", tm_gpu_text_dispatch, &d, kernels[k], state);
    return TM_OK;
}

static tm_status launch_dispatch(const tm_call *call, tm_error *err)
{
    int              pairs = (int)tm_shape_elements(call->in[0].shape), chunk = (int)chunk_of(call);
    int              experts = (int)((const tm_dispatch_attr *)call->attr)->experts, chunks = (int)chunks_of(call);
    void            *counts = call->workspace, *bases = behind(call, counts_bytes(call));
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 }, c = { .bytes = 0 };
    tm_gpu_pass(&a, counts);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_int(&a, pairs);
    tm_gpu_pass_int(&a, chunk);
    tm_gpu_pass_int(&a, experts);
    TM_TRY(tm_gpu_start(call, 0, chunks, 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[0].data);
    tm_gpu_pass(&b, bases);
    tm_gpu_pass(&b, counts);
    tm_gpu_pass_int(&b, chunks);
    tm_gpu_pass_int(&b, experts);
    TM_TRY(tm_gpu_start(call, 1, 1, 1, 1, THREADS, &b, err));
    tm_gpu_pass(&c, call->out[1].data);
    tm_gpu_pass(&c, call->out[2].data);
    tm_gpu_pass(&c, call->in[0].data);
    tm_gpu_pass(&c, call->out[0].data);
    tm_gpu_pass(&c, bases);
    tm_gpu_pass_int(&c, pairs);
    tm_gpu_pass_int(&c, chunk);
    tm_gpu_pass_int(&c, experts);
    return tm_gpu_start(call, 2, chunks, 1, 1, THREADS, &c, err);
}

/* --- expert_counts, expert_span, expert_bias ------------------------------------------------------------------------
 */

/* in: offsets; out: counts */
static const char *refuse_counts(const tm_call *call)
{
    const char *why = tm_gpu_refuse_whole(&call->in[0]);
    return why ? why : refuse_f64(&call->out[0]);
}

static tm_status launch_counts(const tm_call *call, tm_error *err)
{
    int              experts = (int)call->in[0].shape.n[0] - 1;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_int(&a, experts);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start_each(call, 0, experts, &a, err);
}

/* in: offsets; out: span */
static const char *refuse_span(const tm_call *call)
{
    const char *why = tm_gpu_refuse_whole(&call->in[0]);
    return why ? why : tm_gpu_refuse_whole(&call->out[0]);
}

static tm_status launch_span(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_int(&a, (int)call->in[0].shape.n[0] - 1);
    return tm_gpu_start(call, 0, 1, 1, 1, 1, &a, err);
}

static const char *refuse_wide(const tm_view *view)
{
    return view->dtype == TM_F32 && tm_view_dense(view) ? NULL : "keeps its state in float32";
}

/* in: counts, bias; out: bias */
static const char *refuse_bias(const tm_call *call)
{
    const char *why = refuse_f64(&call->in[0]);
    if (!why) why = refuse_wide(&call->in[1]);
    if (!why) why = refuse_wide(&call->out[0]);
    return !why && call->in[0].shape.n[0] > TM_MAX_EXPERTS ? "more than 1024 experts" : why;
}

static tm_status launch_bias(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)call->in[0].shape.n[0]);
    tm_gpu_pass_double(&a, ((const tm_expert_bias_attr *)call->attr)->rate);
    return tm_gpu_start(call, 0, 1, 1, 1, THREADS, &a, err);
}

/* --- balance_loss, balance_loss_grad --------------------------------------------------------------------------------
 */

/* Of one sequence: pairs that are counted, elements of the scores that are here, and parts of both; where what lies in
 * the workspace. */
typedef struct {
    tm_balance_rows counted, here;
    int64_t         experts, top_k, pairs, elements, pair_part, part, pair_parts, parts;
    size_t          counts_at, sums_at, bytes;
} balance;

static balance balance_of(const tm_call *call)
{
    const tm_balance_attr *attr = call->attr;
    int64_t                rows = call->in[0].shape.n[0], all = call->in[1].shape.n[0];
    balance                b = { .counted = tm_balance_rows_of(attr, all, all),
                                 .here = tm_balance_rows_of(attr, rows, all),
                                 .experts = call->in[0].shape.n[1],
                                 .top_k = attr->top_k };
    b.pairs = b.counted.runs * b.counted.rows * b.top_k;
    b.elements = b.here.runs * b.here.rows * b.experts;
    b.pair_part = divided(divided(b.pairs, MOST_CHUNKS), PIECE) * PIECE;
    b.part = divided(divided(b.elements, MOST_CHUNKS), PIECE) * PIECE;
    b.pair_parts = divided(b.pairs, b.pair_part);
    b.parts = divided(b.elements, b.part);
    b.counts_at = aligned((size_t)(b.here.sequences * b.experts) * sizeof(double));
    b.sums_at = b.counts_at + aligned((size_t)(b.here.sequences * b.pair_parts * b.experts) * sizeof(int32_t));
    b.bytes = b.sums_at + aligned((size_t)(b.here.sequences * b.parts) * sizeof(double));
    return b;
}

static size_t balance_workspace(const tm_call *call)
{
    return balance_of(call).bytes;
}

/* in: scores, ids, of the gradient scalars; out: the loss or dscores */
static const char *refuse_balance(const tm_call *call)
{
    bool        grad = call->op == &tm_op_balance_loss_grad;
    const char *why = tm_gpu_refuse_view(grad ? &call->out[0] : &call->in[0]);
    if (!why) why = tm_gpu_refuse_whole(&call->in[1]);
    if (!why) why = refuse_f64(grad ? &call->in[2] : &call->out[0]);
    balance b = balance_of(call);
    if (!why && b.here.sequences * (b.pairs > b.elements ? b.pairs : b.elements) > UINT32_MAX / 2)
        why = "more scores than 32 bits count";
    return !why && b.here.sequences > UINT16_MAX ? "more sequences than a grid takes" : why;
}

static tm_status prepare_balance(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const of_loss[] = { "balance_counts", "balance_shares", "balance_parts", "balance_total" };
    static const char *const of_grad[] = { "balance_counts", "balance_shares", "balance_spread", NULL };
    bool                     grad = call->op == &tm_op_balance_loss_grad;
    tm_gpu_defines           d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "S", (grad ? &call->out[0] : &call->in[0])->dtype);
    for (const char *const *k = grad ? of_grad : of_loss; k < (grad ? of_grad : of_loss) + 4 && *k; k++)
        tm_gpu_note(device, "balance", tm_gpu_text_balance, &d, *k, state);
    return TM_OK;
}

/* The workspace begins with alpha f_e of every sequence. */
static tm_status start_shares(const tm_call *call, const balance *b, tm_error *err)
{
    tm_gpu_arguments c = { .bytes = 0 }, s = { .bytes = 0 };
    tm_gpu_pass(&c, behind(call, b->counts_at));
    tm_gpu_pass(&c, call->in[1].data);
    tm_gpu_pass_int(&c, (int)b->pairs);
    tm_gpu_pass_int(&c, (int)(b->counted.rows * b->top_k));
    tm_gpu_pass_int(&c, (int)b->counted.sequences);
    tm_gpu_pass_int(&c, (int)b->pair_part);
    tm_gpu_pass_int(&c, (int)b->experts);
    TM_TRY(tm_gpu_start(call, 0, b->pair_parts, b->counted.sequences, 1, THREADS, &c, err));
    tm_gpu_pass(&s, call->workspace);
    tm_gpu_pass(&s, behind(call, b->counts_at));
    tm_gpu_pass_int(&s, (int)b->pairs);
    tm_gpu_pass_int(&s, (int)b->counted.sequences);
    tm_gpu_pass_int(&s, (int)b->pair_parts);
    tm_gpu_pass_int(&s, (int)b->experts);
    tm_gpu_pass_double(&s, ((const tm_balance_attr *)call->attr)->alpha);
    return tm_gpu_start_each(call, 1, b->counted.sequences * b->experts, &s, err);
}

static tm_status launch_balance(const tm_call *call, tm_error *err)
{
    balance          b = balance_of(call);
    tm_gpu_arguments p = { .bytes = 0 }, t = { .bytes = 0 };
    TM_TRY(start_shares(call, &b, err));
    tm_gpu_pass(&p, behind(call, b.sums_at));
    tm_gpu_pass(&p, call->workspace);
    tm_gpu_pass(&p, call->in[0].data);
    tm_gpu_pass_i64(&p, b.elements);
    tm_gpu_pass_int(&p, (int)b.here.rows);
    tm_gpu_pass_int(&p, (int)b.here.sequences);
    tm_gpu_pass_i64(&p, b.part);
    tm_gpu_pass_int(&p, (int)b.experts);
    TM_TRY(tm_gpu_start(call, 2, b.parts, b.here.sequences, 1, THREADS, &p, err));
    tm_gpu_pass(&t, call->out[0].data);
    tm_gpu_pass(&t, behind(call, b.sums_at));
    tm_gpu_pass_int(&t, (int)(b.parts * b.here.sequences));
    tm_gpu_pass_int(&t, call->accumulate & 1U);
    return tm_gpu_start(call, 3, 1, 1, 1, THREADS, &t, err);
}

static tm_status launch_balance_grad(const tm_call *call, tm_error *err)
{
    balance          b = balance_of(call);
    int64_t          elements = b.elements * b.here.sequences;
    tm_gpu_arguments a = { .bytes = 0 };
    TM_TRY(start_shares(call, &b, err));
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, (void *)((uintptr_t)call->in[2].data + // NOLINT(performance-no-int-to-ptr): of the device
                             TM_SCALAR_LOSS_SCALE * sizeof(double)));
    tm_gpu_pass_i64(&a, elements);
    tm_gpu_pass_int(&a, (int)b.here.rows);
    tm_gpu_pass_int(&a, (int)b.here.sequences);
    tm_gpu_pass_int(&a, (int)b.experts);
    return tm_gpu_start_each(call, 2, elements, &a, err);
}

#define ROW(id, refuses, prepares, launches, ...)                                                                      \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_##refuses, .prepare = prepare_##prepares,               \
        .launch = launch_##launches, .release = tm_gpu_forget, __VA_ARGS__                                             \
    }
const tm_kernel tm_gpu_dispatch[] = { ROW(dispatch, dispatch, dispatch, dispatch, .workspace = dispatch_workspace),
                                      ROW(expert_counts, counts, plain, counts, ),
                                      ROW(expert_span, span, plain, span, ),
                                      ROW(expert_bias, bias, plain, bias, ),
                                      ROW(balance_loss, balance, balance, balance, .workspace = balance_workspace),
                                      ROW(balance_loss_grad, balance, balance, balance_grad,
                                          .workspace = balance_workspace),
                                      { .name = NULL } };
