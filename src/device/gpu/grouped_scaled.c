/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/grouped_scaled.c - products of codes of experts (op/grouped_scaled.c) by matrix units
 * (source/grouped_scaled.cu; with scales of blocks source/grouped_blocks.cu). Which rows are whose, the kernels read
 * from the offsets: grids have room for every distribution. */
#include "device/gpu/gpu.h"
#include "op/attrs.h"
#include "op/codes.h"

#include <string.h>

enum { TILE = 128, THREADS = 256, MOST_ROWS_OF_TILES = 65535 };
enum { A, B, SCALE_A, SCALE_B, OFFSETS, BIAS, RESIDUAL };
_Static_assert(TM_CUT_ROWS == 0 && TM_CUT_COLUMNS == 1 && TM_CUT_DEPTH == 2 && TM_GROUPED_PARTS == 8,
               "source/grouped_scaled.cu");
_Static_assert(TM_CODES_RUNS == 2 && TM_CODES_SQUARES == 3, "source/runs.cu");

/* The same struct as in the text. */
typedef struct {
    int32_t n, end[TM_GROUPED_PARTS];
} gpu_parts;

static bool has_blocks(const tm_call *call)
{
    return ((const tm_grouped_scaled_attr *)call->attr)->scales[0] > TM_CODES_PLAIN;
}

static bool of_weights(const tm_call *call)
{
    return call->op == &tm_op_grouped_scaled_wgrad;
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

/* Rows of tiles in a grid: those of dw_e; else for every expert, and for nobody's rows, one that is not full. */
static int64_t rows_of_tiles(const tm_call *call)
{
    int64_t rows = call->in[A].shape.n[0], groups = call->in[OFFSETS].shape.n[0];
    return of_weights(call) ? tiles_of(rows) : (rows + groups * (TILE - 1)) / TILE;
}

static const char *refuse(const tm_call *call)
{
    const tm_view *a = &call->in[A], *b = &call->in[B], *c = &call->out[0];
    const char    *why = tm_gpu_refuse_view(c);
    bool           rows = ((const tm_grouped_scaled_attr *)call->attr)->scales[0] == TM_CODES_ROWS;
    tm_dtype       scale = rows ? TM_E8M0 : TM_F32;
    for (int k = A; k <= B && !why; k++)
        if (!tm_gpu_is_code(call->in[k].dtype) && (call->in[k].dtype != TM_E2M1 || !rows))
            why = "multiplies codes of 8 bits, with scales of blocks of 32 those of 4";
    if (!why) why = tm_gpu_codes_by_matrix(call->device, a->dtype, b->dtype);
    if (!why) why = tm_gpu_refuse_whole(&call->in[OFFSETS]);
    if (!why && (call->in[SCALE_A].dtype != scale || call->in[SCALE_B].dtype != scale))
        why = "takes scales in float32, those of blocks of 32 in e8m0";
    for (int k = BIAS; k <= RESIDUAL && !why && !of_weights(call); k++)
        why = tm_gpu_refuse_other(&call->in[k], c->dtype);
    if (!why && (a->shape.n[0] > INT32_MAX || a->shape.n[1] > INT32_MAX)) why = "counts rows and columns in 32 bits";
    return !why && rows_of_tiles(call) > MOST_ROWS_OF_TILES ? "more rows than a grid takes" : why;
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    const tm_grouped_scaled_attr *attr = call->attr;
    tm_gpu_defines                d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "C", call->out[0].dtype);
    tm_gpu_define_codes(&d, attr->scales[0], call->in[A].dtype, call->in[B].dtype);
    tm_gpu_define(&d, "WEIGHTS", of_weights(call));
    if (has_blocks(call)) {
        tm_gpu_note(device, "grouped_blocks", tm_gpu_text_grouped_blocks, &d,
                    of_weights(call) ? "grouped_blocks_weights" : "grouped_blocks_rows", state);
        return TM_OK;
    }
    tm_gpu_define(&d, "CUT", attr->cut);
    tm_gpu_note(device, "grouped_scaled", tm_gpu_text_grouped_scaled, &d,
                of_weights(call) ? "grouped_scaled_weights" : "grouped_scaled_rows", state);
    return TM_OK;
}

/* What both kernels end with. */
static void pass_rest(tm_gpu_arguments *a, const tm_call *call)
{
    const tm_grouped_scaled_attr *attr = call->attr;
    gpu_parts                     parts = { .n = attr->n_parts };
    for (int side = 0; side < 2; side++) tm_gpu_pass_int(a, has_blocks(call) ? attr->scales[side] : attr->lines[side]);
    tm_gpu_pass_int(a, call->accumulate & 1U);
    if (has_blocks(call)) return;
    memcpy(parts.end, attr->end, sizeof parts.end);
    TM_ASSERT(a->bytes % sizeof(int32_t) == 0 && a->bytes + sizeof parts <= sizeof a->data);
    memcpy(a->data + a->bytes, &parts, sizeof parts);
    a->bytes += sizeof parts;
}

static tm_status launch_weights(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[A].shape.n[0], columns = call->in[B].shape.n[0];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = A; k <= OFFSETS; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_i64(&a, columns);
    tm_gpu_pass_i64(&a, call->in[A].shape.n[1]);
    pass_rest(&a, call);
    return tm_gpu_start(call, 0, tiles_of(columns), tiles_of(rows), call->in[OFFSETS].shape.n[0] - 1, THREADS, &a, err);
}

static tm_status launch_rows(const tm_call *call, tm_error *err)
{
    int64_t          columns = call->out[0].shape.n[1];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = A; k <= RESIDUAL; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)call->in[OFFSETS].shape.n[0] - 1);
    tm_gpu_pass_int(&a, (int)call->in[A].shape.n[0]);
    tm_gpu_pass_i64(&a, columns);
    tm_gpu_pass_i64(&a, call->in[A].shape.n[1]);
    pass_rest(&a, call);
    return tm_gpu_start(call, 0, tiles_of(columns), rows_of_tiles(call), 1, THREADS, &a, err);
}

#define ROW(id, how)                                                                                                   \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/matrix", .refuse = refuse, .launch = how, .prepare = prepare,                  \
        .release = tm_gpu_forget                                                                                       \
    }
const tm_kernel tm_gpu_grouped_scaled[] = { ROW(grouped_scaled_mm, launch_rows),
                                            ROW(grouped_scaled_wgrad, launch_weights),
                                            { .name = NULL } };
