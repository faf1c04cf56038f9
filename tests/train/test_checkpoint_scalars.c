/* SPDX-License-Identifier: Apache-2.0 */
/* What a run keeps beside its tensors has names: a checkpoint that lacks one, or has one more, is not gone on from. */
#include "support/test.h"
#include "support/training.h"

#include "checkpoint_fixture.h"
#include "train/run/run.h"

static double first_loss_told;

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind == TM_EVENT_RUN_ENDED) first_loss_told = event->run_ended.loss_first;
}

static tm_run_options options_of(const char *folder, int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 2,
                         .target_gap = 0.05,
                         .checkpoint = true,
                         .checkpoint_interval = 1000,
                         .checkpoint_load_step = -1,
                         .checkpoint_folder = folder,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = 64;
    o.step.recompute.cheap = true;
    o.schedule =
        (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 8, .warmup_steps = 3, .decay_ratio = -1 };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    return o;
}

static tm_status run(const tm_run_options *options, tm_error *err)
{
    tm_device            *device = test_device_open("cpu", 1);
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    tm_sink               sink = { .handle = hear };
    *err = (tm_error){ 0 };
    if (tm_source_open(&options->source, &source, err) != TM_OK) fail_msg("%s", err->text);
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &sink }, .count = 1 };
    tm_status    st = tm_run(options, device, source, &bus, &stop, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

/* Saves step 6 again with these scalars. */
static void save_with(const tm_run_options *options, const tm_checkpoint_scalar *scalars, size_t n_scalars)
{
    tm_device                  *device = test_device_open("cpu", 1);
    tm_trainer                 *trainer = test_trainer_open(device, &options->step, 1);
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report;
    tm_error                    err = { 0 };
    const char                 *folder = options->checkpoint_folder;
    assert_int_equal(tm_checkpoint_load_newest(folder, 6, &state, tensors, n, &report, &err), TM_OK);
    state.n_scalars = 0;
    for (size_t i = 0; i < n_scalars; i++) tm_checkpoint_add_scalar(&state, scalars[i].name, scalars[i].value);
    assert_int_equal(tm_checkpoint_save(folder, &state, tensors, n, 0, &err), TM_OK);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static void names_decide(void **unused)
{
    (void)unused;
    /* in another order than the program writes them; the numbers are made up, and told at the end of the run */
    const tm_checkpoint_scalar kept[] = { { "another", 1 },
                                          { "head_loss_count", 5 },
                                          { "head_loss_mean", 4.25 },
                                          { "first_loss", 4.3125 },
                                          { "head_loss_deviation", 0.01 } };
    fixture                    f = new_fixture();
    tm_run_options             o = options_of(f.folder, 6);
    tm_error                   err;
    assert_int_equal(run(&o, &err), TM_OK);
    o.steps = 8;
    save_with(&o, kept, 5);
    assert_int_equal(run(&o, &err), TM_INVALID);
    assert_says(&err, "the checkpoint of step 6 in '");
    assert_says(&err, "it holds scalar 'another' = 1, which this program does not know");
    save_with(&o, kept + 1, 3);
    assert_int_equal(run(&o, &err), TM_INVALID);
    assert_says(&err, "scalar 'head_loss_deviation' is expected and is missing; continue with");
    save_with(&o, kept + 1, 4);
    assert_int_equal(run(&o, &err), TM_OK);
    assert_true(first_loss_told == 4.3125);
    clear(f.folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(names_decide),
};

TM_TESTS(tests, NULL, NULL)
