/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for any training step on the fast kernels, whatever the numbers: the same bits by every instruction
 * set, micro-batches that add up, causality, no influence of ignored targets. (Threads: tests/differential.) */
#include "support/test.h"
#include "support/training.h"

#include "op/attrs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAMILIES = TM_FAMILY_MIXTRAL /* those without experts; with: tests/cli/test_experts.sh */, STEPS = 20 };

static tm_step_options options_of(int family)
{
    return test_family_options((tm_model_family)family);
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

typedef struct {
    double   losses[STEPS], norms[STEPS];
    uint64_t state;
} curve;

static curve train(tm_device *device, const tm_step_options *options, int steps)
{
    curve       c = { 0 };
    tm_trainer *trainer = test_trainer_open(device, options, 11);
    for (int t = 0; t < steps; t++) {
        test_batch     batch = test_batch_random(options->micro_batch * options->accumulation, options->seq,
                                                 options->shape.vocab_size, 100 + (uint64_t)t % 4);
        tm_step_result r = test_step(trainer, t + 1, 3e-3, 1, &batch);
        c.losses[t] = r.loss;
        c.norms[t] = r.grad_norm;
        test_batch_fini(&batch);
    }
    c.state = test_state_hash(trainer);
    tm_trainer_close(trainer);
    return c;
}

static void same_curve(const char *what, const curve *a, const curve *b)
{
    for (int t = 0; t < STEPS; t++)
        if (memcmp(&a->losses[t], &b->losses[t], sizeof(double)) != 0 ||
            memcmp(&a->norms[t], &b->norms[t], sizeof(double)) != 0)
            fail_msg("%s: step %d has loss %.17g against %.17g, norm %.17g against %.17g", what, t + 1, a->losses[t],
                     b->losses[t], a->norms[t], b->norms[t]);
    if (a->state != b->state) fail_msg("%s: the losses agree, weights or moments do not", what);
}

/* Shapes that do not divide by blocks of kernels, or by threads. */
static void make_ugly(tm_step_options *o, int k)
{
    if (k == 1) o->micro_batch = 3, o->seq = 37, o->shape.vocab_size = 101;
    if (k == 2)
        o->micro_batch = 1, o->seq = 150, o->accumulation = 2, o->shape.dim = 128, o->shape.head_dim = 64,
        o->shape.ffn_dim = 200;
}

FULL_TEST(instruction_sets_change_no_bit)
{
    tm_error   err = { 0 };
    tm_device *wide = test_device_open("cpu", 2), *narrow = test_device_open("cpu", 2);
    if (tm_device_limit_isa(wide, "avx512", &err) != TM_OK || tm_device_limit_isa(narrow, "avx2", &err) != TM_OK) {
        print_message("skip: this machine has not both AVX2 and AVX-512: %s\n", err.text);
        tm_device_close(wide);
        tm_device_close(narrow);
        skip();
    }
    for (int family = 0; family < FAMILIES; family++)
        for (int k = 1; k < 3; k++) {
            tm_step_options options = options_of(family);
            char            what[64];
            make_ugly(&options, k);
            curve a = train(wide, &options, STEPS), b = train(narrow, &options, STEPS);
            snprintf(what, sizeof what, "family %d, shape %d, avx512 against avx2", family, k);
            same_curve(what, &a, &b);
        }
    tm_device_close(wide);
    tm_device_close(narrow);
}

/* --- micro-batches ------------------------------------------------------------------------------------------------ */

/* Gradients of `sequences` x seq in `accumulation` pieces; the trainer is the caller's to close. */
static tm_trainer *split(tm_device *device, tm_step_options options, int64_t sequences, int64_t accumulation,
                         double *loss)
{
    options.accumulation = accumulation;
    options.micro_batch = sequences / accumulation;
    tm_trainer *trainer = test_trainer_open(device, &options, 7);
    test_batch  batch = test_batch_random(sequences, options.seq, options.shape.vocab_size, 8);
    /* the mean is over the targets of the whole batch, wherever they are: none in the first sequence */
    for (int64_t i = 0; i < batch.rows; i++) {
        int64_t sequence = i / options.seq;
        if (sequence != 0 && (sequence == 1 || i % 5 != 0)) continue;
        batch.targets[i] = TM_IGNORED_TARGET;
        batch.target_tokens--;
    }
    *loss = test_gradients(trainer, &batch);
    test_batch_fini(&batch);
    return trainer;
}

/* The gradient of each parameter, in bits. */
static void same_gradients(const tm_trainer *a, const tm_trainer *b, const char *what)
{
    const tm_graph *g = tm_trainer_step_of(a)->graph, *h = tm_trainer_step_of(b)->graph;
    for (size_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TM_ROLE_PARAMETER) continue;
        tm_tensor_id p = g->tensors[t].gradient, q = h->tensors[t].gradient;
        void        *x = test_tensor_read(a, p), *y = test_tensor_read(b, q);
        if (memcmp(x, y, tm_trainer_step_of(a)->plan->places[p].bytes) != 0)
            fail_msg("%s: '%s' differs by %.3g", what, g->tensors[p].name, test_relative_difference(a, b, p, q));
        free(x);
        free(y);
    }
}

