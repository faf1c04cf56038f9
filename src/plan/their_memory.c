/* SPDX-License-Identifier: Apache-2.0 */
/* plan/their_memory.c - the memory of a rank of a PyTorch-based trainer. */
#include "plan/their_model.h"

#include <math.h>

/* What a layer keeps for the backward pass, bytes of a token on a rank (models.md 12.2; Korthikanti et al. 2022). In
 * low precision the inputs of products are kept in one byte. */
static double kept_by_layer(const tm_their_job *j, bool with_experts, tm_again how)
{
    const tm_model_shape *s = &j->shape;
    tm_their_layer        l = tm_their_layer_of(s, with_experts, 1);
    bool                  low = j->format == TM_RATE_FP8 || j->format == TM_RATE_FP4;
    double d = (double)s->dim, k = (double)s->moe.top_k, e = (double)s->moe.ffn_dim, gates = tm_their_gated(s) ? 2 : 1;
    double heads = l.heads * l.value_width;
    double qkv = 2 * (l.heads * l.key_width + l.key_heads * (l.key_width + l.value_width));
    if (j->trainer->bare && j->fusion == TM_THEY_EAGER) return 49 * d + 7 * l.inner; /* models.md 12.3 */
    double whole = j->sequence_parallel ? j->tp : 1; /* what parts of matrices divide of rows between them */
    if (how == TM_AGAIN_FULL) return 2 * d / whole;
    if (how == TM_AGAIN_PER_OP && j->format == TM_RATE_FP4) return 4 * d / whole; /* its products are not in the list */
    if (how == TM_AGAIN_PER_OP && !with_experts)
        return (8 * d + 2 * l.key_heads * l.value_width + 2 * l.inner) / j->tp * (j->fused_loss ? 0.75 : 1);
    bool   cheap = how == TM_AGAIN_CHEAP; /* neither outputs of norms nor of activations, nor what latents give */
    double acts = cheap ? gates : gates + 1;
    if (cheap && s->mla.kv_rank > 0) qkv = 2 * (double)(s->mla.q_rank + s->mla.kv_rank + s->mla.rope);
    double between = cheap ? 4 * d : 8 * d, inside = qkv + 2 * heads + 2 * acts * l.inner;
    if (j->adapter) inside = qkv + 2 * gates * l.inner; /* frozen matrices need no inputs */
    if (j->adapter && !cheap) between -= 4 * d;
    if (with_experts) inside += k * (4 * d + 2 * acts * e);
    if (low && !j->adapter && !cheap) inside -= 2 * d + heads + l.inner + (with_experts ? k * (d + e) : 0);
    if (low && !j->adapter && cheap) inside -= heads + (with_experts ? k * d : 0);
    if (j->trainer->wide_norms) between += 8 * d;
    if (j->early) between += 2 * d;                                       /* masks of dropout */
    if (j->early && how == TM_AGAIN_NONE) inside += 5 * l.heads * j->seq; /* scores, softmax and its mask */
    double all = between / whole + inside / j->tp;
    return how == TM_AGAIN_PER_OP ? 0.5 * all : all;
}

static double kept(const tm_their_job *j, tm_again how, const tm_parameters *p)
{
    double with = tm_their_expert_layers(&j->shape), n = (double)j->shape.n_layers;
    double sum = with * kept_by_layer(j, true, how) + (n - with) * kept_by_layer(j, false, how);
    return sum * (j->fusion == TM_THEY_FUSE && !j->early && !j->trainer->keeps_all ? p->of[TM_PARAMETER_LEAN] : 1);
}

