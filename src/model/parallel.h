/* SPDX-License-Identifier: Apache-2.0 */
/* model/parallel.h - which part of a model this rank computes: what builders need to know of a mesh (comm/mesh/mesh.h).
 *
 * A builder makes its own rank's part only: parameters with the shapes that they have here (tm_tensor.cut says of what
 * they are the part), and collectives (op/collectives.c) where ranks need what others have. {0}: all of the model.
 */
#ifndef TM_MODEL_PARALLEL_H
#define TM_MODEL_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A group of ranks that divide something among them. */
typedef struct {
    unsigned axes;  /* of the mesh: for the collectives */
    int      rank;  /* this one's number in the group */
    int      ranks; /* 0, 1: nothing is divided */
} tm_division;

static inline bool tm_divided(tm_division division)
{
    return division.ranks > 1;
}

/* Sequences that ranks have in parts: each is cut into 2 ranks equal chunks, of which a rank has two, number `rank` and
 * number 2 ranks - 1 - rank. Under a causal mask all then have as many pairs of a query and a key. */
enum { TM_CHUNKS = 2 };
static inline int64_t tm_chunk_of(tm_division context, int h)
{
    return h == 0 ? context.rank : TM_CHUNKS * context.ranks - 1 - context.rank;
}
static inline int64_t tm_chunk_length(tm_division context, int64_t seq)
{
    return seq / (TM_CHUNKS * context.ranks);
}

/* A part of a model in a pipeline: blocks first .. end - 1; `begins`: with what lies in front of all blocks; `ends`:
 * with what lies behind them, and the loss. */
typedef struct {
    int  first, end;
    bool begins, ends;
    int  number; /* of all stages, from 0 */
    /* Of an output layer that several stages divide, each with a run of the vocabulary: number `piece` of `pieces`,
     * with the classes class_first .. class_end - 1. pieces 0: the stage has none, or all of it. */
    int     piece, pieces;
    int64_t class_first, class_end;
} tm_stage;

enum { TM_MAX_CHUNKS = 32 };

typedef struct {
    /* Heads, the width of feed-forward layers, the vocabulary: matrices by rows or by columns (Shoeybi et al. 2019).
     * rows: what lies between the matrices is divided, too, by rows of the batch (sequence parallel). */
    tm_division tensor;
    bool        rows;
    tm_division context;    /* the tokens of each sequence: a rank's fields have the first chunks of all sequences, then
                             * the second ones (tm_chunk_of); of images one run of the tokens of each sample */
    bool        ring;       /* keys and values go from rank to rank; else all ranks gather them */
    tm_division experts;    /* of each mixture */
    double expert_capacity; /* rows that a rank's experts take at a time, as a multiple of its own rows x experts of a
                             * row; more are sent in further rounds. 0: all that can come */
    tm_division stages;     /* a pipeline: layers, one run of them after the other */
    tm_stage    chunk[TM_MAX_CHUNKS]; /* the parts that this rank has, in the order of the model */
    int         chunks;               /* 0: all of it */
} tm_parallel;

/* Has this rank that block, what lies in front of all blocks, what lies behind them? */
static inline bool tm_parallel_has(const tm_parallel *parallel, int layer)
{
    bool here = parallel->chunks == 0;
    for (int c = 0; c < parallel->chunks; c++)
        here = here || (parallel->chunk[c].first <= layer && layer < parallel->chunk[c].end);
    return here;
}
static inline bool tm_parallel_begins(const tm_parallel *parallel)
{
    return parallel->chunks == 0 || parallel->chunk[0].begins;
}
static inline bool tm_parallel_ends(const tm_parallel *parallel)
{
    return parallel->chunks == 0 || parallel->chunk[parallel->chunks - 1].ends;
}

/* Where stages divide the output layer: this rank's stage with a piece of it; NULL: it is whole. */
static inline const tm_stage *tm_parallel_piece(const tm_parallel *parallel)
{
    for (int c = 0; c < parallel->chunks; c++)
        if (parallel->chunk[c].pieces > 0) return &parallel->chunk[c];
    return NULL;
}
/* The norm behind the blocks stands where the output layer begins. */
static inline bool tm_stage_norms(const tm_stage *stage)
{
    return stage->pieces > 0 ? stage->piece == 0 : stage->ends;
}
static inline bool tm_parallel_norms(const tm_parallel *parallel)
{
    const tm_stage *piece = tm_parallel_piece(parallel);
    return piece ? tm_stage_norms(piece) : tm_parallel_ends(parallel);
}

#endif
