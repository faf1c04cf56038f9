/* SPDX-License-Identifier: Apache-2.0 */
/* Files of data: rows, tokens, pictures, archives, tensors. */
#include "fuzz.h"

#include "base/arena.h"
#include "data/captions.h"
#include "data/corpus.h"
#include "data/indexed.h"
#include "data/md5_list.h"
#include "data/order.h"
#include "data/packed.h"
#include "data/parquet.h"
#include "data/pictures_list.h"
#include "data/rows.h"
#include "data/safetensors.h"
#include "data/sft_tokens.h"
#include "data/token_list.h"
#include "data/unpack.h"

/* Metadata.csv and metadata.jsonl: rows have a file name, and texts are UTF-8; errors name the file. */
static void captions_read_as(const uint8_t *data, size_t size, bool csv, const char *caption)
{
    tm_arena   *arena = tm_arena_create();
    tm_captions rows = { 0 };
    tm_error    err = { 0 };
    tm_status   st = tm_captions_parse("x.meta", (const char *)data, size, csv, NULL, caption, arena, &rows, &err);
    fuzz_told(st, &err, "'x.meta'");
    TM_ASSERT(st != TM_OK || rows.count > 0);
    for (size_t i = 0; i < rows.count; i++) {
        TM_ASSERT(*rows.rows[i].file && rows.rows[i].line > (i ? rows.rows[i - 1].line : 0));
        fuzz_utf8(rows.rows[i].file);
        fuzz_utf8(rows.rows[i].caption);
    }
    free(rows.rows);
    tm_arena_destroy(arena);
}

FUZZ(captions)
{
    captions_read_as(data, size, true, NULL);
    captions_read_as(data, size, true, "id");
    captions_read_as(data, size, false, NULL);
}

/* The reader of indexed data sets. The first two bytes are the length of the index, the rest of the input the
 * tokens. Whatever is accepted can be read to its last token, and its samples can be put in order. */
FUZZ(indexed)
{
    tm_indexed    set;
    tm_order_plan plan;
    tm_order      order;
    tm_error      err = { 0 };
    if (size < 2) return;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    uint8_t *idx = malloc(n + 1), *bin = malloc(size); /* so that reading beyond the end is seen */
    TM_ASSERT(idx && bin);
    memcpy(idx, data + 2, n);
    uint8_t *exact = realloc(idx, n ? n : 1);
    TM_ASSERT(exact);
    memcpy(bin, data + 2 + n, size - 2 - n);
    tm_status st = tm_indexed_parse("x.idx", exact, (int64_t)n, "x.bin", bin, (int64_t)(size - 2 - n), &set, &err);
    fuzz_told(st, &err, "x.idx");
    if (st == TM_OK) {
        int64_t sum = 0;
        for (int64_t i = 0; i < set.sequences; i++) {
            TM_ASSERT(tm_indexed_first_token(&set, i) == sum);
            sum += tm_indexed_length(&set, i);
        }
        TM_ASSERT(sum == set.tokens);
        for (int64_t i = 0; i <= set.documents; i++) TM_ASSERT(tm_indexed_document(&set, i) <= set.sequences);
        for (int64_t i = 0; i < set.tokens; i++) {
            int32_t id;
            (void)!tm_indexed_token(&set, i, &id);
        }
        if (tm_order_plan_make(set.sequences, set.tokens, 3, 9, &plan, &err) == TM_OK &&
            plan.document_bytes < 1 << 20) {
            TM_ASSERT(tm_order_build(&plan, set.lengths, 1, &order, &err) == TM_OK);
            tm_order_free(&order);
        }
    }
    free(exact);
    free(bin);
}

/* Lists of checksums: whatever is accepted has 32 digits and a name in each line. */
FUZZ(md5)
{
    tm_md5_list list;
    tm_error    err = { 0 };
    tm_status   st = tm_md5_list_parse("x.md5", (const char *)data, size, &list, &err);
    fuzz_told(st, &err, "x.md5");
    for (size_t i = 0; i < list.count; i++) {
        TM_ASSERT(strlen(list.lines[i].md5) == 32 && strspn(list.lines[i].md5, "0123456789abcdef") == 32);
        TM_ASSERT(*list.lines[i].name);
    }
    TM_ASSERT((st == TM_OK) == (list.count > 0));
    tm_md5_list_free(&list);
}

