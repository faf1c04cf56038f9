/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/format.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints hold tensors as they are in memory and are defined as little-endian"
#endif

enum {
    HEADER_BYTES = 160,
    RECORD_BYTES = 72,
    SCALAR_BYTES = 16,
    FILE_BYTES = 16,
    PIECE_BYTES = 56,
    BARE_VERSION = 3, /* the first with a description; tensors alone in files */
    PIECES = 1,       /* more, and it has files and pieces */
    SAFETENSORS = 2,  /* more, and its files are safetensors */
    MODEL_AT = 96,
    MAX_DTYPE = 65535
};

static const char index_magic[] = "tmindex\n", seal_magic[] = "tmcomplt";
enum { MAGIC_BYTES = sizeof index_magic - 1 };

/* A place in a buffer whose length was checked before. */
typedef struct {
    unsigned char *to;
} writer;
typedef struct {
    const unsigned char *from;
} reader;

static void put(writer *w, const void *value, size_t bytes)
{
    memcpy(w->to, value, bytes);
    w->to += bytes;
}

static void put_u32(writer *w, uint32_t value)
{
    put(w, &value, sizeof value);
}

static void put_u64(writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void get(reader *r, void *value, size_t bytes)
{
    memcpy(value, r->from, bytes);
    r->from += bytes;
}

static uint32_t get_u32(reader *r)
{
    uint32_t value;
    get(r, &value, sizeof value);
    return value;
}

static uint64_t get_u64(reader *r)
{
    uint64_t value;
    get(r, &value, sizeof value);
    return value;
}

static int64_t get_i64(reader *r)
{
    int64_t value;
    get(r, &value, sizeof value);
    return value;
}

/* What the four scalars of version 1 are, by position. */
static const char *const old_scalars[] = { "first_loss", "head_loss_mean", "head_loss_deviation", "head_loss_count" };
enum { OLD_SCALARS = sizeof old_scalars / sizeof old_scalars[0] };

static size_t names_bytes(const tm_checkpoint_index *index)
{
    size_t bytes = 0;
    for (size_t i = 0; i < index->count; i++) bytes += strlen(index->records[i].name) + 1;
    for (size_t i = 0; i < index->state.n_scalars; i++) bytes += strlen(index->state.scalars[i].name) + 1;
    return bytes;
}

static const tm_checkpoint_scalar *find_scalar(const tm_checkpoint_state *state, const char *name)
{
    for (size_t i = 0; i < state->n_scalars; i++)
        if (strcmp(state->scalars[i].name, name) == 0) return &state->scalars[i];
    return NULL;
}

void tm_checkpoint_add_scalar(tm_checkpoint_state *state, const char *name, double value)
{
    size_t length = strlen(name);
    TM_ASSERT(state->n_scalars < TM_CHECKPOINT_SCALARS && length > 0 && length < TM_CHECKPOINT_SCALAR_BYTES);
    TM_ASSERT(!find_scalar(state, name));
    tm_checkpoint_scalar *scalar = &state->scalars[state->n_scalars++];
    *scalar = (tm_checkpoint_scalar){ .value = value };
    memcpy(scalar->name, name, length);
}

tm_status tm_checkpoint_scalars(const tm_checkpoint_state *state, const char *const *names, double *values, size_t n,
                                tm_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const tm_checkpoint_scalar *scalar = find_scalar(state, names[i]);
        if (!scalar) return tm_fail(err, TM_INVALID, "scalar '%s' is expected and is missing", names[i]);
        values[i] = scalar->value;
    }
    for (size_t i = 0; i < state->n_scalars; i++) {
        bool wanted = false;
        for (size_t k = 0; k < n; k++) wanted = wanted || strcmp(state->scalars[i].name, names[k]) == 0;
        if (!wanted)
            return tm_fail(err, TM_INVALID, "it holds scalar '%s' = %g, which this program does not know",
                           state->scalars[i].name, state->scalars[i].value);
    }
    return TM_OK;
}

