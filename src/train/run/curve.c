/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run/curve.h"

#include "base/hash.h"
#include "train/checkpoint/description.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the text of tm_curve_describe; whoever changes the main job stores its losses anew (docs/certificate.md). */
static const uint64_t main_job = 0xc5373c85ef2dcaa7;

static const double slack = 0.05;

/* Step 1 first, of kernels that sum in this order. */
static const char   order[] = "fused";
static const double stored[] = {
#define LOSS(value) value,
#include "train/run/curve.def"
#undef LOSS
};

void tm_curve_describe(const tm_run_options *o, tm_text *out)
{
    const tm_step_options   *s = &o->step;
    const tm_source_options *d = &o->source;
    tm_description_print(&s->shape, out);
    tm_text_printf(out, "init %d %.17g\nprecision %s\n", s->shape.init, s->shape.init_std, s->precision->name);
    tm_text_printf(out, "data %s vocab %lld seq %lld seed %llu\n", d->name, (long long)d->vocab, (long long)d->seq,
                   (unsigned long long)d->seed);
    tm_text_printf(out, "batch %lld x %lld, %lld passes, seed %llu\n", (long long)s->micro_batch, (long long)s->seq,
                   (long long)s->accumulation, (unsigned long long)o->seed);
    tm_text_printf(out, "optimizer %s %.17g %.17g %.17g %.17g, %d groups\n", s->optimizer->name, s->hyper.beta1,
                   s->hyper.beta2, s->hyper.eps, s->hyper.weight_decay, s->n_groups);
    tm_text_printf(out, "rate %.17g norm %.17g schedule %d %lld %lld %.17g %d %.17g\n", o->learning_rate, o->max_norm,
                   o->schedule.kind, (long long)o->schedule.steps, (long long)o->schedule.warmup_steps,
                   o->schedule.decay_ratio, o->schedule.decay, o->schedule.min_lr_factor);
}

bool tm_curve_is_main(const tm_run_options *options)
{
    tm_text text = { 0 };
    if (options->load_weights) return false;
    tm_curve_describe(options, &text);
    bool is = tm_hash(text.data, text.length) == main_job;
    tm_text_fini(&text);
    return is;
}

void tm_curve_compare(const char *sums, const double *losses, int64_t first_step, int64_t n, tm_curve *out,
                      char why[TM_REASON_BYTES])
{
    const int64_t size = sizeof stored / sizeof stored[0];
    const bool    same = sums && strcmp(sums, order) == 0;
    *out = (tm_curve){ .equal = same && n > 0 && first_step <= size };
    why[0] = '\0';
    for (int64_t i = 0, at = first_step - 1; i < n && at < size; i++, at++) {
        int64_t width = 3 + at / 10;
        double  low = stored[at], high = low;
        out->steps++;
        if (same && losses[i] <= stored[at] && losses[i] >= stored[at]) continue;
        out->equal = false;
        for (int64_t k = at - width; k <= at + width; k++) {
            if (k < 0 || k >= size) continue;
            low = fmin(low, stored[k]);
            high = fmax(high, stored[k]);
        }
        if (!why[0] && !(losses[i] >= low - slack && losses[i] <= high + slack))
            snprintf(why, TM_REASON_BYTES,
                     "the loss of step %lld is %.4f; in the main job it lies between %.4f and %.4f there",
                     (long long)(first_step + i), losses[i], low - slack, high + slack);
    }
}
