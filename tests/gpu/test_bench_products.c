/* SPDX-License-Identifier: Apache-2.0 */
/* `bench gemm` on the devices cuda and hip, whose kernels run as machine code: every layout by both engines is right, a
 * wrong element is found, what does not fit is skipped, a call that fails is told and nothing stays behind. */
#include "apps/bench/product.h"
#include "graph/value.h"
#include "gpu/benched.h"
#include "support/folder.h"

/* --- right products -------------------------------------------------------------------------------------------------
 */

static void check_rows(const measured *m, int hip, const char *what)
{
    for (size_t row = 0; row < tm_table_n_rows(m->table); row++) {
        const tm_cell *correct = cell(m, row, "correct"), *time = cell(m, row, "avg_time_ms");
        const char    *engine = text(m, row, "engine");
        if (strcmp(engine, row % 2 ? libraries[hip] : "trainmark") != 0) fail_msg("%s, row %zu: %s", what, row, engine);
        assert_string_equal(text(m, row, "device"), devices[hip]);
        assert_int_equal(cell(m, row, "threads")->kind, TM_CELL_EMPTY);
        assert_int_equal(cell(m, row, "peak_pct")->kind, TM_CELL_EMPTY);
        if (cell(m, row, "trans_a")->truth && cell(m, row, "trans_b")->truth) {
            assert_non_null(strstr(text(m, row, "skipped"), "both factors transposed"));
            continue;
        }
        if (*text(m, row, "skipped")) fail_msg("%s, row %zu: skipped: %s", what, row, text(m, row, "skipped"));
        if (correct->kind != TM_CELL_BOOL || !correct->truth || !(time->f64 > 0))
            fail_msg("%s, row %zu: %s, not right", what, row, text(m, row, "case"));
        assert_true(cell(m, row, "error_of_bound")->f64 <= 1);
    }
}

/* In all layouts, by our kernels and by the library; sizes are no multiples of a tile. */
static void products_are_right(int hip)
{
    static const char *const formats[] = { "dtype=fp32", "dtype=bf16", "dtype=bf16 c-dtype=fp32" };
    begin(hip);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char words[160];
        snprintf(words, sizeof words,
                 "shapes=48x32x16:nn,17x72x40:nt,16x33x65:tn,8x8x8:tt libraries=true cache=both %s", formats[i]);
        measured m = measure("gemm", devices[hip], words);
        if (m.status != TM_OK) fail_msg("%s: %s", words, m.err.text);
        assert_int_equal(tm_table_n_rows(m.table), 4 * 2 * 2);
        check_rows(&m, hip, formats[i]);
        assert_true(has_note(&m, "no data sheet of 'a stand-in'"));
        assert_true(has_note(&m, libraries[hip]));
        tm_table_destroy(m.table);
    }
    check_nothing_is_left(hip, "after all");
}

TEST_ON(cuda, TEST, multiplies, products_are_right(0))
TEST_ON(hip, FULL_TEST, multiplies, products_are_right(1))

/* float16 is the library's alone; codes of 8 bits are multiplied by both, along the rows of both factors. */
static void narrow_products_are_right(int hip)
{
    const char *codes = hip ? "float8_e4m3fnuz" : "float8_e4m3", *reason;
    char        words[160];
    begin(hip);
    measured m = measure("gemm", devices[hip], "shapes=48x32x16:nn,17x72x40:nt,16x33x65:tn libraries=true dtype=fp16");
    if (m.status != TM_OK) fail_msg("%s", m.err.text);
    for (size_t row = 0; row < 6; row++) {
        bool by_library = strcmp(text(&m, row, "engine"), libraries[hip]) == 0;
        assert_string_equal(text(&m, row, "c_dtype"), "float16");
        assert_true(by_library ? cell(&m, row, "correct")->truth
                               : strstr(text(&m, row, "skipped"), "takes float32 and bfloat16") != NULL);
    }
    tm_table_destroy(m.table);
    snprintf(words, sizeof words, "shapes=48x32x64,64x96x128:nt,32x32x48:tn libraries=true cache=both dtype=%s", codes);
    m = measure("gemm", devices[hip], words);
    if (m.status != TM_OK) fail_msg("%s", m.err.text);
    for (size_t row = 0; row < 12; row++) {
        reason = text(&m, row, "skipped");
        assert_string_equal(text(&m, row, "dtype"), codes);
        assert_string_equal(text(&m, row, "c_dtype"), "bfloat16");
        assert_true(cell(&m, row, "trans_a")->truth ? strstr(reason, "along the rows of both factors") != NULL
                                                    : !*reason && cell(&m, row, "correct")->truth);
    }
    tm_table_destroy(m.table);
    setenv("STANDIN_BLAS_WRONG", "4", 1);
    snprintf(words, sizeof words, "M=64 N=96 K=512 dtype=%s library=%s", codes, libraries[hip]);
    ends("gemm", devices[hip], words, TM_NUMBERS, "wrong result");
    check_nothing_is_left(hip, "narrow products");
}

