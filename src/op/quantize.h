/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize.h - numbers of narrow formats with scales: what a recipe of low precision does to the factors of a
 * product. The arithmetic of the op `quantize`, for its reference and every kernel; all of it float32, rounded as IEEE
 * 754 says, so that every machine gives the same bits.
 *
 * A factor is read as lines along the dimension that the product sums over. A scale s belongs to a tensor, a line, a
 * block of a line or a square of lines: x becomes q = round(x s) in the format, saturated, and stands for q / s.
 *
 * Experts: each has its own tensors, so its own scales, lines and blocks. A weight (E, M, K) is E matrices; the rows of
 * activations are those between two offsets. A block at the end of an expert's rows may be short, as if zeros followed;
 * fewer than 16 elements at the end of a line are not rotated.
 *
 * Parts of a tensor that ranks divide: `quantize_largest` finds what is largest here, of each part of it and, where
 * lines are divided, of each line; the largest of all ranks then is an input of `quantize`, so that scales are those of
 * the whole tensor. Blocks are never divided.
 *
 * Codes: y may hold the numbers q themselves, in their format, line after line: where lines run down, y is transposed.
 * Scales are what codes are multiplied with, of each part, of each of its lines or of blocks, laid as a library of
 * products has them (op/codes.h). So they are operands of a product (op/scaled_mm.c). Of lines that run along the rows
 * of experts, blocks of each begin anew, and y is longer than x (tm_codes_begin).
 *
 * Sources: OCP 8-bit floating point (OFP8) 1.0; OCP microscaling formats (MX) 1.0, 6.3; torchao 0.18 float8 and
 * mx_formats; TransformerEngine's recipes; the published MXFP4 and NVFP4 recipes (docs/low-precision.md).
 */
#ifndef TM_OP_QUANTIZE_H
#define TM_OP_QUANTIZE_H

#include "op/codes.h"
#include "op/op.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* What shares a scale. */
typedef enum {
    TM_SCALED_NOT,     /* stays as it is */
    TM_SCALED_TENSOR,  /* the largest number of this tensor, now */
    TM_SCALED_DELAYED, /* that of earlier steps: an input */
    TM_SCALED_LINE,
    TM_SCALED_BLOCK, /* of `block` elements of a line */
    TM_SCALED_SQUARE /* of `block` lines by `block` elements */
} tm_scaled;

/* How a scale follows from the largest magnitude `amax`. e: exponent of the power of two that the codes are multiplied
 * by, emax: that of the format's largest number. */
typedef enum {
    TM_RULE_RATIO,      /* s = largest / amax */
    TM_RULE_RATIO_POW2, /* the power of two at or below it */
    TM_RULE_FLOOR,      /* e = floor(log2 amax) - emax: as MX says; the largest may saturate */
    TM_RULE_CEIL,       /* e = ceil(log2 amax) - emax */
    TM_RULE_EVEN,       /* amax rounded to the format's mantissa, half up, then floor */
    TM_RULE_UP,         /* e = ceil(log2(amax / largest)): nothing saturates */
    TM_RULE_TWO_LEVEL   /* NVFP4: an e4m3 scale of each block, times a float32 scale of the tensor */
} tm_rule;

typedef enum {
    TM_ROTATE_NOT,
    TM_ROTATE_16,       /* each 16 elements of a line times the Hadamard matrix of Sylvester / 4 */
    TM_ROTATE_16_SIGNED /* with the fixed signs of the NVFP4 recipe first */
} tm_quantize_rotation;

/* How one factor is quantized. */
typedef struct {
    uint8_t  format; /* tm_dtype */
    uint8_t  scaled, rule, rotation;
    uint8_t  stochastic; /* rounding up with the probability of the remainder; else to nearest, ties to even */
    uint8_t  empty_one;  /* a block of zeros has the scale 1; else the least there is */
    uint16_t block;
    float    least; /* amax counts as this at least; 0: the scale of zeros is 1 */
} tm_quantizer;

