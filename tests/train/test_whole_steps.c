/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of whole training steps, as each pass and the planner leave them, to the letter: every op with its
 * operands, formats, costs, kernels, lifetimes and places, where each tensor lies, and in which order the programs run.
 * Small ones are written out, of others a checksum of each program. After a change that is meant:
 * TM_RECORD=1 build/release/tests/train/test_whole_steps; git diff tests/train/whole-steps.txt */
#include "device/device.h"
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"
#include "support/whole_steps.h"
#include "train/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 2 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --validation.enable false "
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define DEEPSEEK                                                                                                       \
    TINY "--model.family deepseek --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "           \
         "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.kv_lora_rank 16 --model.qk_nope_head_dim 16 "    \
         "--model.qk_rope_head_dim 16 --model.v_head_dim 16 "

static const struct {
    const char *words;
    int         degree[TM_AXES]; /* 0: 1 */
    tm_sharing  sharing;
    bool        whole, sequences, reshard; /* whole: written out */
} steps[] = {
    { .words = TINY, .whole = true },
    { .words = TINY "--model.tied true --model.qk_norm true" },
    { .words = TINY "--training.dtype bfloat16 --training.mixed_precision_param bfloat16" },
    { .words = TINY "--training.dtype bfloat16 --training.regime pure" },
    { .words = TINY "--activation_checkpoint.mode full --loss.chunk_tokens 7" },
    { .words = TINY "--activation_checkpoint.mode selective" },
    { .words = TINY "--quantize.recipe fp8_tensorwise" },
    { .words = TINY "--lora.rank 2 --lora.alpha 6 --lora.dropout 0.25 --lora.targets wq,wv" },
    { .words = TINY "--optimizer.name muon" },
    { .words = TINY "--optimizer.name adafactor" },
    { .words = TINY "--optimizer.name sgd" },
    { .words = TINY "--optimizer.name adamw8bit" },
    { .words = TINY "--training.grad_accumulation 4 --training.separate_sums 2" },
    { .words = TINY "--validation.enable true --validation.steps 2 --validation.seq_len 24" },
    { .words = MIXTRAL "--model.moe_aux_loss 0.01" },
    { .words = DEEPSEEK },
    { .words = DEEPSEEK, .degree = { [TM_AXIS_TP] = 2 } },
    { .words = DEEPSEEK, .degree = { [TM_AXIS_TP] = 2 }, .sequences = true },
    { .words = MIXTRAL, .degree = { [TM_AXIS_SHARD] = 2, [TM_AXIS_EP] = 2 }, .sharing = TM_SHARE_ALL },
    { .words = TINY, .degree = { [TM_AXIS_TP] = 2 } },
    { .words = TINY, .degree = { [TM_AXIS_TP] = 2 }, .sequences = true },
    { .words = TINY, .degree = { [TM_AXIS_CP] = 2, [TM_AXIS_SHARD] = 1 } },
    { .words = TINY, .degree = { [TM_AXIS_PP] = 2 } },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 2 }, .sharing = TM_SHARE_ALL, .reshard = true },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 2 }, .sharing = TM_SHARE_ALL },
    { .words = TINY, .degree = { [TM_AXIS_SHARD] = 3 } },
    { .words = TINY, .degree = { [TM_AXIS_REPLICATE] = 2 } },
    { .words = "tiny-flux --training.local_batch_size 2 --training.threads 1 --validation.steps 1 --model.dim 64 "
               "--model.n_heads 2" },
    { .words = "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 2 --training.seq_len 16 "
               "--training.local_batch_size 2 --training.threads 1 --validation.enable false" },
};

static void steps_are_as_recorded(void **state)
{
    tm_text    out = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    (void)state;
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        int            ranks = 1;
        err = (tm_error){ 0 };
        if (test_read_run(config, steps[i].words, &options, &err) != TM_OK)
            fail_msg("%s: %s", steps[i].words, err.text);
        tm_layout *layout = &options.step.layout;
        layout->mesh = tm_mesh_one();
        for (int a = 0; a < TM_AXES; a++)
            if (steps[i].degree[a]) layout->mesh.degree[a] = steps[i].degree[a];
        for (int a = 0; a < TM_AXES; a++)
            if (a != TM_AXIS_EP) ranks *= layout->mesh.degree[a];
        if (tm_mesh_fill(&layout->mesh, ranks, &err) != TM_OK) fail_msg("%s: %s", steps[i].words, err.text);
        layout->sharing = steps[i].sharing;
        layout->reshard = steps[i].reshard;
        layout->whole_rows = !steps[i].sequences;
        for (layout->rank = 0; layout->rank<ranks; layout->rank += ranks> 1 ? ranks - 1 : 1) {
            tm_step *step;
            size_t   known = strncmp(steps[i].words, TINY, strlen(TINY)) == 0 ? strlen(TINY) : 0;
            tm_text_printf(&out, "\n%s%s: rank %d of", known ? "tiny " : "", steps[i].words + known, layout->rank);
            for (int a = 0; a < TM_AXES; a++) tm_text_printf(&out, " %d", layout->mesh.degree[a]);
            tm_text_printf(&out, ", sharing %d, reshard %d, whole rows %d\n", layout->sharing, layout->reshard,
                           layout->whole_rows);
            tm_status st = tm_step_create(&options.step, &chooser, &step, &err);
            if (st != TM_OK) {
                tm_text_printf(&out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
                break;
            }
            whole_step_add(&out, step, &chooser, steps[i].whole);
            tm_step_destroy(step);
        }
        tm_config_destroy(config);
    }
    tm_device_close(device);
    whole_is("tests/train/whole-steps.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(steps_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
