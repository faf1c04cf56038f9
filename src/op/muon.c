/* SPDX-License-Identifier: Apache-2.0 */
/* op/muon.c - one step of Muon (Jordan et al. 2024): the momentum of a matrix with its singular values moved to
 * about 1.
 *
 *   b  = b + (1 - momentum) (c g - b)                            c: coefficient of the clip
 *   u  = nesterov ? c g + momentum (b - c g) : b
 *   X  = u / max(|u|, eps)                                       Frobenius norm; transposed where it is higher than
 * wide X  = a X + (b A + c A^2) X,  A = X X^T                       five times, (a, b, c) of tm_muon_triple p -= lr
 * weight_decay p + lr factor X
 *
 * torch.optim.Muon: Nesterov, eps 1e-7, simple coefficients, its iterations in bfloat16. Megatron-LM: no Nesterov, eps
 * 1e-15, quintic coefficients. The factor makes up for the shape of the matrix (TM_MUON_SCALES).
 *
 * p, g, b (one shape (..., C); its rows are matrices one below the other, attr.rows), scalars (8), clip (2) -> p, b:
 * the tensors that came in, changed in place
 */
#include "op/muon.h"

#include "base/arena.h"
#include "base/status.h"
#include "op/describe.h"

#include <math.h>
#include <stdlib.h>

const double *tm_muon_triple(tm_muon_coefficients which, int i)
{
    static const double simple[3] = { 3.4445, -4.7750, 2.0315 };
    static const double quintic[TM_MUON_STEPS][3] = { { 4.0848, -6.8946, 2.9270 },
                                                      { 3.9505, -6.3029, 2.6377 },
                                                      { 3.7418, -5.5913, 2.3037 },
                                                      { 2.8769, -3.1427, 1.2046 },
                                                      { 2.8366, -3.0525, 1.2012 } };
    return which == TM_MUON_QUINTIC ? quintic[i] : simple;
}

double tm_muon_factor(tm_muon_scale scale, int64_t rows, int64_t columns)
{
    const double R = (double)rows, C = (double)columns;
    switch (scale) {
#define X(id, name, factor)                                                                                            \
    case TM_MUON_##id:                                                                                                 \
        return factor;
        TM_MUON_SCALES(X)
#undef X
    case TM_MUON_SCALE_COUNT:
        break;
    }
    TM_ASSERT(!"unknown scale");
    return 0;
}

int64_t tm_muon_all_rows(tm_shape parameter)
{
    return tm_shape_elements(parameter) / parameter.n[parameter.rank - 1];
}

int tm_muon_parts(const tm_muon_attr *attr)
{
    int n = 0;
    while (n < TM_MUON_PARTS && attr->rows[n] > 0) n++;
    return n;
}

int64_t tm_muon_rows(const tm_muon_attr *attr, int64_t k)
{
    return attr->rows[k % tm_muon_parts(attr)];
}

static const char *muon_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_muon_attr *attr = attr_;
    const char         *why;
    int64_t             period = 0;
    if (in[0].rank < 2) return "a parameter must have rows and columns";
    for (int k = 1; k < 3; k++)
        if (!tm_shape_equal(in[k], in[0])) return "gradient and momentum must have the shape of the parameter";
    for (int k = 0; k < tm_muon_parts(attr); k++) period += attr->rows[k];
    if (period < 1 || tm_muon_all_rows(in[0]) % period) return "the matrices' rows must fill the parameter";
    if (!tm_shape_is_vector(in[3], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (!tm_shape_is_vector(in[4], 2)) return "the clip must have two values";
    for (int k = 0; k < 2; k++)
        if ((why = tm_shape_fit(&out[k], in[0], "an output must have the shape of the parameter"))) return why;
    return NULL;
}

/* to (m, n) = a (m, k) b (k, n) */
static void multiply(double *to, const double *a, const double *b, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t q = 0; q < k; q++) sum += a[i * k + q] * b[q * n + j];
            to[i * n + j] = sum;
        }
}

/* The iterations on x (r, c), r <= c. */
static void iterate(double *x, int64_t r, int64_t c, const tm_muon_attr *attr)
{
    double *t = tm_alloc((size_t)(2 * r * c + 2 * r * r) * sizeof *t);
    double *product = t + r * c, *gram = product + r * c, *square = gram + r * r;
    for (int i = 0; i < TM_MUON_STEPS; i++) {
        const double *abc = tm_muon_triple((tm_muon_coefficients)attr->coefficients, i);
        for (int64_t row = 0; row < r; row++)
            for (int64_t j = 0; j < c; j++) t[j * r + row] = x[row * c + j];
        multiply(gram, x, t, r, c, r);
        multiply(square, gram, gram, r, r, r);
        for (int64_t k = 0; k < r * r; k++) gram[k] = abc[1] * gram[k] + abc[2] * square[k];
        multiply(product, gram, x, r, r, c);
        for (int64_t k = 0; k < r * c; k++) x[k] = abc[0] * x[k] + product[k];
    }
    free(t);
}

