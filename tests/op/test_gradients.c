/* SPDX-License-Identifier: Apache-2.0 */
/* Every op that can be differentiated, every example: its gradient rule against central differences in double, with
 * random cotangents; adding to gradients that hold something; frozen weights.
 *
 * A verdict is written so that NaN fails, and a gradient that is zero everywhere proves nothing: it fails too. */
#include "base/random.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "../support/execute.h"

#include "support/test.h"

static const double tolerance = 1e-7, step = 1e-5;
/* Elements of an input that are looked at; fewer of examples with many values, which cost the most. */
enum { SEED = 20240607, SAMPLE = 200, MANY_VALUES = 2000, SAMPLE_OF_MANY = 30 };

/* Two segments over the same tensors: the op alone, and the op with its backward nodes. `uses` nodes read the same
 * inputs and have results and cotangents of their own. */
enum { MAX_USES = 2 };
typedef struct {
    const tm_op      *op;
    const tm_example *example;
    tm_graph         *graph;
    tm_segment        forward, training;
    tm_memory         memory;
    int               uses;
    tm_tensor_id      in[TM_MAX_IN], out[MAX_USES][TM_MAX_OUT], cotangent[MAX_USES][TM_MAX_OUT];
    tm_tensor_id      gradient[TM_MAX_IN]; /* TM_NONE: none */
} check;

static bool is_differentiated(const tm_example *example, int k)
{
    return example->in[k].rank >= 0 &&
           (example->role[k] == TM_ROLE_PARAMETER || example->role[k] == TM_ROLE_ACTIVATION);
}

/* Its result is added to over the micro-batches, as the gradients of parameters are. */
static bool is_loss(const tm_op *op)
{
    return op->out_role[0] == TM_ROLE_SCALAR;
}

static tm_tensor_id make_input(tm_graph *graph, const tm_example *example, int k)
{
    if (example->in[k].rank < 0) return TM_NONE;
    int64_t  row = tm_piece_row(example->in[k]);
    tm_piece piece = { .name = "w", .rows = tm_shape_elements(example->in[k]) / row };
    return example->role[k] == TM_ROLE_PARAMETER ? tm_graph_parameter(graph, "w", example->in[k], &piece, 1)
                                                 : tm_graph_tensor(graph, "x", example->role[k], example->in[k]);
}

static size_t make_cotangents(check *c, int use, tm_seed *seeds)
{
    size_t n = 0;
    for (int k = 0; k < c->op->n_out; k++) {
        tm_role role = c->op->out_role[k];
        c->cotangent[use][k] = TM_NONE;
        if (c->out[use][k] == TM_NONE || (role != TM_ROLE_ACTIVATION && role != TM_ROLE_SCALAR)) continue;
        if (role == TM_ROLE_SCALAR && k > 0) continue; /* a record of what is told: nothing depends on it */
        tm_shape shape =
            role == TM_ROLE_SCALAR ? tm_shape_1(TM_SCALAR_COUNT) : tm_graph_at(c->graph, c->out[use][k])->shape;
        c->cotangent[use][k] = tm_graph_tensor(c->graph, "cotangent", role, shape);
        seeds[n++] = (tm_seed){ c->out[use][k], c->cotangent[use][k] };
    }
    return n;
}

static void fill(check *c)
{
    tm_memory_init(&c->memory, c->graph);
    for (int k = 0; k < c->op->n_in; k++) {
        if (c->in[k] == TM_NONE) continue;
        for (int64_t i = 0; i < tm_memory_count(&c->memory, c->in[k]); i++) {
            double value = tm_example_value(c->example, k, i, SEED);
            if (c->example->role[k] == TM_ROLE_INPUT) tm_memory_i32(&c->memory, c->in[k])[i] = (int32_t)value;
            if (c->example->role[k] != TM_ROLE_INPUT) tm_memory_f64(&c->memory, c->in[k])[i] = value;
        }
    }
    for (int use = 0; use < c->uses; use++)
        for (int k = 0; k < c->op->n_out; k++)
            if (c->cotangent[use][k] != TM_NONE)
                for (int64_t i = 0; i < tm_memory_count(&c->memory, c->cotangent[use][k]); i++)
                    tm_memory_f64(&c->memory, c->cotangent[use][k])[i] =
                        tm_random_normal(SEED + 1, (uint64_t)(use * TM_MAX_OUT + k), (uint64_t)i);
}

