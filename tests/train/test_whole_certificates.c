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
#include "train/certify/leak_probe.h"

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

enum { MOST_SAMPLES = 3, MOST_TOKENS = 40 };

/* Places of a probe (. S L: free, stays, looks) above its tokens, a sample after the other. */
static void add_probe(tm_text *out, const tm_step_options *o, const tm_micro_batch *batch, uint64_t seed)
{
    tm_probe probe;
    tm_probe_make(o, batch, seed, &probe);
    assert_true(probe.rows == o->micro_batch * o->seq);
    tm_text_printf(out, "  seed %d: %s, %s\n", (int)seed, probe.possible ? "possible" : "not possible",
                   probe.context ? "context" : "no context");
    for (int64_t sample = 0; sample < o->micro_batch && probe.tokens; sample++)
        for (int line = 0; line < 2; line++) {
            tm_text_add(out, "    ");
            for (int64_t i = sample * o->seq; i < (sample + 1) * o->seq; i++)
                tm_text_printf(out, "%c", line == 0 ? ".SL"[probe.places[i]] : 'a' + probe.tokens[i]);
            tm_text_add(out, "\n");
        }
    tm_probe_fini(&probe);
}

static void probes_are_as_recorded(void **state)
{
    static const int lengths[] = { 3, 4, 5, 8, 14, 36 };
    int32_t          tokens[MOST_SAMPLES * MOST_TOKENS], targets[MOST_SAMPLES * MOST_TOKENS],
        first_key[MOST_SAMPLES * MOST_TOKENS];
    tm_micro_batch  batch = { .field = { first_key, tokens, targets } };
    tm_step_options o = test_llama_options();
    tm_text         out = { 0 };
    (void)state;
    o.fields[0] = (tm_field){ .name = "first_key" };
    o.fields[1] = (tm_field){ .name = "tokens" };
    o.fields[2] = (tm_field){ .name = "targets" };
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (int documents = 0; documents < 4; documents++) {
            o.n_fields = 3;
            o.micro_batch = documents == 0 ? 1 : MOST_SAMPLES;
            o.seq = lengths[k];
            o.shape.vocab_size = documents == 3 ? 2 : 26;
            for (int i = 0; i < o.micro_batch * o.seq; i++) {
                int t = i % lengths[k], cut = lengths[k] / 2;
                tokens[i] = i % (int)o.shape.vocab_size;
                targets[i] = documents == 3 && t % 3 == 1 ? TM_IGNORED_TARGET : 1;
                first_key[i] = documents == 2 && t >= cut ? cut : 0; /* two of them */
            }
            tm_text_printf(&out, "%d tokens, documents %d\n", lengths[k], documents);
            for (uint64_t seed = 1; seed <= 3; seed++) add_probe(&out, &o, &batch, seed);
        }
    o.shape.vocab_size = 1;
    tm_text_add(&out, "one token\n");
    add_probe(&out, &o, &batch, 1);
    o.shape.vocab_size = 2;
    for (int i = 0; i < o.micro_batch * o.seq; i++) targets[i] = i % 36 > 33 ? 1 : TM_IGNORED_TARGET;
    tm_text_add(&out, "targets at the end\n");
    for (uint64_t seed = 1; seed <= 3; seed++) add_probe(&out, &o, &batch, seed);
    for (int i = 0; i < o.micro_batch * o.seq; i++) targets[i] = 1;
    o.fields[0] = (tm_field){ .name = "images" };
    tm_text_add(&out, "no documents\n");
    add_probe(&out, &o, &batch, 1);
    batch = (tm_micro_batch){ .field = { targets, tokens } };
    o.n_fields = 2;
    o.fields[0] = o.fields[2];
    tm_text_add(&out, "targets first\n");
    add_probe(&out, &o, &batch, 1);
    for (int f = 0; f < 2; f++) {
        const char *name = o.fields[f].name;
        o.fields[f].name = "images";
        tm_text_printf(&out, "no %s\n", name);
        add_probe(&out, &o, &batch, 1);
        o.fields[f].name = name;
    }
    whole_is("tests/train/whole-probes.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(wrong_steps_are_told_as_recorded),
                                           cmocka_unit_test(kinds_of_steps_are_told_as_recorded),
                                           cmocka_unit_test(probes_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
