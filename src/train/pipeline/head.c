/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/head.c - cuts of a model whose output layer the ranks of a pipeline divide. */
#include "train/pipeline/pipeline.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 16 }; /* pieces of the vocabulary begin at multiples of as many */

typedef struct {
    const tm_pipeline      *p;
    const tm_pipeline_head *head;
    int64_t                 layers, first_less;
    int64_t                *blocks; /* (stages) */
    double                 *load;   /* (ranks) blocks and their like of each */
    double                 *piece;  /* (ranks) of the output layer, in blocks */
} cut;

/* The first stage with a piece. */
static int pieces_from(const tm_pipeline *p)
{
    return p->ranks * (p->chunks - 1);
}

/* Of all blocks `behind` lie in the stage of the first piece, the others evenly in the stages before. */
static void put_blocks(cut *c, int64_t behind)
{
    const int from = pieces_from(c->p);
    int64_t   all = c->layers - behind + c->first_less;
    for (int r = 0; r < c->p->ranks; r++) c->load[r] = 0;
    for (int s = 0; s < c->p->ranks * c->p->chunks; s++) {
        c->blocks[s] = s < from ? all / from + (s < all % from) : s == from ? behind : 0;
        c->load[tm_pipeline_rank(c->p, s)] += (double)c->blocks[s];
        if (s == 0 && from > 0) c->blocks[s] -= c->first_less;
    }
}

/* Pieces that make all ranks equal, as far as there is enough of the output layer; none is nothing. Returns what the
 * rank with the most has. */
static double pour(cut *c)
{
    const double least = c->head->blocks * CLASSES / (double)c->head->vocabulary;
    double       low = 0, high = (double)(c->layers + c->first_less) + c->head->blocks, most = 0;
    for (int i = 0; i < 100; i++) {
        const double level = (low + high) / 2;
        double       sum = 0;
        for (int r = 0; r < c->p->ranks; r++) sum += c->piece[r] = fmax(least, level - c->load[r]);
        if (sum < c->head->blocks)
            low = level;
        else
            high = level;
    }
    for (int r = 0; r < c->p->ranks; r++) most = fmax(most, c->load[r] + c->piece[r]);
    return most;
}

static double largest_stage(const cut *c)
{
    double most = 0;
    for (int s = 0; s < c->p->ranks * c->p->chunks; s++) {
        double piece = s >= pieces_from(c->p) ? c->piece[tm_pipeline_rank(c->p, s)] : 0;
        most = fmax(most, (double)c->blocks[s] + piece);
    }
    return most;
}

/* How many blocks lie in front of the first piece: what makes the largest rank the smallest; then, the largest stage.
 */
static int64_t choose(cut *c)
{
    const double near = 1e-9;
    double       best = HUGE_VAL, best_stage = HUGE_VAL;
    int64_t      chosen = -1;
    if (pieces_from(c->p) == 0) return c->layers;
    for (int64_t behind = 0; behind <= c->layers; behind++) {
        put_blocks(c, behind);
        bool empty = c->blocks[0] < 0;
        for (int s = 1; s < pieces_from(c->p); s++) empty = empty || c->blocks[s] < 1;
        if (empty) continue;
        const double most = pour(c), stage = largest_stage(c);
        if (most > best + near || (most > best - near && stage > best_stage - near)) continue;
        best = most, best_stage = stage, chosen = behind;
    }
    return chosen;
}

/* From the sizes of pieces to rows. */
static void put_classes(const cut *c, tm_stage *out)
{
    const int64_t vocabulary = c->head->vocabulary;
    const int     from = pieces_from(c->p), ranks = c->p->ranks;
    double        sum = 0;
    int64_t       at = 0;
    for (int k = 0; k < ranks; k++) {
        tm_stage *stage = &out[from + k];
        sum += c->piece[tm_pipeline_rank(c->p, from + k)];
        int64_t end = llround(sum / c->head->blocks * (double)vocabulary / CLASSES) * CLASSES;
        if (k == ranks - 1) end = vocabulary;
        TM_ASSERT(at < end && (end < vocabulary || k == ranks - 1)); /* no piece is smaller than CLASSES */
        stage->piece = k;
        stage->pieces = ranks;
        stage->class_first = at;
        stage->class_end = at = end;
    }
}

tm_status tm_pipeline_cut_head(const tm_pipeline *p, int64_t layers, int64_t first_less, const tm_pipeline_head *head,
                               tm_stage *out, tm_error *err)
{
    const int stages = p->ranks * p->chunks;
    cut       c = { .p = p, .head = head, .layers = layers, .first_less = first_less };
    if (head->vocabulary <= (int64_t)CLASSES * (p->ranks - 1) || !(head->blocks > 0))
        return tm_fail(err, TM_INVALID,
                       "a vocabulary of %lld cannot be divided among %d ranks of a pipeline, at multiples of %d "
                       "(parallelism.pipeline_parallel_divide_head, model.vocab_size)",
                       (long long)head->vocabulary, p->ranks, CLASSES);
    c.blocks = tm_alloc((size_t)stages * sizeof *c.blocks);
    c.load = tm_alloc((size_t)p->ranks * sizeof *c.load);
    c.piece = tm_alloc((size_t)p->ranks * sizeof *c.piece);
    const int64_t behind = choose(&c);
    if (behind >= 0) {
        put_blocks(&c, behind);
        pour(&c);
        for (int64_t s = 0, at = 0; s < stages; at += c.blocks[s++])
            out[s] = (tm_stage){ .first = (int)at,
                                 .end = (int)(at + c.blocks[s]),
                                 .begins = s == 0,
                                 .ends = s == stages - 1,
                                 .number = (int)s };
        put_classes(&c, out);
    }
    free(c.blocks);
    free(c.load);
    free(c.piece);
    if (behind >= 0) return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "%lld blocks cannot be cut into %d stages of a pipeline in front of the pieces of the output layer "
                   "(parallelism.pipeline_parallel_divide_head), the embedding counted as %lld blocks "
                   "(parallelism.pipeline_parallel_first_stage_less_layers); take fewer stages "
                   "(parallelism.pipeline_parallel_degree) or count it less",
                   (long long)layers, pieces_from(p), (long long)first_less);
}
