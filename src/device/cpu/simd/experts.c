/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/experts.c - the way of rows to their experts and back: route, dispatch, gather_rows, combine and
 * their gradients, the balance of the load.
 *
 * A row (a sequence, of the balance) is computed by one thread; what crosses rows is counted in whole numbers or summed
 * in ascending order by one thread, so that no bit depends on their number.
 */
#include "base/status.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* ---- route ---- */

enum { ROW = TM_MAX_EXPERTS + TM_LANES };

static void row_load(const tm_view *view, int64_t row, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_store(to + i, v16_get(view->data, view->dtype, row * n + i, tm_lanes(i, n)));
}
static void row_store(const tm_view *view, int64_t row, int64_t n, const float *from)
{
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_put(view->data, view->dtype, row * n + i, v16_load(from + i), tm_lanes(i, n));
}
/* Elements behind the row, up to whole lanes. */
static void row_pad(float *row, int64_t n, float value)
{
    for (int64_t i = n; i % TM_LANES; i++) row[i] = value;
}

static void row_softmax(float *s, int64_t n)
{
    row_pad(s, n, s[0]);
    v16 top = v16_load(s), sum = v16_zero();
    for (int64_t i = TM_LANES; i < n; i += TM_LANES) top = v16_max(top, v16_load(s + i));
    top = v16_set1(v16_largest(top));
    for (int64_t i = 0; i < n; i += TM_LANES) v16_store(s + i, v16_exp(v16_sub(v16_load(s + i), top)));
    row_pad(s, n, 0.f);
    for (int64_t i = 0; i < n; i += TM_LANES) sum = v16_add(sum, v16_load(s + i));
    v16 total = v16_set1(v16_sum(sum));
    for (int64_t i = 0; i < n; i += TM_LANES) v16_store(s + i, v16_div(v16_load(s + i), total));
}
static void row_sigmoid(float *s, int64_t n)
{
    const v16 one = v16_set1(1.f);
    row_pad(s, n, 0.f);
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_store(s + i, v16_div(one, v16_add(one, v16_exp(v16_sub(v16_zero(), v16_load(s + i))))));
}

/* The largest of choice[begin .. end - 1]; of equal ones the first. */
static int64_t best_of(const float *choice, int64_t begin, int64_t end)
{
    int64_t best = begin;
    for (int64_t e = begin + 1; e < end; e++)
        if (choice[e] > choice[best]) best = e;
    return best;
}

/* Experts outside of the best groups cannot be chosen. */
static void limit_groups(const tm_route_attr *attr, int64_t experts, float *choice)
{
    int64_t size = experts / attr->groups;
    float   of_group[TM_MAX_EXPERTS], left[TM_MAX_EXPERTS];
    bool    kept[TM_MAX_EXPERTS] = { false };
    memcpy(left, choice, (size_t)experts * sizeof *left);
    for (int64_t g = 0; g < attr->groups; g++) {
        of_group[g] = 0.f;
        for (int64_t n = 0; n < attr->group_best; n++) {
            int64_t best = best_of(left, g * size, (g + 1) * size);
            of_group[g] += left[best];
            left[best] = -HUGE_VALF;
        }
    }
    for (int64_t n = 0; n < attr->top_groups; n++) {
        int64_t best = best_of(of_group, 0, attr->groups);
        kept[best] = true;
        of_group[best] = -HUGE_VALF;
    }
    for (int64_t e = 0; e < experts; e++)
        if (!kept[e / size]) choice[e] = -HUGE_VALF;
}

