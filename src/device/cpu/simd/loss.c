/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/loss.c - linear layer and cross-entropy in chunks of rows, with or without gradients; all logits
 * never exist at once.
 *
 *   z (N, V) = x (N, C) w (V, C)^T + scale u (N, r) b (V, r)^T      (u and b: of an adapter, if there is one)
 *   loss    += sum over rows of log(sum_v e^(z_v - m)) - (z_target - m),  m = max_v z_v
 *   dz       = (softmax(z) - onehot(target)) * s,  dx = dz w,  dw += dz^T x,  du = scale dz b,  db += scale dz^T u
 *
 * linear_token_losses: the losses of the rows by themselves; its gradient: a scale for each row.
 * A row whose target is TM_IGNORED_TARGET has no loss and no gradient. Exponentials are summed in 16 lanes over runs of
 * TM_SUM_RUN logits, the runs in double; rows are added to the loss in ascending order in double. dw is the product of
 * the chunks in ascending order: with chunks that are multiples of TM_GEMM_BLOCK a float32 dw has the bits of one
 * product over all rows. A bfloat16 dw is rounded once per chunk. With bfloat16 x and w, kernels with tile registers
 * round dz to bfloat16 for its two products.
 */
#include "base/status.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/loss_row.h"
#include "op/attrs.h"

#include <math.h>

#if TM_PAIRS && defined(__AMX_BF16__)
enum { ROUNDS = 1 };
#else
enum { ROUNDS = 0 };
#endif

/* The operands of the four ops by name. */
typedef struct {
    const tm_view *x, *w, *targets;
    const tm_view *scalars, *scales; /* what losses count: all the same, or each row its own; NULL: the other */
    const tm_view *loss, *losses;    /* their sum; of each row; NULL where it is not wanted */
    const tm_view *dx, *dw, *logits; /* dx and dw NULL where they are not wanted */
    const tm_view *u, *b, *du, *db;  /* NULL without an adapter; db NULL where it is not wanted */
    double         scale;            /* of u b^T */
    int64_t        rank;             /* columns of u; 0: no adapter */
    bool           gradients, add_loss, add_losses, add_dw, add_db;
    bool           rounded;                     /* a float32 w counts as rounded to bfloat16 */
    int64_t        rows, width, classes, chunk; /* N, C, V */
} operands;

/* in: x, w, targets, [what losses count]; out: [the sum | losses by row, without gradients], [dx, dw], logits */
static TM_PLANNED operands operands_of(const tm_call *call, bool gradients, bool by_row)
{
    operands       o = { .x = &call->in[0], .w = &call->in[1], .targets = &call->in[2], .gradients = gradients };
    const tm_view *out = call->out;
    if (!by_row) o.loss = out++;
    if (by_row && !gradients) o.losses = out++;
    o.add_loss = o.loss && call->accumulate & 1;
    o.rounded = call->rounded != 0;
    if (!gradients && !by_row && tm_view_present(&call->out[2])) o.losses = &call->out[2];
    o.add_losses = !gradients && !by_row && call->accumulate >> 2 & 1;
    if (gradients) {
        *(by_row ? &o.scales : &o.scalars) = &call->in[3];
        if (tm_view_present(&out[0])) o.dx = &out[0];
        if (tm_view_present(&out[1])) o.dw = &out[1];
        o.add_dw = call->accumulate >> (out + 1 - call->out) & 1;
        out += 2;
    }
    o.logits = out;
    int u = gradients ? 4 : 3;
    if (!by_row && tm_view_present(&call->in[u])) {
        o.u = &call->in[u];
        o.b = o.u + 1;
        o.scale = ((const tm_loss_attr *)call->attr)->scale;
        o.rank = o.u->shape.n[1];
        if (gradients) o.du = &call->out[4];
        if (gradients && tm_view_present(&call->out[5])) o.db = &call->out[5];
        o.add_db = call->accumulate >> 5 & 1;
    }
    o.rows = o.x->shape.n[0];
    o.width = o.x->shape.n[1];
    o.classes = o.w->shape.n[0];
    o.chunk = ((const tm_loss_attr *)call->attr)->chunk;
    if (o.chunk > o.rows) o.chunk = o.rows;
    return o;
}

