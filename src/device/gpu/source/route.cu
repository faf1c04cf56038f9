/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a row is sent to, and the gradient of its logits: a wave for each row, which lies in registers. MOST: a
 * power of two, no less than the experts and 64. Formats: L of logits and their gradient, S of scores and weights, D of the
 * bias or of the weights' gradient, G of the scores' gradient. */

enum { PER = MOST / WAVE, ROWS = BLOCK / WAVE };

/* Of a row the experts lane, lane + WAVE, ... */
struct part {
    float of[PER];
};
struct choice_of {
    float value;
    int   expert;
};

#define EACH_OWN(i, e) UNROLL for (int i = 0, e = thread_id() % WAVE; i < PER; i++, e += WAVE)

#if defined(__HIP__)
DEVICE float exchanged(float x, int mask)
{
    return other_lane(x, mask);
}
#else
DEVICE float exchanged(float x, int mask)
{
#if WAVE > 1
    x = __shfl_xor_sync(0xffffffffu, x, mask);
#endif
    return x;
}
#endif

template <typename T>
DEVICE part load_part(const T *x, i64 row, int n, float none)
{
    part p;
    EACH_OWN (i, e) p.of[i] = e < n ? get(x, row * n + e) : none;
    return p;
}
template <typename T>
DEVICE void store_part(T *y, i64 row, int n, const part &p)
{
    EACH_OWN (i, e)
        if (e < n) put(y, row * n + e, p.of[i]);
}

/* The largest of the experts begin .. end - 1, of equal ones the first; NaN is none. The lanes agree. */
DEVICE choice_of best_of(const part &x, int begin, int end)
{
    choice_of best = { MINUS_INFINITY, end };
    EACH_OWN (i, e)
    {
        bool first = (e >= begin) & (e < end) & (x.of[i] > best.value);
        best.value = first ? x.of[i] : best.value;
        best.expert = first ? e : best.expert;
    }
    for (int m = WAVE / 2; m > 0; m >>= 1) {
        float value = exchanged(best.value, m);
        int   expert = (int)bits_of(exchanged(float_of((u32)best.expert), m));
        bool  first = (value > best.value) | ((value == best.value) & (expert < best.expert)); /* without branches */
        best.value = first ? value : best.value;
        best.expert = first ? expert : best.expert;
    }
    if (best.expert == end) best.expert = begin; /* there is none above minus infinity */
    return best;
}

/* Softmax or sigmoid of logits that are minus infinity behind the last expert. */
DEVICE part scores_of(const part &logits, int sigmoid)
{
    part  s;
    float largest = MINUS_INFINITY, sum = 0.0f;
    if (sigmoid) {
        UNROLL for (int i = 0; i < PER; i++) s.of[i] = 1.0f / (1.0f + exponential(-logits.of[i]));
        return s;
    }
    UNROLL for (int i = 0; i < PER; i++) largest = larger(largest, logits.of[i]);
    for (int m = WAVE / 2; m > 0; m >>= 1) largest = larger(largest, exchanged(largest, m));
    UNROLL for (int i = 0; i < PER; i++) {
        s.of[i] = exponential(logits.of[i] - largest);
        sum += s.of[i];
    }
    sum = wave_sum(sum);
    UNROLL for (int i = 0; i < PER; i++) s.of[i] /= sum;
    return s;
}

/* Only experts of the top_groups best groups can be chosen: those with the largest sums of their `group_best` largest. */
DEVICE void limit_groups(part *choice, int experts, int groups, int top_groups, int group_best)
{
    int  size = experts / groups;
    part left = *choice, of_group;
    UNROLL for (int i = 0; i < PER; i++) of_group.of[i] = MINUS_INFINITY;
    for (int first = 0; first < experts; first += size) {
        float sum = 0.0f;
        for (int n = 0; n < group_best; n++) {
            choice_of best = best_of(left, first, first + size);
            sum += best.value;
            EACH_OWN (i, e) left.of[i] = e == best.expert ? MINUS_INFINITY : left.of[i];
        }
        EACH_OWN (i, e) of_group.of[i] = e >= first && e < first + size ? sum : of_group.of[i];
    }
    UNROLL for (int i = 0; i < PER; i++) left.of[i] = MINUS_INFINITY;
    for (int n = 0; n < top_groups; n++) {
        int first = best_of(of_group, 0, experts).expert / size * size;
        EACH_OWN (i, e) {
            bool in = e >= first && e < first + size;
            left.of[i] = in ? choice->of[i] : left.of[i];
            of_group.of[i] = in ? MINUS_INFINITY : of_group.of[i];
        }
    }
    *choice = left;
}

