/* SPDX-License-Identifier: Apache-2.0 */
/* hf/gguf_export.c - a model into a GGUF file: the members of its config.json under llama.cpp's names, its tokenizer,
 * and tensor by tensor what a Hugging Face file would have. */
#include "base/arena.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/log.h"
#include "hf/gguf.h"
#include "hf/values.h"
#include "token/chat.h"
#include "token/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the file, and the entries of the layout that it is made of: one, or an expert's each. */
typedef struct {
    const tm_gguf_row *row;
    size_t            *entries;
    int64_t            n_entries, head;
} part;

typedef struct {
    const tm_hf_source    *source;
    const tm_gguf_options *options;
    const tm_gguf_model   *model;
    tm_hf_values           values;
    tm_arena              *arena;
    json_t                *config; /* as config.json */
    tm_gguf_head           head;
    tm_gguf_tensor        *tensors;
    part                  *parts;
    size_t                 n;
    float                 *divisors; /* of rope_freqs.weight, the last tensor; NULL: there is none */
    int64_t                experts;
    int                    whole; /* matrices that stay float32, since their rows are no blocks */
} exporter;

static uint32_t format_of(const char *word)
{
    return strcmp(word, "f32") == 0    ? TM_GGUF_FORMAT_F32
           : strcmp(word, "bf16") == 0 ? TM_GGUF_FORMAT_BF16
                                       : TM_GGUF_FORMAT_Q8_0;
}

static int64_t whole(const exporter *x, const char *member)
{
    return (int64_t)json_integer_value(json_object_get(x->config, member));
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static tm_status put_keys(exporter *x, tm_error *err)
{
    for (const tm_gguf_key *row = x->model->keys; row->theirs; row++) {
        const json_t *value = json_object_get(x->config, row->member);
        const char   *key = tm_arena_format(x->arena, "%s.%s", x->model->arch, row->theirs);
        int64_t       number = (int64_t)json_integer_value(value);
        if (row->real && json_is_number(value)) {
            tm_gguf_put_f32(&x->head, key, (float)json_number_value(value));
        } else if (json_is_integer(value)) {
            if (number < 0 || number > UINT32_MAX)
                return tm_fail(err, TM_UNSUPPORTED, "'%s' is %lld, more than a GGUF file can say (uint32)", row->member,
                               (long long)number);
            tm_gguf_put_u32(&x->head, key, (uint32_t)number);
        } else if (!row->optional) {
            return tm_fail(err, TM_INTERNAL, "config.json has no '%s'", row->member);
        }
    }
    return TM_OK;
}

static void put_text(exporter *x, const char *suffix, const char *text)
{
    tm_gguf_put_text(&x->head, tm_arena_format(x->arena, "%s.%s", x->model->arch, suffix), text, strlen(text));
}

static tm_status lacks(const exporter *x, const char *what, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED,
                   "llama.cpp has no %s models with %s; write a Hugging Face directory (without --gguf)",
                   x->source->form->model_type, what);
}

static tm_status put_llama3(exporter *x, const json_t *section, tm_error *err)
{
    tm_gguf_rope rope = { .theta = json_number_value(json_object_get(x->config, "rope_theta")),
                          .factor = json_number_value(json_object_get(section, "factor")),
                          .low = json_number_value(json_object_get(section, "low_freq_factor")),
                          .high = json_number_value(json_object_get(section, "high_freq_factor")) };
    json_int_t   original = json_integer_value(json_object_get(section, "original_max_position_embeddings"));
    if (!x->model->paired) return lacks(x, "llama3 scaling of positions", err);
    rope.original = (double)original;
    x->divisors = tm_arena_take(x->arena, (size_t)x->source->shape.head_dim * sizeof *x->divisors);
    tm_gguf_rope_divisors(&rope, x->source->shape.head_dim, x->divisors);
    tm_gguf_put_f32(&x->head, "trainmark.rope.factor", (float)rope.factor);
    tm_gguf_put_f32(&x->head, "trainmark.rope.low_freq_factor", (float)rope.low);
    tm_gguf_put_f32(&x->head, "trainmark.rope.high_freq_factor", (float)rope.high);
    tm_gguf_put_u32(&x->head, "trainmark.rope.original_context_length", (uint32_t)original);
    return TM_OK;
}

