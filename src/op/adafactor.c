/* SPDX-License-Identifier: Apache-2.0 */
/* op/adafactor.c - Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor computes it: no first moment, and of the
 * second moment of a matrix only the means over its rows and its columns.
 *
 *   g      = c g                                             c: coefficient of the clip of the global norm
 *   s      = t^beta2_decay (the share of the new), rho = min(lr, 1 / sqrt(t))     scalars of the step
 *   alpha  = max(eps2, rms(p)) rho
 *   p     -= lr weight_decay p
 *   matrix (rows R, columns C), each matrix of a stack:
 *     r_i  = r_i + s (mean_j g_ij^2 - r_i),   q_j = q_j + s (mean_i g_ij^2 - q_j)
 *     v_ij = r_i q_j / max(mean_i r_i, eps1)
 *   else:  v_i = v_i + s (g_i^2 - v_i)
 *   u      = g / sqrt(max(v, eps1^2))
 *   p     -= alpha / max(1, rms(u) / d) u                    d: clip_threshold; rms over the whole tensor
 *
 * p, g (one shape; of rank 2 and above the last two axes are a matrix), r (without the last axis) or v (as p), [q
 * (without the last but one)], scalars (8), clip (2) -> p, r or v, [q]: the tensors that came in, changed in place
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *adafactor_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    tm_shape    row = in[0], column = in[0];
    int         last = in[0].rank - 1;
    bool        factored = in[0].rank >= 2;
    if (!tm_shape_equal(in[1], in[0])) return "the gradient must have the shape of the parameter";
    if (factored) {
        row.rank--;
        column.n[last - 1] = in[0].n[last];
        column.rank--;
    }
    if (!tm_shape_equal(in[2], row)) return "means over rows lack the last axis, a variance has the parameter's shape";
    if (factored != tm_shape_present(in[3])) return "there are means over columns if, and only if, there is a matrix";
    if (factored && !tm_shape_equal(in[3], column)) return "means over columns must lack the last axis but one";
    if (!tm_shape_is_vector(in[4], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (!tm_shape_is_vector(in[5], 2)) return "the clip must have two values";
    if ((why = tm_shape_fit(&out[0], in[0], "an output must have the shape of the parameter"))) return why;
    if ((why = tm_shape_fit(&out[1], row, "an output must have the shape of its input"))) return why;
    if (factored) return tm_shape_fit(&out[2], column, "an output must have the shape of its input");
    return tm_shape_present(out[2]) ? "there are means over columns if, and only if, there is a matrix" : NULL;
}

static double rms(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* Updates the means of the `matrix`-th matrix of a stack. */
static void update_means(const tm_call *call, int64_t matrix, int64_t rows, int64_t columns, double share)
{
    const double *g = (const double *)call->in[1].data + matrix * rows * columns;
    const double *r = (const double *)call->in[2].data + matrix * rows, *q = call->in[3].data;
    double       *new_r = (double *)call->out[1].data + matrix * rows, *new_q = call->out[2].data;
    double        c2 = ((const double *)call->in[5].data)[1] * ((const double *)call->in[5].data)[1];
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0;
        for (int64_t j = 0; j < columns; j++) mean += g[i * columns + j] * g[i * columns + j] * c2 / (double)columns;
        new_r[i] = r[i] + share * (mean - r[i]);
    }
    for (int64_t j = 0; j < columns; j++) {
        double mean = 0;
        for (int64_t i = 0; i < rows; i++) mean += g[i * columns + j] * g[i * columns + j] * c2 / (double)rows;
        new_q[matrix * columns + j] = q[matrix * columns + j] + share * (mean - q[matrix * columns + j]);
    }
}

/* v of element i of the whole tensor, from the new means. */
static double variance_at(const tm_call *call, int64_t i, int64_t rows, int64_t columns, double mean_of_rows)
{
    const tm_adafactor_attr *attr = call->attr;
    const double            *r = call->out[1].data, *q = call->out[2].data;
    if (!q) return r[i];
    int64_t matrix = i / (rows * columns);
    return r[i / columns] * q[matrix * columns + i % columns] / fmax(mean_of_rows, attr->eps1);
}

