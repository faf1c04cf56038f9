/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/compile_nvidia.h"
#include "support/test.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNELS "tests/machine/kernels/"
#define LIBRARY "libnvrtc.so.13"
#define IN_VENV "build/venv/lib/python*/site-packages/nvidia/*/lib/" LIBRARY

/* The functions of NVRTC that are used, as its documentation declares them; a program is a pointer. */
typedef struct nvrtc {
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *source, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(void *program, int options, const char *const *texts);
    int (*log_size)(void *program, size_t *size);
    int (*log)(void *program, char *text);
    int (*ptx_size)(void *program, size_t *size);
    int (*ptx)(void *program, char *text);
    int (*destroy)(void **program);
} nvrtc;

static void *open_library(void)
{
    const char *named = getenv("TM_NVRTC");
    void       *library = dlopen(named ? named : LIBRARY, RTLD_NOW);
    glob_t      found;
    if (!library && !named) library = dlopen("/usr/local/cuda/lib64/" LIBRARY, RTLD_NOW);
    if (!library && !named && glob(IN_VENV, 0, NULL, &found) == 0) {
        library = dlopen(found.gl_pathv[0], RTLD_NOW);
        globfree(&found);
    }
    return library;
}

static bool load(nvrtc *n)
{
    static const char *const names[] = { "nvrtcVersion",        "nvrtcCreateProgram",
                                         "nvrtcCompileProgram", "nvrtcGetProgramLogSize",
                                         "nvrtcGetProgramLog",  "nvrtcGetPTXSize",
                                         "nvrtcGetPTX",         "nvrtcDestroyProgram" };
    void                    *library = open_library(), *all[sizeof names / sizeof *names];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!library || !(all[i] = dlsym(library, names[i]))) return false;
    memcpy(n, all, sizeof *n);
    return true;
}

/* A text that grows. */
typedef struct text {
    char  *at;
    size_t n;
} text;

static void append(text *t, const char *more, size_t n)
{
    t->at = realloc(t->at, t->n + n + 1);
    if (!t->at) abort();
    memcpy(t->at + t->n, more, n);
    t->n += n;
    t->at[t->n] = 0;
}

static char *read_file(const char *path)
{
    FILE  *f = fopen(path, "r");
    text   t = { 0 };
    char   part[4096];
    size_t n;
    if (!f) return NULL;
    append(&t, "", 0);
    while ((n = fread(part, 1, sizeof part, f)) > 0) append(&t, part, n);
    fclose(f);
    return t.at;
}

/* Adds a kernel's source, with the files that it includes in their places and its lines numbered. */
static bool expand(text *to, const char *file)
{
    char  path[256], line[64], included[128];
    char *source, *next;
    snprintf(path, sizeof path, KERNELS "%s", file);
    if (!(source = read_file(path))) return false;
    int number = 1;
    snprintf(line, sizeof line, "#line 1 \"%s\"\n", file);
    append(to, line, strlen(line));
    for (char *at = source; *at; at = next, number++) {
        next = at + strcspn(at, "\n");
        next += *next == '\n';
        if (sscanf(at, "#include \"%127[^\"]\"", included) != 1) {
            append(to, at, (size_t)(next - at));
            continue;
        }
        if (!expand(to, included)) break;
        snprintf(line, sizeof line, "#line %d \"%s\"\n", number + 1, file);
        append(to, line, strlen(line));
    }
    free(source);
    return true;
}

static uint64_t hash_of(uint64_t hash, const char *s)
{
    for (; *s; s++) hash = (hash ^ (unsigned char)*s) * 0x100000001b3u;
    return hash;
}

static void cache_path(char path[512], uint64_t hash)
{
    const char *slash = strrchr(test_program, '/');
    int         folder = slash ? (int)(slash - test_program) : 1;
    snprintf(path, 512, "%.*s/kernels", folder, slash ? test_program : ".");
    mkdir(path, 0777);
    snprintf(path, 512, "%.*s/kernels/%016llx.ptx", folder, slash ? test_program : ".", (unsigned long long)hash);
}