static void add_state(const tm_their_job *j, double *b)
{
    double dense = tm_their_dense_parameters(&j->shape) / j->tp / j->pp;
    double experts = tm_their_expert_parameters(&j->shape) / j->ep / j->pp;
    double ranks = (double)j->dp * j->cp, copies = fmax(1, ranks * j->tp / j->ep);
    double shared = dense / ranks + experts / copies, all = dense + experts;
    double low = j->format == TM_RATE_FP8 || j->format == TM_RATE_FP4 ? 1 : 2;
    /* Gathered: a layer and the one to come, and the tables, which torchtitan parts; of stages all of them, and their
     * gradients. */
    double tables = j->trainer->reserved || j->shape.tied ? 1 : 2;
    double layers = 4 * tm_their_layer_parameters(&j->shape);
    if (j->sharing == TM_THEY_SHARE_ALL && ranks > 1)
        b[TM_THEIRS_GATHERED] =
            j->pp > 1 ? (j->adapter ? 2 : 6) * all
                      : (layers + 2 * tables * (double)j->shape.vocab_size * (double)j->shape.dim) / j->tp;
    if (j->adapter) {
        b[TM_THEIRS_WEIGHTS] = j->sharing == TM_THEY_SHARE_ALL ? 2 * shared : low * all;
    } else if (j->sharing == TM_THEY_SHARE_ALL) {
        double width = j->trainer->bare ? 2 : 4;
        b[TM_THEIRS_WEIGHTS] = b[TM_THEIRS_GRADIENTS] = width * shared;
        b[TM_THEIRS_OPTIMIZER] = 2 * width * shared;
    } else {
        bool bare = j->trainer->bare, copies_of_gradients = bare && j->devices > 1; /* buckets of DDP */
        b[TM_THEIRS_WEIGHTS] = 2 * all;
        b[TM_THEIRS_GRADIENTS] = (bare ? copies_of_gradients ? 4 : 2 : 4) * all;
        b[TM_THEIRS_OPTIMIZER] = bare ? 4 * all : 12 * shared;
    }
}

/* Micro-batches of which the first stage keeps activations: one for each stage behind, more where a rank has several;
 * half of one more where gradients of weights come later. */
static double kept_beside(const tm_their_job *j)
{
    double n = j->pp + (j->vp > 1 ? (j->pp - 1.0) / j->vp : j->bubble < 1 ? 0.5 : 0);
    return fmax(1, fmin(n, j->accumulation));
}

/* Logits of a micro-batch. Behind the loss, with full recomputation, a layer at a time is there as a whole. */
static double logits(const tm_their_job *j, double tokens, tm_again how, bool reused, const tm_parameters *p)
{
    tm_parameter which = j->fused_loss ? TM_PARAMETER_LOGITS : j->trainer->logits;
    if (which == TM_PARAMETER_LOGITS_EAGER && j->fusion == TM_THEY_EAGER) which = TM_PARAMETER_LOGITS_UNFUSED;
    double bytes = tokens * (double)j->shape.vocab_size / j->tp * p->of[which];
    if (how != TM_AGAIN_FULL) return bytes;
    double layer = tokens * kept_by_layer(j, tm_their_expert_layers(&j->shape) > 0, TM_AGAIN_NONE);
    return reused ? fmax(bytes, layer) : bytes + layer;
}

/* Of a pipeline the first stage, which keeps the most activations. PyTorch's last stage keeps the logits of all
 * micro-batches, in bfloat16, and joins them at the end of the step. */
static void add_pipeline(const tm_their_job *j, double tokens, tm_again how, double each, const tm_parameters *p,
                         double *b)
{
    double last = logits(j, tokens, how, true, p), layer = tokens * kept_by_layer(j, false, TM_AGAIN_NONE);
    b[TM_THEIRS_ACTIVATIONS] = each * kept_beside(j);
    b[TM_THEIRS_LOGITS] = how == TM_AGAIN_FULL ? layer : 0;
    if (j->sharing != TM_THEY_SHARE_ALL) return;
    last += 2 * 2 * j->accumulation * tokens * (double)j->shape.vocab_size / j->tp;
    if (last + each <= b[TM_THEIRS_LOGITS] + b[TM_THEIRS_ACTIVATIONS]) return;
    b[TM_THEIRS_ACTIVATIONS] = each;
    b[TM_THEIRS_LOGITS] = last;
}

static double runtime(const tm_their_job *j, const double *b, const tm_parameters *p)
{
    if (j->devices == 1) return 0; /* what tensors take */
    if (!j->trainer->reserved) return p->of[TM_PARAMETER_RUNTIME] * 1e9;
    return p->of[TM_PARAMETER_RUNTIME_RESERVED] * 1e9 +
           p->of[TM_PARAMETER_FRAGMENTS] * (b[TM_THEIRS_ACTIVATIONS] + b[TM_THEIRS_LOGITS]);
}

