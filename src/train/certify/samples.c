/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certify/samples.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of an update that needs whole tensors: elements of all that are worked out again, and multiplications of Muon's; in
 * any case, and for each FLOP of a step, so that it is a small part of that. */
static const double few_elements = 0x1p18, few_products = 0x1p24, elements_per_flop = 2.5e-5, products_per_flop = 1e-3;

/* --- which -------------------------------------------------------------------------------------------------------- */

double tm_unit_stored(tm_dtype dtype, bool stochastic)
{
    switch (dtype) {
    case TM_F64:
        return 0x1p-53;
    case TM_BF16:
        return stochastic ? 0x1p-7 : 0x1p-8; /* of one that is near a power of two from below, twice 2^-9 */
    default:
        return 0x1p-24;
    }
}

const char *tm_sample_name(const tm_sample *s)
{
    return s->tensor->name;
}

/* The unit of a parameter; NULL: it is in none. */
static const tm_unit *unit_of(const tm_step *step, tm_tensor_id id)
{
    for (size_t u = 0; u < step->units.n_units; u++)
        for (size_t k = 0; k < step->units.units[u].n_members; k++)
            if (step->units.units[u].members[k].parameter == id) return &step->units.units[u];
    return NULL;
}

static tm_tensor_id state(const tm_sample *s, const tm_graph *graph, const char *name)
{
    return tm_optimizer_state_of(graph, s->member->id, name);
}

/* Of a tensor: Muon leaves vectors and what lies outside of blocks to AdamW; few elements have no moments of 8 bits. */
static tm_formula formula_of(const tm_step *step, const tm_tensor *t, tm_tensor_id id)
{
    tm_formula formula = step->options.optimizer->formula;
    bool       moved = t->shape.rank >= 2 && t->layer >= 0;
    bool       coded = tm_optimizer_state_of(step->graph, id, "exp_avg_absmax") != TM_NONE;
    if (formula == TM_FORMULA_MUON && !moved) return TM_FORMULA_ADAMW;
    return formula == TM_FORMULA_CODED && !coded ? TM_FORMULA_ADAMW : formula;
}

static void find_states(const tm_update_check *c, tm_sample *s)
{
    static const char *const names[][4] = {
        [TM_FORMULA_NONE] = { NULL },
        [TM_FORMULA_ADAMW] = { "exp_avg", "exp_avg_sq" },
        [TM_FORMULA_CODED] = { "exp_avg", "exp_avg_sq", "exp_avg_absmax", "exp_avg_sq_absmax" },
        [TM_FORMULA_SGD] = { "momentum_buffer" },
        [TM_FORMULA_ADAFACTOR] = { "row_var", "col_var" },
        [TM_FORMULA_MUON] = { "momentum_buffer" },
    };
    const tm_graph *graph = c->step->graph;
    s->formula = formula_of(c->step, s->tensor, s->member->id);
    for (int k = 0; k < 4; k++) s->states[k] = names[s->formula][k] ? state(s, graph, names[s->formula][k]) : TM_NONE;
    if (s->formula == TM_FORMULA_ADAFACTOR && s->tensor->shape.rank < 2) s->states[0] = state(s, graph, "variance");
    s->rest = state(s, graph, "kahan_comp");
}

/* Which elements of the tensor this rank updates. */
static void find_held(tm_sample *s, const tm_graph *graph)
{
    int64_t from = 0, to = s->member->n;
    if (s->states[0] == TM_NONE) {
        if (s->formula != TM_FORMULA_SGD || s->hyper.momentum > 0) to = 0;
    } else {
        const tm_tensor *t = tm_graph_at(graph, s->states[0]);
        bool             part = t->shared && s->formula != TM_FORMULA_ADAFACTOR;
        if (part) from = t->shared->first, to = from + tm_shape_elements(t->shape);
    }
    s->state_first = from;
    s->held_from = from > s->first ? from - s->first : 0;
    s->held_to = to < s->first + s->n ? to - s->first : s->n;
    if (s->held_to < s->held_from) s->held_to = s->held_from;
}

