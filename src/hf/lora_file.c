/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/lora_file.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "hf/convert.h"
#include "hf/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char weights_name[] = "pytorch_lora_weights.safetensors";

/* --- names -------------------------------------------------------------------------------------------------------- */

typedef enum { DOWN, UP, ALPHA, LENGTHS, KINDS } kind;

static const struct {
    const char *suffix;
    kind        kind;
} suffixes[] = { { ".lora_A.weight", DOWN }, { ".lora_down.weight", DOWN },         { ".lora_B.weight", UP },
                 { ".lora_up.weight", UP },  { ".lora_magnitude_vector", LENGTHS }, { ".alpha", ALPHA } };

static const struct {
    const char *prefix;
    bool        joined; /* "_" for "." */
} prefixes[] = { { "transformer.", false }, { "diffusion_model.", false }, { "base_model.model.", false },
                 { "lora_unet_", true },    { "lora_transformer_", true }, { "", false } };

/* Of texts, whose encoders are not part of the model. */
static const char *const encoders[] = { "text_encoder", "lora_te" };

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "transformer.MODULE.lora_A.weight": MODULE and the kind; false: no such name. */
static bool divide(const char *name, const char **module, size_t *length, kind *out, bool *joined)
{
    size_t n = strlen(name), p = 0;
    while (!begins(name, prefixes[p].prefix)) p++;
    *module = name + strlen(prefixes[p].prefix);
    *joined = prefixes[p].joined;
    n = strlen(*module);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        size_t behind = strlen(suffixes[i].suffix);
        if (n <= behind || strcmp(*module + n - behind, suffixes[i].suffix) != 0) continue;
        *length = n - behind;
        *out = suffixes[i].kind;
        return true;
    }
    return false;
}

static bool is_lora(const tm_safetensors *set)
{
    size_t                  n, length;
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    const char             *module;
    kind                    which;
    bool                    joined;
    for (size_t i = 0; i < n; i++)
        if (divide(all[i].name, &module, &length, &which, &joined) && which != ALPHA) return true;
    return false;
}

