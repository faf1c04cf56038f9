/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *need(size_t count, size_t size)
{
    void *got = calloc(count, size);
    if (!got) abort();
    return got;
}

/* --- formats ------------------------------------------------------------------------------------- */

static size_t bytes_of(machine_format format)
{
    return format == MACHINE_F32 || format == MACHINE_I32 ? 4 : format == MACHINE_BF16 || format == MACHINE_F16 ? 2 : 1;
}

/* A number of a format with `mantissa` bits and an exponent that begins at `least`: to the nearest, ties to even. */
static double rounded(double x, int mantissa, int least)
{
    int exponent;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &exponent);
    if (exponent < least + 1) exponent = least + 1;
    double unit = ldexp(1, exponent - 1 - mantissa);
    return rint(x / unit) * unit;
}

static double to_format(double x, machine_format format)
{
    double most = format == MACHINE_E4M3 ? 448 : 240;
    switch (format) {
    case MACHINE_F32:
        return (double)(float)x;
    case MACHINE_BF16:
        return rounded(x, 7, -126);
    case MACHINE_F16:
        return rounded(x, 10, -14);
    case MACHINE_I32:
        return rint(x);
    default:
        return fmax(-most, fmin(most, rounded(x, 3, format == MACHINE_E4M3 ? -6 : -7)));
    }
}

/* The bits of a number that the format has: sign, exponent with its bias, mantissa. */
static uint32_t encode(double x, int mantissa, int exponent_bits, int bias)
{
    uint32_t sign = signbit(x) ? 1u << (mantissa + exponent_bits) : 0;
    int      exponent;
    x = fabs(x);
    if (isnan(x)) return sign | ((1u << exponent_bits) - 1) << mantissa | 1u << (mantissa - 1);
    if (x == 0) return sign;
    frexp(x, &exponent);
    exponent += bias - 1;
    if (exponent < 1) return sign | (uint32_t)ldexp(x, bias - 1 + mantissa);
    return sign | ((uint32_t)ldexp(x, mantissa - (exponent - bias)) - (1u << mantissa)) |
           (uint32_t)exponent << mantissa;
}

static double decode(uint32_t bits, int mantissa, int exponent_bits, int bias)
{
    int      most = (1 << exponent_bits) - 1, exponent = (int)(bits >> mantissa) & most;
    uint32_t fraction = bits & ((1u << mantissa) - 1);
    double   sign = bits >> (mantissa + exponent_bits) & 1 ? -1 : 1;
    if (exponent == most) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - mantissa);
    return sign * ldexp(fraction + (1u << mantissa), exponent - bias - mantissa);
}

static void put(uint8_t *to, machine_format format, double x)
{
    float    f = (float)x;
    int32_t  i = format == MACHINE_I32 ? (int32_t)x : 0;
    uint32_t bits = 0;
    switch (format) {
    case MACHINE_F32:
        memcpy(&bits, &f, 4);
        break;
    case MACHINE_I32:
        memcpy(&bits, &i, 4);
        break;
    case MACHINE_BF16:
        bits = encode(x, 7, 8, 127);
        break;
    case MACHINE_F16:
        bits = encode(x, 10, 5, 15);
        break;
    case MACHINE_E4M3:
        bits = encode(x, 3, 4, 7);
        break;
    case MACHINE_E4M3_FNUZ:
        bits = x == 0 ? 0 : encode(x, 3, 4, 8);
        break;
    }
    memcpy(to, &bits, bytes_of(format));
}

static double get(const uint8_t *from, machine_format format)
{
    uint32_t bits = 0;
    float    f;
    memcpy(&bits, from, bytes_of(format));
    memcpy(&f, &bits, 4);
    return format == MACHINE_F32    ? (double)f
           : format == MACHINE_BF16 ? decode(bits, 7, 8, 127)
           : format == MACHINE_F16  ? decode(bits, 10, 5, 15)
                                    : (double)(int32_t)bits;
}

/* --- problems ------------------------------------------------------------------------------------ */

