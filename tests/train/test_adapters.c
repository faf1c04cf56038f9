/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters: what they compute, which modules have them, what their base is held in, and what is refused. (How they
 * train: tests/oracle, tests/differential.) */
#include "support/test.h"
#include "graph/nf4.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_adapters lora(int64_t rank, double alpha, const char *targets)
{
    tm_adapters a = { .rank = rank, .alpha = alpha, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

/* --- golden numbers ----------------------------------------------------------------------------------------------- */

static void golden(const char *device_name, const tm_precision *precision, tm_recompute recompute, double loss_error,
                   double norm_error)
{
    golden_numbers  wanted = golden_read("llama-tiny-lora");
    tm_step_options o = golden_llama_options(precision);
    tm_error        err = { 0 };
    tm_device      *device;
    tm_trainer     *trainer;
    int32_t         tokens[64];
    o.adapters = lora(2, 4, "q_proj,v_proj");
    o.recompute = recompute;
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    if (tm_trainer_open(device, &o, 1, &trainer, &err) != TM_OK) fail_msg("%s", err.text);
    golden_fill(trainer);
    golden_tokens(tokens, 13, 64);
    test_begin(trainer, 1, 1e-2, 1.0, 12);
    test_accumulate(trainer, 0, tokens, tokens + 1);
    tm_step_result result = test_update(trainer);
    golden_close("loss", result.loss, wanted.loss, loss_error);
    golden_close("norm", result.grad_norm, wanted.norm, norm_error);
    golden_check_gradients(trainer, &wanted, norm_error);
    assert_int_equal(tm_adapters_describe(tm_trainer_step_of(trainer)->graph).trained, wanted.parameters);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(golden_numbers_of_lora)
{
    static const tm_recompute keep = { 0 }, full = { .cheap = true, .every_n = 1 }, second = { .every_n = 2 };
    tm_recompute              some = { .every_n = 1 };
    some.save[TM_OP_attention] = 1;
    some.save[TM_OP_linear] = 2;
    golden("reference", &tm_precision_f64, keep, 1e-9, 1e-9);
    golden("reference", &tm_precision_f64, full, 1e-9, 1e-9);
    golden("reference", &tm_precision_f64, second, 1e-9, 1e-9);
    golden("reference", &tm_precision_f64, some, 1e-9, 1e-9);
    golden("cpu", &tm_precision_f32, keep, 1e-5, 1e-4);
    golden("cpu", &tm_precision_bf16, full, 1e-2, 5e-2);
}

/* --- every family: adapter = merged model ------------------------------------------------------------------------- */

/* Every adapted row of `values` gets its length. */
static void stretch_rows(double *values, const tm_tensor *w, const tm_adapter *adapter, const tm_trainer *from)
{
    const tm_low_rank_attr *attr = &adapter->attr;
    double                 *m = test_values_read(from, adapter->m);
    int64_t                 width = w->shape.n[1], row = 0;
    for (int64_t part = 0; part < attr->parts; part++)
        for (int64_t i = 0; i < attr->part[part].rows; i++, row++) {
            double *at = values + (attr->part[part].column + i) * width, squares = 0;
            for (int64_t c = 0; c < width; c++) squares += at[c] * at[c];
            for (int64_t c = 0; c < width; c++) at[c] *= m[row] / sqrt(squares);
        }
    free(m);
}

static void add_to_experts(double *values, const tm_tensor *w, const tm_trainer *from)
{
    double *a = test_values_read(from, w->adapter->a), *b = test_values_read(from, w->adapter->b);
    int64_t rows = w->shape.n[1], width = w->shape.n[2], rank = w->adapter->attr.rank;
    for (int64_t e = 0; e < w->shape.n[0]; e++)
        for (int64_t m = 0; m < rows; m++)
            for (int64_t c = 0; c < width; c++)
                for (int64_t r = 0; r < rank; r++)
                    values[(e * rows + m) * width + c] +=
                        w->adapter->attr.scale * b[(e * rows + m) * rank + r] * a[(e * rank + r) * width + c];
    free(a), free(b);
}

/* Same model without adapters: every weight copied, W + scale B A where there is one. */
static void merge_into(tm_trainer *to, const tm_trainer *from)
{
    const tm_graph *graph = tm_trainer_step_of(from)->graph, *plain = tm_trainer_step_of(to)->graph;
    for (size_t i = 0, p = 0; i < graph->n_tensors; i++) {
        const tm_tensor *w = &graph->tensors[i];
        if (w->role != TM_ROLE_PARAMETER || w->adapts != TM_NONE) continue;
        while (plain->tensors[p].role != TM_ROLE_PARAMETER) p++;
        assert_string_equal(plain->tensors[p].name, w->name);
        double *values = test_values_read(from, (tm_tensor_id)i);
        if (w->adapter && w->shape.rank == 3) add_to_experts(values, w, from);
        for (const tm_adapter *one = w->adapter; one && w->shape.rank == 2; one = one->next) {
            const tm_low_rank_attr *attr = &one->attr;
            double                 *a = test_values_read(from, one->a), *b = test_values_read(from, one->b);
            int64_t                 width = w->shape.n[1], row = 0;
            for (int64_t part = 0; part < attr->parts; part++)
                for (int64_t m = 0; m < attr->part[part].rows; m++, row++)
                    for (int64_t c = 0; c < width; c++) {
                        double sum = 0;
                        for (int64_t r = 0; r < attr->rank; r++)
                            sum += b[row * attr->rank + r] * a[(part * attr->rank + r) * width + c];
                        values[(attr->part[part].column + m) * width + c] += attr->scale * sum;
                    }
            if (one->m != TM_NONE) stretch_rows(values, w, one, from);
            free(a), free(b);
        }
        test_values_write(to, (tm_tensor_id)p++, values);
        free(values);
    }
}

static void set_b(tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t i = 0; i < graph->n_tensors; i++)
        for (const tm_adapter *one = graph->tensors[i].adapter; one; one = one->next) {
            double *values = test_values_read(trainer, one->b);
            for (int64_t k = 0; k < tm_shape_elements(tm_graph_at(graph, one->b)->shape); k++)
                values[k] = 0.5 * golden_unit("b", (uint32_t)k);
            test_values_write(trainer, one->b, values);
            free(values);
            if (one->m == TM_NONE) continue;
            values = test_values_read(trainer, one->m);
            for (int64_t k = 0; k < tm_shape_elements(tm_graph_at(graph, one->m)->shape); k++)
                values[k] *= 1 + 0.5 * golden_unit("m", (uint32_t)k);
            test_values_write(trainer, one->m, values);
            free(values);
        }
}

static tm_step_options options_of(tm_model_family family)
{
    tm_step_options o = test_family_options(family);
    if (family == TM_FAMILY_MIXTRAL)
        o.shape.moe =
            (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 32, .normalise = true, .scale = 1, .groups = 1 };
    return o;
}

static void family_with(tm_model_family which, tm_adapters adapters, int64_t least)
{
    tm_device      *device = test_device_open("cpu", 2);
    tm_step_options o = options_of(which), adapted = o;
    const char     *targets = adapters.targets;
    bool            dora = adapters.dora;
    adapted.adapters = adapters;
    test_batch  batch = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 7);
    tm_trainer *plain = test_trainer_open(device, &o, 5), *with = test_trainer_open(device, &adapted, 5);
    assert_true(tm_adapters_describe(tm_trainer_step_of(with)->graph).modules >= least);
    double before = test_evaluate(plain, batch.tokens, batch.targets);
    double first = test_evaluate(with, batch.tokens, batch.targets); /* b is 0: not a bit; logits that are rescaled */
    bool   turned = dora && strstr(targets, "lm_head");              /* are nodes, summed in another order */
    assert_true(turned ? fabs(first - before) < 1e-6 * before : !(first != before));
    set_b(with);
    merge_into(plain, with);
    double merged = test_evaluate(plain, batch.tokens, batch.targets);
    double result = test_evaluate(with, batch.tokens, batch.targets);
    if (!(fabs(merged - result) <= 1e-6 * fabs(merged) && fabs(merged - before) > 2e-5 * fabs(before)))
        fail_msg("family %d, %s%s: %.10g, merged %.10g, before %.10g", (int)which, targets, dora ? ", DoRA" : "",
                 result, merged, before);
    test_batch_fini(&batch);
    tm_trainer_close(plain);
    tm_trainer_close(with);
    tm_device_close(device);
}

static void family(tm_model_family which, const char *targets, int64_t least, bool dora)
{
    tm_adapters adapters = lora(3, 4.5, targets);
    adapters.dora = dora;
    family_with(which, adapters, least);
}

TEST(an_adapter_is_its_merged_model)
{
    for (int dora = 0; dora < 2; dora++) {
        family(TM_FAMILY_LLAMA, "all-linear", 14, dora);
        family(TM_FAMILY_LLAMA, "wqkv,o_proj", 4, dora); /* one adapter of the fused matrix */
        family(TM_FAMILY_QWEN3, "q_proj,k_proj,down_proj", 6, dora);
        family(TM_FAMILY_GPT, "all-linear", 8, dora); /* with biases, which keep their size */
        family(TM_FAMILY_MIXTRAL, "all-linear", 8, dora);
        family(TM_FAMILY_LLAMA, "v_proj,lm_head", 3, dora);
    }
    family(TM_FAMILY_MIXTRAL, "o_proj,experts.gate_up_proj,mlp.experts.down_proj", 6, false);
    family(TM_FAMILY_MIXTRAL, "experts.gate_up_proj", 2, false);
    family_with(TM_FAMILY_LLAMA, lora(200, 300, "all-linear"), 14); /* a rank above all sizes: wasteful, and right */
}

/* Ranks and factors by module: those of a matrix are several adapters, one behind the other. */
TEST(ranks_by_pattern)
{
    static const tm_pattern_value ranks[] = { { "(q_proj|wq)", 2 }, { "layers\\.1\\..*k_proj", 5 }, { "mlp.*", 4 } };
    static const tm_pattern_value alphas[] = { { "v_proj", 12 },
                                               { "down_proj", 1 },
                                               { "layers\\.0\\..*k_proj", 6.75 } };
    for (int dora = 0; dora < 2; dora++) {
        tm_adapters a = lora(3, 4.5, "all-linear");
        a.dora = dora;
        a.ranks = ranks, a.n_ranks = 3;
        a.alphas = alphas, a.n_alphas = 3;
        family_with(TM_FAMILY_LLAMA, a, 14);
        family_with(TM_FAMILY_QWEN3, a, 14);
        tm_adapters biased = lora(3, 4.5, "wq,wv");
        biased.dora = dora;
        biased.ranks = ranks, biased.n_ranks = 1;
        family_with(TM_FAMILY_QWEN2, biased, 4);
    }
    tm_step_options o = options_of(TM_FAMILY_LLAMA);
    o.adapters = lora(3, 4.5, "all-linear");
    o.adapters.ranks = ranks, o.adapters.n_ranks = 3;
    o.adapters.alphas = alphas, o.adapters.n_alphas = 3;
    tm_device      *device = test_device_open("cpu", 1);
    tm_trainer     *trainer = test_trainer_open(device, &o, 5);
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    static const struct {
        const char *matrix;
        int         n, parts[3];
        int64_t     rank[3];
        double      scale[3];
    } wanted[] = { { "layers.0.attention.wqkv.weight", 3, { 1, 1, 1 }, { 2, 3, 3 }, { 4.5 / 2, 4.5 / 2, 4 } },
                   { "layers.1.attention.wqkv.weight", 3, { 1, 1, 1 }, { 2, 5, 3 }, { 4.5 / 2, 0.9, 4 } },
                   { "layers.1.attention.wo.weight", 1, { 1 }, { 3 }, { 1.5 } },
                   { "layers.0.feed_forward.w13.weight", 1, { 2 }, { 4 }, { 4.5 / 4 } },
                   { "layers.0.feed_forward.w2.weight", 1, { 1 }, { 4 }, { 0.25 } } };
    for (size_t k = 0, i; k < sizeof wanted / sizeof wanted[0]; k++) {
        for (i = 0; strcmp(graph->tensors[i].name, wanted[k].matrix) != 0;) assert_true(++i < graph->n_tensors);
        const tm_adapter *one = graph->tensors[i].adapter;
        for (int n = 0; n < wanted[k].n; n++, one = one->next) {
            assert_non_null(one);
            assert_int_equal(one->attr.rank, wanted[k].rank[n]);
            assert_int_equal(one->attr.parts, wanted[k].parts[n]);
            assert_true(fabs(one->attr.scale - wanted[k].scale[n]) < 1e-12);
        }
        assert_null(one);
    }
    tm_adapters_facts facts = tm_adapters_describe(graph);
    assert_int_equal(facts.least, 2);
    assert_int_equal(facts.most, 5);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static int64_t count_modules(tm_adapters adapters)
{
    tm_step_options o = options_of(TM_FAMILY_LLAMA);
    tm_device      *device = test_device_open("cpu", 1);
    o.adapters = adapters;
    tm_trainer *trainer = test_trainer_open(device, &o, 5);
    int64_t     modules = tm_adapters_describe(tm_trainer_step_of(trainer)->graph).modules;
    tm_trainer_close(trainer);
    tm_device_close(device);
    return modules;
}

/* --- what the base is held in ------------------------------------------------------------------------------------- */

static void base_computes_with_decoded_values(tm_dtype format, double most_apart, bool dora)
{
    tm_device      *device = test_device_open("cpu", 2);
    tm_step_options o = test_llama_options(), q = o;
    o.adapters = q.adapters = lora(4, 8, "all-linear");
    o.adapters.dora = q.adapters.dora = dora;
    q.adapters.base = format;
    test_batch      batch = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 3);
    tm_trainer     *plain = test_trainer_open(device, &o, 9), *small = test_trainer_open(device, &q, 9);
    const tm_graph *graph = tm_trainer_step_of(small)->graph;
    int             coded = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        bool             length = strstr(t->name, "lora_magnitude") != NULL; /* of the decoded rows */
        if (t->role != TM_ROLE_PARAMETER || (t->trained && !length)) continue;
        double *values = test_values_read(small, (tm_tensor_id)i), *was = test_values_read(plain, (tm_tensor_id)i);
        double  apart = 0, size = 0;
        for (int64_t k = 0; k < tm_shape_elements(t->shape); k++)
            apart += (values[k] - was[k]) * (values[k] - was[k]), size += was[k] * was[k];
        coded += t->dtype == format;
        if (t->dtype == format) assert_true(apart > 0 && sqrt(apart / size) < most_apart);
        test_values_write(plain, (tm_tensor_id)i, values);
        free(values), free(was);
    }
    assert_int_equal(coded, 8);
    for (int t = 1; t <= 3; t++) {
        tm_step_result a = test_step(plain, t, 1e-2, 1, &batch), b = test_step(small, t, 1e-2, 1, &batch);
        assert_true(!(a.loss != b.loss) && !(a.grad_norm != b.grad_norm));
    }
    test_batch_fini(&batch);
    tm_trainer_close(plain);
    tm_trainer_close(small);
    tm_device_close(device);
}