static void muon_matrix(const tm_call *call, int64_t first, int64_t rows, int64_t columns)
{
    const tm_muon_attr *attr = call->attr;
    const double       *p = call->in[0].data, *g = call->in[1].data, *b = call->in[2].data;
    double             *new_p = call->out[0].data, *new_b = call->out[1].data, norm = 0;
    double              rate = ((const double *)call->in[3].data)[TM_SCALAR_LEARNING_RATE];
    double              clip = ((const double *)call->in[4].data)[1], mu = attr->momentum;
    double              move = rate * tm_muon_factor((tm_muon_scale)attr->scale, rows, columns);
    bool                high = rows > columns;
    int64_t             r = high ? columns : rows, c = high ? rows : columns;
    double             *x = tm_alloc((size_t)(rows * columns) * sizeof *x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = (first + i) * columns + j;
            double  gradient = clip * g[at];
            new_b[at] = b[at] + (1 - mu) * (gradient - b[at]);
            double u = attr->nesterov ? gradient + mu * (new_b[at] - gradient) : new_b[at];
            x[high ? j * c + i : i * c + j] = u;
            norm += u * u;
        }
    for (int64_t k = 0; k < r * c; k++) x[k] /= fmax(sqrt(norm), attr->eps);
    iterate(x, r, c, attr);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = (first + i) * columns + j;
            new_p[at] = p[at] - rate * attr->weight_decay * p[at] - move * x[high ? j * c + i : i * c + j];
        }
    free(x);
}

static void muon_reference(const tm_call *call)
{
    tm_shape shape = call->in[0].shape;
    int64_t  all = tm_muon_all_rows(shape);
    for (int64_t first = 0, k = 0; first < all; k++) {
        int64_t rows = tm_muon_rows(call->attr, k);
        muon_matrix(call, first, rows, shape.n[shape.rank - 1]);
        first += rows;
    }
}

static tm_cost muon_cost(const tm_call *call)
{
    tm_shape shape = call->in[0].shape;
    int64_t  all = tm_muon_all_rows(shape), columns = shape.n[shape.rank - 1];
    double   flops = 0;
    for (int64_t first = 0, k = 0; first < all; k++) {
        int64_t rows = tm_muon_rows(call->attr, k);
        double  r = (double)(rows < columns ? rows : columns), c = (double)(rows < columns ? columns : rows);
        flops += TM_MUON_STEPS * (4 * r * r * c + 2 * r * r * r);
        first += rows;
    }
    return tm_call_cost(call, flops);
}

/* Five times three products, each of which sums over a side of the matrix. */
static tm_rounding muon_rounding(const tm_call *call, int k)
{
    const tm_shape *shape = &call->in[0].shape;
    double          sides = (double)(shape->n[shape->rank - 1] + tm_muon_all_rows(*shape));
    return (tm_rounding){ .terms = k == 0 ? 3. * TM_MUON_STEPS * sides : 1, .stores = 1 };
}

static bool muon_example(int k, tm_example *example)
{
    static const tm_shape     cases[] = { { 2, { 3, 7 } },   { 2, { 16, 5 } },   { 3, { 2, 6, 9 } },
                                          { 2, { 33, 48 } }, { 2, { 130, 65 } }, { 2, { 1, 20 } } };
    static const tm_muon_attr attrs[] = {
        { .momentum = 0.95, .weight_decay = 0.1, .eps = 1e-7, .nesterov = 1, .rows = { 3 } },
        { .momentum = 0.9, .eps = 1e-15, .coefficients = TM_MUON_QUINTIC, .scale = TM_MUON_SPECTRAL, .rows = { 16 } },
        { .momentum = 0.5,
          .weight_decay = 0.1,
          .eps = 1e-7,
          .nesterov = 1,
          .scale = TM_MUON_MATCH_RMS,
          .rows = { 4, 2 } },
        { .momentum = 0.95, .eps = 1e-7, .nesterov = 1, .scale = TM_MUON_SHAPE, .rows = { 11 } },
        { .momentum = 0.95,
          .eps = 1e-7,
          .coefficients = TM_MUON_QUINTIC,
          .scale = TM_MUON_UNIT_RMS,
          .rows = { 100, 30 } },
        { .momentum = 0, .eps = 1e-7, .rows = { 1 } }
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attrs[k], sizeof attrs[k]);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_GRADIENT, cases[k], 0, 1);
    tm_example_in(example, 2, TM_ROLE_MOMENT, cases[k], 0, 1);
    tm_example_in(example, 3, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.05);
    tm_example_in(example, 4, TM_ROLE_SCALAR, tm_shape_1(2), 0.7, 0.1);
    for (int out = 0; out < 2; out++) example->out[out] = cases[k];
    return true;
}

const tm_op tm_op_muon = {
    .name = "muon",
    .formula = "b += (1 - mu) (c g - b), X = u / norm u, five times X = a X + (b A + c A^2) X with A = X X^T; p -= lr "
               "wd p + lr "
               "factor X",
    .group = "optimizer",
    .n_in = 5,
    .n_out = 2,
    .out_role = { TM_ROLE_PARAMETER, TM_ROLE_MOMENT },
    .infer = muon_infer,
    .reference = muon_reference,
    .cost = muon_cost,
    .vector = 20,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2,
    .example = muon_example,
    .rounding = muon_rounding,
    .in_name = { "p (...)", "g (...)", "b (...)", "scalars (8)", "clip (2)" },
    .out_name = { "p (...)", "b (...)" },
    .attributes = "momentum, weight_decay, eps, rounding, nesterov, coefficients, scale, rows",
};
