/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/step.h - one training step as programs: the graph of a model, its segments and their plan.
 *
 *   first      forward and backward of the first micro-batch: gradients are overwritten
 *   further    of every further micro-batch: gradients and loss are added to (absent without accumulation)
 *   last       of the last micro-batch, where ranks have copies: gradients are reduced while it runs (only then)
 *   update     gradient norm, clipping, the optimizer
 *   average    moving averages become copies of the weights, once, in front of the first step (only with ema_decay)
 *   evaluate   forward and loss only
 *   forward    the same with what training drops (only where it drops something; else "evaluate" is this one, too)
 *   validate   the same for held-out samples that come in other batches or lengths (only then)
 *   microscope forward and backward of a micro-batch in two formats, compared (only when asked for)
 *   part.first, part.further
 *              put the sums of a part of the micro-batches away (only of one rank that sums as several do)
 *   sample     forward of one sequence up to the head, or of one image, for generation (only when asked for)
 *   exact      "forward" in another format, for certificates (only when asked for, and if it takes no memory)
 *   copies     makes the copies of weights in the compute format that programs read (only where the device wants them,
 *              and they fit): after weights were written from outside
 *
 * Stages of a pipeline have other programs in the place of first and further (train/step/stages.h), and one for each
 * stage in the place of evaluate and validate.
 *
 * With options.early_updates weights are updated in "first"; "update" then has what is left: the norm, and states.
 *
 * A step is its schedule: first, (accumulation - 1) x further, update. Nothing here touches memory: `explain` and
 * `--dry-run` use the same steps as a run.
 */
#ifndef TM_TRAIN_STEP_H
#define TM_TRAIN_STEP_H

#include "graph/passes/codes.h"
#include "graph/passes/microscope.h"
#include "graph/passes/passes.h"
#include "graph/passes/quantize.h"
#include "graph/plan.h"
#include "model/model.h"
#include "op/attrs.h"
#include "train/adapter/adapters.h"
#include "train/optimizer/groups.h"
#include "train/parallel/layout.h"
#include "train/optimizer/optimizer.h"

typedef struct {
    tm_model_shape      shape;
    const tm_precision *precision;
    bool                tf32;                  /* products of float32 by a GPU's library are rounded */
    int64_t             micro_batch, seq;      /* B, T: rows of a program are N = B T, or this rank's part of them */
    int64_t             accumulation;          /* micro-batches of a step, >= 1 */
    tm_field            fields[TM_MAX_FIELDS]; /* that the source of data gives */
    int                 n_fields;              /* 0: tokens and targets (T), int32 */
    /* Held-out samples in other batches or of another length than training's: both, and the fields of such a sample in
     * the same order. validation_batch 0: the same. */
    int64_t             validation_batch, validation_seq;
    tm_field            validation_fields[TM_MAX_FIELDS];
    tm_recompute        recompute;
    tm_offload          offload;
    tm_quantize         quantize;   /* products in low precision */
    int64_t             loss_chunk; /* rows; 0: chosen by tm_step_loss_chunk */
    const tm_optimizer *optimizer;
    tm_hyper            hyper;
    tm_group            groups[TM_MAX_GROUPS]; /* of tm_groups_read */
    int                 n_groups;              /* 0: one, of all parameters, with `hyper` */
    tm_adapters         adapters;              /* rank 0: all parameters are trained */
    tm_layout           layout;                /* among ranks; {0}: alone */
    tm_preference_attr  preference;            /* beta > 0: the loss is that of pairs, whose source gives `reference` */
    bool                sample;                /* with the program "sample" */
    bool early_updates; /* in the backward pass (train/step/early.h): one micro-batch, one rank, no clipping */
    const tm_precision *compared; /* with the program "microscope": the other format, whose `parameter` does not count;
                                   * NULL: without */
    const tm_precision *exact;    /* with the program "exact": the other format; NULL: without */
} tm_step_options;

/* Programs in the order in which they run: one piece of work is a program and the micro-batches that it works on. */
enum { TM_NO_MICRO_BATCH = -1, TM_BEHIND_MICRO_BATCH = -2 };
typedef struct {
    const tm_program *program;
    int64_t           micro_batch, count; /* the first one, and how many one after the other; TM_NO_MICRO_BATCH: once;
                                           * TM_BEHIND_MICRO_BATCH: once, with those before it */
    int slot; /* where it has what the programs of a micro-batch leave each other; 0 but in pipelines */
} tm_work;
typedef struct {
    tm_work *work; /* (n), in the memory of the step */
    size_t   n, capacity;
} tm_step_schedule;

enum { TM_INEXACT_BYTES = 160 };

/* Inputs of the program "sample" of images: the fields noisy, time, text and pooled. */
enum { TM_SAMPLE_NOISY, TM_SAMPLE_TIME, TM_SAMPLE_TEXT, TM_SAMPLE_POOLED, TM_SAMPLE_FIELDS };

