/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/adapter.h"

#include "base/file.h"
#include "base/text.h"
#include "hf/layout.h"
#include "graph/value.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char config_name[] = "adapter_config.json", weights_name[] = "adapter_model.safetensors";

static char *in_folder(const char *folder, const char *name, tm_text *path)
{
    path->length = 0;
    tm_text_printf(path, "%s/%s", folder, name);
    return path->data;
}

bool tm_hf_is_adapter(const char *folder)
{
    tm_text path = { 0 };
    bool    is = tm_file_exists(in_folder(folder, config_name, &path));
    tm_text_fini(&path);
    return is;
}

/* --- adapter_config.json ------------------------------------------------------------------------------------------ */

/* Members that change nothing that is computed with given weights. */
static const char *const idle[] = { "alpha",
                                    "auto_mapping",
                                    "base_model_name_or_path",
                                    "ensure_weight_tying",
                                    "exclude_modules", /* the file tells which modules are adapted */
                                    "fan_in_fan_out",  /* how the base stores its matrices */
                                    "inference_mode",
                                    "layers_pattern",
                                    "megatron_core",
                                    "peft_version",
                                    "qalora_group_size",
                                    "revision",
                                    "runtime_config",
                                    "task_type" };

static bool is_idle(const char *key)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(idle[i], key) == 0) return true;
    return false;
}

/* null, false, 0, "", an empty list or map: nothing is asked for. */
static bool is_empty(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_number(value) && !(json_number_value(value) != 0)) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static tm_status not_built(const tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    tm_fail(err, TM_UNSUPPORTED, "'%.200s/%s': '%s' is %.100s, which is not built; merge the adapter with PEFT first",
            a->folder, config_name, key, text ? text : "?");
    free(text);
    return TM_UNSUPPORTED;
}

static tm_status wrong(const tm_hf_adapter *a, const char *key, const char *wanted, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%.200s/%s': '%s' must be %s", a->folder, config_name, key, wanted);
}

static tm_status read_number(const tm_hf_adapter *a, const char *key, const json_t *value, double lo, double hi,
                             double *out, tm_error *err)
{
    *out = json_number_value(value);
    return json_is_number(value) && *out >= lo && *out <= hi ? TM_OK
                                                             : wrong(a, key, "a number in its usual range", err);
}

/* Those that a first value of the adapter makes, and the base with it, change the base. */
static tm_status read_init(const tm_hf_adapter *a, const json_t *value, tm_error *err)
{
    const char              *name = json_string_value(value);
    static const char *const plain[] = { "gaussian", "eva", "orthogonal" };
    if (json_is_boolean(value) || json_is_null(value)) return TM_OK;
    for (size_t i = 0; name && i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(name, plain[i]) == 0) return TM_OK;
    return not_built(a, "init_lora_weights", value, err);
}

static const char *const expert_matrices[] = { "experts.gate_up_proj", "experts.down_proj" };

/* Parameters with adapters: the matrices that transformers keeps of all experts. */
static tm_status read_parameters(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    size_t        at;
    const json_t *name;
    json_array_foreach((json_t *)(uintptr_t)value, at, name)
    {
        const char *text = json_string_value(name);
        bool        known = false;
        for (int k = 0; k < 2 && text; k++) {
            const char *end = strstr(text, expert_matrices[k]);
            if (end && strcmp(end, expert_matrices[k]) == 0) known = a->experts[k] = true;
        }
        if (!known) return not_built(a, key, value, err);
    }
    return TM_OK;
}

static tm_status read_member(tm_hf_adapter *a, const char *key, const json_t *value, tm_error *err)
{
    double      number = 0;
    const char *text = json_string_value(value);
    if (strcmp(key, "peft_type") == 0) return text && strcmp(text, "LORA") == 0 ? TM_OK : not_built(a, key, value, err);
    if (strcmp(key, "r") == 0) {
        TM_TRY(read_number(a, key, value, 1, 65536, &number, err));
        a->adapters.rank = (int64_t)number;
        return TM_OK;
    }
    if (strcmp(key, "lora_alpha") == 0) return read_number(a, key, value, 0, 1e6, &a->adapters.alpha, err);
    if (strcmp(key, "lora_dropout") == 0) return read_number(a, key, value, 0, 0.999, &a->adapters.dropout, err);
    if (strcmp(key, "use_rslora") == 0) {
        a->adapters.rslora = json_is_true(value);
        return json_is_boolean(value) ? TM_OK : wrong(a, key, "true or false", err);
    }
    if (strcmp(key, "use_dora") == 0) {
        a->adapters.dora = json_is_true(value);
        return json_is_boolean(value) ? TM_OK : wrong(a, key, "true or false", err);
    }
    if (strcmp(key, "init_lora_weights") == 0) return read_init(a, value, err);
    if (strcmp(key, "bias") == 0 && text && strcmp(text, "none") == 0) return TM_OK;
    if (strcmp(key, "target_parameters") == 0 && json_is_array(value)) return read_parameters(a, key, value, err);
    if (strcmp(key, "target_modules") == 0 || is_idle(key) || is_empty(value)) return TM_OK;
    return not_built(a, key, value, err);
}