static TM_PLANNED const char *refuse(const operands *o)
{
    if (TM_PAIRS && !(o->x->dtype == TM_BF16 && (o->w->dtype == TM_BF16 || o->rounded))) return "needs bfloat16 inputs";
    if (!ROUNDS && o->rounded) return "does not round weights while packing";
    if (!tm_is_float(o->x) || !tm_is_float(o->w)) return "needs float32 or bfloat16 inputs";
    if (o->targets->dtype != TM_I32) return "needs int32 targets";
    if (o->scalars && o->scalars->dtype != TM_F64) return "needs float64 scalars";
    if (o->scales && o->scales->dtype != TM_F32) return "needs float32 cotangents";
    if (o->logits->dtype != TM_F32) return "needs float32 logits";
    if (o->loss && o->loss->dtype != TM_F64) return "needs a float64 loss";
    if (o->losses && o->losses->dtype != TM_F64 && (o->loss || !tm_is_float(o->losses)))
        return o->loss ? "needs float64 losses of rows" : "needs float32 or bfloat16 losses";
    if (o->dx && !tm_is_float(o->dx)) return "needs a float32 or bfloat16 gradient of x";
    if (o->dw && !tm_is_float(o->dw)) return "needs a float32 or bfloat16 gradient of w";
    if (!o->u) return NULL;
    if (!tm_is_float(o->u) || !tm_is_float(o->b)) return "needs a float32 or bfloat16 adapter";
    if (o->du && !tm_is_float(o->du)) return "needs a float32 or bfloat16 gradient of u";
    if (o->db && !tm_is_float(o->db)) return "needs a float32 or bfloat16 gradient of b";
    return NULL;
}

/* ---- the three products of rows [from, from + n) ---- */

static const void *rows_of(const tm_view *view, int64_t from)
{
    if (!view->data) return NULL;
    return (const char *)view->data + (size_t)(from * view->shape.n[1]) * (view->dtype == TM_BF16 ? 2 : 4);
}
static TM_PLANNED tm_gemm logits_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = n,
        .n = o->classes,
        .k = o->width,
        .a = { rows_of(o->x, from), o->width, false, o->x->dtype },
        .b = { o->w->data, o->width, true, o->w->dtype },
        .c = o->logits->data,
        .ldc = o->classes,
        .c_dtype = TM_F32,
        .narrow_b = ROUNDS && o->rounded,
    };
}
static TM_PLANNED tm_gemm dx_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = n,
        .n = o->width,
        .k = o->classes,
        .a = { o->logits->data, o->classes, false, TM_F32 },
        .b = { o->w->data, o->width, false, o->w->dtype },
        .c = (void *)(uintptr_t)rows_of(o->dx, from),
        .ldc = o->width,
        .c_dtype = o->dx->dtype,
        .narrow = TM_PAIRS,
        .narrow_b = ROUNDS && o->rounded,
    };
}
static TM_PLANNED tm_gemm dw_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = o->classes,
        .n = o->width,
        .k = n,
        .a = { o->logits->data, o->classes, true, TM_F32 },
        .b = { rows_of(o->x, from), o->width, false, o->x->dtype },
        .c = o->dw->data,
        .ldc = o->width,
        .c_dtype = o->dw->dtype,
        .accumulate = o->add_dw || from > 0,
        .narrow = TM_PAIRS,
    };
}
static void run_product(tm_gemm g, const tm_call *call, void *workspace)
{
    g.threads = call->threads;
    g.workspace = workspace;
    TM_K(tm_gemm_run)(&g);
}

/* ---- an adapter's products; su (chunk, r), float32: scale u, later dz b ---- */