static uint64_t next_random(machine_problem *p)
{
    uint64_t z = p->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double normal(machine_problem *p)
{
    double u = ((double)(next_random(p) >> 11) + 0.5) * 0x1p-53, v = (double)(next_random(p) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void machine_argument_bytes(machine_problem *p, const void *bytes, size_t size, size_t align)
{
    size_t at = (p->launch.argument_bytes + align - 1) / align * align;
    if (at + size > sizeof p->arguments) abort();
    memcpy(p->arguments + at, bytes, size);
    p->launch.argument_bytes = at + size;
}

static machine_array *new_array(machine_problem *p, machine_format format, size_t count)
{
    if (p->n_arrays == MACHINE_ARRAYS) abort();
    machine_array *a = &p->arrays[p->n_arrays++];
    *a = (machine_array){ .format = format, .count = count };
    a->address = machine_alloc(p->memory, count * bytes_of(format));
    machine_argument_bytes(p, &a->address, 8, 8);
    return a;
}

void machine_problem_send(machine_problem *p, const machine_array *a)
{
    size_t   size = bytes_of(a->format);
    uint8_t *to = machine_at(p->memory, a->address, a->count * size);
    for (size_t i = 0; i < a->count; i++) put(to + i * size, a->format, a->values[i]);
}

void machine_given(machine_problem *p, machine_format format, size_t count, double *values)
{
    machine_array *a = new_array(p, format, count);
    a->values = need(count, sizeof(double));
    for (size_t i = 0; i < count; i++) a->values[i] = values[i] = to_format(values[i], format);
    machine_problem_send(p, a);
}

double *machine_input(machine_problem *p, machine_format format, size_t count, double scale)
{
    machine_array *a = new_array(p, format, count);
    a->values = need(count, sizeof(double));
    for (size_t i = 0; i < count; i++) a->values[i] = to_format(normal(p) * scale, format);
    machine_problem_send(p, a);
    return a->values;
}

double *machine_result(machine_problem *p, machine_format format, size_t count, double bound)
{
    machine_array *a = new_array(p, format, count);
    a->bound = bound;
    return a->expected = need(count, sizeof(double));
}

double *machine_in_out(machine_problem *p, double bound)
{
    machine_array *a = &p->arrays[p->n_arrays - 1];
    a->bound = bound;
    return a->expected = need(a->count, sizeof(double));
}

void machine_argument_int(machine_problem *p, int x)
{
    machine_argument_bytes(p, &x, sizeof x, sizeof x);
}

void machine_argument_long(machine_problem *p, int64_t x)
{
    machine_argument_bytes(p, &x, sizeof x, sizeof x);
}

void machine_argument_float(machine_problem *p, float x)
{
    machine_argument_bytes(p, &x, sizeof x, sizeof x);
}

void machine_problem_make(machine_problem *p, const machine_case *c, const char *arch)
{
    *p = (machine_problem){ .memory = machine_memory_new(), .arch = arch, .random = 1 };
    p->launch = (machine_launch){ .kernel = c->kernel, .blocks = { 1, 1, 1 }, .threads = { 1, 1, 1 } };
    c->make(p, c->shape);
    p->launch.arguments = p->arguments;
}

void machine_problem_reset(machine_problem *p)
{
    for (int i = 0; i < p->n_arrays; i++) {
        const machine_array *a = &p->arrays[i];
        size_t               bytes = a->count * bytes_of(a->format);
        if (a->values)
            machine_problem_send(p, a);
        else
            memset(machine_at(p->memory, a->address, bytes), 0xff, bytes);
    }
}

void machine_problem_free(machine_problem *p)
{
    for (int i = 0; i < p->n_arrays; i++) {
        free(p->arrays[i].values);
        free(p->arrays[i].expected);
    }
    machine_memory_free(p->memory);
}

static double error_of(const machine_problem *p, const machine_array *a)
{
    size_t         size = bytes_of(a->format);
    const uint8_t *from = machine_at(p->memory, a->address, a->count * size);
    double         difference = 0, length = 0;
    for (size_t i = 0; i < a->count; i++) {
        double got = get(from + i * size, a->format), d = got - a->expected[i];
        if (isnan(a->expected[i]) && isnan(got)) continue;
        difference += d * d;
        length += a->expected[i] * a->expected[i];
    }
    return sqrt(difference / length) / a->bound;
}

double machine_problem_error(const machine_problem *p)
{
    double most = 0;
    for (int i = 0; i < p->n_arrays; i++) {
        if (p->arrays[i].bound <= 0) continue;
        double e = error_of(p, &p->arrays[i]);
        if (!(e <= most)) most = e;
        if (isnan(e)) break;
    }
    return most;
}

uint64_t machine_problem_bits(const machine_problem *p)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int k = 0; k < p->n_arrays; k++) {
        const machine_array *a = &p->arrays[k];
        size_t               bytes = a->count * bytes_of(a->format);
        const uint8_t       *from = machine_at(p->memory, a->address, bytes);
        for (size_t i = 0; a->bound > 0 && i < bytes; i++) hash = (hash ^ from[i]) * 0x100000001b3u;
    }
    return hash;
}

/* --- the portable kernels ------------------------------------------------------------------------ */

/* rows, columns, threads */
static void make_rmsnorm(machine_problem *p, const int *shape)
{
    int     rows = shape[0], columns = shape[1];
    double *out = machine_result(p, MACHINE_BF16, (size_t)(rows * columns), 4e-3);
    double *rstd = machine_result(p, MACHINE_F32, (size_t)rows, 1e-6);
    double *x = machine_input(p, MACHINE_BF16, (size_t)(rows * columns), 1),
           *w = machine_input(p, MACHINE_BF16, (size_t)columns, 1);
    machine_argument_int(p, columns);
    machine_argument_float(p, 1e-5f);
    for (int r = 0; r < rows; r++) {
        double square = 0;
        for (int c = 0; c < columns; c++) square += x[r * columns + c] * x[r * columns + c];
        rstd[r] = 1 / sqrt(square / columns + (double)1e-5f);
        for (int c = 0; c < columns; c++) out[r * columns + c] = x[r * columns + c] * rstd[r] * w[c];
    }
    p->launch.blocks[0] = (uint32_t)rows;
    p->launch.threads[0] = (uint32_t)shape[2];
}

static void make_rmsnorm_grad(machine_problem *p, const int *shape)
{
    int     rows = shape[0], columns = shape[1];
    size_t  all = (size_t)(rows * columns);
    double *dx = machine_result(p, MACHINE_BF16, all, 4e-3), *zeros = need((size_t)columns, sizeof(double));
    machine_given(p, MACHINE_F32, (size_t)columns, zeros);
    double *dw = machine_in_out(p, 1e-5);
    double *dy = machine_input(p, MACHINE_BF16, all, 1), *x = machine_input(p, MACHINE_BF16, all, 1);
    double *w = machine_input(p, MACHINE_BF16, (size_t)columns, 1), *rstd = need((size_t)rows, sizeof(double));
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) rstd[r] += x[r * columns + c] * x[r * columns + c];
        rstd[r] = 1 / sqrt(rstd[r] / columns);
    }
    machine_given(p, MACHINE_F32, (size_t)rows, rstd);
    machine_argument_int(p, columns);
    for (int r = 0; r < rows; r++) {
        const double *g = dy + r * columns, *v = x + r * columns;
        double        dot = 0;
        for (int c = 0; c < columns; c++) dot += g[c] * w[c] * v[c];
        dot *= rstd[r] * rstd[r] / columns;
        for (int c = 0; c < columns; c++) {
            dx[r * columns + c] = rstd[r] * (g[c] * w[c] - v[c] * dot);
            dw[c] += g[c] * v[c] * rstd[r];
        }
    }
    free(zeros);
    free(rstd);
    p->launch.blocks[0] = (uint32_t)rows;
    p->launch.threads[0] = (uint32_t)shape[2];
}

