/* SPDX-License-Identifier: Apache-2.0 */
/* hf/export.c - a model into a Hugging Face folder: tensor by tensor, in the order of the model. */
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "hf/gguf.h"
#include "hf/source.h"
#include "hf/values.h"
#include "token/chat.h"
#include "token/gguf.h"
#include "token/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COPIED = 64 << 20 };

typedef struct {
    const tm_hf_source         *source;
    const tm_hf_export_options *options;
    tm_hf_report               *report;
    tm_hf_values                values;
    tm_dtype                    dtype; /* of what is written */
    int                        *shard; /* of each entry, from 0 */
    int                         shards;
    int64_t                     total; /* bytes of all tensors */
} exporter;

static tm_dtype dtype_of(const exporter *x, const tm_hf_entry *entry)
{
    return entry->row->wide ? TM_F32 : x->dtype;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const exporter *x, size_t entry)
{
    const tm_hf_entry *e = &x->values.layout->entries[entry];
    return (size_t)e->elements * tm_dtype_bytes(dtype_of(x, e));
}

/* Fills files one after the other. */
static void divide(exporter *x)
{
    int64_t used = 0;
    x->shard = tm_alloc((x->values.layout->n + 1) * sizeof *x->shard);
    x->shards = 1;
    x->total = 0;
    for (size_t i = 0; i < x->values.layout->n; i++) {
        int64_t bytes = (int64_t)bytes_of(x, i);
        if (used > 0 && used + bytes > x->options->shard_bytes) {
            x->shards++;
            used = 0;
        }
        used += bytes;
        x->total += bytes;
        x->shard[i] = x->shards - 1;
    }
}

/* How names of files begin. */
static const char *stem_of(const exporter *x)
{
    return x->source->form->diffusers ? "diffusion_pytorch_model" : "model";
}

static void name_shard(const exporter *x, int shard, tm_text *out)
{
    tm_text_add(out, stem_of(x));
    if (x->shards > 1) tm_text_printf(out, "-%05d-of-%05d", shard + 1, x->shards);
    tm_text_add(out, ".safetensors");
}

static tm_status write_values(const exporter *x, int shard, tm_safetensors_writer *writer, tm_error *err)
{
    for (size_t i = 0; i < x->values.layout->n; i++) {
        if (x->shard[i] != shard) continue;
        void     *values = tm_alloc(bytes_of(x, i));
        tm_status st = tm_hf_values_fill(&x->values, i, dtype_of(x, &x->values.layout->entries[i]), values, err);
        if (st == TM_OK) tm_safetensors_write(writer, values, bytes_of(x, i));
        free(values);
        TM_TRY(st);
    }
    return TM_OK;
}

static tm_status write_shard(const exporter *x, int shard, tm_error *err)
{
    static const char *const metadata[][2] = { { "format", "pt" }, { NULL, NULL } };
    tm_tensor_heading       *headings = tm_alloc((x->values.layout->n + 1) * sizeof *headings);
    tm_arena                *arena = tm_arena_create();
    size_t                   n = 0;
    tm_text                  path = { 0 }, name = { 0 };
    for (size_t i = 0; i < x->values.layout->n; i++) {
        const tm_hf_entry *e = &x->values.layout->entries[i];
        if (x->shard[i] != shard) continue;
        name.length = 0;
        tm_hf_written_name(x->source->form, e->name, &name);
        headings[n] =
            (tm_tensor_heading){ .name = tm_arena_text(arena, name.data), .dtype = dtype_of(x, e), .rank = e->rank };
        memcpy(headings[n++].n, e->n, sizeof e->n);
    }
    tm_text_printf(&path, "%s/", x->options->folder);
    name_shard(x, shard, &path);
    tm_safetensors_writer *writer = NULL;
    tm_status              st = tm_safetensors_create(path.data, headings, n, metadata, &writer, err);
    if (st == TM_OK) {
        st = write_values(x, shard, writer, err);
        if (st == TM_OK)
            st = tm_safetensors_finish(writer, err);
        else
            tm_safetensors_abandon(writer);
    }
    tm_text_fini(&name);
    tm_text_fini(&path);
    tm_arena_destroy(arena);
    free(headings);
    return st;
}

