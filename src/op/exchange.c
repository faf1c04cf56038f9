/* SPDX-License-Identifier: Apache-2.0 */
/* op/exchange.c - rows to the experts of other ranks and back (expert parallel: Lepikhin et al. 2020, without a
 * capacity beyond which rows are dropped).
 *
 * R ranks have E / R experts each, rank q those from q E / R on. Every rank has P rows, sorted by expert
 * (op/dispatch.c), and may get the rows of all: how many is known at run time only. So a rank receives at most M rows
 * at a time, in as many rounds as the worst case needs; what rank q gets in all, in the order of (expert, rank it is
 * from, row there), is cut after every M rows. All ranks know all counts, so they agree on what is in a round; one
 * without rows sends nothing. The order, and so every sum over the rows of an expert, is the same always.
 *
 *   exchange_counts  counts[s, e] = rows of rank s for expert e;
 *                    places[r, e] = where the rows of this rank's expert e begin among those that it gets in round r
 *   send_rows        y (M, C): the rows of round r, from all ranks; behind them zeros
 *   return_rows      z (P, C) = before + the rows of round r, where they came from; before absent: 0
 *
 * send_rows and return_rows are each other's transpose. What one rank computes depends on the others, so a reference
 * exists for a group of one only.
 */
#include "op/exchange.h"

#include "base/status.h"
#include "graph/gradient.h"
#include "op/describe.h"

#include <string.h>

/* ---- runs ---- */

void tm_exchange_begin(tm_exchange_walk *walk, const tm_exchange_attr *attr, const int32_t *counts, int64_t experts,
                       int64_t only_to)
{
    *walk = (tm_exchange_walk){ .attr = attr, .counts = counts, .experts = experts, .only_to = only_to };
}

static int64_t clamped(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

bool tm_exchange_next(tm_exchange_walk *w, tm_exchange_run *run)
{
    int64_t ranks = w->attr->group.ranks, each = w->experts / ranks, most = w->attr->rows;
    int64_t begin = w->attr->round * most;
    while (w->expert < w->experts) {
        int64_t expert = w->expert, from = w->from, to = expert / each, n = w->counts[from * w->experts + expert];
        int64_t first = clamped(w->before, begin, begin + most), end = clamped(w->before + n, begin, begin + most);
        TM_ASSERT(n >= 0);
        *run = (tm_exchange_run){ .expert = expert,
                                  .from = from,
                                  .to = to,
                                  .at = w->at[from] + first - w->before,
                                  .place = first - begin,
                                  .rows = end - first };
        w->before += n;
        w->at[from] += n;
        w->from = (from + 1) % ranks;
        if (w->from == 0) w->expert++;
        if (w->from == 0 && w->expert % each == 0) w->before = 0; /* the next rank */
        if (run->rows > 0 && (w->only_to < 0 || w->only_to == to)) return true;
    }
    return false;
}

int64_t tm_exchange_even(const tm_exchange_attr *attr)
{
    return clamped(attr->pairs - attr->round * attr->rows, 0, attr->rows);
}

/* ---- exchange_counts ---- */

static const char *attr_check(const tm_exchange_attr *attr)
{
    if (attr->group.ranks < 1 || attr->group.ranks > TM_MAX_EXCHANGE) return "a group has 1 to 1024 ranks";
    if (attr->rank < 0 || attr->rank >= attr->group.ranks) return "the rank is not in the group";
    if (attr->rows < 1 || attr->rounds < 1 || attr->round < 0 || attr->round >= attr->rounds || attr->pairs < 1)
        return "there is at least one round, of one row";
    return NULL;
}

static const char *exchange_counts_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_exchange_attr *attr = attr_;
    const char             *why = attr_check(attr);
    if (why) return why;
    int64_t experts = in[0].rank == 1 ? in[0].n[0] - 1 : 0;
    if (experts < 1 || experts % attr->group.ranks != 0)
        return "there must be one offset more than experts, and these must divide by the ranks";
    if ((why = tm_shape_fit(&out[0], tm_shape_2(attr->group.ranks, experts),
                            "there must be a count for each rank and expert")))
        return why;
    return tm_shape_fit(&out[1], tm_shape_2(attr->rounds, experts / attr->group.ranks + 1),
                        "there must be one place more than a rank has experts, for each round");
}

