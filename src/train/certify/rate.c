/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/rate.h"

#include <math.h>

/* What is left of the way from 1 down to the least factor, where `part` of its steps are over. */
static double left_of(tm_decay_shape shape, double part)
{
    switch (shape) {
    case TM_DECAY_LINEAR:
        return 1 - part;
    case TM_DECAY_SQRT:
        return 1 - sqrt(part);
    case TM_DECAY_COSINE:
        return (1 + cos(M_PI * part)) / 2;
    case TM_DECAY_EXPONENTIAL:
        return exp2(1 - part) - 1;
    case TM_DECAY_INVERSE_SQRT:
        break;
    }
    return (double)NAN; /* a formula of its own */
}

static double between(double least, double part)
{
    return least + (1 - least) * part;
}

/* torchtitan's: warm-up over W steps, then a stable part, then D steps of decay; its last step is one short of the
 * minimum. */
static double stable_factor(const tm_schedule *s, double n)
{
    double steps = (double)s->steps, warmup = fmin((double)s->warmup_steps, steps), decay = steps - warmup;
    if (s->last_steps > 0)
        decay = fmin(decay, (double)s->last_steps);
    else if (s->decay_ratio >= 0)
        decay = fmin(decay, rint(steps * s->decay_ratio));
    if (n <= warmup) return n / warmup;
    double over = n - (steps + 1 - decay); /* steps of the decay that are done */
    if (over <= 0 || decay <= 0) return 1;
    return between(s->min_lr_factor, left_of(s->decay, fmin(over / decay, 1)));
}

/* megatron's OptimizerParamScheduler.get_lr, behind n - 1 steps. */
static double megatron_factor(const tm_schedule *s, double done)
{
    double steps = (double)s->steps, last = (double)s->last_steps, batch = (double)s->batch;
    double warmup = s->warmup_fraction > 0 ? s->warmup_fraction * steps : (double)s->warmup_steps;
    if (warmup > 0 && done <= warmup) return between(s->warmup_factor, done / warmup);
    if (s->decay_ratio >= 0 && !(last > 0)) return 1; /* it is constant */
    if (done > steps) return s->min_lr_factor;
    if (s->decay == TM_DECAY_INVERSE_SQRT)
        return fmax(s->min_lr_factor, sqrt(fmax(warmup * batch, 1)) / sqrt(fmax(done * batch, 1)));
    if (last > 0 && done <= steps - last) return 1;
    return between(s->min_lr_factor,
                   left_of(s->decay, last > 0 ? (done - (steps - last)) / last : (done - warmup) / (steps - warmup)));
}

/* NeMo's CosineAnnealing with a linear warm-up whose last step, number W + 1, has the peak. */
static double nemo_factor(const tm_schedule *s, double done)
{
    double steps = (double)s->steps, warmup = fmin((double)s->warmup_steps, steps);
    if (done <= warmup) return (done + 1) / (warmup + 1);
    if (done > steps) return s->min_lr_factor;
    return between(s->min_lr_factor, left_of(TM_DECAY_COSINE, (done - warmup) / (steps - warmup)));
}

/* torchtune's get_cosine_schedule_with_warmup. */
static double torchtune_factor(const tm_schedule *s, double done)
{
    double warmup = (double)s->warmup_steps, way = fmax(1, (double)s->steps - warmup);
    if (done < warmup) return done / warmup;
    return fmax(0, (1 + cos(M_PI * 2 * s->cycles * (done - warmup) / way)) / 2);
}

double tm_certified_factor(const tm_schedule *s, int64_t number)
{
    double n = (double)number;
    switch (s->kind) {
    case TM_SCHEDULE_WARMUP_STABLE_DECAY:
        return stable_factor(s, n);
    case TM_SCHEDULE_MEGATRON:
        return megatron_factor(s, n - 1);
    case TM_SCHEDULE_NEMO:
        return nemo_factor(s, n - 1);
    case TM_SCHEDULE_TORCHTUNE:
        return torchtune_factor(s, n - 1);
    }
    return (double)NAN;
}
