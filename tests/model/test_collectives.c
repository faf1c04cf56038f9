/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other in a step, in order: every collective call and message of each way to divide a model,
 * with what it is called where it goes wrong. After a change that is meant: TM_RECORD=1
 * build/release/tests/model/test_collectives; git diff tests/model
 */
#include "op/attrs.h"
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"
#include "train/step/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

#define COMMON                                                                                                         \
    "--training.local_batch_size 2 --training.threads 1 --validation.enable false --optimizer.name SGD "               \
    "--model.n_layers 2 "
#define SHORT COMMON "--training.seq_len 16 "
#define LLAMA "tiny-llama --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 48 " SHORT
#define MIXTURE                                                                                                        \
    LLAMA "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 24 "           \
          "--model.moe_aux_loss 0.1 "
#define MLA                                                                                                            \
    LLAMA "--model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 12 "       \
          "--model.qk_rope_head_dim 4 --model.v_head_dim 8 "
#define GPT "gpt-small --model.dim 32 --model.n_heads 4 " SHORT
#define FLUX "tiny-flux --model.dim 64 --model.n_heads 2 " COMMON
#define TP "--parallelism.ranks 2 --parallelism.tensor_parallel_degree 2 "
#define WHOLE TP "--parallelism.enable_sequence_parallel false "
#define CP "--parallelism.ranks 2 --parallelism.context_parallel_degree 2 "
#define RING CP "--parallelism.context_parallel_rotate_method alltoall "
#define EP "--parallelism.ranks 2 --parallelism.expert_parallel_degree 2 "
#define PP "--parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 2 "

static const char *const divided[] = {
    LLAMA TP,
    LLAMA WHOLE,
    LLAMA CP,
    LLAMA RING,
    LLAMA PP,
    LLAMA "--parallelism.ranks 2 --parallelism.data_parallel_shard_degree 2 ",
    LLAMA "--parallelism.ranks 2 --parallelism.data_parallel_replicate_degree 2 ",
    LLAMA "--parallelism.ranks 4 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 ",
    GPT     TP,
    GPT     PP "--model.tied false ",
    FLUX    TP,
    FLUX    CP,
    MLA     TP,
    MIXTURE EP,
    MIXTURE WHOLE,
    MIXTURE EP "--parallelism.expert_parallel_capacity 0.5 ",
    MIXTURE PP,
    LLAMA   PP "--parallelism.pipeline_parallel_divide_head true ",
    GPT     PP "--parallelism.pipeline_parallel_divide_head true ",
};

static void add_group(tm_text *out, const tm_group_attr *g)
{
    tm_text_printf(out, " among %lld of axes %llx%s%s: %s", (long long)g->ranks, (unsigned long long)g->axes,
                   g->narrow ? ", narrow" : "", g->largest ? ", largest" : "", g->what);
}

static void add_call(tm_text *out, const tm_node *node)
{
    const tm_exchange_attr *e = node->attr;
    const tm_message_attr  *m = node->attr;
    const char             *name = tm_op_get(node->op)->name;
    switch (node->op) {
    case TM_OP_all_reduce:
    case TM_OP_reduce_scatter:
    case TM_OP_all_gather:
    case TM_OP_share:
        tm_text_printf(out, "    %s", name);
        add_group(out, node->attr);
        break;
    case TM_OP_exchange_counts:
    case TM_OP_send_rows:
    case TM_OP_return_rows:
        tm_text_printf(out, "    %s", name);
        add_group(out, &e->group);
        tm_text_printf(out, "; rank %lld, round %lld of %lld, %lld rows, %lld pairs", (long long)e->rank,
                       (long long)e->round, (long long)e->rounds, (long long)e->rows, (long long)e->pairs);
        break;
    case TM_OP_send:
    case TM_OP_receive:
        tm_text_printf(out, "    %s among %lld of axes %llx, peer %lld, channel %lld, %lld x %lld, %lld times: %s",
                       name, (long long)m->ranks, (unsigned long long)m->axes, (long long)m->peer,
                       (long long)m->channel, (long long)m->rows, (long long)m->columns, (long long)m->times, m->what);
        break;
    default:
        return;
    }
    tm_text_add(out, "\n");
}

static void add_step(tm_text *out, const char *words, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_step       *step;
    tm_error       err = { 0 };
    if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    options.step.layout.rank = tm_mesh_ranks(&options.step.layout.mesh) - 1;
    if (tm_step_create(&options.step, chooser, &step, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    tm_text_printf(out, "\n%s\n", words);
    for (size_t s = 0; s < step->graph->n_segments; s++) {
        const tm_segment *segment = step->graph->segments[s];
        tm_text_printf(out, "  %s\n", segment->name);
        for (size_t i = 0; i < segment->n_nodes; i++) add_call(out, &segment->nodes[i]);
    }
    tm_step_destroy(step);
    tm_config_destroy(config);
}

static void calls_are_as_recorded(void **state)
{
    (void)state;
    tm_text    out = { 0 };
    tm_device *device = test_device_open("null", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++) add_step(&out, divided[i], &chooser);
    tm_device_close(device);
    whole_is("tests/model/whole-collectives.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(calls_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
