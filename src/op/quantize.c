/* SPDX-License-Identifier: Apache-2.0 */
/* op/quantize.c - a factor of a product as a recipe of low precision leaves it (op/quantize.h), and what the scales of
 * later steps need.
 *
 *   quantize       y = what the codes of x stand for; the record of this factor. What is largest may be given
 *                  (op/quantize_largest.c)
 *   scale_history  the largest magnitudes of the last steps, and the scales that follow from them
 *   tick           counters of steps and passes: random numbers and a switch of recipes go by them
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

/* A delayed scale of 0 is none yet and counts as 1. */
/* --- quantize: x (N, C) or (E, M, K), [ticks (2)], [scale (R)], [offsets (E + 1)], [largest (L)] -> y like x,
 * [record (R, 4)] ---------------------------------------------------------------------------------------------------
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
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

/* A part in float32, line by line. */
typedef struct {
    int                     number;                  /* of the part */
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

/* Elements k .. k + n - 1 of lines line .. line + lines - 1 have one scale. */
static void quantize_group(reference *r, int64_t line, int64_t lines, int64_t k, int64_t n, tm_scale scale)
{
    double *y = r->call->out[0].data;
    for (int64_t l = line; l < line + lines; l++)
        for (int64_t i = k; i < k + n; i++) {
            float   x = r->x[l * r->part.length + i], scaled = x * scale.encode, q;
            int64_t row = row_of(r, l, i), column = column_of(r, l, i);
            if (r->z->stochastic) {
                uint64_t place = tm_quantize_place(r->attr, r->call->out[0].shape, r->number, row, column);
                uint64_t random = tm_random_u64(r->attr->seed, r->pass, place);
                q = tm_narrow_stochastic(scaled, r->format, (float)(random >> 40) * 0x1p-24f);
            } else
                q = tm_narrow_nearest(scaled, r->format);
            r->saturated += fabsf(scaled) > r->format.largest;
            r->flushed += q == 0 && x != 0;
            y[row * tm_view_ld(&r->call->out[0]) + column] = (double)tm_scale_decode(q, scale);
        }
    /* zeros of two levels have no scale */
    if (scale.encode > 0 && (r->scale == 0 || (double)scale.encode < r->scale)) r->scale = (double)scale.encode;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
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
    for (int64_t cell = 0; cell < cells; cell++) {
        reference r = {
            .call = call, .attr = attr, .z = &attr->recipe[switched], .number = (int)(cell % attr->n_parts)
        };
        r.format = tm_narrow_of(r.z->format);
        r.part = tm_quantize_cell(call, cell);
        r.pass = ticks ? (uint64_t)ticks[1] : 0;
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
/* So many in front of those of experts, and those with the largest of lines, are parts of a whole. */
enum { OF_WHOLE = 3 };

/* Of the last cases: how many experts share the rows, or have as many each. Of few rows the first ones have none. */
static const struct {
    int64_t experts;
    bool    weights;
} grouped[] = { { 6, false }, { 4, false }, { 3, false }, { 3, false }, { 3, false }, { 4, true }, { 5, true } };

static bool quantize_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
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
        "record = largest magnitude, least scale, shares that saturate and that become 0",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 2,
    .optional_in = 1U << 1 | 1U << 2 | 1U << TM_QUANTIZE_OFFSETS | 1U << TM_QUANTIZE_LARGEST,
    .optional_out = 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATE },
    .infer = quantize_infer,
    .reference = quantize_reference,
    .cost = quantize_cost,
    .vector = 8,
    .state = true,
    .strided_in = 1U << 0,
    .example = quantize_example,
    .in_name = { "x (...)", "[ticks (2)]", "[scale (R)]", "[offsets (E + 1)]", "[largest (L)]" },
    .out_name = { "y (...)", "[record (R, 4)]" },
    .attributes = "recipe, switch_step, seed, down, row, cut_columns, lines, n_parts, end, whole_columns, shift, "
                  "first_row",
};

/* --- scale_history: ticks (2), record (R, 4), history (R, H), scale (R) -> history, scale: the tensors that came in --
 */

static const char *history_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_is_vector(in[0], TM_QUANTIZE_TICKS)) return "there must be two counters";
    if (in[1].rank != 2 || in[1].n[1] != TM_QUANTIZE_RECORD) return "the record must have four columns";
    if (in[2].rank != 2 || in[2].n[0] != in[1].n[0]) return "the history must have the rows of the record";
    if (!tm_shape_is_vector(in[3], in[1].n[0])) return "there must be one largest number per row";
    if (!tm_shape_is_vector(in[4], in[1].n[0])) return "there must be one scale per row";
    const char *why = tm_shape_fit(&out[0], in[2], "the new history must have the shape of the old one");
    return why ? why : tm_shape_fit(&out[1], in[4], "the new scales must have the shape of the old ones");
}

static double number(const tm_view *view, int64_t i)
{
    return tm_value_get(view->data, view->dtype, i);
}

/* As TransformerEngine: nothing but zeros, or what is not finite, leaves a scale as it was. */
static double next_scale(const tm_scale_history_attr *attr, double most, double largest, double old)
{
    if (!(most > 0) || most > (double)FLT_MAX) return old;
    double ratio = largest / most;
    if (ratio > (double)FLT_MAX) ratio = (double)FLT_MAX;
    return ldexp((double)(float)ratio, (int)-attr->margin);
}

