/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/optimizer.c - AdamW (Loshchilov & Hutter 2019, algorithm 2) and SGD in PyTorch's order of operations.
 *
 * AdamW
 *   g = clip g
 *   p = p - lr wd p
 *   m = m + (1 - b1) (g - m)
 *   v = b2 v + (1 - b2) g g
 *   p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 * SGD
 *   g = clip g + wd p
 *   b = momentum b + g
 *   p = p - lr b, Nesterov's: p - lr (g + momentum b); without momentum: p - lr g
 * Average of weights
 *   e = e + (1 - decay) (p - e), with decay 0: e = p
 *
 * Scalars of the step are formed in double and rounded once. Every operation rounds once (no fused multiply-add), so
 * that all instruction sets agree bit for bit. bfloat16 tensors are updated in float32 and rounded to nearest even,
 * or by chance (rounding.h). Moments may have another format than weights. With a compensation c the weight is p + c:
 * what rounding takes from p is kept in c. A copy of p in another format is p as it is stored, rounded to nearest even.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/rounding.h"
#include "op/attrs.h"

#include <math.h>

typedef struct {
    v16       clip, decay, blend1, beta2, blend2, step, root, eps;
    tm_chance chance;
} adamw_scalars;

TM_INLINE adamw_scalars adamw_prepare(const tm_call *call)
{
    const tm_adamw_attr *attr = call->attr;
    const double        *scalars = call->in[4].data, *clip = call->in[5].data;
    double               rate = scalars[TM_SCALAR_LEARNING_RATE];
    return (adamw_scalars){
        .clip = v16_set1((float)clip[1]),
        .decay = v16_set1((float)(rate * attr->weight_decay)),
        .blend1 = v16_set1((float)(1. - attr->beta1)),
        .beta2 = v16_set1((float)attr->beta2),
        .blend2 = v16_set1((float)(1. - attr->beta2)),
        .step = v16_set1((float)(rate / scalars[TM_SCALAR_CORRECTION1])),
        .root = v16_set1((float)sqrt(scalars[TM_SCALAR_CORRECTION2])),
        .eps = v16_set1((float)attr->eps),
        .chance = tm_chance_of(attr->rounding, scalars),
    };
}

TM_INLINE void adamw_copy(const tm_call *call, tm_dtype format, int64_t i, int64_t n)
{
    const tm_view *copy = &call->out[4];
    if (copy->data) v16_put(copy->data, copy->dtype, i, v16_get(call->out[0].data, format, i, n), n);
}

TM_INLINE void adamw_lanes(const tm_call *call, tm_dtype format, tm_dtype moments, const adamw_scalars *s, int64_t i,
                           int64_t n)
{
    v16 p = v16_get(call->in[0].data, format, i, n), g = v16_get(call->in[1].data, format, i, n);
    v16 m = v16_get(call->in[2].data, moments, i, n), v = v16_get(call->in[3].data, moments, i, n);
    if (call->in[6].data) p = v16_add(p, v16_get(call->in[6].data, format, i, n));
    g = v16_mul(g, s->clip);
    p = v16_sub(p, v16_mul(s->decay, p));
    m = v16_add(m, v16_mul(s->blend1, v16_sub(g, m)));
    v = v16_add(v16_mul(s->beta2, v), v16_mul(v16_mul(s->blend2, g), g));
    v16 denominator = v16_add(v16_div(v16_sqrt(v), s->root), s->eps);
    p = v16_sub(p, v16_div(v16_mul(s->step, m), denominator));
    if (s->chance.on) {
        uint32_t first[TM_LANES], second[TM_LANES];
        int64_t  at = ((const tm_adamw_attr *)call->attr)->first + i;
        tm_chance_lanes(&s->chance, 0, at, first);
        tm_put_by_chance(call->out[0].data, format, i, p, n, first, 0);
        tm_put_by_chance(call->out[1].data, moments, i, m, n, first, 16);
        tm_chance_lanes(&s->chance, 1, at, second);
        tm_put_by_chance(call->out[2].data, moments, i, v, n, second, 0);
        adamw_copy(call, format, i, n);
        return;
    }
    v16_put(call->out[0].data, format, i, p, n);
    adamw_copy(call, format, i, n);
    v16_put(call->out[1].data, moments, i, m, n);
    v16_put(call->out[2].data, moments, i, v, n);
    if (call->in[6].data) { /* the weight is p and what rounding took from it */
        v16 kept = v16_get(call->out[0].data, format, i, n);
        v16_put(call->out[3].data, format, i, v16_sub(p, kept), n);
    }
}