static void route_rows(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_route_attr *attr = call->attr;
    int64_t              experts = tm_view_columns(&call->in[0]), k = attr->top_k;
    float                choice[ROW], s[ROW], bias[ROW], w[ROW];
    bool                 biased = tm_view_present(&call->in[1]), plain = !biased && attr->groups <= 1;
    if (biased) row_load(&call->in[1], 0, experts, bias);
    for (int64_t r = begin; r < end; r++) {
        int32_t *ids = (int32_t *)call->out[1].data + r * k;
        float    sum = 1e-20f, scale = (float)attr->scale;
        row_load(&call->in[0], r, experts, s);
        if (plain) memcpy(choice, s, (size_t)experts * sizeof *s);
        if (attr->score == TM_SCORE_SIGMOID)
            row_sigmoid(s, experts);
        else
            row_softmax(s, experts);
        for (int64_t e = 0; e < experts && !plain; e++) choice[e] = biased ? s[e] + bias[e] : s[e];
        if (attr->groups > 1) limit_groups(attr, experts, choice);
        for (int64_t j = 0; j < k; j++) {
            int64_t best = attr->uniform ? (r * k + j) % experts : best_of(choice, 0, experts);
            ids[j] = (int32_t)best;
            choice[best] = -HUGE_VALF;
            sum += s[best];
        }
        for (int64_t j = 0; j < k; j++) w[j] = attr->normalise ? scale * s[ids[j]] / sum : scale * s[ids[j]];
        row_pad(w, k, 0.f);
        row_store(&call->out[0], r, k, w);
        row_store(&call->out[2], r, experts, s);
    }
}
static void route_run(const tm_call *call)
{
    const tm_route_attr *attr = call->attr;
    tm_parallel(call, route_rows, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]) * (1 + attr->top_k));
}
static TM_PLANNED const char *refuse_whole(const tm_view *view)
{
    return !tm_view_present(view) || view->dtype == TM_I32 ? NULL : "needs int32 ids, offsets and orders";
}
static TM_PLANNED const char *route_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    if (!why) why = tm_refuse_format(&call->out[0]);
    if (!why) why = refuse_whole(&call->out[1]);
    return why ? why : tm_refuse_format(&call->out[2]);
}

