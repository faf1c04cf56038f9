/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix libraries of the machine, over ones that stand in for them (tests/standins/blas.c): what is said of each, what
 * each is called with, and tables in which they take turns (tests/golden/whole-bench-libraries.txt). Each case is a
 * process of its own: a library that was loaded stays.
 */
#include "support/test.h"
#include "bench/engine.h"
#include "bench/tables.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <limits.h>
#include <sys/wait.h>

typedef struct {
    const char *loaded;    /* the stand-ins, without .so */
    const char *settings;  /* of the environment: "NAME=value|NAME=value" */
    const char *arguments; /* of gemm; NULL: only what is said of the libraries */
    const char *library;   /* the one that is asked for, without arguments; NULL: all */
} library_case;

#define FULL "dnnl openblas blis mkl"

static const library_case cases[] = {
    { FULL, "", "libraries=true M=5 N=4 K=3 cache=warm trans_b=true", NULL },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=both dtype=bf16 trans_a=true rep-ms=0.1", NULL },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=warm dtype=bf16 c-dtype=bf16", NULL },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=warm dtype=fp16 trans_b=true", NULL },
    { FULL, "", "libraries=true M=6 N=3 K=2 cache=warm dtype=fp16 c-dtype=fp16", NULL },
    { FULL, "TM_STANDIN_WRONG=cblas_gemm_f16f16f32", "library=mkl M=2 N=3 K=4 cache=warm dtype=fp16", NULL },
    { FULL, "TM_STANDIN_WRONG=cblas_sgemm", "libraries=true M=7 N=8 K=9 cache=warm trans_a=true trans_b=true", NULL },
    { FULL, "", "library=ONEDNN M=2 N=3 K=4 cache=cold", NULL },
    { FULL, "TM_STANDIN_WRONG=cblas_gemm_bf16bf16f32", "library=mkl M=2 N=3 K=4 cache=warm dtype=bf16", NULL },
    { FULL, "TM_STANDIN_THREADS=1|TM_STANDIN_POOL=1", NULL, NULL },
    { FULL, "TM_STANDIN_POOL=0|TM_STANDIN_ISA=1", NULL, NULL },
    { FULL, "TM_STANDIN_POOL=2|TM_STANDIN_ISA=3", NULL, NULL },
    { FULL, "TM_STANDIN_POOL=4|TM_STANDIN_ISA=7", NULL, NULL },
    { "dnnl-bare openblas-bare blis-bare mkl-bare", "", NULL, NULL },
    { "dnnl-bare openblas-bare blis-bare mkl-bare", "", "libraries=true M=2 N=2 K=2 cache=warm", NULL },
    { "dnnl", "TM_STANDIN_ISA=0x27", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0x67", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0xe7", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0x3e7", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0x407", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0x1ef", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0xfef", NULL, "oneDNN" },
    { "dnnl", "TM_STANDIN_ISA=0x2", NULL, "oneDNN" },
    { "dnnl", "ONEDNN_MAX_CPU_ISA=avx2|DNNL_MAX_CPU_ISA=a-name-that-is-longer-than-24-letters", NULL, "oneDNN" },
    { "dnnl", "ONEDNN_MAX_CPU_ISA=|DNNL_MAX_CPU_ISA=sse41", NULL, "oneDNN" },
    { "openblas", "OPENBLAS_CORETYPE=Haswell", NULL, "OpenBLAS" },
    { "blis", "BLIS_ARCH_TYPE=3", NULL, "BLIS" },
    { "openblas-plain", "TM_STANDIN_POOL=2", NULL, "OpenBLAS" },
    { "mkl", "TM_STANDIN_VERSION=Version 7", NULL, "MKL" },
    { "mkl", "TM_STANDIN_VERSION= for Version 8", NULL, "MKL" },
    { "mkl", "TM_STANDIN_VERSION=nothing but words", NULL, "MKL" },
    { "mkl-capitals", "MKL_ENABLE_INSTRUCTIONS=AVX2", NULL, "mkl" },
    { "mkl libmkl_gnu_thread", "", NULL, "MKL" },
    { "mkl libmkl_intel_thread", "", NULL, "MKL" },
    { "mkl libmkl_tbb_thread", "", NULL, "MKL" },
    { "mkl libmkl_sequential", "", NULL, "MKL" },
    { "mkl-hollow", "", NULL, "mkl" },
    { "dnnl openblas blis mkl-hollow", "", NULL, NULL },
    { "mkl-hollow", "", "library=mkl M=2 N=2 K=2", NULL },
    { "mkl", "LD_LIBRARY_PATH=", NULL, "MKL" },
    { "mkl", "LD_LIBRARY_PATH=/a:/b/c;/d", NULL, "MKL" },
    { "mkl", "LD_LIBRARY_PATH=/a:", NULL, "MKL" },
    { "mkl", "LD_LIBRARY_PATH=:/a", NULL, "MKL" },
    { "mkl", "LD_LIBRARY_PATH=/a:b/c:/d", NULL, "MKL" },
    { "mkl", "LD_LIBRARY_PATH=.", NULL, NULL },
    { "", "", NULL, "ATLAS" },
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

/* Whether other threads of the process run decides how often the clock is asked: "0.00016 s are too short" is "T s". */
static void drop_seconds(tm_text *out)
{
    static const char before[] = "reason='", behind[] = " s are too short";
    for (char *at = out->data; at && (at = strstr(at, before));) {
        at += sizeof before - 1;
        char *end = at + strspn(at, "0123456789.e-");
        if (strncmp(end, behind, sizeof behind - 1) != 0) continue;
        *at++ = 'T';
        memmove(at, end, strlen(end) + 1);
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
        tell(&out, &(trial){ tm_workload_find("gemm"), "cpu", c->arguments, 0, NULL, false }, "", "", "");
    else
        tell_engines(c, &out);
    tell_calls(c->loaded, &out);
    drop_folders(&out);
    drop_seconds(&out);
    FILE *f = fopen(path, "w");
    if (!f) _exit(6);
    fputs(out.data, f);
    _exit(fclose(f) == 0 ? 0 : 7);
}

static void libraries_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    (void)test_folder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = test_in_folder("told");
        int         status = -1;
        tm_text_printf(&out, "=== %s; %s; %s\n", cases[i].loaded, cases[i].settings,
                       cases[i].arguments ? cases[i].arguments
                       : cases[i].library ? cases[i].library
                                          : "all");
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) play(&cases[i], path);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0) fail_msg("case %zu ended with status %d", i, status);
        tm_text one = fake_read(path);
        tm_text_add(&out, one.data);
        tm_text_fini(&one);
    }
    whole_is("tests/golden/whole-bench-libraries.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(libraries_say_all) };

TM_TESTS_ALONE(tests, NULL, test_folder_teardown)