bool tm_hf_lora_file(const char *path, tm_text *out)
{
    static const char suffix[] = ".safetensors";
    tm_safetensors   *set = NULL;
    tm_error          own = { 0 };
    size_t            n = strlen(path), at = out->length;
    bool              itself = n >= sizeof suffix && strcmp(path + n + 1 - sizeof suffix, suffix) == 0;
    tm_text_printf(out, itself ? "%s" : "%s/%s", path, weights_name);
    bool is = tm_file_exists(out->data + at);
    if (is && itself) is = tm_safetensors_open(out->data + at, &set, &own) == TM_OK && is_lora(set);
    tm_safetensors_close(set);
    return is;
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

/* What a module of the file is in the model: one matrix of diffusers, or several under each other. */
enum { MOST_PARTS = 4 };
typedef struct {
    const char *names[MOST_PARTS]; /* of diffusers */
    int         n;
    bool        halves; /* rows (shift, scale) in the file, (scale, shift) in the model */
} place;

typedef struct {
    const char             *name; /* in the file, with its prefix */
    const tm_stored_tensor *tensor[KINDS];
    place                   place;
} module;

typedef struct {
    tm_safetensors *file;
    tm_arena       *arena;
} holder;

typedef struct {
    const tm_hf_form *form;
    tm_hf_adapter    *adapter;
    tm_safetensors   *file;
    holder           *holder;
    module           *modules;
    size_t            n;
    tm_stored_tensor *tensors;
    size_t            n_tensors;
    bool              alphas; /* some modules have one of their own */
} reader;

static void release(void *owner)
{
    holder *h = owner;
    tm_safetensors_close(h->file);
    tm_arena_destroy(h->arena);
    free(h);
}

/* `pattern` without its last `cut` characters, joined by "_" where the name is. */
static bool fits(const char *pattern, size_t cut, const char *name, bool joined, int64_t numbers[2])
{
    char   text[160];
    size_t n = strlen(pattern);
    if (n <= cut || n - cut >= sizeof text) return false;
    memcpy(text, pattern, n - cut);
    text[n - cut] = '\0';
    for (char *p = text; joined && *p; p++)
        if (*p == '.') *p = '_';
    return tm_hf_matches(text, name, numbers);
}

static const char *named(const reader *r, const char *pattern, const int64_t numbers[2])
{
    tm_text text = { 0 };
    tm_hf_name(pattern, numbers, &text);
    text.data[text.length - strlen(".weight")] = '\0';
    const char *copy = tm_arena_text(r->adapter->arena, text.data);
    tm_text_fini(&text);
    return copy;
}

/* "double_blocks.{l}.img_attn.qkv.q.weight": the length of its last part of `parts`, with ".weight" and the dot in
 * front, where the matrix that it is a part of has a name; 0: it is a matrix itself. */
static size_t part_of(const char *ours)
{
    static const char *const parts[] = { ".q.weight",   ".k.weight",     ".v.weight",
                                         ".mlp.weight", ".scale.weight", ".shift.weight" };
    size_t                   n = strlen(ours);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (n > strlen(parts[i]) && strcmp(ours + n - strlen(parts[i]), parts[i]) == 0) return strlen(parts[i]);
    return 0;
}

/* The rows of the form that a module is; they stand in the order of the rows of a fused matrix. */
static bool find_place(const reader *r, const char *name, bool joined, place *out)
{
    int64_t numbers[2] = { 0 };
    *out = (place){ .n = 0 };
    for (const tm_hf_tensor *row = r->form->tensors; row->ours; row++) {
        static const char weight[] = ".weight";
        size_t            cut = sizeof weight - 1, n = strlen(row->ours), part;
        if (n <= cut || strcmp(row->ours + n - cut, weight) != 0 || out->n == MOST_PARTS) continue;
        bool theirs = fits(row->theirs, cut, name, joined, numbers);
        bool ours = !theirs && fits(row->ours, cut, name, joined, numbers);
        part = part_of(row->ours);
        bool within = !theirs && !ours && part > 0 && fits(row->ours, part, name, joined, numbers);
        if (!theirs && !ours && !within) continue;
        const char *full = named(r, row->theirs, numbers);
        bool        there = out->n > 0 && strcmp(out->names[out->n - 1], full) == 0; /* two halves of one matrix */
        if (within && row->parts == 2) out->halves = true;
        if (ours && row->parts == 2) return false; /* half of a matrix has no name of its own */
        if (!there) out->names[out->n++] = full;
    }
    return out->n > 0;
}

static tm_status refuse(const reader *r, const char *name, const char *what, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED, "'%.300s' holds '%.200s', %s", r->adapter->file, name, what);
}

static module *module_of(reader *r, const char *begin, size_t length, const char *full)
{
    const char *name = tm_arena_text_n(r->adapter->arena, full, (size_t)(begin - full) + length);
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->modules[i].name, name) == 0) return &r->modules[i];
    r->modules[r->n] = (module){ .name = name };
    return &r->modules[r->n++];
}

/* One tensor of the file goes to its module. */
static tm_status take(reader *r, const tm_stored_tensor *t, tm_error *err)
{
    const char *begin;
    size_t      length;
    kind        which;
    bool        joined;
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++)
        if (begins(t->name, encoders[i]))
            return refuse(r, t->name,
                          "an adapter of a text encoder, which is no part of the model; write a file without it (in "
                          "diffusers: FluxPipeline.save_lora_weights with transformer_lora_layers alone)",
                          err);
    if (!divide(t->name, &begin, &length, &which, &joined))
        return refuse(
            r, t->name,
            "which is no LoRA of a linear layer: wanted MODULE.lora_A.weight, .lora_B.weight (or .lora_down, "
            ".lora_up), .alpha, .lora_magnitude_vector; let diffusers merge it (fuse_lora) and give the model",
            err);
    module *m = module_of(r, begin, length, t->name);
    if (m->place.n == 0) {
        const char *name = tm_arena_text_n(r->adapter->arena, begin, length);
        if (!find_place(r, name, joined, &m->place))
            return refuse(
                r, t->name,
                "and the model has no such linear layer, by the names of diffusers "
                "(transformer_blocks.0.attn.to_q) or of FLUX (double_blocks.0.img_attn.qkv); leave it out, or "
                "let diffusers merge the file (fuse_lora) and give the model",
                err);
    }
    if (m->tensor[which])
        return tm_fail(err, TM_FORMAT, "'%.300s' holds '%.150s' and '%.150s', which mean the same", r->adapter->file,
                       m->tensor[which]->name, t->name);
    m->tensor[which] = t;
    return TM_OK;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static tm_status wrong_shape(const reader *r, const tm_stored_tensor *t, const char *wanted, tm_error *err)
{
    char shape[192];
    return tm_fail(err, TM_FORMAT, "'%.300s': '%.200s' is %s %s, wanted %s", r->adapter->file, t->name, t->dtype_name,
                   tm_stored_shape_text(shape, t), wanted);
}

