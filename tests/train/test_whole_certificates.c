/* SPDX-License-Identifier: Apache-2.0 */
/* What certificates say as a whole, every member and word, of honest steps and of some whose gradients, masks or
 * context are wrong: with the kernels that every processor has, on one thread. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/train/test_whole_certificates; git diff tests/train/whole-certificates.txt
 */
#include "support/training.h"
#include "support/whole.h"

#include "op/attrs.h"
#include "train/certify/certificate.h"
#include "train/certify/perturb.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* What is wrong: gradients of the groups with these words in their names ("": all) are multiplied; or something of the
 * step itself. */
enum { NOTHING, FACTOR, NOT_A_NUMBER, NO_GRADIENT, SEES_ALL, SEES_NOTHING, BALANCE };
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

static void plant_in_gradients(tm_trainer *trainer, const defect *d)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (!is_wrong(d, t)) continue;
        double *g = test_values_read(trainer, t->gradient);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) g[k] *= d->factor;
        if (d->kind == NOT_A_NUMBER) g[0] = (double)NAN;
        test_values_write(trainer, t->gradient, g);
        free(g);
    }
}

/* Attention that sees later tokens, too, or its own alone; a loss that balances experts with another gradient. */
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
            tm_balance_attr   *balance = (tm_balance_attr *)(uintptr_t)node->attr;
            bool               attends = node->op == TM_OP_attention || node->op == TM_OP_attention_grad;
            if (attends && d->kind == SEES_ALL) attention->causal = 0;
            if (attends && d->kind == SEES_NOTHING) attention->window = 1;
            if (node->op == TM_OP_balance_loss_grad && d->kind == BALANCE) balance->alpha *= d->factor;
        }
}

static void add_certificate(tm_text *out, const tm_certificate *c)
{
    tm_text_printf(
        out,
        "done %d, groups %d, %.4g beside %.4g, band %.3g, gradients %d, ahead %d, rows %d, causal %d, context "
        "%d, losses %s%s%s%s%s\n",
        c->done, c->groups, c->measured, c->expected, c->band, c->gradients, c->looked_ahead, c->rows, c->causal,
        c->context, c->losses, c->inexact[0] ? ", not exact: " : "", c->inexact, c->reason[0] ? ": " : "", c->reason);
}

