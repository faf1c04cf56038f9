/* SPDX-License-Identifier: Apache-2.0 */
/* What certificates say of honest steps of many kinds, and of some whose gradients, masks or context are wrong. */
#include "support/test.h"
#include "support/training.h"

#include "op/attrs.h"
#include "train/certify/certificate.h"
#include "train/certify/perturb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is wrong: gradients of the groups with these words in their names ("": all) are multiplied; or something of the
 * step itself. */
enum { NOTHING, FACTOR, NOT_A_NUMBER, NO_GRADIENT, SEES_ALL, SEES_NOTHING };
typedef struct {
    int         kind;
    const char *groups[2];
    double      factor;
} defect;

static bool is_wrong(const defect *d, const tm_tensor *t)
{
    char group[96];
    if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE) return false;
    tm_motion_group_of(t->name, group);
    return strstr(group, d->groups[0]) || (d->groups[1] && strstr(group, d->groups[1]));
}

/* In the part of each tensor that one of `ranks` has. */
static void plant_in_gradients(tm_trainer *trainer, const defect *d, int ranks)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (!is_wrong(d, t)) continue;
        double *g = test_values_read(trainer, t->gradient);
        int64_t n = tm_shape_elements(t->shape) / ranks;
        for (int64_t k = 0; k < n; k++) g[k] *= d->factor;
        if (d->kind == NOT_A_NUMBER) g[0] = (double)NAN;
        test_values_write(trainer, t->gradient, g);
        free(g);
    }
}

/* Attention that sees later tokens, too, or its own alone; or a parameter loses its gradient. */
static void plant_in_step(tm_trainer *trainer, const defect *d)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors && d->kind == NO_GRADIENT; i++) {
        tm_tensor *t = (tm_tensor *)(uintptr_t)&step->graph->tensors[i];
        if (is_wrong(d, t)) t->gradient = TM_NONE;
    }
    for (size_t p = 0; p < step->plan->n_programs; p++)
        for (size_t k = 0; k < step->plan->programs[p].count; k++) {
            const tm_node     *node = step->plan->programs[p].instructions[k].node;
            tm_attention_attr *attention = (tm_attention_attr *)(uintptr_t)node->attr;
            bool               attends = node->op == TM_OP_attention || node->op == TM_OP_attention_grad;
            if (attends && d->kind == SEES_ALL) attention->causal = 0;
            if (attends && d->kind == SEES_NOTHING) attention->window = 1;
        }
}

/* Honest: each direction says so, or that experts change too often to compare. Wrong: some direction says it. */
typedef enum { HOLDS, SEEN, HIDDEN, LOOKS_AHEAD, USES_NOTHING } outcome;
typedef struct {
    const char *what;
    defect      is;
    int         warm, seeds; /* updates before; directions */
    outcome     wanted;
    const char *says;
} row;

static bool is_as_wanted(const row *r, const tm_certificate *c, bool experts, bool probed)
{
    bool rows = c->causal == probed && c->context == probed;
    if (r->wanted == LOOKS_AHEAD) return c->done && c->looked_ahead && !c->causal && strstr(c->reason, r->says);
    if (r->wanted == USES_NOTHING) return c->done && c->causal && !c->context && strstr(c->reason, r->says);
    if (r->wanted == SEEN) return c->done && !c->gradients && strstr(c->reason, r->says);
    if (r->wanted == HIDDEN) return !c->done && !c->gradients && strstr(c->reason, r->says);
    if (experts && !c->done) return strstr(c->reason, "experts of tokens change too often for a comparison") != NULL;
    return c->done && c->gradients && rows && c->looked_ahead == probed && !c->reason[0] &&
           fabs(c->measured - c->expected) <= c->band && fabs(c->measured) > 0;
}

/* Steps of `warm` updates, then certificates along `seeds` directions, which leave no trace; returns how many of them
 * are as wanted. */