/* elements, blocks, threads */
static void make_adamw(machine_problem *p, const int *shape)
{
    size_t      n = (size_t)shape[0];
    const float lr = 1e-2f, b1 = 0.9f, b2 = 0.95f, eps = 1e-8f, decay = 0.1f, c1 = 1 / 0.19f, c2 = 1 / 0.0975f,
                scale = 0.5f;
    double *copy = machine_result(p, MACHINE_BF16, n, 4e-3);
    double *w = machine_input(p, MACHINE_F32, n, 1), *w_new = machine_in_out(p, 1e-6);
    double *m = machine_input(p, MACHINE_F32, n, 1), *m_new = machine_in_out(p, 1e-6);
    double *v = need(n, sizeof(double));
    for (size_t i = 0; i < n; i++) v[i] = fabs(normal(p));
    machine_given(p, MACHINE_F32, n, v);
    double *v_new = machine_in_out(p, 1e-6), *g = machine_input(p, MACHINE_BF16, n, 1);
    machine_argument_long(p, (int64_t)n);
    const float numbers[] = { lr, b1, b2, eps, decay, c1, c2, scale };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) machine_argument_float(p, numbers[i]);
    for (size_t i = 0; i < n; i++) {
        double gi = g[i] * (double)scale;
        m_new[i] = (double)b1 * m[i] + (1 - (double)b1) * gi;
        v_new[i] = (double)b2 * v[i] + (1 - (double)b2) * gi * gi;
        w_new[i] = w[i] - (double)lr * (m_new[i] * (double)c1 / (sqrt(v_new[i] * (double)c2) + (double)eps) +
                                        (double)decay * w[i]);
        copy[i] = w_new[i];
    }
    free(v);
    p->launch.blocks[0] = (uint32_t)shape[1];
    p->launch.threads[0] = (uint32_t)shape[2];
}

