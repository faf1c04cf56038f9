/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms of products that were measured: written by one process and taken over by another one, which measures
 * nothing; files of other libraries and GPUs, and damaged ones; the file that hipBLASLt reads itself. Over stand-ins,
 * of which each product has three algorithms, and the last is the fastest. */
#include "gpu/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/test.h"

#include "base/file.h"

enum { ROWS = 5, COLUMNS = 7, DEPTH = 9, WORKSPACE = 1 << 16 };

static const char *library_of(int hip)
{
    return test_built(hip ? "standins/hipblaslt.so" : "standins/cublaslt.so");
}

static void use(int hip)
{
    setenv("TRAINMARK_GPU_RUNTIME", test_built(hip ? "standins/hip.so" : "standins/cuda.so"), 1);
    setenv(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", library_of(hip), 1);
    setenv("STANDIN_BLAS_CHOICES", "3", 1);
    setenv("TRAINMARK_PRODUCTS", test_in_folder("products.jsonl"), 1);
}

/* A number that the stand-in of the library counts. */
static int counted(int hip, const char *name)
{
    int (*count)(void);
    void *library = dlopen(library_of(hip), RTLD_NOW | RTLD_NOLOAD), *symbol = library ? dlsym(library, name) : NULL;
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    return count();
}

typedef struct {
    tm_gpu      *gpu;
    tm_gpu_blas *blas;
} bench;

static tm_status try_open(int hip, bench *b, tm_error *err)
{
    *b = (bench){ 0 };
    *err = (tm_error){ 0 };
    assert_int_equal(tm_gpu_open((tm_gpu_maker)hip, 0, &b->gpu, err), TM_OK);
    return tm_gpu_blas_open(b->gpu, &b->blas, err);
}

static bench open_bench(int hip)
{
    bench    b;
    tm_error err;
    if (try_open(hip, &b, &err) != TM_OK) fail_msg("%s", err.text);
    return b;
}

static void close_bench(bench *b)
{
    tm_gpu_blas_close(b->blas);
    tm_gpu_close(b->gpu);
}

static tm_gpu_matmul_shape shape_of(int64_t rows, bool bias)
{
    return (tm_gpu_matmul_shape){ .factors = TM_GPU_BF16,
                                  .result = TM_GPU_BF16,
                                  .bias = bias,
                                  .rows = rows,
                                  .columns = COLUMNS,
                                  .depth = DEPTH,
                                  .ld_a = DEPTH,
                                  .ld_b = DEPTH,
                                  .ld_c = COLUMNS,
                                  .workspace = WORKSPACE };
}

/* Finds the product and multiplies ones. Returns the number of the algorithm that the library was told. */
static int multiply(const bench *b, int hip, tm_gpu_matmul_shape s)
{
    tm_gpu_matmul         *found;
    const char            *why;
    tm_error               err = { 0 };
    tm_gpu_matmul_operands o = { 0 };
    uint16_t               ones[ROWS * DEPTH * 4], out[ROWS * COLUMNS * 4];
    void                  *memory[4], *stream, *workspace;
    if (tm_gpu_blas_find(b->blas, &s, &found, &why, &err) != TM_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) ones[i] = 0x3f80;
    assert_int_equal(tm_gpu_stream_open(b->gpu, &stream, &err), TM_OK);
    assert_int_equal(tm_gpu_alloc(b->gpu, WORKSPACE, &workspace, &err), TM_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tm_gpu_alloc(b->gpu, sizeof ones, &memory[i], &err), TM_OK);
        assert_int_equal(tm_gpu_write(b->gpu, memory[i], ones, sizeof ones, &err), TM_OK);
    }
    o = (tm_gpu_matmul_operands){
        .c = memory[0], .a = memory[1], .b = memory[2], .bias = s.bias ? memory[3] : NULL, .workspace = workspace
    };
    if (tm_gpu_blas_multiply(b->blas, found, stream, &o, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(tm_gpu_stream_wait(b->gpu, stream, &err), TM_OK);
    assert_int_equal(tm_gpu_read(b->gpu, out, memory[0], sizeof out, &err), TM_OK);
    for (int64_t i = 0; i < s.rows * COLUMNS; i++) assert_int_equal(out[i], s.bias ? 0x4120 : 0x4110); /* 10, 9 */
    for (int i = 0; i < 4; i++) tm_gpu_free(b->gpu, memory[i]);
    tm_gpu_free(b->gpu, workspace);
    tm_gpu_stream_close(b->gpu, stream);
    return counted(hip, "standin_blas_number");
}

static int lines_of(const tm_text *text)
{
    int n = 0;
    for (size_t i = 0; i < text->length; i++) n += text->data[i] == '\n';
    return n;
}

static tm_text read_products(void)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(test_in_folder("products.jsonl"), 1 << 20, &text, &err) != TM_OK) fail_msg("%s", err.text);
    return text;
}

