/* SPDX-License-Identifier: Apache-2.0 */
/* train/evaluation.c - the loss on held-out data, and whether the target is reached. */
#include "train/run_state.h"

#include "base/clock.h"

#include <math.h>

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

bool run_target_reached(const run *r)
{
    double floor = tm_source_describe(r->held_out)->validation_floor;
    if (r->validation <= r->options->target_loss) return true; /* never with a NaN */
    return r->options->stop_at_target && !isnan(floor) && r->validation <= floor + r->options->target_gap;
}

double run_mean_error(double mean, double squares, int64_t n)
{
    double spread = squares / (double)n - mean * mean;
    return n > 1 && spread > 0 ? sqrt(spread / (double)(n - 1)) : (double)NAN;
}

double run_bits_per_byte(const run *r)
{
    return r->validation / log(2) / tm_source_describe(r->held_out)->bytes_per_token;
}

tm_status run_evaluate(run *r, int64_t step, tm_error *err)
{
    int64_t batches = r->options->validate ? run_validation_batches(r) : 0;
    if (batches == 0) return TM_OK;
    tm_event started = { .kind = TM_EVENT_EVALUATION_STARTED };
    started.evaluation_started =
        (tm_evaluation_started){ .step = step, .samples = step * run_global_batch(r->options) };
    tm_event_emit(r->bus, &started);
    int64_t    begin = tm_now_ns();
    tm_loader *loader =
        tm_loader_open(r->held_out, TM_SPLIT_VALIDATION, run_validation_rows(r->options), 0, r->options->prefetch);
    if (!loader) return tm_fail(err, TM_INTERNAL, "cannot start the thread that reads held-out data");
    double    sum = 0, means = 0, squares = 0;
    int64_t   tokens = 0, counted = 0;
    tm_status st = TM_OK;
    for (int64_t i = 0; i < batches && st == TM_OK; i++) {
        tm_batch batch;
        if (r->stop_evaluation && *r->stop_evaluation) {
            st = tm_fail(err, TM_INTERRUPTED, "stopped by a signal");
            break;
        }
        tm_loader_next(loader, &batch);
        st = run_check_batch(&batch, err);
        if (st != TM_OK || batch.target_tokens == 0) continue; /* of a sequence without answer there is no loss */
        double         nats;
        tm_micro_batch fed = run_micro_batch(&batch);
        st = tm_trainer_validate(r->trainer, &fed, &nats, err);
        if (st != TM_OK) continue;
        double mean = nats / (double)batch.target_tokens;
        sum += nats;
        means += mean;
        squares += mean * mean;
        tokens += batch.target_tokens;
        counted++;
    }
    tm_loader_close(loader);
    TM_TRY(st);
    r->validation = r->options->average_sequences ? means / (double)counted : sum / (double)tokens;
    r->validation_error = run_mean_error(r->validation, squares, counted);
    r->evaluated_tokens = tokens;
    tm_event event = { .kind = TM_EVENT_EVALUATION };
    r->evaluated_step = step;
    event.evaluation = (tm_evaluation){ .step = step,
                                        .samples = started.evaluation_started.samples,
                                        .loss = r->validation,
                                        .bits_per_byte = run_bits_per_byte(r),
                                        .tokens = tokens,
                                        .seconds = (double)(tm_now_ns() - begin) * 1e-9,
                                        .last = run_target_reached(r) || r->stopped };
    tm_event_emit(r->bus, &event);
    return TM_OK;
}