/* The reader of packed sequences: whatever it accepts has as many rows as the header says, all of one width, ids
 * within the file and masks of 0 and 1. */
FUZZ(packed)
{
    tm_packed packed;
    tm_error  err = { 0 };
    tm_status st = tm_packed_parse("x.npy", data, size, &packed, &err);
    fuzz_told(st, &err, "x.npy");
    if (st != TM_OK) return;
    int64_t sum = 0;
    for (int64_t r = 0; r < packed.rows; r++)
        for (int64_t t = 0; t < packed.width; t++) {
            TM_ASSERT(packed.masks[packed.row[r].mask + (size_t)t] <= 1);
            sum += tm_packed_id(&packed.row[r], t);
        }
    TM_ASSERT(sum >= packed.rows * packed.width * INT32_MIN);
    tm_packed_close(&packed);
}

/* The reader of parquet files: errors name the file, texts lie in memory that may be read. */
FUZZ(parquet)
{
    tm_parquet *p;
    tm_error    err = { 0 };
    const char *text;
    size_t      n;
    bool        more = true;
    unsigned    sum = 0;
    tm_status   st = tm_parquet_parse("x.parquet", data, (int64_t)size, "text", &p, &err);
    if (st == TM_OK) {
        for (int i = 0; st == TM_OK && more && i < 100000; i++) {
            st = tm_parquet_next(p, &text, &n, &more, &err);
            for (size_t k = 0; st == TM_OK && more && k < n; k++) sum += (uint8_t)text[k];
        }
        tm_parquet_close(p);
    }
    fuzz_told(st, &err, "x.parquet");
    TM_ASSERT(sum < UINT32_MAX);
}

/* Parquet files with pictures inside: captions are UTF-8, pictures are bytes that may be read, in any order;
 * errors name the file. */
static void picture_rows_read_some(tm_pictures *p, const char *path)
{
    tm_text bytes = { 0 };
    for (int64_t k = 0; k < 12 && p->count > 0; k++) {
        tm_error  err = { 0 };
        int64_t   i = k * 7919 % (int64_t)p->count;
        tm_status st = tm_pictures_read(p, i, &bytes, &err);
        fuzz_told(st, &err, path);
        TM_ASSERT(st != TM_OK || strlen(bytes.data) <= bytes.length);
    }
    tm_text_fini(&bytes);
}

static void picture_rows_read_as(const char *path, tm_picture_options options)
{
    tm_pictures p = { .arena = tm_arena_create(), .options = options };
    tm_error    err = { 0 };
    tm_status   st = tm_pictures_add_parquet(&p, path, "x", &err);
    fuzz_told(st, &err, path);
    for (size_t i = 0; i < p.count; i++) fuzz_utf8(p.items[i].caption);
    if (st == TM_OK) picture_rows_read_some(&p, path);
    tm_picture_rows_close(p.rows);
    free(p.items);
    tm_arena_destroy(p.arena);
}

FUZZ(picture_rows)
{
    const char *path = fuzz_file("x.parquet", data, size);
    picture_rows_read_as(path, (tm_picture_options){ 0 });
    picture_rows_read_as(path, (tm_picture_options){ .otherwise = "a" });
    picture_rows_read_as(path, (tm_picture_options){ .file = "text", .caption = "text" });
}

/* Tar archives of samples, with their sums as they are and made right: captions are UTF-8, pictures are bytes
 * that may be read; errors name the file. */
static void tar_check(tm_pictures *p, const char *path)
{
    tm_text bytes = { 0 };
    for (int64_t i = 0; i < (int64_t)p->count; i++) {
        tm_error err = { 0 };
        TM_ASSERT(tm_pictures_read(p, i, &bytes, &err) == TM_OK);
        TM_ASSERT((int64_t)bytes.length == p->items[i].bytes && strcmp(p->items[i].path, path) == 0);
        fuzz_utf8(p->items[i].caption);
    }
    tm_text_fini(&bytes);
}

static void tar_read_as(const uint8_t *data, size_t size, tm_picture_options options)
{
    const char *path = fuzz_file("x.tar", data, size);
    tm_pictures p = { .arena = tm_arena_create(), .options = options };
    tm_error    err = { 0 };
    tm_status   st = tm_pictures_add_tar(&p, path, "x", &err);
    fuzz_told(st, &err, path);
    if (st == TM_OK) tar_check(&p, path);
    tm_map_close(&p.tar);
    free(p.items);
    tm_arena_destroy(p.arena);
}

