/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint_format.h"

#include "base/hash.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints hold tensors as they are in memory and are defined as little-endian"
#endif

enum { HEADER_BYTES = 160, RECORD_BYTES = 72, MAX_DTYPE = 65535 };

static const char index_magic[8] = "tmindex\n", seal_magic[8] = "tmcomplt";

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

static size_t names_bytes(const tm_checkpoint_index *index)
{
    size_t bytes = 0;
    for (size_t i = 0; i < index->count; i++) bytes += strlen(index->records[i].name) + 1;
    return bytes;
}

size_t tm_checkpoint_index_bytes(const tm_checkpoint_index *index)
{
    return HEADER_BYTES + index->count * RECORD_BYTES + names_bytes(index);
}

void tm_checkpoint_index_encode(const tm_checkpoint_index *index, unsigned char *out)
{
    const tm_checkpoint_state *state = &index->state;
    writer                     w = { out };
    put(&w, index_magic, sizeof index_magic);
    put_u32(&w, TM_CHECKPOINT_VERSION);
    put_u32(&w, (uint32_t)index->count);
    put_u64(&w, index->data_bytes);
    put_u64(&w, names_bytes(index));
    put_u64(&w, (uint64_t)state->step);
    put_u64(&w, (uint64_t)state->samples_consumed);
    put_u64(&w, state->seed);
    put_u64(&w, state->config_hash);
    put(&w, state->trainer_scalars, sizeof state->trainer_scalars);
    put(&w, state->model, strnlen(state->model, sizeof state->model - 1)); /* the rest of the field stays zero */
    w.to = out + HEADER_BYTES;
    writer names = { out + HEADER_BYTES + index->count * RECORD_BYTES };
    size_t name_offset = 0;
    for (size_t i = 0; i < index->count; i++) {
        const tm_checkpoint_record *r = &index->records[i];
        size_t                      name_length = strlen(r->name);
        put_u64(&w, r->offset);
        put_u64(&w, r->bytes);
        put_u64(&w, r->hash);
        for (int axis = 0; axis < TM_CHECKPOINT_MAX_RANK; axis++)
            put_u64(&w, axis < r->rank ? (uint64_t)r->n[axis] : 0);
        put_u32(&w, (uint32_t)r->dtype);
        put_u32(&w, (uint32_t)r->rank);
        put_u32(&w, (uint32_t)name_offset);
        put_u32(&w, (uint32_t)name_length);
        put(&names, r->name, name_length + 1);
        name_offset += name_length + 1;
    }
}

/* Where the next record must point: tensors and names lie one behind the other, without gaps or overlaps. */
typedef struct {
    uint64_t             data_end, data_bytes;
    size_t               name_end, name_bytes;
    const unsigned char *names;
} layout;

static tm_status decode_record(reader *r, size_t i, layout *at, tm_checkpoint_record *out, tm_error *err)
{
    out->offset = get_u64(r);
    out->bytes = get_u64(r);
    out->hash = get_u64(r);
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
    if (at->data_end > UINT64_MAX - TM_CHECKPOINT_ALIGN || out->offset != tm_checkpoint_aligned(at->data_end) ||
        out->offset > at->data_bytes || out->bytes > at->data_bytes - out->offset)
        return tm_fail(err, TM_FORMAT, "index record %zu points to bytes %llu + %llu of %llu", i,
                       (unsigned long long)out->offset, (unsigned long long)out->bytes,
                       (unsigned long long)at->data_bytes);
    at->data_end = out->offset + out->bytes;
    if (name_offset != at->name_end || name_length >= at->name_bytes - at->name_end)
        return tm_fail(err, TM_FORMAT, "index record %zu has its name outside the names", i);
    out->name = (const char *)at->names + name_offset;
    if (memchr(out->name, '\0', (size_t)name_length + 1) != out->name + name_length)
        return tm_fail(err, TM_FORMAT, "index record %zu has a broken name", i);
    at->name_end += (size_t)name_length + 1;
    return TM_OK;
}

static tm_status decode_state(reader *r, tm_checkpoint_state *state, tm_error *err)
{
    state->step = get_i64(r);
    state->samples_consumed = get_i64(r);
    state->seed = get_u64(r);
    state->config_hash = get_u64(r);
    get(r, state->trainer_scalars, sizeof state->trainer_scalars);
    get(r, state->model, sizeof state->model);
    if (state->step < 0 || state->samples_consumed < 0 || !memchr(state->model, '\0', sizeof state->model))
        return tm_fail(err, TM_FORMAT, "the index has an impossible step, sample count or model name");
    return TM_OK;
}

static tm_status check_magic(reader *r, const char magic[8], const char *what, tm_error *err)
{
    bool is_ours = memcmp(r->from, magic, 8) == 0;
    r->from += 8;
    uint32_t version = get_u32(r);
    if (!is_ours) return tm_fail(err, TM_FORMAT, "the %s does not start with its magic number", what);
    if (version != TM_CHECKPOINT_VERSION)
        return tm_fail(err, TM_FORMAT, "the %s has format version %u, this program reads %d", what, version,
                       TM_CHECKPOINT_VERSION);
    return TM_OK;
}

tm_status tm_checkpoint_index_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
                                     tm_checkpoint_index *out, tm_error *err)
{
    if (length < HEADER_BYTES) return tm_fail(err, TM_FORMAT, "the index has only %zu bytes", length);
    reader r = { bytes };
    TM_TRY(check_magic(&r, index_magic, "index", err));
    size_t count = get_u32(&r);
    out->data_bytes = get_u64(&r);
    uint64_t name_bytes = get_u64(&r);
    if (count > (length - HEADER_BYTES) / RECORD_BYTES || name_bytes != length - HEADER_BYTES - count * RECORD_BYTES)
        return tm_fail(err, TM_FORMAT, "the index has %zu bytes, which is not enough or too much for %zu tensors",
                       length, count);
    TM_TRY(decode_state(&r, &out->state, err));
    out->count = count;
    out->records = tm_arena_take(arena, (count + 1) * sizeof *out->records);
    layout at = { .data_bytes = out->data_bytes,
                  .name_bytes = (size_t)name_bytes,
                  .names = bytes + HEADER_BYTES + count * RECORD_BYTES };
    for (size_t i = 0; i < count; i++) TM_TRY(decode_record(&r, i, &at, &out->records[i], err));
    if (at.data_end != at.data_bytes || at.name_end != at.name_bytes)
        return tm_fail(err, TM_FORMAT, "the index describes %llu of %llu data bytes and %zu of %zu name bytes",
                       (unsigned long long)at.data_end, (unsigned long long)at.data_bytes, at.name_end, at.name_bytes);
    return TM_OK;
}

void tm_checkpoint_seal_encode(const tm_checkpoint_seal *seal, unsigned char out[TM_CHECKPOINT_SEAL_BYTES])
{
    writer w = { out };
    put(&w, seal_magic, sizeof seal_magic);
    put_u32(&w, TM_CHECKPOINT_VERSION);
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
    reader r = { bytes };
    TM_TRY(check_magic(&r, seal_magic, "completeness record", err));
    get_u32(&r);
    out->step = get_i64(&r);
    out->index_bytes = get_u64(&r);
    out->index_hash = get_u64(&r);
    out->data_bytes = get_u64(&r);
    if (get_u64(&r) != tm_hash(bytes, TM_CHECKPOINT_SEAL_BYTES - sizeof(uint64_t)))
        return tm_fail(err, TM_FORMAT, "the completeness record does not match its checksum");
    return TM_OK;
}
