/* SPDX-License-Identifier: Apache-2.0 */
/* Adapter folders: what PEFT computes for tiny models (tools/peft_parity.py), files written and read again, the merged
 * model, and folders that are refused. */
#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "hf/adapter.h"
#include "hf/numerics.h"
#include "hf/source.h"
#include "support/refusal.h"
#include "support/whole.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/test.h"
#include <jansson.h>

static const char fixtures[] = "tests/hf/adapters";
static const int  threads = 2;

typedef struct {
    char    name[64], base[300], adapter[300];
    json_t *root;
    int64_t seq;
    int32_t tokens[64];
} fixture;

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number '%s'", key);
    return json_number_value(value);
}

/* adapter_model.safetensors with element i of a tensor 0.25 unit(name, i), of lengths of rows 1 + that. */
static void write_adapter_weights(const char *folder, const json_t *shapes)
{
    tm_tensor_heading headings[128];
    size_t            n = 0;
    char              path[400];
    const char       *name;
    json_t           *shape;
    tm_error          err = { 0 };
    json_object_foreach((json_t *)(uintptr_t)shapes, name, shape)
    {
        assert_true(n < 128);
        headings[n] = (tm_tensor_heading){ .name = name, .dtype = TM_F32, .rank = (int)json_array_size(shape) };
        headings[n].n[1] = 1;
        for (size_t k = 0; k < (size_t)headings[n].rank; k++)
            headings[n].n[k] = (int64_t)json_integer_value(json_array_get(shape, k));
        n++;
    }
    tm_safetensors_writer *writer;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_int_equal(tm_safetensors_create(path, headings, n, NULL, &writer, &err), TM_OK);
    for (size_t i = 0; i < n; i++) {
        int64_t count = headings[i].n[0] * headings[i].n[1];
        float  *values = malloc((size_t)count * sizeof *values);
        double  mean = strstr(headings[i].name, "lora_magnitude") ? 1 : 0;
        for (int64_t k = 0; k < count; k++)
            values[k] = (float)(mean + 0.25 * golden_unit(headings[i].name, (uint32_t)k));
        tm_safetensors_write(writer, values, (size_t)count * sizeof *values);
        free(values);
    }
    assert_int_equal(tm_safetensors_finish(writer, &err), TM_OK);
}

static void write_config(const fixture *f, const json_t *config)
{
    char path[400];
    snprintf(path, sizeof path, "%s/adapter_config.json", f->adapter);
    assert_int_equal(json_dump_file(config, path, 0), 0);
}

/* The model in `base`, its adapter in `adapter`, below the test's folder. */
static fixture load(const char *file)
{
    char         path[512];
    json_error_t problem;
    fixture      f = { .name = "" };
    snprintf(f.name, sizeof f.name, "%s", file);
    snprintf(path, sizeof path, "%s/%s", fixtures, file);
    f.root = json_load_file(path, 0, &problem);
    if (!f.root) fail_msg("%s: %s", path, problem.text);
    snprintf(f.base, sizeof f.base, "%s/base", test_folder());
    snprintf(f.adapter, sizeof f.adapter, "%s/adapter", test_folder());
    mkdir(f.base, 0700), mkdir(f.adapter, 0700);
    char *config = json_dumps(json_object_get(f.root, "config"), 0);
    test_hf_write(f.base, config, NULL);
    free(config);
    write_config(&f, json_object_get(f.root, "adapter"));
    write_adapter_weights(f.adapter, json_object_get(f.root, "shapes"));
    f.seq = (int64_t)number(f.root, "sequence") - 1;
    golden_tokens(f.tokens, (int)f.seq + 1, (int)number(json_object_get(f.root, "config"), "vocab_size"));
    return f;
}

static void unload(fixture *f)
{
    json_decref(f->root);
    test_folder_remove();
}

static void close_to(const fixture *f, const char *what, double value, double wanted, double relative)
{
    if (!(fabs(value - wanted) <= relative * fabs(wanted)))
        fail_msg("%s: %s is %.10g, wanted %.10g", f->name, what, value, wanted);
}