/* Added to logits z (n, classes) of classes v ... */
static TM_PLANNED tm_gemm adapter_logits(const operands *o, const float *su, int64_t n, int64_t v, int64_t classes,
                                         float *z)
{
    return (tm_gemm){ .m = n,
                      .n = classes,
                      .k = o->rank,
                      .a = { su, o->rank, false, TM_F32 },
                      .b = { rows_of(o->b, v), o->rank, true, o->b->dtype },
                      .c = z,
                      .ldc = classes,
                      .c_dtype = TM_F32,
                      .accumulate = true };
}
static TM_PLANNED tm_gemm du_product(const operands *o, float *su, int64_t n)
{
    return (tm_gemm){ .m = n,
                      .n = o->rank,
                      .k = o->classes,
                      .a = { o->logits->data, o->classes, false, TM_F32 },
                      .b = { o->b->data, o->rank, false, o->b->dtype },
                      .c = su,
                      .ldc = o->rank,
                      .c_dtype = TM_F32 };
}
static TM_PLANNED tm_gemm db_product(const operands *o, const float *su, int64_t from, int64_t n)
{
    return (tm_gemm){ .m = o->classes,
                      .n = o->rank,
                      .k = n,
                      .a = { o->logits->data, o->classes, true, TM_F32 },
                      .b = { su, o->rank, false, TM_F32 },
                      .c = o->db->data,
                      .ldc = o->rank,
                      .c_dtype = o->db->dtype,
                      .accumulate = o->add_db || from > 0 };
}

/* `n` elements of `to` become scale times those of `from`. */
static void scaled(const operands *o, const void *from, tm_dtype from_dtype, int64_t from_first, void *to,
                   tm_dtype to_dtype, int64_t to_first, int64_t n)
{
    v16 factor = v16_set1((float)o->scale);
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_put(to, to_dtype, to_first + i, v16_mul(factor, v16_get(from, from_dtype, from_first + i, n - i)), n - i);
}

/* Of rows [from, from + n), where there is an adapter. */
static void scale_u(const operands *o, float *su, int64_t from, int64_t n)
{
    if (o->u) scaled(o, o->u->data, o->u->dtype, from * o->rank, su, TM_F32, 0, n * o->rank);
}

/* ---- rows ---- */

static double scale_of(const operands *o, int64_t row)
{
    if (o->scales) return (double)((const float *)o->scales->data)[row];
    return o->scalars ? ((const double *)o->scalars->data)[TM_SCALAR_LOSS_SCALE] : 0;
}

/* Adds the losses of rows [from, from + n) to *sum, in their order, and notes them. */
static void add_losses(const operands *o, const double *losses, int64_t from, int64_t n, double *sum)
{
    for (int64_t r = 0; r < n; r++) *sum += losses[r];
    for (int64_t r = 0; o->losses && r < n; r++) {
        double *wide = o->losses->dtype == TM_F64 ? (double *)o->losses->data + from + r : NULL;
        if (wide)
            *wide = losses[r] + (o->add_losses ? *wide : 0);
        else
            v16_put(o->losses->data, o->losses->dtype, from + r, v16_set1((float)losses[r]), 1);
    }
}

#if TM_PAIRS && defined(__AMX_BF16__)
/* ---- in slices of the vocabulary: what tile registers leave to memory decides ----
 *
 * The logits of a slice are float32, lie near the core, and go at once: into the row's loss as they are, and as
 * e^(z - m) with the slice's maximum m, rounded to bfloat16, into the place of the logits tensor, which so holds two
 * rows in the place of one. When all slices have been there, a row's maximum and sum are known, and
 * dz = e^(z - m) (e^(m - M) scale / sum) is formed in place.
 */
enum { SLICE_FLOATS = 1 << 20, SLICE_STEP = 512 };

typedef struct {
    int64_t   rows, columns, slices; /* rows at a time, logits of a slice, slices of a row */
    double   *losses, *sums;         /* (rows), (rows, slices): of the exponentials of a slice */
    float    *maxima, *aims, *z;     /* (rows, slices), (rows): logits of the targets, (rows, columns) */
    float    *su;                    /* (rows, rank) */
    uint16_t *e;                     /* (rows, V) */
    void     *scratch;
} slicing;

