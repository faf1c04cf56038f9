/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings on the devices cuda and hip, whose kernels run as machine code: losses and norms of every step are
 * those of the CPU within rounding; programs that are bound, launched one by one, or timed leave the same bits, and so
 * does a second run; a call of the runtime or of the library of products that fails is told. */
#include "device/backend.h"
#include "gpu/emulated.h"
#include "support/folder.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/test.h"

enum { MOST_STEPS = 20, FEW_STEPS = 3 }; /* the third is timed as a whole */

typedef enum { BOUND, ONE_BY_ONE, WITH_LEDGER } way;

typedef struct {
    double   loss[MOST_STEPS], norm[MOST_STEPS], evaluation;
    uint64_t state;
} outcome;

static tm_step_options options_of(bool gpt, const tm_precision *precision)
{
    tm_step_options o = gpt ? test_gpt_options() : test_llama_options();
    o.shape.n_layers = 2;
    o.accumulation = 2;
    o.precision = precision;
    return o;
}

/* Steps of one micro-batch are not clipped. */
static outcome train(tm_device *device, const tm_step_options *o, int steps, way how)
{
    tm_trainer *trainer = test_trainer_open(device, o, 7);
    outcome     out = { .evaluation = 0 };
    tm_ledger   ledger = { 0 };
    tm_device_one_by_one(device, how == ONE_BY_ONE);
    for (int t = 1; t <= steps; t++) {
        test_batch batch =
            test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
        tm_step_result result;
        tm_error       err = { 0 };
        tm_micro_batch fields = { .field = { batch.tokens, batch.targets } };
        test_begin(trainer, t, 1e-3, o->accumulation > 1, o->micro_batch * o->accumulation * o->seq);
        if (tm_trainer_step(trainer, &fields, &result, how == WITH_LEDGER ? &ledger : NULL, &err) != TM_OK)
            fail_msg("step %d: %s", t, err.text);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        test_batch_fini(&batch);
    }
    test_batch batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, 99);
    out.evaluation = test_evaluate(trainer, batch.tokens, batch.targets);
    test_batch_fini(&batch);
    out.state = test_state_hash(trainer);
    assert_int_equal(ledger.count > 0, how == WITH_LEDGER);
    for (size_t i = 0; i < ledger.count; i++) assert_true(ledger.lines[i].value > 0);
    tm_trainer_close(trainer);
    return out;
}

static tm_device *opened(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}

static void compare(const outcome *a, const outcome *b, int steps, double bound, const char *what)
{
    for (int t = 0; t < steps; t++)
        if (!(fabs(a->loss[t] - b->loss[t]) <= bound && fabs(a->norm[t] - b->norm[t]) <= bound * fabs(b->norm[t])))
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g", what, t + 1, a->loss[t], a->norm[t],
                     b->loss[t], b->norm[t]);
    if (!(fabs(a->evaluation - b->evaluation) <= bound * fabs(b->evaluation)))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
}

static void train_twice(tm_device *cpu, tm_device *gpu, bool gpt, const tm_precision *precision, bool ways,
                        const char *what)
{
    tm_step_options o = options_of(gpt, precision);
    int             steps = test_is_full() ? MOST_STEPS : ways ? FEW_STEPS : FEW_STEPS - 1;
    outcome         wanted = train(cpu, &o, steps, BOUND), found = train(gpu, &o, steps, BOUND);
    compare(&found, &wanted, steps, precision == &tm_precision_f32 ? 1e-4 : 1e-2, what);
    if (!ways) return;
    outcome first = test_is_full() ? train(gpu, &o, FEW_STEPS, BOUND) : found;
    for (int how = test_is_full() ? BOUND : WITH_LEDGER; how <= WITH_LEDGER; how++) {
        outcome again = train(gpu, &o, FEW_STEPS, (way)how);
        if (memcmp(&again, &first, sizeof again) != 0) fail_msg("%s, way %d: other bits", what, how);
    }
}

/* Products and NVIDIA's attention by the makers' libraries, where there are, and by own kernels. quick: own kernels in
 * one precision. */
