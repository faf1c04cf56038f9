/* SPDX-License-Identifier: Apache-2.0 */
/* base/event.h - what a run tells the world.
 *
 * Whoever measures emits typed events; a sink in record/ turns them into one output (console lines, a file); cli
 * connects them. The trainer knows no file format, and no number is ever scraped from a log. Pointers inside an event
 * are valid during the call only.
 */
#ifndef TM_BASE_EVENT_H
#define TM_BASE_EVENT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    double      value;
} tm_named_f64;

typedef struct {
    const char *name;
    int64_t     value;
} tm_named_i64;

/* What a line of the step ledger computes and moves in a step, as the plan counts it: FLOPs of matrix products, and the
 * least bytes that its operands are. */
typedef struct {
    const char *name;
    double      flops, bytes;
} tm_line_work;

/* Live bytes of a memory class along a step. */
typedef struct {
    const char    *name;
    const int64_t *bytes;
} tm_class_bytes;

typedef enum { TM_VERDICT_VALID, TM_VERDICT_NOISY, TM_VERDICT_INVALID, TM_VERDICT_NOT_JUDGED } tm_verdict;
static inline const char *tm_verdict_name(tm_verdict verdict)
{
    static const char *const names[] = { "valid", "noisy", "invalid", "not-judged" };
    return names[verdict];
}

/* What decides how a run converges. */
typedef struct {
    const char *optimizer;    /* "adamw" */
    const char *schedule;     /* of the learning rate, in words: "cosine with linear warmup" */
    int64_t     global_batch; /* sequences of one optimizer step */
    int64_t     accumulation; /* micro-batches of one */
    int64_t     sequence_length;
    int64_t     eval_samples; /* sequences of one evaluation; 0: it is never evaluated */
    int64_t     warmup_steps, decay_steps;
    double      learning_rate, end_learning_rate; /* peak, and where the decay ends */
    double      beta1, beta2, eps, weight_decay;
    double      max_norm;  /* of the gradients; INFINITY: they are not clipped */
    int64_t     lora_rank; /* 0: no adapters, then the next means nothing */
    double      lora_alpha;
    int64_t     micro_batch;   /* samples of one */
    int64_t     eval_interval; /* samples from one evaluation to the next; 0: at the end only */
    /* The lowest formats that products of linears, attention and gradients on their way are computed in, under MLPerf's
     * names: "fp32", "bfloat16", "mxfp4". NULL: not known. */
    const char *precision_linear, *precision_attention, *precision_communication;
    int64_t     tensor_ranks, pipeline_ranks, context_ranks, expert_ranks; /* of each axis of the mesh; 0: 1 */
} tm_recipe;

typedef struct {
    const char           *model;     /* "llama3.1_8B" */
    const char           *precision; /* "float32", "bfloat16" */
    const char           *device;    /* "cpu" */
    const char           *kernels;   /* "avx512", NULL: one set only */
    const char           *sums;      /* order of summation in products, tm_device_info; NULL as above */
    int                   judged_modules, compiled_modules; /* of a GPU's kernels, tm_device_info */
    const char           *data_source;
    const char           *encoders; /* of images: "inside" the times of steps, or "before" them; NULL: there are none */
    int64_t               parameters;
    int64_t               steps, first_step; /* planned total; first step of this process (resumed: > 1) */
    int64_t               first_sample;      /* sequences that earlier processes of the run have trained on */
    int64_t               batch_tokens;      /* of one optimizer step on each device: sequences x their tokens */
    int                   devices, gpus;     /* of this run; how many of them are GPUs */
    int                   threads;
    uint64_t              seed;
    double                loss_floor;      /* nats; NAN where the data has no known entropy */
    double                loss_target;     /* nats: a validation loss at most this ends the run; 0: none does */
    double                peak_flops;      /* FLOP/s for MFU; 0 = unknown, then MFU is N/A */
    double                peak_mhz;        /* of a GPU: the clock at which it has that peak; 0 = unknown */
    const tm_named_f64   *flops_per_token; /* by convention name; [0] is the one of the step line */
    size_t                n_flops_per_token;
    const tm_named_i64   *memory; /* planned bytes by class */
    size_t                n_memory;
    int64_t               planned_bytes; /* the arena */
    const tm_line_work   *work;          /* of a step, by line of the ledger */
    size_t                n_work;
    const tm_class_bytes *memory_along; /* n_points from its first instruction to its last */
    size_t                n_memory_along, n_points;
    int64_t               memory_limit_bytes;
    double                predicted;    /* tokens/s of a device; 0: not predicted */
    const char           *predicted_by; /* from which hardware file */
    tm_recipe             recipe;
} tm_run_started;

