/* SPDX-License-Identifier: Apache-2.0 */
/* What a run tells of its steps and evaluations is what happened: rates, times, counts and units, each worked out anew
 * from what the listener saw. */
#include "support/test.h"
#include "support/folder.h"
#include "run_fixture.h"

#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST = 80 };

typedef struct {
    tm_sink       sink;
    tm_step_done  step[MOST];
    tm_evaluation evaluation[MOST], started[MOST];
    int           steps, evaluations;
    int64_t       first_sample;
    tm_run_ended  end;
    char          reason[TM_REASON_BYTES];
    int           slow_step;        /* telling of this step takes 0.2 s, which count for the next one */
    double        slow_evaluations; /* telling of one takes so many seconds, which count for nobody */
} listener;

static void wait_for(double seconds)
{
    struct timespec t = { .tv_sec = 0, .tv_nsec = (long)(seconds * 1e9) };
    nanosleep(&t, NULL);
}

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        l->step[l->steps++] = event->step_done;
        if (l->steps == l->slow_step) wait_for(0.2);
    }
    if (event->kind == TM_EVENT_EVALUATION_STARTED)
        l->started[l->evaluations] =
            (tm_evaluation){ .step = event->evaluation_started.step, .samples = event->evaluation_started.samples };
    if (event->kind == TM_EVENT_EVALUATION) {
        l->evaluation[l->evaluations++] = event->evaluation;
        if (l->slow_evaluations > 0) wait_for(l->slow_evaluations);
    }
    if (event->kind == TM_EVENT_RUN_STARTED) l->first_sample = event->run_started.first_sample;
    if (event->kind == TM_EVENT_RUN_ENDED) {
        l->end = event->run_ended;
        snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
    }
}

static tm_run_options options_of(int64_t steps)
{
    tm_run_options o = small_run("synthetic", steps);
    o.learning_rate = 1e-3;
    o.seed = o.source.seed = 7;
    o.validation_steps = 2;
    o.schedule.warmup_steps = 0, o.schedule.decay_ratio = 0;
    return o;
}

static tm_status run(const tm_run_options *options, listener *l)
{
    tm_error err;
    l->sink.handle = listen;
    return run_small(options, "cpu", 1, &l->sink, NULL, &err);
}

/* Step s has the factor of step s - 1, counted from 0, and moves the weights by it: with the same rate all the time,
 * one step gives the same bits. */
TEST(a_step_has_the_rate_that_it_tells)
{
    static listener warming, constant;
    tm_run_options  o = options_of(6);
    o.schedule.warmup_steps = 4;
    assert_int_equal(run(&o, &warming), TM_OK);
    assert_int_equal(warming.steps, 6);
    for (int s = 0; s < 6; s++) {
        double factor = s < 4 ? (s + 1) / 4. : 1;
        if (fabs(warming.step[s].learning_rate - 1e-3 * factor) > 1e-12)
            fail_msg("step %d tells the rate %g", s + 1, warming.step[s].learning_rate);
    }
    o = options_of(1);
    o.schedule.steps = 6;
    o.schedule.warmup_steps = 4;
    warming = constant = (listener){ 0 };
    assert_int_equal(run(&o, &warming), TM_OK);
    o.schedule.warmup_steps = 0;
    o.learning_rate = 1e-3 * 0.25;
    assert_int_equal(run(&o, &constant), TM_OK);
    assert_true(warming.end.weights_hash == constant.end.weights_hash);
    constant = (listener){ 0 };
    o.learning_rate = 1e-3 * 0.5;
    assert_int_equal(run(&o, &constant), TM_OK);
    assert_true(warming.end.weights_hash != constant.end.weights_hash);
}

/* The time between two steps counts for the second one; that of an evaluation for none. Physics looks at the fastest
 * step. */
