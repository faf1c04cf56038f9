/* SPDX-License-Identifier: Apache-2.0 */
/* plan/their_time.c - the time of a step of a PyTorch-based trainer. */
#include "plan/their_model.h"

#include <math.h>
#include <string.h>

/* A job, and the hardware as far as software gets out of it. */
typedef struct {
    const tm_their_job *job;
    const double       *p;
    tm_hardware         hw;
    tm_machine_plan     machine;
    double              tokens; /* of a micro-batch on a rank */
    bool                low;    /* products in FP8 or FP4 */
} work;

/* Seconds of a layer in a micro-batch, or of several layers; kernels of the forward pass. */
typedef struct {
    double forward, backward, attention, attention_back, streams, casts, kernels;
    double experts; /* of these, what their rows take */
} layer_time;

/* FlashAttention 2 instead of cuDNN, where that is newer. */
static bool has_flash_2(const tm_their_job *job)
{
    const char *arch = job->device->arch;
    return job->trainer->flash_2 && job->fusion != TM_THEY_FUSE && strncmp(arch, "sm_", 3) == 0 &&
           strcmp(arch, "sm_80") != 0;
}

static work start(const tm_their_job *job, const tm_parameters *p)
{
    work w = { .job = job, .p = p->of, .hw = tm_hardware_reached(job->device, p) };
    w.low = job->format == TM_RATE_FP8 || job->format == TM_RATE_FP4;
    if (has_flash_2(job)) {
        w.hw.number[TM_HARDWARE_ATTENTION_FORWARD] *= p->of[TM_PARAMETER_FLASH_2];
        w.hw.number[TM_HARDWARE_ATTENTION_BACKWARD] *= p->of[TM_PARAMETER_FLASH_2];
    }
    int reach = (int)w.hw.number[TM_HARDWARE_LINK_DEVICES];
    if (reach < 1 || reach > job->devices) reach = job->devices;
    w.machine = (tm_machine_plan){ .device = w.hw, .nodes = (job->devices + reach - 1) / reach, .devices = reach };
    w.tokens = job->micro_batch * job->seq / job->cp;
    return w;
}

static double product(const work *w, tm_rate_format format, double m, double n, double k, double count)
{
    return tm_time_product(&w->hw, format, m, n, k, count, 2 * count * (m * k + k * n + m * n), 0);
}

static double stream(const work *w, double bytes)
{
    return tm_time_stream(&w->hw, bytes, 0, 0);
}

/* --- a layer --------------------------------------------------------------------------------------------------------
 */

/* Bytes of casts of so many elements: read in two bytes, written twice in one: as they are and transposed. */
static double cast_bytes(const work *w, double elements)
{
    double times = w->p[TM_PARAMETER_CAST];
    if (w->job->fusion != TM_THEY_FUSE && !w->job->trainer->te_casts) times *= w->p[TM_PARAMETER_CAST_UNFUSED];
    if (w->job->rows) times *= w->p[TM_PARAMETER_CAST_ROWS];
    return 4 * elements * times;
}

static void add_linear(const work *w, tm_their_linear l, layer_time *t)
{
    double n = w->tokens;
    t->forward += product(w, w->job->format, n, l.out, l.in, 1);
    t->backward += product(w, w->job->format, n, l.in, l.out, 1);
    if (!w->job->adapter) t->backward += product(w, w->job->format, l.out, l.in, n, 1);
    if (w->low) t->casts += stream(w, cast_bytes(w, n * (l.in + l.out) + (w->job->adapter ? 0 : l.in * l.out / 2)));
}

