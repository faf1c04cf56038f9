/* SPDX-License-Identifier: Apache-2.0 */
/* the reader of checkpoints, from memory. An input is
 *
 *     1 byte    repairs: 1 completeness record, 2 index checksum and sizes, 4 checksums of the tensors, 8 wish list
 *     56 bytes  completeness record
 *     u32       length of the index
 *     ...       index, then data
 *
 * Repairs let a mutation pass the checksums and reach what lies behind them. Wish list: ask for the very tensors that
 * the index names, so that loading succeeds as often as possible; else ask for those of the seeds. What must hold: no
 * memory error; after a failure memory and state are as before; after a success they hold the bytes of the file. */
#include "fuzz.h"

#include "base/hash.h"
#include "base/log.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/io.h"
#include "train/run/run_state.h"

#include <errno.h>

enum {
    REPAIR_SEAL = 1,
    REPAIR_INDEX = 2,
    REPAIR_DATA = 4,
    WISH_LIST = 8,
    HEADER_BYTES = 160,
    RECORD_BYTES = 72,
    SCALAR_BYTES = 16,
    FILE_BYTES = 16,
    PIECE_BYTES = 56,
    STEP = 2
};

typedef struct {
    const uint8_t *data[3];
    size_t         size[3];
} memory_files;

static int memory_open(void *context, const char *path)
{
    static const char *const names[] = { TM_CHECKPOINT_SEAL, TM_CHECKPOINT_INDEX, TM_CHECKPOINT_DATA };
    (void)context;
    if (strcmp(strrchr(path, '/') + 1, TM_CHECKPOINT_OLD_DATA) == 0) return 2;
    for (int i = 0; i < 3; i++)
        if (strcmp(strrchr(path, '/') + 1, names[i]) == 0) return i;
    if (strstr(path, "/tensors-")) return 2; /* files of ranks: all of them are the data */
    errno = ENOENT;
    return -1;
}

static int memory_close(void *context, int fd)
{
    (void)context;
    (void)fd;
    return 0;
}

static int64_t memory_size(void *context, int fd)
{
    return (int64_t)((memory_files *)context)->size[fd];
}

static ssize_t memory_read_at(void *context, int fd, void *to, size_t bytes, int64_t offset)
{
    memory_files *files = context;
    TM_ASSERT(offset >= 0);
    if ((uint64_t)offset >= files->size[fd]) return 0;
    size_t left = files->size[fd] - (size_t)offset;
    if (bytes > left) bytes = left;
    memcpy(to, files->data[fd] + offset, bytes);
    return (ssize_t)bytes;
}

static void repair_data(uint8_t *index, size_t index_bytes, const uint8_t *data, size_t data_bytes)
{
    for (size_t at = HEADER_BYTES; at + RECORD_BYTES <= index_bytes; at += RECORD_BYTES) {
        uint64_t offset, bytes;
        memcpy(&offset, index + at, 8);
        memcpy(&bytes, index + at + 8, 8);
        if (offset > data_bytes || bytes > data_bytes - offset) break; /* the names, or nonsense */
        uint64_t hash = tm_hash(data + offset, (size_t)bytes);
        memcpy(index + at + 16, &hash, 8);
    }
}

static uint32_t number_at(const uint8_t *index, size_t at)
{
    uint32_t value;
    memcpy(&value, index + at, 4);
    return value;
}

/* The same of an index of files and pieces: each file is all of the data. */
static void repair_pieces(uint8_t repairs, uint8_t *index, size_t index_bytes, const uint8_t *data, uint64_t data_bytes)
{
    uint64_t files = number_at(index, 88), pieces = number_at(index, 92), all = files * data_bytes;
    size_t   at =
        HEADER_BYTES + (size_t)number_at(index, 12) * RECORD_BYTES + (size_t)number_at(index, 64) * SCALAR_BYTES;
    if (repairs & REPAIR_INDEX) memcpy(index + 16, &all, 8);
    for (uint64_t i = 0; i < files && at + FILE_BYTES <= index_bytes; i++, at += FILE_BYTES)
        if (repairs & REPAIR_INDEX) memcpy(index + at + 8, &data_bytes, 8);
    for (uint64_t i = 0; i < pieces && at + PIECE_BYTES <= index_bytes; i++, at += PIECE_BYTES) {
        uint64_t rows, part, offset, bytes;
        memcpy(&rows, index + at + 8, 8);
        memcpy(&part, index + at + 24, 8);
        memcpy(&offset, index + at + 32, 8);
        if (__builtin_mul_overflow(rows, part, &bytes) || offset > data_bytes || bytes > data_bytes - offset) break;
        uint64_t hash = tm_hash(data + offset, (size_t)bytes);
        if (repairs & REPAIR_DATA) memcpy(index + at + 40, &hash, 8);
    }
}

