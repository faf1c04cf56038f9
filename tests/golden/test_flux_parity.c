/* SPDX-License-Identifier: Apache-2.0 */
/* What diffusers computes for three tiny FLUX.1 models (flux.txt, by tools/flux_parity.py): loss, the norm of every
 * gradient, losses of 20 steps of AdamW; and
 * what its pipeline draws in 4 steps. Its sinusoids of the time are float32. */
#include "support/golden.h"
#include "support/training.h"
#include "train/generate/euler.h"

#include "support/test.h"

enum { STEPS = 20 };

typedef struct {
    char            name[16];
    tm_step_options o;
    double          time;
} model;

/* Model k of flux.txt, in which its line `shape` is. */
static model model_of(int k, const tm_precision *precision)
{
    model           m = { .o = golden_flux_options(precision) };
    tm_model_shape *s = &m.o.shape;
    double          n[14];
    snprintf(m.name, sizeof m.name, "flux-%d", k);
    golden_list("tests/golden/flux.txt", m.name, "shape", n, 14);
    int64_t whole[12];
    for (int i = 0; i < 12; i++) whole[i] = (int64_t)n[i];
    const int64_t *i = whole, *f = whole + 6;
    s->n_layers = i[0], s->n_heads = i[2];
    s->flux = (tm_flux_shape){ .n_single = i[1], .axes = { i[3], i[4], i[5] }, .channels = f[0], .time_dim = 256 };
    s->flux.text_len = f[1], s->flux.text_dim = f[2], s->flux.vector_dim = f[3], s->flux.rows = f[4];
    s->flux.columns = f[5];
    s->flux.guidance = n[12] > 0, s->flux.guidance_scale = n[12];
    m.time = n[13];
    s->n_kv_heads = s->n_heads;
    s->head_dim = (int64_t)(n[3] + n[4] + n[5]);
    s->dim = s->n_heads * s->head_dim;
    s->ffn_dim = 4 * s->dim;
    m.o.seq = tm_model_length(s);
    m.o.fields[0].shape = m.o.fields[1].shape = tm_shape_2(s->flux.rows * s->flux.columns, s->flux.channels);
    m.o.fields[3].shape = tm_shape_2(s->flux.text_len, s->flux.text_dim);
    m.o.fields[4].shape = tm_shape_2(1, s->flux.vector_dim);
    return m;
}

static float *units(const char *name, int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++) values[i] = (float)golden_unit(name, (uint32_t)i);
    return values;
}

