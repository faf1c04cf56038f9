/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/merge.h"

#include "base/text.h"
#include "hf/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In the files of an adapter. */
static const tm_stored_tensor *find(const tm_hf_adapter *adapter, const tm_hf_form *form, const tm_hf_entry *entry,
                                    const char *what)
{
    tm_text name = { 0 };
    tm_text_add(&name, "base_model.model.");
    tm_hf_written_name(form, entry->name, &name);
    if (name.length > 7) name.data[name.length -= 7] = '\0'; /* ".weight" */
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
    bool    across = entry->row->transposed;
    int64_t outputs = entry->n[across ? 1 : 0], inputs = entry->n[across ? 0 : 1];
    if (found[0] && found[1] && has_shape(found[0], adapter->adapters.rank, inputs) &&
        has_shape(found[1], outputs, adapter->adapters.rank) && (!dora || has_lengths(found[2], outputs)))
        return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%.300s': the adapter of '%s' must have A (%lld, %lld) and B (%lld, %lld)%s",
                   adapter->folder, entry->name, (long long)adapter->adapters.rank, (long long)inputs,
                   (long long)outputs, (long long)adapter->adapters.rank,
                   dora ? ", and as many values of lora_magnitude_vector as B has rows" : "");
}

/* Row o of a matrix: `at` its first element, `step` from one to the next. */
static void merge_row(const tm_stored_tensor *stored, int64_t at, int64_t step, const tm_stored_tensor *const found[],
                      int64_t o, const double *a, double scale, float *out)
{
    int64_t rank = found[0]->n[0], inputs = found[0]->n[1];
    double *row = tm_alloc((size_t)inputs * sizeof *row), squares = 0, factor = 1;
    for (int64_t i = 0; i < inputs; i++) {
        double sum = 0;
        for (int64_t k = 0; k < rank; k++) sum += tm_stored_value(found[1], o * rank + k) * a[k * inputs + i];
        row[i] = tm_stored_value(stored, at + i * step) + scale * sum;
        squares += row[i] * row[i];
    }
    if (found[2]) factor = tm_stored_value(found[2], o) / sqrt(squares);
    for (int64_t i = 0; i < inputs; i++) out[at + i * step] = (float)(factor * row[i]);
    free(row);
}

void tm_hf_merge(const tm_hf_adapter *adapter, const tm_hf_entry *entry, const tm_stored_tensor *stored,
                 const tm_stored_tensor *const found[TM_HF_PARTS], int threads, float *out)
{
    bool    across = entry->row->transposed;
    int64_t rank = adapter->adapters.rank, outputs = found[1]->n[0], inputs = found[0]->n[1];
    double  scale = tm_adapters_scale(&adapter->adapters), *a = tm_alloc((size_t)(rank * inputs) * sizeof *a);
    for (int64_t i = 0; i < rank * inputs; i++) a[i] = tm_stored_value(found[0], i);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t o = 0; o < outputs; o++)
        merge_row(stored, across ? o : o * inputs, across ? outputs : 1, found, o, a, scale, out);
    free(a);
}

tm_status tm_hf_adapter_check(const tm_hf_memory *memory, const tm_hf_adapter *adapter, tm_error *err)
{
    tm_hf_layout *layout;
    size_t        used = 0, n;
    TM_TRY(tm_hf_layout_create(memory->graph, memory->shape, memory->form, &layout, err));
    tm_status               st = TM_OK;
    const tm_stored_tensor *all = tm_safetensors_list(adapter->weights, &n);
    bool                   *seen = tm_alloc((n + 1) * sizeof *seen);
    memset(seen, 0, n * sizeof *seen);
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
