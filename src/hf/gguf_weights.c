/* SPDX-License-Identifier: Apache-2.0 */
/* hf/gguf_weights.c - the tensors of a GGUF file under Hugging Face's names, in their order of elements. */
#include "base/arena.h"
#include "graph/value.h"
#include "hf/gguf.h"
#include "hf/layout.h"

#include <stdlib.h>
#include <string.h>

/* What the tensors of a set live in. */
typedef struct {
    tm_gguf  *gguf;
    tm_arena *arena; /* names */
    void    **made;  /* values that are not as in the file */
    size_t    n_made, room;
} holder;

typedef struct {
    holder              *holder;
    const tm_gguf_model *model;
    tm_stored_tensor    *tensors;
    size_t               n, room;
    bool                 narrow; /* the weights are bfloat16: what is float32 by custom alone is so, too */
    int64_t              heads, kv_heads;
    tm_error            *err;
} reader;

static void release(void *owner)
{
    holder *h = owner;
    for (size_t i = 0; i < h->n_made; i++) free(h->made[i]);
    free(h->made);
    tm_gguf_close(h->gguf);
    tm_arena_destroy(h->arena);
    free(h);
}

static void *make(holder *h, size_t bytes)
{
    h->made = tm_grow(h->made, &h->room, h->n_made, sizeof *h->made);
    h->made[h->n_made] = tm_alloc(bytes);
    return h->made[h->n_made++];
}

