/* SPDX-License-Identifier: Apache-2.0 */
/* From parallelism.* to a layout: what each key says, what is left, batches of ranks, and what does not fit. */
#include "support/test.h"
#include "support/full_config.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

static tm_status read_options(const char *words, bool plans, tm_run_options *out, tm_error *err)
{
    tm_config *config = test_full_config();
    tm_config_allow_unbuilt(config, plans);
    assert_int_equal(tm_config_apply_preset(config, "tiny-llama", err), TM_OK);
    test_apply_words(config, words);
    tm_status st = tm_config_finish(config, err);
    if (st == TM_OK) st = tm_run_options_read(config, out, err);
    tm_config_destroy(config);
    return st;
}

static tm_run_options options_of(const char *words, bool plans)
{
    tm_run_options options = { 0 };
    tm_error       err = { 0 };
    if (read_options(words, plans, &options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    return options;
}

static void refused(const char *words, const char *says)
{
    tm_run_options options;
    tm_error       err = { 0 };
    assert_int_not_equal(read_options(words, false, &options, &err), TM_OK);
    assert_int_equal(tm_status_exit_code(err.status), 4);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
}

/* A plan has as many ranks as the degrees multiply to, unless it says how many; also where a degree is not supported.
 */
TEST(plans_need_no_number_of_ranks)
{
    tm_layout eight = options_of("--parallelism.data_parallel_shard_degree 8", true).step.layout;
    assert_int_equal(tm_mesh_ranks(&eight.mesh), 8);
    tm_layout many = options_of("--parallelism.ranks 8192 --parallelism.tensor_parallel_degree 8 "
                                "--parallelism.pipeline_parallel_degree 16",
                                true)
                         .step.layout;
    assert_int_equal(tm_mesh_ranks(&many.mesh), 8192);
    assert_int_equal(many.mesh.degree[TM_AXIS_SHARD], 64);
    refused("--parallelism.data_parallel_shard_degree 8", "start 8 ranks (--ranks)");
    assert_int_equal(options_of("--parallelism.tensor_parallel_degree 2 --parallelism.ranks 4", false)
                         .step.layout.mesh.degree[TM_AXIS_SHARD],
                     2);
    refused("--parallelism.tensor_parallel_degree 3 --parallelism.ranks 4", "multiply to 3");
}

/* Neighbours of dp_shard x cp x tp divide experts, and multiply nothing. */
TEST(experts_are_divided_among_those_that_share)
{
#define MIXTURE "--model.n_experts 8 --model.n_experts_per_token 2 "
    tm_layout four = options_of(MIXTURE "--parallelism.ranks 4 --parallelism.expert_parallel_degree 2 "
                                        "--parallelism.expert_parallel_capacity 1.5",
                                false)
                         .step.layout;
    assert_int_equal(four.mesh.degree[TM_AXIS_SHARD], 4);
    assert_int_equal(four.mesh.degree[TM_AXIS_EP], 2);
    assert_int_equal(four.mesh.degree[TM_AXIS_EFSDP], 2);
    four.rank = 3;
    tm_parallel parallel = tm_layout_parallel(&four);
    assert_int_equal(parallel.experts.ranks, 2);
    assert_int_equal(parallel.experts.rank, 1);
    assert_true(parallel.expert_capacity > 1.49 && parallel.expert_capacity < 1.51);
    refused(MIXTURE "--parallelism.ranks 4 --parallelism.expert_parallel_degree 3", "which is 4; 2 or 4 would do");
    refused(MIXTURE "--parallelism.expert_tensor_parallel_degree 2", "expert tensor parallelism is not supported");
}

/* Ranks that nobody gives are the fewest that divide experts. */
TEST(plans_have_the_fewest_ranks_that_divide_experts)
{
    static const struct {
        int experts, tensor, context, replicate, given; /* shards; 0: none are given */
        int shards, ranks;
    } cases[] = { { 2, 1, 1, 1, 0, 2, 2 },  { 4, 2, 2, 1, 0, 1, 4 },  { 6, 4, 1, 1, 0, 3, 12 }, { 4, 1, 1, 1, 8, 8, 8 },
                  { 4, 1, 6, 1, 0, 2, 12 }, { 8, 2, 2, 2, 0, 2, 16 }, { 1, 3, 1, 2, 0, 1, 6 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char keys[400];
        snprintf(keys, sizeof keys,
                 "--model.n_experts 24 --model.n_experts_per_token 2 --model.n_heads 12 --model.n_kv_heads 12 "
                 "--model.dim 192 --parallelism.expert_parallel_degree %d --parallelism.tensor_parallel_degree %d "
                 "--parallelism.context_parallel_degree %d --parallelism.data_parallel_replicate_degree %d "
                 "--parallelism.data_parallel_shard_degree %d",
                 cases[i].experts, cases[i].tensor, cases[i].context, cases[i].replicate,
                 cases[i].given > 0 ? cases[i].given : -1);
        tm_mesh mesh = options_of(keys, true).step.layout.mesh;
        if (mesh.degree[TM_AXIS_SHARD] != cases[i].shards || tm_mesh_ranks(&mesh) != cases[i].ranks)
            fail_msg("case %zu: %d shards, %d ranks", i, mesh.degree[TM_AXIS_SHARD], (int)tm_mesh_ranks(&mesh));
    }
}

/* Which stages a rank has, in which order they work, on which micro-batches. */
TEST(pipelines_are_read)
{
#define DEEP "--model.n_layers 8 --parallelism.pipeline_parallel_degree 4 "
#define EVEN                                                                                                           \
    DEEP "--parallelism.ranks 4 --parallelism.pipeline_parallel_first_stage_less_layers 0 "                            \
         "--parallelism.pipeline_parallel_last_stage_less_layers 0 "
    tm_run_options o = options_of(DEEP "--parallelism.ranks 4 --training.local_batch_size 6 "
                                       "--training.grad_accumulation 2 "
                                       "--parallelism.pipeline_parallel_microbatch_size 3",
                                  false);
    assert_int_equal(o.step.micro_batch, 3);
    assert_int_equal(o.step.accumulation, 4);
    assert_int_equal(o.step.layout.chunks, 1);
    assert_int_equal(o.step.layout.order, TM_PIPELINE_1F1B);
    tm_layout two = options_of(EVEN "--parallelism.pipeline_parallel_schedule interleaved1f1b "
                                    "--parallelism.pipeline_parallel_layers_per_stage 1",
                               false)
                        .step.layout;
    assert_int_equal(two.order, TM_PIPELINE_INTERLEAVED);
    assert_int_equal(two.chunks, 2);
    assert_int_equal(two.first_less + two.last_less, 0);
    two = options_of(EVEN "--parallelism.pipeline_parallel_schedule ZBVZeroBubble", false).step.layout;
    assert_int_equal(two.chunks, 2);
    refused(EVEN "--parallelism.pipeline_parallel_layers_per_stage 3", "makes 3 stages of 8 blocks");
    refused(EVEN "--parallelism.pipeline_parallel_schedule LoopedBFS",
            "'LoopedBFS' is not supported; these are: GPipe");
    refused(EVEN "--training.local_batch_size 4 --parallelism.pipeline_parallel_microbatch_size 3",
            "does not divide training.local_batch_size 4");
    /* Weights of stages stay gathered unless it is said that they are let go. */
    assert_false(options_of(DEEP "--parallelism.ranks 8", false).step.layout.let_go);
    assert_true(options_of(DEEP "--parallelism.ranks 8 --parallelism.fsdp_reshard_after_forward always", false)
                    .step.layout.let_go);
    assert_int_equal(
        options_of(DEEP "--parallelism.ranks 8 --parallelism.data_parallel_shard_strategy optim_grads", false)
            .step.layout.sharing,
        TM_SHARE_GRADIENTS);
}

/* Stages by the names of their modules. */
TEST(names_cut_the_model)
{
#define TWO "--model.n_layers 4 --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 "
#define NAMES TWO "--parallelism.module_fqns_per_model_part="
    static const struct {
        const char *words;
        int         chunks, first[4];
    } cases[] = {
        { NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2,layers.3,norm,output]]", 1, { 0, 1 } },
        { NAMES "[[tok_embeddings],[layers.2,layers.0,layers.3,layers.1,output,norm]]", 1, { 0, 0 } },
        { NAMES "tok_embeddings|layers.0|,layers.1|layers.2|layers.3|norm|output|", 1, { 0, 1 } },
        { NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2],[layers.3],[norm,output]] "
                "--parallelism.pipeline_parallel_schedule=Interleaved1F1B",
          2,
          { 0, 1, 3, 4 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_layout layout = options_of(cases[i].words, false).step.layout;
        assert_int_equal(layout.chunks, cases[i].chunks);
        assert_non_null(layout.first_blocks);
        for (int s = 0; s < 2 * cases[i].chunks; s++) assert_int_equal(layout.first_blocks[s], cases[i].first[s]);
    }
}
