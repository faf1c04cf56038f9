/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/adapter.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/value.h"
#include "hf/layout.h"
#include "hf/lora_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
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
    path.length = 0;
    is = is || tm_hf_lora_file(folder, &path);
    tm_text_fini(&path);
    return is;
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

static const char        lengths[] = ".lora_magnitude_vector";
static const char *const expert_matrices[] = { "experts.gate_up_proj", "experts.down_proj" };

/* "base_model.model.MODULE.lora_A.weight": MODULE; its length, 0: no such name. */
static size_t module_of(const char *name, const char **out)
{
    static const char        prefix[] = "base_model.model.";
    static const char *const suffixes[] = { ".lora_A.weight", ".lora_B.weight", lengths };
    size_t                   n = strlen(name);
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return 0;
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(suffixes[i]);
        if (n < length + sizeof prefix || strcmp(name + n - length, suffixes[i]) != 0) continue;
        *out = name + sizeof prefix - 1;
        return n - length - (sizeof prefix - 1);
    }
    return 0;
}

const tm_adapted_module *tm_hf_adapter_module(const tm_hf_adapter *adapter, const char *name)
{
    const tm_adapters *a = &adapter->adapters;
    for (size_t i = 0; i < a->n_modules; i++)
        if (strcmp(a->modules[i].name, name) == 0) return &a->modules[i];
    return NULL;
}

bool tm_hf_adapter_is_of_model(const tm_stored_tensor *tensor)
{
    const char *module;
    return module_of(tensor->name, &module) == 0;
}

/* One of the modules that the file holds, with its rank and its factor. */
static tm_status add_module(tm_hf_adapter *a, const char *file, const char *begin, size_t length, tm_error *err)
{
    tm_adapters            *own = &a->adapters;
    const char             *name = tm_arena_text_n(a->arena, begin, length);
    tm_adapted_module      *modules = (tm_adapted_module *)(uintptr_t)own->modules;
    const tm_pattern_value *rank = tm_pattern_find(own->ranks, own->n_ranks, name);
    const tm_pattern_value *alpha = tm_pattern_find(own->alphas, own->n_alphas, name);
    if (tm_hf_adapter_module(a, name)) return TM_OK;
    if (a->rules.given && !tm_peft_selects(&a->rules, name))
        return tm_fail(err, TM_FORMAT,
                       "'%s' holds an adapter of '%s', which is none of the modules that '%s' names (target_modules, "
                       "exclude_modules, layers_to_transform)",
                       file, name, config_name);
    modules[own->n_modules++] = (tm_adapted_module){ .name = name,
                                                     .rank = rank ? (int64_t)rank->value : own->rank,
                                                     .alpha = alpha ? alpha->value : own->alpha };
    return TM_OK;
}

/* PEFT passes over patterns that nothing is called by, too. */
static void note_unused(const tm_hf_adapter *a, const char *key, const tm_pattern_value *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool used = false;
        for (size_t k = 0; k < a->adapters.n_modules; k++)
            used = used || tm_pattern_find(all, n, a->adapters.modules[k].name) == &all[i];
        if (!used)
            tm_note("'%s/%s': '%s' of '%s' fits no module that has no earlier pattern", a->folder, config_name,
                    all[i].pattern, key);
    }
}

/* The modules that the file holds. */
static tm_status read_modules(tm_hf_adapter *a, const tm_safetensors *model, const tm_hf_form *form, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(a->weights, &n);
    a->adapters.modules = tm_arena_take(a->arena, (n + 1) * sizeof *a->adapters.modules);
    for (size_t i = 0; i < n; i++) {
        const char *module = NULL;
        size_t      length = module_of(all[i].name, &module);
        if (length == 0) {
            TM_TRY(tm_hf_adapter_check_own(&all[i], model, form, err));
            continue;
        }
        if (!a->adapters.dora && strstr(all[i].name, lengths))
            return tm_fail(err, TM_FORMAT, "'%s' holds '%s', which only DoRA has, and 'use_dora' is false in '%s'",
                           all[i].file, all[i].name, config_name);
        bool of_experts = strstr(all[i].name, ".experts.lora_") || strstr(all[i].name, ".experts.base_layer.lora_");
        if (of_experts && !a->experts[0] && !a->experts[1])
            return tm_fail(err, TM_FORMAT, "'%s' holds '%s', and 'target_parameters' names no experts in '%s'",
                           all[i].file, all[i].name, config_name);
        if (!of_experts) TM_TRY(add_module(a, all[i].file, module, length, err));
    }
    const char *one = a->experts[0] ? expert_matrices[0] : "", *other = a->experts[1] ? expert_matrices[1] : "";
    snprintf(a->adapters.targets, sizeof a->adapters.targets, "%s%s%s", one, *one && *other ? "," : "", other);
    note_unused(a, "rank_pattern", a->adapters.ranks, a->adapters.n_ranks);
    note_unused(a, "alpha_pattern", a->adapters.alphas, a->adapters.n_alphas);
    return n ? TM_OK : tm_fail(err, TM_FORMAT, "'%.300s/%s' holds no tensor", a->folder, weights_name);
}

