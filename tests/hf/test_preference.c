/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and rewards of whole runs on pairs are those of TRL (tools/dpo_parity.py): all weights, adapters, each loss.
 */
#include "hf/adapter.h"
#include "op/preference.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/test.h"
#include <jansson.h>

enum { STEPS = 20, SEQ = 256 };

static json_t *fixture; /* tests/hf/preference.json */

/* --- the model ---------------------------------------------------------------------------------------------------- */

typedef struct {
    test_hf_model model;
    tm_hf_adapter adapter;
    bool          adapted;
} first_weights;

static tm_status load(void *context, tm_trainer *trainer, tm_error *err)
{
    const first_weights *w = context;
    tm_hf_report         report;
    tm_hf_memory         memory = tm_hf_trainer_memory(trainer, w->model.description.form);
    TM_TRY(tm_hf_load(&memory, w->model.weights, 1, &report, err));
    return w->adapted ? tm_hf_adapter_load(&memory, &w->adapter, &w->adapter.adapters, 1, &report, err) : TM_OK;
}

/* A has the values of its names, B is zero. */
static void write_adapter(const char *folder)
{
    tm_tensor_heading headings[32];
    size_t            n = 0;
    char              path[400];
    const char       *name;
    json_t           *shape;
    tm_error          err = { 0 };
    json_object_foreach(json_object_get(fixture, "shapes"), name, shape)
    {
        assert_true(n < 32);
        headings[n] = (tm_tensor_heading){ .name = name, .dtype = TM_F32, .rank = 2 };
        for (size_t k = 0; k < 2; k++) headings[n].n[k] = (int64_t)json_integer_value(json_array_get(shape, k));
        n++;
    }
    tm_safetensors_writer *writer;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_int_equal(tm_safetensors_create(path, headings, n, NULL, &writer, &err), TM_OK);
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < headings[i].n[0] * headings[i].n[1]; k++) {
            bool  zero = strstr(headings[i].name, "lora_B") != NULL;
            float value = zero ? 0 : (float)(0.25 * golden_unit(headings[i].name, (uint32_t)k));
            tm_safetensors_write(writer, &value, sizeof value);
        }
    assert_int_equal(tm_safetensors_finish(writer, &err), TM_OK);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    assert_int_equal(json_dump_file(json_object_get(fixture, "adapter"), path, 0), 0);
}

static void open_weights(bool adapted, first_weights *out)
{
    char     folder[300];
    char    *config = json_dumps(json_object_get(fixture, "config"), 0);
    tm_error err = { 0 };
    *out = (first_weights){ .adapted = adapted };
    snprintf(folder, sizeof folder, "%s/base", test_folder());
    mkdir(folder, 0700);
    test_hf_write(folder, config, NULL);
    free(config);
    if (test_hf_open(folder, "cpu", &tm_precision_f32, SEQ, &out->model, &err) != TM_OK) fail_msg("%s", err.text);
    if (!adapted) return;
    snprintf(folder, sizeof folder, "%s/adapter", test_folder());
    mkdir(folder, 0700);
    write_adapter(folder);
    if (tm_hf_adapter_open(folder, NULL, NULL, &out->adapter, &err) != TM_OK) fail_msg("%s", err.text);
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

static void close_to(const listener *l, const char *what, double value, double slack)
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
    close_to(l, "losses", step->loss, 1e-4 * l->scale);
    assert_int_equal(step->n_measures, 6);
    for (size_t i = 0; i < step->n_measures; i++) /* sums over tens of tokens are further apart than means */
        close_to(l, step->measures[i].name, step->measures[i].value,
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
    size_t         rows = json_array_size(json_object_get(fixture, "rows"));
    first_weights  weights;
    tm_run_options o = { .model_name = "tiny",
                         .steps = STEPS,
                         .learning_rate = 1e-3,
                         .max_norm = 1,
                         .seed = 3,
                         .checkpoint_load_step = -1,
                         .load_weights = load,
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
    tm_error              err = { 0 };
    volatile sig_atomic_t stop = 0;
    listener              l = { .sink = { .handle = listen }, .wanted = wanted };
    tm_event_bus          bus = { .sinks = (tm_sink *[]){ &l.sink }, .count = 1 };
    if (tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_run(&o, weights.model.device, source, &bus, &stop, &err) != TM_OK) fail_msg("%s", err.text);
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
    fixture = json_load_file("tests/hf/preference.json", 0, &problem);
    if (!fixture) fail_msg("%s", problem.text);
    json_array_foreach(json_object_get(fixture, "rows"), i, one)
    {
        char *line = json_dumps(one, 0);
        tm_text_printf(&text, "%s\n", line);
        free(line);
    }
    test_file_write(test_folder(), "rows.jsonl", text.data);
    tm_text_fini(&text);
    json_array_foreach(json_object_get(fixture, "cases"), i, one)
    {
        run_case(one);
        n++;
    }
    assert_true(n >= 4);
    json_decref(fixture);
}

TEST_FIXTURE(NULL, test_folder_teardown)
