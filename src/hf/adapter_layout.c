/* SPDX-License-Identifier: Apache-2.0 */
/* hf/adapter_layout.c - the tensors of an adapter's file, made from those of the model: every matrix of the model's
 * files whose rows are adapted has an A and a B. Several of them share an A where our fused matrix has one adapter. */
#include "hf/layout.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* The adapter of its matrix, of whose part *part a slice's rows are, or NULL; *row: of its first one in the part. */
static const tm_adapter *part_of(const tm_adapter *adapter, int64_t first_row, int64_t rows, int *part, int64_t *row)
{
    for (; adapter; adapter = adapter->next)
        for (int p = 0; p < adapter->attr.parts; p++) {
            int64_t begin = adapter->attr.part[p].column, end = begin + adapter->attr.part[p].rows;
            *row = first_row - begin;
            *part = p;
            if (first_row >= begin && first_row + rows <= end) return adapter;
        }
    return NULL;
}

/* Row of b that a part begins with. */
static int64_t row_of_part(const tm_adapter *adapter, int part)
{
    int64_t row = 0;
    for (int p = 0; p < part; p++) row += adapter->attr.part[p].rows;
    return row;
}

/* `what`: "lora_A.weight" */
static const char *name_of(tm_arena *arena, const tm_hf_form *form, const char *base, const char *what)
{
    static const char suffix[] = ".weight";
    tm_text           name = { 0 };
    tm_text_add(&name, "base_model.model.");
    tm_hf_written_name(form, base, &name);
    size_t n = sizeof suffix - 1;
    if (name.length > n && strcmp(name.data + name.length - n, suffix) == 0) name.data[name.length -= n] = '\0';
    tm_text_printf(&name, ".%s", what);
    const char *copy = tm_arena_text(arena, name.data);
    tm_text_fini(&name);
    return copy;
}

static const tm_hf_tensor plain = { .ours = "" };

/* One value where `b` has a row. */
static void add_lengths(const tm_hf_form *form, const tm_hf_entry *of, tm_tensor_id m, const tm_hf_entry *b,
                        tm_hf_layout *out)
{
    int64_t      rank = b->n[1];
    tm_hf_slice *lengths = tm_arena_take(out->arena, b->n_slices * sizeof *lengths);
    for (size_t i = 0; i < b->n_slices; i++) {
        lengths[i] = b->slices[i];
        lengths[i].parameter = m;
        lengths[i].first /= rank;
        lengths[i].columns = 1;
        lengths[i].start /= rank;
        lengths[i].row_step /= rank;
    }
    out->entries[out->n++] = (tm_hf_entry){ .name = name_of(out->arena, form, of->name, "lora_magnitude_vector"),
                                            .row = &plain,
                                            .rank = 1,
                                            .n = { b->n[0] },
                                            .elements = b->n[0],
                                            .slices = lengths,
                                            .n_slices = b->n_slices };
}