/* Rows of a format of whole bytes begin at an address. */
static bool floating(const tm_stored_tensor *t)
{
    return t->dtype != TM_DTYPE_COUNT && tm_dtype_floating(t->dtype) && tm_dtype_bits(t->dtype) >= 8;
}

static tm_status check_halves(const reader *r, const module *m, tm_error *err)
{
    const tm_stored_tensor *down = m->tensor[DOWN], *up = m->tensor[UP], *lengths = m->tensor[LENGTHS];
    char                    wanted[80];
    if (!down || !up)
        return tm_fail(err, TM_FORMAT, "'%.300s' has only one half of the adapter '%.200s': %s is missing",
                       r->adapter->file, m->name, down ? "lora_B (lora_up)" : "lora_A (lora_down)");
    if (down->rank != 2 || down->n[0] < 1 || down->n[0] > 65536 || down->n[1] < 1 || !floating(down))
        return wrong_shape(r, down, "(rank, inputs) in a floating format", err);
    snprintf(wanted, sizeof wanted, "(outputs, %lld) in a floating format", (long long)down->n[0]);
    if (up->rank != 2 || up->n[1] != down->n[0] || up->n[0] < 1 || !floating(up))
        return wrong_shape(r, up, wanted, err);
    if (lengths && (lengths->rank != 1 || lengths->n[0] != up->n[0] || !floating(lengths)))
        return wrong_shape(r, lengths, "as many values as lora_B has rows", err);
    return TM_OK;
}

/* Rows of each part of a fused matrix: query, key and value have as many as the matrix has columns, the last part what
 * is left. */
static tm_status part_rows(const reader *r, const module *m, int64_t rows[MOST_PARTS], tm_error *err)
{
    int64_t all = m->tensor[UP]->n[0], width = m->tensor[DOWN]->n[1], left = all;
    char    wanted[100];
    for (int p = 0; p < m->place.n; p++) {
        rows[p] = p == m->place.n - 1 ? left : width;
        left -= rows[p];
    }
    if (m->place.n == 1 || (rows[m->place.n - 1] >= 1 && (m->place.n == MOST_PARTS || all == m->place.n * width)))
        return TM_OK;
    snprintf(wanted, sizeof wanted, "%s %lld rows, %lld for each of query, key and value",
             m->place.n == MOST_PARTS ? "more than" : "", (long long)((MOST_PARTS - 1) * width), (long long)width);
    return wrong_shape(r, m->tensor[UP], wanted + (wanted[0] == ' '), err);
}

static void add(reader *r, const tm_stored_tensor *like, const char *name, const char *what)
{
    tm_text text = { 0 };
    tm_text_printf(&text, "base_model.model.%s.%s", name, what);
    r->tensors[r->n_tensors] = *like;
    r->tensors[r->n_tensors++].name = tm_arena_text(r->holder->arena, text.data);
    tm_text_fini(&text);
}

/* Rows first .. first + rows - 1. */
static tm_stored_tensor rows_of(const tm_stored_tensor *t, int64_t first, int64_t rows)
{
    tm_stored_tensor out = *t;
    size_t           row = t->bytes / (size_t)t->n[0];
    out.n[0] = rows;
    out.bytes = row * (size_t)rows;
    out.data += row * (size_t)first;
    out.offset += (int64_t)(row * (size_t)first);
    return out;
}

/* The second half of the rows first. */
static tm_stored_tensor swapped(const reader *r, const tm_stored_tensor *t)
{
    tm_stored_tensor out = *t;
    size_t           half = t->bytes / 2;
    uint8_t         *data = tm_arena_take(r->holder->arena, t->bytes);
    memcpy(data, t->data + half, half);
    memcpy(data + half, t->data, half);
    out.data = data;
    return out;
}

