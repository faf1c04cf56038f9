/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/mlp_net.h"

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
    tm_address        arena;
    tm_loaded        *loaded;
    double            values[TM_SCALAR_COUNT]; /* of `scalars`, as written to the device */
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
    m->targets =
        tm_graph_tensor_as(g, "targets", TM_ROLE_INPUT, tm_shape_2(o->batch, o->width[o->layers]), g->precision->wide);
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
        tm_tensor_id in[TM_MAX_IN] = { p, tm_graph_at(g, p)->gradient, first, second, m->scalars, m->clip, TM_NONE };
        tm_tensor_id out[TM_MAX_OUT] = { p, first, second, TM_NONE, TM_NONE };
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
    tm_status  st = tm_plan_create(m->graph, &chooser, &m->plan, err);
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
    tm_device_unload(m->loaded);
    if (m->plan) tm_device_release(m->device, m->arena, m->plan->arena_bytes);
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

static tm_address address(const tm_mlp *m, tm_tensor_id id)
{
    return tm_plan_address(m->plan, &(tm_arenas){ .base = { m->arena } }, id);
}

static tm_status fill(const tm_mlp *m, const tm_bench *bench, tm_tensor_id id, double deviation, tm_error *err)
{
    enum { PART = 1 << 20 };
    const tm_tensor *t = tm_graph_at(m->graph, id);
    int64_t          all = tm_shape_elements(t->shape);
    size_t           element = tm_dtype_bytes(t->dtype);
    char            *values = tm_alloc(PART * element);
    tm_status        st = TM_OK;
    for (int64_t first = 0; first < all && st == TM_OK; first += PART) {
        int64_t n = all - first < PART ? all - first : PART;
        tm_bench_normal_part(bench, t->name, first, values, t->dtype, n);
#pragma omp parallel for schedule(static) num_threads(bench->threads)
        for (int64_t i = 0; i < n; i++)
            tm_value_set(values, t->dtype, i, deviation * tm_value_get(values, t->dtype, i));
        tm_address to = tm_address_add(address(m, id), (size_t)first * element);
        st = tm_device_write(m->device, to, values, (size_t)n * element, err);
        if (st == TM_OK) st = tm_device_wait(m->device, err);
    }
    free(values);
    return st;
}

tm_status tm_mlp_open(tm_mlp *m, tm_bench *bench, tm_error *err)
{
    const double unclipped[2] = { 0, 1 };
    TM_TRY(tm_device_alloc(m->device, m->plan->arena_bytes, &m->arena, err));
    TM_TRY(tm_device_load(m->device, m->plan, &(tm_arenas){ .base = { m->arena } }, &m->loaded, err));
    TM_TRY(tm_device_fill(m->device, m->arena, 0, m->plan->persistent_bytes, err));
    for (int k = 0; k < m->options.layers; k++)
        TM_TRY(fill(m, bench, m->weight[k], 1 / sqrt(3 * (double)m->options.width[k]), err));
    TM_TRY(fill(m, bench, m->x, 1, err));
    TM_TRY(fill(m, bench, m->targets, 1, err));
    m->values[TM_SCALAR_LOSS_SCALE] = 1 / (double)(m->options.batch * m->options.width[m->options.layers]);
    m->values[TM_SCALAR_LEARNING_RATE] = m->options.learning_rate;
    TM_TRY(tm_device_write(m->device, address(m, m->clip), unclipped, sizeof unclipped, err));
    return tm_device_wait(m->device, err);
}

tm_status tm_mlp_step(tm_mlp *m, tm_ledger *ledger, double *loss, tm_error *err)
{
    double sum, t = (double)++m->steps;
    m->values[TM_SCALAR_CORRECTION1] = 1 - pow(0.9, t);
    m->values[TM_SCALAR_CORRECTION2] = 1 - pow(0.999, t);
    TM_TRY(tm_device_write(m->device, address(m, m->scalars), m->values, sizeof m->values, err));
    TM_TRY(tm_device_run(m->device, m->step, ledger, err));
    if (m->update) TM_TRY(tm_device_run(m->device, m->update, ledger, err));
    TM_TRY(tm_device_read(m->device, &sum, address(m, m->loss), sizeof sum, err));
    TM_TRY(tm_device_wait(m->device, err));
    *loss = sum * m->values[TM_SCALAR_LOSS_SCALE];
    return TM_OK;
}

/* --- the check ------------------------------------------------------------------------------- */

typedef struct {
    double *value, *error; /* of one sample at one layer */
} carried;