static int look_along(const tm_step_options *o, const row *r, int ranks)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_error   err = { 0 };
    int        right = 0;
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    tm_trainer    *trainer = test_trainer_open(device, o, 7);
    test_batch     b = test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, 7);
    tm_micro_batch batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    for (int t = 1; t <= r->warm; t++) test_step(trainer, t, 1e-2, 1, &b);
    plant_in_step(trainer, &r->is);
    for (int seed = 1; seed <= r->seeds; seed++) {
        tm_certificate c;
        test_begin(trainer, 1, 0, 0, b.target_tokens);
        if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        if (r->is.kind == FACTOR || r->is.kind == NOT_A_NUMBER) plant_in_gradients(trainer, &r->is, ranks);
        uint64_t before = test_state_hash(trainer), gradients = test_gradients_hash(trainer);
        if (tm_certify(trainer, &batch, (uint64_t)seed, &c, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(before == test_state_hash(trainer) && gradients == test_gradients_hash(trainer));
        bool is = is_as_wanted(r, &c, o->shape.moe.experts > 0, o->seq > 3);
        if (!is && r->wanted == HOLDS)
            fail_msg("%s, direction %d: done %d, %g beside %g (%g), gradients %d, causal %d, context %d: %s", r->what,
                     seed, c.done, c.measured, c.expected, c.band, c.gradients, c.causal, c.context, c.reason);
        right += is;
        if (strcmp(c.losses, "float32") != 0)
            assert_true(o->precision != &tm_precision_f32 && !o->exact == !c.inexact[0]);
    }
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return right;
}

static void certify(const tm_step_options *o, const row *r)
{
    if (look_along(o, r, 1) == 0) fail_msg("%s: no direction says '%s'", r->what, r->says);
}

TEST(wrong_steps_are_told)
{
    static const row rows[] = {
        { "nothing is wrong", { NOTHING, { "", NULL }, 1 }, 3, 2, HOLDS, "" },
        { "one group twice",
          { FACTOR, { "layers.1 attention", NULL }, 2 },
          0,
          2,
          SEEN,
          "the gradient of layers.1 attention is not that of the loss: it changes by " },
        { "the first group",
          { FACTOR, { "tok_embeddings", NULL }, -1 },
          3,
          2,
          SEEN,
          "the gradient of tok_embeddings " },
        { "the last group", { FACTOR, { "output", NULL }, 0.5 }, 0, 2, SEEN, "the gradient of output " },
        { "two groups",
          { FACTOR, { "layers.0 attention", "layers.1 feed" }, 3 },
          3,
          2,
          SEEN,
          "the gradient of layers." },
        { "all", { FACTOR, { "", NULL }, -1 }, 0, 2, SEEN, "is not that of the loss" },
        { "all a little", { FACTOR, { "", NULL }, 1.06 }, 3, 2, SEEN, "is not that of the loss" },
        { "no gradient at all", { FACTOR, { "", NULL }, 0 }, 0, 2, SEEN, "" },
        { "not a number", { NOT_A_NUMBER, { "layers.0 norms", NULL }, 1 }, 3, 2, SEEN, "" },
        { "one has none",
          { NO_GRADIENT, { "layers.1 norms", NULL }, 1 },
          0,
          2,
          SEEN,
          "is trained, but nothing computes its gradient" },
        { "later tokens are seen", { SEES_ALL, { "", NULL }, 1 }, 3, 2, LOOKS_AHEAD, "the loss of target " },
        { "nothing is seen", { SEES_NOTHING, { "", NULL }, 1 }, 0, 2, USES_NOTHING, "the model uses no context" },
    };
    tm_step_options o = test_llama_options();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) certify(&o, &rows[i]);
    o.micro_batch = 1;
    certify(&o, &rows[10]);
}

static tm_step_options mixture_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.moe =
        (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    return o;
}

static tm_step_options adapted_options(const char *targets)
{
    tm_step_options o = test_llama_options();
    o.accumulation = 2;
    o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 3, .base = TM_DTYPE_COUNT };
    snprintf(o.adapters.targets, sizeof o.adapters.targets, "%s", targets);
    return o;
}