static void compare(int k, const char *device_name, const tm_precision *precision, double loss_error, double norm_error)
{
    model           m = model_of(k, precision);
    double          losses[STEPS];
    tm_step_options o = m.o;
    int64_t         n = o.fields[0].shape.n[0] * o.fields[0].shape.n[1];
    float          *noisy = units("x0", n), *velocity = units("noise", n), time = (float)m.time;
    float          *text = units("txt", o.shape.flux.text_len * o.shape.flux.text_dim),
          *pooled = units("pooled", o.shape.flux.vector_dim);
    tm_device     *device;
    tm_error       err = { 0 };
    tm_step_result result;
    golden_numbers wanted = golden_read_from("tests/golden/flux.txt", m.name, losses, STEPS);
    for (int64_t i = 0; i < n; i++) {
        double x0 = (double)noisy[i], noise = 2 * (double)velocity[i];
        noisy[i] = (float)((1 - m.time) * x0 + m.time * noise);
        velocity[i] = (float)(noise - x0);
    }
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_trainer    *trainer = test_trainer_open(device, &o, 1);
    tm_micro_batch batch = { .field = { noisy, velocity, &time, text, pooled } };
    golden_fill(trainer);
    assert_int_equal(tm_model_parameters(&o.shape), wanted.parameters);
    for (int t = 0; t < STEPS; t++) {
        test_begin(trainer, t + 1, 1e-3, 1, n);
        if (tm_trainer_step(trainer, &batch, &result, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        golden_close("loss of a step", result.loss, losses[t], 1e-4);
        if (t > 0) continue;
        golden_close("loss", result.loss, wanted.loss, loss_error);
        golden_close("norm", result.grad_norm, wanted.norm, norm_error);
        golden_check_gradients(trainer, &wanted, norm_error);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
    free(noisy);
    free(velocity);
    free(text);
    free(pooled);
}

TEST(diffusers_computes_the_same)
{
    for (int k = 0; k < 3; k++) {
        compare(k, "cpu", &tm_precision_f32, 1e-5, 1e-4);
        compare(k, "reference", &tm_precision_f64, 1e-5, 1e-4);
    }
}

/* The weights of the trainer, whose graph has the same parameters. */
static void copy_weights(tm_trainer *trainer, tm_euler *euler)
{
    const tm_graph *from = tm_trainer_step_of(trainer)->graph, *to = tm_euler_forward(euler)->plan->graph;
    tm_error        err = { 0 };
    size_t          copied = 0;
    for (size_t t = 0; t < to->n_tensors; t++) {
        const tm_tensor *tensor = &to->tensors[t];
        size_t           k = 0;
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        while (k < from->n_tensors && strcmp(from->tensors[k].name, tensor->name) != 0) k++;
        assert_true(k < from->n_tensors && from->tensors[k].dtype == tensor->dtype);
        void *values = test_tensor_read(trainer, (tm_tensor_id)k);
        assert_int_equal(tm_forward_write(tm_euler_forward(euler), (tm_tensor_id)t, 0, values,
                                          tm_tensor_bytes(tensor->shape, tensor->dtype), &err),
                         TM_OK);
        free(values);
        copied++;
    }
    assert_true(copied > 20);
}

static const tm_euler_times *const schedules[] = { &tm_euler_times_dev, &(const tm_euler_times){ .shift = 3 },
                                                   &tm_euler_times_even };

static void draw(int k, const char *device_name, const tm_precision *precision, double most)
{
    model           m = model_of(k, precision);
    tm_error        err = { 0 };
    tm_step_options o = m.o;
    tm_flux_shape   s = o.shape.flux;
    int64_t         n = s.rows * s.columns * s.channels, text = s.text_len * s.text_dim;
    double          wanted[64], times[5];
    float          *texts[] = { units("txt", text), units("untxt", text) },
          *pooled[] = { units("pooled", s.vector_dim), units("unpooled", s.vector_dim) };
    tm_euler_prompt prompts[] = { { texts[0], pooled[0] }, { texts[1], pooled[1] } };
    tm_device      *device;
    tm_euler       *euler;
    assert_true(n <= 64);
    o.sample = true;
    golden_list("tests/golden/flux.txt", m.name, "drawn", wanted, (int)n);
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_trainer *trainer = test_trainer_open(device, &o, 1);
    golden_fill(trainer);
    assert_int_equal(tm_euler_open(device, &o.shape, precision, &euler, &err), TM_OK);
    copy_weights(trainer, euler);
    tm_euler_times_of(schedules[k], s.rows * s.columns, 4, times);
    tm_euler_drawing drawing = {
        .prompt = &prompts[0], .negative = k == 1 ? &prompts[1] : NULL, .scale = 2.5, .times = times, .steps = 4
    };
    tm_euler_velocity by[] = { tm_euler_of(euler), tm_euler_of_trainer(trainer) };
    for (int way = 0; way < 2; way++) {
        float *x = units("drawn", n);
        if (tm_euler_draw(&by[way], &drawing, x, &err) != TM_OK) fail_msg("%s", err.text);
        for (int64_t i = 0; i < n; i++)
            if (!(fabs((double)x[i] - wanted[i]) <= most))
                fail_msg("%s on %s: element %lld is %g, wanted %g", m.name, device_name, (long long)i, (double)x[i],
                         wanted[i]);
        free(x);
    }
    tm_euler_close(euler);
    tm_trainer_close(trainer);
    tm_device_close(device);
    for (int i = 0; i < 2; i++) free(texts[i]);
    for (int i = 0; i < 2; i++) free(pooled[i]);
}

TEST(its_pipeline_draws_the_same)
{
    for (int k = 0; k < 3; k++) {
        draw(k, "cpu", &tm_precision_f32, 2e-5);
        draw(k, "reference", &tm_precision_f64, 2e-5);
    }
}
