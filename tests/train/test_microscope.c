/* SPDX-License-Identifier: Apache-2.0 */
/* The microscope: a micro-batch in the training's format and in float32 beside each other. What it compares, and that
 * it says what is so. (That training keeps its bits: tests/differential; what runs tell: test_whole_runs.c.) */
#include "support/test.h"
#include "step_cases.h"
#include "train/trainer/microscope.h"

/* A trainer of one device, and what is seen of the first micro-batch of a step; its targets are those of that one. */
typedef struct {
    tm_device     *device;
    tm_trainer    *trainer;
    test_batch     batch;
    tm_micro_batch fed;
    tm_looked      seen;
} looking;

/* ignored: every so many-th target, from the first on; 0: none */
static looking look(tm_step_options o, double bound, int64_t ignored)
{
    looking l = { .device = test_device_open("cpu", 1) };
    o.compared = &tm_precision_f32;
    l.trainer = test_trainer_open(l.device, &o, 5);
    l.batch = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 9);
    l.fed = (tm_micro_batch){ .field = { l.batch.tokens, l.batch.targets } };
    for (int64_t i = 0; i < o.micro_batch * o.seq; i++) {
        if (ignored > 0 && i % ignored == 0) l.batch.targets[i] = TM_IGNORED_TARGET;
        l.fed.target_tokens += l.batch.targets[i] != TM_IGNORED_TARGET;
    }
    test_begin(l.trainer, 1, 1e-2, 1, l.batch.target_tokens);
    assert_ok(tm_looked_take(&l.seen, l.trainer, &l.fed, 1, bound, err));
    return l;
}

static void end_looking(looking *l)
{
    tm_looked_fini(&l->seen);
    test_batch_fini(&l->batch);
    tm_trainer_close(l->trainer);
    tm_device_close(l->device);
}

static size_t count(const looking *l, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < l->seen.look.n_tensors; i++) n += strcmp(l->seen.look.tensors[i].kind, kind) == 0;
    return n;
}

/* Equal formats: nothing is apart, whatever is compared; every trained parameter is. */
TEST(a_format_beside_itself_is_the_same)
{
    static const tm_model_family families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN3, TM_FAMILY_QWEN2 };
    for (int f = 0; f < 6; f++) {
        tm_step_options o = f < 4 ? test_family_options(families[f]) : experts_options();
        if (f == 5) o.accumulation = 2, o.shape.tied = true;
        looking         l = look(o, 0, 0);
        const tm_graph *graph = tm_trainer_step_of(l.trainer)->graph;
        size_t          trained = 0;
        for (size_t i = 0; i < graph->n_tensors; i++) trained += graph->tensors[i].gradient != TM_NONE;
        assert_true(count(&l, "forward") > 10 && count(&l, "backward") > 10 && count(&l, "factor") == 0);
        assert_true(count(&l, "gradient") >= trained);
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

/* The errors of gradients are those between two trainers, one of each format; the first beyond the bound is told. */
TEST(errors_are_those_of_two_trainings)
{
    tm_step_options wide = test_gpt_options(), o;
    double          largest = 0;
    wide.loss_chunk = 32; /* which else depends on the kernels of a format */
    o = wide;
    o.precision = &tm_precision_bf16;
    looking        l = look(o, 1e-9, 0);
    const tm_look *seen = &l.seen.look;
    tm_trainer    *other = test_trainer_on("cpu", 1, &wide, 5);
    test_gradients(l.trainer, &l.batch);
    double loss = test_gradients(other, &l.batch);
    assert_true(fabs(seen->reference_loss - loss) < 1e-12 * loss);
    for (size_t i = 0; i < seen->n_tensors; i++) {
        const tm_look_tensor *t = &seen->tensors[i];
        largest = fmax(largest, t->error);
        if (t < seen->first) assert_true(t->error <= 1e-9 && !t->diverges);
        if (strcmp(t->kind, "gradient") != 0) continue;
        double apart = test_relative_difference(l.trainer, other, gradient_by_name(l.trainer, t->name),
                                                gradient_by_name(other, t->name));
        if (fabs(apart - t->error) > 1e-9 * apart || !(apart > 0))
            fail_msg("%s: %.12g, of two trainings %.12g", t->name, t->error, apart);
        assert_true(t->cosine < 1 && t->cosine > 0.99);
    }
    assert_true(seen->worst->error == largest && largest < 0.1);
    assert_true(seen->first && seen->first->diverges && seen->first->error > 1e-9);
    end_looking(&l);
    test_trainer_end(other);
}

TEST(factors_are_compared_with_what_they_were)
{
    static const struct {
        const char *recipe;
        size_t      factors; /* of 2 layers with 4 products of linears */
        double      least, most;
    } cases[] = { { "fp8_tensorwise", 48, 0.01, 0.06 }, { "mxfp8", 48, 0.01, 0.04 }, { "mxfp4", 0, 0, 0 } };
    for (int c = 0; c < 3; c++) {
        looking l = look(quantized_options(cases[c].recipe), 0.1, 0);
        assert_int_equal(count(&l, "factor"), cases[c].factors);
        for (size_t i = 0; i < l.seen.look.n_tensors; i++) {
            const tm_look_tensor *t = &l.seen.look.tensors[i];
            if (strcmp(t->kind, "factor") != 0 || strstr(t->name, "grad") || !strstr(t->name, "weight")) continue;
            if (t->error < cases[c].least || t->error > cases[c].most)
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
    for (int64_t ignored = 0; ignored < 3; ignored++) { /* none, all of the first micro-batch, every second one */
        looking l = look(o, 0.1, ignored);
        double  loss;
        assert_ok(tm_trainer_evaluate(l.trainer, &l.fed, &loss, err));
        double wanted = l.fed.target_tokens > 0 ? loss / (double)l.fed.target_tokens : 0;
        assert_true((wanted > 1) == (ignored != 1));
        if (!(fabs(l.seen.look.loss - wanted) <= 1e-6 * wanted) || l.seen.look.loss != l.seen.look.reference_loss)
            fail_msg("loss %.9g and %.9g, wanted %.9g", l.seen.look.loss, l.seen.look.reference_loss, wanted);
        end_looking(&l);
    }
}