/* Steps of `warm` updates, then certificates along `seeds` directions. */
static void certify(tm_text *out, const tm_step_options *o, const defect *d, int warm, int seeds)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    tm_trainer    *trainer = test_trainer_open(device, o, 7);
    test_batch     b = test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, 7);
    tm_micro_batch batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    for (int t = 1; t <= warm; t++) test_step(trainer, t, 1e-2, 1, &b);
    plant_in_step(trainer, d);
    for (int seed = 1; seed <= seeds; seed++) {
        tm_certificate c;
        test_begin(trainer, 1, 0, 0, b.target_tokens);
        if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        if (d->kind == FACTOR || d->kind == NOT_A_NUMBER) plant_in_gradients(trainer, d);
        uint64_t before = test_state_hash(trainer), gradients = test_gradients_hash(trainer);
        if (tm_certify(trainer, &batch, (uint64_t)seed, &c, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(before == test_state_hash(trainer) && gradients == test_gradients_hash(trainer));
        tm_text_printf(out, "  %d steps, direction %d: ", warm, seed);
        add_certificate(out, &c);
    }
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static const defect honest = { NOTHING, { "", NULL }, 1 };

static const struct {
    const char *what;
    defect      is;
} defects[] = {
    { "nothing is wrong", { NOTHING, { "", NULL }, 1 } },
    { "one group twice", { FACTOR, { "layers.1 attention", NULL }, 2 } },
    { "the first group", { FACTOR, { "tok_embeddings", NULL }, -1 } },
    { "the last group", { FACTOR, { "output", NULL }, 0.5 } },
    { "two groups", { FACTOR, { "layers.0 attention", "layers.1 feed" }, 3 } },
    { "all", { FACTOR, { "", NULL }, -1 } },
    { "all a little", { FACTOR, { "", NULL }, 1.06 } },
    { "no gradient at all", { FACTOR, { "", NULL }, 0 } },
    { "not a number", { NOT_A_NUMBER, { "layers.0 norms", NULL }, 1 } },
    { "one has none", { NO_GRADIENT, { "layers.1 norms", NULL }, 1 } },
    { "later tokens are seen", { SEES_ALL, { "", NULL }, 1 } },
    { "nothing is seen", { SEES_NOTHING, { "", NULL }, 1 } },
};

static void wrong_steps_are_told_as_recorded(void **state)
{
    tm_text         out = { 0 };
    tm_step_options o = test_llama_options();
    (void)state;
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        tm_text_printf(&out, "%s\n", defects[i].what);
        certify(&out, &o, &defects[i].is, i % 2 ? 0 : 3, 2);
    }
    o.micro_batch = 1;
    tm_text_add(&out, "later tokens of one row are seen\n");
    certify(&out, &o, &defects[10].is, 0, 1);
    whole_is("tests/train/whole-certificates-wrong.txt", &out);
}

static tm_step_options mixture_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.moe =
        (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    return o;
}

static tm_step_options adapted_options(const char *targets, bool dora)
{
    tm_step_options o = test_llama_options();
    o.accumulation = 2;
    o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 3, .base = TM_DTYPE_COUNT };
    o.adapters.dora = dora;
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

static void kinds_of_steps_are_told_as_recorded(void **state)
{
    const defect twice = { FACTOR, { "layers.0", NULL }, 2 }, router = { FACTOR, { "router", NULL }, -2 },
                 thrice = { FACTOR, { "", NULL }, 3 }, half = { FACTOR, { "", NULL }, 0.5 },
                 balance = { BALANCE, { "", NULL }, -1 }, unbalanced = { BALANCE, { "", NULL }, 0 };
    tm_text         out = { 0 };
    tm_step_options o = test_gpt_options();
    (void)state;
#define SAY(what, ...) (tm_text_add(&out, what "\n"), certify(&out, __VA_ARGS__))
    SAY("gpt", &o, &honest, 2, 2);
    o = test_llama_options();
    o.shape.tied = true, o.accumulation = 2, o.recompute.every_n = 1;
    SAY("tied, two micro-batches", &o, &honest, 2, 2);
    SAY("tied, wrong", &o, &twice, 2, 2);
    o.seq = 3;
    SAY("too short for a probe", &o, &honest, 0, 1);
    o = mixture_options();
    SAY("experts", &o, &honest, 0, 3);
    SAY("experts, trained", &o, &honest, 6, 3);
    SAY("experts, wrong", &o, &twice, 0, 3);
    SAY("experts, all wrong", &o, &thrice, 0, 4);
    SAY("experts, all half, trained", &o, &half, 3, 4);
    SAY("experts, wrong balance", &o, &balance, 0, 2);
    SAY("experts, no balance, trained", &o, &unbalanced, 3, 2);
    SAY("experts, wrong router", &o, &router, 3, 2);
    o.precision = &tm_precision_bf16;
    SAY("experts in bfloat16", &o, &honest, 2, 3);
    o.exact = &tm_precision_f32;
    SAY("experts in bfloat16, exact", &o, &honest, 2, 1);
    o = adapted_options("all-linear", false);
    SAY("adapters", &o, &honest, 3, 2);
    o = adapted_options("wq,wv", true);
    SAY("lengths", &o, &honest, 1, 1);
    o = narrow_options(&tm_precision_bf16, &tm_precision_f32);
    SAY("bfloat16, exact", &o, &honest, 0, 2);
    SAY("bfloat16, exact, wrong", &o, &twice, 0, 2);
    o = narrow_options(&tm_precision_bf16_pure, &tm_precision_f32);
    SAY("pure, exact", &o, &honest, 0, 2);
    SAY("pure, exact, wrong", &o, &twice, 0, 2);
    o = narrow_options(&tm_precision_bf16, NULL);
    SAY("bfloat16", &o, &honest, 0, 2);
    SAY("bfloat16, wrong", &o, &(defect){ FACTOR, { "", NULL }, -1 }, 0, 2);
    SAY("bfloat16, no gradient", &o, &(defect){ FACTOR, { "", NULL }, 0 }, 0, 2);
    SAY("bfloat16, by heart", &o, &honest, 40, 1);
    o = test_llama_options();
    o.shape.vocab_size = 1000; /* 64,000 elements, which are moved in two pieces */
    SAY("a large table", &o, &honest, 1, 1);
    SAY("a large table, wrong", &o, &(defect){ FACTOR, { "tok_embeddings", NULL }, -1 }, 1, 1);
    o = test_llama_options();
    o.shape.dim = 76, o.shape.head_dim = 38, o.shape.ffn_dim = 101, o.shape.vocab_size = 97;
    SAY("sizes that no block fits", &o, &honest, 1, 1);
    o.precision = &tm_precision_bf16_pure;
    SAY("sizes that no block fits, bfloat16", &o, &honest, 0, 1);
#undef SAY
    whole_is("tests/train/whole-certificates.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(wrong_steps_are_told_as_recorded),
                                           cmocka_unit_test(kinds_of_steps_are_told_as_recorded) };

TM_TESTS(tests, NULL, NULL)
