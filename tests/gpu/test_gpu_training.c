/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings on the devices cuda and hip, whose kernels run as machine code: losses and norms of every step are
 * those of the CPU within rounding; programs that are bound, launched one by one, or timed leave the same bits, and so
 * does a second run; a call of the runtime or of the library of products that fails is told. */
#include "device/backend.h"
#include "gpu/emulated.h"
#include "gpu/trained.h"
#include "op/describe.h"
#include "support/folder.h"
#include "support/golden.h"

#include <time.h>

#include "support/test.h"

enum { STEPS = 5, FEW_STEPS = 3, SEQ = 16 }; /* the third is timed as a whole */

/* --- models ------------------------------------------------------------------------------------------------------- */

#define TINY                                                                                                           \
    "--model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=80 --model.vocab_size=50 "                    \
    "--model.max_seq_len=64 --training.seq_len=16 "
#define GROUPED TINY "--model.n_kv_heads=1 "
#define LATENT                                                                                                         \
    TINY "--model.n_dense_layers=2 --model.kv_lora_rank=24 --model.qk_nope_head_dim=12 --model.qk_rope_head_dim=4 "    \
         "--model.v_head_dim=20 "
#define EXPERTS GROUPED "--model.head_dim=16 --model.moe_ffn_dim=24 --model.n_experts_per_token=2 "
#define LLAMA "llama3_debugmodel"
#define ALL "all-linear"

typedef enum { DENSE, FAMILY, ADAPTED, MIXTURE, FLUX } group;

typedef struct {
    const char *name;
    group       group;
    const char *preset, *keys;
    bool        documents;  /* several in one sequence */
    int64_t     recomputed; /* > 0: every so many-th block */
    tm_adapters adapters;
} model;