static uint32_t version_of(bool in_pieces, bool safetensors)
{
    return BARE_VERSION + (in_pieces ? PIECES : 0u) + (safetensors ? SAFETENSORS : 0u);
}

static bool has_pieces(uint32_t version)
{
    return version >= BARE_VERSION && (version - BARE_VERSION) % SAFETENSORS == PIECES;
}

static bool has_safetensors(uint32_t version)
{
    return version >= BARE_VERSION + SAFETENSORS;
}

/* One process has written all tensors as they are. */
static bool is_plain(const tm_checkpoint_index *index)
{
    return index->n_files == 1 && index->files[0].writer < 0;
}

static size_t tables_bytes(const tm_checkpoint_index *index)
{
    size_t files = is_plain(index) ? 0 : index->n_files * FILE_BYTES + index->n_pieces * PIECE_BYTES;
    return index->count * RECORD_BYTES + index->state.n_scalars * SCALAR_BYTES + files;
}

size_t tm_checkpoint_index_bytes(const tm_checkpoint_index *index)
{
    return HEADER_BYTES + tables_bytes(index) + names_bytes(index) + strlen(index->state.description);
}

static void encode_files(const tm_checkpoint_index *index, writer *w)
{
    for (size_t i = 0; i < index->n_files; i++) {
        put_u64(w, (uint64_t)index->files[i].writer);
        put_u64(w, index->files[i].bytes);
    }
    for (size_t i = 0; i < index->n_pieces; i++) {
        const tm_checkpoint_piece *p = &index->pieces[i];
        put_u64(w, p->first_row);
        put_u64(w, p->rows);
        put_u64(w, p->first_byte);
        put_u64(w, p->row_part);
        put_u64(w, p->offset);
        put_u64(w, p->hash);
        put_u32(w, p->file);
        put_u32(w, 0);
    }
}

void tm_checkpoint_index_encode(const tm_checkpoint_index *index, unsigned char *out)
{
    const tm_checkpoint_state *state = &index->state;
    writer                     w = { out };
    const bool                 plain = is_plain(index);
    put(&w, index_magic, MAGIC_BYTES);
    put_u32(&w, version_of(!plain, index->safetensors));
    put_u32(&w, (uint32_t)index->count);
    put_u64(&w, index->data_bytes);
    put_u64(&w, names_bytes(index));
    put_u64(&w, (uint64_t)state->step);
    put_u64(&w, (uint64_t)state->samples_consumed);
    put_u64(&w, state->seed);
    put_u64(&w, state->config_hash);
    put_u64(&w, state->n_scalars);
    put_u64(&w, strlen(state->description));
    put_u64(&w, state->content);
    put_u32(&w, plain ? 0 : (uint32_t)index->n_files);
    put_u32(&w, plain ? 0 : (uint32_t)index->n_pieces);
    w.to = out + MODEL_AT;
    put(&w, state->model, strnlen(state->model, sizeof state->model - 1)); /* the rest of the field stays zero */
    w.to = out + HEADER_BYTES;
    writer names = { out + HEADER_BYTES + tables_bytes(index) };
    size_t name_offset = 0;
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *r = &index->records[i];
        size_t                      name_length = strlen(r->name);
        put_u64(&w, plain ? index->pieces[r->first_piece].offset : r->n_pieces);
        put_u64(&w, r->bytes);
        put_u64(&w, plain ? index->pieces[r->first_piece].hash : r->row_bytes);
        for (int axis = 0; axis < TM_CHECKPOINT_MAX_RANK; axis++)
            put_u64(&w, axis < r->rank ? (uint64_t)r->n[axis] : 0);
        put_u32(&w, (uint32_t)r->dtype);
        put_u32(&w, (uint32_t)r->rank);
        put_u32(&w, (uint32_t)name_offset);
        put_u32(&w, (uint32_t)name_length);
        put(&names, r->name, name_length + 1);
        name_offset += name_length + 1;
    }
    for (size_t i = 0; i < state->n_scalars; i++) {
        const tm_checkpoint_scalar *s = &state->scalars[i];
        size_t                      name_length = strlen(s->name);
        put(&w, &s->value, sizeof s->value);
        put_u32(&w, (uint32_t)name_offset);
        put_u32(&w, (uint32_t)name_length);
        put(&names, s->name, name_length + 1);
        name_offset += name_length + 1;
    }
    if (!plain) encode_files(index, &w);
    put(&names, state->description, strlen(state->description));
}