static tm_status refuse(const reader *r, const tm_gguf_tensor *t, const char *what)
{
    return tm_fail(r->err, TM_FORMAT, "'%s': tensor '%.200s' %s", tm_gguf_name(r->holder->gguf), t->name, what);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static tm_dtype dtype_of(uint32_t format)
{
    return format == TM_GGUF_FORMAT_F16 ? TM_F16 : format == TM_GGUF_FORMAT_BF16 ? TM_BF16 : TM_F32;
}

/* Elements of a head whose rows are paired; 0: rows are in order. */
static tm_status head_of(const reader *r, const tm_gguf_row *row, const tm_gguf_tensor *t, int64_t *out)
{
    int64_t heads = row->kind == TM_GGUF_QUERIES ? r->heads : row->kind == TM_GGUF_KEYS ? r->kv_heads : 0;
    *out = 0;
    if (heads == 0 || !r->model->paired) return TM_OK;
    if (t->n[0] % heads || t->n[0] / heads % 2) return refuse(r, t, "has rows that are no heads of an even width");
    *out = t->n[0] / heads;
    return TM_OK;
}

/* From the order of theirs into that of Hugging Face, `size` bytes an element. */
static void reorder(const tm_gguf_tensor *t, const uint8_t *from, size_t size, int64_t head, bool transposed,
                    uint8_t *to)
{
    int64_t rows = t->n[0], columns = t->rank > 1 ? t->n[1] : 1;
    for (int64_t r = 0; r < rows; r++) {
        if (!transposed) {
            memcpy(to + (size_t)tm_gguf_at(r, 0, rows, columns, head, false) * size,
                   from + (size_t)(r * columns) * size, (size_t)columns * size);
            continue;
        }
        for (int64_t c = 0; c < columns; c++)
            memcpy(to + (size_t)tm_gguf_at(r, c, rows, columns, 0, true) * size,
                   from + (size_t)(r * columns + c) * size, size);
    }
}

/* All values that float32 has only by custom are numbers of bfloat16. */
static bool fits_bf16(const uint8_t *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (values[4 * i] | values[4 * i + 1]) return false;
    return true;
}

/* The values of `t` as `out` wants them; dtype, data and bytes of *out. */
static tm_status read_values(reader *r, const tm_gguf_row *row, const tm_gguf_tensor *t, int64_t elements,
                             tm_stored_tensor *out)
{
    bool           transposed = row->kind == TM_GGUF_TRANSPOSED && t->rank == 2;
    const uint8_t *data = t->data;
    int64_t        head;
    TM_TRY(head_of(r, row, t, &head));
    out->dtype = dtype_of(t->format);
    out->dtype_name = t->format == TM_GGUF_FORMAT_Q8_0 ? "Q8_0" : tm_safetensors_dtype_name(out->dtype);
    if (t->format == TM_GGUF_FORMAT_Q8_0) {
        float *wide = make(r->holder, (size_t)elements * sizeof *wide);
        tm_gguf_to_f32(t->format, data, elements, wide);
        data = (const uint8_t *)wide;
    }
    if (r->narrow && t->format == TM_GGUF_FORMAT_F32 && (t->rank == 1 || row->kind == TM_GGUF_WIDE) &&
        fits_bf16(data, elements)) {
        uint8_t *half = make(r->holder, (size_t)elements * 2);
        for (int64_t i = 0; i < elements; i++) memcpy(half + 2 * i, data + 4 * i + 2, 2);
        data = half;
        out->dtype = TM_BF16;
        out->dtype_name = "BF16";
    }
    size_t size = (size_t)tm_dtype_bits(out->dtype) / 8;
    if (head > 0 || transposed) {
        uint8_t *ordered = make(r->holder, (size_t)elements * size);
        reorder(t, data, size, head, transposed, ordered);
        data = ordered;
    }
    out->data = data;
    out->bytes = (size_t)elements * size;
    return TM_OK;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static void add(reader *r, const tm_stored_tensor *t)
{
    r->tensors = tm_grow(r->tensors, &r->room, r->n, sizeof *r->tensors);
    r->tensors[r->n++] = *t;
}

static const char *name_of(const reader *r, const tm_gguf_row *row, const int64_t numbers[2])
{
    tm_text name = { 0 }, full = { 0 };
    tm_hf_name(row->name, numbers, &name);
    tm_hf_written_name(tm_hf_form_named(r->model->model_type), name.data, &full);
    const char *out = tm_arena_text(r->holder->arena, full.data);
    tm_text_fini(&name);
    tm_text_fini(&full);
    return out;
}

static tm_status read_tensor(reader *r, const tm_gguf_tensor *t)
{
    int64_t            numbers[2] = { 0 }, elements = 1;
    char               room[32];
    const tm_gguf_row *row = tm_gguf_row_of(r->model, t->name, true, numbers);
    if (strcmp(t->name, "rope_freqs.weight") == 0) return TM_OK; /* is in the configuration */
    if (!row)
        return tm_fail(r->err, TM_UNSUPPORTED,
                       "'%s': tensor '%.200s' is not known of a %s model and might change what "
                       "is computed",
                       tm_gguf_name(r->holder->gguf), t->name, r->model->arch);
    if (!t->data)
        return tm_fail(
            r->err, TM_UNSUPPORTED,
            "'%s': tensor '%.200s' is in the format %s; f32, f16, bf16 and q8_0 are read: take such a file of "
            "the model, or its Hugging Face directory",
            tm_gguf_name(r->holder->gguf), t->name, tm_gguf_format_name(t->format, room));
    tm_stored_tensor out = { .file = tm_gguf_name(r->holder->gguf), .offset = t->offset };
    bool             stacked = strstr(row->name, "{e}") != NULL;
    for (int i = 0; i < t->rank; i++) elements *= t->n[i];
    if (stacked && t->rank != 3) return refuse(r, t, "has not the three axes of experts' matrices");
    TM_TRY(read_values(r, row, t, elements, &out));
    bool transposed = row->kind == TM_GGUF_TRANSPOSED && t->rank == 2;
    out.rank = stacked ? 2 : t->rank;
    for (int i = 0; i < out.rank; i++) out.n[i] = t->n[transposed ? 1 - i : stacked ? i + 1 : i];
    if (stacked) out.bytes /= (size_t)t->n[0];
    for (numbers[1] = 0; numbers[1] < (stacked ? t->n[0] : 1); numbers[1]++) {
        out.name = name_of(r, row, numbers);
        add(r, &out);
        out.data += out.bytes;
    }
    return TM_OK;
}

static tm_status read_all(reader *r)
{
    tm_gguf              *g = r->holder->gguf;
    size_t                n;
    char                  key[160];
    int64_t               type = 0;
    const tm_gguf_tensor *tensors = tm_gguf_tensors(g, &n);
    TM_TRY(tm_gguf_model_of(g, &r->model, r->err));
    snprintf(key, sizeof key, "%s.attention.head_count", r->model->arch);
    if (!tm_gguf_whole(g, key, &r->heads) || r->heads < 1)
        return tm_fail(r->err, TM_FORMAT, "'%s': '%s' is no number of heads", tm_gguf_name(g), key);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", r->model->arch);
    if (!tm_gguf_whole(g, key, &r->kv_heads) || r->kv_heads < 1) r->kv_heads = r->heads;
    r->narrow = tm_gguf_whole(g, "general.file_type", &type) && type == TM_GGUF_MOSTLY_BF16;
    for (size_t i = 0; i < n; i++) TM_TRY(read_tensor(r, &tensors[i]));
    return TM_OK;
}

tm_status tm_gguf_weights(const char *path, tm_safetensors **out, tm_error *err)
{
    tm_gguf *gguf;
    TM_TRY(tm_gguf_open(path, &gguf, err));
    holder *h = tm_alloc(sizeof *h);
    *h = (holder){ .gguf = gguf, .arena = tm_arena_create() };
    reader    r = { .holder = h, .err = err };
    tm_status st = read_all(&r);
    if (st == TM_OK)
        st = tm_safetensors_of(r.tensors, r.n, h, release, out, err);
    else
        release(h);
    free(r.tensors);
    return st;
}
