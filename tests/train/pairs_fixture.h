/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on pairs of answers: their data, their options, and what they tell. */
#ifndef TM_TESTS_PAIRS_FIXTURE_H
#define TM_TESTS_PAIRS_FIXTURE_H

#include "support/test.h"
#include "base/log.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SEQ = 96, PAIRS = 60, MOST = 64 };

typedef struct {
    tm_sink       sink;
    tm_step_done  step[MOST];
    double        measures[MOST][6];
    tm_evaluation evaluation;
    double        evaluated[6];
    int           steps, evaluations;
    tm_run_ended  end;
    char          reason[TM_REASON_BYTES];
} listener;

static const char *const names[6] = { "rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                      "rewards/margins", "logps/chosen",     "logps/rejected" };

static inline void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        assert_true(l->steps < MOST);
        assert_true(event->step_done.n_measures >= 6); /* of mixtures the load of experts comes first */
        const tm_named_f64 *told = event->step_done.measures + event->step_done.n_measures - 6;
        for (int k = 0; k < 6; k++) {
            assert_string_equal(told[k].name, names[k]);
            l->measures[l->steps][k] = told[k].value;
        }
        l->step[l->steps++] = event->step_done;
    }
    if (event->kind == TM_EVENT_EVALUATION) {
        assert_int_equal(event->evaluation.n_measures, 6);
        for (int k = 0; k < 6; k++) l->evaluated[k] = event->evaluation.measures[k].value;
        l->evaluation = event->evaluation;
        l->evaluations++;
    }
    if (event->kind == TM_EVENT_RUN_ENDED) {
        l->end = event->run_ended;
        snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
    }
}

/* pairs.jsonl in the test's folder. Chosen answers are of capitals, rejected ones of small letters; lengths differ. */
static inline void write_rows(void)
{
    tm_text text = { 0 };
    for (int i = 0; i < PAIRS; i++) {
        tm_text_printf(&text, "{\"prompt\": \"%c%d?\", \"chosen\": \"", 'a' + i % 26, i);
        for (int k = 0; k < 2 + i * 3 % 11; k++) tm_text_printf(&text, "%c", 'A' + (i + k * 3) % 26);
        tm_text_add(&text, "\", \"rejected\": \"");
        for (int k = 0; k < 2 + i * 5 % 13; k++) tm_text_printf(&text, "%c", 'a' + (i + k * 7) % 26);
        tm_text_add(&text, "\"}\n");
    }
    test_file_write(test_folder(), "pairs.jsonl", text.data);
    tm_text_fini(&text);
}

static inline tm_run_options options_of(int64_t steps, bool packed)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 1e-3,
                         .max_norm = 1,
                         .seed = 7,
                         .prefetch = 2,
                         .validation_steps = -1,
                         .checkpoint_load_step = -1,
                         .checkpoint_interval = 1000,
                         .step = test_llama_options() };
    tm_error       err = { 0 };
    o.step.shape.vocab_size = 257;
    o.step.seq = SEQ;
    o.step.micro_batch = 2;
    o.step.accumulation = 2;
    o.step.preference = (tm_preference_attr){ .kind = TM_PREFERENCE_SIGMOID, .beta = 0.2 };
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = 1000, .decay_ratio = 0 };
    o.source = (tm_source_options){ .name = "preference",
                                    .path = test_in_folder("pairs.jsonl"),
                                    .vocab = 257,
                                    .seq = SEQ,
                                    .seed = o.seed,
                                    .validation_fraction = 0.2,
                                    .sft = { .packed = packed } };
    if (tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(o.step.n_fields, 5);
    return o;
}

static inline bool is_near(double a, double b, double slack)
{
    return fabs(a - b) <= slack;
}

#endif
