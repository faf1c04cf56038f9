/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/quantize.c - factors of products as a recipe of low precision leaves them: op/quantize.c.
 *
 * Work goes in tiles of TILE lines (of a square: its lines): `length` elements of each, at most CHUNK at a time, are
 * gathered into float32, rotated, quantized and put back. Where the scale belongs to more than a tile, a first pass
 * finds the largest magnitude of each line. A maximum and a count do not depend on their order, everything else is
 * element by element: the same bits for every split and instruction set.
 */
#include "op/quantize.h"

#include "base/random.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"

enum {
    TILE = 32,
    CHUNK = 128,
    PITCH = CHUNK + 16 /* of a tile's lines: not all in the same sets of the cache */
};

/* Of one line: what was found. */
typedef struct {
    float    amax, scale;
    uint32_t saturated, flushed;
} line_record;

TM_INLINE double number(const tm_view *view, int64_t i)
{
    return tm_value_get(view->data, view->dtype, i);
}

TM_INLINE const tm_quantizer *recipe_of(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    bool                    switched = false;
    if (attr->switch_step >= 0 && call->in[1].data) switched = number(&call->in[1], 0) >= (double)attr->switch_step;
    return &attr->recipe[switched];
}

/* Lines of a tile; elements of a line that are looked at together. */
TM_INLINE int64_t tile_of(const tm_quantizer *z)
{
    return z->scaled == TM_SCALED_SQUARE ? z->block : TILE;
}
TM_INLINE int64_t chunk_of(const tm_quantizer *z)
{
    bool blocks = z->scaled == TM_SCALED_SQUARE || z->scaled == TM_SCALED_BLOCK;
    return blocks ? z->block : CHUNK;
}

static TM_PLANNED int64_t count_cells(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    return tm_quantize_groups(call) * attr->n_parts;
}

/* The workspace: the records of the lines of all cells, one cell after the other; then the largest of each cell. */
static TM_PLANNED int64_t all_lines(const tm_call *call)
{
    return tm_quantize_lines(call->attr, call->in[0].shape, tm_quantize_groups(call));
}
static TM_PLANNED size_t quantize_workspace(const tm_call *call)
{
    return (size_t)all_lines(call) * sizeof(line_record) + (size_t)count_cells(call) * sizeof(float);
}
TM_INLINE float *largest_of_cells(const tm_call *call)
{
    return (float *)((line_record *)call->workspace + all_lines(call));
}

/* Tile number t: which cell, which lines, where its records begin. */
typedef struct {
    tm_quantize_part part;
    int64_t          cell, line, lines;
    line_record     *records;
} tile;

TM_INLINE tile tile_at(const tm_call *call, const tm_quantizer *z, int64_t t)
{
    int64_t      height = tile_of(z);
    line_record *records = call->workspace;
    for (int64_t cell = 0;; cell++) {
        tm_quantize_part part = tm_quantize_cell(call, cell);
        int64_t          tiles = tm_ceil_div(part.lines, height);
        if (t < tiles) {
            int64_t line = t * height;
            return (tile){ part, cell, line, tm_min(height, part.lines - line), records + line };
        }
        t -= tiles;
        records += part.lines;
    }
}
TM_INLINE int64_t count_tiles(const tm_call *call, const tm_quantizer *z)
{
    int64_t n = 0;
    for (int64_t cell = 0; cell < count_cells(call); cell++)
        n += tm_ceil_div(tm_quantize_cell(call, cell).lines, tile_of(z));
    return n;
}

/* Do scales need what is beyond a tile? */
TM_INLINE bool two_passes(const tm_quantizer *z)
{
    bool blocks = z->scaled == TM_SCALED_SQUARE || z->scaled == TM_SCALED_BLOCK;
    return !blocks || z->rule == TM_RULE_TWO_LEVEL;
}

TM_INLINE float element(const void *data, tm_dtype format, int64_t i)
{
    if (format != TM_BF16) return ((const float *)data)[i];
    return tm_float_of((uint32_t)((const uint16_t *)data)[i] << 16);
}

