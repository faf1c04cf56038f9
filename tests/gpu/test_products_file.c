/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithms of products that were measured: written by one process and taken over by another one, which measures
 * nothing; files of other libraries and GPUs, and damaged ones; the file that hipBLASLt reads itself. Over stand-ins,
 * of which each product has three algorithms, and the last is the fastest. */
#include "gpu/blas_bench.h"

#include <sys/wait.h>

#include "support/folder.h"
#include "support/test.h"

#include "base/file.h"

static void use(int hip)
{
    blas_use(hip);
    setenv("STANDIN_BLAS_CHOICES", "3", 1);
    setenv("TRAINMARK_PRODUCTS", test_in_folder("products.jsonl"), 1);
}

/* Multiplies 5, or fewer, rows. Returns the number of the algorithm that the library was told. */
static int multiply(const blas_bench *b, int fewer, bool bias)
{
    blas_kind           k = { .a = TM_GPU_BF16, .result = TM_GPU_BF16, .bias = bias };
    tm_gpu_matmul_shape s = blas_shape(&k);
    tm_error            err = { 0 };
    s.rows -= fewer;
    blas_product p = blas_product_make(b, &k, &s);
    if (blas_multiply(b, &p, &err) != TM_OK) fail_msg("%s", err.text);
    blas_check(b, &p, 1, "a product");
    return blas_counted(b->hip, "standin_blas_number");
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
        blas_bench b = blas_open(hip, NULL, 0);
        bool       right = multiply(&b, 0, false) == 2 && multiply(&b, 0, true) == 2;
        tm_text    words = { 0 };
        right = right && tm_gpu_blas_tuned(b.blas, &words) != 0 && strcmp(words.data, ", 2 of them tuned") == 0;
        blas_close(&b);
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
        at += sizeof member - 1;
        tm_text words = { 0 };
        char    kept = *at;
        *at = kept == '0' ? '1' : '0';
        write_products(text->data);
        blas_bench b = blas_open(hip, NULL, 0);
        assert_true(tm_gpu_blas_tuned(b.blas, &words) != hash);
        tm_text_fini(&words);
        blas_close(&b);
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
        blas_bench b = blas_open(hip, NULL, 0);
        int before = blas_counted(hip, "standin_blas_multiplied"), asked = blas_counted(hip, "standin_blas_asked");
        assert_int_equal(multiply(&b, 0, false), 2);
        assert_int_equal(multiply(&b, 0, true), 2);
        assert_int_equal(blas_counted(hip, "standin_blas_multiplied"), before + 2); /* those of this test */
        assert_int_equal(blas_counted(hip, "standin_blas_asked"),
                         asked + (hip ? 0 : 2)); /* where memory begins anywhere */
        /* A shape that the file lacks takes the library's first, and nothing is measured. */
        assert_int_equal(multiply(&b, 1, false), 0);
        assert_int_equal(blas_counted(hip, "standin_blas_multiplied"), before + 3);
        uint64_t hash = tm_gpu_blas_tuned(b.blas, &words);
        assert_string_equal(words.data, ", 2 of them tuned");
        assert_true(hash != 0);
        blas_close(&b);
        every_algorithm_counts(hip, &text, hash);
        /* Without the file nothing decides. */
        tm_text none = { 0 };
        unsetenv("TRAINMARK_PRODUCTS");
        b = blas_open(hip, NULL, 0);
        assert_int_equal(multiply(&b, 0, false), 0);
        assert_true(tm_gpu_blas_tuned(b.blas, &none) == 0 && !none.data);
        blas_close(&b);
        /* What is added later stands behind what was there, which is not measured again. */
        use(hip);
        setenv("TRAINMARK_PRODUCTS_TUNE", "2", 1);
        b = blas_open(hip, NULL, 0);
        before = blas_counted(hip, "standin_blas_multiplied");
        assert_int_equal(multiply(&b, 0, false), 2);
        assert_int_equal(blas_counted(hip, "standin_blas_multiplied"), before + 1);
        assert_true(multiply(&b, 1, false) < 2); /* one of the first two */
        assert_true(blas_counted(hip, "standin_blas_multiplied") > before + 10);
        blas_close(&b);
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
    tm_error err;
    if (text) write_products(text);
    tm_status st = blas_try_open(hip, &err);
    if (st != wanted || !strstr(err.text, words)) fail_msg("%s: '%s' lacks '%s'", tm_status_text(st), err.text, words);
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

/* A line of the least numbers is good, and so is the largest one that is measured; it has no other member than these.
 */
static void every_member_counts(const char *text)
{
    static const struct {
        const char *name, *least, *less;
    } members[] = { { "rows", "1", "0" },
                    { "columns", "1", "0" },
                    { "depth", "1", "0" },
                    { "factors", "\"float32\"", "\"float8\"" },
                    { "result", "\"bfloat16\"", "1" },
                    { "a_across", "true", "1" },
                    { "b_across", "false", "0" },
                    { "bias", "false", "null" },
                    { "ld_a", "1", "0" },
                    { "ld_b", "1", "0" },
                    { "ld_c", "1", "0.5" },
                    { "workspace", "0", "-1" },
                    { "measured", "1", "0" },
                    { "measured", "64", "65" }, /* for itself alone */
                    { "microseconds", "0.001", "0" },
                    { "first_microseconds", "0.001", "0" } };
    enum { MEMBERS = sizeof members / sizeof members[0] };
    const char *algorithm = strstr(text, "\"algorithm\": ");
    for (int i = 0; i < MEMBERS; i++)
        for (int less = 0; less < 2; less++) {
            tm_text line = { 0 };
            char    words[64];
            tm_text_add_n(&line, text, strcspn(text, "\n"));
            tm_text_printf(&line, "\n{%.*s", (int)strcspn(algorithm, ","), algorithm);
            for (int k = 0; k < MEMBERS; k++)
                if (k == i || (strcmp(members[k].name, members[i].name) != 0 && members[k].least[0] != '6'))
                    tm_text_printf(&line, ", \"%s\": %s", members[k].name,
                                   k == i && less ? members[k].less : members[k].least);
            tm_text_add(&line, "}\n");
            snprintf(words, sizeof words, "line 2: '%s' is missing or not what it must be", members[i].name);
            refused(1, line.data, less ? TM_FORMAT : TM_OK, less ? words : "");
            tm_text_fini(&line);
        }
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
    refused(1, with(t, "\"bias\": true", "\"bias\": 1"), TM_FORMAT, "line 3: 'bias' is missing or");
    refused(1, with(t, "\"bias\": true", "\"bias\": false"), TM_FORMAT, "line 3 has the shape of line 2");
    refused(1, with(t, "\"algorithm\": \"", "\"algorithm\": \"0"), TM_FORMAT, "line 2: 'algorithm' is");
    refused(1, with(t, "\"algorithm\": \"", "\"algorithm\": \"Z"), TM_FORMAT, "line 2: 'algorithm' is");
    every_member_counts(t);
    tm_text cut = { 0 };
    tm_text_add_n(&cut, t, text.length - 30);
    refused(1, cut.data, TM_FORMAT, "line 3 is not an object of JSON");
    setenv("TRAINMARK_PRODUCTS", test_in_folder("nowhere"), 1);
    refused(1, NULL, TM_INVALID, "nowhere'");
    static const char *const tunes[] = { "1", "8x", "65", "2", "64" };
    for (int i = 0; i < 5; i++) {
        if (i == 3) unsetenv("TRAINMARK_PRODUCTS");
        setenv("TRAINMARK_PRODUCTS_TUNE", tunes[i], 1);
        refused(1, NULL, TM_INVALID,
                i < 3 ? "TRAINMARK_PRODUCTS_TUNE must be a number of algorithms from 2 to 64, found '"
                      : "TRAINMARK_PRODUCTS_TUNE needs a file");
    }
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
        blas_bench b = blas_open(1, NULL, 0);
        int        before = blas_counted(1, "standin_blas_multiplied");
        assert_int_equal(multiply(&b, 0, false), 1);
        assert_int_equal(multiply(&b, 0, true), 1); /* a bias is not a member of the row */
        assert_int_equal(blas_counted(1, "standin_blas_multiplied"), before + 2);
        assert_int_equal(multiply(&b, 1, false), tunes ? 2 : 0);
        assert_true(tm_gpu_blas_tuned(b.blas, &words) != 0);
        assert_string_equal(words.data, tunes ? ", 1 of them tuned, 1 by HIPBLASLT_TUNING_OVERRIDE_FILE"
                                              : ", 1 by HIPBLASLT_TUNING_OVERRIDE_FILE");
        blas_close(&b);
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
        blas_bench b = blas_open(1, NULL, 0);
        assert_int_equal(multiply(&b, 0, false), others[i].number);
        blas_close(&b);
    }
    setenv("HIPBLASLT_TUNING_OVERRIDE_FILE", test_in_folder("nowhere"), 1);
    refused(1, NULL, TM_INVALID, "HIPBLASLT_TUNING_OVERRIDE_FILE: ");
    refused(1, NULL, TM_INVALID, "hipBLASLt would go on without it: unset it, or name a file");
    unsetenv("TRAINMARK_PRODUCTS");
    use(0);
    unsetenv("TRAINMARK_PRODUCTS");
    blas_bench b = blas_open(0, NULL, 0);
    assert_int_equal(multiply(&b, 0, false), 0);
    blas_close(&b);
    unsetenv("HIPBLASLT_TUNING_OVERRIDE_FILE");
}

TEST_FIXTURE(NULL, test_folder_teardown)
