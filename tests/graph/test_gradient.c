/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient pass: tensors used more than once, frozen parameters, asked-for inputs, accumulation. All in float64,
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

static tm_model_shape shape_of(tm_model_family family)
{
    tm_model_shape s = family == TM_FAMILY_GPT ? test_gpt_options().shape : test_llama_options().shape;
    s.n_layers = LAYERS;
    s.dim = 8;
    s.head_dim = 4;
    s.ffn_dim = 12;
    s.vocab_size = 11;
    s.tied = false;
    return s;
}

/* Layers below `from` are frozen, so are the tables when from > 0; from == LAYERS: all but norm and head. */
static void build_network(network *net, const tm_model_shape *shape, int from)
{
    tm_graph *g = net->graph = tm_graph_create(&tm_precision_f64);
    net->tokens = tm_graph_tensor(g, "tokens", TM_ROLE_INPUT, tm_shape_1(N));
    net->targets = tm_graph_tensor(g, "targets", TM_ROLE_INPUT, tm_shape_1(N));
    net->scalars = tm_graph_tensor(g, "scalars", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT));
    net->loss = tm_graph_tensor(g, "loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    tm_model_declare(g, shape, N / 2, NULL, &net->model);
    for (size_t i = 0; i < g->n_tensors; i++) {
        bool table = (tm_tensor_id)i == net->model.embedding || (tm_tensor_id)i == net->model.positions;
        if (from > 0 && (table || (g->tensors[i].layer >= 0 && g->tensors[i].layer < from)))
            g->tensors[i].trained = false;
    }
    tm_graph_segment(g, "first");
    tm_inputs inputs = { { "tokens", "targets" }, { net->tokens, net->targets }, 2 };
    tm_model_loss(g, &net->model, &inputs, net->loss, N, false);
    tm_seed seed = { .result = net->loss, .cotangent = net->scalars };
    tm_gradient_pass(g, false, &seed, 1, NULL, NULL, 0);
}

static void run_network(const network *net, tm_memory *memory)
{
    tm_memory_init(memory, net->graph);
    for (size_t i = 0; i < net->graph->n_tensors; i++) {
        const tm_tensor *tensor = &net->graph->tensors[i];
        if (tensor->role == TM_ROLE_PARAMETER)
            tm_memory_random(memory, (tm_tensor_id)i, 9, tensor->pieces[0].mean, 0.4);
        if (tensor->role == TM_ROLE_CONSTANT)
            for (int64_t k = 0; k < tm_memory_count(memory, (tm_tensor_id)i); k++)
                tm_memory_f64(memory, (tm_tensor_id)i)[k] = tensor->fill(tensor->fill_context, k);
    }
    for (int i = 0; i < N; i++) {
        tm_memory_i32(memory, net->tokens)[i] = (i * 7 + 3) % 11;
        tm_memory_i32(memory, net->targets)[i] = (i * 5 + 1) % 11;
    }
    for (int i = 0; i < TM_SCALAR_COUNT; i++) tm_memory_f64(memory, net->scalars)[i] = 0.1;
    tm_segment_execute(memory, net->graph->segment);
}

static bool is_backward(const tm_node *node)
{
    return node->phase == TM_PHASE_BACKWARD;
}

/* Does a backward node make a gradient of an activation (not of a parameter)? */
static bool makes_input_gradient(const network *net, const tm_node *node)
{
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (node->out[k] != TM_NONE && tm_graph_at(net->graph, node->out[k])->role == TM_ROLE_ACTIVATION) return true;
    return false;
}

static void check_structure(const network *net, int from)
{
    for (size_t i = 0; i < net->graph->n_tensors; i++) {
        const tm_tensor *tensor = &net->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        if (tensor->trained != (tensor->gradient != TM_NONE))
            fail_msg("'%s': trained %d, gradient %d", tensor->name, tensor->trained, tensor->gradient);
    }
    size_t         backward = 0;
    const tm_node *last = NULL;
    for (size_t x = 0; x < net->graph->segment->n_nodes; x++) {
        const tm_node *node = &net->graph->segment->nodes[x];
        if (!is_backward(node)) continue;
        backward++;
        last = node;
        if (node->layer >= 0 && node->layer < from) fail_msg("a backward node in the frozen layer %d", node->layer);
        if (from > 0 && node->op == TM_OP_embedding_grad) fail_msg("the frozen tables have a backward node");
    }
    assert_true(backward > 0);
    /* below the first trained tensor (the lowest norm's weight, or the tables) nothing needs a gradient */
    if (makes_input_gradient(net, last) && from > 0 && from < LAYERS && last->op != TM_OP_rmsnorm_grad &&
        last->op != TM_OP_layernorm_grad)
        fail_msg("the last backward node, %s, makes a gradient that nothing reads", tm_op_get(last->op)->name);
}

