/* SPDX-License-Identifier: Apache-2.0 */
/* op/route.c - which experts a row is sent to, and with what weight (mixture of experts).
 *
 *   s     = softmax(logits) over all experts, or sigmoid(logits)
 *   ids   = the k experts of the largest s + bias (Wang et al. 2024: the bias decides and weighs nothing), falling; of
 *           equal ones the lowest
 *   w_j   = scale s_ids(j), or, normalised, scale s_ids(j) / (sum of the k chosen + 1e-20)
 *   ds_e  = scale dw_j, or scale (dw_j - sum_i dw_i s_i / S) / S, of the chosen e = ids(j), and what reached s itself
 *   dlogits = s (ds - sum ds s), or ds s (1 - s)                     (the choice has no gradient)
 *
 * The weights of a softmax over the chosen alone (Mixtral, gpt-oss) are those of the softmax over all, normalised.
 * Groups (DeepSeek): the experts stand in `groups` runs of equal length; only those of the `top_groups` runs with the
 * largest sum of their `group_best` largest s + bias can be chosen.
 * uniform: row t, slot j goes to expert (t k + j) mod E whatever the logits are: perfect balance, for measuring
 * throughput.
 *
 * logits (N, E), [bias (E)] -> weights (N, k), ids (N, k) int32, scores (N, E)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <stdlib.h>

static const char *route_check(int64_t experts, const tm_route_attr *attr)
{
    if (attr->top_k < 1 || attr->top_k > experts) return "a row is sent to at least one expert and at most to all";
    if (experts > TM_MAX_EXPERTS) return "there are at most 1024 experts";
    if (attr->groups < 0 || attr->group_best < 0 || attr->top_groups < 0) return "groups cannot be negative";
    if (attr->groups <= 1) return NULL;
    if (experts % attr->groups != 0) return "the experts must be a multiple of the groups";
    if (attr->group_best < 1 || attr->group_best > experts / attr->groups)
        return "the score of a group is that of one of its experts at least and of all at most";
    if (attr->top_groups < 1 || attr->top_groups > attr->groups) return "one group at least is left, all at most";
    if (attr->top_groups * (experts / attr->groups) < attr->top_k) return "fewer experts are left than are chosen";
    return NULL;
}

static const char *route_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_route_attr *attr = attr_;
    const char          *why;
    if (in[0].rank != 2) return "the logits must have two axes (rows, experts)";
    if ((why = route_check(in[0].n[1], attr))) return why;
    if (tm_shape_present(in[1]) && !tm_shape_is_vector(in[1], in[0].n[1]))
        return "the bias must have one value per expert";
    tm_shape chosen = tm_shape_2(in[0].n[0], attr->top_k);
    if ((why = tm_shape_fit(&out[0], chosen, "the weights must have the shape (rows, top_k)"))) return why;
    if ((why = tm_shape_fit(&out[1], chosen, "the ids must have the shape (rows, top_k)"))) return why;
    return tm_shape_fit(&out[2], in[0], "the scores must have the shape of the logits");
}

static void scores_of(const double *logits, int64_t experts, int64_t score, double *s)
{
    double largest = logits[0], sum = 0;
    for (int64_t e = 1; e < experts; e++) largest = fmax(largest, logits[e]);
    for (int64_t e = 0; e < experts; e++) {
        s[e] = score == TM_SCORE_SIGMOID ? 1 / (1 + exp(-logits[e])) : exp(logits[e] - largest);
        sum += s[e];
    }
    for (int64_t e = 0; e < experts && score == TM_SCORE_SOFTMAX; e++) s[e] /= sum;
}

/* The largest of choice[begin .. end - 1]; of equal ones the first. */
static int64_t best_of(const double *choice, int64_t begin, int64_t end)
{
    int64_t best = begin;
    for (int64_t e = begin + 1; e < end; e++)
        if (choice[e] > choice[best]) best = e;
    return best;
}

/* Experts outside of the best groups cannot be chosen: -infinity. */
static void limit_groups(const tm_route_attr *attr, int64_t experts, double *choice)
{
    int64_t size = experts / attr->groups;
    double  of_group[TM_MAX_EXPERTS], left[TM_MAX_EXPERTS];
    bool    kept[TM_MAX_EXPERTS] = { false };
    for (int64_t g = 0; g < attr->groups; g++) {
        of_group[g] = 0;
        for (int64_t e = g * size; e < (g + 1) * size; e++) left[e] = choice[e];
        for (int64_t n = 0; n < attr->group_best; n++) {
            int64_t best = best_of(left, g * size, (g + 1) * size);
            of_group[g] += left[best];
            left[best] = -HUGE_VAL;
        }
    }
    for (int64_t n = 0; n < attr->top_groups; n++) {
        int64_t best = best_of(of_group, 0, attr->groups);
        kept[best] = true;
        of_group[best] = -HUGE_VAL;
    }
    for (int64_t e = 0; e < experts; e++)
        if (!kept[e / size]) choice[e] = -HUGE_VAL;
}

