/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/format.h - the bytes of index and completeness record (docs/checkpoints.md). Private to checkpoints.
 *
 * A tensor is bytes in pieces: rectangles of its bytes seen as a matrix, which cover it exactly. A checkpoint of one
 * process has one piece per tensor and one file. Decoding trusts nothing: every offset, length and product is checked
 * before it is used.
 */
#ifndef TM_TRAIN_CHECKPOINT_FORMAT_H
#define TM_TRAIN_CHECKPOINT_FORMAT_H

#include "base/arena.h"
#include "train/checkpoint/checkpoint.h"

enum {
    TM_CHECKPOINT_VERSION = 6,     /* written where there are pieces, else 5, which is the same without them. 3 and 4:
                                      their files are no safetensors; 1 (scalars have places instead of names) and 2
                                      (neither content nor description) are read, too */
    TM_CHECKPOINT_ALIGN = 64,      /* of each tensor in a file, up to version 4 */
    TM_CHECKPOINT_SEAL_BYTES = 56, /* size of the completeness record */
    TM_CHECKPOINT_MAX_INDEX_BYTES = 1 << 30,
};

/* Bytes of a tensor, in rows as of tm_checkpoint_part, one row behind the other in a file. */
typedef struct {
    uint64_t first_row, rows, first_byte, row_part;
    uint64_t offset; /* in the file */
    uint64_t hash;   /* of these rows x row_part bytes */
    uint32_t file;   /* which of the index */
} tm_checkpoint_piece;

typedef struct {
    const char *name; /* in the decoded buffer */
    int         dtype, rank;
    int64_t     n[TM_CHECKPOINT_MAX_RANK];
    uint64_t    bytes, row_bytes; /* of the whole tensor; of a row */
    size_t      first_piece, n_pieces;
} tm_checkpoint_record;

/* A file of tensors. */
typedef struct {
    int64_t  writer; /* the rank that wrote it; -1: the only one there is */
    uint64_t bytes;  /* the end of its last tensor */
} tm_checkpoint_file;

typedef struct {
    tm_checkpoint_state   state;
    uint64_t              data_bytes;  /* of all files */
    bool                  safetensors; /* that is what the files are; else tensors alone, aligned */
    size_t                count;
    tm_checkpoint_record *records; /* of one file: in its order */
    size_t                n_files, n_pieces;
    tm_checkpoint_file   *files;
    tm_checkpoint_piece  *pieces; /* in the order of the records */
} tm_checkpoint_index;

/* Do the pieces cover a tensor of `bytes` bytes exactly, each byte once? Uses the arena for n > 1. */
bool tm_checkpoint_covered(uint64_t bytes, uint64_t row_bytes, const tm_checkpoint_piece *pieces, size_t n,
                           tm_arena *arena);

static inline uint64_t tm_checkpoint_piece_bytes(const tm_checkpoint_piece *piece)
{
    return piece->rows * piece->row_part;
}

/* The completeness record. */
typedef struct {
    int64_t  step;
    uint64_t index_bytes, index_hash, data_bytes;
    bool     in_pieces, safetensors; /* the version of the index */
} tm_checkpoint_seal;

/* Length of the encoded index. */
size_t tm_checkpoint_index_bytes(const tm_checkpoint_index *index);
void   tm_checkpoint_index_encode(const tm_checkpoint_index *index, unsigned char *out); /* zeroed, index_bytes long */
/* Names point into `bytes`, everything else is taken from the arena. Names may repeat. TM_FORMAT with the reason. */
TM_MUST_USE tm_status tm_checkpoint_index_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
                                                 tm_checkpoint_index *out, tm_error *err);
/* The same of what one rank of many has written: its pieces need not cover the tensors. */
TM_MUST_USE tm_status tm_checkpoint_part_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
                                                tm_checkpoint_index *out, tm_error *err);

/* The completeness record; decoding says TM_FORMAT with the reason. */
void tm_checkpoint_seal_encode(const tm_checkpoint_seal *seal, unsigned char out[TM_CHECKPOINT_SEAL_BYTES]);
TM_MUST_USE tm_status tm_checkpoint_seal_decode(const unsigned char *bytes, size_t length, tm_checkpoint_seal *out,
                                                tm_error *err);

static inline uint64_t tm_checkpoint_aligned(uint64_t offset)
{
    return (offset + (TM_CHECKPOINT_ALIGN - 1)) / TM_CHECKPOINT_ALIGN * TM_CHECKPOINT_ALIGN;
}

#endif