static tm_status read_config(tm_hf_adapter *a, tm_error *err)
{
    tm_text      path = { 0 };
    json_error_t problem;
    json_t      *root = json_load_file(in_folder(a->folder, config_name, &path), JSON_REJECT_DUPLICATES, &problem);
    tm_status    st = TM_OK;
    if (!json_is_object(root))
        st = tm_fail(err, tm_file_exists(path.data) ? TM_FORMAT : TM_INVALID,
                     "'%.300s' is not the configuration of an adapter: %s (line %d)", path.data,
                     root ? "it is not an object" : problem.text, root ? 1 : problem.line);
    const char *key;
    json_t     *value;
    a->adapters = (tm_adapters){ .alpha = 8, .base = TM_DTYPE_COUNT, .place = a->folder };
    json_object_foreach(root, key, value) if (st == TM_OK) st = read_member(a, key, value, err);
    if (st == TM_OK && !json_object_get(root, "peft_type")) st = wrong(a, "peft_type", "LORA", err);
    if (st == TM_OK && a->adapters.rank == 0) st = wrong(a, "r", "the rank of the adapters", err);
    json_decref(root);
    tm_text_fini(&path);
    return st;
}

/* --- targets ------------------------------------------------------------------------------------------------------ */

static const char lengths[] = ".lora_magnitude_vector", own_weight[] = ".base_layer.weight";

/* "base_model.model.MODULE.lora_A.weight": the part of MODULE behind its last dot; its length, 0: no such name. */
static size_t module_of(const char *name, const char **out)
{
    static const char        prefix[] = "base_model.model.";
    static const char *const suffixes[] = { ".lora_A.weight", ".lora_B.weight", lengths };
    size_t                   n = strlen(name);
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return 0;
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(suffixes[i]);
        if (n < length + sizeof prefix || strcmp(name + n - length, suffixes[i]) != 0) continue;
        const char *end = name + n - length, *begin = end;
        while (begin > name && begin[-1] != '.') begin--;
        *out = begin;
        return (size_t)(end - begin);
    }
    return 0;
}

/* Adds a name to the targets. */
static tm_status add_target(tm_hf_adapter *a, const char *name, size_t length, tm_error *err)
{
    char  *targets = a->adapters.targets;
    size_t used = strlen(targets);
    for (const char *p = targets; *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == length && strncmp(p, name, length) == 0) return TM_OK;
    if (used + length + 2 > sizeof a->adapters.targets)
        return tm_fail(err, TM_UNSUPPORTED, "'%.300s' adapts more kinds of modules than can be named", a->folder);
    if (used) targets[used++] = ',';
    memcpy(targets + used, name, length);
    targets[used + length] = '\0';
    return TM_OK;
}