static void choose(const tm_route_attr *attr, int64_t row, int64_t experts, const double *logits, const double *s,
                   const double *bias, int32_t *ids)
{
    double choice[TM_MAX_EXPERTS];
    bool   plain = !bias && attr->groups <= 1; /* scores grow with their logits, which tell more of them apart */
    for (int64_t e = 0; e < experts; e++) choice[e] = plain ? logits[e] : s[e] + (bias ? bias[e] : 0);
    if (attr->groups > 1) limit_groups(attr, experts, choice);
    for (int64_t j = 0; j < attr->top_k; j++) {
        int64_t best = attr->uniform ? (row * attr->top_k + j) % experts : best_of(choice, 0, experts);
        ids[j] = (int32_t)best;
        choice[best] = -HUGE_VAL;
    }
}

static void route_reference(const tm_call *call)
{
    const tm_route_attr *attr = call->attr;
    int64_t              rows = call->in[0].shape.n[0], experts = call->in[0].shape.n[1];
    for (int64_t n = 0; n < rows; n++) {
        const double *logits = (const double *)call->in[0].data + n * experts;
        double       *s = (double *)call->out[2].data + n * experts, *w = (double *)call->out[0].data + n * attr->top_k;
        int32_t      *ids = (int32_t *)call->out[1].data + n * attr->top_k;
        double        sum = 1e-20;
        scores_of(logits, experts, attr->score, s);
        choose(attr, n, experts, logits, s, call->in[1].data, ids);
        for (int64_t j = 0; j < attr->top_k; j++) sum += s[ids[j]];
        for (int64_t j = 0; j < attr->top_k; j++) w[j] = attr->scale * s[ids[j]] / (attr->normalise ? sum : 1);
    }
}

static void route_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dw = tm_gradient_of(gradient, node->out[0]), ds = tm_gradient_of(gradient, node->out[2]);
    if ((dw == TM_NONE && ds == TM_NONE) || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { dw, ds, node->out[1], node->out[2] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_route_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static tm_cost route_cost(const tm_call *call)
{
    const tm_route_attr *attr = call->attr;
    tm_cost              cost = tm_call_cost(call, 0);
    cost.vector *= (double)(5 + attr->top_k);
    return cost;
}

/* A sum over the experts, then one over the chosen. */
static tm_rounding route_rounding(const tm_call *call, int k)
{
    const tm_route_attr *attr = call->attr;
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1] + attr->top_k + 4);
}

static const struct {
    int64_t       rows, experts;
    bool          bias;
    tm_route_attr attr;
} cases[] = {
    { 1, 2, false, { .top_k = 1, .scale = 1 } },
    { 9, 8, false, { .top_k = 2, .scale = 1, .normalise = 1 } }, /* Mixtral, Qwen3, gpt-oss */
    { 17, 8, false, { .top_k = 3, .scale = 2.5 } },              /* DeepSeek-V2-Lite */
    { 12, 24, false, { .top_k = 6, .scale = 16, .groups = 4, .top_groups = 2, .group_best = 1 } }, /* DeepSeek-V2 */
    { 20,
      32,
      true,
      { .top_k = 8,
        .score = TM_SCORE_SIGMOID,
        .scale = 2.5,
        .normalise = 1,
        .groups = 8,
        .top_groups = 4,
        .group_best = 2 } }, /* DeepSeek-V3 */
    { 13, 7, true, { .top_k = 2, .scale = 1 } },
    { 10, 17, false, { .top_k = 4, .score = TM_SCORE_SIGMOID, .scale = 1, .uniform = 1 } },
    { 33, 5, true, { .top_k = 5, .scale = 1, .normalise = 1, .uniform = 1 } }, /* all of them */
    { 3, 1, false, { .top_k = 1, .score = TM_SCORE_SIGMOID, .scale = 1 } },
    { 70, 130, false, { .top_k = 8, .scale = 1, .normalise = 1 } },
};

static bool route_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].experts), 0, 2);
    if (cases[k].bias) tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_1(cases[k].experts), 0, 0.2);
    return true;
}