/* bias may be NULL. uniform: experts in turn, whatever the scores are. */
KERNEL(route)
(S *RESTRICT weights, int *RESTRICT ids, S *RESTRICT scores, const L *RESTRICT logits, const D *RESTRICT bias, i64 rows,
 int experts, int top_k, int sigmoid, int normalise, float scale, int groups, int top_groups, int group_best, int uniform)
{
    i64 row = (i64)block_id(0) * ROWS + thread_id() / WAVE;
    if (row >= rows) return;
    part  choice = load_part(logits, row, experts, MINUS_INFINITY), s = scores_of(choice, sigmoid), w;
    float sum = 1e-20f;
    if (bias || groups > 1) /* else logits tell more experts apart than their scores do */
        EACH_OWN (i, e) choice.of[i] = bias && e < experts ? s.of[i] + get(bias, e) : s.of[i];
    if (groups > 1) limit_groups(&choice, experts, groups, top_groups, group_best);
    UNROLL for (int i = 0; i < PER; i++) w.of[i] = 0.0f;
    for (int j = 0; j < top_k; j++) {
        int   best = uniform ? (int)(((u32)row * (u32)top_k + (u32)j) % (u32)experts) : best_of(choice, 0, experts).expert;
        float chosen = 0.0f;
        EACH_OWN (i, e) {
            chosen = e == best ? s.of[i] : chosen;
            choice.of[i] = e == best ? MINUS_INFINITY : choice.of[i];
        }
        chosen = wave_sum(chosen); /* of one lane */
        sum += chosen;
        EACH_OWN (i, e) w.of[i] = e == j ? chosen : w.of[i];
        if (thread_id() % WAVE == 0) ids[row * top_k + j] = best;
    }
    UNROLL for (int i = 0; i < PER; i++) w.of[i] = normalise ? scale * w.of[i] / sum : scale * w.of[i];
    store_part(weights, row, top_k, w);
    store_part(scores, row, experts, s);
}

/* dweights and dscores: one of them may be NULL. */
KERNEL(route_grad)
(L *RESTRICT dlogits, const D *RESTRICT dweights, const G *RESTRICT dscores, const int *RESTRICT ids,
 const S *RESTRICT scores, i64 rows, int experts, int top_k, int sigmoid, int normalise, float scale)
{
    i64 row = (i64)block_id(0) * ROWS + thread_id() / WAVE;
    if (row >= rows) return;
    part  s = load_part(scores, row, experts, 0.0f), d;
    float sum = 1e-20f, along = 0.0f, mean = 0.0f;
    UNROLL for (int i = 0; i < PER; i++) d.of[i] = 0.0f;
    if (dscores) d = load_part(dscores, row, experts, 0.0f);
    for (int j = 0; dweights && normalise && j < top_k; j++) {
        float chosen = get(scores, row * experts + ids[row * top_k + j]);
        sum += chosen;
        along += get(dweights, row * top_k + j) * chosen;
    }
    for (int j = 0; dweights && j < top_k; j++) {
        int   id = ids[row * top_k + j];
        float dw = get(dweights, row * top_k + j), own = scale * (normalise ? (dw - along / sum) / sum : dw);
        EACH_OWN (i, e) d.of[i] = e == id ? d.of[i] + own : d.of[i];
    }
    UNROLL for (int i = 0; i < PER; i++) mean = multiply_add(d.of[i], s.of[i], mean);
    mean = wave_sum(mean);
    UNROLL for (int i = 0; i < PER; i++)
        d.of[i] = sigmoid ? d.of[i] * s.of[i] * (1.0f - s.of[i]) : s.of[i] * (d.of[i] - mean);
    store_part(dlogits, row, experts, d);
}
