/* SPDX-License-Identifier: Apache-2.0 */
#include "train/certificate.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/random.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "train/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A trained tensor, with a copy of its values and of its gradient. */
typedef struct {
    tm_tensor_id id;
    int          group;
    tm_dtype     dtype, gradient_dtype, used; /* `used`: the format that products take it in */
    int64_t      n;
    char        *values, *gradient, *moved; /* `moved`: room for a piece */
    double       rms, norm;                 /* root mean square of the values; length of the gradient */
} member;

typedef struct {
    char   name[96];
    double norm, size; /* length of the gradient; of the values */
    double spread;     /* of the change of the loss by the gradient, for random moves of a tensor's size */
    double along;      /* the step along the gradient, in units of it, with its sign */
    double apart;      /* how far its elements move at random, in units of their tensor's size */
} group;

typedef struct {
    tm_trainer           *trainer;
    const tm_step        *step;
    const tm_micro_batch *batch;
    uint64_t              seed;
    member               *members;
    size_t                n_members, members_capacity;
    group                *groups;
    size_t                n_groups, groups_capacity;
    char                **state;  /* copies of what kernels carry from step to step */
    double                loss;   /* of the training program */
    double                scale;  /* of what is added up in it: logits, too, where they are */
    double                unit;   /* rounding of the compute format */
    bool                  coarse; /* is that coarser than float32? */
    double                small;  /* of the steps */
    double               *counts; /* rows of each expert of each block, with the weights as they are; NULL: none */
    size_t                n_counts;
    const char           *lost; /* a parameter that is to be trained and has no gradient */
    tm_probe              probe;
    bool                  probed;
    double                sum;       /* of the batch that was evaluated last */
    double                losses[3]; /* sums: of the probe's targets, with other tokens behind them, before them */
} certifier;

/* How far elements are moved at random at most, in units of their tensor's size; by how much steps become shorter. */
static const double fine_part = 0x1p-5, coarse_part = 0x1p-8, shrink = 0x1p-3;

/* --- what there is ------------------------------------------------------------------------------------------------ */

/* Behind the number of a block, "layers.3." or "h.3."; the name itself, if it has none. */
static const char *behind_block(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.') return dot + digits + 2;
    }
    return name;
}

void tm_certificate_group(const char *tensor, char out[96])
{
    const char *rest = behind_block(tensor);
    int         n = (int)strcspn(rest, "."), block = (int)(rest - tensor) - 1;
    if (strncmp(rest, "moe.", 4) == 0) n += 1 + (int)strcspn(rest + 4, "."); /* router, experts, shared_experts */
    bool norm = strncmp(rest, "ln_", 3) == 0 || (n >= 4 && strncmp(rest + n - 4, "norm", 4) == 0);
    if (block < 0)
        snprintf(out, 96, "%.*s", n < 90 ? n : 90, rest);
    else
        snprintf(out, 96, "%.*s %.*s", block < 40 ? block : 40, tensor,
                 norm     ? 5
                 : n < 50 ? n
                          : 50,
                 norm ? "norms" : rest);
}

static int group_of(certifier *c, const char *tensor)
{
    char name[96];
    tm_certificate_group(tensor, name);
    for (size_t i = c->n_groups; i-- > 0;)
        if (strcmp(c->groups[i].name, name) == 0) return (int)i;
    c->groups = tm_grow(c->groups, &c->groups_capacity, c->n_groups, sizeof *c->groups);
    c->groups[c->n_groups] = (group){ 0 };
    memcpy(c->groups[c->n_groups].name, name, sizeof name);
    return (int)c->n_groups++;
}

/* The format of the copy that the products of this parameter take, its own if there is none. */
static tm_dtype format_used(const tm_graph *graph, tm_tensor_id id)
{
    const tm_segment *segment = graph->segments[0];
    for (size_t i = 0; i < segment->n_nodes; i++)
        if (segment->nodes[i].op == TM_OP_cast && segment->nodes[i].in[0] == id)
            return tm_graph_at(graph, segment->nodes[i].out[0])->dtype;
    return tm_graph_at(graph, id)->dtype;
}