tm_status tm_hf_adapter_open(const char *folder, const tm_safetensors *model, const tm_hf_form *form,
                             tm_hf_adapter *out, tm_error *err)
{
    tm_text path = { 0 };
    *out = (tm_hf_adapter){ .arena = tm_arena_create() };
    out->folder = tm_arena_text(out->arena, folder);
    bool peft = tm_file_exists(in_folder(folder, config_name, &path));
    path.length = 0;
    bool one = !peft && tm_hf_lora_file(folder, &path);
    if (!one) in_folder(folder, weights_name, &path);
    out->file = tm_arena_text(out->arena, path.data);
    if (one) {
        tm_text_fini(&path);
        return tm_hf_lora_open(out, form, err);
    }
    tm_status st = tm_hf_adapter_configure(out, err);
    if (st == TM_OK && !tm_file_exists(in_folder(folder, weights_name, &path)))
        st = tm_fail(err, TM_INVALID, "'%.300s' holds no %s%s", folder, weights_name,
                     tm_file_exists(in_folder(folder, "adapter_model.bin", &path))
                         ? ", but a pickle, which is not read; save it with safe_serialization=True"
                         : "");
    if (st == TM_OK) st = tm_safetensors_open(in_folder(folder, weights_name, &path), &out->weights, err);
    if (st == TM_OK) st = read_modules(out, model, form, err);
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

/* Modules that have one A together here must have it in the file, too. */
static tm_status check_shared(const tm_hf_layout *layout, const tm_hf_adapter *a, const tm_stored_tensor *const *found,
                              tm_error *err)
{
    for (size_t i = 0; i < layout->n; i++)
        for (size_t k = 0; k < i; k++) {
            const tm_hf_entry *x = &layout->entries[i], *y = &layout->entries[k];
            bool               one = x->n_slices && y->n_slices && x->slices[0].parameter == y->slices[0].parameter &&
                       x->slices[0].first == y->slices[0].first && x->slices[0].start == y->slices[0].start;
            if (!one || (found[i]->bytes == found[k]->bytes && found[i]->dtype == found[k]->dtype &&
                         memcmp(found[i]->data, found[k]->data, found[i]->bytes) == 0))
                continue;
            return tm_fail(err, TM_FORMAT,
                           "'%.300s': '%s' and '%s' differ, and the run has one for both, as lora.targets names their "
                           "fused matrix; name the parts instead",
                           a->file, y->name, x->name);
        }
    return TM_OK;
}

static tm_status find_all(const tm_hf_layout *layout, const tm_hf_adapter *a, const tm_stored_tensor **found,
                          tm_hf_report *report, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(a->weights, &n);
    for (size_t i = 0; i < layout->n; i++) {
        found[i] = tm_safetensors_find(a->weights, layout->entries[i].name);
        if (!found[i]) return tm_fail(err, TM_FORMAT, "'%.300s' lacks '%s'", a->file, layout->entries[i].name);
        TM_TRY(tm_hf_check_shape(&layout->entries[i], found[i], err));
        report->elements += layout->entries[i].elements;
        report->bytes += (int64_t)found[i]->bytes;
        report->tensors++;
    }
    for (size_t i = 0; i < n; i++)
        if (!tm_hf_adapter_is_of_model(&all[i]) && !in_layout(layout, all[i].name))
            return tm_fail(
                err, TM_FORMAT,
                "'%s' holds '%s', and the model has no such linear layer in a block, or the run no adapter there",
                all[i].file, all[i].name);
    return check_shared(layout, a, found, err);
}

/* Appends "model.layers.0.self_attn.q_proj". */
static void module_name(const tm_hf_form *form, const tm_hf_entry *entry, tm_text *out)
{
    static const char suffix[] = ".weight";
    size_t            n = sizeof suffix - 1;
    tm_hf_written_name(form, entry->name, out);
    if (out->length > n && strcmp(out->data + out->length - n, suffix) == 0) out->data[out->length -= n] = '\0';
}

static tm_status lacks(const tm_hf_adapter *a, const char *module, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%.300s' lacks the adapter of '%s', which '%s' names", a->file, module, a->config);
}

/* The output layer of a tied model, which has no matrix of its own. */
static tm_status check_tied(const tm_hf_memory *memory, const tm_hf_adapter *a, tm_error *err)
{
    const char *head = memory->form->tied_head;
    tm_status   st = TM_OK;
    tm_text     name = { 0 };
    if (!memory->shape->tied || !head || !a->rules.given || a->rules.all_linear) return TM_OK;
    module_name(memory->form, &(tm_hf_entry){ .name = head }, &name);
    if (tm_peft_selects(&a->rules, name.data) && !tm_hf_adapter_module(a, name.data)) st = lacks(a, name.data, err);
    tm_text_fini(&name);
    return st;
}

/* One matrix of the model: what the configuration names the file has, and with the factor that the graph has. */
static tm_status check_module(const tm_hf_memory *memory, const tm_hf_adapter *a, const tm_hf_entry *entry,
                              const char *name, tm_error *err)
{
    const tm_tensor         *tensor = tm_graph_at(memory->graph, entry->slices[0].parameter);
    const tm_adapter        *own = tm_hf_adapter_of(memory->graph, entry, 0);
    const tm_adapted_module *module = tm_hf_adapter_module(a, name);
    const char              *last = memory->form->tied_head;
    bool                     block = tm_adapters_may_adapt(tensor);
    bool                     head = last && strcmp(entry->name, last) == 0 && !a->rules.all_linear;
    if (!module && a->rules.given && (block || head) && tm_peft_selects(&a->rules, name)) return lacks(a, name, err);
    if (!module || !own) return TM_OK;
    double scale = tm_adapters_scale_of(&a->adapters, module->rank, module->alpha);
    if (module->rank == own->attr.rank && !(fabs(scale - own->attr.scale) > 1e-12 * fabs(scale))) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "the adapter of '%s' in '%.300s' has rank %lld and factor %g, that of the run rank %lld and factor "
                   "%g; give the same lora.rank, lora.alpha, lora.rank_pattern and lora.alpha_pattern",
                   name, a->folder, (long long)module->rank, scale, (long long)own->attr.rank, own->attr.scale);
}

