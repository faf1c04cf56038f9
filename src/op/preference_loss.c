/* SPDX-License-Identifier: Apache-2.0 */
/* op/preference_loss.c - of two answers to a prompt the chosen one is to become likelier against a reference than the
 * rejected one (DPO: Rafailov et al. 2023, eq. 7; label smoothing: Mitchell 2023; hinge: Zhao et al. 2023, SLiC; ipo:
 * Azar et al. 2024, eq. 17, with means over tokens in the place of sums; robust: Chowdhury et al. 2024; exo: Ji et al.
 * 2024, eq. 16; nca: Chen et al. 2024; bco: Jung et al. 2024; sppo: Wu et al. 2024, eq. 4.7 with hard probabilities;
 * apo: D'Oosterlinck et al. 2024, eqs. 7 and 8). Names and forms are those of TRL.
 *
 *   A sample of T rows holds sequences: rows with the same first_key, one after another. They come in pairs, the chosen
 *   one first; a last one without a partner is what is left of a sample. Rows without a target count nowhere, and a
 * pair without any target is none.
 *
 *   D    = sum over the rows of a sequence of reference_n - losses_n: by how much its log-probability is above the
 *          reference's, whose losses are 0 without one
 *   c, r = D(chosen), D(rejected);  ipo, sigmoid_norm: each divided by the number of its targets;  z = c - r
 *   l(x) = ln(1 + exp(-x)), g(x) = 1 / (1 + exp(-x)), b: beta, e: label smoothing
 *   f    = (1 - e) l(b z) + e l(-b z)                                          sigmoid, sigmoid_norm (e = 0)
 *          max(0, 1 - b z)                                                     hinge
 *          (z - 1 / (2 b))^2                                                   ipo
 *          ((1 - e) l(b z) - e l(-b z)) / (1 - 2 e)                            robust
 *          g(b z) (-l(b z) - ln(1 - e)) + g(-b z) (-l(-b z) - ln e)            exo_pair
 *          l(b c) + l(-b c) / 2 + l(-b r) / 2                                  nca_pair
 *          l(b c) + l(-b r)                                                    bco_pair
 *          (c - 1 / (2 b))^2 + (r + 1 / (2 b))^2                               sppo_hard
 *          1 - g(b c) + g(b r)                                                 apo_zero
 *          g(b c) + 1 - g(b z)                                                 apo_down
 *   loss = sum over pairs of f
 *   dlosses_n = -s df/dc of the chosen, -s df/dr of the rejected rows;  ipo, sigmoid_norm: divided by the targets
 *
 * Ranks that have parts of sequences gather the rows first; all compute the same loss, of which each counts 1 / ranks:
 * what flows back to a row is then the sum of what the ranks have for it.
 *
 * s is scalars[TM_SCALAR_LOSS_SCALE]; one over the number of pairs makes the mean of it. tm_preferred: what `record`
 * is. losses (N), targets (N), first_key (N), [reference (N)] -> loss (), record (6)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/preference.h"
#include "op/describe.h"

#include <math.h>
#include <string.h>

int64_t tm_preference_named(const char *name)
{
    static const char *const names[TM_PREFERENCE_KINDS] = { "sigmoid",  "hinge",    "ipo",         "robust",
                                                            "exo_pair", "nca_pair", "bco_pair",    "sppo_hard",
                                                            "apo_zero", "apo_down", "sigmoid_norm" };
    for (int64_t kind = 0; kind < TM_PREFERENCE_KINDS; kind++)
        if (strcmp(names[kind], name) == 0) return kind;
    return -1;
}

bool tm_preference_smooths(int64_t kind)
{
    return kind == TM_PREFERENCE_SIGMOID || kind == TM_PREFERENCE_ROBUST || kind == TM_PREFERENCE_EXO;
}

static const char *preference_check(const tm_shape *in, const tm_preference_attr *attr)
{
    if (in[0].rank != 1) return "the losses must have one axis (rows)";
    if (attr->seq < 1 || in[0].n[0] % attr->seq != 0) return "the rows must be a multiple of the sample's length";
    if (!(attr->beta > 0)) return "beta must be positive";
    if (attr->ranks > 1 && attr->chunk * 2 * attr->ranks != attr->seq) return "samples must be two chunks of each rank";
    if (!tm_shape_is_vector(in[1], in[0].n[0])) return "there must be one target per row";
    if (!tm_shape_is_vector(in[2], in[0].n[0])) return "there must be one first key per row";
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], in[0].n[0]))
        return "there must be one loss of the reference per row";
    return NULL;
}

static const char *preference_loss_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = preference_check(in, attr))) return why;
    if ((why = tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar"))) return why;
    return tm_shape_fit(&out[1], tm_shape_1(TM_PREFERRED_COUNT), "there must be six numbers in the record");
}

/* Rows begin .. end - 1. */
typedef struct {
    int64_t begin, end, targets;
    double  above, logp; /* D; minus the sum of the losses */
} sequence;