/* Rows of a rank are those of the tokens that its part of the group has, whatever the number of experts here. */
static void add_experts(const work *w, layer_time *t)
{
    const tm_their_job *j = w->job;
    const tm_moe_shape *e = &j->shape.moe;
    double here = (double)e->experts / j->ep, rows = w->tokens / j->tp * (double)e->top_k, d = (double)j->shape.dim;
    double inner = (double)e->ffn_dim, wide = tm_their_gated(&j->shape) ? 2 : 1;
    double share = w->p[TM_PARAMETER_EXPERT_PRODUCTS];
    if (strncmp(w->hw.arch, "gfx", 3) == 0) share *= w->p[TM_PARAMETER_EXPERT_PRODUCTS_AMD];
    double once =
        product(w, j->format, rows / here, wide * inner, d, here) + product(w, j->format, rows / here, d, inner, here);
    double casts = w->low ? stream(w, cast_bytes(w, rows * (2 * d + (1 + wide) * inner))) : 0;
    double streams =
        stream(w, 6 * rows * d * w->p[j->permutes_apart ? TM_PARAMETER_PERMUTE_APART : TM_PARAMETER_PERMUTE] +
                      6 * rows * (1 + wide) * inner);
    t->forward += once / share;
    t->backward += 2 * once / share;
    t->casts += casts;
    t->streams += streams;
    t->experts = 3 * once / share + casts + streams;
}

/* Of the forward pass of a layer: a product, its casts, norms, sums, rotation, attention and activation; with experts
 * also router, choice, order of rows, and a product for each expert here. */
static double kernels(const work *w, const tm_their_layer *l, bool with_experts)
{
    const tm_their_job *j = w->job;
    double              n = l->n * (w->low ? 3 : 1) + (j->fusion == TM_THEY_EAGER ? 30 : 8);
    if (j->cp > 1) n += 4 * j->cp;
    if (!with_experts) return n;
    return n + 20 + (w->low ? 6 : 2) * (double)j->shape.moe.experts / j->ep;
}

static layer_time layer(const work *w, bool with_experts)
{
    const tm_their_job *j = w->job;
    tm_their_layer      l = tm_their_layer_of(&j->shape, with_experts, j->tp);
    layer_time          t = { 0 };
    double              n = w->tokens, between = 0;
    for (int i = 0; i < l.n; i++) {
        add_linear(w, l.linear[i], &t);
        if (j->adapter && j->fusion != TM_THEY_FUSE) between += 8 * (l.linear[i].in + l.linear[i].out);
    }
    /* Two norms and two sums: 11 widths, of a part where rows are divided; rotation; the activation. Forward and twice
     * as much backward. */
    between += 2 * (11 * (double)j->shape.dim / j->tp + 2 * (l.heads + l.key_heads) * l.key_width +
                    (tm_their_gated(&j->shape) ? 3 : 2) * l.inner);
    t.streams = stream(w, 3 * n * between * w->p[TM_PARAMETER_STREAM] *
                              (j->fusion == TM_THEY_EAGER ? w->p[TM_PARAMETER_EAGER] : 1));
    if (with_experts) add_experts(w, &t);
    t.kernels = kernels(w, &l, with_experts);
    double pairs = 2 * n * tm_their_keys(&j->shape, j->seq) * l.heads * (l.key_width + l.value_width);
    if (j->cp > 1 && j->trainer->unbalanced_ring) pairs *= (2 - 1.0 / j->cp) * w->p[TM_PARAMETER_RING];
    t.attention = tm_time_attention(&w->hw, false, pairs, l.key_width, 0);
    t.attention_back = tm_time_attention(&w->hw, true, 2.5 * pairs, l.key_width, 0);
    return t;
}

/* All layers, and those that predict further tokens. */
static layer_time layers(const work *w)
{
    const tm_model_shape *s = &w->job->shape;
    double                with = tm_their_expert_layers(s), of[2] = { (double)s->n_layers - with, with };
    layer_time            sum = { 0 };
    for (int i = 0; i < 2; i++) {
        double n = of[i] * ((double)s->n_layers + w->job->predicted_tokens) / (double)s->n_layers;
        if (n <= 0) continue;
        layer_time t = layer(w, i == 1);
        sum.forward += n * t.forward;
        sum.backward += n * t.backward;
        sum.attention += n * t.attention;
        sum.attention_back += n * t.attention_back;
        sum.streams += n * t.streams;
        sum.casts += n * t.casts;
        sum.kernels += n * t.kernels;
        sum.experts += n * t.experts;
    }
    return sum;
}

