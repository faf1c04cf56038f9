/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes make beside the instructions that a plan prints: the attributes of every node, the rows of the tables
 * of products in low precision, what the microscope compares, which part of a whole a tensor is. After a change that is
 * meant:
 *     TM_RECORD=1 build/release/tests/graph/test_passes; git diff tests/graph/whole-passes.txt
 */
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"

#include "base/hash.h"
#include "graph/passes/microscope.h"
#include "train/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    MIXTRAL "--quantize.experts_recipe mxfp8 " WIDE TP,
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
    TINY STAGES "--parallelism.ranks 4 " BF16,
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
    MIXTRAL "--quantize.experts_recipe fp8_rowwise --model.moe_ffn_dim 24",
    MIXTRAL "--quantize.recipe fp8_rowwise --model.ffn_dim 40 --model.dim 40 --model.head_dim 10",
    MIXTRAL "--model.converters [quantize.grouped_mm.float8] --quantize.grouped_mm.float8.fqns nothing",
    MIXTRAL "--model.converters [quantize.grouped_mm.float8] --quantize.grouped_mm.float8.fqns layers.1,experts",
    TINY "--model.tied true --training.grad_accumulation 2 --parallelism.data_parallel_replicate_degree 2 "
         "--parallelism.data_parallel_shard_degree 1 " RANKS2 BF16,
};
/* clang-format on */

static void add_hash(tm_text *out, const char *name, tm_hasher *hasher)
{
    tm_text_printf(out, "    %s %016llx\n", name, (unsigned long long)tm_hasher_value(hasher));
    tm_hasher_destroy(hasher);
}

/* All members of a node. Structs of attributes have no gaps. */
static void hash_node(tm_hasher *hasher, const tm_node *n)
{
    tm_text text = { 0 };
    tm_text_printf(&text, "%s %s %d %d %d %d %d %x %x:", tm_op_get(n->op)->name, n->module, n->layer, n->phase, n->keep,
                   n->recomputed, n->stream, n->accumulate, n->rounded);
    for (int i = 0; i < TM_MAX_IN; i++) tm_text_printf(&text, " %d", n->in[i]);
    for (int k = 0; k < TM_MAX_OUT; k++) tm_text_printf(&text, " %d", n->out[k]);
    tm_hasher_add(hasher, text.data, text.length);
    if (n->attr) tm_hasher_add(hasher, n->attr, n->attr_bytes);
    tm_text_fini(&text);
}

static void add_nodes(tm_text *out, const tm_step *step)
{
    for (size_t s = 0; s < step->graph->n_segments; s++) {
        const tm_segment *segment = step->graph->segments[s];
        tm_hasher        *hasher = tm_hasher_create();
        for (size_t x = 0; x < segment->n_nodes; x++) hash_node(hasher, &segment->nodes[x]);
        add_hash(out, segment->name, hasher);
    }
}

/* Pieces, what is cut and what is shared of tensors. */
static void add_parts(tm_text *out, const tm_step *step)
{
    tm_text text = { 0 };
    char    shape[96];
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        tm_text_printf(&text, "%zu %s", i, t->name);
        for (int k = 0; k < t->n_pieces; k++) {
            const tm_piece *p = &t->pieces[k];
            tm_text_printf(&text, " %s:%lld+%lld %lld %lld/%lld", p->name, (long long)p->row, (long long)p->rows,
                           (long long)p->begin, (long long)p->first, (long long)p->whole);
        }
        if (t->cut)
            tm_text_printf(&text, " cut %x %d/%d %lld %s", t->cut->axes, t->cut->rank, t->cut->ranks,
                           (long long)t->cut->column, tm_shape_text(shape, t->cut->whole));
        if (t->shared)
            tm_text_printf(&text, " shared %d %d %lld %lld %x %d/%d", t->shared->flat, t->shared->like,
                           (long long)t->shared->first, (long long)t->shared->share, t->shared->axes, t->shared->rank,
                           t->shared->ranks);
        if (t->adapts != TM_NONE) tm_text_printf(&text, " adapts %d", t->adapts);
        tm_text_add(&text, "\n");
    }
    tm_hasher *hasher = tm_hasher_create();
    tm_hasher_add(hasher, text.data, text.length);
    add_hash(out, "parts", hasher);
    tm_text_fini(&text);
}

static void add_rows(tm_text *out, const tm_step *step, const char *title, const tm_quantized_row *rows, size_t n)
{
    const tm_quantized *q = &step->quantized;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0 || rows[i].weight != rows[i - 1].weight)
            tm_text_printf(out, "%s    %s %s", i ? "\n" : "", title, rows[i].name);
        tm_text_printf(out, " %d:%s%s", rows[i].kind, tm_factor_name(rows[i].factor), rows[i].elsewhere ? " away" : "");
        if (rows[i].weight == TM_NONE) tm_text_add(out, " none");
        if (rows == q->rows && q->places) tm_text_printf(out, " at %zu", q->places[i]);
    }
    if (n > 0) tm_text_add(out, "\n");
}