static void rows_close(const fixture *f, const char *what, const double *values, int64_t n, double relative)
{
    const json_t *row = json_object_get(f->root, what);
    double        largest = 0, worst = 0;
    assert_int_equal(json_array_size(row), n);
    for (int64_t i = 0; i < n; i++) {
        double wanted = json_number_value(json_array_get(row, (size_t)i));
        largest = fmax(largest, fabs(wanted));
        worst = fmax(worst, fabs(values[i] - wanted));
    }
    if (!(worst <= relative * largest)) fail_msg("%s: %s differ by %g of %g", f->name, what, worst, largest);
}

/* A model with its adapter on a device. */
typedef struct {
    test_hf_model model;
    tm_hf_adapter adapter;
} adapted;

static tm_status open_adapted(const fixture *f, const char *device, const tm_precision *precision, tm_step_options step,
                              adapted *out, tm_error *err)
{
    tm_hf_report report;
    *out = (adapted){ .model = { 0 } };
    if (test_hf_open(f->base, device, precision, f->seq, &out->model, err) != TM_OK) fail_msg("%s", err->text);
    TM_TRY(tm_hf_adapter_open(f->adapter, out->model.weights, out->model.description.form, &out->adapter, err));
    step.shape = out->model.shape;
    step.adapters = out->adapter.adapters;
    tm_trainer_close(out->model.trainer);
    out->model.trainer = NULL;
    TM_TRY(tm_trainer_open(out->model.device, &step, 1, &out->model.trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(out->model.trainer, out->model.description.form);
    TM_TRY(tm_hf_load(&memory, out->model.weights, threads, &report, err));
    return tm_hf_adapter_load(&memory, &out->adapter, &out->adapter.adapters, threads, &report, err);
}

static void close_adapted(adapted *a)
{
    tm_hf_adapter_close(&a->adapter);
    test_hf_close(&a->model);
}

static void compare(const fixture *f, const char *device, const tm_precision *precision, double error,
                    double norm_error)
{
    adapted        a;
    tm_numerics    n;
    tm_error       err = { 0 };
    tm_model_shape none = { 0 };
    if (open_adapted(f, device, precision, tm_numerics_step(&none, precision, f->seq), &a, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    if (tm_numerics_read(a.model.trainer, a.model.description.form, a.model.weights, f->tokens, &n, &err) != TM_OK)
        fail_msg("%s: %s", f->name, err.text);
    const json_t *gradients = json_object_get(f->root, "gradients");
    assert_int_equal(n.n_gradients, json_object_size(gradients));
    close_to(f, "loss", n.loss, number(f->root, "loss"), error);
    close_to(f, "gradient_norm", n.gradient_norm, number(f->root, "gradient_norm"), norm_error);
    for (size_t i = 0; i < n.n_gradients; i++)
        close_to(f, n.gradients[i].name, n.gradients[i].norm, number(gradients, n.gradients[i].name), norm_error);
    rows_close(f, "first_logits", n.first, n.vocab, error);
    rows_close(f, "last_logits", n.last, n.vocab, error);
    tm_numerics_fini(&n);
    close_adapted(&a);
}

/* 50 losses; then written, read again and merged: the same loss, and the model's bytes are what they were. */
static void train(const fixture *f)
{
    adapted         a;
    tm_error        err = { 0 };
    uint64_t        before, after;
    tm_hf_report    report;
    tm_model_shape  none = { 0 };
    char            written[300];
    const json_t   *losses = json_object_get(f->root, "losses");
    tm_step_options step = tm_numerics_step(&none, &tm_precision_f32, f->seq);
    step.optimizer = &tm_optimizer_adamw;
    step.hyper = (tm_hyper){ .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    if (open_adapted(f, "cpu", &tm_precision_f32, step, &a, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_trainer_base_hash(a.model.trainer, &before, &err), TM_OK);
    assert_int_equal(json_array_size(losses), 50);
    for (size_t t = 0; t < 50; t++) {
        char what[48];
        test_begin(a.model.trainer, (int64_t)t + 1, 3e-3, 1.0, f->seq);
        test_accumulate(a.model.trainer, 0, f->tokens, f->tokens + 1);
        snprintf(what, sizeof what, "loss of step %zu", t + 1);
        close_to(f, what, test_update(a.model.trainer).loss, json_number_value(json_array_get(losses, t)), 1e-4);
    }
    assert_int_equal(tm_trainer_base_hash(a.model.trainer, &after, &err), TM_OK);
    assert_true(before == after);
    double       trained = test_evaluate(a.model.trainer, f->tokens, f->tokens + 1) / (double)f->seq;
    tm_hf_memory memory = tm_hf_trainer_memory(a.model.trainer, a.model.description.form);
    snprintf(written, sizeof written, "%s/written", test_folder());
    if (tm_hf_adapter_write(&memory, &a.adapter.adapters, "base", written, &report, &err) != TM_OK)
        fail_msg("%s", err.text);
    close_adapted(&a);

    fixture again = *f;
    snprintf(again.adapter, sizeof again.adapter, "%s", written);
    if (open_adapted(&again, "cpu", &tm_precision_f32, step, &a, &err) != TM_OK) fail_msg("%s", err.text);
    close_to(f, "loss of what was written", test_evaluate(a.model.trainer, f->tokens, f->tokens + 1) / (double)f->seq,
             trained, 0);
    close_adapted(&a);

    tm_hf_source         source;
    tm_hf_export_options o = { .folder = "", .dtype = TM_F32, .shard_bytes = 1 << 30 };
    char                 merged[300];
    test_hf_model        model;
    snprintf(merged, sizeof merged, "%s/merged", test_folder());
    o.folder = merged;
    tm_status st = tm_hf_source_open(f->base, -1, test_full_config(), &source, &err);
    if (st == TM_OK) st = tm_hf_source_adapt(&source, written, &err);
    if (st == TM_OK) st = tm_hf_export(&source, &o, &report, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    tm_hf_source_close(&source);
    if (test_hf_open(merged, "cpu", &tm_precision_f32, f->seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    close_to(f, "loss of the merged model", test_evaluate(model.trainer, f->tokens, f->tokens + 1) / (double)f->seq,
             trained, 1e-5);
    test_hf_close(&model);
}

/* Gradients are those of the adapters also where their rank is the least. */
static void rank_1_has_gradients(void **state)
{
    (void)state;
    fixture         f = load("llama.json");
    test_hf_model   model;
    tm_numerics     n;
    tm_hf_report    report;
    tm_error        err = { 0 };
    tm_model_shape  none = { 0 };
    tm_step_options step = tm_numerics_step(&none, &tm_precision_f32, f.seq);
    if (test_hf_open(f.base, "cpu", &tm_precision_f32, f.seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    step.shape = model.shape;
    step.adapters =
        (tm_adapters){ .rank = 1, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .targets = "q_proj" };
    tm_trainer_close(model.trainer);
    model.trainer = NULL;
    if (tm_trainer_open(model.device, &step, 1, &model.trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_memory memory = tm_hf_trainer_memory(model.trainer, model.description.form);
    assert_int_equal(tm_hf_load(&memory, model.weights, 1, &report, &err), TM_OK);
    if (tm_numerics_read(model.trainer, model.description.form, model.weights, f.tokens, &n, &err) != TM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n.n_gradients, 2 * model.shape.n_layers);
    for (size_t i = 0; i < n.n_gradients; i++) assert_non_null(strstr(n.gradients[i].name, "q_proj.lora_"));
    assert_string_equal(n.gradients[0].name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    tm_numerics_fini(&n);
    test_hf_close(&model);
    unload(&f);
}

/* One adapter of a fused matrix cannot be what three of its parts are. */
static void a_fused_matrix_takes_one_a(void **state)
{
    (void)state;
    fixture         f = load("qwen3.json");
    test_hf_model   model;
    tm_hf_adapter   adapter;
    tm_hf_report    report;
    tm_error        err = { 0 };
    tm_model_shape  none = { 0 };
    tm_step_options step = tm_numerics_step(&none, &tm_precision_f32, f.seq);
    if (test_hf_open(f.base, "cpu", &tm_precision_f32, f.seq, &model, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_hf_adapter_open(f.adapter, model.weights, model.description.form, &adapter, &err), TM_OK);
    step.shape = model.shape;
    step.adapters = adapter.adapters;
    step.adapters.modules = NULL, step.adapters.n_modules = 0;
    snprintf(step.adapters.targets, sizeof step.adapters.targets, "wqkv,o_proj,gate_proj,up_proj,down_proj");
    tm_trainer_close(model.trainer);
    if (tm_trainer_open(model.device, &step, 1, &model.trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_memory memory = tm_hf_trainer_memory(model.trainer, model.description.form);
    assert_int_equal(tm_hf_adapter_load(&memory, &adapter, &step.adapters, 1, &report, &err), TM_FORMAT);
    assert_non_null(strstr(err.text, "k_proj.lora_A.weight' differ, and the run has one for both"));
    tm_hf_adapter_close(&adapter);
    test_hf_close(&model);
    unload(&f);
}

static void every_fixture_is_met(void **state)
{
    struct dirent **entries;
    int             n = scandir(fixtures, &entries, NULL, alphasort), met = 0;
    (void)state;
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".json")) {
            fixture f = load(entries[i]->d_name);
            compare(&f, "cpu", &tm_precision_f32, 1e-5, 1e-4);
            compare(&f, "reference", &tm_precision_f64, 1e-6, 1e-5);
            train(&f);
            unload(&f);
            met++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(met >= 15);
}

/* --- folders that are refused ------------------------------------------------------------------------------------- */

typedef struct {
    const char *change; /* merged into adapter_config.json */
    tm_status   status;
    const char *words;
} bad_config;

static void bad_configurations_are_refused(void **state)
{
    static const bad_config cases[] = {
        { "{\"peft_type\": \"LOHA\"}", TM_UNSUPPORTED, "'peft_type' is \"LOHA\"" },
        { "{\"use_dora\": true}", TM_FORMAT, "lacks" },
        { "{\"use_dora\": 1}", TM_FORMAT, "'use_dora'" },
        { "{\"bias\": \"all\"}", TM_UNSUPPORTED, "'bias'" },
        { "{\"rank_pattern\": {\"q_proj\": 2}}", TM_FORMAT, "[4, " },
        { "{\"rank_pattern\": {\"q_proj\": 0}}", TM_FORMAT, "'rank_pattern' gives 'q_proj' no rank" },
        { "{\"rank_pattern\": {\"q_proj\": 2.5}}", TM_FORMAT, "'rank_pattern' gives 'q_proj' no rank" },
        { "{\"rank_pattern\": {\"q_proj\": \"2\"}}", TM_FORMAT, "'rank_pattern' gives 'q_proj' no rank" },
        { "{\"rank_pattern\": {\"q(proj\": 4}}", TM_FORMAT, "'rank_pattern': 'q(proj' is no regular expression" },
        { "{\"rank_pattern\": [\"q_proj\"]}", TM_FORMAT, "'rank_pattern' must be a map" },
        { "{\"rank_pattern\": {\"nothing\": 2}}", TM_OK, "" },
        { "{\"alpha_pattern\": {\"q_proj\": 2}}", TM_OK, "" },
        { "{\"alpha_pattern\": {\"q_proj\": -2}}", TM_FORMAT, "'alpha_pattern' gives 'q_proj' no alpha" },
        { "{\"alpha_pattern\": {\"[z-a]\": 2}}", TM_FORMAT, "'[z-a]' is no regular expression" },
        { "{\"alpha_pattern\": 3}", TM_FORMAT, "'alpha_pattern' must be a map" },
        { "{\"modules_to_save\": [\"lm_head\"]}", TM_UNSUPPORTED, "'modules_to_save'" },
        { "{\"layers_to_transform\": [1]}", TM_FORMAT, "layers.0.self_attn.q_proj', which is none of the modules" },
        { "{\"layers_to_transform\": [0, 1]}", TM_OK, "" },
        { "{\"layers_to_transform\": []}", TM_OK, "" },
        { "{\"layers_to_transform\": [\"1\"]}", TM_FORMAT, "'layers_to_transform' must be" },
        { "{\"layers_to_transform\": 1.5}", TM_FORMAT, "'layers_to_transform' must be" },
        { "{\"layers_pattern\": \"layers\"}", TM_FORMAT, "'layers_pattern' needs 'layers_to_transform'" },
        { "{\"layers_to_transform\": [0, 1], \"layers_pattern\": [\"h\", \"layers\"]}", TM_OK, "" },
        { "{\"layers_to_transform\": [0, 1], \"layers_pattern\": \"h\"}", TM_FORMAT, "none of the modules" },
        { "{\"layers_to_transform\": [0, 1], \"layers_pattern\": \"(\"}", TM_FORMAT, "no regular expression" },
        { "{\"layers_to_transform\": [0], \"target_modules\": \".*proj\"}", TM_FORMAT, "that is a text" },
        { "{\"target_modules\": \"all-linear\"}", TM_FORMAT, "lacks the adapter of 'model.layers.0.self_attn.k_proj'" },
        { "{\"target_modules\": \".*(q|v)_proj\"}", TM_OK, "" },
        { "{\"target_modules\": \"(q|v)_proj\"}", TM_FORMAT, "none of the modules" },
        { "{\"target_modules\": \".*(q|v)_\"}", TM_FORMAT, "none of the modules" },
        { "{\"target_modules\": \".*(q|v_proj\"}", TM_FORMAT, "'target_modules': '.*(q|v_proj' is no regular" },
        { "{\"target_modules\": [\"q_proj\", 3]}", TM_FORMAT, "'target_modules' must be" },
        { "{\"target_modules\": 3}", TM_FORMAT, "'target_modules' must be" },
        { "{\"target_modules\": [\"q_proj\"]}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"target_modules\": [\"q_proj\", \"v_proj\", \"lm_head\"]}", TM_FORMAT, "lacks the adapter of 'lm_head'" },
        { "{\"exclude_modules\": [\"v_proj\"]}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"exclude_modules\": \".*v_proj\"}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"exclude_modules\": \"v_proj\"}", TM_OK, "" },
        { "{\"exclude_modules\": [\"k_proj\"]}", TM_OK, "" },
        { "{\"exclude_modules\": {}}", TM_OK, "" },
        { "{\"exclude_modules\": 7}", TM_FORMAT, "'exclude_modules' must be" },
        { "{\"exclude_modules\": \"*\"}", TM_FORMAT, "'exclude_modules': '*' is no regular expression" },
        { "{\"rank_pattern\": {\"q_proj\": 4}, \"target_parameters\": [\"mlp.experts.down_proj\"]}", TM_UNSUPPORTED,
          "'rank_pattern' beside 'target_parameters'" },
        { "{\"init_lora_weights\": \"pissa\"}", TM_UNSUPPORTED, "'init_lora_weights'" },
        { "{\"init_lora_weights\": \"eva\"}", TM_OK, "" },
        { "{\"init_lora_weights\": \"orthogonal\"}", TM_OK, "" },
        { "{\"target_parameters\": [\"w\"]}", TM_UNSUPPORTED, "'target_parameters'" },
        { "{\"something_new\": 7}", TM_UNSUPPORTED, "'something_new' is 7" },
        { "{\"r\": 0}", TM_FORMAT, "'r'" },
        { "{\"r\": \"4\"}", TM_FORMAT, "'r'" },
        { "{\"r\": 4.5}", TM_FORMAT, "'r'" },
        { "{\"r\": 65537}", TM_FORMAT, "'r' must be a whole number from 1 to 65536" },
        { "{\"r\": 8}", TM_FORMAT, "[4, " },
        { "{\"lora_alpha\": \"x\"}", TM_FORMAT, "'lora_alpha'" },
        { "{\"lora_dropout\": 1.5}", TM_FORMAT, "'lora_dropout'" },
        { "{\"use_rslora\": 1}", TM_FORMAT, "'use_rslora'" },
    };
    (void)state;
    fixture f = load("llama.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        adapted        a;
        tm_error       err = { 0 };
        tm_model_shape none = { 0 };
        json_t *config = json_copy(json_object_get(f.root, "adapter")), *change = json_loads(cases[i].change, 0, NULL);
        json_object_update(config, change);
        write_config(&f, config);
        tm_status st =
            open_adapted(&f, "cpu", &tm_precision_f32, tm_numerics_step(&none, &tm_precision_f32, f.seq), &a, &err);
        refusal_is_sound(&err);
        if (st != cases[i].status || !strstr(err.text, cases[i].words))
            fail_msg("%s: status %d, %s", cases[i].change, (int)st, err.text);
        close_adapted(&a);
        json_decref(config), json_decref(change);
    }
    json_t       *list = json_array();
    tm_hf_adapter none;
    tm_error      err = { 0 };
    write_config(&f, list);
    assert_int_equal(tm_hf_adapter_open(f.adapter, NULL, NULL, &none, &err), TM_FORMAT);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "it is not an object (line 1)"));
    tm_hf_adapter_close(&none);
    json_decref(list);
    unload(&f);
}

/* Each of them, in its order, and none that is the pattern of a module. */
static void patterns_that_nothing_has_are_noted(void **state)
{
    static const char file[] = "adapter_config.json': ";
    (void)state;
    fixture       f = load("llama.json");
    tm_hf_adapter a;
    tm_error      err = { 0 };
    tm_text       info = { 0 }, notes = { 0 };
    json_t       *config = json_copy(json_object_get(f.root, "adapter"));
    json_t       *change = json_loads("{\"rank_pattern\": {\"q_proj\": 4, \"nothing\": 2, \".*q_proj\": 4},"
                                            " \"alpha_pattern\": {\"no\": 1, \"v_proj\": 2}}",
                                      0, NULL);
    json_object_update(config, change);
    write_config(&f, config);
    assert_int_equal(tm_log_open_folder(test_folder(), &err), TM_OK);
    tm_status st = tm_hf_adapter_open(f.adapter, NULL, NULL, &a, &err);
    tm_log_close_folder();
    if (st != TM_OK) fail_msg("%s", err.text);
    tm_hf_adapter_close(&a);
    assert_int_equal(tm_file_read(test_in_folder("info"), 1 << 16, &info, &err), TM_OK);
    for (const char *at = info.data ? info.data : ""; (at = strstr(at, file));) {
        size_t n = strcspn(at += strlen(file), "\n");
        tm_text_printf(&notes, "%.*s\n", (int)n, at);
    }
    assert_string_equal(notes.data ? notes.data : "",
                        "'nothing' of 'rank_pattern' fits no module that has no earlier pattern\n"
                        "'.*q_proj' of 'rank_pattern' fits no module that has no earlier pattern\n"
                        "'no' of 'alpha_pattern' fits no module that has no earlier pattern\n");
    tm_text_fini(&info);
    tm_text_fini(&notes);
    json_decref(config), json_decref(change);
    unload(&f);
}

/* The file of an adapter, one tensor of the model in it, too: with its values, or others. */
static tm_status open_with(const fixture *f, const char *added, const char *of, double apart, adapted *a, tm_error *err)
{
    enum { VOCABULARY = 64, DIM = 32 };
    char                   path[400];
    tm_safetensors        *before;
    size_t                 n;
    tm_safetensors_writer *writer;
    tm_model_shape         none = { 0 };
    float                 *own = malloc(sizeof *own * VOCABULARY * DIM);
    for (int i = 0; i < VOCABULARY * DIM; i++) own[i] = (float)test_hf_value(of, i);
    own[5] += (float)apart;
    write_adapter_weights(f->adapter, json_object_get(f->root, "shapes"));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", f->adapter);
    assert_int_equal(tm_safetensors_open(path, &before, err), TM_OK);
    const tm_stored_tensor *all = tm_safetensors_list(before, &n);
    tm_tensor_heading      *headings = calloc(n + 1, sizeof *headings);
    for (size_t i = 0; i < n; i++) {
        headings[i] = (tm_tensor_heading){ .name = all[i].name, .dtype = TM_F32, .rank = all[i].rank };
        memcpy(headings[i].n, all[i].n, sizeof headings[i].n[0] * (size_t)all[i].rank);
    }
    headings[n] = (tm_tensor_heading){ .name = added, .dtype = TM_F32, .rank = 2, .n = { VOCABULARY, DIM } };
    assert_int_equal(tm_safetensors_create(path, headings, n + 1, NULL, &writer, err), TM_OK);
    for (size_t i = 0; i < n; i++) tm_safetensors_write(writer, all[i].data, all[i].bytes);
    tm_safetensors_write(writer, own, sizeof *own * VOCABULARY * DIM);
    assert_int_equal(tm_safetensors_finish(writer, err), TM_OK);
    tm_safetensors_close(before);
    free(headings), free(own);
    return open_adapted(f, "cpu", &tm_precision_f32, tm_numerics_step(&none, &tm_precision_f32, f->seq), a, err);
}

/* PEFT saves embeddings and the output layer with adapters of them. */
static void weights_of_the_model_are_passed_over(void **state)
{
    static const char *const names[][2] = {
        { "base_model.model.lm_head.base_layer.weight", "lm_head.weight" },
        { "base_model.model.lm_head.weight", "lm_head.weight" },
        { "base_model.model.model.embed_tokens.base_layer.weight", "model.embed_tokens.weight" },
    };
    fixture f = load("llama.json");
    (void)state;
    assert_int_equal(number(json_object_get(f.root, "config"), "vocab_size"), 64);
    assert_int_equal(number(json_object_get(f.root, "config"), "hidden_size"), 32);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        adapted  a;
        tm_error err = { 0 };
        if (open_with(&f, names[i][0], names[i][1], 0, &a, &err) != TM_OK) fail_msg("%s: %s", names[i][0], err.text);
        close_adapted(&a);
        assert_int_equal(open_with(&f, names[i][0], names[i][1], 0.5, &a, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, "a weight of the model itself, with other values"));
        close_adapted(&a);
    }
    unload(&f);
}

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *remove, *add;
        tm_status   status;
        const char *words;
    } cases[] = {
        { "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", NULL, TM_FORMAT, "lacks" },
        { NULL, "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", TM_FORMAT, "no such linear" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.weight", TM_UNSUPPORTED, "with other values" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.bias", TM_FORMAT, "not a tensor of a LoRA" },
        { NULL, "q_proj.lora_A.weight", TM_FORMAT, "not a tensor of a LoRA" },
        { NULL, "base_model.model.lm_head.base_layer.weight", TM_UNSUPPORTED, "save_embedding_layers=False" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", TM_FORMAT, "only DoRA has" },
    };
    (void)state;
    fixture f = load("llama.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        adapted        a;
        tm_error       err = { 0 };
        tm_model_shape none = { 0 };
        json_t        *shapes = json_copy(json_object_get(f.root, "shapes"));
        if (cases[i].remove) assert_int_equal(json_object_del(shapes, cases[i].remove), 0);
        if (cases[i].add) json_object_set_new(shapes, cases[i].add, json_pack("[i,i]", 4, 32));
        write_adapter_weights(f.adapter, shapes);
        tm_status st =
            open_adapted(&f, "cpu", &tm_precision_f32, tm_numerics_step(&none, &tm_precision_f32, f.seq), &a, &err);
        refusal_is_sound(&err);
        if (st != cases[i].status || !strstr(err.text, cases[i].words))
            fail_msg("%zu: status %d, %s", i, (int)st, err.text);
        close_adapted(&a);
        json_decref(shapes);
    }
    tm_hf_adapter none;
    tm_error      err = { 0 };
    json_t       *nothing = json_object();
    write_adapter_weights(f.adapter, nothing);
    json_decref(nothing);
    assert_int_equal(tm_hf_adapter_open(f.adapter, NULL, NULL, &none, &err), TM_FORMAT);
    refusal_is_sound(&err);
    tm_hf_adapter_close(&none);
    err = (tm_error){ 0 };
    assert_int_equal(tm_hf_adapter_open(f.base, NULL, NULL, &none, &err), TM_INVALID);
    tm_hf_adapter_close(&none);
    unload(&f);
}

static tm_text written; /* what was written, to the letter */

static void add_written(const char *folder, const char *name, const tm_hf_report *report)
{
    char            path[500];
    tm_safetensors *set;
    tm_error        err = { 0 };
    size_t          n;
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    tm_text text = { 0 };
    assert_int_equal(tm_file_read(path, 1 << 20, &text, &err), TM_OK);
    tm_text_printf(&written, "%s: %zu tensors, %lld elements, %lld bytes\n%s", name, report->tensors,
                   (long long)report->elements, (long long)report->bytes, text.data);
    tm_text_fini(&text);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_int_equal(tm_safetensors_open(path, &set, &err), TM_OK);
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    for (size_t i = 0; i < n; i++) {
        char shape[192];
        tm_text_printf(&written, "%s %s %s\n", all[i].name, all[i].dtype_name, tm_stored_shape_text(shape, &all[i]));
    }
    tm_safetensors_close(set);
}

/* adapter_config.json of what a run with `own` trained beside the fixture's model. Free it with json_decref. */
static json_t *written_config(const fixture *f, const tm_adapters *own, const char *name)
{
    tm_hf_report report;
    tm_error     err = { 0 };
    char         folder[400], path[500];
    adapted      a;
    if (open_adapted(f, "cpu", &tm_precision_f32, tm_numerics_step(&(tm_model_shape){ 0 }, &tm_precision_f32, f->seq),
                     &a, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_step_options o = tm_numerics_step(&a.model.shape, &tm_precision_f32, f->seq);
    o.adapters = *own;
    tm_trainer_close(a.model.trainer);
    a.model.trainer = NULL;
    if (tm_trainer_open(a.model.device, &o, 1, &a.model.trainer, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_memory memory = tm_hf_trainer_memory(a.model.trainer, a.model.description.form);
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    if (tm_hf_adapter_write(&memory, own, "base", folder, &report, &err) != TM_OK) fail_msg("%s", err.text);
    add_written(folder, name, &report);
    assert_int_equal(tm_hf_adapter_write(&memory, own, "base", folder, &report, &err), TM_INVALID);
    refusal_is_sound(&err);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    close_adapted(&a);
    return config;
}

/* The shortest configuration that PEFT reads as what was trained. */
static void what_was_trained_is_written(void **state)
{
    static const tm_pattern_value theirs[] = { { "v_proj", 3 }, { "(q|o)_proj", 2 } };
    static const tm_pattern_value ours[] = { { "attention\\.wq", 2 } };
    static const tm_pattern_value odd[] = { { "(q|o)_proj", 3 } };
    static const tm_pattern_value digits[] = { { "q_proj", 0.9 }, { "o_proj", 3.1 } };
    static const int64_t          second[][2] = { { 1, 1 } };
    (void)state;
    fixture     f = load("llama.json");
    tm_adapters own = { .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .targets = "q_proj,o_proj" };
    json_t     *config = written_config(&f, &own, "plain"), *wanted = json_pack("[s, s]", "q_proj", "o_proj");
    assert_true(json_equal(json_object_get(config, "target_modules"), wanted));
    assert_null(json_object_get(config, "rank_pattern"));
    assert_null(json_object_get(config, "layers_to_transform"));
    json_decref(config);
    own.layers = second, own.n_layers = 1;
    config = written_config(&f, &own, "layers");
    assert_true(json_equal(json_object_get(config, "target_modules"), wanted));
    json_decref(wanted);
    wanted = json_pack("[i]", 1);
    assert_true(json_equal(json_object_get(config, "layers_to_transform"), wanted));
    json_decref(config), json_decref(wanted);
    own.n_layers = 0, own.exclude = "layers.0.attention.wo"; /* no blocks and no last parts say that */
    config = written_config(&f, &own, "names");
    wanted = json_pack("[s, s, s]", "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                       "model.layers.1.self_attn.o_proj");
    assert_true(json_equal(json_object_get(config, "target_modules"), wanted));
    json_decref(config), json_decref(wanted);
    own.exclude = NULL, own.alphas = theirs + 1, own.n_alphas = 1;
    own.ranks = theirs + 1, own.n_ranks = 1;
    config = written_config(&f, &own, "theirs");
    wanted = json_pack("{s: i}", "(q|o)_proj", 2);
    assert_true(json_equal(json_object_get(config, "rank_pattern"), wanted));
    assert_true(json_equal(json_object_get(config, "alpha_pattern"), wanted));
    json_decref(config), json_decref(wanted);
    own.n_alphas = 0, own.ranks = ours; /* names that PEFT does not know: module by module */
    config = written_config(&f, &own, "ours");
    wanted = json_pack("{s: i, s: i}", "model.layers.0.self_attn.q_proj", 2, "model.layers.1.self_attn.q_proj", 2);
    assert_true(json_equal(json_object_get(config, "rank_pattern"), wanted));
    json_decref(config), json_decref(wanted);
    own.ranks = odd, own.alphas = digits, own.n_alphas = 2; /* what was given, to the digit */
    json_decref(written_config(&f, &own, "digits"));
    unload(&f);
    whole_is("tests/hf/whole-adapter-written.txt", &written);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_fixture_is_met),
    cmocka_unit_test(a_fused_matrix_takes_one_a),
    cmocka_unit_test(rank_1_has_gradients),
    cmocka_unit_test(what_was_trained_is_written),
    cmocka_unit_test(bad_configurations_are_refused),
    cmocka_unit_test(patterns_that_nothing_has_are_noted),
    cmocka_unit_test(weights_of_the_model_are_passed_over),
    cmocka_unit_test(bad_files_are_refused),
};

TM_TESTS_IN_ORDER(tests, NULL, NULL)
