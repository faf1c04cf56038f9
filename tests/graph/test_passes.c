/* SPDX-License-Identifier: Apache-2.0 */
/* What passes leave behind: nothing is read before it is there, no node works for nobody, phases follow each other,
 * rows of tables and looks have names of their own; and where formats part. */
#include "support/full_config.h"
#include "support/training.h"

#include "graph/passes/microscope.h"
#include "train/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define TINY                                                                                                           \
    "tiny-llama --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 64 "          \
    "--training.seq_len 16 --training.local_batch_size 2 --training.threads 1 --validation.enable false "
#define MIXTRAL TINY "--model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 32 "
#define GPT                                                                                                            \
    "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 --training.seq_len 16 --training.local_batch_size " \
    "2 --training.threads 1 --validation.enable false "
#define FLUX                                                                                                           \
    "tiny-flux --training.local_batch_size 2 --training.threads 1 --validation.enable false --model.dim 64 "           \
    "--model.n_heads 2 "
#define BF16 "--training.dtype bfloat16 "
#define RANKS2 "--parallelism.ranks 2 "
#define RANKS4 "--parallelism.ranks 4 "
#define TP RANKS2 "--parallelism.tensor_parallel_degree 2 "
#define EP RANKS2 "--parallelism.expert_parallel_degree 2 "
#define STAGES RANKS2 "--parallelism.pipeline_parallel_degree 2 --training.grad_accumulation 4 "
#define PARTED "--parallelism.pipeline_parallel_schedule "
#define LORA "--lora.rank 2 --lora.alpha 6 --lora.dropout 0.25 "
#define BY_OP                                                                                                          \
    "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "                           \
    "--activation_checkpoint.cheap false --activation_checkpoint.save_ops "
#define WIDE "--model.dim 64 --training.seq_len 32 "

