/* SPDX-License-Identifier: Apache-2.0 */
/* op/linear_cross_entropy.c - the output layer and the cross entropy of its softmax in one op, so that the logits exist
 * for `chunk` rows at a time only.
 *
 *   z_nv = <x_n, w_v> + scale <u_n, b_v>,  p_nv = exp(z_nv) / sum_u exp(z_nu)
 *   loss = sum over rows with a target of -ln p_n,target      (a sum: the cotangent's scale makes it a mean)
 *   dz_nv = s (p_nv - [v = target_n]), 0 for rows without a target;  dx = dz w,  dw = dz^T x
 *   du = scale dz b,  db = scale dz^T u
 *
 * u and b, of few columns, are those of an adapter of the output layer (op/low_rank.c).
 *
 * x (N, C), w (V, C), targets (N), [u (N, r)], [b (V, r)]
 *   -> loss (), logits (chunk, V) scratch, [losses (N): of each row]
 *
 * linear_token_losses leaves the losses of the rows apart, for losses of whole sequences: losses (N), and its gradient
 * has a cotangent for each row in the place of s. It takes no adapter.
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

/* `u`: the number of that input, b follows; 0: the op takes none. */
static const char *loss_check(const tm_shape *in, int u, const void *attr_)
{
    const tm_loss_attr *attr = attr_;
    if (attr->chunk < 1) return "the rows of a chunk must be positive";
    if (in[0].rank != 2) return "x must have two axes (rows, channels)";
    if (in[1].rank != 2) return "the weight must have two axes (vocabulary, channels)";
    if (in[1].n[1] != in[0].n[1]) return "the second axes of x and of the weight differ";
    if (!tm_shape_is_vector(in[2], in[0].n[0])) return "there must be one target per row of x";
    if (u == 0) return NULL;
    if (tm_shape_present(in[u]) != tm_shape_present(in[u + 1])) return "u and b are of use together only";
    if (!tm_shape_present(in[u])) return NULL;
    if (in[u].rank != 2 || in[u].n[0] != in[0].n[0]) return "u must have two axes (rows of x, rank)";
    if (!tm_shape_is_matrix(in[u + 1], in[1].n[0], in[u].n[1])) return "b must have the shape (vocabulary, rank)";
    return NULL;
}

static const char *linear_cross_entropy_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = loss_check(in, 3, attr))) return why;
    if ((why = tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar"))) return why;
    if ((why = tm_shape_fit(&out[1], tm_shape_2(((const tm_loss_attr *)attr)->chunk, in[1].n[0]),
                            "the logits must have the shape (chunk, vocabulary)")))
        return why;
    return tm_shape_fit_optional(&out[2], tm_shape_1(in[0].n[0]), "there must be one loss per row of x");
}

/* Logits of row n, in its row of the chunk; ln of the sum of their exponentials goes to *lse. */
static const double *logits_of(const tm_call *call, int64_t n, int in_u, const tm_view *logits, double *lse)
{
    const tm_loss_attr *attr = call->attr;
    const tm_view      *u = &call->in[in_u], *b = &call->in[in_u + 1];
    int64_t             rank = in_u > 0 && tm_view_present(u) ? u->shape.n[1] : 0;
    int64_t             channels = call->in[0].shape.n[1], vocabulary = call->in[1].shape.n[0];
    const double       *x = (const double *)call->in[0].data + n * channels, *w = call->in[1].data;
    double             *z = (double *)logits->data + n % attr->chunk * vocabulary, max = -HUGE_VAL, sum = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        z[v] = 0;
        for (int64_t c = 0; c < channels; c++) z[v] += x[c] * w[v * channels + c];
        for (int64_t r = 0; r < rank; r++) z[v] += attr->scale * tm_view_row(u, n)[r] * tm_view_row(b, v)[r];
        max = fmax(max, z[v]);
    }
    for (int64_t v = 0; v < vocabulary; v++) sum += exp(z[v] - max);
    *lse = max + log(sum);
    return z;
}