TEST_ON(cuda, FULL_TEST, multiplies_narrow_ones, narrow_products_are_right(0))
TEST_ON(hip, TEST, multiplies_narrow_ones, narrow_products_are_right(1))

/* cuBLAS or rocBLAS, which nothing trains by: in turns with the others, or alone. */
static void other_library_is_right(int hip)
{
    static const char *const formats[] = { "fp32", "bf16", "bf16 c-dtype=fp32", "fp16", "fp16 c-dtype=fp32" };
    const char *variable = hip ? "TRAINMARK_ROCBLAS" : "TRAINMARK_CUBLAS", *other = hip ? "rocBLAS" : "cuBLAS";
    char        words[160];
    begin(hip);
    setenv(variable, getenv(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT"), 1); /* one file stands in for both */
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        snprintf(words, sizeof words, "shapes=48x32x16:nn,17x72x40:nt,16x33x65:tn library=%s dtype=%s", other,
                 formats[i]);
        int      before = count_of(variable, "standin_other_multiplied");
        measured m = measure("gemm", devices[hip], words);
        if (m.status != TM_OK) fail_msg("%s: %s", words, m.err.text);
        assert_true(count_of(variable, "standin_other_multiplied") > before + 3);
        for (size_t row = 0; row < 3; row++) {
            assert_string_equal(text(&m, row, "engine"), other);
            if (!cell(&m, row, "correct")->truth) fail_msg("%s, row %zu", words, row);
        }
        tm_table_destroy(m.table);
    }
    measured m = measure("gemm", devices[hip], "M=16 N=24 K=32 libraries=true");
    assert_int_equal(m.status, TM_OK);
    assert_int_equal(tm_table_n_rows(m.table), 3);
    assert_string_equal(text(&m, 1, "engine"), libraries[hip]);
    assert_string_equal(text(&m, 2, "engine"), other);
    assert_true(has_note(&m, hip ? "nothing trains by rocBLAS 5.1.2" : "nothing trains by cuBLAS 13.1.0"));
    tm_table_destroy(m.table);
    const char *alone = hip ? "M=16 N=16 K=16 library=rocBLAS" : "M=16 N=16 K=16 library=cuBLAS";
    ends("gemm", devices[hip],
         hip ? "M=16 N=16 K=16 library=rocBLAS dtype=float8_e4m3fnuz"
             : "M=16 N=16 K=16 library=cuBLAS dtype=float8_e4m3",
         TM_NUMBERS, "it multiplies no codes of 8 bits");
    /* What fails is told where it is wanted, and left out where all are. */
    setenv("STANDIN_BLAS_FAIL", "cublasCreate_v2@1=1", 1);
    ends("gemm", devices[hip], alone, TM_UNSUPPORTED,
         hip ? "rocblas_create_handle: status 1" : "cublasCreate_v2: status 1");
    ends("gemm", devices[hip], "M=16 N=16 K=16 libraries=true", TM_OK, "not measured: GPU ");
    setenv("STANDIN_BLAS_FAIL", "cublasGemmEx@1=14", 1);
    ends("gemm", devices[hip], alone, TM_DEVICE, "");
    unsetenv("STANDIN_BLAS_FAIL");
    setenv(variable, "/nowhere/lib.so", 1);
    ends("gemm", devices[hip], alone, TM_UNSUPPORTED, hip ? "apt-get install rocblas" : "pip install nvidia-cublas");
    check_nothing_is_left(hip, "the other library");
}

TEST_ON(cuda, FULL_TEST, the_other_library_multiplies, other_library_is_right(0))
TEST_ON(hip, TEST, the_other_library_multiplies, other_library_is_right(1))

/* float32 whose factors the library may round: within the bound of that, and not within that of float32. */
TEST(tf32_is_named_and_bounded)
{
    begin(0);
    measured m = measure("gemm", "cuda", "shapes=48x32x64:nn,17x72x40:nt,16x33x65:tn libraries=true dtype=tf32");
    if (m.status != TM_OK) fail_msg("%s", m.err.text);
    for (size_t row = 0; row < 6; row++) {
        bool library = strcmp(text(&m, row, "engine"), "cublasLt") == 0;
        assert_string_equal(text(&m, row, "dtype"), "tf32");
        assert_string_equal(text(&m, row, "c_dtype"), "float32");
        assert_true(library ? cell(&m, row, "correct")->truth : strstr(text(&m, row, "skipped"), "TF32") != NULL);
    }
    tm_table_destroy(m.table);
    tm_product       p = { .m = 32, .n = 32, .k = 64, .dtype = TM_F32, .c_dtype = TM_F32, .tf32 = true };
    tm_operands      o;
    tm_bench         bench = { .threads = 1, .seed = 3 };
    tm_product_check check;
    tm_error         err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &bench.device, &err), TM_OK);
    tm_operands_plan(&o, &p, false);
    assert_int_equal(tm_operands_fill(&o, &bench, &err), TM_OK);
    for (int64_t i = 0; i < p.m * p.n; i++) { /* factors cut off to 10 bits of fraction */
        double sum = 0;
        for (int64_t k = 0; k < p.k; k++) {
            uint32_t bits[2];
            float    factor[2];
            memcpy(&bits[0], (float *)tm_operands_a(&o, 0) + i / p.n * p.k + k, 4);
            memcpy(&bits[1], (float *)tm_operands_b(&o, 0) + k * p.n + i % p.n, 4);
            for (int f = 0; f < 2; f++) bits[f] &= ~(uint32_t)0x1fff, memcpy(&factor[f], &bits[f], 4);
            sum += (double)factor[0] * (double)factor[1];
        }
        ((float *)tm_operands_c(&o, 0))[i] = (float)sum;
    }
    tm_product_verify(&o, 0, 1, 1, &check);
    assert_true(check.correct);
    o.product.tf32 = false;
    tm_product_verify(&o, 0, 1, 1, &check);
    assert_false(check.correct);
    tm_operands_release(&o, &bench);
    tm_device_close(bench.device);
    ends("gemm", "cpu", "M=16 N=16 K=16 dtype=tf32", TM_INVALID, "");
    ends("gemm", "cuda", "M=16 N=16 K=16 dtype=tf32 library=cublasLt", TM_OK, NULL);
    check_nothing_is_left(false, "TF32");
}