/* What is not there at the same time: gradients come while activations go. Behind these, the optimizer's lists of
 * operations take a copy of the gradients. */
static double never_beside(const tm_their_job *j, const double *b, bool reused)
{
    double kept = b[TM_THEIRS_ACTIVATIONS] + b[TM_THEIRS_LOGITS], own = b[TM_THEIRS_GRADIENTS];
    if (j->trainer->foreach && j->devices > 1) own /= 2; /* buckets are there always */
    if (j->trainer->foreach) return own + kept - fmax(kept, 2 * own);
    return j->sharing == TM_THEY_SHARE_ALL && j->pp == 1 && reused ? fmin(own, kept) : 0;
}

/* Bytes of the classes, and their sum at the fullest time. reused: what comes later takes what has gone. */
static double at_most(const tm_their_job *j, tm_again how, bool reused, const tm_parameters *p, double *b)
{
    double tokens = j->micro_batch * j->seq / j->cp, each = tokens * kept(j, how, p) / j->pp, sum = 0;
    add_state(j, b);
    b[TM_THEIRS_ACTIVATIONS] = each;
    if (j->pp > 1)
        add_pipeline(j, tokens, how, each, p, b);
    else
        b[TM_THEIRS_LOGITS] = logits(j, tokens, how, reused, p);
    b[TM_THEIRS_RUNTIME] = runtime(j, b, p);
    for (int i = 0; i < TM_THEIRS_CLASSES; i++) sum += b[i];
    return sum - never_beside(j, b, reused);
}

tm_their_memory tm_their_memory_of(const tm_their_job *j, tm_again how, const tm_parameters *p)
{
    tm_their_memory m = { 0 };
    double          least[TM_THEIRS_CLASSES] = { 0 };
    m.total = at_most(j, how, j->fused_loss || j->trainer->wide_norms, p, m.bytes);
    m.needed = at_most(j, how, true, p, least) - least[TM_THEIRS_RUNTIME];
    if (j->devices > 1) m.needed += p->of[TM_PARAMETER_RUNTIME] * 1e9;
    return m;
}

double tm_their_room(const tm_hardware *device, const tm_parameters *p)
{
    return device->number[TM_HARDWARE_MEMORY] * 0x1p30 * p->of[TM_PARAMETER_ROOM];
}

tm_again tm_their_again(const tm_their_job *job, const tm_parameters *p)
{
    double   room = tm_their_room(job->device, p);
    tm_again middle = job->fusion == TM_THEY_FUSE ? TM_AGAIN_CHEAP : TM_AGAIN_PER_OP;
    if (job->trainer->again == TM_AGAIN_UNKNOWN && tm_their_memory_of(job, TM_AGAIN_NONE, p).needed <= room)
        return TM_AGAIN_NONE;
    return tm_their_memory_of(job, middle, p).needed <= room ? middle : TM_AGAIN_FULL;
}

/* Parts of matrices first, as far as links reach, then stages. */
void tm_their_layout(tm_their_job *job, const tm_parameters *p)
{
    static const int tries[][2] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 8, 1 }, { 4, 2 }, { 8, 2 },
                                    { 4, 4 }, { 4, 8 }, { 8, 4 }, { 8, 8 }, { 8, 16 } };
    double           all = job->sequences > 0 ? job->sequences : job->accumulation * job->micro_batch * job->dp;
    if (job->layout_known) return;
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        tm_their_job next = *job;
        next.tp = tries[i][0];
        next.pp = tries[i][1];
        if (job->devices % (next.tp * next.pp) != 0) continue;
        next.dp = job->devices / next.tp / next.pp;
        if (next.dp * next.micro_batch > all) continue; /* more ranks than sequences */
        next.vp = next.pp > 1 ? 2 : 1;
        next.accumulation = fmax(1, floor(all / next.dp / next.micro_batch));
        if (tm_their_memory_of(&next, TM_AGAIN_NONE, p).needed > tm_their_room(job->device, p)) continue;
        *job = next;
        return;
    }
}
