/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient pass: tensors used more than once, views, computed weights, accumulation. All in float64,
 * each tensor in memory of its own, everything unwritten holding NaN. */
#include "support/execute.h"
#include "support/training.h"

#include "graph/gradient.h"
#include "op/attrs.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

static tm_tensor_id parameter(tm_graph *graph, const char *name, tm_shape shape)
{
    tm_piece piece = { .name = name, .rows = shape.n[0], .std = 1 };
    return tm_graph_parameter(graph, name, shape, &piece, 1);
}

static tm_tensor_id emit(tm_graph *graph, tm_op_id op, const void *attr, size_t bytes, tm_tensor_id a, tm_tensor_id b,
                         tm_tensor_id c, tm_tensor_id d)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b, c, d },
                 out[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    tm_graph_add(graph, op, attr, bytes, in, out, 0);
    return out[0];
}

/* --- used more than once ------------------------------------------------------------------------------------------ */

enum { ROWS = 3, WIDTH = 4 };

typedef struct {
    tm_graph    *graph;
    tm_segment   forward;
    tm_tensor_id x, w, v, y, dy, dx;
} twice;

/* h = x w^T;  a = h + h;  b = gelu(a w^T + a);  c = rmsnorm(b, v);  d = c + x;  y = rmsnorm(d, v) w^T + b
 * w three times, v twice, x twice, h as both summands, a and b as input and residual. */