static double again(const work *w, tm_again how, const layer_time *t)
{
    switch (how) {
    case TM_AGAIN_FULL:
        return t->forward + t->attention + (t->streams + t->casts) / 3;
    case TM_AGAIN_PER_OP:
        return w->p[TM_PARAMETER_PER_OP] * t->forward + t->streams / 3;
    case TM_AGAIN_ATTENTION:
        return 0.9 * t->attention + w->p[TM_PARAMETER_CHEAP] * t->forward;
    case TM_AGAIN_CHEAP:
        return w->p[TM_PARAMETER_CHEAP] * t->forward + t->streams / 5;
    default:
        return 0;
    }
}

/* The output layer, in bfloat16 everywhere, and the loss. */
static double head(const work *w)
{
    const tm_their_job *j = w->job;
    double              n = w->tokens, v = (double)j->shape.vocab_size / j->tp;
    double              once = product(w, TM_RATE_BF16, n, v, (double)j->shape.dim, 1);
    return (1 + j->predicted_tokens) * (once * (j->adapter ? 2 : 3) + stream(w, n * v * w->p[TM_PARAMETER_LOSS]));
}

/* --- between ranks --------------------------------------------------------------------------------------------------
 */

static double move(const work *w, tm_move how, double bytes, int ranks, int stride)
{
    return tm_time_move(&w->hw, how, bytes, tm_group_plan_of(&w->machine, ranks, stride));
}

/* Rows of the batch are gathered and scattered around attention and the feed-forward layer, both ways. */
static double tensor(const work *w, tm_again how)
{
    const tm_their_job *j = w->job;
    double              bytes = 2 * w->tokens * (double)j->shape.dim;
    double once = move(w, TM_MOVE_ALL_GATHER, bytes, j->tp, 1) + move(w, TM_MOVE_REDUCE_SCATTER, bytes, j->tp, 1);
    return (double)j->shape.n_layers / j->pp * (how == TM_AGAIN_FULL ? 6 : 4) * once *
           (j->plain_tensor ? 1 : w->p[TM_PARAMETER_TENSOR]);
}

/* Keys and values of the whole sequence, forward, backward and their gradients. */
static double context(const work *w)
{
    const tm_their_job *j = w->job;
    tm_their_layer      l = tm_their_layer_of(&j->shape, false, j->tp);
    double              bytes = 2 * l.key_heads * (l.key_width + l.value_width) * w->tokens * j->cp;
    return 3 * (double)j->shape.n_layers / j->pp * move(w, TM_MOVE_ALL_GATHER, bytes, j->cp, j->tp) *
           w->p[TM_PARAMETER_CONTEXT];
}

static double exchange(const work *w)
{
    const tm_their_job *j = w->job;
    double              k = (double)j->shape.moe.top_k, with = tm_their_expert_layers(&j->shape);
    if (with <= 0 || j->ep <= 1) return 0;
    double        bytes = 2 * w->tokens / j->tp * k * (double)j->shape.dim;
    tm_group_plan group = tm_group_plan_of(&w->machine, j->ep, 1);
    int           nodes = group.ranks / group.near;
    double        near = tm_time_move(&w->hw, TM_MOVE_ALL_TO_ALL, bytes, (tm_group_plan){ group.near, group.near });
    if (j->trainer->sends_once && nodes > 1) bytes *= nodes * (1 - pow(1 - 1.0 / nodes, k)) / k;
    double far = tm_time_move(&w->hw, TM_MOVE_ALL_TO_ALL, bytes, (tm_group_plan){ nodes, 1 });
    double beside = j->pp > 1 && j->vp > 1 && j->trainer->overlaps_experts ? w->p[TM_PARAMETER_EXPERTS_BESIDE] : 1;
    return 4 * with / j->pp * beside * (near * w->p[TM_PARAMETER_EXPERTS_NEAR] + far * w->p[TM_PARAMETER_EXPERTS_FAR]);
}

