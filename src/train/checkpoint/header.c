/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/header.c - what a file of tensors says of itself to programs that read safetensors
 * (docs/checkpoints.md). We read by the index, which is sealed; nothing here is read back. */
#include "base/json.h"
#include "data/safetensors.h"
#include "train/checkpoint/saving.h"

#include <string.h>

/* The format of a tensor's elements: its own, or bytes where safetensors has no name for it or a part of the tensor
 * begins within an element. `pieces`: those of the record. */
static tm_dtype dtype_of(const tm_checkpoint_record *r, const tm_checkpoint_piece *pieces)
{
    const tm_dtype own = (tm_dtype)r->dtype;
    if (r->dtype >= TM_DTYPE_COUNT || !tm_safetensors_dtype_name(own) || tm_dtype_bits(own) % 8 != 0) return TM_U8;
    const uint64_t unit = (uint64_t)tm_dtype_bits(own) / 8;
    int64_t        bytes = (int64_t)unit;
    for (int axis = 0; axis < r->rank; axis++)
        if (__builtin_mul_overflow(bytes, r->n[axis], &bytes)) return TM_U8;
    bool fits = (uint64_t)bytes == r->bytes && r->row_bytes % unit == 0;
    for (size_t i = 0; i < r->n_pieces; i++)
        fits = fits && pieces[i].first_byte % unit == 0 && pieces[i].row_part % unit == 0;
    return fits ? own : TM_U8;
}

static bool is_whole(const tm_checkpoint_record *r, const tm_checkpoint_piece *p)
{
    return tm_checkpoint_piece_bytes(p) == r->bytes;
}

/* What a part of a tensor is a part of: {"dtype":"F32","shape":[5,6],"view":[30]}. */
static const char *describe_whole(tm_arena *arena, const tm_checkpoint_record *r, tm_dtype dtype)
{
    tm_text text = { 0 };
    tm_json json = { .out = &text };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "dtype", tm_safetensors_dtype_name(dtype));
    tm_json_open(&json, "shape", '[');
    for (int axis = 0; axis < r->rank && dtype == (tm_dtype)r->dtype; axis++) tm_json_i64(&json, NULL, r->n[axis]);
    if (dtype != (tm_dtype)r->dtype) tm_json_i64(&json, NULL, (int64_t)r->bytes);
    tm_json_close(&json, ']');
    tm_json_open(&json, "view", '[');
    if (r->row_bytes < r->bytes) tm_json_i64(&json, NULL, (int64_t)(r->bytes / r->row_bytes));
    tm_json_i64(&json, NULL, (int64_t)(r->row_bytes * 8) / tm_dtype_bits(dtype));
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    const char *out = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return out;
}

/* "name" with the tensor's shape; of a part "name[0:3,8:24]", a slice of the view. */
static tm_tensor_heading heading_of(tm_arena *arena, const tm_checkpoint_record *r, const tm_checkpoint_piece *p,
                                    tm_dtype dtype)
{
    tm_tensor_heading out = { .name = r->name, .dtype = dtype, .rank = r->rank };
    const uint64_t    unit = (uint64_t)tm_dtype_bits(out.dtype) / 8;
    if (is_whole(r, p)) {
        for (int axis = 0; axis < r->rank; axis++) out.n[axis] = r->n[axis];
        if (out.dtype == (tm_dtype)r->dtype) return out;
        out.rank = 1;
        out.n[0] = (int64_t)r->bytes;
        return out;
    }
    const unsigned long long first = p->first_byte / unit, last = first + p->row_part / unit;
    out.rank = r->row_bytes < r->bytes ? 2 : 1;
    out.n[out.rank - 1] = (int64_t)(last - first);
    if (out.rank == 1) {
        out.name = tm_arena_format(arena, "%s[%llu:%llu]", r->name, first, last);
        return out;
    }
    out.n[0] = (int64_t)p->rows;
    out.name = tm_arena_format(arena, "%s[%llu:%llu,%llu:%llu]", r->name, (unsigned long long)p->first_row,
                               (unsigned long long)(p->first_row + p->rows), first, last);
    return out;
}

/* Of several parts of a tensor the first one tells. */
static bool is_told(const char *(*about)[2], size_t n, const char *name)
{
    while (n > 0 && strcmp(about[n - 1][0], name) != 0) n--;
    return n > 0;
}

void saving_header(saver *s, tm_text *out)
{
    const tm_checkpoint_index *index = &s->index;
    tm_tensor_heading         *headings = tm_arena_take(s->arena, (index->n_pieces + 1) * sizeof *headings);
    const char *(*about)[2] = tm_arena_take(s->arena, (index->count + 2) * sizeof *about);
    size_t n = 0;
    about[n][0] = "step";
    about[n++][1] = tm_arena_format(s->arena, "%lld", (long long)index->state.step);
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *r = &index->records[i];
        const tm_checkpoint_piece  *p = &index->pieces[r->first_piece];
        const tm_dtype              dtype = dtype_of(r, p);
        for (size_t k = 0; k < r->n_pieces; k++) headings[r->first_piece + k] = heading_of(s->arena, r, &p[k], dtype);
        if (r->n_pieces == 0 || is_whole(r, p) || is_told(about, n, r->name)) continue;
        about[n][0] = r->name;
        about[n++][1] = describe_whole(s->arena, r, dtype);
    }
    about[n][0] = about[n][1] = NULL;
    tm_safetensors_header(out, headings, index->n_pieces, (const char *const(*)[2])about);
}