TEST(a_base_in_blocks_computes_with_its_decoded_values)
{
    for (int dora = 0; dora < 2; dora++) {
        base_computes_with_decoded_values(TM_NF4_BLOCKS, 0.12, dora);  /* 4 bits: about 9 % */
        base_computes_with_decoded_values(TM_E4M3_BLOCKS, 0.03, dora); /* 3 bits of fraction: 2^-4 at most, 2.3 % */
    }
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refused_with(tm_adapters adapters, tm_model_family which, tm_status status, const char *words)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_step_options o = options_of(which);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step        *step = NULL;
    tm_error        err = { 0 };
    o.adapters = adapters;
    tm_status st = tm_step_create(&o, &chooser, &step, &err);
    if (st != status || !strstr(err.text, words)) fail_msg("'%s': status %d, %s", adapters.targets, (int)st, err.text);
    tm_device_close(device);
}

/* Of the modules that a folder names, one is not there: it is named, wherever it stands. */
TEST(modules_that_are_not_there_are_refused)
{
    static const char none[] = "model.layers.7.self_attn.q_proj";
    tm_adapters       a = lora(4, 8, "");
    a.n_modules = 3;
    for (size_t i = 0; i < a.n_modules; i++) {
        tm_adapted_module modules[] = { { "model.layers.0.self_attn.q_proj", 4, 8 },
                                        { "model.layers.1.self_attn.q_proj", 4, 8 },
                                        { "model.layers.1.mlp.down_proj", 4, 8 } };
        a.modules = modules;
        if (i == 0) assert_int_equal(count_modules(a), 3);
        modules[i].name = none;
        refused_with(a, TM_FAMILY_LLAMA, TM_FORMAT,
                     "'test' holds an adapter of 'model.layers.7.self_attn.q_proj', and the model has no such");
    }
}