/* rows (the second without a target), columns, elements between rows, threads */
static void make_cross_entropy(machine_problem *p, const int *shape)
{
    int     rows = shape[0], columns = shape[1], stride = shape[2];
    double *x = machine_input(p, MACHINE_BF16, (size_t)(rows * stride), 3), *dx = machine_in_out(p, 4e-3);
    double *loss = machine_result(p, MACHINE_F32, (size_t)rows, 1e-5), *targets = need((size_t)rows, sizeof(double));
    for (int r = 0; r < rows; r++) targets[r] = r == 1 ? -1 : r == 2 ? columns - 1 : (5 + 7 * r) % columns;
    machine_given(p, MACHINE_I32, (size_t)rows, targets);
    machine_argument_int(p, columns);
    machine_argument_int(p, stride);
    machine_argument_float(p, 0.25f);
    for (int r = 0; r < rows; r++) {
        const double *row = x + r * stride;
        double        most = row[0], sum = 0;
        int           target = (int)targets[r];
        for (int c = 1; c < columns; c++) most = fmax(most, row[c]);
        for (int c = 0; c < columns; c++) sum += exp(row[c] - most);
        loss[r] = target >= 0 ? log(sum) + most - row[target] : 0;
        for (int c = 0; c < stride; c++)
            dx[r * stride + c] = c >= columns ? row[c]
                                 : target < 0 ? 0
                                              : (exp(row[c] - most) / sum - (c == target)) * 0.25;
    }
    free(targets);
    p->launch.blocks[0] = (uint32_t)rows;
    p->launch.threads[0] = (uint32_t)shape[3];
}

