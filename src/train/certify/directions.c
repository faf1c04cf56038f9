/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/directions.c - the change of the loss along random directions against what the gradients say of it; the
 * group that is wrong, if one is (docs/certificate.md). */
#include "train/certify/losses.h"

#include "base/random.h"

#include <math.h>
#include <stdio.h>

/* How far elements are moved at random at most, in units of their tensor's size; by how much steps become shorter. */
static const double fine_part = 0x1p-5, coarse_part = 0x1p-8, exact_part = 0x1p-10, shrink = 0x1p-3;

typedef struct {
    double expected, measured, band;
    double middle, reach; /* mean of the two losses; how far the gradient alone moves the loss */
    bool   jumped;        /* tokens went to other experts on the way */
} comparison;

static bool holds(const comparison *x)
{
    return fabs(x->measured - x->expected) <= x->band; /* so that a NaN does not */
}

/* The part of the groups' changes that they may differ by, and that of the second motion's. Of gradients in bfloat16
 * whose losses are in float32: what rounding makes of these gradients, which is most where targets are known, as what
 * is left of them there is the difference of two numbers that are nearly equal. */
static void parts_of(const tm_certifier *c, double *groups, double *second)
{
    *groups = c->exact ? 0.03 + 0.15 * exp(-fabs(c->loss)) : c->coarse ? 0.06 : 0.02;
    *second = c->exact ? 0.02 : 0.2;
}

/* What the two may differ by: the rounding of a loss; what the third derivative of the loss makes of steps of this
 * size, by what the second one makes of them. */
static double band_of(const tm_certifier *c, size_t first, size_t last, double middle, double *reach)
{
    double squares = 0, groups, second;
    for (size_t i = first; i < last; i++) {
        const tm_motion_group *g = &c->motion.groups[i];
        double                 along = g->along * g->norm * g->norm, apart = g->apart * g->spread;
        squares += along * along + apart * apart;
    }
    *reach = sqrt(squares);
    parts_of(c, &groups, &second);
    return tm_certifier_rounding(c, c->unit) + groups * *reach + second * fmin(fabs(middle - c->loss), 0.02 * c->scale);
}

static tm_status move(tm_certifier *c, size_t first, size_t last, double side, double *change, tm_error *err)
{
    return tm_motion_move(&c->motion, first, last, side, c->seed, change, err);
}

/* Compares along the direction, in groups [first, last) only. */
static tm_status compare(tm_certifier *c, size_t first, size_t last, comparison *out, tm_error *err)
{
    double plus = 0, minus = 0, up = 0, down = 0;
    bool   jumped = false;
    TM_TRY(move(c, first, last, 1, &up, err));
    TM_TRY(tm_certifier_loss(c, &plus, &jumped, err));
    TM_TRY(tm_certifier_drop(c, err));
    if (c->probe.possible && !c->probed) TM_TRY(tm_certifier_probe(c, err));
    TM_TRY(move(c, first, last, -1, &down, err));
    TM_TRY(tm_certifier_loss(c, &minus, &jumped, err));
    TM_TRY(move(c, first, last, 0, NULL, err));
    *out =
        (comparison){ .expected = up - down, .measured = plus - minus, .middle = (plus + minus) / 2, .jumped = jumped };
    out->band = band_of(c, first, last, out->middle, &out->reach);
    /* By the gradients of each rank: those that have the same, or should have, tell the mean. */
    return tm_certifier_join(c, TM_AXES_WORLD, &out->expected, 1, err);
}

/* Steps along the gradient, and at random, that change the loss by about the same in every group, but move none by more
 * than a part of its size. A group whose gradient is too small for what the loss does shows when it moves far. Signs
 * are random, and lengths by a factor of two: what is equally wrong in several groups does not cancel. */
static void choose_steps(tm_certifier *c)
{
    double loss = fabs(c->loss) < c->scale ? fmax(fabs(c->loss), 0.1) : c->scale;
    double wanted = (c->coarse && !c->exact ? 0x1p-7 : 0x1p-12) * loss / sqrt((double)c->motion.n_groups);
    double part = c->exact ? exact_part : c->coarse ? coarse_part : fine_part;
    for (size_t i = 0; i < c->motion.n_groups; i++) {
        tm_motion_group *g = &c->motion.groups[i];
        uint64_t         stream = tm_random_stream(g->name);
        bool             far = !c->coarse && g->spread * part > wanted;
        double           length = c->small * (1 - 0.5 * tm_random_uniform(c->seed, stream, 1));
        g->along = 0;
        g->apart = c->small * (far ? wanted / g->spread : part);
        if (!(g->norm > 0)) continue;
        g->along = length * fmin(wanted / (g->norm * g->norm), 0x1p-6 * g->size / g->norm) *
                   (tm_random_u64(c->seed, stream, 0) & 1 ? -1 : 1);
    }
}