/* clang-format off */
static const char *const runs[] = {
    TINY "--quantize.recipe fp8_delayed --training.grad_accumulation 2 " BF16,
    TINY "--quantize.recipe fp8_delayed --quantize.switch_recipe fp8_rowwise --quantize.switch_step 3 " RANKS2,
    TINY "--quantize.recipe nvfp4 --quantize.switch_recipe mxfp8 --quantize.switch_step 4 " WIDE BF16,
    TINY "--quantize.recipe fp8_rowwise --quantize.output_recipe mxfp8 --quantize.fqns attention " WIDE,
    TINY "--quantize.recipe fp8_tensorwise --quantize.filter_fqns wo,layers.1 " TP BF16,
    TINY "--quantize.recipe fp8_rowwise --model.tied true " TP,
    TINY "--quantize.recipe mxfp8 " WIDE TP "--model.dim 128 --model.ffn_dim 256",
    TINY "--quantize.recipe fp8_delayed " STAGES BF16,
    TINY "--quantize.recipe nvfp4 " WIDE STAGES BF16,
    MIXTRAL "--quantize.recipe fp8_rowwise --quantize.experts_recipe fp8_rowwise " BF16,
    MIXTRAL "--quantize.recipe fp8_delayed --quantize.experts_recipe fp8_rowwise " EP,
    MIXTRAL "--quantize.experts_recipe fp8_tensorwise " EP,
    GPT "--quantize.recipe fp8_current --activation_checkpoint.mode full " BF16,
    TINY "--debug.microscope 2 " BF16,
    TINY "--debug.microscope 2 --quantize.recipe fp8_rowwise --activation_checkpoint.mode full " BF16,
    TINY "--debug.microscope 2 --quantize.recipe mxfp4 " WIDE BF16,
    TINY "--debug.microscope 2 " RANKS2 BF16,
    TINY "--debug.microscope 2 " TP BF16 "--quantize.recipe fp8_tensorwise",
    TINY "--debug.microscope 2 " STAGES BF16,
    MIXTRAL "--debug.microscope 2 " BF16 EP,
    GPT "--debug.microscope 2 " BF16,
    FLUX "--debug.microscope 2 " BF16,
    TINY LORA "--lora.targets all-linear " TP,
    TINY LORA "--lora.dora true --lora.targets wq,w2 --activation_checkpoint.mode full",
    TINY LORA "--lora.targets lm_head,wo --loss.chunk_tokens 5",
    MIXTRAL "--lora.rank 2 --lora.targets experts.gate_up_proj,experts.down_proj " EP,
    FLUX "--lora.rank 2 " BF16,
    TINY "--parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method alltoall " RANKS2,
    TINY "--model.sinks true --parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method "
         "alltoall " RANKS2,
    TINY "--training.offload all --training.grad_accumulation 2",
    TINY "--model.tied true --training.grad_accumulation 2 " RANKS2 BF16,
    TINY "--optimizer.name Muon " RANKS4 BF16 "--parallelism.data_parallel_replicate_degree 2",
    TINY RANKS4 "--parallelism.tensor_parallel_degree 2 " BF16,
    TINY RANKS2 BF16,
    GPT RANKS2 "--parallelism.fsdp_reshard_after_forward never --activation_checkpoint.mode full",
    TINY STAGES RANKS4 BF16,
    TINY STAGES RANKS4 "--parallelism.data_parallel_shard_strategy optim_grads",
    TINY STAGES RANKS4 PARTED "InterleavedZeroBubble --model.n_layers 4",
    TINY STAGES RANKS4 PARTED "ZBVZeroBubble --model.n_layers 4 --parallelism.data_parallel_shard_strategy optim_grads",
    TINY STAGES RANKS4 PARTED "ZBVZeroBubble --model.n_layers 4 " BF16,
    MIXTRAL STAGES RANKS4 PARTED "ZBVZeroBubble --model.n_layers 4",
    GPT TP "--activation_checkpoint.mode full",
    MIXTRAL "--model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 8 "
            "--model.qk_rope_head_dim 8 --model.v_head_dim 8 --model.n_shared_experts 1 " EP BY_OP "swiglu:2 "
            "--parallelism.expert_parallel_capacity 1",
    MIXTRAL EP BY_OP "grouped_linear:2,attention --parallelism.expert_parallel_capacity 1 --lora.rank 2 --lora.targets "
               "experts.gate_up_proj,experts.down_proj",
    MIXTRAL BY_OP "grouped_linear:3,linear:2 --lora.rank 2 --lora.targets experts.down_proj",
    TINY BY_OP "linear:2,rmsnorm --lora.rank 2 --lora.targets all-linear --lora.dora true",
    TINY BY_OP "linear:3 --loss.chunk_tokens 5 " TP,
    TINY LORA "--lora.targets lm_head,wo --loss.chunk_tokens 5 " TP,
    TINY "--loss.chunk_tokens 3 --training.grad_accumulation 2 " TP BF16,
    MIXTRAL "--model.converters [quantize.grouped_mm.float8] --quantize.grouped_mm.float8.fqns layers.1,experts",
    TINY "--model.tied true --training.grad_accumulation 2 --parallelism.data_parallel_replicate_degree 2 "
         "--parallelism.data_parallel_shard_degree 1 " RANKS2 BF16,
};
/* Products that do not fit their recipe, or that nothing names. */
static const char *const unfit[] = {
    MIXTRAL "--quantize.experts_recipe mxfp8 " WIDE TP,
    MIXTRAL "--quantize.experts_recipe fp8_rowwise --model.moe_ffn_dim 24",
    MIXTRAL "--quantize.recipe fp8_rowwise --model.ffn_dim 40 --model.dim 40 --model.head_dim 10",
    MIXTRAL "--model.converters [quantize.grouped_mm.float8] --quantize.grouped_mm.float8.fqns nothing",
};
/* clang-format on */

/* Is there without this segment, or is for others than this segment. */
static bool outlives(const tm_graph *graph, tm_tensor_id id)
{
    const tm_tensor *t = tm_graph_at(graph, id);
    return tm_role_persistent(t->role) || t->role == TM_ROLE_INPUT || t->role == TM_ROLE_SCALAR || graph->slots > 0 ||
           t->space != TM_SPACE_DEVICE;
}

/* Backwards: who is read behind a node. A node works for those, or for what outlives the segment. */
static void check_needed(const char *words, const tm_graph *graph, const tm_segment *segment)
{
    bool *read = calloc(graph->n_tensors, sizeof *read);
    for (size_t x = segment->n_nodes; x-- > 0;) {
        const tm_node *n = &segment->nodes[x];
        bool           needed = n->stream == TM_ON_COMMUNICATION; /* others need it, or it is cut up */
        for (int k = 0; k < TM_MAX_OUT; k++)
            if (n->out[k] != TM_NONE)
                needed =
                    needed || read[tm_graph_base(graph, n->out[k])] || outlives(graph, tm_graph_base(graph, n->out[k]));
        if (!needed)
            fail_msg("%s, %s: nobody needs node %zu, %s of %s", words, segment->name, x, tm_op_get(n->op)->name,
                     n->module);
        for (int i = 0; i < TM_MAX_IN; i++)
            if (n->in[i] != TM_NONE) read[tm_graph_base(graph, n->in[i])] = true;
    }
    free(read);
}

