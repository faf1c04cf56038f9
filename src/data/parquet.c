/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet.c - "PAR1", pages of columns, the footer (FileMetaData) and its length, "PAR1".
 *
 * FileMetaData   2 schema: list of {1 type, 3 repetition, 4 name, 5 children}, depth first; 4 row groups: {1 columns}
 * ColumnChunk    1 file, 3 {1 type, 4 codec, 5 values, 7 bytes, 9 first data page, 11 dictionary page}
 * PageHeader     1 type, 2 bytes unpacked, 3 bytes, 5 data {1 values, 2 encoding}, 7 dictionary {1 values, 2 encoding},
 *                8 data, version 2 {1 values, 2 nulls, 4 encoding, 5 and 6 bytes of levels, 7 packed?}
 */
#include "data/parquet.h"

#include "base/arena.h"
#include "base/text.h"
#include "data/map.h"
#include "data/parquet_thrift.h"

#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, DELTA_LENGTH = 6, RLE_DICTIONARY = 8 };
enum { UNCOMPRESSED = 0, SNAPPY = 1, GZIP = 2, ZSTD = 6 };
enum { BYTE_ARRAY = 6, MAX_PAGE = 1 << 30 };

typedef struct {
    const uint8_t *bytes;
    uint32_t       length;
} value;

typedef struct {
    int64_t begin, bytes, values, codec;
} chunk;

/* Runs of one number, or of numbers packed bit by bit. */
typedef struct {
    const uint8_t *at, *end;
    unsigned       width;
    uint64_t       repeat, packed; /* left of either */
    uint32_t       number;
    unsigned       bit;
} runs;

struct tm_parquet {
    char          *name;
    tm_map         map;
    const uint8_t *bytes;
    int64_t        size;
    bool           optional;
    chunk         *chunks;
    size_t         n_chunks, chunks_room, next_chunk;
    const uint8_t *at, *end; /* pages of the chunk */
    int64_t        left;     /* values in them */
    uint8_t       *page, *dictionary_page;
    value         *dictionary;
    size_t         n_dictionary;
    int64_t        page_left; /* texts in the page */
    int            encoding;
    const uint8_t *plain, *plain_end;
    runs           indices;
    int64_t       *lengths; /* DELTA_LENGTH */
    int64_t        next_length;
};

static tm_status damaged(const tm_parquet *p, const char *what, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "'%s' is not a parquet file, or damaged: %s", p->name, what);
}

static tm_status refuse(const tm_parquet *p, const char *what, long long which, tm_error *err)
{
    return tm_fail(err, TM_UNSUPPORTED, "'%s': %s %lld of parquet is not supported", p->name, what, which);
}

