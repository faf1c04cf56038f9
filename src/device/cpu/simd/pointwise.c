/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/pointwise.c - gelu, relu, silu, swiglu, their gradients, quick_gelu, geglu, scale, add, cast,
 * fill, rope and its gradient.
 *
 * With the sigmoid s(u) = 1 / (1 + e), e = exp(-u), and 1 - s = e s (no cancellation):
 *   gelu(x) = x s(2 q),  q = sqrt(2 / pi) (x + 0.044715 x^3)           (Hendrycks & Gimpel 2016; 1 + tanh q = 2 s(2 q))
 *   gelu'   = s (1 + 2 x q' (1 - s)),  q' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
 *   silu    = x s(x);  silu' = s (1 + x (1 - s))                       (Elfwing et al. 2017)
 *   swiglu  = a s(a) u;  da = dy u s (1 + a (1 - s)),  du = dy a s     (Shazeer 2020)
 *   rope    : (y_a, y_b) = (x_a cos - x_b sin, x_b cos + x_a sin) of each pair; the gradient turns the other way
 *             (Su et al. 2021)
 * Each element is read before it is written, so an output may lie on its input.
 */
#include "base/status.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/nf4.h"
#include "graph/value.h"
#include "op/attrs.h"

/* ---- flat ops: any shape ---- */

#define ROOT_2_PI 0.79788456080286536f
#define CUBIC 0.044715f

/* exp(-2 q(x)) */
TM_INLINE v16 gelu_exp(v16 x)
{
    v16 inner = v16_fma(v16_mul(v16_set1(CUBIC), x), x, v16_set1(1.f));
    return v16_exp(v16_mul(v16_mul(v16_set1(-2.f * ROOT_2_PI), x), inner));
}

/* exp(-x) */
TM_INLINE v16 silu_exp(v16 x)
{
    return v16_exp(v16_sub(v16_zero(), x));
}

typedef enum { SILU, QUICK_GELU, GELU } activation;

TM_INLINE v16 activated(activation kind, v16 x)
{
    v16 e = kind == GELU ? gelu_exp(x) : silu_exp(kind == SILU ? x : v16_mul(v16_set1(1.702f), x));
    return v16_div(x, v16_add(v16_set1(1.f), e));
}

#define ACTIVATION(name, kind)                                                                                         \
    TM_INLINE void name(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)                              \
    {                                                                                                                  \
        for (int64_t i = begin; i < end; i += TM_LANES) {                                                              \
            int64_t n = tm_lanes(i, end);                                                                              \
            v16_put(call->out[0].data, format, i, activated(kind, v16_get(call->in[0].data, format, i, n)), n);        \
        }                                                                                                              \
    }                                                                                                                  \
    TM_PART(name, in[0])
ACTIVATION(gelu, GELU)
ACTIVATION(silu, SILU)
ACTIVATION(quick_gelu, QUICK_GELU)

/* Into rows that lie apart. */
TM_INLINE void gelu_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    int64_t columns = tm_view_columns(&call->in[0]), y_row = tm_view_ld(&call->out[0]);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     x = v16_get(call->in[0].data, format, r * columns + j, n);
            v16_put(call->out[0].data, format, r * y_row + j, activated(GELU, x), n);
        }
}
TM_PART(gelu_rows, in[0])

TM_INLINE void gelu_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const v16 one = v16_set1(1.f);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     dy = v16_get(call->in[0].data, format, i, n), x = v16_get(call->in[1].data, format, i, n);
        x = v16_max(v16_set1(-10.f), v16_min(v16_set1(10.f), x)); /* beyond, the slope is 0 or 1 to the last bit */
        v16 e = gelu_exp(x), s = v16_div(one, v16_add(one, e));
        v16 slope = v16_fma(v16_mul(v16_set1(6.f * ROOT_2_PI * CUBIC), x), x, v16_set1(2.f * ROOT_2_PI));
        v16 d = v16_mul(s, v16_fma(v16_mul(x, slope), v16_mul(e, s), one));
        v16_put(call->out[0].data, format, i, v16_mul(dy, d), n);
    }
}
TM_PART(gelu_grad, in[0])