static tm_status add_matrix(const tm_graph *graph, const tm_hf_form *form, const tm_hf_entry *of, tm_hf_layout *out,
                            tm_error *err)
{
    const tm_tensor  *matrix = tm_graph_at(graph, of->slices[0].parameter);
    int64_t           width = matrix->shape.n[1], outputs = of->elements / width, row = 0, rank;
    int               part = 0, other = 0;
    const tm_adapter *adapter = part_of(matrix->adapter, of->slices[0].first / width, of->slices[0].rows, &part, &row);
    bool              across = of->row->transposed;
    tm_hf_slice      *a = tm_arena_take(out->arena, sizeof *a);
    tm_hf_slice      *b = tm_arena_take(out->arena, of->n_slices * sizeof *b);
    rank = adapter ? adapter->attr.rank : 0; /* none: refused below */
    *a = (tm_hf_slice){ .parameter = adapter ? adapter->a : TM_NONE,
                        .piece = of->slices[0].piece,
                        .first = part * rank * width,
                        .rows = rank,
                        .columns = width,
                        .row_step = width,
                        .column_step = 1 };
    for (size_t i = 0; i < of->n_slices; i++) {
        const tm_hf_slice *s = &of->slices[i];
        const tm_adapter  *its = part_of(matrix->adapter, s->first / width, s->rows, &other, &row);
        if (s->parameter != of->slices[0].parameter || !its || its != adapter || other != part)
            return tm_fail(err, TM_UNSUPPORTED,
                           "'%s' is one matrix in files, of which '%s' has an adapter of its own; "
                           "name the whole in lora.targets",
                           of->name, s->piece);
        b[i] = *s;
        b[i].parameter = adapter->b;
        b[i].first = (row_of_part(adapter, part) + row) * rank;
        b[i].columns = rank;
        b[i].start = (across ? s->start : s->start / width) * rank;
        b[i].row_step = (across ? s->row_step : s->row_step / width) * rank;
        b[i].column_step = 1;
    }
    out->entries[out->n++] = (tm_hf_entry){ .name = name_of(out->arena, form, of->name, "lora_A.weight"),
                                            .row = &plain,
                                            .rank = 2,
                                            .n = { rank, width },
                                            .elements = rank * width,
                                            .slices = a,
                                            .n_slices = 1 };
    out->entries[out->n++] = (tm_hf_entry){ .name = name_of(out->arena, form, of->name, "lora_B.weight"),
                                            .row = &plain,
                                            .rank = 2,
                                            .n = { outputs, rank },
                                            .elements = outputs * rank,
                                            .slices = b,
                                            .n_slices = of->n_slices };
    if (adapter->m != TM_NONE) add_lengths(form, of, adapter->m, &out->entries[out->n - 1], out);
    return TM_OK;
}

/* --- experts: one A and one B of all of them, as PEFT has them for transformers' fused matrices ---------------------
 *
 *     A (E r, in): row e r + k,   B (out, r E): column k E + e        of expert e and rank k
 *
 * The module is "...mlp.experts"; where both of its matrices are adapted, that of gate_up_proj is called
 * "...mlp.experts.base_layer". */

/* "model.layers.0.block_sparse_moe.experts.3.w1.weight" to "model.layers.0.mlp.experts". */
const char *tm_hf_experts_module(tm_arena *arena, const char *name, bool inner)
{
    static const char there[] = ".experts.", old[] = ".block_sparse_moe";
    const char       *end = strstr(name, there), *begin = strstr(name, old);
    if (!end) return NULL;
    tm_text text = { 0 };
    tm_text_printf(&text, "%.*s", (int)((begin && begin < end ? begin : end) - name), name);
    if (begin && begin < end) tm_text_add(&text, ".mlp");
    tm_text_printf(&text, ".experts%s", inner ? ".base_layer" : "");
    const char *copy = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return copy;
}

/* Has the other matrix of the same mixture an adapter, too? */
static bool has_both(const tm_graph *graph, int layer)
{
    int n = 0;
    for (size_t i = 0; i < graph->n_tensors; i++)
        n += graph->tensors[i].layer == layer && graph->tensors[i].shape.rank == 3 && graph->tensors[i].adapter;
    return n == 2;
}