/* Units that keep 14 bits of a sum: each step of 32 terms is cut off. Right for codes, wrong for formats of 16 bits. */
TEST(codes_have_a_bound_of_their_own)
{
    enum { N = 16, K = 1024, STEP = 32 };
    static const tm_dtype formats[] = { TM_E4M3, TM_BF16 };
    tm_bench              bench = { .threads = 1, .seed = 3 };
    tm_error              err = { 0 };
    assert_int_equal(tm_device_open("cpu", 1, &bench.device, &err), TM_OK);
    for (int f = 0; f < 2; f++) {
        tm_product  p = { .m = N, .n = N, .k = K, .trans_b = true, .dtype = formats[f], .c_dtype = TM_F32 };
        tm_operands o;
        tm_operands_plan(&o, &p, false);
        assert_int_equal(tm_operands_fill(&o, &bench, &err), TM_OK);
        for (int64_t i = 0; i < N * N; i++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) {
                int exponent;
                sum += tm_value_get(tm_operands_a(&o, 0), p.dtype, i / N * K + k) *
                       tm_value_get(tm_operands_b(&o, 0), p.dtype, i % N * K + k);
                if ((k + 1) % STEP != 0) continue;
                double fraction = frexp(sum, &exponent);
                sum = ldexp(trunc(ldexp(fraction, 14)), exponent - 14);
            }
            ((float *)tm_operands_c(&o, 0))[i] = (float)sum;
        }
        tm_product_check check;
        tm_product_verify(&o, 0, 1, 1, &check);
        if (check.correct != (formats[f] == TM_E4M3))
            fail_msg("%s: %g of its bound %g, found %g, wanted %g", tm_dtype_name(p.dtype), check.worst, check.bound,
                     check.found, check.wanted);
        tm_operands_release(&o, &bench);
    }
    tm_device_close(bench.device);
}

