/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix libraries of the machine, over ones that stand in for them (tests/standins/blas.c): what each says of itself,
 * what it is called with, and tables in which they take turns. Each case is a process of its own: a library that was
 * loaded stays.
 */
#include "support/test.h"
#include "apps/bench/engine.h"
#include "bench/tables.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include "record/table.h"

#include <jansson.h>
#include <limits.h>
#include <sys/wait.h>

typedef struct {
    const char *loaded;    /* the stand-ins, without .so */
    const char *settings;  /* of the environment: "NAME=value|NAME=value" */
    const char *arguments; /* of gemm; NULL: only what is said of the libraries */
    const char *library;   /* the one that is asked for, without arguments; NULL: all */
    const char *says;      /* among the notes, the engines and the error; separated by "|" */
} library_case;

#define FULL "dnnl openblas blis mkl"

static const library_case cases[] = {
    { FULL, "", "libraries=true M=5 N=4 K=3 cache=warm trans_b=true", NULL,
      "oneDNN: 3.6.12, sgemm, avx512_core_bf16, threads: 1 (OpenMP (dnnl.so)), |OpenBLAS: OpenBLAS 0.3.99 NO_LAPACK, "
      "core type Prescott, threads: 6 (its own pthreads), |BLIS: 0.9.1, configuration zen3, threads: 9 (OpenMP "
      "(blis.so)), |MKL: 2024.1-Product Build 7, branch 13, threads: 3 (unknown), " },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=both dtype=bf16 trans_a=true rep-ms=0.1", NULL,
      "the library offers no bfloat16 product" },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=warm dtype=bf16 c-dtype=bf16", NULL,
      "the library gives float32 results only (--c-dtype float32)" },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=warm dtype=fp16 c-dtype=fp16", NULL,
      "the library offers no float16 product|the library gives float32 results only" },
    { FULL, "TM_STANDIN_WRONG=cblas_gemm_f16f16f32", "library=mkl M=2 N=3 K=4 cache=warm dtype=fp16", NULL,
      "note: invalid: MKL 2x3x4:nn: wrong result: C[1][2] is 8.5" },
    { FULL, "TM_STANDIN_WRONG=cblas_sgemm", "libraries=true M=7 N=8 K=9 cache=warm trans_a=true trans_b=true", NULL,
      "invalid: OpenBLAS 7x8x9:tt: wrong result: C[6][7]|invalid: BLIS 7x8x9:tt|invalid: MKL 7x8x9:tt" },
    { FULL, "", "library=ONEDNN M=2 N=3 K=4 cache=cold", NULL, "oneDNN: 3.6.12" },
    { FULL, "TM_STANDIN_THREADS=1|TM_STANDIN_POOL=1", NULL, NULL,
      "threads: 1 (none: one thread), |core type Prescott, threads: 1 (its own pthreads)|threads: 1 (pthreads made for "
      "each call)|oneDNN: 1 threads, quick, rate 0|MKL: 1 threads, quick, rate 0" },
    { FULL, "TM_STANDIN_POOL=0|TM_STANDIN_ISA=1", NULL, NULL,
      "sgemm, sse41, threads: 11 (unknown)|threads: 6 (none: one thread)|threads: 9 (none: one thread)|oneDNN: 11 "
      "threads, quick" },
    { FULL, "TM_STANDIN_POOL=2|TM_STANDIN_ISA=3", NULL, NULL,
      "sgemm, avx, threads: 11 (OpenMP (dnnl.so))|threads: 6 (OpenMP (openblas.so))|threads: 9 (OpenMP (blis.so))" },
    { "dnnl-bare openblas-bare blis-bare mkl-bare", "", NULL, NULL,
      "oneDNN: , sgemm, isa 0x0, threads: 11 ()|OpenBLAS: unknown, core type unknown, threads: 11 (unknown)|BLIS: "
      "unknown, configuration unknown, threads: 11|MKL: unknown, branch -1, threads: 11" },
    { "dnnl", "TM_STANDIN_ISA=0x27", NULL, "oneDNN", "sgemm, avx512_core, threads: 11" },
    { "dnnl", "TM_STANDIN_ISA=0xe7", NULL, "oneDNN", "sgemm, avx512_core_bf16, " },
    { "dnnl", "ONEDNN_MAX_CPU_ISA=avx2|DNNL_MAX_CPU_ISA=a-name-that-is-longer-than-24-letters", NULL, "oneDNN",
      "avx512_core_bf16 (ONEDNN_MAX_CPU_ISA=avx2) (DNNL_MAX_CPU_ISA=a-name-that-is-longer-th), threads" },
    { "openblas", "OPENBLAS_CORETYPE=Haswell", NULL, "OpenBLAS",
      "core type Prescott (OPENBLAS_CORETYPE=Haswell), threads: 6 (its own pthreads)" },
    { "blis", "BLIS_ARCH_TYPE=3", NULL, "BLIS",
      "configuration zen3 (BLIS_ARCH_TYPE=3), threads: 9 (OpenMP (blis.so))" },
    { "openblas-plain", "TM_STANDIN_POOL=2", NULL, "OpenBLAS",
      "threads: 6 (OpenMP (unknown runtime)), standins/openblas-plain.so" },
    { "mkl", "TM_STANDIN_VERSION=Version 7", NULL, "MKL", "MKL: 7, branch 13, threads: 3 (unknown), standins/mkl.so" },
    { "mkl", "TM_STANDIN_VERSION=nothing but words", NULL, "MKL", "MKL: nothing but words, branch 13," },
    { "mkl-capitals", "MKL_ENABLE_INSTRUCTIONS=AVX2", NULL, "mkl",
      "MKL: 2024.1-Product Build 7, branch 13 (MKL_ENABLE_INSTRUCTIONS=AVX2), threads: 3 (unknown), "
      "standins/mkl-capitals.so" },
    { "mkl libmkl_gnu_thread", "", NULL, "MKL", "threads: 3 (OpenMP (libgomp)), " },
    { "mkl libmkl_sequential", "", NULL, "MKL", "threads: 3 (none: one thread), " },
    { "mkl-hollow", "", NULL, "mkl", "MKL (libmkl_rt.so.2) is not installed, or cannot be loaded (--library)" },
    { "dnnl openblas blis mkl-hollow", "", NULL, NULL, "MKL: not found|OpenBLAS: 6 threads" },
    { "mkl", "LD_LIBRARY_PATH=/a:/b/c;/d", NULL, "MKL", "MKL: 2024.1-Product" },
    { "mkl", "LD_LIBRARY_PATH=.", NULL, NULL, "has the element '.', which" },
    { "", "", NULL, "ATLAS", "'ATLAS' (--library) is not a known library; known: oneDNN, OpenBLAS, BLIS, MKL" },
};

