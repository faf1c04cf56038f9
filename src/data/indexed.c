/* SPDX-License-Identifier: Apache-2.0 */
#include "data/indexed.h"

#include "base/arena.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 34 };

static const char magic[] = "MMIDIDX\0";

static const struct {
    const char *name;
    int         bytes;
} types[] = { { 0 },          { "uint8", 1 },   { "int8", 1 },    { "int16", 2 }, { "int32", 4 },
              { "int64", 8 }, { "float64", 8 }, { "float32", 4 }, { "uint16", 2 } };
enum { TYPES = sizeof types / sizeof types[0], INT8 = 2, INT32 = 4, FLOAT64 = 6, FLOAT32 = 7 };

static const int64_t max_tokens = (int64_t)1 << 56;

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

int64_t tm_indexed_length(const tm_indexed *set, int64_t sequence)
{
    return (int32_t)number(set->lengths + 4 * sequence, 4);
}

int64_t tm_indexed_first_token(const tm_indexed *set, int64_t sequence)
{
    return (int64_t)number(set->offsets + 8 * sequence, 8) / set->token_bytes;
}

int64_t tm_indexed_document(const tm_indexed *set, int64_t document)
{
    return (int64_t)number(set->first + 8 * document, 8);
}

const char *tm_indexed_type(const tm_indexed *set)
{
    return set->code == FLOAT32 && set->token_bytes == 8 ? "float64" : types[set->code].name;
}