/* The one that begins at row `at`, at most up to row `limit`. */
static sequence sequence_at(const tm_call *call, int64_t at, int64_t limit)
{
    const double  *losses = call->in[0].data, *reference = call->in[3].data;
    const int32_t *targets = call->in[1].data, *first_key = call->in[2].data;
    sequence       s = { .begin = at };
    const int64_t  rows = call->in[0].shape.n[0], first = tm_preference_row(call->attr, rows, at);
    int64_t        n = at;
    for (; n < limit; n++) {
        const int64_t row = tm_preference_row(call->attr, rows, n);
        if (first_key[row] != first_key[first]) break;
        if (targets[row] == TM_IGNORED_TARGET) continue;
        s.targets++;
        s.logp -= losses[row];
        s.above += (reference ? reference[row] : 0) - losses[row];
    }
    s.end = n;
    return s;
}

/* The pair from row *at on, which moves behind it; false: the sample that ends at `limit` has no more. */
static bool next_pair(const tm_call *call, int64_t *at, int64_t limit, sequence pair[2])
{
    while (*at < limit) {
        pair[0] = sequence_at(call, *at, limit);
        *at = pair[0].end;
        if (*at == limit) return false;
        pair[1] = sequence_at(call, *at, limit);
        *at = pair[1].end;
        if (pair[0].targets + pair[1].targets > 0) return true;
    }
    return false;
}

/* What D is multiplied with in c and r. */
static double share_of(const tm_preference_attr *attr, const sequence *s)
{
    bool means = attr->kind == TM_PREFERENCE_IPO || attr->kind == TM_PREFERENCE_SIGMOID_NORM;
    return means && s->targets > 0 ? 1 / (double)s->targets : 1;
}

/* ln(1 + exp(x)) */
static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

static double loss_of(const tm_preference_attr *attr, const sequence pair[2])
{
    const double c = pair[0].above * share_of(attr, &pair[0]), r = pair[1].above * share_of(attr, &pair[1]);
    const double b = attr->beta, e = attr->label_smoothing, u = b * (c - r), half = 0.5 / b;
    switch (attr->kind) {
    case TM_PREFERENCE_SIGMOID:
    case TM_PREFERENCE_SIGMOID_NORM:
        return (1 - e) * softplus(-u) + e * softplus(u);
    case TM_PREFERENCE_HINGE:
        return fmax(0, 1 - u);
    case TM_PREFERENCE_IPO:
        return (c - r - half) * (c - r - half);
    case TM_PREFERENCE_ROBUST:
        return ((1 - e) * softplus(-u) - e * softplus(u)) / (1 - 2 * e);
    case TM_PREFERENCE_EXO:
        return logistic(u) * (-softplus(-u) - log1p(-e)) + logistic(-u) * (-softplus(u) - log(e));
    case TM_PREFERENCE_NCA:
        return softplus(-b * c) + 0.5 * softplus(b * c) + 0.5 * softplus(b * r);
    case TM_PREFERENCE_BCO:
        return softplus(-b * c) + softplus(b * r);
    case TM_PREFERENCE_SPPO:
        return (c - half) * (c - half) + (r + half) * (r + half);
    case TM_PREFERENCE_APO_ZERO:
        return 1 - logistic(b * c) + logistic(b * r);
    case TM_PREFERENCE_APO_DOWN:
        return logistic(b * c) + 1 - logistic(u);
    default:
        TM_ASSERT(!"a loss that is not known");
        return 0;
    }
}

