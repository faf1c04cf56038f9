/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/merge.h"

#include "base/text.h"
#include "hf/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the tensor of an expert is in the A and B of all experts: "layers.0.moe.experts.3.w1.weight". */
typedef struct {
    int64_t expert;
    bool    down, up; /* w2; w3, whose rows follow those of w1 */
} expert_place;

static bool expert_of(const tm_hf_entry *entry, expert_place *out)
{
    static const char begin[] = ".moe.experts.";
    const char       *at = entry->n_slices ? strstr(entry->slices[0].piece, begin) : NULL;
    if (!at) return false;
    char *end;
    out->expert = strtoll(at + sizeof begin - 1, &end, 10);
    out->down = strcmp(end, ".w2.weight") == 0;
    out->up = strcmp(end, ".w3.weight") == 0;
    return true;
}

/* In the files of an adapter. */
static const tm_stored_tensor *find(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                                    const char *what)
{
    tm_text      name = { 0 };
    expert_place place;
    const char  *module = NULL;
    if (expert_of(entry, &place)) {
        bool inner = !place.down && adapter->experts[1];
        if (adapter->experts[place.down]) module = tm_hf_experts_module(adapter->arena, entry->name, inner);
        if (!module) return NULL;
    }
    tm_text_add(&name, "base_model.model.");
    if (module) {
        tm_hf_written_name(form, module, &name);
    } else {
        tm_hf_written_name(form, entry->name, &name);
        if (name.length > 7) name.data[name.length -= 7] = '\0'; /* ".weight" */
    }
    tm_text_printf(&name, ".%s", what);
    const tm_stored_tensor *found = tm_safetensors_find(adapter->weights, name.data);
    tm_text_fini(&name);
    return found;
}

static bool has_shape(const tm_stored_tensor *t, int64_t rows, int64_t columns)
{
    return t->rank == 2 && t->n[0] == rows && t->n[1] == columns && t->dtype != TM_DTYPE_COUNT &&
           tm_dtype_floating(t->dtype);
}

static bool has_lengths(const tm_stored_tensor *t, int64_t n)
{
    return t && t->rank == 1 && t->n[0] == n && t->dtype != TM_DTYPE_COUNT && tm_dtype_floating(t->dtype);
}

/* "A float32 (2, 32)" */
static void describe(tm_text *out, const char *what, const tm_stored_tensor *t)
{
    tm_text_printf(out, "%s%s ", out->length ? ", " : "", what);
    if (!t) {
        tm_text_add(out, "nowhere");
        return;
    }
    tm_text_printf(out, "%s (", t->dtype == TM_DTYPE_COUNT ? "of another format" : tm_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) tm_text_printf(out, "%s%lld", i ? ", " : "", (long long)t->n[i]);
    tm_text_add(out, ")");
}

/* Rank and factor of the adapter of a matrix; of experts those of all. */
static tm_adapted_module module_of(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry)
{
    tm_text name = { 0 };
    tm_hf_written_name(form, entry->name, &name);
    if (name.length > 7) name.data[name.length -= 7] = '\0'; /* ".weight" */
    const tm_adapted_module *found = tm_hf_adapter_module(adapter, name.data);
    tm_adapted_module        own = { NULL, adapter->adapters.rank, adapter->adapters.alpha };
    tm_text_fini(&name);
    return found ? *found : own;
}

tm_status tm_hf_merge_finds(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                            const tm_stored_tensor *found[TM_HF_PARTS], tm_error *err)
{
    bool dora = adapter->adapters.dora;
    found[0] = found[1] = found[2] = NULL;
    if (entry->rank != 2) return TM_OK;
    found[0] = find(adapter, form, entry, "lora_A.weight");
    found[1] = find(adapter, form, entry, "lora_B.weight");
    if (dora) found[2] = find(adapter, form, entry, "lora_magnitude_vector");
    if (!found[0] && !found[1] && !found[2]) return TM_OK;
    bool         across = entry->row->transposed;
    int64_t      outputs = entry->n[across ? 1 : 0], inputs = entry->n[across ? 0 : 1];
    int64_t      ranks = module_of(adapter, form, entry).rank;
    expert_place place;
    if (expert_of(entry, &place)) {
        if (!place.down) outputs *= 2;
        if (found[0] && found[0]->rank == 2 && found[0]->n[0] > place.expert * ranks && found[0]->n[0] % ranks == 0)
            ranks = found[0]->n[0];
    }
    if (found[0] && found[1] && has_shape(found[0], ranks, inputs) && has_shape(found[1], outputs, ranks) &&
        (!dora || has_lengths(found[2], outputs)))
        return TM_OK;
    tm_text is = { 0 };
    for (int i = 0; i < 2; i++) describe(&is, i ? "B" : "A", found[i]);
    tm_status st =
        tm_fail(err, TM_FORMAT, "'%.300s': the adapter of '%s' must have A (%lld, %lld) and B (%lld, %lld)%s; found %s",
                adapter->folder, entry->name, (long long)ranks, (long long)inputs, (long long)outputs, (long long)ranks,
                dora ? ", and as many values of lora_magnitude_vector as B has rows" : "", is.data);
    tm_text_fini(&is);
    return st;
}

