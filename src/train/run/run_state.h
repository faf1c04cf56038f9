/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/run_state.h - private to the room: one run from its first step to its end, and the chapters of run.c. */
#ifndef TM_TRAIN_RUN_RUN_STATE_H
#define TM_TRAIN_RUN_RUN_STATE_H

#include "gpu/sensors.h"
#include "stats/sampling.h"
#include "stats/stragglers.h"
#include "system/validity.h"
#include "train/certify/update.h"
#include "train/checkpoint/checkpoint.h"
#include "train/trainer/locate.h"
#include "train/trainer/microscope.h"
#include "train/trainer/replay.h"
#include "train/run/run.h"
#include "train/trainer/trainer.h"
#include "train/run/interleave.h"
#include "train/run/verdict.h"

/* How long steps took, and what else went on on the machine. Steps are those of this process. */
typedef struct {
    tm_ledger    ledger;
    tm_named_f64 phases[TM_LEDGER_LINES + 1];
    double      *step_seconds, *busy_seconds; /* busy: without waiting for other ranks */
    int64_t     *step_end_ns;
    size_t       steps_room; /* of these, and of losses: steps */
    int64_t      begin_ns;   /* of the step under way: the end of the one before, and what belongs to no step later */
    int64_t      between_ns; /* of that, what ranks agreed on behind the step before */
    double       accounted_seconds, all_seconds, first_step_seconds;
    tm_sampling *sampling;       /* of step times; NULL: all steps are done */
    tm_sample_summary  speed;    /* of all steps, once they are done */
    tm_validity       *validity; /* samples of the machine, once the steps begin */
    tm_gpu_sensors    *gpu;      /* NULL: no GPU, or none that can be read */
    tm_validity_report machine;  /* what disturbed it in the steps, once they are done */
} timing_state;

typedef struct {
    int64_t      done;         /* steps of this process */
    int64_t      first_step;   /* number of the first one */
    int64_t      first_sample; /* of this process: those before it have consumed so many */
    int64_t      own_targets;  /* that this rank has read */
    double      *losses;       /* of each step */
    double       first_loss, last_norm;
    bool         finite;
    tm_loss_head before;  /* of the steps before this process */
    tm_loss_head so_far;  /* of the whole run: what a checkpoint keeps */
    const char  *stopped; /* why no more steps were done */
} progress_state;

/* The last evaluation. */
typedef struct {
    double       loss, error; /* nats per target; standard error */
    int64_t      step, targets;
    bool         cut;                       /* ended by a signal: it has no loss */
    tm_named_f64 measures[TM_MAX_MEASURES]; /* of the last step where there was no evaluation */
    size_t       n_measures;
    uint64_t    *fed; /* hash of each batch of the evaluation under way; NULL: nobody looks */
    size_t       n_fed, fed_capacity;
} evaluation_state;

/* What shows that the run was training. */
typedef struct {
    tm_certificate        first, after; /* in the first step, and behind the last one */
    tm_data_certificate   data;
    uint64_t             *fed;      /* (steps) hash of what each was fed; NULL: nobody looks */
    size_t                fed_room; /* steps */
    int64_t               consumed; /* samples that the checkpoint says were trained on, from which this run goes on */
    tm_update_certificate update;
    tm_update_check      *watched; /* of the step that is being done; NULL: none */
    int64_t               done_ns; /* when `first` was done; 0: there is none */
    tm_curve              curve;
    uint64_t              base;      /* with adapters: hash of the weights that they stand beside */
    uint64_t              reference; /* hash of the weights that pairs are compared by; 0: there is none */
    uint64_t             *hashes;    /* of each weight before the first step; NULL: nobody looked */
    char                  not_training[TM_REASON_BYTES]; /* why the run does not count as training; empty if it does */
} certified_state;

typedef struct {
    int64_t               step;          /* of the last checkpoint */
    tm_checkpoint_saving *pending;       /* a checkpoint that is being written while training goes on */
    tm_checkpoint_saved   pending_saved; /* what will be reported of it */
} saved_state;

typedef struct {
    tm_looked            look;
    tm_quantized_factor *factors;       /* (rows of step.quantized) */
    double              *factor_record; /* that they are read from */
} microscope_state;