static void repair(uint8_t repairs, uint8_t *seal, uint8_t *index, size_t index_bytes, const uint8_t *data,
                   size_t data_bytes)
{
    uint64_t whole[3] = { index_bytes, 0, data_bytes };
    bool     in_pieces = index_bytes >= HEADER_BYTES && (number_at(index, 8) == 4 || number_at(index, 8) == 6);
    if (!in_pieces && (repairs & REPAIR_INDEX) && index_bytes >= 24) memcpy(index + 16, &whole[2], 8);
    if (!in_pieces && (repairs & REPAIR_DATA)) repair_data(index, index_bytes, data, data_bytes);
    if (in_pieces) repair_pieces(repairs, index, index_bytes, data, data_bytes);
    whole[1] = tm_hash(index, index_bytes);
    if (repairs & REPAIR_INDEX) memcpy(seal + 24, whole, sizeof whole);
    uint64_t hash = tm_hash(seal, TM_CHECKPOINT_SEAL_BYTES - 8);
    if (repairs & (REPAIR_INDEX | REPAIR_SEAL)) memcpy(seal + TM_CHECKPOINT_SEAL_BYTES - 8, &hash, 8);
}

static tm_status host_read(const tm_checkpoint_memory *memory, tm_address from, void *to, size_t bytes, tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy(to, (const void *)from.at, bytes);
    return TM_OK;
}

static tm_status host_write(const tm_checkpoint_memory *memory, tm_address to, const void *from, size_t bytes,
                            tm_error *err)
{
    (void)memory;
    (void)err;
    memcpy((void *)to.at, from, bytes);
    return TM_OK;
}

static const tm_checkpoint_memory host_memory = { host_read, host_write, NULL };

static void *data_of(const tm_checkpoint_tensor *tensor)
{
    return (void *)tensor->at.at;
}

/* What a run takes from the state: no number that a run cannot have written gets through. */
static void check_taken(const tm_checkpoint_state *state)
{
    tm_run_options      options = { .seed = state->seed,
                                    .source = { .name = "synthetic", .vocab = 64, .seq = 8 },
                                    .checkpoint_folder = "",
                                    .allow_changed_data = true };
    run                 r = { .options = &options };
    tm_error            err = { 0 };
    tm_checkpoint_state plain = *state;
    options.step.shape.family = TM_FAMILY_LLAMA;
    plain.description[0] = '\0'; /* the model has a test of its own */
    tm_log_set_level(TM_LOG_ERROR);
    TM_ASSERT(tm_source_open(&options.source, (tm_source **)&r.source, &err) == TM_OK);
    if (run_take_state(&r, &plain, &err) == TM_OK) {
        const double        first = r.progress.first_loss;
        const tm_loss_head *head = &r.progress.before;
        TM_ASSERT(first >= 0 && first <= 1e6 && head->mean >= 0 && head->mean <= 1e6);
        TM_ASSERT(head->deviation >= 0 && head->deviation <= 1e6 && head->n >= 0 && head->n <= state->step);
    }
    tm_source_close((tm_source *)(uintptr_t)r.source);
}

/* The tensors of the index, or those of the seeds; memory for each, filled with 0xEE. */
static size_t ask(tm_arena *arena, bool wish, const uint8_t *index, size_t index_bytes, tm_checkpoint_tensor **out)
{
    static const tm_checkpoint_record usual[] = {
        { .name = "layers.0.wq.weight", .dtype = 1, .rank = 2, .n = { 3, 5 }, .bytes = 60 },
        { .name = "nothing", .dtype = 2, .rank = 2, .n = { 0, 7 } },
        { .name = "bytes", .dtype = 9, .rank = 4, .n = { 1, 13, 2, 5 }, .bytes = 130 },
    };
    tm_checkpoint_index decoded = { .count = 0 };
    if (!wish || tm_checkpoint_index_decode(index, index_bytes, arena, &decoded, NULL) != TM_OK) decoded.count = 0;
    const tm_checkpoint_record *of = decoded.count ? decoded.records : usual;
    size_t                      n = decoded.count ? decoded.count : sizeof usual / sizeof *usual, kept = 0;
    *out = tm_arena_take(arena, (n + 1) * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        bool twice = false; /* names must be unique here */
        for (size_t k = 0; k < kept; k++) twice = twice || strcmp((*out)[k].name, of[i].name) == 0;
        if (twice) continue;
        size_t bytes =
            of[i].bytes > index_bytes + (1u << 20) ? 1 : (size_t)of[i].bytes; /* the file has not that much */
        void *data = malloc(bytes ? bytes : 1);                               /* overruns are seen */
        TM_ASSERT(data);
        memset(data, 0xEE, bytes);
        (*out)[kept] = (tm_checkpoint_tensor){ .name = of[i].name,
                                               .dtype = of[i].dtype,
                                               .rank = of[i].rank,
                                               .bytes = bytes,
                                               .at = { (uintptr_t)data },
                                               .memory = &host_memory };
        memcpy((*out)[kept++].n, of[i].n, sizeof of[i].n);
    }
    return kept;
}