/* Where the next record must point: names, and the tensors of a plain file, lie one behind the other, without gaps or
 * overlaps. */
typedef struct {
    uint64_t             data_end, data_bytes;
    size_t               name_end, name_bytes, piece_end;
    const unsigned char *names;
    bool                 plain, part, safetensors;
    tm_arena            *arena;
} layout;

/* The next name. `what` and `i` say whose it is. */
static tm_status decode_name(layout *at, uint32_t offset, uint32_t length, const char *what, size_t i, const char **out,
                             tm_error *err)
{
    if (offset != at->name_end || length >= at->name_bytes - at->name_end)
        return tm_fail(err, TM_FORMAT, "index %s %zu has its name outside the names", what, i);
    *out = (const char *)at->names + offset;
    if (memchr(*out, '\0', (size_t)length + 1) != *out + length)
        return tm_fail(err, TM_FORMAT, "index %s %zu has a broken name", what, i);
    at->name_end += (size_t)length + 1;
    return TM_OK;
}

/* The only piece of a tensor in a plain file. */
static tm_status take_piece(uint64_t offset, uint64_t hash, size_t i, layout *at, const tm_checkpoint_record *record,
                            tm_checkpoint_piece *out, tm_error *err)
{
    const bool first = at->safetensors && i == 0; /* behind the header */
    if (at->data_end > UINT64_MAX - TM_CHECKPOINT_ALIGN ||
        (!first && offset != (at->safetensors ? at->data_end : tm_checkpoint_aligned(at->data_end))) ||
        offset > at->data_bytes || record->bytes > at->data_bytes - offset)
        return tm_fail(err, TM_FORMAT, "index record %zu points to bytes %llu + %llu of %llu", i,
                       (unsigned long long)offset, (unsigned long long)record->bytes,
                       (unsigned long long)at->data_bytes);
    at->data_end = offset + record->bytes;
    *out = (tm_checkpoint_piece){ .rows = 1, .row_part = record->bytes, .offset = offset, .hash = hash };
    return TM_OK;
}

static tm_status decode_record(reader *r, size_t i, layout *at, tm_checkpoint_index *index, tm_error *err)
{
    tm_checkpoint_record *out = &index->records[i];
    uint64_t              first = get_u64(r);
    out->bytes = get_u64(r);
    uint64_t second = get_u64(r);
    for (int axis = 0; axis < TM_CHECKPOINT_MAX_RANK; axis++) out->n[axis] = get_i64(r);
    uint32_t dtype = get_u32(r), rank = get_u32(r), name_offset = get_u32(r), name_length = get_u32(r);
    if (dtype > MAX_DTYPE || rank > TM_CHECKPOINT_MAX_RANK)
        return tm_fail(err, TM_FORMAT, "index record %zu has dtype %u and rank %u", i, dtype, rank);
    out->dtype = (int)dtype;
    out->rank = (int)rank;
    int64_t elements = 1;
    for (uint32_t axis = 0; axis < TM_CHECKPOINT_MAX_RANK; axis++) {
        int64_t n = out->n[axis];
        if (axis < rank ? n < 0 || __builtin_mul_overflow(elements, n, &elements) : n != 0)
            return tm_fail(err, TM_FORMAT, "index record %zu has an impossible shape (axis %u: %lld)", i, axis,
                           (long long)n);
    }
    out->first_piece = at->piece_end;
    out->n_pieces = at->plain ? 1 : (size_t)first;
    out->row_bytes = at->plain ? out->bytes : second;
    if (at->plain) TM_TRY(take_piece(first, second, i, at, out, &index->pieces[i], err));
    if (first > index->n_pieces - at->piece_end && !at->plain)
        return tm_fail(err, TM_FORMAT, "index record %zu has %llu pieces, %zu are left", i, (unsigned long long)first,
                       index->n_pieces - at->piece_end);
    if (out->bytes > INT64_MAX || (out->bytes > 0 && (out->row_bytes == 0 || out->bytes % out->row_bytes != 0)))
        return tm_fail(err, TM_FORMAT, "index record %zu has %llu bytes in rows of %llu", i,
                       (unsigned long long)out->bytes, (unsigned long long)out->row_bytes);
    at->piece_end += out->n_pieces;
    return decode_name(at, name_offset, name_length, "record", i, &out->name, err);
}