static void list_members(certifier *c)
{
    const tm_graph *graph = c->step->graph;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_PARAMETER && t->trained && t->gradient == TM_NONE) c->lost = t->name;
        if (t->role != TM_ROLE_PARAMETER || t->gradient == TM_NONE) continue;
        c->members = tm_grow(c->members, &c->members_capacity, c->n_members, sizeof *c->members);
        c->members[c->n_members++] = (member){ .id = (tm_tensor_id)i,
                                               .group = group_of(c, t->name),
                                               .dtype = t->dtype,
                                               .gradient_dtype = tm_graph_at(graph, t->gradient)->dtype,
                                               .used = format_used(graph, (tm_tensor_id)i),
                                               .n = tm_shape_elements(t->shape) };
    }
}

static size_t bytes_of(const certifier *c, tm_tensor_id id)
{
    return c->step->plan->places[id].bytes;
}

static tm_status read_whole(const certifier *c, tm_tensor_id id, char **out, tm_error *err)
{
    *out = tm_alloc(bytes_of(c, id) + 1);
    return tm_trainer_read(c->trainer, id, 0, *out, bytes_of(c, id), err);
}

static tm_status keep_state(certifier *c, tm_error *err)
{
    const tm_graph *graph = c->step->graph;
    c->state = tm_alloc(graph->n_tensors * sizeof *c->state);
    memset(c->state, 0, graph->n_tensors * sizeof *c->state);
    for (size_t i = 0; i < graph->n_tensors; i++)
        if (graph->tensors[i].role == TM_ROLE_STATE) TM_TRY(read_whole(c, (tm_tensor_id)i, &c->state[i], err));
    return TM_OK;
}

static tm_status restore_state(certifier *c, tm_error *err)
{
    for (size_t i = 0; c->state && i < c->step->graph->n_tensors; i++)
        if (c->state[i])
            TM_TRY(tm_trainer_write(c->trainer, (tm_tensor_id)i, 0, c->state[i], bytes_of(c, (tm_tensor_id)i), err));
    return TM_OK;
}

/* The gradient's two parts, where a table is looked up and a factor, too. */
static tm_status read_gradient(certifier *c, member *m, tm_error *err)
{
    const tm_tensor *t = tm_graph_at(c->step->graph, m->id);
    char            *lookup = NULL;
    TM_TRY(read_whole(c, t->gradient, &m->gradient, err));
    if (t->lookup_gradient == TM_NONE) return TM_OK;
    tm_status st = read_whole(c, t->lookup_gradient, &lookup, err);
    for (int64_t i = 0; st == TM_OK && i < m->n; i++)
        tm_value_set(m->gradient, m->gradient_dtype, i,
                     tm_value_get(m->gradient, m->gradient_dtype, i) + tm_value_get(lookup, m->gradient_dtype, i));
    free(lookup);
    return st;
}