/* Of weights (2 bytes) and gradients: seconds of a micro-batch, and of a step once. */
typedef struct {
    double each, once;
} data_time;

/* A part is exposed always, the rest where there is less than that to compute. */
static double exposed(const work *w, double seconds, double computed)
{
    double always = w->p[TM_PARAMETER_DATA] * seconds;
    return always + fmax(0, seconds - always - computed);
}

static data_time data(const work *w, double computed)
{
    const tm_their_job *j = w->job;
    double              dense = tm_their_dense_parameters(&j->shape) / j->tp / j->pp;
    double              experts = tm_their_expert_parameters(&j->shape) / j->ep / j->pp;
    double              width = j->trainer->wide ? 4 : 2;
    int                 ranks = j->dp * j->cp, copies = j->dp * j->cp * j->tp / j->ep;
    if (copies < 1) copies = 1;
    double units = (double)j->shape.n_layers / j->pp; /* a message for each layer */
    double gather = units * move(w, TM_MOVE_ALL_GATHER, 2 * dense / units, ranks, j->tp);
    double scatter = units * move(w, TM_MOVE_REDUCE_SCATTER, width * dense / units, ranks, j->tp);
    if (experts > 0) {
        gather += units * move(w, TM_MOVE_ALL_GATHER, 2 * experts / units, copies, j->ep);
        scatter += units * move(w, TM_MOVE_REDUCE_SCATTER, width * experts / units, copies, j->ep);
    }
    if (j->adapter) scatter = 0;
    if (j->sharing == TM_THEY_SHARE_NOTHING)
        return (data_time){
            .each = j->adapter ? 0 : exposed(w, move(w, TM_MOVE_ALL_REDUCE, 2 * dense, ranks, j->tp), 0.6 * computed)
        };
    if (j->sharing == TM_THEY_SHARE_OPTIMIZER)
        return (data_time){ .once = j->adapter ? 0 : exposed(w, gather + scatter, 0.7 * computed) };
    if (j->pp > 1)
        return (data_time){ .each = exposed(w, scatter, computed), .once = w->p[TM_PARAMETER_DATA] * 2 * gather };
    return (data_time){ .each = exposed(w, 2 * gather + scatter, computed) };
}

static double optimizer(const work *w)
{
    const tm_their_job *j = w->job;
    double              dense = tm_their_dense_parameters(&j->shape) / j->tp / j->pp;
    double              experts = tm_their_expert_parameters(&j->shape) / j->ep / j->pp;
    double              each = w->p[j->trainer->foreach ? TM_PARAMETER_ADAM_LISTS : TM_PARAMETER_ADAM];
    if (j->adapter) return 0;
    if (j->sharing == TM_THEY_SHARE_NOTHING) return stream(w, each * (dense + experts));
    return stream(w, each * (dense / (j->dp * j->cp) + experts / fmax(1, (double)j->dp * j->cp * j->tp / j->ep)));
}

/* --- a step ---------------------------------------------------------------------------------------------------------
 */

/* What the host needs for the launches of a micro-batch, beyond what the device computes meanwhile. */
static double host(const work *w, double computed)
{
    const tm_their_job *j = w->job;
    double              launches = 60.0 * (double)j->shape.n_layers / j->pp * (j->shape.moe.experts > 0 ? 3 : 1);
    if (j->fusion == TM_THEY_FUSE) return 0;
    return fmax(0, launches * (j->fusion == TM_THEY_EAGER ? 1 : 0.4) * w->p[TM_PARAMETER_HOST] * 1e-6 - computed);
}

