/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/quantize.c - factors of products as a recipe of low precision leaves them, and what their scales follow
 * from (source/quantize.cu). The largest magnitudes are found in two stages: of tiles, then of what has a scale. */
#include "base/random.h"
#include "device/gpu/quantized.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 128, LINES = 32, RUN = 16, MOST_BLOCK = 128, WANTED_BLOCKS = 1024, MOST_SPLITS = 65535, THREADS = 256 };

/* The text has these numbers. */
_Static_assert(TM_SCALED_NOT == 0 && TM_SCALED_TENSOR == 1 && TM_SCALED_DELAYED == 2 && TM_SCALED_LINE == 3 &&
                   TM_SCALED_BLOCK == 4 && TM_SCALED_SQUARE == 5,
               "source/quantize.cu");
_Static_assert(TM_RULE_RATIO == 0 && TM_RULE_RATIO_POW2 == 1 && TM_RULE_FLOOR == 2 && TM_RULE_CEIL == 3 &&
                   TM_RULE_EVEN == 4 && TM_RULE_UP == 5 && TM_RULE_TWO_LEVEL == 6,
               "source/quantize.cu");
_Static_assert(TM_CODES_PLAIN == 1 && TM_CODES_RUNS == 2 && TM_CODES_SQUARES == 3 && TM_CODES_TILES == 4 &&
                   TM_CODES_ROWS == 5,
               "source/codes.cu");
_Static_assert(TM_ROTATE_NOT == 0 && TM_ROTATE_16_SIGNED == 2 && TM_QUANTIZE_PARTS == 8 && TM_QUANTIZE_RECORD == 4,
               "source/quantize.cu");

/* How a call is cut; tiles: at most so many. */
typedef struct {
    int     rounds;
    int64_t tiles, cells, splits, lines;
    size_t  tile_record, tile_largest, cell_largest, line_largest, bytes; /* offsets in the workspace */
} layout;

static int recipes_of(const tm_quantize_attr *attr)
{
    return attr->switch_step < 0 ? 1 : 2;
}

static bool is_block(const tm_quantizer *z)
{
    return z->scaled == TM_SCALED_BLOCK || z->scaled == TM_SCALED_SQUARE;
}

/* A square of more lines than a tile has otherwise. */
static int rounds_of(const tm_quantize_attr *attr)
{
    int rounds = 1;
    for (int r = 0; r < recipes_of(attr); r++)
        if (attr->recipe[r].scaled == TM_SCALED_SQUARE && attr->recipe[r].block > rounds * LINES)
            rounds = attr->recipe[r].block / LINES;
    return rounds;
}