bool tm_indexed_token(const tm_indexed *set, int64_t at, int32_t *out)
{
    uint64_t bits = number(set->bin.bytes + at * set->token_bytes, set->token_bytes);
    int64_t  value = (int64_t)bits;
    if (set->code == FLOAT32 || set->code == FLOAT64) {
        double   wide;
        float    narrow;
        uint32_t low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        memcpy(&wide, &bits, sizeof wide);
        if (set->token_bytes == 4) wide = (double)narrow;
        if (!(wide >= -2147483648.0 && wide <= 2147483647.0)) return false;
        value = (int64_t)wide;
        if ((double)value != wide) return false;
    } else if (set->code >= INT8 && set->code <= INT32) { /* the sign */
        int shift = 64 - 8 * set->token_bytes;
        value = (int64_t)(bits << shift) >> shift;
    }
    *out = (int32_t)value;
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* Magic, version, type, S and D, and whether the length of the file fits them. */
static tm_status read_header(const char *name, const uint8_t *idx, int64_t bytes, tm_indexed *out, tm_error *err)
{
    if (bytes < HEADER_BYTES || memcmp(idx, magic, 9) != 0)
        return tm_fail(err, TM_FORMAT, "'%s' is not an index of Megatron-LM: it does not begin with MMIDIDX", name);
    uint64_t version = number(idx + 9, 8), s = number(idx + 18, 8), d = number(idx + 26, 8);
    if (version != 1) return tm_fail(err, TM_FORMAT, "'%s' has version %" PRIu64 ", wanted 1", name, version);
    out->code = idx[17];
    if (out->code < 1 || out->code >= TYPES)
        return tm_fail(err, TM_FORMAT, "'%s' has tokens of type %d, wanted 1 to 8", name, out->code);
    uint64_t most = (uint64_t)bytes; /* both counts are below the file's length: no overflow in what follows */
    uint64_t wanted = s < most && d < most ? HEADER_BYTES + 12 * s + 8 * d : 0;
    if (wanted == 0 || (most != wanted && most != wanted + s) || d < 1)
        return tm_fail(err, TM_FORMAT,
                       "'%s' has %" PRId64 " bytes, %" PRIu64 " sequences and %" PRIu64
                       " entries of documents need another length; it is truncated or damaged",
                       name, bytes, s, d);
    out->sequences = (int64_t)s;
    out->documents = (int64_t)d - 1;
    out->modes = most != wanted;
    out->lengths = idx + HEADER_BYTES;
    out->offsets = out->lengths + 4 * s;
    out->first = out->offsets + 8 * s;
    out->token_bytes = types[out->code].bytes;
    return TM_OK;
}

static tm_status check_lengths(const char *name, tm_indexed *set, tm_error *err)
{
    set->tokens = 0;
    for (int64_t i = 0; i < set->sequences; i++) {
        int64_t length = tm_indexed_length(set, i);
        if (length < 0 || set->tokens > max_tokens)
            return tm_fail(err, TM_FORMAT, "'%s': sequence %" PRId64 " has length %" PRId64 " after %" PRId64 " tokens",
                           name, i, length, set->tokens);
        set->tokens += length;
    }
    return TM_OK;
}

static tm_status check_arrays(const char *name, const tm_indexed *set, tm_error *err)
{
    uint64_t offset = 0;
    for (int64_t i = 0; i < set->sequences; i++) {
        uint64_t found = number(set->offsets + 8 * i, 8);
        if (found != offset)
            return tm_fail(err, TM_FORMAT,
                           "'%s': sequence %" PRId64 " begins at byte %" PRIu64 " of the tokens, wanted %" PRIu64, name,
                           i, found, offset);
        offset += (uint64_t)tm_indexed_length(set, i) * (uint64_t)set->token_bytes;
    }
    int64_t before = 0;
    for (int64_t i = 0; i <= set->documents; i++) {
        int64_t first = tm_indexed_document(set, i);
        bool    good = i == 0 ? first == 0 : first >= before;
        if (!good || (i == set->documents && first != set->sequences) || first > set->sequences)
            return tm_fail(err, TM_FORMAT,
                           "'%s': entry %" PRId64 " of the documents is %" PRId64
                           "; they must begin with 0, ascend and end with the %" PRId64 " sequences",
                           name, i, first, set->sequences);
        before = first;
    }
    return TM_OK;
}

tm_status tm_indexed_parse(const char *idx_name, const uint8_t *idx, int64_t idx_bytes, const char *bin_name,
                           const uint8_t *bin, int64_t bin_bytes, tm_indexed *out, tm_error *err)
{
    *out = (tm_indexed){ 0 };
    tm_indexed set = { .bin = { .bytes = bin, .size = bin_bytes } };
    TM_TRY(read_header(idx_name, idx, idx_bytes, &set, err));
    TM_TRY(check_lengths(idx_name, &set, err));
    TM_ASSERT(set.token_bytes > 0);
    /* Older writers: code 7 is float64. */
    if (set.code == FLOAT32 && set.tokens > 0 && bin_bytes / 8 == set.tokens && bin_bytes % 8 == 0) set.token_bytes = 8;
    if (bin_bytes / set.token_bytes != set.tokens || bin_bytes % set.token_bytes != 0)
        return tm_fail(err, TM_FORMAT,
                       "'%s' has %" PRId64 " bytes, the index '%s' lists %" PRId64
                       " tokens of %d; they do not belong together, or one is truncated",
                       bin_name, bin_bytes, idx_name, set.tokens, set.token_bytes);
    TM_TRY(check_arrays(idx_name, &set, err));
    set.bin = (tm_map){ .bytes = bin };
    *out = set;
    return TM_OK;
}

/* PREFIX.idx and PREFIX.bin. */
static void name_files(const char *prefix, tm_text *idx, tm_text *bin)
{
    size_t n = strlen(prefix);
    if (n > 4 && (strcmp(prefix + n - 4, ".idx") == 0 || strcmp(prefix + n - 4, ".bin") == 0)) n -= 4;
    tm_text_printf(idx, "%.*s.idx", (int)n, prefix);
    tm_text_printf(bin, "%.*s.bin", (int)n, prefix);
}

static tm_status open_maps(const char *idx_name, const char *bin_name, tm_map *idx, tm_map *bin, tm_error *err)
{
    *bin = (tm_map){ 0 };
    TM_TRY(tm_map_open(idx_name, idx, err));
    tm_status st = tm_map_open(bin_name, bin, err);
    if (st != TM_OK) tm_map_close(idx);
    return st;
}

tm_status tm_indexed_open(const char *prefix, tm_indexed *out, tm_error *err)
{
    tm_text idx_name = { 0 }, bin_name = { 0 };
    tm_map  idx, bin;
    name_files(prefix, &idx_name, &bin_name);
    *out = (tm_indexed){ 0 };
    tm_status st = open_maps(idx_name.data, bin_name.data, &idx, &bin, err);
    if (st == TM_OK) {
        st = tm_indexed_parse(idx_name.data, idx.bytes, idx.size, bin_name.data, bin.bytes, bin.size, out, err);
        out->idx = idx;
        out->bin = bin;
        if (st != TM_OK) tm_indexed_close(out);
    }
    tm_text_fini(&idx_name);
    tm_text_fini(&bin_name);
    return st;
}

tm_status tm_indexed_peek(const char *prefix, int64_t *sequences, int64_t *tokens, tm_error *err)
{
    tm_text    idx_name = { 0 }, bin_name = { 0 };
    tm_map     idx, bin;
    tm_indexed set = { 0 };
    name_files(prefix, &idx_name, &bin_name);
    tm_status st = open_maps(idx_name.data, bin_name.data, &idx, &bin, err);
    if (st == TM_OK) {
        st = read_header(idx_name.data, idx.bytes, idx.size, &set, err);
        if (st == TM_OK) {
            *sequences = set.sequences;
            *tokens = bin.size / set.token_bytes;
        }
        tm_map_close(&idx);
        tm_map_close(&bin);
    }
    tm_text_fini(&idx_name);
    tm_text_fini(&bin_name);
    return st;
}

void tm_indexed_close(tm_indexed *set)
{
    tm_map_close(&set->idx);
    tm_map_close(&set->bin);
    *set = (tm_indexed){ 0 };
}
