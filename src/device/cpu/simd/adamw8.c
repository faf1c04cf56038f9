/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/adamw8.c - AdamW with moments of 8 bits, the formula of op/adamw8.c: block by block the moments are
 * decoded, updated in float32 and coded again, so that they exist in full for 256 elements at a time.
 *
 * A code is the count of the map's bounds that are not above the value. Where to begin counting is read from a table by
 * the upper bits of the value: six of the mantissa leave two bounds at most to compare with. Weights and moments get
 * the operations of adamw, each rounded once, so all instruction sets agree bit for bit; TM_ADAMW8_BITSANDBYTES
 * multiplies and adds where TM_ADAMW8_TORCHAO interpolates.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/rounding.h"
#include "op/dynamic.h"

#include <math.h>

enum {
    BLOCK = TM_DYNAMIC_BLOCK,
    CODES = TM_DYNAMIC_CODES,
    MANTISSA = 6,          /* bits of it that choose a cell */
    LOWEST = 127 - 24,     /* exponent of the first cells: what is smaller is nearer to zero than to any other value */
    CELLS = 25 << MANTISSA /* of one sign: a magnitude is at most 1 */
};

typedef struct {
    float   map[CODES], least[CODES];
    int32_t first[2 * CELLS]; /* bounds that are not above the least value of a cell; then of those below zero */
} coder;

/* The workspace. */
typedef struct {
    coder     m, v;
    float     clip, decay, blend1, blend2, beta1, beta2, step, root, eps;
    bool      torchao;
    tm_chance chance;
} tables;

/* ---- codes ---- */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void coder_make(coder *c, bool is_signed, bool ties_up)
{
    const uint32_t unit = 1u << (23 - MANTISSA);
    int32_t        above = 0, below = CODES - 1;
    tm_dynamic_map(is_signed, c->map);
    tm_dynamic_bounds(c->map, ties_up, c->least);
    c->least[CODES - 1] = HUGE_VALF;
    for (uint32_t i = 0; i < CELLS; i++) {
        uint32_t cell = ((uint32_t)LOWEST << 23) + i * unit;
        float    smallest = i > 0 ? float_of(cell) : 0.f, largest = float_of(cell + unit - 1);
        while (c->least[above] <= smallest) above++;
        while (below > 0 && c->least[below - 1] > -largest) below--;
        c->first[i] = above, c->first[CELLS + i] = below;
    }
}

/* Codes of x / scale. */
static void encode(const coder *c, const float x[BLOCK], float scale, uint8_t codes[BLOCK])
{
    for (int k = 0; k < BLOCK; k++) {
        float    value = x[k] / scale;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        int32_t cell = (int32_t)((bits & 0x7fffffffu) >> (23 - MANTISSA)) - (LOWEST << MANTISSA);
        cell = cell < 0 ? 0 : cell;
        cell = cell >= CELLS ? CELLS - 1 : cell;
        int32_t code = c->first[cell + (bits >> 31 ? CELLS : 0)];
        code += c->least[code] <= value;
        code += c->least[code] <= value;
        codes[k] = (uint8_t)code;
    }
}

static void decode(const coder *c, const uint8_t codes[BLOCK], float scale, float x[BLOCK])
{
    for (int k = 0; k < BLOCK; k++) x[k] = c->map[codes[k]] * scale;
}

static float scale_of(const tables *t, float largest)
{
    if (t->torchao) return largest < 1e-12f ? 1e-12f : largest;
    return largest == 0.f ? 1.f : largest;
}

/* ---- blocks ---- */

/* Moments and weights of elements i .. i + n - 1; m and v are those of the block from here on. */
TM_INLINE void update_lanes(const tm_call *call, tm_dtype format, const tables *t, int64_t i, int64_t n, float *m_at,
                            float *v_at)
{
    v16 p = v16_get(call->in[0].data, format, i, n), g = v16_get(call->in[1].data, format, i, n);
    v16 m = v16_load(m_at), v = v16_load(v_at);
    g = v16_mul(g, v16_set1(t->clip));
    p = v16_sub(p, v16_mul(v16_set1(t->decay), p));
    if (t->torchao) {
        m = v16_add(m, v16_mul(v16_set1(t->blend1), v16_sub(g, m)));
        v = v16_add(v, v16_mul(v16_set1(t->blend2), v16_sub(v16_mul(g, g), v)));
    } else {
        m = v16_add(v16_mul(v16_set1(t->beta1), m), v16_mul(v16_set1(t->blend1), g));
        v = v16_add(v16_mul(v16_set1(t->beta2), v), v16_mul(v16_mul(v16_set1(t->blend2), g), g));
    }
    v16 denominator = v16_add(v16_div(v16_sqrt(v), v16_set1(t->root)), v16_set1(t->eps));
    p = v16_sub(p, v16_div(v16_mul(v16_set1(t->step), m), denominator));
    v16_store(m_at, m), v16_store(v_at, v);
    tm_put_rounded(&t->chance, call->out[0].data, format, i, p, n, 0);
}

