/* SPDX-License-Identifier: Apache-2.0 */
/* graph/value.c - the formats of less than four bytes, by their definitions: IEEE 754 binary16, OCP 8-bit floating
 * point (OFP8) 1.0, OCP microscaling formats (MX) 1.0, the FNUZ forms of AMD's CDNA 3, NF4 (Dettmers et al. 2023,
 * appendix E).
 */
#include "graph/value.h"

#include "graph/blocks.h"

#include <math.h>

/* A sign, `exponent` bits with `bias`, `mantissa` bits; exponent 0 means subnormal. */
typedef struct {
    int      exponent, mantissa, bias;
    double   largest;
    bool     infinity;      /* has one: the code above the largest number */
    bool     negative_zero; /* has one */
    unsigned nan;           /* its code without sign; 0: has none */
} small_float;

static const small_float *small_of(tm_dtype dtype)
{
    static const small_float f16 = { 5, 10, 15, 65504, true, true, 0x7e00 };
    static const small_float e4m3 = { 4, 3, 7, 448, false, true, 0x7f };
    static const small_float e5m2 = { 5, 2, 15, 57344, true, true, 0x7e };
    static const small_float e4m3fnuz = { 4, 3, 8, 240, false, false, 0x80 };
    static const small_float e5m2fnuz = { 5, 2, 16, 57344, false, false, 0x80 };
    static const small_float e2m1 = { 2, 1, 1, 6, false, true, 0 };
    static const small_float e3m2 = { 3, 2, 3, 28, false, true, 0 };
    static const small_float e2m3 = { 2, 3, 1, 7.5, false, true, 0 };
    switch (dtype) {
    case TM_F16:
        return &f16;
    case TM_E4M3:
        return &e4m3;
    case TM_E5M2:
        return &e5m2;
    case TM_E4M3FNUZ:
        return &e4m3fnuz;
    case TM_E5M2FNUZ:
        return &e5m2fnuz;
    case TM_E2M1:
        return &e2m1;
    case TM_E3M2:
        return &e3m2;
    case TM_E2M3:
        return &e2m3;
    default:
        return NULL;
    }
}

static double decode(const small_float *f, unsigned code)
{
    unsigned sign = code >> (f->exponent + f->mantissa), magnitude = code & ((1u << (f->exponent + f->mantissa)) - 1);
    if (f->nan && (f->negative_zero ? magnitude : code) == f->nan) return (double)NAN;
    int      exponent = (int)(magnitude >> f->mantissa);
    unsigned fraction = magnitude & ((1u << f->mantissa) - 1);
    double   value = exponent ? ldexp(1 + ldexp(fraction, -f->mantissa), exponent - f->bias)
                              : ldexp(fraction, 1 - f->bias - f->mantissa);
    if (value > f->largest) value = (double)(fraction ? NAN : INFINITY); /* formats without infinity end before */
    return sign ? -value : value;
}

/* A magnitude in units of the last place. */
static double round_units(double units, tm_round how, double chance)
{
    double below = floor(units), rest = units - below;
    switch (how) {
    case TM_ROUND_EVEN:
        return nearbyint(units);
    case TM_ROUND_AWAY:
        return below + (rest >= 0.5);
    case TM_ROUND_STOCHASTIC:
        return below + (chance < rest);
    case TM_ROUND_ZERO:
        break;
    }
    return below;
}

/* The code above the largest number, without sign: of infinity, of NaN, or of the largest number itself. */
static unsigned beyond(const small_float *f, bool saturate, unsigned largest)
{
    if (saturate || (!f->infinity && !f->nan)) return largest;
    return f->infinity ? ((1u << f->exponent) - 1) << f->mantissa : f->nan;
}

/* The code of a number of the format that is not zero, without sign. */
static unsigned code_of(const small_float *f, double magnitude)
{
    int exponent = ilogb(magnitude);
    if (exponent < 1 - f->bias) return (unsigned)ldexp(magnitude, f->bias - 1 + f->mantissa);
    return (unsigned)(exponent + f->bias) << f->mantissa |
           (unsigned)ldexp(ldexp(magnitude, -exponent) - 1, f->mantissa);
}