/* --- footer
 * ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t     type, repetition, children;
    const char *name;
    size_t      name_bytes;
} element;

static tm_thrift inner(const tm_thrift *t)
{
    return (tm_thrift){ .at = t->at, .end = t->end, .bad = t->bad };
}

static void leave(tm_thrift *t, const tm_thrift *in)
{
    t->at = in->at;
    t->bad = in->bad;
}

static element read_element(tm_thrift *t)
{
    element   e = { .type = -1 };
    tm_thrift in = inner(t);
    while (tm_thrift_next(&in)) {
        if (in.field == 1 && in.kind == TM_THRIFT_I32)
            e.type = tm_thrift_number(&in);
        else if (in.field == 3 && in.kind == TM_THRIFT_I32)
            e.repetition = tm_thrift_number(&in);
        else if (in.field == 4 && in.kind == TM_THRIFT_BINARY)
            e.name = (const char *)tm_thrift_binary(&in, &e.name_bytes);
        else if (in.field == 5 && in.kind == TM_THRIFT_I32)
            e.children = tm_thrift_number(&in);
        else
            tm_thrift_skip(&in);
    }
    leave(t, &in);
    return e;
}

/* Which column (among those without children) is wanted, -1: none; names of the top level go to *names. */
static tm_status find_column(tm_parquet *p, tm_thrift *t, const char *column, int64_t *out, tm_text *names,
                             tm_error *err)
{
    int     kind;
    size_t  n = tm_thrift_list(t, &kind);
    int64_t leaf = 0, below = 0; /* below: elements inside a group of the top level still to come */
    if (kind != TM_THRIFT_STRUCT || n == 0) return damaged(p, "no schema", err);
    read_element(t); /* the root */
    for (size_t i = 1; i < n && !t->bad; i++) {
        element e = read_element(t);
        if (e.children < 0 || e.children > (int64_t)n) return damaged(p, "a wrong schema", err);
        bool top = below == 0;
        below += e.children - !top;
        if (top && e.name)
            tm_text_printf(names, "%s%.*s", names->length ? ", " : "", (int)(e.name_bytes < 60 ? e.name_bytes : 60),
                           e.name);
        if (top && e.name && e.name_bytes == strlen(column) && memcmp(e.name, column, e.name_bytes) == 0) {
            if (e.children > 0 || e.type != BYTE_ARRAY)
                return tm_fail(err, TM_INVALID, "'%s': column '%s' holds no texts; name another one with --field",
                               p->name, column);
            if (e.repetition > 1) return refuse(p, "a repeated column, repetition", e.repetition, err);
            p->optional = e.repetition == 1;
            *out = leaf;
        }
        leaf += e.children == 0;
    }
    return TM_OK;
}

static tm_status read_chunk(tm_parquet *p, tm_thrift *t, tm_error *err)
{
    chunk     c = { .codec = -1 };
    int64_t   first = -1, dictionary = 0;
    tm_thrift in = inner(t), meta = { 0 };
    while (tm_thrift_next(&in)) {
        if (in.field == 1 && in.kind == TM_THRIFT_BINARY) return refuse(p, "a column in another file, field", 1, err);
        if (in.field != 3 || in.kind != TM_THRIFT_STRUCT) {
            tm_thrift_skip(&in);
            continue;
        }
        meta = inner(&in);
        while (tm_thrift_next(&meta)) {
            int64_t *to = meta.field == 4    ? &c.codec
                          : meta.field == 5  ? &c.values
                          : meta.field == 7  ? &c.bytes
                          : meta.field == 9  ? &first
                          : meta.field == 11 ? &dictionary
                                             : NULL;
            if (to && (meta.kind == TM_THRIFT_I64 || meta.kind == TM_THRIFT_I32))
                *to = tm_thrift_number(&meta);
            else
                tm_thrift_skip(&meta);
        }
        leave(&in, &meta);
    }
    leave(t, &in);
    c.begin = dictionary > 0 && dictionary < first ? dictionary : first;
    if (t->bad) return damaged(p, "a column is truncated", err);
    if (c.begin < 4 || c.bytes < 0 || c.bytes > p->size - c.begin || c.values < 0)
        return damaged(p, "a column lies outside of it", err);
    if (c.codec != UNCOMPRESSED && c.codec != SNAPPY && c.codec != GZIP && c.codec != ZSTD)
        return refuse(p, "codec", c.codec, err);
    p->chunks = tm_grow(p->chunks, &p->chunks_room, p->n_chunks, sizeof *p->chunks);
    p->chunks[p->n_chunks++] = c;
    return TM_OK;
}