/* Elements k .. k + n - 1 of the tile's lines, rotated: x[line][element]. */
static void gather(const tm_call *call, const tile *t, const tm_quantizer *z, int64_t k, int64_t n, float x[][PITCH])
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *in = &call->in[0];
    int64_t                 ld = tm_view_ld(in), row = t->part.row, column = t->part.column;
    if (!attr->down)
        for (int64_t l = 0; l < t->lines; l++) {
            int64_t at = (row + t->line + l) * ld + column + k;
            for (int64_t i = 0; i < n; i++) x[l][i] = element(in->data, in->dtype, at + i);
        }
    else
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (row + k + i) * ld + column + t->line;
            for (int64_t l = 0; l < t->lines; l++) x[l][i] = element(in->data, in->dtype, at + l);
        }
    for (int64_t l = 0; z->rotation != TM_ROTATE_NOT && l < t->lines; l++)
        for (int64_t i = 0; i + TM_ROTATED <= n; i += TM_ROTATED) tm_rotate_16(x[l] + i, z->rotation);
}

/* Codes lie line after line; those of an expert's weight are a matrix of their own. */
static void scatter_codes(const tm_call *call, const tile *t, int64_t k, int64_t n, float x[][PITCH])
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *out = &call->out[0];
    tm_shape                in = call->in[0].shape;
    int64_t                 length = tm_view_columns(out), rows = in.n[in.rank - 2], row = t->part.row;
    int64_t                 first = attr->down ? row / rows * in.n[in.rank - 1] + t->part.column : row;
    int64_t                 begin = attr->down ? row % rows : t->part.column;
    if (attr->down && tm_quantize_experts(call) > 0) begin = tm_codes_begin(attr->codes, row, t->cell / attr->n_parts);
    for (int64_t l = 0; l < t->lines; l++)
        for (int64_t i = 0; i < n; i++)
            tm_value_set(out->data, out->dtype, (first + t->line + l) * length + begin + k + i, (double)x[l][i]);
}

static void scatter(const tm_call *call, const tile *t, int64_t k, int64_t n, float x[][PITCH])
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *out = &call->out[0];
    if (attr->codes) {
        scatter_codes(call, t, k, n, x);
        return;
    }
    int64_t columns = tm_view_columns(out), row = t->part.row, column = t->part.column;
    for (int64_t a = 0; a < (attr->down ? n : t->lines); a++) {
        int64_t at =
            attr->down ? (row + k + a) * columns + column + t->line : (row + t->line + a) * columns + column + k;
        for (int64_t b = 0; b < (attr->down ? t->lines : n); b++) {
            float y = attr->down ? x[b][a] : x[a][b];
            if (out->dtype == TM_BF16)
                ((uint16_t *)out->data)[at + b] = tm_bf16_round(y);
            else
                ((float *)out->data)[at + b] = y;
        }
    }
}

