/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/both.c - codes of a factor as it lies and transposed, of one look at it (source/both.cu), or of what makes
 * it.
 */
#include "device/gpu/quantized.h"

#include <string.h>

enum { TILE = 128, RUN = 16, THREADS = 256, SECOND = 1 };

/* The text has these numbers. */
_Static_assert(TM_MADE_SWIGLU == 1 && TM_MADE_SWIGLU_GRAD == 2 && TM_MADE_GELU == 3 && TM_MADE_GELU_GRAD == 4 &&
                   TM_MADE_GEGLU == 5,
               "source/both.cu");

/* The same struct as in the text. */
typedef struct {
    tm_gpu_factor c;
    const void   *turned, *turned_scales, *part_rows, *part_columns, *of_rows, *of_columns;
    int64_t       all_rows, all_columns, tiles;
    const void   *second;
    int32_t       turned_row, turned_whole, turned_wide, rows_apart, width;
} both;

/* How a call is cut; tiles: at most so many. Then offsets in the workspace. */
typedef struct {
    int64_t tiles, cells, rows, columns; /* lines of all cells as they lie, and transposed */
    int64_t high, wide;                  /* tiles below and beside each other in a cell, at most */
    int64_t longest;                     /* lines of a cell, of either kind, at most */
    size_t  tile_record, tile_largest, cell_largest, part_rows, part_columns, of_rows, of_columns, bytes;
} layout;

static int64_t cut(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static size_t take(size_t *at, int64_t floats)
{
    size_t begin = *at;
    *at += (size_t)floats * sizeof(float);
    return begin;
}

/* Tiles of a block beside each other: of the gradient of a gate one of each half. */
static int halves_of(const tm_quantize_both_attr *attr)
{
    return attr->maker == TM_MADE_SWIGLU_GRAD ? 2 : 1;
}

static layout layout_of(const tm_call *call)
{
    const tm_quantize_both_attr *attr = call->attr;
    tm_quantize_attr             turned = tm_quantize_turned(attr), of;
    tm_call                      half = tm_quantize_half(call, false, &of);
    tm_shape                     x = half.in[0].shape;
    int64_t                      groups = tm_quantize_groups(&half);
    bool                         shared = tm_view_present(&half.in[TM_QUANTIZE_OFFSETS]);
    bool                         lines = attr->along.recipe[0].scaled == TM_SCALED_LINE;
    layout                       l = { .cells = groups * attr->along.n_parts };
    for (int p = 0; p < attr->along.n_parts; p++) {
        tm_quantize_part part = tm_quantize_part_of(&attr->along, x, p);
        int64_t          high = cut(part.rows, TILE), wide = cut(part.columns, TILE);
        l.tiles += (shared ? part.rows / TILE + groups : groups * high) * wide;
        l.high = larger(l.high, high), l.wide = larger(l.wide, wide);
        l.longest = larger(l.longest, larger(part.rows, part.columns));
    }
    l.rows = tm_quantize_lines(&of, x, groups);
    l.columns = tm_quantize_lines(&turned, x, groups);
    l.tile_record = take(&l.bytes, 2 * l.tiles * TM_QUANTIZE_RECORD);
    l.tile_largest = take(&l.bytes, l.tiles);
    l.cell_largest = take(&l.bytes, l.cells);
    l.part_rows = take(&l.bytes, lines ? l.wide * l.rows : 0);
    l.part_columns = take(&l.bytes, lines ? l.high * l.columns : 0);
    l.of_rows = take(&l.bytes, lines ? l.rows : 0);
    l.of_columns = take(&l.bytes, lines ? l.columns : 0);
    return l;
}

static size_t workspace(const tm_call *call)
{
    return layout_of(call).bytes;
}

static const void *in_workspace(const tm_call *call, size_t offset)
{
    return (const void *)((uintptr_t)call->workspace + offset); // NOLINT(performance-no-int-to-ptr): the device's
}

/* Can 16 codes be written at once where one stands at a multiple of 16? */
static bool takes_wide(const tm_view *codes)
{
    return (uintptr_t)codes->data % RUN == 0;
}

/* What makes the factor reads runs of 16 bytes where a run of the factor begins: a part of it is as wide as a half. */
static void describe_maker(both *b, const tm_call *call)
{
    const tm_quantize_both_attr *attr = call->attr;
    tm_shape                     x = tm_quantize_making(call).out[0].shape;
    b->width = (int)x.n[1] / halves_of(attr);
    b->second = call->in[SECOND].data;
    b->c.x = call->in[0].data;
    b->c.vectors = b->c.vectors && tm_gpu_is_wide(&call->in[0]) && tm_gpu_is_wide(&call->in[SECOND]);
}

static both describe(const tm_call *call, const layout *l)
{
    const tm_quantize_both_attr *attr = call->attr;
    tm_quantize_attr             of[2];
    tm_call half = tm_quantize_half(call, false, &of[0]), turned = tm_quantize_half(call, true, &of[1]);
    both    b = { .c = tm_gpu_factor_of(&half),
                  .turned = turned.out[0].data,
                  .turned_scales = turned.out[TM_QUANTIZE_SCALES].data,
                  .part_rows = in_workspace(call, l->part_rows),
                  .part_columns = in_workspace(call, l->part_columns),
                  .of_rows = in_workspace(call, l->of_rows),
                  .of_columns = in_workspace(call, l->of_columns),
                  .all_rows = l->rows,
                  .all_columns = l->columns,
                  .tiles = l->tiles,
                  .turned_row = of[1].row,
                  .turned_whole = of[1].codes > TM_CODES_PLAIN && tm_quantize_whole(&of[1]),
                  .turned_wide = takes_wide(&turned.out[0]),
                  .rows_apart = (int)cut(l->longest, THREADS) };
    b.c.tile_record = in_workspace(call, l->tile_record);
    b.c.tile_largest = in_workspace(call, l->tile_largest);
    b.c.cell_largest = in_workspace(call, l->cell_largest);
    b.c.wide = takes_wide(&half.out[0]);
    if (attr->maker) describe_maker(&b, call);
    return b;
}

static void pass(tm_gpu_arguments *a, const both *b)
{
    _Static_assert(sizeof(both) <= sizeof a->data, "arguments of a kernel");
    memcpy(a->data, b, sizeof *b);
    a->bytes = sizeof *b;
}

static const char *refuse(const tm_call *call)
{
    const char *why = NULL;
    for (int turns = 0; turns < 2 && !why; turns++) {
        tm_quantize_attr attr;
        tm_call          half = tm_quantize_half(call, turns, &attr);
        const tm_view   *x = &half.in[0];
        why = tm_gpu_refuse_factor(&half);
        if (!why && tm_dtype_bits(half.out[0].dtype) != 8) why = "gives codes of 8 bits";
        if (!why && attr.recipe[0].rotation != TM_ROTATE_NOT) why = "rotates nothing";
        if (!why &&
            cut(x->shape.n[x->shape.rank - 1], TILE) * (cut(x->shape.n[x->shape.rank - 2], TILE) + 1) > INT32_MAX)
            why = "counts tiles in 32 bits";
    }
    return why;
}

/* A kernel makes what the op of the same name makes, where this has operands without gaps, of one format. */
static const char *refuse_made(const tm_call *call)
{
    const tm_quantize_both_attr *attr = call->attr;
    const tm_quantize_attr      *of = &attr->along;
    tm_call                      making = tm_quantize_making(call);
    const char                  *why = refuse(call);
    int64_t                      half = making.out[0].shape.n[1] / 2;
    if (!why) why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[SECOND]);
    if (!why) why = tm_gpu_refuse_other(&call->in[SECOND], call->in[0].dtype);
    if (!why && attr->maker == TM_MADE_GELU_GRAD && !tm_quantize_gives(call, true))
        why = "makes the gradient of gelu where its codes are transposed";
    bool parts = of->cut_columns && of->n_parts == 2 && of->end[0] == half;
    return why ? why : halves_of(attr) == 2 && !parts ? "takes the gradient of a gate in its two halves" : NULL;
}