#define NO_BASE .base = TM_DTYPE_COUNT
static const model models[] = {
    { "llama", DENSE, LLAMA, .keys = GROUPED "--model.rope_layout=interleaved", .recomputed = 1 },
    { "gpt", DENSE, "gpt2-124M", .keys = TINY, .documents = true },
    { "mistral", FAMILY, "mistral_7B", .keys = GROUPED "--model.sliding_window=9" },
    { "qwen2", FAMILY, "qwen2.5_0.5B", .keys = GROUPED, .documents = true, .recomputed = 2 },
    { "qwen3", FAMILY, "qwen3_debugmodel", .keys = GROUPED "--model.head_dim=24", .documents = true },
    { "deepseek", FAMILY, "deepseek_v2_lite", .keys = LATENT },
    { "deepseek, low-rank queries", FAMILY, "deepseek_v3", .keys = LATENT "--model.q_lora_rank=16", .documents = true,
      .recomputed = 1 },
    { "llama with the parts of gpt_oss", FAMILY, LLAMA,
      .keys = GROUPED "--model.sinks=true --model.activation=swiglu_clamped --model.bias=all --model.sliding_window=9 "
                      "--model.sliding_window_every=2 --model.rope_scaling=yarn" },
    { "LoRA", ADAPTED, LLAMA, .keys = GROUPED, .adapters = { .rank = 4, .alpha = 6, NO_BASE, .targets = ALL } },
    { "LoRA of two modules", ADAPTED, LLAMA, .keys = GROUPED,
      .adapters = { .rank = 3, .alpha = 4, .dropout = 0.2, NO_BASE, .targets = "wq,wv" } },
    { "DoRA", ADAPTED, "gpt2-124M", .keys = TINY,
      .adapters = { .rank = 4, .alpha = 6, .dropout = 0.1, .dora = true, NO_BASE, .targets = ALL } },
    { "DoRA of nf4", ADAPTED, LLAMA, .keys = GROUPED,
      .adapters = { .rank = 4, .alpha = 8, .dora = true, .base = TM_NF4_BLOCKS, .targets = ALL } },
    { "QLoRA of nf4", ADAPTED, "gpt2-124M", .keys = TINY,
      .adapters = { .rank = 8, .alpha = 16, .dropout = 0.1, .base = TM_NF4_BLOCKS, .targets = ALL } },
    { "QLoRA of e4m3", ADAPTED, LLAMA, .keys = GROUPED,
      .adapters = { .rank = 5, .alpha = 7, .dropout = 0.1, .base = TM_E4M3_BLOCKS, .targets = ALL } },
    { "LoRA of the output layer", ADAPTED, LLAMA, .keys = GROUPED,
      .adapters = { .rank = 4, .alpha = 6, .dropout = 0.1, NO_BASE, .targets = "wo,lm_head" } },
    { "LoRA of bfloat16", ADAPTED, LLAMA, .keys = GROUPED,
      .adapters = { .rank = 4, .alpha = 6, .base = TM_BF16, .targets = ALL } },
    { "mixtral", MIXTURE, "mixtral_8x7B",
      .keys = EXPERTS "--model.n_experts=8 --model.moe_aux_loss=0.02 --model.moe_bias_rate=0.01" },
    { "groups, sigmoid scores, shared experts, a dense layer", MIXTURE, "tiny-llama",
      .keys = EXPERTS
      "--model.n_experts=12 --model.n_expert_groups=4 --model.n_limited_groups=2 --model.expert_group_best=2 "
      "--model.moe_score=sigmoid --model.moe_normalise=true --model.moe_scale=2.5 --model.n_shared_experts=1 "
      "--model.n_dense_layers=1 --model.moe_bias_rate=0.01 --model.moe_aux_loss=0.02 "
      "--model.moe_aux_loss_per_sequence=false" },
    { "more experts than rows", MIXTURE, "tiny-llama",
      .keys = EXPERTS "--model.n_experts=40 --model.moe_aux_loss=0.05" },
    { "deepseek", MIXTURE, "deepseek_v3",
      .keys =
          TINY "--model.kv_lora_rank=16 --model.q_lora_rank=16 --model.qk_nope_head_dim=8 --model.qk_rope_head_dim=8 "
               "--model.v_head_dim=8 --model.n_experts=8 --model.n_experts_per_token=2 --model.moe_ffn_dim=16 "
               "--model.n_dense_layers=1 --model.n_expert_groups=4 --model.n_limited_groups=2" },
    { "gpt_oss", MIXTURE, "gpt_oss_20B", .keys = EXPERTS "--model.n_experts=4" },
    { "qwen3_moe", MIXTURE, "qwen3_30B-A3B", .keys = EXPERTS "--model.n_experts=8" },
    { "mixtral, routes in turn", MIXTURE, "mixtral_8x7B",
      .keys = EXPERTS "--model.n_experts=8 --model.moe_aux_loss=0.02 --debug.moe_force_load_balance=true" },
    { "mixtral, adapters of experts", MIXTURE, "mixtral_8x7B", .keys = EXPERTS "--model.n_experts=4",
      .adapters = { .rank = 4, .alpha = 8, NO_BASE, .targets = "wq,experts.gate_up_proj,experts.down_proj" } },
    { "FLUX.1", .group = FLUX },
};

static tm_step_options options_of(const model *m, const tm_precision *precision)
{
    static const char *const names[] = { "tokens", "targets", "positions", "first_key" };
    tm_step_options          o = m->group == FLUX ? golden_flux_options(precision) : test_llama_options();
    o.precision = precision;
    o.accumulation = 2;
    if (m->group == FLUX) {
        o.micro_batch = 2;
        o.shape.n_layers = o.shape.flux.n_single = 2;
        return o;
    }
    o.shape = test_shape_preset(m->preset, m->keys);
    o.seq = SEQ;
    o.micro_batch = 1;
    o.sample = m->group <= FAMILY;
    o.recompute = (tm_recompute){ .cheap = true, .every_n = m->recomputed };
    o.adapters = m->adapters;
    o.adapters.place = "test", o.adapters.seed = 11;
    for (int f = 0; f < 4; f++) o.fields[f] = (tm_field){ .name = names[f], .dtype = TM_I32, .shape = tm_shape_1(SEQ) };
    o.n_fields = m->documents ? 4 : 0;
    return o;
}

/* --- beside the CPU ----------------------------------------------------------------------------------------------- */