static void trains_as_a_cpu(const char *name, int quick)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16 };
    const char                      *variable = strcmp(name, "hip") == 0 ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT";
    if (!emulated_device(name)) skip();
    tm_device *cpu = opened("cpu");
    for (int own = 0; own < 2; own++) {
        if (!gpu_is_real()) setenv("TRAINMARK_CUDNN", own ? "none" : test_built("standins/cudnn.so"), 1);
        if (own) setenv(variable, "none", 1), setenv("TRAINMARK_CUDNN", "none", 1);
        tm_device  *gpu = opened(name);
        const char *text = tm_device_describe(gpu)->text, *by = strstr(text, "products by ");
        if (!by || ((own || !gpu_is_real()) && (strstr(by, "own kernels") != NULL) != own))
            fail_msg("own %d: '%s'", own, text);
        for (int gpt = 0; gpt < (test_is_full() ? 2 : 1); gpt++)
            for (int p = 0; p < 2; p++) {
                char what[160];
                if (own && p != quick) continue;
                snprintf(what, sizeof what, "%s on %s, %s, %s", gpt ? "gpt" : "llama", name, precisions[p]->name, by);
                train_twice(cpu, gpu, gpt, precisions[p], !own && p != gpt, what);
            }
        bool attends = strstr(text, "; attention by cuDNN") != NULL;
        if (!gpu_is_real() && attends != (!own && strcmp(name, "cuda") == 0)) fail_msg("own %d: '%s'", own, text);
        tm_device_close(gpu);
    }
    tm_device_close(cpu);
}

static void cuda_trains_as_a_cpu(void **state)
{
    (void)state;
    trains_as_a_cpu("cuda", 1);
}

static void hip_trains_as_a_cpu(void **state)
{
    (void)state;
    trains_as_a_cpu("hip", 0);
}

/* Weights are cast once a step, by the op of the optimizer, or for each use: the same bits. */
static void copies_leave_the_bits_of_casts(const char *name)
{
    if (!emulated_device(name)) skip();
    tm_device *gpu = opened(name);
    assert_true(gpu->info.weight_copies);
    for (int gpt = 0; gpt < (test_is_full() ? 2 : 1); gpt++) {
        tm_step_options o = options_of(gpt, &tm_precision_bf16);
        outcome         found = train(gpu, &o, FEW_STEPS - 1, BOUND), wanted;
        gpu->info.weight_copies = false;
        wanted = train(gpu, &o, FEW_STEPS - 1, BOUND);
        gpu->info.weight_copies = true;
        if (memcmp(&found, &wanted, sizeof found) != 0)
            fail_msg("%s on %s: loss %.9g, evaluation %.9g; with casts %.9g, %.9g", gpt ? "gpt" : "llama", name,
                     found.loss[1], found.evaluation, wanted.loss[1], wanted.evaluation);
    }
    tm_device_close(gpu);
}

static void copies_leave_the_bits_of_casts_on_cuda(void **state)
{
    (void)state;
    copies_leave_the_bits_of_casts("cuda");
}

static void copies_leave_the_bits_of_casts_on_hip(void **state)
{
    (void)state;
    copies_leave_the_bits_of_casts("hip");
}

/* Weights updated within the backward pass, which read them from copies. Norms are added in another order. */
static void early_updates_leave_the_bits(void **state)
{
    tm_step_options o = options_of(true, &tm_precision_bf16);
    (void)state;
    o.accumulation = 1;
    if (!emulated_device("hip")) skip();
    tm_device *gpu = opened("hip");
    outcome    wanted = train(gpu, &o, FEW_STEPS - 1, BOUND), found;
    o.early_updates = true;
    found = train(gpu, &o, FEW_STEPS - 1, BOUND);
    assert_true(found.state == wanted.state);
    assert_memory_equal(found.loss, wanted.loss, sizeof found.loss);
    for (int t = 0; t < FEW_STEPS - 1; t++) assert_true(fabs(found.norm[t] - wanted.norm[t]) < 1e-5 * wanted.norm[t]);
    tm_device_close(gpu);
}

