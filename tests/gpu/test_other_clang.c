/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel for gfx942 (STANDIN_GPU_ARCH: another) as another clang compiles it (TM_HIP_CLANG; `make judge-clang`),
 * by all examples, and every one of src/device/gpu/source/modules.txt: users' hiprtc is of an older LLVM than the
 * tests' compiler. */
#include "gpu/emulated.h"
#include "gpu/trials.h"

#include "support/test.h"

enum { LINE = 320 };

static bool has_line(FILE *file, const char *wanted)
{
    char line[LINE];
    rewind(file);
    while (fgets(line, sizeof line, file))
        if (strcmp(line, wanted) == 0) return true;
    return false;
}

/* Every kernel of the list is among the launches that were noted. Returns how many. */
static int launched_all(const char *path)
{
    FILE *list = fopen("src/device/gpu/source/modules.txt", "r"), *launched = fopen(path, "r");
    char  line[LINE];
    int   right = 0, missing = 0;
    if (!list || !launched) fail_msg("no list of kernels, or nothing was launched");
    while (fgets(line, sizeof line, list)) {
        if (strncmp(line, "hip ", 4) != 0) continue;
        right++;
        if (has_line(launched, line)) continue;
        print_error("not launched: %s", line);
        missing++;
    }
    fclose(list), fclose(launched);
    assert_true(right > 0);
    assert_int_equal(missing, 0);
    return right;
}

static int judge(void)
{
    char path[] = "/tmp/trainmark-launched-XXXXXX";
    int  fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("STANDIN_GPU_LAUNCHED", path, 1);
    setenv("STANDIN_GPU_ARCH", "gfx942", 0);
    setenv("TM_MACHINE_SPILLS", "1", 1);
    kernels_are_right("hip", CODE_COMPILED);
    int right = getenv("TM_TEST_OP") || getenv("TM_TEST_KERNEL") ? 0 : launched_all(path);
    unlink(path);
    return right;
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