/* The sum of every header, where the sizes lead. */
static void tar_mend(uint8_t *tar, size_t size)
{
    for (size_t at = 0; at + 512 <= size;) {
        uint8_t *h = tar + at;
        unsigned sum = 8 * ' ';
        for (int i = 0; i < 512; i++) sum += i >= 148 && i < 156 ? 0 : h[i];
        if (sum == 8 * ' ') return;
        snprintf((char *)h + 148, 8, "%06o", sum);
        at += 512 + ((size_t)strtoull((char *)h + 124, NULL, 8) % (1u << 24) + 511) / 512 * 512;
    }
}

FUZZ(tar)
{
    uint8_t *tar = tm_alloc(size + 1);
    memcpy(tar, data, size);
    tar_read_as(tar, size, (tm_picture_options){ 0 });
    tar_mend(tar, size);
    tar_read_as(tar, size, (tm_picture_options){ .otherwise = "a" });
    free(tar);
}

/* Rows of data for fine-tuning: a file in every format, with and without a map of columns. Rows become tokens,
 * or an error that names the place. */
static void sft_check_tokens(const tm_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        if (tm_sft_id(ids->data[i]) < 0 || tm_sft_id(ids->data[i]) > 256) abort();
}

static void sft_read_as(const uint8_t *data, size_t size, tm_sft_format format, const char *map)
{
    tm_sft_options     o = { .format = format, .column_map = map };
    tm_sft_form       *form = NULL;
    tm_sft_coder      *coder = NULL;
    tm_rows           *rows = NULL;
    tm_sft_row         row = { 0 };
    tm_ids             ids[2] = { { 0 } };
    tm_error           err = { 0 };
    size_t             n;
    json_t            *given = NULL;
    const char *const *columns;
    if (tm_sft_form_open(format, map, &form, &err) != TM_OK || tm_sft_coder_open(&o, &coder, &err) != TM_OK) abort();
    columns = tm_sft_form_columns(form, &n);
    tm_status st = tm_rows_parse("x", data, size, columns, n, &rows, &err);
    for (int left = 1000; st == TM_OK && left > 0; left--) {
        st = tm_rows_next(rows, &given, &err);
        if (!given) break;
        const char *place = tm_rows_place(rows);
        st = tm_sft_form_read(form, given, place, &row, &err);
        json_decref(given);
        if (st != TM_OK) break;
        if (!row.messages && !row.nothing) st = tm_sft_encode(coder, &row, place, ids, &err);
        for (int k = 0; k < 2; k++) sft_check_tokens(&ids[k]);
    }
    fuzz_told(st, &err, "'x'");
    tm_rows_close(rows);
    tm_sft_row_fini(&row);
    tm_sft_coder_close(coder);
    tm_sft_form_close(form);
    for (int k = 0; k < 2; k++) free(ids[k].data);
}

FUZZ(sft)
{
    sft_read_as(data, size, TM_SFT_AUTO, NULL);
    sft_read_as(data, size, TM_SFT_COMPLETION, "prompt=a,completion=b");
    sft_read_as(data, size, TM_SFT_MESSAGES, NULL);
    sft_read_as(data, size, TM_SFT_PREFERENCE, NULL);
}

/* The reader of token ids: JSON and numpy arrays. Every id of what is accepted is in the vocabulary. */
FUZZ(token_list)
{
    int32_t  *ids;
    int64_t   n;
    tm_error  err = { 0 };
    tm_status st = tm_token_list_parse("x.npy", data, size, 1000, &ids, &n, &err);
    fuzz_told(st, &err, "x.npy");
    if (st != TM_OK) return;
    for (int64_t i = 0; i < n; i++) TM_ASSERT(ids[i] >= 0 && ids[i] < 1000);
    free(ids);
}

/* The readers of packed text: .gz and .zst, whole and in small parts, which must give the same bytes; what comes
 * out goes into the reader of JSON lines. The first byte of an input says which; the rest is the file. */
enum { MOST = 1 << 20 }; /* a small file may unpack_unpack to very much */