static tm_status alpha_of(const reader *r, const module *m, double otherwise, double *out, tm_error *err)
{
    const tm_stored_tensor *t = m->tensor[ALPHA];
    *out = otherwise;
    if (!t) return TM_OK;
    if (t->rank > 1 || (t->rank == 1 && t->n[0] != 1) || !floating(t)) return wrong_shape(r, t, "one number", err);
    *out = tm_stored_value(t, 0);
    if (*out >= 0 && *out <= 1e6) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%.300s': '%.200s' is %g, wanted a number from 0 to 1000000", r->adapter->file,
                   t->name, *out);
}

static tm_status add_module(reader *r, const module *m, tm_error *err)
{
    tm_adapters       *own = &r->adapter->adapters;
    tm_adapted_module *modules = (tm_adapted_module *)(uintptr_t)own->modules;
    int64_t            rows[MOST_PARTS], first = 0;
    double             alpha;
    if (m->tensor[ALPHA] && !m->tensor[DOWN] && !m->tensor[UP])
        return refuse(r, m->tensor[ALPHA]->name, "an alpha without an adapter; leave it out", err);
    TM_TRY(check_halves(r, m, err));
    TM_TRY(part_rows(r, m, rows, err));
    int64_t rank = m->tensor[DOWN]->n[0];
    for (int p = 0; p < m->place.n; p++) {
        const char             *name = m->place.names[p];
        const tm_pattern_value *given = tm_pattern_find(own->alphas, own->n_alphas, name);
        TM_TRY(alpha_of(r, m, given ? given->value : own->rank > 0 ? own->alpha : (double)rank, &alpha, err));
        tm_stored_tensor up = rows_of(m->tensor[UP], first, rows[p]);
        if (m->place.halves) up = swapped(r, &up);
        add(r, m->tensor[DOWN], name, "lora_A.weight");
        add(r, &up, name, "lora_B.weight");
        if (m->tensor[LENGTHS]) {
            tm_stored_tensor lengths = rows_of(m->tensor[LENGTHS], first, rows[p]);
            add(r, &lengths, name, "lora_magnitude_vector");
        }
        modules[own->n_modules++] = (tm_adapted_module){ .name = name, .rank = rank, .alpha = alpha };
        first += rows[p];
    }
    return TM_OK;
}

/* Rank and alpha of the most modules, for messages; all have their own. */
static void set_common(tm_adapters *own)
{
    size_t most = 0;
    for (size_t i = 0; i < own->n_modules; i++) {
        size_t same = 0;
        for (size_t k = 0; k < own->n_modules; k++)
            same += own->modules[k].rank == own->modules[i].rank &&
                    !(fabs(own->modules[k].alpha - own->modules[i].alpha) > 0);
        if (same <= most) continue;
        most = same;
        own->rank = own->modules[i].rank;
        own->alpha = own->modules[i].alpha;
    }
}

static tm_status read_all(reader *r, tm_error *err)
{
    size_t                  n;
    const tm_stored_tensor *all = tm_safetensors_list(r->file, &n);
    const char             *metadata = tm_safetensors_metadata(r->file, "lora_adapter_metadata");
    tm_adapters            *own = &r->adapter->adapters;
    TM_TRY(tm_hf_adapter_metadata(r->adapter, metadata, err));
    r->modules = tm_arena_take(r->adapter->arena, (n + 1) * sizeof *r->modules);
    for (size_t i = 0; i < n; i++) TM_TRY(take(r, &all[i], err));
    own->modules = tm_arena_take(r->adapter->arena, (MOST_PARTS * r->n + 1) * sizeof *own->modules);
    r->tensors = tm_arena_take(r->holder->arena, (3 * MOST_PARTS * r->n + 1) * sizeof *r->tensors);
    for (size_t i = 0; i < r->n; i++) {
        const module *m = &r->modules[i];
        if (m->tensor[ALPHA] && metadata)
            return refuse(r, m->tensor[ALPHA]->name,
                          "and lora_adapter_metadata, which both say the factor; leave one out", err);
        own->dora = own->dora || m->tensor[LENGTHS];
        TM_TRY(add_module(r, m, err));
    }
    own->n_ranks = own->n_alphas = 0; /* the modules say it */
    set_common(own);
    return r->n ? TM_OK : tm_fail(err, TM_FORMAT, "'%.300s' holds no tensor", r->adapter->file);
}