static TM_PLANNED slicing slicing_of(const operands *o)
{
    slicing s = { .rows = tm_min(o->rows, 2 * o->chunk) };
    s.columns = tm_max(SLICE_STEP, SLICE_FLOATS / tm_max(1, s.rows) / SLICE_STEP * SLICE_STEP);
    s.columns = tm_min(s.columns, o->classes);
    s.slices = tm_ceil_div(o->classes, s.columns);
    return s;
}
static TM_PLANNED size_t slicing_bytes(const slicing *s, const operands *o)
{
    return (size_t)(s->rows * (1 + s->slices)) * sizeof(double) +
           (size_t)(s->rows * (s->slices + 1 + s->columns + o->rank)) * sizeof(float) + 64;
}
static void slicing_open(slicing *s, const operands *o, void *workspace)
{
    s->losses = workspace;
    s->sums = s->losses + s->rows;
    s->maxima = (float *)(s->sums + s->rows * s->slices);
    s->aims = s->maxima + s->rows * s->slices;
    s->z = (float *)(((uintptr_t)(s->aims + s->rows) + 63) / 64 * 64);
    s->su = s->z + s->rows * s->columns;
    s->scratch = s->su + s->rows * o->rank;
    s->e = o->logits->data;
}

/* The product of `n` rows with the slice that begins at class `v`. */
static TM_PLANNED tm_gemm slice_product(const operands *o, const slicing *s, int64_t from, int64_t n, int64_t v)
{
    tm_gemm g = logits_product(o, from, n);
    g.n = g.ldc = tm_min(s->columns, o->classes - v);
    g.b.data = rows_of(o->w, v);
    g.c = s->z;
    return g;
}

static void slice_row(const operands *o, const slicing *s, int64_t r, int64_t slice, int32_t target)
{
    int64_t v = slice * s->columns, n = tm_min(s->columns, o->classes - v);
    float  *z = s->z + r * n, most = tm_row_max(z, n);
    v16     top = v16_set1(most);
    double  sum = 0;
    if (target >= v && target < v + n) s->aims[r] = z[target - v];
    for (int64_t run = 0; run < n; run += TM_SUM_RUN) {
        int64_t end = tm_min(run + TM_SUM_RUN, n);
        v16     lanes = v16_zero();
        for (int64_t i = run; i < end; i += TM_LANES) {
            v16 e = tm_exponentials(z + i, top, end - i, false);
            lanes = v16_add(lanes, e);
            if (o->gradients) v16_put(s->e + r * o->classes, TM_BF16, v + i, e, tm_min(TM_LANES, end - i));
        }
        sum += (double)v16_sum(lanes);
    }
    s->maxima[r * s->slices + slice] = most;
    s->sums[r * s->slices + slice] = sum;
}

static double finish_row(const operands *o, const slicing *s, int64_t r, int32_t target, double scale)
{
    uint16_t     *e = s->e + r * o->classes;
    const float  *maxima = s->maxima + r * s->slices;
    const double *sums = s->sums + r * s->slices;
    if (target == TM_IGNORED_TARGET) {
        if (o->gradients) memset(e, 0, (size_t)o->classes * sizeof *e);
        return 0;
    }
    TM_ASSERT(target >= 0 && target < o->classes);
    double sum = 0, most = (double)maxima[0], aim;
    for (int64_t i = 1; i < s->slices; i++) most = (double)maxima[i] > most ? (double)maxima[i] : most;
    for (int64_t i = 0; i < s->slices; i++) sum += sums[i] * exp((double)maxima[i] - most);
    aim = (double)s->aims[r] - most;
    for (int64_t i = 0; o->gradients && i < s->slices; i++) {
        int64_t v = i * s->columns, end = tm_min(v + s->columns, o->classes);
        v16     factor = v16_set1((float)(scale * exp((double)maxima[i] - most) / sum));
        for (int64_t j = v; j < end; j += TM_LANES) {
            int64_t n = tm_min(TM_LANES, end - j);
            v16_put(e, TM_BF16, j, v16_mul(v16_get(e, TM_BF16, j, n), factor), n);
        }
    }
    if (o->gradients) v16_put(e, TM_BF16, target, v16_set1((float)((exp(aim) / sum - 1) * scale)), 1);
    return log(sum) - aim;
}

