/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes by the libraries of both makers, over stand-ins: values, with scales of matrices, of rows and of
 * blocks; what is taken is taken by the library, for any version, architecture and shape; what is not is said. */
#include "base/random.h"
#include "gpu/blas_bench.h"

#include "support/test.h"

static void check_product(const blas_bench *b, const blas_kind *k, const char *what)
{
    tm_gpu_matmul_shape s = blas_shape(k);
    blas_product        p = blas_product_make(b, k, &s);
    tm_error            err = { 0 };
    if (blas_multiply(b, &p, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
    blas_check(b, &p, 1, what);
}

TEST(products_of_codes_are_exact)
{
    static const struct {
        int         hip;
        const char *arch;
        int         version, fnuz;
    } on[] = { { 0, "sm_90", 120900, 0 }, { 1, "gfx942", 100000, 1 }, { 1, "gfx950", 100100, 0 } };
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        blas_bench b = blas_open(on[i].hip, on[i].arch, on[i].version);
        for (unsigned x = 0; x < 3 * 2 * 2 * 2 * 2; x++) {
            tm_gpu_format e4m3 = on[i].fnuz ? TM_GPU_E4M3FNUZ : TM_GPU_E4M3,
                          e5m2 = on[i].fnuz ? TM_GPU_E5M2FNUZ : TM_GPU_E5M2;
            blas_kind k = { .a = x % 3 == 1 ? e5m2 : e4m3,
                            .b = x % 3 == 2 ? e5m2 : e4m3,
                            .result = x / 3 & 1U ? TM_GPU_BF16 : TM_GPU_F32,
                            .scales = x / 6 & 1U ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES,
                            .bias = x / 12 & 1U,
                            .old = x / 24 & 1U ? BLAS_ITSELF : BLAS_NONE };
            char      what[80];
            k.second_scales = k.scales;
            if (k.bias && k.result == TM_GPU_F32) continue;
            snprintf(what, sizeof what, "%s, product %u", on[i].arch, x);
            check_product(&b, &k, what);
        }
        blas_close(&b);
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
    blas_bench                 b = { 0 }; /* of one GPU for all its kinds: no product is taken for another */
    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        if (i == 0 || strcmp(on[i].arch, on[i - 1].arch) != 0) b = blas_open(on[i].hip, on[i].arch, on[i].version);
        for (unsigned x = 0; x < 3 * 2; x++) {
            blas_kind k = { .a = formats[x / 2][0],
                            .b = formats[x / 2][1],
                            .result = x % 2 ? TM_GPU_BF16 : TM_GPU_F32,
                            .scales = on[i].scales,
                            .second_scales = on[i].second,
                            .bias = x % 2 && !on[i].hip,
                            .old = x / 2 == 1 ? BLAS_ITSELF : BLAS_NONE };
            char      what[80];
            if (k.a == TM_GPU_E2M1 && !on[i].hip) continue;
            snprintf(what, sizeof what, "%s, scales %d and %d, %u", on[i].arch, (int)k.scales, (int)k.second_scales, x);
            check_product(&b, &k, what);
        }
        if (i + 1 == sizeof on / sizeof on[0] || strcmp(on[i].arch, on[i + 1].arch) != 0) blas_close(&b);
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
                              .workspace = BLAS_WORKSPACE };
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
                blas_bench b = blas_open(hip, archs[hip][a], versions[hip][v]);
                int        taken = 0, stricter = 0;
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
                blas_close(&b);
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
        blas_kind           k = { .a = rules[i].a,
                                  .b = rules[i].b,
                                  .result = TM_GPU_BF16,
                                  .scales = blocks ? rules[i].scales : plain,
                                  .second_scales = blocks ? rules[i].second : plain };
        tm_gpu_matmul_shape s = blas_shape(&k);
        if (blocks) s.depth = s.ld_a = s.ld_b = 384;
        const char *why = tm_gpu_blas_refuse_codes((tm_gpu_maker)rules[i].hip, rules[i].arch, rules[i].version, &s);
        if (!why != !rules[i].why || (why && strcmp(why, rules[i].why) != 0))
            fail_msg("rule %d: '%s', wanted '%s'", (int)i, why ? why : "", rules[i].why ? rules[i].why : "");
    }
}

/* Of shapes: each by itself. */
TEST(shapes_that_no_product_of_codes_has)
{
    for (int i = 0; i < 8; i++) {
        blas_kind           k = { .a = TM_GPU_E4M3,
                                  .b = TM_GPU_E4M3,
                                  .result = TM_GPU_F32,
                                  .scales = TM_GPU_SCALES_OF_MATRICES,
                                  .second_scales = TM_GPU_SCALES_OF_MATRICES };
        tm_gpu_matmul_shape s = blas_shape(&k);
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
        blas_kind           k = { .a = i == 5 ? TM_GPU_E2M1 : TM_GPU_E4M3,
                                  .b = TM_GPU_E4M3,
                                  .result = TM_GPU_BF16,
                                  .scales = hip ? TM_GPU_SCALES_ROW_BY_ROW : TM_GPU_SCALES_OF_RUNS,
                                  .second_scales = hip ? TM_GPU_SCALES_ROW_BY_ROW : TM_GPU_SCALES_OF_SQUARES };
        const char         *wanted = rows, *why;
        tm_gpu_matmul_shape s = blas_shape(&k);
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
