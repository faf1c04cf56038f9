/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/emulated.h"

#include "gpu/compile.h"
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool emulated_device(const char *name)
{
    char        folder[PATH_MAX], path[PATH_MAX + 64];
    bool        hip = strcmp(name, "hip") == 0;
    ssize_t     n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    const char *wanted = getenv("TM_TEST_COMPILERS");
    tm_error    err = { 0 };
    assert_true(n > 0);
    folder[n] = '\0';
    for (int i = 0; i < 2; i++) *strrchr(folder, '/') = '\0';
    if (!gpu_is_real()) {
        snprintf(path, sizeof path, "%s/standins/%s.so", folder, hip ? "hip" : "cuda");
        setenv("TRAINMARK_GPU_RUNTIME", path, 1);
        snprintf(path, sizeof path, "%s/standins/%s.so", folder, hip ? "hiprtc" : "nvrtc");
        setenv(hip ? "TRAINMARK_HIPRTC" : "TRAINMARK_NVRTC", path, 1);
        snprintf(path, sizeof path, "%s/standins/%s.so", folder, hip ? "hipblaslt" : "cublaslt");
        setenv(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", path, 1);
        snprintf(path, sizeof path, "%s/kernels", folder);
        if (mkdir(path, 0700) == 0) (void)chmod(path, 0700);
        setenv("TRAINMARK_KERNELS", path, 1);
    }
    if (compiles(hip, &err)) return true;
    if (wanted && strcmp(wanted, "required") == 0) fail_msg("%s", err.text);
    print_message("SKIPPED: no compiler of kernels for %s (tools/kernel_compilers.sh): %s\n", name, err.text);
    return false;
}
