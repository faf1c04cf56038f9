/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/update.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "graph/value.h"
#include "train/certify/samples.h"
#include "train/certify/rate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- before the update -------------------------------------------------------------------------------------------- */

/* min(1, max_norm / (norm + 1e-6)). Ranks add up what they round. */
static tm_status find_clip(tm_update_check *c, tm_error *err)
{
    const double slack = 0x1p-18 + (c->narrow ? 0x1p-8 : 0), most = c->rule.max_norm;
    TM_TRY(tm_motion_norm(&c->motion, &c->norm, err));
    c->norm_slack = slack;
    c->clip = 1;
    if (!(most > 0)) return TM_OK;
    double wanted = most / (c->norm + 1e-6);
    c->clip = fmin(1, wanted);
    c->clip_slack = wanted > 1 + slack ? 0 : slack; /* not clipped for certain */
    return TM_OK;
}

static tm_status watch(tm_update_check *c, tm_error *err)
{
    TM_TRY(find_clip(c, err));
    tm_samples_choose(c);
    for (size_t i = 0; i < c->n_samples; i++) {
        tm_status st = tm_sample_take(c, &c->samples[i], err);
        if (st == TM_OK) st = tm_sample_reckon(c, &c->samples[i], err);
        tm_sample_let_go(&c->samples[i]);
        if (st != TM_OK) return st;
    }
    return TM_OK;
}

tm_status tm_update_watch(tm_trainer *trainer, const tm_update_rule *rule, int64_t step, uint64_t seed,
                          tm_update_check **out, tm_error *err)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    tm_update_check       *c = *out = tm_alloc(sizeof *c);
    TM_TRY(tm_device_wait(tm_trainer_device(trainer), err)); /* from here on time is the certificate's */
    const int64_t begin = tm_now_ns();
    c->trainer = trainer;
    c->step = tm_trainer_step_of(trainer);
    c->rule = *rule;
    c->number = step;
    c->seed = tm_random_u64(seed, tm_random_stream("update"), (uint64_t)step);
    c->rate = rule->learning_rate * tm_certified_factor(&rule->schedule, step);
    c->terms = tm_layout_size(&o->layout, TM_AXES_WORLD) + (o->layout.parts > 1 ? (int)o->layout.parts : 0);
    c->narrow = c->terms > 1 && (o->layout.narrow || o->precision->gradient == TM_BF16);
    tm_motion_open(trainer, false, &c->motion);
    tm_status st = watch(c, err);
    c->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

double tm_update_seconds(const tm_update_check *c)
{
    return c->seconds;
}

void tm_update_free(tm_update_check *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_samples; i++) tm_sample_fini(&c->samples[i]);
    free(c->samples);
    tm_motion_fini(&c->motion);
    free(c);
}

/* --- behind it ---------------------------------------------------------------------------------------------------- */

