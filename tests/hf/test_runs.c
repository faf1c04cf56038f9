/* SPDX-License-Identifier: Apache-2.0 */
/* A run's checkpoint of known numbers: loaded into a graph, and exported to a folder, which is loaded in turn. Every
 * element must be where it was. */
#include "graph/value.h"
#include "base/file.h"
#include "hf/layout.h"
#include "hf/source.h"
#include "model/model.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/hf_folder.h"
#include "support/full_config.h"
#include "support/refusal.h"

#include "support/test.h"

/* Whole numbers that every format here has. */
static double value_of(const char *name, int64_t i)
{
    uint64_t hash = 7;
    for (; *name; name++) hash = hash * 131 + (unsigned char)*name;
    return (double)((hash + (uint64_t)i * 7919) % 201) - 100;
}

/* The tensors of a graph, one behind the other in memory. */
typedef struct {
    tm_graph *graph;
    char    **values;
} values;

static values values_of(const tm_model_shape *shape)
{
    tm_model model;
    values   v = { .graph = tm_graph_create(&tm_precision_f32) };
    tm_model_declare(v.graph, shape, 1, NULL, &model);
    v.values = tm_alloc(v.graph->n_tensors * sizeof *v.values);
    for (size_t i = 0; i < v.graph->n_tensors; i++)
        v.values[i] = tm_alloc((size_t)tm_shape_elements(v.graph->tensors[i].shape) * 8);
    return v;
}

static void forget(values *v)
{
    for (size_t i = 0; i < v->graph->n_tensors; i++) free(v->values[i]);
    free(v->values);
    tm_graph_destroy(v->graph);
}

static tm_status read_value(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy(to, (const char *)from.at, bytes);
    return TM_OK;
}

static tm_status write_value(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, const void *from, size_t bytes,
                             tm_error *err)
{
    const values *v = memory->context;
    (void)err;
    memcpy(v->values[id] + offset, from, bytes);
    return TM_OK;
}

/* Fills and saves; returns how many tensors, elements and bytes there are. */
static tm_hf_report save(const char *folder, const values *v, const tm_hf_form *form, tm_dtype dtype)
{
    tm_checkpoint_memory  memory = { .read = read_value };
    tm_checkpoint_state   state = { .step = 3, .seed = 1, .model = "test" };
    tm_checkpoint_tensor *tensors = tm_alloc(v->graph->n_tensors * sizeof *tensors);
    tm_hf_report          report = { 0 };
    for (size_t i = 0; i < v->graph->n_tensors; i++) {
        const tm_tensor *t = &v->graph->tensors[i];
        int64_t          n = tm_shape_elements(t->shape);
        if (!tm_hf_holds(form, t)) continue;
        tm_checkpoint_tensor *out = &tensors[report.tensors++];
        *out = (tm_checkpoint_tensor){ .name = t->name,
                                       .dtype = dtype,
                                       .rank = t->shape.rank,
                                       .bytes = (size_t)n * tm_dtype_bytes(dtype),
                                       .at = { (uintptr_t)v->values[i] },
                                       .memory = &memory };
        memcpy(out->n, t->shape.n, (size_t)t->shape.rank * sizeof *out->n);
        for (int64_t k = 0; k < n; k++) tm_value_set(v->values[i], dtype, k, value_of(t->name, k));
        report.elements += n;
        report.bytes += n * (int64_t)tm_dtype_bytes(dtype);
    }
    assert_ok(tm_checkpoint_save(folder, &state, tensors, report.tensors, 0, err));
    free(tensors);
    return report;
}

/* The same numbers as averages of other weights; the first weight has none and is what it is. */
static void save_averages(const char *folder, const values *v)
{
    tm_checkpoint_memory  memory = { .read = read_value };
    tm_checkpoint_state   state = { .step = 4, .seed = 1, .model = "test" };
    tm_checkpoint_tensor *tensors = tm_alloc(2 * v->graph->n_tensors * sizeof *tensors);
    char(*names)[200] = tm_alloc(v->graph->n_tensors * sizeof *names);
    size_t saved = 0;
    for (size_t i = 0; i < v->graph->n_tensors; i++) {
        const tm_tensor *t = &v->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER) continue;
        tm_checkpoint_tensor *out = &tensors[saved];
        const size_t          bytes = (size_t)tm_shape_elements(t->shape) * sizeof(float);
        *out = (tm_checkpoint_tensor){ .name = t->name,
                                       .dtype = TM_F32,
                                       .rank = t->shape.rank,
                                       .bytes = bytes,
                                       .at = { (uintptr_t)v->values[i] },
                                       .memory = &memory };
        memcpy(out->n, t->shape.n, (size_t)t->shape.rank * sizeof *out->n);
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++)
            tm_value_set(v->values[i], TM_F32, k, value_of(t->name, k));
        if (saved++ == 0) continue;
        snprintf(names[i], sizeof names[i], "%s.ema", t->name);
        tensors[saved] = *out;
        tensors[saved++].name = names[i];
        out->at.at = (uintptr_t)v->values[i] + bytes; /* behind them there are zeros */
    }
    assert_ok(tm_checkpoint_save(folder, &state, tensors, saved, 0, err));
    free(names);
    free(tensors);
}

static void load_and_compare(const tm_hf_source *source, tm_hf_report *report)
{
    values       v = values_of(&source->shape);
    tm_hf_memory memory = {
        .graph = v.graph, .shape = &source->shape, .form = source->form, .context = &v, .write = write_value
    };
    assert_ok(tm_hf_source_load(source, &memory, 2, report, err));
    for (size_t i = 0; i < v.graph->n_tensors; i++) {
        const tm_tensor *t = &v.graph->tensors[i];
        if (!tm_hf_holds(source->form, t)) continue;
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++)
            if (tm_value_get(v.values[i], t->dtype, k) != value_of(t->name, k))
                fail_msg("%s, element %lld: %g, wanted %g", t->name, (long long)k,
                         tm_value_get(v.values[i], t->dtype, k), value_of(t->name, k));
    }
    forget(&v);
}

