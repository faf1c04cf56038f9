/* SPDX-License-Identifier: Apache-2.0 */
/* hf/layout.h - which tensors a Hugging Face file of a model has, and where each of their elements is in our
 * parameters and state. Made of the pieces of a graph and the rows of a form. Private to hf/. */
#ifndef TM_HF_LAYOUT_H
#define TM_HF_LAYOUT_H

#include "base/arena.h"
#include "data/safetensors.h"
#include "hf/folder.h"

/* A piece as a part of one of their tensors: its element (r, c) is their element
 *     start + r' row_step + (column + c) column_step,    r' = tm_hf_row(slice, r) */
typedef struct {
    tm_tensor_id parameter;
    const char  *piece;
    int64_t      first;         /* of its elements in the parameter */
    int64_t      rows, columns; /* columns 1: a vector */
    int64_t      expert, part;
    int64_t      start, row_step, column_step;
    int64_t skip, column; /* of a parameter that is cut: row and column of the piece that are the first ones here */
    int64_t rotary;       /* > 0: width D of a head whose rows are pairs (2i, 2i + 1) here, (i, i + D/2) there */
} tm_hf_slice;

typedef struct {
    const char         *name; /* without prefix */
    const tm_hf_tensor *row;
    int                 rank;
    int64_t             n[3], elements;
    tm_hf_slice        *slices;
    size_t              n_slices;
} tm_hf_entry;

typedef struct {
    tm_arena    *arena;
    tm_hf_entry *entries; /* in the order of our tensors */
    size_t       n;
} tm_hf_layout;

/* TM_INTERNAL when a piece has no row, or rows do not fit together: a hole in the table of the family. */
TM_MUST_USE tm_status tm_hf_layout_create(const tm_graph *graph, const tm_model_shape *shape, const tm_hf_form *form,
                                          tm_hf_layout **out, tm_error *err);
/* The same of what a rank has of a model that is divided: all tensors of the whole model, and of each the slices that
 * are in the graph, maybe none. */
TM_MUST_USE tm_status tm_hf_part_layout_create(const tm_graph *graph, const tm_model_shape *shape,
                                               const tm_hf_form *form, tm_hf_layout **out, tm_error *err);
/* Of a layout of the graph `whole`: of every tensor the slices that are in `graph`, under their parameters there. */
void tm_hf_localise(tm_hf_layout *layout, const tm_graph *whole, const tm_graph *graph);
void tm_hf_layout_destroy(tm_hf_layout *layout); /* NULL is fine */

/* The same of the adapters of a graph, whose tensors are named as PEFT has them. TM_UNSUPPORTED: an adapter that has no
 * such tensors. */
TM_MUST_USE tm_status tm_hf_adapter_layout_create(const tm_graph *graph, const tm_model_shape *shape,
                                                  const tm_hf_form *form, tm_hf_layout **out, tm_error *err);
/* The module of transformers that the tensor of an expert ("model.layers.0.mlp.experts.3.w1.weight") is kept in with
 * those of all experts, as PEFT calls it: "model.layers.0.mlp.experts", with `inner` the one within (adapter_layout.c).
 * NULL: it is of no expert. */
const char *tm_hf_experts_module(tm_arena *arena, const char *name, bool inner);
/* All elements of a tensor of such a layout, by memory->read (adapter.c). */
TM_MUST_USE tm_status tm_hf_adapter_read(const tm_hf_memory *memory, const tm_hf_entry *entry, float *out,
                                         tm_error *err);
/* The adapter that the rows of a slice have, of a matrix that is of no expert; NULL: none. */
const tm_adapter *tm_hf_adapter_of(const tm_graph *graph, const tm_hf_entry *entry, size_t slice);
/* Has any row of the matrix, which is of no expert, an adapter? */
bool tm_hf_adapted(const tm_graph *graph, const tm_hf_entry *entry);

/* Their row of our row r, within the slice. */
static inline int64_t tm_hf_row(const tm_hf_slice *slice, int64_t r)
{
    r += slice->skip;
    if (slice->rotary == 0) return r;
    int64_t k = r % slice->rotary;
    return r - k + k % 2 * (slice->rotary / 2) + k / 2;
}

/* Is the tensor in the files? Parameters are, but for adapters', and state that has a row. */
bool tm_hf_holds(const tm_hf_form *form, const tm_tensor *tensor);
/* Finds the tensor of every entry (found[i] of entries[i]) and checks that nothing is missing, left over, of another
 * shape or of no floating format: see tm_hf_load. Fills *report. Of `memory` only graph, shape and form are used. */
TM_MUST_USE tm_status tm_hf_check(const tm_hf_memory *memory, const tm_hf_layout *layout, const tm_safetensors *weights,
                                  const tm_stored_tensor **found, tm_hf_report *report, tm_error *err);
/* TM_FORMAT: not the shape of the entry; TM_UNSUPPORTED: no format of weights. */
TM_MUST_USE tm_status tm_hf_check_shape(const tm_hf_entry *entry, const tm_stored_tensor *stored, tm_error *err);
/* Converts the tensors found[i] of entries[i] into the parameters. */
TM_MUST_USE tm_status tm_hf_fill(const tm_hf_memory *memory, const tm_hf_layout *layout,
                                 const tm_stored_tensor *const *found, int threads, tm_error *err);
/* A name as it is written: with the form's prefix. Appends. */
void tm_hf_written_name(const tm_hf_form *form, const char *name, tm_text *out);
/* A tensor of a file under its name with or without the form's prefix. */
const tm_stored_tensor *tm_hf_find(const tm_safetensors *set, const tm_hf_form *form, const char *name);

#endif