static void measure_member(certifier *c, member *m)
{
    double values = 0, gradient = 0;
    for (int64_t i = 0; i < m->n; i++) {
        double w = tm_value_get(m->values, m->dtype, i), g = tm_value_get(m->gradient, m->gradient_dtype, i);
        values += w * w;
        gradient += g * g;
    }
    m->rms = sqrt(values / (double)m->n);
    if (!(m->rms > 0)) m->rms = 0.02; /* all zeros, as biases begin: the size of usual weights */
    m->norm = sqrt(gradient);
    c->groups[m->group].norm += gradient;
    c->groups[m->group].size += m->rms * m->rms * (double)m->n;
    c->groups[m->group].spread += gradient * m->rms * m->rms;
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* Loss with what the model adds to it, of the program that has just run. */
static tm_status add_balance(certifier *c, double *loss, tm_error *err)
{
    double balance = 0;
    if (c->step->model.balance_loss != TM_NONE)
        TM_TRY(tm_trainer_read(c->trainer, c->step->model.balance_loss, 0, &balance, sizeof balance, err));
    *loss = (*loss + balance) / (double)c->batch->target_tokens;
    return TM_OK;
}

/* The training program: the sum of the losses, and gradients. */
static tm_status train_on(certifier *c, const tm_micro_batch *batch, double *sum, tm_error *err)
{
    tm_ledger ledger = { 0 };
    TM_TRY(tm_trainer_begin(c->trainer, 1, 0, 0, batch->target_tokens, err));
    TM_TRY(tm_trainer_accumulate(c->trainer, 0, batch, &ledger, err));
    return tm_trainer_read(c->trainer, c->step->loss, 0, sum, sizeof *sum, err);
}

static tm_status run_training(certifier *c, double *loss, tm_error *err)
{
    TM_TRY(train_on(c, c->batch, loss, err));
    return add_balance(c, loss, err);
}

/* A forward pass; where something is dropped, which evaluation does not do, the training program. */
static tm_status sum_of(certifier *c, const tm_micro_batch *batch, double *sum, tm_error *err)
{
    if (c->step->first_row != TM_NONE) return train_on(c, batch, sum, err);
    return tm_trainer_evaluate(c->trainer, batch, sum, err);
}

/* With the weights as they are. */
static tm_status loss_now(certifier *c, double *loss, tm_error *err)
{
    TM_TRY(sum_of(c, c->batch, &c->sum, err));
    *loss = c->sum;
    return add_balance(c, loss, err);
}

/* The other versions of the batch that was looked at last, once. */
static tm_status run_probe(certifier *c, tm_error *err)
{
    if (c->probed || !c->probe.possible) return TM_OK;
    c->losses[0] = c->sum;
    TM_TRY(sum_of(c, &c->probe.later, &c->losses[1], err));
    TM_TRY(sum_of(c, &c->probe.earlier, &c->losses[2], err));
    c->probed = true;
    return TM_OK;
}

/* Rows of each expert in the program that has just run. */
static tm_status read_counts(const certifier *c, double *counts, tm_error *err)
{
    if (c->n_counts == 0) return TM_OK;
    return tm_trainer_read(c->trainer, c->step->model.expert_counts, 0, counts, c->n_counts * sizeof *counts, err);
}

/* Loss, gradients and counts of the batch, and what the groups make of them. */
static tm_status measure_gradients(certifier *c, tm_error *err)
{
    for (size_t i = 0; i < c->n_groups; i++) c->groups[i].norm = c->groups[i].size = c->groups[i].spread = 0;
    TM_TRY(run_training(c, &c->loss, err));
    TM_TRY(read_counts(c, c->counts, err));
    for (size_t k = 0; k < c->n_members; k++) {
        free(c->members[k].gradient);
        c->members[k].gradient = NULL;
        TM_TRY(read_gradient(c, &c->members[k], err));
        measure_member(c, &c->members[k]);
    }
    for (size_t i = 0; i < c->n_groups; i++) {
        c->groups[i].norm = sqrt(c->groups[i].norm);
        c->groups[i].size = sqrt(c->groups[i].size);
        c->groups[i].spread = sqrt(c->groups[i].spread);
    }
    return TM_OK;
}

/* Has a token changed its experts since the weights were moved? Two that swap theirs are not seen. */
static tm_status see_jump(const certifier *c, bool *jumped, tm_error *err)
{
    double   *now = tm_alloc((c->n_counts + 1) * sizeof *now);
    tm_status st = read_counts(c, now, err);
    if (st == TM_OK && c->n_counts > 0) *jumped = *jumped || memcmp(now, c->counts, c->n_counts * sizeof *now) != 0;
    free(now);
    return st;
}

/* --- moved weights ------------------------------------------------------------------------------------------------ */

enum { PIECE = 1 << 16 }; /* elements: a multiple of 64 */

/* n elements from `first` on. */
static void get_values(const char *data, tm_dtype dtype, int64_t first, int64_t n, double *out)
{
    if (dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) out[i] = (double)((const float *)data)[first + i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = tm_value_get(data, dtype, first + i);
}

static void set_values(char *data, tm_dtype dtype, int64_t first, int64_t n, const double *values)
{
    if (dtype == TM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)data)[first + i] = (float)values[i];
    else
        for (int64_t i = 0; i < n; i++) tm_value_set(data, dtype, first + i, values[i]);
}

static double as_bf16(double x)
{
    return (double)tm_bf16_value(tm_bf16_round((float)x));
}

/* Moves elements [first, first + n) of a tensor by `side` times its direction. *change grows by sum g (w' - w), with
 * what the products see of both. In blocks of 64, one random word each: the loops over a block are the compiler's to
 * vectorize. */
static void move_piece(const certifier *c, member *m, int64_t first, int64_t n, double side, double *change)
{
    uint64_t   stream = tm_random_stream(tm_graph_at(c->step->graph, m->id)->name);
    double     along = side * c->groups[m->group].along, apart = side * c->groups[m->group].apart * m->rms, sum = 0;
    const bool rounded = m->used == TM_BF16 && m->dtype != TM_BF16;
    for (int64_t block = 0; block < n; block += 64) {
        double         w[64], g[64], moved[64];
        const int64_t  at = first + block, count = n - block < 64 ? n - block : 64;
        const uint64_t bits = tm_random_u64(c->seed, stream, (uint64_t)at / 64);
        get_values(m->values, m->dtype, at, count, w);
        get_values(m->gradient, m->gradient_dtype, at, count, g);
        for (int64_t i = 0; i < count; i++) moved[i] = w[i] + along * g[i] + (bits >> i & 1 ? apart : -apart);
        set_values(m->moved, m->dtype, block, count, moved);
        get_values(m->moved, m->dtype, block, count, moved);
        for (int64_t i = 0; i < count && rounded; i++) w[i] = as_bf16(w[i]), moved[i] = as_bf16(moved[i]);
        for (int64_t i = 0; i < count; i++) sum += g[i] * (moved[i] - w[i]);
    }
    *change += sum;
}

/* Writes the tensors of groups [first, last), moved (side +1 or -1) or as they were (0). */
static tm_status move(certifier *c, size_t first, size_t last, double side, double *change, tm_error *err)
{
    for (size_t k = 0; k < c->n_members; k++) {
        member *m = &c->members[k];
        size_t  element = tm_dtype_bytes(m->dtype);
        if ((size_t)m->group < first || (size_t)m->group >= last) continue;
        if (side > 0 || side < 0) m->moved = tm_alloc(PIECE * element);
        tm_status st = TM_OK;
        for (int64_t at = 0; at < m->n && st == TM_OK; at += PIECE) {
            int64_t     n = m->n - at < PIECE ? m->n - at : PIECE;
            const char *from = m->moved ? m->moved : m->values + (size_t)at * element;
            if (m->moved) move_piece(c, m, at, n, side, change);
            st = tm_trainer_write(c->trainer, m->id, (size_t)at * element, from, (size_t)n * element, err);
        }
        free(m->moved);
        m->moved = NULL;
        TM_TRY(st);
    }
    return TM_OK;
}

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
    double                 squares = 0, rows = (double)c->batch->target_tokens, blocks = (double)o->shape.n_layers;
    for (size_t i = first; i < last; i++) {
        const group *g = &c->groups[i];
        double       along = g->along * g->norm * g->norm, apart = g->apart * g->spread;
        squares += along * along + apart * apart;
    }
    *reach = sqrt(squares);
    double rounding = 4 * c->unit * c->scale * sqrt((1 + blocks) / rows);
    return rounding + (c->coarse ? 0.06 : 0.02) * *reach + 0.2 * fmin(fabs(middle - c->loss), 0.02 * c->scale);
}

