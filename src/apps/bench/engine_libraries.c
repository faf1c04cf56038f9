/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/engine_libraries.c - the matrix libraries of the machine: one row each. */
#include "apps/bench/engine.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is called, in declarations of our own ---------------------------------------------- */

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* CBLAS */
typedef void cblas_sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void cblas_half_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const uint16_t *a,
                           int lda, const uint16_t *b, int ldb, float beta, float *c, int ldc);
typedef int  dnnl_sgemm_fn(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                           int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef int  dnnl_bf16_fn(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha, const uint16_t *a,
                          int64_t lda, const uint16_t *b, int64_t ldb, float beta, float *c, int64_t ldc);
typedef struct {
    int         major, minor, patch;
    const char *hash;
    unsigned    cpu_runtime, gpu_runtime;
} dnnl_version_record;

typedef void any_fn(void);

static any_fn *symbol(void *library, const char *name)
{
    any_fn *function = NULL;
    *(void **)&function = dlsym(library, name);
    return function;
}

/* Calls `name` of the library for a text; NULL if it has no such function. */
static const char *text_of(void *library, const char *name)
{
    const char *(*function)(void) = (const char *(*)(void))symbol(library, name);
    return function ? function() : NULL;
}

static void set_threads(void *library, const char *name, int threads)
{
    void (*function)(int) = (void (*)(int))symbol(library, name);
    if (function) function(threads);
}

/* "OpenMP (libgomp.so.1)": the OpenMP runtime whose functions the library sees; two of them are two teams of threads.
 */
static void name_openmp(void *library, char out[64])
{
    Dl_info     info;
    void       *function = dlsym(library, "omp_get_max_threads");
    const char *file = "unknown runtime";
    if (function && dladdr(function, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        file = slash ? slash + 1 : info.dli_fname;
    }
    snprintf(out, 64, "OpenMP (%.40s)", file);
}

/* MKL chooses its layer by what is loaded already: the loaded file tells. */
static int name_mkl_layer(struct dl_phdr_info *info, size_t size, void *out)
{
    static const char *const layers[][2] = {
        { "libmkl_gnu_thread", "OpenMP (libgomp)" },
        { "libmkl_intel_thread", "OpenMP (libiomp5)" },
        { "libmkl_tbb_thread", "TBB" },
        { "libmkl_sequential", "none: one thread" },
    };
    (void)size;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (strstr(info->dlpi_name, layers[i][0])) {
            snprintf(out, 64, "%s", layers[i][1]);
            return 1;
        }
    return 0;
}

/* --- running --------------------------------------------------------------------------------- */

/* Where the engine's call for operands of 16 bits is. */
static int half_of(const tm_product *p)
{
    return p->dtype == TM_BF16 ? 1 : 2;
}

static void run_cblas(tm_engine *engine, const tm_operands *o, int64_t turn)
{
    const tm_product *p = &o->product;
    int               ta = p->trans_a ? TRANS : NO_TRANS, tb = p->trans_b ? TRANS : NO_TRANS;
    int               m = (int)p->m, n = (int)p->n, k = (int)p->k;
    int               lda = (int)tm_product_lda(p), ldb = (int)tm_product_ldb(p);
    const void       *a = tm_operands_a(o, turn), *b = tm_operands_b(o, turn);
    if (p->dtype == TM_F32)
        ((cblas_sgemm_fn *)engine->call[0])(ROW_MAJOR, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, tm_operands_c(o, turn),
                                            n);
    else
        ((cblas_half_fn *)engine->call[half_of(p)])(ROW_MAJOR, ta, tb, m, n, k, 1, a, lda, b, ldb, 0,
                                                    tm_operands_c(o, turn), n);
}

static void run_dnnl(tm_engine *engine, const tm_operands *o, int64_t turn)
{
    const tm_product *p = &o->product;
    char              ta = p->trans_a ? 'T' : 'N', tb = p->trans_b ? 'T' : 'N';
    const void       *a = tm_operands_a(o, turn), *b = tm_operands_b(o, turn);
    int64_t           lda = tm_product_lda(p), ldb = tm_product_ldb(p);
    if (p->dtype == TM_F32)
        ((dnnl_sgemm_fn *)engine->call[0])(ta, tb, p->m, p->n, p->k, 1, a, lda, b, ldb, 0, tm_operands_c(o, turn),
                                           p->n);
    else
        ((dnnl_bf16_fn *)engine->call[1])(ta, tb, p->m, p->n, p->k, 1, a, lda, b, ldb, 0, tm_operands_c(o, turn), p->n);
}

static const char *refuse_library(const tm_engine *engine, const tm_product *p)
{
    if (p->dtype == TM_BF16 && !engine->call[1]) return "the library offers no bfloat16 product";
    if (p->dtype == TM_F16 && !engine->call[2]) return "the library offers no float16 product";
    if (p->c_dtype != TM_F32) return "the library gives float32 results only (--c-dtype float32)";
    return NULL;
}

/* --- libraries ------------------------------------------------------------------------------- */

static void probe_dnnl(tm_engine *engine)
{
    static const struct {
        int         bits;
        const char *name;
    } isas[] = { { 0x1, "sse41" },
                 { 0x3, "avx" },
                 { 0x7, "avx2" },
                 { 0x27, "avx512_core" },
                 { 0x67, "avx512_core_vnni" },
                 { 0xe7, "avx512_core_bf16" },
                 { 0x3e7, "avx512_core_amx" },
                 { 0x407, "avx2_vnni" },
                 { 0x1ef, "avx512_core_fp16" },
                 { 0xfef, "avx512_core_amx" } };
    const dnnl_version_record *(*version)(void) =
        (const dnnl_version_record *(*)(void))symbol(engine->library, "dnnl_version");
    int (*effective_isa)(void) = (int (*)(void))symbol(engine->library, "dnnl_get_effective_cpu_isa");
    if (version) {
        const dnnl_version_record *v = version();
        unsigned                   runtime = v->cpu_runtime;
        snprintf(engine->version, sizeof engine->version, "%d.%d.%d", v->major, v->minor, v->patch);
        snprintf(engine->pool, sizeof engine->pool, "%s",
                 runtime == 1   ? "none: one thread"
                 : runtime == 4 ? "TBB"
                                : "unknown");
        if (runtime == 2) name_openmp(engine->library, engine->pool);
        if (runtime == 1) engine->threads = 1;
    }
    int isa = effective_isa ? effective_isa() : 0;
    snprintf(engine->kernel, sizeof engine->kernel, "sgemm, isa 0x%x", (unsigned)isa);
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (isas[i].bits == isa) snprintf(engine->kernel, sizeof engine->kernel, "sgemm, %s", isas[i].name);
    /* An OpenMP runtime of its own is told, too; ours is already. */
    set_threads(engine->library, "omp_set_num_threads", engine->threads);
}

static void probe_openblas(tm_engine *engine)
{
    int (*parallel)(void) = (int (*)(void))symbol(engine->library, "openblas_get_parallel");
    int (*threads)(void) = (int (*)(void))symbol(engine->library, "openblas_get_num_threads");
    const char *config = text_of(engine->library, "openblas_get_config");
    const char *core = text_of(engine->library, "openblas_get_corename");
    int         kind = parallel ? parallel() : -1;
    snprintf(engine->version, sizeof engine->version, "%s", config ? config : "unknown");
    snprintf(engine->kernel, sizeof engine->kernel, "core type %s", core ? core : "unknown");
    snprintf(engine->pool, sizeof engine->pool, "%s",
             kind == 0   ? "none: one thread"
             : kind == 1 ? "its own pthreads"
             : kind == 2 ? "OpenMP"
                         : "unknown");
    if (kind == 2) name_openmp(engine->library, engine->pool);
    set_threads(engine->library, "openblas_set_num_threads", engine->threads);
    if (threads) engine->threads = threads();
}

static void probe_blis(tm_engine *engine)
{
    int (*arch)(void) = (int (*)(void))symbol(engine->library, "bli_arch_query_id");
    const char *(*arch_name)(int) = (const char *(*)(int))symbol(engine->library, "bli_arch_string");
    int64_t (*openmp)(void) = (int64_t(*)(void))symbol(engine->library, "bli_info_get_enable_openmp");
    int64_t (*pthreads)(void) = (int64_t(*)(void))symbol(engine->library, "bli_info_get_enable_pthreads");
    int64_t (*threads)(void) = (int64_t(*)(void))symbol(engine->library, "bli_thread_get_num_threads");
    void (*set)(int64_t) = (void (*)(int64_t))symbol(engine->library, "bli_thread_set_num_threads");
    const char *version = text_of(engine->library, "bli_info_get_version_str");
    snprintf(engine->version, sizeof engine->version, "%s", version ? version : "unknown");
    snprintf(engine->kernel, sizeof engine->kernel, "configuration %s",
             arch && arch_name ? arch_name(arch()) : "unknown");
    snprintf(engine->pool, sizeof engine->pool, "%s",
             openmp && openmp()       ? "OpenMP"
             : pthreads && pthreads() ? "pthreads made for each call"
                                      : "none: one thread");
    if (openmp && openmp()) name_openmp(engine->library, engine->pool);
    if (set) set(engine->threads);
    if (threads) engine->threads = (int)threads();
}

static void probe_mkl(tm_engine *engine)
{
    void (*version)(char *, int) = (void (*)(char *, int))symbol(engine->library, "mkl_get_version_string");
    int (*threads)(void) = (int (*)(void))symbol(engine->library, "MKL_Get_Max_Threads");
    int (*branch)(void) = (int (*)(void))symbol(engine->library, "MKL_CBWR_Get_Auto_Branch");
    char text[256] = "unknown";
    if (!version) version = (void (*)(char *, int))symbol(engine->library, "MKL_Get_Version_String");
    if (version) version(text, sizeof text - 1);
    const char *number = strstr(text, "Version "), *rest = strstr(text, " for ");
    if (number) number += strlen("Version ");
    snprintf(engine->version, sizeof engine->version, "%.*s",
             number && rest > number ? (int)(rest - number) : (int)sizeof engine->version - 1, number ? number : text);
    snprintf(engine->kernel, sizeof engine->kernel, "branch %d", branch ? branch() : -1);
    set_threads(engine->library, "MKL_Set_Num_Threads", engine->threads);
    if (threads) engine->threads = threads();
    float one = 1, product = 0; /* the first product loads the threading layer */
    ((cblas_sgemm_fn *)engine->call[0])(ROW_MAJOR, NO_TRANS, NO_TRANS, 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1);
    snprintf(engine->pool, sizeof engine->pool, "unknown");
    (void)dl_iterate_phdr(name_mkl_layer, engine->pool);
}

typedef struct {
    const char *name;
    const char *files[5];   /* first found is taken; NULL-terminated */
    const char *symbols[3]; /* float32, bfloat16, float16 */
    const char *forced[2];  /* environment variables that take the choice of kernels away from the library */
    void (*probe)(tm_engine *engine);
    void (*run)(tm_engine *engine, const tm_operands *operands, int64_t turn);
} library_row;

static const library_row libraries[] = {
    { "oneDNN",
      { "libdnnl.so.3", "libdnnl.so.2" },
      { "dnnl_sgemm", "dnnl_gemm_bf16bf16f32" },
      { "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA" },
      probe_dnnl,
      run_dnnl },
    { "OpenBLAS",
      { "libopenblas.so.0" },
      { "cblas_sgemm", "cblas_sbgemm", "cblas_shgemm" },
      { "OPENBLAS_CORETYPE" },
      probe_openblas,
      run_cblas },
    { "BLIS",
      { "libblis.so.4", "libblis-mt.so.4", "libblis.so.5" },
      { "cblas_sgemm", NULL },
      { "BLIS_ARCH_TYPE" },
      probe_blis,
      run_cblas },
    { "MKL",
      { "libmkl_rt.so.2", "libmkl_rt.so.3", "libmkl_rt.so.1" },
      { "cblas_sgemm", "cblas_gemm_bf16bf16f32", "cblas_gemm_f16f16f32" },
      { "MKL_ENABLE_INSTRUCTIONS" },
      probe_mkl,
      run_cblas },
};
enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

/* A core type that the environment dictates is not the one that the library found. */
static void tell_forced(const library_row *row, tm_engine *engine)
{
    for (int i = 0; i < 2 && row->forced[i]; i++) {
        const char *value = getenv(row->forced[i]);
        size_t      n = strlen(engine->kernel);
        if (value && *value)
            snprintf(engine->kernel + n, sizeof engine->kernel - n, " (%s=%.24s)", row->forced[i], value);
    }
}

/* --- loading --------------------------------------------------------------------------------- */

/* A relative or empty element of LD_LIBRARY_PATH stands for the current directory: whoever can write there would decide
 * what is loaded. */
static tm_status check_search_path(tm_error *err)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (!path || !*path) return TM_OK;
    for (const char *at = path;; at++) {
        size_t n = strcspn(at, ":;");
        if (*at != '/')
            return tm_fail(err, TM_UNSUPPORTED,
                           "LD_LIBRARY_PATH has the element '%.*s', which depends on the current directory; libraries "
                           "are loaded from absolute paths only",
                           (int)n, at);
        at += n;
        if (!*at) return TM_OK;
    }
}

static bool open_library(const library_row *row, tm_bench *bench, tm_engine *engine)
{
    *engine = (tm_engine){
        .name = row->name, .bench = bench, .threads = bench->threads, .refuse = refuse_library, .run = row->run
    };
    for (int i = 0; row->files[i] && !engine->library; i++)
        engine->library = dlopen(row->files[i], RTLD_NOW | RTLD_LOCAL);
    if (!engine->library) return false;
    struct link_map *map;
    if (dlinfo(engine->library, RTLD_DI_LINKMAP, &map) == 0)
        snprintf(engine->path, sizeof engine->path, "%s", map->l_name);
    for (int i = 0; i < 3; i++)
        if (row->symbols[i]) engine->call[i] = symbol(engine->library, row->symbols[i]);
    if (!engine->call[0]) return false;
    row->probe(engine);
    tell_forced(row, engine);
    return true;
}

static const library_row *find_row(const char *name, tm_error *err)
{
    tm_text list = { 0 };
    for (int i = 0; i < LIBRARIES; i++) {
        if (tm_names_equal(libraries[i].name, name)) {
            tm_text_fini(&list);
            return &libraries[i];
        }
        tm_text_printf(&list, "%s%s", i ? ", " : "", libraries[i].name);
    }
    (void)tm_fail(err, TM_INVALID, "'%.100s' (--library) is not a known library; known: %s", name, list.data);
    tm_text_fini(&list);
    return NULL;
}

tm_status tm_engine_libraries(tm_bench *bench, const char *only, tm_engine_list *list, tm_error *err)
{
    const library_row *wanted = only ? find_row(only, err) : NULL;
    if (only && !wanted) return TM_INVALID;
    TM_TRY(check_search_path(err));
    for (int i = 0; i < LIBRARIES; i++) {
        if (wanted && wanted != &libraries[i]) continue;
        tm_engine *engine = &list->items[list->count];
        if (open_library(&libraries[i], bench, engine)) {
            list->count++;
            tm_bench_note(bench, "%s: %s, %s, threads: %d (%s), %s", engine->name, engine->version, engine->kernel,
                          engine->threads, engine->pool, engine->path);
        } else if (wanted) {
            return tm_fail(err, TM_UNSUPPORTED, "%s (%s) is not installed, or cannot be loaded (--library)",
                           wanted->name, wanted->files[0]);
        } else {
            tm_bench_note(bench, "%s: not found", libraries[i].name);
        }
    }
    return TM_OK;
}