/* `frozen`: bit k: input k, a parameter, is not trained; an activation's gradient is not asked for. */
static void check_make(check *c, const tm_op *op, const tm_example *example, int uses, bool accumulate, unsigned frozen)
{
    tm_seed      seeds[MAX_USES * TM_MAX_OUT];
    tm_tensor_id inputs[TM_MAX_IN], gradients[TM_MAX_IN];
    size_t       n_inputs = 0, n_seeds = 0;
    const void  *attr = example->attr_bytes ? example->attr : NULL;
    *c = (check){ .op = op, .example = example, .uses = uses, .graph = tm_graph_create(&tm_precision_f64) };
    for (int k = 0; k < TM_MAX_IN; k++) {
        c->in[k] = k < op->n_in ? make_input(c->graph, example, k) : TM_NONE;
        if (c->in[k] != TM_NONE && (frozen >> k & 1U)) tm_graph_at(c->graph, c->in[k])->trained = false;
        if (c->in[k] == TM_NONE || example->role[k] != TM_ROLE_ACTIVATION || (frozen >> k & 1U)) continue;
        inputs[n_inputs++] = c->in[k];
    }
    tm_graph_segment(c->graph, "forward");
    for (int use = 0; use < uses; use++) {
        for (int k = 0; k < TM_MAX_OUT; k++) c->out[use][k] = TM_NONE;
        tm_graph_add(c->graph, tm_op_id_of(op), attr, example->attr_bytes, c->in, c->out[use], 0);
        n_seeds += make_cotangents(c, use, seeds + n_seeds);
    }
    tm_graph_segment(c->graph, "training");
    for (int use = 0; use < uses; use++)
        tm_graph_add(c->graph, tm_op_id_of(op), attr, example->attr_bytes, c->in, c->out[use],
                     accumulate && is_loss(op) ? 1 : 0);
    tm_gradient_pass(c->graph, accumulate, seeds, n_seeds, inputs, gradients, n_inputs);
    c->forward = *c->graph->segments[0];
    c->training = *c->graph->segments[1];
    for (int k = 0; k < TM_MAX_IN; k++) {
        c->gradient[k] = TM_NONE;
        if (c->in[k] == TM_NONE) continue;
        if (example->role[k] == TM_ROLE_PARAMETER) c->gradient[k] = tm_graph_at(c->graph, c->in[k])->gradient;
        for (size_t i = 0; i < n_inputs; i++)
            if (inputs[i] == c->in[k]) c->gradient[k] = gradients[i];
    }
    fill(c);
}

static void check_free(check *c)
{
    tm_memory_fini(&c->memory);
    tm_graph_destroy(c->graph);
}

/* Runs the forward nodes at x[i] = value; copies the differentiable results one after the other to `results`. */
static size_t results_at(check *c, double *x, double value, double *results)
{
    double was = *x;
    size_t n = 0;
    *x = value;
    tm_segment_execute(&c->memory, &c->forward);
    *x = was;
    for (int use = 0; use < c->uses; use++)
        for (int k = 0; k < c->op->n_out; k++) {
            if (c->cotangent[use][k] == TM_NONE) continue;
            size_t count = (size_t)tm_memory_count(&c->memory, c->out[use][k]);
            memcpy(results + n, tm_memory_f64(&c->memory, c->out[use][k]), count * sizeof *results);
            n += count;
        }
    return n;
}

/* sum over results of cotangent * (result(x + h) - result(x - h)) / 2h: the differences are taken first, so that little
 * cancels. */
static double central_difference(check *c, double *x, double *plus, double *minus)
{
    double h = step * fmax(1, fabs(*x)), above = *x + h, below = *x - h, sum = 0;
    size_t n = 0;
    results_at(c, x, above, plus);
    results_at(c, x, below, minus);
    for (int use = 0; use < c->uses; use++)
        for (int k = 0; k < c->op->n_out; k++) {
            if (c->cotangent[use][k] == TM_NONE) continue;
            const double *cotangent = tm_memory_f64(&c->memory, c->cotangent[use][k]);
            for (int64_t i = 0; i < tm_memory_count(&c->memory, c->out[use][k]); i++, n++)
                sum += cotangent[i] * (plus[n] - minus[n]); /* the loss has one value: its scalar 0 is the cotangent */
        }
    return sum / (above - below);
}

