/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/evaluation.c - the loss on held-out data, and whether the target is reached. */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "train/parallel/agree.h"
#include "train/trainer/preference.h"

#include <math.h>
#include <stdlib.h>

int64_t run_validation_batches(const run *r)
{
    const tm_source_facts *facts = tm_source_describe(r->held_out);
    int64_t                rows = run_validation_rows(r->options), seq = tm_source_seq(r->held_out), most = INT64_MAX;
    if (facts->validation_samples != INT64_MAX) most = (facts->validation_samples + rows - 1) / rows;
    int64_t batches = r->options->validation_steps;
    if (batches < 0) batches = facts->validation_samples != INT64_MAX ? 64 : (32768 + rows * seq - 1) / (rows * seq);
    return batches < most ? batches : most;
}

tm_micro_batch run_micro_batch(const tm_batch *batch)
{
    tm_micro_batch fed = { .target_tokens = batch->target_tokens };
    for (int f = 0; f < TM_MAX_FIELDS; f++) fed.field[f] = batch->field[f];
    return fed;
}

tm_status run_check_batch(const tm_batch *batch, tm_error *err)
{
    return batch->error ? tm_fail(err, batch->error->status, "%s", batch->error->text) : TM_OK;
}

double run_compressed(const run *r)
{
    bool asks = tm_source_traits_of(r->options->source.name)->gate == TM_GATE_HELD_OUT;
    return asks ? tm_source_compressed(r->held_out) : (double)NAN;
}

bool run_target_reached(const run *r)
{
    double floor = tm_source_describe(r->held_out)->validation_floor;
    /* never with a NaN, which a loss or a floor is that nobody knows */
    if (r->evaluation.loss <= r->options->target_loss) return true;
    return r->options->stop_at_target && r->evaluation.loss <= floor + r->options->target_gap;
}

double run_mean_error(double mean, double squares, int64_t n)
{
    double spread = squares / (double)n - mean * mean;
    return spread > 0 ? sqrt(spread / (double)(n - 1)) : (double)NAN;
}

/* Adds the record of the batch evaluated last. */
static tm_status add_preferred(const run *r, double sums[TM_PREFERRED_COUNT], tm_error *err)
{
    double record[TM_PREFERRED_COUNT];
    if (!(r->options->step.preference.beta > 0)) return TM_OK;
    TM_TRY(tm_trainer_preferred(r->trainer, record, err));
    for (int k = 0; k < TM_PREFERRED_COUNT; k++) sums[k] += record[k];
    return TM_OK;
}

double run_bits_per_byte(const run *r)
{
    return r->evaluation.loss / log(2) / tm_source_describe(r->held_out)->bytes_per_token;
}

/* What a batch of an evaluation came to. */
typedef struct {
    double  nats, preferred[TM_PREFERRED_COUNT];
    int64_t targets;
} batch_loss;

static tm_status evaluate_batch(run *r, tm_loader *loader, batch_loss *out, tm_error *err)
{
    tm_batch batch;
    *out = (batch_loss){ 0 };
    tm_loader_next(loader, &batch);
    TM_TRY(agree_status(run_world(r), "reading held-out samples", run_check_batch(&batch, err), err));
    tm_micro_batch fed = run_micro_batch(&batch);
    TM_TRY(tm_trainer_validate(r->trainer, &fed, &out->nats, err)); /* all ranks, as often */
    run_fed_held_out(r, &batch);
    TM_TRY(add_preferred(r, out->preferred, err));
    out->targets = batch.target_tokens;
    return TM_OK;
}

/* Of an evaluation. */
typedef struct {
    double  nats, means, squares, preferred[TM_PREFERRED_COUNT];
    int64_t targets, counted, batches; /* counted: batches with a target */
} held_out;

static void add_batch(held_out *sums, const batch_loss *batch)
{
    sums->batches++;
    if (batch->targets == 0) return; /* of a sequence without answer there is no loss */
    double mean = batch->nats / (double)batch->targets;
    sums->nats += batch->nats;
    sums->means += mean;
    sums->squares += mean * mean;
    sums->targets += batch->targets;
    sums->counted++;
    for (int k = 0; k < TM_PREFERRED_COUNT; k++) sums->preferred[k] += batch->preferred[k];
}

