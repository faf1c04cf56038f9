/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and rewards of whole runs on pairs are those of TRL (tools/dpo_parity.py): all weights, adapters, each loss.
 */
#include "parity_fixture.h"

#include "op/preference.h"
#include "support/full_config.h"
#include "train/run/run.h"

#include "support/test.h"
#include <jansson.h>

enum { STEPS = 20, SEQ = 256 };

static json_t *trl; /* tests/hf/preference.json */

/* --- the model ---------------------------------------------------------------------------------------------------- */

typedef struct {
    test_hf_model model;
    tm_hf_adapter adapter;
    bool          adapted;
} first_weights;

static tm_status load_both(void *context, tm_trainer *trainer, tm_error *err)
{
    const first_weights *w = context;
    tm_hf_report         report;
    tm_hf_memory         memory = tm_hf_trainer_memory(trainer, w->model.description.form);
    TM_TRY(tm_hf_load(&memory, w->model.weights, 1, &report, err));
    return w->adapted ? tm_hf_adapter_load(&memory, &w->adapter, &w->adapter.adapters, 1, &report, err) : TM_OK;
}

/* Of adapters A has the values of its names, B is zero. */
static void open_weights(bool beside, first_weights *out)
{
    fixture f = load("preference.json");
    *out = (first_weights){ .adapted = beside };
    write_adapter_weights(f.adapter, json_object_get(f.root, "shapes"), true);
    assert_ok(test_hf_open(f.base, "cpu", &tm_precision_f32, SEQ, &out->model, err));
    assert_ok(beside && tm_hf_adapter_open(f.adapter, NULL, NULL, &out->adapter, err));
    json_decref(f.root);
}

static void close_weights(first_weights *w)
{
    if (w->adapted) tm_hf_adapter_close(&w->adapter);
    test_hf_close(&w->model);
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

typedef struct {
    tm_sink       sink;
    const json_t *wanted;
    int           steps;
    double        scale; /* of the losses: the largest one so far, at least 1 */
} listener;

static void is_near(const listener *l, const char *what, double value, double slack)
{
    double wanted = json_number_value(json_array_get(json_object_get(l->wanted, what), (size_t)l->steps));
    if (!(fabs(value - wanted) <= slack))
        fail_msg("%s, step %d: %s is %.9g, wanted %.9g", json_string_value(json_object_get(l->wanted, "name")),
                 l->steps + 1, what, value, wanted);
}

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind != TM_EVENT_STEP_DONE) return;
    const tm_step_done *step = &event->step_done;
    l->scale = fmax(fmax(1, l->scale), fabs(step->loss));
    is_near(l, "losses", step->loss, 1e-4 * l->scale);
    assert_int_equal(step->n_measures, 6);
    for (size_t i = 0; i < step->n_measures; i++) /* sums over tens of tokens are further apart than means */
        is_near(l, step->measures[i].name, step->measures[i].value,
                (strncmp(step->measures[i].name, "logps", 5) == 0 ? 1e-3 : 1e-4) * l->scale);
    l->steps++;
}

static tm_preference_attr loss_of(const json_t *wanted)
{
    const char *type = json_string_value(json_object_get(wanted, "loss_type"));
    return (tm_preference_attr){ .kind = tm_preference_named(strcmp(type, "aot") == 0 ? "sigmoid" : type),
                                 .beta = json_number_value(json_object_get(wanted, "beta")),
                                 .label_smoothing = json_number_value(json_object_get(wanted, "label_smoothing")) };
}

/* One pair a row, all of them a batch. */
static void run_case(const json_t *wanted)
{
    size_t         rows = json_array_size(json_object_get(trl, "rows"));
    first_weights  weights;
    tm_run_options o = { .model_name = "tiny",
                         .steps = STEPS,
                         .learning_rate = 1e-3,
                         .max_norm = 1,
                         .seed = 3,
                         .checkpoint_load_step = -1,
                         .load_weights = load_both,
                         .load_context = &weights };
    o.source = (tm_source_options){ .name = "preference",
                                    .path = test_in_folder("rows.jsonl"),
                                    .vocab = 260,
                                    .seq = SEQ,
                                    .seed = 3,
                                    .sft = { .packed = false } };
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = STEPS, .decay_ratio = 0 };
    open_weights(json_is_true(json_object_get(wanted, "adapter")), &weights);
    o.step = (tm_step_options){ .shape = weights.model.shape,
                                .precision = &tm_precision_f32,
                                .micro_batch = (int64_t)rows / 2,
                                .seq = SEQ,
                                .accumulation = 2,
                                .optimizer = &tm_optimizer_adamw,
                                .preference = loss_of(wanted) };
    o.step.hyper =
        (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay_matrices_only = true };
    if (weights.adapted) o.step.adapters = weights.adapter.adapters;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    listener              l = { .sink = { .handle = listen }, .wanted = wanted };
    tm_event_bus          bus = { .sinks = (tm_sink *[]){ &l.sink }, .count = 1 };
    assert_ok(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, err));
    assert_ok(tm_source_open(&o.source, &source, err));
    assert_ok(tm_run(&o, weights.model.device, source, &bus, &stop, err));
    assert_int_equal(l.steps, STEPS);
    tm_source_close(source);
    close_weights(&weights);
}

FULL_TEST(runs_are_those_of_trl)
{
    json_error_t  problem;
    size_t        i, n = 0;
    const json_t *one;
    tm_text       text = { 0 };
    trl = json_load_file("tests/hf/preference.json", 0, &problem);
    if (!trl) fail_msg("%s", problem.text);
    json_array_foreach(json_object_get(trl, "rows"), i, one)
    {
        char *line = json_dumps(one, 0);
        tm_text_printf(&text, "%s\n", line);
        free(line);
    }
    test_file_write(test_folder(), "rows.jsonl", text.data);
    tm_text_fini(&text);
    json_array_foreach(json_object_get(trl, "cases"), i, one)
    {
        run_case(one);
        n++;
    }
    assert_true(n >= 4);
    json_decref(trl);
}

TEST_FIXTURE(NULL, test_folder_teardown)