static double largest(const double *values, int64_t n)
{
    double result = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(values[i]) <= result)) result = fabs(values[i]);
    return result;
}

static int64_t sample_of(const check *c)
{
    int64_t values = 0;
    for (int k = 0; k < c->op->n_in; k++)
        if (is_differentiated(c->example, k)) values += tm_memory_count(&c->memory, c->in[k]);
    return values <= MANY_VALUES ? SAMPLE : SAMPLE_OF_MANY;
}

/* Worst |analytic - numeric| over the largest |analytic| of input k; a sample of elements when there are many. */
static double compare_input(check *c, int k, double scale, double *scratch, size_t scratch_size)
{
    int64_t count = tm_memory_count(&c->memory, c->in[k]), most = sample_of(c), n = count <= most ? count : most;
    double *x = tm_memory_f64(&c->memory, c->in[k]), worst = 0;
    double *analytic = tm_memory_f64(&c->memory, c->gradient[k]);
    for (int64_t s = 0; s < n; s++) {
        int64_t i = n == count ? s : (int64_t)tm_random_permute(SEED, (uint64_t)k, (uint64_t)s, (uint64_t)count);
        double  numeric = central_difference(c, &x[i], scratch, scratch + scratch_size);
        double  error = fabs(analytic[i] - numeric) / scale;
        if (!(error <= worst)) worst = error;
    }
    return worst;
}

static size_t count_results(const check *c)
{
    size_t n = 0;
    for (int use = 0; use < c->uses; use++)
        for (int k = 0; k < c->op->n_out; k++)
            if (c->cotangent[use][k] != TM_NONE) n += (size_t)tm_memory_count(&c->memory, c->out[use][k]);
    return n;
}

static bool counts_nothing(const tm_example *example)
{
    return example->ignored_every == 1;
}

static void check_example(const tm_op *op, const tm_example *example, int number, double *worst)
{
    check c;
    check_make(&c, op, example, 1, false, 0);
    tm_segment_execute(&c.memory, &c.training);
    size_t  size = count_results(&c);
    double *scratch = calloc(2 * size, sizeof *scratch);
    TM_ASSERT(scratch);
    for (int k = 0; k < op->n_in; k++) {
        if (!is_differentiated(example, k)) continue;
        if (c.gradient[k] == TM_NONE) fail_msg("%s, example %d: input %d has no gradient", op->name, number, k);
        double scale = largest(tm_memory_f64(&c.memory, c.gradient[k]), tm_memory_count(&c.memory, c.gradient[k]));
        if (counts_nothing(example)) {
            if (!(scale == 0))
                fail_msg("%s, example %d: no row counts, but input %d has a gradient", op->name, number, k);
            continue;
        }
        if (!(scale > 0)) fail_msg("%s, example %d: vacuous: the gradient of input %d is zero", op->name, number, k);
        double error = compare_input(&c, k, scale, scratch, size);
        if (!(error <= tolerance))
            fail_msg("%s, example %d: gradient of input %d is off by %g of its largest element, wanted %g", op->name,
                     number, k, error, tolerance);
        if (error > *worst) *worst = error;
    }
    free(scratch);
    check_free(&c);
}

/* ---- over all ops ---- */

typedef void check_function(const tm_op *op, const tm_example *example, int number, double *worst);

static void for_all(check_function *function, const char *what)
{
    int checked = 0;
    for (int id = 0; id < TM_OP_COUNT; id++) {
        const tm_op *op = tm_op_get((tm_op_id)id);
        tm_example   example;
        double       worst = 0;
        if (!op->gradient) continue;
        for (int k = 0; op->example(k, &example); k++, checked++)
            if (!tm_example_is_for_kernels(&example)) function(op, &example, k, &worst);
        print_message("# %s of %s: worst %.1e\n", what, op->name, worst);
    }
    assert_true(checked >= 40);
}

