/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certificate.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/random.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "train/motion.h"
#include "train/probe.h"
#include "train/share.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_trainer           *trainer;
    const tm_step        *step;
    const tm_micro_batch *batch;         /* all micro-batches one after the other */
    int64_t               micro_batches; /* of which the gradients are */
    uint64_t              seed;
    tm_motion             motion;
    double                loss;   /* of the training programs */
    double                scale;  /* of what is added up in it: logits, too, where they are */
    double                unit;   /* rounding of the compute format */
    bool                  coarse; /* is that coarser than float32? */
    double                small;  /* of the steps */
    double *counts, *now;         /* rows of each expert of each block: with the weights as they are; of the losses
                                   * that were computed last; NULL: no experts */
    size_t   n_counts;
    tm_probe probe;
    bool     probed;
    double  *rows, *others; /* losses of the rows of a micro-batch, and with the tokens of the probe */
    int      ranks;         /* that have other samples */
    int      rank;          /* this one's number among them */
    double   sum_ranks;     /* and those that share them */
    double   targets;       /* of all of them */
} certifier;

/* How far elements are moved at random at most, in units of their tensor's size; by how much steps become shorter. */
static const double fine_part = 0x1p-5, coarse_part = 0x1p-8, shrink = 0x1p-3;

/* --- what is put back --------------------------------------------------------------------------------------------- */

/* Roles of what forward passes write and a step reads later; of what backward passes write beside gradients. */
static const unsigned forward_roles = 1u << TM_ROLE_SCALAR, backward_roles = 1u << TM_ROLE_SCALAR | 1u << TM_ROLE_STATE;

static bool is_kept(const tm_tensor *tensor, unsigned roles)
{
    return tensor->base == TM_NONE && (roles >> tensor->role & 1u);
}

static void free_kept(const tm_step *step, char **kept)
{
    for (size_t i = 0; kept && i < step->graph->n_tensors; i++) free(kept[i]);
    free(kept);
}

/* The caller puts them back. */
static tm_status keep(tm_trainer *trainer, unsigned roles, char ***out, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    char         **kept = *out = tm_alloc((step->graph->n_tensors + 1) * sizeof *kept);
    memset(kept, 0, (step->graph->n_tensors + 1) * sizeof *kept);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        size_t bytes = step->plan->places[i].bytes;
        if (!is_kept(&step->graph->tensors[i], roles)) continue;
        kept[i] = tm_alloc(bytes + 1);
        TM_TRY(tm_trainer_read(trainer, (tm_tensor_id)i, 0, kept[i], bytes, err));
    }
    return TM_OK;
}

/* And frees them. */
static tm_status put_back(tm_trainer *trainer, char **kept, tm_status st, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; kept && i < step->graph->n_tensors && st == TM_OK; i++)
        if (kept[i]) st = tm_trainer_write(trainer, (tm_tensor_id)i, 0, kept[i], step->plan->places[i].bytes, err);
    free_kept(step, kept);
    return st;
}

/* --- several ranks ------------------------------------------------------------------------------------------------ */

/* All ranks find the same and go on alike: what they do together would never end otherwise. Sums over those that have
 * other samples, or also over those that share them. */
static tm_status join(const certifier *c, unsigned axes, double *values, size_t n, tm_error *err)
{
    return tm_trainer_sum(c->trainer, axes, values, n, err);
}