/* Of the magnitudes, whose bits are ordered like themselves; not of what is no number. */
TM_INLINE float largest_in(const float *x, int64_t n)
{
    uint32_t most = 0;
    float    amax = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t size = tm_float_bits(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    if (most <= 0x7f800000u) return tm_float_of(most);
    for (int64_t i = 0; i < n; i++) amax = fmaxf(amax, fabsf(x[i]));
    return amax;
}

/* The first pass: the largest of each line. */
static void find_largest(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_quantizer *z = recipe_of(call);
    float               x[CHUNK][PITCH];
    for (int64_t number = begin; number < end; number++) {
        tile t = tile_at(call, z, number);
        for (int64_t l = 0; l < t.lines; l++) t.records[l] = (line_record){ .amax = 0 };
        for (int64_t k = 0; k < t.part.length; k += CHUNK) {
            int64_t n = tm_min(CHUNK, t.part.length - k);
            gather(call, &t, z, k, n, x);
            for (int64_t l = 0; l < t.lines; l++) t.records[l].amax = fmaxf(t.records[l].amax, largest_in(x[l], n));
        }
    }
}

/* n elements of a line, `index`: of the first in the whole tensor, and how far apart they are there. */
static void quantize_run(const tm_call *call, const tm_quantizer *z, tm_scale scale, float *x, int64_t n,
                         uint64_t index, int64_t apart, line_record *record)
{
    const tm_quantize_attr *attr = call->attr;
    tm_narrow               f = tm_narrow_of(z->format);
    uint32_t                saturated = 0, flushed = 0;
    uint64_t                pass = call->in[1].data ? (uint64_t)number(&call->in[1], 1) : 0;
    if (z->stochastic)
        for (int64_t i = 0; i < n; i++) {
            uint64_t random = tm_random_u64(attr->seed, pass, index + (uint64_t)(i * apart));
            float    scaled = x[i] * scale.encode;
            float    q = tm_narrow_stochastic(scaled, f, (float)(random >> 40) * 0x1p-24f);
            saturated += fabsf(scaled) > f.largest;
            flushed += q == 0 && x[i] != 0;
            x[i] = tm_scale_decode(q, scale);
        }
    else if (scale.divide != 0)
        for (int64_t i = 0; i < n; i++) {
            float scaled = x[i] * scale.encode, q = tm_narrow_nearest(scaled, f);
            saturated += fabsf(scaled) > f.largest;
            flushed += (q == 0) & (x[i] != 0);
            x[i] = q / scale.divide;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            float scaled = x[i] * scale.encode, q = tm_narrow_nearest(scaled, f);
            saturated += fabsf(scaled) > f.largest;
            flushed += (q == 0) & (x[i] != 0);
            x[i] = q * scale.first * scale.second;
        }
    record->saturated += saturated;
    record->flushed += flushed;
    /* zeros of two levels have no scale */
    if (scale.encode > 0 && (record->scale == 0 || scale.encode < record->scale)) record->scale = scale.encode;
}

/* The scale of elements that belong together: `found` is their largest where the tile holds them all. */
TM_INLINE tm_scale scale_of(const tm_call *call, const tm_quantizer *z, const tile *t, float found, float whole)
{
    const tm_quantize_attr *attr = call->attr;
    tm_scale scale = tm_scale_of(z->scaled == TM_SCALED_TENSOR ? whole : found, whole, z, tm_narrow_of(z->format));
    if (z->scaled == TM_SCALED_DELAYED) {
        float delayed = call->in[2].data ? (float)number(&call->in[2], attr->row + t->cell) : 0;
        scale.encode = scale.divide = delayed > 0 ? delayed : 1;
    }
    return scale;
}

/* Of codes: the scale of a line, of the part that the tile is of, or of a block. The codes stay as they are. */
static void keep_codes(const tm_call *call, const tm_quantizer *z, const tile *t, int64_t line, int64_t k,
                       tm_scale *scale)
{
    const tm_quantize_attr *attr = call->attr;
    const line_record      *records = call->workspace;
    const tm_view          *scales = &call->out[TM_QUANTIZE_SCALES];
    int64_t                 at = -1;
    if (attr->codes > TM_CODES_PLAIN)
        at = tm_quantize_scale_place(attr, call->in[0].shape, tm_quantize_experts(call), t->part, t->cell,
                                     t->line + line, k);
    else if (z->scaled == TM_SCALED_LINE)
        at = t->records + line - records;
    else if (t->line + line == 0)
        at = t->cell;
    if (scales->data && at >= 0) tm_value_set(scales->data, scales->dtype, at, (double)tm_scale_multiplier(*scale));
    scale->divide = 1;
}

static void quantize_tiles(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_quantizer     *z = recipe_of(call);
    const tm_shape          shape = call->in[0].shape;
    int64_t                 chunk = chunk_of(z), apart = attr->down ? shape.n[shape.rank - 1] : 1;
    bool                    square = z->scaled == TM_SCALED_SQUARE, block = square || z->scaled == TM_SCALED_BLOCK;
    float                   x[CHUNK][PITCH];
    if (attr->down && attr->whole_columns > 0) apart = attr->whole_columns;
    for (int64_t number = begin; number < end; number++) {
        tile  t = tile_at(call, z, number);
        float whole = two_passes(z) ? largest_of_cells(call)[t.cell] : 0;
        for (int64_t l = 0; l < t.lines && !two_passes(z); l++) t.records[l] = (line_record){ .amax = 0 };
        for (int64_t k = 0; k < t.part.length; k += chunk) {
            int64_t n = tm_min(chunk, t.part.length - k);
            float   found = 0;
            gather(call, &t, z, k, n, x);
            for (int64_t l = 0; square && l < t.lines; l++) found = fmaxf(found, largest_in(x[l], n));
            for (int64_t l = 0; l < t.lines && z->scaled != TM_SCALED_NOT; l++) {
                if (!square) found = block ? largest_in(x[l], n) : t.records[l].amax;
                if (block && !two_passes(z)) t.records[l].amax = fmaxf(t.records[l].amax, found);
                int64_t  line = t.line + l, row = t.part.row + (attr->down ? k : line);
                int64_t  column = t.part.column + (attr->down ? line : k);
                tm_scale scale = scale_of(call, z, &t, found, whole);
                if (attr->codes) keep_codes(call, z, &t, l, k, &scale);
                quantize_run(call, z, scale, x[l], n,
                             tm_quantize_place(attr, shape, (int)(t.cell % attr->n_parts), row, column), apart,
                             &t.records[l]);
            }
            scatter(call, &t, k, n, x);
        }
    }
}

/* An expert without rows has the scale 1 and no shares. */
static void write_record(const tm_call *call, const tm_quantizer *z, int64_t cell, const line_record *lines)
{
    const tm_quantize_attr *attr = call->attr;
    tm_quantize_part        part = tm_quantize_cell(call, cell);
    bool                    empty = part.lines * part.length == 0;
    double                  elements = empty ? 1 : (double)(part.lines * part.length), saturated = 0, flushed = 0;
    float                   scale = z->scaled == TM_SCALED_NOT || empty ? 1 : 0;
    for (int64_t l = 0; l < part.lines && !empty; l++) {
        saturated += lines[l].saturated, flushed += lines[l].flushed;
        if (z->scaled == TM_SCALED_NOT || !(lines[l].scale > 0)) continue;
        if (scale == 0 || lines[l].scale < scale) scale = lines[l].scale;
    }
    float  fresh[TM_QUANTIZE_RECORD] = { largest_of_cells(call)[cell], scale, (float)(saturated / elements),
                                         (float)(flushed / elements) };
    float *row = (float *)call->out[1].data + (attr->row + cell) * TM_QUANTIZE_RECORD;
    bool   adds = call->accumulate >> 1 & 1u, told = !(row[1] <= 0);
    for (int i = 0; i < TM_QUANTIZE_RECORD; i++) {
        bool keep = adds && told && (empty || (i == 1 ? row[i] < fresh[i] : row[i] > fresh[i]));
        if (!keep) row[i] = fresh[i];
    }
}

/* The largest of each cell from those of its lines. */
static void gather_largest(const tm_call *call)
{
    const line_record *lines = call->workspace;
    float             *largest = largest_of_cells(call);
    for (int64_t cell = 0; cell < count_cells(call); cell++) {
        int64_t n = tm_quantize_cell(call, cell).lines;
        largest[cell] = 0;
        for (int64_t l = 0; l < n; l++) largest[cell] = fmaxf(largest[cell], lines[l].amax);
        lines += n;
    }
}

/* What is largest in the whole of which x is a part; false: not what this recipe goes by. */
static bool take_largest(const tm_call *call, const tm_quantizer *z)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *given = &call->in[TM_QUANTIZE_LARGEST];
    line_record            *lines = call->workspace;
    int64_t                 cells = count_cells(call);
    if (!given->data || !tm_quantize_takes(attr, z)) return false;
    for (int64_t l = 0; l < all_lines(call); l++)
        lines[l] = (line_record){ .amax = attr->lines ? (float)number(given, cells + l) : 0 };
    for (int64_t cell = 0; cell < cells; cell++) largest_of_cells(call)[cell] = (float)number(given, cell);
    return true;
}