static int64_t cut(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Enough blocks for a GPU, of tiles that are no more than there are. */
static layout layout_of(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    tm_shape                x = call->in[0].shape;
    bool                    grouped = tm_view_present(&call->in[TM_QUANTIZE_OFFSETS]);
    int64_t                 groups = tm_quantize_groups(call), longest = 1;
    layout                  l = { .rounds = rounds_of(attr), .cells = groups * attr->n_parts };
    int64_t                 height = (int64_t)LINES * l.rounds;
    for (int p = 0; p < attr->n_parts; p++) {
        tm_quantize_part part = tm_quantize_part_of(attr, x, p);
        bool             shared = grouped && !attr->down; /* the lines are those of all experts */
        l.tiles += shared ? part.lines / height + groups : groups * cut(part.lines, height);
        if (part.length > longest) longest = part.length;
    }
    l.lines = tm_quantize_lines(attr, x, groups);
    l.splits = cut(WANTED_BLOCKS, l.tiles > 0 ? l.tiles : 1);
    if (l.splits > cut(longest, WIDTH)) l.splits = cut(longest, WIDTH);
    l.tile_largest = l.tile_record + (size_t)(l.tiles * l.splits) * TM_QUANTIZE_RECORD * sizeof(float);
    l.cell_largest = l.tile_largest + (size_t)(l.tiles * l.splits) * sizeof(float);
    l.line_largest = l.cell_largest + (size_t)l.cells * sizeof(float);
    l.bytes = l.line_largest + (size_t)(l.splits * l.lines) * sizeof(float);
    return l;
}

static size_t workspace(const tm_call *call)
{
    return layout_of(call).bytes;
}

/* --- what a call passes ---------------------------------------------------------------------------------------------
 */

static tm_gpu_recipe recipe_of(const tm_call *call, const tm_quantizer *z)
{
    tm_narrow f = tm_narrow_of(z->format);
    bool      given = tm_view_present(&call->in[TM_QUANTIZE_LARGEST]) && tm_quantize_takes(call->attr, z);
    bool      whole =
        z->scaled == TM_SCALED_TENSOR || z->scaled == TM_SCALED_LINE || (is_block(z) && z->rule == TM_RULE_TWO_LEVEL);
    return (tm_gpu_recipe){ .scaled = z->scaled,
                            .rule = z->rule,
                            .rotation = z->rotation,
                            .stochastic = z->stochastic,
                            .empty_one = z->empty_one,
                            .finds = whole && !given,
                            .given = given,
                            .mantissa = f.mantissa,
                            .least_exponent = f.least,
                            .top = f.top,
                            .block = z->block,
                            .least = z->least,
                            .largest = f.largest };
}

/* Can 16 bytes be read and written at once, wherever a line of 16 elements begins? */
static bool takes_vectors(const tm_call *call)
{
    enum { BYTES = 16, ELEMENTS = 8 };
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *x = &call->in[0], *y = &call->out[0];
    int64_t                 columns = x->shape.n[x->shape.rank - 1];
    uintptr_t               places = (uintptr_t)x->data;
    if (call->op == &tm_op_quantize && !attr->codes) places |= (uintptr_t)y->data;
    if (attr->down || places % BYTES != 0 || columns % ELEMENTS != 0 || tm_view_ld(x) % ELEMENTS != 0) return false;
    for (int p = 0; p + 1 < attr->n_parts && attr->cut_columns; p++)
        if (attr->end[p] % ELEMENTS != 0) return false;
    return true;
}

/* Can 16 codes be written at once, wherever a line of a part begins? */
static bool takes_wide(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *y = &call->out[0];
    if (!attr->codes || (uintptr_t)y->data % RUN != 0 || y->shape.n[y->shape.rank - 1] % RUN != 0) return false;
    for (int p = 0; p + 1 < attr->n_parts && attr->down != attr->cut_columns; p++)
        if (attr->end[p] % RUN != 0) return false;
    return true;
}

static const void *in_workspace(const tm_call *call, size_t offset)
{
    return (const void *)((uintptr_t)call->workspace + offset); // NOLINT(performance-no-int-to-ptr): the device's
}

tm_gpu_factor tm_gpu_factor_of(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const tm_view          *x = &call->in[0];
    bool                    quantizes = call->op == &tm_op_quantize;
    tm_gpu_factor           c = { .x = x->data,
                                  .ticks = call->in[1].data,
                                  .offsets = call->in[TM_QUANTIZE_OFFSETS].data,
                                  .key = tm_random_key(attr->seed),
                                  .first_row = (uint64_t)attr->first_row,
                                  .switch_step = (double)attr->switch_step,
                                  .rows = x->shape.n[x->shape.rank - 2],
                                  .ld = tm_view_ld(x),
                                  .lines = tm_quantize_lines(attr, x->shape, tm_quantize_groups(call)),
                                  .room = x->shape.n[x->shape.rank - 2],
                                  .groups = (int)tm_quantize_groups(call),
                                  .parts = attr->n_parts,
                                  .columns = (int)x->shape.n[x->shape.rank - 1],
                                  .whole_columns = attr->whole_columns,
                                  .row = attr->row,
                                  .switches = attr->switch_step >= 0,
                                  .down = attr->down,
                                  .cut_columns = attr->cut_columns,
                                  .vectors = takes_vectors(call),
                                  .always = !quantizes,
                                  .keeps_lines = (quantizes || attr->lines) };
    for (int r = 0; r < 2; r++) c.of[r] = recipe_of(call, &attr->recipe[r < recipes_of(attr) ? r : 0]);
    memcpy(c.end, attr->end, sizeof c.end);
    memcpy(c.shift, attr->shift, sizeof c.shift);
    if (quantizes) {
        c.y = call->out[0].data;
        c.record = call->out[1].data;
        c.scale = call->in[2].data;
        c.given = call->in[TM_QUANTIZE_LARGEST].data;
        c.scales = call->out[TM_QUANTIZE_SCALES].data;
        c.wide = takes_wide(call);
        c.kind = attr->codes;
        c.whole = attr->codes > TM_CODES_PLAIN && tm_quantize_whole(attr);
        if (tm_quantize_experts(call) > 0) {
            c.begins = tm_codes_scale_of(attr->codes).block;
            c.room = tm_codes_room(attr->codes, c.rows, tm_quantize_experts(call));
        }
        c.adds = (call->accumulate >> 1 & 1U);
        c.keeps_lines =
            (c.of[0].scaled == TM_SCALED_LINE && c.of[0].finds) || (c.of[1].scaled == TM_SCALED_LINE && c.of[1].finds);
    }
    return c;
}

static tm_gpu_factor describe(const tm_call *call, const layout *l)
{
    tm_gpu_factor c = tm_gpu_factor_of(call);
    c.tile_record = in_workspace(call, l->tile_record);
    c.tile_largest = in_workspace(call, l->tile_largest);
    c.cell_largest = in_workspace(call, l->cell_largest);
    c.line_largest = in_workspace(call, l->line_largest);
    return c;
}

static void pass_call(tm_gpu_arguments *a, const tm_gpu_factor *c)
{
    TM_ASSERT(a->bytes % sizeof(void *) == 0 && a->bytes + sizeof *c <= sizeof a->data);
    memcpy(a->data + a->bytes, c, sizeof *c);
    a->bytes += sizeof *c;
}

/* --- quantize, quantize_largest -------------------------------------------------------------------------------------
 */

enum { OF_TILES, OF_CELLS, QUANTIZE, RECORD, CLEAR, OF_LINES = QUANTIZE };

static const char *refuse_numbers(const tm_view *view, tm_dtype other)
{
    if (!tm_view_present(view) || view->dtype == TM_F32 || view->dtype == other) return NULL;
    return other == TM_F64 ? "takes counters in float32 or float64" : "takes scales and largest magnitudes in float32";
}

static const char *refuse_recipe(const tm_quantizer *z)
{
    if (!is_block(z)) return NULL;
    for (int block = RUN; block <= MOST_BLOCK; block *= 2)
        if (z->block == block) return NULL;
    return "takes blocks of 16, 32, 64 and 128";
}

static const char *refuse_common(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    tm_shape                x = call->in[0].shape;
    const char             *why = tm_gpu_refuse_strided(&call->in[0]);
    if (!why) why = refuse_numbers(&call->in[1], TM_F64);
    if (!why) why = refuse_numbers(&call->in[2], TM_F32);
    if (!why) why = refuse_numbers(&call->in[TM_QUANTIZE_LARGEST], TM_F32);
    for (int r = 0; r < recipes_of(attr) && !why; r++) why = refuse_recipe(&attr->recipe[r]);
    if (!why && (x.n[x.rank - 1] > INT32_MAX || x.n[x.rank - 2] > INT32_MAX))
        why = "counts rows and columns in 32 bits";
    return why;
}

const char *tm_gpu_refuse_factor(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    const char             *why = refuse_common(call);
    if (!why && attr->codes)
        why = call->out[0].dtype != (tm_dtype)attr->recipe[0].format ? "gives codes in the format of the recipe" : NULL;
    else if (!why)
        why = tm_gpu_refuse_view(&call->out[0]);
    tm_dtype scale = (tm_dtype)tm_codes_scale_of(attr->codes).dtype;
    if (!why && attr->codes && tm_view_present(&call->out[TM_QUANTIZE_SCALES]) &&
        call->out[TM_QUANTIZE_SCALES].dtype != scale)
        why = "gives scales in the format of their kind";
    return why ? why : refuse_numbers(&call->out[1], TM_F32);
}

static const char *refuse_largest(const tm_call *call)
{
    const char *why = refuse_common(call);
    return why ? why : refuse_numbers(&call->out[0], TM_F32);
}

tm_gpu_defines tm_gpu_factor_defines(tm_dtype x, tm_dtype y, const tm_view *ticks, int rounds)
{
    tm_gpu_defines d = { .n = 0 };
    bool           codes = tm_dtype_small(y), fnuz = y == TM_E4M3FNUZ || y == TM_E5M2FNUZ;
    tm_gpu_define_format(&d, "X", x);
    if (!codes) tm_gpu_define_format(&d, "Y", y);
    tm_gpu_define(&d, "CODES", y == TM_E2M1 ? 3 : fnuz ? 2 : codes);
    tm_gpu_define(&d, "WIDE_TICKS", tm_view_present(ticks) && ticks->dtype == TM_F64);
    tm_gpu_define(&d, "ROUNDS", rounds);
    return d;
}

static void note(const void *device, const tm_gpu_defines *d, const char *kernel, void **state)
{
    tm_gpu_note(device, "quantize", tm_gpu_text_quantize, d, kernel, state);
}

/* Has the layout of its scales places that no block has, or that an expert without rows leaves? */
static bool fills_up(const tm_call *call)
{
    const tm_quantize_attr *attr = call->attr;
    tm_codes_scale          of = tm_codes_scale_of(attr->codes);
    int64_t                 used = 0;
    bool                    whole = of.block > 0 && tm_quantize_whole(attr);
    if (!tm_view_present(&call->out[TM_QUANTIZE_SCALES])) return false;
    if (attr->codes && tm_quantize_experts(call) > 0) return true;
    if (of.block == 0) return false;
    for (int p = 0; p < (whole ? 1 : attr->n_parts); p++) {
        tm_shape         x = call->in[0].shape;
        tm_quantize_part part = whole ? tm_quantize_all_parts(attr, x) : tm_quantize_part_of(attr, x, p);
        used += cut(part.lines, of.lines) * cut(part.length, of.block);
    }
    return used * tm_quantize_groups(call) < tm_quantize_scales(attr, call->in[0].shape, 0);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    bool           quantizes = call->op == &tm_op_quantize;
    tm_dtype       x = call->in[0].dtype;
    tm_gpu_defines d =
        tm_gpu_factor_defines(x, quantizes ? call->out[0].dtype : x, &call->in[1], rounds_of(call->attr));
    (void)err;
    note(device, &d, "largest_of_tiles", state);
    note(device, &d, "largest_of_cells", state);
    note(device, &d, quantizes ? "quantize" : "largest_of_lines", state);
    if (quantizes) note(device, &d, "quantize_record", state);
    if (!quantizes || !tm_dtype_small(call->out[0].dtype)) return TM_OK;
    note(device, &d, "clear_scales", state);
    note(device, &d, "clear_gaps", state);
    return TM_OK;
}

/* What is largest in tiles (and lines), then in cells. */
static tm_status find_largest(const tm_call *call, const tm_gpu_factor *c, const layout *l, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    pass_call(&a, c);
    TM_TRY(tm_gpu_start(call, OF_TILES, l->tiles, l->splits, 1, THREADS, &a, err));
    tm_gpu_pass_int(&a, (int)l->splits);
    return tm_gpu_start(call, OF_CELLS, l->cells, 1, 1, THREADS, &a, err);
}

static tm_status clear_scales(const tm_call *call, int kernel, const tm_view *scales, tm_error *err)
{
    size_t           bytes = tm_tensor_bytes(scales->shape, scales->dtype);
    int64_t          words = (int64_t)(bytes / sizeof(uint32_t));
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, scales->data);
    tm_gpu_pass_i64(&a, words);
    tm_gpu_pass_int(&a, (int)(bytes % sizeof(uint32_t)));
    return tm_gpu_start_each(call, kernel, words > 0 ? words : 1, &a, err);
}

