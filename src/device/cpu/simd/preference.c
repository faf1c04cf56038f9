/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/preference.c - preference_loss and its gradient (op/preference_loss.c): a few operations a row, in
 * double, in the order of the rows, by one thread.
 */
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"
#include "op/preference.h"

#include <math.h>

/* Rows begin .. end - 1 with one first key. */
typedef struct {
    int64_t begin, end, targets;
    double  above, logp; /* of the reference's log-probability; itself */
} sequence;

static sequence read_sequence(const tm_call *call, int64_t at, int64_t limit)
{
    const tm_view *losses = &call->in[0], *reference = &call->in[3];
    const int32_t *targets = call->in[1].data, *first_key = call->in[2].data;
    sequence       s = { .begin = at, .end = at };
    const int64_t  rows = losses->shape.n[0], first = tm_preference_row(call->attr, rows, at);
    for (; s.end < limit; s.end++) {
        const int64_t row = tm_preference_row(call->attr, rows, s.end);
        if (first_key[row] != first_key[first]) break;
        if (targets[row] == TM_IGNORED_TARGET) continue;
        double loss = tm_value_get(losses->data, losses->dtype, row);
        double before = tm_view_present(reference) ? tm_value_get(reference->data, reference->dtype, row) : 0;
        s.targets++;
        s.logp -= loss;
        s.above += before - loss;
    }
    return s;
}

static bool next_pair(const tm_call *call, int64_t *at, int64_t limit, sequence pair[2])
{
    while (*at < limit) {
        pair[0] = read_sequence(call, *at, limit);
        *at = pair[0].end;
        if (*at == limit) return false;
        pair[1] = read_sequence(call, *at, limit);
        *at = pair[1].end;
        if (pair[0].targets + pair[1].targets > 0) return true;
    }
    return false;
}

