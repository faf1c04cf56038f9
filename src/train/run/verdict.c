/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run/verdict.h"

#include "stats/summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double noisy_variation = 0.10;

/* Of what a compressor needs: the best models of text need a third to a quarter, where nothing leaks. */
static const double least_of_compressed = 0.2;

enum { FEWEST = 5 };

static int64_t tenth(int64_t n)
{
    int64_t wanted = n / 10;
    if (wanted < FEWEST) wanted = FEWEST;
    return wanted < n ? wanted : n;
}

static tm_loss_head summary_of(const double *losses, int64_t n)
{
    return (tm_loss_head){ .mean = tm_stats_mean(losses, n), .deviation = tm_stats_deviation(losses, n), .n = n };
}

tm_loss_head tm_loss_head_add(tm_loss_head head, double loss)
{
    double n = (double)head.n, off = loss - head.mean, mean = head.mean + off / (n + 1);
    /* Welford 1962; the deviation is worked out anew: it is all there is to keep */
    double squares = head.deviation * head.deviation * (n - 1) + off * (loss - mean);
    return (tm_loss_head){ .mean = mean, .deviation = n > 0 ? sqrt(squares / n) : 0, .n = head.n + 1 };
}

int64_t tm_loss_head_limit(int64_t steps)
{
    enum { MOST = 100 };
    int64_t wanted = steps / 10;
    return wanted < FEWEST ? FEWEST : wanted > MOST ? MOST : wanted;
}

static tm_loss_head head_of(const tm_evidence *e)
{
    return e->head.n >= FEWEST ? e->head : summary_of(e->losses, tenth(e->n_losses));
}

/* The last tenth. The scatter of very few losses is unknown: the head's is taken. */
static tm_loss_head tail_of(const tm_evidence *e)
{
    int64_t      n = tenth(e->n_losses);
    tm_loss_head tail = summary_of(e->losses + e->n_losses - n, n);
    if (n < FEWEST && e->head.n >= FEWEST) tail.deviation = e->head.deviation;
    return tail;
}

/* Standard error of the difference of the two means: small batches scatter, and that is no progress. */
static double ends_error(tm_loss_head head, tm_loss_head tail)
{
    return sqrt(head.deviation * head.deviation / (double)head.n + tail.deviation * tail.deviation / (double)tail.n);
}

/* Progress before a checkpoint does not excuse steps after it that undo it. */
static bool rose_since_checkpoint(const tm_evidence *e, tm_loss_head *from)
{
    tm_loss_head tail = tail_of(e);
    *from = summary_of(e->losses, tenth(e->n_losses));
    return e->head.n >= FEWEST && e->n_losses >= TM_JUDGED_STEPS &&
           tail.mean > from->mean + 3 * ends_error(*from, tail);
}

static void add(char reason[TM_REASON_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char reason[TM_REASON_BYTES], const char *format, ...)
{
    size_t  used = strlen(reason);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason + used, TM_REASON_BYTES - used, format, arguments);
    va_end(arguments);
}

/* The gate is not passed (reason says how): whoever was stopped on the way there has not failed. */
static tm_verdict not_passed(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    if (!e->interrupted) return TM_VERDICT_INVALID;
    add(reason, "; interrupted after step %lld", (long long)e->total_steps);
    return TM_VERDICT_NOT_JUDGED;
}

/* As not_passed, for a gate that looks at the last training losses: those of very few steps scatter too much. */
static tm_verdict no_progress(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    if (e->head.n < FEWEST || e->n_losses >= FEWEST) return not_passed(e, reason);
    add(reason, "; %lld steps since the checkpoint are too few to judge", (long long)e->n_losses);
    return TM_VERDICT_NOT_JUDGED;
}

static bool final_loss_known(const tm_evidence *e)
{
    return !isnan(e->validation);
}

/* Of the loss that is judged: held-out images have other times than those of training, held-out sequences may have
 * another length. */
static double final_floor(const tm_evidence *e)
{
    return final_loss_known(e) ? e->validation_floor : e->floor;
}

/* Samples that come once are as new to the model as those that are held out: where their losses are a tenth lower, and
 * by far more than they scatter, they are not those of the samples. A certificate shows as much, where there is one. */
