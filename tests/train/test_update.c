/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the update: every optimizer and format holds, and leaves no trace; what is planted between
 * gradients and update, or behind it, is found, with the tensor, the step and both numbers. */
#include "regimes.h"
#include "op/attrs.h"

#include <math.h>

#include "train/certify/certificate.h"
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
    SKIPPED_TENSOR,  /* is not updated */
    CHANGED_MOMENT,  /* a moment is stored twice as large */
    LARGER_GRADIENT, /* of one tensor, by a thousandth */
    OLD_MOMENTS,     /* the weight moves by the moments of the step before */
    DEFECTS
} defect;

static const char planted_name[] = "layers.1.attention.wo.weight";

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
    assert_ok(tm_trainer_write(trainer, tm_trainer_step_of(trainer)->scalars, (size_t)which * sizeof value, &value,
                               sizeof value, err));
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
        bool             larger = d == LARGER_GRADIENT && strcmp(t->name, planted_name) == 0;
        if (t->role != TM_ROLE_PARAMETER || (!coupled && !larger)) continue;
        double *g = test_values_read(trainer, t->gradient), *w = test_values_read(trainer, (tm_tensor_id)i);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) g[k] = larger ? g[k] * 1.001 : g[k] + 0.1 * w[k];
        test_values_write(trainer, t->gradient, g);
        free(g);
        free(w);
    }
}

/* Of the planted tensor: its weights and moments. */
typedef struct {
    tm_tensor_id id[3];
    double      *is[3];
    int64_t      n;
} values;

static values keep(const tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    values          v = { .n = 0 };
    while (strcmp(graph->tensors[v.id[0]].name, planted_name) != 0) v.id[0]++;
    v.id[1] = tm_optimizer_state_of(graph, v.id[0], "exp_avg");
    v.id[2] = tm_optimizer_state_of(graph, v.id[0], "exp_avg_sq");
    v.n = tm_shape_elements(graph->tensors[v.id[0]].shape);
    for (int k = 0; k < 3; k++) v.is[k] = test_values_read(trainer, v.id[k]);
    return v;
}

static void drop(values *v)
{
    for (int k = 0; k < 3; k++) free(v->is[k]);
}

/* Other weights or moments than the update made. */
static void plant_behind(tm_trainer *trainer, defect d, int step, const values *before)
{
    const tm_hyper h = tm_trainer_step_of(trainer)->options.groups[0].hyper;
    tm_schedule    schedule = schedule_of();
    values         now = keep(trainer);
    double         rate = peak * tm_schedule_factor(&schedule, step - 1);
    double         c1 = 1 - pow(h.beta1, step), c2 = 1 - pow(h.beta2, step);
    for (int64_t k = 0; k < now.n; k++) {
        double *w = &now.is[0][k], old = before->is[0][k], kept = old - rate * h.weight_decay * old;
        if (d == EPS_INSIDE) *w = kept - rate * now.is[1][k] / c1 / sqrt(now.is[2][k] / c2 + h.eps);
        if (d == OLD_MOMENTS) *w = kept - rate * before->is[1][k] / c1 / (sqrt(before->is[2][k] / c2) + h.eps);
        if (d == SKIPPED_TENSOR) *w = old;
        if (d == CHANGED_MOMENT) now.is[2][k] *= 2;
    }
    test_values_write(trainer, now.id[0], now.is[0]);
    if (d == CHANGED_MOMENT) test_values_write(trainer, now.id[2], now.is[2]);
    drop(&now);
}

static test_batch batch_of(const tm_step_options *o, int step)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)step);
}

static void look(tm_trainer *trainer, int step, double max_norm, tm_update_check **check)
{
    tm_update_rule rule = { peak, schedule_of(), max_norm };
    uint64_t       before = test_state_hash(trainer), gradients = test_gradients_hash(trainer);
    assert_ok(tm_update_watch(trainer, &rule, step, 3, check, err));
    assert_true(before == test_state_hash(trainer) && gradients == test_gradients_hash(trainer));
}

/* So many steps; the update of the last one is looked at. */
static tm_update_certificate train(const tm_step_options *o, int steps, double max_norm, defect d)
{
    tm_trainer           *trainer = test_trainer_on("cpu", 1, o, 7);
    tm_update_certificate c = { .agrees = true };
    tm_schedule           schedule = schedule_of();
    tm_step_result        result = { 0 };
    for (int step = 1; step <= steps; step++) {
        test_batch       b = batch_of(o, step);
        tm_micro_batch   batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
        tm_update_check *check = NULL;
        values           before;
        double           last_norm = result.grad_norm;
        test_begin(trainer, step, peak * tm_schedule_factor(&schedule, step - 1), max_norm, b.target_tokens);
        assert_ok(tm_trainer_gradients(trainer, &batch, NULL, err));
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
            drop(&before);
        }
        uint64_t behind = test_state_hash(trainer);
        assert_ok(check && tm_update_judge(check, &result, &c, err));
        assert_true(behind == test_state_hash(trainer));
        test_batch_fini(&b);
    }
    test_trainer_end(trainer);
    assert_int_equal(c.n_steps, 1);
    assert_int_equal(c.steps[0], steps);
    return c;
}

