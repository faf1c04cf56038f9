/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/numerics.h"

#include "base/json.h"
#include "graph/value.h"
#include "hf/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 /* bytes that are copied from the device at a time */ };

tm_step_options tm_numerics_step(const tm_model_shape *shape, const tm_precision *precision, int64_t seq)
{
    return (tm_step_options){ .shape = *shape,
                              .precision = precision,
                              .micro_batch = 1,
                              .seq = seq,
                              .accumulation = 1,
                              .recompute = { .cheap = true },
                              .optimizer = tm_optimizer_find("SGD"),
                              .sample = true };
}

/* Calls of tm_trainer_read by elements: `n` values of a tensor from element `first` on, as doubles. */
static tm_status read_values(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *out,
                             tm_error *err)
{
    tm_dtype  dtype = tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->dtype;
    size_t    size = tm_dtype_bytes(dtype);
    void     *stored = tm_alloc((size_t)n * size);
    tm_status st = tm_trainer_read(trainer, id, (size_t)first * size, stored, (size_t)n * size, err);
    for (int64_t i = 0; st == TM_OK && i < n; i++) out[i] = tm_value_get(stored, dtype, i);
    free(stored);
    return st;
}

/* *sum += squares of elements [first, first + n). */
static tm_status add_squares(const tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *sum,
                             tm_error *err)
{
    enum { AT_ONCE = CHUNK / sizeof(double) };
    double   *values = tm_alloc(CHUNK);
    tm_status st = TM_OK;
    for (int64_t i = 0; i < n && st == TM_OK; i += AT_ONCE) {
        int64_t count = n - i < AT_ONCE ? n - i : AT_ONCE;
        st = read_values(trainer, id, first + i, count, values, err);
        for (int64_t k = 0; st == TM_OK && k < count; k++) *sum += values[k] * values[k];
    }
    free(values);
    return st;
}

static const char *file_name(const tm_hf_entry *entry, const tm_hf_form *form, const tm_safetensors *weights,
                             tm_arena *arena)
{
    const tm_stored_tensor *stored = weights ? tm_hf_find(weights, form, entry->name) : NULL;
    if (stored) return tm_arena_text(arena, stored->name);
    tm_text text = { 0 };
    tm_hf_written_name(form, entry->name, &text);
    const char *name = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return name;
}

static tm_status read_gradients(const tm_trainer *trainer, const tm_hf_layout *layout, const tm_hf_form *form,
                                const tm_safetensors *weights, tm_numerics *out, tm_error *err)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    bool            adapters = tm_trainer_step_of(trainer)->options.adapters.rank > 0;
    double          all = 0;
    out->gradients = tm_alloc(layout->n * sizeof *out->gradients);
    for (size_t i = 0; i < layout->n; i++) {
        const tm_hf_entry *entry = &layout->entries[i];
        double             sum = 0;
        if (tm_graph_at(graph, entry->slices[0].parameter)->role != TM_ROLE_PARAMETER) continue;
        for (size_t k = 0; k < entry->n_slices; k++) {
            const tm_hf_slice *slice = &entry->slices[k];
            tm_tensor_id       gradient = tm_graph_at(graph, slice->parameter)->gradient;
            TM_ASSERT(gradient != TM_NONE);
            TM_TRY(add_squares(trainer, gradient, slice->first, slice->rows * slice->columns, &sum, err));
        }
        const char *name =
            adapters ? tm_arena_text(out->arena, entry->name) : file_name(entry, form, weights, out->arena);
        out->gradients[out->n_gradients++] = (tm_hf_gradient){ name, sqrt(sum) };
        out->parameters += entry->elements;
        all += sum;
    }
    out->gradient_norm = sqrt(all);
    return TM_OK;
}