static bool contradicts(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    static const double part = 0.9;
    tm_loss_head        tail = tail_of(e);
    double              error = isnan(e->validation_error) ? 0 : e->validation_error;
    bool                same = !(fabs(e->floor - e->validation_floor) > 0.01 * fabs(e->floor));
    if (!e->unproven || !same || !(tail.mean < part * e->validation - 5 * (tail.deviation + error))) return false;
    snprintf(reason, TM_REASON_BYTES,
             "the last training losses, %.4f, are far below the held-out loss, %.4f, though no sample comes twice, and "
             "there is no certificate",
             tail.mean, e->validation);
    return true;
}

/* The language's exact entropy is the floor: below it something leaks (a mask, a target), far above it nothing is
 * learnt. */
static tm_verdict judge_floor(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    double      first = head_of(e).mean, last = tail_of(e).mean, final = final_loss_known(e) ? e->validation : last;
    double      slack = 5 * (isnan(e->validation_error) ? 0.01 : e->validation_error);
    double      floor = final_floor(e);
    const char *what = e->images ? "the least possible loss" : "the language's entropy",
               *unit = e->images ? "" : " nat";
    if (final < floor - slack) {
        snprintf(reason, TM_REASON_BYTES, "loss %.4f is below %s %.4f: something leaks", final,
                 e->images ? what : "the entropy of the language", floor);
        return TM_VERDICT_INVALID;
    }
    bool learnt = !(e->unigram_entropy > floor) || final < floor + 0.99 * (e->unigram_entropy - floor);
    if (final <= floor + e->target_gap && !learnt) {
        snprintf(reason, TM_REASON_BYTES,
                 "loss %.4f is within %g nat of the floor, but not below what single tokens give, %.4f", final,
                 e->target_gap, e->unigram_entropy);
        return not_passed(e, reason);
    }
    if (final <= floor + e->target_gap) {
        snprintf(reason, TM_REASON_BYTES, "loss %.4f is within %g%s of %s %.4f", final, e->target_gap, unit, what,
                 floor);
        return TM_VERDICT_VALID;
    }
    if (e->must_reach_target) {
        snprintf(reason, TM_REASON_BYTES, "loss %.4f did not come within %g%s of %s %.4f", final, e->target_gap, unit,
                 what, floor);
        return not_passed(e, reason);
    }
    /* written so that a floor that is NaN does not pass */
    if (!(last < first - 0.01 * (first - e->floor)) || !(last < first - 3 * ends_error(head_of(e), tail_of(e)))) {
        snprintf(reason, TM_REASON_BYTES, "no progress: the mean loss went from %.4f to %.4f, the floor is %.4f", first,
                 last, e->floor);
        return no_progress(e, reason);
    }
    tm_loss_head own;
    if (rose_since_checkpoint(e, &own)) {
        snprintf(reason, TM_REASON_BYTES, "the mean loss rose from %.4f to %.4f since the checkpoint", own.mean, last);
        return no_progress(e, reason);
    }
    snprintf(reason, TM_REASON_BYTES, "loss fell from %.4f to %.4f towards the floor %.4f", first, last, e->floor);
    return TM_VERDICT_VALID;
}

/* Uniform tokens: all a model can learn is to say nothing, loss ln V; a model that does better sees its targets. */
static tm_verdict judge_uniform(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    double first = head_of(e).mean, last = tail_of(e).mean, target = e->unigram_entropy;
    double scatter = 3 * ends_error(head_of(e), tail_of(e));
    bool   near = fabs(last - target) < 0.05 * target, closer = fabs(last - target) < fabs(first - target) + scatter;
    if (last < target && !near) {
        snprintf(reason, TM_REASON_BYTES, "random tokens: loss %.4f is below ln V, %.4f: information leaks", last,
                 target);
        return TM_VERDICT_INVALID;
    }
    snprintf(reason, TM_REASON_BYTES, "random tokens: loss %.4f, ln V is %.4f%s", last, target,
             near || closer ? "" : ", and it does not come closer");
    return near || closer ? TM_VERDICT_VALID : no_progress(e, reason);
}

