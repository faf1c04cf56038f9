/* SPDX-License-Identifier: Apache-2.0 */
/* What a run tells of itself before its first step: the devices that compute, and where it begins. */
#include "support/test.h"
#include "device/backend.h"
#include "run_fixture.h"
#include "train/run/run.h"

#include <math.h>
#include <string.h>

static tm_run_started told;
static int            times;

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind != TM_EVENT_RUN_STARTED) return;
    told = event->run_started;
    times++;
}

static void gpu_info(tm_device *device, int threads)
{
    tm_backend_cpu.info(device, threads);
    device->info.kind = TM_DEVICE_GPU;
}

static tm_run_options options_of(void)
{
    tm_run_options o = small_run("mock", 1);
    o.max_norm = 0, o.validation_freq = 3;
    return o;
}

static void start(const tm_run_options *options, const tm_backend *backend, int threads)
{
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    tm_sink               sink = { .handle = hear };
    tm_error              err = { 0 };
    times = 0;
    assert_int_equal(tm_device_open_backend(backend, threads, false, &device, &err), TM_OK);
    if (tm_source_open(&options->source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &sink }, .count = 1 };
    if (tm_run(options, device, source, &bus, &stop, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(times, 1);
    tm_source_close(source);
    tm_device_close(device);
}

/* Of a run of one process: one device, which may be a GPU. */
TEST(devices_that_are_gpus_are_counted)
{
    tm_run_options o = options_of();
    tm_backend     gpu = tm_backend_cpu;
    gpu.info = gpu_info;
    start(&o, &tm_backend_cpu, 1);
    assert_int_equal(told.gpus, 0);
    assert_int_equal(told.devices, 1);
    assert_int_equal(told.threads, 1);
    start(&o, &gpu, 2);
    assert_int_equal(told.gpus, 1);
    assert_int_equal(told.devices, 1);
    assert_int_equal(told.threads, 2);
}

/* Without validation nothing is evaluated, however often; without a largest norm there is none. */
TEST(what_is_not_done_is_not_announced)
{
    tm_run_options o = options_of();
    start(&o, &tm_backend_cpu, 1);
    assert_true(told.recipe.eval_samples == 0 && told.recipe.eval_interval == 0 && isinf(told.recipe.max_norm));
    assert_true(told.loss_target == 0 && told.seed == o.seed);
    o.validate = true, o.validation_steps = 2, o.max_norm = 0.5, o.target_loss = 100;
    start(&o, &tm_backend_cpu, 1);
    assert_int_equal(told.recipe.eval_samples, 2 * o.step.micro_batch);
    assert_int_equal(told.recipe.eval_interval, 3 * o.step.micro_batch * o.step.accumulation);
    assert_true(told.recipe.max_norm == 0.5 && told.loss_target == 100);
    assert_int_equal(told.first_step, 1);
    assert_int_equal(told.first_sample, 0);
}
