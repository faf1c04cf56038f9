/* SPDX-License-Identifier: Apache-2.0 */
/* What a certificate says of steps that leak, and of a loss that is not that of the batch. */
#include "support/test.h"
#include "op/attrs.h"
#include "support/training.h"

#include "train/certify/certificate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool        ahead, blind; /* attention sees later tokens, or no other */
    bool        wrong;        /* gradients are twice what they are */
    const char *lost;         /* a parameter without a gradient */
    bool        frozen;       /* all */
    bool        unasked;      /* the first sample has no targets */
    int64_t     samples;      /* 0: 2 */
    double      times;        /* gradients, not 0 */
    bool        dropped;      /* one of 4 micro-batches does not count */
    bool        others;       /* gradients and loss are of other targets: one of the first sample */
    bool        nan;          /* the loss is no number */
    bool        adapters;     /* there are some, with dropout */
    double      factor;       /* of their products, times what it is; not 0 */
    bool        fixed;        /* the number of a micro-batch's first row does not reach the device */
    tm_dtype    dtype;        /* of products, where it is not 0: bfloat16 */
} defects;

static void change_attention(const tm_plan *plan, const defects *d)
{
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t k = 0; k < plan->programs[p].count; k++) {
            const tm_node     *node = plan->programs[p].instructions[k].node;
            tm_attention_attr *attr = (tm_attention_attr *)(uintptr_t)node->attr;
            if (node->op != TM_OP_attention && node->op != TM_OP_attention_grad) continue;
            if (d->ahead) attr->causal = 0;
            if (d->blind) attr->window = 1;
        }
}

static void change_gradients(tm_trainer *trainer, const defects *d)
{
    tm_graph *graph = (tm_graph *)(uintptr_t)tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        tm_tensor *t = &graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        if (d->wrong || d->times < 0 || d->times > 0) {
            double  times = d->wrong ? 2 : d->times;
            double *values = test_values_read(trainer, t->gradient);
            for (int64_t k = 0; k < tm_shape_elements(t->shape); k++) values[k] *= times;
            test_values_write(trainer, t->gradient, values);
            free(values);
        }
        if (d->frozen) t->trained = false;
        if (d->frozen || (d->lost && strcmp(d->lost, t->name) == 0)) t->gradient = TM_NONE;
    }
}

static void change_adapters(tm_trainer *trainer, const defects *d)
{
    tm_step       *step = (tm_step *)(uintptr_t)tm_trainer_step_of(trainer);
    const tm_plan *plan = step->plan;
    if (d->fixed) step->first_row = step->evaluation_loss; /* which is written anew by every program */
    for (size_t p = 0; p < plan->n_programs && d->factor > 0; p++)
        for (size_t k = 0; k < plan->programs[p].count; k++) {
            const tm_node *node = plan->programs[p].instructions[k].node;
            if (node->op == TM_OP_low_rank) ((tm_low_rank_attr *)(uintptr_t)node->attr)->scale = 2 * d->factor;
        }
}

static void write_loss(tm_trainer *trainer, double loss)
{
    tm_error err = { 0 };
    if (tm_trainer_write(trainer, tm_trainer_step_of(trainer)->loss, 0, &loss, sizeof loss, &err) != TM_OK)
        fail_msg("%s", err.text);
}

