/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer/schedule.h"

#include <math.h>
#include <stdbool.h>

static const double pi = 3.14159265358979323846;

/* The warm-up; a whole number of steps in all kinds but Megatron's. */
static double warmup_of(const tm_schedule *s)
{
    return s->warmup_fraction > 0 ? s->warmup_fraction * (double)s->steps : (double)s->warmup_steps;
}

/* What Megatron-LM asserts. */
static tm_status check_megatron(const tm_schedule *s, tm_error *err)
{
    if (!(warmup_of(s) < (double)s->steps))
        return tm_fail(
            err, TM_INVALID,
            "schedule: a warm-up of %g steps, fewer than its %lld steps wanted (lr_scheduler.form megatron); "
            "lower lr_scheduler.warmup_steps (lr_warmup_iters) or raise lr_scheduler.total_steps "
            "(lr_decay_iters)",
            warmup_of(s), (long long)s->steps);
    if (!(s->warmup_factor >= 0 && s->warmup_factor <= 1))
        return tm_fail(err, TM_INVALID, "schedule: the warm-up begins at %g of the rate, 0 to 1 wanted",
                       s->warmup_factor);
    return TM_OK;
}

tm_status tm_schedule_check(const tm_schedule *s, tm_error *err)
{
    if (s->steps < 1) return tm_fail(err, TM_INVALID, "schedule: %lld steps, at least 1 wanted", (long long)s->steps);
    if (s->warmup_steps < 0)
        return tm_fail(err, TM_INVALID, "schedule: %lld warm-up steps, at least 0 wanted", (long long)s->warmup_steps);
    if (!(s->decay_ratio <= 1)) /* written so that NaN fails */
        return tm_fail(err, TM_INVALID, "schedule: decay ratio %g, at most 1 wanted", s->decay_ratio);
    if (!(s->min_lr_factor >= 0 && s->min_lr_factor <= 1))
        return tm_fail(err, TM_INVALID, "schedule: lowest factor %g, 0 to 1 wanted", s->min_lr_factor);
    return s->kind == TM_SCHEDULE_MEGATRON ? check_megatron(s, err) : TM_OK;
}

static int64_t decay_steps(const tm_schedule *s, int64_t warmup)
{
    int64_t left = s->steps - warmup;
    if (s->last_steps == 0 && s->decay_ratio < 0) return left;
    int64_t wanted = s->last_steps ? s->last_steps : (int64_t)nearbyint((double)s->steps * s->decay_ratio);
    return wanted < left ? wanted : left;
}

static double decayed(const tm_schedule *s, double p)
{
    double a = 1 - p;
    if (s->decay == TM_DECAY_SQRT) a = 1 - sqrt(p);
    if (s->decay == TM_DECAY_COSINE) a = 0.5 * (1 + cos(pi * p));
    if (s->decay == TM_DECAY_EXPONENTIAL) a = 2 * pow(0.5, p) - 1;
    return s->min_lr_factor + (1 - s->min_lr_factor) * a;
}

static double megatron_factor(const tm_schedule *s, double step)
{
    double warmup = warmup_of(s), all = (double)s->steps, last = (double)s->last_steps;
    if (warmup > 0 && step <= warmup) return s->warmup_factor + (1 - s->warmup_factor) * step / warmup;
    if (s->decay_ratio >= 0 && s->last_steps == 0) return 1;
    if (step > all) return s->min_lr_factor;
    if (s->decay == TM_DECAY_INVERSE_SQRT) {
        double batch = (double)s->batch;
        return fmax(s->min_lr_factor, sqrt(fmax(warmup * batch, 1) / fmax(step * batch, 1)));
    }
    if (s->last_steps > 0) return step <= all - last ? 1 : decayed(s, (step - all + last) / last);
    return decayed(s, (step - warmup) / (all - warmup));
}

static double torchtune_factor(const tm_schedule *s, double step)
{
    double warmup = (double)s->warmup_steps, left = fmax(1, (double)s->steps - warmup);
    if (step < warmup) return step / warmup;
    return fmax(0, 0.5 * (1 + cos(2 * pi * s->cycles * (step - warmup) / left)));
}

/* MLPerf Training rules, llama31_8b: the last warm-up step is step W, and it already has the peak. */
static double nemo_factor(const tm_schedule *s, int64_t warmup, int64_t step)
{
    if (step <= warmup) return (double)(step + 1) / (double)(warmup + 1);
    if (step > s->steps) return s->min_lr_factor;
    double p = (double)(step - warmup) / (double)(s->steps - warmup);
    return s->min_lr_factor + (1 - s->min_lr_factor) * 0.5 * (1 + cos(pi * p));
}

int64_t tm_schedule_decay_steps(const tm_schedule *s)
{
    int64_t warmup = s->warmup_steps < s->steps ? s->warmup_steps : s->steps;
    bool    whole = s->kind == TM_SCHEDULE_NEMO || s->kind == TM_SCHEDULE_TORCHTUNE;
    return whole ? s->steps - warmup : decay_steps(s, warmup);
}

const char *tm_schedule_words(const tm_schedule *s)
{
    static const char *const shapes[] = { "linear warmup, stable, linear decay", "linear warmup, stable, sqrt decay",
                                          "linear warmup, stable, cosine decay",
                                          "linear warmup, stable, exponential decay",
                                          "linear warmup, inverse square root" };
    if (s->kind == TM_SCHEDULE_TORCHTUNE) return "linear warmup from 0, cosine";
    if (s->kind == TM_SCHEDULE_NEMO) return "cosine with linear warmup";
    return tm_schedule_decay_steps(s) == 0 ? "constant after linear warmup" : shapes[s->decay];
}

double tm_schedule_factor(const tm_schedule *s, int64_t step)
{
    TM_ASSERT(step >= 0 && s->steps >= 1);
    int64_t warmup = s->warmup_steps < s->steps ? s->warmup_steps : s->steps;
    if (s->kind == TM_SCHEDULE_NEMO) return nemo_factor(s, warmup, step);
    if (s->kind == TM_SCHEDULE_MEGATRON) return megatron_factor(s, (double)step);
    if (s->kind == TM_SCHEDULE_TORCHTUNE) return torchtune_factor(s, (double)step);
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    int64_t decay = decay_steps(s, warmup), flat_until = s->steps + 1 - decay; /* W + N */
    if (step < flat_until || decay == 0) return 1;
    double p = (double)(step + 1 - flat_until) / (double)decay;
    return decayed(s, fmin(p, 1));
}