enum {
    TM_QUANTIZE_PARTS = 8,
    TM_QUANTIZE_RECORD = 4,
    TM_ROTATED = 16,
    TM_QUANTIZE_TICKS = 2,
    TM_QUANTIZE_OFFSETS = 3, /* places among the inputs */
    TM_QUANTIZE_LARGEST = 4,
    TM_QUANTIZE_SCALES = 2, /* among the outputs */
    TM_QUANTIZE_TURNED = 3, /* of quantize_both */
    TM_QUANTIZE_TURNED_SCALES = 4
};
typedef struct {
    tm_quantizer recipe[2];   /* before and from `switch_step` on */
    int64_t      switch_step; /* steps done; < 0: never */
    uint64_t     seed;        /* of stochastic rounding */
    uint8_t      down;        /* 0: lines are rows; 1: columns */
    uint8_t      cut_columns; /* parts are runs of 0: rows, 1: columns */
    uint8_t      lines;       /* quantize_largest, and what it gives quantize: 1: the largest of each line, too */
    uint8_t      codes;       /* y holds codes, and `scales` what they are multiplied with */
    int32_t      row; /* first row of this factor in the tables of records and of scales: one for each part, expert by
                       * expert */
    int32_t n_parts;  /* quantized by themselves: fused weights */
    int32_t end[TM_QUANTIZE_PARTS]; /* where each part ends; of the rows of one expert */
    /* Of a tensor that ranks have in parts: random numbers go by the place in the whole one. */
    int32_t whole_columns;            /* of the whole; 0: all of them are here */
    int32_t shift[TM_QUANTIZE_PARTS]; /* column 0 of a part is that column of the whole, less where the part begins */
    int64_t first_row;
} tm_quantize_attr;

/* What makes the factor of quantize_made: the op of this name, of single elements. */
typedef enum {
    TM_MADE_NOT,
    TM_MADE_SWIGLU,
    TM_MADE_SWIGLU_GRAD,
    TM_MADE_GELU,
    TM_MADE_GELU_GRAD,
    TM_MADE_GEGLU,
    TM_MADE_KINDS
} tm_quantize_maker;

/* quantize_both: codes of x as it lies, and transposed; the recipe of both is that of the first one. quantize_made: the
 * same of what a maker makes, or only those that `along` tells, whose lines may run down. */
typedef struct {
    tm_quantize_attr along;
    int32_t          turned_row; /* as `row`, of the factor whose codes are transposed */
    uint8_t          maker, as;  /* of quantize_made: tm_quantize_maker, and the format (tm_dtype) that it makes */
} tm_quantize_both_attr;

typedef struct {
    int64_t steps, passes;
} tm_tick_attr; /* added to the counters */

typedef struct {
    double  largest;     /* not used by rows without a delayed scale */
    int64_t switch_step; /* < 0: never; history and scales begin anew when so many steps are done */
    int64_t before;      /* 1: in use before the switch, too */
    int64_t recent;      /* 1: the newest of the history counts, else the largest */
    int64_t margin;      /* scales are 2^margin smaller */
    int64_t frozen;      /* 1: scales stay what the first step made them: a planted defect */
} tm_scale_history_attr;

/* --- formats ------------------------------------------------------------------------------------------------------ */

typedef struct {
    float largest;
    int   mantissa, least; /* bits behind the point; exponent of the least normal number */
    int   top;             /* exponent of the largest */
} tm_narrow;

/* Of TM_E4M3, TM_E5M2, their FNUZ forms, TM_E3M2, TM_E2M3, TM_E2M1. */
static inline tm_narrow tm_narrow_of(int format)
{
    static const tm_narrow rows[] = { { 448, 3, -6, 8 },     { 57344, 2, -14, 15 }, { 240, 3, -7, 7 },
                                      { 57344, 2, -15, 15 }, { 28, 2, -2, 4 },      { 7.5, 3, 0, 2 },
                                      { 6, 1, 0, 2 } };
    switch (format) {
    case TM_E4M3:
        return rows[0];
    case TM_E5M2:
        return rows[1];
    case TM_E4M3FNUZ:
        return rows[2];
    case TM_E5M2FNUZ:
        return rows[3];
    case TM_E3M2:
        return rows[4];
    case TM_E2M3:
        return rows[5];
    default:
        return rows[6];
    }
}

