/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a step: what is planned is used, and nothing is allocated while it runs. */
#include "support/test.h"
#include "support/training.h"

#include "base/arena.h"
#include "base/cpu.h"

typedef struct {
    tm_model_family     family;
    const tm_precision *precision;
    int64_t             micro_batch, seq, accumulation;
    tm_recompute        recompute;
    int                 threads;
} configuration;

static const configuration configurations[] = {
    { TM_FAMILY_LLAMA, &tm_precision_f32, 8, 128, 1, { .cheap = true }, 2 },
    { TM_FAMILY_LLAMA, &tm_precision_f32, 4, 256, 2, { .every_n = 2 }, 1 },
    { TM_FAMILY_LLAMA, &tm_precision_bf16_pure, 8, 128, 1, { 0 }, 2 },
    { TM_FAMILY_GPT, &tm_precision_bf16, 8, 128, 2, { .cheap = true, .every_n = 1 }, 4 },
};
enum { CONFIGURATIONS = sizeof configurations / sizeof configurations[0] };

static tm_step_options options_of(const configuration *c)
{
    tm_step_options o = c->family == TM_FAMILY_GPT ? test_gpt_options() : test_llama_options();
    o.shape.dim = 128;
    o.shape.head_dim = 64;
    o.shape.ffn_dim = 384;
    o.shape.n_layers = 3;
    o.shape.vocab_size = 300;
    o.precision = c->precision;
    o.micro_batch = c->micro_batch;
    o.seq = c->seq;
    o.accumulation = c->accumulation;
    o.recompute = c->recompute;
    return o;
}

/* What the device gives and reports is what the plan says, and a step of the trainer allocates nothing. */
TEST(planned_is_used_and_a_step_allocates_nothing)
{
    for (int i = 0; i < CONFIGURATIONS; i++) {
        tm_device      *device = test_device_open("cpu", configurations[i].threads);
        tm_step_options options = options_of(&configurations[i]);
        tm_trainer     *trainer = test_trainer_open(device, &options, 1);
        size_t          planned = tm_trainer_step_of(trainer)->plan->arena_bytes;
        assert_int_equal(tm_device_used_bytes(device, tm_trainer_arena(trainer), planned), planned);
        test_batch batch =
            test_batch_random(options.micro_batch * options.accumulation, options.seq, options.shape.vocab_size, 2);
        unsigned long long before = tm_alloc_count();
        assert_true(before > 0);
        tm_step_result r = test_step(trainer, 1, 1e-3, 1, &batch);
        test_evaluate(trainer, batch.tokens, batch.targets);
        if (tm_alloc_count() != before)
            fail_msg("configuration %d: %llu allocations in a step", i, tm_alloc_count() - before);
        assert_true(isfinite(r.loss));
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
}

TEST(a_plan_that_cannot_fit_is_refused_before_anything_is_taken)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options options = test_llama_options();
    tm_trainer     *trainer = NULL;
    tm_error        err = { 0 };
    options.shape = test_shape_preset("llama3.1_405B", NULL);
    int64_t before = tm_resident_anonymous_bytes();
    assert_int_equal(tm_trainer_open(device, &options, 1, &trainer, &err), TM_NOMEM);
    assert_null(trainer);
    assert_non_null(strstr(err.text, "model.n_layers"));
    assert_null(strstr(err.text, "training.local_batch_size")); /* no smaller batch helps */
    assert_true(tm_resident_anonymous_bytes() - before < 16 << 20);
    tm_device_close(device);
}