/* At most MOST bytes, `part` at a time. */
static tm_status unpack_unpack(const char *file, size_t part, tm_text *out)
{
    tm_unpack *u;
    tm_error   err = { 0 };
    char      *room = malloc(part);
    size_t     got = 1;
    tm_status  st = tm_unpack_open(file, &u, &err);
    while (st == TM_OK && got > 0 && out->length < MOST) {
        st = tm_unpack_read(u, room, part, &got, &err);
        TM_ASSERT(got <= part);
        if (st == TM_OK) tm_text_add_n(out, room, got);
    }
    fuzz_told(st, &err, file);
    tm_unpack_close(u);
    free(room);
    return st;
}

static tm_status unpack_take(void *context, const char *text, size_t n, bool begins, bool ends, tm_error *err)
{
    size_t *sum = context;
    (void)err;
    TM_ASSERT(begins && ends);
    for (size_t i = 0; i < n; i++) *sum += (unsigned char)text[i];
    return TM_OK;
}

static void unpack_read_lines(const tm_text *text)
{
    size_t        sum = 0;
    tm_error      err = { 0 };
    tm_text_batch batch = { .text = *text };
    const tm_part part = {
        .length = text->length, .begins = true, .ends = true, .lines = true, .line = 1, .file = "x"
    };
    tm_status st = tm_part_documents(&batch, &part, "text", unpack_take, &sum, &err);
    fuzz_told(st, &err, "'x', line ");
}

FUZZ(unpack)
{
    static const char *const names[] = { "x.gz", "x.zst", "x.jsonl" };
    if (size == 0) return;
    const char *file = fuzz_file(names[data[0] % 3], data + 1, size - 1);
    tm_text     whole = { 0 }, parts = { 0 };
    tm_text_add(&whole, "");
    tm_status a = unpack_unpack(file, 1 << 16, &whole), b = unpack_unpack(file, 7, &parts);
    if (whole.length < MOST) TM_ASSERT(a == b);
    if (a == TM_OK && whole.length < MOST)
        TM_ASSERT(whole.length == parts.length &&
                  (whole.length == 0 || memcmp(whole.data, parts.data, whole.length) == 0));
    if (a == TM_OK) unpack_read_lines(&whole);
    tm_text_fini(&whole);
    tm_text_fini(&parts);
}

/* The reader of safetensors. Of whatever is accepted every byte can be read, in one piece. */
FUZZ(safetensors)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    tm_status       st = tm_safetensors_parse("x.safetensors", data, size, &set, &err);
    fuzz_told(st, &err, "x.safetensors");
    if (st != TM_OK) return;
    size_t                  n, bytes = 0;
    const tm_stored_tensor *all = tm_safetensors_list(set, &n);
    volatile uint8_t        sum = 0;
    for (size_t i = 0; i < n; i++) {
        char text[192];
        TM_ASSERT(tm_safetensors_find(set, all[i].name) == &all[i]);
        for (size_t k = 0; k < all[i].bytes; k++) sum = (uint8_t)(sum + all[i].data[k]);
        bytes += all[i].bytes;
        tm_stored_shape_text(text, &all[i]);
    }
    TM_ASSERT(bytes < size);
    tm_safetensors_metadata(set, "format");
    tm_safetensors_close(set);
}

/* The reader of an index of shards, which lie in a folder of their own: nothing beside the index is opened. */
static void safetensors_index_make_folder(void)
{
    char                   path[96];
    tm_tensor_heading      heading = { .name = "a", .dtype = TM_U8, .rank = 1, .n = { 1 } };
    tm_safetensors_writer *writer;
    tm_error               err = { 0 };
    snprintf(path, sizeof path, "%s/one", fuzz_folder());
    TM_ASSERT(tm_safetensors_create(path, &heading, 1, NULL, &writer, &err) == TM_OK);
    tm_safetensors_write(writer, "x", 1);
    TM_ASSERT(tm_safetensors_finish(writer, &err) == TM_OK);
}

FUZZ(safetensors_index)
{
    tm_safetensors *set;
    tm_error        err = { 0 };
    static bool     made;
    if (!made) safetensors_index_make_folder();
    made = true;
    tm_status st = tm_safetensors_open(fuzz_file("i.json", data, size), &set, &err);
    fuzz_told(st, &err, fuzz_folder());
    if (st != TM_OK) return;
    TM_ASSERT(tm_safetensors_find(set, "a"));
    tm_safetensors_close(set);
}
