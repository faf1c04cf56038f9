/* SPDX-License-Identifier: Apache-2.0 */
/* hf/gguf_adapter.c - adapters as llama.cpp adds them to a model: NAME.lora_a (r, in) and NAME.lora_b (out, r) of the
 * matrix NAME of the model's file, and one alpha; the product counts alpha / r. */
#include "base/arena.h"
#include "base/file.h"
#include "hf/gguf.h"
#include "hf/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tm_hf_memory  *memory;
    const tm_gguf_model *model;
    tm_hf_layout        *layout;
    tm_arena            *arena;
    tm_gguf_tensor      *tensors; /* of each entry of the layout */
    int64_t             *heads;   /* elements of a head whose rows are paired, else 0 */
} writer;

static tm_status lacks(const char *what, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "llama.cpp has no adapters with %s; export them without --gguf, and merge them with the model "
                   "(trainmark merge)",
                   what);
}

/* "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight": the row of h.0.attn.c_attn.weight. */
static const tm_gguf_row *row_of(const writer *w, const char *name, bool *b, int64_t numbers[2])
{
    static const char begin[] = "base_model.model.";
    const char       *prefix = w->memory->form->prefix, *end = strstr(name, ".lora_");
    if (strncmp(name, begin, strlen(begin)) != 0 || !end) return NULL;
    *b = strcmp(end, ".lora_B.weight") == 0;
    if (!*b && strcmp(end, ".lora_A.weight") != 0) return NULL;
    name += strlen(begin);
    if (prefix && strncmp(name, prefix, strlen(prefix)) == 0) name += strlen(prefix);
    const char *matrix = tm_arena_format(w->arena, "%.*s.weight", (int)(end - name), name);
    return tm_gguf_row_of(w->model, matrix, false, numbers);
}

static tm_status list_tensors(writer *w, tm_error *err)
{
    for (size_t i = 0; i < w->layout->n; i++) {
        const tm_hf_entry *e = &w->layout->entries[i];
        int64_t            numbers[2] = { 0 };
        bool               b = false;
        const tm_gguf_row *row = row_of(w, e->name, &b, numbers);
        tm_text            name = { 0 };
        bool               experts = row && strstr(row->name, "{e}");
        if (!row || experts || strcmp(row->theirs, "token_embd.weight") == 0)
            return lacks(tm_arena_format(w->arena, "the tensor '%s'", e->name), err);
        if (w->memory->shape->tied && strcmp(row->theirs, "output.weight") == 0)
            return lacks("an output layer that is the table of tokens, too", err);
        tm_hf_name(row->theirs, numbers, &name);
        w->tensors[i] = (tm_gguf_tensor){ .name = tm_arena_format(w->arena, "%s.lora_%c", name.data, b ? 'b' : 'a'),
                                          .rank = 2,
                                          .n = { e->n[0], e->n[1] },
                                          .format = TM_GGUF_FORMAT_F32 };
        bool rotary = row->kind == TM_GGUF_QUERIES || row->kind == TM_GGUF_KEYS;
        w->heads[i] = b && rotary && w->model->paired ? w->memory->shape->head_dim : 0;
        tm_text_fini(&name);
    }
    return TM_OK;
}

static tm_status write_tensor(const writer *w, size_t at, tm_gguf_writer *file, tm_error *err)
{
    const tm_hf_entry *e = &w->layout->entries[at];
    float             *values = tm_alloc((size_t)e->elements * sizeof *values);
    float             *ordered = tm_alloc((size_t)e->elements * sizeof *ordered);
    int64_t            rows = e->n[0], columns = e->n[1];
    tm_status          st = tm_hf_adapter_read(w->memory, e, values, err);
    for (int64_t r = 0; st == TM_OK && r < rows; r++)
        memcpy(ordered + r * columns, values + tm_gguf_at(r, 0, rows, columns, w->heads[at], false),
               (size_t)columns * sizeof *values);
    if (st == TM_OK) st = tm_gguf_write(file, ordered, (size_t)e->elements * sizeof *ordered, err);
    free(values);
    free(ordered);
    return st;
}

static void put_values(const writer *w, const tm_adapters *adapters, tm_gguf_head *head)
{
    double alpha = tm_adapters_scale(adapters) * (double)adapters->rank;
    tm_gguf_put_text(head, "general.architecture", w->model->arch, strlen(w->model->arch));
    tm_gguf_put_text(head, "general.type", "adapter", 7);
    tm_gguf_put_text(head, "adapter.type", "lora", 4);
    tm_gguf_put_f32(head, "adapter.lora.alpha", (float)alpha);
}

static tm_status write_all(writer *w, const tm_adapters *adapters, const char *path, tm_hf_report *report,
                           tm_error *err)
{
    tm_gguf_head    head = { .count = 0 };
    tm_gguf_writer *file;
    *report = (tm_hf_report){ .dtype = TM_F32, .tensors = w->layout->n };
    TM_TRY(list_tensors(w, err));
    put_values(w, adapters, &head);
    tm_status st = tm_gguf_create(path, &head, w->tensors, w->layout->n, &file, err);
    tm_text_fini(&head.bytes);
    TM_TRY(st);
    for (size_t i = 0; i < w->layout->n && st == TM_OK; i++) {
        st = write_tensor(w, i, file, err);
        report->elements += w->layout->entries[i].elements;
    }
    report->bytes = report->elements * (int64_t)sizeof(float);
    if (st == TM_OK) return tm_gguf_finish(file, err);
    tm_gguf_abandon(file);
    return st;
}

tm_status tm_gguf_adapter_write(const tm_hf_memory *memory, const tm_adapters *adapters, const tm_gguf_model *model,
                                const char *path, tm_hf_report *report, tm_error *err)
{
    writer w = { .memory = memory, .model = model };
    if (adapters->dora) return lacks("lengths of rows (DoRA)", err);
    if (adapters->n_alphas > 0 || (adapters->rslora && adapters->n_ranks > 0))
        return lacks("another factor for some modules", err);
    TM_TRY(tm_hf_adapter_layout_create(memory->graph, memory->shape, memory->form, &w.layout, err));
    w.arena = tm_arena_create();
    w.tensors = tm_arena_take(w.arena, (w.layout->n + 1) * sizeof *w.tensors);
    w.heads = tm_arena_take(w.arena, (w.layout->n + 1) * sizeof *w.heads);
    tm_status st = write_all(&w, adapters, path, report, err);
    tm_arena_destroy(w.arena);
    tm_hf_layout_destroy(w.layout);
    return st;
}