static void linear_cross_entropy_reference(const tm_call *call)
{
    int64_t        rows = call->in[0].shape.n[0], vocabulary = call->in[1].shape.n[0];
    const int32_t *targets = call->in[2].data;
    double        *loss = tm_call_sums(call, 0), *losses = tm_call_sums(call, 2);
    for (int64_t n = 0; n < rows; n++) {
        double lse;
        if (targets[n] == TM_IGNORED_TARGET) continue;
        TM_ASSERT(targets[n] >= 0 && targets[n] < vocabulary);
        const double *z = logits_of(call, n, 3, &call->out[1], &lse);
        const double  row = lse - z[targets[n]];
        *loss += row;
        if (losses) losses[n] += row;
    }
}

static void linear_cross_entropy_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], u = node->in[3], b = node->in[4];
    tm_tensor_id loss = node->out[0], logits = node->out[1];
    tm_tensor_id scalars = tm_gradient_of(gradient, loss);
    unsigned     accumulate = node->accumulate & 1U;
    if (scalars == TM_NONE) return;
    bool         wanted = tm_gradient_wanted(gradient, x);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 2, &accumulate);
    tm_tensor_id db = tm_gradient_parameter(gradient, b, 5, &accumulate);
    if (!wanted && dw == TM_NONE && u == TM_NONE) return;
    tm_tensor_id in[TM_MAX_IN] = { x, w, node->in[2], scalars, u, b };
    tm_tensor_id out[TM_MAX_OUT] = { loss, TM_NONE, dw, logits, TM_NONE, db };
    tm_loss_attr attr = *(const tm_loss_attr *)node->attr;
    attr.no_dx = !wanted;
    tm_gradient_emit(gradient, TM_OP_linear_cross_entropy_grad, &attr, sizeof attr, in, out, accumulate);
    tm_gradient_replaces_forward(gradient);
    if (wanted) tm_gradient_add(gradient, x, out[1]);
    if (u != TM_NONE) tm_gradient_add(gradient, u, out[4]);
}

/* Multiply-adds of one product with the output layer. Rows without a target are counted: the worst case. */
static double loss_product(const tm_call *call)
{
    return (double)call->in[0].shape.n[0] * (double)call->in[0].shape.n[1] * (double)call->in[1].shape.n[0];
}

/* Of one with u or b; 0 without. */
static double rank_product(const tm_call *call, int in_u)
{
    if (!tm_view_present(&call->in[in_u])) return 0;
    return (double)call->in[0].shape.n[0] * (double)call->in[in_u].shape.n[1] * (double)call->in[1].shape.n[0];
}

static double loss_logits(const tm_call *call)
{
    return (double)call->in[0].shape.n[0] * (double)call->in[1].shape.n[0];
}

/* The logits are scratch of the kernel, no operand. */
static tm_cost linear_cross_entropy_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 2 * (loss_product(call) + rank_product(call, 3)));
    cost.bytes -= tm_view_bytes(&call->out[1]);
    cost.vector = 4 * loss_logits(call); /* largest, minus it, exp, sum */
    return cost;
}

/* The logits, the sum of their exponentials; then the sum over rows. */
static tm_rounding linear_cross_entropy_rounding(const tm_call *call, int k)
{
    int64_t rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1], vocabulary = call->in[1].shape.n[0];
    return (tm_rounding){ .terms = (double)(channels + 2 * vocabulary + (k == 0 ? rows : 0)), .stores = 1 };
}

/* And a sum over rows (dw: added to once per chunk) or classes (dx). */
static tm_rounding linear_cross_entropy_grad_rounding(const tm_call *call, int k)
{
    int64_t rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1], vocabulary = call->in[1].shape.n[0];
    int64_t chunk = ((const tm_loss_attr *)call->attr)->chunk;
    return (tm_rounding){ .terms = (double)(channels + 2 * vocabulary + rows),
                          .stores = k == 2 || k == 5 ? (double)((rows + chunk - 1) / chunk) : 1,
                          .narrow = k > 0 };
}