static tm_certificate certify(defects d)
{
    tm_step_options o = test_llama_options();
    o.micro_batch = d.samples ? d.samples : 2;
    if (d.dropped) o.accumulation = 4;
    if (d.adapters) {
        o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.3, .base = TM_DTYPE_COUNT, .place = "test" };
        snprintf(o.adapters.targets, sizeof o.adapters.targets, "all-linear");
    }
    if (d.dtype == TM_BF16) o.precision = &tm_precision_bf16, o.exact = &tm_precision_f32;
    tm_device     *device = test_device_open("cpu", 1);
    tm_trainer    *trainer = test_trainer_open(device, &o, 3);
    test_batch     b = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 3);
    tm_certificate c;
    tm_error       err = { 0 };
    for (int64_t i = 0; d.unasked && i < o.seq; i++) b.targets[i] = TM_IGNORED_TARGET;
    if (d.unasked) b.target_tokens -= o.seq;
    tm_micro_batch batch = { .field = { b.tokens, b.targets }, .target_tokens = b.target_tokens };
    change_attention(tm_trainer_step_of(trainer)->plan, &d);
    change_adapters(trainer, &d);
    test_begin(trainer, 1, 0, 0, b.target_tokens);
    if (d.dropped) tm_trainer_step_of(trainer)->training.work[1].count--;
    int32_t target = b.targets[5];
    if (d.others) b.targets[5] = (target + 1) % (int32_t)o.shape.vocab_size;
    if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    b.targets[5] = target;
    change_gradients(trainer, &d);
    if (d.nan) write_loss(trainer, (double)NAN);
    if (tm_certify(trainer, &batch, 3, &c, &err) != TM_OK) fail_msg("%s", err.text);
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return c;
}

static void says(const tm_certificate *c, const char *words)
{
    if (!strstr(c->reason, words)) fail_msg("'%s' does not say '%s'", c->reason, words);
}

/* The rows that must not change, and whose they are. */
TEST(what_leaks_is_told)
{
    tm_certificate c = certify((defects){ .ahead = true });
    assert_true(c.done && c.gradients && c.looked_ahead && c.context && c.rows && !c.causal);
    says(&c, "tokens that the model must not see change the loss of target ");
    says(&c, ": later tokens or other rows leak");
    int row = -1, target = -1;
    assert_int_equal(sscanf(strstr(c.reason, "target"), "target %d of row %d", &target, &row), 2);
    assert_true(row == 0 && target >= 0);
    c = certify((defects){ .ahead = true, .unasked = true });
    assert_int_equal(sscanf(strstr(c.reason, "target"), "target %d of row %d", &target, &row), 2);
    assert_true(row == 1 && target >= 0 && target < 32);
    c = certify((defects){ .ahead = true, .samples = 1 });
    assert_true(!c.rows && !c.causal);
    says(&c, ": later tokens leak");
    c = certify((defects){ .samples = 1 });
    assert_true(c.done && c.gradients && c.causal && c.context && !c.rows);
    assert_string_equal(c.reason, "");
}

/* A band that is as wide as the loss is wrong would hide any gradient. */
TEST(a_loss_of_another_batch_is_told)
{
    const defects wrong[] = { { .dropped = true },
                              { .dropped = true, .times = -1 },
                              { .dropped = true, .times = 0.25 },
                              { .dropped = true, .dtype = TM_BF16 },
                              { .others = true },
                              { .others = true, .times = -1 },
                              { .nan = true } };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tm_certificate c = certify(wrong[i]);
        assert_true(c.done && c.evaluated && !c.loss_agrees && !c.gradients);
        says(&c, "is not that of its batch: the same weights and samples give ");
        double said = 0, found = 0;
        if (wrong[i].nan) continue;
        assert_int_equal(sscanf(c.reason, "the step's loss, %lg", &said), 1);
        assert_int_equal(sscanf(strstr(c.reason, "give "), "give %lg", &found), 1);
        assert_true(fabs(said - c.step_loss) < 1e-7 && fabs(found - c.evaluated_loss) < 1e-7);
        if (wrong[i].dropped) assert_true(c.step_loss < 0.8 * c.evaluated_loss);
    }
    const defects right[] = { { .times = -1 }, { .samples = 3 }, { .dtype = TM_BF16 }, { .unasked = true } };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        tm_certificate c = certify(right[i]);
        assert_true(c.evaluated && c.loss_agrees && fabs(c.step_loss - c.evaluated_loss) < 1e-12);
    }
}