TEST(of_a_model_all_codes_are_summed_along_rows)
{
    begin(1);
    measured m = measure("gemm", "hip", "model=tiny-llama seq=64 scale=4 dtype=float8_e4m3fnuz");
    assert_int_equal(m.status, TM_OK);
    for (size_t row = 0; row < tm_table_n_rows(m.table); row++)
        assert_true(cell(&m, row, "trans_b")->truth && cell(&m, row, "correct")->truth);
    tm_table_destroy(m.table);
    ends("gemm", "hip", "M=16 N=16 K=16 dtype=fp8 trans_a=true", TM_INVALID, "leave --trans_a and --trans_b out");
    ends("gemm", "cpu", "M=16 N=16 K=16 dtype=fp8", TM_INVALID, "add --device cuda or --device hip");
}

/* Without a word about engines it is what training takes: the library, else our kernel. */
FULL_TEST(engines)
{
    begin(1);
    measured m = measure("gemm", "hip:2", "M=16 N=16 K=16");
    assert_int_equal(m.status, TM_OK);
    assert_string_equal(text(&m, 0, "engine"), "hipBLASLt");
    assert_string_equal(text(&m, 0, "device"), "hip:2");
    tm_table_destroy(m.table);
    ends("gemm", "hip", "M=16 N=16 K=16 dtype=fp32 c-dtype=bf16 library=HIPBLASLT", TM_NUMBERS,
         "linear_dgrad/library: the library leaves a product of float32 in float32");
    ends("gemm", "hip", "M=16 N=16 K=16 library=MKL", TM_UNSUPPORTED, "--library MKL: device hip has hipBLASLt");
    setenv("TRAINMARK_HIPBLASLT", "none", 1);
    m = measure("gemm", "hip", "M=16 N=16 K=16 libraries=true");
    assert_int_equal(m.status, TM_OK);
    assert_int_equal(tm_table_n_rows(m.table), 1);
    assert_string_equal(text(&m, 0, "engine"), "trainmark");
    assert_true(has_note(&m, "no library of products"));
    tm_table_destroy(m.table);
    ends("gemm", "hip", "M=16 N=16 K=16 library=hipBLASLt", TM_UNSUPPORTED,
         "device hip has no library of products here");
}

static int lines_of(const char *path)
{
    char  line[1024];
    int   n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) n++;
    if (f) fclose(f);
    return n;
}