/* The gradients of what is trained do not depend on what is frozen. */
static void compare(const network *part, const tm_memory *a, const network *whole, const tm_memory *b)
{
    size_t compared = 0;
    for (size_t i = 0; i < part->graph->n_tensors; i++) {
        const tm_tensor *tensor = &part->graph->tensors[i];
        if (tensor->role != TM_ROLE_PARAMETER || tensor->gradient == TM_NONE) continue;
        tm_tensor_id other = tm_graph_at(whole->graph, (tm_tensor_id)i)->gradient;
        assert_string_equal(tm_graph_at(whole->graph, other)->name, tm_graph_at(part->graph, tensor->gradient)->name);
        const double *x = tm_memory_f64(a, tensor->gradient), *y = tm_memory_f64(b, other);
        for (int64_t k = 0; k < tm_memory_count(a, tensor->gradient); k++)
            if (!(x[k] == y[k]))
                fail_msg("'%s'[%lld]: %g, with everything trained %g", tensor->name, (long long)k, x[k], y[k]);
        compared++;
    }
    assert_true(compared > 0);
}

TEST(frozen_parameters_have_no_gradient_and_stop_the_pass)
{
    for (int family = 0; family < 2; family++) {
        tm_model_shape shape = shape_of((tm_model_family)family);
        network        whole;
        tm_memory      reference;
        build_network(&whole, &shape, 0);
        check_structure(&whole, 0);
        run_network(&whole, &reference);
        for (int from = 1; from <= LAYERS; from++) {
            network   part;
            tm_memory memory;
            build_network(&part, &shape, from);
            check_structure(&part, from);
            run_network(&part, &memory);
            compare(&part, &memory, &whole, &reference);
            tm_memory_fini(&memory);
            tm_graph_destroy(part.graph);
        }
        tm_memory_fini(&reference);
        tm_graph_destroy(whole.graph);
    }
}

/* Input i is the tensor, or lies in the same memory. */
static bool reads(const tm_graph *graph, const tm_node *node, int i, tm_tensor_id tensor)
{
    return node->in[i] != TM_NONE && tm_graph_base(graph, node->in[i]) == tm_graph_base(graph, tensor);
}

/* Every gradient of an activation that the pass makes is read by a later node. */
TEST(nothing_is_computed_for_nobody)
{
    for (int family = 0; family < 2; family++)
        for (int from = 0; from <= LAYERS; from++) {
            tm_model_shape shape = shape_of((tm_model_family)family);
            network        net;
            build_network(&net, &shape, from);
            const tm_segment *s = net.graph->segment;
            for (size_t x = 0; x < s->n_nodes; x++) {
                tm_tensor_id out = s->nodes[x].out[0];
                if (!is_backward(&s->nodes[x]) || out == TM_NONE ||
                    tm_graph_at(net.graph, out)->role != TM_ROLE_ACTIVATION)
                    continue;
                bool read = false;
                for (size_t y = x + 1; y < s->n_nodes; y++)
                    for (int i = 0; i < TM_MAX_IN; i++) read |= reads(net.graph, &s->nodes[y], i, out);
                /* the norm kernels make dx and dw in one go: the lowest trained norm has a dx for nobody */
                bool norm = s->nodes[x].op == TM_OP_rmsnorm_grad || s->nodes[x].op == TM_OP_layernorm_grad;
                if (!read && !norm)
                    fail_msg("%s in layer %d: nothing reads its result", tm_op_get(s->nodes[x].op)->name,
                             s->nodes[x].layer);
            }
            tm_graph_destroy(net.graph);
        }
}

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
