/* SPDX-License-Identifier: Apache-2.0 */
#include "train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

tm_status tm_schedule_check(const tm_schedule *s, tm_error *err)
{
    if (s->steps < 1) return tm_fail(err, TM_INVALID, "schedule: %lld steps, at least 1 wanted", (long long)s->steps);
    if (s->warmup_steps < 0)
        return tm_fail(err, TM_INVALID, "schedule: %lld warm-up steps, at least 0 wanted", (long long)s->warmup_steps);
    if (!(s->decay_ratio <= 1)) /* written so that NaN fails */
        return tm_fail(err, TM_INVALID, "schedule: decay ratio %g, at most 1 wanted", s->decay_ratio);
    if (!(s->min_lr_factor >= 0 && s->min_lr_factor <= 1))
        return tm_fail(err, TM_INVALID, "schedule: lowest factor %g, 0 to 1 wanted", s->min_lr_factor);
    return TM_OK;
}

static int64_t decay_steps(const tm_schedule *s, int64_t warmup)
{
    int64_t left = s->steps - warmup;
    if (s->decay_ratio < 0) return left;
    int64_t wanted = (int64_t)nearbyint((double)s->steps * s->decay_ratio);
    return wanted < left ? wanted : left;
}

static double decayed(const tm_schedule *s, double p)
{
    double a = 1 - p;
    if (s->decay == TM_DECAY_SQRT) a = 1 - sqrt(p);
    if (s->decay == TM_DECAY_COSINE) a = 0.5 * (1 + cos(pi * p));
    return s->min_lr_factor + (1 - s->min_lr_factor) * a;
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
    return s->kind == TM_SCHEDULE_WARMUP_STABLE_DECAY ? decay_steps(s, warmup) : s->steps - warmup;
}

const char *tm_schedule_words(const tm_schedule *s)
{
    static const char *const shapes[] = { "linear warmup, stable, linear decay", "linear warmup, stable, sqrt decay",
                                          "linear warmup, stable, cosine decay" };
    if (s->kind == TM_SCHEDULE_NEMO) return "cosine with linear warmup";
    return tm_schedule_decay_steps(s) == 0 ? "constant after linear warmup" : shapes[s->decay];
}

double tm_schedule_factor(const tm_schedule *s, int64_t step)
{
    TM_ASSERT(step >= 0 && s->steps >= 1);
    int64_t warmup = s->warmup_steps < s->steps ? s->warmup_steps : s->steps;
    if (s->kind == TM_SCHEDULE_NEMO) return nemo_factor(s, warmup, step);
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    int64_t decay = decay_steps(s, warmup), flat_until = s->steps + 1 - decay; /* W + N */
    if (step < flat_until || decay == 0) return 1;
    double p = (double)(step + 1 - flat_until) / (double)decay;
    return decayed(s, fmin(p, 1));
}