static double share_of(const tm_preference_attr *attr, const sequence *s)
{
    bool means = attr->kind == TM_PREFERENCE_IPO || attr->kind == TM_PREFERENCE_SIGMOID_NORM;
    return means && s->targets > 0 ? 1 / (double)s->targets : 1;
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* Of a pair: its loss, and the derivatives by what the chosen and the rejected sequence are above the reference. */
typedef struct {
    double loss, chosen, rejected;
} judged;

/* What depends on z = c - r only. */
static judged judge_margin(const tm_preference_attr *attr, double z)
{
    const double b = attr->beta, e = attr->label_smoothing, u = b * z, off = z - 0.5 / b;
    const double right = softplus(-u), wrong = softplus(u); /* losses of the two orders of a pair */
    double       loss = (1 - e) * right + e * wrong, slope = b * (e / (1 + exp(-u)) - (1 - e) / (1 + exp(u)));
    if (attr->kind == TM_PREFERENCE_HINGE) {
        loss = fmax(0, 1 - u);
        slope = u < 1 ? -b : 0;
    } else if (attr->kind == TM_PREFERENCE_IPO) {
        loss = off * off;
        slope = 2 * off;
    } else if (attr->kind == TM_PREFERENCE_ROBUST) {
        loss = ((1 - e) * right - e * wrong) / (1 - 2 * e);
        slope = -b * ((1 - e) / (1 + exp(u)) + e / (1 + exp(-u))) / (1 - 2 * e);
    } else if (attr->kind == TM_PREFERENCE_EXO) {
        const double up = 1 / (1 + exp(-u)), down = 1 / (1 + exp(u));
        loss = -up * (right + log1p(-e)) - down * (wrong + log(e));
        slope = b * up * down * (u + log(e) - log1p(-e));
    }
    return (judged){ .loss = loss, .chosen = slope, .rejected = -slope };
}

static judged judge(const tm_preference_attr *attr, const sequence pair[2])
{
    const double c = pair[0].above * share_of(attr, &pair[0]), r = pair[1].above * share_of(attr, &pair[1]);
    const double b = attr->beta, half = 0.5 / b, of_c = 1 / (1 + exp(-b * c)), of_r = 1 / (1 + exp(-b * r));
    const double steep_c = b * of_c / (1 + exp(b * c)), steep_r = b * of_r / (1 + exp(b * r));
    const double g = 1 / (1 + exp(-b * (c - r))), steep = b * g / (1 + exp(b * (c - r)));
    switch (attr->kind) {
    case TM_PREFERENCE_NCA:
        return (judged){ softplus(-b * c) + 0.5 * (softplus(b * c) + softplus(b * r)), b * (1.5 * of_c - 1),
                         0.5 * b * of_r };
    case TM_PREFERENCE_BCO:
        return (judged){ softplus(-b * c) + softplus(b * r), b * (of_c - 1), b * of_r };
    case TM_PREFERENCE_SPPO:
        return (judged){ (c - half) * (c - half) + (r + half) * (r + half), 2 * (c - half), 2 * (r + half) };
    case TM_PREFERENCE_APO_ZERO:
        return (judged){ 1 - of_c + of_r, -steep_c, steep_r };
    case TM_PREFERENCE_APO_DOWN:
        return (judged){ of_c + 1 - g, steep_c - steep, steep };
    default:
        return judge_margin(attr, c - r);
    }
}

static void preference_run(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    const double              share = tm_preference_share(attr);
    double                   *loss = call->out[0].data, *record = call->out[1].data;
    sequence                  pair[2];
    if (!(call->accumulate & 1u)) *loss = 0;
    for (int k = 0; k < TM_PREFERRED_COUNT && !(call->accumulate & 2u); k++) record[k] = 0;
    for (int64_t from = 0; from < call->in[0].shape.n[0]; from += attr->seq)
        for (int64_t at = from; next_pair(call, &at, from + attr->seq, pair);) {
            *loss += share * judge(attr, pair).loss;
            record[TM_PREFERRED_CHOSEN] += share * attr->beta * pair[0].above;
            record[TM_PREFERRED_REJECTED] += share * attr->beta * pair[1].above;
            record[TM_PREFERRED_RIGHT] += pair[0].above > pair[1].above ? share : 0;
            record[TM_PREFERRED_LOGPS_CHOSEN] += share * pair[0].logp;
            record[TM_PREFERRED_LOGPS_REJECTED] += share * pair[1].logp;
            record[TM_PREFERRED_PAIRS] += share;
        }
}

static void fill_rows(const tm_call *call, const sequence *s, double value)
{
    const int32_t *targets = call->in[1].data;
    for (int64_t n = s->begin; n < s->end; n++) {
        const int64_t row = tm_preference_row(call->attr, call->in[0].shape.n[0], n);
        tm_value_set(call->out[0].data, call->out[0].dtype, row, targets[row] == TM_IGNORED_TARGET ? 0 : value);
    }
}

static void preference_grad_run(const tm_call *call)
{
    const tm_preference_attr *attr = call->attr;
    const double  scale = tm_preference_share(attr) * ((const double *)call->in[4].data)[TM_SCALAR_LOSS_SCALE];
    const int64_t rows = call->in[0].shape.n[0];
    sequence      pair[2];
    for (int64_t n = 0; n < rows; n++) tm_value_set(call->out[0].data, call->out[0].dtype, n, 0);
    for (int64_t from = 0; from < rows; from += attr->seq)
        for (int64_t at = from; next_pair(call, &at, from + attr->seq, pair);) {
            const judged is = judge(attr, pair);
            fill_rows(call, &pair[0], -scale * is.chosen * share_of(attr, &pair[0]));
            fill_rows(call, &pair[1], -scale * is.rejected * share_of(attr, &pair[1]));
        }
}

static TM_PLANNED const char *refuse_inputs(const tm_call *call)
{
    if (!tm_is_float(&call->in[0])) return "needs float32 or bfloat16 losses";
    if (call->in[1].dtype != TM_I32 || call->in[2].dtype != TM_I32) return "needs int32 targets and first keys";
    if (tm_view_present(&call->in[3]) && !tm_is_float(&call->in[3])) return "needs a float32 or bfloat16 reference";
    return NULL;
}
static TM_PLANNED const char *preference_refuse(const tm_call *call)
{
    const char *why = refuse_inputs(call);
    if (!why) why = tm_refuse_scalar(&call->out[0]);
    return why ? why : tm_refuse_scalar(&call->out[1]);
}
static TM_PLANNED const char *preference_grad_refuse(const tm_call *call)
{
    const char *why = refuse_inputs(call);
    if (!why) why = tm_refuse_scalar(&call->in[4]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_preference)[] = {
    TM_KERNEL(preference_loss, "preference_loss/", preference_refuse, NULL, preference_run),
    TM_KERNEL(preference_loss_grad, "preference_loss_grad/", preference_grad_refuse, NULL, preference_grad_run),
    { .name = NULL },
};