/* slope[0]: df/dc, slope[1]: df/dr */
static void slopes_of(const tm_preference_attr *attr, const sequence pair[2], double slope[2])
{
    const double c = pair[0].above * share_of(attr, &pair[0]), r = pair[1].above * share_of(attr, &pair[1]);
    const double b = attr->beta, e = attr->label_smoothing, u = b * (c - r), half = 0.5 / b;
    const double of_c = logistic(b * c), of_r = logistic(b * r), g = logistic(u);
    double       z = 0; /* df/dz, where f depends on z only */
    slope[0] = slope[1] = 0;
    switch (attr->kind) {
    case TM_PREFERENCE_SIGMOID:
    case TM_PREFERENCE_SIGMOID_NORM:
        z = b * (e * g - (1 - e) * logistic(-u));
        break;
    case TM_PREFERENCE_HINGE:
        z = u < 1 ? -b : 0;
        break;
    case TM_PREFERENCE_IPO:
        z = 2 * (c - r - half);
        break;
    case TM_PREFERENCE_ROBUST:
        z = -b * ((1 - e) * logistic(-u) + e * g) / (1 - 2 * e);
        break;
    case TM_PREFERENCE_EXO: /* d/du of g (ln g - ln(1 - e)) + (1 - g) (ln(1 - g) - ln e) = g (1 - g) (u - ln((1 - e) /
                               e)) */
        z = b * g * logistic(-u) * (u - log1p(-e) + log(e));
        break;
    case TM_PREFERENCE_NCA:
        slope[0] = b * (1.5 * of_c - 1);
        slope[1] = 0.5 * b * of_r;
        break;
    case TM_PREFERENCE_BCO:
        slope[0] = b * (of_c - 1);
        slope[1] = b * of_r;
        break;
    case TM_PREFERENCE_SPPO:
        slope[0] = 2 * (c - half);
        slope[1] = 2 * (r + half);
        break;
    case TM_PREFERENCE_APO_ZERO:
        slope[0] = -b * of_c * logistic(-b * c);
        slope[1] = b * of_r * logistic(-b * r);
        break;
    case TM_PREFERENCE_APO_DOWN:
        z = -b * g * logistic(-u);
        slope[0] = b * of_c * logistic(-b * c);
        break;
    default:
        TM_ASSERT(!"a loss that is not known");
    }
    slope[0] += z;
    slope[1] -= z;
}

static void preference_loss_reference(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    double                   *loss = tm_call_sums(call, 0), *record = tm_call_sums(call, 1);
    const double              share = tm_preference_share(attr);
    sequence                  pair[2];
    for (int64_t from = 0; from < call->in[0].shape.n[0]; from += attr->seq)
        for (int64_t at = from; next_pair(call, &at, from + attr->seq, pair);) {
            *loss += share * loss_of(attr, pair);
            record[TM_PREFERRED_CHOSEN] += share * attr->beta * pair[0].above;
            record[TM_PREFERRED_REJECTED] += share * attr->beta * pair[1].above;
            record[TM_PREFERRED_RIGHT] += pair[0].above > pair[1].above ? share : 0;
            record[TM_PREFERRED_LOGPS_CHOSEN] += share * pair[0].logp;
            record[TM_PREFERRED_LOGPS_REJECTED] += share * pair[1].logp;
            record[TM_PREFERRED_PAIRS] += share;
        }
}

static void preference_loss_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id losses = node->in[0], scalars = tm_gradient_of(gradient, node->out[0]);
    if (scalars == TM_NONE || !tm_gradient_wanted(gradient, losses)) return;
    tm_tensor_id in[TM_MAX_IN] = { losses, node->in[1], node->in[2], node->in[3], scalars };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_preference_loss_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, losses, out[0]);
}

/* keys: first keys are below it, so runs of one or several rows are sequences */
static const struct {
    int64_t rows, seq, keys, ignored_every, kind;
    double  beta, label_smoothing;
    bool    reference;
    int64_t ranks;
} cases[] = {
    { 2, 2, 1 << 20, 0, TM_PREFERENCE_SIGMOID, 0.5, 0, true, 1 },
    { 24, 12, 2, 4, TM_PREFERENCE_SIGMOID, 0.3, 0.1, true, 1 },
    { 35, 7, 2, 0, TM_PREFERENCE_HINGE, 0.2, 0, true, 1 },
    { 39, 13, 2, 5, TM_PREFERENCE_IPO, 0.25, 0, true, 1 },
    { 130, 130, 2, 3, TM_PREFERENCE_SIGMOID, 0.1, 0.3, false, 1 },
    { 6, 3, 2, 1, TM_PREFERENCE_SIGMOID, 0.1, 0, true, 1 }, /* no row counts */
    { 128, 64, 3, 7, TM_PREFERENCE_IPO, 0.4, 0, false, 1 },
    { 24, 12, 2, 4, TM_PREFERENCE_ROBUST, 0.3, 0.1, true, 1 },
    { 26, 13, 2, 5, TM_PREFERENCE_EXO, 0.4, 0.05, true, 1 },
    { 24, 8, 2, 3, TM_PREFERENCE_NCA, 0.3, 0, true, 1 },
    { 35, 7, 2, 4, TM_PREFERENCE_BCO, 0.5, 0, true, 1 },
    { 24, 12, 2, 0, TM_PREFERENCE_SPPO, 0.4, 0, true, 1 },
    { 39, 13, 2, 5, TM_PREFERENCE_APO_ZERO, 0.6, 0, true, 1 },
    { 36, 9, 2, 4, TM_PREFERENCE_APO_DOWN, 0.7, 0, true, 1 },
    { 40, 10, 2, 3, TM_PREFERENCE_SIGMOID_NORM, 0.9, 0, true, 1 },
    { 48, 24, 2, 5, TM_PREFERENCE_SIGMOID, 0.3, 0.1, true, 2 },
    { 48, 16, 2, 3, TM_PREFERENCE_IPO, 0.4, 0, true, 4 },
};

