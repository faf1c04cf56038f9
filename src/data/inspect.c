/* SPDX-License-Identifier: Apache-2.0 */
#include "data/inspect.h"

#include "base/file.h"
#include "base/text.h"
#include "base/file_list.h"
#include "data/indexed.h"
#include "data/packed.h"
#include "data/text_files.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FIRST = 12, END_TOKEN = 256 };

static const int64_t id_limit_tokens = (int64_t)1 << 28;

tm_table *tm_data_inspect_table(void)
{
    static const tm_column columns[] = { { "file", 0 },      { "format", 0 }, { "type", 0 },       { "rows", 0 },
                                         { "documents", 0 }, { "tokens", 0 }, { "length_min", 0 }, { "length_max", 0 },
                                         { "id_min", 0 },    { "id_max", 0 }, { "counted", 4 },    { "first", 0 } };
    tm_table              *table = tm_table_create("data");
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    return table;
}

/* Range of the ids seen, and the first of them as text. */
typedef struct {
    int64_t low, high, n;
    tm_text first;
} ids;

static void see(ids *seen, int64_t id)
{
    if (seen->n == 0 || id < seen->low) seen->low = id;
    if (seen->n == 0 || id > seen->high) seen->high = id;
    if (seen->n < FIRST) tm_text_printf(&seen->first, "%s%lld", seen->n ? " " : "", (long long)id);
    seen->n++;
}

static void begin_row(tm_table *out, const char *path, const char *format, const char *type)
{
    tm_table_row(out);
    tm_table_text(out, "file", path);
    tm_table_text(out, "format", format);
    tm_table_text(out, "type", type);
}

static void say_ids(tm_table *out, ids *seen)
{
    if (seen->n > 0) {
        tm_table_i64(out, "id_min", seen->low);
        tm_table_i64(out, "id_max", seen->high);
        tm_table_text(out, "first", seen->first.data);
    }
    tm_text_fini(&seen->first);
}

static tm_status inspect_packed(const char *path, tm_table *out, tm_error *err)
{
    tm_packed packed;
    ids       seen = { 0 };
    int64_t   counted = 0;
    TM_TRY(tm_packed_open(path, &packed, err));
    for (int64_t r = 0; r < packed.rows; r++)
        for (int64_t t = 0; t < packed.width; t++) {
            see(&seen, tm_packed_id(&packed.row[r], t));
            counted += packed.masks[packed.row[r].mask + (size_t)t];
        }
    begin_row(out, path, "govreport", "int32");
    tm_table_i64(out, "rows", packed.rows);
    tm_table_i64(out, "tokens", packed.rows * packed.width);
    tm_table_i64(out, "length_min", packed.width);
    tm_table_i64(out, "length_max", packed.width);
    if (seen.n > 0) tm_table_f64(out, "counted", (double)counted / (double)seen.n);
    say_ids(out, &seen);
    tm_packed_close(&packed);
    return TM_OK;
}

static tm_status inspect_indexed(const char *path, tm_table *out, tm_error *err)
{
    tm_indexed set;
    ids        seen = { 0 };
    int64_t    shortest = 0, longest = 0, strange = 0;
    TM_TRY(tm_indexed_open(path, &set, err));
    for (int64_t i = 0; i < set.sequences; i++) {
        int64_t length = tm_indexed_length(&set, i);
        if (i == 0 || length < shortest) shortest = length;
        if (i == 0 || length > longest) longest = length;
    }
    for (int64_t i = 0; i < set.tokens && i < id_limit_tokens; i++) {
        int32_t id;
        if (tm_indexed_token(&set, i, &id))
            see(&seen, id);
        else
            strange++;
    }
    begin_row(out, path, "megatron", tm_indexed_type(&set));
    tm_table_i64(out, "rows", set.sequences);
    tm_table_i64(out, "documents", set.documents);
    tm_table_i64(out, "tokens", set.tokens);
    tm_table_i64(out, "length_min", shortest);
    tm_table_i64(out, "length_max", longest);
    say_ids(out, &seen);
    if (set.tokens > id_limit_tokens)
        tm_table_note(out, "%s: ids of the first %lld tokens", path, (long long)id_limit_tokens);
    if (strange) tm_table_note(out, "%s: %lld tokens are not integers of 32 bits", path, (long long)strange);
    if (set.modes) tm_table_note(out, "%s: a multimodal set; the modes are not used", path);
    tm_indexed_close(&set);
    return TM_OK;
}

/* Bytes as tokens, as data.source text has them: an end token after each file. */
static tm_status inspect_text(const char *path, tm_table *out, tm_error *err)
{
    tm_text_files files;
    ids           seen = { 0 };
    int64_t       shortest = 0, longest = 0;
    TM_TRY(tm_text_files_open(path, &files, err));
    tm_status st = tm_text_files_check(&files, err);
    for (size_t f = 0; f < files.count && st == TM_OK; f++) {
        int64_t size = files.files[f].size;
        if (f == 0 || size < shortest) shortest = size;
        if (f == 0 || size > longest) longest = size;
        for (int64_t i = 0; i < size; i++) see(&seen, files.files[f].bytes[i]);
        see(&seen, END_TOKEN);
    }
    if (st != TM_OK) {
        tm_text_fini(&seen.first);
        tm_text_files_close(&files);
        return st;
    }
    begin_row(out, path, "text", "uint8");
    tm_table_i64(out, "rows", (int64_t)files.count);
    tm_table_i64(out, "documents", (int64_t)files.count);
    tm_table_i64(out, "tokens", files.bytes + (int64_t)files.count);
    tm_table_i64(out, "length_min", shortest + (files.count > 0));
    tm_table_i64(out, "length_max", longest + (files.count > 0));
    say_ids(out, &seen);
    if (files.hidden + files.empty + files.repeated > 0)
        tm_table_note(out, "%s: left out %lld hidden names, %lld empty files, %lld reached a second time", path,
                      (long long)files.hidden, (long long)files.empty, (long long)files.repeated);
    tm_text_files_close(&files);
    return TM_OK;
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}

/* Is it, or does PATH.idx lie beside it? */
static bool is_indexed(const char *path)
{
    tm_text idx = { 0 };
    tm_text_printf(&idx, "%s.idx", path);
    bool found = ends_in(path, ".idx") || ends_in(path, ".bin") || (!tm_file_exists(path) && tm_file_exists(idx.data));
    tm_text_fini(&idx);
    return found;
}

/* The .npy files below a folder; *found: are there any? */
static tm_status inspect_folder(const char *path, bool *found, tm_table *out, tm_error *err)
{
    tm_file_list files;
    tm_status    st = TM_OK;
    TM_TRY(tm_file_list_read(path, &files, err));
    for (size_t i = 0; i < files.count && st == TM_OK; i++) {
        if (!ends_in(files.paths[i], ".npy")) continue;
        *found = true;
        st = inspect_packed(files.paths[i], out, err);
    }
    tm_file_list_free(&files);
    return st;
}

tm_status tm_data_inspect(const char *path, tm_table *out, tm_error *err)
{
    bool found = false;
    if (is_indexed(path)) return inspect_indexed(path, out, err);
    if (ends_in(path, ".npy") && !tm_is_folder(path)) return inspect_packed(path, out, err);
    if (ends_in(path, ".parquet"))
        return tm_fail(err, TM_INVALID, "'%s' holds rows, not tokens; `trainmark data preview` shows samples of them",
                       path);
    if (tm_is_folder(path)) TM_TRY(inspect_folder(path, &found, out, err));
    return found ? TM_OK : inspect_text(path, out, err);
}
