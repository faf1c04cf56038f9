/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/grouped.c - linear layers of experts and their gradients (source/grouped.cu): by matrix units, or in tiles
 * of float32 arithmetic. Which rows are whose, the kernels read from the offsets: grids have room for every
 * distribution. */
#include "device/gpu/gpu.h"

enum { TILE = 64, MATRIX_TILE = 128, THREADS = 256, MOST_ROWS_OF_TILES = 65535 };

static bool of_weights(const tm_call *call)
{
    return call->op == &tm_op_grouped_linear_wgrad;
}

static int64_t tiles_of(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* Rows of tiles in a grid: those of dw_e; else for every expert, and for nobody's rows, one that is not full. */
static int64_t rows_of_tiles(const tm_call *call, int64_t tile)
{
    int64_t rows = call->in[0].shape.n[0], groups = call->in[2].shape.n[0];
    return of_weights(call) ? tiles_of(call->in[0].shape.n[1], tile) : (rows + groups * (tile - 1)) / tile;
}

/* in: x or dy, weights or x, offsets, of grouped_linear [bias], [residual]; out: y, dx or dw */
static const char *refuse_tiles(const tm_call *call)
{
    bool        forward = call->op == &tm_op_grouped_linear;
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_whole(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    for (int k = 3; k < 5 && !why && forward; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why && forward) why = tm_gpu_refuse_other(&call->in[3], call->in[1].dtype);
    if (!why && forward) why = tm_gpu_refuse_other(&call->in[4], call->out[0].dtype);
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "more than 2^31 - 1 rows";
    return !why && rows_of_tiles(call, TILE) > MOST_ROWS_OF_TILES ? "more rows than a grid takes" : why;
}

static const char *refuse_matrix(const tm_call *call)
{
    const char *why = refuse_tiles(call);
    return why ? why : tm_gpu_by_matrix(call->device, call->in[0].dtype, call->in[1].dtype);
}

static tm_status prepare(const void *device, const tm_call *call, bool matrix, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define(&d, "BY_MATRIX", matrix);
    tm_gpu_define_format(&d, "C", call->out[0].dtype);
    tm_gpu_define(&d, "A_ACROSS", of_weights(call));
    tm_gpu_define(&d, "B_ACROSS", call->op != &tm_op_grouped_linear);
    if (!matrix) tm_gpu_define_format(&d, "A", call->in[0].dtype);
    if (!matrix) tm_gpu_define_format(&d, "B", call->in[1].dtype);
    tm_gpu_note(device, "grouped", tm_gpu_text_grouped, &d, of_weights(call) ? "grouped_weights" : "grouped_rows",
                state);
    return TM_OK;
}

static tm_status launch_weights(const tm_call *call, int64_t tile, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[1], columns = call->in[1].shape.n[1];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_i64(&a, columns);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, 0, tiles_of(columns, tile), tiles_of(rows, tile), call->in[2].shape.n[0] - 1, THREADS, &a,
                        err);
}

static tm_status launch_rows(const tm_call *call, int64_t tile, tm_error *err)
{
    bool             forward = call->op == &tm_op_grouped_linear;
    int64_t          columns = call->out[0].shape.n[1];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    for (int k = 3; k < 5; k++) tm_gpu_pass(&a, forward ? call->in[k].data : NULL);
    tm_gpu_pass_int(&a, (int)call->in[2].shape.n[0] - 1);
    tm_gpu_pass_int(&a, (int)call->in[0].shape.n[0]);
    tm_gpu_pass_i64(&a, columns);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[1]);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, 0, tiles_of(columns, tile), rows_of_tiles(call, tile), 1, THREADS, &a, err);
}

#define WAY(way, tile)                                                                                                 \
    static tm_status prepare_##way(const void *device, const tm_call *call, void **state, tm_error *err)               \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        return prepare(device, call, (tile) == MATRIX_TILE, state);                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static tm_status launch_##way(const tm_call *call, tm_error *err)                                                  \
    {                                                                                                                  \
        return of_weights(call) ? launch_weights(call, tile, err) : launch_rows(call, tile, err);                      \
    }
WAY(matrix, MATRIX_TILE)
WAY(tiles, TILE)

#define ROW(id, way)                                                                                                   \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/" #way, .refuse = refuse_##way, .launch = launch_##way,                        \
        .prepare = prepare_##way, .release = tm_gpu_forget                                                             \
    }
#define PRODUCT(id) ROW(id, matrix), ROW(id, tiles)
const tm_kernel tm_gpu_grouped[] = {
    PRODUCT(grouped_linear), PRODUCT(grouped_linear_dgrad), PRODUCT(grouped_linear_wgrad), { .name = NULL }
};
