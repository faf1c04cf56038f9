/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes by the libraries of both makers, over stand-ins: values, with scales of matrices, of rows and of
 * blocks; what is taken is taken by the library, for any version, architecture and shape; what is not is said. */
#include "base/random.h"
#include "gpu/blas.h"
#include "graph/value.h"
#include "op/codes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/test.h"

enum { ROWS = 5, COLUMNS = 32, DEPTH = 48, GAP = 32, WORKSPACE = 1 << 16 };
enum {
    BLOCK_ROWS = 144,
    BLOCK_COLUMNS = 160,
    BLOCK_DEPTH = 272,
    DEPTH_OF_HIP = 384
}; /* no whole tiles, no whole blocks */

static const tm_dtype dtypes[] = { TM_F32, TM_BF16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ, TM_E2M1 };

typedef struct {
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
    void        *stream, *workspace;
} bench;

static bench open_bench(int hip, const char *arch, int version)
{
    bench    b = { 0 };
    tm_error err = { 0 };
    char     number[16];
    snprintf(number, sizeof number, "%d", version);
    setenv("STANDIN_GPU_ARCH", arch, 1);
    setenv("STANDIN_BLAS_VERSION", number, 1);
    setenv("TRAINMARK_GPU_RUNTIME", test_built(hip ? "standins/hip.so" : "standins/cuda.so"), 1);
    setenv(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT",
           test_built(hip ? "standins/hipblaslt.so" : "standins/cublaslt.so"), 1);
    if (tm_gpu_open((tm_gpu_maker)hip, 0, &b.gpu, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_gpu_blas_open(b.gpu, &b.blas, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_gpu_blas_version(b.blas), version);
    assert_int_equal(tm_gpu_stream_open(b.gpu, &b.stream, &err), TM_OK);
    assert_int_equal(tm_gpu_alloc(b.gpu, WORKSPACE, &b.workspace, &err), TM_OK);
    return b;
}

static void close_bench(bench *b)
{
    tm_gpu_free(b->gpu, b->workspace);
    tm_gpu_stream_close(b->gpu, b->stream);
    tm_gpu_blas_close(b->blas);
    tm_gpu_close(b->gpu);
    unsetenv("STANDIN_GPU_ARCH");
    unsetenv("STANDIN_BLAS_VERSION");
}

/* --- values ---------------------------------------------------------------------------------------------------------
 */

/* Codes drawn from all numbers below 4, so that sums are exact in float32; else small whole numbers. */
static void *matrix_of(const bench *b, tm_gpu_format format, int64_t rows, int64_t columns, int64_t ld, int seed,
                       char **image)
{
    tm_dtype dtype = dtypes[format];
    size_t   bytes = tm_tensor_bytes(tm_shape_2(rows, ld), dtype);
    void    *memory;
    tm_error err = { 0 };
    *image = memset(malloc(bytes), 0xff, bytes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            tm_value_set(*image, dtype, r * ld + c,
                         (double)(tm_random_below((uint64_t)seed, 1, (uint64_t)(r * columns + c), 33)) / 4 - 4);
    assert_int_equal(tm_gpu_alloc(b->gpu, bytes, &memory, &err), TM_OK);
    assert_int_equal(tm_gpu_write(b->gpu, memory, *image, bytes, &err), TM_OK);
    return memory;
}

/* Of a factor: how many scales of it there are, as op/codes.h has them. */
static int codes_kind(tm_gpu_scales scales)
{
    return scales <= TM_GPU_SCALES_OF_ROWS ? TM_CODES_PLAIN : TM_CODES_RUNS + (int)scales - TM_GPU_SCALES_OF_RUNS;
}

static int64_t scales_in(tm_gpu_scales scales, int64_t lines, int64_t depth)
{
    int64_t plain = scales == TM_GPU_SCALES_OF_ROWS ? lines : 1;
    return codes_kind(scales) == TM_CODES_PLAIN ? plain : tm_codes_scales(codes_kind(scales), lines, depth);
}

static int64_t scale_place(tm_gpu_scales scales, int64_t lines, int64_t depth, int64_t line, int64_t k)
{
    int64_t plain = scales == TM_GPU_SCALES_OF_ROWS ? line : 0;
    return codes_kind(scales) == TM_CODES_PLAIN ? plain : tm_codes_place(codes_kind(scales), lines, depth, line, k);
}

/* Powers of two, each block another one: exact, and no two alike beside each other. Zeros fill them up. Returns their
 * image, in the format of the kind. */
static char *scales_of(const bench *b, tm_gpu_scales scales, int64_t lines, int64_t depth, int first, void **memory)
{
    int64_t  n = scales_in(scales, lines, depth);
    tm_dtype dtype = (tm_dtype)tm_codes_scale_of(codes_kind(scales)).dtype;
    size_t   bytes = (size_t)n * tm_dtype_bytes(dtype);
    char    *image = calloc(bytes, 1);
    tm_error err = { 0 };
    for (int64_t line = 0; line < lines; line++)
        for (int64_t k = 0; k < depth; k += 16) {
            int64_t at = scale_place(scales, lines, depth, line, k);
            tm_value_set(image, dtype, at, ldexp(1, first + (int)(at % 7 % 3)));
        }
    assert_int_equal(tm_gpu_alloc(b->gpu, bytes, memory, &err), TM_OK);
    assert_int_equal(tm_gpu_write(b->gpu, *memory, image, bytes, &err), TM_OK);
    return image;
}

/* What the codes of a factor stand for. */
static double *values_of(const char *image, tm_gpu_format format, int64_t lines, int64_t depth, int64_t ld,
                         const char *scale, tm_gpu_scales scales)
{
    tm_dtype of_scale = (tm_dtype)tm_codes_scale_of(codes_kind(scales)).dtype;
    double  *values = malloc((size_t)(lines * depth) * sizeof *values);
    for (int64_t l = 0; l < lines; l++)
        for (int64_t k = 0; k < depth; k++)
            values[l * depth + k] = tm_value_get(image, dtypes[format], l * ld + k) *
                                    tm_value_get(scale, of_scale, scale_place(scales, lines, depth, l, k));
    return values;
}

typedef struct {
    tm_gpu_format a, b, result;
    tm_gpu_scales scales, second_scales;
    bool          bias, adds;
} kind;

static tm_gpu_matmul_shape shape_of(const kind *k)
{
    bool    blocks = k->scales > TM_GPU_SCALES_OF_ROWS;
    int64_t depth = k->scales == TM_GPU_SCALES_ROW_BY_ROW ? DEPTH_OF_HIP : blocks ? BLOCK_DEPTH : DEPTH;
    int64_t columns = blocks ? BLOCK_COLUMNS : COLUMNS;
    return (tm_gpu_matmul_shape){ .factors = k->a,
                                  .second = k->b,
                                  .result = k->result,
                                  .scales = k->scales,
                                  .second_scales = k->second_scales,
                                  .bias = k->bias,
                                  .rows = blocks ? BLOCK_ROWS : ROWS,
                                  .columns = columns,
                                  .depth = depth,
                                  .ld_a = depth + GAP,
                                  .ld_b = depth,
                                  .ld_c = columns + GAP,
                                  .workspace = WORKSPACE };
}

static void check_product(const bench *b, const kind *k, const char *what)
{
    tm_gpu_matmul_shape s = shape_of(k);
    char               *image[4];
    void               *memory[6];
    tm_error            err = { 0 };
    tm_gpu_matmul      *found;
    const char         *why;
    memory[0] = matrix_of(b, k->a, s.rows, s.depth, s.ld_a, 1, &image[0]);
    memory[1] = matrix_of(b, k->b, s.columns, s.depth, s.ld_b, 2, &image[1]);
    memory[2] = matrix_of(b, k->result, s.rows, s.columns, s.ld_c, 3, &image[2]);
    memory[3] = matrix_of(b, k->result, 1, s.columns, s.columns, 4, &image[3]);
    char                  *scale_a = scales_of(b, k->scales, s.rows, s.depth, -3, &memory[4]);
    char                  *scale_b = scales_of(b, k->second_scales, s.columns, s.depth, 1, &memory[5]);
    tm_gpu_matmul_operands o = { .c = memory[2],
                                 .a = memory[0],
                                 .b = memory[1],
                                 .bias = k->bias ? memory[3] : NULL,
                                 .old = k->adds ? memory[2] : NULL,
                                 .workspace = b->workspace,
                                 .scale_a = memory[4],
                                 .scale_b = memory[5] };
    tm_status              st = tm_gpu_blas_find(b->blas, &s, &found, &why, &err);
    if (st == TM_OK) st = tm_gpu_blas_multiply(b->blas, found, b->stream, &o, &err);
    if (st != TM_OK) fail_msg("%s: %s", what, err.text);
    tm_dtype dtype = dtypes[k->result];
    double  *left = values_of(image[0], k->a, s.rows, s.depth, s.ld_a, scale_a, k->scales);
    double  *right = values_of(image[1], k->b, s.columns, s.depth, s.ld_b, scale_b, k->second_scales);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < s.columns; c++) {
            double sum = 0;
            for (int64_t d = 0; d < s.depth; d++) sum += left[r * s.depth + d] * right[c * s.depth + d];
            if (k->bias) sum += tm_value_get(image[3], dtype, c);
            if (k->adds) sum += tm_value_get(image[2], dtype, r * s.ld_c + c);
            tm_value_set(image[2], dtype, r * s.ld_c + c, sum);
        }
    size_t bytes = (size_t)(s.rows * s.ld_c) * tm_dtype_bytes(dtype);
    char  *got = malloc(bytes);
    if (tm_gpu_stream_wait(b->gpu, b->stream, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    assert_int_equal(tm_gpu_read(b->gpu, got, memory[2], bytes, &err), TM_OK);
    if (memcmp(got, image[2], bytes) != 0) fail_msg("%s: wrong, or written beside it", what);
    for (int i = 0; i < 6; i++) tm_gpu_free(b->gpu, memory[i]);
    for (int i = 0; i < 4; i++) free(image[i]);
    free(scale_a), free(scale_b), free(got), free(left), free(right);
}

TEST(products_of_codes_are_exact)
{
    static const struct {
        int         hip;
        const char *arch;
        int         version, fnuz;
    } on[] = { { 0, "sm_90", 120900, 0 }, { 1, "gfx942", 100000, 1 }, { 1, "gfx950", 100100, 0 } };
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        bench b = open_bench(on[i].hip, on[i].arch, on[i].version);
        for (unsigned x = 0; x < 3 * 2 * 2 * 2 * 2; x++) {
            tm_gpu_format e4m3 = on[i].fnuz ? TM_GPU_E4M3FNUZ : TM_GPU_E4M3,
                          e5m2 = on[i].fnuz ? TM_GPU_E5M2FNUZ : TM_GPU_E5M2;
            kind k = { .a = x % 3 == 1 ? e5m2 : e4m3,
                       .b = x % 3 == 2 ? e5m2 : e4m3,
                       .result = x / 3 & 1U ? TM_GPU_BF16 : TM_GPU_F32,
                       .scales = x / 6 & 1U ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES,
                       .bias = x / 12 & 1U,
                       .adds = x / 24 & 1U };
            char what[80];
            k.second_scales = k.scales;
            if (k.bias && k.result == TM_GPU_F32) continue;
            snprintf(what, sizeof what, "%s, product %u", on[i].arch, x);
            check_product(&b, &k, what);
        }
        close_bench(&b);
    }
}

/* Every kind of scales of blocks that a library has, with all formats that it has them for. */
TEST(products_with_scales_of_blocks_are_exact)
{
    static const struct {
        int           hip;
        const char   *arch;
        int           version;
        tm_gpu_scales scales, second;
    } on[] = { { 0, "sm_90", 120900, TM_GPU_SCALES_OF_RUNS, TM_GPU_SCALES_OF_RUNS },
               { 0, "sm_90", 120900, TM_GPU_SCALES_OF_RUNS, TM_GPU_SCALES_OF_SQUARES },
               { 0, "sm_90", 120900, TM_GPU_SCALES_OF_SQUARES, TM_GPU_SCALES_OF_RUNS },
               { 0, "sm_100", 120800, TM_GPU_SCALES_IN_TILES, TM_GPU_SCALES_IN_TILES },
               { 1, "gfx950", 100000, TM_GPU_SCALES_ROW_BY_ROW, TM_GPU_SCALES_ROW_BY_ROW } };
    static const tm_gpu_format formats[][2] = { { TM_GPU_E4M3, TM_GPU_E4M3 },
                                                { TM_GPU_E5M2, TM_GPU_E4M3 },
                                                { TM_GPU_E2M1, TM_GPU_E2M1 } };
    bench                      b = { 0 }; /* of one GPU for all its kinds: no product is taken for another */
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        if (i == 0 || strcmp(on[i].arch, on[i - 1].arch) != 0) b = open_bench(on[i].hip, on[i].arch, on[i].version);
        for (unsigned x = 0; x < 3 * 2; x++) {
            kind k = { .a = formats[x / 2][0],
                       .b = formats[x / 2][1],
                       .result = x % 2 ? TM_GPU_BF16 : TM_GPU_F32,
                       .scales = on[i].scales,
                       .second_scales = on[i].second,
                       .bias = x % 2 && !on[i].hip,
                       .adds = x / 2 == 1 };
            char what[80];
            if (k.a == TM_GPU_E2M1 && !on[i].hip) continue;
            snprintf(what, sizeof what, "%s, scales %d and %d, %u", on[i].arch, (int)k.scales, (int)k.second_scales, x);
            check_product(&b, &k, what);
        }
        if (i + 1 == sizeof on / sizeof on[0] || strcmp(on[i].arch, on[i + 1].arch) != 0) close_bench(&b);
    }
}

/* --- what is taken --------------------------------------------------------------------------------------------------
 */

static const char *const archs[][4] = { { "sm_80", "sm_89", "sm_90", "sm_100" },
                                        { "gfx90a", "gfx942", "gfx950", "gfx942" } };
static const int         versions[][3] = { { 120000, 120800, 120900 }, { 1200, 100000, 100100 } };

/* One of everything that rules speak of, drawn by chance. */
static tm_gpu_matmul_shape drawn(int hip, uint64_t i)
{
    static const int64_t       sides[] = { 16, 256, 40, 24, 128, 17 };
    static const tm_gpu_format formats[] = { TM_GPU_E4M3,     TM_GPU_E5M2, TM_GPU_E4M3FNUZ,
                                             TM_GPU_E5M2FNUZ, TM_GPU_E2M1, TM_GPU_E4M3 };
    static const tm_gpu_scales kinds[] = { TM_GPU_SCALES_OF_MATRICES, TM_GPU_SCALES_OF_MATRICES, TM_GPU_SCALES_OF_ROWS,
                                           TM_GPU_SCALES_OF_RUNS,     TM_GPU_SCALES_OF_SQUARES,  TM_GPU_SCALES_IN_TILES,
                                           TM_GPU_SCALES_ROW_BY_ROW };
#define DRAW(what, n) ((int)tm_random_below(77, (uint64_t)hip * 100 + (what), i, (n)))
    tm_gpu_matmul_shape s = { .factors = formats[DRAW(0, 6)],
                              .second = formats[DRAW(1, 6)],
                              .result = DRAW(2, 2) ? TM_GPU_F32 : TM_GPU_BF16,
                              .scales = kinds[DRAW(3, 7)],
                              .a_across = DRAW(4, 6) == 0,
                              .b_across = DRAW(5, 6) == 0,
                              .bias = DRAW(6, 3) == 0,
                              .rows = sides[DRAW(7, 6)],
                              .columns = sides[DRAW(8, 6) / 2],
                              .depth = sides[DRAW(9, 6) / 2],
                              .workspace = WORKSPACE };
    s.second_scales = DRAW(16, 4) ? s.scales : kinds[DRAW(17, 7)];
    s.ld_a = (s.a_across ? s.rows : s.depth) + (DRAW(10, 4) ? 0 : 8 * DRAW(11, 3));
    s.ld_b = (s.b_across ? s.columns : s.depth) + (DRAW(12, 4) ? 0 : 8 * DRAW(13, 3));
    s.ld_c = s.columns + (DRAW(14, 4) ? 0 : 4 * DRAW(15, 3));
#undef DRAW
    return s;
}

/* What the rules take the library takes: else a plan would not be what runs. They may be the stricter ones. */
TEST(what_the_rules_take_the_library_takes)
{
    enum { DRAWN = 6000 };
    for (int hip = 0; hip < 2; hip++)
        for (int a = 0; a < 4; a++)
            for (int v = 0; v < 3; v++) {
                bench b = open_bench(hip, archs[hip][a], versions[hip][v]);
                int   taken = 0, stricter = 0;
                for (uint64_t i = 0; i < DRAWN; i++) {
                    tm_gpu_matmul_shape s = drawn(hip, i);
                    tm_gpu_matmul      *found;
                    const char         *why,
                        *rule = tm_gpu_blas_refuse_codes((tm_gpu_maker)hip, archs[hip][a], versions[hip][v], &s);
                    tm_error  err = { 0 };
                    tm_status st = TM_UNSUPPORTED;
                    if (!rule) st = tm_gpu_blas_find(b.blas, &s, &found, &why, &err);
                    if (!rule && st != TM_OK) fail_msg("%s, draw %d: %s", archs[hip][a], (int)i, err.text);
                    taken += !rule;
                    if (rule && i % 8 == 0) stricter += tm_gpu_blas_find(b.blas, &s, &found, &why, &err) == TM_OK;
                }
                bool none = !strcmp(archs[hip][a], "sm_80") || !strcmp(archs[hip][a], "gfx90a");
                if (none ? taken + stricter > 0 : taken < 20)
                    fail_msg("%s, %d: %d taken, %d refused that are none", archs[hip][a], versions[hip][v], taken,
                             stricter);
                close_bench(&b);
            }
}

static const struct {
    int           hip;
    const char   *arch;
    int           version;
    tm_gpu_format a, b;
    bool          rows;
    const char   *why;            /* NULL: taken */
    tm_gpu_scales scales, second; /* of blocks */
} rules[] = {
#define NONE TM_GPU_NO_SCALES
    { 0, "sm_80", 130000, TM_GPU_E4M3, TM_GPU_E4M3, false, "products of codes need sm_89 or later", NONE, NONE },
    { 0, "sm_89", 120000, TM_GPU_E4M3, TM_GPU_E5M2, false, NULL, NONE, NONE },
    { 0, "sm_89", 130000, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need sm_90, no other GPU", NONE, NONE },
    { 0, "sm_90", 120000, TM_GPU_E5M2, TM_GPU_E4M3, false, NULL, NONE, NONE },
    { 0, "sm_90", 120800, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need cublasLt 12.9", NONE, NONE },
    { 0, "sm_90", 120900, TM_GPU_E4M3, TM_GPU_E4M3, true, NULL, NONE, NONE },
    { 0, "sm_90", 130100, TM_GPU_E5M2, TM_GPU_E5M2, false, "the library multiplies no e5m2 by e5m2", NONE, NONE },
    { 0, "sm_90", 130100, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false,
      "NVIDIA's GPUs have OCP's formats of 8 bits, not FNUZ", NONE, NONE },
    { 0, "sm_100", 130100, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need sm_90, no other GPU", NONE, NONE },
    { 0, NULL, INT32_MAX, TM_GPU_E4M3, TM_GPU_E4M3, true, NULL, NONE, NONE },
    { 1, "gfx942", 1000, TM_GPU_E4M3FNUZ, TM_GPU_E5M2FNUZ, false, NULL, NONE, NONE },
    { 1, "gfx942", 100000, TM_GPU_E4M3, TM_GPU_E4M3, false, "gfx942 has formats of FNUZ only (quantize.fnuz)", NONE,
      NONE },
    { 1, "gfx950", 100000, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false,
      "gfx950 has OCP's formats only (quantize.fnuz false)", NONE, NONE },
    { 1, "gfx950", 100000, TM_GPU_E5M2, TM_GPU_E5M2, false, NULL, NONE, NONE },
    { 1, "gfx942", 1200, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, true, "scales of lines need hipBLASLt 1.0", NONE, NONE },
    { 1, "gfx942", 100000, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, true, NULL, NONE, NONE },
    { 1, "gfx90a", 100000, TM_GPU_E4M3, TM_GPU_E4M3, false, "products of codes need gfx942 or gfx950", NONE, NONE },
    { 1, NULL, INT32_MAX, TM_GPU_E4M3, TM_GPU_E4M3FNUZ, false, "one factor is FNUZ, the other one OCP", NONE, NONE },
    { 1, NULL, INT32_MAX, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false, NULL, NONE, NONE },
#define BLOCKS TM_GPU_E4M3, TM_GPU_E4M3, false
#define RUNS TM_GPU_SCALES_OF_RUNS
#define SQUARES TM_GPU_SCALES_OF_SQUARES
#define TILES TM_GPU_SCALES_IN_TILES
#define BY_ROW TM_GPU_SCALES_ROW_BY_ROW
    { 0, "sm_90", 120900, BLOCKS, NULL, RUNS, SQUARES },
    { 0, "sm_90", 120900, BLOCKS, NULL, RUNS, RUNS },
    { 0, "sm_90", 120900, BLOCKS, "squares of 128 are those of one factor only", SQUARES, SQUARES },
    { 0, "sm_90", 120900, BLOCKS, "the factors have scales of different kinds", RUNS, TM_GPU_SCALES_OF_ROWS },
    { 0, "sm_90", 120800, BLOCKS, "scales of blocks of 128 need cublasLt 12.9", RUNS, SQUARES },
    { 0, "sm_89", 130100, BLOCKS, "scales of blocks of 128 need sm_90, no other GPU", RUNS, SQUARES },
    { 0, "sm_100", 130100, BLOCKS, "scales of blocks of 128 need sm_90, no other GPU", RUNS, SQUARES },
    { 0, "sm_100", 120800, BLOCKS, NULL, TILES, TILES },
    { 0, "sm_110", 130100, BLOCKS, NULL, TILES, TILES },
    { 0, "sm_100", 120600, BLOCKS, "scales of blocks of 32 need cublasLt 12.8", TILES, TILES },
    { 0, "sm_90", 130100, BLOCKS, "scales of blocks of 32 need sm_100 to sm_110", TILES, TILES },
    { 0, "sm_120", 130100, BLOCKS, "scales of blocks of 32 need sm_100 to sm_110", TILES, TILES },
    { 0, "sm_100", 130100, BLOCKS, "cublasLt takes scales of blocks of 32 in tiles", BY_ROW, BY_ROW },
    { 0, "sm_100", 130100, TM_GPU_E2M1, TM_GPU_E2M1, false,
      "cublasLt multiplies codes of 4 bits with scales of blocks of 16 only", TILES, TILES },
    { 0, NULL, INT32_MAX, BLOCKS, NULL, TILES, TILES },
    { 1, "gfx950", 100000, BLOCKS, NULL, BY_ROW, BY_ROW },
    { 1, "gfx950", 100000, TM_GPU_E2M1, TM_GPU_E2M1, false, NULL, BY_ROW, BY_ROW },
    { 1, "gfx950", 100000, TM_GPU_E5M2, TM_GPU_E5M2, false, NULL, BY_ROW, BY_ROW },
    { 1, "gfx950", 100000, BLOCKS, "hipBLASLt takes scales of blocks of 32 row by row", TILES, TILES },
    { 1, "gfx950", 1200, BLOCKS, "scales of blocks of 32 need hipBLASLt 1.0", BY_ROW, BY_ROW },
    { 1, "gfx942", 100000, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false, "scales of blocks are those of OCP's formats",
      BY_ROW, BY_ROW },
    { 1, "gfx950", 100000, BLOCKS, "hipBLASLt has no scales of blocks of 128", RUNS, SQUARES },
    { 1, "gfx950", 100000, TM_GPU_E2M1, TM_GPU_E2M1, true, "codes of 4 bits have scales of blocks of 32", NONE, NONE },
    { 1, NULL, INT32_MAX, BLOCKS, NULL, BY_ROW, BY_ROW },
};

TEST(rules_are_those_of_the_documents)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        tm_gpu_scales       plain = rules[i].rows ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES;
        bool                blocks = rules[i].scales != TM_GPU_NO_SCALES;
        kind                k = { .a = rules[i].a,
                                  .b = rules[i].b,
                                  .result = TM_GPU_BF16,
                                  .scales = blocks ? rules[i].scales : plain,
                                  .second_scales = blocks ? rules[i].second : plain };
        tm_gpu_matmul_shape s = shape_of(&k);
        if (blocks) s.depth = s.ld_a = s.ld_b = DEPTH_OF_HIP;
        const char *why = tm_gpu_blas_refuse_codes((tm_gpu_maker)rules[i].hip, rules[i].arch, rules[i].version, &s);
        if (!why != !rules[i].why || (why && strcmp(why, rules[i].why) != 0))
            fail_msg("rule %d: '%s', wanted '%s'", (int)i, why ? why : "", rules[i].why ? rules[i].why : "");
    }
}

/* Of shapes: each by itself. */
TEST(shapes_that_no_product_of_codes_has)
{
    for (int i = 0; i < 8; i++) {
        kind                k = { .a = TM_GPU_E4M3,
                                  .b = TM_GPU_E4M3,
                                  .result = TM_GPU_F32,
                                  .scales = TM_GPU_SCALES_OF_MATRICES,
                                  .second_scales = TM_GPU_SCALES_OF_MATRICES };
        tm_gpu_matmul_shape s = shape_of(&k);
        const char         *wanted = "columns and depth must be multiples of 16";
        if (i == 0) s.depth = 40;
        if (i == 1) s.columns = 24;
        if (i > 1) wanted = "rows must begin at multiples of 16 bytes";
        if (i == 2) s.ld_a += 8;
        if (i == 3) s.ld_b += 8;
        if (i == 4) s.ld_c += 2;
        if (i > 4) wanted = "products of codes sum along rows";
        if (i == 5) s.a_across = true;
        if (i == 6) s.b_across = true;
        if (i == 7) s.bias = true, wanted = "the library adds a bias to products of codes in bfloat16 only";
        for (int hip = 0; hip < 2; hip++)
            assert_string_equal(tm_gpu_blas_refuse_codes((tm_gpu_maker)hip, NULL, INT32_MAX, &s), wanted);
    }
}

/* Of scales of blocks. */
TEST(shapes_that_blocks_do_not_have)
{
    static const char rows[] = "rows must be multiples of 16 and the depth one of 128 with scales of blocks of 32";
    for (int i = 0; i < 6; i++) {
        bool                hip = i > 1;
        kind                k = { .a = i == 5 ? TM_GPU_E2M1 : TM_GPU_E4M3,
                                  .b = TM_GPU_E4M3,
                                  .result = TM_GPU_BF16,
                                  .scales = hip ? TM_GPU_SCALES_ROW_BY_ROW : TM_GPU_SCALES_OF_RUNS,
                                  .second_scales = hip ? TM_GPU_SCALES_ROW_BY_ROW : TM_GPU_SCALES_OF_SQUARES };
        const char         *wanted = rows, *why;
        tm_gpu_matmul_shape s = shape_of(&k);
        assert_null(tm_gpu_blas_refuse_codes((tm_gpu_maker)hip, NULL, INT32_MAX, &s));
        if (i == 0) s.rows += 2, wanted = "rows must be multiples of 4";
        if (i == 1) s.depth = s.ld_b = 280, wanted = "columns and depth must be multiples of 16";
        if (i == 2) s.rows += 4;
        if (i == 3) s.depth = 320;
        if (i == 4) s.bias = true, wanted = "hipBLASLt adds no bias to products with scales of blocks";
        if (i == 5) s.ld_a += 16, wanted = "rows must begin at multiples of 16 bytes";
        why = tm_gpu_blas_refuse_codes((tm_gpu_maker)hip, NULL, INT32_MAX, &s);
        if (!why || strcmp(why, wanted) != 0) fail_msg("%d: '%s'", i, why ? why : "");
    }
}

/* --- mistakes -------------------------------------------------------------------------------------------------------
 */

TEST(mistakes_are_noticed)
{
    bench               b = open_bench(0, "sm_90", 130100);
    kind                k = { .a = TM_GPU_E4M3,
                              .b = TM_GPU_E4M3,
                              .result = TM_GPU_BF16,
                              .scales = TM_GPU_SCALES_OF_ROWS,
                              .second_scales = TM_GPU_SCALES_OF_ROWS };
    tm_gpu_matmul_shape s = shape_of(&k);
    char               *image[3];
    void               *memory[3], *scales[2];
    const char         *why;
    tm_gpu_matmul      *found;
    tm_error            err = { 0 };
    char               *first = scales_of(&b, k.scales, ROWS, DEPTH, 0, &scales[0]),
         *second = scales_of(&b, k.scales, COLUMNS, DEPTH, 0, &scales[1]);
    memory[0] = matrix_of(&b, k.a, ROWS + 1, DEPTH, s.ld_a, 1, &image[0]);
    memory[1] = matrix_of(&b, k.b, COLUMNS, DEPTH, s.ld_b, 2, &image[1]);
    memory[2] = matrix_of(&b, k.result, ROWS, COLUMNS, s.ld_c, 3, &image[2]);
    tm_gpu_matmul_operands good = { .c = memory[2],
                                    .a = memory[0],
                                    .b = memory[1],
                                    .workspace = b.workspace,
                                    .scale_a = scales[0],
                                    .scale_b = scales[1] },
                           wrong = good;
    assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_OK);
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &good, &err), TM_OK);
    wrong.a = (char *)memory[0] + 8;
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &wrong, &err), TM_INVALID);
    wrong = good, wrong.scale_b = scales[0]; /* too few */
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &wrong, &err), TM_DEVICE);
    wrong = good, wrong.scale_a = first; /* the host's */
    err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &wrong, &err), TM_DEVICE);
    assert_int_equal(tm_gpu_stream_wait(b.gpu, b.stream, &err), TM_OK);
    for (int i = 0; i < 3; i++) tm_gpu_free(b.gpu, memory[i]), free(image[i]);
    for (int i = 0; i < 2; i++) tm_gpu_free(b.gpu, scales[i]);
    free(first), free(second);
    close_bench(&b);
}

