/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize.c - a factor of a product as a recipe of low precision leaves it (op/quantize.h): y = what the codes of x
 * stand for, or the codes themselves and their scales; the record of this factor. What is largest may be given
 * (op/quantize_largest.c).
 *
 * The gradient of a product is that of its factors as they are before (straight through): the nodes are put in after
 * differentiation, so there is no gradient rule.
 */
#include "op/quantize.h"

#include "base/arena.h"
#include "base/random.h"
#include "graph/value.h"
#include "op/describe.h"

#include <stdlib.h>

const char *tm_quantize_misfit(const tm_quantizer *z, tm_quantize_part part)
{
    if (z->scaled == TM_SCALED_NOT) return NULL;
    if (z->rotation != TM_ROTATE_NOT && part.length % TM_ROTATED != 0)
        return "a rotation needs a length that is a multiple of 16";
    if (z->rule >= TM_RULE_FLOOR && part.length % z->block != 0) return "the length must be a multiple of the block's";
    return NULL;
}

const char *tm_quantize_no_codes(const tm_quantize_attr *attr)
{
    const tm_quantizer *z = &attr->recipe[0];
    if (attr->switch_step >= 0) return "codes have one format, and a switch of recipes may bring another one";
    if (z->scaled == TM_SCALED_NOT) return "what is not quantized has no codes";
    if (z->scaled == TM_SCALED_BLOCK || z->scaled == TM_SCALED_SQUARE)
        return "codes have the scale of a tensor or of a line, not of blocks";
    return tm_dtype_bits((tm_dtype)z->format) != 8 || z->format == TM_E3M2 || z->format == TM_E2M3 ? "codes have 8 bits"
                                                                                                   : NULL;
}

/* A delayed scale of 0 is none yet and counts as 1. */
/* --- quantize: x (N, C) or (E, M, K), [ticks (2)], [scale (R)], [offsets (E + 1)], [largest (L)] -> y like x, or
 * transposed, [record (R, 4)], [scales (S)] -------------------------------------------------------------------------
 */

/* Lines that run along the rows of experts may have any length. */
static const char *parts_check(const tm_shape *in, const tm_quantize_attr *attr)
{
    bool grouped = tm_shape_present(in[TM_QUANTIZE_OFFSETS]);
    for (int p = 0; p < attr->n_parts; p++)
        for (int r = 0; r < (attr->switch_step < 0 ? 1 : 2) && !(grouped && attr->down); r++) {
            const char *why = tm_quantize_misfit(&attr->recipe[r], tm_quantize_part_of(attr, in[0], p));
            if (why) return why;
        }
    return NULL;
}

static const char *groups_check(const tm_shape *in, const tm_quantize_attr *attr)
{
    tm_shape offsets = in[TM_QUANTIZE_OFFSETS];
    if (!tm_shape_present(offsets)) return NULL;
    if (in[0].rank != 2) return "rows of experts must be a matrix";
    if (offsets.rank != 1 || offsets.n[0] < 2) return "there must be one offset more than experts";
    return attr->n_parts > 1 && !attr->cut_columns ? "rows of experts have no parts but columns" : NULL;
}

/* y and scales. */
static const char *results_fit(const tm_shape *in, const tm_quantize_attr *attr, tm_shape *out)
{
    bool        scaled = tm_shape_present(out[TM_QUANTIZE_SCALES]);
    const char *why = attr->codes ? tm_quantize_no_codes(attr) : scaled ? "only codes have scales beside them" : NULL;
    if (!attr->codes && !why) return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
    if (!why && (in[0].rank != 2 || tm_shape_present(in[TM_QUANTIZE_OFFSETS])))
        why = "codes are those of a matrix, not of experts";
    if (!why && scaled && !tm_shape_is_vector(out[TM_QUANTIZE_SCALES], tm_quantize_scales(attr, in[0])))
        why = "there must be a scale of each part, or of each line of the parts";
    tm_shape y = attr->down ? tm_shape_2(in[0].n[1], in[0].n[0]) : in[0];
    return why ? why : tm_shape_fit(&out[0], y, "codes must have a row for each line of x");
}

