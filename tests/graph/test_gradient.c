/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient pass: tensors used more than once, views, computed weights, accumulation. All in float64,
 * each tensor in memory of its own, everything unwritten holding NaN. */
#include "support/execute.h"

#include "graph/gradient.h"
#include "op/attrs.h"

#include "support/test.h"

enum { ROWS = 3, WIDTH = 4 };

typedef struct {
    tm_graph    *graph;
    tm_segment   forward;
    tm_tensor_id x, w, v, y, dy, dx; /* v, dx: TM_NONE where there is none */
} network;

static tm_tensor_id parameter(network *t, const char *name, tm_shape shape)
{
    tm_piece piece = { .name = name, .rows = shape.n[0], .std = 1 };
    return tm_graph_parameter(t->graph, name, shape, &piece, 1);
}

static tm_tensor_id emit(network *t, tm_op_id op, tm_tensor_id a, tm_tensor_id b, tm_tensor_id residual)
{
    const tm_norm_attr norm = { .eps = 1e-5 };
    bool               is_norm = op == TM_OP_rmsnorm;
    tm_tensor_id       in[TM_MAX_IN] = { a, b, TM_NONE, residual },
                 out[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    tm_graph_add(t->graph, op, is_norm ? &norm : NULL, is_norm ? sizeof norm : 0, in, out, 0);
    return out[0];
}

static void declare(network *t, int64_t columns, tm_shape w, bool v)
{
    t->x = tm_graph_tensor(t->graph, "x", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, columns));
    t->dy = tm_graph_tensor(t->graph, "dy", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    t->w = parameter(t, "w", w);
    if (v) t->v = parameter(t, "v", tm_shape_1(WIDTH));
    tm_graph_segment(t->graph, "first");
}

/* h = x w^T;  a = h + h;  b = gelu(a w^T + a);  c = rmsnorm(b, v);  d = c + x;  y = rmsnorm(d, v) w^T + b
 * w three times, v twice, x twice, h as both summands, a and b as input and residual. */
static void used_often(network *t)
{
    declare(t, WIDTH, tm_shape_2(WIDTH, WIDTH), true);
    tm_tensor_id h = emit(t, TM_OP_linear, t->x, t->w, TM_NONE);
    tm_tensor_id a = emit(t, TM_OP_add, h, h, TM_NONE);
    tm_tensor_id b = emit(t, TM_OP_gelu, emit(t, TM_OP_linear, a, t->w, a), TM_NONE, TM_NONE);
    tm_tensor_id d = emit(t, TM_OP_add, emit(t, TM_OP_rmsnorm, b, t->v, TM_NONE), t->x, TM_NONE);
    t->y = emit(t, TM_OP_linear, emit(t, TM_OP_rmsnorm, d, t->v, TM_NONE), t->w, b);
}

/* b = x u^T (ROWS, 3 WIDTH);  h = gelu(b);  y = b[0..3] + b[2..5] + b[7..10] + h[1..4] + x[0..3]
 * Views that overlap, columns of b and h that nobody reads, a tensor that is read whole and by columns, views of an
 * asked-for input: what is not written holds NaN. */
static void views(network *t)
{
    tm_graph *g = t->graph;
    declare(t, WIDTH + 1, tm_shape_2(3 * WIDTH, WIDTH + 1), false);
    tm_tensor_id b = emit(t, TM_OP_linear, t->x, t->w, TM_NONE);
    tm_tensor_id h = emit(t, TM_OP_gelu, b, TM_NONE, TM_NONE);
    tm_tensor_id part[] = { tm_graph_view(g, "b.0", b, 0, WIDTH), tm_graph_view(g, "b.2", b, 2, WIDTH),
                            tm_graph_view(g, "b.7", b, 7, WIDTH), tm_graph_view(g, "h.1", h, 1, WIDTH),
                            tm_graph_view(g, "x.0", t->x, 0, WIDTH) };
    t->y = part[0];
    for (int i = 1; i < 5; i++) t->y = emit(t, TM_OP_add, t->y, part[i], TM_NONE);
}

/* y = w[1..4] + x, w a parameter of five columns: a zero for the column that nobody reads. */
static void view_of_a_parameter(network *t)
{
    declare(t, WIDTH, tm_shape_2(ROWS, WIDTH + 1), false);
    t->y = emit(t, TM_OP_add, tm_graph_view(t->graph, "w.1", t->w, 1, WIDTH), t->x, TM_NONE);
}

/* u = rmsnorm(w, v) is the weight of two products: y = (x u^T) u^T. A rule that drops the gradient of a weight because
 * nobody stores it leaves w and v without one. */
static void computed_weights(network *t)
{
    declare(t, WIDTH, tm_shape_2(WIDTH, WIDTH), true);
    tm_tensor_id u = emit(t, TM_OP_rmsnorm, t->w, t->v, TM_NONE);
    t->y = emit(t, TM_OP_linear, emit(t, TM_OP_linear, t->x, u, TM_NONE), u, TM_NONE);
}

static double projection(const network *t, const tm_memory *memory)
{
    double sum = 0;
    tm_segment_execute(memory, &t->forward);
    for (int i = 0; i < ROWS * WIDTH; i++) sum += tm_memory_f64(memory, t->y)[i] * tm_memory_f64(memory, t->dy)[i];
    return sum;
}

/* `gradient` holds the slope of <y, dy> along each element of `tensor`, plus `start`. */
static void check_slopes(const network *t, const tm_memory *memory, tm_tensor_id tensor, tm_tensor_id gradient,
                         double start)
{
    double largest = 0;
    assert_int_not_equal(gradient, TM_NONE);
    for (int64_t i = 0; i < tm_memory_count(memory, tensor); i++) {
        const double h = 1e-5;
        double      *value = &tm_memory_f64(memory, tensor)[i], was = *value;
        *value = was + h;
        double above = projection(t, memory);
        *value = was - h;
        double below = projection(t, memory);
        *value = was;
        double wanted = start + (above - below) / (2 * h), got = tm_memory_f64(memory, gradient)[i];
        if (!(fabs(got - wanted) <= 1e-7 * (1 + fabs(wanted))))
            fail_msg("element %lld of '%s': %.12g, wanted %.12g", (long long)i, tm_graph_at(t->graph, gradient)->name,
                     got, wanted);
        if (fabs(got) > largest) largest = fabs(got);
    }
    assert_true(largest > 0.1);
}

/* Gradients hold NaN before, and are overwritten; or 7, and are added to. */
static void check(void (*build)(network *t), bool accumulate)
{
    network   t = { .graph = tm_graph_create(&tm_precision_f64), .v = TM_NONE };
    tm_memory memory;
    build(&t);
    size_t  n_forward = t.graph->segment->n_nodes;
    tm_seed seed = { .result = t.y, .cotangent = t.dy };
    tm_gradient_pass(t.graph, accumulate, &seed, 1, &t.x, &t.dx, 1);
    t.forward = *t.graph->segment;
    t.forward.n_nodes = n_forward;
    tm_memory_init(&memory, t.graph);
    tm_memory_random(&memory, t.x, 1, 0, 1);
    tm_memory_random(&memory, t.w, 2, 0, 0.5);
    if (t.v != TM_NONE) tm_memory_random(&memory, t.v, 3, 1, 0.3);
    tm_memory_random(&memory, t.dy, 4, 0, 1);
    const tm_tensor_id of[] = { t.w, t.v };
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; of[k] != TM_NONE && accumulate && i < tm_memory_count(&memory, of[k]); i++)
            tm_memory_f64(&memory, tm_graph_at(t.graph, of[k])->gradient)[i] = 7;
    tm_segment_execute(&memory, t.graph->segment);
    for (int k = 0; k < 2; k++)
        if (of[k] != TM_NONE)
            check_slopes(&t, &memory, of[k], tm_graph_at(t.graph, of[k])->gradient, accumulate ? 7 : 0);
    check_slopes(&t, &memory, t.x, t.dx, 0);
    tm_memory_fini(&memory);
    tm_graph_destroy(t.graph);
}

TEST(gradients_are_slopes)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        check(used_often, accumulate);
        check(views, accumulate);
        check(view_of_a_parameter, accumulate);
        check(computed_weights, accumulate);
    }
}