/* The matrices of a model beside the modules of a folder. */
tm_status tm_hf_adapter_check_modules(const tm_hf_memory *memory, const tm_hf_adapter *a, tm_error *err)
{
    tm_hf_layout *layout;
    TM_TRY(check_tied(memory, a, err));
    TM_TRY(tm_hf_part_layout_create(memory->graph, memory->shape, memory->form, &layout, err));
    tm_status st = TM_OK;
    for (size_t i = 0; i < layout->n && st == TM_OK; i++) {
        tm_text name = { 0 };
        if (layout->entries[i].n_slices == 0) continue;
        module_name(memory->form, &layout->entries[i], &name);
        st = check_module(memory, a, &layout->entries[i], name.data, err);
        tm_text_fini(&name);
    }
    tm_hf_layout_destroy(layout);
    return st;
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
    TM_TRY(tm_hf_adapter_check_modules(memory, adapter, err));
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

tm_status tm_hf_adapter_read(const tm_hf_memory *memory, const tm_hf_entry *entry, float *out, tm_error *err)
{
    tm_status st = TM_OK;
    for (size_t i = 0; i < entry->n_slices && st == TM_OK; i++) {
        const tm_hf_slice *s = &entry->slices[i];
        const tm_tensor   *tensor = tm_graph_at(memory->graph, s->parameter);
        size_t             size = tm_dtype_bytes(tensor->dtype), bytes = (size_t)(s->rows * s->columns) * size;
        void              *values = tm_alloc(bytes);
        st = memory->read(memory, s->parameter, (size_t)s->first * size, values, bytes, err);
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
        st = tm_hf_adapter_read(w->memory, e, values, err);
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

/* A matrix of the model: its name as a module's, and its adapter. */
typedef struct {
    char             *name;
    const tm_adapter *adapter; /* NULL: none */
    int64_t           block;   /* as PEFT finds it in the name; -1: none */
    double            alpha;
} module;

typedef struct {
    module *all;
    size_t  n;
    bool    transposed; /* files hold the adapted ones (in, out) */
} module_list;

/* What gave the adapter its factor, to the digit. */
static double alpha_of(const tm_adapters *a, const tm_adapter *adapter)
{
    double alpha = adapter->attr.scale * (a->rslora ? sqrt((double)adapter->attr.rank) : (double)adapter->attr.rank);
    double apart = fabs(alpha) * 1e-9;
    if (fabs(alpha - a->alpha) <= apart) return a->alpha;
    for (size_t i = 0; i < a->n_alphas; i++)
        if (fabs(alpha - a->alphas[i].value) <= apart) return a->alphas[i].value;
    return alpha;
}

static module_list list_modules(const writer *w, const tm_hf_layout *model)
{
    static const char block[] = ".*?\\.[^.]*\\.(?P<idx>\\d+)\\.";
    module_list       list = { .all = tm_alloc((model->n + 1) * sizeof *list.all) };
    for (size_t i = 0; i < model->n; i++) {
        const tm_hf_entry *entry = &model->entries[i];
        const tm_adapter  *adapter = NULL;
        tm_text            name = { 0 };
        for (size_t k = 0; k < entry->n_slices && !adapter; k++) adapter = tm_hf_adapter_of(w->memory->graph, entry, k);
        module_name(w->memory->form, entry, &name);
        list.all[list.n++] = (module){ .name = name.data,
                                       .adapter = adapter,
                                       .block = tm_pattern_index(block, name.data),
                                       .alpha = adapter ? alpha_of(w->adapters, adapter) : 0 };
        if (adapter) list.transposed = entry->row->transposed;
    }
    return list;
}

static void free_modules(module_list *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->all[i].name);
    free(list->all);
}

/* Adds a text that is not there yet. */
static void add_text(json_t *array, const char *text)
{
    size_t  at;
    json_t *have;
    json_array_foreach(array, at, have) if (strcmp(json_string_value(have), text) == 0) return;
    json_array_append_new(array, json_string(text));
}

static void add_number(json_t *array, int64_t number)
{
    size_t  at;
    json_t *have;
    json_array_foreach(array, at, have) if (json_integer_value(have) == number) return;
    json_array_append_new(array, json_integer(number));
}

/* Does PEFT adapt what is adapted, and nothing else? */
static bool selects_exactly(const module_list *list, const json_t *names, const json_t *layers)
{
    size_t        n = json_array_size(names), n_layers = json_array_size(layers);
    const char  **texts = tm_alloc((n + 1) * sizeof *texts);
    int64_t      *numbers = tm_alloc((n_layers + 1) * sizeof *numbers);
    bool          exact = true;
    tm_peft_rules rules = { .targets = { .names = texts, .n = n }, .layers = numbers, .n_layers = n_layers };
    for (size_t i = 0; i < n; i++) texts[i] = json_string_value(json_array_get(names, i));
    for (size_t i = 0; i < n_layers; i++) numbers[i] = json_integer_value(json_array_get(layers, i));
    for (size_t i = 0; i < list->n; i++)
        exact = exact && tm_peft_selects(&rules, list->all[i].name) == (list->all[i].adapter != NULL);
    free(texts);
    free(numbers);
    return exact;
}

/* The adapted modules: the last parts of their names; these in some blocks; or whole names: what PEFT reads as exactly
 * these modules. */
static void set_modules(const module_list *list, json_t *root)
{
    json_t *names = json_array(), *layers = json_array();
    for (int form = 0; form < 3; form++) {
        json_array_clear(names);
        json_array_clear(layers);
        for (size_t i = 0; i < list->n; i++) {
            const module *m = &list->all[i];
            const char   *last = strrchr(m->name, '.');
            if (!m->adapter) continue;
            add_text(names, form == 2 || !last ? m->name : last + 1);
            if (form == 1 && m->block >= 0) add_number(layers, m->block);
        }
        if (selects_exactly(list, names, layers)) break;
    }
    json_object_set_new(root, "target_modules", names);
    if (json_array_size(layers)) json_object_set(root, "layers_to_transform", layers);
    json_decref(layers);
}

static json_t *number_of(double value)
{
    double whole = (double)(int64_t)value;
    return value < whole || value > whole ? json_real(value) : json_integer((json_int_t)value);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const tm_pattern_value *)a)->pattern, ((const tm_pattern_value *)b)->pattern);
}