/* The stand-ins lie beside the folder of this program; a layer of MKL's is known by its file's name alone. */
static void load(const char *names)
{
    char    folder[PATH_MAX], path[PATH_MAX + 64], list[128];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (n <= 0) _exit(2);
    folder[n] = '\0';
    for (int i = 0; i < 2; i++) *strrchr(folder, '/') = '\0';
    snprintf(list, sizeof list, "%s", names);
    for (char *rest = list, *name; (name = strsep(&rest, " "));) {
        if (!*name) continue;
        snprintf(path, sizeof path, "%s/standins/%s.so", folder, name);
        if (strncmp(name, "libmkl", 6) == 0) {
            char from[PATH_MAX + 64];
            snprintf(from, sizeof from, "%s/standins/layer.so", folder);
            snprintf(path, sizeof path, "%s/%s.so", test_folder(), name);
            if (symlink(from, path) != 0) _exit(3);
        }
        if (!dlopen(path, RTLD_NOW | RTLD_LOCAL)) _exit(4);
    }
}

/* "library: function arguments" of all calls. */
static void tell_calls(const char *names, tm_text *out)
{
    static const char *const files[][2] = { { "dnnl", "libdnnl.so.3" },
                                            { "openblas", "libopenblas.so.0" },
                                            { "blis", "libblis.so.4" },
                                            { "mkl", "libmkl_rt.so.2" } };
    for (int i = 0; i < 4; i++) {
        if (!strstr(names, files[i][0])) continue;
        void *library = dlopen(files[i][1], RTLD_NOW | RTLD_NOLOAD);
        char *calls = library ? dlsym(library, "standin_calls") : NULL;
        if (!calls) _exit(5);
        for (char *line; *calls && (line = strsep(&calls, "\n")) && calls;)
            tm_text_printf(out, "%s: %s\n", files[i][0], line);
    }
}

