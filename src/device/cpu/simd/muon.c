/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/muon.c - Muon, the formula of op/muon.c: matrix by matrix
 *
 *   1  over rows of p: the momentum, and X, transposed where the matrix is higher than wide; sums of squares
 *   2  five times: A = X X^T and B = A A by products, B = b A + c B, Y = B X, X = a X + Y
 *   3  over rows of p: p
 *
 * Everything is float32, whatever the weights are stored in. Products have the order of summation of device/cpu/gemm.h,
 * squares are summed by rows in float32 lanes and over rows in double, ascending.
 */
#include "device/cpu/gemm.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/rounding.h"
#include "op/muon.h"

#include <math.h>

/* The workspace: this, then X, Y (r, c), A, B (r, r), the rows' sums of squares, the products' scratch. */
typedef struct {
    int64_t first, rows, columns; /* the matrix: rows of the parameter */
    int64_t r, c;                 /* X: r <= c */
    bool    high;                 /* X is transposed */
    float   scale, a, b;          /* of X; of the pass at hand */
    float  *x, *y, *gram, *square, *sums;
    void   *scratch;
} matrix;

/* ---- sizes ---- */

static TM_PLANNED int64_t most_rows(const tm_muon_attr *attr)
{
    int64_t most = 0;
    for (int k = 0; k < TM_MUON_PARTS; k++) most = tm_max(most, attr->rows[k]);
    return most;
}
static TM_PLANNED tm_gemm product_of(const tm_call *call, int64_t m, int64_t n, int64_t k)
{
    return (tm_gemm){ .m = m,
                      .n = n,
                      .k = k,
                      .a = { .ld = k, .dtype = TM_F32 },
                      .b = { .ld = n, .dtype = TM_F32 },
                      .ldc = n,
                      .c_dtype = TM_F32,
                      .threads = call->threads };
}
/* Floats before the scratch, and the scratch of the largest product, of a matrix of so many rows. */
static TM_PLANNED size_t floats_of(int64_t rows, int64_t columns)
{
    int64_t r = tm_min(rows, columns);
    return (size_t)(2 * rows * columns + 2 * r * r + rows);
}
static TM_PLANNED size_t scratch_of(const tm_call *call, int64_t rows, int64_t columns)
{
    int64_t r = tm_min(rows, columns), c = tm_max(rows, columns);
    tm_gemm products[] = { product_of(call, r, r, c), product_of(call, r, r, r), product_of(call, r, c, r) };
    size_t  most = 0;
    products[0].b.transposed = true;
    products[0].b.ld = c;
    for (int i = 0; i < 3; i++) {
        size_t bytes = TM_K(tm_gemm_workspace)(&products[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}
static TM_PLANNED size_t muon_workspace(const tm_call *call)
{
    const tm_muon_attr *attr = call->attr;
    int64_t             columns = tm_view_columns(&call->in[0]);
    size_t              scratch = 0;
    for (int k = 0; k < tm_muon_parts(attr); k++) {
        size_t bytes = scratch_of(call, attr->rows[k], columns);
        if (bytes > scratch) scratch = bytes;
    }
    return 64 + sizeof(matrix) + floats_of(most_rows(attr), columns) * sizeof(float) + 64 + scratch;
}

static matrix *matrix_at(const tm_call *call)
{
    return (matrix *)(((uintptr_t)call->workspace + 63) / 64 * 64);
}
static void open_matrix(const tm_call *call, matrix *m, int64_t first, int64_t rows)
{
    int64_t columns = tm_view_columns(&call->in[0]);
    m->first = first, m->rows = rows, m->columns = columns;
    m->high = rows > columns;
    m->r = tm_min(rows, columns), m->c = tm_max(rows, columns);
    m->x = (float *)(m + 1);
    m->y = m->x + m->r * m->c;
    m->gram = m->y + m->r * m->c;
    m->square = m->gram + m->r * m->r;
    m->sums = m->square + m->r * m->r;
    m->scratch = m->sums + rows;
}

/* ---- 1, 3: rows of the parameter ---- */

TM_INLINE void take_rows(const tm_call *call, tm_dtype format, tm_dtype moment, int64_t begin, int64_t end)
{
    const tm_muon_attr *attr = call->attr;
    const matrix       *m = matrix_at(call);
    const v16           clip = v16_set1((float)((const double *)call->in[4].data)[1]);
    const v16           mu = v16_set1((float)attr->momentum), blend = v16_set1((float)(1. - attr->momentum));
    const tm_chance     chance = tm_chance_of(attr->rounding, call->in[3].data);
    for (int64_t row = begin; row < end; row++) {
        v16   sum = v16_zero();
        float lanes[TM_LANES];
        for (int64_t j = 0; j < m->columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, m->columns), i = (m->first + row) * m->columns + j;
            v16 g = v16_mul(v16_get(call->in[1].data, format, i, n), clip), b = v16_get(call->in[2].data, moment, i, n);
            b = v16_add(b, v16_mul(blend, v16_sub(g, b)));
            v16 u = attr->nesterov ? v16_add(g, v16_mul(mu, v16_sub(b, g))) : b;
            sum = v16_add(sum, v16_mul(u, u));
            tm_put_rounded(&chance, call->out[1].data, moment, i, b, n, 16);
            if (!m->high) {
                v16_put(m->x, TM_F32, row * m->c + j, u, n);
                continue;
            }
            v16_store(lanes, u);
            for (int64_t l = 0; l < n; l++) m->x[(j + l) * m->c + row] = lanes[l];
        }
        m->sums[row] = v16_sum(sum);
    }
}
TM_PART_2(take_rows, in[0], in[2])

TM_INLINE void move_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_muon_attr *attr = call->attr;
    const matrix       *m = matrix_at(call);
    const double        rate = ((const double *)call->in[3].data)[TM_SCALAR_LEARNING_RATE];
    const v16           decay = v16_set1((float)(rate * attr->weight_decay)), step = v16_set1(m->scale);
    const tm_chance     chance = tm_chance_of(attr->rounding, call->in[3].data);
    for (int64_t row = begin; row < end; row++)
        for (int64_t j = 0; j < m->columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, m->columns), i = (m->first + row) * m->columns + j;
            v16     p = v16_get(call->in[0].data, format, i, n), x;
            if (m->high) {
                float lanes[TM_LANES] = { 0 };
                for (int64_t l = 0; l < n; l++) lanes[l] = m->x[(j + l) * m->c + row];
                x = v16_load(lanes);
            } else {
                x = v16_get(m->x, TM_F32, row * m->c + j, n);
            }
            p = v16_sub(v16_sub(p, v16_mul(decay, p)), v16_mul(step, x));
            tm_put_rounded(&chance, call->out[0].data, format, i, p, n, 0);
        }
}
TM_PART(move_rows, in[0])