/* Several tests may write the same file: each writes its own and puts it in place. */
static void keep(const char *path, const char *ptx)
{
    char  own[560];
    FILE *f;
    snprintf(own, sizeof own, "%s.%d", path, (int)getpid());
    if (!(f = fopen(own, "w"))) return;
    bool fine = fputs(ptx, f) >= 0;
    if (fclose(f) != 0 || !fine || rename(own, path) != 0) remove(own);
}

static char *compile(const nvrtc *n, const char *source, const char *file, const char *const *options, int n_options,
                     char error[MACHINE_ERROR_ROOM])
{
    void  *program = NULL;
    size_t size = 0;
    char  *out = NULL;
    if (n->create(&program, source, file, 0, NULL, NULL) != 0) return NULL;
    if (n->compile(program, n_options, options) == 0 && n->ptx_size(program, &size) == 0) {
        out = malloc(size + 1);
        if (!out || n->ptx(program, out) != 0) abort();
    } else if (n->log_size(program, &size) == 0) {
        char *log = malloc(size + 1);
        if (log && n->log(program, log) == 0) snprintf(error, MACHINE_ERROR_ROOM, "%.500s", log);
        free(log);
    }
    n->destroy(&program);
    return out;
}

/* Puts `to` in the place of the first `from`. */
static bool change(text *t, const char *from, const char *to)
{
    char *at = strstr(t->at, from);
    if (!at) return false;
    text changed = { 0 };
    append(&changed, t->at, (size_t)(at - t->at));
    append(&changed, to, strlen(to));
    append(&changed, at + strlen(from), strlen(at + strlen(from)));
    free(t->at);
    *t = changed;
    return true;
}

char *machine_compile_nvidia(const char *file, const char *arch, const char *from, const char *to, bool *missing,
                             char error[MACHINE_ERROR_ROOM])
{
    nvrtc n;
    text  source = { 0 };
    char  target[64], version[64], path[512], *out = NULL;
    int   major, minor;
    error[0] = 0;
    *missing = !load(&n);
    if (*missing) {
        snprintf(error, MACHINE_ERROR_ROOM, "there is no " LIBRARY);
        return NULL;
    }
    bool fine = expand(&source, file) && n.version(&major, &minor) == 0;
    if (!fine || (from && !change(&source, from, to))) {
        snprintf(error, MACHINE_ERROR_ROOM, "%s cannot be read, or is not as a change wants it", file);
        free(source.at);
        return NULL;
    }
    snprintf(target, sizeof target, "--gpu-architecture=compute_%s", arch + strlen("sm_"));
    snprintf(version, sizeof version, "nvrtc %d.%d", major, minor);
    const char *options[] = { target, "--fmad=false", "-lineinfo" };
    uint64_t    hash = hash_of(hash_of(0xcbf29ce484222325u, version), source.at);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) hash = hash_of(hash, options[i]);
    cache_path(path, hash);
    if (!(out = read_file(path))) {
        out = compile(&n, source.at, file, options, (int)(sizeof options / sizeof *options), error);
        if (out) keep(path, out);
    }
    free(source.at);
    return out;
}

machine_module *machine_nvidia_changed(const char *file, const char *arch, const char *from, const char *to)
{
    const char *wanted = getenv("TM_TEST_COMPILERS");
    char        error[MACHINE_ERROR_ROOM];
    bool        missing;
    char       *ptx = machine_compile_nvidia(file, arch, from, to, &missing, error);
    if (!ptx && missing && !(wanted && !strcmp(wanted, "required"))) {
        print_message("SKIPPED: %s for %s: %s (tools/kernel_compilers.sh)\n", file, arch, error);
        skip();
    }
    if (!ptx) fail_msg("%s for %s: %s", file, arch, error);
    machine_module *m = machine_load_ptx(ptx, error);
    free(ptx);
    if (!m) fail_msg("%s for %s: %s", file, arch, error);
    return m;
}

machine_module *machine_nvidia_module(const char *file, const char *arch)
{
    return machine_nvidia_changed(file, arch, NULL, NULL);
}
