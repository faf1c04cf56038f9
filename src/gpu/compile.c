/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/compile.h"

#include "base/arena.h"
#include "base/hash.h"
#include "gpu/compile_calls.h"
#include "gpu/kept.h"
#include "gpu/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_gpu_compiler {
#define X(member, arguments, cuda, hip) int(*member) arguments;
    COMPILER_CALLS(X)
#undef X
    bool        hip;
    tm_library  library;
    char        name[40];
    int         number; /* 100 times the major version, and the minor one */
    tm_gpu_kept kept;
};

static const struct {
    size_t      at;
    const char *name[2];
} names[] = {
#define X(member, arguments, cuda, hip) { offsetof(tm_gpu_compiler, member), { cuda, hip } },
    COMPILER_CALLS(X)
#undef X
};
enum { NAMES = sizeof names / sizeof names[0] };

/* --- the library ----------------------------------------------------------------------------------------------------
 */

static tm_status find_library(tm_gpu_compiler *c, tm_error *err)
{
    static const char *const nvrtc[] = { "libnvrtc.so.13", "libnvrtc.so.12", NULL };
    static const char *const hiprtc[] = { "libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", NULL };
    const char              *given = getenv(c->hip ? "TRAINMARK_HIPRTC" : "TRAINMARK_NVRTC");
    const char *const        one[] = { given, NULL };
    tm_text                  tried = { 0 };
    tm_status                st = TM_OK;
    int                      driver = c->hip ? 0 : tm_gpu_version(TM_GPU_CUDA);
    bool                     older = driver > 0 && driver < 13000; /* it does not load what CUDA 13 compiles */
    if (!(given && *given
              ? tm_library_open(one, &c->library, &tried)
              : tm_library_open_of((tm_gpu_maker)c->hip, c->hip ? hiprtc : nvrtc + older, &c->library, &tried)))
        st = tm_fail(err, TM_UNSUPPORTED,
                     c->hip ? "no compiler of kernels was found (%s); install ROCm's hiprtc (`apt-get install "
                              "hip-runtime-amd`), or name libhiprtc.so in TRAINMARK_HIPRTC"
                            : "no compiler of kernels was found (%s); install NVIDIA's NVRTC (`apt-get install "
                              "cuda-nvrtc-13-0`, or `pip install nvidia-cuda-nvrtc`), or name libnvrtc.so in "
                              "TRAINMARK_NVRTC",
                     tried.data ? tried.data : "");
    tm_text_fini(&tried);
    return st;
}

static tm_status find_calls(tm_gpu_compiler *c, tm_error *err)
{
    for (int i = 0; i < NAMES; i++) {
        void *symbol = tm_library_symbol(&c->library, names[i].name[c->hip]);
        if (!symbol)
            return tm_fail(err, TM_UNSUPPORTED, "'%s' has no %s: it is too old, or no %s", c->library.path,
                           names[i].name[c->hip], c->hip ? "hiprtc" : "NVRTC");
        memcpy((char *)c + names[i].at, &symbol, sizeof symbol);
    }
    return TM_OK;
}

tm_status tm_gpu_compiler_open(tm_gpu_maker maker, tm_gpu_compiler **out, tm_error *err)
{
    tm_gpu_compiler *c = memset(tm_alloc(sizeof *c), 0, sizeof *c);
    int              major = 0, minor = 0;
    c->hip = maker == TM_GPU_HIP;
    tm_status st = find_library(c, err);
    if (st == TM_OK) st = find_calls(c, err);
    if (st == TM_OK && c->version(&major, &minor) != 0)
        st = tm_fail(err, TM_UNSUPPORTED, "'%s' does not tell its version", c->library.path);
    if (st != TM_OK) {
        free(c);
        return st;
    }
    snprintf(c->name, sizeof c->name, "%s %d.%d", c->hip ? "hiprtc" : "NVRTC", major, minor);
    c->number = 100 * major + minor;
    tm_gpu_kept_find(&c->kept);
    *out = c;
    return TM_OK;
}

void tm_gpu_compiler_close(tm_gpu_compiler *c)
{
    free(c);
}

const char *tm_gpu_compiler_name(const tm_gpu_compiler *c)
{
    return c->name;
}

int tm_gpu_compiler_version(const tm_gpu_compiler *c)
{
    return c->number;
}

const char *tm_gpu_compiler_library(const tm_gpu_compiler *c)
{
    return c->library.path;
}