TEST(splits_at_512_tokens_change_no_bit)
{
    tm_device *device = test_device_open("cpu", 2);
    for (int kind = 0; kind < 3; kind++) { /* llama; gpt with a head of its own; gpt with a tied one */
        tm_step_options options = options_of(kind > 0 ? TM_FAMILY_GPT : TM_FAMILY_LLAMA);
        double          whole_loss, loss;
        options.seq = 512;
        options.recompute.cheap = true;
        options.shape.tied = kind == 2;
        tm_trainer *whole = split(device, options, 4, 1, &whole_loss);
        for (int64_t parts = 2; parts <= 4; parts += 2) {
            char        what[64];
            tm_trainer *part = split(device, options, 4, parts, &loss);
            snprintf(what, sizeof what, "kind %d in %lld parts", kind, (long long)parts);
            if (!(loss == whole_loss)) fail_msg("%s: loss %.17g against %.17g", what, loss, whole_loss);
            same_gradients(part, whole, what);
            tm_trainer_close(part);
        }
        tm_trainer_close(whole);
    }
    tm_device_close(device);
}

TEST(any_split_gives_the_same_gradients)
{
    static const int64_t parts[] = { 2, 3, 6 };
    tm_device           *device = test_device_open("cpu", 2);
    for (int family = 0; family < FAMILIES; family++) {
        tm_step_options options = options_of(family);
        double          whole_loss, loss;
        options.seq = 41;
        tm_trainer *whole = split(device, options, 6, 1, &whole_loss);
        for (int i = 0; i < 3; i++) {
            tm_trainer     *part = split(device, options, 6, parts[i], &loss);
            const tm_graph *g = tm_trainer_step_of(part)->graph, *h = tm_trainer_step_of(whole)->graph;
            if (!(fabs(loss - whole_loss) <= 1e-6 * whole_loss))
                fail_msg("%lld parts: loss %.12g against %.12g", (long long)parts[i], loss, whole_loss);
            for (size_t t = 0; t < g->n_tensors; t++) {
                if (g->tensors[t].role != TM_ROLE_PARAMETER) continue;
                double difference =
                    test_relative_difference(part, whole, g->tensors[t].gradient, h->tensors[t].gradient);
                if (!(difference <= 1e-6))
                    fail_msg("family %d, %lld parts, '%s': relative difference %.3g", family, (long long)parts[i],
                             g->tensors[t].name, difference);
            }
            tm_trainer_close(part);
        }
        tm_trainer_close(whole);
    }
    tm_device_close(device);
}

/* --- causality and ignored targets -------------------------------------------------------------------------------- */