static void add_quantized(tm_text *out, const tm_step *step)
{
    const tm_quantized *q = &step->quantized;
    if (q->record == TM_NONE) return;
    tm_text_printf(out, "    quantized %zu, left %zu; %s%s%s%s%s%s\n", q->n_linears, q->n_left,
                   q->ticks == TM_NONE ? "" : "ticks ", q->found == TM_NONE ? "" : "found ",
                   q->history == TM_NONE ? "" : "history ", q->largest == TM_NONE ? "" : "largest ",
                   q->scale == TM_NONE ? "" : "scale ", q->number == TM_NONE ? "" : "number");
    add_rows(out, step, "row", q->rows, q->n_rows);
    add_rows(out, step, "of all", q->all, q->n_all);
    if (q->largest == TM_NONE) return;
    const tm_tensor *largest = tm_graph_at(step->graph, q->largest);
    for (size_t i = 0; i < q->n_rows; i++)
        tm_text_printf(out, "%s%g", i ? " " : "    largest ", largest->fill(largest->fill_context, (int64_t)i));
    tm_text_add(out, "\n");
}

static void add_looks(tm_text *out, const tm_step *step)
{
    const tm_microscope *m = &step->microscope;
    for (size_t i = 0; i < m->n_rows; i++) {
        const tm_look_row *r = &m->rows[i];
        tm_text_printf(out, "    %s %d %d %s: %s, %s\n", tm_look_kind_name(r->kind), r->layer, r->part, r->name,
                       tm_graph_at(step->graph, r->own)->name, tm_graph_at(step->graph, r->reference)->name);
    }
}

/* The first lines, and a checksum of all of them where there are more. */
static void add_begin(tm_text *out, tm_text *lines)
{
    enum { SHOWN = 12 };
    const char *end = lines->data;
    for (int i = 0; i < SHOWN && end; i++) end = strchr(end, '\n') ? strchr(end, '\n') + 1 : NULL;
    if (lines->data) tm_text_add_n(out, lines->data, end ? (size_t)(end - lines->data) : lines->length);
    if (end && *end) {
        tm_hasher *hasher = tm_hasher_create();
        tm_hasher_add(hasher, lines->data, lines->length);
        add_hash(out, "all lines", hasher);
    }
    tm_text_fini(lines);
}

static void add_run(tm_text *out, const char *words, const tm_chooser *chooser)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_status      st = test_read_run(config, words, &options, &err);
    int ranks = st == TM_OK && options.step.layout.mesh.degree[0] > 0 ? tm_mesh_ranks(&options.step.layout.mesh) : 1;
    tm_text_printf(out, "\n%s\n", words);
    for (int rank = 0; st == TM_OK && rank < ranks; rank++) {
        tm_step *step;
        options.step.layout.rank = rank;
        if (strstr(words, BF16)) options.step.exact = &tm_precision_f32; /* as for a certificate */
        st = tm_step_create(&options.step, chooser, &step, &err);
        if (st != TM_OK) break;
        tm_text_printf(out, "  rank %d\n", rank);
        add_nodes(out, step);
        add_parts(out, step);
        tm_text rows = { 0 }, looks = { 0 };
        add_quantized(&rows, step);
        add_looks(&looks, step);
        add_begin(out, &rows);
        add_begin(out, &looks);
        tm_step_destroy(step);
    }
    if (st != TM_OK) tm_text_printf(out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
    tm_config_destroy(config);
}

static void passes_make_what_is_recorded(void **state)
{
    (void)state;
    tm_text    out = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_error   err = { 0 };
    assert_int_equal(tm_device_limit_isa(device, "base", &err), TM_OK);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) add_run(&out, runs[i], &chooser);
    tm_device_close(device);
    whole_is("tests/graph/whole-passes.txt", &out);
}

/* --- formats that do not compute alike ---------------------------------------------------------------------------- */

static void append(tm_graph *graph, tm_op_id op, tm_tensor_id a, tm_tensor_id b)
{
    tm_tensor_id in[TM_MAX_IN] = { a, b }, out[TM_MAX_OUT] = { TM_NONE };
    tm_graph_add(graph, op, NULL, 0, in, out, 0);
}

/* The op in which they differ is named, of both; also where one of them ends. */
static void the_microscope_says_where_formats_part(void **state)
{
    (void)state;
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
            assert_string_equal(made.rows[1].name, "own.gelu.2");
            tm_microscope_fini(&made);
            assert_int_equal(made.record, TM_NONE);
            assert_null(made.rows);
        }
        tm_graph_destroy(g);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(passes_make_what_is_recorded),
    cmocka_unit_test(the_microscope_says_where_formats_part),
};

TM_TESTS(tests, NULL, NULL)