typedef struct {
    int64_t step;      /* from 1 */
    double  loss;      /* nats per target token of the global batch, before the update */
    double  grad_norm; /* before clipping */
    double  learning_rate;
    int64_t tokens;        /* of this step, of each device on average: sequences x their tokens */
    int64_t target_tokens; /* of these, those that the loss counts, the mean over devices; of images and pairs all */
    double  seconds;       /* wall time of the whole step, everything included */
    const tm_named_f64 *phases; /* the step ledger: seconds by phase; the sum and "unaccounted" make `seconds` */
    size_t              n_phases;
    const tm_named_f64 *measures; /* what the model tells beside its loss: the load of experts, rewards */
    size_t              n_measures;
    int64_t             used_bytes; /* arena bytes in use */
    int64_t             resident_bytes;
    double              gpu_clock_mhz, gpu_temperature_c; /* by the last sample; 0: not known */
} tm_step_done;

typedef struct {
    int64_t step;    /* done before it */
    int64_t samples; /* sequences trained on so far, in every process of the run */
} tm_evaluation_started;

typedef struct {
    int64_t             step;
    int64_t             samples;       /* sequences trained on so far, in every process of the run */
    double              loss;          /* nats per token */
    double              bits_per_byte; /* NAN unless the data is text */
    int64_t             tokens;        /* sequences x their tokens */
    int64_t             target_tokens; /* of these, those that the loss is the mean of; of images and pairs all */
    double              seconds;
    bool                last;     /* the run ends with it */
    const tm_named_f64 *measures; /* rewards and the like, of pairs */
    size_t              n_measures;
} tm_evaluation;

typedef struct {
    int64_t     step;
    const char *path;
    int64_t     bytes;
    double      seconds;
} tm_checkpoint_saved;

/* A tensor beside the same one computed in another number format, the reference. Shares are of its elements. */
typedef struct {
    const char   *name, *kind; /* "layers.0.attention.linear"; "forward", "backward", "factor", "gradient" */
    const char   *format;      /* that it is held in */
    int64_t       elements;
    double        error;               /* |a - b| / |b|, L2 norms; INFINITY: the reference is 0 and it is not */
    double        cosine;              /* a b / (|a| |b|); 1 where both are 0 */
    double        underflow, overflow; /* is 0 and the reference is not; is not finite and the reference is */
    double        amax, reference_amax;
    double        zeros, reference_zeros;
    const double *exponents, *reference_exponents; /* counts of sizes [2^e, 2^(e + 1)), from tm_look.first_exponent on;
                                                      the ends take what is beyond them */
    bool diverges;                                 /* overflows, or its error is above the bound */
} tm_look_tensor;

/* What a microscope saw in the first micro-batch of a step, before it. */
typedef struct {
    int64_t               step;
    const char           *format, *reference;   /* "bfloat16", "float32" */
    double                loss, reference_loss; /* as this micro-batch counts in the loss of the step */
    double                bound;                /* of the relative error */
    double                seconds;
    const tm_look_tensor *tensors; /* in the order of the program */
    size_t                n_tensors;
    int                   first_exponent, n_exponents;
    const tm_look_tensor *first,
        *worst; /* the first that diverges, the one of the largest error; NULL: there is none */
} tm_look;

/* A factor of a product in low precision, as the last step had it. */
typedef struct {
    const char *linear, *factor;    /* "layers.0.attention.wq", "x" */
    double      amax, scale;        /* largest magnitude; the least of its scales */
    double      saturated, flushed; /* shares: beyond the largest number; not 0 before and 0 after */
} tm_quantized_factor;

typedef struct {
    int64_t                    step;
    const tm_quantized_factor *factors;
    size_t                     n_factors;
} tm_quantized_step;