static tm_status clear_gaps(const tm_call *call, int kernel, const tm_call *quantize, tm_error *err)
{
    enum { LINES_OF_BLOCK = 32 };
    tm_gpu_factor    c = tm_gpu_factor_of(quantize);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, c.y);
    tm_gpu_pass(&a, c.offsets);
    tm_gpu_pass_i64(&a, c.room);
    tm_gpu_pass_int(&a, c.groups);
    tm_gpu_pass_int(&a, c.columns);
    tm_gpu_pass_int(&a, c.begins);
    return tm_gpu_start(call, kernel, c.groups, cut(c.columns, LINES_OF_BLOCK), 1, THREADS, &a, err);
}

tm_status tm_gpu_fill_up(const tm_call *call, int kernel, const tm_call *quantize, tm_error *err)
{
    if (fills_up(quantize)) TM_TRY(clear_scales(call, kernel, &quantize->out[TM_QUANTIZE_SCALES], err));
    return tm_quantize_fills(quantize) ? clear_gaps(call, kernel + 1, quantize, err) : TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    layout           l = layout_of(call);
    tm_gpu_factor    c = describe(call, &l);
    tm_gpu_arguments a = { .bytes = 0 };
    if (c.of[0].finds || c.of[1].finds) TM_TRY(find_largest(call, &c, &l, err));
    TM_TRY(tm_gpu_fill_up(call, CLEAR, call, err));
    pass_call(&a, &c);
    tm_gpu_pass_int(&a, (int)l.splits);
    TM_TRY(tm_gpu_start(call, QUANTIZE, l.tiles, l.splits, 1, THREADS, &a, err));
    return c.record ? tm_gpu_start(call, RECORD, l.cells, 1, 1, THREADS, &a, err) : TM_OK;
}