TEST(times_are_those_of_the_steps)
{
    static listener l;
    tm_run_options  o = options_of(6);
    l.slow_step = 3;
    o.peaks.flops = 1; /* which the reason shows */
    assert_int_equal(run(&o, &l), TM_NUMBERS);
    assert_true(l.step[3].seconds >= 0.2);
    double least = l.step[0].seconds, said = -1;
    for (int s = 0; s < 6; s++) {
        least = fmin(least, l.step[s].seconds);
        assert_true(l.end.step_seconds != NULL);
    }
    assert_true(least < 0.2);
    const char *at = strstr(l.reason, "the fastest step took ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "the fastest step took %lf", &said), 1);
    if (!(fabs(said / least - 1) < 1e-2)) fail_msg("%s (it took %g s)", l.reason, least);

    l = (listener){ .slow_evaluations = 0.3 };
    o = options_of(4);
    o.validate = true;
    o.validation_freq = 1;
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.evaluations, 4);
    for (int s = 0; s < 4; s++)
        if (l.step[s].seconds >= 0.3) fail_msg("step %d took %g s", s + 1, l.step[s].seconds);
}

/* Samples are counted through a run of more than 64 steps. */
TEST(samples_are_counted)
{
    static listener l;
    tm_run_options  o = options_of(70);
    int64_t         batch = 3 * o.step.micro_batch;
    o.step.accumulation = 3;
    o.validate = true;
    o.validation_freq = 35;
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.steps, 70);
    assert_int_equal(l.evaluations, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(l.evaluation[i].step, 35 * (i + 1));
        assert_int_equal(l.evaluation[i].samples, 35 * (i + 1) * batch);
        assert_int_equal(l.started[i].step, 35 * (i + 1));
        assert_int_equal(l.started[i].samples, 35 * (i + 1) * batch);
        assert_int_equal(l.evaluation[i].tokens, 2 * o.step.micro_batch * o.step.seq);
    }
    assert_int_equal(l.end.steps, 70);
    assert_int_equal(l.end.samples, 70 * batch);
    for (int s = 0; s < 70; s++) {
        assert_int_equal(l.step[s].step, s + 1);
        assert_int_equal(l.step[s].tokens, batch * o.step.seq);
    }
}

/* A loss in nats per token is loss / ln 2 bits per token, and a token is so many bytes: of files with 10 bytes and an
 * end each, 10 / 11. */
TEST_WITH(bits_per_byte_are_of_bytes, NULL, test_folder_teardown)
{
    static listener l;
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "text-%02d", i);
        FILE *f = fopen(test_in_folder(name), "w");
        assert_true(f && fputs("0123456789", f) >= 0 && fclose(f) == 0);
    }
    tm_run_options o = options_of(3);
    o.step.shape.vocab_size = 257;
    o.source = (tm_source_options){
        .name = "text", .path = test_folder(), .vocab = 257, .seq = o.step.seq, .validation_fraction = 0.5
    };
    o.validate = true;
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.evaluations, 1);
    double wanted = l.evaluation[0].loss / 0.69314718055994531 / (10. / 11);
    assert_true(fabs(l.evaluation[0].bits_per_byte / wanted - 1) < 1e-6);
    assert_true(fabs(l.end.bits_per_byte / wanted - 1) < 1e-6);
}

/* Those of a process that goes on with other batches, too: each step counts as it was. */
TEST_WITH(samples_of_other_batches_are_counted, NULL, test_folder_teardown)
{
    static listener l;
    tm_run_options  o = options_of(4);
    const int64_t   rows = o.step.micro_batch;
    o.schedule.steps = 7;
    o.validate = true;
    o.checkpoint = true;
    o.checkpoint_folder = test_in_folder("checkpoint");
    o.checkpoint_interval = 1000;
    o.checkpoint_keep = 1;
    l = (listener){ 0 };
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.first_sample, 0);
    assert_int_equal(l.end.samples, 4 * rows);
    o.steps = 7;
    o.step.accumulation = 3;
    l = (listener){ 0 };
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.steps, 3);
    assert_int_equal(l.first_sample, 4 * rows);
    assert_int_equal(l.started[0].samples, 4 * rows + 3 * 3 * rows);
    assert_int_equal(l.evaluation[0].samples, 4 * rows + 3 * 3 * rows);
    assert_int_equal(l.end.samples, 4 * rows + 3 * 3 * rows);
    l = (listener){ 0 }; /* nothing left to do: the result alone */
    assert_int_equal(run(&o, &l), TM_OK);
    assert_int_equal(l.end.samples, 4 * rows + 3 * 3 * rows);
}