static float largest_of(const float x[BLOCK])
{
    v16 most = v16_zero();
    for (int k = 0; k < BLOCK; k += TM_LANES) {
        v16 a = v16_load(x + k);
        most = v16_max(most, v16_max(a, v16_sub(v16_zero(), a)));
    }
    return v16_largest(most);
}

TM_INLINE void update_block(const tm_call *call, tm_dtype format, const tables *t, int64_t b)
{
    int64_t begin = b * BLOCK, n = tm_min(BLOCK, tm_view_elements(&call->in[0]) - begin);
    float   m[BLOCK], v[BLOCK], *scale_m = (float *)call->out[3].data + b, *scale_v = (float *)call->out[4].data + b;
    uint8_t codes[BLOCK] = { 0 };
    memcpy(codes, (const uint8_t *)call->in[2].data + begin, (size_t)n);
    decode(&t->m, codes, ((const float *)call->in[4].data)[b], m);
    memcpy(codes, (const uint8_t *)call->in[3].data + begin, (size_t)n);
    decode(&t->v, codes, ((const float *)call->in[5].data)[b], v);
    for (int64_t k = 0; k < n; k += TM_LANES)
        update_lanes(call, format, t, begin + k, tm_lanes(begin + k, begin + n), m + k, v + k);
    for (int64_t k = n; k < BLOCK; k++) m[k] = v[k] = 0;
    *scale_m = scale_of(t, largest_of(m)), *scale_v = scale_of(t, largest_of(v));
    encode(&t->m, m, *scale_m, codes);
    memcpy((uint8_t *)call->out[1].data + begin, codes, (size_t)n);
    encode(&t->v, v, *scale_v, codes);
    memcpy((uint8_t *)call->out[2].data + begin, codes, (size_t)n);
}

TM_INLINE void blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tables *t = (const tables *)(((uintptr_t)call->workspace + 63) / 64 * 64);
    for (int64_t b = begin; b < end; b++) update_block(call, format, t, b);
}
TM_PART(blocks, in[0])

static void adamw8_run(const tm_call *call)
{
    const tm_adamw8_attr *attr = call->attr;
    const double         *scalars = call->in[6].data, *clip = call->in[7].data;
    double                rate = scalars[TM_SCALAR_LEARNING_RATE];
    int64_t               n = tm_view_elements(&call->in[0]);
    tables               *t = (tables *)(((uintptr_t)call->workspace + 63) / 64 * 64);
    t->torchao = attr->definition == TM_ADAMW8_TORCHAO;
    t->chance = tm_chance_of(attr->rounding, scalars);
    t->clip = (float)clip[1];
    t->decay = (float)(rate * attr->weight_decay);
    t->beta1 = (float)attr->beta1, t->blend1 = (float)(1. - attr->beta1);
    t->beta2 = (float)attr->beta2, t->blend2 = (float)(1. - attr->beta2);
    t->step = (float)(rate / scalars[TM_SCALAR_CORRECTION1]);
    t->root = (float)sqrt(scalars[TM_SCALAR_CORRECTION2]);
    t->eps = (float)attr->eps;
    coder_make(&t->m, true, t->torchao);
    coder_make(&t->v, false, t->torchao);
    tm_parallel(call, blocks_part, tm_ceil_div(n, BLOCK), 4, n);
}
static TM_PLANNED size_t adamw8_workspace(const tm_call *call)
{
    (void)call;
    return sizeof(tables) + 64;
}
static TM_PLANNED const char *adamw8_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    for (int k = 2; k < 4 && !why; k++)
        if (call->in[k].dtype != TM_U8 || call->out[k - 1].dtype != TM_U8) why = "needs codes of 8 bits";
    for (int k = 4; k < 6 && !why; k++) why = tm_refuse_wide(&call->in[k]);
    for (int k = 3; k < 5 && !why; k++) why = tm_refuse_wide(&call->out[k]);
    for (int k = 6; k < 8 && !why; k++) why = tm_refuse_scalar(&call->in[k]);
    return why;
}

const tm_kernel TM_K(tm_cpu_adamw8)[] = {
    TM_KERNEL(adamw8, "adamw8/", adamw8_refuse, adamw8_workspace, adamw8_run),
    { .name = NULL },
};