/* The modules that the file holds, whatever pattern the configuration names them by. */
static tm_status read_targets(tm_hf_adapter *a, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(a->weights, &n);
    for (size_t i = 0; i < n; i++) {
        const char *module = NULL;
        size_t      length = module_of(all[i].name, &module);
        size_t      n_name = strlen(all[i].name), n_own = sizeof own_weight - 1;
        if (n_name > n_own && strcmp(all[i].name + n_name - n_own, own_weight) == 0)
            return tm_fail(
                err, TM_UNSUPPORTED,
                "'%s' holds '%s', a weight of the model itself, and adapters are read beside the model's own "
                "weights only; save with save_embedding_layers=False",
                all[i].file, all[i].name);
        if (length == 0)
            return tm_fail(
                err, TM_FORMAT,
                "'%s': '%s' is not a tensor of a LoRA adapter, wanted base_model.model.MODULE.lora_A.weight, "
                ".lora_B.weight or .lora_magnitude_vector",
                all[i].file, all[i].name);
        if (!a->adapters.dora && strstr(all[i].name, lengths))
            return tm_fail(err, TM_FORMAT, "'%s' holds '%s', which only DoRA has, and 'use_dora' is false in '%s'",
                           all[i].file, all[i].name, config_name);
        bool of_experts = strstr(all[i].name, ".experts.lora_") || strstr(all[i].name, ".experts.base_layer.lora_");
        if (of_experts && !a->experts[0] && !a->experts[1])
            return tm_fail(err, TM_FORMAT, "'%s' holds '%s', and 'target_parameters' names no experts in '%s'",
                           all[i].file, all[i].name, config_name);
        if (!of_experts) TM_TRY(add_target(a, module, length, err));
    }
    for (int k = 0; k < 2; k++)
        if (a->experts[k]) TM_TRY(add_target(a, expert_matrices[k], strlen(expert_matrices[k]), err));
    return n ? TM_OK : tm_fail(err, TM_FORMAT, "'%.300s/%s' holds no tensor", a->folder, weights_name);
}

tm_status tm_hf_adapter_open(const char *folder, tm_hf_adapter *out, tm_error *err)
{
    tm_text path = { 0 };
    *out = (tm_hf_adapter){ .arena = tm_arena_create() };
    out->folder = tm_arena_text(out->arena, folder);
    tm_status st = read_config(out, err);
    if (st == TM_OK && !tm_file_exists(in_folder(folder, weights_name, &path)))
        st = tm_fail(err, TM_INVALID, "'%.300s' holds no %s%s", folder, weights_name,
                     tm_file_exists(in_folder(folder, "adapter_model.bin", &path))
                         ? ", but a pickle, which is not read; save it with safe_serialization=True"
                         : "");
    if (st == TM_OK) st = tm_safetensors_open(in_folder(folder, weights_name, &path), &out->weights, err);
    if (st == TM_OK) st = read_targets(out, err);
    tm_text_fini(&path);
    return st;
}

void tm_hf_adapter_close(tm_hf_adapter *adapter)
{
    tm_safetensors_close(adapter->weights);
    tm_arena_destroy(adapter->arena);
    *adapter = (tm_hf_adapter){ 0 };
}

/* --- into parameters ---------------------------------------------------------------------------------------------- */

static bool in_layout(const tm_hf_layout *layout, const char *name)
{
    for (size_t i = 0; i < layout->n; i++)
        if (strcmp(layout->entries[i].name, name) == 0) return true;
    return false;
}

static tm_status find_all(const tm_hf_layout *layout, const tm_hf_adapter *a, const tm_stored_tensor **found,
                          tm_hf_report *report, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(a->weights, &n);
    for (size_t i = 0; i < layout->n; i++) {
        found[i] = tm_safetensors_find(a->weights, layout->entries[i].name);
        if (!found[i])
            return tm_fail(err, TM_FORMAT, "'%.300s/%s' lacks '%s': adapters of some blocks only are not built",
                           a->folder, weights_name, layout->entries[i].name);
        TM_TRY(tm_hf_check_shape(&layout->entries[i], found[i], err));
        report->elements += layout->entries[i].elements;
        report->bytes += (int64_t)found[i]->bytes;
        report->tensors++;
    }
    for (size_t i = 0; i < n; i++)
        if (!in_layout(layout, all[i].name))
            return tm_fail(err, TM_FORMAT, "'%s' holds '%s', and the model has no such linear layer in a block",
                           all[i].file, all[i].name);
    return TM_OK;
}

/* All tensors of the whole model's adapters, and of each the slices that are here: ranks may have parts. */
static tm_status part_layout(const tm_hf_memory *memory, const tm_adapters *own, tm_hf_layout **out, tm_error *err)
{
    tm_graph *whole = tm_graph_create(memory->graph->precision);
    tm_model  model;
    tm_model_declare(whole, memory->shape, 1, NULL, &model);
    tm_status st = tm_adapters_declare(whole, &model, own, err);
    if (st == TM_OK) st = tm_hf_adapter_layout_create(whole, memory->shape, memory->form, out, err);
    if (st == TM_OK) tm_hf_localise(*out, whole, memory->graph);
    tm_graph_destroy(whole);
    return st;
}

