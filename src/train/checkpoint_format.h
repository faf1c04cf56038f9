/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint_format.h - the bytes of index and completeness record (docs/checkpoints.md). Private to checkpoints.
 *
 * Decoding trusts nothing: every offset, length and product is checked before it is used.
 */
#ifndef TM_TRAIN_CHECKPOINT_FORMAT_H
#define TM_TRAIN_CHECKPOINT_FORMAT_H

#include "base/arena.h"
#include "train/checkpoint.h"

enum {
    TM_CHECKPOINT_VERSION = 3,     /* written; 1 (scalars have places instead of names) and 2 (neither content nor
                                      description) are read, too */
    TM_CHECKPOINT_ALIGN = 64,      /* of each tensor in the data file */
    TM_CHECKPOINT_SEAL_BYTES = 56, /* size of the completeness record */
    TM_CHECKPOINT_MAX_INDEX_BYTES = 64 << 20,
};

typedef struct {
    const char *name; /* in the decoded buffer */
    int         dtype, rank;
    int64_t     n[TM_CHECKPOINT_MAX_RANK];
    uint64_t    offset, bytes; /* in the data file; offset is a multiple of TM_CHECKPOINT_ALIGN */
    uint64_t    hash;          /* of the tensor's bytes */
} tm_checkpoint_record;

typedef struct {
    tm_checkpoint_state   state;
    uint64_t              data_bytes; /* of the data file: the end of the last tensor */
    size_t                count;
    tm_checkpoint_record *records; /* in file order */
} tm_checkpoint_index;

/* The completeness record. */
typedef struct {
    int64_t  step;
    uint64_t index_bytes, index_hash, data_bytes;
} tm_checkpoint_seal;

/* Length of the encoded index. */
size_t tm_checkpoint_index_bytes(const tm_checkpoint_index *index);
void   tm_checkpoint_index_encode(const tm_checkpoint_index *index, unsigned char *out); /* zeroed, index_bytes long */
/* Names point into `bytes`, records are taken from the arena. TM_FORMAT with the reason. */
TM_MUST_USE tm_status tm_checkpoint_index_decode(const unsigned char *bytes, size_t length, tm_arena *arena,
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