/* Was the machine undisturbed during the steps that count (system/validity.h)? */
typedef struct {
    tm_verdict          verdict;
    const char         *reason;     /* NULL: nobody looked */
    double              seconds;    /* that were looked at */
    int                 samples;    /* taken in them */
    int                 processors; /* that the process may use; 0 = unknown */
    const tm_named_f64 *facts;      /* NAN = unknown */
    size_t              n_facts;
} tm_machine_watch;

/* Room for why a run is what it is, said in words, with its end. */
enum { TM_REASON_BYTES = 1024 };

/* What was looked at in the first step, or after the last one: are the gradients those of the loss
 * (train/certify/certificate.h)? */
typedef struct {
    bool   done;                     /* else `reason` says why not; empty: nobody looked */
    int    groups;                   /* of tensors, all of them at once */
    double expected, measured, band; /* the change of the loss along a direction: by the gradient; by two losses; what
                                        the two may differ by */
    bool        gradients;           /* they agree */
    bool        looked_ahead;        /* of a language: were tokens replaced that must not be seen? */
    bool        rows;                /* other rows, too */
    bool        causal;              /* and the losses of targets before them kept their bits */
    bool        context;             /* tokens were replaced that must be seen, and some loss changed */
    bool        evaluated;           /* was the loss of the step computed again, of the same weights and batch? */
    double      step_loss, evaluated_loss; /* what the step says of it, and what came out, with all that a model adds */
    double      of_targets;                /* without that: what a step reports */
    double      loss_band;                 /* what the two may differ by */
    bool        loss_agrees;
    double      seconds;
    char        reason[TM_REASON_BYTES]; /* what does not hold */
    const char *losses;                  /* format of the two losses; NULL: nobody looked */
    char        inexact[160];            /* why not float32, where the products are coarser; empty: they are */
} tm_certificate;

/* Was the run fed what its source defines (data/seen.h)? */
typedef struct {
    bool    done;              /* false: nobody looked, or `reason` says why not */
    int64_t batches, held_out; /* that were read again: of training, of evaluation */
    int64_t compared;          /* tokens that were read from the files by themselves */
    bool    fed;               /* batches had the samples that the run's place in its data says */
    bool    once;              /* no sample came twice in an epoch */
    bool    apart;  /* no sample of an evaluation is one of training; false without a reason: as configured */
    bool    stored; /* tokens are those of the files, and targets the tokens that follow */
    char    reason[TM_REASON_BYTES];
    double  seconds; /* that it took */
} tm_data_certificate;

/* What was looked at of some updates (train/certify/update.h). */
enum { TM_UPDATES_LOOKED_AT = 2 };
typedef struct {
    int     n_steps; /* 0: nobody looked */
    int64_t steps[TM_UPDATES_LOOKED_AT];
    int64_t elements; /* of weights that were worked out again, on this rank, in all these steps */
    double  largest;  /* how far the farthest of them, or of their moments, is off, as part of what it may be */
    bool    agrees;
    double  seconds;
    char    reason[TM_REASON_BYTES]; /* what does not hold */
    char    partly[160];             /* what of an optimizer was not looked at; empty: all was */
} tm_update_certificate;

/* The losses of a run of the main job beside those that are stored (train/run/curve.h). */
typedef struct {
    int64_t steps; /* compared; 0: the run is another job */
    bool    equal; /* all of them to the bit */
} tm_curve;

/* The first value of a step that is not finite (train/trainer/locate.h). */
enum { TM_NONFINITE_NAME = 128 };
typedef struct {
    int64_t step;
    int     rank, ranks;
    bool    located;                    /* false: nobody could look, and only `step` is known */
    bool    repeated;                   /* the step had the same loss and norm when it was looked at */
    char    cause[16];                  /* "overflow", "weight": TM_CAUSE_OVERFLOW, ... */
    char    op[32], program[48];        /* "linear" of "first" */
    int64_t instruction, order;         /* its number in the program; in the step, of this rank */
    char    tensor[TM_NONFINITE_NAME];  /* as `trainmark explain` names it */
    char    format[24];                 /* of it */
    int     layer;                      /* -1: outside the blocks */
    char    phase[12];                  /* "forward", "backward", "update" */
    int64_t micro_batch;                /* -1: it belongs to none */
    int64_t row, column;                /* of the first such element; columns: of the last axis */
    int64_t count, elements;            /* such elements, and all of the tensor that are here */
    double  value;                      /* of the first */
    double  largest;                    /* finite magnitude among the operands; NAN: they have none */
    char    operand[TM_NONFINITE_NAME]; /* that holds it */
} tm_nonfinite;