static const struct {
    int64_t rows, channels, vocabulary, chunk, ignored_every;
    bool    dw;
    int64_t rank; /* > 0: with u and b */
} cases[] = { { 1, 1, 2, 1, 0, true, 0 },       { 3, 7, 9, 2, 0, true, 0 },
              { 9, 8, 7, 3, 4, true, 0 },       { 8, 3, 65, 8, 2, false, 0 },
              { 65, 9, 33, 16, 7, true, 0 },    { 7, 33, 130, 5, 3, true, 0 },
              { 70, 5, 11, 64, 0, true, 0 },    { 5, 600, 17, 4, 5, true, 0 },
              { 3, 4, 5, 2, 1, true, 0 }, /* no row counts */
              { 9, 8, 16, 100, 5, true, 0 },    { 13, 9, 1025, 6, 5, true, 0 },
              { 6, 5, 2063, 4, 5, false, 0 },   { 5, 3, 1024, 5, 0, true, 0 },
              { 40, 16, 64, 16, 5, true, 0 },   { 100, 20, 31, 1000, 5, true, 0 },
              { 150, 70, 517, 64, 5, true, 0 }, { 3, 4, 9, 2, 0, false, 1 },
              { 70, 33, 130, 64, 5, false, 5 }, { 9, 8, 517, 4, 3, true, 16 },
              { 6, 5, 7, 4, 0, true, 0 } /* no dx: the last */ };

/* `u`: the number of that input. */
static void add_adapter(int k, int u, tm_example *example)
{
    if (cases[k].rank == 0) return;
    tm_example_in(example, u, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].rank), 0, 1);
    tm_example_in(example, u + 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].vocabulary, cases[k].rank), 0, 0.5);
    ((tm_loss_attr *)(void *)example->attr)->scale = 0.7;
}

static bool example_of(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_loss_attr){ .chunk = cases[k].chunk }, sizeof(tm_loss_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].vocabulary, cases[k].channels), 0,
                  1 / sqrt((double)cases[k].channels));
    tm_example_int(example, 2, tm_shape_1(cases[k].rows), cases[k].vocabulary);
    example->ignored_every = cases[k].ignored_every;
    return true;
}

static bool linear_cross_entropy_example(int k, tm_example *example)
{
    if (!example_of(k, example)) return false;
    add_adapter(k, 3, example);
    if (k % 2 == 1) example->out[2] = tm_shape_1(cases[k].rows);
    return true;
}

const tm_op tm_op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .formula = "loss = sum over rows with a target of (ln sum exp(z) - z[target]), z = x w^T + scale u b^T",
    .group = "loss",
    .n_in = 5,
    .n_out = 3,
    .optional_in = 1U << 3 | 1U << 4,
    .optional_out = 1U << 2,
    .out_role = { TM_ROLE_SCALAR, TM_ROLE_LOGITS, TM_ROLE_SCALAR },
    .infer = linear_cross_entropy_infer,
    .reference = linear_cross_entropy_reference,
    .gradient = linear_cross_entropy_gradient,
    .cost = linear_cross_entropy_cost,
    .example = linear_cross_entropy_example,
    .rounding = linear_cross_entropy_rounding,
    .in_name = { "x (N, C)", "w (V, C)", "targets (N)", "[u (N, r)]", "[b (V, r)]" },
    .out_name = { "loss ()", "logits (chunk, V)", "[losses (N)]" },
    .attributes = "chunk, scale",
};

/* in: x (N, C), w (V, C), targets (N), scalars (8), [u (N, r)], [b (V, r)];
 * out: loss (), [dx (N, C)], [dw (V, C)], logits (chunk, V) scratch, [du (N, r)], [db (V, r)] */
