/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet.c - the pages of a column; parquet_footer.c says where they are.
 *
 * PageHeader     1 type, 2 bytes unpacked, 3 bytes, 5 data {1 values, 2 encoding}, 7 dictionary {1 values, 2 encoding},
 *                8 data, version 2 {1 values, 2 nulls, 4 encoding, 5 and 6 bytes of levels, 7 packed?}
 *
 * A data page holds the repetition levels, the definition levels (each only where a level can be above 0), and the
 * values that are there.
 */
#include "data/parquet.h"

#include "base/arena.h"
#include "base/map.h"
#include "data/parquet_numbers.h"

#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

enum { PLAIN = 0, PLAIN_DICTIONARY = 2, DELTA_LENGTH = 6, RLE_DICTIONARY = 8 };
enum { MAX_PAGE = 1 << 30, LARGE_PAGE = 64 << 20, MAX_RATIO = 1000 };

typedef struct {
    const uint8_t *bytes;
    uint32_t       length;
} value;

struct tm_parquet {
    char             *name;
    tm_map            map;
    const uint8_t    *bytes;
    int64_t           size;
    int               definition, repetition; /* the highest levels */
    bool              unread;                 /* of another type: only whether values are there */
    tm_parquet_chunks chunks;
    size_t            next_chunk;
    const uint8_t    *at, *end; /* pages of the chunk */
    int64_t           left;     /* values in them */
    uint8_t          *page, *dictionary_page;
    value            *dictionary;
    size_t            n_dictionary;
    int64_t           page_left; /* values in the page, nulls among them */
    tm_parquet_runs   levels[2]; /* of them: repetition, definition */
    int               encoding;
    const uint8_t    *plain, *plain_end;
    tm_parquet_runs   indices;
    int64_t          *lengths; /* DELTA_LENGTH */
    int64_t           next_length;
};

static tm_status damaged(const tm_parquet *p, const char *what, tm_error *err)
{
    return tm_parquet_damaged(p->name, what, err);
}

static tm_status refuse(const tm_parquet *p, const char *what, long long which, tm_error *err)
{
    return tm_parquet_refuse(p->name, what, which, err);
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t type, unpacked, packed, values, encoding, nulls, levels, repetition_levels;
    bool    compressed;
} page_header;

static void read_numbers(tm_thrift *t, page_header *h, int version)
{
    tm_thrift in = tm_thrift_inner(t);
    while (tm_thrift_next(&in)) {
        int64_t *to = in.field == 1 ? &h->values : NULL;
        if (in.field == (version == 2 ? 4 : 2)) to = &h->encoding;
        if (version == 2 && in.field == 2) to = &h->nulls;
        if (version == 2 && in.field == 5) to = &h->levels;
        if (version == 2 && in.field == 6) to = &h->repetition_levels;
        if (version == 2 && in.field == 7) h->compressed = in.kind == TM_THRIFT_TRUE;
        if (to && in.kind == TM_THRIFT_I32)
            *to = tm_thrift_number(&in);
        else
            tm_thrift_skip(&in);
    }
    tm_thrift_leave(t, &in);
}

static bool read_header(tm_parquet *p, page_header *h)
{
    tm_thrift t = { .at = p->at, .end = p->end };
    *h = (page_header){ .type = -1, .unpacked = -1, .packed = -1, .values = -1, .encoding = -1, .compressed = true };
    while (tm_thrift_next(&t)) {
        int64_t *to = t.field == 1 ? &h->type : t.field == 2 ? &h->unpacked : t.field == 3 ? &h->packed : NULL;
        if (to && t.kind == TM_THRIFT_I32)
            *to = tm_thrift_number(&t);
        else if (t.kind == TM_THRIFT_STRUCT && (t.field == 5 || t.field == 7 || t.field == 8))
            read_numbers(&t, h, t.field == 8 ? 2 : 1);
        else
            tm_thrift_skip(&t);
    }
    p->at = t.at;
    return !t.bad && h->unpacked >= 0 && h->unpacked <= MAX_PAGE && h->packed >= 0 && h->packed <= p->end - p->at;
}

/* No data of a large page packs so well: it is there to fill the memory. */
static bool is_bomb(const page_header *h)
{
    return h->unpacked > LARGE_PAGE && h->unpacked / MAX_RATIO > h->packed;
}