static void find_ranks(const tm_update_check *c, tm_sample *s)
{
    const tm_unit *unit = unit_of(c->step, s->member->id);
    if (unit) {
        s->share = unit->group.ranks > 1 ? unit->group.axes : 0;
        s->alike[0] = unit->group.data | s->share;
    }
    if (!s->tensor->cut || s->tensor->cut->axes == 0) s->alike[1] = 1U << TM_AXIS_TP;
}

static void add(tm_update_check *c, const tm_motion_member *m, int64_t first, int64_t n, bool whole)
{
    const tm_step  *step = c->step;
    const tm_group *group = &step->options.groups[step->group_of[m->id]];
    c->samples = tm_grow(c->samples, &c->capacity, c->n_samples, sizeof *c->samples);
    tm_sample *s = &c->samples[c->n_samples++];
    *s = (tm_sample){ .member = m,
                      .tensor = tm_graph_at(step->graph, m->id),
                      .hyper = group->hyper,
                      .whole = whole,
                      .first = first,
                      .n = n,
                      .moment_n = { -1, -1 } };
    double decay = s->hyper.decay_matrices_only && s->tensor->shape.rank < 2 ? 0 : s->hyper.weight_decay;
    s->terms = (tm_terms){ .step = c->number,
                           .rate = c->rate * group->lr_scale,
                           .decay = decay,
                           .clip = c->clip,
                           .clip_slack = c->clip_slack };
    s->unit = tm_unit_stored(m->dtype, s->hyper.stochastic);
    find_states(c, s);
    find_held(s, step->graph);
    find_ranks(c, s);
}

static double products_of(const tm_tensor *t)
{
    double columns = (double)t->shape.n[t->shape.rank - 1], rows = (double)t->shape.n[t->shape.rank - 2];
    double all = (double)tm_shape_elements(t->shape), low = fmin(rows, columns);
    return 5 * (3 * low * all); /* at most: of a fused matrix, of more rows than each of its parts */
}

/* Two blocks of a tensor, or all of it. */
static void choose_blocks(tm_update_check *c, const tm_motion_member *m)
{
    const int64_t blocks = (m->n + TM_SAMPLE_BLOCK - 1) / TM_SAMPLE_BLOCK;
    uint64_t      stream = tm_random_stream(tm_graph_at(c->step->graph, m->id)->name);
    for (uint64_t k = 0; k < 2 && (int64_t)k < blocks; k++) {
        int64_t block = (int64_t)tm_random_permute(c->seed, stream, k, (uint64_t)blocks),
                first = block * TM_SAMPLE_BLOCK;
        add(c, m, first, m->n - first < TM_SAMPLE_BLOCK ? m->n - first : TM_SAMPLE_BLOCK, false);
    }
}

void tm_samples_choose(tm_update_check *c)
{
    const double flops = tm_schedule_flops(&c->step->training);
    const double most_elements = fmax(few_elements, flops * elements_per_flop);
    const double most_products = fmax(few_products, flops * products_per_flop);
    double       elements = 0, products = 0;
    tm_reckon_map(true, c->map[0]);
    tm_reckon_map(false, c->map[1]);
    for (size_t i = 0; i < c->motion.n_members; i++) {
        /* in a random order, which differs from step to step */
        size_t                  k = (size_t)tm_random_permute(c->seed, 0, i, c->motion.n_members);
        const tm_motion_member *m = &c->motion.members[k];
        const tm_tensor        *t = tm_graph_at(c->step->graph, m->id);
        const tm_formula        formula = formula_of(c->step, t, m->id);
        const bool              muon = formula == TM_FORMULA_MUON;
        if (!muon && formula != TM_FORMULA_ADAFACTOR) {
            choose_blocks(c, m);
            continue;
        }
        bool fits = elements + (double)m->n <= most_elements;
        if (muon) fits = fits && products + products_of(t) <= most_products;
        if (!muon) fits = fits && t->shape.rank <= 2;
        c->left_out += !fits;
        if (fits) {
            elements += (double)m->n;
            if (muon) products += products_of(t);
            add(c, m, 0, m->n, true);
        } else {
            choose_blocks(c, m); /* of moments that go by the element, and of ranks that have the same */
        }
    }
}