static const char *linear_cross_entropy_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = loss_check(in, 4, attr))) return why;
    if (!tm_shape_is_vector(in[3], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if ((why = tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar"))) return why;
    if (((const tm_loss_attr *)attr)->no_dx) {
        if (tm_shape_present(out[1])) return "there is no dx where none is wanted";
    } else if ((why = tm_shape_fit(&out[1], in[0], "dx must have the shape of x"))) {
        return why;
    }
    if ((why = tm_shape_fit_optional(&out[2], in[1], "dw must have the shape of the weight"))) return why;
    if ((why = tm_shape_fit(&out[3], tm_shape_2(((const tm_loss_attr *)attr)->chunk, in[1].n[0]),
                            "the logits must have the shape (chunk, vocabulary)")))
        return why;
    if (!tm_shape_present(in[4]))
        return tm_shape_present(out[4]) || tm_shape_present(out[5]) ? "there are no gradients of what is not there"
                                                                    : NULL;
    if ((why = tm_shape_fit(&out[4], in[4], "du must have the shape of u"))) return why;
    return tm_shape_fit_optional(&out[5], in[5], "db must have the shape of b");
}

/* dz of row n and class v into du and db. */
static void add_low_rank(const tm_call *call, int64_t n, int64_t v, double dz, double *du, double *db)
{
    const tm_view *u = &call->in[4], *b = &call->in[5];
    int64_t        rank = tm_view_present(u) ? u->shape.n[1] : 0;
    double         scaled = ((const tm_loss_attr *)call->attr)->scale * dz;
    for (int64_t r = 0; r < rank; r++) {
        du[n * rank + r] += scaled * tm_view_row(b, v)[r];
        if (db) db[v * rank + r] += scaled * tm_view_row(u, n)[r];
    }
}

static void linear_cross_entropy_grad_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1], vocabulary = call->in[1].shape.n[0];
    const double *w = call->in[1].data, scale = ((const double *)call->in[3].data)[TM_SCALAR_LOSS_SCALE];
    const int32_t *targets = call->in[2].data;
    double        *loss = tm_call_sums(call, 0), *dx = tm_call_sums(call, 1), *dw = tm_call_sums(call, 2);
    double        *du = tm_call_sums(call, 4), *db = tm_call_sums(call, 5);
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * channels;
        double        lse;
        if (targets[n] == TM_IGNORED_TARGET) continue;
        TM_ASSERT(targets[n] >= 0 && targets[n] < vocabulary);
        const double *z = logits_of(call, n, 4, &call->out[3], &lse);
        *loss += lse - z[targets[n]];
        for (int64_t v = 0; v < vocabulary; v++) {
            double dz = scale * (exp(z[v] - lse) - (v == targets[n] ? 1 : 0));
            for (int64_t c = 0; c < channels; c++) {
                if (dx) dx[n * channels + c] += dz * w[v * channels + c];
                if (dw) dw[v * channels + c] += dz * x[c];
            }
            add_low_rank(call, n, v, dz, du, db);
        }
    }
}

static tm_cost linear_cross_entropy_grad_cost(const tm_call *call)
{
    int     products = 1 + tm_view_present(&call->out[1]) + tm_view_present(&call->out[2]); /* logits, dx, dw */
    tm_cost cost = tm_call_cost(call, 2 * (products * loss_product(call) + 3 * rank_product(call, 4)));
    cost.bytes -= tm_view_bytes(&call->out[3]);
    cost.vector = 6 * loss_logits(call); /* and divided by the sum, scaled */
    return cost;
}