static tm_status decode_file(reader *r, size_t i, uint64_t *all, tm_checkpoint_file *out, tm_error *err)
{
    out->writer = get_i64(r);
    out->bytes = get_u64(r);
    if (out->writer < (i > 0 ? out[-1].writer + 1 : 0) || out->writer > INT32_MAX)
        return tm_fail(err, TM_FORMAT, "index file %zu is of rank %lld", i, (long long)out->writer);
    if (out->bytes > INT64_MAX || __builtin_add_overflow(*all, out->bytes, all))
        return tm_fail(err, TM_FORMAT, "index file %zu has %llu bytes", i, (unsigned long long)out->bytes);
    return TM_OK;
}

/* A piece lies within its tensor and within its file. */
static tm_status decode_piece(reader *r, size_t i, const tm_checkpoint_record *of, const tm_checkpoint_index *index,
                              tm_checkpoint_piece *out, tm_error *err)
{
    uint64_t all = of->bytes > 0 ? of->bytes / of->row_bytes : 0;
    out->first_row = get_u64(r);
    out->rows = get_u64(r);
    out->first_byte = get_u64(r);
    out->row_part = get_u64(r);
    out->offset = get_u64(r);
    out->hash = get_u64(r);
    out->file = get_u32(r);
    get_u32(r);
    if (out->rows == 0 || out->rows > all || out->first_row > all - out->rows || out->row_part == 0 ||
        out->row_part > of->row_bytes || out->first_byte > of->row_bytes - out->row_part)
        return tm_fail(err, TM_FORMAT, "index piece %zu lies outside of its tensor", i);
    uint64_t bytes = tm_checkpoint_piece_bytes(out); /* at most those of the tensor */
    if (out->file >= index->n_files || (!index->safetensors && out->offset % TM_CHECKPOINT_ALIGN != 0) ||
        out->offset > index->files[out->file].bytes || bytes > index->files[out->file].bytes - out->offset)
        return tm_fail(err, TM_FORMAT, "index piece %zu points to bytes %llu + %llu of file %u", i,
                       (unsigned long long)out->offset, (unsigned long long)bytes, out->file);
    return TM_OK;
}

static tm_status decode_files(reader *r, layout *at, tm_checkpoint_index *index, tm_error *err)
{
    if (at->plain) {
        index->files[0] = (tm_checkpoint_file){ .writer = -1, .bytes = index->data_bytes };
        return TM_OK;
    }
    if (at->piece_end != index->n_pieces)
        return tm_fail(err, TM_FORMAT, "the index has %zu pieces, its tensors have %zu", index->n_pieces,
                       at->piece_end);
    for (size_t i = 0; i < index->n_files; i++) TM_TRY(decode_file(r, i, &at->data_end, &index->files[i], err));
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *record = &index->records[i];
        for (size_t k = 0; k < record->n_pieces; k++) {
            size_t p = record->first_piece + k;
            TM_TRY(decode_piece(r, p, record, index, &index->pieces[p], err));
        }
        if (!at->part && !tm_checkpoint_covered(record->bytes, record->row_bytes, index->pieces + record->first_piece,
                                                record->n_pieces, at->arena))
            return tm_fail(err, TM_FORMAT, "the pieces of tensor '%s' are not the whole of it", record->name);
    }
    return TM_OK;
}