/* Rows from .. from + n - 1: their losses, and dz in s->e. */
static void slice_rows(const tm_call *call, const operands *o, const slicing *s, int64_t from, int64_t n)
{
    const int32_t *targets = (const int32_t *)o->targets->data + from;
    scale_u(o, s->su, from, n);
    for (int64_t slice = 0; slice < s->slices; slice++) {
        tm_gemm g = slice_product(o, s, from, n, slice * s->columns);
        run_product(g, call, s->scratch);
        if (o->u) run_product(adapter_logits(o, s->su, n, slice * s->columns, g.n, s->z), call, s->scratch);
        int64_t group = TM_TASK_LOGITS / s->columns + 1;
#pragma omp parallel for schedule(dynamic, group) num_threads(call->threads) if (call->threads > 1 && n > group)
        for (int64_t r = 0; r < n; r++) slice_row(o, s, r, slice, targets[r]);
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(call->threads) if (call->threads > 1 && n > 1)
    for (int64_t r = 0; r < n; r++) s->losses[r] = finish_row(o, s, r, targets[r], scale_of(o, from + r));
}

static TM_PLANNED tm_gemm from_codes(tm_gemm g, const slicing *s)
{
    g.a.data = s->e;
    g.a.dtype = TM_BF16;
    return g;
}

static TM_PLANNED size_t loss_workspace(const operands *o, int threads)
{
    slicing s = slicing_of(o);
    size_t  most = 0;
    int64_t n[2] = { s.rows, s.rows > 0 ? o->rows % s.rows : 0 };
    for (int i = 0; i < 2; i++) {
        tm_gemm g[8] = { slice_product(o, &s, 0, n[i], 0), slice_product(o, &s, 0, n[i], (s.slices - 1) * s.columns) };
        int     count = 2;
        if (o->dx) g[count++] = from_codes(dx_product(o, 0, n[i]), &s);
        if (o->dw) g[count++] = from_codes(dw_product(o, 0, n[i]), &s);
        for (int k = 0; k < 2 && o->u; k++) g[count++] = adapter_logits(o, NULL, n[i], 0, g[k].n, NULL);
        if (o->du) g[count++] = from_codes(du_product(o, NULL, n[i]), &s);
        if (o->db) g[count++] = from_codes(db_product(o, NULL, 0, n[i]), &s);
        for (int j = 0; j < count; j++) {
            g[j].threads = threads;
            size_t bytes = n[i] > 0 ? TM_K(tm_gemm_workspace)(&g[j]) : 0;
            if (bytes > most) most = bytes;
        }
    }
    return slicing_bytes(&s, o) + most;
}

static void run(const tm_call *call, const operands *o)
{
    slicing s = slicing_of(o);
    double *loss = o->loss ? o->loss->data : NULL, sum = o->add_loss ? *loss : 0;
    slicing_open(&s, o, call->workspace);
    for (int64_t from = 0; from < o->rows; from += s.rows) {
        int64_t n = tm_min(s.rows, o->rows - from);
        slice_rows(call, o, &s, from, n);
        add_losses(o, s.losses, from, n, &sum);
        if (o->dx) run_product(from_codes(dx_product(o, from, n), &s), call, s.scratch);
        if (o->dw) run_product(from_codes(dw_product(o, from, n), &s), call, s.scratch);
        if (o->db) run_product(from_codes(db_product(o, s.su, from, n), &s), call, s.scratch);
        if (o->du) run_product(from_codes(du_product(o, s.su, n), &s), call, s.scratch);
        if (o->du) scaled(o, s.su, TM_F32, 0, o->du->data, o->du->dtype, from * o->rank, n * o->rank);
    }
    if (loss) *loss = sum;
}
#else
static void loss_rows(const operands *o, int64_t from, int64_t n, double *losses, int threads)
{
    float         *logits = o->logits->data;
    const int32_t *targets = (const int32_t *)o->targets->data + from;
    int64_t        group = TM_TASK_LOGITS / o->classes + 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && n > group)
    for (int64_t task = 0; task < (n + group - 1) / group; task++)
        for (int64_t r = task * group; r < n && r < (task + 1) * group; r++)
            losses[r] =
                tm_loss_row(logits + r * o->classes, o->classes, targets[r], o->gradients, scale_of(o, from + r));
}