/* A step whose gradients were computed a second time (train/run/replay.c), of all ranks. */
typedef struct {
    int64_t     step;
    int64_t     bytes;   /* that were compared */
    double      seconds; /* that it took, in no step's time */
    const char *reason;  /* what differs; NULL: nothing */
} tm_replayed;

/* Where such a step differed: the first tensor, in the order in which the step writes them, on the rank where it comes
 * first. */
typedef struct {
    int64_t     step;
    int         rank, ranks; /* that one; how many ranks differ */
    char        host[64], device[64], tensor[96], op[32];
    int         layer;          /* of the tensor's op; -1: outside the blocks */
    int64_t     first, end;     /* elements [first, end) of it: the first part that differs */
    int         bits;           /* that differ in this part, at least */
    int64_t     tensors, parts; /* that differ on this rank */
    bool        sure;           /* the fault is on this rank: what it received until then was equal both times */
    const char *wrong;          /* by a third computation: "first", "second", "undecided" */
} tm_replay_mismatch;

/* Computing twice in a whole run, of all ranks. */
enum { TM_REPLAY_MISMATCHES = 16 };
#define TM_REPLAY_CONFIDENCE 0.95
typedef struct {
    int64_t            every;                    /* debug.replay; 0: nothing was repeated */
    int64_t            steps, bytes;             /* that were compared */
    int64_t            products, wrong_products; /* whose sums were checked; that are not those of their factors */
    double             seconds;                  /* that it took */
    double             cost_percent;             /* of the time of all steps */
    double             device_seconds;           /* of computation that was compared, both times (stats/silent.h) */
    double             excluded_per_hour; /* errors of a device above this rate are excluded at 95 %; NAN: some came */
    tm_replay_mismatch mismatches[TM_REPLAY_MISMATCHES]; /* the first ones */
    int64_t            n_mismatches;
} tm_replay_told;

/* How a rank of a run fared. Seconds are medians over the steps that count. */
typedef struct {
    int         rank, data_rank;
    const char *host;
    double      step_seconds;  /* of a whole step */
    double      busy_seconds;  /* of that, what it did not communicate, nor wait for others */
    double      wait_seconds;  /* of that, what it communicated or waited */
    double      behind;        /* busy_seconds over the median of the other ranks', less 1; NAN: there are none */
    int64_t     target_tokens; /* that it read for training, in this process */
    int64_t     used_bytes;    /* arena bytes in use */
    /* Of a GPU (gpu/neighbours.h): its address on PCI, its NUMA node, the network card next to it; "", -1: unknown, or
     * a CPU.
     */
    char gpu[32], nic[32];
    int  numa_node;
} tm_rank_told;

/* A rank that the others wait for (stats/stragglers.h). Shares are of what the median of its peers takes. */
typedef struct {
    int         rank;
    const char *host;
    bool        disturbed;         /* most of it is time in which its processor ran other programs */
    bool        again;             /* it was told before, with other numbers */
    int64_t     since, step;       /* the evidence is of the steps behind `since`; `step`: when it was named */
    double      behind, low, high; /* how much longer its own work takes, and the 95 % interval of that */
    const char *phase;             /* where most of it is: "forward" */
    double      waited_seconds;    /* for other ranks, by each of the others on average, in these steps */
} tm_straggler;