static void quantize_run_all(const tm_call *call)
{
    const tm_quantizer *z = recipe_of(call);
    const tm_view      *scales = &call->out[TM_QUANTIZE_SCALES];
    int64_t             tiles = count_tiles(call, z), elements = tm_view_elements(&call->in[0]);
    if (scales->data) memset(scales->data, 0, tm_tensor_bytes(scales->shape, scales->dtype)); /* what fills up */
    if (tm_quantize_fills(call)) memset(call->out[0].data, 0, tm_tensor_bytes(call->out[0].shape, call->out[0].dtype));
    if (two_passes(z) && !take_largest(call, z)) {
        tm_parallel(call, find_largest, tiles, 1, elements);
        gather_largest(call);
    }
    tm_parallel(call, quantize_tiles, tiles, 1, elements);
    if (!two_passes(z)) gather_largest(call);
    const line_record *lines = call->workspace;
    for (int64_t cell = 0; cell < count_cells(call) && call->out[1].data; cell++) {
        write_record(call, z, cell, lines);
        lines += tm_quantize_cell(call, cell).lines;
    }
}

static TM_PLANNED const char *inputs_refuse(const tm_call *call)
{
    const char    *why = tm_refuse_format(&call->in[0]);
    const tm_view *offsets = &call->in[TM_QUANTIZE_OFFSETS];
    for (int i = 1; i < call->op->n_in && !why; i++)
        if (i != TM_QUANTIZE_OFFSETS && tm_view_present(&call->in[i]) && call->in[i].dtype != TM_F32 &&
            call->in[i].dtype != TM_F64)
            why = "needs float32 or float64 counters and scales";
    if (!why && tm_view_present(offsets) && offsets->dtype != TM_I32) why = "needs int32 offsets";
    return why;
}

