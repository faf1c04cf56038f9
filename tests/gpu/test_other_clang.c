/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel for gfx942 (STANDIN_GPU_ARCH: another) as another clang compiles it (TM_HIP_CLANG; `make judge-clang`),
 * by all examples, and every one of src/device/gpu/source/modules.txt: users' hiprtc is of an older LLVM than the
 * tests' compiler. */
#include "gpu/emulated.h"
#include "gpu/launched.h"
#include "gpu/trials.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"

static int judge(void)
{
    char path[PATH_MAX];
    launched_begin(path);
    setenv("STANDIN_GPU_ARCH", "gfx942", 0);
    setenv("TM_MACHINE_SPILLS", "1", 1);
    kernels_are_right("hip", CODE_COMPILED);
    return getenv("TM_TEST_OP") || getenv("TM_TEST_KERNEL") ? 0 : launched_all("hip", NULL, path);
}

FULL_TEST(kernels_of_another_clang_are_right)
{
    if (gpu_is_real() || !getenv("TM_HIP_CLANG")) skip();
    judge();
}

static int tell(int argc, char **argv)
{
    (void)argc, (void)argv;
    int right = judge();
    printf("%s for %s: %d kernels are right\n", getenv("TM_HIP_CLANG"), getenv("STANDIN_GPU_ARCH"), right);
    return 0;
}

TM_TEST_ROLE("other-clang", tell)
