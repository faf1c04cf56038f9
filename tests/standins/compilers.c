/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for the compilers of kernels, whose code the stand-ins for GPUs execute: with HIP defined for hiprtc, by a
 * clang that knows AMD's GPUs ($TM_HIP_CLANG, else that of the wheel ziglang in build/venv), which writes assembler
 * text; else for NVRTC, by the real one ($TM_NVRTC, where the loader or the toolkit has it, or in build/venv), asked
 * for PTX.
 *
 * STANDIN_COMPILE_FAIL=1: every source has an error. STANDIN_COMPILER_VERSION=12.3: another version.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define STANDIN_NAMED "; text "                       /* gpu_program.c */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* those of the makers' headers */
#define API __attribute__((visibility("default"))) int

enum { OK = 0, COMPILATION = 6 };

typedef struct {
    char *source, *name, *code, log[4096];
    void *real; /* NVRTC's own */
} program;

/* The repository: four folders above this library's. */
static const char *root(void)
{
    static char path[PATH_MAX];
    Dl_info     info;
    if (*path || !dladdr((void *)(size_t)root, &info) || !realpath(info.dli_fname, path)) return path;
    for (int i = 0; i < 5; i++) *strrchr(path, '/') = '\0';
    return path;
}

API NAME(nvrtcVersion, hiprtcVersion)(int *major, int *minor)
{
    const char *wanted = getenv("STANDIN_COMPILER_VERSION");
    *major = NAME(13, 7);
    *minor = 0;
    if (wanted) (void)sscanf(wanted, "%d.%d", major, minor);
    return OK;
}

API NAME(nvrtcCreateProgram, hiprtcCreateProgram)(void **out, const char *source, const char *name, int n,
                                                  const char *const *headers, const char *const *names)
{
    program *p = calloc(1, sizeof *p);
    (void)headers;
    (void)names;
    p->source = strdup(source);
    p->name = strdup(name);
    *out = p;
    return n == 0 ? OK : 3;
}

#ifdef HIP
static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long  n = ftell(f);
    char *text = calloc((size_t)n + 1, 1);
    rewind(f);
    if (fread(text, 1, (size_t)n, f) != (size_t)n) text[0] = '\0';
    fclose(f);
    return text;
}

/* A line before the text: which it is, with its definitions. */
static void name_code(program *p, int n, const char *const *options)
{
    char  *text = p->code;
    size_t bytes;
    FILE  *out = open_memstream(&p->code, &bytes);
    fprintf(out, STANDIN_NAMED "%s", p->name);
    for (int i = 0; i < n; i++)
        if (strncmp(options[i], "-D", 2) == 0 && strchr(options[i], '=')) fprintf(out, " %s", options[i] + 2);
    fprintf(out, "\n%s", text);
    fclose(out);
    free(text);
}

/* A shell's command, its words in single quotes. */
static int compile(program *p, int n, const char *const *options)
{
    char        folder[] = "/tmp/trainmark-standin-XXXXXX", path[64], command[8192], *words = getenv("TM_HIP_CLANG");
    size_t      at;
    const char *flags = "-x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -gline-tables-only";
    if (!mkdtemp(folder)) return COMPILATION;
    snprintf(path, sizeof path, "%s/k.hip", folder);
    FILE *f = fopen(path, "w");
    fputs(p->source, f);
    fclose(f);
    at = words && *words ? (size_t)snprintf(command, sizeof command, "cd %s && %s", folder, words)
                         : (size_t)snprintf(command, sizeof command,
                                            "cd %s && %s/build/venv/bin/python -m ziglang clang", folder, root());
    at += (size_t)snprintf(command + at, sizeof command - at, " %s", flags);
    for (int i = 0; i < n; i++) at += (size_t)snprintf(command + at, sizeof command - at, " '%s'", options[i]);
    snprintf(command + at, sizeof command - at, " -S k.hip -o k.s 2>log");
    int status = system(command);
    snprintf(path, sizeof path, "%s/log", folder);
    char *log = read_whole(path);
    snprintf(p->log, sizeof p->log, "%s", log ? log : "");
    free(log);
    snprintf(path, sizeof path, "%s/k.s", folder);
    if (status == 0) p->code = read_whole(path);
    if (p->code && getenv("STANDIN_GPU_LAUNCHED")) name_code(p, n, options);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && p->code ? OK : COMPILATION;
}
#else
static void *real_library(void)
{
    static void *library;
    const char  *named = getenv("TM_NVRTC");
    char         pattern[PATH_MAX + 80];
    glob_t       found;
    if (library) return library;
    library = dlopen(named ? named : "libnvrtc.so.13", RTLD_NOW);
    if (!library && !named) library = dlopen("/usr/local/cuda/lib64/libnvrtc.so.13", RTLD_NOW);
    snprintf(pattern, sizeof pattern, "%s/build/venv/lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.13", root());
    if (!library && !named && glob(pattern, 0, NULL, &found) == 0) {
        library = dlopen(found.gl_pathv[0], RTLD_NOW);
        globfree(&found);
    }
    return library;
}

