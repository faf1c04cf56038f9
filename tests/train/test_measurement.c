/* SPDX-License-Identifier: Apache-2.0 */
/* What a run does besides training: it ends with a record that fails, watches the machine, and counts the rows of
 * experts. */
#include "support/test.h"
#include "run_fixture.h"

#include "system/validity.h"
#include "train/trainer/expert_balance.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    tm_sink          sink;
    int64_t          steps;
    tm_verdict       verdict;
    char             reason[TM_REASON_BYTES], stopped[64];
    tm_machine_watch machine;
    int              facts_known;
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    l->steps = event->run_ended.steps;
    l->verdict = event->run_ended.verdict;
    l->machine = event->run_ended.machine;
    snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
    snprintf(l->stopped, sizeof l->stopped, "%s", event->run_ended.stopped);
    for (size_t i = 0; i < l->machine.n_facts; i++) l->facts_known += isfinite(l->machine.facts[i].value);
}

static tm_run_options options_of(int64_t steps)
{
    tm_run_options o = small_run("synthetic", steps);
    o.learning_rate = 3e-3;
    o.step.recompute.cheap = true;
    o.schedule.decay = TM_DECAY_COSINE;
    return o;
}

static tm_status run_with(const tm_run_options *options, const tm_event_bus *bus, tm_error *err)
{
    tm_device            *device = test_device_open("cpu", 1);
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    *err = (tm_error){ 0 };
    if (tm_source_open(&options->source, &source, err) != TM_OK) fail_msg("%s", err->text);
    tm_status st = tm_run(options, device, source, bus, &stop, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static tm_status run(const tm_run_options *options, listener *l, tm_error *err)
{
    *l = (listener){ .sink = { .handle = listen } };
    return run_with(options, &(tm_event_bus){ .sinks = (tm_sink *[]){ &l->sink }, .count = 1 }, err);
}

/* An output that fails: at which step, and is it vital? */
typedef struct {
    tm_sink sink;
    int64_t fails_at, steps; /* 0: when the run starts */
} failing_sink;

static void fail_at_a_step(tm_sink *sink, const tm_event *event)
{
    failing_sink *self = (failing_sink *)sink;
    bool          start = event->kind == TM_EVENT_RUN_STARTED && self->fails_at == 0;
    if (event->kind == TM_EVENT_STEP_DONE) self->steps++;
    if (start || (event->kind == TM_EVENT_STEP_DONE && self->steps == self->fails_at))
        (void)tm_fail(&sink->error, TM_IO, "the disk is full");
}

/* A run without its record means nothing if the record is vital: it ends at once; any other loses its record only. */
TEST(a_vital_output_that_fails_ends_the_run)
{
    static const struct {
        int64_t   fails_at;
        bool      vital;
        tm_status status;
        int64_t   steps;
    } rows[] = { { 0, true, TM_IO, 0 }, { 3, true, TM_IO, 3 }, { 3, false, TM_OK, 8 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_run_options o = options_of(8);
        tm_error       err;
        listener       l = { .sink = { .handle = listen } };
        failing_sink f = { .sink = { .handle = fail_at_a_step, .vital = rows[i].vital }, .fails_at = rows[i].fails_at };
        tm_event_bus bus = { 0 };
        tm_event_bus_add(&bus, &l.sink);
        tm_event_bus_add(&bus, &f.sink);
        assert_int_equal(run_with(&o, &bus, &err), rows[i].status);
        assert_int_equal(tm_status_exit_code(rows[i].status), rows[i].vital ? 1 : 0);
        assert_int_equal(f.steps, rows[i].steps);
        assert_string_equal(err.text, rows[i].vital ? "the disk is full" : "");
        assert_int_equal(l.steps, rows[i].vital ? 0 : 8); /* told of no end */
        tm_event_bus_fini(&bus);
    }
}

TEST(the_machine_is_watched)
{
    tm_error       err;
    listener       l;
    tm_run_options o = options_of(20);
    assert_int_equal(run(&o, &l, &err), TM_OK);
    assert_int_equal(l.machine.n_facts, TM_MACHINE_GPU);
    assert_non_null(l.machine.reason);
    assert_true(l.machine.samples >= 2 && l.machine.seconds > 0);
    assert_true(l.facts_known >= 3); /* faults and switches are known everywhere */
}

/* An expert may have no rows, or all of them, and a mixture only one expert. */
TEST(the_load_of_experts)
{
    static const struct {
        int64_t mixtures, experts;
        double  pairs, counts[6], largest, smallest, entropy, dropped;
    } cases[] = {
        { 1, 4, 8, { 2, 2, 2, 2 }, 1, 1, 1, 0 },
        { 1, 4, 8, { 0, 8, 0, 0 }, 4, 0, 0, 0 },
        { 1, 4, 8, { 4, 0, 4, 0 }, 2, 0, 0.5, 0 },
        { 2, 2, 4, { 3, 1, 0, 4 }, 1.75, 0.25, 0.405639062229566, 0 },
        { 2, 3, 6, { 1, 2, 3, 2, 1, 1 }, 1.25, 0.5, 0.898798210119062, 2 },
        { 2, 1, 5, { 5, 5 }, 1, 1, 1, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double wanted[] = { cases[i].largest, cases[i].smallest, cases[i].entropy, cases[i].dropped };
        tm_named_f64 out[TM_LOAD_MEASURES];
        tm_load_measure(cases[i].counts, cases[i].mixtures, cases[i].experts, cases[i].pairs, out);
        for (int k = 0; k < TM_LOAD_MEASURES; k++)
            if (!(fabs(out[k].value - wanted[k]) < 1e-12))
                fail_msg("case %zu: %s is %.15g, wanted %.15g", i, out[k].name, out[k].value, wanted[k]);
    }
}
