/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of the devices cuda and hip, compiled as a user's machine would and executed (tests/gpu/trials.c); and
 * the audit of their waits and barriers. */
#include "gpu/emulated.h"
#include "gpu/judged_launches.h"
#include "gpu/judged_texts.h"
#include "gpu/trials.h"
#include "machine/audit.h"
#include "support/folder.h"

#include <dlfcn.h>

#include "support/test.h"

/* Notes of what was judged on the stand-ins begin so. */
#define NOTES test_built("judged")

enum { PARTS = 4 }; /* of each device */

static void judge_part(const char *name, const char *device, int part, void (*judged)(tm_device *))
{
    char        why[JUDGED_WHY];
    const char *differs;
    judged_texts_forget(NOTES, name);
    part_of_kernels_is_right(device, CODE_COMPILED, part, PARTS, gpu_is_real() ? NULL : judged);
    differs = judged_texts_differ(NOTES, JUDGED_TEXTS, why);
    if (differs) fail_msg("%s", differs);
}

/* In parts, each of two to four minutes: most of the time compilers take. What all of them have judged is in
 * judged.txt, or the last one fails. */
#define PART(name, device, part)                                                                                       \
    static void judged_##name(tm_device *of)                                                                           \
    {                                                                                                                  \
        const char *why = judged_launches_differ(of, device, part, PARTS);                                             \
        if (why) fail_msg("%s", why);                                                                                  \
        judged_texts_note(NOTES, #name, of);                                                                           \
    }                                                                                                                  \
    FULL_TEST(name)                                                                                                    \
    {                                                                                                                  \
        judge_part(#name, device, part, judged_##name);                                                                \
    }
PART(on_cuda_1, "cuda", 0)
PART(on_cuda_2, "cuda", 1)
PART(on_cuda_3, "cuda", 2)
PART(on_cuda_4, "cuda", 3)
PART(on_hip_1, "hip", 0)
PART(on_hip_2, "hip", 1)
PART(on_hip_3, "hip", 2)
PART(on_hip_4, "hip", 3)

/* --- the audit of the shipped kernels (machine/audit.h) */

#define PROVED "tests/gpu/proved.txt"

/* From here on the launches of a device are audited. What prints the table; NULL: there is no compiler. */
static machine_tally (*audit_of(const char *name, const char *arch))(const char *proved)
{
    machine_tally (*print)(const char *);
    if (!emulated_device(name)) return NULL;
    void *runtime = dlopen(getenv("TRAINMARK_GPU_RUNTIME"), RTLD_NOW); /* it stays, with what it has seen */
    *(void **)&print = runtime ? dlsym(runtime, "standin_audit_print") : NULL;
    if (!print) fail_msg("no audit in %s", getenv("TRAINMARK_GPU_RUNTIME"));
    setenv("STANDIN_GPU_AUDIT", arch, 1);
    setenv("STANDIN_GPU_ARCH", arch, 1);
    return print;
}

/* audit ARCH: every wait and barrier of every kernel is left out, one at a time, in the launches of these tests. Exit
 * status 1 if one can be left out and proved.txt does not say why. */
static int run_audit(int argc, char **argv)
{
    const char *arch = argc > 2 ? argv[2] : "", *name = strncmp(arch, "gfx", 3) == 0 ? "hip" : "cuda";
    machine_tally (*print)(const char *) = audit_of(name, arch);
    if (!print) return 1;
    kernels_are_right(name, CODE_COMPILED);
    machine_tally sum = print(PROVED);
    printf("# %s: %d left out, %d named, %d by values, %d needless, %d proved, %d survived, %d stale\n", arch,
           sum.removed, sum.named, sum.by_values, sum.needless, sum.proved, sum.survived, sum.stale);
    return sum.survived != 0;
}

TM_TEST_ROLE("audit", run_audit)

/* One op: each wait and barrier that is left out is named, but for those that the file has proofs of. Returns these. */
static int left_out(const char *name, const char *arch, const char *op)
{
    machine_tally (*print)(const char *) = audit_of(name, arch);
    if (!print) skip();
    setenv("TM_TEST_OP", op, 1);
    kernels_are_right(name, CODE_COMPILED);
    machine_tally with = print(PROVED), without = print("/dev/null");
    assert_true(with.named >= 2);
    assert_int_equal(with.survived, 0);
    assert_int_equal(with.removed, with.named + with.by_values + with.needless + with.proved);
    assert_int_equal(without.survived, with.proved);
    return with.proved;
}

TEST(what_is_left_out_is_named_on_cuda)
{
    if (gpu_is_real()) skip();
    assert_int_equal(left_out("cuda", "sm_90", "layernorm"), 0);
}

/* What the architecture has alone: copies, and products of warpgroups that go on by themselves. */
FULL_TEST(what_is_left_out_of_wgmma_is_named)
{
    if (gpu_is_real()) skip();
    setenv("TM_TEST_KERNEL", "wgmma", 1);
    assert_int_equal(left_out("cuda", "sm_90", "attention_grad"), 0);
}

TEST(what_is_left_out_is_named_on_hip)
{
    if (gpu_is_real()) skip();
    assert_true(left_out("hip", "gfx942", "rope") > 0);
}