static void add_experts(const tm_graph *graph, const tm_hf_form *form, const tm_hf_entry *of, tm_hf_layout *out)
{
    const tm_tensor  *matrix = tm_graph_at(graph, of->slices[0].parameter);
    const tm_adapter *adapter = matrix->adapter;
    int64_t           n = matrix->shape.n[0], rows = matrix->shape.n[1], width = matrix->shape.n[2];
    int64_t           rank = adapter->attr.rank;
    bool              inner = strstr(matrix->name, ".w13.") && has_both(graph, matrix->layer);
    const char       *module = tm_hf_experts_module(out->arena, of->name, inner);
    tm_hf_slice      *a = tm_arena_take(out->arena, sizeof *a), *b = tm_arena_take(out->arena, (size_t)n * sizeof *b);
    *a = (tm_hf_slice){ .parameter = adapter->a,
                        .piece = of->slices[0].piece,
                        .rows = n * rank,
                        .columns = width,
                        .row_step = width,
                        .column_step = 1 };
    for (int64_t e = 0; e < n; e++)
        b[e] = (tm_hf_slice){ .parameter = adapter->b,
                              .piece = of->slices[0].piece,
                              .first = e * rows * rank,
                              .rows = rows,
                              .columns = rank,
                              .start = e,
                              .row_step = rank * n,
                              .column_step = n };
    out->entries[out->n++] = (tm_hf_entry){ .name = name_of(out->arena, form, module, "lora_A.weight"),
                                            .row = &plain,
                                            .rank = 2,
                                            .n = { n * rank, width },
                                            .elements = n * rank * width,
                                            .slices = a,
                                            .n_slices = 1 };
    out->entries[out->n++] = (tm_hf_entry){ .name = name_of(out->arena, form, module, "lora_B.weight"),
                                            .row = &plain,
                                            .rank = 2,
                                            .n = { rows, n * rank },
                                            .elements = rows * n * rank,
                                            .slices = b,
                                            .n_slices = (size_t)n };
}

/* Is it the first of the tensors that make up an adapted matrix of experts? */
static bool begins_experts(const tm_graph *graph, const tm_hf_entry *entry)
{
    const tm_tensor *tensor = tm_graph_at(graph, entry->slices[0].parameter);
    return tensor->shape.rank == 3 && tensor->adapter && entry->slices[0].first == 0;
}

const tm_adapter *tm_hf_adapter_of(const tm_graph *graph, const tm_hf_entry *entry, size_t slice)
{
    const tm_hf_slice *s = &entry->slices[slice];
    const tm_tensor   *tensor = tm_graph_at(graph, s->parameter);
    int64_t            row;
    int                part;
    return tensor->shape.rank == 2 ? part_of(tensor->adapter, s->first / tensor->shape.n[1], s->rows, &part, &row)
                                   : NULL;
}

bool tm_hf_adapted(const tm_graph *graph, const tm_hf_entry *entry)
{
    for (size_t i = 0; i < entry->n_slices; i++)
        if (tm_hf_adapter_of(graph, entry, i)) return true;
    return false;
}

/* Adapters that experts share have no place in such a file. */
static tm_status check_shared(const tm_graph *graph, tm_error *err)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *of = &graph->tensors[i];
        if (of->shape.rank != 3 || !of->adapter) continue;
        if (tm_graph_at(graph, of->adapter->a)->shape.n[0] != of->shape.n[0])
            return tm_fail(err, TM_UNSUPPORTED,
                           "the adapter of '%s' is one of all experts (lora.experts shared), and PEFT's files have one "
                           "of each; train with lora.experts each, or go on from the checkpoint",
                           of->name);
    }
    return TM_OK;
}

tm_status tm_hf_adapter_layout_create(const tm_graph *graph, const tm_model_shape *shape, const tm_hf_form *form,
                                      tm_hf_layout **out, tm_error *err)
{
    tm_hf_layout *base;
    TM_TRY(check_shared(graph, err));
    TM_TRY(tm_hf_layout_create(graph, shape, form, &base, err));
    tm_hf_layout *layout = tm_alloc(sizeof *layout);
    tm_status     st = TM_OK;
    *layout = (tm_hf_layout){ .arena = tm_arena_create() };
    layout->entries = tm_arena_take(layout->arena, (3 * base->n + 1) * sizeof *layout->entries);
    for (size_t i = 0; i < base->n && st == TM_OK; i++) {
        if (begins_experts(graph, &base->entries[i])) add_experts(graph, form, &base->entries[i], layout);
        if (tm_hf_adapted(graph, &base->entries[i])) st = add_matrix(graph, form, &base->entries[i], layout, err);
    }
    tm_hf_layout_destroy(base);
    if (st == TM_OK) *out = layout;
    if (st != TM_OK) tm_hf_layout_destroy(layout);
    return st;
}
