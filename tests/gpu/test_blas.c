/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries of matrix products, of both makers, over stand-ins: every layout, format, bias and sum exact and
 * nothing written beside them; in a graph; what is said where a library is missing, old, refuses, or fails. */
#include "gpu/blas_bench.h"

#include "support/folder.h"
#include "support/test.h"

static const char *const names[] = { "cublasLt 13.1.0", "hipBLASLt 1.1.0" };

TEST(all_products_are_exact)
{
    static const tm_gpu_format formats[][2] = { { TM_GPU_F32, TM_GPU_F32 },
                                                { TM_GPU_BF16, TM_GPU_F32 },
                                                { TM_GPU_BF16, TM_GPU_BF16 },
                                                { TM_GPU_F16, TM_GPU_F32 },
                                                { TM_GPU_F16, TM_GPU_F16 } };
    enum { FORMATS = sizeof formats / sizeof formats[0] };
    for (int hip = 0; hip < 2; hip++) {
        blas_bench b = blas_open(hip, NULL, 0);
        assert_string_equal(tm_gpu_blas_name(b.blas), names[hip]);
        assert_non_null(strstr(tm_gpu_blas_library(b.blas), hip ? "/hipblaslt.so" : "/cublaslt.so"));
        for (unsigned x = 0; x < FORMATS * 4U * 2 * BLAS_OLDS * 2 * 2; x++) {
            blas_kind           k = { .a = formats[x % FORMATS][0],
                                      .result = formats[x % FORMATS][1],
                                      .a_across = x / FORMATS & 1U,
                                      .b_across = x / FORMATS / 2 & 1U,
                                      .bias = x / FORMATS / 4 & 1U,
                                      .odd = x / FORMATS / 8 & 1U,
                                      .gap = x / FORMATS / 16 & 1U ? 3 : 0,
                                      .old = (blas_old)(x / FORMATS / 32 % BLAS_OLDS) };
            tm_gpu_matmul_shape s = blas_shape(&k);
            blas_product        p = blas_product_make(&b, &k, &s);
            tm_error            err = { 0 };
            char                what[80];
            snprintf(what, sizeof what, "%s, product %u", names[hip], x);
            if (blas_multiply(&b, &p, &err) != TM_OK) fail_msg("%s: %s", what, err.text);
            blas_check(&b, &p, 1, what);
        }
        blas_close(&b);
    }
}

TEST(in_a_graph_each_play_adds)
{
    for (int hip = 0; hip < 2; hip++) {
        blas_bench          b = blas_open(hip, NULL, 0);
        blas_kind           k = { .a = TM_GPU_BF16, .result = TM_GPU_F32, .old = BLAS_ITSELF, .b_across = true };
        tm_gpu_matmul_shape s = blas_shape(&k);
        blas_product        p = blas_product_make(&b, &k, &s);
        tm_error            err = { 0 };
        void               *graph;
        assert_int_equal(tm_gpu_capture_begin(b.gpu, b.stream, &err), TM_OK);
        assert_int_equal(blas_multiply(&b, &p, &err), TM_OK);
        assert_int_equal(tm_gpu_capture_end(b.gpu, b.stream, &graph, &err), TM_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(tm_gpu_graph_play(b.gpu, graph, b.stream, &err), TM_OK);
        blas_check(&b, &p, 3, names[hip]);
        tm_gpu_graph_close(b.gpu, graph);
        blas_close(&b);
    }
}

TEST(a_shape_is_asked_for_once)
{
    for (int hip = 0; hip < 2; hip++) {
        blas_bench          b = blas_open(hip, NULL, 0);
        blas_kind           k = { .a = TM_GPU_BF16, .result = TM_GPU_BF16 };
        tm_gpu_matmul_shape s = blas_shape(&k), wider = s, roomier = s;
        tm_gpu_matmul      *found[4];
        const char         *why;
        tm_error            err = { 0 };
        wider.ld_c++, roomier.workspace++;
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found[0], &why, &err), TM_OK);
        assert_int_equal(tm_gpu_blas_find(b.blas, &wider, &found[1], &why, &err), TM_OK);
        assert_int_equal(tm_gpu_blas_find(b.blas, &roomier, &found[2], &why, &err), TM_OK);
        setenv("STANDIN_BLAS_FAIL", "cublasLtMatmulAlgoGetHeuristic@1=14", 1);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found[3], &why, &err), TM_OK);
        unsetenv("STANDIN_BLAS_FAIL");
        assert_ptr_equal(found[0], found[3]);
        assert_ptr_not_equal(found[0], found[1]);
        assert_ptr_not_equal(found[0], found[2]);
        blas_close(&b);
    }
}

/* --- what is missing, refused, or fails ------------------------------------------------------------- */

