/* SPDX-License-Identifier: Apache-2.0 */
/* A model, and its adapter if it has one, written from a fixture of tests/hf and opened on a device. */
#ifndef TM_TESTS_PARITY_FIXTURE_H
#define TM_TESTS_PARITY_FIXTURE_H

#include "hf/adapter.h"
#include "hf/numerics.h"
#include "hf/source.h"
#include "support/json.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/hf_folder.h"
#include "support/training.h"

#include <jansson.h>

#include "support/test.h"

static const int threads = 2;

typedef struct {
    char    name[64], base[300], adapter[300];
    json_t *root;
    bool    adapted;
    int64_t seq;
    int32_t tokens[64];
} fixture;

/* adapter_model.safetensors with element i of a tensor 0.25 unit(name, i), of lengths of rows 1 + that; B may be zero.
 */
static inline void write_adapter_weights(const char *folder, const json_t *shapes, bool zero_b)
{
    tm_tensor_heading headings[128];
    size_t            n = 0;
    char              path[400];
    const char       *name;
    json_t           *shape;
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
    assert_ok(tm_safetensors_create(path, headings, n, NULL, &writer, err));
    for (size_t i = 0; i < n; i++) {
        int64_t count = headings[i].n[0] * headings[i].n[1];
        float  *values = malloc((size_t)count * sizeof *values);
        double  mean = strstr(headings[i].name, "lora_magnitude") ? 1 : 0;
        for (int64_t k = 0; k < count; k++)
            values[k] = zero_b && strstr(headings[i].name, "lora_B")
                            ? 0
                            : (float)(mean + 0.25 * golden_unit(headings[i].name, (uint32_t)k));
        tm_safetensors_write(writer, values, (size_t)count * sizeof *values);
        free(values);
    }
    assert_ok(tm_safetensors_finish(writer, err));
}

static inline void write_config(const fixture *f, const json_t *config)
{
    char path[400];
    snprintf(path, sizeof path, "%s/adapter_config.json", f->adapter);
    assert_int_equal(json_dump_file(config, path, 0), 0);
}

/* The model in `base`, its adapter in `adapter`, below the test's folder. */
static inline fixture load(const char *file)
{
    char    path[512];
    fixture f = { .name = "" };
    snprintf(f.name, sizeof f.name, "%s", file);
    snprintf(path, sizeof path, "tests/hf/%s", file);
    f.root = test_json(path);
    snprintf(f.base, sizeof f.base, "%s/base", test_folder());
    snprintf(f.adapter, sizeof f.adapter, "%s/adapter", test_folder());
    f.adapted = json_object_get(f.root, "adapter") != NULL;
    mkdir(f.base, 0700), mkdir(f.adapter, 0700);
    char *config = json_dumps(json_object_get(f.root, "config"), 0);
    test_hf_write(f.base, config, NULL);
    free(config);
    if (f.adapted) write_config(&f, json_object_get(f.root, "adapter"));
    if (f.adapted) write_adapter_weights(f.adapter, json_object_get(f.root, "shapes"), false);
    if (!json_object_get(f.root, "sequence")) return f;
    f.seq = (int64_t)test_json_number(f.root, "sequence") - 1;
    golden_tokens(f.tokens, (int)f.seq + 1, (int)test_json_number(json_object_get(f.root, "config"), "vocab_size"));
    return f;
}

static inline void unload(fixture *f)
{
    json_decref(f->root);
    test_folder_remove();
}

static inline void close_to(const fixture *f, const char *what, double value, double wanted, double relative)
{
    if (!(fabs(value - wanted) <= relative * fabs(wanted)))
        fail_msg("%s: %s is %.10g, wanted %.10g", f->name, what, value, wanted);
}

/* A model with its adapter on a device. */
typedef struct {
    test_hf_model model;
    tm_hf_adapter adapter;
} adapted;

static inline tm_status open_adapted(const fixture *f, const char *device, const tm_precision *precision,
                                     tm_step_options step, adapted *out, tm_error *err)
{
    tm_hf_report report;
    *out = (adapted){ .model = { 0 } };
    if (test_hf_open(f->base, device, precision, f->seq, &out->model, err) != TM_OK) fail_msg("%s", err->text);
    if (f->adapted)
        TM_TRY(tm_hf_adapter_open(f->adapter, out->model.weights, out->model.description.form, &out->adapter, err));
    step.shape = out->model.shape;
    if (f->adapted) step.adapters = out->adapter.adapters;
    tm_trainer_close(out->model.trainer);
    out->model.trainer = NULL;
    TM_TRY(tm_trainer_open(out->model.device, &step, 1, &out->model.trainer, err));
    tm_hf_memory memory = tm_hf_trainer_memory(out->model.trainer, out->model.description.form);
    TM_TRY(tm_hf_load(&memory, out->model.weights, threads, &report, err));
    return f->adapted ? tm_hf_adapter_load(&memory, &out->adapter, &out->adapter.adapters, threads, &report, err)
                      : TM_OK;
}

static inline void close_adapted(adapted *a)
{
    tm_hf_adapter_close(&a->adapter);
    test_hf_close(&a->model);
}

#endif