static int compile(program *p, int n, const char *const *options)
{
    void  *library = real_library();
    char   architecture[64] = "";
    size_t size = 0;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile_it)(void *, int, const char *const *), (*size_of)(void *, size_t *), (*text_of)(void *, char *);
    if (!library) {
        snprintf(p->log, sizeof p->log, "there is no NVRTC behind the stand-in");
        return COMPILATION;
    }
    *(void **)&create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&compile_it = dlsym(library, "nvrtcCompileProgram");
    const char *own[32];
    for (int i = 0; i < n && i < 32; i++) {
        own[i] = options[i];
        if (strncmp(options[i], "--gpu-architecture=sm_", 22) != 0) continue;
        snprintf(architecture, sizeof architecture, "--gpu-architecture=compute_%s", options[i] + 22);
        own[i] = architecture;
    }
    own[n] = "-lineinfo";
    bool fine = create(&p->real, p->source, "k.cu", 0, NULL, NULL) == 0 && compile_it(p->real, n + 1, own) == 0;
    *(void **)&size_of = dlsym(library, fine ? "nvrtcGetPTXSize" : "nvrtcGetProgramLogSize");
    *(void **)&text_of = dlsym(library, fine ? "nvrtcGetPTX" : "nvrtcGetProgramLog");
    if (size_of(p->real, &size) != 0) return COMPILATION;
    char *text = calloc(size + 1, 1);
    if (text_of(p->real, text) == 0 && fine) {
        p->code = text;
        return OK;
    }
    snprintf(p->log, sizeof p->log, "%s", text);
    free(text);
    return COMPILATION;
}
#endif

API NAME(nvrtcCompileProgram, hiprtcCompileProgram)(void *of, int n, const char *const *options)
{
    program *p = of;
    if (!getenv("STANDIN_COMPILE_FAIL")) return compile(p, n, options);
    snprintf(p->log, sizeof p->log, "k.cu(1): error: an error on command");
    return COMPILATION;
}

API NAME(nvrtcGetCUBINSize, hiprtcGetCodeSize)(void *of, size_t *bytes)
{
    *bytes = strlen(((program *)of)->code) + 1;
    return OK;
}

API NAME(nvrtcGetCUBIN, hiprtcGetCode)(void *of, char *code)
{
    strcpy(code, ((program *)of)->code); // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
    return OK;
}

API NAME(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize)(void *of, size_t *bytes)
{
    *bytes = strlen(((program *)of)->log) + 1;
    return OK;
}

API NAME(nvrtcGetProgramLog, hiprtcGetProgramLog)(void *of, char *log)
{
    strcpy(log, ((program *)of)->log); // NOLINT(clang-analyzer-security.insecureAPI.strcpy)
    return OK;
}

API NAME(nvrtcDestroyProgram, hiprtcDestroyProgram)(void **of)
{
    program *p = *of;
    free(p->source);
    free(p->name);
    free(p->code);
    free(p);
    *of = NULL;
    return OK;
}
