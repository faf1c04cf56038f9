/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/euler.c - pictures from noise: the velocity a model predicts, integrated by steps of Euler. */
#include "train/generate/euler.h"

#include "base/random.h"
#include "train/trainer/init.h"

#include <math.h>
#include <stdlib.h>

/* --- times -------------------------------------------------------------------------------------------------------- */

const tm_euler_times tm_euler_times_dev = {
    .by_size = true, .base_shift = 0.5, .most_shift = 1.15, .base_tokens = 256, .most_tokens = 4096
};
const tm_euler_times tm_euler_times_even = { .shift = 1 };

double tm_euler_shift(const tm_euler_times *rule, int64_t tokens)
{
    double slope = (rule->most_shift - rule->base_shift) / (rule->most_tokens - rule->base_tokens);
    double by_size = exp(rule->base_shift + slope * ((double)tokens - rule->base_tokens));
    return rule->by_size ? by_size : rule->shift;
}

void tm_euler_times_of(const tm_euler_times *rule, int64_t tokens, int64_t steps, double *times)
{
    double a = tm_euler_shift(rule, tokens);
    for (int64_t i = 0; i < steps; i++) {
        double u = (double)(steps - i) / (double)steps;
        times[i] = a * u / (1 + (a - 1) * u);
    }
    times[steps] = 0;
}

/* --- drawing ------------------------------------------------------------------------------------------------------ */

void tm_euler_noise(uint64_t seed, int64_t n, float *x)
{
    uint64_t stream = tm_random_stream("generate.noise");
    for (int64_t i = 0; i < n; i++) x[i] = (float)tm_random_normal(seed, stream, (uint64_t)i);
}

tm_status tm_euler_draw(const tm_euler_velocity *of, const tm_euler_drawing *d, float *x, tm_error *err)
{
    const int64_t n = of->n;
    float        *v = tm_alloc((size_t)n * sizeof *v), *without = tm_alloc((size_t)n * sizeof *without);
    tm_status     st = TM_OK;
    for (int64_t step = 0; step < d->steps && st == TM_OK; step++) {
        const double at = d->times[step], dt = d->times[step + 1] - at;
        if (d->stop && d->stop()) st = tm_fail(err, TM_INTERRUPTED, "interrupted after %lld steps", (long long)step);
        if (st == TM_OK) st = of->predict(of->context, d->prompt, x, (float)at, v, err);
        if (st == TM_OK && d->negative) st = of->predict(of->context, d->negative, x, (float)at, without, err);
        for (int64_t i = 0; i < n && st == TM_OK; i++) {
            double velocity = (double)v[i];
            if (d->negative) velocity = (double)without[i] + d->scale * ((double)v[i] - (double)without[i]);
            x[i] = (float)((double)x[i] + dt * velocity);
        }
    }
    free(v);
    free(without);
    return st;
}

/* --- of a trainer ------------------------------------------------------------------------------------------------- */

static tm_status trainer_predict(void *trainer, const tm_euler_prompt *prompt, const float *x, float time, float *v,
                                 tm_error *err)
{
    return tm_trainer_velocity(trainer, x, time, prompt->text, prompt->pooled, v, err);
}

tm_euler_velocity tm_euler_of_trainer(tm_trainer *trainer)
{
    const tm_flux_shape *x = &tm_trainer_step_of(trainer)->options.shape.flux;
    return (
        tm_euler_velocity){ .context = trainer, .n = x->rows * x->columns * x->channels, .predict = trainer_predict };
}

/* --- the program -------------------------------------------------------------------------------------------------- */

enum { NOISY, TIME, TEXT, POOLED, FIELDS };

struct tm_euler {
    tm_model_shape    shape;
    tm_precision      precision;
    tm_graph         *graph;
    tm_model          model;
    tm_tensor_id      field[FIELDS], velocity;
    tm_forward        forward;
    const tm_program *program;
};

static void build(tm_euler *e)
{
    const tm_flux_shape *x = &e->shape.flux;
    const int64_t        tokens = x->rows * x->columns;
    const char *const    names[FIELDS] = { "noisy", "time", "text", "pooled" };
    const tm_shape       shapes[FIELDS] = { tm_shape_2(tokens, x->channels), tm_shape_2(1, 1),
                                            tm_shape_2(x->text_len, x->text_dim), tm_shape_2(1, x->vector_dim) };
    tm_inputs            inputs = { .n = FIELDS };
    e->graph = tm_graph_create(&e->precision);
    tm_model_declare(e->graph, &e->shape, tm_model_length(&e->shape), NULL, &e->model);
    for (int i = 0; i < FIELDS; i++) {
        e->field[i] = tm_graph_tensor_as(e->graph, names[i], TM_ROLE_INPUT, shapes[i], TM_F32);
        inputs.name[i] = names[i];
        inputs.tensor[i] = e->field[i];
    }
    tm_graph_segment(e->graph, "velocity");
    e->velocity = tm_model_velocity(e->graph, &e->model, &inputs);
}

tm_status tm_euler_open(tm_device *device, const tm_model_shape *shape, const tm_precision *precision, tm_euler **out,
                        tm_error *err)
{
    tm_euler *e = tm_alloc(sizeof *e);
    e->shape = *shape;
    e->precision = *precision;
    e->precision.parameter = precision->compute; /* no weight needs a copy */
    build(e);
    tm_status st = tm_forward_open(device, e->graph, e->velocity, &e->forward, err);
    if (st == TM_OK) st = tm_init_constants(e->forward.plan, device, &e->forward.memory, e->forward.threads, err);
    if (st != TM_OK) {
        tm_euler_close(e);
        return st;
    }
    e->program = tm_plan_program(e->forward.plan, "velocity");
    *out = e;
    return TM_OK;
}

void tm_euler_close(tm_euler *e)
{
    if (!e) return;
    tm_forward_close(&e->forward);
    tm_graph_destroy(e->graph);
    free(e);
}

tm_forward *tm_euler_forward(tm_euler *euler)
{
    return &euler->forward;
}

/* v (tokens, channels) of one prompt. */
static tm_status predict(void *context, const tm_euler_prompt *prompt, const float *x, float time, float *v,
                         tm_error *err)
{
    tm_euler   *e = context;
    const void *from[FIELDS] = { x, &time, prompt->text, prompt->pooled };
    for (int i = 0; i < FIELDS; i++) TM_TRY(tm_forward_put(&e->forward, e->field[i], from[i], err));
    TM_TRY(tm_device_run(e->forward.device, e->program, NULL, err));
    TM_TRY(tm_forward_read(&e->forward, err));
    for (int64_t i = 0; i < tm_shape_elements(tm_graph_at(e->graph, e->velocity)->shape); i++)
        v[i] = (float)tm_forward_value(&e->forward, i);
    return TM_OK;
}

tm_euler_velocity tm_euler_of(tm_euler *euler)
{
    return (tm_euler_velocity){ .context = euler,
                                .n = tm_shape_elements(tm_graph_at(euler->graph, euler->velocity)->shape),
                                .predict = predict };
}
