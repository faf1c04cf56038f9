/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings of mixtures of experts on the devices cuda and hip, whose kernels run as machine code: losses and
 * norms are those of the CPU within rounding, and so is the number of rows that every expert gets; bound programs,
 * single launches and a second run leave the same bits. */
#include "device/backend.h"
#include "gpu/emulated.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { MOST_STEPS = 20, FEW_STEPS = 3, MOST_COUNTS = 128 };

typedef struct {
    double   loss[MOST_STEPS], norm[MOST_STEPS];
    double   counts[MOST_STEPS][MOST_COUNTS];
    int64_t  n_counts;
    double   evaluation;
    uint64_t state;
} outcome;

#define DEEP                                                                                                           \
    "--model.dim=32 --model.n_layers=2 --model.n_heads=2 --model.ffn_dim=64 --model.vocab_size=96 "                    \
    "--model.max_seq_len=64 --training.seq_len=16 "
#define TINY DEEP "--model.n_kv_heads=1 --model.head_dim=16 "
#define EVEN " --debug.moe_force_load_balance=true"

/* In turn: routes do not depend on scores. */
static const struct {
    const char *name, *preset, *more;
} mixtures[] = {
    { "mixtral", "mixtral_8x7B",
      TINY "--model.n_experts=8 --model.n_experts_per_token=2 --model.moe_ffn_dim=40 --model.moe_aux_loss=0.02 "
           "--model.moe_bias_rate=0.01" },
    { "groups, sigmoid scores, shared experts, a dense layer", "tiny-llama",
      TINY "--model.n_experts=12 --model.n_experts_per_token=3 --model.moe_ffn_dim=24 --model.n_expert_groups=4 "
           "--model.n_limited_groups=2 --model.expert_group_best=2 --model.moe_score=sigmoid "
           "--model.moe_normalise=true --model.moe_scale=2.5 --model.n_shared_experts=1 --model.n_dense_layers=1 "
           "--model.moe_bias_rate=0.01 --model.moe_aux_loss=0.02 --model.moe_aux_loss_per_sequence=false" },
    { "more experts than rows", "tiny-llama",
      TINY "--model.n_experts=40 --model.n_experts_per_token=1 --model.moe_ffn_dim=16 --model.moe_aux_loss=0.05" },
    { "deepseek", "deepseek_v3",
      DEEP "--model.kv_lora_rank=16 --model.q_lora_rank=16 --model.qk_nope_head_dim=8 --model.qk_rope_head_dim=8 "
           "--model.v_head_dim=8 --model.n_experts=8 --model.n_experts_per_token=2 --model.moe_ffn_dim=16 "
           "--model.n_dense_layers=1 --model.n_expert_groups=4 --model.n_limited_groups=2" },
    { "gpt_oss", "gpt_oss_20B", TINY "--model.moe_ffn_dim=32 --model.n_experts=4 --model.n_experts_per_token=2" },
    { "qwen3_moe", "qwen3_30B-A3B", TINY "--model.moe_ffn_dim=16 --model.n_experts=8 --model.n_experts_per_token=3" },
    { "mixtral, routes in turn", "mixtral_8x7B",
      TINY "--model.n_experts=8 --model.n_experts_per_token=2 --model.moe_ffn_dim=40 --model.moe_aux_loss=0.02" EVEN },
    { "mixtral, adapters of experts", "mixtral_8x7B",
      TINY "--model.n_experts=4 --model.n_experts_per_token=2 --model.moe_ffn_dim=40 " },
};
enum { MIXTRAL, GROUPS, MANY, DEEPSEEK, GPT_OSS, QWEN3_MOE, IN_TURN, ADAPTED };

static tm_step_options options_of(int kind, const tm_precision *precision)
{
    tm_step_options o = test_llama_options();
    o.shape = test_shape_preset(mixtures[kind].preset, mixtures[kind].more);
    o.seq = 16;
    o.accumulation = 2;
    o.precision = precision;
    if (kind == ADAPTED)
        o.adapters = (tm_adapters){
            .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .targets = "wq,experts.gate_up_proj,experts.down_proj"
        };
    return o;
}

static outcome train(tm_device *device, const tm_step_options *o, int steps, bool one_by_one)
{
    tm_trainer  *trainer = test_trainer_open(device, o, 7);
    tm_tensor_id counts = tm_trainer_step_of(trainer)->model.expert_counts;
    outcome      out;
    memset(&out, 0, sizeof out);
    out.n_counts = tm_shape_elements(tm_trainer_step_of(trainer)->graph->tensors[counts].shape);
    assert_true(out.n_counts <= MOST_COUNTS);
    tm_device_one_by_one(device, one_by_one);
    for (int t = 1; t <= steps; t++) {
        test_batch batch =
            test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
        tm_step_result result = test_step(trainer, t, 1e-3, 1, &batch);
        double        *sent = test_values_read(trainer, counts);
        out.loss[t - 1] = result.loss, out.norm[t - 1] = result.grad_norm;
        memcpy(out.counts[t - 1], sent, (size_t)out.n_counts * sizeof *sent);
        free(sent);
        test_batch_fini(&batch);
    }
    test_batch batch = test_batch_random(o->micro_batch, o->seq, o->shape.vocab_size, 99);
    out.evaluation = test_evaluate(trainer, batch.tokens, batch.targets);
    test_batch_fini(&batch);
    out.state = test_state_hash(trainer);
    tm_trainer_close(trainer);
    return out;
}

