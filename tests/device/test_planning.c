/* SPDX-License-Identifier: Apache-2.0 */
/* A device that is not there can be planned for: it chooses kernels, nothing of it runs. So what chooses them may not
 * use the instructions that it plans for: each call is single-stepped here, and no instruction of the program may be
 * one with a VEX or EVEX prefix (AVX and later). */
#include <signal.h>
#include <ucontext.h>

#include "support/test.h"
#include <xxhash.h>

#include "device/backend.h"
#include "op/kernel.h"
#include "support/training.h"

static const char *const isas[] = { "base", "avx2", "avx512", "avx512_bf16", "amx" };
enum { ISAS = sizeof isas / sizeof isas[0] };

#if defined(__x86_64__)

/* false: this build leaves the set out (`make ISA=all` has all); the device is closed. */
static bool limit(tm_device *device, const char *isa)
{
    tm_error err = { 0 };
    if (tm_device_limit_isa(device, isa, &err) == TM_OK) return true;
    if (strcmp(isa, "base") == 0 || !strstr(err.text, "this build has: base")) fail_msg("%s", err.text);
    assert_non_null(strstr(err.text, "make ISA=all"));
    print_message("not built: %s\n", isa);
    tm_device_close(device);
    return false;
}

static void every_set_of_kernels_can_be_planned(void **state)
{
    (void)state;
    for (int i = 0; i < ISAS; i++) {
        tm_device *device;
        assert_ok(tm_device_open_planning("cpu", 2, &device, err));
        if (!limit(device, isas[i])) continue;
        assert_non_null(strstr(tm_device_describe(device)->text, isas[i]));
        tm_step_options options = test_llama_options();
        options.precision = &tm_precision_bf16; /* some have products of bfloat16 only */
        tm_chooser chooser = tm_device_chooser(device);
        tm_step   *step = test_step_plan(&options, &chooser);
        bool       own = false;
        for (size_t x = 0; x < step->first->count; x++)
            own = own || strstr(step->first->instructions[x].kernel->name, isas[i]);
        assert_true(own);
        tm_step_destroy(step);
        assert_refused(tm_device_limit_isa(device, "avx9", err), TM_UNSUPPORTED, "");
        tm_device_close(device);
    }
}

extern const char __executable_start, etext;

static int                found_for; /* which set of kernels */
static volatile uintptr_t found_at;
static volatile long      stepped;

static void look(int number, siginfo_t *information, void *context)
{
    const ucontext_t    *c = context;
    uintptr_t            at = (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
    const unsigned char *code = (const unsigned char *)at; // NOLINT
    (void)number;
    (void)information;
    stepped++;
    if (at < (uintptr_t)&__executable_start || at >= (uintptr_t)&etext) return; /* the C library asks the machine */
    if (code[0] == 0xc4 || code[0] == 0xc5 || code[0] == 0x62) found_at = at;
}

#define TRAP_FLAG "0x100"
static void step_by_step(void)
{
    __asm__ volatile("pushfq\n\torq $" TRAP_FLAG ", (%%rsp)\n\tpopfq" ::: "memory", "cc");
}
static void run_on(void)
{
    __asm__ volatile("pushfq\n\tandq $~" TRAP_FLAG ", (%%rsp)\n\tpopfq" ::: "memory", "cc");
}

/* Has the device been asked about such a call (but for its attributes)? Layers are alike, and single steps are slow. */
static bool asked_before(const tm_call *call)
{
    static uint64_t asked[4096];
    static size_t   n;
    uint64_t        hash = XXH3_64bits_withSeed(call->in, sizeof call->in, (uintptr_t)call->op + call->accumulate);
    hash = XXH3_64bits_withSeed(call->out, sizeof call->out, hash + (uint64_t)found_for);
    for (size_t i = 0; i < n; i++)
        if (asked[i] == hash) return true;
    assert_true(n < sizeof asked / sizeof asked[0]);
    asked[n++] = hash;
    return false;
}

static const tm_kernel *watched_choose(const void *context, const tm_call *call, tm_text *refusals)
{
    const tm_device *device = context;
    if (asked_before(call)) return device->backend->choose(device, call, refusals);
    found_at = 0;
    step_by_step();
    const tm_kernel *kernel = device->backend->choose(device, call, refusals);
    if (kernel && kernel->workspace) (void)kernel->workspace(call);
    run_on();
    if (found_at)
        fail_msg("choosing %s for op %s uses an instruction of AVX at offset 0x%zx",
                 kernel ? kernel->name : "no kernel", call->op->name,
                 (size_t)(found_at - (uintptr_t)&__executable_start));
    return kernel;
}

static void planning_needs_no_avx(void **state)
{
    (void)state;
    struct sigaction action = { .sa_sigaction = look, .sa_flags = SA_SIGINFO }, old;
    assert_int_equal(sigaction(SIGTRAP, &action, &old), 0);
    for (int i = 0; i < ISAS; i++)
        for (int gpt = 0; gpt < 2; gpt++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                tm_device *device;
                assert_ok(tm_device_open_planning("cpu", 2, &device, err));
                if (!limit(device, isas[i])) continue;
                found_for = i;
                tm_step_options options = gpt ? test_gpt_options() : test_llama_options();
                options.precision = bf16 ? &tm_precision_bf16 : &tm_precision_f32;
                tm_chooser chooser = { .choose = watched_choose, .context = device, .threads = 2 };
                tm_step   *step = test_step_plan(&options, &chooser);
                tm_step_destroy(step);
                tm_device_close(device);
            }
    sigaction(SIGTRAP, &old, NULL);
    assert_true(stepped > 10000);
}

#endif

static const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
    cmocka_unit_test(every_set_of_kernels_can_be_planned),
    full_test(planning_needs_no_avx),
#endif
};

TEST_TABLE(tests)