/* --- a Llama of 0.95 million parameters ----------------------------------------------------------------------------
 */

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 20 steps in bfloat16, products by own kernels, on each architecture that releases have code for. */
static void a_llama_trains_on(const char *name, const char *arch)
{
    tm_step_options o = test_llama_options();
    o.precision = &tm_precision_bf16;
    o.shape.vocab_size = 1024, o.shape.dim = 128, o.shape.n_layers = 4, o.shape.ffn_dim = 320;
    o.shape.n_heads = 4, o.shape.n_kv_heads = 2;
    if (gpu_is_real() || !emulated_device(name)) skip();
    setenv("STANDIN_GPU_ARCH", arch, 1);
    setenv("TRAINMARK_HIPBLASLT", "none", 1);
    setenv("TRAINMARK_CUBLASLT", "none", 1);
    tm_device *cpu = opened("cpu"), *gpu = opened(name);
    assert_non_null(strstr(tm_device_describe(gpu)->text, arch));
    outcome wanted = train(cpu, &o, MOST_STEPS, BOUND);
    double  start = processor_seconds();
    outcome found = train(gpu, &o, MOST_STEPS, BOUND);
    print_message("# %s: %d steps in %.1f s of processor time; loss %.4f to %.4f\n", arch, MOST_STEPS,
                  processor_seconds() - start, found.loss[0], found.loss[MOST_STEPS - 1]);
    compare(&found, &wanted, MOST_STEPS, 1e-2, arch);
    tm_device_close(gpu);
    tm_device_close(cpu);
}

#define TRAINS_ON(name, arch)                                                                                          \
    static void a_llama_trains_on_##arch(void **state)                                                                 \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        a_llama_trains_on(name, #arch);                                                                                \
    }
TRAINS_ON("hip", gfx942)
TRAINS_ON("hip", gfx950)
TRAINS_ON("cuda", sm_80)
TRAINS_ON("cuda", sm_90)

/* --- what fails
 * --------------------------------------------------------------------------------------------------------- */

/* Calls of CUDA that a step makes; each fails, the first time or a later one. */
static const char *const calls[] = { "cuInit",
                                     "cuDeviceGetCount",
                                     "cuMemHostAlloc",
                                     "cuMemAlloc_v2",
                                     "cuStreamCreate",
                                     "cuEventCreate",
                                     "cuModuleLoadData",
                                     "cuModuleGetFunction",
                                     "cuStreamBeginCapture_v2",
                                     "cuStreamEndCapture",
                                     "cuGraphInstantiateWithFlags",
                                     "cuMemcpyHtoDAsync_v2",
                                     "cuMemcpyDtoHAsync_v2",
                                     "cuMemsetD8Async",
                                     "cuLaunchKernel",
                                     "cuGraphLaunch",
                                     "cuStreamSynchronize" };

/* A step; what it says if it cannot. */
static tm_status try_step(const char *name, tm_error *err)
{
    tm_step_options o = options_of(false, &tm_precision_f32);
    tm_device      *device;
    tm_trainer     *trainer = NULL;
    tm_step_result  result;
    test_batch      batch = test_batch_random(o.micro_batch * o.accumulation, o.seq, o.shape.vocab_size, 1);
    tm_micro_batch  fields = { .field = { batch.tokens, batch.targets } };
    tm_status       st = tm_device_open(name, 1, &device, err);
    if (st == TM_OK) {
        st = tm_trainer_open(device, &o, 7, &trainer, err);
        if (st == TM_OK) st = tm_trainer_begin(trainer, 1, 1e-3, 1, batch.target_tokens, err);
        if (st == TM_OK) st = tm_trainer_step(trainer, &fields, &result, NULL, err);
        if (st == TM_OK) tm_trainer_close(trainer);
        if (st != TM_OK && trainer) tm_trainer_close(trainer);
        tm_device_close(device);
    }
    test_batch_fini(&batch);
    return st;
}