static tm_verdict judge_held_out(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    double final = final_loss_known(e) ? e->validation : tail_of(e).mean;
    if (e->images && !isnan(e->unigram_entropy)) {
        bool better = final < e->unigram_entropy;
        snprintf(reason, TM_REASON_BYTES, "held-out loss %.4f, without any prediction %.4f%s", final,
                 e->unigram_entropy, better ? "" : ": nothing was learned");
        return better ? TM_VERDICT_VALID : not_passed(e, reason);
    }
    if (isnan(e->unigram_entropy)) {
        snprintf(reason, TM_REASON_BYTES,
                 "no data is held out to compare with (data.validation_fraction, data.validation_path)");
        return TM_VERDICT_NOT_JUDGED;
    }
    if (final < least_of_compressed * e->compressed) { /* false where it is NAN */
        snprintf(reason, TM_REASON_BYTES,
                 "held-out loss %.4f is less than a fifth of what a compressor needs, %.4f: the model sees the "
                 "targets, or the "
                 "held-out text is in the training text",
                 final, e->compressed);
        return TM_VERDICT_INVALID;
    }
    bool passed = final < e->unigram_entropy;
    snprintf(reason, TM_REASON_BYTES, "held-out loss %.4f %s the unigram baseline, %.4f%s", final,
             passed ? "beats" : "does not beat", e->unigram_entropy,
             passed ? "" : ": nothing was learned beyond the frequencies of tokens");
    return passed ? TM_VERDICT_VALID : not_passed(e, reason);
}

/* Pairs: the model that begins is the reference, so the loss of the first step is known; then it falls, also on pairs
 * that are held out. */
static tm_verdict judge_preference(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    static const double slack = 1e-5; /* of losses of tokens that are stored in float32 */
    double              first = head_of(e).mean, last = tail_of(e).mean;
    if (!isnan(e->start) && !(fabs(e->first_loss - e->start) <= slack * (1 + e->start))) {
        snprintf(reason, TM_REASON_BYTES,
                 "the first loss is %.6f, wanted %.6f: the model that begins is not what it is compared with",
                 e->first_loss, e->start);
        return TM_VERDICT_INVALID;
    }
    if (!(last < first - 3 * ends_error(head_of(e), tail_of(e)))) {
        snprintf(reason, TM_REASON_BYTES, "no progress: the mean loss went from %.4f to %.4f", first, last);
        return no_progress(e, reason);
    }
    if (final_loss_known(e) && !(isnan(e->start) || e->validation < e->start)) {
        snprintf(reason, TM_REASON_BYTES,
                 "held-out loss %.4f, without training %.4f: what was learned holds for the training pairs only",
                 e->validation, e->start);
        return not_passed(e, reason);
    }
    tm_loss_head own;
    if (rose_since_checkpoint(e, &own)) {
        snprintf(reason, TM_REASON_BYTES, "the mean loss rose from %.4f to %.4f since the checkpoint", own.mean, last);
        return no_progress(e, reason);
    }
    snprintf(reason, TM_REASON_BYTES, "loss fell from %.4f to %.4f", first, last);
    if (final_loss_known(e)) add(reason, ", held-out %.4f", e->validation);
    return TM_VERDICT_VALID;
}

/* Fewer than 10 steps show no drift: then it is NAN. */
static bool unsteady(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    const tm_steady *s = e->steady;
    if (!s || s->reached || isnan(s->drift)) return false;
    if (fabs(s->shift) > TM_STEADY_PERCENT)
        add(reason, "; the step time changed by %+.1f %% at step %lld", s->shift,
            (long long)(e->total_steps - e->n_losses + s->shift_at + 1));
    else if (s->drift_lo > TM_STEADY_PERCENT || s->drift_hi < -TM_STEADY_PERCENT)
        add(reason, "; the step time drifts by %+.1f %%", s->drift);
    else
        add(reason, "; steady state was not reached in the first half of the steps");
    return true;
}

/* Training that passed its gate: is its speed to be trusted? */
static tm_verdict judge_measurement(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    tm_verdict verdict = TM_VERDICT_VALID;
    if (e->machine_reason && e->machine == TM_VERDICT_INVALID) {
        add(reason, "; but the figures do not measure this machine: %s", e->machine_reason);
        return TM_VERDICT_INVALID;
    }
    if (e->step_variation > noisy_variation) {
        add(reason, "; step times vary by %.0f %%", 100 * e->step_variation);
        verdict = TM_VERDICT_NOISY;
    }
    if (unsteady(e, reason)) verdict = TM_VERDICT_NOISY;
    if (e->machine_reason && e->machine == TM_VERDICT_NOISY) {
        add(reason, "; %s", e->machine_reason);
        verdict = TM_VERDICT_NOISY;
    }
    return verdict;
}