static void refused(tm_model_family which, int64_t rank, const char *targets, tm_status status, const char *words)
{
    refused_with(lora(rank, 8, targets), which, status, words);
}

TEST(bad_targets_are_refused)
{
    refused(TM_FAMILY_LLAMA, 4, "q_prj", TM_INVALID, "the nearest name is 'q_proj'");
    refused(TM_FAMILY_LLAMA, 4, "q_proj,nothing", TM_INVALID, "nothing");
    refused(TM_FAMILY_LLAMA, 4, "lm_haed", TM_INVALID, "lm_haed");
    refused(TM_FAMILY_GPT, 4, "lm_head", TM_UNSUPPORTED, "tied");
    refused(TM_FAMILY_LLAMA, 4, "tok_embeddings", TM_INVALID, "tok_embeddings");
    tm_adapters experts = lora(4, 8, "experts.down_proj");
    experts.dropout = 0.1;
    refused_with(experts, TM_FAMILY_MIXTRAL, TM_UNSUPPORTED, "experts with lora.dropout");
    experts.dora = true;
    refused_with(experts, TM_FAMILY_MIXTRAL, TM_UNSUPPORTED, "experts with lora.dora");
    refused(TM_FAMILY_LLAMA, 4, "experts.down_proj", TM_INVALID, "experts.down_proj");
    refused(TM_FAMILY_MIXTRAL, 4, "q_proj,w2", TM_UNSUPPORTED, "expert");
}

