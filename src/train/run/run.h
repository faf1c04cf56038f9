/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/run.h - a whole training run: data in, steps, evaluations, checkpoints, a verdict; events out.
 *
 * Knows no output format: whoever wants lines or files listens to the events.
 */
#ifndef TM_TRAIN_RUN_H
#define TM_TRAIN_RUN_H

#include "base/arena.h"
#include "base/event.h"
#include "config/config.h"
#include "data/source.h"
#include "device/device.h"
#include "stats/guard.h"
#include "train/generate/euler.h"
#include "train/parallel/ranks.h"
#include "train/optimizer/schedule.h"
#include "train/step/step.h"

#include <signal.h>

struct tm_trainer;

/* In the run's directory: batches of steps that were not finite. */
#define TM_RUN_BATCH_FOLDER "batches"

/* What is drawn after an evaluation. decode: who makes pixels (16 rows, 16 columns, 3) of latents as the model has
 * them, (rows x columns, channels); NULL on ranks that only draw along. */
typedef struct tm_run_pictures {
    int64_t               n, steps;
    const tm_euler_times *times;
    void                 *context;
    tm_status (*decode)(void *context, const float *latents, float *pixels, tm_error *err);
} tm_run_pictures;

typedef struct {
    const char       *model_name;
    tm_step_options   step;
    int64_t           steps;
    double            learning_rate, max_norm;
    tm_schedule       schedule;
    uint64_t          seed;
    int               threads;           /* 0: all allowed */
    bool              reference_kernels; /* may compute what no fast kernel takes */
    tm_source_options source;
    int               prefetch; /* batches */
    bool              validate;
    int64_t           validation_freq;  /* 0: at the end only */
    int64_t           validation_first; /* no evaluation before this step, but at the end */
    int64_t  validation_steps;  /* batches; -1: all of a text (64 at most), 32,768 tokens of an endless source */
    bool     average_sequences; /* the validation loss is the mean of the sequences' means */
    double   target_loss;       /* a validation loss at most this ends the run; 0 or NAN: none does */
    double   target_gap;        /* nats above the floor that pass */
    bool     stop_at_target;
    bool     certify;           /* looks at the gradients before the first step (train/certify/certificate.h) */
    bool     certify_after;     /* and after the last one */
    double   target_half_width; /* stop when the rate is known to this part of itself; 0: do all steps */
    tm_peaks peaks;             /* of the device, for guards; 0 = unknown */
    /* The first weights, unless a checkpoint has later ones of all: called once the trainer is open. NULL: by the seed.
     */
    tm_status (*load_weights)(void *context, struct tm_trainer *trainer, tm_error *err);
    void *load_context;
    bool  reference_free; /* step.preference: every sequence is as likely to the reference as to the other model */
    bool  checkpoint;
    const char *checkpoint_folder; /* NULL: none, not even when interrupted */
    int64_t     checkpoint_interval, checkpoint_load_step;
    int         checkpoint_keep;
    bool        checkpoint_behind;   /* written while training goes on */
    bool        checkpoint_not_last; /* none after the last step, unless its interval or an interruption asks for one */
    bool concluded; /* the result of an earlier process is there: a run whose steps are all done has nothing to do */
    bool allow_changed_data; /* goes on from a checkpoint that was trained on other data */
    uint64_t    config_hash;
    uint64_t    config_before;    /* the hash of the run directory's config.yaml, as the run found it; 0: none */
    const char *config_changes;   /* by which keys this configuration differs from that one */
    double      predicted;        /* tokens/s of a device; 0: not predicted */
    const char *predicted_by;     /* the hardware file */
    int64_t     replay;           /* computes the gradients of every so many-th step twice; 0: never */
    int64_t     microscope;       /* looks at the numbers before every so many steps (step.compared); 0: never */
    double      microscope_bound; /* of the relative error: a tensor beyond it diverges */
    int64_t     quantize_freq;    /* tells scales and largest numbers of all factors after so many steps; 0: never */
    int64_t     sample_tokens;    /* generated at the end of a run on text (step.sample) */
    /* Of a model of images: drawn after each evaluation, in so many Euler steps (step.sample). NULL: none. */
    const struct tm_run_pictures *pictures;
    double          slowdown_pct; /* of a step's time, burnt on top of it: an injected slowdown; 0: none */
    int             turn_fd;      /* takes turns by way of this socket (train/run/interleave.h); 0: does not */
    const tm_ranks *ranks;        /* NULL: alone */
    const char     *folder;       /* where the batch of a step that is not finite is kept; NULL: nowhere */
} tm_run_options;

/* Reads the finished configuration; strings point into it. checkpoint_folder is left to the caller. TM_INVALID, with
 * the keys and the way out, for what only fits together wrongly. */
TM_MUST_USE tm_status tm_run_options_read(const tm_config *config, tm_run_options *out, tm_error *err);
/* The device multiplies FNUZ's formats of 8 bits only: they become those of the run, unless quantize.fnuz says which,
 * or their scales are MX's. Did any? */
bool tm_run_options_take_fnuz(tm_run_options *options);
/* Is the length of a run given by training.epochs? Then the steps follow from its data: they are set in both.
 * TM_UNSUPPORTED for data that has no epochs. */
bool                  tm_run_counts_epochs(const tm_config *config);
TM_MUST_USE tm_status tm_run_settle_epochs(tm_config *config, const tm_source *source, tm_run_options *out,
                                           tm_error *err);

/* The number formats of a run in words: "float32", "bfloat16+mxfp8 (emulated)", on a device that multiplies (some)
 * codes "bfloat16+fp8_rowwise", "... (partly emulated)". A constant, or of the arena. */
const char *tm_run_precision(const tm_run_options *options, const tm_codes *codes, tm_arena *arena);

/* Trains. *stop becoming nonzero ends the run after the step or within a validation (TM_INTERRUPTED, with a checkpoint
 * when there is a folder). Returns TM_NUMBERS when the verdict is invalid: everything was reported all the same. */
TM_MUST_USE tm_status tm_run(const tm_run_options *options, tm_device *device, const tm_source *source,
                             const tm_event_bus *bus, const volatile sig_atomic_t *stop, tm_error *err);

/* Of held-out data. */
typedef struct {
    double  loss;          /* nats per target token (the mean of the sequences' means with average_sequences) */
    double  error;         /* standard error of it, from its scatter over the batches; NAN for one batch */
    double  bits_per_byte; /* NAN unless the data is text */
    int64_t targets;       /* that the loss is the mean of */
} tm_run_evaluation;

/* The loss of the weights with which tm_run would begin (load_weights, or the seed), on the source's held-out data,
 * over as many batches as a run takes. Trains nothing, but plans the memory of a step. TM_INVALID if nothing is held
 * out. */
TM_MUST_USE tm_status tm_run_evaluate(const tm_run_options *options, tm_device *device, const tm_source *source,
                                      const volatile sig_atomic_t *stop, tm_run_evaluation *found, tm_error *err);

#endif