/* Rows that two runs send to different experts, as a part of all; at least. */
static double moved(const outcome *a, const outcome *b, int t)
{
    double all = 0, apart = 0;
    for (int64_t i = 0; i < a->n_counts; i++) all += a->counts[t][i], apart += fabs(a->counts[t][i] - b->counts[t][i]);
    return apart / 2 / all;
}

static void compare(const outcome *a, const outcome *b, int steps, double bound, double may_move, const char *what)
{
    double loss = 0, norm = 0, most = 0;
    for (int t = 0; t < steps; t++) {
        loss = fmax(loss, fabs(a->loss[t] - b->loss[t]));
        norm = fmax(norm, fabs(a->norm[t] - b->norm[t]) / b->norm[t]);
        most = fmax(most, moved(a, b, t));
        /* Where rows may move, those of later steps depend on those that did. */
        bool right = (may_move > 0 && t > 0) || moved(a, b, t) <= may_move;
        if (!(fabs(a->loss[t] - b->loss[t]) <= bound && fabs(a->norm[t] - b->norm[t]) <= bound * fabs(b->norm[t]) &&
              right))
            fail_msg("%s, step %d: loss %.9g, norm %.9g; on the CPU %.9g, %.9g; %.3g of the rows moved", what, t + 1,
                     a->loss[t], a->norm[t], b->loss[t], b->norm[t], moved(a, b, t));
    }
    print_message("# %s: losses %.2g apart, norms %.2g, %.2g of the rows went elsewhere\n", what, loss, norm, most);
    if (!(fabs(a->evaluation - b->evaluation) <= bound * fabs(b->evaluation)))
        fail_msg("%s: evaluation %.9g, on the CPU %.9g", what, a->evaluation, b->evaluation);
}

static tm_device *opened(const char *name)
{
    tm_device *device;
    tm_error   err = { 0 };
    if (tm_device_open(name, 2, &device, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    return device;
}

static void trains_as_a_cpu(const char *name, const char *arch, const tm_precision *precision, int kind)
{
    tm_step_options o = options_of(kind, precision);
    tm_device      *cpu = opened("cpu"), *gpu = opened(name);
    bool            narrow = precision != &tm_precision_f32;
    int             steps = test_is_full() && precision != &tm_precision_bf16_pure ? MOST_STEPS : FEW_STEPS;
    char            what[160];
    snprintf(what, sizeof what, "%s on %s, %s", mixtures[kind].name, arch, precision->name);
    outcome wanted = train(cpu, &o, steps, false), found = train(gpu, &o, steps, false);
    compare(&found, &wanted, steps, narrow ? 1e-2 : 1e-4, narrow && kind != IN_TURN ? 0.05 : 0, what);
    outcome first = steps == FEW_STEPS ? found : train(gpu, &o, FEW_STEPS, false);
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        outcome again = train(gpu, &o, FEW_STEPS, one_by_one);
        if (memcmp(&again, &first, sizeof again) != 0) fail_msg("%s, one by one %d: other bits", what, one_by_one);
    }
    tm_device_close(gpu);
    tm_device_close(cpu);
}

/* In all formats; quick: in one. */
static void mixture_trains(int kind, const char *name, const char *arch, int quick)
{
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    if (!emulated_device(name)) skip();
    if (!gpu_is_real()) setenv("STANDIN_GPU_ARCH", arch, 1);
    for (int p = 0; p < 3; p++)
        if (test_is_full() || p == quick) trains_as_a_cpu(name, arch, precisions[p], kind);
}

#define ON_BOTH(mixture, kind)                                                                                         \
    static void mixture##_on_cuda(void **state)                                                                        \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        mixture_trains(kind, "cuda", "sm_90", 1);                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static void mixture##_on_hip(void **state)                                                                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        mixture_trains(kind, "hip", "gfx942", 0);                                                                      \
    }
ON_BOTH(mixtral, MIXTRAL)
ON_BOTH(groups, GROUPS)
ON_BOTH(many, MANY)
ON_BOTH(deepseek, DEEPSEEK)
ON_BOTH(gpt_oss, GPT_OSS)
ON_BOTH(qwen3_moe, QWEN3_MOE)
ON_BOTH(in_turn, IN_TURN)
ON_BOTH(adapted, ADAPTED)

static const struct CMUnitTest tests[] = {
    full_test(mixtral_on_cuda), full_test(groups_on_hip),  full_test(mixtral_on_hip),    full_test(groups_on_cuda),
    full_test(many_on_cuda),    full_test(many_on_hip),    full_test(deepseek_on_cuda),  full_test(deepseek_on_hip),
    full_test(gpt_oss_on_cuda), full_test(gpt_oss_on_hip), full_test(qwen3_moe_on_cuda), full_test(qwen3_moe_on_hip),
    full_test(in_turn_on_cuda), full_test(in_turn_on_hip), full_test(adapted_on_cuda),   full_test(adapted_on_hip)
};

TEST_TABLE(tests)
