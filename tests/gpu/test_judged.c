/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that releases have inside (tools/embed_kernels.py, build/kernels) are judged: those very bytes are
 * executed, without a compiler, by all examples of the ops, and by trainings beside the CPU's. Code that nothing
 * launched fails, also in a drawn test, which takes the quick examples alone. What is judged by all of them is noted
 * for the build of a release: build/kernels/judged.ARCH has the hash of the set. */
#include "base/file.h"
#include "device/backend.h"
#include "device/trial.h"
#include "gpu/embedded.h"
#include "gpu/emulated.h"
#include "gpu/trials.h"
#include "support/training.h"

#include "support/test.h"

#define FOLDER "build/kernels"
enum { LIMIT = 64 << 20 };

static tm_text set;

/* In the place of the program's own, which may have none. */
const void *tm_gpu_embedded_set(size_t *bytes)
{
    *bytes = set.length;
    return set.data;
}

static void read_set(void)
{
    tm_error    err = { 0 };
    const char *wanted = getenv("TM_TEST_COMPILERS");
    if (access("build/venv/bin/python", X_OK) != 0) {
        if (wanted && strcmp(wanted, "required") == 0) fail_msg("there are no compilers of kernels");
        print_message("SKIPPED: no compilers of kernels (tools/kernel_compilers.sh)\n");
        skip();
    }
    if (system("tools/embed_kernels.py make") != 0) fail_msg("no set was made");
    if (tm_file_read(FOLDER "/set.bin", LIMIT, &set, &err) != TM_OK) fail_msg("%s", err.text);
}

static tm_text text_of_file(const char *path)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    if (tm_file_read(path, LIMIT, &text, &err) != TM_OK) fail_msg("%s", err.text);
    return text;
}

/* Every line of the list ("MODULE KERNEL") is among those that were launched. */
static void all_were_launched(const char *folder, const char *launched_path)
{
    char    path[200], line[220], *rest = NULL;
    int     n = 0;
    tm_text launched = text_of_file(launched_path), missing = { 0 };
    snprintf(path, sizeof path, "%s/kernels", folder);
    tm_text list = text_of_file(path);
    for (char *at = strtok_r(list.data, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest), n++) {
        snprintf(line, sizeof line, "%s\n", at);
        if (!strstr(launched.data, line)) tm_text_add(&missing, line);
    }
    assert_true(n > 0);
    if (missing.data) fail_msg("these kernels were not launched:\n%s", missing.data);
    print_message("%s: %d kernels were launched\n", folder, n);
    tm_text_fini(&list), tm_text_fini(&launched);
}

static void note_judged(const char *arch)
{
    char     path[80], text[24];
    uint64_t hash;
    tm_error err = { 0 };
    memcpy(&hash, set.data + 8, sizeof hash);
    int n = snprintf(text, sizeof text, "%016llx\n", (unsigned long long)hash);
    snprintf(path, sizeof path, FOLDER "/judged.%s", arch);
    if (tm_file_write(path, text, (size_t)n, &err) != TM_OK) fail_msg("%s", err.text);
}

/* They are no op's. */
static void initial_values_are_right(const char *name)
{
    tm_device *device = trials_open(name, CODE_INSIDE);
    tm_tried   tried;
    assert_ok(tm_try_draw(device, &tried, err));
    assert_int_equal(tried.wrong, 0);
    tm_device_close(device);
}

/* On a GPU the kernels of an architecture's code; `kind`: only those with this in their names. */
static void judge_set(const char *device, const char *gpu, const char *arch, const char *kind)
{
    char folder[80], launched[80];
    bool all = !getenv("TM_TEST_OP") && !getenv("TM_TEST_KERNEL");
    read_set();
    snprintf(folder, sizeof folder, FOLDER "/%s", arch);
    snprintf(launched, sizeof launched, FOLDER "/launched.%s", arch);
    (void)unlink(launched);
    setenv("STANDIN_GPU_ARCH", gpu, 1);
    setenv("STANDIN_GPU_CODE", folder, 1);
    setenv("STANDIN_GPU_LAUNCHED", launched, 1);
    if (kind) setenv("TM_TEST_KERNEL", kind, 0);
    kernels_are_right(device, CODE_INSIDE);
    if (!kind) initial_values_are_right(device);
    all_were_launched(folder, launched);
    if (all && test_is_full()) note_judged(arch);
    tm_text_fini(&set);
}

#define JUDGES(gpu, device, arch, kind)                                                                                \
    FULL_TEST(on_##gpu)                                                                                                \
    {                                                                                                                  \
        judge_set(device, #gpu, arch, kind);                                                                           \
    }
JUDGES(gfx942, "hip", "gfx942", NULL)
JUDGES(gfx950, "hip", "gfx950", NULL)
JUDGES(sm_80, "cuda", "sm_80", NULL)
JUDGES(sm_90, "cuda", "sm_90a", "wgmma") /* what is for it alone; the rest is the code for sm_80 */

TESTS_ALONE