/* Compares along the direction, in groups [first, last) only. */
static tm_status compare(certifier *c, size_t first, size_t last, comparison *out, tm_error *err)
{
    double plus = 0, minus = 0, up = 0, down = 0;
    bool   jumped = false;
    TM_TRY(move(c, first, last, 1, &up, err));
    TM_TRY(loss_now(c, &plus, err));
    TM_TRY(see_jump(c, &jumped, err));
    TM_TRY(run_probe(c, err));
    TM_TRY(move(c, first, last, -1, &down, err));
    TM_TRY(loss_now(c, &minus, err));
    TM_TRY(see_jump(c, &jumped, err));
    TM_TRY(move(c, first, last, 0, NULL, err));
    *out =
        (comparison){ .expected = up - down, .measured = plus - minus, .middle = (plus + minus) / 2, .jumped = jumped };
    out->band = band_of(c, first, last, out->middle, &out->reach);
    return TM_OK;
}

/* Steps along the gradient, and at random, that change the loss by the same in every group, but move none by more than
 * a part of its size. A group whose gradient is too small for what the loss does shows when it moves far. */
static void choose_steps(certifier *c)
{
    double loss = fabs(c->loss) < c->scale ? fmax(fabs(c->loss), 0.1) : c->scale;
    double wanted = (c->coarse ? 0x1p-7 : 0x1p-12) * loss / sqrt((double)c->n_groups);
    double part = c->coarse ? coarse_part : fine_part;
    for (size_t i = 0; i < c->n_groups; i++) {
        group *g = &c->groups[i];
        bool   down = tm_random_u64(c->seed, tm_random_stream(g->name), 0) & 1;
        bool   far = !c->coarse && g->spread * part > wanted;
        g->along = 0;
        g->apart = c->small * (far ? wanted / g->spread : part);
        if (!(g->norm > 0)) continue;
        g->along = c->small * fmin(wanted / (g->norm * g->norm), 0x1p-6 * g->size / g->norm) * (down ? -1 : 1);
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

/* Directions, shorter ones where a token changes its experts, until one decides: all steps of dense models do. Of two
 * tokens that swap their experts nobody is told: with experts it takes two directions to say that a gradient is wrong.
 * *same_part: what the gradient does not tell is the same part of steps of any length. */
static tm_status try_directions(certifier *c, comparison *all, bool *decided, bool *same_part, tm_error *err)
{
    const int tries = c->n_counts > 0 ? 5 : 1;
    int       failed = 0;
    double least = (double)INFINITY, most = -(double)INFINITY; /* part of the change that the gradient does not tell */
    *decided = false;
    for (int i = 0; i < tries && !*decided; i++, c->seed++) {
        c->small = c->coarse ? 1 : pow(shrink, i);
        choose_steps(c);
        TM_TRY(compare(c, 0, c->n_groups, all, err));
        /* A jump widens the band, too, until anything fits: then the comparison says nothing. */
        bool sharp = tries == 1 || c->coarse || all->band <= 0.3 * all->reach;
        failed += !holds(all) && !all->jumped;
        *decided = holds(all) ? sharp : tries == 1 || failed == 2;
        least = fmin(least, all->measured / all->expected - 1);
        most = fmax(most, all->measured / all->expected - 1);
    }
    /* Where a token's experts change, the loss jumps, and no gradient says so. A jump does not shrink with the step;
     * what is the same part of steps of any length is a wrong gradient. */
    *same_part = least * most > 0 && fmin(fabs(least), fabs(most)) > 0.4 * fmax(fabs(least), fabs(most));
    return TM_OK;
}

static tm_status check_gradients(certifier *c, tm_certificate *out, tm_error *err)
{
    comparison all;
    bool       decided, same_part;
    TM_TRY(try_directions(c, &all, &decided, &same_part, err));
    out->gradients = decided && holds(&all);
    out->expected = all.expected;
    out->measured = all.measured;
    out->band = all.band;
    if (out->gradients) return TM_OK;
    if (!decided && !same_part) {
        out->done = false;
        snprintf(out->reason, sizeof out->reason,
                 "experts of tokens change too often for a comparison: %.4g by the loss, %.4g by the "
                 "gradient",
                 all.measured, all.expected);
        return TM_OK;
    }
    size_t first = 0, last = c->n_groups;
    TM_TRY(find_group(c, &first, &last, &all, err));
    snprintf(out->reason, sizeof out->reason,
             "the gradient of %s%s is not that of the loss: it changes by %.4g along a direction, %.4g by the gradient "
             "(band %.2g)",
             c->groups[first].name, last - first > 1 ? " and others" : "", all.measured, all.expected, all.band);
    return TM_OK;
}

/* What the model adds to the loss, without the targets: of its gradient little may be left in that of the whole. (In
 * coarse formats some token always changes its experts.) */
static tm_status check_balance(certifier *c, tm_certificate *out, tm_error *err)
{
    const tm_step_options *o = &c->step->options;
    const tm_micro_batch  *whole = c->batch;
    tm_micro_batch         empty = *whole;
    int                    targets = 0;
    if (c->step->model.balance_loss == TM_NONE || !out->gradients || c->coarse) return TM_OK;
    while (targets < o->n_fields && strcmp(o->fields[targets].name, "targets") != 0) targets++;
    if (targets == o->n_fields) return TM_OK;
    size_t   n = (size_t)(o->micro_batch * o->seq);
    int32_t *none = tm_alloc(n * sizeof *none);
    for (size_t i = 0; i < n; i++) none[i] = TM_IGNORED_TARGET;
    empty.field[targets] = none;
    c->batch = &empty;
    tm_certificate alone = { .done = true };
    tm_status      st = measure_gradients(c, err);
    c->scale = fabs(c->loss);
    if (st == TM_OK) st = check_gradients(c, &alone, err);
    c->batch = whole;
    free(none);
    if (st != TM_OK || !alone.done || alone.gradients) return st;
    out->gradients = false;
    snprintf(out->reason, sizeof out->reason, "of the loss that balances experts: %.900s", alone.reason);
    return TM_OK;
}

/* What the loss of moved weights depends on. */
static void judge_probe(const certifier *c, tm_certificate *out)
{
    const tm_step_options *o = &c->step->options;
    out->rows = o->micro_batch > 1;
    if (!c->probed) return;
    bool silent = out->reason[0] && out->done;
    out->looked_ahead = true;
    out->causal = memcmp(&c->losses[0], &c->losses[1], sizeof c->losses[0]) == 0;
    out->context = !c->probe.context || memcmp(&c->losses[0], &c->losses[2], sizeof c->losses[0]) != 0;
    if (!out->causal && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "tokens that the model must not see change the loss, from %.9g to %.9g: later tokens%s leak",
                 c->losses[0], c->losses[1], out->rows ? " or other rows" : "");
    else if (!out->context && !silent)
        snprintf(out->reason, sizeof out->reason,
                 "no token changes the predictions after it: the loss stays %.9g, the model uses no context",
                 c->losses[0]);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* No memory for the copies, or nothing that computes: said, not failed. */
static bool possible(const certifier *c, tm_certificate *out)
{
    double need = 0, have = (double)tm_memory_available_bytes("");
    for (size_t k = 0; k < c->n_members; k++) need += 2 * (double)bytes_of(c, c->members[k].id);
    if (c->n_members == 0)
        snprintf(out->reason, sizeof out->reason, "nothing is trained");
    else if (c->step->options.quantize.on)
        snprintf(out->reason, sizeof out->reason,
                 "factors are quantized: gradients are straight-through estimates, not derivatives of the loss");
    else if (c->step->options.adapters.rank > 0 && c->step->options.adapters.dora)
        snprintf(
            out->reason, sizeof out->reason,
            "DoRA takes the lengths that it divides by for constants: its gradients are not derivatives of the loss");
    else if (c->batch->target_tokens < 1)
        snprintf(out->reason, sizeof out->reason, "the first micro-batch has no targets");
    else if (have > 0 && need > 0.5 * have)
        snprintf(out->reason, sizeof out->reason, "copies of the weights would take %.1f GB", need * 1e-9);
    for (size_t k = 0; k < c->n_members; k++)
        if (tm_dtype_bits(c->members[k].dtype) % 8 != 0 && !out->reason[0])
            snprintf(out->reason, sizeof out->reason, "weights of %s are trained", tm_dtype_name(c->members[k].dtype));
    return !out->reason[0];
}

static tm_status certify(certifier *c, tm_certificate *out, tm_error *err)
{
    tm_tensor_id counts = c->step->model.expert_counts;
    TM_TRY(keep_state(c, err));
    if (counts != TM_NONE) {
        c->n_counts = (size_t)tm_shape_elements(tm_graph_at(c->step->graph, counts)->shape);
        c->counts = tm_alloc(c->n_counts * sizeof *c->counts);
    }
    for (size_t k = 0; k < c->n_members; k++) TM_TRY(read_whole(c, c->members[k].id, &c->members[k].values, err));
    TM_TRY(measure_gradients(c, err));
    c->scale = 1 + fabs(c->loss);
    out->done = true;
    out->groups = (int)c->n_groups;
    TM_TRY(check_gradients(c, out, err));
    TM_TRY(check_balance(c, out, err));
    if (c->lost && out->gradients) {
        out->gradients = false;
        snprintf(out->reason, sizeof out->reason, "%.120s is trained, but nothing computes its gradient", c->lost);
    }
    judge_probe(c, out);
    return TM_OK;
}

static double unit_of(tm_dtype compute)
{
    return compute == TM_F64 ? 0x1p-53 : compute == TM_F32 ? 0x1p-24 : 0x1p-9;
}

tm_status tm_certify(tm_trainer *trainer, const tm_micro_batch *batch, uint64_t seed, tm_certificate *result,
                     tm_error *err)
{
    certifier c = { .trainer = trainer, .step = tm_trainer_step_of(trainer), .seed = seed };
    int64_t   begin = tm_now_ns();
    *result = (tm_certificate){ 0 };
    c.unit = unit_of(c.step->options.precision->compute);
    c.coarse = c.unit > 0x1p-20;
    list_members(&c);
    tm_probe_make(&c.step->options, batch, seed, &c.probe);
    c.batch = &c.probe.counted;
    tm_status st = TM_OK;
    if (possible(&c, result)) {
        st = certify(&c, result, err);
        if (st == TM_OK) st = restore_state(&c, err);
    }
    for (size_t k = 0; k < c.n_members; k++) {
        free(c.members[k].values);
        free(c.members[k].gradient);
    }
    for (size_t i = 0; c.state && i < c.step->graph->n_tensors; i++) free(c.state[i]);
    free(c.state);
    free(c.counts);
    tm_probe_fini(&c.probe);
    free(c.members);
    free(c.groups);
    result->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    return st;
}