TEST(bad_patterns_are_refused)
{
    static const tm_pattern_value none[] = { { "q_proj", 2 }, { "k_prj", 2 } };
    static const tm_pattern_value twice[] = { { ".*_proj", 2 }, { "q_proj", 3 } };
    static const int64_t          beyond[][2] = { { 0, 2 } }, second[][2] = { { 1, 1 } };
    tm_adapters                   a = lora(4, 8, "q_proj,k_proj");
    a.ranks = none, a.n_ranks = 2;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID,
                 "lora.rank_pattern: no module with an adapter has a name that ends "
                 "with 'k_prj'");
    a.ranks = twice;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "'q_proj', or all of them fit a pattern in front of it");
    a.n_ranks = 0, a.alphas = none, a.n_alphas = 2;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "lora.alpha_pattern: no module");
    a.ranks = none, a.n_ranks = 1;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID,
                 "lora.alpha_pattern: no module with an adapter has a name that ends "
                 "with 'k_prj'");
    a.n_ranks = 0;
    a.n_alphas = 0, a.layers = beyond, a.n_layers = 1;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "lora.layers names block 2, the model has the blocks 0 to 1");
    a.n_layers = 0, a.exclude = "v_prj";
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID,
                 "lora.exclude (test): no module with an adapter is called 'v_prj'; the "
                 "nearest name is 'q_proj'");
    a.exclude = "*_proj"; /* of both */
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID,
                 "of the modules that lora.targets q_proj,k_proj (test) names none is left by lora.exclude *_proj, so "
                 "nothing would be trained");
    a.exclude = "all-linear";
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "lora.exclude (test): all-linear is all modules");
    a.exclude = "layers.1.*", a.layers = second, a.n_layers = 1;
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "none is left by lora.exclude layers.1.* and by lora.layers, so");
    a = lora(4, 8, "");
    a.pattern = ".*q_proj", a.exclude = "wq";
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "lora.target_pattern .*q_proj (test) names none is left by");
    a.exclude = NULL;
    a.pattern = "self_attn.q_proj"; /* not all of a name */
    refused_with(a, TM_FAMILY_LLAMA, TM_INVALID, "is called as 'self_attn.q_proj' says");
    tm_adapters experts = lora(4, 8, "q_proj,experts.down_proj");
    experts.ranks = none, experts.n_ranks = 1;
    refused_with(experts, TM_FAMILY_MIXTRAL, TM_UNSUPPORTED, "experts with lora.rank_pattern");
    experts.n_ranks = 0, experts.layers = beyond, experts.n_layers = 1;
    refused_with(experts, TM_FAMILY_MIXTRAL, TM_INVALID, "lora.layers");
}