static void train_twice(tm_device *cpu, tm_device *gpu, const model *m, const tm_precision *precision, const char *how)
{
    tm_step_options o = options_of(m, precision);
    bool            ways = precision != &tm_precision_f32;
    int             steps = test_is_full() ? STEPS : ways ? FEW_STEPS : FEW_STEPS - 1;
    char            what[200];
    snprintf(what, sizeof what, "%s on %s, %s, %s", m->name, gpu->info.name, precision->name, how);
    trained wanted = train(cpu, &o, steps, BOUND), found = train(gpu, &o, steps, BOUND);
    compare_trained(&found, &wanted, &o, steps, what);
    if (!ways) return;
    trained first = steps == FEW_STEPS ? found : train(gpu, &o, FEW_STEPS, BOUND);
    for (int way = test_is_full() ? BOUND : ONE_BY_ONE; way < TRAINED_WAYS; way++) {
        trained again = train(gpu, &o, FEW_STEPS, (trained_way)way);
        if (memcmp(&again, &first, sizeof again) != 0) fail_msg("%s, way %d: other bits", what, way);
    }
}

/* Products and NVIDIA's attention by the makers' libraries, or by own kernels: each model in one format by these, in
 * the other by those; on a real GPU in both. */
static void trains_as_a_cpu(const char *name, group of)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16 };
    bool                             hip = strcmp(name, "hip") == 0;
    tm_device                       *gpu[2];
    if (!emulated_device(name)) skip();
    for (int own = 0; own < 2; own++) {
        if (own) setenv(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", "none", 1);
        gpu[own] = emulated_open(name);
        const char *text = tm_device_describe(gpu[own])->text, *by = strstr(text, "products by ");
        if (!by || ((own || !gpu_is_real()) && (strstr(by, "own kernels") != NULL) != own))
            fail_msg("%d: %s", own, text);
    }
    tm_device *cpu = emulated_open("cpu");
    for (int k = 0; k < TM_COUNT_OF(models); k++)
        for (int way = 0; way < 4; way++) {
            int own = way / 2, p = way % 2;
            if (models[k].group != of) continue;
            if (!test_is_full() && of == DENSE && k != hip) continue;
            if (!gpu_is_real() && own == (k + p + hip) % 2) continue;
            if (own || !gpu_is_real()) setenv("TRAINMARK_CUDNN", own ? "none" : test_built("standins/cudnn.so"), 1);
            train_twice(cpu, gpu[own], &models[k], precisions[p], own ? "own kernels" : "libraries");
        }
    for (int own = 0; own < 2; own++) {
        const char *text = tm_device_describe(gpu[own])->text;
        bool        attends = strstr(text, "; attention by cuDNN") != NULL;
        if (!gpu_is_real() && of == DENSE && attends != (!own && !hip)) fail_msg("%d: %s", own, text);
        tm_device_close(gpu[own]);
    }
    tm_device_close(cpu);
}

ON_BOTH(TEST, trains_as_a_cpu, trains_as_a_cpu(on, DENSE))

ON_BOTH(FULL_TEST, families_train, trains_as_a_cpu(on, FAMILY))

ON_BOTH(FULL_TEST, adapters_train, trains_as_a_cpu(on, ADAPTED))

ON_BOTH(FULL_TEST, experts_train, trains_as_a_cpu(on, MIXTURE))

ON_BOTH(FULL_TEST, flux_trains, trains_as_a_cpu(on, FLUX))

/* Weights are cast once a step, by the op of the optimizer, or for each use: the same bits. */
FULL_TEST(copies_leave_the_bits_of_casts)
{
    for (int hip = 0; hip < 2; hip++) {
        if (!emulated_device(hip ? "hip" : "cuda")) skip();
        tm_device      *gpu = emulated_open(hip ? "hip" : "cuda");
        tm_step_options o = options_of(&models[hip], &tm_precision_bf16);
        assert_true(gpu->info.weight_copies);
        trained found = train(gpu, &o, FEW_STEPS, BOUND);
        gpu->info.weight_copies = false;
        trained wanted = train(gpu, &o, FEW_STEPS, BOUND);
        assert_memory_equal(&found, &wanted, sizeof found);
        tm_device_close(gpu);
    }
}

/* Weights updated within the backward pass, which read them from copies. Norms are added in another order. */
FULL_TEST(early_updates_leave_the_bits)
{
    tm_step_options o = options_of(&models[1], &tm_precision_bf16);
    o.accumulation = 1;
    if (!emulated_device("hip")) skip();
    tm_device *gpu = emulated_open("hip");
    trained    wanted = train(gpu, &o, FEW_STEPS, BOUND);
    o.early_updates = true;
    trained found = train(gpu, &o, FEW_STEPS, BOUND);
    assert_true(found.state == wanted.state);
    assert_memory_equal(found.loss, wanted.loss, sizeof found.loss);
    for (int t = 0; t < FEW_STEPS; t++) assert_true(fabs(found.norm[t] - wanted.norm[t]) < 1e-5 * wanted.norm[t]);
    tm_device_close(gpu);
}