static tm_status read_groups(tm_parquet *p, tm_thrift *t, int64_t column, tm_error *err)
{
    int    kind;
    size_t n = tm_thrift_list(t, &kind);
    if (kind != TM_THRIFT_STRUCT && n > 0) return damaged(p, "no row groups", err);
    for (size_t i = 0; i < n && !t->bad; i++) {
        tm_thrift in = inner(t);
        bool      found = false;
        while (tm_thrift_next(&in)) {
            if (in.field != 1 || in.kind != TM_THRIFT_LIST) {
                tm_thrift_skip(&in);
                continue;
            }
            size_t columns = tm_thrift_list(&in, &kind);
            for (size_t k = 0; k < columns && !in.bad; k++) {
                if ((int64_t)k == column && kind == TM_THRIFT_STRUCT)
                    TM_TRY(read_chunk(p, &in, err));
                else
                    tm_thrift_skip_kind(&in, kind);
            }
            found = column < (int64_t)columns;
        }
        leave(t, &in);
        if (!found && !t->bad) return damaged(p, "a row group lacks the column", err);
    }
    return TM_OK;
}

static tm_status read_footer(tm_parquet *p, const char *column, tm_error *err)
{
    if (p->size < 12 || memcmp(p->bytes, "PAR1", 4) != 0 || memcmp(p->bytes + p->size - 4, "PAR1", 4) != 0)
        return damaged(p, "no PAR1 at both ends", err);
    const uint8_t *tail = p->bytes + p->size - 8;
    int64_t        n =
        (int64_t)((uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24);
    if (n > p->size - 12) return damaged(p, "its footer is longer than it", err);
    tm_thrift t = { .at = tail - n, .end = tail };
    int64_t   found = -1;
    bool      groups = false;
    tm_text   names = { 0 };
    tm_status st = TM_OK;
    while (st == TM_OK && tm_thrift_next(&t)) {
        if (t.field == 2 && t.kind == TM_THRIFT_LIST) {
            st = find_column(p, &t, column, &found, &names, err);
        } else if (t.field == 4 && t.kind == TM_THRIFT_LIST && found >= 0) {
            st = read_groups(p, &t, found, err);
            groups = true;
        } else {
            tm_thrift_skip(&t);
        }
    }
    if (st == TM_OK && t.bad) st = damaged(p, "its footer is truncated", err);
    if (st == TM_OK && found < 0)
        st = tm_fail(err, TM_INVALID, "'%s' has no column '%s'; it has %.300s", p->name, column,
                     names.data ? names.data : "none");
    if (st == TM_OK && !groups) st = damaged(p, "no row groups", err);
    tm_text_fini(&names);
    return st;
}

/* --- numbers
 * ---------------------------------------------------------------------------------------------------------- */

static bool run_varint(runs *r, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

static bool next_number(runs *r, uint32_t *out)
{
    while (r->repeat == 0 && r->packed == 0) {
        uint64_t head;
        if (!run_varint(r, &head)) return false;
        if (head & 1) {
            r->packed = head >> 1 > UINT32_MAX ? 0 : (head >> 1) * 8;
            r->bit = 0;
            continue;
        }
        r->repeat = head >> 1;
        r->number = 0;
        for (unsigned i = 0; i < (r->width + 7) / 8; i++) {
            if (r->at == r->end) return false;
            r->number |= (uint32_t)*r->at++ << 8 * i;
        }
    }
    if (r->repeat > 0) {
        r->repeat--;
        *out = r->number;
        return true;
    }
    r->packed--;
    uint32_t number = 0;
    for (unsigned i = 0; i < r->width; i++) {
        if (r->at == r->end) return false;
        number |= (uint32_t)(*r->at >> r->bit & 1) << i;
        if (++r->bit == 8) r->bit = 0, r->at++;
    }
    *out = number;
    return true;
}

/* DELTA_BINARY_PACKED: size of blocks, miniblocks in one, how many numbers, the first; then blocks of a least
 * difference, the widths of its miniblocks, and what is above the least. */
static bool read_deltas(const uint8_t **at, const uint8_t *end, int64_t wanted, int64_t *out)
{
    runs     r = { .at = *at, .end = end };
    uint64_t block, minis, count, raw;
    if (!run_varint(&r, &block) || !run_varint(&r, &minis) || !run_varint(&r, &count) || !run_varint(&r, &raw))
        return false;
    if (minis == 0 || minis > 256 || block == 0 || block > 1 << 20 || block % minis || (int64_t)count != wanted)
        return false;
    uint64_t last = (raw >> 1) ^ (0 - (raw & 1));
    int64_t  n = 0;
    if (wanted > 0) out[n++] = (int64_t)last;
    while (n < wanted) {
        if (!run_varint(&r, &raw) || (uint64_t)(r.end - r.at) < minis) return false;
        uint64_t       least = (raw >> 1) ^ (0 - (raw & 1));
        const uint8_t *widths = r.at;
        r.at += minis;
        for (uint64_t m = 0; m < minis && n < wanted; m++) {
            uint64_t values = block / minis;
            if (widths[m] > 64 || (uint64_t)(r.end - r.at) < (values * widths[m] + 7) / 8) return false;
            for (uint64_t v = 0, bit = 0; v < values; v++) {
                uint64_t number = 0;
                for (unsigned i = 0; i < widths[m]; i++, bit++) number |= (uint64_t)(r.at[bit / 8] >> bit % 8 & 1) << i;
                last += least + number;
                if (n < wanted) out[n++] = (int64_t)last;
            }
            r.at += (values * widths[m] + 7) / 8;
        }
    }
    *at = r.at;
    return true;
}

/* --- pages
 * ------------------------------------------------------------------------------------------------------------ */

typedef struct {
    int64_t type, unpacked, packed, values, encoding, nulls, levels, repetition_levels;
    bool    compressed;
} page_header;

static void read_numbers(tm_thrift *t, page_header *h, int version)
{
    tm_thrift in = inner(t);
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
    leave(t, &in);
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
    if (codec == UNCOMPRESSED) return n == wanted ? in : NULL;
    if (codec == SNAPPY && (snappy_uncompressed_length((const char *)in, n, &length) != SNAPPY_OK || length != wanted))
        return NULL;
    *room = tm_realloc(*room, wanted);
    bool good = codec == SNAPPY
                    ? snappy_uncompress((const char *)in, n, (char *)*room, &length) == SNAPPY_OK && length == wanted
                : codec == GZIP ? inflate_all(in, n, *room, wanted)
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

static tm_status read_dictionary(tm_parquet *p, const chunk *c, const page_header *h, tm_error *err)
{
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

/* Version 1: how many of n values are there, by their levels; *at moves behind them. */
static bool count_present(const uint8_t **at, const uint8_t *end, int64_t n, int64_t *present)
{
    value levels;
    if (!next_plain(at, end, &levels)) return false;
    runs r = { .at = levels.bytes, .end = levels.bytes + levels.length, .width = 1 };
    for (int64_t i = 0, bit; i < n; i++) {
        uint32_t number;
        if (!next_number(&r, &number)) return false;
        bit = number;
        *present += bit;
    }
    return true;
}

static tm_status begin_values(tm_parquet *p, const uint8_t *at, const uint8_t *end, int64_t encoding, tm_error *err)
{
    p->encoding = (int)encoding;
    p->plain = at;
    p->plain_end = end;
    if (encoding == PLAIN) return TM_OK;
    if (encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY) {
        if (!p->dictionary) return damaged(p, "a page without its dictionary", err);
        if (p->page_left > 0 && (at == end || *at > 32)) return damaged(p, "a page has wrong numbers", err);
        p->indices = (runs){ .at = at + (at < end), .end = end, .width = at < end ? *at : 0 };
        return TM_OK;
    }
    if (encoding != DELTA_LENGTH) return refuse(p, "encoding", encoding, err);
    if (p->page_left > (end - at) * 64) return damaged(p, "a page says it has more texts than it can", err);
    p->lengths = tm_realloc(p->lengths, (size_t)p->page_left * sizeof *p->lengths);
    p->next_length = 0;
    return read_deltas(&p->plain, end, p->page_left, p->lengths) ? TM_OK : damaged(p, "a page has wrong lengths", err);
}

static tm_status read_data(tm_parquet *p, const chunk *c, const page_header *h, tm_error *err)
{
    int64_t before = h->type == 3 ? h->levels + h->repetition_levels : 0; /* version 2: levels are never packed */
    if (h->values < 0 || h->values > p->left || h->levels < 0 || h->repetition_levels < 0 || before > h->packed ||
        before > h->unpacked || h->nulls < 0 || h->nulls > h->values)
        return damaged(p, "a page has wrong numbers", err);
    const uint8_t *at = unpack(h->compressed ? c->codec : UNCOMPRESSED, p->at + before, (size_t)(h->packed - before),
                               &p->page, (size_t)(h->unpacked - before));
    if (!at) return damaged(p, "a page cannot be unpacked", err);
    const uint8_t *end = at + (h->unpacked - before);
    p->left -= h->values;
    p->page_left = h->type == 3 ? h->values - h->nulls : p->optional ? 0 : h->values;
    if (h->type == 0 && p->optional && !count_present(&at, end, h->values, &p->page_left))
        return damaged(p, "levels are truncated", err);
    return begin_values(p, at, end, h->encoding, err);
}

static tm_status next_page(tm_parquet *p, tm_error *err)
{
    const chunk *c = &p->chunks[p->next_chunk - 1];
    page_header  h;
    if (p->at >= p->end || !read_header(p, &h)) return damaged(p, "a page is truncated", err);
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

/* --- the interface
 * ---------------------------------------------------------------------------------------------------- */

static void next_chunk(tm_parquet *p)
{
    const uintptr_t page = 4096;
    if (p->map.bytes && p->next_chunk > 0) { /* what was read need not stay in memory */
        uintptr_t begin = ((uintptr_t)(p->bytes + p->chunks[p->next_chunk - 1].begin) + page - 1) / page * page;
        uintptr_t end = (uintptr_t)p->end / page * page;
        if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
    const chunk *c = &p->chunks[p->next_chunk++];
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
    if (!next_number(&p->indices, &number) || number >= p->n_dictionary) return false;
    *out = p->dictionary[number];
    return true;
}

tm_status tm_parquet_next(tm_parquet *p, const char **text, size_t *bytes, bool *more, tm_error *err)
{
    value found;
    while (p->page_left == 0) {
        *more = p->left > 0 || p->next_chunk < p->n_chunks;
        if (!*more) return TM_OK;
        if (p->left > 0)
            TM_TRY(next_page(p, err));
        else
            next_chunk(p);
    }
    p->page_left--;
    if (!next_value(p, &found)) return damaged(p, "a string is truncated", err);
    *text = (const char *)found.bytes;
    *bytes = found.length;
    *more = true;
    return TM_OK;
}

static tm_parquet *new_parquet(const char *name)
{
    tm_parquet *p = tm_alloc(sizeof *p);
    p->name = tm_alloc(strlen(name) + 1);
    strcpy(p->name, name);
    return p;
}

tm_status tm_parquet_parse(const char *name, const uint8_t *bytes, int64_t size, const char *column, tm_parquet **out,
                           tm_error *err)
{
    tm_parquet *p = new_parquet(name);
    p->bytes = bytes;
    p->size = size;
    tm_status st = read_footer(p, column, err);
    if (st == TM_OK)
        *out = p;
    else
        tm_parquet_close(p);
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

int64_t tm_parquet_place(const tm_parquet *parquet)
{
    return parquet->at ? parquet->at - parquet->bytes : 0;
}

void tm_parquet_close(tm_parquet *parquet)
{
    if (!parquet) return;
    tm_map_close(&parquet->map);
    free(parquet->chunks);
    free(parquet->page);
    free(parquet->dictionary_page);
    free(parquet->dictionary);
    free(parquet->lengths);
    free(parquet->name);
    free(parquet);
}