/* All gradients as one array of numbers. */
static double *gradients_of(tm_trainer *trainer, const test_batch *batch, double *loss, size_t *n)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    *loss = test_gradients(trainer, batch);
    *n = 0;
    for (size_t t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].role == TM_ROLE_GRADIENT) *n += (size_t)tm_shape_elements(graph->tensors[t].shape);
    double *values = malloc(*n * sizeof *values), *at = values;
    assert_non_null(values);
    for (size_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].role != TM_ROLE_GRADIENT) continue;
        double *tensor = test_values_read(trainer, (tm_tensor_id)t);
        for (int64_t i = 0; i < tm_shape_elements(graph->tensors[t].shape); i++) *at++ = tensor[i];
        free(tensor);
    }
    return values;
}

static bool equal_numbers(const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i])) return false;
    return true;
}

/* Only targets before `position` (of the first sequence) count: later tokens, and other sequences, change neither loss
 * nor gradients. The token at `position - 1` does. */
static void check_causality(tm_trainer *trainer, int64_t position)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    test_batch             batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, 21);
    double                 loss[3];
    size_t                 n;
    for (int64_t i = position; i < batch.rows; i++) batch.targets[i] = TM_IGNORED_TARGET;
    batch.target_tokens = position;
    double *before = gradients_of(trainer, &batch, &loss[0], &n);
    for (int64_t i = position; i < batch.rows; i++)
        batch.tokens[i] = (int32_t)((batch.tokens[i] + 1 + i % 7) % o->shape.vocab_size);
    double *after = gradients_of(trainer, &batch, &loss[1], &n);
    if (!(loss[0] == loss[1]) || !equal_numbers(before, after, n))
        fail_msg("tokens from position %lld on change what comes before", (long long)position);
    batch.tokens[position - 1] = (int32_t)((batch.tokens[position - 1] + 1) % o->shape.vocab_size);
    double *other = gradients_of(trainer, &batch, &loss[2], &n);
    if (loss[0] == loss[2] || equal_numbers(before, other, n))
        fail_msg("the token at position %lld changes nothing", (long long)position - 1);
    free(before);
    free(after);
    free(other);
    test_batch_fini(&batch);
}

TEST(future_tokens_change_no_past_output)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16 };
    static const int64_t             positions[] = { 1, 2, 7, 8, 31, 32, 63, 64, 65, 129 };
    tm_device                       *device = test_device_open("cpu", 2);
    for (int family = 0; family < FAMILIES; family++)
        for (int p = 0; p < (family <= TM_FAMILY_GPT ? 2 : 1); p++) {
            tm_step_options options = options_of(family);
            options.seq = 130;
            options.precision = precisions[p];
            options.recompute.cheap = true;
            tm_trainer *trainer = test_trainer_open(device, &options, 5);
            for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) check_causality(trainer, positions[i]);
            tm_trainer_close(trainer);
        }
    tm_device_close(device);
}

TEST(a_batch_without_targets_gives_zero)
{
    static const char *const devices[] = { "cpu", "reference" };
    for (int family = 0; family < FAMILIES; family++)
        for (int d = 0; d < 2; d++) {
            tm_step_options options = options_of(family);
            if (d == 1) options.precision = &tm_precision_f64, options.seq = 8, options.micro_batch = 1;
            options.hyper.weight_decay = 0;
            tm_device  *device = test_device_open(devices[d], 2);
            tm_trainer *trainer = test_trainer_open(device, &options, 5);
            test_batch  batch = test_batch_random(options.micro_batch, options.seq, options.shape.vocab_size, 22);
            for (int64_t i = 0; i < batch.rows; i++) batch.targets[i] = TM_IGNORED_TARGET;
            batch.target_tokens = 0;
            uint64_t       before = test_weights_hash(trainer);
            tm_step_result r = test_step(trainer, 1, 1e-2, 1, &batch);
            assert_true(r.loss == 0 && r.grad_norm == 0);
            assert_true(test_weights_hash(trainer) == before); /* no gradient, no moments, no decay */
            test_batch_fini(&batch);
            tm_trainer_close(trainer);
            tm_device_close(device);
        }
}