TM_INLINE void adamw(const tm_call *call, tm_dtype format, tm_dtype moments, int64_t begin, int64_t end)
{
    adamw_scalars scalars = adamw_prepare(call);
    int64_t       i = begin;
    for (; i + TM_LANES <= end; i += TM_LANES) adamw_lanes(call, format, moments, &scalars, i, TM_LANES);
    if (i < end) adamw_lanes(call, format, moments, &scalars, i, end - i);
}
TM_PART_2(adamw, in[0], in[2])

static void adamw_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, adamw_part, n, TM_ELEMENT_GRAIN, n);
}
static TM_PLANNED const char *adamw_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[2]);
    const tm_view *weights[] = { &call->in[1], &call->in[6], &call->out[0], &call->out[3] };
    const tm_view *moments[] = { &call->in[3], &call->out[1], &call->out[2] };
    for (int k = 0; k < 4 && !why; k++) why = tm_refuse_mixed(&call->in[0], weights[k]);
    for (int k = 0; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[2], moments[k]);
    if (!why && tm_view_present(&call->out[4])) why = tm_refuse_format(&call->out[4]);
    for (int k = 4; k < 6 && !why; k++) why = tm_refuse_scalar(&call->in[k]);
    return why;
}

/* ---- sgd ---- */

typedef struct {
    v16       clip, decay, momentum, rate;
    tm_chance chance;
} sgd_scalars;

TM_INLINE void sgd_lanes(const tm_call *call, tm_dtype format, const sgd_scalars *s, int64_t i, int64_t n)
{
    const tm_sgd_attr *attr = call->attr;
    v16                p = v16_get(call->in[0].data, format, i, n);
    v16                g = v16_mul(v16_get(call->in[1].data, format, i, n), s->clip);
    g = v16_add(g, v16_mul(s->decay, p));
    v16      move = g;
    uint32_t words[TM_LANES] = { 0 };
    if (s->chance.on) tm_chance_lanes(&s->chance, 0, attr->first + i, words);
    if (call->in[2].data) {
        v16 b = v16_add(v16_mul(s->momentum, v16_get(call->in[2].data, format, i, n)), g);
        if (s->chance.on)
            tm_put_by_chance(call->out[1].data, format, i, b, n, words, 16);
        else
            v16_put(call->out[1].data, format, i, b, n);
        move = attr->nesterov ? v16_add(g, v16_mul(s->momentum, b)) : b;
    }
    p = v16_sub(p, v16_mul(s->rate, move));
    if (s->chance.on)
        tm_put_by_chance(call->out[0].data, format, i, p, n, words, 0);
    else
        v16_put(call->out[0].data, format, i, p, n);
}
TM_INLINE void sgd(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_sgd_attr *attr = call->attr;
    const double      *scalars = call->in[3].data, *clip = call->in[4].data;
    sgd_scalars        s = { .clip = v16_set1((float)clip[1]),
                             .decay = v16_set1((float)attr->weight_decay),
                             .momentum = v16_set1((float)attr->momentum),
                             .rate = v16_set1((float)scalars[TM_SCALAR_LEARNING_RATE]),
                             .chance = tm_chance_of(attr->rounding, scalars) };
    for (int64_t i = begin; i < end; i += TM_LANES) sgd_lanes(call, format, &s, i, tm_lanes(i, end));
}
TM_PART(sgd, in[0])

static void sgd_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, sgd_part, n, TM_ELEMENT_GRAIN, n);
}
static const char *sgd_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->in[k]);
    for (int k = 0; k < 2 && !why; k++) why = tm_refuse_mixed(&call->in[0], &call->out[k]);
    for (int k = 3; k < 5 && !why; k++) why = tm_refuse_scalar(&call->in[k]);
    return why;
}

/* ---- ema ---- */

TM_INLINE void ema(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const double decay = ((const tm_ema_attr *)call->attr)->decay;
    const bool   copy = !(decay > 0);
    const v16    blend = v16_set1((float)(1. - decay));
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     p = v16_get(call->in[0].data, format, i, n);
        if (!copy) {
            v16 e = v16_get(call->in[1].data, TM_F32, i, n);
            p = v16_add(e, v16_mul(blend, v16_sub(p, e)));
        }
        v16_put(call->out[0].data, TM_F32, i, p, n);
    }
}
TM_PART(ema, in[0])

static void ema_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, ema_part, n, TM_ELEMENT_GRAIN, n);
}
static const char *ema_refuse(const tm_call *call)
{
    if (call->in[1].dtype != TM_F32 || call->out[0].dtype != TM_F32) return "the average must be float32";
    return tm_refuse_format(&call->in[0]);
}

const tm_kernel TM_K(tm_cpu_optimizer)[] = {
    TM_KERNEL(adamw, "adamw/", adamw_refuse, NULL, adamw_run),
    TM_KERNEL(sgd, "sgd/", sgd_refuse, NULL, sgd_run),
    TM_KERNEL(ema, "ema/", ema_refuse, NULL, ema_run),
    { .name = NULL },
};