static const char *quantize_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_quantize_attr *attr = attr_;
    const char             *why;
    if (in[0].rank != 2 && in[0].rank != 3) return "x must have two axes (rows, columns), or three of experts' weights";
    if (attr->n_parts < 1 || attr->n_parts > TM_QUANTIZE_PARTS) return "there must be from 1 to 8 parts";
    if (attr->end[attr->n_parts - 1] != in[0].n[in[0].rank - (attr->cut_columns ? 1 : 2)])
        return "the parts must cover all of x";
    if ((why = groups_check(in, attr))) return why;
    if ((why = parts_check(in, attr))) return why;
    int64_t groups = in[0].rank == 3 ? in[0].n[0] : 1;
    if (tm_shape_present(in[TM_QUANTIZE_OFFSETS])) groups = in[TM_QUANTIZE_OFFSETS].n[0] - 1;
    int64_t rows = attr->row + groups * attr->n_parts;
    if (tm_shape_present(in[1]) && !tm_shape_is_vector(in[1], TM_QUANTIZE_TICKS)) return "there must be two counters";
    if (tm_shape_present(in[TM_QUANTIZE_LARGEST]) &&
        !tm_shape_is_vector(in[TM_QUANTIZE_LARGEST],
                            groups * attr->n_parts + (attr->lines ? tm_quantize_lines(attr, in[0], groups) : 0)))
        return "there must be a largest magnitude of each part, and of each line where it is asked for";
    if (tm_shape_present(in[2]) && (in[2].rank != 1 || in[2].n[0] < rows))
        return "there must be a scale of each factor";
    if (tm_shape_present(out[1]) && (out[1].rank != 2 || out[1].n[0] < rows || out[1].n[1] != TM_QUANTIZE_RECORD))
        return "the record must have four columns and a row of each factor";
    return results_fit(in, attr, out);
}

/* A part in float32, line by line. */
typedef struct {
    int                     number;                  /* of the part */
    int64_t                 first_line;              /* of it, among those of all parts */
    const double           *largest, *largest_lines; /* of the whole tensor and its lines, where they are given */
    const tm_call          *call;
    const tm_quantize_attr *attr;
    const tm_quantizer     *z;
    tm_narrow               format;
    tm_quantize_part        part;
    float                  *x;
    uint64_t                pass;
    double                  amax, scale, saturated, flushed; /* the record */
} reference;

/* Of an element: its row and column. */
static int64_t row_of(const reference *r, int64_t line, int64_t k)
{
    return r->part.row + (r->attr->down ? k : line);
}
static int64_t column_of(const reference *r, int64_t line, int64_t k)
{
    return r->part.column + (r->attr->down ? line : k);
}

static float largest_of(const reference *r, int64_t line, int64_t lines, int64_t k, int64_t n)
{
    float amax = 0;
    for (int64_t l = line; l < line + lines; l++)
        for (int64_t i = k; i < k + n; i++) amax = fmaxf(amax, fabsf(r->x[l * r->part.length + i]));
    return amax;
}

/* Where an element of x is in y. */
static int64_t place_of(const reference *r, int64_t row, int64_t column)
{
    int64_t ld = tm_view_ld(&r->call->out[0]);
    return r->attr->codes && r->attr->down ? column * ld + row : row * ld + column;
}