/* ---- 2 ---- */

static void scale_x(const tm_call *call, int64_t begin, int64_t end)
{
    const matrix *m = matrix_at(call);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(m->x, TM_F32, i, v16_mul(v16_set1(m->scale), v16_get(m->x, TM_F32, i, n)), n);
    }
}
static void blend_square(const tm_call *call, int64_t begin, int64_t end)
{
    const matrix *m = matrix_at(call);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     gram = v16_mul(v16_set1(m->a), v16_get(m->gram, TM_F32, i, n));
        v16_put(m->square, TM_F32, i, v16_add(gram, v16_mul(v16_set1(m->b), v16_get(m->square, TM_F32, i, n))), n);
    }
}
static void blend_x(const tm_call *call, int64_t begin, int64_t end)
{
    const matrix *m = matrix_at(call);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     x = v16_mul(v16_set1(m->a), v16_get(m->x, TM_F32, i, n));
        v16_put(m->x, TM_F32, i, v16_add(x, v16_get(m->y, TM_F32, i, n)), n);
    }
}
static void multiply(tm_gemm g, const matrix *m, const float *a, const float *b, float *c)
{
    g.a.data = a, g.b.data = b, g.c = c;
    g.workspace = m->scratch;
    TM_K(tm_gemm_run)(&g);
}
static void iterate(const tm_call *call, matrix *m)
{
    const tm_muon_attr *attr = call->attr;
    int64_t             r = m->r, c = m->c;
    tm_gemm             gram = product_of(call, r, r, c);
    gram.b.transposed = true;
    gram.b.ld = c;
    for (int i = 0; i < TM_MUON_STEPS; i++) {
        const double *abc = tm_muon_triple((tm_muon_coefficients)attr->coefficients, i);
        multiply(gram, m, m->x, m->x, m->gram);
        multiply(product_of(call, r, r, r), m, m->gram, m->gram, m->square);
        m->a = (float)abc[1], m->b = (float)abc[2];
        tm_parallel(call, blend_square, r * r, TM_ELEMENT_GRAIN, r * r);
        multiply(product_of(call, r, c, r), m, m->square, m->x, m->y);
        m->a = (float)abc[0];
        tm_parallel(call, blend_x, r * c, TM_ELEMENT_GRAIN, r * c);
    }
}

static void muon_run(const tm_call *call)
{
    const tm_muon_attr *attr = call->attr;
    double              rate = ((const double *)call->in[3].data)[TM_SCALAR_LEARNING_RATE];
    matrix             *m = matrix_at(call);
    int64_t             all = tm_view_rows(&call->in[0]), rows;
    for (int64_t first = 0, k = 0; first < all; first += rows, k++) {
        double squares = 0;
        rows = tm_muon_rows(attr, k);
        open_matrix(call, m, first, rows);
        tm_parallel(call, take_rows_part, rows, TM_LANES, rows * m->columns);
        for (int64_t i = 0; i < rows; i++) squares += (double)m->sums[i];
        double norm = sqrt(squares);
        m->scale = (float)(1. / (norm < attr->eps ? attr->eps : norm)); /* a norm that is no number stays one */
        tm_parallel(call, scale_x, m->r * m->c, TM_ELEMENT_GRAIN, m->r * m->c);
        iterate(call, m);
        m->scale = (float)(rate * tm_muon_factor((tm_muon_scale)attr->scale, rows, m->columns));
        tm_parallel(call, move_rows_part, rows, TM_LANES, rows * m->columns);
    }
}
static TM_PLANNED const char *muon_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[2]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    if (!why) why = tm_refuse_mixed(&call->in[2], &call->out[1]);
    for (int k = 3; k < 5 && !why; k++) why = tm_refuse_scalar(&call->in[k]);
    return why;
}

const tm_kernel TM_K(tm_cpu_muon)[] = {
    TM_KERNEL(muon, "muon/own-", muon_refuse, muon_workspace, muon_run),
    { .name = NULL },
};