/* As in training: measured and written by one, taken over by the next. */
FULL_TEST(tuned_algorithms_are_taken)
{
    char path[4200];
    begin(1);
    snprintf(path, sizeof path, "%s/products.jsonl", test_folder());
    setenv("STANDIN_BLAS_CHOICES", "3", 1);
    setenv("TRAINMARK_PRODUCTS", path, 1);
    for (int taken = 0; taken < 2; taken++) {
        setenv("TRAINMARK_PRODUCTS_TUNE", taken ? "" : "3", 1);
        measured m = measure("gemm", "hip", "shapes=16x24x32,16x24x32:nt");
        if (m.status != TM_OK) fail_msg("%s", m.err.text);
        assert_true(has_note(&m, "products by hipBLASLt 1.1.0, 2 of them tuned"));
        assert_int_equal(count_of("TRAINMARK_HIPBLASLT", "standin_blas_number"), 2); /* the others are slow */
        assert_int_equal(lines_of(path), 3);
        tm_table_destroy(m.table);
    }
}

/* Sets of operands are more than twice the cache, and all are the first one. */
TEST(sets_are_beyond_the_cache)
{
    tm_product  p = { .m = 24, .n = 32, .k = 40, .dtype = TM_F32, .c_dtype = TM_F32 };
    tm_operands o;
    tm_bench    bench = { .threads = 1, .seed = 3 };
    tm_error    err = { 0 };
    begin(0);
    assert_int_equal(tm_device_open("cuda", 1, &bench.device, &err), TM_OK);
    assert_int_equal(tm_device_describe(bench.device)->cache_bytes, 20000);
    tm_operands_plan_there(&o, &p, false, bench.device);
    assert_int_equal(o.sets, 1);
    tm_operands_plan_there(&o, &p, true, bench.device);
    size_t one = o.bytes / (size_t)o.sets;
    assert_true(o.bytes > 40000 && o.sets >= 2);
    assert_int_equal(tm_operands_fill_there(&o, &bench, &err), TM_OK);
    char *there = malloc(one);
    for (int64_t set = 0; set < o.sets; set++) {
        tm_address at = tm_operands_there(&o, set + o.sets);
        assert_true(at.at == o.there.at + (size_t)set * one);
        assert_int_equal(tm_device_read(bench.device, there, at, one, &err), TM_OK);
        assert_int_equal(tm_device_wait(bench.device, &err), TM_OK);
        for (int part = 0; part < 2; part++) { /* what pads them is nobody's */
            size_t from = part ? o.a_bytes : 0, n = (size_t)(part ? p.k * p.n : p.m * p.k) * sizeof(float);
            assert_memory_equal(there + from, o.memory + from, n);
        }
        float c;
        memcpy(&c, there + o.a_bytes + o.b_bytes, sizeof c);
        assert_true(isnan(c));
    }
    free(there);
    tm_operands_release_there(&o);
    tm_device_close(bench.device);
    check_nothing_is_left(false, "the operands");
}

/* --- what is wrong --------------------------------------------------------------------------------------------------
 */

TEST(a_wrong_element_is_found)
{
    begin(1);
    setenv("STANDIN_BLAS_WRONG", "0.25", 1);
    measured m = measure("gemm", "hip", "M=16 N=24 K=32 libraries=true");
    assert_int_equal(m.status, TM_NUMBERS);
    assert_non_null(strstr(m.err.text, "hipBLASLt 16x24x32:nn: wrong result: C[15][23] is "));
    assert_true(cell(&m, 0, "correct")->truth);
    assert_false(cell(&m, 1, "correct")->truth);
    assert_true(cell(&m, 1, "error_of_bound")->f64 > 1);
    tm_table_destroy(m.table);
}

TEST(what_does_not_fit_is_skipped)
{
    begin(0);
    measured m = measure("gemm", "cuda", "shapes=65536x65536x16,16x16x16");
    assert_int_equal(m.status, TM_OK);
    if (!strstr(text(&m, 0, "skipped"), "GiB of the GPU's memory, it has 4.00 GiB"))
        fail_msg("%s", text(&m, 0, "skipped"));
    assert_true(cell(&m, 1, "correct")->truth);
    tm_table_destroy(m.table);
    setenv("STANDIN_GPU_FAIL", "cuMemAlloc_v2@2=2", 1); /* behind the workspace: others have the memory */
    m = measure("gemm", "cuda", "shapes=16x16x16,16x16x24");
    unsetenv("STANDIN_GPU_FAIL");
    assert_int_equal(m.status, TM_NUMBERS);
    for (size_t row = 0; row < 2; row++)
        if (!strstr(text(&m, row, "skipped"), "has no memory for ")) fail_msg("%s", text(&m, row, "skipped"));
    tm_table_destroy(m.table);
    check_nothing_is_left(false, "memory");
}