enum { OF_TILES, OF_CELLS, CODES, RECORD, CLEAR, GAPS };

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const     kernels[] = { "largest_of_both", "largest_of_parts", "quantize_both",
                                               "both_record",     "clear_scales",     "clear_gaps" };
    const tm_quantize_both_attr *attr = call->attr;
    tm_quantize_attr             of;
    tm_call                      half = tm_quantize_half(call, false, &of);
    tm_gpu_defines               d = tm_gpu_factor_defines(half.in[0].dtype, half.out[0].dtype, &half.in[1], 1);
    (void)err;
    if (attr->maker) {
        tm_gpu_define(&d, "MAKER", attr->maker);
        tm_gpu_define(&d, "WAYS", tm_quantize_gives(call, false) + 2 * tm_quantize_gives(call, true));
        tm_gpu_define(&d, "AS_BF16", attr->as == TM_BF16);
    }
    for (int k = OF_TILES; k <= GAPS; k++) tm_gpu_note(device, "both", tm_gpu_text_both, &d, kernels[k], state);
    return TM_OK;
}

static tm_status find_largest(const tm_call *call, const both *b, const layout *l, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    pass(&a, b);
    TM_TRY(tm_gpu_start(call, OF_TILES, l->tiles / halves_of(call->attr), 1, 1, THREADS, &a, err));
    return tm_gpu_start(call, OF_CELLS, l->cells, b->c.keeps_lines ? 2 * b->rows_apart : 1, 1, THREADS, &a, err);
}

/* Places that nothing is written to. */
static tm_status fill_up(const tm_call *call, tm_error *err)
{
    for (int turns = 0; turns < 2; turns++) {
        tm_quantize_attr attr;
        tm_call          half = tm_quantize_half(call, turns, &attr);
        if (tm_quantize_gives(call, turns)) TM_TRY(tm_gpu_fill_up(call, CLEAR, &half, err));
    }
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    layout           l = layout_of(call);
    both             b = describe(call, &l);
    tm_gpu_arguments a = { .bytes = 0 };
    if (b.c.of[0].finds) TM_TRY(find_largest(call, &b, &l, err));
    TM_TRY(fill_up(call, err));
    pass(&a, &b);
    TM_TRY(tm_gpu_start(call, CODES, l.tiles / halves_of(call->attr), 1, 1, THREADS, &a, err));
    int ways = tm_quantize_gives(call, false) + tm_quantize_gives(call, true);
    return b.c.record ? tm_gpu_start(call, RECORD, l.cells, ways, 1, THREADS, &a, err) : TM_OK;
}

const tm_kernel tm_gpu_both[] = { { .op = TM_OP_quantize_both,
                                    .name = "quantize_both/gpu",
                                    .refuse = refuse,
                                    .workspace = workspace,
                                    .launch = launch,
                                    .prepare = prepare,
                                    .release = tm_gpu_forget },
                                  { .op = TM_OP_quantize_made,
                                    .name = "quantize_made/gpu",
                                    .refuse = refuse_made,
                                    .workspace = workspace,
                                    .launch = launch,
                                    .prepare = prepare,
                                    .release = tm_gpu_forget },
                                  { .name = NULL } };