/* All that the code depends on. */
static uint64_t key_of(const tm_gpu_compiler *c, const tm_gpu_source *s, const char *const *options, int n)
{
    tm_hasher *hasher = tm_hasher_create();
    tm_hasher_add(hasher, c->name, strlen(c->name) + 1);
    for (int i = 0; i < n; i++) tm_hasher_add(hasher, options[i], strlen(options[i]) + 1);
    tm_hasher_add(hasher, s->source, strlen(s->source));
    uint64_t key = tm_hasher_value(hasher);
    tm_hasher_destroy(hasher);
    return key;
}

/* --- compiling ------------------------------------------------------------------------------------------------------
 */

enum { MOST_OPTIONS = TM_GPU_MOST_DEFINES + 8, OPTION_ROOM = 120 };

typedef struct {
    char        text[MOST_OPTIONS][OPTION_ROOM];
    const char *list[MOST_OPTIONS];
    int         n;
} option_list;

static void add_option(option_list *o, const char *before, const char *text)
{
    TM_ASSERT(o->n < MOST_OPTIONS);
    int n = snprintf(o->text[o->n], OPTION_ROOM, "%s%s", before, text);
    TM_ASSERT(n < OPTION_ROOM);
    o->list[o->n] = o->text[o->n];
    o->n++;
}

/* Products and sums are not contracted: what is fused is written so, as on CPUs. Architectures 90 and 100 have
 * instructions of their own under names with an a. */
static void list_options(const tm_gpu_compiler *c, const tm_gpu_source *s, option_list *o)
{
    bool own = strcmp(s->arch, "sm_90") == 0 || strcmp(s->arch, "sm_100") == 0;
    add_option(o, c->hip ? "--offload-arch=" : "--gpu-architecture=", s->arch);
    if (!c->hip && own) strncat(o->text[0], "a", OPTION_ROOM - strlen(o->text[0]) - 1);
    add_option(o, c->hip ? "-ffp-contract=off" : "--fmad=false", "");
    add_option(o, c->hip ? "-std=c++17" : "--std=c++17", "");
    if (c->hip) add_option(o, "-O3", "");
    for (int i = 0; i < TM_GPU_MOST_DEFINES && s->defines[i]; i++) add_option(o, "-D", s->defines[i]);
}

/* The compiler's words about an error. */
static tm_status source_failed(const tm_gpu_compiler *c, void *program, const char *name, tm_error *err)
{
    size_t bytes = 0;
    char  *log = NULL;
    if (c->log_bytes(program, &bytes) == 0 && bytes > 1) {
        log = memset(tm_alloc(bytes + 1), 0, bytes + 1);
        if (c->log(program, log) != 0) *log = '\0';
    }
    tm_status st = tm_fail(err, TM_INTERNAL, "%s cannot compile the kernels of '%s': %.400s", c->name, name,
                           log && *log ? log : "it does not say why");
    free(log);
    return st;
}

static tm_status compile(tm_gpu_compiler *c, const tm_gpu_source *s, const option_list *o, tm_gpu_code *out,
                         tm_error *err)
{
    void  *program = NULL;
    size_t bytes = 0;
    if (c->create(&program, s->source, s->name, 0, NULL, NULL) != 0)
        return tm_fail(err, TM_INTERNAL, "%s does not take the kernels of '%s'", c->name, s->name);
    tm_status st = TM_OK;
    if (c->compile(program, o->n, o->list) != 0 || c->code_bytes(program, &bytes) != 0 || bytes == 0)
        st = source_failed(c, program, s->name, err);
    if (st == TM_OK) {
        *out = (tm_gpu_code){ tm_alloc(bytes), bytes, false };
        if (c->code(program, out->code) != 0) {
            free(out->code);
            st = source_failed(c, program, s->name, err);
        }
    }
    c->destroy(&program);
    return st;
}

tm_status tm_gpu_compile(tm_gpu_compiler *c, const tm_gpu_source *source, tm_gpu_code *out, tm_error *err)
{
    option_list options = { .n = 0 };
    list_options(c, source, &options);
    uint64_t key = key_of(c, source, options.list, options.n);
    *out = (tm_gpu_code){ .kept = true };
    if (tm_gpu_kept_recall(&c->kept, key, &out->code, &out->bytes)) return TM_OK;
    TM_TRY(compile(c, source, &options, out, err));
    tm_gpu_kept_store(&c->kept, key, out->code, out->bytes); /* whoever cannot keep it compiles it again */
    return TM_OK;
}