/* Is it so on any rank? */
static tm_status join_any(const certifier *c, bool *any, tm_error *err)
{
    double flag = *any ? 1 : 0;
    TM_TRY(join(c, TM_AXES_LOSS, &flag, 1, err));
    *any = flag > 0;
    return TM_OK;
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* Rows of each expert in the programs that have just run, and what the model adds to the loss. */
static tm_status read_counts(const certifier *c, double *counts, tm_error *err)
{
    if (c->n_counts == 0) return TM_OK;
    return tm_trainer_read(c->trainer, c->step->model.expert_counts, 0, counts, c->n_counts * sizeof *counts, err);
}

static tm_status read_balance(const certifier *c, double *balance, tm_error *err)
{
    *balance = 0;
    if (c->step->model.balance_loss == TM_NONE) return TM_OK;
    return tm_trainer_read(c->trainer, c->step->model.balance_loss, 0, balance, sizeof *balance, err);
}

/* Loss and counts that the gradients were computed with, and what the groups make of these. */
static tm_status measure_gradients(certifier *c, tm_error *err)
{
    double sum, balance;
    TM_TRY(tm_trainer_read(c->trainer, c->step->loss, 0, &sum, sizeof sum, err));
    TM_TRY(read_balance(c, &balance, err));
    TM_TRY(read_counts(c, c->counts, err));
    sum += balance;
    TM_TRY(join(c, TM_AXES_LOSS, &sum, 1, err));
    c->loss = sum / c->targets;
    return tm_motion_measure(&c->motion, err);
}

static tm_status read_rows(const certifier *c, double *rows, tm_error *err)
{
    tm_dtype  dtype = tm_graph_at(c->step->graph, c->step->row_losses)->dtype;
    size_t    n = (size_t)c->probe.rows, bytes = n * (size_t)tm_dtype_bytes(dtype);
    void     *stored = tm_alloc(bytes);
    tm_status st = tm_trainer_read(c->trainer, c->step->row_losses, 0, stored, bytes, err);
    for (size_t i = 0; i < n; i++) rows[i] = tm_value_get(stored, dtype, (int64_t)i);
    free(stored);
    return st;
}

/* The batch with the tokens of the probe, once, with the weights that c->rows are of. */
static tm_status run_probe(certifier *c, tm_error *err)
{
    double sum;
    TM_TRY(tm_trainer_forward(c->trainer, &c->probe.replaced, 0, &sum, err));
    TM_TRY(read_rows(c, c->others, err));
    c->probed = true;
    return TM_OK;
}

/* With the weights as they are: of all micro-batches of all ranks. *jumped: a token has other experts than it had for
 * the gradients (two that swap theirs are not seen). */
static tm_status loss_now(certifier *c, double *loss, bool *jumped, tm_error *err)
{
    double total = 0, balances = 0, sum, balance, *counts = tm_alloc((c->n_counts + 1) * sizeof *counts);
    memset(c->now, 0, c->n_counts * sizeof *c->now);
    tm_status st = TM_OK;
    for (int64_t m = 0; m < c->micro_batches && st == TM_OK; m++) {
        st = tm_trainer_forward(c->trainer, c->batch, m, &sum, err);
        if (st == TM_OK) st = read_balance(c, &balance, err);
        if (st == TM_OK) st = read_counts(c, counts, err);
        if (st != TM_OK) break;
        total += sum; /* of whole sequences, whoever shares them; the balance is that of this rank's rows */
        balances += balance;
        for (size_t i = 0; i < c->n_counts; i++) c->now[i] += counts[i];
        if (m == 0 && c->probe.possible && !c->probed) st = read_rows(c, c->rows, err);
    }
    free(counts);
    *jumped = *jumped || (c->n_counts > 0 && memcmp(c->now, c->counts, c->n_counts * sizeof *c->now) != 0);
    if (st == TM_OK) st = join(c, TM_AXES_BATCH, &total, 1, err);
    if (st == TM_OK) st = join(c, TM_AXES_LOSS, &balances, 1, err);
    if (st == TM_OK) st = join_any(c, jumped, err);
    *loss = (total + balances) / c->targets;
    return st;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

typedef struct {
    double expected, measured, band;
    double middle, reach; /* mean of the two losses; how far the gradient alone moves the loss */
    bool   jumped;        /* tokens went to other experts on the way */
} comparison;

static bool holds(const comparison *x)
{
    return fabs(x->measured - x->expected) <= x->band; /* so that a NaN does not */
}

/* What the two may differ by: the rounding of a loss, as rows round by themselves and blocks one after the other; what
 * the third derivative of the loss makes of steps of this size, by what the second one makes of them. */
static double band_of(const certifier *c, size_t first, size_t last, double middle, double *reach)
{
    const tm_step_options *o = &c->step->options;
    double                 squares = 0, rows = c->targets, blocks = (double)o->shape.n_layers;
    if (c->coarse) rows = fmin(rows, 128); /* what weights round is the same in all rows, and no mean takes it away */
    for (size_t i = first; i < last; i++) {
        const tm_motion_group *g = &c->motion.groups[i];
        double                 along = g->along * g->norm * g->norm, apart = g->apart * g->spread;
        squares += along * along + apart * apart;
    }
    *reach = sqrt(squares);
    double rounding = 4 * c->unit * c->scale * sqrt((1 + blocks) / rows);
    return rounding + (c->coarse ? 0.06 : 0.02) * *reach + 0.2 * fmin(fabs(middle - c->loss), 0.02 * c->scale);
}

static tm_status move(certifier *c, size_t first, size_t last, double side, double *change, tm_error *err)
{
    return tm_motion_move(&c->motion, first, last, side, c->seed, change, err);
}

/* Compares along the direction, in groups [first, last) only. */
static tm_status compare(certifier *c, size_t first, size_t last, comparison *out, tm_error *err)
{
    double plus = 0, minus = 0, up = 0, down = 0;
    bool   jumped = false;
    TM_TRY(move(c, first, last, 1, &up, err));
    TM_TRY(loss_now(c, &plus, &jumped, err));
    if (c->probe.possible && !c->probed) TM_TRY(run_probe(c, err));
    TM_TRY(move(c, first, last, -1, &down, err));
    TM_TRY(loss_now(c, &minus, &jumped, err));
    TM_TRY(move(c, first, last, 0, NULL, err));
    *out = (comparison){ .measured = plus - minus, .middle = (plus + minus) / 2, .jumped = jumped };
    double said[3] = { up - down }; /* by the gradients of each rank, which are the same, or should be */
    said[1] = band_of(c, first, last, out->middle, &said[2]);
    TM_TRY(join(c, TM_AXES_LOSS, said, 3, err));
    out->expected = said[0] / c->sum_ranks;
    out->band = said[1] / c->sum_ranks;
    out->reach = said[2] / c->sum_ranks;
    return TM_OK;
}

/* Steps along the gradient, and at random, that change the loss by about the same in every group, but move none by more
 * than a part of its size. A group whose gradient is too small for what the loss does shows when it moves far. Signs
 * are random, and lengths by a factor of two: what is equally wrong in several groups does not cancel. */
static void choose_steps(certifier *c)
{
    double loss = fabs(c->loss) < c->scale ? fmax(fabs(c->loss), 0.1) : c->scale;
    double wanted = (c->coarse ? 0x1p-7 : 0x1p-12) * loss / sqrt((double)c->motion.n_groups);
    double part = c->coarse ? coarse_part : fine_part;
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
static tm_status find_group(certifier *c, size_t *first, size_t *last, comparison *worst, tm_error *err)
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
static tm_status try_directions(certifier *c, opinion *out, tm_error *err)
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
static tm_status try_with_experts(certifier *c, opinion *out, tm_error *err)
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

static tm_status check_gradients(certifier *c, tm_certificate *out, tm_error *err)
{
    opinion all = { .decided = false };
    TM_TRY(c->n_counts > 0 ? try_with_experts(c, &all, err) : try_directions(c, &all, err));
    comparison worst = all.shown;
    out->gradients = all.decided && all.agrees;
    out->expected = worst.expected;
    out->measured = worst.measured;
    out->band = worst.band;
    if (out->gradients) return TM_OK;
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

/* Gradients of the first micro-batch without its targets, in the place of the step's. */
static tm_status check_alone(certifier *c, const tm_micro_batch *empty, tm_certificate *alone, tm_error *err)
{
    certifier own = *c;
    own.batch = empty;
    own.micro_batches = 1;
    own.motion.reduced = !share_overlaps(c->step); /* by the first program of several: not yet */
    TM_TRY(tm_trainer_accumulate(c->trainer, 0, empty, NULL, err));
    TM_TRY(measure_gradients(&own, err));
    own.scale = fabs(own.loss);
    return check_gradients(&own, alone, err);
}

/* What the model adds to the loss, without the targets: of its gradient little may be left in that of the whole. (In
 * coarse formats some token always changes its experts.) */
static tm_status check_balance(certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step_options *o = &c->step->options;
    tm_micro_batch         empty = *c->batch;
    tm_certificate         alone = { .done = true };
    int                    targets = 0;
    char                 **kept = NULL;
    if (c->step->model.balance_loss == TM_NONE || !out->gradients || c->coarse) return TM_OK;
    while (targets < o->n_fields && strcmp(o->fields[targets].name, "targets") != 0) targets++;
    if (targets == o->n_fields) return TM_OK;
    size_t   n = (size_t)(o->micro_batch * o->seq);
    int32_t *none = tm_alloc(n * sizeof *none);
    for (size_t i = 0; i < n; i++) none[i] = TM_IGNORED_TARGET;
    empty.field[targets] = none;
    tm_status st = keep(c->trainer, backward_roles | 1u << TM_ROLE_GRADIENT, &kept, err);
    if (st == TM_OK) st = check_alone(c, &empty, &alone, err);
    st = put_back(c->trainer, kept, st, err);
    free(none);
    if (st != TM_OK || !alone.done || alone.gradients) return st;
    out->gradients = false;
    snprintf(out->reason, sizeof out->reason, "of the loss that balances experts: %.900s", alone.reason);
    return TM_OK;
}

/* What a rank says of its probe; the first one that found a leak is told. */
typedef struct {
    double leak, before, after; /* the row, from 1; 0: none */
    double context, looks;      /* are there rows that must see what was replaced; do any */
} probe_found;
enum { PROBE_VALUES = sizeof(probe_found) / sizeof(double) };

static tm_status find_leak(const certifier *c, probe_found *out, tm_error *err)
{
    probe_found *all = tm_alloc((size_t)c->ranks * sizeof *all), *own = &all[c->rank];
    int64_t      leak = tm_probe_leak(&c->probe, c->rows, c->others);
    memset(all, 0, (size_t)c->ranks * sizeof *all);
    if (leak >= 0) *own = (probe_found){ .leak = (double)leak + 1, .before = c->rows[leak], .after = c->others[leak] };
    own->context = c->probe.context ? 1 : 0;
    own->looks = tm_probe_looks(&c->probe, c->rows, c->others) ? 1 : 0;
    tm_status st = join(c, TM_AXES_BATCH, (double *)all, (size_t)c->ranks * PROBE_VALUES, err);
    *out = (probe_found){ 0 };
    for (int r = c->ranks - 1; r >= 0; r--) {
        probe_found sum = { .context = out->context + all[r].context, .looks = out->looks + all[r].looks };
        if (all[r].leak > 0) sum.leak = all[r].leak, sum.before = all[r].before, sum.after = all[r].after;
        if (!(all[r].leak > 0)) sum.leak = out->leak, sum.before = out->before, sum.after = out->after;
        *out = sum;
    }
    free(all);
    return st;
}

/* What the losses of moved weights depend on. */
static tm_status judge_probe(const certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step_options *o = &c->step->options;
    probe_found            found;
    out->rows = o->micro_batch > 1;
    if (!c->probed) return TM_OK;
    bool silent = out->reason[0] && out->done;
    TM_TRY(find_leak(c, &found, err));
    int64_t leak = (int64_t)found.leak - 1;
    out->looked_ahead = true;
    out->causal = leak < 0;
    out->context = !(found.context > 0) || found.looks > 0;
    if (!out->causal && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "tokens that the model must not see change the loss of target %lld of row %lld, from %.9g to %.9g: "
                 "later tokens%s leak",
                 (long long)(leak % o->seq), (long long)(leak / o->seq), found.before, found.after,
                 out->rows ? " or other rows" : "");
    else if (!out->context && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "no token changes the loss of any target behind it: the model uses no context");
    return TM_OK;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* Ranks that have parts of the model, for which no direction is made. */
static bool divides(const tm_layout *layout, tm_certificate *out)
{
    static const struct {
        tm_axis     axis;
        const char *what;
    } parts[] = { { TM_AXIS_PP, "stages of a pipeline" },
                  { TM_AXIS_TP, "matrices (tensor parallel)" },
                  { TM_AXIS_EP, "experts" } };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (tm_layout_size(layout, 1U << parts[i].axis) > 1)
            snprintf(out->reason, sizeof out->reason,
                     "ranks divide the model: what one has of the gradients is that of its %s", parts[i].what);
    return out->reason[0] != '\0';
}

/* No memory for the copies, or nothing that computes: said, not failed. */
static bool possible(const certifier *c, tm_certificate *out)
{
    bool   balance = c->step->model.balance_loss != TM_NONE && !c->coarse;
    int    ranks = tm_layout_size(&c->step->options.layout, TM_AXES_WORLD); /* maybe all on this host */
    double need = tm_motion_bytes(&c->motion) * (balance ? 2 : 1) * ranks;
    double have = (double)tm_memory_available_bytes("");
    if (c->motion.n_members == 0)
        snprintf(out->reason, sizeof out->reason, "nothing is trained");
    else if (c->step->options.quantize.on)
        snprintf(out->reason, sizeof out->reason,
                 "factors are quantized: gradients are straight-through estimates, not derivatives of the loss");
    else if (c->step->options.adapters.rank > 0 && c->step->options.adapters.dora)
        snprintf(
            out->reason, sizeof out->reason,
            "DoRA takes the lengths that it divides by for constants: its gradients are not derivatives of the loss");
    else if (!(c->targets > 0))
        snprintf(out->reason, sizeof out->reason, "the first step has no targets");
    else if (have > 0 && need > 0.5 * have)
        snprintf(out->reason, sizeof out->reason, "copies of the weights would take %.1f GB", need * 1e-9);
    for (size_t k = 0; k < c->motion.n_members; k++)
        if (tm_dtype_bits(c->motion.members[k].dtype) % 8 != 0 && !out->reason[0])
            snprintf(out->reason, sizeof out->reason, "weights of %s are trained",
                     tm_dtype_name(c->motion.members[k].dtype));
    return !out->reason[0];
}

static tm_status certify(certifier *c, tm_certificate *out, tm_error *err)
{
    TM_TRY(tm_motion_keep(&c->motion, err));
    TM_TRY(measure_gradients(c, err));
    c->scale = 1 + fabs(c->loss);
    out->done = true;
    out->groups = (int)c->motion.n_groups;
    TM_TRY(check_gradients(c, out, err));
    TM_TRY(check_balance(c, out, err));
    if (c->motion.lost && out->gradients) {
        out->gradients = false;
        snprintf(out->reason, sizeof out->reason, "%.120s is trained, but nothing computes its gradient",
                 c->motion.lost);
    }
    return judge_probe(c, out, err);
}

/* Ranks that cannot, cannot together. */
static tm_status all_possible(const certifier *c, tm_certificate *out, bool *all, tm_error *err)
{
    bool not = !possible(c, out);
    TM_TRY(join_any(c, &not, err));
    if (not &&!out->reason[0]) snprintf(out->reason, sizeof out->reason, "another rank lacks memory for copies");
    *all = !not ;
    return TM_OK;
}

/* The probe is of whole sequences, on every rank that has other samples. */
static tm_status choose_probe(certifier *c, tm_error *err)
{
    bool cut = tm_layout_size(&c->step->options.layout, 1U << TM_AXIS_CP) > 1;
    bool not = !c->probe.possible || c->step->row_losses == TM_NONE || cut;
    TM_TRY(join_any(c, &not, err));
    c->probe.possible = !not ;
    return TM_OK;
}

static double unit_of(tm_dtype compute)
{
    return compute == TM_F64 ? 0x1p-53 : compute == TM_F32 ? 0x1p-24 : 0x1p-9;
}

static void take_room(certifier *c)
{
    tm_tensor_id counts = c->step->model.expert_counts;
    if (counts != TM_NONE) c->n_counts = (size_t)tm_shape_elements(tm_graph_at(c->step->graph, counts)->shape);
    c->counts = tm_alloc((c->n_counts + 1) * sizeof *c->counts);
    c->now = tm_alloc((c->n_counts + 1) * sizeof *c->now);
    c->rows = tm_alloc((size_t)(c->probe.rows + 1) * sizeof *c->rows);
    c->others = tm_alloc((size_t)(c->probe.rows + 1) * sizeof *c->others);
}

/* Of the step, on all ranks. */
static tm_status all_targets(const tm_trainer *trainer, const tm_micro_batch *batch, double *out, tm_error *err)
{
    *out = (double)batch->target_tokens;
    return tm_trainer_sum(trainer, TM_AXES_BATCH, out, 1, err);
}

tm_status tm_certify(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed, tm_certificate *result,
                     tm_error *err)
{
    certifier c = { .trainer = trainer, .step = tm_trainer_step_of(trainer), .batch = batch, .seed = seed };
    char    **kept = NULL;
    bool      all = false;
    *result = (tm_certificate){ 0 };
    if (divides(&c.step->options.layout, result)) return TM_OK;
    c.micro_batches = c.step->options.accumulation;
    c.ranks = tm_layout_data_ranks(&c.step->options.layout);
    c.rank = tm_layout_data_rank(&c.step->options.layout);
    c.sum_ranks = tm_layout_sum_ranks(&c.step->options.layout);
    TM_TRY(all_targets(trainer, batch, &c.targets, err));
    c.unit = unit_of(c.step->options.precision->compute);
    c.coarse = c.unit > 0x1p-20;
    tm_status st =
        keep(trainer, forward_roles, &kept, err); /* waits for the gradients: from here on time is the certificate's */
    int64_t begin = tm_now_ns();
    tm_motion_open(trainer, &c.motion);
    tm_probe_make(&c.step->options, batch, seed, &c.probe);
    take_room(&c);
    if (st == TM_OK) st = choose_probe(&c, err);
    if (st == TM_OK) st = all_possible(&c, result, &all, err);
    if (st == TM_OK && all) st = certify(&c, result, err);
    st = put_back(trainer, kept, st, err);
    tm_motion_fini(&c.motion);
    tm_probe_fini(&c.probe);
    free(c.counts);
    free(c.now);
    free(c.rows);
    free(c.others);
    result->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}

tm_status tm_certify_anew(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed, tm_certificate *result,
                          tm_error *err)
{
    char  **kept = NULL;
    int64_t begin = tm_now_ns();
    double  targets = 0;
    *result = (tm_certificate){ 0 };
    if (divides(&tm_trainer_step_of(trainer)->options.layout, result)) return TM_OK;
    TM_TRY(all_targets(trainer, batch, &targets, err));
    tm_status st = keep(trainer, backward_roles, &kept, err);
    if (st == TM_OK) st = tm_trainer_begin(trainer, 1, 0, 0, (int64_t)targets, err);
    if (st == TM_OK) st = tm_trainer_gradients(trainer, batch, NULL, err);
    if (st == TM_OK) st = tm_certify(trainer, batch, seed, result, err);
    st = put_back(trainer, kept, st, err);
    result->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}