void tm_scale_history(const tm_call *call)
{
    const tm_scale_history_attr *attr = call->attr;
    const tm_view               *history = &call->out[0], *scales = &call->out[1];
    double                       steps = number(&call->in[0], 0);
    bool                         waits = !attr->before && attr->switch_step >= 0 && steps < (double)attr->switch_step;
    bool                         begins = waits || (attr->switch_step >= 0 && steps == (double)attr->switch_step);
    int64_t                      rows = history->shape.n[0], n = history->shape.n[1];
    for (int64_t r = 0; r < rows; r++) {
        double amax = number(&call->in[1], r * TM_QUANTIZE_RECORD), most = amax, old = number(&call->in[4], r);
        for (int64_t i = n - 1; i > 0; i--) {
            double before = begins ? 0 : number(&call->in[2], r * n + i - 1);
            if (before > most && !attr->recent) most = before;
            tm_value_set(history->data, history->dtype, r * n + i, before);
        }
        tm_value_set(history->data, history->dtype, r * n, begins ? 0 : amax);
        double next = attr->frozen && steps > 1 ? old : next_scale(attr, most, number(&call->in[3], r), old);
        tm_value_set(scales->data, scales->dtype, r, begins ? 1 : next);
    }
}

static bool history_example(int k, tm_example *example)
{
    static const struct {
        int64_t               rows, length;
        tm_scale_history_attr attr;
    } of[] = { { 1, 1, { .switch_step = -1, .before = 1 } },
               { 7, 16, { .switch_step = -1, .before = 1, .margin = 1 } },
               { 5, 4, { .switch_step = 300, .before = 0 } },
               { 3, 4, { .switch_step = 20, .before = 0, .recent = 1 } },
               { 9, 3, { .switch_step = -1, .before = 1, .frozen = 1 } } };
    if (k >= TM_COUNT_OF(of)) return false;
    tm_example_begin(example, &of[k].attr, sizeof of[k].attr);
    tm_example_in(example, 0, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), 100, 1);
    tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_2(of[k].rows, TM_QUANTIZE_RECORD), 4, 0.5);
    tm_example_in(example, 2, TM_ROLE_STATE, tm_shape_2(of[k].rows, of[k].length), 4, 0.5);
    tm_example_in(example, 3, TM_ROLE_CONSTANT, tm_shape_1(of[k].rows), 448, 1);
    tm_example_in(example, 4, TM_ROLE_STATE, tm_shape_1(of[k].rows), 100, 1);
    return true;
}

const tm_op tm_op_scale_history = {
    .name = "scale_history",
    .formula = "history = the largest magnitudes of the last steps, the newest first; scale = largest / max(history) / "
               "2^margin",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 2,
    .out_role = { TM_ROLE_STATE, TM_ROLE_STATE },
    .infer = history_infer,
    .reference = tm_scale_history,
    .cost = tm_cost_moved,
    .vector = 2,
    .state = true,
    .example = history_example,
    .in_name = { "ticks (2)", "record (R, 4)", "history (R, H)", "largest (R)", "scale (R)" },
    .out_name = { "history (R, H)", "scale (R)" },
    .attributes = "switch_step, before, recent, margin, frozen",
};

/* --- tick: ticks (2), [number ()] -> ticks, the tensor that came in or another one
 * --------------------------------------------------------------
 */

static const char *tick_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_is_vector(in[0], TM_QUANTIZE_TICKS)) return "there must be two counters";
    if (tm_shape_present(in[1]) && in[1].rank != 0) return "the number must be one";
    return tm_shape_fit(&out[0], in[0], "the new counters must be two, too");
}

static void tick_reference(const tm_call *call)
{
    const tm_tick_attr *attr = call->attr;
    const double       *ticks = call->in[0].data, *number_of = call->in[1].data;
    double             *out = call->out[0].data;
    out[0] = ticks[0] + (double)attr->steps;
    out[1] = ticks[1] + (double)attr->passes + (number_of ? *number_of : 0);
}

static bool tick_example(int k, tm_example *example)
{
    static const tm_tick_attr of[] = { { 0, 1 }, { 1, 0 }, { 2, 3 }, { 0, 4 } };
    if (k >= TM_COUNT_OF(of)) return false;
    tm_example_begin(example, &of[k], sizeof of[k]);
    tm_example_in(example, 0, TM_ROLE_STATE, tm_shape_1(TM_QUANTIZE_TICKS), 100, 20);
    if (k == 3) tm_example_in(example, 1, TM_ROLE_SCALAR, (tm_shape){ .rank = 0 }, 5, 1);
    return true;
}

const tm_op tm_op_tick = {
    .name = "tick",
    .formula = "ticks += (steps, passes + number)",
    .group = "elementwise",
    .n_in = 2,
    .optional_in = 1U << 1,
    .n_out = 1,
    .out_role = { TM_ROLE_STATE },
    .infer = tick_infer,
    .reference = tick_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0,
    .state = true,
    .example = tick_example,
    .in_name = { "ticks (2)", "[number ()]" },
    .out_name = { "ticks (2)" },
    .attributes = "steps, passes",
};