/* A matrix that is merged: rows of A from `first` on, element (o, k) of B at (o + row) columns + k step + expert. */
typedef struct {
    const tm_stored_tensor *stored, *b, *m;
    const double           *a; /* (rank, inputs) */
    int64_t                 rank, inputs, row, columns, step, expert;
    double                  scale;
} merged_matrix;

/* Row o: `at` its first element as stored, `step` from one to the next. */
static void merge_row(const merged_matrix *w, int64_t o, int64_t at, int64_t step, float *out)
{
    double *row = tm_alloc((size_t)w->inputs * sizeof *row), squares = 0, factor = 1;
    for (int64_t i = 0; i < w->inputs; i++) {
        double sum = 0;
        for (int64_t k = 0; k < w->rank; k++)
            sum += tm_stored_value(w->b, (o + w->row) * w->columns + k * w->step + w->expert) * w->a[k * w->inputs + i];
        row[i] = tm_stored_value(w->stored, at + i * step) + w->scale * sum;
        squares += row[i] * row[i];
    }
    if (w->m) factor = tm_stored_value(w->m, o) / sqrt(squares);
    for (int64_t i = 0; i < w->inputs; i++) out[at + i * step] = (float)(factor * row[i]);
    free(row);
}

void tm_hf_merge(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                 const tm_stored_tensor *stored, const tm_stored_tensor *const found[TM_HF_PARTS], int threads,
                 float *out)
{
    bool              across = entry->row->transposed;
    tm_adapted_module module = module_of(adapter, form, entry);
    int64_t           rank = module.rank, outputs = entry->n[across ? 1 : 0], inputs = found[0]->n[1];
    double            scale = tm_adapters_scale_of(&adapter->adapters, rank, module.alpha),
           *a = tm_alloc((size_t)(rank * inputs) * sizeof *a);
    expert_place  place = { .expert = 0 };
    bool          of_expert = expert_of(entry, &place);
    merged_matrix w = { .stored = stored, .b = found[1], .m = found[2], .a = a, .rank = rank, .inputs = inputs };
    w.scale = scale;
    w.row = place.up ? outputs : 0;
    w.columns = found[1]->n[1];
    w.step = of_expert ? found[1]->n[1] / rank : 1;
    w.expert = place.expert;
    for (int64_t i = 0; i < rank * inputs; i++) a[i] = tm_stored_value(found[0], place.expert * rank * inputs + i);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t o = 0; o < outputs; o++) merge_row(&w, o, across ? o : o * inputs, across ? outputs : 1, out);
    free(a);
}

tm_status tm_hf_adapter_check(const tm_hf_memory *memory, const tm_hf_adapter *adapter, tm_error *err)
{
    tm_hf_layout *layout;
    size_t        used = 0, n;
    TM_TRY(tm_hf_adapter_check_modules(memory, adapter, err));
    TM_TRY(tm_hf_layout_create(memory->graph, memory->shape, memory->form, &layout, err));
    tm_status               st = TM_OK;
    const tm_stored_tensor *all = tm_safetensors_list(adapter->weights, &n);
    bool                   *seen = tm_alloc((n + 1) * sizeof *seen);
    for (size_t i = 0; i < n; i++) {
        seen[i] = tm_hf_adapter_is_of_model(&all[i]);
        used += seen[i];
    }
    for (size_t i = 0; i < layout->n && st == TM_OK; i++) {
        const tm_stored_tensor *found[TM_HF_PARTS];
        st = tm_hf_merge_finds(adapter, memory->form, &layout->entries[i], found, err);
        for (int k = 0; k < TM_HF_PARTS && st == TM_OK; k++)
            if (found[k] && !seen[found[k] - all]) seen[found[k] - all] = true, used++;
    }
    for (size_t i = 0; i < n && st == TM_OK && used < n; i++)
        if (!seen[i])
            st = tm_fail(err, TM_FORMAT, "'%s' holds '%s', and the model has no such matrix", all[i].file, all[i].name);
    free(seen);
    tm_hf_layout_destroy(layout);
    return st;
}