/* Elements k .. k + n - 1 of lines line .. line + lines - 1 have one scale. */
static void quantize_group(reference *r, int64_t line, int64_t lines, int64_t k, int64_t n, tm_scale scale)
{
    double *y = r->call->out[0].data;
    bool    codes = r->attr->codes;
    for (int64_t l = line; l < line + lines; l++)
        for (int64_t i = k; i < k + n; i++) {
            float   x = r->x[l * r->part.length + i], scaled = x * scale.encode, q;
            int64_t row = row_of(r, l, i), column = column_of(r, l, i);
            if (r->z->stochastic) {
                uint64_t place = tm_quantize_place(r->attr, r->call->in[0].shape, r->number, row, column);
                uint64_t random = tm_random_u64(r->attr->seed, r->pass, place);
                q = tm_narrow_stochastic(scaled, r->format, (float)(random >> 40) * 0x1p-24f);
            } else
                q = tm_narrow_nearest(scaled, r->format);
            r->saturated += fabsf(scaled) > r->format.largest;
            r->flushed += q == 0 && x != 0;
            y[place_of(r, row, column)] = (double)(codes ? q : tm_scale_decode(q, scale));
        }
    /* zeros of two levels have no scale */
    if (scale.encode > 0 && (r->scale == 0 || (double)scale.encode < r->scale)) r->scale = (double)scale.encode;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Of codes: the scale of a part, or of a line of it. */
static void write_scale(const reference *r, int64_t line, tm_scale scale)
{
    double *scales = r->call->out[TM_QUANTIZE_SCALES].data;
    bool    lines = r->z->scaled == TM_SCALED_LINE;
    if (scales) scales[lines ? r->first_line + line : r->number] = (double)tm_scale_multiplier(scale);
}

static void quantize_part(reference *r, const double *delayed)
{
    const tm_quantizer *z = r->z;
    int64_t             lines = r->part.lines, length = r->part.length, high = 1, wide = length;
    bool                same = z->scaled == TM_SCALED_TENSOR || z->scaled == TM_SCALED_DELAYED;
    float               whole = r->largest ? (float)*r->largest : largest_of(r, 0, lines, 0, length);
    r->amax = (double)whole;
    if (lines * length == 0) {
        r->scale = 1;
        return;
    }
    if (same) high = lines;
    if (z->scaled == TM_SCALED_SQUARE) high = z->block;
    if (z->scaled == TM_SCALED_SQUARE || z->scaled == TM_SCALED_BLOCK) wide = z->block;
    for (int64_t l = 0; l < lines; l += high)
        for (int64_t k = 0; k < length; k += wide) {
            int64_t h = least_of(high, lines - l), w = least_of(wide, length - k);
            float   found = same ? whole : largest_of(r, l, h, k, w);
            if (r->largest_lines && z->scaled == TM_SCALED_LINE) found = (float)r->largest_lines[l];
            tm_scale scale = tm_scale_of(found, whole, z, r->format);
            if (z->scaled == TM_SCALED_DELAYED) scale.encode = scale.divide = *delayed > 0 ? (float)*delayed : 1;
            write_scale(r, l, scale);
            quantize_group(r, l, h, k, w, scale);
        }
}

static void copy_part(reference *r)
{
    double *y = r->call->out[0].data;
    for (int64_t l = 0; l < r->part.lines; l++)
        for (int64_t k = 0; k < r->part.length; k++)
            y[row_of(r, l, k) * tm_view_ld(&r->call->out[0]) + column_of(r, l, k)] =
                (double)r->x[l * r->part.length + k];
    r->amax = r->largest ? *r->largest : (double)largest_of(r, 0, r->part.lines, 0, r->part.length);
    r->scale = 1;
}

/* An expert without rows has the scale 1 and no shares. */
static void write_record(const reference *r, int64_t cell)
{
    const tm_view *out = &r->call->out[1];
    if (!tm_view_present(out)) return;
    double *row = (double *)out->data + (r->attr->row + cell) * TM_QUANTIZE_RECORD;
    double  elements = fmax(1, (double)(r->part.lines * r->part.length));
    double  fresh[TM_QUANTIZE_RECORD] = { r->amax, (double)(float)r->scale, (double)(float)(r->saturated / elements),
                                          (double)(float)(r->flushed / elements) };
    bool    adds = tm_call_adds(r->call, 1), empty = r->part.lines * r->part.length == 0;
    bool    told = !(row[1] <= 0); /* no scale is 0: the row is one of zeros, which nothing was added to */
    for (int i = 0; i < TM_QUANTIZE_RECORD; i++) {
        bool keep = adds && told && (empty || (i == 1 ? row[i] < fresh[i] : row[i] > fresh[i]));
        if (!keep) row[i] = fresh[i];
    }
}

static void quantize_reference(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const double           *ticks = call->in[1].data, *scales = call->in[2].data;
    const double           *largest = call->in[TM_QUANTIZE_LARGEST].data;
    int64_t                 cells = tm_quantize_groups(call) * attr->n_parts;
    const double           *lines = largest ? largest + cells : NULL;
    bool                    switched = attr->switch_step >= 0 && ticks && ticks[0] >= (double)attr->switch_step;
    int64_t                 first_line = 0;
    for (int64_t cell = 0; cell < cells; cell++) {
        reference r = { .call = call,
                        .attr = attr,
                        .z = &attr->recipe[switched],
                        .number = (int)(cell % attr->n_parts),
                        .first_line = first_line };
        r.format = tm_narrow_of(r.z->format);
        r.part = tm_quantize_cell(call, cell);
        r.pass = ticks ? (uint64_t)ticks[1] : 0;
        first_line += r.part.lines;
        r.x = tm_alloc((size_t)(r.part.lines * r.part.length) * sizeof *r.x + 1);
        for (int64_t l = 0; l < r.part.lines; l++) tm_quantize_line(call, r.z, r.part, l, r.x + l * r.part.length);
        if (largest && tm_quantize_takes(attr, r.z)) r.largest = largest + cell;
        if (largest && attr->lines) r.largest_lines = lines, lines += r.part.lines;
        if (r.z->scaled == TM_SCALED_NOT)
            copy_part(&r);
        else
            quantize_part(&r, scales ? scales + attr->row + cell : (const double[]){ 1 });
        write_record(&r, cell);
        free(r.x);
    }
}

static tm_cost quantize_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.bytes -= tm_view_bytes(&call->in[2]) + tm_view_bytes(&call->out[1]); /* of which it touches a row or two */
    return cost;
}