/* --- before the update -------------------------------------------------------------------------------------------- */

tm_status tm_values_read(tm_trainer *trainer, tm_tensor_id id, int64_t first, int64_t n, double *out, tm_error *err)
{
    tm_dtype  dtype = tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->dtype;
    size_t    bytes = tm_tensor_bytes(tm_shape_1(n), dtype);
    void     *stored = tm_alloc(bytes);
    tm_status st = tm_trainer_read(trainer, id, tm_tensor_bytes(tm_shape_1(first), dtype), stored, bytes, err);
    for (int64_t i = 0; i < n && st == TM_OK; i++) out[i] = tm_value_get(stored, dtype, i);
    free(stored);
    return st;
}

/* What may be lost where a gradient is a sum: of ranks, of parts of a step, of a table's look-ups and its products. */
static tm_status take_gradients(tm_update_check *c, tm_sample *s, tm_error *err)
{
    const bool   sum = c->terms > 1 || s->tensor->lookup_gradient != TM_NONE;
    const double unit = c->narrow                                                            ? 0x1p-8
                        : tm_graph_at(c->step->graph, s->tensor->gradient)->dtype == TM_BF16 ? 0x1p-8
                                                                                             : 0x1p-24;
    for (int64_t at = 0; at < s->n; at += TM_MOTION_PIECE) {
        int64_t n = s->n - at < TM_MOTION_PIECE ? s->n - at : TM_MOTION_PIECE;
        TM_TRY(tm_motion_gradient(&c->motion, s->member, s->first + at, n, false, err));
        for (int64_t i = 0; i < n; i++) s->gradients[at + i].value = c->motion.gradient[i];
        if (!sum) continue;
        TM_TRY(tm_motion_gradient(&c->motion, s->member, s->first + at, n, true, err));
        for (int64_t i = 0; i < n; i++) s->gradients[at + i].slack = unit * (1 + c->terms) * c->motion.gradient[i];
    }
    return TM_OK;
}

/* Moments of coded blocks are the map's values times the scale. */
static tm_status decode(tm_update_check *c, tm_sample *s, int k, tm_error *err)
{
    for (int64_t at = 0; at < s->n; at += TM_SAMPLE_BLOCK) {
        double scale;
        TM_TRY(tm_values_read(c->trainer, s->states[2 + k], (s->first + at) / TM_SAMPLE_BLOCK, 1, &scale, err));
        for (int64_t i = at; i < at + TM_SAMPLE_BLOCK && i < s->n; i++)
            s->before[k][i] = c->map[k][(int)s->before[k][i]] * scale;
    }
    return TM_OK;
}

static tm_status take_moments(tm_update_check *c, tm_sample *s, tm_error *err)
{
    const int64_t held = s->held_to - s->held_from;
    for (int k = 0; k < 2; k++) {
        if (s->states[k] == TM_NONE || held == 0) continue;
        const tm_tensor *t = tm_graph_at(c->step->graph, s->states[k]);
        const bool       means = s->formula == TM_FORMULA_ADAFACTOR && s->tensor->shape.rank >= 2;
        if (means && !s->whole) continue;
        if (means) s->moment_n[k] = tm_shape_elements(t->shape);
        int64_t n = means ? s->moment_n[k] : held, from = means ? 0 : s->held_from;
        s->before[k] = tm_alloc((size_t)(means ? n : s->n) * sizeof(double));
        TM_TRY(tm_values_read(c->trainer, s->states[k], means ? 0 : s->first + from - s->state_first, n,
                              s->before[k] + from, err));
        if (s->formula == TM_FORMULA_CODED) TM_TRY(decode(c, s, k, err));
    }
    return TM_OK;
}

