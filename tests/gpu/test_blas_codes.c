/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of 8 bits by the libraries of both makers, over stand-ins: values, with scales of matrices and of
 * rows; what is taken is taken by the library, for any version, architecture and shape; what is not is said. */
#include "base/random.h"
#include "gpu/blas.h"
#include "graph/value.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/folder.h"
#include "support/test.h"

enum { ROWS = 5, COLUMNS = 32, DEPTH = 48, GAP = 16, WORKSPACE = 1 << 16 };

static const tm_dtype dtypes[] = { TM_F32, TM_BF16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ };

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
    size_t   bytes = (size_t)(rows * ld) * tm_dtype_bytes(dtype);
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

/* Powers of two, each row another one: exact, and no two alike beside each other. */
static float *scales_of(const bench *b, int64_t n, int first, void **memory)
{
    float   *image = malloc((size_t)n * sizeof *image);
    tm_error err = { 0 };
    for (int64_t i = 0; i < n; i++) image[i] = ldexpf(1, first + (int)(i % 3));
    assert_int_equal(tm_gpu_alloc(b->gpu, (size_t)n * sizeof *image, memory, &err), TM_OK);
    assert_int_equal(tm_gpu_write(b->gpu, *memory, image, (size_t)n * sizeof *image, &err), TM_OK);
    return image;
}

typedef struct {
    tm_gpu_format a, b, result;
    bool          rows, bias, adds;
} kind;