static void a_call_that_fails_is_told(void **state)
{
    (void)state;
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int n = 1; n <= 2; n++) {
            char     told[80];
            tm_error err = { 0 };
            if (n == 2 && i < 3) continue; /* opening makes it once */
            snprintf(told, sizeof told, "%s@%d=719", calls[i], n);
            fflush(NULL);
            setenv("STANDIN_GPU_FAIL", told, 1);
            tm_status st = try_step("cuda", &err);
            unsetenv("STANDIN_GPU_FAIL");
            if (st != TM_DEVICE || !strstr(err.text, calls[i]) || !strstr(err.text, "some other error (error 719)"))
                fail_msg("%s: status %d, '%s'", told, (int)st, err.text);
        }
}

/* Of the library of products as well; where it has no algorithm for a shape the own kernel is taken. */
static void a_library_that_fails_is_told(void **state)
{
    static const char *const names[] = { "cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulAlgoGetHeuristic",
                                         "cublasLtMatmul" };
    tm_error                 err = { 0 };
    (void)state;
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char told[80];
        err = (tm_error){ 0 };
        snprintf(told, sizeof told, "%s@1=14", names[i]);
        setenv("STANDIN_BLAS_FAIL", told, 1);
        tm_status st = try_step("cuda", &err);
        unsetenv("STANDIN_BLAS_FAIL");
        if (st != TM_DEVICE || !strstr(err.text, names[i]) || !strstr(err.text, "an internal error (status 14"))
            fail_msg("%s: status %d, '%s'", told, (int)st, err.text);
    }
    char depth[24];
    snprintf(depth, sizeof depth, "%d", (int)test_llama_options().shape.dim);
    setenv("STANDIN_BLAS_REFUSES", depth, 1);
    if (try_step("cuda", &err) != TM_OK) fail_msg("%s", err.text);
    unsetenv("STANDIN_BLAS_REFUSES");
}

/* With a ledger the first two steps are launched by operation, the third is played: it alone meets a launch that fails.
 */
static void with_a_ledger_the_third_step_is_played(void **state)
{
    (void)state;
    if (gpu_is_real() || !emulated_device("hip")) skip();
    tm_step_options o = options_of(false, &tm_precision_f32);
    o.accumulation = 1;
    tm_device     *device = opened("hip");
    tm_trainer    *trainer = test_trainer_open(device, &o, 7);
    tm_ledger      ledger = { 0 };
    test_batch     batch = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 1);
    tm_micro_batch fields = { .field = { batch.tokens, batch.targets } };
    setenv("STANDIN_GPU_FAIL", "cuGraphLaunch@1=719", 1);
    for (int t = 1; t <= 3; t++) {
        tm_step_result result;
        tm_error       err = { 0 };
        test_begin(trainer, t, 1e-3, 1, batch.target_tokens);
        assert_int_equal(tm_trainer_step(trainer, &fields, &result, &ledger, &err), t < 3 ? TM_OK : TM_DEVICE);
        assert_true(t < 3 || strstr(err.text, "hipGraphLaunch"));
    }
    unsetenv("STANDIN_GPU_FAIL");
    tm_trainer_close(trainer);
    tm_device_close(device);
    test_batch_fini(&batch);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(cuda_trains_as_a_cpu),
                                           cmocka_unit_test(hip_trains_as_a_cpu),
                                           full_test(copies_leave_the_bits_of_casts_on_cuda),
                                           full_test(copies_leave_the_bits_of_casts_on_hip),
                                           full_test(early_updates_leave_the_bits),
                                           full_test(a_llama_trains_on_gfx942),
                                           full_test(a_llama_trains_on_gfx950),
                                           full_test(a_llama_trains_on_sm_80),
                                           full_test(a_llama_trains_on_sm_90),
                                           full_test(a_call_that_fails_is_told),
                                           full_test(a_library_that_fails_is_told),
                                           cmocka_unit_test(with_a_ledger_the_third_step_is_played) };

TEST_TABLE(tests)