static tm_status decode_scalar(reader *r, size_t i, layout *at, tm_checkpoint_state *state, tm_error *err)
{
    double      value;
    const char *name = NULL;
    get(r, &value, sizeof value);
    uint32_t name_offset = get_u32(r), name_length = get_u32(r);
    TM_TRY(decode_name(at, name_offset, name_length, "scalar", i, &name, err));
    if (name_length == 0 || name_length >= TM_CHECKPOINT_SCALAR_BYTES)
        return tm_fail(err, TM_FORMAT, "index scalar %zu has a name of %u bytes, 1 to %d wanted", i, name_length,
                       TM_CHECKPOINT_SCALAR_BYTES - 1);
    if (find_scalar(state, name)) return tm_fail(err, TM_FORMAT, "the index names scalar '%s' twice", name);
    tm_checkpoint_add_scalar(state, name, value);
    return TM_OK;
}

/* Text of the header's end or of a field: printable. */
static bool is_text(const unsigned char *bytes, size_t n, bool lines)
{
    for (size_t i = 0; i < n; i++)
        if ((bytes[i] < 0x20 && !(lines && bytes[i] == '\n')) || bytes[i] == 0x7f) return false;
    return true;
}

static tm_status check_state(const tm_checkpoint_state *state, tm_error *err)
{
    const char *end = memchr(state->model, '\0', sizeof state->model);
    if (state->step < 0 || state->step > TM_CHECKPOINT_MAX_COUNT)
        return tm_fail(err, TM_FORMAT, "the index has an impossible step, %lld", (long long)state->step);
    if (state->samples_consumed < 0 || state->samples_consumed > TM_CHECKPOINT_MAX_COUNT)
        return tm_fail(err, TM_FORMAT, "the index has an impossible sample count, %lld",
                       (long long)state->samples_consumed);
    if (!end || !is_text((const unsigned char *)state->model, (size_t)(end - state->model), false))
        return tm_fail(err, TM_FORMAT, "the index has an impossible model name");
    return TM_OK;
}

/* The header behind the sizes. *n_scalars: how many follow the records; *n_text: bytes of the description. */
static tm_status decode_state(reader *r, uint32_t version, tm_checkpoint_index *out, size_t *n_scalars, size_t *n_text,
                              tm_error *err)
{
    tm_checkpoint_state *state = &out->state;
    *state = (tm_checkpoint_state){ 0 };
    state->step = get_i64(r);
    state->samples_consumed = get_i64(r);
    state->seed = get_u64(r);
    state->config_hash = get_u64(r);
    const unsigned char *model = r->from + OLD_SCALARS * sizeof(double);
    uint64_t             count = version == 1 ? 0 : get_u64(r), text = version < 3 ? 0 : get_u64(r);
    state->content = version < 3 ? 0 : get_u64(r);
    out->safetensors = has_safetensors(version);
    out->n_files = has_pieces(version) ? get_u32(r) : 1;
    out->n_pieces = has_pieces(version) ? get_u32(r) : out->count;
    for (size_t i = 0; version == 1 && i < OLD_SCALARS; i++) {
        double value;
        get(r, &value, sizeof value);
        tm_checkpoint_add_scalar(state, old_scalars[i], value);
    }
    if (count > TM_CHECKPOINT_SCALARS)
        return tm_fail(err, TM_FORMAT, "the index has %llu scalars, at most %d wanted", (unsigned long long)count,
                       TM_CHECKPOINT_SCALARS);
    if (text >= TM_CHECKPOINT_DESCRIPTION_BYTES)
        return tm_fail(err, TM_FORMAT, "the index has a description of %llu bytes, less than %d wanted",
                       (unsigned long long)text, TM_CHECKPOINT_DESCRIPTION_BYTES);
    *n_scalars = (size_t)count;
    *n_text = (size_t)text;
    r->from = model;
    get(r, state->model, sizeof state->model);
    return check_state(state, err);
}

