/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/cases.h"

#include <string.h>

static void set_grid(machine_problem *p, int x, int y, int z, int threads)
{
    p->launch.blocks[0] = (uint32_t)x;
    p->launch.blocks[1] = (uint32_t)y;
    p->launch.blocks[2] = (uint32_t)z;
    p->launch.threads[0] = (uint32_t)threads;
}

/* Products: rows, columns, inner; a tile's rows; threads. */

static void multiply(double *c, const double *a, const double *b, const int *shape)
{
    for (int i = 0; i < shape[0]; i++)
        for (int j = 0; j < shape[1]; j++)
            for (int k = 0; k < shape[2]; k++) c[i * shape[1] + j] += a[i * shape[2] + k] * b[j * shape[2] + k];
}

static void make_product(machine_problem *p, const int *shape, machine_format format, double bound)
{
    double *c = machine_result(p, format, (size_t)(shape[0] * shape[1]), bound);
    double *a = machine_input(p, format, (size_t)(shape[0] * shape[2]), 1);
    double *b = machine_input(p, format, (size_t)(shape[1] * shape[2]), 1);
    machine_argument_int(p, shape[1]);
    machine_argument_int(p, shape[2]);
    multiply(c, a, b, shape);
    set_grid(p, shape[1] / shape[3], shape[0] / shape[3], 1, shape[4]);
}

static void make_bf16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_BF16, 4e-3);
}

static void make_f16(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_F16, 5e-4);
}

static void make_f32(machine_problem *p, const int *shape)
{
    make_product(p, shape, MACHINE_F32, 1e-6);
}

static void make_fp8(machine_problem *p, const int *shape)
{
    machine_format format = strcmp(p->arch, "gfx942") == 0 ? MACHINE_E4M3_FNUZ : MACHINE_E4M3;
    double        *c = machine_result(p, MACHINE_F32, (size_t)(shape[0] * shape[1]), 1e-6);
    double        *a = machine_input(p, format, (size_t)(shape[0] * shape[2]), 8);
    double        *b = machine_input(p, format, (size_t)(shape[1] * shape[2]), 0.1);
    double        *a_scale = machine_input(p, MACHINE_F32, (size_t)shape[0], 1);
    double        *b_scale = machine_input(p, MACHINE_F32, (size_t)shape[1], 1);
    for (int i = 0; i < 3; i++) machine_argument_int(p, shape[i]);
    multiply(c, a, b, shape);
    for (int i = 0; i < shape[0] * shape[1]; i++) c[i] *= a_scale[i / shape[1]] * b_scale[i % shape[1]];
    set_grid(p, (shape[1] + 63) / 64, (shape[0] + 63) / 64, 1, 256);
}

const machine_case machine_amd_cases[] = {
    { "gemm_f16 128 x 128 x 64", "gemm_mfma.hip", "gemm_f16", make_f16, { 128, 128, 64, 128, 256 } },
    { "gemm_f32 64 x 32 x 10", "gemm_mfma.hip", "gemm_f32", make_f32, { 64, 32, 10, 32, 64 } },
    { "gemm_fp8 70 x 100 x 192", "gemm_fp8.hip", "gemm_fp8", make_fp8, { 70, 100, 192 } },
    { "gemm_lds 128 x 128 x 32", "gemm_lds.hip", "gemm_lds", make_bf16, { 128, 128, 32, 128, 256 } },
    { "gemm_lds 128 x 256 x 64", "gemm_lds.hip", "gemm_lds", make_bf16, { 128, 256, 64, 128, 256 } },
    { "gemm_lds 256 x 128 x 96", "gemm_lds.hip", "gemm_lds", make_bf16, { 256, 128, 96, 128, 256 } },
    { "gemm_lds 256 x 128 x 224", "gemm_lds.hip", "gemm_lds", make_bf16, { 256, 128, 224, 128, 256 } },
    { 0 },
};