static void build_twice(twice *t, bool accumulate)
{
    tm_norm_attr norm = { .eps = 1e-5 };
    tm_graph    *g = t->graph = tm_graph_create(&tm_precision_f64);
    t->x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    t->dy = tm_graph_tensor(g, "dy", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    t->w = parameter(g, "w", tm_shape_2(WIDTH, WIDTH));
    t->v = parameter(g, "v", tm_shape_1(WIDTH));
    tm_graph_segment(g, "first");
    tm_tensor_id h = emit(g, TM_OP_linear, NULL, 0, t->x, t->w, TM_NONE, TM_NONE);
    tm_tensor_id a = emit(g, TM_OP_add, NULL, 0, h, h, TM_NONE, TM_NONE);
    tm_tensor_id b = emit(g, TM_OP_linear, NULL, 0, a, t->w, TM_NONE, a);
    b = emit(g, TM_OP_gelu, NULL, 0, b, TM_NONE, TM_NONE, TM_NONE);
    tm_tensor_id c = emit(g, TM_OP_rmsnorm, &norm, sizeof norm, b, t->v, TM_NONE, TM_NONE);
    tm_tensor_id d = emit(g, TM_OP_add, NULL, 0, c, t->x, TM_NONE, TM_NONE);
    d = emit(g, TM_OP_rmsnorm, &norm, sizeof norm, d, t->v, TM_NONE, TM_NONE);
    t->y = emit(g, TM_OP_linear, NULL, 0, d, t->w, TM_NONE, b);
    size_t  n_forward = g->segment->n_nodes;
    tm_seed seed = { .result = t->y, .cotangent = t->dy };
    tm_gradient_pass(g, accumulate, &seed, 1, &t->x, &t->dx, 1);
    t->forward = *g->segment;
    t->forward.n_nodes = n_forward;
}

static double projection(const twice *t, const tm_memory *memory)
{
    double sum = 0;
    tm_segment_execute(memory, &t->forward);
    for (int i = 0; i < ROWS * WIDTH; i++) sum += tm_memory_f64(memory, t->y)[i] * tm_memory_f64(memory, t->dy)[i];
    return sum;
}

/* `gradient` holds `factor` times the slope of <y, dy> along each element of `tensor`, plus `start`. */
static void check_slopes(const twice *t, const tm_memory *memory, tm_tensor_id tensor, tm_tensor_id gradient,
                         double factor, double start)
{
    double largest = 0;
    for (int64_t i = 0; i < tm_memory_count(memory, tensor); i++) {
        const double h = 1e-5;
        double      *value = &tm_memory_f64(memory, tensor)[i], was = *value;
        *value = was + h;
        double above = projection(t, memory);
        *value = was - h;
        double below = projection(t, memory);
        *value = was;
        double wanted = start + factor * (above - below) / (2 * h), got = tm_memory_f64(memory, gradient)[i];
        if (!(fabs(got - wanted) <= 1e-7 * (1 + fabs(wanted))))
            fail_msg("element %lld of '%s': %.12g, wanted %.12g", (long long)i, tm_graph_at(t->graph, gradient)->name,
                     got, wanted);
        if (fabs(got) > largest) largest = fabs(got);
    }
    assert_true(largest > 0.1);
}

static void run_twice(bool accumulate)
{
    twice     t;
    tm_memory memory;
    build_twice(&t, accumulate);
    tm_memory_init(&memory, t.graph);
    tm_memory_random(&memory, t.x, 1, 0, 1);
    tm_memory_random(&memory, t.w, 2, 0, 0.5);
    tm_memory_random(&memory, t.v, 3, 1, 0.3);
    tm_memory_random(&memory, t.dy, 4, 0, 1);
    tm_tensor_id dw = tm_graph_at(t.graph, t.w)->gradient, dv = tm_graph_at(t.graph, t.v)->gradient;
    assert_true(dw != TM_NONE && dv != TM_NONE && t.dx != TM_NONE);
    for (int i = 0; accumulate && i < WIDTH * WIDTH; i++) tm_memory_f64(&memory, dw)[i] = 7;
    for (int i = 0; accumulate && i < WIDTH; i++) tm_memory_f64(&memory, dv)[i] = 7;
    tm_segment_execute(&memory, t.graph->segment);
    double start = accumulate ? 7 : 0;
    check_slopes(&t, &memory, t.w, dw, 1, start);
    check_slopes(&t, &memory, t.v, dv, 1, start);
    check_slopes(&t, &memory, t.x, t.dx, 1, 0);
    tm_memory_fini(&memory);
    tm_graph_destroy(t.graph);
}

TEST(tensors_used_twice_get_both_contributions)
{
    run_twice(false); /* gradients hold NaN before: overwritten, not added to */
}

TEST(accumulation_adds_to_what_is_there)
{
    run_twice(true);
}

/* --- views ----------------------------------------------------------------------------------------------------------
 */

/* b = x u^T (ROWS, 3 WIDTH);  h = gelu(b);  y = b[0..3] + b[2..5] + b[7..10] + h[1..4] + x[0..3]
 * Views that overlap, columns of b and h that nobody reads, a tensor that is read whole and by columns, views of an
 * asked-for input: what is not written holds NaN. */
TEST(views_pass_their_gradient_to_their_base)
{
    twice     t = { .graph = tm_graph_create(&tm_precision_f64) };
    tm_memory memory;
    tm_graph *g = t.graph;
    t.x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH + 1));
    t.dy = tm_graph_tensor(g, "dy", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    t.w = parameter(g, "w", tm_shape_2(3 * WIDTH, WIDTH + 1));
    tm_graph_segment(g, "first");
    tm_tensor_id b = emit(g, TM_OP_linear, NULL, 0, t.x, t.w, TM_NONE, TM_NONE);
    tm_tensor_id h = emit(g, TM_OP_gelu, NULL, 0, b, TM_NONE, TM_NONE, TM_NONE);
    tm_tensor_id part[] = { tm_graph_view(g, "b.0", b, 0, WIDTH), tm_graph_view(g, "b.2", b, 2, WIDTH),
                            tm_graph_view(g, "b.7", b, 7, WIDTH), tm_graph_view(g, "h.1", h, 1, WIDTH),
                            tm_graph_view(g, "x.0", t.x, 0, WIDTH) };
    t.y = part[0];
    for (int i = 1; i < 5; i++) t.y = emit(g, TM_OP_add, NULL, 0, t.y, part[i], TM_NONE, TM_NONE);
    size_t  n_forward = g->segment->n_nodes;
    tm_seed seed = { .result = t.y, .cotangent = t.dy };
    tm_gradient_pass(g, false, &seed, 1, &t.x, &t.dx, 1);
    t.forward = *g->segment;
    t.forward.n_nodes = n_forward;
    tm_memory_init(&memory, g);
    tm_memory_random(&memory, t.x, 1, 0, 1);
    tm_memory_random(&memory, t.w, 2, 0, 0.5);
    tm_memory_random(&memory, t.dy, 4, 0, 1);
    tm_segment_execute(&memory, g->segment);
    check_slopes(&t, &memory, t.w, tm_graph_at(g, t.w)->gradient, 1, 0);
    check_slopes(&t, &memory, t.x, t.dx, 1, 0);
    tm_memory_fini(&memory);
    tm_graph_destroy(g);
}

/* y = w[1..4] + x, w a parameter of five columns: what its view contributes reaches its gradient, with a zero for the
 * column that nobody reads; wherever w stands among the tensors, and beside what its gradient holds. */