#define QUANTIZER(dtype, what, how, size)                                                                              \
    {                                                                                                                  \
        .format = TM_##dtype, .scaled = TM_SCALED_##what, .rule = TM_RULE_##how, .block = size                         \
    }

static const struct {
    int64_t          rows, columns;
    bool             ticks, record;
    tm_quantize_attr attr;
} cases[] = {
    { 3, 7, false, true, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 1, .end = { 3 } } },
    { 65,
      40,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .cut_columns = 1, .n_parts = 3, .end = { 8, 24, 40 } } },
    { 40,
      33,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .n_parts = 2, .end = { 7, 40 } } },
    { 70, 300, false, true, { .recipe = { QUANTIZER(E4M3, SQUARE, RATIO, 128) }, .n_parts = 1, .end = { 70 } } },
    { 64, 96, false, true, { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 32) }, .n_parts = 1, .end = { 64 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E3M2, BLOCK, FLOOR, 32) }, .n_parts = 1, .end = { 33 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E2M3, BLOCK, FLOOR, 32) }, .n_parts = 1, .end = { 33 } } },
    { 96,
      70,
      false,
      true,
      { .recipe = { QUANTIZER(E5M2, BLOCK, CEIL, 32) }, .down = 1, .n_parts = 2, .end = { 32, 96 } } },
    { 33,
      64,
      false,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .n_parts = 1,
        .end = { 33 } } },
    { 64,
      130,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_16_SIGNED, .stochastic = 1,
                      .block = 16 } },
        .seed = 5,
        .down = 1,
        .switch_step = -1,
        .n_parts = 1,
        .end = { 64 } } },
    { 65,
      64,
      true,
      true,
      { .recipe = { QUANTIZER(E2M1, SQUARE, TWO_LEVEL, 16), QUANTIZER(E4M3FNUZ, DELAYED, RATIO, 0) },
        .switch_step = 100,
        .n_parts = 2,
        .end = { 33, 65 } } },
    { 130,
      192,
      true,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, SQUARE, FLOOR, 32), QUANTIZER(E4M3, NOT, RATIO, 0) },
        .switch_step = 100,
        .cut_columns = 1,
        .n_parts = 1,
        .end = { 192 } } },
    { 33, 40, false, true, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 7, 33 } } },
    { 64,
      48,
      true,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0), QUANTIZER(E5M2, TENSOR, RATIO, 0) },
        .switch_step = 100,
        .down = 1,
        .lines = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 32,
      64,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_NOT, .stochastic = 1, .block = 16 } },
        .seed = 5,
        .switch_step = -1,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 32, 64 },
        .whole_columns = 128,
        .shift = { 32, 64 },
        .first_row = 64 } },
    { 20,
      40,
      false,
      true,
      { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) },
        .n_parts = 1,
        .end = { 20 } } }, /* the first ones have no rows */
    { 100,
      48,
      false,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_EVEN, TM_ROTATE_16, .block = 32 } },
        .down = 1,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 16, 48 } } },
    { 60,
      64,
      true,
      true,
      { .recipe = { { TM_E2M1, TM_SCALED_BLOCK, TM_RULE_TWO_LEVEL, TM_ROTATE_NOT, .stochastic = 1, .block = 16 },
                    QUANTIZER(E5M2, DELAYED, RATIO, 0) },
        .seed = 5,
        .switch_step = 100,
        .cut_columns = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 60,
      64,
      true,
      true,
      { .recipe = { QUANTIZER(E5M2, LINE, RATIO, 0), QUANTIZER(E4M3, DELAYED, RATIO, 0) },
        .switch_step = 100,
        .down = 1,
        .n_parts = 1,
        .end = { 60 } } },
    { 60,
      64,
      false,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) },
        .cut_columns = 1,
        .lines = 1,
        .n_parts = 2,
        .end = { 32, 64 } } },
    { 33, 64, false, true, { .recipe = { QUANTIZER(E2M1, SQUARE, TWO_LEVEL, 16) }, .n_parts = 2, .end = { 16, 33 } } },
    { 48,
      40,
      false,
      false,
      { .recipe = { QUANTIZER(E4M3, BLOCK, UP, 16) }, .down = 1, .n_parts = 2, .end = { 16, 48 } } },
};
/* Of codes: parts that are lines, and parts that lines run through; of the tensor, of earlier steps and of lines.
 * Behind those of values, whose numbers other ops' examples and records go by. */