static unsigned encode(const small_float *f, double value, tm_round how, bool saturate, double chance)
{
    unsigned sign = signbit(value) ? 1u << (f->exponent + f->mantissa) : 0;
    if (isnan(value) && f->nan) return sign | f->nan; /* the one NaN of formats without -0 is their sign alone */
    double magnitude = isnan(value) ? f->largest : fabs(value), rounded = magnitude;
    int    exponent = 1 - f->bias;
    if (isfinite(magnitude)) {
        if (magnitude > 0 && ilogb(magnitude) > exponent) exponent = ilogb(magnitude);
        double units = round_units(ldexp(magnitude, f->mantissa - exponent), how, chance);
        rounded = ldexp(units, exponent - f->mantissa);
    }
    if (rounded > f->largest) return sign | beyond(f, saturate, code_of(f, f->largest));
    if (rounded == 0) return f->negative_zero ? sign : 0;
    return sign | code_of(f, rounded);
}

unsigned tm_value_encode(tm_dtype dtype, double value, tm_round how, bool saturate, double chance)
{
    const small_float *f = small_of(dtype);
    TM_ASSERT(f);
    return encode(f, value, how, saturate, chance);
}

double tm_value_decode(tm_dtype dtype, unsigned code)
{
    const small_float *f = small_of(dtype);
    TM_ASSERT(f);
    return decode(f, code);
}

/* As tm_value_set has it: infinity where there is one, else the largest number. */
static unsigned encode_kept(const small_float *f, double value)
{
    return encode(f, value, TM_ROUND_EVEN, !f->infinity, 0);
}

static const double nf4_values[16] = {
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
};

static unsigned nf4_code(double value)
{
    unsigned best = 15;
    for (unsigned i = 15; i-- > 0;)
        if (value <= (nf4_values[i] + nf4_values[i + 1]) / 2) best = i;
    return best;
}

/* The power of two nearest in the exponent, as MX scales are made by their users: rounding is theirs. */
static unsigned e8m0_code(double value)
{
    if (!(value >= 0) || isinf(value)) return 0xff;
    double exponent = nearbyint(log2(value));
    return (unsigned)(exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127);
}

static unsigned nibble_shift(tm_dtype dtype, int64_t i)
{
    return (i % 2 == 0) == (dtype == TM_NF4) ? 4 : 0;
}

double tm_value_get_small(const void *data, tm_dtype dtype, int64_t i)
{
    const unsigned char *bytes = data;
    const small_float   *f = small_of(dtype);
    unsigned             nibble = 0;
    if (tm_dtype_blocked(dtype)) return (double)tm_blocked_value(dtype, data, i);
    if (tm_dtype_bits(dtype) == 4) nibble = bytes[i / 2] >> nibble_shift(dtype, i) & 0xfu;
    switch (dtype) {
    case TM_F16:
        return (double)tm_f16_value(((const uint16_t *)data)[i]);
    case TM_E2M1:
        return decode(f, nibble);
    case TM_NF4:
        return nf4_values[nibble];
    case TM_E8M0:
        return bytes[i] == 0xff ? (double)NAN : ldexp(1, (int)bytes[i] - 127);
    case TM_I64:
        return (double)((const int64_t *)data)[i];
    case TM_U8:
        return (double)bytes[i];
    default:
        TM_ASSERT(f);
        return decode(f, bytes[i]);
    }
}

void tm_value_set_small(void *data, tm_dtype dtype, int64_t i, double value)
{
    unsigned char     *bytes = data;
    const small_float *f = small_of(dtype);
    switch (dtype) {
    case TM_F16:
        ((uint16_t *)data)[i] = tm_f16_round(value);
        return;
    case TM_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        return;
    case TM_U8:
        bytes[i] = (unsigned char)value;
        return;
    case TM_E8M0:
        bytes[i] = (unsigned char)e8m0_code(value);
        return;
    case TM_E2M1:
    case TM_NF4: {
        unsigned code = dtype == TM_NF4 ? nf4_code(value) : encode_kept(f, value), shift = nibble_shift(dtype, i);
        bytes[i / 2] = (unsigned char)((bytes[i / 2] & ~(0xfu << shift)) | code << shift);
        return;
    }
    default:
        TM_ASSERT(f);
        bytes[i] = (unsigned char)encode_kept(f, value);
    }
}