/* Without the folder before "standins/". */
static void drop_folders(tm_text *out)
{
    for (char *at = out->data; at && (at = strstr(at, "standins/"));) {
        char *begin = at;
        while (begin > out->data && begin[-1] != ' ') begin--;
        memmove(begin, at, strlen(at) + 1);
        at = begin + 9;
    }
    out->length = strlen(out->data);
}

static void tell_engines(const library_case *c, tm_text *out)
{
    static tm_engine_list list;
    tm_error              err = { 0 };
    tm_bench              bench = { .threads = 11, .table = tm_table_create("x") };
    tm_status             st = tm_engine_libraries(&bench, c->library, &list, &err);
    for (size_t i = 0; i < tm_table_n_notes(bench.table); i++) {
        const char *note = tm_table_note_at(bench.table, i);
        tm_text_printf(out, "  %s\n", note);
    }
    for (size_t i = 0; i < list.count; i++)
        tm_text_printf(out, "  %s: %d threads, %s, rate %g\n", list.items[i].name, list.items[i].threads,
                       list.items[i].slow ? "slow" : "quick", list.items[i].rate);
    tm_text_printf(out, "  -> %s: %s\n", tm_status_text(st), err.text);
}

/* The notes and the end; rows as JSON, for the rules. */
static void tell_table(const library_case *c, tm_text *out)
{
    tried    t = try_workload(&(trial){ tm_workload_find("gemm"), "cpu", c->arguments, 0, NULL, false });
    tm_error err = { 0 };
    for (size_t i = 0; i < tm_table_n_notes(t.table); i++)
        tm_text_printf(out, "note: %s\n", tm_table_note_at(t.table, i));
    tm_text_printf(out, "  -> %s: %s\n", tm_status_text(t.status), t.err.text);
    if (tm_table_write(t.table, test_in_folder("rows.json"), &err) != TM_OK) _exit(8);
}

static void play(const library_case *c, const char *path)
{
    tm_text out = { 0 };
    char    settings[256];
    snprintf(settings, sizeof settings, "%s", c->settings);
    /* what the machine's owner has set for its libraries */
    static const char *const own[] = { "LD_LIBRARY_PATH",    "OPENBLAS_CORETYPE", "BLIS_ARCH_TYPE",
                                       "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA",  "MKL_ENABLE_INSTRUCTIONS" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) unsetenv(own[i]);
    for (char *rest = settings, *name; (name = strsep(&rest, "|"));) {
        char *value = strchr(name, '=');
        if (value) *value++ = '\0', setenv(name, value, 1);
    }
    load(c->loaded);
    if (c->arguments)
        tell_table(c, &out);
    else
        tell_engines(c, &out);
    tell_calls(c->loaded, &out);
    drop_folders(&out);
    FILE *f = fopen(path, "w");
    if (!f) _exit(6);
    fputs(out.data, f);
    _exit(fclose(f) == 0 ? 0 : 7);
}