static tm_status check_magic(reader *r, const char magic[MAGIC_BYTES], const char *what, uint32_t *version,
                             tm_error *err)
{
    bool is_ours = memcmp(r->from, magic, MAGIC_BYTES) == 0;
    r->from += 8;
    *version = get_u32(r);
    if (!is_ours) return tm_fail(err, TM_FORMAT, "the %s does not start with its magic number", what);
    if (*version < 1 || *version > TM_CHECKPOINT_VERSION)
        return tm_fail(err, TM_FORMAT, "the %s has format version %u, this program reads 1 to %d", what, *version,
                       TM_CHECKPOINT_VERSION);
    return TM_OK;
}

static tm_status decode(const unsigned char *bytes, size_t length, bool part, tm_arena *arena, tm_checkpoint_index *out,
                        tm_error *err)
{
    if (length < HEADER_BYTES) return tm_fail(err, TM_FORMAT, "the index has only %zu bytes", length);
    reader   r = { bytes };
    uint32_t version;
    TM_TRY(check_magic(&r, index_magic, "index", &version, err));
    size_t n_scalars = 0, n_text = 0, rest = length - HEADER_BYTES;
    out->count = get_u32(&r);
    out->data_bytes = get_u64(&r);
    uint64_t name_bytes = get_u64(&r);
    TM_TRY(decode_state(&r, version, out, &n_scalars, &n_text, err));
    const bool plain = !has_pieces(version);
    size_t     tables = out->count * RECORD_BYTES + n_scalars * SCALAR_BYTES; /* all are small: nothing overflows */
    if (!plain) tables += out->n_files * FILE_BYTES + out->n_pieces * PIECE_BYTES;
    if (tables + n_text > rest || name_bytes != rest - tables - n_text)
        return tm_fail(err, TM_FORMAT,
                       "the index has %zu bytes, which is not enough or too much for %zu tensors and %zu scalars",
                       length, out->count, n_scalars);
    out->records = tm_arena_take(arena, (out->count + 1) * sizeof *out->records);
    out->files = tm_arena_take(arena, (out->n_files + 1) * sizeof *out->files);
    out->pieces = tm_arena_take(arena, (out->n_pieces + 1) * sizeof *out->pieces);
    layout at = { .data_bytes = out->data_bytes,
                  .name_bytes = (size_t)name_bytes,
                  .names = bytes + HEADER_BYTES + tables,
                  .plain = plain,
                  .part = part,
                  .safetensors = out->safetensors,
                  .arena = arena };
    for (size_t i = 0; i < out->count; i++) TM_TRY(decode_record(&r, i, &at, out, err));
    for (size_t i = 0; i < n_scalars; i++) TM_TRY(decode_scalar(&r, i, &at, &out->state, err));
    TM_TRY(decode_files(&r, &at, out, err));
    const unsigned char *text = bytes + length - n_text;
    if (!is_text(text, n_text, true)) return tm_fail(err, TM_FORMAT, "the index has a broken description");
    memcpy(out->state.description, text, n_text);
    if (plain && out->safetensors && out->count == 0) at.data_end = at.data_bytes; /* a header alone */
    if (at.data_end != at.data_bytes || at.name_end != at.name_bytes)
        return tm_fail(err, TM_FORMAT, "the index describes %llu of %llu data bytes and %zu of %zu name bytes",
                       (unsigned long long)at.data_end, (unsigned long long)at.data_bytes, at.name_end, at.name_bytes);
    return TM_OK;
}

