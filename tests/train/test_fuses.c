/* SPDX-License-Identifier: Apache-2.0 */
/* Neighbours that passes make one op of (tm_chooser.fuses), on the reference device in double: the unfused program is
 * their judge. Losses and weights are the same but for the last bits, nothing that was to be fused is left, and what
 * must stay apart does. */
#include "base/random.h"
#include "device/backend.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { STEPS = 3, MOST = 400 };

typedef enum { FLUX, FLUX_AGAIN, QWEN3, QWEN3_AGAIN, LLAMA, GPT, MODELS } model;
static const char *const names[] = { "flux", "flux, blocks again", "qwen3", "qwen3, blocks again", "llama", "gpt" };

static tm_step_options options_of(model m)
{
    const tm_precision *p = &tm_precision_f64;
    tm_step_options     o = m <= FLUX_AGAIN    ? golden_flux_options(p)
                            : m <= QWEN3_AGAIN ? golden_qwen3_options(p)
                            : m == LLAMA       ? golden_llama_options(p)
                                               : golden_gpt2_options(p);
    o.micro_batch = 2;
    o.accumulation = 2;
    o.recompute = (tm_recompute){ .cheap = true, .every_n = m == FLUX_AGAIN || m == QWEN3_AGAIN };
    if (m <= FLUX_AGAIN) o.shape.n_layers = o.shape.flux.n_single = 2;
    return o;
}

/* Fields of an image model, or tokens. */
static tm_micro_batch fields_of(const tm_step_options *o, uint64_t seed, test_batch *tokens)
{
    int64_t        samples = o->micro_batch * o->accumulation;
    tm_micro_batch batch = { .target_tokens = samples * o->seq };
    *tokens = (test_batch){ 0 };
    for (int f = 0; f < o->n_fields; f++) {
        int64_t n = samples * tm_shape_elements(o->fields[f].shape);
        float  *x = malloc((size_t)n * sizeof *x);
        assert_non_null(x);
        for (int64_t i = 0; i < n; i++)
            x[i] = strcmp(o->fields[f].name, "time") == 0 ? (float)tm_random_uniform(seed, (uint64_t)f, (uint64_t)i)
                                                          : (float)tm_random_normal(seed, (uint64_t)f, (uint64_t)i);
        batch.field[f] = x;
    }
    if (o->n_fields > 0) return batch;
    *tokens = test_batch_random(samples, o->seq, o->shape.vocab_size, seed);
    return batch;
}

typedef struct {
    double  loss[STEPS], norm[STEPS];
    double *weights[MOST];
    int64_t elements[MOST];
    int     n;
    int     nodes[TM_OP_COUNT]; /* of a step */
    double  bytes;
} outcome;

static void note_program(const tm_trainer *trainer, outcome *out)
{
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    for (size_t i = 0; i < plan->n_programs; i++) {
        if (strcmp(plan->programs[i].name, "first") != 0) continue;
        out->bytes = plan->programs[i].cost.bytes;
        for (size_t x = 0; x < plan->programs[i].count; x++) out->nodes[plan->programs[i].instructions[x].node->op]++;
    }
}

static outcome train(const tm_step_options *o, bool fuses)
{
    tm_device *device = test_device_open("reference", 1);
    outcome    out = { .n = 0 };
    tm_error   err = { 0 };
    device->info.fuses = fuses;
    tm_trainer *trainer = test_trainer_open(device, o, 7);
    golden_fill(trainer); /* the initial modulations of FLUX are zeros */
    note_program(trainer, &out);
    for (int t = 1; t <= STEPS; t++) {
        test_batch     tokens;
        tm_micro_batch batch = fields_of(o, (uint64_t)t, &tokens);
        tm_step_result result;
        if (o->n_fields > 0) {
            test_begin(trainer, t, 1e-2, 1, batch.target_tokens);
            if (tm_trainer_step(trainer, &batch, &result, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        } else {
            result = test_step(trainer, t, 1e-2, 1, &tokens);
        }
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        for (int f = 0; f < o->n_fields; f++) free((void *)(uintptr_t)batch.field[f]);
        test_batch_fini(&tokens);
    }
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].role != TM_ROLE_PARAMETER) continue;
        assert_true(out.n < MOST);
        out.elements[out.n] = tm_shape_elements(graph->tensors[i].shape);
        out.weights[out.n++] = test_values_read(trainer, (tm_tensor_id)i);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    return out;
}

static void expect_same(const outcome *a, const outcome *b, const char *what)
{
    for (int t = 0; t < STEPS; t++)
        if (!(fabs(a->loss[t] - b->loss[t]) <= 1e-12 * fabs(b->loss[t]) &&
              fabs(a->norm[t] - b->norm[t]) <= 1e-11 * fabs(b->norm[t])))
            fail_msg("%s, step %d: loss %.17g, norm %.17g; apart %.17g, %.17g", what, t + 1, a->loss[t], a->norm[t],
                     b->loss[t], b->norm[t]);
    assert_int_equal(a->n, b->n);
    for (int w = 0; w < a->n; w++)
        for (int64_t i = 0; i < a->elements[w]; i++)
            if (!(fabs(a->weights[w][i] - b->weights[w][i]) <= 1e-9))
                fail_msg("%s, weight %d, element %lld: %.17g, apart %.17g", what, w, (long long)i, a->weights[w][i],
                         b->weights[w][i]);
}

static void fini(outcome *out)
{
    for (int w = 0; w < out->n; w++) free(out->weights[w]);
}

/* Blocks of FLUX: two of two streams, two of one. Qwen3: two layers. */
static void check_nodes(model m, const outcome *fused, const outcome *apart)
{
    bool again = m == FLUX_AGAIN || m == QWEN3_AGAIN;
    int  heads = m <= FLUX_AGAIN ? 4 : m <= QWEN3_AGAIN ? 2 : 0;
    assert_int_equal(apart->nodes[TM_OP_head_rope], 0);
    assert_int_equal(fused->nodes[TM_OP_head_rope], heads * (again ? 2 : 1));
    assert_int_equal(fused->nodes[TM_OP_head_rope_grad], heads);
    assert_int_equal(fused->nodes[TM_OP_head_norm], 0);
    if (heads > 0) assert_int_equal(fused->nodes[TM_OP_rope], 0);
    if (heads == 0) assert_int_equal(fused->nodes[TM_OP_rope], apart->nodes[TM_OP_rope]);
    assert_true(heads == 0 ? fused->bytes <= apart->bytes : fused->bytes < apart->bytes);
}

static void fused_trains_as_apart(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        tm_step_options o = options_of((model)m);
        outcome         apart = train(&o, false), fused = train(&o, true);
        expect_same(&fused, &apart, names[m]);
        check_nodes((model)m, &fused, &apart);
        fini(&apart);
        fini(&fused);
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(fused_trains_as_apart) };

TM_TESTS(tests, NULL, NULL)
