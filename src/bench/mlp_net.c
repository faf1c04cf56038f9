/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/mlp_net.h"

#include "base/arena.h"
#include "graph/gradient.h"
#include "graph/passes/passes.h"
#include "graph/plan.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_mlp {
    tm_mlp_options    options;
    tm_device        *device;
    tm_graph         *graph;
    tm_plan          *plan;
    const tm_program *step, *update, *evaluate;
    void             *arena;
    int64_t           steps;
    tm_tensor_id      weight[TM_MLP_LAYERS], bias[TM_MLP_LAYERS];
    tm_tensor_id      x, targets, scalars, clip, loss, evaluation_loss, evaluation_y;
};

/* --- the graph ------------------------------------------------------------------------------- */

static void declare(tm_mlp *m)
{
    const tm_mlp_options *o = &m->options;
    tm_graph             *g = m->graph;
    char                  name[64];
    for (int k = 0; k < o->layers; k++) {
        tm_piece piece = { .rows = o->width[k + 1] };
        snprintf(name, sizeof name, "layers.%d.weight", k);
        piece.name = tm_arena_text(g->arena, name);
        m->weight[k] = tm_graph_parameter(g, name, tm_shape_2(o->width[k + 1], o->width[k]), &piece, 1);
        snprintf(name, sizeof name, "layers.%d.bias", k);
        piece.name = tm_arena_text(g->arena, name);
        m->bias[k] = o->bias ? tm_graph_parameter(g, name, tm_shape_1(o->width[k + 1]), &piece, 1) : TM_NONE;
    }
    m->x = tm_graph_tensor_as(g, "x", TM_ROLE_INPUT, tm_shape_2(o->batch, o->width[0]), g->precision->wide);
    m->targets = tm_graph_tensor_as(g, "targets", TM_ROLE_INPUT, tm_shape_2(o->batch, o->width[o->layers]),
                                    g->precision->wide);
    m->scalars = tm_graph_tensor(g, "scalars", TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT));
    m->clip = tm_graph_tensor(g, "clip", TM_ROLE_SCALAR, tm_shape_1(2));
    m->loss = tm_graph_tensor(g, "loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
    m->evaluation_loss = tm_graph_tensor(g, "evaluation_loss", TM_ROLE_SCALAR, (tm_shape){ .rank = 0 });
}

static tm_tensor_id emit(tm_graph *g, tm_op_id op, tm_tensor_id a, tm_tensor_id b, tm_tensor_id c)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b, c, TM_NONE }, out[TM_MAX_OUT];
    for (int k = 0; k < TM_MAX_OUT; k++) out[k] = TM_NONE;
    tm_graph_add(g, op, NULL, 0, in, out, 0);
    return out[0];
}

/* Forward nodes and loss; returns y. */
static tm_tensor_id add_forward(tm_mlp *m, tm_tensor_id loss)
{
    tm_graph    *g = m->graph;
    tm_tensor_id h = m->x;
    g->phase = TM_PHASE_FORWARD;
    if (g->precision->compute != g->precision->wide) h = emit(g, TM_OP_cast, h, TM_NONE, TM_NONE);
    for (int k = 0; k < m->options.layers; k++) {
        g->layer = k;
        h = emit(g, TM_OP_linear, h, m->weight[k], m->bias[k]);
        if (k + 1 < m->options.layers) h = emit(g, m->options.activation, h, TM_NONE, TM_NONE);
    }
    g->layer = -1;
    tm_tensor_id in[TM_MAX_IN] = { h, m->targets }, out[TM_MAX_OUT] = { loss };
    tm_graph_add(g, TM_OP_square_error, NULL, 0, in, out, 0);
    return h;
}

static void add_step(tm_mlp *m)
{
    tm_graph_segment(m->graph, "step");
    add_forward(m, m->loss);
    tm_seed seed = { .result = m->loss, .cotangent = m->scalars };
    tm_gradient_pass(m->graph, false, &seed, 1, NULL, NULL, 0);
    tm_precision_pass(m->graph);
}

static tm_tensor_id add_moment(tm_graph *g, tm_tensor_id parameter, const char *suffix)
{
    char name[96];
    snprintf(name, sizeof name, "%.60s.%s", tm_graph_at(g, parameter)->name, suffix);
    return tm_graph_tensor(g, name, TM_ROLE_MOMENT, tm_graph_at(g, parameter)->shape);
}