static TM_PLANNED const char *quantize_refuse(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const char             *why = inputs_refuse(call);
    if (!why && attr->codes)
        why = call->out[0].dtype != (tm_dtype)attr->recipe[0].format ? "gives codes in the format of the recipe" : NULL;
    else if (!why)
        why = tm_refuse_format(&call->out[0]);
    if (!why) why = tm_refuse_wide(&call->out[1]);
    return why || call->out[TM_QUANTIZE_SCALES].dtype == TM_E8M0 ? why : tm_refuse_wide(&call->out[TM_QUANTIZE_SCALES]);
}

/* --- the largest alone, of a part of a tensor --------------------------------------------------------------------- */

static TM_PLANNED const char *largest_refuse(const tm_call *call)
{
    const char *why = inputs_refuse(call);
    return why ? why : tm_refuse_wide(&call->out[0]);
}

static void largest_run(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_quantizer     *z = recipe_of(call);
    const tm_view          *out = &call->out[0];
    line_record            *lines = call->workspace;
    int64_t                 cells = count_cells(call), elements = tm_view_elements(&call->in[0]);
    for (int64_t l = 0; l < all_lines(call); l++) lines[l] = (line_record){ .amax = 0 };
    tm_parallel(call, find_largest, count_tiles(call, z), 1, elements);
    gather_largest(call);
    for (int64_t i = 0; i < out->shape.n[0]; i++)
        tm_value_set(out->data, out->dtype, i,
                     (double)(i < cells || !attr->lines ? largest_of_cells(call)[i] : lines[i - cells].amax));
}

/* --- what goes on from step to step: a few numbers, as the reference has them ------------------------------------- */

static TM_PLANNED const char *wide_refuse(const tm_call *call)
{
    for (int i = 0; i < call->op->n_in; i++)
        if (tm_view_present(&call->in[i]) && call->in[i].dtype != TM_F32 && call->in[i].dtype != TM_F64)
            return "needs float32 or float64 numbers";
    for (int k = 0; k < call->op->n_out; k++)
        if (call->out[k].dtype != TM_F32 && call->out[k].dtype != TM_F64) return "needs float32 or float64 numbers";
    return NULL;
}

static void tick_run(const tm_call *call)
{
    const tm_tick_attr *attr = call->attr;
    const tm_view      *out = &call->out[0];
    double              steps = number(&call->in[0], 0), passes = number(&call->in[0], 1);
    if (tm_view_present(&call->in[1])) passes += number(&call->in[1], 0);
    tm_value_set(out->data, out->dtype, 0, steps + (double)attr->steps);
    tm_value_set(out->data, out->dtype, 1, passes + (double)attr->passes);
}

const tm_kernel TM_K(tm_cpu_quantize)[] = {
    TM_KERNEL(quantize, "quantize/", quantize_refuse, quantize_workspace, quantize_run_all),
    TM_KERNEL(quantize_largest, "quantize_largest/", largest_refuse, quantize_workspace, largest_run),
    TM_KERNEL(scale_history, "scale_history/", wide_refuse, NULL, tm_scale_history),
    TM_KERNEL(tick, "tick/", wide_refuse, NULL, tick_run),
    { .name = NULL },
};