#define GROUP(patterns, more) "{\"params\":\"" patterns "\"," more "}"

/* One table for look-ups and output; a mixture; groups of their own; adapters. */
static const char *const models[] = {
    SMALL_LLAMA,
    "gpt-small --model.n_layers 2 --model.dim 64 --model.n_heads 2 --model.ffn_dim 256 --model.vocab_size 96 "
    "--model.max_seq_len 32 --training.seq_len 32 --training.local_batch_size 2 ",
    SMALL_LLAMA "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 64 --model.moe_aux_loss 0.01 "
                "--training.grad_accumulation 2 ",
    SMALL_LLAMA "--optimizer.groups=[" GROUP("*norm*", "\"weight_decay\":\"0.3\"") "," GROUP(
        "layers.1.*", "\"lr_scale\":\"0.25\"") "] ",
    SMALL_LLAMA "--lora.rank 4 --lora.alpha 8 --lora.targets all-linear ",
};

TEST(honest_updates_hold)
{
    static const int steps[] = { 1, 2, 12 };
    double           farthest = 0;
    for (int r = 0; r < REGIMES; r++)
        for (int m = 0; m < 5; m++)
            for (int k = 0; k < 3; k++) {
                if ((r + m + k) % 5 && !test_is_full()) continue;
                tm_step_options       o = step_of(models[m], regimes[r].words);
                tm_update_certificate c = train(&o, steps[k], k == 1 ? 0 : most, NOTHING);
                if (!c.agrees) fail_msg("%s%s, step %d: %s", models[m], regimes[r].words, steps[k], c.reason);
                assert_true(c.elements > 1000 && c.largest > 0 && c.largest <= 1);
                farthest = fmax(farthest, o.precision == &tm_precision_f32 ? c.largest : 0);
            }
    print_message("the farthest update of float32 is at %.2f of its band\n", farthest);
}

/* An optimizer of another name: its row says by which formula its updates are judged, or that there is none. */
TEST(an_optimizer_is_judged_by_the_formula_of_its_row)
{
    static const tm_formula formulas[] = { TM_FORMULA_SGD, TM_FORMULA_NONE, TM_FORMULA_ADAMW };
    for (int k = 0; k < 3; k++) {
        tm_step_options o = step_of(SMALL_LLAMA, "--optimizer.name SGD --optimizer.momentum 0.9 ");
        tm_optimizer    other = *o.optimizer;
        other.name = "Other", other.formula = formulas[k];
        o.optimizer = &other;
        tm_update_certificate c = train(&o, 2, most, NOTHING);
        const bool            none = formulas[k] == TM_FORMULA_NONE;
        assert_int_equal(c.agrees, formulas[k] != TM_FORMULA_ADAMW);
        assert_true(none ? c.elements == 0 : c.elements > 1000);
        assert_string_equal(c.partly,
                            none ? "the certificate has no formula of Other: no weight was worked out again" : "");
    }
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
                 { EPS_INSIDE, planted_name, "the weight is" },
                 { COUPLED_DECAY, "", "is not what the configuration asks for" },
                 { SKIPPED_TENSOR, planted_name, "the weight is" },
                 { CHANGED_MOMENT, planted_name, "moment 2 is" },
                 { LARGER_GRADIENT, planted_name, "is not what the configuration asks for" },
                 { OLD_MOMENTS, planted_name, "the weight is" } };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    assert_int_equal(ROWS, DEFECTS - 1);
    for (int i = 0; i < ROWS; i++)
        for (int p = 0; p < 2; p++) {
            tm_step_options       o = step_of(SMALL_LLAMA "--optimizer.decay matrices ", p ? MASTER : "");
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
    tm_step_options       o = step_of(SMALL_LLAMA, "");
    tm_trainer           *trainer = test_trainer_on("cpu", 1, &o, 7);
    tm_update_certificate c = { .agrees = true };
    test_batch            b = batch_of(&o, 1);
    tm_micro_batch        batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    tm_update_check      *check;
    test_begin(trainer, 1, peak / 40, most, b.target_tokens);
    assert_ok(tm_trainer_gradients(trainer, &batch, NULL, err));
    look(trainer, 1, most, &check);
    tm_step_result result = test_update(trainer);
    result.grad_norm *= 1.0001;
    assert_ok(tm_update_judge(check, &result, &c, err));
    assert_false(c.agrees);
    assert_non_null(strstr(c.reason, "step 1 reports a gradient norm of "));
    test_batch_fini(&b);
    test_trainer_end(trainer);
}