static tm_status write_named(const exporter *x, const char *name, const tm_text *text, tm_error *err)
{
    tm_text path = { 0 };
    tm_text_printf(&path, "%s/%s", x->options->folder, name);
    tm_status st = tm_file_write(path.data, text->data, text->length, err);
    tm_text_fini(&path);
    return st;
}

static tm_status write_index(const exporter *x, tm_error *err)
{
    tm_text text = { 0 }, name = { 0 }, file = { 0 };
    tm_json json = { .out = &text, .indent = true };
    if (x->shards == 1) return TM_OK;
    tm_json_open(&json, NULL, '{');
    tm_json_open(&json, "metadata", '{');
    tm_json_i64(&json, "total_size", x->total);
    tm_json_close(&json, '}');
    tm_json_open(&json, "weight_map", '{');
    for (size_t i = 0; i < x->values.layout->n; i++) {
        name.length = file.length = 0;
        tm_hf_written_name(x->source->form, x->values.layout->entries[i].name, &name);
        name_shard(x, x->shard[i], &file);
        tm_json_string(&json, name.data, file.data);
    }
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    tm_text_add(&text, "\n");
    name.length = 0;
    tm_text_printf(&name, "%s.safetensors.index.json", stem_of(x));
    tm_status st = write_named(x, name.data, &text, err);
    tm_text_fini(&text);
    tm_text_fini(&name);
    tm_text_fini(&file);
    return st;
}

static tm_status write_text(const exporter *x, const char *name, const char *text, tm_error *err)
{
    tm_text copy = { 0 };
    tm_text_add(&copy, text);
    tm_status st = write_named(x, name, &copy, err);
    tm_text_fini(&copy);
    return st;
}

/* The tokenizer of bytes, as transformers reads it. */
static tm_status write_bytes(const exporter *x, tm_error *err)
{
    tm_text json = { 0 };
    tm_bytes_tokenizer(&json);
    tm_status st = write_named(x, "tokenizer.json", &json, err);
    tm_text_fini(&json);
    TM_TRY(st);
    return write_text(x, "tokenizer_config.json",
                      "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                      "  \"clean_up_tokenization_spaces\": false,\n"
                      "  \"eos_token\": \"" TM_BYTES_END "\"\n}\n",
                      err);
}

/* Does the run's tokenizer consist of bytes? */
static bool of_bytes(const exporter *x)
{
    const char *tokenizer = tm_hf_source_tokenizer(x->source);
    return tokenizer && strcmp(tokenizer, "byte") == 0;
}

/* Of a GGUF file: the tokenizer that it holds, as files of a folder. */
static tm_status write_tokenizer(const exporter *x, tm_error *err)
{
    tm_gguf    *gguf;
    tm_text     text = { 0 }, config = { 0 }, template = { 0 };
    tm_error    own = { 0 };
    const char *file;
    TM_TRY(tm_gguf_open(x->source->path, &gguf, err));
    tm_status st = tm_gguf_tokenizer_text(gguf, &text, &file, &own);
    if (st == TM_OK) {
        json_t *root = tm_gguf_specials(gguf);
        if (tm_chat_text(x->source->path, &template))
            json_object_set_new(root, "chat_template", json_stringn(template.data, template.length));
        char *dumped = json_dumps(root, JSON_INDENT(2));
        tm_text_printf(&config, "%s\n", dumped);
        free(dumped);
        json_decref(root);
        st = write_named(x, file, &text, err);
        if (st == TM_OK) st = write_named(x, "tokenizer_config.json", &config, err);
    } else {
        tm_note("the directory gets no tokenizer: %s", own.text);
        st = TM_OK;
    }
    tm_gguf_close(gguf);
    tm_text_fini(&text);
    tm_text_fini(&config);
    tm_text_fini(&template);
    return st;
}