static void add_up(const work *w, tm_their_time *t)
{
    const tm_their_job *j = w->job;
    double             *s = t->seconds, sum = 0;
    for (int i = 0; i < TM_THEIR_STRAGGLERS; i++) sum += s[i];
    s[TM_THEIR_STRAGGLERS] = sum * w->p[TM_PARAMETER_STRAGGLERS] * log2(j->devices);
    double factor = w->p[j->trainer->factor] / (j->early ? w->p[TM_PARAMETER_EARLY] : 1);
    for (int i = 0; i < TM_THEIR_TIMES; i++) t->step += s[i] *= factor;
    double read = j->loader > 0 ? j->accumulation * j->micro_batch * j->seq / j->loader : 0;
    s[TM_THEIR_LOADER] = fmax(0, read - t->step);
    t->step += s[TM_THEIR_LOADER];
    t->tokens_per_second = j->accumulation * j->micro_batch * j->seq * j->dp / t->step / j->devices;
}

tm_their_time tm_their_time_of(const tm_their_job *job, const tm_parameters *p)
{
    tm_their_time t = { .again = job->again == TM_AGAIN_UNKNOWN ? tm_their_again(job, p) : job->again };
    work          w = start(job, p);
    layer_time    l = layers(&w);
    double       *s = t.seconds, more = job->adapter ? 1 + p->of[TM_PARAMETER_ADAPTER] : 1, a = job->accumulation;
    double        each = a * more / job->pp;
    s[TM_THEIR_FORWARD] = each * l.forward;
    s[TM_THEIR_BACKWARD] = each * l.backward;
    s[TM_THEIR_ATTENTION] = each * (l.attention + l.attention_back);
    s[TM_THEIR_STREAMS] = each * l.streams;
    s[TM_THEIR_CASTS] = each * l.casts;
    s[TM_THEIR_AGAIN] = each * again(&w, t.again, &l);
    double computed = 0;
    for (int i = TM_THEIR_FORWARD; i <= TM_THEIR_AGAIN; i++) computed += s[i] / a;
    s[TM_THEIR_HEAD] = a * head(&w) / job->pp;
    s[TM_THEIR_GAPS] = each * (t.again == TM_AGAIN_FULL ? 4 : 3) * l.kernels * w.hw.number[TM_HARDWARE_LAUNCH] * 1e-6 *
                       p->of[TM_PARAMETER_GAP];
    computed += s[TM_THEIR_GAPS] / a;
    s[TM_THEIR_HOST] = a * host(&w, computed);
    s[TM_THEIR_TENSOR] = a * tensor(&w, t.again);
    s[TM_THEIR_CONTEXT] = a * context(&w);
    s[TM_THEIR_EXPERTS] = a * exchange(&w);
    data_time d = data(&w, computed);
    s[TM_THEIR_DATA] = a * d.each + d.once;
    if (job->pp > 1) {
        bool near = job->tp * job->pp <= w.machine.devices;
        s[TM_THEIR_STAGES] = a * job->vp * 4 *
                             tm_time_send(&w.hw, 2 * w.tokens * (double)job->shape.dim / job->tp, near) *
                             p->of[TM_PARAMETER_TENSOR] / 2;
        s[TM_THEIR_BUBBLE] = p->of[TM_PARAMETER_BUBBLE] * job->bubble * (job->pp - 1) / job->vp *
                             (computed + s[TM_THEIR_HOST] / a + s[TM_THEIR_TENSOR] / a);
    }
    s[TM_THEIR_OPTIMIZER] = optimizer(&w);
    s[TM_THEIR_FIXED] = p->of[TM_PARAMETER_FIXED] * 1e-3 + 4 * move(&w, TM_MOVE_ALL_REDUCE, 8, job->devices, 1);
    if (job->imbalance > 1) s[TM_THEIR_IMBALANCE] = (job->imbalance - 1) * (each * l.experts + s[TM_THEIR_EXPERTS]);
    add_up(&w, &t);
    return t;
}
