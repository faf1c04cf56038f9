/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/pipeline.h - pipelines as data: which run of blocks is on which rank, and in which order each rank
 * works on the micro-batches of its stages. Pure functions.
 *
 * A model is cut into *stages*, one after the other. Each of p ranks has v of them, its *chunks*, in the order of the
 * model. Stage s lies on rank s mod p (a loop); in a V of 2 p stages, stage 2 p - 1 - s lies where stage s does.
 *
 * A schedule is a list of actions of each rank: forward or backward of a micro-batch of a chunk. Zero-bubble schedules
 * part the backward: first the gradients of the inputs, which the stage before waits for, later those of the weights
 * (Qi et al. 2023). DualPipeV: DeepSeek-AI 2024. GPipe: Huang et al. 2019; 1F1B: Harlap et al. 2018; interleaved:
 * Narayanan et al. 2021.
 *
 * With f, i, w the times of a chunk's forward, input and weight gradients, all micro-batches and chunks alike, no time
 * for messages, a rank is idle for
 *     GPipe, 1F1B, Interleaved1F1B          (p - 1) (f + i + w)
 *     InterleavedZeroBubble, ZBVZeroBubble  (p - 1) (f + i - w)
 *     DualPipeV                             (p - 1) (f + i - w) where f = i >= w
 * from the beginning of the first to the end of the last action of all ranks (docs/parallelism.md).
 */
#ifndef TM_TRAIN_PIPELINE_H
#define TM_TRAIN_PIPELINE_H

#include "base/status.h"
#include "base/text.h"
#include "model/parallel.h"

/* X(id, name, another name or "", stages of a rank: at least, at most; 0: any number) */
#define TM_PIPELINE_ROWS(X)                                                                                            \
    X(GPIPE, "GPipe", "gpipe", 1, 1)                                                                                   \
    X(1F1B, "1F1B", "1f1b", 1, 1)                                                                                      \
    X(INTERLEAVED, "Interleaved1F1B", "1f1b-interleaved", 2, TM_MAX_CHUNKS)                                            \
    X(INTERLEAVED_ZERO, "InterleavedZeroBubble", "zero-bubble", 1, TM_MAX_CHUNKS)                                      \
    X(ZBV, "ZBVZeroBubble", "zbv-formatted", 2, 2)                                                                     \
    X(DUAL_V, "DualPipeV", "dual-pipe-v", 2, 2)                                                                        \
    X(LISTED, "a file", "", 1, TM_MAX_CHUNKS)
typedef enum {
#define X(id, name, other, least, most) TM_PIPELINE_##id,
    TM_PIPELINE_ROWS(X)
#undef X
        TM_PIPELINE_COUNT
} tm_pipeline_order;

typedef enum { TM_DO_FORWARD, TM_DO_BACKWARD, TM_DO_INPUT, TM_DO_WEIGHT } tm_pipeline_kind;
typedef struct {
    tm_pipeline_kind kind;
    int              chunk;
    int64_t          micro_batch;
} tm_pipeline_action;

enum { TM_PIPELINE_RANKS = 256 }; /* of a pipeline, at most */
/* An order that was read (train/pipeline/file.h). */
typedef struct {
    const char         *file;
    int                 ranks, chunks;
    int64_t             micro_batches;
    bool                v;     /* stages lie as in a V */
    bool                parts; /* some backwards are parted */
    tm_pipeline_action *actions[TM_PIPELINE_RANKS];
    size_t              n[TM_PIPELINE_RANKS];
    uint64_t            hash; /* of all of it */
} tm_pipeline_list;

typedef struct {
    tm_pipeline_order       order;
    int                     ranks, chunks; /* p, v */
    int64_t                 micro_batches; /* m */
    const tm_pipeline_list *list;          /* of TM_PIPELINE_LISTED */
} tm_pipeline;

const char *tm_pipeline_name(tm_pipeline_order order);
const char *tm_pipeline_title(const tm_pipeline *pipeline); /* the same, or the file */
/* By any of its names, whatever the case of the letters. TM_UNSUPPORTED with those that are built. `place`: of the key.
 */
TM_MUST_USE tm_status tm_pipeline_find(const char *name, const char *place, tm_pipeline_order *out, tm_error *err);
/* Whether the order can be that of so many ranks, chunks and micro-batches; TM_INVALID with what would do. */
TM_MUST_USE tm_status tm_pipeline_check(const tm_pipeline *pipeline, tm_error *err);
/* Are backwards parted into input and weight gradients? Then a whole one is both, one right after the other. */
bool tm_pipeline_parts(const tm_pipeline *pipeline);
/* Do stages lie as in a V? */
bool tm_pipeline_is_v(const tm_pipeline *pipeline);
/* The micro-batch of a chunk whose gradients of weights come first: they overwrite, all others are added. */
int64_t tm_pipeline_first(const tm_pipeline_action *actions, size_t n, int chunk);