/* What is read is there, sums go on, phases follow each other. */
static void check_order(const char *words, const tm_graph *graph, const tm_segment *segment)
{
    bool    *written = calloc(graph->n_tensors, sizeof *written);
    tm_phase phase = TM_PHASE_FORWARD;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *n = &segment->nodes[x];
        for (int i = 0; i < TM_MAX_IN; i++) {
            tm_tensor_id id = n->in[i] == TM_NONE ? TM_NONE : tm_graph_base(graph, n->in[i]);
            if (id != TM_NONE && !written[id] && !outlives(graph, id))
                fail_msg("%s, %s: node %zu, %s of %s, reads %s, which is not there", words, segment->name, x,
                         tm_op_get(n->op)->name, n->module, tm_graph_at(graph, id)->name);
        }
        for (int k = 0; k < TM_MAX_OUT; k++) {
            if (n->out[k] == TM_NONE) continue;
            const tm_tensor *t = tm_graph_at(graph, n->out[k]);
            bool             adds = n->accumulate >> k & 1;
            for (int i = 0; i < TM_MAX_IN; i++) adds = adds || n->in[i] == n->out[k];
            if (t->role == TM_ROLE_GRADIENT && t->base == TM_NONE && written[n->out[k]] && !adds)
                fail_msg("%s, %s: node %zu, %s of %s, forgets the sum in %s", words, segment->name, x,
                         tm_op_get(n->op)->name, n->module, t->name);
            written[tm_graph_base(graph, n->out[k])] = true;
        }
        if (n->stream != TM_ON_COMPUTE || n->recomputed || n->op == TM_OP_cast) continue; /* early, or again */
        if (n->phase < phase && strcmp(segment->name, "microscope") != 0)
            fail_msg("%s, %s: node %zu, %s of %s, is late", words, segment->name, x, tm_op_get(n->op)->name, n->module);
        phase = n->phase;
    }
    free(written);
}

/* A node of a step's gradients writes an element for the first time, or adds to what the step has put there. */
static void check_sum(const char *words, const tm_graph *graph, const tm_segment *segment, const tm_node *node, int k,
                      bool **written)
{
    const tm_tensor   *to = tm_graph_at(graph, node->out[k]);
    const tm_tensor_id base = tm_graph_base(graph, node->out[k]);
    const int64_t      all = tm_shape_elements(to->shape), rows = to->ld ? to->shape.n[0] : 1;
    bool               adds = node->accumulate >> k & 1;
    if (tm_graph_at(graph, base)->role != TM_ROLE_GRADIENT) return;
    if (!written[base]) written[base] = calloc((size_t)tm_shape_elements(tm_graph_at(graph, base)->shape), 1);
    for (int i = 0; i < TM_MAX_IN; i++) adds = adds || node->in[i] == node->out[k];
    for (int64_t i = 0; i < all; i++) {
        const int64_t at = (to->base == TM_NONE ? 0 : to->offset) + i / (all / rows) * to->ld + i % (all / rows);
        if (written[base][at] != adds)
            fail_msg("%s, %s: %s of %s %s element %d of %s", words, segment->name, tm_op_get(node->op)->name,
                     node->module, adds ? "adds to what another step left in" : "forgets the sum in", (int)at,
                     tm_graph_at(graph, base)->name);
        written[base][at] = true;
    }
}

static const tm_segment *segment_of(const tm_graph *graph, const tm_program *program)
{
    for (size_t s = 0; s < graph->n_segments; s++)
        if (strcmp(graph->segments[s]->name, program->name) == 0) return graph->segments[s];
    fail_msg("nobody wrote program %s", program->name);
    return NULL;
}