TEST(gradients_agree_with_differences)
{
    for_all(check_example, "gradient");
}

/* The gradient of input k is `want` up to the order of sums; *worst keeps the largest difference. */
static void expect_close(const check *c, int k, const double *want, double scale, int number, double *worst)
{
    const double *have = tm_memory_f64(&c->memory, c->gradient[k]);
    for (int64_t i = 0; i < tm_memory_count(&c->memory, c->in[k]); i++) {
        double error = fabs(have[i] - want[i]);
        if (!(error <= 1e-12 * scale))
            fail_msg("%s, example %d, input %d, element %lld: %.17g, wanted %.17g", c->op->name, number, k,
                     (long long)i, have[i], want[i]);
        if (error > *worst) *worst = error;
    }
}

/* One input frozen: it gets no gradient, the others keep theirs. All but one frozen: nothing is emitted for them. */
static void check_frozen(const tm_op *op, const tm_example *example, int number, double *worst)
{
    check all, some;
    check_make(&all, op, example, 1, false, 0);
    tm_segment_execute(&all.memory, &all.training);
    for (unsigned frozen = 1; frozen < 1U << op->n_in; frozen++) {
        check_make(&some, op, example, 1, false, frozen);
        tm_segment_execute(&some.memory, &some.training);
        bool any = false;
        for (int k = 0; k < op->n_in; k++) {
            if (!is_differentiated(example, k)) continue;
            if (frozen >> k & 1U) {
                assert_int_equal(some.gradient[k], TM_NONE);
                continue;
            }
            any = true;
            const double *want = tm_memory_f64(&all.memory, all.gradient[k]);
            assert_int_not_equal(some.gradient[k], TM_NONE);
            expect_close(&some, k, want, 0, number, worst);
        }
        if (!any) assert_int_equal(some.training.n_nodes, 1);
        assert_true(some.training.n_nodes <= all.training.n_nodes);
        check_free(&some);
    }
    check_free(&all);
}

FULL_TEST(frozen_inputs_cost_nothing)
{
    for_all(check_frozen, "freezing");
}

/* With `accumulate` the gradients of parameters add to what is there; those of activations are new. */
static void check_accumulate(const tm_op *op, const tm_example *example, int number, double *worst)
{
    check fresh, adding;
    check_make(&fresh, op, example, 1, false, 0);
    check_make(&adding, op, example, 1, true, 0);
    for (int k = 0; k < op->n_in; k++)
        if (is_differentiated(example, k) && example->role[k] == TM_ROLE_PARAMETER)
            tm_memory_random(&adding.memory, adding.gradient[k], SEED + 2, 0, 1);
    bool sums = is_loss(op) && adding.out[0][0] != TM_NONE; /* not where only the rows' losses are wanted */
    if (sums) *tm_memory_f64(&adding.memory, adding.out[0][0]) = 100;
    tm_segment_execute(&fresh.memory, &fresh.training);
    tm_segment_execute(&adding.memory, &adding.training);
    for (int k = 0; k < op->n_in; k++) {
        if (!is_differentiated(example, k)) continue;
        double *want = tm_memory_f64(&fresh.memory, fresh.gradient[k]);
        double  scale = largest(want, tm_memory_count(&fresh.memory, fresh.gradient[k])) + 1;
        if (example->role[k] == TM_ROLE_PARAMETER)
            for (int64_t i = 0; i < tm_memory_count(&fresh.memory, fresh.gradient[k]); i++)
                want[i] += tm_random_normal(SEED + 2, (uint64_t)adding.gradient[k], (uint64_t)i);
        expect_close(&adding, k, want, scale, number, worst);
    }
    if (sums) {
        double loss = *tm_memory_f64(&adding.memory, adding.out[0][0]);
        assert_true(fabs(loss - 100 - *tm_memory_f64(&fresh.memory, fresh.out[0][0])) <= 1e-12 * loss);
    }
    check_free(&fresh);
    check_free(&adding);
}

TEST(gradients_of_parameters_accumulate)
{
    for_all(check_accumulate, "accumulation");
}