typedef struct {
    tm_step_options options; /* as given, chunk and groups filled in: n_groups >= 1 */
    tm_graph       *graph;
    tm_model        model;
    tm_tensor_id    inputs[TM_MAX_FIELDS];            /* of the fields; TM_NONE: the model has no use for it */
    tm_tensor_id    validation_inputs[TM_MAX_FIELDS]; /* of the program "validate" */
    tm_tensor_id    tokens, targets;                  /* of a language two of them, (N) int32; else TM_NONE */
    tm_tensor_id    loss, evaluation_loss;            /* () float64, summed over target tokens, or pairs */
    tm_tensor_id row_losses; /* (N), of a language: of each row, right after the program "forward"; TM_NONE: not kept */
    tm_tensor_id losses, validation_losses; /* (N): of each target, right after "evaluate" and "validate"; TM_NONE:
                                             * nobody keeps them apart */
    tm_tensor_id scalars;                   /* (TM_SCALAR_COUNT) float64, of group 0; those of the step are here */
    tm_tensor_id
         group_scalars[TM_MAX_GROUPS]; /* rows of one matrix (groups, TM_SCALAR_COUNT); the first is `scalars` */
    int *group_of;                     /* (parameters, by tensor) its group */
    tm_tensor_id first_row;            /* () float64: see tm_adapt_pass; TM_NONE: nothing is dropped */
    tm_tensor_id clip;                 /* (2) float64: gradient norm, coefficient */
    tm_tensor_id sample_tokens;        /* (T) int32 */
    tm_tensor_id sample_row;           /* (1) int32, below T: whose logits the program "sample" computes */
    /* (1, rows of the head that are here): valid right after the program "sample"; of stages on the last one, or of a
     * divided head everywhere, else TM_NONE. */
    tm_tensor_id sample_logits;
    /* Of images: what the program "sample" reads (one image) and gives, (tokens, channels). */
    tm_tensor_id  sample_fields[TM_SAMPLE_FIELDS], sample_velocity;
    tm_quantized  quantized;                 /* what the pass for products in low precision made */
    tm_codes      codes;                     /* products of codes of the program "first" */
    tm_microscope microscope;                /* what "microscope" compares */
    tm_tensor_id  look_loss, reference_loss; /* () float64, of "microscope": of the step's format, and of the other;
                                              * TM_NONE: there is no such program */
    tm_units      units;                     /* of parameters, of several ranks; else none */
    tm_tensor_id  counts;                    /* float64: `loss` and what else is counted, where ranks or parts sum it */
    tm_tensor_id *part_gradients;            /* (units) of the parts before; NULL: there are no parts */
    tm_tensor_id  part_counts;
    int64_t       waiting;                 /* tm_pipeline_waiting of its pipeline; 0: not yet asked for */
    tm_tensor_id  handed, handed_gradient; /* from a stage of this rank to the next one, which it has, too, and back */
    tm_plan      *plan;
    tm_step_schedule  training, evaluation, validation, sampling; /* validation, sampling: empty unless asked for */
    tm_step_schedule  trial;                                      /* forward, with what training drops */
    tm_step_schedule  exact; /* the same in options.exact; empty: there is none, and, if it was asked for, inexact */
    char              inexact[TM_INEXACT_BYTES]; /* says why */
    int               first_trained; /* block in front of which nothing is trained, in no stage; -1: all may be */
    const tm_program *first, *further, *update, *evaluate, *forward; /* of stages: only update */
    const tm_program *sample, *look, *average,
        *copies; /* further, sample, look ("microscope"), average, copies: NULL when absent; sample: of stages, too */
} tm_step;

/* The default chunk: all rows when their logits stay below 32 MiB, else as many multiples of 512 rows as do (512 at
 * least, and `least`). Chunks that are multiples of 512 give the same bits on CPUs. */
int64_t tm_step_loss_chunk(int64_t rows, int64_t vocab, int64_t least);

/* Builds, differentiates, rewrites and plans a step; takes no arena. The caller destroys it. TM_UNSUPPORTED: the device
 * lacks a kernel; TM_INVALID: a parameter group or a field does not fit
 * the model. The arenas are the same bytes with and without the program "exact", which is left out, with the reason in
 * `inexact`, where it would take more, where tokens choose experts and where the device cannot. */
TM_MUST_USE tm_status tm_step_create(const tm_step_options *options, const tm_chooser *chooser, tm_step **out,
                                     tm_error *err);
void                  tm_step_destroy(tm_step *step);

/* Makes room for one more; in the order in which a step runs them. */
tm_work *tm_schedule_add(tm_step *step, tm_step_schedule *to);
/* FLOPs of all programs of a schedule, as the plan counts them. */
double tm_schedule_flops(const tm_step_schedule *schedule);

/* The formats in which products of quantized factors are multiplied: "bfloat16", "float32", "bfloat16 and float32".
 * NULL: no factor is quantized, or all products of them are those of codes (tm_step.codes). */
const char *tm_step_products(const tm_step *step);
/* "30 of 42 products multiply codes, 6 by own kernels; not by the library: WHY (6); no codes: WHY (8), WHY (4)", of a
 * micro-batch. Nothing where the device
 * has no products of codes, and says nothing of them. */
void tm_step_codes(const tm_step *step, tm_text *out);

#endif
