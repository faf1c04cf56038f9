/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_grid(machine_problem *p, int x, int y, int z, int threads)
{
    p->launch.blocks[0] = (uint32_t)x;
    p->launch.blocks[1] = (uint32_t)y;
    p->launch.blocks[2] = (uint32_t)z;
    p->launch.threads[0] = (uint32_t)threads;
}

/* --- products: rows, columns, inner; a tile's rows; threads; some NaN? --------------------------- */

static void multiply(double *c, const double *a, const double *b, const int *shape)
{
    for (int i = 0; i < shape[0]; i++)
        for (int j = 0; j < shape[1]; j++)
            for (int k = 0; k < shape[2]; k++) c[i * shape[1] + j] += a[i * shape[2] + k] * b[j * shape[2] + k];
}

static void make_product(machine_problem *p, const int *shape, machine_format format, double bound)
{
    double *c = machine_result(p, format, (size_t)(shape[0] * shape[1]), bound);
    double *a = machine_input(p, format, (size_t)(shape[0] * shape[2]), 1);
    double *b = machine_input(p, format, (size_t)(shape[1] * shape[2]), 1);
    machine_argument_int(p, shape[1]);
    machine_argument_int(p, shape[2]);
    if (shape[5]) { /* every third row */
        for (int i = 0; i < shape[0]; i += 3) a[i * shape[2]] = (double)NAN;
        machine_problem_send(p, &p->arrays[1]);
    }
    multiply(c, a, b, shape);
    set_grid(p, shape[1] / shape[3], shape[0] / shape[3], 1, shape[4]);
}

static void make_bf16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_BF16, 4e-3);
}

static void make_f16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_F16, 5e-4);
}

static void make_f32(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_F32, 1e-6);
}

static void make_fp8(machine_problem *p, const int *shape)
{
    machine_format format = strcmp(p->arch, "gfx942") == 0 ? MACHINE_E4M3_FNUZ : MACHINE_E4M3;
    double        *c = machine_result(p, MACHINE_F32, (size_t)(shape[0] * shape[1]), 1e-6);
    double        *a = machine_input(p, format, (size_t)(shape[0] * shape[2]), 8);
    double        *b = machine_input(p, format, (size_t)(shape[1] * shape[2]), 0.1);
    double        *a_scale = machine_input(p, MACHINE_F32, (size_t)shape[0], 1);
    double        *b_scale = machine_input(p, MACHINE_F32, (size_t)shape[1], 1);
    for (int i = 0; i < 3; i++) machine_argument_int(p, shape[i]);
    multiply(c, a, b, shape);
    for (int i = 0; i < shape[0] * shape[1]; i++) c[i] *= a_scale[i / shape[1]] * b_scale[i % shape[1]];
    set_grid(p, (shape[1] + 63) / 64, (shape[0] + 63) / 64, 1, 256);
}

/* --- attention: tokens, heads -------------------------------------------------------------------- */

static void make_flash(machine_problem *p, const int *shape)
{
    size_t            all = (size_t)(shape[0] * shape[1] * 64);
    double           *out = machine_result(p, MACHINE_BF16, all, 6e-3);
    double           *log_sum = machine_result(p, MACHINE_F32, (size_t)(shape[0] * shape[1]), 1e-5);
    machine_attention a = { shape[1], shape[0], 64, true, 0.125, NULL, NULL, NULL };
    a.q = machine_input(p, MACHINE_BF16, all, 1);
    a.k = machine_input(p, MACHINE_BF16, all, 1);
    a.v = machine_input(p, MACHINE_BF16, all, 1);
    machine_argument_int(p, shape[0]);
    machine_argument_float(p, 0.125f);
    machine_attention_forward(&a, out, log_sum);
    set_grid(p, shape[0] / 128, shape[1], 1, 256);
}

/* --- its backward: head size, tokens, batches, query heads, K/V heads, causal?, [batch, token, head, d]?  */

typedef struct backward {
    int     size, tokens, batches, heads, kv_heads, group, flat;
    bool    causal;
    double  scale;
    double *q, *k, *v, *g, *log_sum, *delta; /* inputs */
    double *dq, *dk, *dv;                    /* NULL: not wanted */
} backward;

typedef struct strides {
    int     token, head;
    int64_t batch;
} strides;

static strides strides_of(const backward *b, int heads)
{
    if (b->flat) return (strides){ heads * b->size, b->size, (int64_t)b->tokens * heads * b->size };
    return (strides){ b->size, b->tokens * b->size, (int64_t)b->tokens * heads * b->size };
}