/* YaRN with the values that llama.cpp takes where nothing is said. */
static bool plain_yarn(const json_t *section)
{
    const json_t *attention = json_object_get(section, "attention_factor");
    return json_number_value(json_object_get(section, "beta_fast")) == 32 &&
           json_number_value(json_object_get(section, "beta_slow")) == 1 &&
           json_number_value(json_object_get(section, "mscale")) == 0 &&
           json_number_value(json_object_get(section, "mscale_all_dim")) == 0 &&
           (!attention || json_is_null(attention)) && !json_is_false(json_object_get(section, "truncate"));
}

static tm_status put_rotary(exporter *x, tm_error *err)
{
    const json_t *section = json_object_get(x->config, "rope_scaling");
    const char   *type = json_string_value(json_object_get(section, "rope_type"));
    const char   *arch = x->model->arch;
    uint32_t      width = (uint32_t)x->source->shape.head_dim;
    tm_gguf_put_u32(&x->head, tm_arena_format(x->arena, "%s.rope.dimension_count", arch), width);
    tm_gguf_put_u32(&x->head, tm_arena_format(x->arena, "%s.attention.value_length", arch), width);
    if (!type || strcmp(type, "default") == 0) return TM_OK;
    if (strcmp(type, "llama3") == 0) return put_llama3(x, section, err);
    bool yarn = strcmp(type, "yarn") == 0;
    if (yarn && !plain_yarn(section)) return lacks(x, "YaRN of other settings than its own", err);
    if (!yarn && strcmp(type, "linear") != 0)
        return lacks(x, tm_arena_format(x->arena, "%s scaling of positions", type), err);
    put_text(x, "rope.scaling.type", type);
    tm_gguf_put_f32(&x->head, tm_arena_format(x->arena, "%s.rope.scaling.factor", arch),
                    (float)json_number_value(json_object_get(section, "factor")));
    if (yarn)
        tm_gguf_put_u32(&x->head, tm_arena_format(x->arena, "%s.rope.scaling.original_context_length", arch),
                        (uint32_t)json_integer_value(json_object_get(section, "original_max_position_embeddings")));
    return TM_OK;
}

/* llama.cpp's llama sees all earlier positions: the same as a window as long as texts are no longer. */
static void bound_context(exporter *x)
{
    int64_t window = whole(x, "sliding_window"), length = whole(x, "max_position_embeddings");
    if (window < 1 || window >= length) return;
    tm_note("the file is for texts of %lld tokens, the model's sliding window: llama.cpp has none for this model",
            (long long)window);
    json_object_set_new(x->config, "max_position_embeddings", json_integer((json_int_t)window));
}

static const char *name_of(const exporter *x)
{
    const char   *path = x->source->path;
    tm_hub_origin origin;
    if (tm_hub_origin_of(path, &origin)) path = tm_arena_text(x->arena, origin.name);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    return tm_arena_text_n(x->arena, path + from, n - from);
}

static tm_status put_model(exporter *x, uint32_t format, tm_error *err)
{
    const char *arch = x->model->arch, *name = name_of(x);
    uint32_t    type = format == TM_GGUF_FORMAT_F32    ? TM_GGUF_MOSTLY_F32
                       : format == TM_GGUF_FORMAT_BF16 ? TM_GGUF_MOSTLY_BF16
                                                       : TM_GGUF_MOSTLY_Q8_0;
    tm_gguf_put_text(&x->head, "general.architecture", arch, strlen(arch));
    tm_gguf_put_text(&x->head, "general.type", "model", 5);
    tm_gguf_put_text(&x->head, "general.name", name, strlen(name));
    tm_gguf_put_u32(&x->head, "general.file_type", type);
    tm_gguf_put_u32(&x->head, "general.quantization_version", 2);
    tm_gguf_put_u32(&x->head, tm_arena_format(x->arena, "%s.vocab_size", arch), (uint32_t)x->source->shape.vocab_size);
    bound_context(x);
    TM_TRY(put_keys(x, err));
    return x->model->rotary ? put_rotary(x, err) : TM_OK;
}