tm_status tm_sample_take(tm_update_check *c, tm_sample *s, tm_error *err)
{
    const int64_t held = s->held_to - s->held_from;
    s->weights = tm_alloc((size_t)s->n * sizeof *s->weights);
    s->gradients = tm_alloc((size_t)s->n * sizeof *s->gradients);
    TM_TRY(tm_values_read(c->trainer, s->member->id, s->first, s->n, s->weights, err));
    if (s->rest != TM_NONE && held > 0) {
        double   *rest = tm_alloc((size_t)held * sizeof *rest);
        tm_status st = tm_values_read(c->trainer, s->rest, s->first + s->held_from - s->state_first, held, rest, err);
        for (int64_t i = 0; i < held && st == TM_OK; i++) s->weights[s->held_from + i] += rest[i];
        free(rest);
        TM_TRY(st);
    }
    TM_TRY(take_gradients(c, s, err));
    return take_moments(c, s, err);
}

void tm_sample_let_go(tm_sample *s)
{
    free(s->weights);
    free(s->gradients);
    free(s->before[0]);
    free(s->before[1]);
    s->weights = NULL, s->gradients = NULL, s->before[0] = s->before[1] = NULL;
}

void tm_sample_fini(tm_sample *s)
{
    tm_sample_let_go(s);
    free(s->expected);
    free(s->has_owner);
    free(s->moments[0]);
    free(s->moments[1]);
}

/* --- what it must end with ---------------------------------------------------------------------------------------- */

static void reckon_elements(tm_sample *s)
{
    for (int k = 0; k < 2; k++)
        if (s->before[k]) s->moments[k] = tm_alloc((size_t)s->n * sizeof *s->moments[k]);
    for (int64_t i = s->held_from; i < s->held_to; i++) {
        tm_reckoned out[TM_RECKONED];
        double      first = s->before[0] ? s->before[0][i] : 0, second = s->before[1] ? s->before[1][i] : 0;
        if (s->formula == TM_FORMULA_SGD)
            tm_reckon_sgd(&s->terms, s->weights[i], s->gradients[i], first, out);
        else
            tm_reckon_adamw(&s->terms, s->weights[i], s->gradients[i], first, second, out);
        s->expected[i] = out[0];
        for (int k = 0; k < 2; k++)
            if (s->moments[k]) s->moments[k][i] = out[1 + k];
    }
}

static void reckon_adafactor(tm_sample *s)
{
    const tm_shape *shape = &s->tensor->shape;
    const bool      matrix = shape->rank >= 2;
    double          eps1 = s->hyper.eps1, *row = matrix ? s->before[0] : NULL, *column = s->before[matrix ? 1 : 0];
    if (isnan(eps1)) eps1 = s->member->dtype == TM_BF16 ? 0x1p-7 : s->member->dtype == TM_F64 ? DBL_EPSILON : 0x1p-23;
    tm_reckon_adafactor(&s->terms, eps1, matrix ? shape->n[0] : 0, shape->n[shape->rank - 1], s->weights, s->gradients,
                        row, column, s->expected);
    for (int k = 0; k < 2 && s->before[k]; k++) {
        int64_t n = matrix ? s->moment_n[k] : s->n;
        double  slack = 0x1p-15 + 2 * s->terms.clip_slack;
        s->moments[k] = tm_alloc((size_t)n * sizeof *s->moments[k]);
        for (int64_t i = 0; i < n; i++)
            s->moments[k][i] = (tm_reckoned){ s->before[k][i], slack * fabs(s->before[k][i]) + 0x1p-126 };
    }
}

/* Rows of the k-th matrix of a parameter: those of its pieces, if they come again and again in at most four kinds, or
 * its last axis but one. */
