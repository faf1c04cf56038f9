/* SPDX-License-Identifier: Apache-2.0 */
/* train/run_state.h - private to the room: one run from its first step to its end, and the chapters of run.c. */
#ifndef TM_TRAIN_RUN_STATE_H
#define TM_TRAIN_RUN_STATE_H

#include "stats/sampling.h"
#include "system/validity.h"
#include "train/checkpoint.h"
#include "train/look.h"
#include "train/run.h"
#include "train/trainer.h"
#include "train/turn.h"
#include "train/verdict.h"

typedef struct {
    const tm_run_options *options;
    tm_device            *device;
    const tm_source      *source;
    const tm_source      *held_out; /* `source`, unless held-out sequences have another length */
    const tm_event_bus   *bus;
    tm_trainer           *trainer;
    tm_loader            *loader;
    tm_ledger             ledger;
    tm_named_f64          phases[TM_LEDGER_LINES + 1];
    double               *step_seconds, *losses;
    int64_t              *step_end_ns;
    tm_validity          *validity; /* samples of the machine, once the steps begin */
    tm_sampling          *sampling; /* of step times; NULL: all steps are done */
    const char           *stopped;  /* why no more steps were done */
    tm_sample_summary     speed;    /* of all steps, and what disturbed the machine in them: once they are done */
    tm_validity_report    machine;
    int64_t               done;       /* steps of this process */
    int64_t               first_step; /* number of the first one */
    bool                  finite;
    double                validation, validation_error, first_loss, first_step_seconds;
    int64_t               evaluated_step, evaluated_tokens; /* of `validation` */
    tm_loss_head          head;                             /* of the steps before this process */
    tm_loss_head          begun;                            /* of the whole run so far: what a checkpoint keeps */
    tm_certificate        certificate, certificate_after;
    int64_t               first_sample; /* of this process */
    tm_curve              curve;
    uint64_t              base;                    /* with adapters: hash of the weights that they stand beside */
    uint64_t             *before;                  /* hash of each weight before the first step; NULL: nobody looked */
    char                  unreal[TM_REASON_BYTES]; /* why this was no training; "": it was */
    double                accounted_seconds, all_seconds, last_norm;
    int64_t               saved_step;
    int64_t               begin_ns; /* of the step under way: the end of the one before */
    tm_turn              *turn;     /* NULL: the machine is this run's alone */
    tm_looked             looked;
    tm_quantized_factor  *factors; /* (rows of step.quantized), and the record that they are read from */
    void                 *factor_record;

    const volatile sig_atomic_t *stop_evaluation; /* becoming nonzero ends it; NULL: nothing does */
} run;

/* Sequences of one optimizer step. */
static inline int64_t run_global_batch(const tm_run_options *o)
{
    return o->step.micro_batch * o->step.accumulation;
}

/* Samples of a batch of an evaluation. */
static inline int64_t run_validation_rows(const tm_run_options *o)
{
    return o->step.validation_batch > 0 ? o->step.validation_batch : o->step.micro_batch;
}

/* --- resume.c --- */

TM_MUST_USE tm_status run_save(run *r, int64_t step, tm_error *err);
/* What a checkpoint's state holds beside the tensors, checked: numbers that no run writes are TM_FORMAT, another seed,
 * model or data TM_INVALID. */
TM_MUST_USE tm_status run_take_state(run *r, const tm_checkpoint_state *state, tm_error *err);
/* Sets first_step and the loader's first sample from the newest valid checkpoint, if there is one. */
TM_MUST_USE tm_status run_resume(run *r, int64_t *first_sample, tm_error *err);

/* --- announcement.c --- */

/* Tells what the run is going to do (RUN_STARTED). */
void run_announce(run *r);

/* --- proof.c --- */

/* Before the first step. `first_sample`: where the loader begins. */
TM_MUST_USE tm_status run_certify(run *r, int64_t first_sample, tm_error *err);
/* After the last one: sets `unreal`. *weights_hash: as tm_trainer_weights_hash. */
TM_MUST_USE tm_status run_check_proof(run *r, uint64_t *weights_hash, tm_error *err);

/* --- evaluation.c --- */

/* Batches of one evaluation: what was asked for; else all of a text (at most 64 batches), or 32,768 tokens of an
 * endless source. */
int64_t run_validation_batches(const run *r);
/* Evaluates after `step`, unless nothing is held out or evaluation is off. */
/* Standard error of the mean of n values with that mean and that sum of squares: their deviation (divisor n - 1) over
 * the root of n. NAN for one value, or for none that differ. */
double                run_mean_error(double mean, double squares, int64_t n);
TM_MUST_USE tm_status run_evaluate(run *r, int64_t step, tm_error *err);
double                run_bits_per_byte(const run *r); /* by the last evaluation; NAN unless the data is text */
/* By the last evaluation; never while there was none. */
bool run_target_reached(const run *r);
/* Was the data of the batch read? */
TM_MUST_USE tm_status run_check_batch(const tm_batch *batch, tm_error *err);
tm_micro_batch run_micro_batch(const tm_batch *batch); /* all of it; a step's micro-batches one after the other */

/* --- loop.c --- */

/* All steps, with the evaluations and checkpoints between them; sets `stopped`. */
TM_MUST_USE tm_status run_train(run *r, const volatile sig_atomic_t *stop, tm_error *err);

/* --- numerics.c --- */

/* Before a step that the microscope looks at, behind tm_trainer_begin: looks, and tells it (LOOK). */
TM_MUST_USE tm_status run_look(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err);
/* After a step whose quantized factors are to be told: tells them (QUANTIZED). */
TM_MUST_USE tm_status run_tell_factors(run *r, int64_t step, tm_error *err);

/* --- conclusion.c --- */

/* The steps are done: the last evaluation and checkpoint, the verdict, RUN_ENDED. TM_NUMBERS for an invalid run,
 * TM_INTERRUPTED for one that was stopped on the way. */
TM_MUST_USE tm_status run_finish(run *r, const volatile sig_atomic_t *stop, tm_error *err);

#endif