/* Weights and biases of some rows of a layer, in the host's memory. */
typedef struct {
    const void *weight, *bias; /* bias NULL: none */
    tm_dtype    weight_dtype, bias_dtype;
} rows_of_layer;

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
static void output_of(const tm_mlp *m, int layer, const rows_of_layer *rows, int64_t row, int64_t j, const carried *in,
                      carried *out)
{
    const double u = 0x1p-24;
    int64_t      n = m->options.width[layer];
    double       k = (double)(n + 1), growth = fmin(k * u / (1 - k * u), exp(8 * sqrt(k) * u + k * u * u) - 1);
    double       bias = rows->bias ? as_computed(m, tm_value_get(rows->bias, rows->bias_dtype, row)) : 0;
    double       sum = bias, size = fabs(bias), error = 0;
    for (int64_t i = 0; i < n; i++) {
        double weight = as_computed(m, tm_value_get(rows->weight, rows->weight_dtype, row * n + i));
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

/* Elements [first, first + n) of a tensor into *to, which is made; NULL for a tensor that is not there. */
static tm_status fetch(const tm_mlp *m, tm_tensor_id id, int64_t first, int64_t n, void **to, tm_dtype *dtype,
                       tm_error *err)
{
    *to = NULL;
    *dtype = TM_F32;
    if (id == TM_NONE) return TM_OK;
    *dtype = tm_graph_at(m->graph, id)->dtype;
    size_t element = tm_dtype_bytes(*dtype);
    *to = tm_alloc((size_t)n * element);
    TM_TRY(tm_device_read(m->device, *to, tm_address_add(address(m, id), (size_t)first * element), (size_t)n * element,
                          err));
    return tm_device_wait(m->device, err);
}

static tm_status verify_rows(const tm_mlp *m, int layer, int64_t first, int64_t n, const carried *in, carried *out,
                             tm_error *err)
{
    int64_t       width = m->options.width[layer];
    int           threads = tm_device_describe(m->device)->threads;
    rows_of_layer rows;
    void         *weight, *bias = NULL;
    tm_status     st = fetch(m, m->weight[layer], first * width, n * width, &weight, &rows.weight_dtype, err);
    if (st == TM_OK) st = fetch(m, m->bias[layer], first, n, &bias, &rows.bias_dtype, err);
    rows.weight = weight;
    rows.bias = bias;
    if (st == TM_OK) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (int64_t j = 0; j < n; j++) output_of(m, layer, &rows, j, first + j, in, out);
    }
    free(weight);
    free(bias);
    return st;
}

static tm_status verify_layers(const tm_mlp *m, carried *in, carried *out, tm_error *err)
{
    enum { PART = 1 << 22 }; /* weights at a time */
    const tm_mlp_options *o = &m->options;
    for (int k = 0; k < o->layers; k++) {
        int64_t most = o->width[k] < PART ? PART / o->width[k] : 1;
        for (int64_t first = 0; first < o->width[k + 1]; first += most) {
            int64_t n = o->width[k + 1] - first < most ? o->width[k + 1] - first : most;
            TM_TRY(verify_rows(m, k, first, n, in, out, err));
        }
        carried swap = *in;
        *in = *out;
        *out = swap;
    }
    return TM_OK;
}

static void compare(const carried *wanted, const void *y, tm_dtype dtype, int64_t n, tm_mlp_check *result)
{
    for (int64_t j = 0; j < n; j++) {
        double found = tm_value_get(y, dtype, j);
        double bound = wanted->error[j] + 0x1p-100, share = fabs(found - wanted->value[j]) / bound;
        if (!isfinite(share)) share = (double)INFINITY;
        if (share <= result->worst) continue;
        *result = (tm_mlp_check){ .worst = share, .found = found, .wanted = wanted->value[j], .bound = bound };
    }
}

static tm_status verify_sample(const tm_mlp *m, int64_t sample, carried *in, carried *out, tm_mlp_check *result,
                               tm_error *err)
{
    int64_t   inputs = m->options.width[0], outputs = m->options.width[m->options.layers];
    tm_dtype  dtype;
    void     *x, *y = NULL;
    tm_status st = fetch(m, m->x, sample * inputs, inputs, &x, &dtype, err);
    for (int64_t i = 0; i < inputs && st == TM_OK; i++) {
        in->value[i] = as_computed(m, tm_value_get(x, dtype, i));
        in->error[i] = 0;
    }
    if (st == TM_OK) st = fetch(m, m->evaluation_y, sample * outputs, outputs, &y, &dtype, err);
    if (st == TM_OK) st = verify_layers(m, in, out, err);
    if (st == TM_OK) compare(in, y, dtype, outputs, result);
    free(x);
    free(y);
    return st;
}

tm_status tm_mlp_verify(tm_mlp *m, tm_mlp_check *out, tm_error *err)
{
    int64_t widest = 0, batch = m->options.batch;
    for (int k = 0; k <= m->options.layers; k++)
        if (m->options.width[k] > widest) widest = m->options.width[k];
    double *memory = tm_alloc((size_t)widest * 4 * sizeof *memory);
    carried in = { memory, memory + widest }, next = { memory + 2 * widest, memory + 3 * widest };
    *out = (tm_mlp_check){ 0 };
    tm_status st = tm_device_run(m->device, m->evaluate, NULL, err);
    for (int k = 0; k < 3 && k < batch && st == TM_OK; k++)
        st = verify_sample(m, k * (batch - 1) / 2, &in, &next, out, err);
    out->correct = out->worst <= 1;
    free(memory);
    return st;
}