/* The programs of a step in their order: gradients are those of its micro-batches, all of them and no others. */
static void check_sums(const char *words, const tm_step *step)
{
    const tm_graph *graph = step->graph;
    bool          **written = calloc(graph->n_tensors, sizeof *written);
    for (size_t w = 0; w < step->training.n; w++)
        for (int64_t m = 0; m < step->training.work[w].count; m++) {
            const tm_segment *segment = segment_of(graph, step->training.work[w].program);
            for (size_t x = 0; x < segment->n_nodes; x++)
                for (int k = 0; k < TM_MAX_OUT; k++) {
                    const tm_node *node = &segment->nodes[x];
                    if (node->out[k] == TM_NONE || node->phase == TM_PHASE_UPDATE) continue;
                    check_sum(words, graph, segment, node, k, written);
                }
        }
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        if (t->role == TM_ROLE_GRADIENT && t->base == TM_NONE && !t->shared && !written[i])
            fail_msg("%s: nothing is in %s", words, t->name);
        free(written[i]);
    }
    free(written);
}

/* No two rows of products are of the same, and what is compared has one shape. */
static void check_rows(const tm_step *step)
{
    const tm_quantized  *q = &step->quantized;
    const tm_microscope *m = &step->microscope;
    for (size_t i = 0; i < q->n_rows; i++)
        for (size_t k = 0; k < i; k++)
            if (q->rows[i].factor == q->rows[k].factor && strcmp(q->rows[i].name, q->rows[k].name) == 0)
                fail_msg("two rows of %s", q->rows[i].name);
    for (size_t i = 0; i < m->n_rows; i++) {
        const tm_tensor *own = tm_graph_at(step->graph, m->rows[i].own);
        const tm_tensor *other = tm_graph_at(step->graph, m->rows[i].reference);
        assert_true(own != other && tm_shape_equal(own->shape, other->shape));
    }
}

/* --- weights that ranks share ------------------------------------------------------------------------------------- */

enum { MOST_GATHERS = 200 };
typedef struct {
    size_t       at, first, last; /* nodes: the gather, its first and its last reader */
    int          turn;
    const char  *unit, *layer; /* names */
    tm_tensor_id whole;
} gathered;

/* Of "weights of layer 1", and of "weights of experts of layer 1". */
static const char *layer_of(const char *unit)
{
    const char *experts = strstr(unit, "experts of ");
    return experts ? experts + 11 : unit + 11;
}

static size_t find_gathers(const tm_graph *graph, const tm_segment *segment, gathered list[MOST_GATHERS])
{
    size_t n = 0;
    for (size_t x = 0; x < segment->n_nodes; x++) {
        const tm_node *node = &segment->nodes[x];
        if (node->op == TM_OP_all_gather && strncmp(node->module, "weights of ", 11) == 0) {
            assert_true(n < MOST_GATHERS);
            list[n++] =
                (gathered){ x, 0, 0, 0, node->module, layer_of(node->module), tm_graph_base(graph, node->out[0]) };
        }
        for (size_t g = 0; g < n; g++)
            for (int i = 0; i < TM_MAX_IN && node->op != TM_OP_all_gather; i++)
                if (node->in[i] != TM_NONE && tm_graph_base(graph, node->in[i]) == list[g].whole) {
                    if (!list[g].first) list[g].first = x;
                    list[g].last = x;
                }
    }
    return n;
}

