/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of any lifetimes beside gradients that come late: nothing that lives at a time overlaps, what a program is
 * said to need is what its buffers take up, and gradients lend only where that saves memory. */
#include "base/random.h"
#include "graph/plan.h"
#include "op/attrs.h"

#include "support/test.h"

enum { GRAPHS = 400, BUFFERS = 24, GRADIENTS = 6 };

static const tm_kernel any = { .name = "any" };

static const tm_kernel *choose(const void *context, const tm_call *call, tm_text *refusals)
{
    (void)context, (void)call, (void)refusals;
    return &any;
}

static void fill(tm_graph *g, tm_tensor_id out)
{
    const tm_fill_attr zero = { .value = 0 };
    tm_tensor_id       in[TM_MAX_IN] = { TM_NONE }, to[TM_MAX_OUT] = { out };
    tm_graph_add(g, TM_OP_fill, &zero, sizeof zero, in, to, 0);
}

static void read_it(tm_graph *g, tm_tensor_id x, tm_tensor_id sum)
{
    tm_tensor_id in[TM_MAX_IN] = { x }, to[TM_MAX_OUT] = { sum };
    tm_graph_add(g, TM_OP_square_sum, NULL, 0, in, to, 0);
}

static tm_tensor_id vector(tm_graph *g, tm_role role, uint64_t seed, uint64_t i)
{
    return tm_graph_tensor_as(g, "buffer", role, tm_shape_2(1, 16 * (1 + (int64_t)tm_random_below(1, seed, i, 40))),
                              TM_F32);
}

/* Buffers that begin and end anywhere; gradients are written behind one another, in any order, one is read before. */
static tm_graph *make_graph(uint64_t seed)
{
    tm_graph    *g = tm_graph_create(&tm_precision_f32);
    tm_tensor_id gradients[GRADIENTS], buffers[BUFFERS];
    bool         open[BUFFERS] = { false }, done[BUFFERS] = { false };
    tm_tensor_id sum = tm_graph_tensor(g, "sum", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    for (uint64_t i = 0; i < GRADIENTS; i++) gradients[i] = vector(g, TM_ROLE_GRADIENT, seed, i);
    for (uint64_t i = 0; i < BUFFERS; i++) buffers[i] = vector(g, TM_ROLE_ACTIVATION, seed, 100 + i);
    tm_graph_segment(g, "first");
    int next = (int)tm_random_below(2, seed, 0, 3); /* of the gradients; those before it are written by nobody */
    if (seed % 5 == 0) read_it(g, gradients[GRADIENTS / 2], sum); /* what an earlier step left there */
    for (uint64_t i = 0; i < 3 * BUFFERS; i++) {
        size_t b = (size_t)tm_random_below(3, seed, i, BUFFERS);
        if (!open[b] && !done[b])
            fill(g, buffers[b]), open[b] = true;
        else if (open[b])
            read_it(g, buffers[b], sum), done[b] = tm_random_below(4, seed, i, 2), open[b] = !done[b];
        if (next < GRADIENTS && tm_random_below(5, seed, i, 9) == 0)
            fill(g, gradients[(seed & 1) ? next : GRADIENTS - 1 - next]), next++;
    }
    for (size_t b = 0; b < BUFFERS; b++)
        if (open[b]) read_it(g, buffers[b], sum);
    return g;
}

static size_t end_of(const tm_plan *plan, const tm_place *p)
{
    return p->offset + tm_plan_aligned(plan, p->bytes);
}

/* The instruction from which on what lies in a gradient counts: the first that touches it, if that only writes. */
static int32_t begin_of(const tm_plan *plan, size_t i)
{
    const tm_place *p = &plan->places[i];
    if (p->program != TM_PERSISTENT) return p->first;
    for (int32_t x = 0; plan->programs[0].written && x < (int32_t)plan->programs[0].count; x++) {
        const tm_node *node = plan->programs[0].instructions[x].node;
        if (node->in[0] == (tm_tensor_id)i) return 0;
        if (node->out[0] == (tm_tensor_id)i) return x;
    }
    return 0;
}

static void check(const tm_plan *plan, uint64_t seed)
{
    size_t base = plan->persistent_bytes, top = base, most = 0;
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_place *a = &plan->places[i];
        if (a->bytes > 0 && end_of(plan, a) > top) top = end_of(plan, a);
        for (size_t k = 0; k < i; k++) {
            const tm_place *b = &plan->places[k];
            bool            persistent = a->program == TM_PERSISTENT || b->program == TM_PERSISTENT;
            int32_t         last_a = a->program == TM_PERSISTENT ? INT32_MAX : a->last,
                    last_b = b->program == TM_PERSISTENT ? INT32_MAX : b->last;
            bool together = begin_of(plan, i) <= last_b && begin_of(plan, k) <= last_a;
            if (a->bytes && b->bytes && together && a->offset < end_of(plan, b) && b->offset < end_of(plan, a))
                fail_msg("graph %llu: tensors %zu and %zu%s overlap", (unsigned long long)seed, i, k,
                         persistent ? " (gradient)" : "");
        }
    }
    if (plan->programs[0].bytes != top - base)
        fail_msg("graph %llu: %zu bytes are planned, %zu taken", (unsigned long long)seed, plan->programs[0].bytes,
                 top - base);
    assert_int_equal(plan->arena_bytes, top);
    for (int32_t x = 0; x < (int32_t)plan->programs[0].count; x++) {
        size_t live = 0;
        for (size_t i = 0; i < plan->graph->n_tensors; i++) {
            const tm_place *p = &plan->places[i];
            bool there = p->program == TM_PERSISTENT ? begin_of(plan, i) <= x : p->first <= x && x <= p->last;
            if (p->bytes && there) live += tm_plan_aligned(plan, p->bytes);
        }
        if (live > most) most = live;
    }
    if (most < base) most = base;
    if (plan->programs[0].written) assert_int_equal(plan->programs[0].live_peak, most - base);
    assert_true(plan->programs[0].bytes >= plan->programs[0].live_peak);
}

TEST(gradients_lend_what_they_can)
{
    tm_chooser chooser = { .choose = choose, .threads = 1 };
    int        lends = 0, refuses = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        tm_graph *g = make_graph(seed);
        tm_plan  *plan;
        assert_ok(tm_plan_create(g, &chooser, &plan, err));
        check(plan, seed);
        *(plan->programs[0].written ? &lends : &refuses) += 1;
        tm_plan_destroy(plan);
        tm_graph_destroy(g);
    }
    assert_true(lends > 100 && refuses > 2);
}