/* A clock that hardly moves. */
TEST(nothing_is_faster_than_its_data_sheet)
{
    begin(1);
    setenv("STANDIN_GPU_NAME", "AMD Instinct MI300X", 1);
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open("hip", 1, &device, &err), TM_OK);
    assert_int_equal(tm_device_describe(device)->cache_bytes, 256 << 20); /* behind its L2 */
    tm_device_close(device);
    measured m = measure("gemm", "hip", "M=16 N=16 K=16 cache=warm");
    if (m.status != TM_OK) fail_msg("%s", m.err.text);
    double flops = 2. * 16 * 16 * 16 / (cell(&m, 0, "avg_time_ms")->f64 * 1e-3);
    assert_true(fabs(cell(&m, 0, "peak_pct")->f64 / (100 * flops / 163.4e12) - 1) < 1e-9);
    assert_true(has_note(
        &m, "peak of peak_pct, by the data sheet: 163.4 TFLOP/s float32, 1307 of 16 bits, 2615 of 8 bits, dense"));
    tm_table_destroy(m.table);
    m = measure("gemm", "hip", "M=16 N=16 K=16 cache=warm dtype=float8_e4m3fnuz");
    flops = 2. * 16 * 16 * 16 / (cell(&m, 0, "avg_time_ms")->f64 * 1e-3);
    assert_true(fabs(cell(&m, 0, "peak_pct")->f64 / (100 * flops / 2614.9e12) - 1) < 1e-9);
    tm_table_destroy(m.table);
    setenv("STANDIN_GPU_HASTE", "1e9", 1);
    m = measure("gemm", "hip", "M=16 N=16 K=16 cache=warm dtype=bf16 budget=1000");
    assert_int_equal(m.status, TM_NUMBERS);
    if (!strstr(m.err.text, "times what the data sheet says (1.307e+15, AMD Instinct MI300X data sheet)"))
        fail_msg("%s", m.err.text);
    tm_table_destroy(m.table);
}

/* The call fails where `variable` says so, and is named. */
static void is_told(const char *variable, const char *told, const char *call, const char *words)
{
    setenv(variable, told, 1);
    ends("gemm", "cuda", words, TM_DEVICE, call);
    unsetenv(variable);
    check_nothing_is_left(false, told);
}

/* Of the runtime's calls and of the library's, the first or a later one. */
TEST(a_call_that_fails_is_told)
{
    static const char calls[] =
        "cuInit cuDeviceGetAttribute cuMemHostAlloc cuMemAlloc_v2 cuStreamCreate cuEventCreate cuModuleLoadData "
        "cuModuleGetFunction cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuLaunchKernel "
        "cuEventRecord "
        "cuEventElapsedTime cuStreamSynchronize";
    static const char of_library[] =
        "cublasLtCreate cublasLtMatmulDescCreate cublasLtMatmulAlgoGetHeuristic cublasLtMatmul";
    const char *call;
    char        told[80];
    begin(0);
    for (int i = 0; (call = word_of(calls, i)); i++)
        for (int n = 1; n <= 4; n += 3) {
            if (n == 4 && (i == 0 || strncmp(call, "cuModule", 8) == 0)) continue; /* made once or twice */
            snprintf(told, sizeof told, "%s@%d=719", call, n);
            is_told("STANDIN_GPU_FAIL", told, call, "shapes=16x16x16,16x32x16:nt libraries=true");
        }
    for (int i = 0; (call = word_of(of_library, i)); i++) {
        snprintf(told, sizeof told, "%s@1=14", call);
        is_told("STANDIN_BLAS_FAIL", told, call, "M=16 N=16 K=16");
    }
}