static bool inflate_all(const uint8_t *in, size_t n, uint8_t *out, size_t wanted)
{
    z_stream z = {
        .next_in = (uint8_t *)(uintptr_t)in, .avail_in = (uInt)n, .next_out = out, .avail_out = (uInt)wanted
    };
    if (inflateInit2(&z, 15 + 32) != Z_OK) return false;
    int code = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return code == Z_STREAM_END && z.avail_out == 0;
}

/* A page's bytes, unpacked into *room (which grows) where they are packed. */
static const uint8_t *unpack(int64_t codec, const uint8_t *in, size_t n, uint8_t **room, size_t wanted)
{
    size_t length = wanted;
    if (codec == TM_PARQUET_UNCOMPRESSED) return n == wanted ? in : NULL;
    if (codec == TM_PARQUET_SNAPPY &&
        (snappy_uncompressed_length((const char *)in, n, &length) != SNAPPY_OK || length != wanted))
        return NULL;
    *room = tm_realloc(*room, wanted);
    bool good = codec == TM_PARQUET_SNAPPY
                    ? snappy_uncompress((const char *)in, n, (char *)*room, &length) == SNAPPY_OK && length == wanted
                : codec == TM_PARQUET_GZIP ? inflate_all(in, n, *room, wanted)
                                           : ZSTD_decompress(*room, wanted, in, n) == wanted;
    return good ? *room : NULL;
}

static bool next_plain(const uint8_t **at, const uint8_t *end, value *out)
{
    const uint8_t *p = *at;
    if (end - p < 4) return false;
    out->length = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    if (out->length > (uint64_t)(end - p - 4)) return false;
    out->bytes = p + 4;
    *at = p + 4 + out->length;
    return true;
}

static tm_status read_dictionary(tm_parquet *p, const tm_parquet_chunk *c, const page_header *h, tm_error *err)
{
    if (p->unread) return TM_OK;
    if (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY)
        return refuse(p, "a dictionary's encoding", h->encoding, err);
    if (h->values < 0 || h->values > h->unpacked / 4) return damaged(p, "a dictionary with too many texts", err);
    const uint8_t *at = unpack(c->codec, p->at, (size_t)h->packed, &p->dictionary_page, (size_t)h->unpacked);
    if (!at) return damaged(p, "a dictionary cannot be unpacked", err);
    const uint8_t *end = at + h->unpacked;
    p->dictionary = tm_realloc(p->dictionary, (size_t)h->values * sizeof *p->dictionary);
    for (p->n_dictionary = 0; p->n_dictionary < (size_t)h->values; p->n_dictionary++)
        if (!next_plain(&at, end, &p->dictionary[p->n_dictionary])) return damaged(p, "a dictionary is truncated", err);
    return TM_OK;
}

static unsigned width_of(int highest)
{
    return highest > 1 ? 32 - (unsigned)__builtin_clz((unsigned)highest) : 1;
}

/* Levels of a data page: *at moves behind them. `bytes` of version 2 are in its header, else they are in front. */
static bool begin_levels(tm_parquet *p, const uint8_t **at, const uint8_t *end, const int64_t bytes[2])
{
    const int highest[2] = { p->repetition, p->definition };
    for (int k = 0; k < 2; k++) {
        value levels = { *at, bytes ? (uint32_t)bytes[k] : 0 };
        if (bytes)
            *at += bytes[k];
        else if (highest[k] > 0 && !next_plain(at, end, &levels))
            return false;
        p->levels[k] =
            (tm_parquet_runs){ .at = levels.bytes, .end = levels.bytes + levels.length, .width = width_of(highest[k]) };
    }
    return true;
}

/* How many of the page's values are there, by their levels. */
static bool count_present(const tm_parquet *p, int64_t n, int64_t *present)
{
    tm_parquet_runs definitions = p->levels[1];
    *present = p->definition == 0 ? n : 0;
    for (int64_t i = 0; p->definition > 0 && i < n; i++) {
        uint32_t number;
        if (!tm_parquet_number(&definitions, &number)) return false;
        *present += number == (uint32_t)p->definition;
    }
    return true;
}

