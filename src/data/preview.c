/* SPDX-License-Identifier: Apache-2.0 */
#include "data/preview.h"

#include "base/json.h"
#include "base/plain.h"
#include "data/rows.h"
#include "data/sft_tokens.h"

#include <stdlib.h>

typedef struct {
    const tm_preview_options *options;
    tm_sft_form              *form;
    tm_sft_coder             *coder;
    tm_rows                  *rows;
    tm_text                   text;
    tm_json                   json;
} preview;

/* Tokens from `at` on that are all targets, or none of them; *end is behind the last. */
static bool next_part(const tm_ids *ids, size_t at, size_t *end)
{
    bool target = ids->data[at] >= 0;
    for (*end = at; *end < ids->count && (ids->data[*end] >= 0) == target;) ++*end;
    return target;
}

static const char *part_text(preview *p, const tm_ids *ids, size_t begin, size_t end)
{
    if (p->text.data) p->text.length = 0;
    tm_text_add_n(&p->text, "", 0);
    tm_sft_decode(p->coder, ids->data + begin, end - begin, true, &p->text);
    return p->text.data;
}

static int64_t targets_of(const tm_ids *ids)
{
    int64_t targets = 0;
    for (size_t i = 1; i < ids->count; i++) targets += ids->data[i] >= 0;
    return targets;
}

/* which: "chosen", "rejected", or NULL. */
static void print_json(preview *p, const char *place, const char *which, const tm_ids *ids, size_t before)
{
    tm_json *json = &p->json;
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "place", place);
    if (which) tm_json_string(json, "answer", which);
    tm_json_i64(json, "tokens", (int64_t)ids->count);
    tm_json_i64(json, "targets", targets_of(ids));
    tm_json_i64(json, "truncated", (int64_t)(before - ids->count));
    tm_json_open(json, "parts", '[');
    for (size_t at = 0, end; at < ids->count; at = end) {
        tm_json_open(json, NULL, '{');
        tm_json_bool(json, "target", next_part(ids, at, &end));
        tm_json_string(json, "text", part_text(p, ids, at, end));
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_open(json, "ids", '[');
    for (size_t i = 0; i < ids->count; i++) tm_json_i64(json, NULL, tm_sft_id(ids->data[i]));
    tm_json_close(json, ']');
    tm_json_open(json, "mask", '[');
    for (size_t i = 0; i < ids->count; i++) tm_json_i64(json, NULL, ids->data[i] >= 0);
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

static void print_text(preview *p, const char *place, const char *which, const tm_ids *ids, size_t before, tm_text *out)
{
    const bool colour = p->options->colour;
    tm_text_printf(out, "%s%s%s%s: %zu tokens, %lld of them targets", out->length ? "\n" : "", place, which ? ", " : "",
                   which ? which : "", ids->count, (long long)targets_of(ids));
    if (before > ids->count) tm_text_printf(out, "; %zu more are cut off", before - ids->count);
    tm_text_add(out, "\n");
    for (size_t at = 0, end; at < ids->count; at = end) {
        bool target = next_part(ids, at, &end);
        part_text(p, ids, at, end);
        if (target == colour) tm_text_add(out, colour ? "\033[32m" : "[[");
        tm_plain_add(out, p->text.data, TM_PLAIN_LINES);
        if (target == colour) tm_text_add(out, colour ? "\033[0m" : "]]");
    }
    tm_text_add(out, "\n");
}

/* What a row has become; of a pair two of them. */
static void print_row(preview *p, const char *place, const tm_sft_row *row, tm_ids ids[2], tm_text *out)
{
    static const char *const names[2] = { "chosen", "rejected" };
    for (int k = 0; k < (row->paired ? 2 : 1); k++) {
        size_t before = ids[k].count, most = (size_t)p->options->seq / (row->paired ? 2 : 1) + 1;
        if (p->options->seq > 0 && before > most) ids[k].count = most;
        if (p->options->json)
            print_json(p, place, row->paired ? names[k] : NULL, &ids[k], before);
        else
            print_text(p, place, row->paired ? names[k] : NULL, &ids[k], before, out);
    }
}

static tm_status print_samples(preview *p, tm_text *out, tm_error *err)
{
    const tm_preview_options *o = p->options;
    tm_sft_row                row = { 0 };
    tm_ids                    ids[2] = { { 0 } };
    tm_status                 st = TM_OK;
    int64_t                   number = 0, shown = 0;
    while (shown < o->n) {
        json_t *given = NULL;
        st = tm_rows_next(p->rows, &given, err);
        if (!given) break;
        number++;
        const char *place = tm_rows_place(p->rows);
        if (st == TM_OK) st = tm_sft_form_read(p->form, given, place, &row, err);
        json_decref(given);
        if (st == TM_OK && (number < o->first || row.nothing)) continue;
        if (st == TM_OK) st = tm_sft_encode(p->coder, &row, place, ids, err);
        if (st != TM_OK) break;
        print_row(p, place, &row, ids, out);
        shown++;
    }
    tm_sft_row_fini(&row);
    for (int k = 0; k < 2; k++) free(ids[k].data);
    if (st == TM_OK && shown == 0)
        st = tm_fail(err, TM_INVALID, "'%s' has %lld rows, none with a text from row %lld on", o->path,
                     (long long)number, (long long)o->first);
    return st;
}

tm_status tm_data_preview(const tm_preview_options *options, tm_text *out, tm_error *err)
{
    preview            p = { .options = options, .json = { .out = out } };
    size_t             n;
    const char *const *columns;
    tm_status          st = tm_sft_form_open(options->sft.format, options->sft.column_map, &p.form, err);
    if (st == TM_OK) st = tm_sft_coder_open(&options->sft, &p.coder, err);
    if (st == TM_OK) {
        columns = tm_sft_form_columns(p.form, &n);
        st = tm_rows_open(options->path, columns, n, &p.rows, err);
    }
    if (st == TM_OK && options->json) {
        tm_json_open(&p.json, NULL, '{');
        tm_json_open(&p.json, "samples", '[');
    }
    if (st == TM_OK) st = print_samples(&p, out, err);
    if (st == TM_OK && options->json) {
        tm_json_close(&p.json, ']');
        tm_json_string(&p.json, "format", tm_sft_form_describe(p.form));
        tm_json_close(&p.json, '}');
        tm_text_add(out, "\n");
    }
    tm_rows_close(p.rows);
    tm_sft_coder_close(p.coder);
    tm_sft_form_close(p.form);
    tm_text_fini(&p.text);
    return st;
}