/* elements, blocks, threads */
static void make_swiglu(machine_problem *p, const int *shape)
{
    size_t  n = (size_t)shape[0];
    double *out = machine_result(p, MACHINE_BF16, n, 4e-3), *gate = machine_input(p, MACHINE_BF16, n, 1);
    double *up = machine_input(p, MACHINE_BF16, n, 1);
    machine_argument_long(p, (int64_t)n);
    for (size_t i = 0; i < n; i++) out[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    p->launch.blocks[0] = (uint32_t)shape[1];
    p->launch.threads[0] = (uint32_t)shape[2];
}

/* rows, columns, inner */
static void make_product_tiles(machine_problem *p, const int *shape)
{
    int     rows = shape[0], columns = shape[1], inner = shape[2];
    double *c = machine_result(p, MACHINE_BF16, (size_t)(rows * columns), 4e-3);
    double *a = machine_input(p, MACHINE_BF16, (size_t)(rows * inner), 1);
    double *b = machine_input(p, MACHINE_BF16, (size_t)(columns * inner), 1);
    machine_argument_int(p, rows);
    machine_argument_int(p, columns);
    machine_argument_int(p, inner);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            for (int k = 0; k < inner; k++) c[i * columns + j] += a[i * inner + k] * b[j * inner + k];
    p->launch.blocks[0] = (uint32_t)(columns + 63) / 64;
    p->launch.blocks[1] = (uint32_t)(rows + 63) / 64;
    p->launch.threads[0] = 256;
}

void machine_attention_forward(const machine_attention *a, double *out, double *log_sum)
{
    double *s = need((size_t)a->tokens, sizeof(double));
    for (int row = 0; row < a->heads * a->tokens; row++) {
        int           i = row % a->tokens, end = a->causal ? i + 1 : a->tokens;
        size_t        head = (size_t)(row - i) * (size_t)a->size;
        const double *q = a->q + (size_t)row * (size_t)a->size;
        double        most = -(double)INFINITY, sum = 0, *o = out + (size_t)row * (size_t)a->size;
        for (int j = 0; j < end; j++) {
            s[j] = 0;
            for (int d = 0; d < a->size; d++) s[j] += q[d] * a->k[head + (size_t)(j * a->size + d)] * a->scale;
            most = fmax(most, s[j]);
        }
        for (int j = 0; j < end; j++) sum += s[j] = exp(s[j] - most);
        for (int d = 0; d < a->size; d++) o[d] = 0;
        for (int j = 0; j < end; j++)
            for (int d = 0; d < a->size; d++) o[d] += s[j] / sum * a->v[head + (size_t)(j * a->size + d)];
        log_sum[row] = most + log(sum);
    }
    free(s);
}

/* tokens, heads */
static void make_attention_rows(machine_problem *p, const int *shape)
{
    int               tokens = shape[0], heads = shape[1];
    size_t            all = (size_t)(tokens * heads * 64);
    double           *out = machine_result(p, MACHINE_BF16, all, 4e-3);
    double           *log_sum = machine_result(p, MACHINE_F32, (size_t)(tokens * heads), 1e-5);
    machine_attention a = { heads, tokens, 64, true, 0.125, NULL, NULL, NULL };
    a.q = machine_input(p, MACHINE_BF16, all, 1);
    a.k = machine_input(p, MACHINE_BF16, all, 1);
    a.v = machine_input(p, MACHINE_BF16, all, 1);
    machine_argument_int(p, tokens);
    machine_argument_float(p, 0.125f);
    machine_attention_forward(&a, out, log_sum);
    p->launch.blocks[0] = (uint32_t)(tokens + 63) / 64;
    p->launch.blocks[1] = (uint32_t)heads;
    p->launch.threads[0] = 64;
}

#define PORTABLE(kernel) "portable.h", #kernel, make_##kernel
const machine_case machine_portable_cases[] = {
    { "rmsnorm 5 x 1000, 256 threads", PORTABLE(rmsnorm), { 5, 1000, 256 } },
    { "rmsnorm 2 x 600, 1024 threads", PORTABLE(rmsnorm), { 2, 600, 1024 } },
    { "rmsnorm_grad 4 x 520, 256 threads", PORTABLE(rmsnorm_grad), { 4, 520, 256 } },
    { "rmsnorm_grad 2 x 1300, 256 threads", PORTABLE(rmsnorm_grad), { 2, 1300, 256 } },
    { "rmsnorm_grad 2 x 600, 1024 threads", PORTABLE(rmsnorm_grad), { 2, 600, 1024 } },
    { "adamw 3000", PORTABLE(adamw), { 3000, 4, 256 } },
    { "adamw 9000", PORTABLE(adamw), { 9000, 4, 256 } },
    { "cross_entropy 3 x 1003", PORTABLE(cross_entropy), { 3, 1003, 1003, 256 } },
    { "cross_entropy 2 x 130 of 136, 1024 threads", PORTABLE(cross_entropy), { 2, 130, 136, 1024 } },
    { "swiglu 2001", PORTABLE(swiglu), { 2001, 2, 256 } },
    { "product_tiles 65 x 70 x 45", PORTABLE(product_tiles), { 65, 70, 45 } },
    { "attention_rows 128, 1 head", PORTABLE(attention_rows), { 128, 1 } },
    { "attention_rows 77, 2 heads", PORTABLE(attention_rows), { 77, 2 } },
    { 0 },
};