TM_INLINE void relu(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(call->out[0].data, format, i, v16_max(v16_zero(), v16_get(call->in[0].data, format, i, n)), n);
    }
}
TM_PART(relu, in[0])

TM_INLINE void relu_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     dy = v16_get(call->in[0].data, format, i, n), y = v16_get(call->in[1].data, format, i, n);
        v16_put(call->out[0].data, format, i, v16_where(y, dy), n);
    }
}
TM_PART(relu_grad, in[0])

TM_INLINE void add_flat(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     a = v16_get(call->in[0].data, format, i, n), b = v16_get(call->in[1].data, format, i, n);
        v16_put(call->out[0].data, format, i, v16_add(a, b), n);
    }
}
TM_PART(add_flat, in[0])

/* The same where some operand's rows lie apart. */
TM_INLINE void add_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_view *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    int64_t        columns = tm_view_columns(y), a_row = tm_view_ld(a), b_row = tm_view_ld(b), y_row = tm_view_ld(y);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     v = v16_get(a->data, format, r * a_row + j, n);
            v16_put(y->data, format, r * y_row + j, v16_add(v, v16_get(b->data, format, r * b_row + j, n)), n);
        }
}
TM_PART(add_rows, in[0])

TM_INLINE void add_bias_rows(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    int64_t columns = tm_view_columns(&call->out[0]);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns), at = r * columns + j;
            v16     sum = v16_add(v16_get(call->in[0].data, format, at, n), v16_get(call->in[1].data, format, at, n));
            v16_put(call->out[0].data, format, at, v16_add(sum, v16_get(call->in[2].data, stored, j, n)), n);
        }
}
TM_PART_2(add_bias_rows, in[0], in[2])

static void add_bias_run(const tm_call *call)
{
    tm_parallel(call, add_bias_rows_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *add_bias_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : tm_refuse_format(&call->in[2]);
}

TM_INLINE void fill(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_view      *y = &call->out[0];
    const tm_fill_attr *attr = call->attr;
    int64_t             columns = tm_view_columns(y), row = tm_view_ld(y);
    v16                 value = v16_set1((float)attr->value);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < columns; j += TM_LANES)
            v16_put(y->data, format, r * row + j, value, tm_lanes(j, columns));
}
TM_PART(fill, out[0])

TM_INLINE void cast(const tm_call *call, tm_dtype from, tm_dtype to, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(call->out[0].data, to, i, v16_get(call->in[0].data, from, i, n), n);
    }
}
TM_PART_2(cast, in[0], out[0])

/* ---- cast of the formats that weights are held in: float16 and the formats of 8 bits ---- */

/* The numbers of an 8-bit format. */
static void byte_values(tm_dtype format, float values[256])
{
    for (int code = 0; code < 256; code++) {
        uint8_t byte = (uint8_t)code;
        values[code] = (float)tm_value_get_small(&byte, format, 0);
    }
}
TM_INLINE void widen(const tm_call *call, tm_dtype to, int64_t begin, int64_t end)
{
    tm_dtype format = call->in[0].dtype;
    float    values[256], lanes[TM_LANES] = { 0 };
    if (format != TM_F16) byte_values(format, values);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        if (format == TM_F16)
            for (int64_t k = 0; k < n; k++) lanes[k] = tm_f16_value(((const uint16_t *)call->in[0].data)[i + k]);
        else
            for (int64_t k = 0; k < n; k++) lanes[k] = values[((const uint8_t *)call->in[0].data)[i + k]];
        v16_put(call->out[0].data, to, i, v16_load(lanes), n);
    }
}
TM_PART(widen, out[0])

/* Weights in blocks of NF4 (graph/nf4.h), or parts of such (graph/blocks.h): a byte is two values of a table, a block
 * has one factor. begin is a multiple of TM_ELEMENT_GRAIN, and so of a block. */
