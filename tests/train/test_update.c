/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the update: every optimizer and format holds, and leaves no trace; what is planted between
 * gradients and update, or behind it, is found, with the tensor, the step and both numbers. */
#include "support/test.h"
#include "op/attrs.h"
#include "support/training.h"

#include <math.h>

#include "train/certify/certificate.h"
#include "train/certify/rate.h"
#include "train/certify/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double peak = 1e-2, most = 0.5; /* learning rate; norm, which is above it in these steps */

static tm_schedule schedule_of(void)
{
    return (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 60, .warmup_steps = 40, .decay_ratio = -1 };
}

/* What is wrong in the step that is looked at. */
typedef enum {
    NOTHING,
    DECAYED_NORMS,   /* vectors decay, too */
    NO_DECAY,        /* matrices do not */
    STALE_NORM,      /* the clip is that of the last step */
    NO_CLIP,         /* there is none */
    RESTARTED,       /* moments are corrected as in step 1 */
    LATE_RATE,       /* the rate is that of the step before */
    SWAPPED_BETAS,   /* of both moments */
    EPS_INSIDE,      /* of the root */
    COUPLED_DECAY,   /* is part of the gradient */
    SKIPPED_GROUP,   /* a layer is not updated */
    CHANGED_MOMENT,  /* a moment is stored twice as large */
    LARGER_GRADIENT, /* of one tensor, by a thousandth */
    OLD_MOMENTS,     /* the weight moves by the moments of the step before */
    DEFECTS
} defect;

static bool is_norm(const char *name)
{
    return strstr(name, "norm") != NULL;
}

static void plant_in_nodes(const tm_step *step, defect d)
{
    for (size_t k = 0; k < step->update->count; k++) {
        const tm_node *node = step->update->instructions[k].node;
        tm_adamw_attr *attr = (tm_adamw_attr *)(uintptr_t)node->attr;
        if (node->op != TM_OP_adamw) continue;
        bool norm = is_norm(tm_graph_at(step->graph, node->in[0])->name);
        if (d == DECAYED_NORMS && norm) attr->weight_decay = 0.1;
        if ((d == NO_DECAY || d == COUPLED_DECAY) && !norm) attr->weight_decay = 0;
        if (d == SWAPPED_BETAS) {
            double beta1 = attr->beta1;
            attr->beta1 = attr->beta2, attr->beta2 = beta1;
        }
    }
}

static void write_scalar(tm_trainer *trainer, int which, double value)
{
    tm_error err = { 0 };
    if (tm_trainer_write(trainer, tm_trainer_step_of(trainer)->scalars, (size_t)which * sizeof value, &value,
                         sizeof value, &err) != TM_OK)
        fail_msg("%s", err.text);
}

static void plant_in_scalars(tm_trainer *trainer, defect d, int step, double norm, double last_norm)
{
    tm_schedule    schedule = schedule_of();
    const tm_hyper h = tm_trainer_step_of(trainer)->options.groups[0].hyper;
    if (d == STALE_NORM) write_scalar(trainer, TM_SCALAR_MAX_NORM, most * norm / last_norm);
    if (d == NO_CLIP) write_scalar(trainer, TM_SCALAR_MAX_NORM, 0);
    if (d == RESTARTED) write_scalar(trainer, TM_SCALAR_CORRECTION1, 1 - h.beta1);
    if (d == RESTARTED) write_scalar(trainer, TM_SCALAR_CORRECTION2, 1 - h.beta2);
    if (d == LATE_RATE) write_scalar(trainer, TM_SCALAR_LEARNING_RATE, peak * tm_schedule_factor(&schedule, step - 2));
}

static void plant_in_gradients(tm_trainer *trainer, defect d)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        bool             coupled = d == COUPLED_DECAY && t->shape.rank >= 2;
        bool             larger = d == LARGER_GRADIENT && strcmp(t->name, "layers.1.attention.wo.weight") == 0;
        if (t->role != TM_ROLE_PARAMETER || (!coupled && !larger)) continue;
        double *g = test_values_read(trainer, t->gradient), *w = test_values_read(trainer, (tm_tensor_id)i);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) g[k] = larger ? g[k] * 1.001 : g[k] + 0.1 * w[k];
        test_values_write(trainer, t->gradient, g);
        free(g);
        free(w);
    }
}

/* Weights and moments of all parameters, before the update. */
typedef struct {
    double **weights, **first, **second;
} values;