static tm_status read_logits(tm_trainer *trainer, const int32_t *ids, tm_numerics *out, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    out->vocab = step->options.shape.vocab_size;
    out->first = tm_alloc((size_t)out->vocab * sizeof *out->first);
    out->last = tm_alloc((size_t)out->vocab * sizeof *out->last);
    TM_TRY(tm_trainer_logits(trainer, ids, 0, out->first, err));
    return tm_trainer_logits(trainer, ids, (int32_t)(step->options.seq - 1), out->last, err);
}

/* Loss and gradients of a micro-batch. */
static tm_status compute(tm_trainer *trainer, const tm_hf_form *form, const tm_safetensors *weights,
                         const tm_micro_batch *batch, tm_numerics *out, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    double         loss;
    tm_hf_layout  *layout;
    TM_TRY(tm_trainer_begin(trainer, 1, 0, 0, batch->target_tokens, err));
    TM_TRY(tm_trainer_accumulate(trainer, 0, batch, NULL, err));
    TM_TRY(tm_trainer_read(trainer, step->loss, 0, &loss, sizeof loss, err));
    out->loss = loss / (double)batch->target_tokens;
    TM_TRY((step->options.adapters.rank > 0 ? tm_hf_adapter_layout_create : tm_hf_layout_create)(
        step->graph, &step->options.shape, form, &layout, err));
    tm_status st = read_gradients(trainer, layout, form, weights, out, err);
    tm_hf_layout_destroy(layout);
    return st;
}

tm_micro_batch tm_numerics_batch(const int32_t *ids, int64_t seq)
{
    return (tm_micro_batch){ .field = { ids, ids + 1 }, .target_tokens = seq };
}

tm_micro_batch tm_numerics_image_batch(const tm_numerics_image *image)
{
    tm_micro_batch batch = { .target_tokens = image->elements };
    for (int f = 0; f < TM_NUMERICS_FIELDS; f++) batch.field[f] = image->field[f];
    return batch;
}

tm_status tm_numerics_read(tm_trainer *trainer, const tm_hf_form *form, const tm_safetensors *weights,
                           const int32_t *ids, tm_numerics *out, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    tm_micro_batch batch = tm_numerics_batch(ids, step->options.seq);
    *out = (tm_numerics){ .tokens = step->options.seq, .arena = tm_arena_create() };
    TM_TRY(read_logits(trainer, ids, out, err));
    return compute(trainer, form, weights, &batch, out, err);
}

tm_status tm_numerics_read_image(tm_trainer *trainer, const tm_hf_form *form, const tm_safetensors *weights,
                                 const tm_numerics_image *image, tm_numerics *out, tm_error *err)
{
    tm_micro_batch batch = tm_numerics_image_batch(image);
    *out = (tm_numerics){ .arena = tm_arena_create() };
    return compute(trainer, form, weights, &batch, out, err);
}

void tm_numerics_fini(tm_numerics *numerics)
{
    free(numerics->gradients);
    free(numerics->first);
    free(numerics->last);
    tm_arena_destroy(numerics->arena);
    *numerics = (tm_numerics){ 0 };
}

static void json_row(tm_json *json, const char *key, const double *values, int64_t n)
{
    tm_json_open(json, key, '[');
    for (int64_t i = 0; i < n; i++) tm_json_f64(json, NULL, values[i]);
    tm_json_close(json, ']');
}

void tm_numerics_json(const tm_numerics *numerics, tm_json *json)
{
    tm_json_f64(json, "loss", numerics->loss);
    tm_json_i64(json, "parameters", numerics->parameters);
    if (numerics->tokens) tm_json_i64(json, "tokens", numerics->tokens);
    tm_json_f64(json, "gradient_norm", numerics->gradient_norm);
    tm_json_open(json, "gradients", '{');
    for (size_t i = 0; i < numerics->n_gradients; i++)
        tm_json_f64(json, numerics->gradients[i].name, numerics->gradients[i].norm);
    tm_json_close(json, '}');
    if (numerics->tokens) {
        json_row(json, "first_logits", numerics->first, numerics->vocab);
        json_row(json, "last_logits", numerics->last, numerics->vocab);
    }
}