static void write_products(const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder("products.jsonl"), text, strlen(text), &err), TM_OK);
}

/* Another process measures two shapes of the three. */
static void tune_elsewhere(int hip)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TRAINMARK_PRODUCTS_TUNE", "8", 1);
        bench   b = open_bench(hip);
        bool    right = multiply(&b, hip, shape_of(ROWS, false)) == 2 && multiply(&b, hip, shape_of(ROWS, true)) == 2;
        tm_text words = { 0 };
        right = right && tm_gpu_blas_tuned(b.blas, &words) != 0 && strcmp(words.data, ", 2 of them tuned") == 0;
        close_bench(&b);
        _exit(right ? 0 : 9);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Another algorithm of any line is another hash. */
static void every_algorithm_counts(int hip, const tm_text *text, uint64_t hash)
{
    static const char member[] = "\"algorithm\": \"";
    int               n = 0;
    for (char *at = text->data; (at = strstr(at, member)); n++) {
        bench    b;
        tm_error err;
        at += sizeof member - 1;
        tm_text words = { 0 };
        char    kept = *at;
        *at = kept == '0' ? '1' : '0';
        write_products(text->data);
        assert_int_equal(try_open(hip, &b, &err), TM_OK);
        assert_true(tm_gpu_blas_tuned(b.blas, &words) != hash);
        tm_text_fini(&words);
        close_bench(&b);
        *at = kept;
    }
    assert_int_equal(n, 2);
    write_products(text->data);
}

TEST(what_one_measured_another_takes_over)
{
    for (int hip = 0; hip < 2; hip++) {
        tm_text words = { 0 }, text;
        use(hip);
        tune_elsewhere(hip);
        text = read_products();
        assert_int_equal(lines_of(&text), 3);
        assert_non_null(
            strstr(text.data, hip ? "{\"trainmark_products\": 1, \"library\": \"hipBLASLt 1.1.0\", \"arch\": \""
                                  : "{\"trainmark_products\": 1, \"library\": \"cublasLt 13.1.0\", \"arch\": \""));
        assert_non_null(strstr(text.data, "{\"rows\": 5, \"columns\": 7, \"depth\": 9, \"factors\": \"bfloat16\", "));
        assert_non_null(strstr(text.data, "\"measured\": 3, "));
        bench b = open_bench(hip);
        int   before = counted(hip, "standin_blas_multiplied"), asked = counted(hip, "standin_blas_asked");
        assert_int_equal(multiply(&b, hip, shape_of(ROWS, false)), 2);
        assert_int_equal(multiply(&b, hip, shape_of(ROWS, true)), 2);
        assert_int_equal(counted(hip, "standin_blas_multiplied"), before + 2);       /* those of this test */
        assert_int_equal(counted(hip, "standin_blas_asked"), asked + (hip ? 0 : 2)); /* where memory begins anywhere */
        /* A shape that the file lacks takes the library's first, and nothing is measured. */
        assert_int_equal(multiply(&b, hip, shape_of(ROWS - 1, false)), 0);
        assert_int_equal(counted(hip, "standin_blas_multiplied"), before + 3);
        uint64_t hash = tm_gpu_blas_tuned(b.blas, &words);
        every_algorithm_counts(hip, &text, hash);
        assert_string_equal(words.data, ", 2 of them tuned");
        assert_true(hash != 0);
        close_bench(&b);
        /* Without the file nothing decides. */
        tm_text none = { 0 };
        unsetenv("TRAINMARK_PRODUCTS");
        b = open_bench(hip);
        assert_int_equal(multiply(&b, hip, shape_of(ROWS, false)), 0);
        assert_true(tm_gpu_blas_tuned(b.blas, &none) == 0 && !none.data);
        close_bench(&b);
        /* What is added later stands behind what was there, which is not measured again. */
        use(hip);
        setenv("TRAINMARK_PRODUCTS_TUNE", "2", 1);
        b = open_bench(hip);
        before = counted(hip, "standin_blas_multiplied");
        assert_int_equal(multiply(&b, hip, shape_of(ROWS, false)), 2);
        assert_int_equal(counted(hip, "standin_blas_multiplied"), before + 1);
        assert_true(multiply(&b, hip, shape_of(ROWS - 1, false)) < 2); /* one of the first two */
        assert_true(counted(hip, "standin_blas_multiplied") > before + 10);
        close_bench(&b);
        unsetenv("TRAINMARK_PRODUCTS_TUNE");
        tm_text more = read_products();
        assert_int_equal(lines_of(&more), 4);
        assert_memory_equal(more.data, text.data, text.length);
        tm_text_fini(&more);
        tm_text_fini(&text);
        tm_text_fini(&words);
        assert_int_equal(unlink(test_in_folder("products.jsonl")), 0);
    }
}