static bool preference_loss_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_preference_attr attr = {
        .seq = cases[k].seq, .kind = cases[k].kind, .beta = cases[k].beta, .label_smoothing = cases[k].label_smoothing
    };
    if (cases[k].ranks > 1) attr.ranks = cases[k].ranks, attr.chunk = attr.seq / (2 * attr.ranks);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_1(cases[k].rows), 2, 0.5);
    tm_example_int(example, 1, tm_shape_1(cases[k].rows), 1 << 20);
    tm_example_int(example, 2, tm_shape_1(cases[k].rows), cases[k].keys);
    example->ignored_every = cases[k].ignored_every;
    if (cases[k].reference) tm_example_in(example, 3, TM_ROLE_CONSTANT, tm_shape_1(cases[k].rows), 2, 0.5);
    return true;
}

const tm_op tm_op_preference_loss = {
    .name = "preference_loss",
    .formula =
        "loss = sum over pairs of f(c, r), c, r = D(chosen), D(rejected), D = sum of reference - losses, z = c - r; "
        "sigmoid: f = (1 - e) ln(1 + exp(-beta z)) + e ln(1 + exp(beta z)); hinge: max(0, 1 - beta z); ipo: D / "
        "targets, "
        "f = (z - 1 / (2 beta))^2; eight more: op/preference_loss.c",
    .group = "loss",
    .n_in = 4,
    .n_out = 2,
    .optional_in = 1U << 3,
    .out_role = { TM_ROLE_SCALAR, TM_ROLE_SCALAR },
    .infer = preference_loss_infer,
    .reference = preference_loss_reference,
    .gradient = preference_loss_gradient,
    .cost = tm_cost_moved,
    .vector = 3,
    .example = preference_loss_example,
    .rounding = tm_rounding_f64,
    .in_name = { "losses (N)", "targets (N)", "first_key (N)", "[reference (N)]" },
    .out_name = { "loss ()", "record (6)" },
    .attributes = "seq, kind, beta, label_smoothing; ranks, chunk: of parts of sequences",
};

/* in: losses (N), targets (N), first_key (N), [reference (N)], scalars (8); out: dlosses (N) */
static const char *preference_loss_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = preference_check(in, attr))) return why;
    if (!tm_shape_is_vector(in[4], TM_SCALAR_COUNT)) return "there must be eight scalars";
    return tm_shape_fit(&out[0], in[0], "dlosses must have the shape of the losses");
}

static void preference_loss_grad_reference(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    const int32_t            *targets = call->in[1].data;
    double                   *dlosses = call->out[0].data;
    double   scale = tm_preference_share(attr) * ((const double *)call->in[4].data)[TM_SCALAR_LOSS_SCALE];
    int64_t  rows = call->in[0].shape.n[0];
    sequence pair[2];
    for (int64_t n = 0; n < rows; n++) dlosses[n] = 0;
    for (int64_t from = 0; from < rows; from += attr->seq)
        for (int64_t at = from; next_pair(call, &at, from + attr->seq, pair);) {
            double slope[2];
            slopes_of(attr, pair, slope);
            for (int64_t n = pair[0].begin; n < pair[1].end; n++) {
                const int     rejected = n >= pair[1].begin;
                const int64_t row = tm_preference_row(attr, rows, n);
                if (targets[row] != TM_IGNORED_TARGET)
                    dlosses[row] = -scale * slope[rejected] * share_of(attr, &pair[rejected]);
            }
        }
}

static bool preference_loss_grad_example(int k, tm_example *example)
{
    if (!preference_loss_example(k, example)) return false;
    tm_example_in(example, 4, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    return true;
}

const tm_op tm_op_preference_loss_grad = {
    .name = "preference_loss_grad",
    .formula = "dlosses[n] = -s df/dc of chosen, -s df/dr of rejected rows; ipo, sigmoid_norm: / targets",
    .group = "loss",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1U << 3,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = preference_loss_grad_infer,
    .reference = preference_loss_grad_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .example = preference_loss_grad_example,
    .in_name = { "losses (N)", "targets (N)", "first_key (N)", "[reference (N)]", "scalars (8)" },
    .out_name = { "dlosses (N)" },
    .attributes = "seq, kind, beta, label_smoothing; ranks, chunk: of parts of sequences",
};
