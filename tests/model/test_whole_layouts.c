/* SPDX-License-Identifier: Apache-2.0 */
/* What the builders of every family emit, alone and for ranks that divide matrices, sequences, experts or blocks: the
 * programs of a step as checksums of all that tests/support/whole_steps.h writes, or what is refused. After a change
 * that is meant (what has changed, tests/train/test_whole_steps.c shows to the letter): TM_RECORD=1
 * build/release/tests/model/test_whole_layouts; git diff tests/model
 */
#include "support/whole_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "support/test.h"

#define SHORT                                                                                                          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --validation.enable false "              \
    "--optimizer.name SGD "
#define LLAMA                                                                                                          \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 48 " SHORT
#define EXPERTS "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 24 "
#define MLA                                                                                                            \
    LLAMA "--model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 12 "       \
          "--model.qk_rope_head_dim 4 --model.v_head_dim 8 "
#define GPT "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 " SHORT
#define FLUX                                                                                                           \
    "tiny-flux --training.local_batch_size 2 --training.threads 1 --validation.enable false --optimizer.name SGD "     \
    "--model.dim 64 --model.n_heads 2 "
#define TP "--parallelism.ranks 2 --parallelism.tensor_parallel_degree 2 "
#define WHOLE TP "--parallelism.enable_sequence_parallel false "
#define CP "--parallelism.ranks 2 --parallelism.context_parallel_degree 2 "
#define RING CP "--parallelism.context_parallel_rotate_method alltoall "
#define EP "--parallelism.ranks 2 --parallelism.expert_parallel_degree 2 "
#define BOTH "--parallelism.ranks 4 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 "
#define PP "--parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "

#define EACH(model) model, model TP, model WHOLE, model CP, model RING, model BOTH
#define MIXTURE(model) EACH(model), model EP, model TP EP, model WHOLE "--model.moe_aux_loss 0.1 "

/* clang-format off */
static const char *const divided[] = {
    EACH(LLAMA),
    EACH(LLAMA "--model.bias all --model.qk_norm true --model.tied true "),
    EACH(LLAMA "--model.family mistral --model.sliding_window 6 --model.sliding_window_every 2 "),
    EACH(LLAMA "--model.family qwen2 "),
    EACH(LLAMA "--model.family qwen3 --model.head_dim 12 "),
    EACH(GPT),
    EACH(GPT "--model.bias none --model.tied false "),
    EACH(GPT "--model.bias mi350x_table "),
    EACH(FLUX),
    EACH(FLUX "--model.guidance_embed true --model.n_layers 1 --model.n_single_layers 2 "),
    EACH(MLA),
    EACH(MLA "--model.q_lora_rank 20 "),
    MIXTURE(LLAMA "--model.family mixtral " EXPERTS),
    MIXTURE(LLAMA "--model.family qwen3_moe " EXPERTS),
    MIXTURE(LLAMA "--model.family gpt_oss " EXPERTS "--model.sliding_window 8 "),
    MIXTURE(MLA EXPERTS "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.moe_score sigmoid "
                        "--model.moe_bias_rate 0.01 --model.n_expert_groups 2 "),
    LLAMA "--model.family mixtral " EXPERTS "--model.moe_aux_loss 0.1 --model.moe_aux_loss_per_sequence false ",
    LLAMA "--model.family mixtral " EXPERTS "--model.moe_aux_loss 0.1 " CP,
    LLAMA "--model.family mixtral " EXPERTS "--debug.moe_force_load_balance true " EP,
    LLAMA "--model.family mixtral " EXPERTS "--parallelism.expert_parallel_capacity 0 " EP,
    LLAMA "--model.family mixtral " EXPERTS "--parallelism.expert_parallel_capacity 0.5 " EP,
};

/* Blocks of which a rank has some. */
static const char *const staged[] = {
    LLAMA PP,
    LLAMA PP "--model.tied true --parallelism.pipeline_parallel_last_stage_less_layers 0 ",
    GPT PP,
    GPT PP "--model.tied false ",
    FLUX PP,
    MLA PP,
    LLAMA "--model.family mixtral " EXPERTS "--model.moe_aux_loss 0.1 " PP,
    LLAMA "--model.family gpt_oss " EXPERTS PP,
    LLAMA PP "--parallelism.pipeline_parallel_divide_head true ",
    GPT PP "--parallelism.pipeline_parallel_divide_head true ",
};
/* clang-format on */

static void divided_models_are_as_recorded(void **state)
{
    (void)state;
    whole_layouts_are("tests/model/whole-layouts.txt", divided, sizeof divided / sizeof divided[0]);
}

static void stages_are_as_recorded(void **state)
{
    (void)state;
    whole_layouts_are("tests/model/whole-stages.txt", staged, sizeof staged / sizeof staged[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(divided_models_are_as_recorded),
    cmocka_unit_test(stages_are_as_recorded),
};

TM_TESTS(tests, NULL, NULL)