static tm_status begin_values(tm_parquet *p, const uint8_t *at, const uint8_t *end, int64_t present, int64_t encoding,
                              tm_error *err)
{
    p->encoding = (int)encoding;
    p->plain = at;
    p->plain_end = end;
    if (encoding == PLAIN || p->unread) return TM_OK;
    if (encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY) {
        if (!p->dictionary) return damaged(p, "a page without its dictionary", err);
        if (present > 0 && (at == end || *at > 32)) return damaged(p, "a page has wrong numbers", err);
        p->indices = (tm_parquet_runs){ .at = at + (at < end), .end = end, .width = at < end ? *at : 0 };
        return TM_OK;
    }
    if (encoding != DELTA_LENGTH) return tm_parquet_refuse_encoding(p->name, encoding, err);
    if (present > (end - at) * 64) return damaged(p, "a page says it has more texts than it can", err);
    p->lengths = tm_realloc(p->lengths, (size_t)present * sizeof *p->lengths);
    p->next_length = 0;
    return tm_parquet_deltas(&p->plain, end, present, p->lengths) ? TM_OK : damaged(p, "a page has wrong lengths", err);
}

static tm_status read_data(tm_parquet *p, const tm_parquet_chunk *c, const page_header *h, tm_error *err)
{
    const bool    second = h->type == 3; /* version 2: levels are never packed */
    const int64_t bytes[2] = { h->repetition_levels, h->levels };
    int64_t       before = second ? h->levels + h->repetition_levels : 0, present;
    if (h->values < 0 || h->values > p->left || h->levels < 0 || h->repetition_levels < 0 || before > h->packed ||
        before > h->unpacked || h->nulls < 0 || h->nulls > h->values)
        return damaged(p, "a page has wrong numbers", err);
    const uint8_t *at = unpack(h->compressed ? c->codec : TM_PARQUET_UNCOMPRESSED, p->at + before,
                               (size_t)(h->packed - before), &p->page, (size_t)(h->unpacked - before));
    if (!at) return damaged(p, "a page cannot be unpacked", err);
    const uint8_t *end = at + (h->unpacked - before), *levels = p->at;
    p->left -= h->values;
    p->page_left = h->values;
    if (!begin_levels(p, second ? &levels : &at, end, second ? bytes : NULL) || !count_present(p, h->values, &present))
        return damaged(p, "levels are truncated", err);
    return begin_values(p, at, end, present, h->encoding, err);
}

