/* SPDX-License-Identifier: Apache-2.0 */
/* From parallelism.* to a layout: what each key says, what is left, batches of ranks, stages. (What does not fit:
 * tests/golden/refusals.txt.) */
#include "support/test.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/pipeline/pipeline.h"
#include "train/run/run.h"

#define MIXTURE                                                                                                        \
    "--model.n_experts 24 --model.n_experts_per_token 2 --model.n_heads 12 --model.n_kv_heads 12 --model.dim 192 "
#define RANKS(n) "--parallelism.ranks " #n " "
#define SHARD(n) "--parallelism.data_parallel_shard_degree " #n " "
#define REPLICATE(n) "--parallelism.data_parallel_replicate_degree " #n " "
#define TP(n) "--parallelism.tensor_parallel_degree " #n " "
#define CP(n) "--parallelism.context_parallel_degree " #n " "
#define EP(n) "--parallelism.expert_parallel_degree " #n " "
#define DEEP "--model.n_layers 8 --parallelism.pipeline_parallel_degree 4 "
#define EVEN                                                                                                           \
    DEEP RANKS(4) "--parallelism.pipeline_parallel_first_stage_less_layers 0 "                                         \
                  "--parallelism.pipeline_parallel_last_stage_less_layers 0 "
#define HALVES "--model.n_layers 4 --parallelism.pipeline_parallel_degree 2 " RANKS(2)
#define NAMES HALVES "--parallelism.module_fqns_per_model_part="

/* `plans`: a plan has as many ranks as it needs, unless it says how many. */
static const struct {
    bool        plans;
    const char *words, *wanted;
} rows[] = {
    { true, SHARD(8), "ranks=8" },
    { true, RANKS(8192) TP(8) "--parallelism.pipeline_parallel_degree 16 ", "ranks=8192 shard=64" },
    { false, TP(2) RANKS(4), "shard=2" },
    { false, RANKS(4) REPLICATE(2), "shard=2 sharing=3" },
    /* neighbours of dp_shard x cp x tp divide experts, and multiply nothing; the fewest that can */
    { false, MIXTURE RANKS(4) EP(2) "--parallelism.expert_parallel_capacity 1.5 ",
      "shard=4 ep=2 efsdp=2 capacity=1.5" },
    { true, MIXTURE EP(8), "ranks=8 shard=8" },
    { true, MIXTURE EP(4) TP(2) CP(2), "ranks=4 shard=1" },
    { true, MIXTURE EP(6) TP(4), "ranks=12 shard=3" },
    { true, MIXTURE EP(4) SHARD(8), "ranks=8 shard=8" },
    { true, MIXTURE EP(4) CP(6), "ranks=12 shard=2" },
    { true, MIXTURE EP(8) TP(2) CP(2) REPLICATE(2), "ranks=16 shard=2" },
    { true, MIXTURE EP(1) TP(3) REPLICATE(2), "ranks=6 shard=1" },
    /* stages: which a rank has, in which order they work, on which micro-batches */
    { false,
      DEEP RANKS(4) "--training.local_batch_size 6 --training.grad_accumulation 2 "
                    "--parallelism.pipeline_parallel_microbatch_size 3 ",
      "micro_batch=3 accumulation=4 chunks=1 order=1F1B" },
    { false,
      EVEN
      "--parallelism.pipeline_parallel_schedule interleaved1f1b --parallelism.pipeline_parallel_layers_per_stage 1 ",
      "order=Interleaved1F1B chunks=2 less=0" },
    { false, EVEN "--parallelism.pipeline_parallel_schedule ZBVZeroBubble ", "chunks=2" },
    /* weights of stages stay gathered unless it is said that they are let go */
    { false, DEEP RANKS(8), "let_go=0 sharing=3" },
    { false, DEEP RANKS(8) "--parallelism.fsdp_reshard_after_forward always ", "let_go=1" },
    { false, DEEP RANKS(8) "--parallelism.data_parallel_shard_strategy optim_grads ", "sharing=2" },
    { false, NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2,layers.3,norm,output]]", "chunks=1 cuts=0,1" },
    { false, NAMES "[[tok_embeddings],[layers.2,layers.0,layers.3,layers.1,output,norm]]", "chunks=1 cuts=0,0" },
    { false, NAMES "tok_embeddings|layers.0|,layers.1|layers.2|layers.3|norm|output|", "chunks=1 cuts=0,1" },
    { false,
      NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2],[layers.3],[norm,output]] "
            "--parallelism.pipeline_parallel_schedule=Interleaved1F1B",
      "chunks=2 cuts=0,1,3,4" },
};

static void describe(const tm_run_options *o, tm_text *out)
{
    const tm_layout *l = &o->step.layout;
    tm_text_printf(out, " ranks=%d shard=%d ep=%d efsdp=%d capacity=%g sharing=%d let_go=%d ", tm_mesh_ranks(&l->mesh),
                   l->mesh.degree[TM_AXIS_SHARD], l->mesh.degree[TM_AXIS_EP], l->mesh.degree[TM_AXIS_EFSDP],
                   l->expert_capacity, (int)l->sharing, l->let_go);
    tm_text_printf(out, "micro_batch=%d accumulation=%d chunks=%d order=%s less=%d ", (int)o->step.micro_batch,
                   (int)o->step.accumulation, l->chunks, tm_pipeline_name(l->order),
                   (int)(l->first_less + l->last_less));
    for (int s = 0; l->first_blocks && s < 2 * l->chunks; s++)
        tm_text_printf(out, "%s%d", s ? "," : "cuts=", l->first_blocks[s]);
    tm_text_add(out, " ");
}

TEST(layouts_are_read)
{
    assert_true(TM_SHARE_ALL == 3 && TM_SHARE_GRADIENTS == 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        tm_error       err = { 0 };
        tm_text        is = { 0 };
        char           wanted[200];
        tm_config_allow_unbuilt(config, rows[i].plans);
        assert_int_equal(tm_config_apply_preset(config, "tiny-llama", &err), TM_OK);
        test_apply_words(config, rows[i].words);
        tm_status st = tm_config_finish(config, &err);
        if (st == TM_OK) st = tm_run_options_read(config, &options, &err);
        if (st != TM_OK) fail_msg("%s: %s", rows[i].words, err.text);
        describe(&options, &is);
        snprintf(wanted, sizeof wanted, "%s", rows[i].wanted);
        for (char *word = strtok(wanted, " "); word; word = strtok(NULL, " ")) {
            const char *at = strstr(is.data, word);
            if (!at || at[-1] != ' ' || at[strlen(word)] != ' ')
                fail_msg("%s: %s, not in%s", rows[i].words, word, is.data);
        }
        tm_text_fini(&is);
        tm_config_destroy(config);
    }
}
