/* SPDX-License-Identifier: Apache-2.0 */
/* The microscope: a micro-batch in the training's format and in float32 beside each other. What it compares, and that
 * it says what is so. (That training keeps its bits: tests/differential.) */
#include "support/test.h"
#include "step_cases.h"
#include "train/trainer/microscope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The micro-batches of a step; its targets are those of the first one. */
static tm_micro_batch fed(const test_batch *batch, const tm_step_options *o)
{
    tm_micro_batch out = { .field = { batch->tokens, batch->targets } };
    for (int64_t i = 0; i < o->micro_batch * o->seq; i++) out.target_tokens += batch->targets[i] != TM_IGNORED_TARGET;
    return out;
}

static test_batch batch_of(const tm_step_options *o, uint64_t seed)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, seed);
}

/* Begins step `t` and looks. */
static void look(tm_trainer *trainer, const test_batch *batch, int64_t t, double bound, tm_looked *out)
{
    tm_error       err = { 0 };
    tm_micro_batch micro = fed(batch, &tm_trainer_step_of(trainer)->options);
    test_begin(trainer, t, 1e-2, 1, batch->target_tokens);
    if (tm_looked_take(out, trainer, &micro, t, bound, &err) != TM_OK) fail_msg("%s", err.text);
}

static size_t count(const tm_look *seen, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < seen->n_tensors; i++) n += strcmp(seen->tensors[i].kind, kind) == 0;
    return n;
}

static size_t trained_parameters(const tm_step *step)
{
    size_t n = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++) n += step->graph->tensors[i].gradient != TM_NONE;
    return n;
}

/* A trainer of one device, and what is seen of its first batch. */
typedef struct {
    tm_device  *device;
    tm_trainer *trainer;
    test_batch  batch;
    tm_looked   seen;
} looking;

static looking begin_looking(tm_step_options o, const tm_precision *compared)
{
    looking l = { .device = test_device_open("cpu", 1), .batch = batch_of(&o, 1) };
    o.compared = compared;
    l.trainer = test_trainer_open(l.device, &o, 1);
    return l;
}

static looking looked_at(const tm_step_options *o, double bound)
{
    looking l = begin_looking(*o, &tm_precision_f32);
    look(l.trainer, &l.batch, 1, bound, &l.seen);
    return l;
}

static void end_looking(looking *l)
{
    tm_looked_fini(&l->seen);
    test_batch_fini(&l->batch);
    tm_trainer_close(l->trainer);
    tm_device_close(l->device);
}

/* Equal formats: nothing is apart, whatever is compared. */
TEST(a_format_beside_itself_is_the_same)
{
    for (int f = 0; f < 6; f++) {
        tm_step_options o = f < 4 ? test_family_options((tm_model_family[]){ TM_FAMILY_LLAMA, TM_FAMILY_GPT,
                                                                             TM_FAMILY_QWEN3, TM_FAMILY_QWEN2 }[f])
                                  : experts_options();
        if (f == 5) o.accumulation = 2, o.shape.tied = true;
        looking l = looked_at(&o, 0);
        assert_true(count(&l.seen.look, "forward") > 10 && count(&l.seen.look, "backward") > 10);
        assert_true(count(&l.seen.look, "factor") == 0);
        assert_true(count(&l.seen.look, "gradient") >= trained_parameters(tm_trainer_step_of(l.trainer)));
        assert_true(l.seen.look.loss > 0 && l.seen.look.loss == l.seen.look.reference_loss && !l.seen.look.first);
        for (size_t i = 0; i < l.seen.look.n_tensors; i++) {
            const tm_look_tensor *t = &l.seen.look.tensors[i];
            if (t->error != 0 || fabs(t->cosine - 1) > 1e-12 || t->underflow != 0 || t->amax != t->reference_amax)
                fail_msg("%s: error %g, cosine %.17g", t->name, t->error, t->cosine);
            for (size_t k = 0; k < i; k++) assert_string_not_equal(t->name, l.seen.look.tensors[k].name);
        }
        end_looking(&l);
    }
}

static tm_tensor_id gradient_by_name(const tm_trainer *trainer, const char *name)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i].gradient != TM_NONE && strcmp(graph->tensors[graph->tensors[i].gradient].name, name) == 0)
            return graph->tensors[i].gradient;
    return TM_NONE;
}