/* Halves the groups until one is left that fails by itself. */
static tm_status find_group(tm_certifier *c, size_t *first, size_t *last, comparison *worst, tm_error *err)
{
    while (*last - *first > 1) {
        size_t     middle = *first + (*last - *first) / 2;
        comparison half[2];
        TM_TRY(compare(c, *first, middle, &half[0], err));
        TM_TRY(compare(c, middle, *last, &half[1], err));
        bool low = !holds(&half[0]), high = !holds(&half[1]);
        if (!low && !high) return TM_OK; /* only together */
        *worst = half[low ? 0 : 1];
        *first = low ? *first : middle;
        *last = low ? middle : *last;
    }
    return TM_OK;
}

/* What directions say together. */
typedef struct {
    comparison shown;     /* the direction that is told */
    bool       decided;   /* they say whether the gradient is that of the loss */
    bool       agrees;    /* it is */
    bool       same_part; /* what the gradient does not tell is the same part of steps of any length */
} opinion;

/* One direction decides, if it agrees. At weights where a rounding counts for much it may not: three decide together,
 * by the root of their mean square. A wrong gradient is far off in most of them. */
static tm_status try_directions(tm_certifier *c, opinion *out, tm_error *err)
{
    double squares = 0, farthest = -1;
    c->small = 1;
    for (int i = 0; i < 3; i++, c->seed++) {
        comparison one;
        choose_steps(c);
        TM_TRY(compare(c, 0, c->motion.n_groups, &one, err));
        double off = fabs(one.measured - one.expected) / one.band;
        squares += off * off;
        if (!(off <= farthest)) farthest = off, out->shown = one;
        if (i == 0 && holds(&one)) break;
    }
    out->decided = true;
    out->agrees = squares <= (holds(&out->shown) ? 1 : 3); /* so that a NaN does not */
    return TM_OK;
}

/* With experts: shorter directions where a token changes its experts, until one decides. Of two tokens that swap theirs
 * nobody is told: it takes two directions to say that a gradient is wrong. */
static tm_status try_with_experts(tm_certifier *c, opinion *out, tm_error *err)
{
    int    failed = 0;
    double least = (double)INFINITY, most = -(double)INFINITY; /* part of the change that the gradient does not tell */
    for (int i = 0; i < 5 && !out->decided; i++, c->seed++) {
        comparison *one = &out->shown;
        c->small = c->coarse ? 1 : pow(shrink, i);
        choose_steps(c);
        TM_TRY(compare(c, 0, c->motion.n_groups, one, err));
        /* A jump widens the band, too, until anything fits: then the comparison says nothing. */
        bool sharp = c->coarse || one->band <= 0.3 * one->reach;
        out->agrees = holds(one);
        failed += !out->agrees && !one->jumped;
        out->decided = out->agrees ? sharp : failed == 2;
        least = fmin(least, one->measured / one->expected - 1);
        most = fmax(most, one->measured / one->expected - 1);
    }
    /* Where a token's experts change, the loss jumps, and no gradient says so. A jump does not shrink with the step;
     * what is the same part of steps of any length is a wrong gradient. */
    out->same_part = least * most > 0 && fmin(fabs(least), fabs(most)) > 0.4 * fmax(fabs(least), fabs(most));
    return TM_OK;
}

tm_status tm_certifier_compare(tm_certifier *c, tm_certificate *out, tm_error *err)
{
    opinion all = { .decided = false };
    TM_TRY(c->n_counts > 0 ? try_with_experts(c, &all, err) : try_directions(c, &all, err));
    comparison worst = all.shown;
    /* What the gradients say is less than what the two may differ by anyway: anything would agree. */
    bool hidden = all.decided && all.agrees && !(worst.band <= 2 * worst.reach);
    out->gradients = all.decided && all.agrees && !hidden;
    out->expected = worst.expected;
    out->measured = worst.measured;
    out->band = worst.band;
    if (out->gradients) return TM_OK;
    if (hidden) {
        out->done = false;
        snprintf(out->reason, sizeof out->reason,
                 "rounding hides what the gradients say: a change of the loss of %.2g, which is known to %.2g only",
                 2 * worst.reach, worst.band);
        return TM_OK;
    }
    if (!all.decided && !all.same_part) {
        out->done = false;
        snprintf(out->reason, sizeof out->reason,
                 "experts of tokens change too often for a comparison: %.4g by the loss, %.4g by the gradient",
                 worst.measured, worst.expected);
        return TM_OK;
    }
    size_t first = 0, last = c->motion.n_groups;
    TM_TRY(find_group(c, &first, &last, &worst, err));
    snprintf(out->reason, sizeof out->reason,
             "the gradient of %s%s is not that of the loss: it changes by %.4g along a direction, %.4g by the gradient "
             "(band %.2g)",
             c->motion.groups[first].name, last - first > 1 ? " and others" : "", worst.measured, worst.expected,
             worst.band);
    return TM_OK;
}