/* The stage that is chunk `chunk` of a rank; and where a stage lies. */
int tm_pipeline_stage(const tm_pipeline *pipeline, int rank, int chunk);
int tm_pipeline_rank(const tm_pipeline *pipeline, int stage);

/* The actions of a rank in their order; free them. *n: how many. */
tm_pipeline_action *tm_pipeline_actions(const tm_pipeline *pipeline, int rank, size_t *n);

/* Messages of one channel (activations, gradients) from one rank to another are received in the order in which they are
 * sent. So many of them have to wait for their receiver without holding the sender up, or some ranks wait for ever; >=
 * 1. Where orders are as they usually are 1; micro-batches that do not divide by the ranks may need more. */
int64_t tm_pipeline_waiting(const tm_pipeline *pipeline);

/* Cuts `layers` blocks into `stages`: what lies before them counts as first_less blocks, what lies behind as last_less;
 * stages have equal numbers of those, the first ones one more. TM_INVALID: too many stages. out[stages]. */
TM_MUST_USE tm_status tm_pipeline_cut(int64_t layers, int stages, int64_t first_less, int64_t last_less, tm_stage *out,
                                      tm_error *err);

/* The same where it is said with which block each stage begins: ascending, 0 first. */
void tm_pipeline_cut_at(int64_t layers, int stages, const int *first, tm_stage *out);

/* An output layer that all ranks divide: each has a piece of its rows, in its last stage. `blocks`: as how many all of
 * it counts. */
typedef struct {
    int64_t vocabulary;
    double  blocks;
} tm_pipeline_head;
/* Cuts so that the rank with the most has as little as can be: blocks are cut evenly among the stages in front of the
 * pieces, some of them may lie in front of the first piece, and pieces are as large as what their ranks have of blocks
 * leaves them. TM_INVALID: too many stages, or too small a vocabulary. out[ranks x chunks]. */
TM_MUST_USE tm_status tm_pipeline_cut_head(const tm_pipeline *pipeline, int64_t layers, int64_t first_less,
                                           const tm_pipeline_head *head, tm_stage *out, tm_error *err);

/* --- simulation --------------------------------------------------------------------------------------------------- */

typedef struct {
    double forward, input, weight; /* of a chunk; a whole backward takes both */
} tm_pipeline_costs;
typedef struct {
    double              end;                      /* of the last action of all ranks; NAN: some wait for ever */
    double              idle;                     /* of a rank: end - its own work */
    double             *begin[TM_PIPELINE_RANKS]; /* by rank and action, NAN: never; NULL behind the last rank */
    tm_pipeline_action *actions[TM_PIPELINE_RANKS];
    size_t              n[TM_PIPELINE_RANKS];
    int64_t             live[TM_PIPELINE_RANKS]; /* the most micro-batches of chunks that a rank keeps at a time */
} tm_pipeline_times;

/* As if nothing took time but the actions, each begun as soon as its rank is free and what it needs is there. Ended
 * with tm_pipeline_times_fini. */
void tm_pipeline_simulate(const tm_pipeline *pipeline, const tm_pipeline_costs *costs, tm_pipeline_times *out);

/* How long each action of each rank takes, and what passes from stage to stage. */
typedef struct {
    /* Of action `k` of a rank (tm_pipeline_actions); input: of a whole backward only what gives the input's gradient,
     * where the order parts backwards. */
    double (*length)(const void *context, int rank, size_t k, bool input);
    double (*message)(const void *context, int from, int to); /* from stage to stage on another rank; NULL: no time */
    const void *context;
} tm_pipeline_lengths;

/* The same with these. idle: of the rank that works longest. */
void tm_pipeline_simulate_each(const tm_pipeline *pipeline, const tm_pipeline_lengths *lengths, tm_pipeline_times *out);
void tm_pipeline_times_fini(tm_pipeline_times *times);

/* A grid: a row for each rank, a column for each unit of time; f = i = w = 1. F3: forward of micro-batch 3 of the first
 * chunk (of others their number behind a dot), B backward, I input gradients, W weight gradients. Wide ones are cut off
 * behind `columns` characters. */
void tm_pipeline_print(const tm_pipeline *pipeline, int columns, tm_text *out);

#endif