/* --- the tokenizer ------------------------------------------------------------------------------------------------ */

static tm_status put_tokenizer(exporter *x, tm_error *err)
{
    const char   *given = x->options->tokenizer, *path = given ? given : tm_hf_source_tokenizer(x->source);
    const char   *why = path ? NULL : "nothing says which the model has";
    bool          bytes = path && strcmp(path, "byte") == 0;
    tm_tokenizer *tokenizer = NULL;
    tm_error      own = { 0 };
    tm_text template = { 0 };
    tm_status st = path && !bytes ? tm_tokenizer_open(path, NULL, &tokenizer, &own) : TM_OK;
    if (st != TM_OK) why = st == TM_INVALID && !x->options->tokenizer ? "the model has none" : own.text;
    if (!why) why = tm_gguf_put_tokenizer(&x->head, tokenizer, x->source->shape.vocab_size);
    if (why && x->options->tokenizer)
        st = tm_fail(err, st == TM_OK ? TM_UNSUPPORTED : st, "the tokenizer '%.300s': %s", path, why);
    else
        st = TM_OK;
    if (why && st == TM_OK) {
        tm_note("no tokenizer in the file, so that llama.cpp takes ids only: %s%s; --tokenizer gives another", why,
                path && tokenizer ? tm_arena_format(x->arena, " (%.300s)", path) : "");
        tm_gguf_put_no_tokenizer(&x->head);
    }
    if (st == TM_OK && !why && path && tm_chat_text(path, &template))
        tm_gguf_put_text(&x->head, "tokenizer.chat_template", template.data, template.length);
    tm_text_fini(&template);
    tm_tokenizer_close(tokenizer);
    return st;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static tm_gguf_tensor tensor_of(const exporter *x, const tm_hf_entry *e, const part *p, uint32_t format)
{
    tm_gguf_tensor t = { .rank = e->rank };
    bool           experts = p->n_entries > 1 || strstr(p->row->name, "{e}");
    for (int i = 0; i < e->rank; i++) t.n[i] = e->n[p->row->kind == TM_GGUF_TRANSPOSED ? e->rank - 1 - i : i];
    t.format = e->rank == 1 || p->row->kind == TM_GGUF_WIDE ? TM_GGUF_FORMAT_F32 : format;
    if (t.format == TM_GGUF_FORMAT_Q8_0 && t.n[t.rank - 1] % TM_Q8_0_ELEMENTS) t.format = TM_GGUF_FORMAT_F32;
    if (experts) {
        for (int i = t.rank; i > 0; i--) t.n[i] = t.n[i - 1];
        t.n[0] = x->experts;
        t.rank++;
    }
    return t;
}

/* The tensors of the file in the order of the model; those of experts where the first one is. */
static tm_status list_tensors(exporter *x, uint32_t format, tm_error *err)
{
    const tm_hf_layout *layout = x->values.layout;
    tm_text             name = { 0 };
    x->tensors = tm_arena_take(x->arena, (layout->n + 1) * sizeof *x->tensors);
    x->parts = tm_arena_take(x->arena, (layout->n + 1) * sizeof *x->parts);
    for (size_t i = 0; i < layout->n; i++) {
        const tm_hf_entry *e = &layout->entries[i];
        int64_t            numbers[2] = { 0 }, which = 0;
        const tm_gguf_row *row = tm_gguf_row_of(x->model, e->name, false, numbers);
        if (!row) {
            tm_text_fini(&name);
            return lacks(x, tm_arena_format(x->arena, "the tensor '%s'", e->name), err);
        }
        if (strstr(row->name, "{e}")) which = numbers[1];
        name.length = 0;
        tm_hf_name(row->theirs, numbers, &name);
        size_t at = 0;
        while (at < x->n && strcmp(x->tensors[at].name, name.data) != 0) at++;
        part *p = &x->parts[at];
        if (at == x->n) {
            bool experts = strstr(row->name, "{e}") != NULL;
            *p = (part){ .row = row, .n_entries = experts ? x->experts : 1 };
            p->entries = tm_arena_take(x->arena, (size_t)p->n_entries * sizeof *p->entries);
            bool rotary = row->kind == TM_GGUF_QUERIES || row->kind == TM_GGUF_KEYS;
            p->head = rotary && x->model->paired ? x->source->shape.head_dim : 0;
            x->tensors[at] = tensor_of(x, e, p, format);
            x->tensors[at].name = tm_arena_text(x->arena, name.data);
            x->whole += e->rank > 1 && row->kind != TM_GGUF_WIDE && x->tensors[at].format != format;
            x->n++;
        }
        TM_ASSERT(which < p->n_entries);
        p->entries[which] = i;
    }
    tm_text_fini(&name);
    return TM_OK;
}

/* Blocks of 8 bits have no way to say that a number is none. */
static tm_status check_finite(const tm_gguf_tensor *t, const float *values, int64_t n, tm_error *err)
{
    for (int64_t i = 0; t->format == TM_GGUF_FORMAT_Q8_0 && i < n; i++)
        if (!isfinite(values[i]))
            return tm_fail(err, TM_INVALID, "element %lld of '%s' is not finite, which q8_0 cannot hold; write f32",
                           (long long)i, t->name);
    return TM_OK;
}

/* One entry of a tensor, in the order and the format of the file. */
static tm_status encode(const exporter *x, const part *p, const tm_gguf_tensor *t, size_t entry, uint8_t *out,
                        tm_error *err)
{
    const tm_hf_entry *e = &x->values.layout->entries[entry];
    bool               transposed = p->row->kind == TM_GGUF_TRANSPOSED && e->rank == 2;
    int64_t            columns = e->rank > 1 ? (transposed ? e->n[0] : e->n[1]) : 1, rows = e->elements / columns;
    float             *values = tm_alloc((size_t)e->elements * sizeof *values), *ordered = values;
    tm_status          st = tm_hf_values_fill(&x->values, entry, TM_F32, values, err);
    if (st == TM_OK && (transposed || p->head > 0)) {
        ordered = tm_alloc((size_t)e->elements * sizeof *ordered);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                ordered[r * columns + c] = values[tm_gguf_at(r, c, rows, columns, p->head, transposed)];
    }
    if (st == TM_OK) st = check_finite(t, ordered, e->elements, err);
    if (st == TM_OK) tm_gguf_from_f32(t->format, ordered, e->elements, out);
    if (ordered != values) free(ordered);
    free(values);
    return st;
}

static tm_status write_tensor(const exporter *x, size_t at, tm_gguf_writer *writer, tm_error *err)
{
    const part *p = &x->parts[at];
    int64_t     elements = x->values.layout->entries[p->entries[0]].elements;
    size_t      bytes = tm_gguf_bytes(x->tensors[at].format, elements);
    uint8_t    *data = tm_alloc(bytes * (size_t)p->n_entries);
    tm_status   st = TM_OK;
    for (int64_t k = 0; k < p->n_entries && st == TM_OK; k++)
        st = encode(x, p, &x->tensors[at], p->entries[k], data + (size_t)k * bytes, err);
    if (st == TM_OK) st = tm_gguf_write(writer, data, bytes * (size_t)p->n_entries, err);
    free(data);
    return st;
}

static tm_status write_file(exporter *x, tm_error *err)
{
    size_t          n = x->n, half = (size_t)x->source->shape.head_dim / 2;
    tm_gguf_writer *writer;
    if (x->divisors)
        x->tensors[n++] = (tm_gguf_tensor){
            .name = "rope_freqs.weight", .rank = 1, .n = { (int64_t)half }, .format = TM_GGUF_FORMAT_F32
        };
    TM_TRY(tm_gguf_create(x->options->path, &x->head, x->tensors, n, &writer, err));
    tm_status st = TM_OK;
    for (size_t i = 0; i < x->n && st == TM_OK; i++) st = write_tensor(x, i, writer, err);
    if (st == TM_OK && x->divisors) st = tm_gguf_write(writer, x->divisors, half * sizeof *x->divisors, err);
    if (st == TM_OK) return tm_gguf_finish(writer, err);
    tm_gguf_abandon(writer);
    return st;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static tm_status check(const exporter *x, tm_error *err)
{
    tm_text types = { 0 };
    if (!x->model) {
        tm_gguf_model_types(&types);
        tm_fail(err, TM_UNSUPPORTED,
                "a %s model is not written as GGUF; these are: %s; write a Hugging Face directory (without --gguf)",
                x->source->form->model_type, types.data);
        tm_text_fini(&types);
        return TM_UNSUPPORTED;
    }
    if (tm_file_exists(x->options->path))
        return tm_fail(err, TM_INVALID, "'%.300s' already exists; name another file", x->options->path);
    return TM_OK;
}

static tm_status export_all(exporter *x, tm_hf_report *report, tm_error *err)
{
    uint32_t format = format_of(x->options->format);
    tm_text  text = { 0 };
    TM_TRY(check(x, err));
    if (tm_hf_source_of_adapters(x->source) && format != TM_GGUF_FORMAT_F32)
        return tm_fail(err, TM_UNSUPPORTED, "adapters are float32; write them with --gguf f32");
    if (tm_hf_source_of_adapters(x->source) && x->options->tokenizer)
        return tm_fail(err, TM_USAGE, "--tokenizer is for a model; an adapter's file has none");
    if (tm_hf_source_of_adapters(x->source))
        return tm_hf_export_adapter(x->source, x->options->path, x->model, report, err);
    TM_TRY(tm_hf_values_open(x->source, &x->values, report, err));
    tm_hf_config_write(x->source->config, &x->source->shape, x->source->form, "float32", NULL, &text);
    x->config = json_loadb(text.data, text.length, 0, NULL);
    tm_text_fini(&text);
    TM_ASSERT(x->config);
    x->experts = x->model->experts ? x->source->shape.moe.experts : 0;
    if (json_is_false(json_object_get(x->config, "norm_topk_prob")))
        return lacks(x, "weights of experts that do not add up to 1 (norm_topk_prob)", err);
    TM_TRY(put_model(x, format, err));
    TM_TRY(put_tokenizer(x, err));
    TM_TRY(list_tensors(x, format, err));
    if (x->whole > 0)
        tm_note("%d matrices stay in f32: their rows are no multiple of 32 elements, the blocks of q8_0", x->whole);
    TM_TRY(write_file(x, err));
    *report = (tm_hf_report){ .tensors = x->n + (x->divisors != NULL), .dtype = TM_F32 };
    for (size_t i = 0; i < x->values.layout->n; i++) report->elements += x->values.layout->entries[i].elements;
    for (size_t i = 0; i < x->n; i++) {
        int64_t elements = x->values.layout->entries[x->parts[i].entries[0]].elements * x->parts[i].n_entries;
        report->bytes += (int64_t)tm_gguf_bytes(x->tensors[i].format, elements);
    }
    return TM_OK;
}

tm_status tm_hf_export_gguf(const tm_hf_source *source, const tm_gguf_options *options, tm_hf_report *report,
                            tm_error *err)
{
    exporter x = { .source = source, .options = options, .arena = tm_arena_create() };
    x.model = tm_gguf_model_of_type(source->form->model_type);
    tm_status st = export_all(&x, report, err);
    json_decref(x.config);
    tm_text_fini(&x.head.bytes);
    tm_hf_values_close(&x.values);
    tm_arena_destroy(x.arena);
    return st;
}