static TM_PLANNED size_t largest_product(const operands *o, int threads)
{
    size_t  most = 0;
    int64_t n[2] = { o->chunk, o->chunk > 0 ? o->rows % o->chunk : 0 };
    for (int i = 0; i < 2; i++) {
        tm_gemm g[6] = { logits_product(o, 0, n[i]) };
        int     count = 1;
        if (o->dx) g[count++] = dx_product(o, 0, n[i]);
        if (o->dw) g[count++] = dw_product(o, 0, n[i]);
        if (o->u) g[count++] = adapter_logits(o, NULL, n[i], 0, o->classes, NULL);
        if (o->du) g[count++] = du_product(o, NULL, n[i]);
        if (o->db) g[count++] = db_product(o, NULL, 0, n[i]);
        for (int j = 0; j < count; j++) {
            g[j].threads = threads;
            size_t bytes = n[i] > 0 ? TM_K(tm_gemm_workspace)(&g[j]) : 0;
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static TM_PLANNED size_t loss_workspace(const operands *o, int threads)
{
    return (size_t)o->chunk * (sizeof(double) + (size_t)o->rank * sizeof(float)) + largest_product(o, threads);
}

static void run(const tm_call *call, const operands *o)
{
    double *losses = call->workspace, *loss = o->loss ? o->loss->data : NULL;
    float  *su = (float *)(losses + o->chunk);
    void   *scratch = su + o->chunk * o->rank;
    double  sum = o->add_loss ? *loss : 0;
    for (int64_t from = 0; from < o->rows; from += o->chunk) {
        int64_t n = o->rows - from < o->chunk ? o->rows - from : o->chunk;
        run_product(logits_product(o, from, n), call, scratch);
        scale_u(o, su, from, n);
        if (o->u) run_product(adapter_logits(o, su, n, 0, o->classes, o->logits->data), call, scratch);
        loss_rows(o, from, n, losses, call->threads);
        add_losses(o, losses, from, n, &sum);
        if (o->dx) run_product(dx_product(o, from, n), call, scratch);
        if (o->dw) run_product(dw_product(o, from, n), call, scratch);
        if (o->db) run_product(db_product(o, su, from, n), call, scratch);
        if (o->du) run_product(du_product(o, su, n), call, scratch);
        if (o->du) scaled(o, su, TM_F32, 0, o->du->data, o->du->dtype, from * o->rank, n * o->rank);
    }
    if (loss) *loss = sum;
}

#endif

/* ---- kernels ---- */

#define KERNEL(name, gradients, by_row)                                                                                \
    static TM_PLANNED const char *name##_refuse(const tm_call *call)                                                   \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return refuse(&o);                                                                                             \
    }                                                                                                                  \
    static TM_PLANNED size_t name##_workspace(const tm_call *call)                                                     \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return loss_workspace(&o, call->threads);                                                                      \
    }                                                                                                                  \
    static void name##_run(const tm_call *call)                                                                        \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        run(call, &o);                                                                                                 \
    }
KERNEL(forward, false, false)
KERNEL(grad, true, false)
KERNEL(by_row, false, true)
KERNEL(by_row_grad, true, true)
#undef KERNEL

#if TM_PAIRS && defined(__AMX_BF16__)
#define LOSS(op_name, which)                                                                                           \
    {                                                                                                                  \
        .op = TM_OP_##op_name, .name = #op_name "/own-" TM_ISA_NAME, .refuse = which##_refuse,                         \
        .workspace = which##_workspace, .run = which##_run, .two_rows = true, .rounds = 1u << 1                        \
    }
#else
#define LOSS(op_name, which) TM_KERNEL(op_name, #op_name "/own-", which##_refuse, which##_workspace, which##_run)
#endif
const tm_kernel TM_K(tm_cpu_loss)[] = {
    LOSS(linear_cross_entropy, forward),
    LOSS(linear_cross_entropy_grad, grad),
    LOSS(linear_token_losses, by_row),
    LOSS(linear_token_losses_grad, by_row_grad),
    { .run = NULL },
};