/* Scales that begin elsewhere, too few of them, and what is no zero behind them. */
TEST(mistakes_of_blocks_are_noticed)
{
    bench b = open_bench(0, "sm_100", 130100);
    kind  k = { TM_GPU_E4M3, TM_GPU_E4M3, TM_GPU_BF16, TM_GPU_SCALES_IN_TILES, TM_GPU_SCALES_IN_TILES, false, false };
    tm_gpu_matmul_shape s = shape_of(&k);
    char               *image[3];
    void               *memory[3], *scales[3];
    const char         *why;
    tm_gpu_matmul      *found;
    tm_error            err = { 0 };
    char               *first = scales_of(&b, k.scales, s.rows + 128, s.depth, 0, &scales[0]);
    char               *second = scales_of(&b, k.scales, s.columns, s.depth, 0, &scales[1]);
    char               *few = scales_of(&b, k.scales, 128, s.depth, 0, &scales[2]);
    memory[0] = matrix_of(&b, k.a, s.rows, s.depth, s.ld_a, 1, &image[0]);
    memory[1] = matrix_of(&b, k.b, s.columns, s.depth, s.ld_b, 2, &image[1]);
    memory[2] = matrix_of(&b, k.result, s.rows, s.columns, s.ld_c, 3, &image[2]);
    tm_gpu_matmul_operands o = { .c = memory[2],
                                 .a = memory[0],
                                 .b = memory[1],
                                 .workspace = b.workspace,
                                 .scale_a = (char *)scales[0] + 8,
                                 .scale_b = scales[1] };
    assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_OK);
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &o, &err), TM_INVALID);
    o.scale_a = scales[2];
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &o, &err), TM_DEVICE);
    o.scale_a = scales[0]; /* there is one more line: the 145th, of the second tile */
    err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_blas_multiply(b.blas, found, b.stream, &o, &err), TM_OK);
    assert_int_equal(tm_gpu_stream_wait(b.gpu, b.stream, &err), TM_DEVICE);
    for (int i = 0; i < 3; i++) tm_gpu_free(b.gpu, memory[i]), free(image[i]), tm_gpu_free(b.gpu, scales[i]);
    free(first), free(second), free(few);
    close_bench(&b);
}