/* The errors of gradients are those between two trainers, one of each format. */
TEST(errors_are_those_of_two_trainings)
{
    tm_device      *device = test_device_open("cpu", 1), *other = test_device_open("cpu", 1);
    tm_step_options wide = test_gpt_options(), o;
    wide.loss_chunk = 32; /* which else depends on the kernels of a format */
    o = wide;
    o.precision = &tm_precision_bf16;
    o.compared = &tm_precision_f32;
    tm_trainer *a = test_trainer_open(device, &o, 5), *b = test_trainer_open(other, &wide, 5);
    test_batch  batch = batch_of(&o, 9);
    tm_looked   seen = { 0 };
    double      largest = 0;
    look(a, &batch, 1, 1e-9, &seen);
    test_gradients(a, &batch);
    double loss = test_gradients(b, &batch);
    assert_true(fabs(seen.look.reference_loss - loss) < 1e-12 * loss);
    for (size_t i = 0; i < seen.look.n_tensors; i++) {
        const tm_look_tensor *t = &seen.look.tensors[i];
        largest = fmax(largest, t->error);
        if (strcmp(t->kind, "gradient") != 0) continue;
        double apart = test_relative_difference(a, b, gradient_by_name(a, t->name), gradient_by_name(b, t->name));
        if (fabs(apart - t->error) > 1e-9 * apart || !(apart > 0))
            fail_msg("%s: %.12g, of two trainings %.12g", t->name, t->error, apart);
        assert_true(t->cosine < 1 && t->cosine > 0.99);
    }
    assert_true(seen.look.worst->error == largest && largest < 0.1);
    /* the first beyond a bound, in the order of the program: with a bound of 0 the first that is rounded at all */
    const tm_look_tensor *first = seen.look.first;
    assert_true(first && first->diverges && first->error > 1e-9);
    for (const tm_look_tensor *t = seen.look.tensors; t < first; t++) assert_true(t->error <= 1e-9 && !t->diverges);
    tm_looked_fini(&seen);
    test_batch_fini(&batch);
    tm_trainer_close(a);
    tm_trainer_close(b);
    tm_device_close(device);
    tm_device_close(other);
}

TEST(factors_are_compared_with_what_they_were)
{
    static const struct {
        const char *recipe;
        size_t      factors; /* of 2 layers with 4 products of linears */
        double      least, most;
    } cases[] = { { "fp8_tensorwise", 48, 0.01, 0.06 }, { "mxfp8", 48, 0.01, 0.04 }, { "mxfp4", 0, 0, 0 } };
    for (int c = 0; c < 3; c++) {
        tm_step_options o = quantized_options(cases[c].recipe);
        looking         l = looked_at(&o, 0.1);
        assert_int_equal(count(&l.seen.look, "factor"), cases[c].factors);
        for (size_t i = 0; i < l.seen.look.n_tensors; i++) {
            const tm_look_tensor *t = &l.seen.look.tensors[i];
            if (strcmp(t->kind, "factor") != 0 || strstr(t->name, "grad")) continue;
            if (strstr(t->name, "weight") && (t->error < cases[c].least || t->error > cases[c].most))
                fail_msg("%s: %s: error %g", cases[c].recipe, t->name, t->error);
        }
        end_looking(&l);
    }
}

/* Its mean is over the targets of what was looked at: the first micro-batch. Without any it is 0. */
TEST(the_loss_is_that_of_the_first_micro_batch)
{
    tm_step_options o = test_llama_options();
    o.accumulation = 3;
    for (int ignored = 0; ignored < 3; ignored++) { /* targets: none, every second one, all of the first micro-batch */
        looking  l = begin_looking(o, &tm_precision_f32);
        tm_error err = { 0 };
        double   loss;
        for (int64_t i = 0; i < o.micro_batch * o.seq; i++)
            if (ignored == 2 || (ignored == 1 && i % 2)) l.batch.targets[i] = TM_IGNORED_TARGET;
        tm_micro_batch first = fed(&l.batch, &o);
        look(l.trainer, &l.batch, 1, 0.1, &l.seen);
        assert_int_equal(tm_trainer_evaluate(l.trainer, &first, &loss, &err), TM_OK);
        double wanted = first.target_tokens > 0 ? loss / (double)first.target_tokens : 0;
        assert_true((wanted > 1) == (ignored < 2));
        if (!(fabs(l.seen.look.loss - wanted) <= 1e-6 * wanted) || l.seen.look.loss != l.seen.look.reference_loss)
            fail_msg("loss %.9g and %.9g, wanted %.9g", l.seen.look.loss, l.seen.look.reference_loss, wanted);
        end_looking(&l);
    }
}