static void add_update(tm_mlp *m)
{
    const tm_adamw_attr attr = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0 };
    tm_graph           *g = m->graph;
    tm_graph_segment(g, "update");
    g->phase = TM_PHASE_UPDATE;
    for (int k = 0; k < 2 * m->options.layers; k++) {
        tm_tensor_id p = k % 2 ? m->bias[k / 2] : m->weight[k / 2];
        if (p == TM_NONE) continue;
        tm_tensor_id first = add_moment(g, p, "exp_avg"), second = add_moment(g, p, "exp_avg_sq");
        tm_tensor_id in[TM_MAX_IN] = { p, tm_graph_at(g, p)->gradient, first, second, m->scalars, m->clip };
        tm_tensor_id out[TM_MAX_OUT] = { p, first, second };
        g->layer = k / 2;
        tm_graph_add(g, TM_OP_adamw, &attr, sizeof attr, in, out, 0);
    }
    g->layer = -1;
}

tm_status tm_mlp_create(const tm_mlp_options *options, tm_device *device, tm_mlp **out, tm_error *err)
{
    tm_mlp *m = tm_alloc(sizeof *m);
    m->options = *options;
    m->device = device;
    m->graph = tm_graph_create(options->precision);
    declare(m);
    add_step(m);
    if (options->update) add_update(m);
    tm_graph_segment(m->graph, "evaluate");
    m->evaluation_y = add_forward(m, m->evaluation_loss);
    tm_precision_pass(m->graph);
    tm_chooser chooser = tm_device_chooser(device);
    tm_status st = tm_plan_create(m->graph, &chooser, &m->plan, err);
    if (st != TM_OK) {
        tm_mlp_destroy(m);
        return st;
    }
    m->step = tm_plan_program(m->plan, "step");
    m->update = tm_plan_program(m->plan, "update");
    m->evaluate = tm_plan_program(m->plan, "evaluate");
    *out = m;
    return TM_OK;
}

void tm_mlp_destroy(tm_mlp *m)
{
    if (!m) return;
    if (m->arena) tm_device_release(m->device, m->arena, m->plan->arena_bytes);
    tm_plan_destroy(m->plan);
    tm_graph_destroy(m->graph);
    free(m);
}

size_t tm_mlp_bytes(const tm_mlp *m)
{
    return m->plan->arena_bytes;
}

int64_t tm_mlp_parameters(const tm_mlp *m)
{
    int64_t count = 0;
    for (int k = 0; k < m->options.layers; k++)
        count += m->options.width[k + 1] * (m->options.width[k] + (m->options.bias ? 1 : 0));
    return count;
}

double tm_mlp_flops(const tm_mlp *m)
{
    return m->step->cost.flops + (m->update ? m->update->cost.flops : 0);
}

/* --- running --------------------------------------------------------------------------------- */

static void *address(const tm_mlp *m, tm_tensor_id id)
{
    return tm_plan_address(m->plan, &(tm_arenas){ .base = { m->arena } }, id);
}

static void fill(const tm_mlp *m, const tm_bench *bench, tm_tensor_id id, double deviation)
{
    const tm_tensor *t = tm_graph_at(m->graph, id);
    int64_t          n = tm_shape_elements(t->shape);
    void            *data = address(m, id);
    tm_bench_normal(bench, t->name, data, t->dtype, n);
#pragma omp parallel for schedule(static) num_threads(bench->threads)
    for (int64_t i = 0; i < n; i++) tm_value_set(data, t->dtype, i, deviation * tm_value_get(data, t->dtype, i));
}

tm_status tm_mlp_open(tm_mlp *m, tm_bench *bench, tm_error *err)
{
    TM_TRY(tm_device_alloc(m->device, m->plan->arena_bytes, &m->arena, err));
    tm_plan_bind(m->plan, &(tm_arenas){ .base = { m->arena } });
    for (int k = 0; k < m->options.layers; k++) fill(m, bench, m->weight[k], 1 / sqrt(3 * (double)m->options.width[k]));
    fill(m, bench, m->x, 1);
    fill(m, bench, m->targets, 1);
    double *scalars = address(m, m->scalars), *clip = address(m, m->clip);
    scalars[TM_SCALAR_LOSS_SCALE] = 1 / (double)(m->options.batch * m->options.width[m->options.layers]);
    scalars[TM_SCALAR_LEARNING_RATE] = m->options.learning_rate;
    clip[0] = 0, clip[1] = 1; /* gradients are not clipped */
    return TM_OK;
}

double tm_mlp_step(tm_mlp *m, tm_ledger *ledger)
{
    double *scalars = address(m, m->scalars), t = (double)++m->steps;
    scalars[TM_SCALAR_CORRECTION1] = 1 - pow(0.9, t);
    scalars[TM_SCALAR_CORRECTION2] = 1 - pow(0.999, t);
    tm_device_run(m->device, m->step, ledger);
    if (m->update) tm_device_run(m->device, m->update, ledger);
    return *(const double *)address(m, m->loss) * scalars[TM_SCALAR_LOSS_SCALE];
}