static tm_verdict judge_loss(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    switch (e->gate) {
    case TM_GATE_FLOOR:
        return judge_floor(e, reason);
    case TM_GATE_UNIFORM:
        return judge_uniform(e, reason);
    case TM_GATE_HELD_OUT:
        return judge_held_out(e, reason);
    case TM_GATE_PREFERENCE:
        return judge_preference(e, reason);
    }
    TM_ASSERT(!"a source without a gate");
    return TM_VERDICT_INVALID;
}

static tm_verdict too_few(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    snprintf(reason, TM_REASON_BYTES, "%lld steps are too few to judge (%d are needed)", (long long)e->total_steps,
             TM_JUDGED_STEPS);
    return TM_VERDICT_NOT_JUDGED;
}

/* What a run without an injected slowdown is. */
static tm_verdict judge(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    if (e->unrepeatable) {
        snprintf(reason, TM_REASON_BYTES, "%s", e->unrepeatable);
        return TM_VERDICT_INVALID;
    }
    if (!e->finite) {
        snprintf(reason, TM_REASON_BYTES, "a loss or gradient norm is not finite%s%.900s", e->nonfinite ? ": " : "",
                 e->nonfinite ? e->nonfinite : "");
        return TM_VERDICT_INVALID;
    }
    if (e->impossible) {
        snprintf(reason, TM_REASON_BYTES, "%s", e->impossible);
        return TM_VERDICT_INVALID;
    }
    if (e->n_losses == 0 && e->total_steps > 0) {
        snprintf(reason, TM_REASON_BYTES, "all %lld steps were done before this process, so their times are not known",
                 (long long)e->total_steps);
        return TM_VERDICT_NOT_JUDGED;
    }
    bool reached = final_loss_known(e) && e->gate == TM_GATE_FLOOR && e->validation <= final_floor(e) + e->target_gap;
    if (e->total_steps < TM_JUDGED_STEPS && !reached) return too_few(e, reason);
    if (e->not_training) {
        snprintf(reason, TM_REASON_BYTES, "%s", e->not_training);
        return TM_VERDICT_INVALID;
    }
    if (contradicts(e, reason)) return TM_VERDICT_INVALID;
    tm_verdict verdict = judge_loss(e, reason);
    /* Reached, but that was not its goal: so short a run has no certificate. */
    if (verdict == TM_VERDICT_VALID && e->total_steps < TM_JUDGED_STEPS && !e->must_reach_target)
        return too_few(e, reason);
    return verdict == TM_VERDICT_VALID ? judge_measurement(e, reason) : verdict;
}

tm_verdict tm_verdict_of(const tm_evidence *e, char reason[TM_REASON_BYTES])
{
    tm_verdict verdict = judge(e, reason);
    if (!(e->slowdown_pct > 0)) return verdict;
    char plain[TM_REASON_BYTES];
    memcpy(plain, reason, sizeof plain);
    snprintf(reason, TM_REASON_BYTES, "slowed down by %g %% on purpose (debug.slowdown_pct); %.900s", e->slowdown_pct,
             plain);
    return verdict == TM_VERDICT_INVALID ? verdict : TM_VERDICT_NOT_JUDGED;
}

bool tm_certificate_fails(const tm_certificate *c)
{
    return (c->evaluated && !c->loss_agrees) || (c->done && !c->gradients) ||
           (c->looked_ahead && !(c->causal && c->context));
}

/* The direction that is told is the farthest of up to three that decide together by the root of their mean square. */
bool tm_certificate_agrees(const tm_certificate *c)
{
    return fabs(c->measured - c->expected) <= sqrt(3) * c->band; /* not with a NaN */
}

bool tm_phases_exceed(double phases, double all, int64_t steps)
{
    static const double slack = 0.01, per_step = 5e-6;
    return phases > all * (1 + slack) + per_step * (double)steps;
}
