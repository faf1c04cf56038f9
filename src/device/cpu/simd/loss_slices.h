/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/loss_slices.h - the loss of bfloat16 x and w in slices of the vocabulary (part of loss.c): what
 * products of bfloat16 leave to memory decides.
 *
 * The logits of a slice are float32, lie near the core, and go at once: into the row's loss as they are, and as
 * e^(z - m) with the slice's maximum m, rounded to bfloat16, into the place of the logits tensor, which so holds two
 * rows in the place of one. When all slices have been there, a row's maximum and sum are known, and
 * dz = e^(z - m) (e^(m - M) scale / sum) is formed in place, rounded to bfloat16 once more.
 *
 * The same on every instruction set: with and without instructions for bfloat16 a run has the same bits (amx: but for
 * its products).
 */
#ifndef TM_DEVICE_CPU_LOSS_SLICES_H
#define TM_DEVICE_CPU_LOSS_SLICES_H

enum { SLICE = 1024 }; /* logits: fixed, so that bits do not depend on how many rows go together */

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
    s.columns = tm_min(SLICE, o->classes);
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

static TM_PLANNED size_t slices_workspace(const operands *o, int threads)
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

static void run_slices(const tm_call *call, const operands *o)
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

#endif