/* The largest of cells goes where the result has them. */
static tm_status launch_largest(const tm_call *call, tm_error *err)
{
    const tm_quantize_attr *attr = call->attr;
    layout                  l = layout_of(call);
    tm_gpu_factor           c = describe(call, &l);
    tm_gpu_arguments        a = { .bytes = 0 };
    c.cell_largest = call->out[0].data;
    TM_TRY(find_largest(call, &c, &l, err));
    if (!attr->lines) return TM_OK;
    tm_gpu_pass(&a, (const float *)call->out[0].data + l.cells);
    pass_call(&a, &c);
    tm_gpu_pass_int(&a, (int)l.splits);
    return tm_gpu_start_each(call, OF_LINES, l.lines, &a, err);
}

/* --- scale_history, tick --------------------------------------------------------------------------------------------
 */

/* ticks, record, history, largest, scale */
static const char *refuse_history(const tm_call *call)
{
    const char *why = refuse_numbers(&call->in[0], TM_F64);
    for (int k = 1; k < call->op->n_in && !why; k++) why = refuse_numbers(&call->in[k], TM_F32);
    for (int k = 0; k < call->op->n_out && !why; k++) why = refuse_numbers(&call->out[k], TM_F32);
    return why;
}

static tm_status prepare_history(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = tm_gpu_factor_defines(TM_F32, TM_F32, &call->in[0], 1);
    (void)err;
    note(device, &d, call->op->name, state);
    return TM_OK;
}