static bool linear_cross_entropy_grad_example(int k, tm_example *example)
{
    if (!example_of(k, example)) return false;
    add_adapter(k, 4, example);
    if (cases[k].rank > 0) example->out[5] = example->in[5];
    if (cases[k].rank > 0) example->out[4] = example->in[4];
    tm_example_in(example, 3, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    if (cases[k].dw) example->out[2] = example->in[1];
    if (k < TM_COUNT_OF(cases) - 1)
        example->out[1] = example->in[0];
    else
        ((tm_loss_attr *)(void *)example->attr)->no_dx = 1;
    return true;
}

const tm_op tm_op_linear_cross_entropy_grad = {
    .name = "linear_cross_entropy_grad",
    .formula = "loss as linear_cross_entropy; dz = s (softmax(z) - onehot(target)), dx = dz w, dw = dz^T x, "
               "du = scale dz b, db = scale dz^T u",
    .group = "loss",
    .n_in = 6,
    .n_out = 6,
    .optional_in = 1U << 4 | 1U << 5,
    .optional_out = 1U << 1 | 1U << 2 | 1U << 4 | 1U << 5,
    .out_role = { TM_ROLE_SCALAR, TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT, TM_ROLE_LOGITS, TM_ROLE_ACTIVATION,
                  TM_ROLE_GRADIENT },
    .infer = linear_cross_entropy_grad_infer,
    .reference = linear_cross_entropy_grad_reference,
    .cost = linear_cross_entropy_grad_cost,
    .example = linear_cross_entropy_grad_example,
    .rounding = linear_cross_entropy_grad_rounding,
    .in_name = { "x (N, C)", "w (V, C)", "targets (N)", "scalars (8)", "[u (N, r)]", "[b (V, r)]" },
    .out_name = { "loss ()", "[dx (N, C)]", "[dw (V, C)]", "logits (chunk, V)", "[du (N, r)]", "[db (V, r)]" },
    .attributes = "chunk, scale",
};

/* --- the loss of each row ----------------------------------------------------------------------------------------- */

static const char *linear_token_losses_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = loss_check(in, 0, attr))) return why;
    if ((why = tm_shape_fit(&out[0], tm_shape_1(in[0].n[0]), "there must be one loss per row of x"))) return why;
    return tm_shape_fit(&out[1], tm_shape_2(((const tm_loss_attr *)attr)->chunk, in[1].n[0]),
                        "the logits must have the shape (chunk, vocabulary)");
}

static void linear_token_losses_reference(const tm_call *call)
{
    const int32_t *targets = call->in[2].data;
    double        *losses = call->out[0].data;
    for (int64_t n = 0; n < call->in[0].shape.n[0]; n++) {
        double lse;
        losses[n] = 0;
        if (targets[n] == TM_IGNORED_TARGET) continue;
        TM_ASSERT(targets[n] >= 0 && targets[n] < call->in[1].shape.n[0]);
        const double *z = logits_of(call, n, 0, &call->out[1], &lse);
        losses[n] = lse - z[targets[n]];
    }
}

static void linear_token_losses_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], dlosses = tm_gradient_of(gradient, node->out[0]);
    unsigned     accumulate = 0;
    if (dlosses == TM_NONE) return;
    bool         wanted = tm_gradient_wanted(gradient, x);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 1, &accumulate);
    if (!wanted && dw == TM_NONE) return;
    tm_tensor_id in[TM_MAX_IN] = { x, w, node->in[2], dlosses }, out[TM_MAX_OUT] = { TM_NONE, dw, TM_NONE };
    tm_loss_attr attr = { .chunk = ((const tm_loss_attr *)node->attr)->chunk, .no_dx = !wanted };
    tm_gradient_emit(gradient, TM_OP_linear_token_losses_grad, &attr, sizeof attr, in, out, accumulate);
    if (wanted) tm_gradient_add(gradient, x, out[0]);
}

static tm_cost linear_token_losses_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 2 * loss_product(call));
    cost.bytes -= tm_view_bytes(&call->out[1]);
    cost.vector = 4 * loss_logits(call);
    return cost;
}

static tm_rounding linear_token_losses_rounding(const tm_call *call, int k)
{
    if (call->op == &tm_op_linear_token_losses) return linear_cross_entropy_rounding(call, 0);
    return linear_cross_entropy_grad_rounding(call, k + 1); /* dx and dw are its outputs 1 and 2 */
}

const tm_op tm_op_linear_token_losses = {
    .name = "linear_token_losses",
    .formula = "losses[n] = ln sum exp(z) - z[target], 0 without one, z = x w^T",
    .group = "loss",
    .n_in = 3,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_LOGITS },
    .infer = linear_token_losses_infer,
    .reference = linear_token_losses_reference,
    .gradient = linear_token_losses_gradient,
    .cost = linear_token_losses_cost,
    .example = example_of,
    .rounding = linear_token_losses_rounding,
    .in_name = { "x (N, C)", "w (V, C)", "targets (N)" },
    .out_name = { "losses (N)", "logits (chunk, V)" },
    .attributes = "chunk",
};