tm_status tm_hf_adapter_load(const tm_hf_memory *memory, const tm_hf_adapter *adapter, const tm_adapters *own,
                             int threads, tm_hf_report *report, tm_error *err)
{
    tm_hf_layout *layout;
    *report = (tm_hf_report){ 0 };
    TM_TRY(part_layout(memory, own, &layout, err));
    const tm_stored_tensor **found = tm_alloc((layout->n + 1) * sizeof *found);
    tm_status                st = find_all(layout, adapter, found, report, err);
    if (st == TM_OK) st = tm_hf_fill(memory, layout, found, threads > 0 ? threads : 1, err);
    free(found);
    tm_hf_layout_destroy(layout);
    return st;
}

/* --- out of parameters -------------------------------------------------------------------------------------------- */

typedef struct {
    const tm_hf_memory *memory;
    const tm_adapters  *adapters;
    const char         *base, *folder;
    tm_hf_layout       *layout;
} writer;

static tm_status read_entry(const writer *w, const tm_hf_entry *entry, float *out, tm_error *err)
{
    tm_status st = TM_OK;
    for (size_t i = 0; i < entry->n_slices && st == TM_OK; i++) {
        const tm_hf_slice *s = &entry->slices[i];
        const tm_tensor   *tensor = tm_graph_at(w->memory->graph, s->parameter);
        size_t             size = tm_dtype_bytes(tensor->dtype), bytes = (size_t)(s->rows * s->columns) * size;
        void              *values = tm_alloc(bytes);
        st = w->memory->read(w->memory, s->parameter, (size_t)s->first * size, values, bytes, err);
        for (int64_t r = 0; st == TM_OK && r < s->rows; r++)
            for (int64_t c = 0; c < s->columns; c++)
                out[s->start + tm_hf_row(s, r) * s->row_step + c * s->column_step] =
                    (float)tm_value_get(values, tensor->dtype, r * s->columns + c);
        free(values);
    }
    return st;
}

static tm_status write_weights(const writer *w, const char *path, tm_hf_report *report, tm_error *err)
{
    static const char *const metadata[][2] = { { "format", "pt" }, { NULL, NULL } };
    tm_tensor_heading       *headings = tm_alloc((w->layout->n + 1) * sizeof *headings);
    tm_safetensors_writer   *file = NULL;
    for (size_t i = 0; i < w->layout->n; i++) {
        const tm_hf_entry *e = &w->layout->entries[i];
        headings[i] =
            (tm_tensor_heading){ .name = e->name, .dtype = TM_F32, .rank = e->rank, .n = { e->n[0], e->n[1] } };
    }
    tm_status st = tm_safetensors_create(path, headings, w->layout->n, metadata, &file, err);
    free(headings);
    TM_TRY(st);
    for (size_t i = 0; i < w->layout->n && st == TM_OK; i++) {
        const tm_hf_entry *e = &w->layout->entries[i];
        size_t             bytes = (size_t)e->elements * sizeof(float);
        float             *values = tm_alloc(bytes);
        st = read_entry(w, e, values, err);
        if (st == TM_OK) tm_safetensors_write(file, values, bytes);
        free(values);
        report->tensors++;
        report->elements += e->elements;
        report->bytes += (int64_t)bytes;
    }
    if (st == TM_OK) return tm_safetensors_finish(file, err);
    tm_safetensors_abandon(file);
    return st;
}

/* The names of the adapted modules: their last parts, if no other matrix of the model is called so; else in full. */
static void list_modules(const writer *w, const tm_hf_layout *model, json_t *out)
{
    for (int full = 0; full < 2; full++) {
        bool exact = true;
        json_array_clear(out);
        for (size_t i = 0; i < model->n; i++) {
            tm_text name = { 0 };
            tm_hf_written_name(w->memory->form, model->entries[i].name, &name);
            if (name.length > 7) name.data[name.length -= 7] = '\0'; /* ".weight" */
            const char *last = strrchr(name.data, '.'), *shown = full || !last ? name.data : last + 1;
            bool        known = false;
            size_t      at;
            json_t     *have;
            json_array_foreach(out, at, have) known = known || strcmp(json_string_value(have), shown) == 0;
            if (tm_hf_adapted(w->memory->graph, &model->entries[i]) && !known)
                json_array_append_new(out, json_string(shown));
            tm_text_fini(&name);
        }
        for (size_t i = 0; i < model->n && !full; i++) {
            const char *name = model->entries[i].name;
            size_t      at;
            json_t     *have;
            if (tm_hf_adapted(w->memory->graph, &model->entries[i])) continue;
            json_array_foreach(out, at, have)
            {
                tm_text pattern = { 0 };
                tm_text_printf(&pattern, ".%s.weight", json_string_value(have));
                size_t n = strlen(name);
                exact = exact && !(n > pattern.length && strcmp(name + n - pattern.length, pattern.data) == 0);
                tm_text_fini(&pattern);
            }
        }
        if (exact) return;
    }
}