/* --- a Llama of 0.95 million parameters --------------------------------------------------------------------------- */

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
    tm_device *cpu = emulated_open("cpu"), *gpu = emulated_open(name);
    assert_non_null(strstr(tm_device_describe(gpu)->text, arch));
    trained wanted = train(cpu, &o, TRAINED_MOST, BOUND);
    double  start = processor_seconds();
    trained found = train(gpu, &o, TRAINED_MOST, BOUND);
    print_message("# %s: %d steps in %.1f s of processor time; loss %.4f to %.4f\n", arch, TRAINED_MOST,
                  processor_seconds() - start, found.loss[0], found.loss[TRAINED_MOST - 1]);
    compare_trained(&found, &wanted, &o, TRAINED_MOST, arch);
    tm_device_close(gpu);
    tm_device_close(cpu);
}

#define TRAINS_ON(name, arch)                                                                                          \
    FULL_TEST(a_llama_trains_on_##arch)                                                                                \
    {                                                                                                                  \
        a_llama_trains_on(name, #arch);                                                                                \
    }
TRAINS_ON("hip", gfx942)
TRAINS_ON("hip", gfx950)
TRAINS_ON("cuda", sm_80)
TRAINS_ON("cuda", sm_90)

/* --- what fails --------------------------------------------------------------------------------------------------- */

/* Calls of CUDA that a step makes; each fails, the first time or a later one. */
static const char calls[] = "cuInit cuDeviceGetCount cuMemHostAlloc cuMemAlloc_v2 cuStreamCreate cuEventCreate "
                            "cuModuleLoadData cuModuleGetFunction "
                            "cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphInstantiateWithFlags "
                            "cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemsetD8Async "
                            "cuLaunchKernel cuGraphLaunch cuStreamSynchronize";

/* A step; what it says if it cannot. */
static tm_status try_step(const char *name, tm_error *err)
{
    tm_step_options o = options_of(&models[0], &tm_precision_f32);
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
        if (trainer) tm_trainer_close(trainer);
        tm_device_close(device);
    }
    test_batch_fini(&batch);
    return st;
}

FULL_TEST(a_call_that_fails_is_told)
{
    if (gpu_is_real() || !emulated_device("cuda")) skip();
    const char *call;
    for (int i = 0; (call = word_of(calls, i)); i++)
        for (int n = 1; n <= 2; n++) {
            char     told[80];
            tm_error err = { 0 };
            if (n == 2 && i < 3) continue; /* opening makes it once */
            snprintf(told, sizeof told, "%s@%d=719", call, n);
            fflush(NULL);
            setenv("STANDIN_GPU_FAIL", told, 1);
            tm_status st = try_step("cuda", &err);
            unsetenv("STANDIN_GPU_FAIL");
            if (st != TM_DEVICE || !strstr(err.text, call) || !strstr(err.text, "some other error (error 719)"))
                fail_msg("%s: status %d, '%s'", told, (int)st, err.text);
        }
}

/* Of the library of products as well; where it has no algorithm for a shape the own kernel is taken. */
FULL_TEST(a_library_that_fails_is_told)
{
    static const char *const names[] = { "cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulAlgoGetHeuristic",
                                         "cublasLtMatmul" };
    tm_error                 err = { 0 };
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
    snprintf(depth, sizeof depth, "%d", (int)options_of(&models[0], &tm_precision_f32).shape.dim);
    setenv("STANDIN_BLAS_REFUSES", depth, 1);
    if (try_step("cuda", &err) != TM_OK) fail_msg("%s", err.text);
    unsetenv("STANDIN_BLAS_REFUSES");
}

/* With a ledger the first two steps are launched by operation, the third is played: it alone meets a launch that fails.
 */
TEST(with_a_ledger_the_third_step_is_played)
{
    if (gpu_is_real() || !emulated_device("hip")) skip();
    tm_step_options o = options_of(&models[0], &tm_precision_f32);
    o.accumulation = 1;
    tm_device     *device = emulated_open("hip");
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