static tm_hf_source open_source(const char *folder)
{
    tm_hf_source source;
    assert_ok(tm_hf_source_open(folder, -1, test_full_config(), &source, err));
    return source;
}

/* A run's folder: config.yaml, and a checkpoint of the model that `keys` say, `stored` so. Returns
 * its path; what was saved in *saved. */
static const char *make_run(const char *keys, tm_dtype stored, tm_hf_report *saved)
{
    static char       run[300];
    char              checkpoints[400];
    tm_config        *config = test_full_config();
    tm_model_shape    shape;
    const tm_hf_form *form;
    snprintf(run, sizeof run, "%s/run", test_folder());
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoint", run);
    assert_ok(tm_folder_make(run, err));
    assert_ok(tm_config_load_file(config, test_file_write(run, "config.yaml", keys), err));
    assert_ok(tm_config_finish(config, err));
    assert_ok(tm_model_shape_read(config, &shape, err));
    assert_ok(tm_hf_form_of(config, &shape, &form, err));
    values v = values_of(&shape);
    *saved = save(checkpoints, &v, form, stored);
    forget(&v);
    tm_config_destroy(config);
    return run;
}

static void there_and_back(const char *keys, tm_dtype stored, tm_dtype written, int64_t shard_bytes)
{
    tm_hf_source source;
    tm_hf_report report, wanted;
    char         out[300];
    const char  *run = make_run(keys, stored, &wanted);
    snprintf(out, sizeof out, "%s/out", test_folder());
    source = open_source(run);
    load_and_compare(&source, &report);
    assert_int_equal(report.tensors, wanted.tensors);
    assert_int_equal(report.elements, wanted.elements);
    assert_int_equal(report.bytes, wanted.bytes);
    assert_string_equal(report.formats, "checkpoint");
    tm_hf_export_options o = { .folder = out, .dtype = written, .shard_bytes = shard_bytes };
    report = (tm_hf_report){ 0 };
    assert_ok(tm_hf_export(&source, &o, &report, err));
    assert_int_equal(report.elements, wanted.elements);
    assert_true(report.bytes >= wanted.elements * (int64_t)tm_dtype_bytes(written));
    tm_hf_source_close(&source);

    tm_hf_report again;
    source = open_source(out);
    load_and_compare(&source, &again);
    assert_int_equal(again.tensors, report.tensors);
    assert_int_equal(again.elements, report.elements);
    assert_int_equal(again.bytes, report.bytes);
    tm_hf_source_close(&source);
    test_folder_remove();
}

#define SIZES                                                                                                          \
    "model.n_layers: 2\nmodel.dim: 32\nmodel.n_heads: 4\nmodel.ffn_dim: 48\nmodel.max_seq_len: 64\ntraining.seq_len: " \
    "64\n"

TEST(runs_are_loaded_and_exported)
{
    /* the table has more elements than are converted at once */
    there_and_back("model.family: llama\nmodel.n_kv_heads: 2\nmodel.vocab_size: 20001\n" SIZES, TM_F32, TM_F32,
                   1 << 30);
    there_and_back("model.family: llama\nmodel.n_kv_heads: 2\nmodel.vocab_size: 64\n" SIZES, TM_BF16, TM_F32, 10000);
    there_and_back("model.family: gpt\nmodel.vocab_size: 64\n" SIZES, TM_F32, TM_BF16, 1);
    there_and_back("model.family: mixtral\nmodel.n_kv_heads: 2\nmodel.vocab_size: 64\nmodel.n_experts: 3\n"
                   "model.n_experts_per_token: 2\nmodel.moe_ffn_dim: 24\n" SIZES,
                   TM_F32, TM_F32, 1 << 30);
}

#define SMALL "model.family: llama\nmodel.n_kv_heads: 2\nmodel.vocab_size: 64\n" SIZES
#define ADAPTED "lora.rank: 2\nlora.targets: [wqkv]\nmodel.hf_assets_path: base\n"

TEST(averages_are_loaded_and_exported)
{
    tm_hf_report report = { 0 };
    tm_error     err = { 0 };
    char         checkpoints[400], out[300];
    const char  *run = make_run(SMALL, TM_F32, &report);
    tm_hf_source source = open_source(run);
    assert_int_equal(tm_hf_source_average(&source, &err), TM_INVALID);
    refusal_is_sound(&err);
    err = (tm_error){ 0 };
    values v = values_of(&source.shape);
    tm_hf_source_close(&source);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoint", run);
    save_averages(checkpoints, &v);
    forget(&v);
    source = open_source(run);
    if (tm_hf_source_average(&source, &err) != TM_OK) fail_msg("%s", err.text);
    load_and_compare(&source, &report);
    snprintf(out, sizeof out, "%s/averages", test_folder());
    tm_hf_export_options o = { .folder = out, .dtype = TM_F32, .shard_bytes = 1 << 30 };
    if (tm_hf_export(&source, &o, &report, &err) != TM_OK) fail_msg("%s", err.text);
    tm_hf_source_close(&source);
    source = open_source(out);
    load_and_compare(&source, &report);
    assert_int_equal(tm_hf_source_average(&source, &err), TM_INVALID);
    refusal_is_sound(&err);
    tm_hf_source_close(&source);
    test_folder_remove();
}

TESTS_IN_ORDER