/* in: x (N, C), w (V, C), targets (N), dlosses (N); out: [dx (N, C)], [dw (V, C)], logits (chunk, V) scratch */
static const char *linear_token_losses_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = loss_check(in, 0, attr))) return why;
    if (!tm_shape_is_vector(in[3], in[0].n[0])) return "there must be one cotangent per row of x";
    if (((const tm_loss_attr *)attr)->no_dx) {
        if (tm_shape_present(out[0])) return "there is no dx where none is wanted";
    } else if ((why = tm_shape_fit(&out[0], in[0], "dx must have the shape of x"))) {
        return why;
    }
    if ((why = tm_shape_fit_optional(&out[1], in[1], "dw must have the shape of the weight"))) return why;
    return tm_shape_fit(&out[2], tm_shape_2(((const tm_loss_attr *)attr)->chunk, in[1].n[0]),
                        "the logits must have the shape (chunk, vocabulary)");
}

static void linear_token_losses_grad_reference(const tm_call *call)
{
    int64_t        rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1], classes = call->in[1].shape.n[0];
    const double  *w = call->in[1].data, *dlosses = call->in[3].data;
    const int32_t *targets = call->in[2].data;
    double        *dx = tm_call_sums(call, 0), *dw = tm_call_sums(call, 1);
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * channels;
        double        lse;
        if (targets[n] == TM_IGNORED_TARGET) continue;
        TM_ASSERT(targets[n] >= 0 && targets[n] < classes);
        const double *z = logits_of(call, n, 0, &call->out[2], &lse);
        for (int64_t v = 0; v < classes; v++) {
            double dz = dlosses[n] * (exp(z[v] - lse) - (v == targets[n] ? 1 : 0));
            for (int64_t c = 0; c < channels; c++) {
                if (dx) dx[n * channels + c] += dz * w[v * channels + c];
                if (dw) dw[v * channels + c] += dz * x[c];
            }
        }
    }
}

static tm_cost linear_token_losses_grad_cost(const tm_call *call)
{
    int     products = 1 + tm_view_present(&call->out[0]) + tm_view_present(&call->out[1]); /* logits, dx, dw */
    tm_cost cost = tm_call_cost(call, 2 * products * loss_product(call));
    cost.bytes -= tm_view_bytes(&call->out[2]);
    cost.vector = 6 * loss_logits(call);
    return cost;
}

static bool linear_token_losses_grad_example(int k, tm_example *example)
{
    if (!example_of(k, example)) return false;
    tm_example_in(example, 3, TM_ROLE_STATISTIC, tm_shape_1(cases[k].rows), 0, 0.5);
    if (cases[k].dw) example->out[1] = example->in[1];
    if (k < TM_COUNT_OF(cases) - 1)
        example->out[0] = example->in[0];
    else
        ((tm_loss_attr *)(void *)example->attr)->no_dx = 1;
    return true;
}

const tm_op tm_op_linear_token_losses_grad = {
    .name = "linear_token_losses_grad",
    .formula = "dz = dlosses[n] (softmax(z) - onehot(target)), dx = dz w, dw = dz^T x",
    .group = "loss",
    .n_in = 4,
    .n_out = 3,
    .optional_out = 1U << 0 | 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT, TM_ROLE_LOGITS },
    .infer = linear_token_losses_grad_infer,
    .reference = linear_token_losses_grad_reference,
    .cost = linear_token_losses_grad_cost,
    .example = linear_token_losses_grad_example,
    .rounding = linear_token_losses_rounding,
    .in_name = { "x (N, C)", "w (V, C)", "targets (N)", "dlosses (N)" },
    .out_name = { "[dx (N, C)]", "[dw (V, C)]", "logits (chunk, V)" },
    .attributes = "chunk",
};