static tm_status launch_history(const tm_call *call, tm_error *err)
{
    const tm_scale_history_attr *attr = call->attr;
    const tm_view               *history = &call->out[0];
    tm_gpu_arguments             a = { .bytes = 0 };
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)history->shape.n[1]);
    tm_gpu_pass_double(&a, (double)attr->switch_step);
    tm_gpu_pass_float(&a, ldexp(1, (int)-attr->margin));
    tm_gpu_pass_int(&a, attr->switch_step >= 0);
    tm_gpu_pass_int(&a, attr->before != 0);
    tm_gpu_pass_int(&a, attr->recent != 0);
    tm_gpu_pass_int(&a, attr->frozen != 0);
    return tm_gpu_start(call, 0, history->shape.n[0], 1, 1, THREADS, &a, err);
}

static const char *refuse_tick(const tm_call *call)
{
    const char *why = refuse_numbers(&call->in[0], TM_F64);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    return !why && tm_view_present(&call->in[1]) && call->in[1].dtype != TM_F64 ? "takes the number in float64" : why;
}

static tm_status launch_tick(const tm_call *call, tm_error *err)
{
    const tm_tick_attr *attr = call->attr;
    tm_gpu_arguments    a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_double(&a, (double)attr->steps);
    tm_gpu_pass_double(&a, (double)attr->passes);
    return tm_gpu_start(call, 0, 1, 1, 1, 1, &a, err);
}

#define ROW(id, refusal, how, ready, ...)                                                                              \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refusal, .launch = how, .prepare = ready,                      \
        .release = tm_gpu_forget, __VA_ARGS__                                                                          \
    }
const tm_kernel tm_gpu_quantize[] = { ROW(quantize, tm_gpu_refuse_factor, launch, prepare, .workspace = workspace),
                                      ROW(quantize_largest, refuse_largest, launch_largest, prepare,
                                          .workspace = workspace),
                                      ROW(scale_history, refuse_history, launch_history, prepare_history, ),
                                      ROW(tick, refuse_tick, launch_tick, prepare_history, ),
                                      { .name = NULL } };