const tm_op tm_op_route = {
    .name = "route",
    .formula = "scores = softmax or sigmoid(logits); ids = the k of the largest scores + bias; weights = scale "
               "scores[ids], over their sum if normalised",
    .group = "experts",
    .n_in = 2,
    .n_out = 3,
    .optional_in = 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_INDEX, TM_ROLE_ACTIVATION },
    .infer = route_infer,
    .reference = route_reference,
    .gradient = route_gradient,
    .cost = route_cost,
    .vector = 1,
    .example = route_example,
    .rounding = route_rounding,
    .in_name = { "logits (N, E)", "[bias (E)]" },
    .out_name = { "weights (N, k)", "ids (N, k)", "scores (N, E)" },
    .attributes = "top_k, score, normalise, scale, groups, top_groups, group_best, uniform",
};

/* in: [dweights (N, k)], [dscores (N, E)], ids (N, k), scores (N, E); out: dlogits (N, E) */
static const char *route_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_route_attr *attr = attr_;
    const char          *why;
    if (in[3].rank != 2) return "the scores must have two axes (rows, experts)";
    if ((why = route_check(in[3].n[1], attr))) return why;
    if (!tm_shape_present(in[0]) && !tm_shape_present(in[1])) return "neither weights nor scores have a gradient";
    if (!tm_shape_is_matrix(in[2], in[3].n[0], attr->top_k)) return "the ids must have the shape (rows, top_k)";
    if (tm_shape_present(in[0]) && !tm_shape_equal(in[0], in[2])) return "dweights must have the shape of the ids";
    if (tm_shape_present(in[1]) && !tm_shape_equal(in[1], in[3])) return "dscores must have the shape of the scores";
    return tm_shape_fit(&out[0], in[3], "dlogits must have the shape of the scores");
}

static void route_grad_reference(const tm_call *call)
{
    const tm_route_attr *attr = call->attr;
    int64_t              rows = call->in[3].shape.n[0], experts = call->in[3].shape.n[1], k = attr->top_k;
    for (int64_t n = 0; n < rows; n++) {
        const double  *dw = call->in[0].data ? (const double *)call->in[0].data + n * k : NULL;
        const double  *given = call->in[1].data ? (const double *)call->in[1].data + n * experts : NULL;
        const int32_t *ids = (const int32_t *)call->in[2].data + n * k;
        const double  *s = (const double *)call->in[3].data + n * experts;
        double        *dl = (double *)call->out[0].data + n * experts, chosen = 1e-20, along = 0, mean = 0;
        for (int64_t e = 0; e < experts; e++) dl[e] = given ? given[e] : 0;
        for (int64_t j = 0; dw && j < k; j++) {
            chosen += s[ids[j]];
            along += dw[j] * s[ids[j]];
        }
        for (int64_t j = 0; dw && j < k; j++)
            dl[ids[j]] += attr->scale * (attr->normalise ? (dw[j] - along / chosen) / chosen : dw[j]);
        for (int64_t e = 0; e < experts; e++) mean += dl[e] * s[e];
        for (int64_t e = 0; e < experts; e++)
            dl[e] = attr->score == TM_SCORE_SIGMOID ? dl[e] * s[e] * (1 - s[e]) : s[e] * (dl[e] - mean);
    }
}

static tm_cost route_grad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 4 * (double)tm_shape_elements(call->in[3].shape);
    return cost;
}

static tm_rounding route_grad_rounding(const tm_call *call, int k)
{
    const tm_route_attr *attr = call->attr;
    (void)k;
    return tm_rounding_sum(call->in[3].shape.n[1] + 2 * attr->top_k + 4);
}

static bool route_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape chosen = tm_shape_2(cases[k].rows, cases[k].attr.top_k), all = tm_shape_2(cases[k].rows, cases[k].experts);
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    if (k != 5) tm_example_in(example, 0, TM_ROLE_ACTIVATION, chosen, 0, 1);
    if (k % 2) tm_example_in(example, 1, TM_ROLE_STATISTIC, all, 0, 1);
    tm_example_int(example, 2, chosen, cases[k].experts);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, all, 0.3, 0.05);
    return true;
}

const tm_op tm_op_route_grad = {
    .name = "route_grad",
    .formula =
        "ds = dscores, and of the chosen scale dw, or scale (dw - sum dw s / S) / S; dlogits = s (ds - sum ds s) "
        "or ds s (1 - s)",
    .group = "experts",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 0 | 1U << 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = route_grad_infer,
    .reference = route_grad_reference,
    .cost = route_grad_cost,
    .example = route_grad_example,
    .rounding = route_grad_rounding,
    .in_name = { "[dweights (N, k)]", "[dscores (N, E)]", "ids (N, k)", "scores (N, E)" },
    .out_name = { "dlogits (N, E)" },
    .attributes = "top_k, score, normalise, scale, groups, top_groups, group_best, uniform",
};