static tm_step_options narrow_options(const tm_precision *precision, const tm_precision *exact)
{
    tm_step_options o = test_llama_options();
    o.micro_batch = 4, o.seq = 64; /* so large that losses in float32 take no memory */
    o.precision = precision;
    o.exact = exact;
    return o;
}

enum {
    GPT,
    TIED,
    SHORT,
    EXPERTS,
    NARROW_EXPERTS,
    EXACT_EXPERTS,
    ADAPTERS,
    DORA,
    EXACT,
    PURE_EXACT,
    NARROW,
    TABLE,
    ODD
};

static tm_step_options options_of(int kind)
{
    tm_step_options o = test_llama_options();
    switch (kind) {
    case GPT:
        return test_gpt_options();
    case TIED:
    case SHORT:
        o.shape.tied = true, o.accumulation = 2, o.recompute.every_n = 1;
        if (kind == SHORT) o.seq = 3; /* for a probe */
        return o;
    case EXPERTS:
    case NARROW_EXPERTS:
    case EXACT_EXPERTS:
        o = mixture_options();
        if (kind != EXPERTS) o.precision = &tm_precision_bf16;
        if (kind == EXACT_EXPERTS) o.exact = &tm_precision_f32;
        return o;
    case ADAPTERS:
    case DORA:
        o = adapted_options(kind == DORA ? "all-linear" : "all-linear,lm_head");
        o.adapters.dora = kind == DORA;
        return o;
    case EXACT:
        return narrow_options(&tm_precision_bf16, &tm_precision_f32);
    case PURE_EXACT:
        return narrow_options(&tm_precision_bf16_pure, &tm_precision_f32);
    case NARROW:
        return narrow_options(&tm_precision_bf16, NULL);
    case TABLE: /* 64,000 elements, which are moved in two pieces */
        o.shape.vocab_size = 1000;
        return o;
    default: /* sizes that no block fits */
        o.shape.dim = 76, o.shape.head_dim = 38, o.shape.ffn_dim = 101, o.shape.vocab_size = 97;
        return o;
    }
}

