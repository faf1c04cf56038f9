/* SPDX-License-Identifier: Apache-2.0 */
/* What a run does besides training: it ends with a record that fails, watches the machine, tells of GPUs, and counts
 * the rows of experts. */
#include "support/test.h"
#include "device/backend.h"
#include "run_fixture.h"
#include "system/validity.h"
#include "train/trainer/expert_balance.h"

/* An output: at which step it fails (-1: never; 0: when the run starts), and what it was told. */
typedef struct {
    tm_sink          sink;
    int64_t          fails_at, steps, done;
    int              gpus, devices, facts_known;
    tm_machine_watch machine;
} output;

static void listen(tm_sink *sink, const tm_event *event)
{
    output *o = (output *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) o->gpus = event->run_started.gpus, o->devices = event->run_started.devices;
    if (event->kind == TM_EVENT_STEP_DONE) o->steps++;
    if ((event->kind == TM_EVENT_RUN_STARTED || event->kind == TM_EVENT_STEP_DONE) && o->steps == o->fails_at)
        (void)tm_fail(&sink->error, TM_IO, "the disk is full");
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    o->done = event->run_ended.steps;
    o->machine = event->run_ended.machine;
    for (size_t i = 0; i < o->machine.n_facts; i++) o->facts_known += isfinite(o->machine.facts[i].value);
}

/* A run without its record means nothing if the record is vital: it ends at once; any other loses its record only. */
TEST(a_vital_output_that_fails_ends_the_run)
{
    static const struct {
        int64_t fails_at, steps;
        bool    vital;
    } rows[] = { { 0, 0, true }, { 3, 3, true }, { 3, 8, false }, { -1, 8, true } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bool     fails = rows[i].vital && rows[i].fails_at >= 0;
        tm_run_options options = small_run("synthetic", 8);
        output         o = { .sink = { .handle = listen, .vital = rows[i].vital }, .fails_at = rows[i].fails_at };
        tm_error       err;
        assert_int_equal(run_small(&options, "cpu", 1, &o.sink, NULL, &err), fails ? TM_IO : TM_OK);
        assert_string_equal(err.text, fails ? "the disk is full" : "");
        assert_int_equal(o.steps, rows[i].steps);
        if (fails) assert_int_equal(o.done, 0); /* told of no end */
    }
}

TEST(the_machine_is_watched)
{
    tm_run_options options = small_run("synthetic", 20);
    output         o = { .sink = { .handle = listen }, .fails_at = -1 };
    assert_ok(run_small(&options, "cpu", 1, &o.sink, NULL, err));
    assert_true(o.machine.n_facts == TM_MACHINE_GPU && o.machine.reason && o.gpus == 0 && o.devices == 1);
    assert_true(o.machine.samples >= 2 && o.machine.seconds > 0);
    assert_true(o.facts_known >= 3); /* faults and switches are known everywhere */
}

static void gpu_info(tm_device *device, int threads)
{
    tm_backend_cpu.info(device, threads);
    device->info.kind = TM_DEVICE_GPU;
}

TEST(devices_that_are_gpus_are_counted)
{
    tm_run_options        options = small_run("mock", 1);
    tm_backend            gpu = tm_backend_cpu;
    output                o = { .sink = { .handle = listen }, .fails_at = -1 };
    tm_event_bus          bus = { .sinks = (tm_sink *[]){ &o.sink }, .count = 1 };
    volatile sig_atomic_t stop = 0;
    tm_device            *device;
    tm_source            *source;
    gpu.info = gpu_info;
    assert_ok(tm_device_open_backend(&gpu, 2, false, &device, err));
    assert_ok(tm_source_open(&options.source, &source, err));
    assert_ok(tm_run(&options, device, source, &bus, &stop, err));
    assert_true(o.gpus == 1 && o.devices == 1);
    tm_source_close(source);
    tm_device_close(device);
}

/* An expert may have no rows, or all of them, and a mixture only one expert. */
TEST(the_load_of_experts)
{
    static const struct {
        int64_t mixtures, experts;
        double  pairs, counts[6], wanted[TM_LOAD_MEASURES]; /* largest, smallest, entropy, dropped */
    } cases[] = {
        { 1, 4, 8, { 2, 2, 2, 2 }, { 1, 1, 1, 0 } },
        { 1, 4, 8, { 0, 8, 0, 0 }, { 4, 0, 0, 0 } },
        { 1, 4, 8, { 4, 0, 4, 0 }, { 2, 0, 0.5, 0 } },
        { 2, 2, 4, { 3, 1, 0, 4 }, { 1.75, 0.25, 0.405639062229566, 0 } },
        { 2, 3, 6, { 1, 2, 3, 2, 1, 1 }, { 1.25, 0.5, 0.898798210119062, 2 } },
        { 2, 1, 5, { 5, 5 }, { 1, 1, 1, 0 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_named_f64 out[TM_LOAD_MEASURES];
        tm_load_measure(cases[i].counts, cases[i].mixtures, cases[i].experts, cases[i].pairs, out);
        for (int k = 0; k < TM_LOAD_MEASURES; k++)
            if (!(fabs(out[k].value - cases[i].wanted[k]) < 1e-12))
                fail_msg("case %zu: %s is %.15g, wanted %.15g", i, out[k].name, out[k].value, cases[i].wanted[k]);
    }
}
