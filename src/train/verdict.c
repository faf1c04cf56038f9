/* SPDX-License-Identifier: Apache-2.0 */
#include "train/verdict.h"

#include "stats/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double noisy_variation = 0.10;

/* The first or last tenth of the losses (at least 5). */
static const double *end_of(const tm_evidence *e, bool last, int64_t *n)
{
    *n = e->n_losses / 10 > 5 ? e->n_losses / 10 : 5;
    if (*n > e->n_losses) *n = e->n_losses;
    return last ? e->losses + e->n_losses - *n : e->losses;
}

static double end_mean(const tm_evidence *e, bool last)
{
    int64_t       n;
    const double *losses = end_of(e, last, &n);
    return tm_stats_mean(losses, n);
}

/* Standard error of the difference of the two means: small batches scatter, and that is no progress. */
static double ends_error(const tm_evidence *e)
{
    double square = 0;
    for (int last = 0; last < 2; last++) {
        int64_t       n;
        const double *losses = end_of(e, last, &n);
        double        deviation = tm_stats_deviation(losses, n);
        square += deviation * deviation / (double)n;
    }
    return sqrt(square);
}

static bool final_loss_known(const tm_evidence *e)
{
    return !isnan(e->validation);
}

/* The language's exact entropy is the floor: below it something leaks (a mask, a target), far above it nothing is
 * learnt. */
static tm_verdict judge_synthetic(const tm_evidence *e, char reason[256])
{
    double first = end_mean(e, false), last = end_mean(e, true), final = final_loss_known(e) ? e->validation : last;
    double slack = 5 * (isnan(e->validation_error) ? 0.01 : e->validation_error);
    if (final < e->floor - slack) {
        snprintf(reason, 256, "loss %.4f is below the entropy of the language %.4f: something leaks", final, e->floor);
        return TM_VERDICT_INVALID;
    }
    if (final <= e->floor + e->target_gap) {
        snprintf(reason, 256, "loss %.4f is within %g nat of the language's entropy %.4f", final, e->target_gap,
                 e->floor);
        return TM_VERDICT_VALID;
    }
    if (e->must_reach_target) {
        snprintf(reason, 256, "loss %.4f did not come within %g nat of the language's entropy %.4f", final,
                 e->target_gap, e->floor);
        return TM_VERDICT_INVALID;
    }
    /* written so that a floor that is NaN does not pass */
    if (!(last < first - 0.01 * (first - e->floor)) || !(last < first - 3 * ends_error(e))) {
        snprintf(reason, 256, "no progress: the mean loss went from %.4f to %.4f, the floor is %.4f", first, last,
                 e->floor);
        return TM_VERDICT_INVALID;
    }
    snprintf(reason, 256, "loss fell from %.4f to %.4f towards the floor %.4f", first, last, e->floor);
    return TM_VERDICT_VALID;
}

/* Uniform tokens: all a model can learn is to say nothing, loss ln V; a model that does better sees its targets. */
static tm_verdict judge_mock(const tm_evidence *e, char reason[256])
{
    double first = end_mean(e, false), last = end_mean(e, true), target = e->unigram_entropy;
    bool   near = fabs(last - target) < 0.05 * target, closer = fabs(last - target) < fabs(first - target);
    if (last < target && !near) {
        snprintf(reason, 256, "random tokens: loss %.4f is below ln V, %.4f: something leaks", last, target);
        return TM_VERDICT_INVALID;
    }
    snprintf(reason, 256, "random tokens: loss %.4f, ln V is %.4f%s", last, target,
             near || closer ? "" : ", and it does not come closer");
    return near || closer ? TM_VERDICT_VALID : TM_VERDICT_INVALID;
}

static tm_verdict judge_text(const tm_evidence *e, char reason[256])
{
    double final = final_loss_known(e) ? e->validation : end_mean(e, true);
    bool   passed = final < e->unigram_entropy;
    snprintf(reason, 256, "held-out loss %.4f, entropy of single tokens %.4f%s", final, e->unigram_entropy,
             passed ? "" : ": nothing was learnt beyond their frequencies");
    return passed ? TM_VERDICT_VALID : TM_VERDICT_INVALID;
}

tm_verdict tm_verdict_of(const tm_evidence *e, char reason[256])
{
    if (!e->finite) {
        snprintf(reason, 256, "a loss or gradient norm is not finite");
        return TM_VERDICT_INVALID;
    }
    bool reached =
        final_loss_known(e) && strcmp(e->source, "synthetic") == 0 && e->validation <= e->floor + e->target_gap;
    if (e->total_steps < TM_JUDGED_STEPS && !reached) {
        snprintf(reason, 256, "%lld steps are too few to judge (%d are needed)", (long long)e->total_steps,
                 TM_JUDGED_STEPS);
        return TM_VERDICT_NOT_JUDGED;
    }
    tm_verdict verdict = strcmp(e->source, "synthetic") == 0 ? judge_synthetic(e, reason)
                         : strcmp(e->source, "mock") == 0    ? judge_mock(e, reason)
                                                             : judge_text(e, reason);
    if (verdict == TM_VERDICT_VALID && e->step_variation > noisy_variation) {
        size_t used = strlen(reason);
        snprintf(reason + used, 256 - used, "; step times vary by %.0f %%", 100 * e->step_variation);
        return TM_VERDICT_NOISY;
    }
    return verdict;
}