void tm_exchange_places(const tm_exchange_attr *attr, const int32_t *counts, int64_t experts, int32_t *places)
{
    int64_t each = experts / attr->group.ranks, place = 0;
    for (int64_t e = 0; e <= each; e++) {
        for (int64_t r = 0; r < attr->rounds; r++)
            places[r * (each + 1) + e] = (int32_t)clamped(place - r * attr->rows, 0, attr->rows);
        for (int64_t s = 0; s < attr->group.ranks && e < each; s++)
            place += counts[s * experts + attr->rank * each + e];
    }
    TM_ASSERT(place <= attr->rounds * attr->rows); /* no row is left over */
}

static void exchange_counts_reference(const tm_call *call)
{
    const tm_exchange_attr *attr = call->attr;
    int64_t                 experts = call->in[0].shape.n[0] - 1;
    const int32_t          *offsets = call->in[0].data;
    int32_t                *counts = call->out[0].data;
    TM_ASSERT(attr->group.ranks == 1);
    for (int64_t e = 0; e < experts; e++) counts[e] = offsets[e + 1] - offsets[e];
    tm_exchange_places(attr, counts, experts, call->out[1].data);
}

/* As a ring gathers them. */
static tm_cost exchange_counts_cost(const tm_call *call)
{
    double  ranks = (double)((const tm_exchange_attr *)call->attr)->group.ranks;
    tm_cost cost = tm_call_cost(call, 0);
    cost.wire = tm_view_bytes(&call->out[0]) * (ranks - 1) / ranks;
    return cost;
}

/* Rounds in which rows of `experts` experts, `pairs` at most, fit. */
static const struct {
    int64_t pairs, experts, rows, rounds, round, channels;
} cases[] = { { 1, 1, 1, 1, 0, 1 },       { 12, 4, 12, 1, 0, 7 }, { 40, 7, 9, 5, 2, 33 },   { 40, 7, 9, 5, 0, 16 },
              { 130, 16, 200, 1, 0, 20 }, { 33, 3, 8, 5, 1, 5 },  { 700, 64, 90, 8, 1, 64 } };

static tm_exchange_attr example_attr(int k)
{
    tm_exchange_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.group.ranks = 1;
    attr.rounds = cases[k].rounds;
    attr.round = cases[k].round;
    attr.rows = cases[k].rows;
    attr.pairs = cases[k].pairs;
    return attr;
}

static bool exchange_counts_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_exchange_attr attr = example_attr(k);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_offsets(example, 0, cases[k].experts, cases[k].pairs);
    return true;
}

const tm_op tm_op_exchange_counts = {
    .name = "exchange_counts",
    .formula =
        "counts[s, e] = rows of rank s for expert e; places[r, e]: where those of an own expert begin in round r",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 1,
    .n_out = 2,
    .out_role = { TM_ROLE_INDEX, TM_ROLE_INDEX },
    .infer = exchange_counts_infer,
    .reference = exchange_counts_reference,
    .cost = exchange_counts_cost,
    .example = exchange_counts_example,
    .in_name = { "offsets (E + 1)" },
    .out_name = { "counts (R, E)", "places (rounds, E / R + 1)" },
    .attributes = "axes, ranks, what, rank, rounds, rows, pairs",
};

/* ---- send_rows, return_rows ---- */

static const char *rows_check(const tm_shape *in, const tm_exchange_attr *attr, int64_t rows)
{
    const char *why = attr_check(attr);
    if (why) return why;
    if (in[0].rank != 2 || in[0].n[0] != rows) return "the rows must be those of the attributes";
    if (in[1].rank != 2 || in[1].n[0] != attr->group.ranks || in[1].n[1] % attr->group.ranks != 0)
        return "the counts must have the shape (ranks, experts)";
    return NULL;
}

static const char *send_rows_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_exchange_attr *attr = attr_;
    const char             *why = rows_check(in, attr, attr->pairs);
    return why ? why : tm_shape_fit(&out[0], tm_shape_2(attr->rows, in[0].n[1]), "y must have the rows of a round");
}

static const char *return_rows_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_exchange_attr *attr = attr_;
    const char             *why = rows_check(in, attr, attr->rows);
    if (why) return why;
    tm_shape z = tm_shape_2(attr->pairs, in[0].n[1]);
    if (tm_shape_present(in[2]) && !tm_shape_equal(in[2], z)) return "before must have the shape of z";
    return tm_shape_fit(&out[0], z, "z must have this rank's rows");
}

