/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/layout.h"

#include "base/text.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

/* --- names -------------------------------------------------------------------------------------------------------- */

void tm_hf_written_name(const tm_hf_form *form, const char *name, tm_text *out)
{
    bool plain = !form->prefix || (form->plain && strcmp(form->plain, name) == 0);
    tm_text_printf(out, "%s%s", plain ? "" : form->prefix, name);
}

const tm_stored_tensor *tm_hf_find(const tm_safetensors *set, const tm_hf_form *form, const char *name)
{
    const tm_stored_tensor *found = tm_safetensors_find(set, name);
    if (found || !form->prefix) return found;
    tm_text full = { 0 };
    tm_text_printf(&full, "%s%s", form->prefix, name);
    found = tm_safetensors_find(set, full.data);
    tm_text_fini(&full);
    return found;
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

/* A piece with the name that its tensor has in a file. */
typedef struct {
    const char         *name;
    const tm_hf_tensor *row;
    tm_hf_slice         slice;
} found_piece;

typedef struct {
    const tm_graph       *graph;
    const tm_model_shape *shape;
    const tm_hf_form     *form;
    tm_arena             *arena;
    found_piece          *pieces;
    size_t                n, capacity;
} builder;

static bool has(const char *pattern, const char *what)
{
    return strstr(pattern, what) != NULL;
}

bool tm_hf_holds(const tm_hf_form *form, const tm_tensor *tensor)
{
    int64_t numbers[2];
    if (tensor->base != TM_NONE || tensor->adapts != TM_NONE) return false;
    return tensor->role == TM_ROLE_PARAMETER ||
           (tensor->role == TM_ROLE_STATE && tm_hf_row_of(form, tensor->name, numbers));
}

static tm_status add_piece(builder *b, tm_tensor_id id, const tm_piece *piece, tm_error *err)
{
    const tm_tensor    *tensor = tm_graph_at(b->graph, id);
    int64_t             numbers[2] = { -1, -1 };
    const tm_hf_tensor *row = tm_hf_row_of(b->form, piece->name, numbers);
    if (!row)
        return tm_fail(err, TM_INTERNAL, "the piece '%s' of the %s family has no name in the table of model_type %s",
                       piece->name, tm_model_family_name(b->shape), b->form->model_type);
    tm_text name = { 0 };
    tm_hf_name(row->theirs, numbers, &name);
    int64_t columns = tensor->shape.rank >= 2 ? tensor->shape.n[tensor->shape.rank - 1] : 1;
    b->pieces = tm_grow(b->pieces, &b->capacity, b->n, sizeof *b->pieces);
    b->pieces[b->n] = (found_piece){
        .name = tm_arena_text(b->arena, name.data),
        .row = row,
        .slice = { .parameter = id,
                   .piece = piece->name,
                   .first = piece->row * columns,
                   .rows = piece->rows,
                   .columns = columns,
                   .part = row->part,
                   .expert = has(row->ours, "{e}") && !has(row->theirs, "{e}") ? numbers[1] : 0,
                   .rotary = row->rotary && b->shape->rope_interleaved ? b->shape->head_dim : 0 },
    };
    b->n++;
    tm_text_fini(&name);
    return TM_OK;
}

/* Equal names together, experts and parts in order. */
static int by_name(const void *a, const void *b)
{
    const found_piece *x = a, *y = b;
    int                names = strcmp(x->name, y->name);
    if (names) return names;
    if (x->slice.expert != y->slice.expert) return x->slice.expert < y->slice.expert ? -1 : 1;
    return x->slice.part < y->slice.part ? -1 : x->slice.part > y->slice.part;
}

static tm_status does_not_fit(const found_piece *p, tm_error *err)
{
    return tm_fail(err, TM_INTERNAL, "the pieces of '%s' do not make up one tensor ('%s')", p->name, p->slice.piece);
}

/* Makes the tensor of pieces[0 .. n-1], which have one name. */
static tm_status join(const builder *b, const found_piece *pieces, size_t n, tm_hf_entry *out, tm_error *err)
{
    const found_piece *p = &pieces[0];
    int64_t            parts = p->row->parts > 1 ? p->row->parts : 1, experts = (int64_t)n / parts;
    int64_t            rows = p->slice.rows * parts, columns = p->slice.columns, matrix = rows * columns;
    bool               axis = has(p->row->ours, "{e}") && !has(p->row->theirs, "{e}"), across = p->row->transposed;
    bool               vector = tm_graph_at(b->graph, p->slice.parameter)->shape.rank == 1;
    *out = (tm_hf_entry){ .name = p->name, .row = p->row, .n_slices = n, .elements = experts * matrix };
    out->slices = tm_arena_take(b->arena, n * sizeof *out->slices);
    if ((!axis && experts != 1) || experts * parts != (int64_t)n) return does_not_fit(p, err);
    if (axis) out->n[out->rank++] = experts;
    out->n[out->rank++] = across ? columns : rows;
    if (!vector) out->n[out->rank++] = across ? rows : columns;
    for (size_t i = 0; i < n; i++) {
        tm_hf_slice s = pieces[i].slice;
        int64_t     part = (int64_t)i % parts;
        if (s.expert != (int64_t)i / parts || s.part != part || s.rows != p->slice.rows || s.columns != columns)
            return does_not_fit(&pieces[i], err);
        bool    turns = p->row->interleaved && parts > 1;
        int64_t begin = turns ? part : part * s.rows, step = turns ? parts : 1;
        s.row_step = step * (across ? 1 : columns);
        s.column_step = across ? rows : 1;
        s.start = s.expert * matrix + begin * (across ? 1 : columns);
        out->slices[i] = s;
    }
    return TM_OK;
}

static int by_order(const void *a, const void *b)
{
    const tm_hf_entry *x = a, *y = b;
    if (x->slices[0].parameter != y->slices[0].parameter)
        return x->slices[0].parameter < y->slices[0].parameter ? -1 : 1;
    return x->slices[0].first < y->slices[0].first ? -1 : x->slices[0].first > y->slices[0].first;
}

static tm_status build(builder *b, tm_hf_layout *layout, tm_error *err)
{
    for (size_t t = 0; t < b->graph->n_tensors; t++) {
        const tm_tensor *tensor = &b->graph->tensors[t];
        if (!tm_hf_holds(b->form, tensor)) continue;
        const tm_piece state = { .name = tensor->name, .rows = tensor->shape.n[0] };
        if (tensor->role == TM_ROLE_STATE) TM_TRY(add_piece(b, (tm_tensor_id)t, &state, err));
        for (int p = 0; p < tensor->n_pieces; p++) TM_TRY(add_piece(b, (tm_tensor_id)t, &tensor->pieces[p], err));
    }
    qsort(b->pieces, b->n, sizeof *b->pieces, by_name);
    layout->entries = tm_arena_take(b->arena, b->n * sizeof *layout->entries);
    for (size_t from = 0, to; from < b->n; from = to) {
        for (to = from + 1; to < b->n && strcmp(b->pieces[to].name, b->pieces[from].name) == 0;) to++;
        TM_TRY(join(b, &b->pieces[from], to - from, &layout->entries[layout->n++], err));
    }
    qsort(layout->entries, layout->n, sizeof *layout->entries, by_order);
    return TM_OK;
}

tm_status tm_hf_layout_create(const tm_graph *graph, const tm_model_shape *shape, const tm_hf_form *form,
                              tm_hf_layout **out, tm_error *err)
{
    tm_hf_layout *layout = tm_alloc(sizeof *layout);
    layout->arena = tm_arena_create();
    builder   b = { .graph = graph, .shape = shape, .form = form, .arena = layout->arena };
    tm_status st = build(&b, layout, err);
    free(b.pieces);
    if (st != TM_OK) {
        tm_hf_layout_destroy(layout);
        return st;
    }
    *out = layout;
    return TM_OK;
}

/* --- parts of a model --------------------------------------------------------------------------------------------- */

/* The next one behind `after` (TM_NONE: the first): what ranks divide may be several parts here. */
static tm_tensor_id find_named(const tm_graph *graph, const tm_tensor *like, tm_tensor_id after)
{
    for (size_t i = (size_t)(after + 1); i < graph->n_tensors; i++)
        if (graph->tensors[i].role == like->role && strcmp(graph->tensors[i].name, like->name) == 0)
            return (tm_tensor_id)i;
    return TM_NONE;
}

/* What of slice `s` of a whole parameter is in piece `p` of the same parameter here; false: nothing. */
static bool cut_slice(const tm_tensor *here, const tm_piece *p, const tm_hf_slice *s, tm_hf_slice *out)
{
    int64_t row = s->first / s->columns, begin = here->cut ? p->begin : p->row, end = begin + p->rows;
    int64_t from = begin > row ? begin : row, to = end < row + s->rows ? end : row + s->rows;
    if (from >= to) return false;
    *out = *s;
    out->columns = here->shape.rank >= 2 ? tm_piece_row(here->shape) : 1;
    out->rows = to - from;
    out->first = (p->row + from - begin) * out->columns;
    out->skip = from - row;
    out->column = here->cut ? here->cut->column : 0;
    return true;
}

static void localise(tm_arena *arena, const tm_graph *whole, const tm_graph *graph, tm_hf_entry *entry)
{
    tm_hf_slice *slices = NULL, one;
    size_t       n = 0, capacity = 0;
    for (size_t k = 0; k < entry->n_slices; k++) {
        tm_hf_slice      s = entry->slices[k];
        const tm_tensor *of = tm_graph_at(whole, s.parameter);
        s.parameter = TM_NONE;
        while ((s.parameter = find_named(graph, of, s.parameter)) != TM_NONE) {
            const tm_tensor *here = tm_graph_at(graph, s.parameter);
            const tm_piece   all = { .rows = tm_shape_elements(here->shape) / tm_piece_row(here->shape) };
            int              pieces = here->n_pieces > 0 ? here->n_pieces : 1;
            for (int p = 0; p < pieces; p++) {
                if (!cut_slice(here, here->n_pieces > 0 ? &here->pieces[p] : &all, &s, &one)) continue;
                slices = tm_grow(slices, &capacity, n, sizeof *slices);
                slices[n++] = one;
            }
        }
    }
    entry->slices = tm_arena_take(arena, (n + 1) * sizeof *slices);
    if (n > 0) memcpy(entry->slices, slices, n * sizeof *slices);
    entry->n_slices = n;
    free(slices);
}

void tm_hf_localise(tm_hf_layout *layout, const tm_graph *whole, const tm_graph *graph)
{
    for (size_t i = 0; i < layout->n; i++) {
        for (size_t k = 0; k < layout->entries[i].n_slices; k++) /* names outlive the graph that they are from */
            layout->entries[i].slices[k].piece = tm_arena_text(layout->arena, layout->entries[i].slices[k].piece);
        localise(layout->arena, whole, graph, &layout->entries[i]);
    }
}

tm_status tm_hf_part_layout_create(const tm_graph *graph, const tm_model_shape *shape, const tm_hf_form *form,
                                   tm_hf_layout **out, tm_error *err)
{
    tm_graph     *whole = tm_graph_create(graph->precision);
    tm_model      model;
    tm_hf_layout *layout = NULL;
    tm_model_declare(whole, shape, 1, NULL, &model);
    tm_status st = tm_hf_layout_create(whole, shape, form, &layout, err);
    if (st == TM_OK) tm_hf_localise(layout, whole, graph);
    tm_graph_destroy(whole);
    if (st == TM_OK) *out = layout;
    return st;
}

void tm_hf_layout_destroy(tm_hf_layout *layout)
{
    if (!layout) return;
    tm_arena_destroy(layout->arena);
    free(layout);
}