/* The first value that is not finite (train/run/nonfinite.c). */
typedef struct {
    bool         asked;
    size_t       norm_end; /* tm_trainer_norm_end; 0: a step cannot be looked at before its update */
    char        *states;   /* what steps hand on, as it was before the step: tensors of role STATE one by one */
    size_t       states_bytes;
    tm_nonfinite found;
    bool         any;
    char         place[TM_REASON_BYTES]; /* `found` in words */
} nonfinite_state;

typedef struct {
    tm_replay     *of;       /* NULL: no step is repeated */
    int64_t        first;    /* step that is repeated first, at the earliest */
    int64_t        begun_ns; /* that putting state aside took */
    tm_replay_told told;
    char           reason[TM_REASON_BYTES]; /* of the first difference; empty: there is none */
} replay_state;
/* Who the others wait for; all zero of one rank alone. */
typedef struct {
    tm_stragglers *judge;                 /* on rank 0 */
    tm_rank_times  block, *all;           /* of the steps since the last exchange; (ranks) */
    tm_straggler  *named;                 /* (ranks) */
    int64_t        waited_ns, delayed_ns; /* when the block began */
} straggler_state;

typedef struct {
    const tm_run_options *options;
    tm_device            *device;
    const tm_source      *source;
    const tm_source      *held_out; /* `source`, unless held-out sequences have another length */
    const tm_event_bus   *bus;
    tm_trainer           *trainer;
    tm_loader            *loader;
    tm_turn              *turn; /* NULL: the machine is this run's alone */
    timing_state          timing;
    progress_state        progress;
    evaluation_state      evaluation;
    certified_state       certified;
    saved_state           saved;
    microscope_state      microscope;
    nonfinite_state       nonfinite;

    replay_state    replay;
    straggler_state stragglers;

    const volatile sig_atomic_t *stop; /* becoming nonzero ends an evaluation, and the run after a step */
    bool                         evaluates_only;
} run;

/* The ranks of a run: of one alone the world is NULL, and it is rank 0 of 1. */
static inline tm_comm *run_world(const run *r)
{
    return r->options->ranks ? r->options->ranks->world : NULL;
}
static inline int run_ranks(const tm_run_options *o)
{
    return o->ranks ? o->ranks->ranks : 1;
}
static inline int run_rank(const tm_run_options *o)
{
    return o->ranks ? o->ranks->rank : 0;
}
static inline tm_loader_part run_part(const tm_run_options *o)
{
    return o->ranks ? (tm_loader_part){ o->ranks->data_rank, o->ranks->data_ranks } : (tm_loader_part){ .ranks = 1 };
}

/* Sequences of one optimizer step, of all ranks. */
static inline int64_t run_global_batch(const tm_run_options *o)
{
    return o->step.micro_batch * o->step.accumulation * run_part(o).ranks;
}

/* Sequences trained on so far, in every process of the run, whatever batches those had. */
static inline int64_t run_samples(const run *r)
{
    return r->progress.first_sample + r->progress.done * run_global_batch(r->options);
}

/* Samples of a batch of an evaluation. */
static inline int64_t run_validation_rows(const tm_run_options *o)
{
    return o->step.validation_batch > 0 ? o->step.validation_batch : o->step.micro_batch;
}

/* --- run.c --- */

/* Nothing of it is open yet. */
run run_new(const tm_run_options *options, tm_device *device, const tm_source *source, const tm_event_bus *bus);
/* The state that its first step finds: weights by the seed, of a model's directory or of a checkpoint; averages. */
TM_MUST_USE tm_status run_begin(run *r, tm_error *err);

/* --- resume.c --- */

/* Saves; with checkpoint_behind begins to, and training goes on. */
TM_MUST_USE tm_status run_save(run *r, int64_t step, tm_error *err);
/* Ends the saving that is under way, if there is one: the checkpoint is there, and told. Waits for the disk. */
TM_MUST_USE tm_status run_saved(run *r, tm_error *err);
/* What a checkpoint's state holds beside the tensors, checked: numbers that no run writes are TM_FORMAT, another seed,
 * model or data TM_INVALID. */