/* Where a head of a batch begins. */
static size_t head_at(strides s, int batch, int head)
{
    return (size_t)(batch * s.batch + head * s.head);
}

static backward backward_of(const int *s)
{
    return (backward){ s[0], s[1], s[2], s[3], s[4], s[3] / s[4], s[6], s[5], (double)(float)(1 / sqrt(s[0])),
                       0,    0,    0,    0,    0,    0,           0,    0,    0 };
}

static size_t elements(const backward *b, int heads)
{
    return (size_t)(b->batches * b->tokens * heads * b->size);
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* One query of one head: its probabilities, and what they make of log_sum, delta, dq, dk and dv. */
static void backward_row(const backward *b, int batch, int head, int i, double *s)
{
    strides qs = strides_of(b, b->heads), ks = strides_of(b, b->kv_heads);
    size_t  at = head_at(qs, batch, head) + (size_t)(i * qs.token), kv = head_at(ks, batch, head / b->group);
    size_t  row = (size_t)((batch * b->heads + head) * b->tokens + i);
    int     end = b->causal ? i + 1 : b->tokens;
    double  most = -HUGE_VAL, sum = 0, delta = 0;
    for (int j = 0; j < end; j++)
        most = fmax(most, s[j] = b->scale * dot(b->q + at, b->k + kv + j * ks.token, b->size));
    for (int j = 0; j < end; j++) sum += exp(s[j] - most);
    b->log_sum[row] = most + log(sum);
    for (int j = 0; j < end; j++) {
        s[j] = exp(s[j] - most) / sum;
        delta += s[j] * dot(b->g + at, b->v + kv + j * ks.token, b->size);
    }
    b->delta[row] = delta;
    for (int j = 0; j < end; j++) {
        size_t key = kv + (size_t)(j * ks.token);
        double ds = s[j] * (dot(b->g + at, b->v + key, b->size) - delta) * b->scale;
        for (int d = 0; d < b->size; d++) {
            if (b->dq) b->dq[at + (size_t)d] += ds * b->k[key + (size_t)d];
            if (b->dk) b->dk[key + (size_t)d] += ds * b->q[at + (size_t)d];
            if (b->dv) b->dv[key + (size_t)d] += s[j] * b->g[at + (size_t)d];
        }
    }
}

/* Inputs, arguments and expectations of dkdv and dq, whose results are made already. */
static void make_backward(machine_problem *p, backward *b)
{
    size_t  rows = (size_t)(b->batches * b->heads * b->tokens);
    double *s = calloc((size_t)b->tokens, sizeof(double));
    b->log_sum = calloc(rows, sizeof(double));
    b->delta = calloc(rows, sizeof(double));
    if (!s || !b->log_sum || !b->delta) abort();
    b->q = machine_input(p, MACHINE_BF16, elements(b, b->heads), 1);
    b->k = machine_input(p, MACHINE_BF16, elements(b, b->kv_heads), 1);
    b->v = machine_input(p, MACHINE_BF16, elements(b, b->kv_heads), 1);
    b->g = machine_input(p, MACHINE_BF16, elements(b, b->heads), 1);
    for (int row = 0; row < (int)rows; row++)
        backward_row(b, row / b->tokens / b->heads, row / b->tokens % b->heads, row % b->tokens, s);
    machine_given(p, MACHINE_F32, rows, b->log_sum);
    machine_given(p, MACHINE_F32, rows, b->delta);
    machine_argument_int(p, b->tokens);
    machine_argument_int(p, b->group);
    machine_argument_int(p, b->causal);
    machine_argument_float(p, (float)b->scale);
    strides of[] = { strides_of(b, b->heads), strides_of(b, b->kv_heads) };
    for (int i = 0; i < 2; i++) machine_argument_bytes(p, &of[i], sizeof of[i], 8);
    free(s);
    free(b->log_sum);
    free(b->delta);
}

void machine_make_dkdv(machine_problem *p, const int *shape)
{
    backward b = backward_of(shape);
    int      waves = b.size == 128 && strcmp(p->arch, "gfx950") == 0 ? 4 : 8;
    b.dk = machine_result(p, MACHINE_BF16, elements(&b, b.kv_heads), 5e-3);
    b.dv = machine_result(p, MACHINE_BF16, elements(&b, b.kv_heads), 5e-3);
    make_backward(p, &b);
    set_grid(p, (b.tokens + 32 * waves - 1) / (32 * waves), b.kv_heads, b.batches, 64 * waves);
}

void machine_make_dq(machine_problem *p, const int *shape)
{
    backward b = backward_of(shape);
    b.dq = machine_result(p, MACHINE_BF16, elements(&b, b.heads), 5e-3);
    make_backward(p, &b);
    set_grid(p, (b.tokens + 127) / 128, b.heads, b.batches, 256);
}

void machine_make_delta(machine_problem *p, const int *shape)
{
    backward b = backward_of(shape);
    strides  qs = strides_of(&b, b.heads);
    double  *delta = machine_result(p, MACHINE_F32, (size_t)(b.batches * b.heads * b.tokens), 1e-5);
    double  *o = machine_input(p, MACHINE_BF16, elements(&b, b.heads), 1);
    double  *g = machine_input(p, MACHINE_BF16, elements(&b, b.heads), 1);
    machine_argument_int(p, b.tokens);
    machine_argument_bytes(p, &qs, sizeof qs, 8);
    for (int row = 0; row < b.batches * b.heads * b.tokens; row++) {
        size_t at =
            head_at(qs, row / b.tokens / b.heads, row / b.tokens % b.heads) + (size_t)(row % b.tokens * qs.token);
        delta[row] = dot(o + at, g + at, b.size);
    }
    set_grid(p, (b.tokens + 3) / 4, b.heads, b.batches, 256);
}

#define BACKWARDS(words, D, ...)                                                                                       \
    { "attention_delta " words,                                                                                        \
      "attention_backward.hip",                                                                                        \
      "attention_delta_" #D,                                                                                           \
      machine_make_delta,                                                                                              \
      { D, __VA_ARGS__ } },                                                                                            \
        { "attention_dkdv " words,                                                                                     \
          "attention_backward.hip",                                                                                    \
          "attention_dkdv_" #D,                                                                                        \
          machine_make_dkdv,                                                                                           \
          { D, __VA_ARGS__ } },                                                                                        \
    {                                                                                                                  \
        "attention_dq " words, "attention_backward.hip", "attention_dq_" #D, machine_make_dq,                          \
        {                                                                                                              \
            D, __VA_ARGS__                                                                                             \
        }                                                                                                              \
    }

const machine_case machine_amd_cases[] = {
    { "gemm_mfma 256 x 128 x 96", "gemm_mfma.hip", "gemm_mfma", make_bf16, { 256, 128, 96, 128, 256 } },
    { "gemm_mfma 128 x 128 x 32, NaN", "gemm_mfma.hip", "gemm_mfma", make_bf16, { 128, 128, 32, 128, 256, 1 } },
    { "gemm_f16 128 x 128 x 64", "gemm_mfma.hip", "gemm_f16", make_f16, { 128, 128, 64, 128, 256 } },
    { "gemm_f32 64 x 32 x 10", "gemm_mfma.hip", "gemm_f32", make_f32, { 64, 32, 10, 32, 64 } },
    { "gemm_fp8 70 x 100 x 192", "gemm_fp8.hip", "gemm_fp8", make_fp8, { 70, 100, 192 } },
    { "flash_mfma 256, 2 heads", "flash_mfma.hip", "flash_mfma", make_flash, { 256, 2 } },
    { "gemm_lds 128 x 128 x 32", "gemm_lds.hip", "gemm_lds", make_bf16, { 128, 128, 32, 128, 256 } },
    { "gemm_lds 128 x 256 x 64", "gemm_lds.hip", "gemm_lds", make_bf16, { 128, 256, 64, 128, 256 } },
    { "gemm_lds 256 x 128 x 96", "gemm_lds.hip", "gemm_lds", make_bf16, { 256, 128, 96, 128, 256 } },
    { "gemm_lds 256 x 128 x 224", "gemm_lds.hip", "gemm_lds", make_bf16, { 256, 128, 224, 128, 256 } },
    BACKWARDS("128: 200, 2/1 heads, causal", 128, 200, 1, 2, 1, 1, 1),
    BACKWARDS("64: 200, 2/1 heads, causal", 64, 200, 1, 2, 1, 1, 0),
    BACKWARDS("128: 77, batch 2, 2/2 heads, causal", 128, 77, 2, 2, 2, 1, 0),
    BACKWARDS("64: 131, batch 2, 3/1 heads, full", 64, 131, 2, 3, 1, 0, 1),
    BACKWARDS("64: 300, causal", 64, 300, 1, 1, 1, 1, 1),
    BACKWARDS("128: 150, 2/1 heads, full", 128, 150, 1, 2, 1, 0, 1),
    BACKWARDS("128: 300, causal", 128, 300, 1, 1, 1, 1, 1),
    { 0 },
};
