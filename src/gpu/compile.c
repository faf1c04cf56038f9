/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/compile.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "gpu/library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The two libraries have the same calls. X(member, arguments, NVRTC's name, hiprtc's) */
#define COMPILER_CALLS(X)                                                                                              \
    X(version, (int *major, int *minor), "nvrtcVersion", "hiprtcVersion")                                              \
    X(create,                                                                                                          \
      (void **program, const char *source, const char *name, int n, const char *const *headers,                        \
       const char *const *names),                                                                                      \
      "nvrtcCreateProgram", "hiprtcCreateProgram")                                                                     \
    X(compile, (void *program, int n, const char *const *options), "nvrtcCompileProgram", "hiprtcCompileProgram")      \
    X(code_bytes, (void *program, size_t *bytes), "nvrtcGetCUBINSize", "hiprtcGetCodeSize")                            \
    X(code, (void *program, char *code), "nvrtcGetCUBIN", "hiprtcGetCode")                                             \
    X(log_bytes, (void *program, size_t *bytes), "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize")                  \
    X(log, (void *program, char *log), "nvrtcGetProgramLog", "hiprtcGetProgramLog")                                    \
    X(destroy, (void **program), "nvrtcDestroyProgram", "hiprtcDestroyProgram")

struct tm_gpu_compiler {
#define X(member, arguments, cuda, hip) int(*member) arguments;
    COMPILER_CALLS(X)
#undef X
    bool       hip;
    tm_library library;
    char       name[40];
    int        number;           /* 100 times the major version, and the minor one */
    char       folder[PATH_MAX]; /* where code is kept; "": nowhere */
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

/* The folder, if it is the user's own and nobody else may write there. */
static void find_folder(tm_gpu_compiler *c)
{
    const char *given = getenv("TRAINMARK_KERNELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char        path[PATH_MAX];
    struct stat about;
    int         n = -1;
    if (given)
        n = snprintf(path, sizeof path, "%s", given);
    else if (cache && *cache == '/')
        n = snprintf(path, sizeof path, "%s/trainmark/kernels", cache);
    else if (home && *home == '/')
        n = snprintf(path, sizeof path, "%s/.cache/trainmark/kernels", home);
    if (n <= 0 || (size_t)n >= sizeof path) return;
    if (!tm_file_exists(path)) {
        tm_error ignored = { 0 };
        if (tm_folder_make(path, &ignored) != TM_OK || chmod(path, 0700) != 0) return;
    }
    if (lstat(path, &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077))
        return;
    memcpy(c->folder, path, (size_t)n + 1);
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
    find_folder(c);
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

/* --- what is kept ---------------------------------------------------------------------------------------------------
 */

/* A file: these, then the code. */
typedef struct {
    char     magic[8];
    uint64_t key, bytes, hash;
} header;

static const char magic[8] = "TMKERN1";

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

static bool path_of(const tm_gpu_compiler *c, uint64_t key, char path[PATH_MAX])
{
    if (!*c->folder) return false;
    return snprintf(path, PATH_MAX, "%s/%016llx", c->folder, (unsigned long long)key) < PATH_MAX;
}

static bool read_all(int fd, void *to, size_t bytes)
{
    for (size_t have = 0; have < bytes;) {
        ssize_t n = read(fd, (char *)to + have, bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return true;
}

/* False: it is not there, or damaged. */
static bool recall(const tm_gpu_compiler *c, uint64_t key, tm_gpu_code *out)
{
    enum { LIMIT = 256 << 20 };
    char   path[PATH_MAX];
    header h;
    int    fd = path_of(c, key, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0) return false;
    void *code = NULL;
    bool  good = read_all(fd, &h, sizeof h) && memcmp(h.magic, magic, sizeof magic) == 0 && h.key == key &&
                h.bytes > 0 && h.bytes <= LIMIT;
    if (good) {
        code = tm_alloc(h.bytes);
        good = read_all(fd, code, h.bytes) && tm_hash(code, h.bytes) == h.hash;
    }
    close(fd);
    if (!good) {
        free(code);
        return false;
    }
    *out = (tm_gpu_code){ code, h.bytes, true };
    return true;
}

/* Whoever cannot keep it compiles it again. */
static void keep(const tm_gpu_compiler *c, uint64_t key, const tm_gpu_code *code)
{
    char     path[PATH_MAX];
    header   h = { .key = key, .bytes = code->bytes, .hash = tm_hash(code->code, code->bytes) };
    tm_error ignored = { 0 };
    if (!path_of(c, key, path)) return;
    memcpy(h.magic, magic, sizeof magic);
    char *all = tm_alloc(sizeof h + code->bytes);
    memcpy(all, &h, sizeof h);
    memcpy(all + sizeof h, code->code, code->bytes);
    tm_status st = tm_file_write(path, all, sizeof h + code->bytes, &ignored);
    (void)st;
    free(all);
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
    if (recall(c, key, out)) return TM_OK;
    TM_TRY(compile(c, source, &options, out, err));
    keep(c, key, out);
    return TM_OK;
}