static values keep(const tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    values          v = { calloc(graph->n_tensors, sizeof(double *)), calloc(graph->n_tensors, sizeof(double *)),
                          calloc(graph->n_tensors, sizeof(double *)) };
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        v.weights[i] = test_values_read(trainer, (tm_tensor_id)i);
        v.first[i] = test_values_read(trainer, tm_optimizer_state_of(graph, (tm_tensor_id)i, "exp_avg"));
        v.second[i] = test_values_read(trainer, tm_optimizer_state_of(graph, (tm_tensor_id)i, "exp_avg_sq"));
    }
    return v;
}

static void drop(const tm_trainer *trainer, values *v)
{
    for (size_t i = 0; i < tm_trainer_step_of(trainer)->graph->n_tensors; i++)
        free(v->weights[i]), free(v->first[i]), free(v->second[i]);
    free(v->weights);
    free(v->first);
    free(v->second);
}

/* Other weights or moments than the update made. */
static void plant_behind(tm_trainer *trainer, defect d, int step, const values *before)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    const tm_hyper  h = tm_trainer_step_of(trainer)->options.groups[0].hyper;
    tm_schedule     schedule = schedule_of();
    values          now = keep(trainer);
    double          rate = peak * tm_schedule_factor(&schedule, step - 1);
    double          c1 = 1 - pow(h.beta1, step), c2 = 1 - pow(h.beta2, step);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        double *w = now.weights[i];
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) {
            double old = before->weights[i][k], kept = old - (t->shape.rank >= 2 ? rate * h.weight_decay * old : 0);
            if (d == EPS_INSIDE) w[k] = kept - rate * now.first[i][k] / c1 / sqrt(now.second[i][k] / c2 + h.eps);
            if (d == OLD_MOMENTS)
                w[k] = kept - rate * before->first[i][k] / c1 / (sqrt(before->second[i][k] / c2) + h.eps);
            if (d == SKIPPED_GROUP && strncmp(t->name, "layers.1.", 9) == 0) w[k] = old;
            if (d == CHANGED_MOMENT) now.second[i][k] *= 2;
        }
        test_values_write(trainer, (tm_tensor_id)i, w);
        if (d == CHANGED_MOMENT)
            test_values_write(trainer, tm_optimizer_state_of(graph, (tm_tensor_id)i, "exp_avg_sq"), now.second[i]);
    }
    drop(trainer, &now);
}

static test_batch batch_of(const tm_step_options *o, int step)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)step);
}