static const struct {
    int64_t          rows, columns;
    bool             largest; /* is given */
    tm_quantize_attr attr;
} codes[] = {
    { 33, 48, false, { .recipe = { QUANTIZER(E4M3, TENSOR, RATIO, 0) }, .n_parts = 2, .end = { 16, 33 } } },
    { 64, 40, false, { .recipe = { QUANTIZER(E5M2, TENSOR, RATIO, 0) }, .down = 1, .n_parts = 1, .end = { 64 } } },
    { 96, 70, false, { .recipe = { QUANTIZER(E4M3, DELAYED, RATIO, 0) }, .down = 1, .n_parts = 2, .end = { 32, 96 } } },
    { 34,
      160,
      false,
      { .recipe = { QUANTIZER(E5M2, LINE, RATIO_POW2, 0) }, .cut_columns = 1, .n_parts = 2, .end = { 32, 160 } } },
    { 144,
      33,
      false,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO, 0) }, .down = 1, .cut_columns = 1, .n_parts = 2, .end = { 7, 33 } } },
    { 40, 300, false, { .recipe = { QUANTIZER(E4M3FNUZ, LINE, RATIO_POW2, 0) }, .n_parts = 1, .end = { 40 } } },
    { 48,
      64,
      true,
      { .recipe = { QUANTIZER(E5M2FNUZ, TENSOR, RATIO, 0) }, .down = 1, .n_parts = 2, .end = { 16, 48 } } },
    { 64,
      48,
      true,
      { .recipe = { QUANTIZER(E4M3, LINE, RATIO_POW2, 0) }, .down = 1, .lines = 1, .n_parts = 2, .end = { 32, 64 } } },
};