/* What belongs to the model and is not its numbers: of a folder, or of the tokenizer of a run. */
static tm_status copy_files(const exporter *x, tm_error *err)
{
    const char *folder = tm_hf_source_tokenizer(x->source);
    if (of_bytes(x)) return write_bytes(x, err);
    if (x->source->weights && tm_is_gguf(x->source->path)) return write_tokenizer(x, err);
    if (x->source->checkpoint && folder && !tm_file_exists(folder))
        tm_note("the tokenizer '%s' of the run is not there: the directory has none", folder);
    static const char *const names[] = { "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "vocab.json",
                                         "merges.txt",
                                         "tokenizer.model",
                                         "tekken.json" };
    for (size_t i = x->source->checkpoint ? 1 : 0; folder && i < sizeof names / sizeof names[0]; i++) {
        tm_text path = { 0 }, text = { 0 };
        size_t  n = strlen(folder), k = strlen(names[i]);
        if (n > k && strcmp(folder + n - k, names[i]) == 0 && folder[n - k - 1] == '/')
            tm_text_add(&path, folder); /* the file itself */
        else
            tm_text_printf(&path, "%s/%s", folder, names[i]);
        tm_status st = TM_OK;
        if (tm_file_exists(path.data)) {
            st = tm_file_read(path.data, MAX_COPIED, &text, err);
            if (st == TM_OK) st = write_named(x, names[i], &text, err);
        }
        tm_text_fini(&path);
        tm_text_fini(&text);
        TM_TRY(st);
    }
    return TM_OK;
}

static tm_status write_config(const exporter *x, tm_error *err)
{
    const tm_hf_source *s = x->source;
    tm_text             text = { 0 }, path = { 0 }, ids = { 0 };
    tm_status           st = TM_OK;
    tm_text_printf(&path, "%s/config.json", s->path);
    if (of_bytes(x)) tm_text_printf(&ids, "{\"eos_token_id\": %d}", TM_BYTES_END_ID);
    if (s->weights && tm_is_gguf(s->path))
        st = tm_gguf_config(s->path, &ids, err);
    else if (s->weights && !s->form->diffusers)
        st = tm_file_read(path.data, MAX_COPIED, &ids, err);
    if (st == TM_OK) {
        tm_hf_config_write(s->config, &s->shape, s->form, tm_dtype_name(x->dtype), ids.data, &text);
        st = write_named(x, "config.json", &text, err);
    }
    tm_text_fini(&text);
    tm_text_fini(&path);
    tm_text_fini(&ids);
    return st;
}