/* Of a group of one. */
static void rows_reference(const tm_call *call)
{
    const tm_exchange_attr *attr = call->attr;
    bool                    sends = call->op == &tm_op_send_rows;
    int64_t                 c = call->in[0].shape.n[1], all = tm_shape_elements(call->out[0].shape);
    const double           *x = call->in[0].data, *before = call->in[2].data;
    double                 *y = call->out[0].data;
    tm_exchange_walk        walk;
    tm_exchange_run         run;
    TM_ASSERT(attr->group.ranks == 1);
    for (int64_t i = 0; i < all; i++) y[i] = before ? before[i] : 0;
    tm_exchange_begin(&walk, attr, call->in[1].data, call->in[1].shape.n[1], -1);
    while (tm_exchange_next(&walk, &run)) {
        int64_t from = sends ? run.at : run.place, to = sends ? run.place : run.at;
        for (int64_t i = 0; i < run.rows * c; i++) y[to * c + i] += x[from * c + i];
    }
}

/* What goes to the other ranks where all get equally many rows. */
static tm_cost rows_cost(const tm_call *call)
{
    const tm_exchange_attr *attr = call->attr;
    double                  ranks = (double)attr->group.ranks;
    tm_cost                 cost = tm_call_cost(call, 0);
    double                  row = tm_view_bytes(&call->in[0]) / (double)call->in[0].shape.n[0];
    cost.wire = (double)tm_exchange_even(attr) * row * (ranks - 1) / ranks;
    return cost;
}

static tm_tensor_id emit(tm_gradient *gradient, tm_op_id op, const tm_node *node, tm_tensor_id of, tm_tensor_id before)
{
    tm_tensor_id in[TM_MAX_IN] = { of, node->in[1], before }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, op, node->attr, node->attr_bytes, in, out, 0);
    return out[0];
}

static void send_rows_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id before = tm_gradient_take(gradient, node->in[0]);
    tm_gradient_add(gradient, node->in[0], emit(gradient, TM_OP_return_rows, node, dy, before));
}

static void return_rows_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dz = tm_gradient_of(gradient, node->out[0]);
    if (dz == TM_NONE) return;
    if (tm_gradient_wanted(gradient, node->in[0]))
        tm_gradient_add(gradient, node->in[0], emit(gradient, TM_OP_send_rows, node, dz, TM_NONE));
    if (tm_gradient_wanted(gradient, node->in[2])) tm_gradient_add(gradient, node->in[2], dz);
}

/* Fewer rows than there are. */
static void example_of(int k, tm_example *example, int64_t rows)
{
    tm_exchange_attr attr = example_attr(k);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, cases[k].channels), 0, 1);
    tm_example_int(example, 1, tm_shape_2(1, cases[k].experts), cases[k].pairs / cases[k].experts + 1);
}

static bool send_rows_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    example_of(k, example, cases[k].pairs);
    return true;
}

static bool return_rows_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    example_of(k, example, cases[k].rows);
    if (k % 2 == 0) tm_example_in(example, 2, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].pairs, cases[k].channels), 0, 1);
    return true;
}

const tm_op tm_op_send_rows = {
    .name = "send_rows",
    .formula = "y = the rows that all ranks have for this rank's experts, those of this round",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = send_rows_infer,
    .reference = rows_reference,
    .gradient = send_rows_gradient,
    .cost = rows_cost,
    .example = send_rows_example,
    .in_name = { "x (P, C)", "counts (R, E)" },
    .out_name = { "y (M, C)" },
    .attributes = "axes, ranks, what, rank, rounds, round, rows, pairs",
};

const tm_op tm_op_return_rows = {
    .name = "return_rows",
    .formula = "z = before + the rows of this round, where they came from",
    .group = "communication",
    .stream = TM_ON_COMMUNICATION,
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = return_rows_infer,
    .reference = rows_reference,
    .gradient = return_rows_gradient,
    .cost = rows_cost,
    .inplace = 1U << 2,
    .example = return_rows_example,
    .in_name = { "x (M, C)", "counts (R, E)", "[before (P, C)]" },
    .out_name = { "z (P, C)" },
    .attributes = "axes, ranks, what, rank, rounds, round, rows, pairs",
};