static void look(tm_trainer *trainer, int step, double max_norm, tm_update_check **check)
{
    tm_error       err = { 0 };
    tm_update_rule rule = { peak, schedule_of(), max_norm };
    uint64_t       before = test_state_hash(trainer), gradients = test_gradients_hash(trainer);
    if (tm_update_watch(trainer, &rule, step, 3, check, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(before == test_state_hash(trainer) && gradients == test_gradients_hash(trainer));
}

/* So many steps; the update of the last one is looked at. */
static tm_update_certificate train(const tm_step_options *o, int steps, double max_norm, defect d)
{
    tm_device            *device = test_device_open("cpu", 1);
    tm_trainer           *trainer = test_trainer_open(device, o, 7);
    tm_update_certificate c = { .agrees = true };
    tm_schedule           schedule = schedule_of();
    tm_step_result        result = { 0 };
    tm_error              err = { 0 };
    for (int step = 1; step <= steps; step++) {
        test_batch       b = batch_of(o, step);
        tm_micro_batch   batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
        tm_update_check *check = NULL;
        values           before;
        double           last_norm = result.grad_norm;
        test_begin(trainer, step, peak * tm_schedule_factor(&schedule, step - 1), max_norm, b.target_tokens);
        if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        if (step == steps) {
            look(trainer, step, max_norm, &check);
            if (d != NOTHING) {
                before = keep(trainer);
                plant_in_nodes(tm_trainer_step_of(trainer), d);
                plant_in_scalars(trainer, d, step, 1.1 * last_norm, last_norm);
                plant_in_gradients(trainer, d);
            }
        }
        result = test_update(trainer);
        if (step == steps && d != NOTHING) {
            if (d >= EPS_INSIDE) plant_behind(trainer, d, step, &before);
            drop(trainer, &before);
        }
        uint64_t behind = test_state_hash(trainer);
        if (check && tm_update_judge(check, &result, &c, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(behind == test_state_hash(trainer));
        test_batch_fini(&b);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    assert_int_equal(c.n_steps, 1);
    assert_int_equal(c.steps[0], steps);
    return c;
}

static const struct {
    const tm_optimizer *optimizer;
    tm_hyper            hyper;
    bool                pure; /* of bfloat16 only */
} rules[] = {
    { &tm_optimizer_adamw,
      { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay_matrices_only = true },
      false },
    { &tm_optimizer_adamw, { .beta1 = 0.8, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 0 }, false },
    { &tm_optimizer_adamw,
      { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .bf16_moments = true },
      false },
    { &tm_optimizer_adamw, { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .kahan = true }, true },
    { &tm_optimizer_adamw,
      { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .stochastic = true },
      true },
    { &tm_optimizer_sgd, { .weight_decay = 0.1 }, false },
    { &tm_optimizer_sgd, { .momentum = 0.9, .weight_decay = 0.1, .decay_matrices_only = true }, false },
    { &tm_optimizer_sgd, { .momentum = 0.9, .weight_decay = 0.01, .nesterov = true }, false },
    { &tm_optimizer_adafactor,
      { .beta2_decay = -0.8, .eps1 = NAN, .eps2 = 1e-3, .clip_threshold = 1, .weight_decay = 0.1 },
      false },
    { &tm_optimizer_muon,
      { .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .momentum = 0.95,
        .nesterov = true,
        .weight_decay = 0.1,
        .definition = TM_DEFINED_TORCH },
      false },
    { &tm_optimizer_muon,
      { .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .momentum = 0.9,
        .weight_decay = 0.1,
        .definition = TM_DEFINED_MEGATRON,
        .scale = TM_MUON_SPECTRAL },
      false },
    { &tm_optimizer_adamw8bit,
      { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .definition = TM_DEFINED_TORCHAO },
      false },
    { &tm_optimizer_adamw8bit,
      { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .definition = TM_DEFINED_BITSANDBYTES },
      false },
};
enum { RULES = sizeof rules / sizeof rules[0] };

/* A llama; a GPT with one table for look-ups and output; a mixture of experts; groups of their own; adapters. */
static tm_step_options options_of(int kind, int rule, const tm_precision *precision)
{
    tm_step_options o = kind == 1 ? test_gpt_options() : test_llama_options();
    o.optimizer = rules[rule].optimizer;
    o.hyper = rules[rule].hyper;
    o.precision = precision;
    if (kind == 2) {
        o.shape.moe =
            (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
        o.accumulation = 2;
    }
    if (kind == 3) {
        for (int g = 0; g < 3; g++)
            o.groups[g] = (tm_group){ .place = "test", .lr_scale = 1, .hyper = o.hyper, .format = TM_DTYPE_COUNT };
        snprintf(o.groups[1].patterns, sizeof o.groups[1].patterns, "*norm*");
        o.groups[1].hyper.weight_decay = 0.3, o.groups[1].hyper.decay_matrices_only = false;
        snprintf(o.groups[2].patterns, sizeof o.groups[2].patterns, "layers.1.*");
        o.groups[2].lr_scale = 0.25;
        o.n_groups = 3;
    }
    if (kind == 4) {
        o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test" };
        snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    }
    return o;
}

TEST(honest_updates_hold)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    static const int                 steps[] = { 1, 2, 12 };
    double                           farthest = 0;
    int                              runs = 0;
    for (int rule = 0; rule < RULES; rule++)
        for (int kind = 0; kind < 5; kind++)
            for (int p = rules[rule].pure ? 2 : 0; p < 3; p++)
                for (int k = 0; k < 3; k++) {
                    tm_step_options o = options_of(kind, rule, precisions[p]);
                    if (rule == 2 && p == 2) continue; /* they are that already */
                    if ((rule + kind + p + k) % 4 && !test_is_full()) continue;
                    tm_update_certificate c = train(&o, steps[k], k == 1 ? 0 : most, NOTHING);
                    if (!c.agrees)
                        fail_msg("rule %d, model %d, %s, step %d: %s", rule, kind, precisions[p]->name, steps[k],
                                 c.reason);
                    assert_true(c.elements > 1000 && c.largest > 0 && c.largest <= 1);
                    farthest = fmax(farthest, p == 0 ? c.largest : 0);
                    runs++;
                }
    print_message("%d honest updates, the farthest of float32 at %.2f of its band\n", runs, farthest);
}

TEST(what_is_planted_is_found)
{
    static const struct {
        defect      is;
        const char *tensor, *what; /* words of the reason */
    } rows[] = { { DECAYED_NORMS, "norm.weight", "the weight is" },
                 { NO_DECAY, "weight is not", "the weight is" },
                 { STALE_NORM, "", "is not what the configuration asks for" },
                 { NO_CLIP, "", "is not what the configuration asks for" },
                 { RESTARTED, "", "the weight is" },
                 { LATE_RATE, "", "the weight is" },
                 { SWAPPED_BETAS, "", "is not what the configuration asks for" },
                 { EPS_INSIDE, "", "the weight is" },
                 { COUPLED_DECAY, "", "is not what the configuration asks for" },
                 { SKIPPED_GROUP, "layers.1.", "the weight is" },
                 { CHANGED_MOMENT, "", "moment 2 is" },
                 { LARGER_GRADIENT, "layers.1.attention.wo.weight", "is not what the configuration asks for" },
                 { OLD_MOMENTS, "", "the weight is" } };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    assert_int_equal(ROWS, DEFECTS - 1);
    for (int i = 0; i < ROWS; i++)
        for (int p = 0; p < 2; p++) {
            tm_step_options       o = options_of(0, 0, p ? &tm_precision_bf16 : &tm_precision_f32);
            const int             step = 12;
            char                  words[40];
            tm_update_certificate c = train(&o, step, most, rows[i].is);
            if (c.agrees) fail_msg("defect %d is not seen", rows[i].is);
            snprintf(words, sizeof words, "step %d, element ", step);
            if (!strstr(c.reason, rows[i].tensor) || !strstr(c.reason, rows[i].what) || !strstr(c.reason, words))
                fail_msg("defect %d: %s", rows[i].is, c.reason);
            assert_true(c.largest > 1);
        }
}

/* Norms are compared, too: of a step that reports another. */
TEST(the_norm_that_is_reported_is_compared)
{
    tm_step_options       o = options_of(0, 0, &tm_precision_f32);
    tm_device            *device = test_device_open("cpu", 1);
    tm_trainer           *trainer = test_trainer_open(device, &o, 7);
    tm_update_certificate c = { .agrees = true };
    test_batch            b = batch_of(&o, 1);
    tm_micro_batch        batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    tm_update_check      *check;
    tm_error              err = { 0 };
    test_begin(trainer, 1, peak / 40, most, b.target_tokens);
    if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    look(trainer, 1, most, &check);
    tm_step_result result = test_update(trainer);
    result.grad_norm *= 1.0001;
    if (tm_update_judge(check, &result, &c, &err) != TM_OK) fail_msg("%s", err.text);
    assert_false(c.agrees);
    assert_non_null(strstr(c.reason, "step 1 reports a gradient norm of "));
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Both derivations of a learning rate, over every form and shape. */
TEST(rates_are_those_of_the_schedule)
{
    for (int kind = 0; kind < 4; kind++)
        for (int shape = 0; shape < 5; shape++)
            for (int more = 0; more < 48; more++) {
                tm_schedule s = { .kind = (tm_schedule_kind)kind,
                                  .steps = more % 4 == 3 ? 1 : 37,
                                  .warmup_steps = (int64_t[]){ 0, 1, 9, 60 }[more % 4],
                                  .decay_ratio = (double[]){ -1, 0, 0.33, 1 }[more / 4 % 4],
                                  .decay = (tm_decay_shape)shape,
                                  .min_lr_factor = more / 16 ? 0.1 : 0,
                                  .cycles = 0.5,
                                  .batch = 8 };
                if (shape == TM_DECAY_INVERSE_SQRT && kind != TM_SCHEDULE_MEGATRON) continue;
                if (more / 16 == 2) s.last_steps = 11;
                if (kind == TM_SCHEDULE_MEGATRON) {
                    if (more / 16 == 1) s.warmup_fraction = 0.13, s.warmup_factor = 0.2;
                    if (s.warmup_steps >= s.steps) s.warmup_steps = s.steps - 1;
                }
                tm_error err = { 0 };
                if (tm_schedule_check(&s, &err) != TM_OK) continue;
                for (int64_t step = 1; step <= 70; step++) {
                    double a = tm_certified_factor(&s, step), b = tm_schedule_factor(&s, step - 1);
                    if (!(fabs(a - b) <= 1e-12))
                        fail_msg("kind %d, shape %d, %d: step %d: %.17g and %.17g", kind, shape, more, (int)step, a, b);
                }
            }
}