static inline uint32_t tm_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float tm_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline float tm_power(int e) /* 2^e, -126 <= e <= 127 */
{
    return tm_float_of((uint32_t)(e + 127) << 23);
}

/* The number of the format nearest to x, ties to even, saturated; NaN stays NaN. */
static inline float tm_narrow_nearest(float x, tm_narrow f)
{
    float    size = fabsf(x), most = size > f.largest ? f.largest : size;
    uint32_t e = tm_float_bits(most) >> 23, least = (uint32_t)(127 + f.least), m = (uint32_t)f.mantissa;
    if (e < least) e = least;
    if (e > 160) e = 160;                                  /* NaN */
    float units = most * tm_float_of((254 - e + m) << 23); /* below 2^(m + 1) */
    float whole = (units + 0x1p23f) - 0x1p23f;
    return copysignf(whole * tm_float_of((e - m) << 23), x);
}

/* One of the two numbers around x, the upper one if `chance`, in [0, 1), is below the remainder; saturated. */
static inline float tm_narrow_stochastic(float x, tm_narrow f, float chance)
{
    float    size = fabsf(x), most = size > f.largest ? f.largest : size;
    uint32_t e = tm_float_bits(most) >> 23, least = (uint32_t)(127 + f.least), m = (uint32_t)f.mantissa;
    if (!(size <= FLT_MAX)) return tm_narrow_nearest(x, f);
    if (e < least) e = least;
    float units = most * tm_float_of((254 - e + m) << 23), whole = (float)(int32_t)units;
    if (chance < units - whole) whole += 1;
    return copysignf(whole * tm_float_of((e - m) << 23), x);
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

/* Rules FLOOR .. UP: e, from -127 to 127; of NaN or infinity 127. */
static inline int tm_scale_exponent(float amax, int rule, tm_narrow f, bool empty_one)
{
    if (amax == 0) return empty_one ? 0 : -127;
    float    of = rule == TM_RULE_UP ? amax / f.largest : amax;
    uint32_t bits = tm_float_bits(of);
    if (rule == TM_RULE_EVEN) bits += 1u << (22 - f.mantissa);
    int e = (int)(bits >> 23) - 127;
    if ((rule == TM_RULE_CEIL || rule == TM_RULE_UP) && (bits & 0x7fffff)) e++;
    if (rule != TM_RULE_UP) e -= f.top;
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* Rules RATIO, RATIO_POW2: s. */
static inline float tm_scale_ratio(float amax, int rule, tm_narrow f, float least)
{
    if (least > 0 && amax < least) amax = least;
    if (amax == 0 || !(amax <= FLT_MAX)) return 1;
    double ratio = (double)f.largest / (double)amax;
    float  s = ratio > (double)FLT_MAX ? FLT_MAX : (float)ratio;
    return rule == TM_RULE_RATIO_POW2 ? tm_float_of(tm_float_bits(s) & 0xff800000u) : s;
}

/* x becomes round(x * encode); a code q stands for q / divide, or for q * first * second where divide is 0. */
typedef struct {
    float encode, divide, first, second;
} tm_scale;

/* `whole`: amax of the tensor, for TM_RULE_TWO_LEVEL only. */
static inline tm_scale tm_scale_of(float amax, float whole, const tm_quantizer *z, tm_narrow f)
{
    if (z->rule == TM_RULE_RATIO || z->rule == TM_RULE_RATIO_POW2) {
        float s = tm_scale_ratio(amax, z->rule, f, z->least);
        return (tm_scale){ .encode = s, .divide = s };
    }
    if (z->rule == TM_RULE_TWO_LEVEL) {
        float most = 448 * f.largest, global = whole > 0 ? most / whole : 1;
        if (global > FLT_MAX) global = FLT_MAX;
        float block = tm_narrow_nearest(amax / f.largest * global, tm_narrow_of(TM_E4M3));
        float encode = block > 0 ? 1 / (block * (1 / global)) : 0;
        if (encode > FLT_MAX) encode = FLT_MAX;
        return (tm_scale){ .encode = encode, .first = block, .second = whole > 0 ? whole / most : 1 };
    }
    int e = tm_scale_exponent(amax, z->rule, f, z->empty_one), half = e / 2;
    return (tm_scale){ .encode = -e < -126 ? tm_power(-126) : tm_power(-e),
                       .first = tm_power(half),
                       .second = tm_power(e - half) };
}

static inline float tm_scale_decode(float q, tm_scale s)
{
    return s.divide != 0 ? q / s.divide : q * s.first * s.second;
}

/* What a code is multiplied with: 1 / divide, rounded once. */
static inline float tm_scale_multiplier(tm_scale s)
{
    return s.divide != 0 ? 1 / s.divide : s.first * s.second;
}

/* --- rotation ----------------------------------------------------------------------------------------------------- */

/* 16 elements in place. Signed, the matrix is diag(signs) H; unsigned it is its own inverse. */
static inline void tm_rotate_16(float x[TM_ROTATED], int rotation)
{
    static const float signs[TM_ROTATED] = { 1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1 };
    if (rotation == TM_ROTATE_16_SIGNED)
        for (int i = 0; i < TM_ROTATED; i++) x[i] *= signs[i];
    for (int half = 1; half < TM_ROTATED; half *= 2)
        for (int i = 0; i < TM_ROTATED; i += 2 * half)
            for (int j = i; j < i + half; j++) {
                float low = x[j], high = x[j + half];
                x[j] = low + high;
                x[j + half] = low - high;
            }
    for (int i = 0; i < TM_ROTATED; i++) x[i] *= 0.25f;
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t row, rows, column, columns;
    int64_t lines, length; /* rows and columns, or the other way round */
} tm_quantize_part;

/* Of x (N, C), or of the first of the matrices x (E, M, K). */
static inline tm_quantize_part tm_quantize_part_of(const tm_quantize_attr *attr, tm_shape x, int p)
{
    int64_t          begin = p > 0 ? attr->end[p - 1] : 0, n = attr->end[p] - begin;
    tm_quantize_part part = { .rows = x.n[x.rank - 2], .columns = x.n[x.rank - 1] };
    if (attr->cut_columns)
        part.column = begin, part.columns = n;
    else
        part.row = begin, part.rows = n;
    part.lines = attr->down ? part.columns : part.rows;
    part.length = attr->down ? part.rows : part.columns;
    return part;
}

/* Experts that offsets divide the rows of a call among; 0: there are none. */
static inline int64_t tm_quantize_experts(const tm_call *call)
{
    const tm_view *offsets = &call->in[TM_QUANTIZE_OFFSETS];
    return tm_view_present(offsets) ? offsets->shape.n[0] - 1 : 0;
}

/* Matrices: those experts, or the weights of experts (E, M, K); 1 without. */
static inline int64_t tm_quantize_matrices(tm_shape x, int64_t experts)
{
    return experts > 0 ? experts : x.rank == 3 ? x.n[0] : 1;
}
static inline int64_t tm_quantize_groups(const tm_call *call)
{
    return tm_quantize_matrices(call->in[0].shape, tm_quantize_experts(call));
}

/* Do scales go by what is largest in the whole of which x is a part, where that is given? */
static inline bool tm_quantize_takes(const tm_quantize_attr *attr, const tm_quantizer *z)
{
    if (z->scaled == TM_SCALED_BLOCK || z->scaled == TM_SCALED_SQUARE) return z->rule == TM_RULE_TWO_LEVEL;
    return z->scaled != TM_SCALED_LINE || attr->lines;
}

/* Lines of all parts, of all experts. */
static inline int64_t tm_quantize_lines(const tm_quantize_attr *attr, tm_shape x, int64_t groups)
{
    int64_t rows = x.n[0] * (x.rank == 3 ? x.n[1] : 1), lines = attr->down ? groups * x.n[x.rank - 1] : rows;
    return attr->down == attr->cut_columns ? lines : lines * attr->n_parts;
}

/* Do scales of blocks lie as those of one matrix, since no block ends with a part? Else part after part. */
static inline bool tm_quantize_whole(const tm_quantize_attr *attr)
{
    tm_codes_scale of = tm_codes_scale_of(attr->codes);
    int            step = attr->down != attr->cut_columns ? of.block : of.lines;
    for (int p = 0; p + 1 < attr->n_parts; p++)
        if (attr->end[p] % step != 0) return false;
    return true;
}

/* Of all parts, as of one. */
static inline tm_quantize_part tm_quantize_all_parts(const tm_quantize_attr *attr, tm_shape x)
{
    tm_quantize_attr one = *attr;
    one.n_parts = 1;
    one.end[0] = (int32_t)x.n[x.rank - (attr->cut_columns ? 1 : 2)];
    return tm_quantize_part_of(&one, x, 0);
}

/* Where the scales of blocks of part p of a matrix begin in `scales`; of p = n_parts: how many there are. */
static inline int64_t tm_quantize_first_scale(const tm_quantize_attr *attr, tm_shape x, int p)
{
    bool             whole = tm_quantize_whole(attr);
    tm_quantize_part all = tm_quantize_all_parts(attr, x);
    int64_t          first = 0;
    if (whole) return p == attr->n_parts ? tm_codes_scales(attr->codes, all.lines, all.length) : 0;
    for (int i = 0; i < p; i++) {
        tm_quantize_part part = tm_quantize_part_of(attr, x, i);
        first += tm_codes_scales(attr->codes, part.lines, part.length);
    }
    return first;
}

/* The shape of y where it holds codes: a row for each line. experts: those that offsets divide the rows among, else 0.
 */
static inline tm_shape tm_quantize_codes(const tm_quantize_attr *attr, tm_shape x, int64_t experts)
{
    if (!attr->down) return x;
    if (x.rank == 3) return tm_shape_3(x.n[0], x.n[2], x.n[1]);
    return tm_shape_2(x.n[1], experts > 0 ? tm_codes_room(attr->codes, x.n[0], experts) : x.n[0]);
}

/* Numbers in `scales` of codes: of each part, or of each line, one part after the other, expert by expert; or of
 * blocks, of experts' rows as of one matrix. */
static inline int64_t tm_quantize_scales(const tm_quantize_attr *attr, tm_shape x, int64_t experts)
{
    int64_t  groups = tm_quantize_matrices(x, experts);
    tm_shape codes = tm_quantize_codes(attr, x, experts);
    if (attr->codes > TM_CODES_PLAIN && experts > 0) return tm_codes_scales(attr->codes, codes.n[0], codes.n[1]);
    if (attr->codes > TM_CODES_PLAIN) return groups * tm_quantize_first_scale(attr, x, attr->n_parts);
    return attr->recipe[0].scaled == TM_SCALED_LINE ? tm_quantize_lines(attr, x, groups) : groups * attr->n_parts;
}

/* Have lines of codes more room than the rows of experts take (tm_codes_begin)? */
static inline bool tm_quantize_fills(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    return attr->codes > TM_CODES_PLAIN && attr->down && tm_quantize_experts(call) > 0;
}

/* Where the scale of element k of a line of a cell is; part: as tm_quantize_cell gives it. */
static inline int64_t tm_quantize_scale_place(const tm_quantize_attr *attr, tm_shape x, int64_t experts,
                                              tm_quantize_part part, int64_t cell, int64_t line, int64_t k)
{
    int      p = (int)(cell % attr->n_parts);
    int64_t  group = cell / attr->n_parts;
    tm_shape codes = tm_quantize_codes(attr, x, experts);
    if (experts > 0) {
        line += attr->down ? part.column : part.row;
        k += attr->down ? tm_codes_begin(attr->codes, part.row, group) : part.column;
        return tm_codes_place(attr->codes, codes.n[0], codes.n[1], line, k);
    }
    tm_quantize_part own = tm_quantize_part_of(attr, x, p);
    bool             whole = tm_quantize_whole(attr);
    tm_quantize_part of = whole ? tm_quantize_all_parts(attr, x) : own;
    if (whole) line += attr->down ? own.column : own.row, k += attr->down ? own.row : own.column;
    return group * tm_quantize_first_scale(attr, x, attr->n_parts) + tm_quantize_first_scale(attr, x, p) +
           tm_codes_place(attr->codes, of.lines, of.length, line, k);
}

/* What is quantized by itself: part `cell % n_parts` of expert `cell / n_parts`. Its rows in the tables follow in this
 * order. Reads the offsets. */
static inline tm_quantize_part tm_quantize_cell(const tm_call *call, int64_t cell)
{
    const tm_quantize_attr *attr = call->attr;
    tm_shape                x = call->in[0].shape;
    tm_quantize_part        part = tm_quantize_part_of(attr, x, (int)(cell % attr->n_parts));
    int64_t                 group = cell / attr->n_parts;
    if (x.rank == 3) part.row += group * x.n[1];
    if (!tm_view_present(&call->in[TM_QUANTIZE_OFFSETS])) return part;
    const int32_t *offsets = call->in[TM_QUANTIZE_OFFSETS].data;
    part.row = offsets[group];
    part.rows = offsets[group + 1] - offsets[group];
    *(attr->down ? &part.length : &part.lines) = part.rows;
    return part;
}

/* The number of an element in the whole tensor, by which it is rounded at random; in y it is in that row and column. */
static inline uint64_t tm_quantize_place(const tm_quantize_attr *attr, tm_shape x, int part, int64_t row,
                                         int64_t column)
{
    int64_t columns = attr->whole_columns > 0 ? attr->whole_columns : x.n[x.rank - 1];
    return (uint64_t)((row + attr->first_row) * columns + column + attr->shift[part]);
}

/* Line `line` of a part of x, which is float64, in float32 and rotated: for references. */
static inline void tm_quantize_line(const tm_call *call, const tm_quantizer *z, tm_quantize_part part, int64_t line,
                                    float *out)
{
    const tm_quantize_attr *attr = call->attr;
    const double           *x = call->in[0].data;
    for (int64_t k = 0; k < part.length; k++) {
        int64_t row = part.row + (attr->down ? k : line), column = part.column + (attr->down ? line : k);
        out[k] = (float)x[row * tm_view_ld(&call->in[0]) + column];
    }
    for (int64_t k = 0; k + TM_ROTATED <= part.length && z->rotation != TM_ROTATE_NOT; k += TM_ROTATED)
        tm_rotate_16(out + k, z->rotation);
}

/* Example number i of the op (tm_op, `example`). */
bool tm_quantize_example(int i, tm_example *example);

/* The op scale_history, on views of any floating-point formats: a few numbers. */
void tm_scale_history(const tm_call *call);

/* Of quantize_both: the attributes of the op whose codes are transposed. */
tm_quantize_attr tm_quantize_turned(const tm_quantize_both_attr *attr);
/* Of quantize_both and quantize_made: does it give the codes as they lie, or transposed? */
bool tm_quantize_gives(const tm_call *call, bool turns);
/* The call of one of the two ops that it stands in the place of; *attr becomes its attributes. x that is made has no
 * data, nor have codes and scales that the call does not give. */
tm_call tm_quantize_half(const tm_call *call, bool turns, tm_quantize_attr *attr);
/* Of quantize_made: the op of a tm_quantize_maker, and its call but for the data of its result. */
const tm_op *tm_quantize_maker_op(int maker);
tm_call      tm_quantize_making(const tm_call *call);

/* Why this factor cannot be codes with scales of this kind (tm_codes_kind, not TM_CODES_NOT) beside them, or NULL. */
const char *tm_quantize_no_codes(const tm_quantize_attr *attr, int kind);
/* Why this factor cannot be quantized so, or NULL. */
const char *tm_quantize_misfit(const tm_quantizer *z, tm_quantize_part part);

#endif