TM_INLINE void decode_nf4(const tm_call *call, tm_dtype to, int64_t begin, int64_t end)
{
    const bool    scaled = call->in[0].dtype == TM_NF4_SCALED;
    const int64_t head = scaled ? TM_SCALED_HEAD : TM_NF4_HEAD, bytes = head + TM_NF4_GROUP / 2;
    float         code[16], map[256], pairs[256][2], values[TM_NF4_BLOCK];
    tm_nf4_codes(code);
    tm_nf4_map(map);
    for (int byte = 0; byte < 256; byte++) pairs[byte][0] = code[byte >> 4], pairs[byte][1] = code[byte & 15];
    for (int64_t i = begin; i < end; i += TM_NF4_BLOCK) {
        const uint8_t *group = (const uint8_t *)call->in[0].data + i / TM_NF4_GROUP * bytes;
        const uint8_t *codes = group + head + i % TM_NF4_GROUP / 2;
        int64_t        n = tm_min(TM_NF4_BLOCK, end - i);
        float          factor = nf4_factor(group, map, i % TM_NF4_GROUP / TM_NF4_BLOCK, scaled);
        for (int64_t k = 0; k < (n + 1) / 2; k++) memcpy(values + 2 * k, pairs[codes[k]], sizeof pairs[0]);
        for (int64_t k = 0; k < n; k += TM_LANES)
            v16_put(call->out[0].data, to, i + k, v16_mul(v16_set1(factor), v16_load(values + k)), tm_lanes(k, n));
    }
}
TM_PART(decode_nf4, out[0])

/* Weights in blocks of E4M3 (graph/blocks.h): a byte is a value of a table, a block has one factor. */
TM_INLINE void decode_e4m3(const tm_call *call, tm_dtype to, int64_t begin, int64_t end)
{
    float table[256], values[TM_E4M3_BLOCK];
    byte_values(TM_E4M3, table);
    for (int64_t i = begin; i < end; i += TM_E4M3_BLOCK) {
        const uint8_t *group = (const uint8_t *)call->in[0].data + i / TM_E4M3_GROUP * TM_E4M3_GROUP_BYTES;
        const uint8_t *codes = group + TM_E4M3_HEAD + i % TM_E4M3_GROUP;
        int64_t        n = tm_min(TM_E4M3_BLOCK, end - i);
        float          factor;
        memcpy(&factor, group + i % TM_E4M3_GROUP / TM_E4M3_BLOCK * 4, sizeof factor);
        for (int64_t k = 0; k < n; k++) values[k] = table[codes[k]];
        for (int64_t k = 0; k < n; k += TM_LANES)
            v16_put(call->out[0].data, to, i + k, v16_mul(v16_set1(factor), v16_load(values + k)), tm_lanes(k, n));
    }
}
TM_PART(decode_e4m3, out[0])