static tm_status next_page(tm_parquet *p, tm_error *err)
{
    const tm_parquet_chunk *c = &p->chunks.data[p->next_chunk - 1];
    page_header             h;
    if (p->at >= p->end || !read_header(p, &h)) return damaged(p, "a page is truncated", err);
    if (is_bomb(&h)) return damaged(p, "a page of more than 64 MiB is packed more than 1,000 times", err);
    tm_status st = TM_OK;
    if (h.type == 2)
        st = read_dictionary(p, c, &h, err);
    else if (h.type == 0 || h.type == 3)
        st = read_data(p, c, &h, err);
    else if (h.type != 1)
        st = refuse(p, "page type", h.type, err);
    p->at += h.packed;
    return st;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

static void next_chunk(tm_parquet *p)
{
    const uintptr_t page = 4096;
    if (p->map.bytes && p->next_chunk > 0) { /* what was read need not stay in memory */
        uintptr_t begin = ((uintptr_t)(p->bytes + p->chunks.data[p->next_chunk - 1].begin) + page - 1) / page * page;
        uintptr_t end = (uintptr_t)p->end / page * page;
        if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
    const tm_parquet_chunk *c = &p->chunks.data[p->next_chunk++];
    p->at = p->bytes + c->begin;
    p->end = p->at + c->bytes;
    p->left = c->values;
    free(p->dictionary);
    p->dictionary = NULL;
    p->n_dictionary = 0;
}

static bool next_value(tm_parquet *p, value *out)
{
    uint32_t number;
    if (p->encoding == PLAIN) return next_plain(&p->plain, p->plain_end, out);
    if (p->encoding == DELTA_LENGTH) {
        int64_t length = p->lengths[p->next_length++];
        if (length < 0 || length > p->plain_end - p->plain) return false;
        *out = (value){ p->plain, (uint32_t)length };
        p->plain += length;
        return true;
    }
    if (!tm_parquet_number(&p->indices, &number) || number >= p->n_dictionary) return false;
    *out = p->dictionary[number];
    return true;
}

tm_status tm_parquet_next_value(tm_parquet *p, tm_parquet_value *out, bool *more, tm_error *err)
{
    uint32_t level[2] = { 0, 0 };
    value    found;
    *out = (tm_parquet_value){ 0 };
    while (p->page_left == 0) {
        *more = p->left > 0 || p->next_chunk < p->chunks.count;
        if (!*more) return TM_OK;
        if (p->left > 0)
            TM_TRY(next_page(p, err));
        else
            next_chunk(p);
    }
    p->page_left--;
    *more = true;
    if ((p->repetition > 0 && !tm_parquet_number(&p->levels[0], &level[0])) ||
        (p->definition > 0 && !tm_parquet_number(&p->levels[1], &level[1])))
        return damaged(p, "levels are truncated", err);
    if (level[0] > (uint32_t)p->repetition || level[1] > (uint32_t)p->definition)
        return damaged(p, "a level is too high", err);
    *out = (tm_parquet_value){ .repetition = (int)level[0], .definition = (int)level[1] };
    if (out->definition < p->definition) return TM_OK;
    if (p->unread)
        found = (value){ (const uint8_t *)"", 0 };
    else if (!next_value(p, &found))
        return damaged(p, "a string is truncated", err);
    out->text = (const char *)found.bytes;
    out->bytes = found.length;
    return TM_OK;
}

tm_status tm_parquet_next(tm_parquet *p, const char **text, size_t *bytes, bool *more, tm_error *err)
{
    tm_parquet_value next = { 0 };
    do TM_TRY(tm_parquet_next_value(p, &next, more, err));
    while (*more && !next.text);
    *text = next.text;
    *bytes = next.bytes;
    return TM_OK;
}

tm_status tm_parquet_parse_leaf(const char *name, const uint8_t *bytes, int64_t size, const tm_parquet_leaf *leaf,
                                tm_parquet **out, tm_error *err)
{
    tm_parquet *p = tm_alloc(sizeof *p);
    *p = (tm_parquet){ .bytes = bytes,
                       .size = size,
                       .definition = leaf->definition,
                       .repetition = leaf->repetition,
                       .unread = !leaf->text || leaf->out_of_form };
    p->name = strcpy(tm_alloc(strlen(name) + 1), name);
    tm_status st = tm_parquet_read_chunks(name, bytes, size, leaf->index, &p->chunks, err);
    if (st == TM_OK)
        *out = p;
    else
        tm_parquet_close(p);
    return st;
}

static tm_status find_flat(const char *name, const tm_parquet_leaves *leaves, const char *column,
                           const tm_parquet_leaf **out, tm_error *err)
{
    *out = NULL;
    for (size_t i = 0; i < leaves->count && !*out; i++)
        if (strcmp(leaves->data[i].column, column) == 0) *out = &leaves->data[i];
    if (!*out)
        return tm_fail(err, TM_INVALID, "'%s' has no column '%s'; it has %.300s", name, column,
                       leaves->names.data ? leaves->names.data : "none");
    if ((*out)->flat && (*out)->text) return TM_OK;
    return tm_fail(err, TM_INVALID, "'%s': column '%s' holds no texts; name another one with --field", name, column);
}

tm_status tm_parquet_parse(const char *name, const uint8_t *bytes, int64_t size, const char *column, tm_parquet **out,
                           tm_error *err)
{
    tm_parquet_leaves      leaves = { 0 };
    const tm_parquet_leaf *leaf;
    tm_status              st = tm_parquet_read_leaves(name, bytes, size, &leaves, err);
    if (st == TM_OK) st = find_flat(name, &leaves, column, &leaf, err);
    if (st == TM_OK) st = tm_parquet_parse_leaf(name, bytes, size, leaf, out, err);
    tm_parquet_leaves_fini(&leaves);
    return st;
}

tm_status tm_parquet_open(const char *path, const char *column, tm_parquet **out, tm_error *err)
{
    tm_map map;
    TM_TRY(tm_map_open(path, &map, err));
    tm_status st = tm_parquet_parse(path, map.bytes, map.size, column, out, err);
    if (st == TM_OK)
        (*out)->map = map;
    else
        tm_map_close(&map);
    return st;
}

void tm_parquet_seek(tm_parquet *parquet, size_t group)
{
    TM_ASSERT(group < parquet->chunks.count);
    parquet->next_chunk = group;
    parquet->left = parquet->page_left = 0;
}

int64_t tm_parquet_place(const tm_parquet *parquet)
{
    return parquet->at ? parquet->at - parquet->bytes : 0;
}

void tm_parquet_close(tm_parquet *parquet)
{
    if (!parquet) return;
    tm_map_close(&parquet->map);
    free(parquet->chunks.data);
    free(parquet->page);
    free(parquet->dictionary_page);
    free(parquet->dictionary);
    free(parquet->lengths);
    free(parquet->name);
    free(parquet);
}
