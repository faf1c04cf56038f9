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
    return format == MACHINE_F32 ? 4 : format == MACHINE_BF16 || format == MACHINE_F16 ? 2 : 1;
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
    uint32_t bits = 0;
    switch (format) {
    case MACHINE_F32:
        memcpy(&bits, &f, 4);
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

static void send(machine_problem *p, const machine_array *a)
{
    size_t   size = bytes_of(a->format);
    uint8_t *to = machine_at(p->memory, a->address, a->count * size);
    for (size_t i = 0; i < a->count; i++) put(to + i * size, a->format, a->values[i]);
}

double *machine_input(machine_problem *p, machine_format format, size_t count, double scale)
{
    machine_array *a = new_array(p, format, count);
    a->values = need(count, sizeof(double));
    for (size_t i = 0; i < count; i++) a->values[i] = to_format(normal(p) * scale, format);
    send(p, a);
    return a->values;
}

double *machine_result(machine_problem *p, machine_format format, size_t count, double bound)
{
    machine_array *a = new_array(p, format, count);
    a->bound = bound;
    return a->expected = need(count, sizeof(double));
}

void machine_argument_int(machine_problem *p, int x)
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
            send(p, a);
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