static void adafactor_reference(const tm_call *call)
{
    const tm_adafactor_attr *attr = call->attr;
    int64_t                  rank = call->in[0].shape.rank, count = tm_shape_elements(call->in[0].shape);
    int64_t                  columns = rank >= 2 ? call->in[0].shape.n[rank - 1] : count;
    int64_t                  rows = rank >= 2 ? call->in[0].shape.n[rank - 2] : 1, size = rows * columns;
    const double            *p = call->in[0].data, *g = call->in[1].data, *v = call->in[2].data;
    const double            *scalars = call->in[4].data, coefficient = ((const double *)call->in[5].data)[1];
    double                  *new_p = call->out[0].data, *new_v = call->out[1].data, squares = 0;
    double                   rate = scalars[TM_SCALAR_LEARNING_RATE], share = scalars[TM_SCALAR_SHARE];
    double                   alpha = fmax(attr->eps2, rms(p, count)) * scalars[TM_SCALAR_RELATIVE_STEP];
    for (int64_t m = 0; call->out[2].data && m < count / size; m++) update_means(call, m, rows, columns, share);
    for (int64_t i = 0; !call->out[2].data && i < count; i++)
        new_v[i] = v[i] + share * (g[i] * g[i] * coefficient * coefficient - v[i]);
    for (int pass = 0; pass < 2; pass++) { /* the mean square of u; then the update */
        double step = alpha / fmax(1, sqrt(squares / (double)count) / attr->clip_threshold), mean = 0;
        for (int64_t i = 0; i < count; i++) {
            if (call->out[2].data && i % size == 0) {
                mean = 0;
                for (int64_t k = 0; k < rows; k++) mean += new_v[i / size * rows + k] / (double)rows;
            }
            double u =
                g[i] * coefficient / sqrt(fmax(variance_at(call, i, rows, columns, mean), attr->eps1 * attr->eps1));
            if (pass == 0) squares += u * u;
            if (pass == 1) new_p[i] = p[i] - rate * attr->weight_decay * p[i] - step * u;
        }
    }
}

/* Everything hangs on sums over rows, columns or the whole tensor. */
static tm_rounding adafactor_rounding(const tm_call *call, int k)
{
    (void)k;
    int rank = call->in[0].shape.rank;
    return (tm_rounding){ .terms =
                              rank < 2 ? 1024 : (double)(call->in[0].shape.n[rank - 1] + call->in[0].shape.n[rank - 2]),
                          .stores = 1 };
}

static bool adafactor_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } },     { 2, { 3, 7 } },     { 1, { 9 } },        { 2, { 65, 17 } },
                                      { 1, { 1030 } },  { 3, { 2, 5, 13 } }, { 2, { 200, 65 } },  { 2, { 1, 1030 } },
                                      { 1, { 40001 } }, { 2, { 1030, 1 } },  { 3, { 3, 70, 16 } } };
    static const tm_adafactor_attr attrs[] = {
        { .eps1 = 1e-7, .eps2 = 1e-3, .clip_threshold = 1, .weight_decay = 0 },
        { .eps1 = 1e-3, .eps2 = 2, .clip_threshold = 0.5, .weight_decay = 0.1 }
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape of = cases[k], row = of, column = of;
    if (of.rank >= 2) {
        column.n[of.rank - 2] = of.n[of.rank - 1];
        row.rank--, column.rank--;
    }
    tm_example_begin(example, &attrs[k % 2], sizeof attrs[0]);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, of, 0, 1);
    tm_example_in(example, 1, TM_ROLE_GRADIENT, of, 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATISTIC, row, 1, 0.1);
    if (of.rank >= 2) tm_example_in(example, 3, TM_ROLE_STATISTIC, column, 1, 0.1);
    tm_example_in(example, 4, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.05);
    tm_example_in(example, 5, TM_ROLE_SCALAR, tm_shape_1(2), 0.7, 0.1);
    example->out[0] = of;
    example->out[1] = row;
    if (of.rank >= 2) example->out[2] = column;
    return true;
}

const tm_op tm_op_adafactor = {
    .name = "adafactor",
    .formula = "r += s (mean_j (c g)^2 - r), q += s (mean_i (c g)^2 - q), u = c g / sqrt(r q / mean r); p -= lr wd p + "
               "max(eps2, rms p) rho / max(1, rms(u) / d) u",
    .group = "optimizer",
    .n_in = 6,
    .n_out = 3,
    .optional_in = 1U << 3,
    .optional_out = 1U << 2,
    .out_role = { TM_ROLE_PARAMETER, TM_ROLE_STATISTIC, TM_ROLE_STATISTIC },
    .infer = adafactor_infer,
    .reference = adafactor_reference,
    .cost = tm_cost_moved,
    .vector = 22,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2 | 1U << 3,
    .example = adafactor_example,
    .rounding = adafactor_rounding,
    .in_name = { "p (...)", "g (...)", "r (...)", "[q (...)]", "scalars (8)", "clip (2)" },
    .out_name = { "p (...)", "r (...)", "[q (...)]" },
    .attributes = "eps1, eps2, clip_threshold, weight_decay, rounding",
};
