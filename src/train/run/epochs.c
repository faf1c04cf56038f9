/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/epochs.c - the length of a run in passes over its data (training.epochs).
 *
 *     steps = ceil(E N / B)      E epochs of N samples (rows of packed data), B samples of a step of all ranks
 *
 * The last step is a whole one: its rest is the beginning of the next epoch's order. */
#include "base/log.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool tm_run_counts_epochs(const tm_config *config)
{
    return tm_config_text(config, "training.epochs") &&
           tm_config_rank(config, "training.epochs") > tm_config_rank(config, "training.steps");
}

tm_status tm_run_settle_epochs(tm_config *config, const tm_source *source, tm_run_options *out, tm_error *err)
{
    char    text[32];
    int64_t batch = out->step.micro_batch * out->step.accumulation * tm_layout_data_ranks(&out->step.layout);
    int64_t samples = tm_source_describe(source)->train_samples;
    if (!tm_run_counts_epochs(config)) return TM_OK;
    if (strcmp(out->source.name, "megatron") == 0 || samples == INT64_MAX)
        return tm_fail(err, TM_UNSUPPORTED,
                       "training.epochs (%s) counts passes over samples, and %s of data.source %s %s; give "
                       "training.steps",
                       tm_config_place(config, "training.epochs"), samples == INT64_MAX ? "those" : "the order",
                       out->source.name, samples == INT64_MAX ? "never repeat" : "depends on the number of steps");
    double steps = ceil(tm_config_f64(config, "training.epochs") * (double)samples / (double)batch);
    if (!(steps < 1e12))
        return tm_fail(err, TM_INVALID, "training.epochs (%s) are %.3g steps, more than 1e12; lower it",
                       tm_config_place(config, "training.epochs"), steps);
    out->steps = (int64_t)steps;
    snprintf(text, sizeof text, "%" PRId64, out->steps);
    tm_config_derive(config, "training.steps", text, "training.epochs"); /* config.yaml tells the truth */
    if (!tm_config_text(config, "lr_scheduler.total_steps")) out->schedule.steps = out->steps;
    out->config_hash = tm_config_hash(config);
    tm_note("training.epochs %s of %lld samples: %s steps of %lld", tm_config_text(config, "training.epochs"),
            (long long)samples, text, (long long)batch);
    return tm_schedule_check(&out->schedule, err);
}