static double number_of(json_t *row, const char *name)
{
    json_t *value = json_object_get(row, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* The call of a library for this row is among what it was called with: row-major, the leading dimension of what is
 * transposed is that of its storage. A result is right unless the function was told to be wrong. */
static void row_follows(const library_case *c, json_t *row, const char *told)
{
    double      m = number_of(row, "M"), n = number_of(row, "N"), k = number_of(row, "K");
    bool        ta = json_is_true(json_object_get(row, "trans_a")), tb = json_is_true(json_object_get(row, "trans_b"));
    const char *engine = text_of(row, "engine"), *dtype = text_of(row, "dtype"), *skipped = text_of(row, "skipped");
    bool        narrow = strcmp(text_of(row, "c_dtype"), "float32") != 0, library = false;
    int         format = strcmp(dtype, "float32") == 0 ? 1 : strcmp(dtype, "bfloat16") == 0 ? 2 : 3;
    const char *function = NULL;
    static const char *const functions[][4] = {
        { "oneDNN", "dnnl: dnnl_sgemm", "dnnl: dnnl_gemm_bf16bf16f32", NULL },
        { "OpenBLAS", "openblas: cblas_sgemm", "openblas: cblas_sbgemm", "openblas: cblas_shgemm" },
        { "BLIS", "blis: cblas_sgemm", NULL, NULL },
        { "MKL", "mkl: cblas_sgemm", "mkl: cblas_gemm_bf16bf16f32", "mkl: cblas_gemm_f16f16f32" }
    };
    for (int i = 0; i < 4; i++)
        if (strcmp(engine, functions[i][0]) == 0) function = functions[i][format], library = true;
    if (!library) {
        assert_true(*skipped || json_is_true(json_object_get(row, "correct")));
        return;
    }
    assert_int_equal(*skipped != '\0', !function || narrow);
    if (*skipped) {
        assert_non_null(
            strstr(skipped, function ? "the library gives float32 results only" : "the library offers no "));
        return;
    }
    char call[160];
    if (strcmp(engine, "oneDNN") == 0)
        snprintf(call, sizeof call, "%s %c%c %.0f %.0f %.0f 1 %.0f %.0f 0 %.0f\n", function, ta ? 'T' : 'N',
                 tb ? 'T' : 'N', m, n, k, ta ? m : k, tb ? k : n, n);
    else
        snprintf(call, sizeof call, "%s 101 %d %d %.0f %.0f %.0f 1 %.0f %.0f 0 %.0f\n", function, ta ? 112 : 111,
                 tb ? 112 : 111, m, n, k, ta ? m : k, tb ? k : n, n);
    if (!strstr(c->loaded, "bare") && !strstr(told, call)) fail_msg("no call '%s' in\n%s", call, told);
    bool wrong = strstr(c->settings, "WRONG=") && strstr(c->settings, strchr(function, ' ') + 1);
    if (json_is_true(json_object_get(row, "correct")) == wrong || (number_of(row, "error_of_bound") <= 1) == wrong)
        fail_msg("%s: %s is %scorrect", c->settings, engine, wrong ? "" : "not ");
}

/* Each library of all once for every way that operands lie, and our kernel and the reference. */
static void rows_follow(const library_case *c, const char *told)
{
    json_t *table = json_load_file(test_in_folder("rows.json"), 0, NULL), *row, *rows = json_object_get(table, "rows");
    bool    all = strstr(c->arguments, "libraries=true"), both = strstr(c->arguments, "cache=both");
    size_t  i;
    assert_int_equal(json_array_size(rows), strstr(told, "-> ok") ? (all ? 6 : 1) * (both ? 2 : 1) : 0);
    json_array_foreach(rows, i, row) row_follows(c, row, told);
    json_decref(table);
}

TEST(libraries_do_as_they_say)
{
    (void)test_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PATH_MAX], list[700], *rest = list;
        int  status = -1;
        snprintf(path, sizeof path, "%s", test_in_folder("told"));
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) play(&cases[i], path);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0) fail_msg("case %zu ended with status %d", i, status);
        tm_text one = fake_read(path);
        snprintf(list, sizeof list, "%s", cases[i].says);
        if (cases[i].arguments) rows_follow(&cases[i], one.data);
        tm_text rows = cases[i].arguments ? fake_read(test_in_folder("rows.json")) : (tm_text){ 0 };
        for (char *words; (words = strsep(&rest, "|"));)
            if (!strstr(one.data, words) && !(rows.data && strstr(rows.data, words)))
                fail_msg("%s; %s: no '%s' in\n%s", cases[i].loaded, cases[i].settings, words, one.data);
        tm_text_fini(&one);
        tm_text_fini(&rows);
    }
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