static void route_grad_rows(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_route_attr *attr = call->attr;
    int64_t              experts = tm_view_columns(&call->in[3]), k = attr->top_k;
    bool                 weighed = tm_view_present(&call->in[0]), given = tm_view_present(&call->in[1]);
    float                dw[ROW], ds[ROW], s[ROW], scale = (float)attr->scale;
    for (int64_t r = begin; r < end; r++) {
        const int32_t *ids = (const int32_t *)call->in[2].data + r * k;
        float          chosen = 1e-20f, along = 0.f;
        v16            sum = v16_zero();
        row_load(&call->in[3], r, experts, s);
        if (given) row_load(&call->in[1], r, experts, ds);
        for (int64_t e = 0; e < experts && !given; e++) ds[e] = 0.f;
        if (weighed) row_load(&call->in[0], r, k, dw);
        for (int64_t j = 0; j < k && weighed && attr->normalise; j++) {
            chosen += s[ids[j]];
            along += dw[j] * s[ids[j]];
        }
        for (int64_t j = 0; j < k && weighed; j++)
            ds[ids[j]] += scale * (attr->normalise ? (dw[j] - along / chosen) / chosen : dw[j]);
        row_pad(s, experts, 0.f);
        row_pad(ds, experts, 0.f);
        for (int64_t i = 0; i < experts; i += TM_LANES) sum = v16_fma(v16_load(ds + i), v16_load(s + i), sum);
        v16 mean = v16_set1(v16_sum(sum)), one = v16_set1(1.f);
        for (int64_t i = 0; i < experts; i += TM_LANES) {
            v16 x = v16_load(s + i), d = v16_load(ds + i);
            v16_store(ds + i, attr->score == TM_SCORE_SIGMOID ? v16_mul(v16_mul(d, x), v16_sub(one, x))
                                                              : v16_mul(x, v16_sub(d, mean)));
        }
        row_store(&call->out[0], r, experts, ds);
    }
}
static void route_grad_run(const tm_call *call)
{
    tm_parallel(call, route_grad_rows, tm_view_rows(&call->in[3]), 1, 4 * tm_view_elements(&call->in[3]));
}
static TM_PLANNED const char *route_grad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    if (!why) why = refuse_whole(&call->in[2]);
    if (!why) why = tm_refuse_format(&call->in[3]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- dispatch, counts, bias: one pass over whole numbers ---- */

static void dispatch_run(const tm_call *call)
{
    const tm_dispatch_attr *attr = call->attr;
    int64_t                 pairs = tm_view_elements(&call->in[0]);
    const int32_t          *ids = call->in[0].data;
    int32_t                *offsets = call->out[0].data, *order = call->out[1].data, *inverse = call->out[2].data;
    int32_t                 next[TM_MAX_EXPERTS] = { 0 };
    for (int64_t i = 0; i < pairs; i++) {
        TM_ASSERT(ids[i] >= 0 && ids[i] < attr->experts);
        next[ids[i]]++;
    }
    offsets[0] = 0;
    for (int64_t e = 0; e < attr->experts; e++) {
        offsets[e + 1] = offsets[e] + next[e];
        next[e] = offsets[e];
    }
    for (int64_t i = 0; i < pairs; i++) {
        int32_t place = next[ids[i]]++;
        order[place] = (int32_t)i;
        inverse[i] = place;
    }
}
static TM_PLANNED const char *dispatch_refuse(const tm_call *call)
{
    const char *why = refuse_whole(&call->in[0]);
    for (int k = 0; k < 3 && !why; k++) why = refuse_whole(&call->out[k]);
    return !why && tm_view_elements(&call->in[0]) > INT32_MAX ? "more than 2^31 - 1 pairs" : why;
}

static void expert_counts_run(const tm_call *call)
{
    const int32_t *offsets = call->in[0].data;
    double        *counts = call->out[0].data;
    for (int64_t e = 0; e < tm_view_elements(&call->out[0]); e++)
        counts[e] = (call->accumulate & 1u ? counts[e] : 0.) + (offsets[e + 1] - offsets[e]);
}
static TM_PLANNED const char *expert_counts_refuse(const tm_call *call)
{
    const char *why = refuse_whole(&call->in[0]);
    return why ? why : tm_refuse_scalar(&call->out[0]);
}

static void expert_span_run(const tm_call *call)
{
    const int32_t *offsets = call->in[0].data;
    int32_t       *span = call->out[0].data;
    span[0] = offsets[0];
    span[1] = offsets[tm_view_elements(&call->in[0]) - 1];
}
static TM_PLANNED const char *expert_span_refuse(const tm_call *call)
{
    const char *why = refuse_whole(&call->in[0]);
    return why ? why : refuse_whole(&call->out[0]);
}

static void expert_bias_run(const tm_call *call)
{
    const tm_expert_bias_attr *attr = call->attr;
    int64_t                    experts = tm_view_elements(&call->in[0]);
    const double              *counts = call->in[0].data;
    const float               *bias = call->in[1].data;
    float                     *out = call->out[0].data;
    double                     mean = 0, signs = 0;
    for (int64_t e = 0; e < experts; e++) mean += counts[e] / (double)experts;
    for (int64_t e = 0; e < experts; e++) signs += (counts[e] < mean) - (counts[e] > mean);
    for (int64_t e = 0; e < experts; e++) {
        double delta = (counts[e] < mean) - (counts[e] > mean) - signs / (double)experts;
        out[e] = (float)((double)bias[e] + attr->rate * delta);
    }
}
static TM_PLANNED const char *expert_bias_refuse(const tm_call *call)
{
    const char *why = tm_refuse_scalar(&call->in[0]);
    if (!why) why = tm_refuse_wide(&call->in[1]);
    return why ? why : tm_refuse_wide(&call->out[0]);
}

/* ---- gather_rows ---- */

TM_INLINE float weight_at(const tm_view *weights, int64_t i)
{
    float lanes[TM_LANES];
    v16_store(lanes, v16_get(weights->data, weights->dtype, i, 1));
    return lanes[0];
}

TM_INLINE void gather(const tm_call *call, tm_dtype from, tm_dtype to, int64_t begin, int64_t end)
{
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    int64_t        channels = tm_view_columns(&call->in[0]), places = tm_view_rows(&call->out[0]);
    const int32_t *order = call->in[1].data;
    for (int64_t p = begin; p < end; p++) {
        TM_ASSERT(order[p] >= 0 && order[p] < places);
        int64_t at = order[p] / k * channels;
        bool    weighed = tm_view_present(&call->in[3]);
        v16     w = v16_set1(weighed ? weight_at(&call->in[3], order[p]) : 1.f);
        for (int64_t c = 0; c < channels; c += TM_LANES) {
            int64_t n = tm_lanes(c, channels);
            v16     x = v16_get(call->in[0].data, from, at + c, n);
            v16_put(call->out[0].data, to, p * channels + c, weighed ? v16_mul(w, x) : x, n);
        }
    }
}
TM_PART_2(gather, in[0], out[0])

static void gather_run(const tm_call *call)
{
    tm_parallel(call, gather_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *slots_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = refuse_whole(&call->in[1]);
    if (!why) why = refuse_whole(&call->in[2]);
    if (!why) why = tm_refuse_format(&call->in[3]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- combine ---- */

TM_INLINE void combine(const tm_call *call, tm_dtype from, tm_dtype to, int64_t begin, int64_t end)
{
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    int64_t        channels = tm_view_columns(&call->in[0]), places = tm_view_rows(&call->in[0]);
    const int32_t *inverse = call->in[2].data;
    const tm_view *addend = &call->in[4];
    bool           weighed = tm_view_present(&call->in[3]), adds = tm_view_present(addend);
    float          w[TM_MAX_EXPERTS];
    for (int64_t t = begin; t < end; t++) {
        const int32_t *place = inverse + t * k;
        for (int64_t j = 0; j < k; j++) {
            TM_ASSERT(place[j] >= 0 && place[j] < places);
            w[j] = weighed ? weight_at(&call->in[3], t * k + j) : 1.f;
        }
        for (int64_t c = 0; c < channels; c += TM_LANES) {
            int64_t n = tm_lanes(c, channels);
            v16     sum = adds ? v16_get(addend->data, addend->dtype, t * channels + c, n) : v16_zero();
            for (int64_t j = 0; j < k; j++)
                sum = v16_fma(v16_set1(w[j]), v16_get(call->in[0].data, from, place[j] * channels + c, n), sum);
            v16_put(call->out[0].data, to, t * channels + c, sum, n);
        }
    }
}
TM_PART_2(combine, in[0], out[0])

static void combine_run(const tm_call *call)
{
    tm_parallel(call, combine_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *combine_refuse(const tm_call *call)
{
    const char *why = slots_refuse(call);
    if (!why && ((const tm_slots_attr *)call->attr)->top_k > TM_MAX_EXPERTS) why = "more than 1024 experts of a row";
    return why ? why : tm_refuse_format(&call->in[4]);
}

TM_INLINE void combine_weights(const tm_call *call, tm_dtype a, tm_dtype b, int64_t begin, int64_t end)
{
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    int64_t        channels = tm_view_columns(&call->in[0]), places = tm_view_rows(&call->in[1]);
    const int32_t *inverse = call->in[2].data;
    for (int64_t i = begin; i < end; i++) {
        v16 sum = v16_zero();
        TM_ASSERT(inverse[i] >= 0 && inverse[i] < places);
        for (int64_t c = 0; c < channels; c += TM_LANES) {
            int64_t n = tm_lanes(c, channels);
            sum = v16_fma(v16_get(call->in[0].data, a, i / k * channels + c, n),
                          v16_get(call->in[1].data, b, inverse[i] * channels + c, n), sum);
        }
        v16_put(call->out[0].data, call->out[0].dtype, i, v16_set1(v16_sum(sum)), 1);
    }
}
TM_PART_2(combine_weights, in[0], in[1])

static void combine_weights_run(const tm_call *call)
{
    tm_parallel(call, combine_weights_part, tm_view_rows(&call->in[1]), 1, tm_view_elements(&call->in[1]));
}
static TM_PLANNED const char *combine_weights_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    if (!why) why = refuse_whole(&call->in[2]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- balance_loss: the shares of a sequence are counted, the sum is formed in float64 ---- */

/* Where the rows of sequences lie that have scores here. */
static tm_balance_rows rows_here(const tm_call *call)
{
    return tm_balance_rows_of(call->attr, tm_view_rows(&call->in[0]), tm_view_rows(&call->in[1]));
}
/* alpha f_e of sequence b. */
static void shares_of(const tm_call *call, int64_t b, double *share)
{
    const tm_balance_attr *attr = call->attr;
    int64_t                experts = tm_view_columns(&call->in[0]), counted = tm_view_rows(&call->in[1]);
    tm_balance_rows        of = tm_balance_rows_of(attr, counted, counted);
    int64_t                pairs = of.rows * attr->top_k;
    for (int64_t e = 0; e < experts; e++) share[e] = 0;
    for (int64_t r = 0; r < of.runs; r++) {
        const int32_t *ids = (const int32_t *)call->in[1].data + (r * of.sequences + b) * pairs;
        for (int64_t i = 0; i < pairs; i++) {
            TM_ASSERT(ids[i] >= 0 && ids[i] < experts);
            share[ids[i]]++;
        }
    }
    for (int64_t e = 0; e < experts; e++)
        share[e] = attr->alpha * share[e] * (double)experts / (double)(of.runs * pairs);
}
static void balance_loss_run(const tm_call *call)
{
    int64_t         experts = tm_view_columns(&call->in[0]);
    tm_balance_rows here = rows_here(call);
    double          share[TM_MAX_EXPERTS], *loss = call->out[0].data, sum = call->accumulate & 1u ? *loss : 0;
    float           s[ROW];
    for (int64_t b = 0; b < here.sequences; b++) {
        shares_of(call, b, share);
        for (int64_t i = 0; i < here.runs * here.rows; i++) {
            row_load(&call->in[0], (i / here.rows * here.sequences + b) * here.rows + i % here.rows, experts, s);
            for (int64_t e = 0; e < experts; e++) sum += share[e] * (double)s[e];
        }
    }
    *loss = sum;
}
static TM_PLANNED const char *balance_loss_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = refuse_whole(&call->in[1]);
    return why ? why : tm_refuse_scalar(&call->out[0]);
}

/* Sequences begin .. end - 1. */
static void balance_grad_sequences(const tm_call *call, int64_t begin, int64_t end)
{
    int64_t         experts = tm_view_columns(&call->in[0]);
    tm_balance_rows here = rows_here(call);
    double          share[TM_MAX_EXPERTS], scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE];
    float           ds[ROW];
    for (int64_t b = begin; b < end; b++) {
        shares_of(call, b, share);
        for (int64_t e = 0; e < experts; e++) ds[e] = (float)(scale * share[e]);
        row_pad(ds, experts, 0.f);
        for (int64_t i = 0; i < here.runs * here.rows; i++)
            row_store(&call->out[0], (i / here.rows * here.sequences + b) * here.rows + i % here.rows, experts, ds);
    }
}
static void balance_grad_run(const tm_call *call)
{
    tm_parallel(call, balance_grad_sequences, rows_here(call).sequences, 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *balance_grad_refuse(const tm_call *call)
{
    const char *why = refuse_whole(&call->in[1]);
    if (!why) why = tm_refuse_scalar(&call->in[2]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_experts)[] = {
    TM_KERNEL(route, "route/", route_refuse, NULL, route_run),
    TM_KERNEL(route_grad, "route_grad/", route_grad_refuse, NULL, route_grad_run),
    TM_KERNEL(dispatch, "dispatch/", dispatch_refuse, NULL, dispatch_run),
    TM_KERNEL(expert_counts, "expert_counts/", expert_counts_refuse, NULL, expert_counts_run),
    TM_KERNEL(expert_span, "expert_span/", expert_span_refuse, NULL, expert_span_run),
    TM_KERNEL(expert_bias, "expert_bias/", expert_bias_refuse, NULL, expert_bias_run),
    TM_KERNEL(gather_rows, "gather_rows/", slots_refuse, NULL, gather_run),
    TM_KERNEL(combine, "combine/", combine_refuse, NULL, combine_run),
    TM_KERNEL(combine_weights_grad, "combine_weights_grad/", combine_weights_refuse, NULL, combine_weights_run),
    TM_KERNEL(balance_loss, "balance_loss/", balance_loss_refuse, NULL, balance_loss_run),
    TM_KERNEL(balance_loss_grad, "balance_loss_grad/", balance_grad_refuse, NULL, balance_grad_run),
    { .name = NULL },
};
