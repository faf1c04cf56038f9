/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/cases_nvidia.h"
#include "machine/tensor_map.h"

#include <math.h>
#include <stdlib.h>

enum { BF16_TYPE = 9, SWIZZLE_128 = 3 }; /* as cuda.h numbers them */

static void set_grid(machine_problem *p, int x, int y, int z, int threads)
{
    p->launch.blocks[0] = (uint32_t)x;
    p->launch.blocks[1] = (uint32_t)y;
    p->launch.blocks[2] = (uint32_t)z;
    p->launch.threads[0] = (uint32_t)threads;
}

/* The array made last is told as a tensor map in place of its address: 128-byte swizzle, boxes of 64 columns. */
static void as_map(machine_problem *p, machine_tensor t)
{
    uint8_t map[MACHINE_TENSOR_MAP_BYTES];
    t.type = BF16_TYPE;
    t.swizzle = SWIZZLE_128;
    t.address = p->arrays[p->n_arrays - 1].address;
    for (int i = 0; i < t.rank; i++) t.element_strides[i] = 1;
    if (machine_tensor_map(map, &t)) abort();
    p->launch.argument_bytes -= sizeof(uint64_t);
    machine_argument_bytes(p, map, sizeof map, 64);
}

/* --- products: rows, columns, inner ------------------------------------------------------------------------------- */

static void make_product(machine_problem *p, const int *shape, machine_format format, bool maps)
{
    int     rows = shape[0], columns = shape[1], inner = shape[2];
    double *c = machine_result(p, MACHINE_BF16, (size_t)(rows * columns), 4e-3), *operand[2];
    for (int i = 0; i < 2; i++) {
        operand[i] = machine_input(p, format, (size_t)(shape[i] * inner), 1);
        if (maps)
            as_map(p, (machine_tensor){ .rank = 2,
                                        .dims = { (uint64_t)inner, (uint64_t)shape[i] },
                                        .strides = { 2 * (uint64_t)inner },
                                        .box = { 64, 64 } });
    }
    machine_argument_int(p, columns);
    machine_argument_int(p, inner);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            for (int k = 0; k < inner; k++) c[i * columns + j] += operand[0][i * inner + k] * operand[1][j * inner + k];
    int side = maps ? 64 : 128;
    set_grid(p, columns / side, rows / side, 1, 128);
}

static void make_bf16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_BF16, false);
}

static void make_f16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_F16, false);
}

static void make_e4m3(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_E4M3, false);
}

static void make_wgmma(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_BF16, true);
}

/* --- attention forward: tokens, batches, query heads, K/V heads, causal? -------------------------------------------
 */

enum { SIZE = 128 };

/* Tensors are [batch][token][head][d]: heads of one batch are copied to lie one behind the other, and back. */
static void gather(double *to, const double *from, int tokens, int heads, int head)
{
    for (int t = 0; t < tokens; t++)
        for (int d = 0; d < SIZE; d++) to[t * SIZE + d] = from[(t * heads + head) * SIZE + d];
}

static void expect_flash(const int *shape, double *const in[3], double *out, double *log_sum)
{
    int     tokens = shape[0], heads = shape[2], kv_heads = shape[3];
    size_t  all = (size_t)tokens * SIZE;
    double *room = calloc(4 * all, sizeof(double));
    if (!room) abort();
    for (int row = 0; row < shape[1] * heads; row++) {
        int batch = row / heads, head = row % heads;
        for (int i = 0; i < 3; i++)
            gather(room + (size_t)i * all, in[i] + (size_t)(batch * tokens * (i ? kv_heads : heads) * SIZE), tokens,
                   i ? kv_heads : heads, i ? head / (heads / kv_heads) : head);
        machine_attention a = { 1,    tokens,     SIZE,          shape[4], (double)(float)(1 / sqrt(SIZE)),
                                room, room + all, room + 2 * all };
        machine_attention_forward(&a, room + 3 * all, log_sum + row * tokens);
        for (int i = 0; i < tokens * SIZE; i++)
            out[((batch * tokens + i / SIZE) * heads + head) * SIZE + i % SIZE] = room[3 * all + (size_t)i];
    }
    free(room);
}

static void make_flash(machine_problem *p, const int *shape)
{
    int     tokens = shape[0], batches = shape[1], heads = shape[2];
    double *out = machine_result(p, MACHINE_BF16, (size_t)(batches * tokens * heads * SIZE), 6e-3), *in[3];
    double *log_sum = machine_result(p, MACHINE_F32, (size_t)(batches * tokens * heads), 1e-5);
    for (int i = 0; i < 3; i++) {
        uint64_t of = (uint64_t)(i ? shape[3] : heads);
        in[i] = machine_input(p, MACHINE_BF16, (size_t)batches * (size_t)tokens * of * SIZE, 1);
        as_map(p, (machine_tensor){ .rank = 4,
                                    .dims = { SIZE, of, (uint64_t)tokens, (uint64_t)batches },
                                    .strides = { 2 * SIZE, 2 * SIZE * of, 2 * SIZE * of * (uint64_t)tokens },
                                    .box = { 64, 1, 128, 1 } });
    }
    expect_flash(shape, in, out, log_sum);
    machine_argument_int(p, tokens);
    machine_argument_int(p, heads / shape[3]);
    machine_argument_int(p, shape[4]);
    machine_argument_float(p, (float)(1 / sqrt(SIZE)));
    set_grid(p, (tokens + 127) / 128, heads, batches, 384);
    p->launch.dynamic_shared = 5 * 32768 + 72;
}

#define OF(file, kernel, make) file ".cu", kernel, make

const machine_case machine_nvidia_cases[] = {
    { "gemm_bf16 128 x 128 x 96", OF("gemm_mma", "gemm_bf16", make_bf16), { 128, 128, 96 } },
    { "gemm_bf16 256 x 128 x 160", OF("gemm_mma", "gemm_bf16", make_bf16), { 256, 128, 160 } },
    { "gemm_f16 128 x 128 x 96", OF("gemm_mma", "gemm_f16", make_f16), { 128, 128, 96 } },
    { "gemm_e4m3 128 x 128 x 192", OF("gemm_mma", "gemm_e4m3", make_e4m3), { 128, 128, 192 } },
    { "gemm_wgmma 128 x 64 x 256", OF("gemm_wgmma", "gemm_wgmma", make_wgmma), { 128, 64, 256 } },
    { "gemm_wgmma 64 x 128 x 64", OF("gemm_wgmma", "gemm_wgmma", make_wgmma), { 64, 128, 64 } },
    { "flash_wgmma 300, 2/1 heads, causal", OF("flash_wgmma", "flash_wgmma", make_flash), { 300, 1, 2, 1, 1 } },
    { "flash_wgmma 450, 2/2 heads, full", OF("flash_wgmma", "flash_wgmma", make_flash), { 450, 1, 2, 2, 0 } },
    { "flash_wgmma 128, causal", OF("flash_wgmma", "flash_wgmma", make_flash), { 128, 1, 1, 1, 1 } },
    { "flash_wgmma 200, batch 2, causal", OF("flash_wgmma", "flash_wgmma", make_flash), { 200, 2, 1, 1, 1 } },
    { 0 },
};
