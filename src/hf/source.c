/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/source.h"

#include "base/file.h"
#include "graph/blocks.h"
#include "graph/value.h"
#include "hf/layout.h"
#include "train/optimizer/optimizer.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER = 4 << 20 };

/* A run keeps its checkpoints in checkpoint.folder, which may be anywhere. */
static tm_status open_run(tm_hf_source *s, int64_t step, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/config.yaml", s->path);
    tm_status st = tm_config_load_file(s->config, path.data, err);
    if (st == TM_OK) tm_config_allow_unbuilt(s->config, true); /* of how it was trained, which is not done again */
    tm_config_keep_notes(s->config);
    if (st == TM_OK) st = tm_config_finish(s->config, err);
    if (st == TM_OK) st = tm_model_shape_read(s->config, &s->shape, err);
    if (st == TM_OK) st = tm_hf_form_of(s->config, &s->shape, &s->form, err);
    if (st == TM_OK) {
        const char *folder = tm_config_text(s->config, "checkpoint.folder");
        path.length = 0;
        tm_text_printf(&path, "%s%s%s", folder[0] == '/' ? "" : s->path, folder[0] == '/' ? "" : "/", folder);
        st = tm_file_exists(path.data)
                 ? tm_checkpoint_view_open(path.data, step, &s->checkpoint, err)
                 : tm_fail(err, TM_INVALID,
                           "the run '%.200s' saved no checkpoint ('%.200s'): there are no weights to read; train with "
                           "--checkpoint.enable true",
                           s->path, path.data);
    }
    tm_text_fini(&path);
    return st;
}

bool tm_hf_source_ends(const tm_hf_source *source, int32_t token)
{
    for (int i = 0; i < source->n_ends; i++)
        if (source->ends[i] == token) return true;
    return false;
}

const char *tm_hf_source_tokenizer(const tm_hf_source *source)
{
    if (!source->checkpoint) return source->path;
    const char *data = tm_config_text(source->config, "data.source");
    const char *base = tm_config_text(source->config, "model.hf_assets_path");
    if (strcmp(data, "text") == 0) return "byte";
    if (strcmp(data, "sft") == 0 || strcmp(data, "preference") == 0)
        return tm_config_text(source->config, "data.tokenizer");
    return base && *base ? base : NULL;
}

static tm_status open_folder(tm_hf_source *s, tm_error *err)
{
    tm_hf_description description;
    TM_TRY(tm_hf_folder_shape(s->path, s->config, &description, &s->shape, err));
    s->form = description.form;
    const char *from;
    s->n_ends = tm_specials_ends(s->path, s->ends, &from);
    TM_TRY(tm_hf_folder_weights(s->path, &s->weights, err));
    return s->weights ? TM_OK : tm_fail(err, TM_INVALID, "'%.300s' holds no weights (model.safetensors)", s->path);
}

tm_status tm_hf_source_open(const char *path, int64_t step, tm_config *config, tm_hf_source *out, tm_error *err)
{
    tm_text name = { 0 };
    *out = (tm_hf_source){ .path = path, .config = config };
    tm_text_printf(&name, "%s/config.yaml", path);
    bool run = tm_file_exists(name.data);
    tm_text_fini(&name);
    if (tm_hf_is_folder(path)) return open_folder(out, err);
    if (run) return open_run(out, step, err);
    return tm_fail(
        err, TM_INVALID,
        "'%.300s' is neither a Hugging Face directory (config.json) nor the directory of a run (config.yaml)", path);
}

void tm_hf_source_close(tm_hf_source *source)
{
    tm_safetensors_close(source->weights);
    tm_checkpoint_view_close(source->checkpoint);
    tm_hf_adapter_close(&source->adapter);
    tm_config_destroy(source->config);
    *source = (tm_hf_source){ 0 };
}

bool tm_hf_source_of_adapters(const tm_hf_source *source)
{
    return source->checkpoint && tm_config_i64(source->config, "lora.rank") > 0;
}

tm_status tm_hf_source_average(tm_hf_source *source, tm_error *err)
{
    tm_error why = { 0 };
    if (!source->checkpoint)
        return tm_fail(
            err, TM_INVALID,
            "averages of weights (--ema) are those of a run's checkpoint, and '%.200s' is a directory with a "
            "model; leave --ema out",
            source->path);
    if (tm_checkpoint_view_take(source->checkpoint, TM_EMA, &why) == TM_OK) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "the run '%.200s' keeps no averages of its weights (%s); train with --training.ema_decay 0.9999, or "
                   "leave --ema out",
                   source->path, why.text);
}