static void view_of_a_parameter(bool first, bool accumulate)
{
    twice     t = { .graph = tm_graph_create(&tm_precision_f64) };
    tm_memory memory;
    tm_graph *g = t.graph;
    if (first) t.w = parameter(g, "w", tm_shape_2(ROWS, WIDTH + 1));
    t.x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    t.dy = tm_graph_tensor(g, "dy", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
    if (!first) t.w = parameter(g, "w", tm_shape_2(ROWS, WIDTH + 1));
    tm_graph_segment(g, "first");
    t.y = emit(g, TM_OP_add, NULL, 0, tm_graph_view(g, "w.1", t.w, 1, WIDTH), t.x, TM_NONE, TM_NONE);
    size_t  n_forward = g->segment->n_nodes;
    tm_seed seed = { .result = t.y, .cotangent = t.dy };
    tm_gradient_pass(g, accumulate, &seed, 1, NULL, NULL, 0);
    t.forward = *g->segment;
    t.forward.n_nodes = n_forward;
    tm_tensor_id dw = tm_graph_at(g, t.w)->gradient;
    assert_int_not_equal(dw, TM_NONE);
    tm_memory_init(&memory, g);
    tm_memory_random(&memory, t.x, 1, 0, 1);
    tm_memory_random(&memory, t.w, 2, 0, 0.5);
    tm_memory_random(&memory, t.dy, 4, 0, 1);
    for (int i = 0; accumulate && i < ROWS * (WIDTH + 1); i++) tm_memory_f64(&memory, dw)[i] = 7;
    tm_segment_execute(&memory, g->segment);
    check_slopes(&t, &memory, t.w, dw, 1, accumulate ? 7 : 0);
    tm_memory_fini(&memory);
    tm_graph_destroy(g);
}

TEST(views_of_parameters_pass_their_gradient_on)
{
    for (int i = 0; i < 4; i++) view_of_a_parameter(i & 1, i & 2);
}

/* --- weights that are computed --------------------------------------------------------------------------------------
 */

/* u = rmsnorm(w, v) is the weight of two products: y = (x u^T) u^T. A rule that drops the gradient of a weight because
 * nobody stores it leaves w and v without one. */
TEST(computed_weights_pass_their_gradient_on)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        tm_norm_attr norm = { .eps = 1e-5 };
        twice        t = { .graph = tm_graph_create(&tm_precision_f64) };
        tm_memory    memory;
        tm_graph    *g = t.graph;
        t.x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
        t.dy = tm_graph_tensor(g, "dy", TM_ROLE_ACTIVATION, tm_shape_2(ROWS, WIDTH));
        t.w = parameter(g, "w", tm_shape_2(WIDTH, WIDTH));
        t.v = parameter(g, "v", tm_shape_1(WIDTH));
        tm_graph_segment(g, "first");
        tm_tensor_id u = emit(g, TM_OP_rmsnorm, &norm, sizeof norm, t.w, t.v, TM_NONE, TM_NONE);
        tm_tensor_id h = emit(g, TM_OP_linear, NULL, 0, t.x, u, TM_NONE, TM_NONE);
        t.y = emit(g, TM_OP_linear, NULL, 0, h, u, TM_NONE, TM_NONE);
        size_t  n_forward = g->segment->n_nodes;
        tm_seed seed = { .result = t.y, .cotangent = t.dy };
        tm_gradient_pass(g, accumulate != 0, &seed, 1, NULL, NULL, 0);
        t.forward = *g->segment;
        t.forward.n_nodes = n_forward;
        tm_memory_init(&memory, g);
        tm_memory_random(&memory, t.x, 1, 0, 1);
        tm_memory_random(&memory, t.w, 2, 0, 0.5);
        tm_memory_random(&memory, t.v, 3, 1, 0.3);
        tm_memory_random(&memory, t.dy, 4, 0, 1);
        tm_tensor_id dw = tm_graph_at(g, t.w)->gradient, dv = tm_graph_at(g, t.v)->gradient;
        assert_true(dw != TM_NONE && dv != TM_NONE);
        for (int i = 0; accumulate && i < WIDTH * WIDTH; i++) tm_memory_f64(&memory, dw)[i] = 7;
        for (int i = 0; accumulate && i < WIDTH; i++) tm_memory_f64(&memory, dv)[i] = 7;
        tm_segment_execute(&memory, g->segment);
        check_slopes(&t, &memory, t.w, dw, 1, accumulate ? 7 : 0);
        check_slopes(&t, &memory, t.v, dv, 1, accumulate ? 7 : 0);
        tm_memory_fini(&memory);
        tm_graph_destroy(g);
    }
}

/* --- frozen parameters -------------------------------------------------------------------------------------------- */

typedef struct {
    tm_graph    *graph;
    tm_model     model;
    tm_tensor_id tokens, targets, scalars, loss;
} network;

enum { LAYERS = 4, N = 10 };

/* Picture ops are forward only: whoever asks for their gradient is told which op it is, and the program ends. */
TEST(an_op_without_a_gradient_says_so)
{
    int  ends[2], status;
    char said[300] = "";
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        static const struct rlimit none = { 0, 0 };
        tm_graph                  *g = tm_graph_create(&tm_precision_f32);
        tm_convolution_attr        attr = { 1, 2, 3, 1, 1, 0, 0, 1 };
        tm_tensor_id               x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(6, 4)), dx = TM_NONE;
        tm_tensor_id               dy = tm_graph_tensor(g, "dy", TM_ROLE_ACTIVATION, tm_shape_2(6, 5));
        tm_tensor_id               w = parameter(g, "w", tm_shape_2(5, 4));
        tm_graph_segment(g, "first");
        tm_seed seed = { .result = emit(g, TM_OP_convolution, &attr, sizeof attr, x, w, TM_NONE, TM_NONE),
                         .cotangent = dy };
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        tm_gradient_pass(g, false, &seed, 1, &x, &dx, 1);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_non_null(strstr(said, "a gradient of 'convolution' is asked for"));
}