tm_status tm_checkpoint_index_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
                                     tm_checkpoint_index *out, tm_error *err)
{
    return decode(bytes, length, false, arena, out, err);
}

tm_status tm_checkpoint_part_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
                                    tm_checkpoint_index *out, tm_error *err)
{
    return decode(bytes, length, true, arena, out, err);
}

/* --- coverage ----------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t row, byte;
} corner;

static int compare_corners(const void *a, const void *b)
{
    const corner *x = a, *y = b;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return (x->byte > y->byte) - (x->byte < y->byte);
}

/* Rectangles cover a rectangle exactly when their areas add up to its area and every corner of them is one of an even
 * number, but for its own four, which are one of an odd number: then every point is covered an odd number of times. */
bool tm_checkpoint_covered(uint64_t bytes, uint64_t row_bytes, const tm_checkpoint_piece *pieces, size_t n,
                           tm_arena *arena)
{
    uint64_t all = 0, rows = row_bytes > 0 ? bytes / row_bytes : 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_add_overflow(all, tm_checkpoint_piece_bytes(&pieces[i]), &all)) return false;
    if (all != bytes || n < 2) return all == bytes;
    corner *corners = tm_arena_take(arena, 4 * n * sizeof *corners);
    size_t  odd = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 4; k++)
            corners[4 * i + (size_t)k] = (corner){ pieces[i].first_row + (k & 1 ? pieces[i].rows : 0),
                                                   pieces[i].first_byte + (k & 2 ? pieces[i].row_part : 0) };
    qsort(corners, 4 * n, sizeof *corners, compare_corners);
    for (size_t i = 0, same; i < 4 * n; i += same) {
        for (same = 1; i + same < 4 * n && compare_corners(&corners[i], &corners[i + same]) == 0;) same++;
        if (same % 2 == 0) continue;
        bool outer =
            (corners[i].row == 0 || corners[i].row == rows) && (corners[i].byte == 0 || corners[i].byte == row_bytes);
        if (!outer) return false;
        odd++;
    }
    return odd == 4;
}

/* --- the completeness record -------------------------------------------------------------------------------------- */

void tm_checkpoint_seal_encode(const tm_checkpoint_seal *seal, unsigned char out[TM_CHECKPOINT_SEAL_BYTES])
{
    writer w = { out };
    put(&w, seal_magic, MAGIC_BYTES);
    put_u32(&w, version_of(seal->in_pieces, seal->safetensors));
    put_u32(&w, 0);
    put_u64(&w, (uint64_t)seal->step);
    put_u64(&w, seal->index_bytes);
    put_u64(&w, seal->index_hash);
    put_u64(&w, seal->data_bytes);
    put_u64(&w, tm_hash(out, TM_CHECKPOINT_SEAL_BYTES - sizeof(uint64_t)));
}

tm_status tm_checkpoint_seal_decode(const unsigned char *bytes, size_t length, tm_checkpoint_seal *out, tm_error *err)
{
    if (length != TM_CHECKPOINT_SEAL_BYTES)
        return tm_fail(err, TM_FORMAT, "the completeness record has %zu bytes, %d wanted", length,
                       TM_CHECKPOINT_SEAL_BYTES);
    reader   r = { bytes };
    uint32_t version;
    TM_TRY(check_magic(&r, seal_magic, "completeness record", &version, err));
    get_u32(&r);
    out->in_pieces = has_pieces(version);
    out->safetensors = has_safetensors(version);
    out->step = get_i64(&r);
    out->index_bytes = get_u64(&r);
    out->index_hash = get_u64(&r);
    out->data_bytes = get_u64(&r);
    if (get_u64(&r) != tm_hash(bytes, TM_CHECKPOINT_SEAL_BYTES - sizeof(uint64_t)))
        return tm_fail(err, TM_FORMAT, "the completeness record does not match its checksum");
    return TM_OK;
}
