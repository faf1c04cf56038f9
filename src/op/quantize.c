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

/* Plain scales, scales of blocks in float32 and in e8m0: whether they are those of the recipe. */
static bool is_of_kind(const tm_quantizer *z, int kind)
{
    tm_codes_scale of = tm_codes_scale_of(kind);
    bool           blocks = z->scaled == TM_SCALED_BLOCK || z->scaled == TM_SCALED_SQUARE;
    bool           ratio = z->rule == TM_RULE_RATIO || z->rule == TM_RULE_RATIO_POW2;
    if (kind == TM_CODES_PLAIN) return !blocks;
    if (!blocks || z->block != of.block) return false;
    if (of.dtype == TM_F32) return ratio && (z->scaled == TM_SCALED_SQUARE) == (of.lines > 1);
    return z->rule >= TM_RULE_FLOOR && z->rule <= TM_RULE_UP;
}

const char *tm_quantize_no_codes(const tm_quantize_attr *attr, int kind)
{
    const tm_quantizer *z = &attr->recipe[0];
    if (attr->switch_step >= 0) return "codes have one format, and a switch of recipes may bring another one";
    if (z->scaled == TM_SCALED_NOT) return "what is not quantized has no codes";
    if (z->format == TM_E3M2 || z->format == TM_E2M3) return "codes have 8 or 4 bits";
    if (z->rule == TM_RULE_TWO_LEVEL) return "scales of two levels are multiplied as values";
    if (!is_of_kind(z, kind))
        return kind == TM_CODES_PLAIN ? "codes have the scale of a tensor or of a line, not of blocks"
                                      : "codes have no scales of such blocks";
    return tm_dtype_bits((tm_dtype)z->format) == 4 && tm_codes_scale_of(kind).dtype != TM_E8M0
               ? "codes of 4 bits have scales in e8m0"
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
static const char *results_fit(const tm_shape *in, const tm_quantize_attr *attr, int64_t experts, tm_shape *out)
{
    bool        scaled = tm_shape_present(out[TM_QUANTIZE_SCALES]);
    const char *why = scaled ? "only codes have scales beside them" : NULL;
    if (attr->codes >= TM_CODES_KINDS) return "there is no such kind of scales";
    if (attr->codes) why = tm_quantize_no_codes(attr, attr->codes);
    if (!attr->codes && !why) return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
    if (!why && attr->codes > TM_CODES_PLAIN && tm_quantize_matrices(in[0], experts) > 1 && !tm_quantize_whole(attr))
        why = "parts of experts end with a block where blocks have scales";
    if (!why && attr->codes == TM_CODES_SQUARES && experts > 0) why = "rows of experts have no squares";
    if (!why && scaled && !tm_shape_is_vector(out[TM_QUANTIZE_SCALES], tm_quantize_scales(attr, in[0], experts)))
        why = "there must be a scale of each part, of each line of the parts, or of each block";
    tm_shape y = tm_quantize_codes(attr, in[0], experts);
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
    int64_t experts = tm_shape_present(in[TM_QUANTIZE_OFFSETS]) ? in[TM_QUANTIZE_OFFSETS].n[0] - 1 : 0;
    int64_t groups = tm_quantize_matrices(in[0], experts);
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
    return results_fit(in, attr, experts, out);
}

/* A part in float32, line by line. */
typedef struct {
    int                     number;                  /* of the part */
    int64_t                 first_line, cell;        /* of it, among those of all parts; its number among these */
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

/* Where an element of x is in y. Codes of an expert's weight are transposed by themselves. */
static int64_t place_of(const reference *r, int64_t row, int64_t column)
{
    tm_shape x = r->call->in[0].shape;
    int64_t  ld = tm_view_ld(&r->call->out[0]), rows = x.n[x.rank - 2];
    if (!r->attr->codes || !r->attr->down) return row * ld + column;
    if (tm_quantize_experts(r->call) > 0)
        return column * ld + tm_codes_begin(r->attr->codes, r->part.row, r->cell / r->attr->n_parts) + row -
               r->part.row;
    return (row / rows * x.n[x.rank - 1] + column) * ld + row % rows;
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

/* Of codes: the scale of a part, of a line of it, or of elements from k on of so many lines. */
static void write_scale(const reference *r, int64_t line, int64_t lines, int64_t k, tm_scale scale)
{
    double *scales = r->call->out[TM_QUANTIZE_SCALES].data;
    bool    of_lines = r->z->scaled == TM_SCALED_LINE;
    if (scales && r->attr->codes == TM_CODES_PLAIN)
        scales[of_lines ? r->first_line + line : r->cell] = (double)tm_scale_multiplier(scale);
    for (int64_t l = line; scales && r->attr->codes > TM_CODES_PLAIN && l < line + lines; l++)
        scales[tm_quantize_scale_place(r->attr, r->call->in[0].shape, tm_quantize_experts(r->call), r->part, r->cell, l,
                                       k)] = (double)tm_scale_multiplier(scale);
}

/* What fills the layout of scales up, and scales of experts without rows: bytes of 0. So are codes that are longer than
 * the rows of experts. */
static void clear_codes(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *scales = &call->out[TM_QUANTIZE_SCALES];
    double                  zero = tm_codes_scale_of(attr->codes).dtype == TM_E8M0 ? 0x1p-127 : 0;
    for (int64_t i = 0; scales->data && attr->codes && i < tm_shape_elements(scales->shape); i++)
        ((double *)scales->data)[i] = zero;
    for (int64_t i = 0; tm_quantize_fills(call) && i < tm_shape_elements(call->out[0].shape); i++)
        ((double *)call->out[0].data)[i] = 0;
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
            write_scale(r, l, h, k, scale);
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
    clear_codes(call);
    for (int64_t cell = 0; cell < cells; cell++) {
        reference r = { .call = call,
                        .attr = attr,
                        .z = &attr->recipe[switched],
                        .number = (int)(cell % attr->n_parts),
                        .first_line = first_line,
                        .cell = cell };
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
    .example = tm_quantize_example,
    .in_name = { "x (...)", "[ticks (2)]", "[scale (R)]", "[offsets (E + 1)]", "[largest (L)]" },
    .out_name = { "y (...)", "[record (R, 4)]", "[scales (S)]" },
    .attributes = "recipe, switch_step, seed, down, row, cut_columns, lines, codes, n_parts, end, whole_columns, "
                  "shift, first_row",
};