static int64_t matrix_rows(const tm_tensor *t, int64_t k)
{
    for (int period = 1; period <= 4 && period <= t->n_pieces; period++) {
        bool again = t->n_pieces % period == 0;
        for (int p = period; p < t->n_pieces; p++) again = again && t->pieces[p].rows == t->pieces[p - period].rows;
        if (again) return t->pieces[k % period].rows;
    }
    return t->shape.n[t->shape.rank - 2];
}

static void reckon_muon(tm_sample *s)
{
    const tm_tensor *t = s->tensor;
    const int64_t    columns = t->shape.n[t->shape.rank - 1], all = s->member->n / columns;
    s->moments[0] = tm_alloc((size_t)s->n * sizeof *s->moments[0]);
    for (int64_t i = 0; i < s->n; i++) {
        const tm_reckoned *g = &s->gradients[i];
        double             b = s->before[0][i], part = 1 - s->hyper.momentum, new = s->terms.clip * g->value;
        s->moments[0][i].value = b + part * (new - b);
        s->moments[0][i].slack = 0x1p-22 * (fabs(b) + fabs(new)) + part * (fabs(new) * s->terms.clip_slack + g->slack);
    }
    /* Of a part only how far it can go: no singular value, so no element, becomes larger than 1.2. */
    for (int64_t i = 0; i < s->n && !s->whole; i++) {
        double low = (double)t->shape.n[t->shape.rank - 2];
        s->expected[i].value = s->weights[i] * (1 - s->terms.rate * s->terms.decay);
        s->expected[i].slack = 0x1p-22 * fabs(s->weights[i]) +
                               1.5 * s->terms.rate * tm_reckon_muon_factor(&s->hyper, low, (double)columns);
    }
    for (int64_t row = 0, k = 0; row < all && s->whole; k++) {
        int64_t rows = matrix_rows(t, k), at = row * columns;
        tm_reckon_muon(&s->terms, rows, columns, s->weights + at, s->gradients + at, s->before[0] + at,
                       s->expected + at);
        row += rows;
    }
}

/* Of ranks that update a part each, or one of them all. */
static tm_status join(tm_update_check *c, tm_sample *s, tm_error *err)
{
    double *all = tm_alloc((size_t)(3 * s->n) * sizeof *all);
    for (int64_t i = s->held_from; i < s->held_to; i++)
        all[3 * i] = s->expected[i].value, all[3 * i + 1] = s->expected[i].slack, all[3 * i + 2] = 1;
    tm_status st = tm_trainer_sum(c->trainer, s->share, all, (size_t)(3 * s->n), err);
    for (int64_t i = 0; i < s->n && st == TM_OK; i++) {
        double ranks = all[3 * i + 2];
        s->has_owner[i] = ranks > 0;
        if (ranks > 0) s->expected[i] = (tm_reckoned){ all[3 * i] / ranks, all[3 * i + 1] / ranks };
    }
    free(all);
    return st;
}

tm_status tm_sample_reckon(tm_update_check *c, tm_sample *s, tm_error *err)
{
    const bool matrices = s->formula == TM_FORMULA_MUON || s->formula == TM_FORMULA_ADAFACTOR;
    const bool known = s->formula != TM_FORMULA_NONE && (s->formula != TM_FORMULA_ADAFACTOR || s->whole);
    const bool holds = s->held_to > s->held_from;
    s->terms.hyper = &s->hyper;
    s->expected = tm_alloc((size_t)s->n * sizeof *s->expected);
    s->has_owner = tm_alloc((size_t)s->n * sizeof *s->has_owner);
    if (holds && known && !matrices) reckon_elements(s);
    if (holds && s->formula == TM_FORMULA_MUON) reckon_muon(s);
    if (holds && known && s->formula == TM_FORMULA_ADAFACTOR) reckon_adafactor(s);
    if (known) return join(c, s, err);
    free(s->expected);
    s->expected = NULL;
    return TM_OK;
}
