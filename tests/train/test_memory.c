/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a step: what is planned is used, page for page, and nothing is allocated while it runs. */
#include "support/test.h"
#include "support/training.h"

#include "base/arena.h"
#include "base/cpu.h"
#include "train/trainer/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

typedef struct {
    tm_model_family     family;
    const tm_precision *precision;
    int64_t             micro_batch, seq, accumulation;
    tm_recompute        recompute;
    int                 threads;
} configuration;

static const configuration configurations[] = {
    { TM_FAMILY_LLAMA, &tm_precision_f32, 8, 128, 1, { 0 }, 1 },
    { TM_FAMILY_LLAMA, &tm_precision_f32, 8, 128, 1, { .cheap = true }, 2 },
    { TM_FAMILY_LLAMA, &tm_precision_f32, 4, 256, 2, { .every_n = 2 }, 2 },
    { TM_FAMILY_LLAMA, &tm_precision_f32, 2, 512, 1, { .cheap = true, .every_n = 1 }, 2 },
    { TM_FAMILY_LLAMA, &tm_precision_bf16, 8, 128, 1, { .cheap = true }, 2 },
    { TM_FAMILY_LLAMA, &tm_precision_bf16, 8, 128, 4, { .every_n = 1 }, 1 },
    { TM_FAMILY_LLAMA, &tm_precision_bf16_pure, 8, 128, 1, { .cheap = true }, 2 },
    { TM_FAMILY_GPT, &tm_precision_f32, 8, 128, 1, { 0 }, 2 },
    { TM_FAMILY_GPT, &tm_precision_f32, 4, 256, 4, { .cheap = true }, 1 },
    { TM_FAMILY_GPT, &tm_precision_f32, 8, 128, 1, { .every_n = 1 }, 4 },
    { TM_FAMILY_GPT, &tm_precision_bf16, 8, 128, 2, { .cheap = true }, 2 },
    { TM_FAMILY_GPT, &tm_precision_bf16_pure, 8, 128, 1, { .every_n = 2 }, 2 },
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

/* One training step on an arena whose pages nobody has touched; the scalars as tm_trainer_begin sets them. */
static void run_step(tm_device *device, const tm_step *step, const tm_arenas *memory, const test_batch *batch)
{
    const tm_step_options *o = &step->options;
    int64_t                rows = o->micro_batch * o->seq;
    double                 scalars[TM_SCALAR_COUNT] = { 0 }, loss;
    size_t                 bytes = (size_t)rows * sizeof(int32_t);
    const tm_plan         *plan = step->plan;
    tm_error               err = { 0 };
    scalars[TM_SCALAR_LOSS_SCALE] = 1 / (double)batch->target_tokens;
    scalars[TM_SCALAR_LEARNING_RATE] = 1e-3;
    o->optimizer->scalars(&o->hyper, 1, 1e-3, scalars);
    scalars[TM_SCALAR_MAX_NORM] = 1;
    tm_status st = tm_device_write(device, tm_plan_address(plan, memory, step->scalars), scalars, sizeof scalars, &err);
    for (int64_t i = 0; i < o->accumulation && st == TM_OK; i++) {
        st =
            tm_device_write(device, tm_plan_address(plan, memory, step->tokens), batch->tokens + i * rows, bytes, &err);
        if (st == TM_OK)
            st = tm_device_write(device, tm_plan_address(plan, memory, step->targets), batch->targets + i * rows, bytes,
                                 &err);
        if (st == TM_OK) st = tm_device_run(device, i == 0 ? step->first : step->further, NULL, &err);
    }
    if (st == TM_OK) st = tm_device_run(device, step->update, NULL, &err);
    if (st == TM_OK) st = tm_device_read(device, &loss, tm_plan_address(plan, memory, step->loss), sizeof loss, &err);
    if (st == TM_OK) st = tm_device_wait(device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    assert_true(isfinite(loss));
}

TEST(planned_pages_are_touched)
{
    for (int i = 0; i < CONFIGURATIONS; i++) {
        tm_device      *device = test_device_open("cpu", configurations[i].threads);
        tm_chooser      chooser = tm_device_chooser(device);
        tm_step_options options = options_of(&configurations[i]);
        tm_step        *step = test_step_plan(&options, &chooser);
        size_t          bytes = step->plan->arena_bytes, pages = (bytes + PAGE - 1) / PAGE, touched = 0;
        char           *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned char  *resident = malloc(pages);
        tm_address      at = { (uintptr_t)arena };
        assert_true(arena != MAP_FAILED && resident);
        assert_int_equal(madvise(arena, bytes, MADV_NOHUGEPAGE), 0);
        assert_int_equal(tm_device_used_bytes(device, at, bytes), 0);
        tm_arenas  memory = { .base = { at } };
        tm_loaded *loaded;
        tm_error   err = { 0 };
        assert_int_equal(tm_device_load(device, step->plan, &memory, &loaded, &err), TM_OK);
        assert_int_equal(tm_init_fill(step->plan, device, &memory, 1, chooser.threads, &err), TM_OK);
        test_batch batch =
            test_batch_random(options.micro_batch * options.accumulation, options.seq, options.shape.vocab_size, 2);
        run_step(device, step, &memory, &batch);
        assert_int_equal(mincore(arena, bytes, resident), 0);
        for (size_t p = 0; p < pages; p++) touched += resident[p] & 1;
        assert_true(pages > 1000);
        if (!((double)touched >= 0.99 * (double)pages))
            fail_msg("configuration %d: a step touches %zu of %zu pages", i, touched, pages);
        int64_t used = tm_device_used_bytes(device, at, bytes);
        assert_true(used >= (int64_t)(touched * PAGE) - PAGE && used <= (int64_t)(touched * PAGE));
        test_batch_fini(&batch);
        munmap(arena, bytes);
        free(resident);
        tm_device_unload(loaded);
        tm_step_destroy(step);
        tm_device_close(device);
    }
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
