/* SPDX-License-Identifier: Apache-2.0 */
/* A real hipBLASLt, asked without a GPU: `all hipblaslt` has it name algorithms for products as trainings have them,
 * for the architecture STANDIN_GPU_ARCH. A line for each kind: how many of them it takes. Exit status 5: one that
 * trainmark counts on, by the documents (gpu/blas_codes.c), is not taken. standins/hip_answers.so has to be preloaded.
 */
#include "gpu/blas.h"

#include "support/folder.h"
#include "support/test.h"

static const char *const names[] = { "float32", "bfloat16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1" };
static const char *const scales[] = { "", ", a scale for each matrix", ", a scale for each row", "", "",
                                      "", ", scales of blocks of 32" };

/* Of formats a and b into c. */
static const struct {
    tm_gpu_format a, b, c;
    tm_gpu_scales of;
} kinds[] = {
    { TM_GPU_BF16, TM_GPU_BF16, TM_GPU_BF16, TM_GPU_NO_SCALES },
    { TM_GPU_BF16, TM_GPU_BF16, TM_GPU_F32, TM_GPU_NO_SCALES },
    { TM_GPU_F32, TM_GPU_F32, TM_GPU_F32, TM_GPU_NO_SCALES },
    { TM_GPU_E4M3, TM_GPU_E4M3, TM_GPU_BF16, TM_GPU_SCALES_OF_MATRICES },
    { TM_GPU_E5M2, TM_GPU_E4M3, TM_GPU_BF16, TM_GPU_SCALES_OF_MATRICES },
    { TM_GPU_E4M3, TM_GPU_E5M2, TM_GPU_F32, TM_GPU_SCALES_OF_MATRICES },
    { TM_GPU_E4M3, TM_GPU_E4M3, TM_GPU_BF16, TM_GPU_SCALES_OF_ROWS },
    { TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, TM_GPU_BF16, TM_GPU_SCALES_OF_MATRICES },
    { TM_GPU_E5M2FNUZ, TM_GPU_E4M3FNUZ, TM_GPU_BF16, TM_GPU_SCALES_OF_MATRICES },
    { TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, TM_GPU_BF16, TM_GPU_SCALES_OF_ROWS },
    { TM_GPU_E4M3, TM_GPU_E4M3, TM_GPU_BF16, TM_GPU_SCALES_ROW_BY_ROW },
    { TM_GPU_E2M1, TM_GPU_E2M1, TM_GPU_BF16, TM_GPU_SCALES_ROW_BY_ROW },
};

/* Rows, columns, depth: of an 8B model's layers, of gradients of weights, of adapters; and an odd one. */
static const int64_t shapes[][3] = { { 16384, 4096, 4096 }, { 16384, 14336, 4096 }, { 16384, 4096, 14336 },
                                     { 4096, 4096, 16384 }, { 2048, 128256, 4096 }, { 4096, 16, 4096 },
                                     { 33, 65, 17 } };
enum { SHAPES = sizeof shapes / sizeof shapes[0], WORKSPACE = 4 << 20, ARRANGEMENTS = 8 };

/* bits of `how`: a across, b across, with a bias */
static tm_gpu_matmul_shape shape_of(size_t kind, int at, int how)
{
    bool                codes = kinds[kind].of != TM_GPU_NO_SCALES;
    tm_gpu_matmul_shape s = { .factors = kinds[kind].a,
                              .result = kinds[kind].c,
                              .second = codes ? kinds[kind].b : TM_GPU_F32,
                              .scales = kinds[kind].of,
                              .second_scales = kinds[kind].of,
                              .a_across = how & 1,
                              .b_across = how & 2,
                              .bias = how & 4,
                              .rows = shapes[at][0],
                              .columns = shapes[at][1],
                              .depth = shapes[at][2],
                              .workspace = WORKSPACE };
    s.ld_a = s.a_across ? s.rows : s.depth;
    s.ld_b = s.b_across ? s.columns : s.depth;
    s.ld_c = s.columns;
    return s;
}

/* How many products of a kind the library does not take, although nothing is known against them. */
static int ask(tm_gpu_blas *blas, const char *arch, size_t kind)
{
    int taken = 0, refused = 0, missed = 0;
    for (int i = 0; i < SHAPES * ARRANGEMENTS; i++) {
        tm_gpu_matmul_shape s = shape_of(kind, i / ARRANGEMENTS, i % ARRANGEMENTS);
        tm_gpu_matmul      *product;
        const char         *why;
        tm_error            err = { 0 };
        if (s.scales != TM_GPU_NO_SCALES && tm_gpu_blas_refuse_codes(TM_GPU_HIP, arch, tm_gpu_blas_version(blas), &s)) {
            refused++;
            continue;
        }
        if (tm_gpu_blas_find(blas, &s, &product, &why, &err) == TM_OK)
            taken++;
        else if (missed++ == 0)
            printf("  %s%s%s%s\n", err.text, s.a_across ? ", a across" : "", s.b_across ? ", b across" : "",
                   s.bias ? ", with a bias" : "");
    }
    printf("%s by %s into %s%s: %d taken, %d not, %d not asked for\n", names[kinds[kind].a], names[kinds[kind].b],
           names[kinds[kind].c], scales[kinds[kind].of], taken, missed, refused);
    return missed;
}

static int judge(int argc, char **argv)
{
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
    tm_error     err = { 0 };
    int          missed = 0;
    (void)argc, (void)argv;
    setenv("TRAINMARK_GPU_RUNTIME", test_built("standins/hip.so"), 1);
    if (tm_gpu_open(TM_GPU_HIP, 0, &gpu, &err) != TM_OK || tm_gpu_blas_open(gpu, &blas, &err) != TM_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    printf("%s (%s), %s\n", tm_gpu_blas_name(blas), tm_gpu_blas_library(blas), tm_gpu_facts_of(gpu)->arch);
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        missed += ask(blas, tm_gpu_facts_of(gpu)->arch, kind);
    tm_gpu_blas_close(blas);
    tm_gpu_close(gpu);
    return missed ? 5 : 0;
}

TM_TEST_ROLE("hipblaslt", judge)