/* --- the check ------------------------------------------------------------------------------- */

typedef struct {
    double *value, *error; /* of one sample at one layer */
} carried;

/* A weight as the kernels see it: rounded to the compute format. */
static double as_computed(const tm_mlp *m, double value)
{
    return m->options.precision->compute == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round((float)value)) : value;
}

/* Rounding of a stored activation. */
static double stored_unit(const tm_mlp *m)
{
    return m->options.precision->compute == TM_BF16 ? 0x1p-8 : 0x1p-24;
}

/* One output of a layer: exact value from the carried one, and all that float32 or bfloat16 may be away from it. */
static void output_of(const tm_mlp *m, int layer, int64_t j, const carried *in, carried *out)
{
    const double     u = 0x1p-24;
    int64_t          n = m->options.width[layer];
    double           k = (double)(n + 1), growth = fmin(k * u / (1 - k * u), exp(8 * sqrt(k) * u + k * u * u) - 1);
    const tm_tensor *w = tm_graph_at(m->graph, m->weight[layer]);
    const void      *data = address(m, m->weight[layer]);
    double           bias = 0;
    if (m->bias[layer] != TM_NONE)
        bias =
            as_computed(m, tm_value_get(address(m, m->bias[layer]), tm_graph_at(m->graph, m->bias[layer])->dtype, j));
    double sum = bias, size = fabs(bias), error = 0;
    for (int64_t i = 0; i < n; i++) {
        double weight = as_computed(m, tm_value_get(data, w->dtype, j * n + i));
        sum += weight * in->value[i];
        size += fabs(weight) * (fabs(in->value[i]) + in->error[i]);
        error += fabs(weight) * in->error[i];
    }
    error += growth * size;
    error += stored_unit(m) * (fabs(sum) + error);
    bool last = layer + 1 == m->options.layers;
    if (!last && m->options.activation == TM_OP_relu) sum = sum > 0 ? sum : 0;
    if (!last && m->options.activation == TM_OP_gelu) {
        error = 1.13 * error + (stored_unit(m) + 16 * u) * fabs(sum); /* the slope is below 1.13 */
        sum = 0.5 * sum * (1 + tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
    }
    out->value[j] = sum;
    out->error[j] = error;
}

static void verify_sample(const tm_mlp *m, int64_t sample, carried *in, carried *out, tm_mlp_check *result)
{
    const tm_mlp_options *o = &m->options;
    const tm_tensor      *x = tm_graph_at(m->graph, m->x), *y = tm_graph_at(m->graph, m->evaluation_y);
    for (int64_t i = 0; i < o->width[0]; i++) {
        in->value[i] = as_computed(m, tm_value_get(address(m, m->x), x->dtype, sample * o->width[0] + i));
        in->error[i] = 0;
    }
    int threads = tm_device_describe(m->device)->threads;
    for (int k = 0; k < o->layers; k++) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t j = 0; j < o->width[k + 1]; j++) output_of(m, k, j, in, out);
        carried swap = *in;
        *in = *out;
        *out = swap;
    }
    int64_t n = o->width[o->layers];
    for (int64_t j = 0; j < n; j++) {
        double found = tm_value_get(address(m, m->evaluation_y), y->dtype, sample * n + j);
        double bound = in->error[j] + 0x1p-100, share = fabs(found - in->value[j]) / bound;
        if (!isfinite(share)) share = (double)INFINITY;
        if (share <= result->worst) continue;
        *result = (tm_mlp_check){ .worst = share, .found = found, .wanted = in->value[j], .bound = bound };
    }
}

void tm_mlp_verify(tm_mlp *m, tm_mlp_check *out)
{
    int64_t widest = 0, batch = m->options.batch;
    for (int k = 0; k <= m->options.layers; k++)
        if (m->options.width[k] > widest) widest = m->options.width[k];
    double *memory = tm_alloc((size_t)widest * 4 * sizeof *memory);
    carried in = { memory, memory + widest }, next = { memory + 2 * widest, memory + 3 * widest };
    *out = (tm_mlp_check){ 0 };
    tm_device_run(m->device, m->evaluate, NULL);
    for (int k = 0; k < 3 && k < batch; k++) verify_sample(m, k * (batch - 1) / 2, &in, &next, out);
    out->correct = out->worst <= 1;
    free(memory);
}