TEST(what_is_refused_says_why)
{
    for (int hip = 0; hip < 2; hip++) {
        blas_bench          b = blas_open(hip, NULL, 0);
        blas_kind           k = { .a = TM_GPU_F32, .result = TM_GPU_F32 };
        tm_gpu_matmul_shape s = blas_shape(&k);
        tm_gpu_matmul      *found;
        const char         *why, *again;
        char                want[120];
        tm_error            err = { 0 };
        snprintf(want, sizeof want, "%s has no algorithm for 5 x 7 x 9 with 65536 bytes of workspace", names[hip]);
        setenv("STANDIN_BLAS_REFUSES", "9", 1);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_UNSUPPORTED);
        unsetenv("STANDIN_BLAS_REFUSES");
        assert_string_equal(why, want);
        assert_string_equal(err.text, want);
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &again, &err), TM_UNSUPPORTED);
        assert_ptr_equal(why, again);
        s.depth++, s.ld_a++, s.ld_b++;
        assert_int_equal(tm_gpu_blas_find(b.blas, &s, &found, &why, &err), TM_OK);
        assert_null(why);
        blas_close(&b);
    }
}

TEST(what_is_not_there)
{
    static const char *const install[] = { "no cublasLt was found (/nowhere/l.so: ",
                                           "no hipBLASLt was found (/nowhere" };
    static const char *const old[] = { "is cublasLt 11.11.3: too old, 12.0.0 is needed",
                                       "is hipBLASLt 0.9.99: too old, 0.10.0 (ROCm 6.3) is needed" };
    static const char *const first[] = { "has no cublasLtGetVersion: it is too old, or no cublasLt",
                                         "has no hipblasLtGetVersion: it is too old, or no hipBLASLt" };
    tm_error                 err;
    for (int hip = 0; hip < 2; hip++) {
        blas_use(hip);
        assert_int_equal(blas_try_open(hip, &err), TM_OK);
        setenv("STANDIN_BLAS_VERSION", hip ? "999" : "111103", 1);
        assert_int_equal(blas_try_open(hip, &err), TM_UNSUPPORTED);
        unsetenv("STANDIN_BLAS_VERSION");
        assert_non_null(strstr(err.text, old[hip]));
        setenv(blas_variable(hip), "/nowhere/l.so", 1);
        assert_int_equal(blas_try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, install[hip]));
        assert_non_null(strstr(err.text, hip ? "`apt-get install hipblaslt`" : "`pip install nvidia-cublas`"));
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_UNSUPPORTED);
        setenv(blas_variable(hip), "none", 1);
        assert_int_equal(blas_try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, "is 'none': no library multiplies"));
        setenv(blas_variable(hip), test_built(hip ? "standins/hiprtc.so" : "standins/nvrtc.so"), 1);
        assert_int_equal(blas_try_open(hip, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, first[hip]));
        unsetenv(blas_variable(hip));
    }
}

/* Where there is no GPU the library is taken for granted, and not begun: the one of AMD would end the process. */
TEST(without_a_gpu_it_is_expected)
{
    tm_error err = { 0 };
    for (int hip = 0; hip < 2; hip++) {
        blas_use(hip);
        setenv("STANDIN_GPUS", "0", 1);
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_OK);
        unsetenv(blas_variable(hip));
        assert_int_equal(tm_gpu_blas_expect((tm_gpu_maker)hip, &err), TM_OK);
        unsetenv("STANDIN_GPUS");
    }
}

TEST(each_function_that_fails_is_named)
{
    static const struct {
        const char *name;
        bool        opens;
    } functions[] = { { "cublasLtCreate", true },
                      { "cublasLtMatmulDescCreate", false },
                      { "cublasLtMatmulDescSetAttribute", false },
                      { "cublasLtMatrixLayoutCreate", false },
                      { "cublasLtMatmulPreferenceCreate", false },
                      { "cublasLtMatmulPreferenceSetAttribute", false },
                      { "cublasLtMatmulAlgoGetHeuristic", false },
                      { "cublasLtMatmul", false } };
    for (int hip = 0; hip < 2; hip++)
        for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
            blas_kind  k = { .a = TM_GPU_BF16, .result = TM_GPU_BF16, .bias = true };
            blas_bench b = { 0 };
            char       told[96], want[160];
            tm_error   err = { 0 };
            blas_use(hip);
            if (!functions[i].opens) b = blas_open(hip, NULL, 0);
            snprintf(told, sizeof told, "%s@1=%d", functions[i].name, hip ? 6 : 14);
            snprintf(want, sizeof want, "GPU 0 (a stand-in): %s%s%s: an internal error (status %d of %s",
                     hip ? "hip" : "cu", functions[i].name + 2, functions[i].opens ? "" : " of 5 x 7 x 9", hip ? 6 : 14,
                     functions[i].opens && hip ? "hipBLASLt)" : names[hip]);
            setenv("STANDIN_BLAS_FAIL", told, 1);
            if (functions[i].opens) {
                assert_int_equal(blas_try_open(hip, &err), TM_DEVICE);
                assert_non_null(strstr(err.text, "=none leaves the library out"));
            } else {
                tm_gpu_matmul_shape s = blas_shape(&k);
                blas_product        p = blas_product_make(&b, &k, &s);
                assert_int_equal(blas_multiply(&b, &p, &err), TM_DEVICE);
                blas_product_free(&b, &p);
            }
            unsetenv("STANDIN_BLAS_FAIL");
            if (!strstr(err.text, want)) fail_msg("'%s' is not in '%s'", want, err.text);
            if (!functions[i].opens) blas_close(&b);
        }
}