static int by_first_reader(const void *a, const void *b)
{
    const gathered *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Weights come as many turns ahead as were asked for; they are let go before another layer's are read, or come once. */
static void check_gathers(const char *words, const tm_step *step, const tm_segment *segment)
{
    static gathered  list[MOST_GATHERS];
    const tm_layout *layout = &step->options.layout;
    size_t           n = find_gathers(step->graph, segment, list);
    qsort(list, n, sizeof *list, by_first_reader);
    for (size_t g = 1; g < n; g++) list[g].turn = list[g - 1].turn + (strcmp(list[g].layer, list[g - 1].layer) != 0);
    for (size_t g = 0; g < n; g++) {
        int ahead = 0, wanted = list[g].turn < layout->prefetch ? list[g].turn : layout->prefetch;
        for (size_t k = 0; k < g; k++) {
            const bool begins = k == 0 || list[k].turn != list[k - 1].turn;
            ahead += begins && list[k].turn < list[g].turn && list[k].first > list[g].at;
            if (layout->reshard && list[k].last > list[g].first && strcmp(list[k].layer, list[g].layer) != 0)
                fail_msg("%s, %s: weights of %s stay beside those of %s", words, segment->name, list[k].layer,
                         list[g].layer);
            if (!layout->reshard && strcmp(list[k].unit, list[g].unit) == 0)
                fail_msg("%s, %s: weights of %s come twice", words, segment->name, list[g].layer);
        }
        if (ahead != wanted)
            fail_msg("%s, %s: weights of %s come %d turns ahead, wanted %d", words, segment->name, list[g].layer, ahead,
                     wanted);
    }
}

static void check_run(const char *words, bool fits, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_status      st = test_read_run(config, words, &options, &err);
    int ranks = st == TM_OK && options.step.layout.mesh.degree[0] > 0 ? tm_mesh_ranks(&options.step.layout.mesh) : 1;
    for (int rank = 0; st == TM_OK && rank < ranks; rank++) {
        tm_step *step;
        options.step.layout.rank = rank;
        if (strstr(words, BF16)) options.step.exact = &tm_precision_f32; /* as for a certificate */
        st = tm_step_create(&options.step, chooser, &step, &err);
        if (st != TM_OK) break;
        for (size_t s = 0; s < step->graph->n_segments; s++) {
            check_order(words, step->graph, step->graph->segments[s]);
            check_needed(words, step->graph, step->graph->segments[s]);
            check_gathers(words, step, step->graph->segments[s]);
        }
        check_sums(words, step);
        check_rows(step);
        tm_step_destroy(step);
    }
    if ((st == TM_OK) != fits || (st != TM_OK && tm_status_exit_code(st) != 4))
        fail_msg("%s: %d %s", words, (int)st, err.text);
    tm_config_destroy(config);
}

TEST(programs_are_in_order)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) check_run(runs[i], true, &chooser);
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) check_run(unfit[i], false, &chooser);
    tm_device_close(device);
}

/* --- formats that do not compute alike ---------------------------------------------------------------------------- */

static void append(tm_graph *graph, tm_op_id op, tm_tensor_id a, tm_tensor_id b)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b }, out[TM_MAX_OUT] = { TM_NONE };
    tm_graph_add(graph, op, NULL, 0, in, out, 0);
}

/* The op in which they differ is named, of both; also where one of them ends. */
TEST(the_microscope_says_where_formats_part)
{
    static const struct {
        int         own, reference; /* nodes */
        bool        other;          /* the last one of the reference is another op */
        const char *wanted;
    } rows[] = { { 2, 2, false, NULL },
                 { 2, 2, true, "in module 'own' bfloat16 has the op gelu and the other format silu" },
                 { 2, 1, false, "in module 'own' bfloat16 has the op gelu and the other format no more" },
                 { 1, 2, false, "in module 'other' bfloat16 has the op no more and the other format gelu" },
                 { 0, 1, true, "in module 'other' bfloat16 has the op no more and the other format silu" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tm_graph     *g = tm_graph_create(&tm_precision_bf16);
        tm_microscope made = { .record = TM_NONE };
        tm_error      err = { 0 };
        tm_tensor_id  x = tm_graph_tensor(g, "x", TM_ROLE_ACTIVATION, tm_shape_2(3, 4));
        tm_segment   *reference = tm_graph_segment(g, "reference");
        g->module = "other";
        for (int k = 0; k < rows[i].reference; k++)
            append(g, rows[i].other && k + 1 == rows[i].reference ? TM_OP_silu : TM_OP_gelu, x, TM_NONE);
        tm_graph_segment(g, "own");
        g->module = "own";
        for (int k = 0; k < rows[i].own; k++) append(g, TM_OP_gelu, x, TM_NONE);
        tm_status st = tm_microscope_pass(g, reference, NULL, 0, &made, &err);
        assert_int_equal(st, rows[i].wanted ? TM_UNSUPPORTED : TM_OK);
        if (rows[i].wanted) {
            assert_non_null(strstr(err.text, "the microscope compares formats that compute alike; "));
            assert_string_equal(strstr(err.text, "in module"), rows[i].wanted);
        } else {
            assert_int_equal(made.n_rows, 2);
            assert_string_equal(made.rows[0].name, "own.gelu");
            assert_string_equal(made.rows[1].name, "own.gelu"); /* told apart when all ranks' rows are together */
            assert_true(made.rows[0].own != made.rows[1].own);
            tm_microscope_fini(&made);
            assert_int_equal(made.record, TM_NONE);
            assert_null(made.rows);
        }
        tm_graph_destroy(g);
    }
}