/* The batches, data rank d of D those of numbers d, d + D, ...: all ranks add all of them, in order. Sets
 * evaluation.cut when a signal ends them before the last. */
static tm_status evaluate_batches(run *r, int64_t batches, held_out *sums, tm_error *err)
{
    const tm_ranks      *ranks = r->options->ranks;
    const tm_loader_part part = run_part(r->options);
    tm_loader           *loader = tm_loader_open_part(
                  r->held_out, TM_SPLIT_VALIDATION, run_validation_rows(r->options) * part.ranks, part, 0, r->options->prefetch);
    if (!loader) return tm_fail(err, TM_INTERNAL, "cannot start the thread that reads held-out data");
    batch_loss *round = tm_alloc((size_t)part.ranks * sizeof *round);
    tm_status   st = TM_OK;
    r->evaluation.n_fed = 0;
    for (int64_t first = 0; first < batches && st == TM_OK; first += part.ranks) {
        batch_loss own;
        int64_t    told = *r->stop != 0;
        st = agree_max(run_world(r), "whether to go on", &told, 1, err);
        r->evaluation.cut = st == TM_OK && told;
        if (r->evaluation.cut) break;
        if (st == TM_OK) st = evaluate_batch(r, loader, &own, err);
        if (st == TM_OK)
            st = agree_gather(ranks ? ranks->batch : NULL, "losses of an evaluation", &own, sizeof own, round, err);
        for (int64_t d = 0; d < part.ranks && first + d < batches && st == TM_OK; d++) add_batch(sums, &round[d]);
    }
    free(round);
    tm_loader_close(loader);
    return st;
}

tm_status run_evaluate(run *r, int64_t step, tm_error *err)
{
    int64_t batches = r->options->validate ? run_validation_batches(r) : 0;
    if (batches == 0) return TM_OK;
    tm_event started = { .kind = TM_EVENT_EVALUATION_STARTED };
    started.evaluation_started = (tm_evaluation_started){ .step = step, .samples = run_samples(r) };
    tm_event_emit(r->bus, &started);
    int64_t  begin = tm_now_ns();
    held_out sums = { 0 };
    TM_TRY(evaluate_batches(r, batches, &sums, err));
    if (r->evaluation.cut) {
        r->progress.stopped = "interrupted";
        return TM_OK;
    }
    r->evaluation.loss =
        r->options->average_sequences ? sums.means / (double)sums.counted : sums.nats / (double)sums.targets;
    r->evaluation.error = run_mean_error(r->evaluation.loss, sums.squares, sums.counted);
    int64_t                 tokens = sums.batches * run_validation_rows(r->options) * tm_source_seq(r->held_out);
    const tm_source_traits *traits = tm_source_traits_of(r->options->source.name);
    r->evaluation.targets = traits->images || traits->pairs ? tokens : sums.targets;
    tm_event event = { .kind = TM_EVENT_EVALUATION };
    r->evaluation.step = step;
    if (r->options->step.preference.beta > 0) {
        tm_preference_measure(sums.preferred, r->evaluation.measures);
        r->evaluation.n_measures = TM_PREFERENCE_MEASURES;
    }
    event.evaluation = (tm_evaluation){ .step = step,
                                        .samples = started.evaluation_started.samples,
                                        .loss = r->evaluation.loss,
                                        .bits_per_byte = run_bits_per_byte(r),
                                        .tokens = tokens,
                                        .target_tokens = r->evaluation.targets,
                                        .measures = r->evaluation.measures,
                                        .n_measures = r->evaluation.n_measures,
                                        .seconds = (double)(tm_now_ns() - begin) * 1e-9,
                                        .last = run_target_reached(r) || r->progress.stopped };
    tm_event_emit(r->bus, &event);
    return run_draw(r, step, err);
}