TM_MUST_USE tm_status run_take_state(run *r, const tm_checkpoint_state *state, tm_error *err);
/* Sets first_step and first_sample from the newest valid checkpoint, if there is one. */
TM_MUST_USE tm_status run_resume(run *r, tm_error *err);

/* --- together.c --- */

/* Before anything is trained: have all ranks the same program, configuration and data? TM_INVALID names those that
 * differ, and what in. */
TM_MUST_USE tm_status run_check_same(const run *r, tm_error *err);
/* The targets of a step, of all ranks, from this rank's `own`; `st`: could this rank read its samples? Ranks fail
 * together. *waited_ns: what that took. */
TM_MUST_USE tm_status run_all_targets(const run *r, tm_status st, int64_t own, int64_t *all, int64_t *waited_ns,
                                      tm_error *err);
/* How the ranks fared, for RUN_ENDED: `told` (as many as there are ranks) and *n, 0 of one alone. */
TM_MUST_USE tm_status run_compare_ranks(const run *r, tm_rank_told *told, size_t *n, tm_error *err);
/* Of the samples that all ranks read first: how many, and how many different ones. */
TM_MUST_USE tm_status run_count_samples(const run *r, int64_t *seen, int64_t *unique, tm_error *err);

/* --- reference.c --- */

/* Before anything is trained, with the weights that the run begins with: their losses become part of the data. */
TM_MUST_USE tm_status run_reference(run *r, tm_error *err);

/* --- announcement.c --- */

/* Tells what the run is going to do (RUN_STARTED). */
void run_announce(run *r);

/* --- proof.c --- */

/* The step as a run has it: with what its certificates need besides. */
tm_step_options run_step_options(const run *r);
/* Before the first step: what the weights are. */
TM_MUST_USE tm_status run_remember(run *r, tm_error *err);
/* In the first step, between its gradients and its update: the certificate, if one is wanted. `batch`: of the step. */
TM_MUST_USE tm_status run_certify(run *r, const tm_micro_batch *batch, tm_error *err);
/* Is this run to be certified? */
bool run_certifies(const run *r);
/* Was there to be a certificate of gradients, and could none be made, of samples of which none comes twice? */
bool run_is_unproven(const run *r);
/* Around the update of a step (train/run/updates.c), if it is one of those that are looked at. */
TM_MUST_USE tm_status run_watch_update(run *r, int64_t step, tm_error *err);
TM_MUST_USE tm_status run_judge_update(run *r, const tm_step_result *result, tm_error *err);
/* Behind that update: is the loss that is reported the one that was found? */
void run_check_loss(run *r, const tm_step_result *result);
/* After the last one: sets `certified.not_training`. *weights_hash: as tm_trainer_weights_hash. */
TM_MUST_USE tm_status run_check_proof(run *r, uint64_t *weights_hash, tm_error *err);

/* --- fed.c --- */

/* After a step, and after a batch of an evaluation: keeps a hash of what it was fed. */
void run_fed(run *r, const tm_batch *batch);
void run_fed_held_out(run *r, const tm_batch *batch);
/* After the last step: sets certified.data, the same on all ranks; a violation goes to certified.not_training. */
TM_MUST_USE tm_status run_check_fed(run *r, tm_error *err);

/* --- evaluation.c --- */

/* Batches of one evaluation: what was asked for; else all of a text (at most 64 batches), or 32,768 tokens of an
 * endless source. */
int64_t run_validation_batches(const run *r);
/* Standard error of the mean of n values with that mean and that sum of squares: their deviation (divisor n - 1) over
 * the root of n. NAN for one value, or for none that differ. */
double run_mean_error(double mean, double squares, int64_t n);
/* Evaluates after `step`, unless nothing is held out or evaluation is off. A signal ends it: evaluation.cut is set, and
 * there is no loss, for one of a part of the batches would pass for that of all. */
TM_MUST_USE tm_status run_evaluate(run *r, int64_t step, tm_error *err);
double                run_bits_per_byte(const run *r); /* by the last evaluation; NAN unless the data is text */
/* What a compressor needs for held-out data (tm_source_compressed); NAN where no verdict asks for it. */
double run_compressed(const run *r);
/* By the last evaluation; never while there was none. */
bool run_target_reached(const run *r);
/* Was the data of the batch read? */
TM_MUST_USE tm_status run_check_batch(const tm_batch *batch, tm_error *err);
tm_micro_batch run_micro_batch(const tm_batch *batch); /* all of it; a step's micro-batches one after the other */