static void violated(tm_update_certificate *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void violated(tm_update_certificate *to, const char *format, ...)
{
    va_list arguments;
    if (!to->agrees) return; /* the first one is told */
    to->agrees = false;
    va_start(arguments, format);
    vsnprintf(to->reason, sizeof to->reason, format, arguments);
    va_end(arguments);
}

/* In words: what it was worked out with. */
static void say_terms(const tm_update_check *c, const tm_sample *s, char out[200])
{
    snprintf(out, 200, "%s, learning rate %.6g, weight decay %g, clip %.6g", c->step->options.optimizer->name,
             s->terms.rate, s->terms.decay, c->clip);
}

/* Is `found`, kept in a format that rounds by `unit` of itself, the number that was reckoned? */
static void compare(const tm_update_check *c, const tm_sample *s, const char *what, int64_t i, double found,
                    tm_reckoned wanted, double unit, tm_update_certificate *to)
{
    char   terms[200];
    double band = wanted.slack + unit * (fabs(wanted.value) + wanted.slack) + TM_LEAST_STORED;
    double part = fabs(found - wanted.value) / band;
    if (!isfinite(wanted.value) || !isfinite(wanted.slack)) return; /* as is the loss: that is said elsewhere */
    if (!(part <= to->largest)) to->largest = part;
    if (part <= 1) return;
    say_terms(c, s, terms);
    violated(to,
             "the update of %.100s is not what the configuration asks for: step %lld, element %lld: %s %.9g, wanted "
             "%.9g (band %.2g; %s)",
             tm_sample_name(s), (long long)c->number, (long long)(s->first + i), what, found, wanted.value, band,
             terms);
}

static void compare_weights(const tm_update_check *c, const tm_sample *s, const double *found, const double *rest,
                            tm_update_certificate *to)
{
    for (int64_t i = 0; i < s->n; i++) {
        bool kept = rest && i >= s->held_from && i < s->held_to; /* what rounding took is here, too */
        if (!s->has_owner[i])
            violated(to, "step %lld: nobody updates %.100s, element %lld", (long long)c->number, tm_sample_name(s),
                     (long long)(s->first + i));
        else
            compare(c, s, "the weight is", i, kept ? found[i] + rest[i] : found[i], s->expected[i],
                    kept ? 0x1p-17 : s->unit, to);
        to->elements++;
    }
}

/* Ranks that have the same weights have the same bits. */
static tm_status compare_ranks(tm_update_check *c, const tm_sample *s, const double *found, tm_update_certificate *to,
                               tm_error *err)
{
    double *mean = tm_alloc((size_t)s->n * sizeof *mean);
    for (int k = 0; k < 2; k++) {
        int       ranks = tm_layout_size(&c->step->options.layout, s->alike[k]);
        tm_status st = TM_OK;
        if (s->alike[k] == 0 || ranks == 1) continue;
        memcpy(mean, found, (size_t)s->n * sizeof *mean);
        st = tm_trainer_sum(c->trainer, s->alike[k], mean, (size_t)s->n, err);
        if (st != TM_OK) free(mean);
        TM_TRY(st);
        for (int64_t i = 0; i < s->n; i++)
            if (!(fabs(mean[i] / ranks - found[i]) <= 0x1p-48 * fabs(found[i])))
                violated(to,
                         "ranks have different weights behind step %lld: element %lld of %.100s is %.9g on one, %.9g "
                         "on the average of %d",
                         (long long)c->number, (long long)(s->first + i), tm_sample_name(s), found[i], mean[i] / ranks,
                         ranks);
    }
    free(mean);
    return TM_OK;
}

static double clamped(double x, double lo, double hi)
{
    return fmin(fmax(x, lo), hi);
}

/* Codes of a block: its scale is the largest size, and no value of the map is nearer than the code's. */
static void compare_block(const tm_update_check *c, const tm_sample *s, int which, const double *codes, double scale,
                          int64_t first, int64_t n, tm_update_certificate *to)
{
    const double *map = c->map[which];
    const bool    torchao = s->hyper.definition == TM_DEFINED_TORCHAO;
    char          what[40];
    tm_reckoned   wanted = { 0 };
    for (int64_t i = first; i < first + n; i++) {
        const tm_reckoned *m = &s->moments[which][i];
        if (fabs(m->value) > wanted.value) wanted.value = fabs(m->value);
        wanted.slack = fmax(wanted.slack, m->slack);
    }
    if (torchao) wanted.value = fmax(wanted.value, 1e-12);
    if (!torchao && !(wanted.value > 0)) wanted.value = 1;
    snprintf(what, sizeof what, "the scale of moment %d is", which + 1);
    compare(c, s, what, first, scale, wanted, 0x1p-23, to);
    snprintf(what, sizeof what, "moment %d is", which + 1);
    for (int64_t i = first; i < first + n; i++) {
        int         k = (int)codes[i];
        double      below = k > 0 ? map[k - 1] : which == 0 ? -2 - map[0] : 0; /* the lowest code goes down to -1 */
        double      above = k < 255 ? map[k + 1] : map[255];
        tm_reckoned m = s->moments[which][i];
        double      value = m.value / scale; /* what is nearest to it is the code's */
        double      near = clamped(value, (map[k] + below) / 2, (map[k] + above) / 2);
        m.slack = m.slack + 0x1p-20 * fabs(m.value);
        m.value = value * scale;
        compare(c, s, what, i, near * scale, m, 0x1p-22, to);
    }
}

static tm_status compare_coded(tm_update_check *c, const tm_sample *s, int which, tm_update_certificate *to,
                               tm_error *err)
{
    double   *codes = tm_alloc((size_t)s->n * sizeof *codes);
    tm_status st = tm_values_read(c->trainer, s->states[which], s->first, s->n, codes, err);
    for (int64_t at = 0; at < s->n && st == TM_OK; at += TM_SAMPLE_BLOCK) {
        double  scale;
        int64_t n = s->n - at < TM_SAMPLE_BLOCK ? s->n - at : TM_SAMPLE_BLOCK;
        st = tm_values_read(c->trainer, s->states[2 + which], (s->first + at) / TM_SAMPLE_BLOCK, 1, &scale, err);
        if (st == TM_OK) compare_block(c, s, which, codes, scale, at, n, to);
    }
    free(codes);
    return st;
}

/* What this rank has of the sample's moments. */
static tm_status compare_moments(tm_update_check *c, const tm_sample *s, tm_update_certificate *to, tm_error *err)
{
    static const char *const what[] = { "moment 1 is", "moment 2 is" };
    for (int k = 0; k < 2; k++) {
        if (!s->moments[k] || s->states[k] == TM_NONE || s->held_to <= s->held_from) continue;
        if (s->formula == TM_FORMULA_CODED) {
            TM_TRY(compare_coded(c, s, k, to, err));
            continue;
        }
        const int64_t from = s->moment_n[k] >= 0 ? 0 : s->held_from,
                      n = s->moment_n[k] >= 0 ? s->moment_n[k] : s->held_to - from;
        const int64_t at = s->moment_n[k] >= 0 ? 0 : s->first + from - s->state_first;
        double       *found = tm_alloc((size_t)n * sizeof *found);
        double        unit = tm_unit_stored(tm_graph_at(c->step->graph, s->states[k])->dtype, s->hyper.stochastic);
        tm_status     st = tm_values_read(c->trainer, s->states[k], at, n, found, err);
        for (int64_t i = 0; i < n && st == TM_OK; i++)
            compare(c, s, what[k], from + i, found[i], s->moments[k][from + i], unit, to);
        free(found);
        TM_TRY(st);
    }
    return TM_OK;
}

static tm_status judge_sample(tm_update_check *c, const tm_sample *s, tm_update_certificate *to, tm_error *err)
{
    double       *found = tm_alloc((size_t)s->n * sizeof *found), *rest = NULL;
    tm_status     st = tm_values_read(c->trainer, s->member->id, s->first, s->n, found, err);
    const int64_t held = s->held_to - s->held_from;
    if (st == TM_OK && s->rest != TM_NONE && held > 0) {
        rest = tm_alloc((size_t)s->n * sizeof *rest);
        st = tm_values_read(c->trainer, s->rest, s->first + s->held_from - s->state_first, held, rest + s->held_from,
                            err);
    }
    if (st == TM_OK && s->expected) compare_weights(c, s, found, rest, to);
    if (st == TM_OK) st = compare_ranks(c, s, found, to, err);
    if (st == TM_OK) st = compare_moments(c, s, to, err);
    free(found);
    free(rest);
    return st;
}

tm_status tm_update_judge(tm_update_check *c, const tm_step_result *told, tm_update_certificate *to, tm_error *err)
{
    const int64_t begin = tm_now_ns();
    tm_status     st = TM_OK;
    TM_ASSERT(to->n_steps < TM_UPDATES_LOOKED_AT);
    to->steps[to->n_steps++] = c->number;
    for (size_t i = 0; i < c->n_samples && st == TM_OK; i++) st = judge_sample(c, &c->samples[i], to, err);
    if (!(fabs(told->grad_norm - c->norm) <= 2 * c->norm_slack * c->norm) && isfinite(c->norm))
        violated(to, "step %lld reports a gradient norm of %.9g, and that of all gradients is %.9g",
                 (long long)c->number, told->grad_norm, c->norm);
    if (c->step->options.optimizer->formula == TM_FORMULA_NONE)
        snprintf(to->partly, sizeof to->partly, "the certificate has no formula of %s: no weight was worked out again",
                 c->step->options.optimizer->name);
    else if (c->left_out > 0)
        snprintf(to->partly, sizeof to->partly, "%zu of %zu tensors are too large for %s to be worked out again",
                 c->left_out, c->motion.n_members, c->step->options.optimizer->name);
    to->seconds += c->seconds + (double)(tm_now_ns() - begin) * 1e-9;
    tm_update_free(c);
    return st;
}