tm_status tm_hf_lora_open(tm_hf_adapter *adapter, const tm_hf_form *form, tm_error *err)
{
    reader r = { .form = form, .adapter = adapter };
    if (!form || !form->diffusers)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%.300s' is an adapter of an image model, and the model is none; PEFT's directories "
                       "(adapter_config.json) are read for it",
                       adapter->file);
    adapter->adapters = (tm_adapters){ .base = TM_DTYPE_COUNT, .place = adapter->folder };
    TM_TRY(tm_safetensors_open(adapter->file, &r.file, err));
    r.holder = tm_alloc(sizeof *r.holder);
    *r.holder = (holder){ .file = r.file, .arena = tm_arena_create() };
    tm_status st = read_all(&r, err);
    if (st == TM_OK) return tm_safetensors_of(r.tensors, r.n_tensors, r.holder, release, &adapter->weights, err);
    release(r.holder);
    return st;
}

/* --- written ------------------------------------------------------------------------------------------------------ */

/* The adapter that a tensor of the layout is a part of. */
static const tm_adapter *adapter_of(const tm_graph *graph, const tm_hf_entry *entry)
{
    tm_tensor_id      id = entry->slices[0].parameter;
    const tm_adapter *a = tm_graph_at(graph, tm_graph_at(graph, id)->adapts)->adapter;
    while (a && a->a != id && a->b != id && a->m != id) a = a->next;
    TM_ASSERT(a);
    return a;
}

/* "base_model.model.MODULE.lora_A.weight" */
static const char *written_name(tm_arena *arena, const char *name)
{
    static const char prefix[] = "base_model.model.";
    tm_text           text = { 0 };
    tm_text_printf(&text, "transformer.%s", name + sizeof prefix - 1);
    const char *copy = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return copy;
}

/* B with the factor in it: some readers of such files know of no other factor than 1. */
static tm_status write_all(const tm_hf_memory *memory, const tm_hf_layout *layout, tm_safetensors_writer *file,
                           tm_hf_report *report, tm_error *err)
{
    tm_status st = TM_OK;
    for (size_t i = 0; i < layout->n && st == TM_OK; i++) {
        const tm_hf_entry *e = &layout->entries[i];
        const tm_adapter  *adapter = adapter_of(memory->graph, e);
        size_t             bytes = (size_t)e->elements * sizeof(float);
        float             *values = tm_alloc(bytes);
        st = tm_hf_adapter_read(memory, e, values, err);
        for (int64_t k = 0; k < e->elements && e->slices[0].parameter == adapter->b; k++)
            values[k] = (float)(adapter->attr.scale * (double)values[k]);
        if (st == TM_OK) tm_safetensors_write(file, values, bytes);
        free(values);
        report->tensors++;
        report->elements += e->elements;
        report->bytes += (int64_t)bytes;
    }
    return st;
}

tm_status tm_hf_lora_write(const tm_hf_memory *memory, const tm_hf_layout *layout, const char *folder,
                           tm_hf_report *report, tm_error *err)
{
    static const char *const metadata[][2] = { { "format", "pt" }, { NULL, NULL } };
    tm_arena                *arena = tm_arena_create();
    tm_tensor_heading       *headings = tm_arena_take(arena, (layout->n + 1) * sizeof *headings);
    tm_safetensors_writer   *file = NULL;
    tm_text                  path = { 0 };
    for (size_t i = 0; i < layout->n; i++) {
        const tm_hf_entry *e = &layout->entries[i];
        headings[i] = (tm_tensor_heading){
            .name = written_name(arena, e->name), .dtype = TM_F32, .rank = e->rank, .n = { e->n[0], e->n[1] }
        };
    }
    tm_text_printf(&path, "%s/%s", folder, weights_name);
    tm_status st = tm_safetensors_create(path.data, headings, layout->n, metadata, &file, err);
    tm_text_fini(&path);
    if (st == TM_OK) {
        st = write_all(memory, layout, file, report, err);
        if (st == TM_OK)
            st = tm_safetensors_finish(file, err);
        else
            tm_safetensors_abandon(file);
    }
    tm_arena_destroy(arena);
    return st;
}