/* Ranks or alphas of modules that are not those of the rest: by the patterns that the run was given, if PEFT, which
 * meets them in the order of their texts, finds the same; else module by module. */
static void set_values(const module_list *list, json_t *root, const char *key, const tm_pattern_value *given, size_t n,
                       double otherwise, bool ranks)
{
    tm_pattern_value *sorted = tm_alloc((n + 1) * sizeof *sorted);
    json_t           *by_pattern = json_object(), *by_name = json_object();
    bool              exact = true;
    if (n) memcpy(sorted, given, n * sizeof *sorted);
    if (n) qsort(sorted, n, sizeof *sorted, by_text);
    for (size_t i = 0; i < n; i++) json_object_set_new(by_pattern, sorted[i].pattern, number_of(sorted[i].value));
    for (size_t i = 0; i < list->n; i++) {
        const module *m = &list->all[i];
        if (!m->adapter) continue;
        double                  value = ranks ? (double)m->adapter->attr.rank : m->alpha;
        const tm_pattern_value *found = tm_pattern_find(sorted, n, m->name);
        double                  theirs = found ? found->value : otherwise;
        exact = exact && !(theirs < value) && !(theirs > value);
        if (value < otherwise || value > otherwise) json_object_set_new(by_name, m->name, number_of(value));
    }
    if (n) json_object_set(root, key, exact ? by_pattern : by_name);
    json_decref(by_pattern);
    json_decref(by_name);
    free(sorted);
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
    module_list        modules = list_modules(w, model);
    json_t            *root = json_object();
    tm_hub_origin      origin; /* of a model of the hub its name, which holds on other machines, too */
    bool               snapshot = tm_hub_origin_of(w->base, &origin);
    json_object_set_new(root, "base_model_name_or_path", json_string(snapshot ? origin.name : w->base));
    if (snapshot) json_object_set_new(root, "revision", json_string(origin.commit));
    json_object_set_new(root, "bias", json_string("none"));
    json_object_set_new(root, "fan_in_fan_out", json_boolean(modules.transposed));
    json_object_set_new(root, "inference_mode", json_true());
    json_object_set_new(root, "init_lora_weights", a->gaussian ? json_string("gaussian") : json_true());
    json_object_set_new(root, "lora_alpha", number_of(a->alpha));
    json_object_set_new(root, "lora_dropout", json_real(a->dropout));
    json_object_set_new(root, "peft_type", json_string("LORA"));
    json_object_set_new(root, "r", json_integer((json_int_t)a->rank));
    set_modules(&modules, root);
    set_values(&modules, root, "rank_pattern", a->ranks, a->n_ranks, (double)a->rank, true);
    set_values(&modules, root, "alpha_pattern", a->alphas, a->n_alphas, a->alpha, false);
    json_object_set_new(root, "target_parameters", list_parameters(w));
    json_object_set_new(root, "task_type", json_string("CAUSAL_LM"));
    json_object_set_new(root, "use_dora", json_boolean(a->dora));
    json_object_set_new(root, "use_rslora", json_boolean(a->rslora));
    free_modules(&modules);
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
    *report = (tm_hf_report){ .dtype = TM_F32 };
    TM_TRY(tm_folder_make(folder, err));
    if (tm_hf_is_adapter(folder))
        return tm_fail(err, TM_INVALID, "'%s' already holds an adapter; give a directory that does not", folder);
    TM_TRY(tm_hf_adapter_layout_create(memory->graph, memory->shape, memory->form, &w.layout, err));
    tm_status st = TM_OK;
    if (memory->form->diffusers)
        st = tm_hf_lora_write(memory, w.layout, folder, report, err);
    else
        st = write_weights(&w, in_folder(folder, weights_name, &path), report, err);
    if (st == TM_OK && !memory->form->diffusers)
        st = write_config(&w, in_folder(folder, config_name, &path), err); /* last: it is complete */
    tm_hf_layout_destroy(w.layout);
    tm_text_fini(&path);
    return st;
}