static bool stored_across(const writer *w, const tm_hf_layout *model)
{
    for (size_t i = 0; i < model->n; i++)
        if (tm_hf_adapted(w->memory->graph, &model->entries[i])) return model->entries[i].row->transposed;
    return false;
}

/* "mlp.experts.down_proj" where all experts' matrices are adapted, else null. */
static json_t *list_parameters(const writer *w)
{
    static const char *const ours[] = { ".moe.experts.w13.weight", ".moe.experts.w2.weight" };
    json_t                  *out = json_array();
    for (int k = 0; k < 2; k++) {
        bool any = false;
        for (size_t i = 0; i < w->memory->graph->n_tensors; i++)
            any = any || (w->memory->graph->tensors[i].adapter && strstr(w->memory->graph->tensors[i].name, ours[k]));
        if (any) json_array_append_new(out, json_sprintf("mlp.%s", expert_matrices[k]));
    }
    if (json_array_size(out)) return out;
    json_decref(out);
    return json_null();
}

static json_t *config_of(const writer *w, const tm_hf_layout *model)
{
    const tm_adapters *a = w->adapters;
    json_t            *modules = json_array();
    list_modules(w, model, modules);
    double  whole = (double)(int64_t)a->alpha;
    json_t *alpha = a->alpha < whole || a->alpha > whole ? json_real(a->alpha) : json_integer((json_int_t)a->alpha);
    json_t *root = json_object();
    json_object_set_new(root, "base_model_name_or_path", json_string(w->base));
    json_object_set_new(root, "bias", json_string("none"));
    json_object_set_new(root, "fan_in_fan_out", json_boolean(stored_across(w, model)));
    json_object_set_new(root, "inference_mode", json_true());
    json_object_set_new(root, "init_lora_weights", a->gaussian ? json_string("gaussian") : json_true());
    json_object_set_new(root, "lora_alpha", alpha);
    json_object_set_new(root, "lora_dropout", json_real(a->dropout));
    json_object_set_new(root, "peft_type", json_string("LORA"));
    json_object_set_new(root, "r", json_integer((json_int_t)a->rank));
    json_object_set_new(root, "target_modules", modules);
    json_object_set_new(root, "target_parameters", list_parameters(w));
    json_object_set_new(root, "task_type", json_string("CAUSAL_LM"));
    json_object_set_new(root, "use_dora", json_boolean(a->dora));
    json_object_set_new(root, "use_rslora", json_boolean(a->rslora));
    return root;
}

static tm_status write_config(const writer *w, const char *path, tm_error *err)
{
    tm_hf_layout *model;
    TM_TRY(tm_hf_layout_create(w->memory->graph, w->memory->shape, w->memory->form, &model, err));
    json_t *root = config_of(w, model);
    char   *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    tm_text line = { 0 };
    tm_text_printf(&line, "%s\n", text);
    tm_status st = tm_file_write(path, line.data, line.length, err);
    tm_text_fini(&line);
    free(text);
    json_decref(root);
    tm_hf_layout_destroy(model);
    return st;
}

tm_status tm_hf_adapter_write(const tm_hf_memory *memory, const tm_adapters *adapters, const char *base,
                              const char *folder, tm_hf_report *report, tm_error *err)
{
    writer  w = { .memory = memory, .adapters = adapters, .base = base, .folder = folder };
    tm_text path = { 0 };
    *report = (tm_hf_report){ 0 };
    TM_TRY(tm_folder_make(folder, err));
    if (tm_hf_is_adapter(folder))
        return tm_fail(err, TM_INVALID, "'%s' already holds an adapter; give a directory that does not", folder);
    TM_TRY(tm_hf_adapter_layout_create(memory->graph, memory->shape, memory->form, &w.layout, err));
    tm_status st = write_weights(&w, in_folder(folder, weights_name, &path), report, err);
    if (st == TM_OK) st = write_config(&w, in_folder(folder, config_name, &path), err); /* last: it is complete */
    tm_hf_layout_destroy(w.layout);
    tm_text_fini(&path);
    return st;
}
