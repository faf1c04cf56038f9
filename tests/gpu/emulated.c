/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/emulated.h"

#include "gpu/compile.h"
#include "support/folder.h"
#include "support/test.h"

#include <dlfcn.h>
#include <limits.h>

/* Can it compile an empty kernel? */
static bool compiles(bool hip, tm_error *err)
{
    tm_gpu_compiler *compiler;
    tm_gpu_code      code;
    tm_gpu_source    source = { .name = "nothing", .source = "/* nothing */\n", .arch = hip ? "gfx942" : "sm_90" };
    if (tm_gpu_compiler_open(hip ? TM_GPU_HIP : TM_GPU_CUDA, &compiler, err) != TM_OK) return false;
    bool good = tm_gpu_compile(compiler, &source, &code, err) == TM_OK;
    if (good) free(code.code);
    tm_gpu_compiler_close(compiler);
    return good;
}

bool gpu_is_real(void)
{
    const char *gpu = getenv("TM_TEST_GPU");
    return gpu && strcmp(gpu, "real") == 0;
}

/* `variable` names a stand-in. */
static void take_standin(const char *variable, const char *library)
{
    const char *path = test_built(library);
    setenv(variable, path, 1);
    if (strcmp(library, "kernels") == 0 && mkdir(path, 0700) == 0) (void)chmod(path, 0700);
}

static void take_standins(bool hip)
{
    take_standin("TRAINMARK_GPU_RUNTIME", hip ? "standins/hip.so" : "standins/cuda.so");
    take_standin(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT",
                 hip ? "standins/hipblaslt.so" : "standins/cublaslt.so");
    setenv("TRAINMARK_CUDNN", "none", 0); /* own attention, unless a test wants the stand-in's */
    setenv(hip ? "TRAINMARK_ROCBLAS" : "TRAINMARK_CUBLAS", "none", 0);
}

void emulated_without_compiler(const char *name)
{
    bool hip = strcmp(name, "hip") == 0;
    take_standins(hip);
    setenv(hip ? "TRAINMARK_HIPRTC" : "TRAINMARK_NVRTC", "/nonexistent/compiler.so", 1);
    setenv("TRAINMARK_KERNELS", "", 1);
}

static bool is_required(void)
{
    const char *wanted = getenv("TM_TEST_COMPILERS");
    return wanted && strcmp(wanted, "required") == 0;
}

void emulated_uncompiled(const char *name)
{
    bool hip = strcmp(name, "hip") == 0;
    take_standins(hip);
    take_standin(hip ? "TRAINMARK_HIPRTC" : "TRAINMARK_NVRTC", hip ? "standins/hiprtc.so" : "standins/nvrtc.so");
    take_standin("TRAINMARK_KERNELS", "kernels");
    /* what is kept there does not tell by which clang */
    if (hip && getenv("TM_HIP_CLANG")) setenv("TRAINMARK_KERNELS", "", 1);
}

bool emulated_device(const char *name)
{
    bool     hip = strcmp(name, "hip") == 0;
    tm_error err = { 0 };
    if (!gpu_is_real()) emulated_uncompiled(name);
    if (compiles(hip, &err)) return true;
    if (is_required()) fail_msg("%s", err.text);
    print_message("SKIPPED: no compiler of kernels for %s (tools/kernel_compilers.sh): %s\n", name, err.text);
    return false;
}

const char *word_of(const char *list, int i)
{
    static char word[64];
    for (; i > 0; i--) list += strcspn(list, " "), list += *list == ' ';
    snprintf(word, sizeof word, "%.*s", (int)strcspn(list, " "), list);
    return *word ? word : NULL;
}

tm_device *emulated_open(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}