typedef struct {
    tm_verdict  verdict;
    const char *reason;      /* never NULL */
    const char *stopped;     /* why no more steps were done: "all steps done"; never NULL */
    bool        interrupted; /* by a signal or --timeout, before the last step: no success */
    int64_t     steps;       /* done in this process */
    int64_t     samples;     /* sequences trained on, in every process of the run */
    /* Step times and tokens per second, summed up once for every output (stats/sampling.h); never NULL. */
    const struct tm_sample_summary *speed;
    const struct tm_evidence       *evidence;     /* what the verdict is by (train/run/verdict.h); NULL: not kept */
    int64_t                         image_tokens; /* of a sample that is an image; 0: samples are of a language */
    double                          loss_first, loss_last, loss_validation, loss_floor; /* NAN where there is none */
    double                          bits_per_byte;
    const tm_named_f64             *measures; /* of pairs: rewards and the like, of the last evaluation, else step */
    size_t                          n_measures;
    int64_t                         planned_bytes, used_bytes, outside_arena_bytes;
    int64_t                         disk_bytes;         /* planned in the file of training.offload */
    int64_t                         pinned_bytes;       /* of the host, for a GPU; 0: the device is no GPU */
    int64_t                         device_other_bytes; /* of a GPU, in use beside the arena; < 0: not known */
    uint64_t                        weights_hash;       /* after the last step; equal bits, equal number */
    const double                   *step_seconds;       /* every raw step time, `steps` of them */
    double                          first_step_seconds; /* from exec to the end of the first step */
    double                          seconds;
    const char                     *sample; /* generated text, or NULL */
    const tm_rank_told             *ranks;  /* of a run of several, n_ranks of them in their order */
    size_t                          n_ranks;
    const tm_straggler             *stragglers; /* that were named, n_stragglers of them */
    size_t                          n_stragglers;
    tm_machine_watch                machine;
    tm_certificate                  certificate, certificate_after; /* in the first step; after the last one */
    tm_data_certificate             data;
    tm_update_certificate           update;
    tm_curve                        curve;
    const tm_nonfinite             *nonfinite; /* where the first value that is not finite was; NULL: all were finite */

    tm_replay_told replay;
} tm_run_ended;

/* A picture that a model of images draws after a step, for a caption of the held-out data. */
typedef struct {
    int64_t      step, number; /* number: 0, 1, ... of those of the step */
    int64_t      height, width;
    const float *pixels;  /* (height, width, 3), red, green, blue in [-1, 1], beyond it as the decoder has them */
    const char  *caption; /* NULL: not known */
    double       seconds; /* that it took */
} tm_picture_drawn;

typedef enum {
    TM_EVENT_RUN_STARTED,
    TM_EVENT_STEP_DONE,
    TM_EVENT_BETWEEN_STEPS, /* for sinks that want it: what they do now is in no step's time */
    TM_EVENT_EVALUATION_STARTED,
    TM_EVENT_EVALUATION,
    TM_EVENT_PICTURE,
    TM_EVENT_CHECKPOINT,
    TM_EVENT_LOOK,
    TM_EVENT_QUANTIZED,
    TM_EVENT_REPLAYED,
    TM_EVENT_STRAGGLER,
    TM_EVENT_RUN_ENDED
} tm_event_kind;

typedef struct {
    tm_event_kind kind;
    union {
        tm_run_started        run_started;
        tm_step_done          step_done;
        tm_evaluation_started evaluation_started;
        tm_evaluation         evaluation;
        tm_picture_drawn      picture;
        tm_checkpoint_saved   checkpoint;
        tm_look               look;
        tm_quantized_step     quantized;
        tm_replayed           replayed;
        tm_straggler          straggler;
        tm_run_ended          run_ended;
    };
} tm_event;

/* A consumer; first member of what it really is. A sink never stops a run by itself: its first failure stays in
 * `error` and is told when it is closed. The run asks for the failures of vital sinks (tm_event_failure), and ends with
 * them. */
typedef struct tm_sink {
    void (*handle)(struct tm_sink *self, const tm_event *event);
    void (*close)(struct tm_sink *self); /* flushes, closes files, frees what hangs on it but not the sink; NULL:
                                            nothing to do. A failure goes to `error`, as those of `handle` do */
    tm_error error;
    bool     vital;   /* without it the numbers of the run mean nothing */
    bool     between; /* wants TM_EVENT_BETWEEN_STEPS, which goes to no other */
} tm_sink;

/* A plain list: emitting calls every sink in order, in the emitter's thread. */
typedef struct {
    tm_sink **sinks;
    size_t    count, capacity;
} tm_event_bus;

void tm_event_bus_add(tm_event_bus *bus, tm_sink *sink);
void tm_event_bus_fini(tm_event_bus *bus); /* the list, not the sinks */

/* The first failure of a vital sink, or TM_OK. */
TM_MUST_USE tm_status tm_event_failure(const tm_event_bus *bus, tm_error *err);

static inline void tm_event_emit(const tm_event_bus *bus, const tm_event *event)
{
    for (size_t i = 0; i < bus->count; i++) bus->sinks[i]->handle(bus->sinks[i], event);
}

#endif