/* --- pictures.c --- */

/* After an evaluation: what the model draws, if that is wanted (PICTURE). All ranks draw, the one that decodes tells.
 */
TM_MUST_USE tm_status run_draw(run *r, int64_t step, tm_error *err);

/* --- stragglers.c --- */

void run_stragglers_open(run *r);  /* once the ranks are known to be one run */
void run_stragglers_close(run *r); /* what run_stragglers_found has given is gone */
/* What was done since the last exchange does not count: more than steps was. */
void run_stragglers_skip(run *r);
/* The step whose ledger is complete took so many seconds. */
void run_stragglers_add(run *r, double seconds);
/* Is it time for an exchange? Ranks agree on it. */
bool run_stragglers_due(const run *r);
/* The exchange; rank 0 judges, and tells whom it names (STRAGGLER). */
TM_MUST_USE tm_status run_stragglers_tell(run *r, int64_t step, tm_error *err);
/* Ranks that were named, in r->stragglers.named. Returns their number: 0 but on rank 0. */
size_t run_stragglers_found(run *r);

/* --- loop.c --- */

/* All steps, with the evaluations and checkpoints between them; sets `stopped`. */
TM_MUST_USE tm_status run_train(run *r, const volatile sig_atomic_t *stop, tm_error *err);

/* --- nonfinite.c --- */

/* Before the gradients of a step: keeps what the step changes before its update. */
TM_MUST_USE tm_status run_keep_states(run *r, tm_error *err);
/* Between gradients and update of a step: if its loss or norm is not finite, finds the first value that is not. The
 * state is left as it was found. */
TM_MUST_USE tm_status run_locate(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err);
/* Behind the update of a step that is not finite: tells it, and keeps the batch. Nothing else. */
TM_MUST_USE tm_status run_tell_nonfinite(run *r, int64_t step, const tm_batch *batch, int64_t targets, tm_error *err);

/* --- saved_batch.c --- */

/* The batch of a step, of all ranks, into folder/step-N, in the format of checkpoints (docs/replay.md). Every rank
 * calls. */
TM_MUST_USE tm_status run_save_batch(const run *r, const char *folder, int64_t step, const void *const *fields,
                                     int64_t targets, tm_error *err);
/* This rank's part of it into fields, rows of this rank one behind the other. TM_INVALID: it is of another model,
 * number of samples or step. */
TM_MUST_USE tm_status run_load_batch(const run *r, const char *folder, int64_t step, void *const *fields,
                                     int64_t *targets, tm_error *err);

/* --- numerics.c --- */

/* Before a step that the microscope looks at, behind tm_trainer_begin: looks, and tells it (LOOK). */
TM_MUST_USE tm_status run_look(run *r, int64_t step, const tm_batch *batch, tm_error *err);
/* After a step whose quantized factors are to be told: tells them (QUANTIZED). */
TM_MUST_USE tm_status run_tell_factors(run *r, int64_t step, tm_error *err);

/* --- replay.c --- */

/* Once the trainer has its weights, before the first step. */
void run_replay_open(run *r);
/* Around the gradients of a step, if it is one that is repeated (debug.replay). A difference is told at once
 * (REPLAYED), and makes the run invalid. Every rank of the run calls both. */
TM_MUST_USE tm_status run_replay_begin(run *r, int64_t step, tm_error *err);
TM_MUST_USE tm_status run_replay(run *r, int64_t step, const tm_micro_batch *batch, tm_error *err);
/* After the last one. */
tm_replay_told run_replay_told(const run *r);

/* --- conclusion.c --- */

/* The steps are done: the last evaluation and checkpoint, the verdict, RUN_ENDED. TM_NUMBERS for an invalid run,
 * TM_INTERRUPTED for one that was stopped on the way. */
TM_MUST_USE tm_status run_finish(run *r, const volatile sig_atomic_t *stop, tm_error *err);

#endif