static bool codes_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(codes)) return false;
    tm_quantize_attr attr = codes[k].attr;
    tm_shape         x = tm_shape_2(codes[k].rows, codes[k].columns);
    attr.switch_step = -1;
    attr.codes = 1;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(attr.n_parts), 8, 1);
    if (codes[k].largest)
        tm_example_in(example, TM_QUANTIZE_LARGEST, TM_ROLE_STATISTIC,
                      tm_shape_1(attr.n_parts + (attr.lines ? tm_quantize_lines(&attr, x, 1) : 0)), 6, 0.5);
    example->out[1] = tm_shape_2(attr.n_parts, TM_QUANTIZE_RECORD);
    example->out[TM_QUANTIZE_SCALES] = tm_shape_1(tm_quantize_scales(&attr, x));
    example->out_dtype[0] = (tm_dtype)attr.recipe[0].format;
    return true;
}

/* So many in front of those of experts, and those with the largest of lines, are parts of a whole. */
enum { OF_WHOLE = 3 };

/* Of the last cases: how many experts share the rows, or have as many each. Of few rows the first ones have none. */
static const struct {
    int64_t experts;
    bool    weights;
} grouped[] = { { 6, false }, { 4, false }, { 3, false }, { 3, false }, { 3, false }, { 4, true }, { 5, true } };

static bool quantize_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return codes_example(k - TM_COUNT_OF(cases), example);
    int              g = k - TM_COUNT_OF(cases) + TM_COUNT_OF(grouped);
    int64_t          experts = g >= 0 ? grouped[g].experts : 0;
    bool             weights = g >= 0 && grouped[g].weights;
    bool             of_whole = g >= -OF_WHOLE && (g < 0 || cases[k].attr.lines);
    tm_quantize_attr attr = cases[k].attr;
    if (!cases[k].ticks) attr.switch_step = -1;
    tm_example_begin(example, &attr, sizeof attr);
    tm_shape shape = tm_shape_2(cases[k].rows, cases[k].columns);
    if (weights) shape = tm_shape_3(experts, cases[k].rows, cases[k].columns);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape, 0, 1);
    if (experts > 0 && !weights) tm_example_offsets(example, TM_QUANTIZE_OFFSETS, experts, cases[k].rows);
    int64_t factors = attr.row + attr.n_parts * (experts > 0 ? experts : 1);
    if (cases[k].ticks) tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), k % 2 ? 200 : 20, 1);
    if (cases[k].ticks) tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_1(factors), 8, 1);
    if (cases[k].record) example->out[1] = tm_shape_2(factors, TM_QUANTIZE_RECORD);
    if (of_whole) {
        int64_t cells = attr.n_parts * (experts > 0 ? experts : 1);
        int64_t lines = attr.lines ? tm_quantize_lines(&attr, shape, experts > 0 ? experts : 1) : 0;
        tm_example_in(example, TM_QUANTIZE_LARGEST, TM_ROLE_STATISTIC, tm_shape_1(cells + lines), 6, 0.5);
    }
    return true;
}

const tm_op tm_op_quantize = {
    .name = "quantize",
    .formula =
        "y = decode(round(x scale)) / scale in a narrow format, the scale of a tensor, a line, a block or a square; "
        "record = largest magnitude, least scale, shares that saturate and that become 0; of codes "
        "y = round(x scale) or its transpose, which scales turn into what the codes stand for",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 3,
    .optional_in = 1U << 1 | 1U << 2 | 1U << TM_QUANTIZE_OFFSETS | 1U << TM_QUANTIZE_LARGEST,
    .optional_out = 1U << 1 | 1U << TM_QUANTIZE_SCALES,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATE, TM_ROLE_STATISTIC },
    .infer = quantize_infer,
    .reference = quantize_reference,
    .cost = quantize_cost,
    .vector = 8,
    .state = true,
    .strided_in = 1U << 0,
    .example = quantize_example,
    .in_name = { "x (...)", "[ticks (2)]", "[scale (R)]", "[offsets (E + 1)]", "[largest (L)]" },
    .out_name = { "y (...)", "[record (R, 4)]", "[scales (S)]" },
    .attributes = "recipe, switch_step, seed, down, row, cut_columns, lines, codes, n_parts, end, whole_columns, "
                  "shift, first_row",
};