static void refused(int hip, const char *text, tm_status wanted, const char *words)
{
    bench    b;
    tm_error err;
    if (text) write_products(text);
    tm_status st = try_open(hip, &b, &err);
    if (st != wanted || !strstr(err.text, words)) fail_msg("%s: '%s' lacks '%s'", tm_status_text(st), err.text, words);
    close_bench(&b);
}

/* `text` with the first `from` replaced. */
static char *with(const char *text, const char *from, const char *to)
{
    static char out[8192];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

TEST(files_of_other_machines_and_damaged_ones)
{
    use(1);
    tune_elsewhere(1);
    tm_text     text = read_products();
    const char *t = text.data;
    refused(1, with(t, "hipBLASLt 1.1.0", "hipBLASLt 1.0.0"), TM_INVALID, "has algorithms of hipBLASLt 1.0.0 on ");
    refused(1, NULL, TM_INVALID, ", and this is hipBLASLt 1.1.0 on ");
    refused(1, NULL, TM_INVALID,
            ": they cannot be taken over; name another file, which TRAINMARK_PRODUCTS_TUNE=N writes");
    refused(1, with(t, "\"arch\": \"", "\"arch\": \"x"), TM_INVALID, "has algorithms of hipBLASLt 1.1.0 on x");
    refused(1, with(t, "\"units\": ", "\"units\": 1"), TM_INVALID, "with 1");
    refused(1, with(t, "products\": 1", "products\": 2"), TM_FORMAT, "line 1 must begin a file of format 1");
    refused(1, "", TM_FORMAT, "line 1 is not an object of JSON");
    refused(1, with(t, "{\"rows\": 5", "\"rows\": 5"), TM_FORMAT, "line 2 is not an object of JSON");
    refused(1, with(t, "\"rows\": 5", "\"rows\": 0"), TM_FORMAT, "line 2: 'rows' is missing or not what it must be");
    refused(1, with(t, "\"bias\": true", "\"bias\": 1"), TM_FORMAT, "line 3: 'bias' is missing or");
    refused(1, with(t, "\"bias\": true", "\"bias\": false"), TM_FORMAT, "line 3 has the shape of line 2");
    refused(1, with(t, "\"algorithm\": \"", "\"algorithm\": \"0"), TM_FORMAT, "line 2: 'algorithm' is");
    refused(1, with(t, "\"algorithm\": \"", "\"algorithm\": \"Z"), TM_FORMAT, "line 2: 'algorithm' is");
    refused(1, with(t, "\"microseconds\": ", "\"microseconds\": -"), TM_FORMAT, "line 2: 'microseconds' is");
    refused(1, with(t, "\"bfloat16\"", "\"float8\""), TM_FORMAT, "line 2: 'factors' is");
    tm_text cut = { 0 };
    tm_text_add_n(&cut, t, text.length - 30);
    refused(1, cut.data, TM_FORMAT, "line 3 is not an object of JSON");
    setenv("TRAINMARK_PRODUCTS", test_in_folder("nowhere"), 1);
    refused(1, NULL, TM_INVALID, "nowhere'");
    setenv("TRAINMARK_PRODUCTS_TUNE", "1", 1);
    refused(1, NULL, TM_INVALID, "TRAINMARK_PRODUCTS_TUNE must be a number of algorithms from 2 to 64, found '1'");
    setenv("TRAINMARK_PRODUCTS_TUNE", "8x", 1);
    refused(1, NULL, TM_INVALID, "found '8x'");
    setenv("TRAINMARK_PRODUCTS_TUNE", "8", 1);
    unsetenv("TRAINMARK_PRODUCTS");
    refused(1, NULL, TM_INVALID, "TRAINMARK_PRODUCTS_TUNE needs a file to write: name one in TRAINMARK_PRODUCTS");
    unsetenv("TRAINMARK_PRODUCTS_TUNE");
    tm_text_fini(&cut);
    tm_text_fini(&text);
}

/* The file that hipBLASLt reads decides its shapes, whatever our file says and whatever is to be measured: the row's
 * algorithm, 1, is neither the library's first nor the fastest. cublasLt has no such file. */
TEST(the_file_of_hipblaslt_rules_its_shapes)
{
    static const char rows[] = "Git Version: 0123abcd\n"
                               "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,solution_index\n"
                               "T,N,0,1,7,5,9,1,9,1\n";
    tm_error          err = { 0 };
    use(1);
    tune_elsewhere(1);
    assert_int_equal(tm_file_write(test_in_folder("override.csv"), rows, strlen(rows), &err), TM_OK);
    setenv("HIPBLASLT_TUNING_OVERRIDE_FILE", test_in_folder("override.csv"), 1);
    for (int tunes = 0; tunes < 2; tunes++) {
        tm_text words = { 0 };
        if (tunes) setenv("TRAINMARK_PRODUCTS_TUNE", "8", 1);
        bench b = open_bench(1);
        int   before = counted(1, "standin_blas_multiplied");
        assert_int_equal(multiply(&b, 1, shape_of(ROWS, false)), 1);
        assert_int_equal(multiply(&b, 1, shape_of(ROWS, true)), 1); /* a bias is not a member of the row */
        assert_int_equal(counted(1, "standin_blas_multiplied"), before + 2);
        assert_int_equal(multiply(&b, 1, shape_of(ROWS - 1, false)), tunes ? 2 : 0);
        assert_true(tm_gpu_blas_tuned(b.blas, &words) != 0);
        assert_string_equal(words.data, tunes ? ", 1 of them tuned, 1 by HIPBLASLT_TUNING_OVERRIDE_FILE"
                                              : ", 1 by HIPBLASLT_TUNING_OVERRIDE_FILE");
        close_bench(&b);
        tm_text_fini(&words);
    }
    unsetenv("TRAINMARK_PRODUCTS_TUNE");
    /* Rows of other transpositions or sizes say nothing; older versions have no column grouped_gemm. */
    static const struct {
        const char *row;
        int         number;
    } others[] = { { "N,N,0,1,7,5,9,1,9,1\n", 2 },
                   { "T,N,0,1,5,7,9,1,9,1\n", 2 },
                   { "T,N,0,1,7,5,8,1,9,1\n", 2 },
                   { "x\nT,N\nT,N,,,,\n", 2 },
                   { "T,N,0,1,7,5,9,1,9,0\n", 0 } };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(tm_file_write(test_in_folder("override.csv"), others[i].row, strlen(others[i].row), &err),
                         TM_OK);
        bench b = open_bench(1);
        assert_int_equal(multiply(&b, 1, shape_of(ROWS, false)), others[i].number);
        close_bench(&b);
    }
    setenv("HIPBLASLT_TUNING_OVERRIDE_FILE", test_in_folder("nowhere"), 1);
    refused(1, NULL, TM_INVALID, "HIPBLASLT_TUNING_OVERRIDE_FILE: ");
    refused(1, NULL, TM_INVALID, "hipBLASLt would go on without it: unset it, or name a file");
    unsetenv("TRAINMARK_PRODUCTS");
    use(0);
    unsetenv("TRAINMARK_PRODUCTS");
    bench b = open_bench(0);
    assert_int_equal(multiply(&b, 0, shape_of(ROWS, false)), 0);
    close_bench(&b);
    unsetenv("HIPBLASLT_TUNING_OVERRIDE_FILE");
}

TEST_FIXTURE(NULL, test_folder_teardown)