#define FLAT_RUN(name)                                                                                                 \
    static void name##_run(const tm_call *call)                                                                        \
    {                                                                                                                  \
        int64_t n = tm_view_elements(&call->in[0]);                                                                    \
        tm_parallel(call, name##_part, n, TM_ELEMENT_GRAIN, n);                                                        \
    }
FLAT_RUN(gelu)
static void gelu_any_run(const tm_call *call)
{
    if (tm_view_dense(&call->out[0]))
        gelu_run(call);
    else
        tm_parallel(call, gelu_rows_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
FLAT_RUN(silu)
FLAT_RUN(quick_gelu)
FLAT_RUN(gelu_grad)
FLAT_RUN(relu)
FLAT_RUN(relu_grad)
FLAT_RUN(add_flat)

static void cast_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_part part = tm_dtype_small(call->in[0].dtype) ? widen_part : cast_part;
    if (call->in[0].dtype == TM_NF4_BLOCKS || call->in[0].dtype == TM_NF4_SCALED) part = decode_nf4_part;
    if (call->in[0].dtype == TM_E4M3_BLOCKS) part = decode_e4m3_part;
    tm_parallel(call, part, n, TM_ELEMENT_GRAIN, n);
}

static void add_run(const tm_call *call)
{
    if (tm_view_dense(&call->in[0]) && tm_view_dense(&call->in[1]) && tm_view_dense(&call->out[0]))
        add_flat_run(call);
    else
        tm_parallel(call, add_rows_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static void fill_run(const tm_call *call)
{
    tm_parallel(call, fill_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *fill_refuse(const tm_call *call)
{
    return tm_refuse_format(&call->out[0]);
}

static TM_PLANNED const char *unary_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    return why ? why : tm_refuse_mixed(&call->in[0], &call->out[0]);
}
static TM_PLANNED const char *binary_refuse(const tm_call *call)
{
    const char *why = unary_refuse(call);
    return why ? why : tm_refuse_mixed(&call->in[0], &call->in[1]);
}
static TM_PLANNED const char *cast_refuse(const tm_call *call)
{
    tm_dtype from = call->in[0].dtype;
    bool     held = tm_dtype_small(from) && tm_dtype_bits(from) >= 8 && from != TM_E8M0; /* without scales */
    if (!held && !tm_dtype_blocked(from) && !tm_is_float(&call->in[0]))
        return "needs float32, bfloat16, float16, a float8 format without scales, or a format of blocks";
    return tm_refuse_format(&call->out[0]);
}

/* ---- swiglu and geglu: rows of gate and up ---- */

/* Two kilobytes ahead: a row is two streams, and the hardware loses both at the end of each (19 to 32 GB/s at F = 2048
 * on a Zen 5 core). */
TM_INLINE void fetch_ahead(const void *p, tm_dtype format, int64_t i)
{
    __builtin_prefetch((const char *)p + i * (format == TM_BF16 ? 2 : 4) + 2048);
}

TM_INLINE void gated(const tm_call *call, tm_dtype format, activation kind, int64_t begin, int64_t end)
{
    int64_t width = tm_view_columns(&call->out[0]);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < width; j += TM_LANES) {
            int64_t n = tm_lanes(j, width), at = 2 * r * width + j;
            fetch_ahead(call->in[0].data, format, at), fetch_ahead(call->in[0].data, format, at + width);
            v16 gate = v16_get(call->in[0].data, format, at, n), up = v16_get(call->in[0].data, format, at + width, n);
            v16_put(call->out[0].data, format, r * width + j, v16_mul(activated(kind, gate), up), n);
        }
}
TM_INLINE void swiglu(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    gated(call, format, SILU, begin, end);
}
TM_PART(swiglu, in[0])
TM_INLINE void geglu(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    gated(call, format, GELU, begin, end);
}
TM_PART(geglu, in[0])

TM_INLINE void swiglu_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const v16 one = v16_set1(1.f);
    int64_t   width = tm_view_columns(&call->in[0]);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < width; j += TM_LANES) {
            int64_t n = tm_lanes(j, width), at = 2 * r * width + j;
            fetch_ahead(call->in[1].data, format, at), fetch_ahead(call->in[1].data, format, at + width);
            v16 dy = v16_get(call->in[0].data, format, r * width + j, n);
            v16 a = v16_get(call->in[1].data, format, at, n), up = v16_get(call->in[1].data, format, at + width, n);
            v16 e = silu_exp(a), s = v16_div(one, v16_add(one, e));
            v16 slope = v16_mul(s, v16_fma(a, v16_mul(e, s), one));
            v16_put(call->out[0].data, format, at, v16_mul(v16_mul(dy, up), slope), n);
            v16_put(call->out[0].data, format, at + width, v16_mul(dy, v16_mul(a, s)), n);
        }
}
TM_PART(swiglu_grad, in[0])

static void swiglu_run(const tm_call *call)
{
    tm_parallel(call, swiglu_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static void geglu_run(const tm_call *call)
{
    tm_parallel(call, geglu_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static void swiglu_grad_run(const tm_call *call)
{
    tm_parallel(call, swiglu_grad_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

/* ---- scale ---- */

TM_INLINE void scale(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    v16 value = v16_set1((float)((const tm_fill_attr *)call->attr)->value);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(call->out[0].data, format, i, v16_mul(value, v16_get(call->in[0].data, format, i, n)), n);
    }
}
TM_PART(scale, in[0])
FLAT_RUN(scale)

/* ---- silu's gradient ---- */

TM_INLINE void silu_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const v16 one = v16_set1(1.f);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     dy = v16_get(call->in[0].data, format, i, n), x = v16_get(call->in[1].data, format, i, n);
        v16     e = silu_exp(x), s = v16_div(one, v16_add(one, e));
        v16_put(call->out[0].data, format, i, v16_mul(dy, v16_mul(s, v16_fma(x, v16_mul(e, s), one))), n);
    }
}
TM_PART(silu_grad, in[0])

FLAT_RUN(silu_grad)

/* ---- rope ---- */

enum { WIDEST_HEAD = 512 }; /* Limit: a row of the table is spread on the stack for interleaved pairs */

/* Lanes 0 and 1 exchanged, 2 and 3, ... */
TM_INLINE v16 swap_pairs(v16 x)
{
#if defined(__AVX512F__)
    return _mm512_permute_ps(x, 0xb1);
#elif defined(__AVX2__)
    return (v16){ _mm256_permute_ps(x.lo, 0xb1), _mm256_permute_ps(x.hi, 0xb1) };
#else
    float from[TM_LANES], to[TM_LANES];
    v16_store(from, x);
    for (int i = 0; i < TM_LANES; i++) to[i] = from[i ^ 1];
    return v16_load(to);
#endif
}

/* Heads of one row, pairs (i, i + D/2); sign is -1 for the gradient. */
TM_INLINE void rope_half(const void *x, void *y, tm_dtype format, int64_t at, int64_t heads, int64_t dim,
                         int64_t stride, const float *table, float sign)
{
    int64_t half = dim / 2;
    for (int64_t h = 0; h < heads; h++, at += stride)
        for (int64_t j = 0; j < half; j += TM_LANES) {
            int64_t n = tm_lanes(j, half);
            v16     c = v16_get(table, TM_F32, j, n), s = v16_mul(v16_set1(sign), v16_get(table, TM_F32, half + j, n));
            v16     a = v16_get(x, format, at + j, n), b = v16_get(x, format, at + half + j, n);
            v16_put(y, format, at + j, v16_sub(v16_mul(a, c), v16_mul(b, s)), n);
            v16_put(y, format, at + half + j, v16_add(v16_mul(b, c), v16_mul(a, s)), n);
        }
}

/* Heads of one row, pairs (2i, 2i + 1). */
TM_INLINE void rope_interleaved(const void *x, void *y, tm_dtype format, int64_t at, int64_t heads, int64_t dim,
                                int64_t stride, const float *table, float sign)
{
    float c[WIDEST_HEAD], s[WIDEST_HEAD];
    for (int64_t i = 0; i < dim / 2; i++) {
        c[2 * i] = c[2 * i + 1] = table[i];
        s[2 * i + 1] = sign * table[dim / 2 + i];
        s[2 * i] = -s[2 * i + 1];
    }
    for (int64_t h = 0; h < heads; h++, at += stride)
        for (int64_t j = 0; j < dim; j += TM_LANES) {
            int64_t n = tm_lanes(j, dim);
            v16     v = v16_get(x, format, at + j, n), turned = v16_mul(swap_pairs(v), v16_get(s, TM_F32, j, n));
            v16_put(y, format, at + j, v16_add(v16_mul(v, v16_get(c, TM_F32, j, n)), turned), n);
        }
}

TM_INLINE void rope_rows(const tm_call *call, tm_dtype format, float sign, int64_t begin, int64_t end)
{
    const tm_rope_attr *attr = call->attr;
    const char         *x = call->in[0].data;
    char               *y = call->out[0].data;
    const int32_t      *positions = call->in[2].data;
    int64_t             width = tm_view_columns(&call->in[0]), dim = attr->head_dim;
    int64_t             stride = attr->stride ? attr->stride : dim;
    int64_t             copied = attr->first == 0 && stride == dim ? attr->heads * dim : 0; /* from this column on */
    size_t              bytes = tm_dtype_bytes(format);
    for (int64_t r = begin; r < end; r++) {
        int64_t      at = r * width, position = positions ? positions[r] : r % attr->seq;
        const float *table = (const float *)call->in[1].data + position * dim;
        TM_ASSERT(position >= 0 && position < call->in[1].shape.n[0]);
        if (x != y && copied < width)
            memcpy(y + (size_t)(at + copied) * bytes, x + (size_t)(at + copied) * bytes,
                   (size_t)(width - copied) * bytes);
        if (attr->layout == TM_ROPE_HALF)
            rope_half(x, y, format, at + attr->first, attr->heads, dim, stride, table, sign);
        else
            rope_interleaved(x, y, format, at + attr->first, attr->heads, dim, stride, table, sign);
    }
}
TM_INLINE void rope(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    rope_rows(call, format, 1.f, begin, end);
}
TM_PART(rope, in[0])
TM_INLINE void rope_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    rope_rows(call, format, -1.f, begin, end);
}
TM_PART(rope_grad, in[0])

static void rope_run(const tm_call *call)
{
    tm_parallel(call, rope_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static void rope_grad_run(const tm_call *call)
{
    tm_parallel(call, rope_grad_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

static TM_PLANNED const char *rope_refuse(const tm_call *call)
{
    const tm_rope_attr *attr = call->attr;
    const char         *why = unary_refuse(call);
    if (!why) why = tm_refuse_wide(&call->in[1]);
    if (!why && tm_view_present(&call->in[2]) && call->in[2].dtype != TM_I32) why = "needs int32 positions";
    if (!why && attr->head_dim > WIDEST_HEAD) why = "heads are wider than 512";
    return why;
}

const tm_kernel TM_K(tm_cpu_pointwise)[] = {
    TM_KERNEL(gelu, "gelu/", unary_refuse, NULL, gelu_any_run),
    TM_KERNEL(gelu_grad, "gelu_grad/", binary_refuse, NULL, gelu_grad_run),
    TM_KERNEL(quick_gelu, "quick_gelu/", unary_refuse, NULL, quick_gelu_run),
    TM_KERNEL(geglu, "geglu/", unary_refuse, NULL, geglu_run),
    TM_KERNEL(relu, "relu/", unary_refuse, NULL, relu_run),
    TM_KERNEL(relu_grad, "relu_grad/", binary_refuse, NULL, relu_grad_run),
    TM_KERNEL(scale, "scale/", unary_refuse, NULL, scale_run),
    TM_KERNEL(silu, "silu/", unary_refuse, NULL, silu_run),
    TM_KERNEL(silu_grad, "silu_grad/", binary_refuse, NULL, silu_grad_run),
    TM_KERNEL(swiglu, "swiglu/", unary_refuse, NULL, swiglu_run),
    TM_KERNEL(swiglu_grad, "swiglu_grad/", binary_refuse, NULL, swiglu_grad_run),
    TM_KERNEL(add, "add/", binary_refuse, NULL, add_run),
    TM_KERNEL(add_bias, "add_bias/", add_bias_refuse, NULL, add_bias_run),
    TM_KERNEL(cast, "cast/", cast_refuse, NULL, cast_run),
    TM_KERNEL(fill, "fill/", fill_refuse, NULL, fill_run),
    TM_KERNEL(rope, "rope/", rope_refuse, NULL, rope_run),
    TM_KERNEL(rope_grad, "rope_grad/", rope_refuse, NULL, rope_grad_run),
    { .name = NULL },
};
