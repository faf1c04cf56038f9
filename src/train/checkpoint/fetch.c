/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/fetch.c - bytes of tensors out of the pieces that they lie in. */
#include "train/checkpoint/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = TM_CHECKPOINT_CHUNK_BYTES };

void tm_checkpoint_reader_open(tm_checkpoint_reader *reader, const tm_checkpoint_io *io, tm_arena *arena,
                               const char *path, const tm_checkpoint_index *index)
{
    *reader = (tm_checkpoint_reader){ .io = io,
                                      .arena = arena,
                                      .path = path,
                                      .index = index,
                                      .buffer = tm_alloc(CHUNK_BYTES),
                                      .hasher = tm_hasher_create(),
                                      .fd = -1 };
}

void tm_checkpoint_reader_close(tm_checkpoint_reader *reader)
{
    if (reader->fd >= 0) reader->io->close(reader->io->context, reader->fd);
    tm_hasher_destroy(reader->hasher);
    free(reader->buffer);
    *reader = (tm_checkpoint_reader){ .fd = -1 };
}

static const char *name_of(const tm_checkpoint_reader *r, uint32_t file)
{
    return tm_checkpoint_file_name(r->arena, r->index->files[file].writer, r->index->safetensors);
}

static tm_status read_bytes(tm_checkpoint_reader *r, uint32_t file, void *to, size_t bytes, uint64_t offset,
                            tm_error *err)
{
    if (r->fd < 0 || r->file != file) {
        if (r->fd >= 0) r->io->close(r->io->context, r->fd);
        r->file = file;
        r->fd = r->io->open(r->io->context, tm_arena_format(r->arena, "%s/%s", r->path, name_of(r, file)));
        if (r->fd < 0) return tm_fail(err, TM_IO, "cannot open its file %s: %s", name_of(r, file), strerror(errno));
    }
    while (bytes > 0) {
        ssize_t n = r->io->read_at(r->io->context, r->fd, to, bytes, (int64_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tm_fail(err, TM_IO, "cannot read its file %s: %s", name_of(r, file), strerror(errno));
        if (n == 0)
            return tm_fail(err, TM_IO, "its file %s ends at byte %llu", name_of(r, file), (unsigned long long)offset);
        to = (char *)to + n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return TM_OK;
}

/* Rows without gaps are one row. */
static tm_checkpoint_part joined(tm_checkpoint_part part)
{
    if (part.row_part != part.row_bytes) return part;
    return (tm_checkpoint_part){ .whole_bytes = part.whole_bytes,
                                 .row_bytes = part.whole_bytes,
                                 .rows = 1,
                                 .first_byte = part.first_row * part.row_bytes,
                                 .row_part = part.rows * part.row_bytes };
}

tm_checkpoint_part tm_checkpoint_part_of(const tm_checkpoint_tensor *t)
{
    if (t->part.whole_bytes > 0) return joined(t->part);
    return (tm_checkpoint_part){ t->bytes, t->bytes, 0, 1, 0, t->bytes };
}

static tm_checkpoint_part part_of_piece(const tm_checkpoint_record *record, const tm_checkpoint_piece *piece)
{
    return joined((tm_checkpoint_part){ (size_t)record->bytes, (size_t)record->row_bytes, (size_t)piece->first_row,
                                        (size_t)piece->rows, (size_t)piece->first_byte, (size_t)piece->row_part });
}

static bool same_part(const tm_checkpoint_part *a, const tm_checkpoint_part *b)
{
    return a->row_bytes == b->row_bytes && a->first_row == b->first_row && a->rows == b->rows &&
           a->first_byte == b->first_byte && a->row_part == b->row_part;
}

const tm_checkpoint_piece *tm_checkpoint_same_piece(const tm_checkpoint_index  *index,
                                                    const tm_checkpoint_record *record, const tm_checkpoint_tensor *to)
{
    const tm_checkpoint_part wanted = tm_checkpoint_part_of(to);
    for (size_t i = 0; i < record->n_pieces; i++) {
        const tm_checkpoint_piece *piece = &index->pieces[record->first_piece + i];
        const tm_checkpoint_part   found = part_of_piece(record, piece);
        if (same_part(&found, &wanted)) return piece;
    }
    return NULL;
}

tm_status tm_checkpoint_read_piece(tm_checkpoint_reader *r, const tm_checkpoint_record *record,
                                   const tm_checkpoint_piece *piece, const tm_checkpoint_tensor *to, tm_error *err)
{
    const uint64_t bytes = tm_checkpoint_piece_bytes(piece);
    tm_hasher_restart(r->hasher);
    for (uint64_t done = 0; done < bytes;) {
        size_t n = bytes - done < CHUNK_BYTES ? (size_t)(bytes - done) : CHUNK_BYTES;
        TM_TRY(read_bytes(r, piece->file, r->buffer, n, piece->offset + done, err));
        if (to) TM_TRY(to->memory->write(to->memory, tm_address_add(to->at, done), r->buffer, n, err));
        tm_hasher_add(r->hasher, r->buffer, n);
        done += n;
    }
    uint64_t found = tm_hasher_value(r->hasher);
    if (found == piece->hash) return TM_OK;
    if (r->index->files[piece->file].writer < 0)
        return tm_fail(err, TM_FORMAT, "tensor '%s' does not match its checksum (found %016llx, wanted %016llx)",
                       record->name, (unsigned long long)found, (unsigned long long)piece->hash);
    return tm_fail(err, TM_FORMAT, "tensor '%s' in %s does not match its checksum (found %016llx, wanted %016llx)",
                   record->name, name_of(r, piece->file), (unsigned long long)found, (unsigned long long)piece->hash);
}

/* `bytes` bytes from `offset` of a file on go to byte `at` of a tensor. */
static tm_status copy_run(tm_checkpoint_reader *r, uint32_t file, uint64_t offset, const tm_checkpoint_tensor *to,
                          size_t at, size_t bytes, tm_error *err)
{
    for (size_t done = 0; done < bytes;) {
        size_t n = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        TM_TRY(read_bytes(r, file, r->buffer, n, offset + done, err));
        TM_TRY(to->memory->write(to->memory, tm_address_add(to->at, at + done), r->buffer, n, err));
        done += n;
    }
    return TM_OK;
}

/* Where row `row` of a part begins in the tensor. */
static size_t begin_of(const tm_checkpoint_part *part, size_t row)
{
    return (part->first_row + row) * part->row_bytes + part->first_byte;
}

/* The first row of a part that ends behind byte `at` of the tensor. */
static size_t first_row_behind(const tm_checkpoint_part *part, size_t at)
{
    size_t end = begin_of(part, 0) + part->row_part;
    return at < end ? 0 : (at - end) / part->row_bytes + 1;
}

/* What bytes [from, from + bytes) of the tensor, which lie at `offset` of a file, and the wanted part have in common.
 */
static tm_status fetch_row(tm_checkpoint_reader *r, const tm_checkpoint_piece *piece, size_t from, size_t bytes,
                           uint64_t offset, const tm_checkpoint_part *wanted, const tm_checkpoint_tensor *to,
                           tm_error *err)
{
    for (size_t row = first_row_behind(wanted, from); row < wanted->rows; row++) {
        size_t begin = begin_of(wanted, row), end = begin + wanted->row_part;
        if (begin >= from + bytes) break;
        size_t first = begin > from ? begin : from, last = end < from + bytes ? end : from + bytes;
        TM_TRY(copy_run(r, piece->file, offset + (first - from), to, row * wanted->row_part + (first - begin),
                        last - first, err));
    }
    return TM_OK;
}

static tm_status fetch_piece(tm_checkpoint_reader *r, const tm_checkpoint_record *record,
                             const tm_checkpoint_piece *piece, const tm_checkpoint_part *wanted,
                             const tm_checkpoint_tensor *to, tm_error *err)
{
    const tm_checkpoint_part found = part_of_piece(record, piece);
    const size_t             begin = begin_of(wanted, 0);
    const size_t             end = begin_of(wanted, wanted->rows - 1) + wanted->row_part;
    if (found.row_bytes == wanted->row_bytes && found.first_byte == wanted->first_byte &&
        found.row_part == wanted->row_part &&
        found.rows > 1) { /* the same columns: their rows are one behind the other */
        size_t first = found.first_row > wanted->first_row ? found.first_row : wanted->first_row;
        size_t last = found.first_row + found.rows;
        if (last > wanted->first_row + wanted->rows) last = wanted->first_row + wanted->rows;
        if (first >= last) return TM_OK;
        return copy_run(r, piece->file, piece->offset + (first - found.first_row) * found.row_part, to,
                        (first - wanted->first_row) * found.row_part, (last - first) * found.row_part, err);
    }
    for (size_t row = first_row_behind(&found, begin); row < found.rows && begin_of(&found, row) < end; row++)
        TM_TRY(fetch_row(r, piece, begin_of(&found, row), found.row_part, piece->offset + row * found.row_part, wanted,
                         to, err));
    return TM_OK;
}

tm_status tm_checkpoint_fetch(tm_checkpoint_reader *r, const tm_checkpoint_record *record,
                              const tm_checkpoint_tensor *to, tm_error *err)
{
    const tm_checkpoint_part wanted = tm_checkpoint_part_of(to);
    if (to->bytes == 0) return TM_OK;
    for (size_t i = 0; i < record->n_pieces; i++)
        TM_TRY(fetch_piece(r, record, &r->index->pieces[record->first_piece + i], &wanted, to, err));
    return TM_OK;
}