static tm_status check_target(const exporter *x, tm_error *err)
{
    static const char *const names[] = { "config.json", "model.safetensors", "model.safetensors.index.json",
                                         "diffusion_pytorch_model.safetensors",
                                         "diffusion_pytorch_model.safetensors.index.json" };
    TM_TRY(tm_folder_make(x->options->folder, err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_text path = { 0 };
        tm_text_printf(&path, "%s/%s", x->options->folder, names[i]);
        bool there = tm_file_exists(path.data);
        tm_text_fini(&path);
        if (there)
            return tm_fail(err, TM_INVALID, "'%s' already holds a model ('%s'); give a directory that does not",
                           x->options->folder, names[i]);
    }
    return TM_OK;
}

static tm_status export_all(exporter *x, tm_error *err)
{
    TM_TRY(tm_hf_values_open(x->source, &x->values, x->report, err));
    bool wider = tm_hf_values_wider(&x->values);
    x->dtype = x->options->dtype != TM_DTYPE_COUNT ? x->options->dtype : wider ? TM_F32 : TM_BF16;
    divide(x);
    if (x->shards > TM_SAFETENSORS_MAX_FILES)
        return tm_fail(err, TM_INVALID, "%d files would be written, a model has %d at most; allow more bytes for each",
                       x->shards, TM_SAFETENSORS_MAX_FILES);
    TM_TRY(check_target(x, err));
    for (int shard = 0; shard < x->shards; shard++) TM_TRY(write_shard(x, shard, err));
    TM_TRY(write_index(x, err));
    TM_TRY(copy_files(x, err));
    *x->report = (tm_hf_report){ .tensors = x->values.layout->n, .bytes = x->total, .dtype = x->dtype };
    x->report->rounded = wider && x->dtype == TM_BF16;
    for (size_t i = 0; i < x->values.layout->n; i++) x->report->elements += x->values.layout->entries[i].elements;
    return write_config(x, err);
}

/* --- adapters of a run -------------------------------------------------------------------------------------------- */

static tm_status read_checkpoint(const tm_hf_memory *memory, tm_tensor_id id, size_t offset, void *to, size_t bytes,
                                 tm_error *err)
{
    const tm_hf_source *s = memory->context;
    return tm_checkpoint_view_read(s->checkpoint, tm_graph_at(memory->graph, id)->name, offset, to, bytes, err);
}

/* The adapters' tensors have the formats of the checkpoint. */
static tm_status take_formats(const tm_hf_source *s, tm_graph *graph, tm_error *err)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        tm_tensor *tensor = &graph->tensors[i];
        int        dtype;
        size_t     bytes;
        if (tensor->adapts == TM_NONE) continue;
        TM_TRY(tm_checkpoint_view_find(s->checkpoint, tensor->name, &dtype, &bytes, err));
        if (dtype < 0 || dtype >= TM_DTYPE_COUNT || bytes != tm_tensor_bytes(tensor->shape, (tm_dtype)dtype))
            return tm_fail(err, TM_FORMAT,
                           "the checkpoint holds '%s' with %zu bytes, which is not what config.yaml says", tensor->name,
                           bytes);
        tensor->dtype = (tm_dtype)dtype;
    }
    return TM_OK;
}

tm_status tm_hf_export_adapter(const tm_hf_source *s, const char *path, const tm_gguf_model *gguf, tm_hf_report *report,
                               tm_error *err)
{
    tm_adapters adapters;
    tm_model    model;
    const char *base = tm_config_text(s->config, "model.hf_assets_path");
    TM_TRY(tm_adapters_read(s->config, 0, &adapters, err));
    adapters.base = TM_DTYPE_COUNT;
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model_declare(graph, &s->shape, 1, NULL, &model);
    tm_status st = tm_adapters_declare(graph, &model, &adapters, err);
    if (st == TM_OK) st = take_formats(s, graph, err);
    tm_hf_memory memory = { .graph = graph, .shape = &s->shape, .form = s->form, .read = read_checkpoint };
    memory.context = (void *)(uintptr_t)s;
    if (st == TM_OK)
        st = gguf ? tm_gguf_adapter_write(&memory, &adapters, gguf, path, report, err)
                  : tm_hf_adapter_write(&memory, &adapters, base ? base : "", path, report, err);
    tm_graph_destroy(graph);
    return st;
}

tm_status tm_hf_export(const tm_hf_source *source, const tm_hf_export_options *options, tm_hf_report *report,
                       tm_error *err)
{
    exporter x = { .source = source, .options = options, .report = report };
    if (tm_hf_source_of_adapters(source)) return tm_hf_export_adapter(source, options->folder, NULL, report, err);
    tm_status st = export_all(&x, err);
    free(x.shard);
    tm_hf_values_close(&x.values);
    return st;
}

tm_dtype tm_hf_export_format(const char *word)
{
    return !word ? TM_DTYPE_COUNT : strcmp(word, "float32") == 0 ? TM_F32 : TM_BF16;
}

const char *tm_hf_report_format(const tm_hf_report *report)
{
    return report->rounded ? "bfloat16 (rounded: the model was wider)" : tm_dtype_name(report->dtype);
}