TEST(kinds_of_steps_are_told)
{
#define HONEST                                                                                                         \
    {                                                                                                                  \
        NOTHING, { "", NULL }, 1                                                                                       \
    }
    static const struct {
        int kind;
        row is;
    } rows[] = {
        { GPT, { "gpt", HONEST, 2, 2, HOLDS, "" } },
        { TIED, { "tied, two micro-batches", HONEST, 2, 2, HOLDS, "" } },
        { TIED, { "tied, wrong", { FACTOR, { "layers.0", NULL }, 2 }, 2, 2, SEEN, "the gradient of layers.0 " } },
        { SHORT, { "too short for a probe", HONEST, 0, 1, HOLDS, "" } },
        { EXPERTS, { "experts", HONEST, 0, 3, HOLDS, "" } },
        { EXPERTS, { "experts, trained", HONEST, 6, 3, HOLDS, "" } },
        { EXPERTS, { "experts, wrong", { FACTOR, { "layers.0", NULL }, 2 }, 0, 3, SEEN, "the gradient of layers.0 " } },
        { EXPERTS, { "experts, all wrong", { FACTOR, { "", NULL }, 3 }, 0, 4, SEEN, "is not that of the loss" } },
        { EXPERTS, { "experts, all half", { FACTOR, { "", NULL }, 0.5 }, 3, 4, SEEN, "is not that of the loss" } },
        { EXPERTS, { "experts, wrong router", { FACTOR, { "router", NULL }, -2 }, 3, 2, SEEN, "router" } },
        { NARROW_EXPERTS, { "experts in bfloat16", HONEST, 2, 3, HOLDS, "" } },
        { EXACT_EXPERTS, { "experts in bfloat16, exact", HONEST, 2, 1, HOLDS, "" } },
        { ADAPTERS, { "adapters", HONEST, 3, 2, HOLDS, "" } },
        { EXACT, { "bfloat16, exact", HONEST, 0, 2, HOLDS, "" } },
        { EXACT, { "bfloat16, exact, trained", { NOTHING, { "", NULL }, 1 }, 20, 2, HOLDS, "" } },
        { PURE_EXACT, { "pure, trained", { NOTHING, { "", NULL }, 1 }, 20, 2, HOLDS, "" } },
        { TIED, { "tied, trained", { NOTHING, { "", NULL }, 1 }, 20, 2, HOLDS, "" } },
        { GPT, { "gpt, trained", { NOTHING, { "", NULL }, 1 }, 20, 2, HOLDS, "" } },
        { EXACT, { "bfloat16, wrong", { FACTOR, { "layers.0", NULL }, 2 }, 0, 2, SEEN, "the gradient of layers.0 " } },
        { PURE_EXACT, { "pure", HONEST, 0, 2, HOLDS, "" } },
        { PURE_EXACT, { "pure, wrong", { FACTOR, { "layers.0", NULL }, 2 }, 0, 2, SEEN, "the gradient of layers.0 " } },
        { NARROW, { "in bfloat16 alone", HONEST, 0, 2, HOLDS, "" } },
        { NARROW, { "in bfloat16 alone, wrong", { FACTOR, { "", NULL }, -1 }, 0, 2, SEEN, "is not that of the loss" } },
        { NARROW,
          { "in bfloat16 alone, none",
            { FACTOR, { "", NULL }, 0 },
            0,
            2,
            HIDDEN,
            "rounding hides what the gradients say" } },
        { NARROW,
          { "in bfloat16 alone, learnt by heart", HONEST, 40, 6, HIDDEN, "rounding hides what the gradients say" } },
        { DORA, { "lengths of rows", HONEST, 3, 1, HIDDEN, "DoRA" } },
        { TABLE, { "a large table", HONEST, 1, 1, HOLDS, "" } },
        { TABLE,
          { "a large table, wrong", { FACTOR, { "tok_embeddings", NULL }, -1 }, 1, 1, SEEN, "of tok_embeddings " } },
        { ODD, { "sizes that no block fits", HONEST, 1, 1, HOLDS, "" } },
    };
#undef HONEST
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_step_options o = options_of(rows[i].kind);
        if (rows[i].is.warm < 20 || test_is_full()) certify(&o, &rows[i].is);
    }
}

/* The table of docs/certificate.md, with TM_LONG=1 (and TM_VERBOSE=1, which prints it). */
TEST(how_often_a_factor_shows)
{
    enum { MANY = 24, GROUPS = 5 };
    static const char *const groups[] = { "layers.0 attention", "layers.1 feed_forward", "layers.0 norms",
                                          "tok_embeddings", "output" };
    static const double      factors[] = { 2, 0.5, -1, 0, 1.25, 1.1 };
    const tm_step_options ways[] = { narrow_options(&tm_precision_f32, NULL), options_of(EXACT), options_of(PURE_EXACT),
                                     options_of(NARROW) };
    if (!getenv("TM_LONG")) return;
    for (int warm = 0; warm <= 20; warm += 20)
        for (int w = 0; w < 4; w++)
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++)
                for (int ranks = 1; ranks <= 8; ranks = ranks == 1 ? 2 : 4 * ranks) {
                    row r = { "", { FACTOR, { "", NULL }, factors[f] }, warm, MANY, SEEN, "" };
                    int one = 0, least = MANY, all = look_along(&ways[w], &r, ranks);
                    for (int g = 0; g < GROUPS; g++) {
                        r.is.groups[0] = groups[g];
                        int n = look_along(&ways[w], &r, ranks);
                        one += n;
                        least = n < least ? n : least;
                    }
                    print_message("# %s%s, %d steps, x %g on one of %d ranks: one group %.2f (least %.2f), all %.2f\n",
                                  ways[w].precision->name, ways[w].exact ? " (losses float32)" : "", warm, factors[f],
                                  ranks, (double)one / (MANY * GROUPS), (double)least / MANY, (double)all / MANY);
                }
}