static tm_gpu_matmul_shape shape_of(const kind *k)
{
    return (tm_gpu_matmul_shape){ .factors = k->a,
                                  .second = k->b,
                                  .result = k->result,
                                  .scales = k->rows ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES,
                                  .bias = k->bias,
                                  .rows = ROWS,
                                  .columns = COLUMNS,
                                  .depth = DEPTH,
                                  .ld_a = DEPTH + GAP,
                                  .ld_b = DEPTH,
                                  .ld_c = COLUMNS + GAP,
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
    memory[0] = matrix_of(b, k->a, ROWS, DEPTH, s.ld_a, 1, &image[0]);
    memory[1] = matrix_of(b, k->b, COLUMNS, DEPTH, s.ld_b, 2, &image[1]);
    memory[2] = matrix_of(b, k->result, ROWS, COLUMNS, s.ld_c, 3, &image[2]);
    memory[3] = matrix_of(b, k->result, 1, COLUMNS, COLUMNS, 4, &image[3]);
    float                 *scale_a = scales_of(b, k->rows ? ROWS : 1, -3, &memory[4]);
    float                 *scale_b = scales_of(b, k->rows ? COLUMNS : 1, 1, &memory[5]);
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
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            double sum = 0;
            for (int64_t d = 0; d < DEPTH; d++)
                sum += tm_value_get(image[0], dtypes[k->a], r * s.ld_a + d) *
                       tm_value_get(image[1], dtypes[k->b], c * s.ld_b + d);
            sum *= (double)scale_a[k->rows ? r : 0] * (double)scale_b[k->rows ? c : 0];
            if (k->bias) sum += tm_value_get(image[3], dtype, c);
            if (k->adds) sum += tm_value_get(image[2], dtype, r * s.ld_c + c);
            tm_value_set(image[2], dtype, r * s.ld_c + c, sum);
        }
    size_t bytes = (size_t)(ROWS * s.ld_c) * tm_dtype_bytes(dtype);
    char  *got = malloc(bytes);
    if (tm_gpu_stream_wait(b->gpu, b->stream, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    assert_int_equal(tm_gpu_read(b->gpu, got, memory[2], bytes, &err), TM_OK);
    if (memcmp(got, image[2], bytes) != 0) fail_msg("%s: wrong, or written beside it", what);
    for (int i = 0; i < 6; i++) tm_gpu_free(b->gpu, memory[i]);
    for (int i = 0; i < 4; i++) free(image[i]);
    free(scale_a), free(scale_b), free(got);
}

static void products_of_codes_are_exact(void **state)
{
    static const struct {
        int         hip;
        const char *arch;
        int         version, fnuz;
    } on[] = { { 0, "sm_90", 120900, 0 }, { 1, "gfx942", 100000, 1 }, { 1, "gfx950", 100100, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        bench b = open_bench(on[i].hip, on[i].arch, on[i].version);
        for (unsigned x = 0; x < 3 * 2 * 2 * 2 * 2; x++) {
            tm_gpu_format e4m3 = on[i].fnuz ? TM_GPU_E4M3FNUZ : TM_GPU_E4M3,
                          e5m2 = on[i].fnuz ? TM_GPU_E5M2FNUZ : TM_GPU_E5M2;
            kind k = { .a = x % 3 == 1 ? e5m2 : e4m3,
                       .b = x % 3 == 2 ? e5m2 : e4m3,
                       .result = x / 3 & 1U ? TM_GPU_BF16 : TM_GPU_F32,
                       .rows = x / 6 & 1U,
                       .bias = x / 12 & 1U,
                       .adds = x / 24 & 1U };
            char what[80];
            if (k.bias && k.result == TM_GPU_F32) continue;
            snprintf(what, sizeof what, "%s, product %u", on[i].arch, x);
            check_product(&b, &k, what);
        }
        close_bench(&b);
    }
}

/* --- what is taken --------------------------------------------------------------------------------------------------
 */

static const char *const archs[][4] = { { "sm_80", "sm_89", "sm_90", "sm_100" },
                                        { "gfx90a", "gfx942", "gfx950", "gfx942" } };
static const int         versions[][2] = { { 120800, 120900 }, { 1200, 100000 } };

/* One of everything that rules speak of, drawn by chance. */
static tm_gpu_matmul_shape drawn(int hip, uint64_t i)
{
    static const int64_t sides[] = { 16, 48, 40, 24, 128, 17 };
#define DRAW(what, n) ((int)tm_random_below(77, (uint64_t)hip * 100 + (what), i, (n)))
    tm_gpu_matmul_shape s = { .factors = (tm_gpu_format)(TM_GPU_E4M3 + DRAW(0, 4)),
                              .second = (tm_gpu_format)(TM_GPU_E4M3 + DRAW(1, 4)),
                              .result = DRAW(2, 2) ? TM_GPU_F32 : TM_GPU_BF16,
                              .scales = DRAW(3, 2) ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES,
                              .a_across = DRAW(4, 6) == 0,
                              .b_across = DRAW(5, 6) == 0,
                              .bias = DRAW(6, 3) == 0,
                              .rows = sides[DRAW(7, 6)],
                              .columns = sides[DRAW(8, 6) / 2],
                              .depth = sides[DRAW(9, 6) / 2],
                              .workspace = WORKSPACE };
    s.ld_a = (s.a_across ? s.rows : s.depth) + (DRAW(10, 4) ? 0 : 8 * DRAW(11, 3));
    s.ld_b = (s.b_across ? s.columns : s.depth) + (DRAW(12, 4) ? 0 : 8 * DRAW(13, 3));
    s.ld_c = s.columns + (DRAW(14, 4) ? 0 : 4 * DRAW(15, 3));
#undef DRAW
    return s;
}

/* What the rules take the library takes: else a plan would not be what runs. They may be the stricter ones. */
static void what_the_rules_take_the_library_takes(void **state)
{
    enum { DRAWN = 3000 };
    (void)state;
    for (int hip = 0; hip < 2; hip++)
        for (int a = 0; a < 4; a++)
            for (int v = 0; v < 2; v++) {
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
    const char   *why; /* NULL: taken */
} rules[] = {
    { 0, "sm_80", 130000, TM_GPU_E4M3, TM_GPU_E4M3, false, "products of codes need sm_89 or later" },
    { 0, "sm_89", 120000, TM_GPU_E4M3, TM_GPU_E5M2, false, NULL },
    { 0, "sm_89", 130000, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need sm_90, no other GPU" },
    { 0, "sm_90", 120000, TM_GPU_E5M2, TM_GPU_E4M3, false, NULL },
    { 0, "sm_90", 120800, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need cublasLt 12.9" },
    { 0, "sm_90", 120900, TM_GPU_E4M3, TM_GPU_E4M3, true, NULL },
    { 0, "sm_90", 130100, TM_GPU_E5M2, TM_GPU_E5M2, false, "the library multiplies no e5m2 by e5m2" },
    { 0, "sm_90", 130100, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false,
      "NVIDIA's GPUs have OCP's formats of 8 bits, not FNUZ" },
    { 0, "sm_100", 130100, TM_GPU_E4M3, TM_GPU_E4M3, true, "scales of lines need sm_90, no other GPU" },
    { 0, NULL, INT32_MAX, TM_GPU_E4M3, TM_GPU_E4M3, true, NULL },
    { 1, "gfx942", 1000, TM_GPU_E4M3FNUZ, TM_GPU_E5M2FNUZ, false, NULL },
    { 1, "gfx942", 100000, TM_GPU_E4M3, TM_GPU_E4M3, false, "gfx942 has formats of FNUZ only (quantize.fnuz)" },
    { 1, "gfx950", 100000, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false,
      "gfx950 has OCP's formats only (quantize.fnuz false)" },
    { 1, "gfx950", 100000, TM_GPU_E5M2, TM_GPU_E5M2, false, NULL },
    { 1, "gfx942", 1200, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, true, "scales of lines need hipBLASLt 1.0" },
    { 1, "gfx942", 100000, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, true, NULL },
    { 1, "gfx90a", 100000, TM_GPU_E4M3, TM_GPU_E4M3, false, "products of codes need gfx942 or gfx950" },
    { 1, NULL, INT32_MAX, TM_GPU_E4M3, TM_GPU_E4M3FNUZ, false, "one factor is FNUZ, the other one OCP" },
    { 1, NULL, INT32_MAX, TM_GPU_E4M3FNUZ, TM_GPU_E4M3FNUZ, false, NULL },
};

static void rules_are_those_of_the_documents(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        kind                k = { .a = rules[i].a, .b = rules[i].b, .result = TM_GPU_BF16, .rows = rules[i].rows };
        tm_gpu_matmul_shape s = shape_of(&k);
        const char *why = tm_gpu_blas_refuse_codes((tm_gpu_maker)rules[i].hip, rules[i].arch, rules[i].version, &s);
        if (!why != !rules[i].why || (why && strcmp(why, rules[i].why) != 0))
            fail_msg("rule %d: '%s', wanted '%s'", (int)i, why ? why : "", rules[i].why ? rules[i].why : "");
    }
}

/* Of shapes: each by itself. */
static void shapes_that_no_product_of_codes_has(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        kind                k = { .a = TM_GPU_E4M3, .b = TM_GPU_E4M3, .result = TM_GPU_F32 };
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

/* --- mistakes -------------------------------------------------------------------------------------------------------
 */

static void mistakes_are_noticed(void **state)
{
    (void)state;
    bench               b = open_bench(0, "sm_90", 130100);
    kind                k = { .a = TM_GPU_E4M3, .b = TM_GPU_E4M3, .result = TM_GPU_BF16, .rows = true };
    tm_gpu_matmul_shape s = shape_of(&k);
    char               *image[3];
    void               *memory[3], *scales[2];
    const char         *why;
    tm_gpu_matmul      *found;
    tm_error            err = { 0 };
    float              *first = scales_of(&b, ROWS, 0, &scales[0]), *second = scales_of(&b, COLUMNS, 0, &scales[1]);
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

static const struct CMUnitTest tests[] = { cmocka_unit_test(products_of_codes_are_exact),
                                           cmocka_unit_test(what_the_rules_take_the_library_takes),
                                           cmocka_unit_test(rules_are_those_of_the_documents),
                                           cmocka_unit_test(shapes_that_no_product_of_codes_has),
                                           cmocka_unit_test(mistakes_are_noticed) };

TM_TESTS(tests, NULL, NULL)