/* What was loaded is what the pieces hold. */
static void check_bytes(const tm_checkpoint_index *index, const tm_checkpoint_record *r, const unsigned char *at,
                        const uint8_t *data)
{
    uint64_t checked = 0;
    for (size_t i = 0; i < r->n_pieces; i++) {
        const tm_checkpoint_piece *p = &index->pieces[r->first_piece + i];
        for (uint64_t row = 0; row < p->rows && p->row_part; row++)
            TM_ASSERT(memcmp(at + (p->first_row + row) * r->row_bytes + p->first_byte,
                             data + p->offset + row * p->row_part, (size_t)p->row_part) == 0);
        checked += tm_checkpoint_piece_bytes(p);
    }
    TM_ASSERT(checked == r->bytes);
}

static void check(tm_arena *arena, memory_files *files, tm_checkpoint_tensor *tensors, size_t n)
{
    const tm_checkpoint_io io = {
        .context = files, .open = memory_open, .close = memory_close, .size = memory_size, .read_at = memory_read_at
    };
    tm_checkpoint_state state, before;
    tm_checkpoint_index index;
    tm_error            err = { 0 };
    int64_t             bytes;
    memset(&state, 0xEE, sizeof state);
    before = state;
    tm_status st = tm_checkpoint_read(&io, NULL, "/memory", STEP, &state, tensors, n, &bytes, &err);
    TM_ASSERT(st == TM_OK || st == TM_FORMAT || st == TM_IO || st == TM_INVALID);
    TM_ASSERT(st == TM_OK || (err.text[0] && memcmp(&state, &before, sizeof state) == 0));
    if (st == TM_OK) {
        TM_ASSERT(tm_checkpoint_index_decode(files->data[1], files->size[1], arena, &index, NULL) == TM_OK);
        TM_ASSERT(index.count == n && state.step == STEP && memchr(state.model, 0, sizeof state.model));
        TM_ASSERT(state.samples_consumed >= 0 && state.samples_consumed <= TM_CHECKPOINT_MAX_COUNT);
        TM_ASSERT(memchr(state.description, 0, sizeof state.description));
        check_taken(&state);
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char *at = data_of(&tensors[i]);
        for (size_t k = 0; st != TM_OK && k < tensors[i].bytes; k++) TM_ASSERT(at[k] == 0xEE);
        for (size_t k = 0; st == TM_OK && k < n; k++)
            if (strcmp(index.records[k].name, tensors[i].name) == 0)
                check_bytes(&index, &index.records[k], at, files->data[2]);
    }
}

FUZZ(checkpoint)
{
    uint8_t  repairs, seal[TM_CHECKPOINT_SEAL_BYTES];
    uint32_t index_bytes;
    if (size < 1 + sizeof seal + sizeof index_bytes) return;
    repairs = data[0];
    memcpy(seal, data + 1, sizeof seal);
    memcpy(&index_bytes, data + 1 + sizeof seal, sizeof index_bytes);
    data += 1 + sizeof seal + sizeof index_bytes;
    size -= 1 + sizeof seal + sizeof index_bytes;
    if (index_bytes > size) index_bytes = (uint32_t)size;
    uint8_t *index = malloc(index_bytes ? index_bytes : 1);
    TM_ASSERT(index);
    memcpy(index, data, index_bytes);
    repair(repairs, seal, index, index_bytes, data + index_bytes, size - index_bytes);
    memory_files files = { { seal, index, data + index_bytes }, { sizeof seal, index_bytes, size - index_bytes } };
    tm_arena    *arena = tm_arena_create();
    tm_checkpoint_tensor *tensors;
    size_t                n = ask(arena, repairs & WISH_LIST, index, index_bytes, &tensors);
    check(arena, &files, tensors, n);
    for (size_t i = 0; i < n; i++) free(data_of(&tensors[i]));
    tm_arena_destroy(arena);
    free(index);
}