tm_status tm_hf_source_adapt(tm_hf_source *source, const char *folder, tm_error *err)
{
    tm_model model;
    if (!source->weights)
        return tm_fail(err, TM_UNSUPPORTED,
                       "an adapter is added to a Hugging Face directory, '%.200s' is a run; export it first",
                       source->path);
    TM_TRY(tm_hf_adapter_open(folder, source->weights, source->form, &source->adapter, err));
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model_declare(graph, &source->shape, 1, NULL, &model);
    tm_hf_memory memory = { .graph = graph, .shape = &source->shape, .form = source->form };
    tm_status    st = tm_hf_adapter_check(&memory, &source->adapter, err);
    tm_graph_destroy(graph);
    return st;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Bytes of `n` elements from element `first` on; 4-bit elements begin at whole bytes. */
static size_t bytes_of(int64_t n, tm_dtype dtype)
{
    return (size_t)((n * tm_dtype_bits(dtype) + 7) / 8);
}

static tm_status copy_parameter(tm_checkpoint_view *view, const tm_hf_memory *memory, tm_tensor_id id,
                                unsigned char *from, unsigned char *to, tm_hf_report *report, tm_error *err)
{
    const tm_tensor *tensor = tm_graph_at(memory->graph, id);
    int64_t          all = tm_shape_elements(tensor->shape), part = BUFFER / 8;
    int              stored;
    size_t           bytes;
    TM_TRY(tm_checkpoint_view_find(view, tensor->name, &stored, &bytes, err));
    tm_dtype dtype = (tm_dtype)stored;
    if (stored < 0 || stored >= TM_DTYPE_COUNT || bytes != tm_tensor_bytes(tensor->shape, dtype))
        return tm_fail(err, TM_FORMAT, "the checkpoint holds '%s' with %zu bytes, which is not what config.yaml says",
                       tensor->name, bytes);
    if (tm_dtype_blocked(tensor->dtype) || tm_dtype_blocked(dtype))
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s' of a run's checkpoint is not converted to or from a format of blocks; "
                       "export the run to a directory first",
                       tensor->name);
    for (int64_t i = 0; i < all; i += part) {
        int64_t n = all - i < part ? all - i : part;
        TM_TRY(tm_checkpoint_view_read(view, tensor->name, bytes_of(i, dtype), from, bytes_of(n, dtype), err));
        for (int64_t k = 0; k < n; k++) tm_value_set(to, tensor->dtype, k, tm_value_get(from, dtype, k));
        TM_TRY(memory->write(memory, id, bytes_of(i, tensor->dtype), to, bytes_of(n, tensor->dtype), err));
    }
    report->tensors++;
    report->elements += all;
    report->bytes += (int64_t)bytes;
    return TM_OK;
}

tm_status tm_hf_source_load(const tm_hf_source *source, const tm_hf_memory *memory, int threads, tm_hf_report *report,
                            tm_error *err)
{
    tm_hf_memory with = *memory;
    with.adapter = source->adapter.weights ? &source->adapter : NULL;
    if (source->weights) return tm_hf_load(&with, source->weights, threads, report, err);
    if (tm_hf_source_of_adapters(source))
        return tm_fail(err, TM_INVALID,
                       "'%.200s' is a run of adapters: its checkpoints hold these and not the model; `trainmark export "
                       "%.200s -o DIR` writes them, then give the model and --adapter DIR",
                       source->path, source->path);
    unsigned char *from = tm_alloc(BUFFER), *to = tm_alloc(BUFFER);
    tm_status      st = TM_OK;
    *report = (tm_hf_report){ .formats = "checkpoint" };
    for (size_t i = 0; i < memory->graph->n_tensors && st == TM_OK; i++) {
        const tm_tensor *tensor = &memory->graph->tensors[i];
        if (tm_hf_holds(source->form, tensor))
            st = copy_parameter(source->checkpoint, memory, (tm_tensor_id)i, from, to, report, err);
    }
    free(from);
    free(to);
    return st;
}
