/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters: what they compute, which modules have them, and what their base is held in. (How they train: tests/oracle,
 * tests/differential; what is refused: tests/golden/refusals.txt.) */
#include "support/test.h"
#include "graph/blocks.h"
#include "graph/nf4.h"
#include "step_cases.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_adapters lora(int64_t rank, double alpha, const char *targets, bool dora)
{
    tm_adapters a = { .rank = rank, .alpha = alpha, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1, .dora = dora };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

/* --- golden numbers ----------------------------------------------------------------------------------------------- */

TEST(golden_numbers_of_lora)
{
    static const struct {
        const char         *device;
        const tm_precision *precision;
        tm_recompute        recompute;
        double              loss_error, norm_error;
    } rows[] = {
        { "reference", &tm_precision_f64, { 0 }, 1e-9, 1e-9 },
        { "reference", &tm_precision_f64, { .cheap = true, .every_n = 1 }, 1e-9, 1e-9 },
        { "reference",
          &tm_precision_f64,
          { .every_n = 1, .save = { [TM_OP_attention] = 1, [TM_OP_linear] = 2 } },
          1e-9,
          1e-9 },
        { "cpu", &tm_precision_f32, { 0 }, 1e-5, 1e-4 },
        { "cpu", &tm_precision_bf16, { .cheap = true, .every_n = 1 }, 1e-2, 5e-2 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        golden_numbers  wanted = golden_read("llama-tiny-lora");
        tm_step_options o = golden_llama_options(rows[i].precision);
        int32_t         tokens[64];
        o.adapters = lora(2, 4, "q_proj,v_proj", false);
        o.recompute = rows[i].recompute;
        tm_device  *device = test_device_open(rows[i].device, 2);
        tm_trainer *trainer = test_trainer_open(device, &o, 1);
        golden_fill(trainer);
        golden_tokens(tokens, 13, 64);
        test_begin(trainer, 1, 1e-2, 1.0, 12);
        test_accumulate(trainer, 0, tokens, tokens + 1);
        tm_step_result result = test_update(trainer);
        golden_close("loss", result.loss, wanted.loss, rows[i].loss_error);
        golden_close("norm", result.grad_norm, wanted.norm, rows[i].norm_error);
        golden_check_gradients(trainer, &wanted, rows[i].norm_error);
        assert_int_equal(tm_adapters_describe(tm_trainer_step_of(trainer)->graph).trained, wanted.parameters);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
}

/* --- every family: adapter = merged model ------------------------------------------------------------------------- */

/* Row `row` of a matrix, or of those of experts, that row `r` of an adapter belongs to. */
static void add_row(double *w, int64_t width, const double *b, const double *a, const tm_low_rank_attr *attr)
{
    for (int64_t c = 0; c < width; c++)
        for (int64_t r = 0; r < attr->rank; r++) w[c] += attr->scale * b[r] * a[r * width + c];
}

static void stretch_row(double *w, int64_t width, double length)
{
    double squares = 0;
    for (int64_t c = 0; c < width; c++) squares += w[c] * w[c];
    for (int64_t c = 0; c < width; c++) w[c] *= length / sqrt(squares);
}

/* W + scale B A; with DoRA each row gets its length. */
static void merge(double *values, const tm_tensor *w, const tm_adapter *one, const tm_trainer *from)
{
    const tm_low_rank_attr *attr = &one->attr;
    const bool              experts = w->shape.rank == 3;
    const int64_t           width = w->shape.n[w->shape.rank - 1], rank = attr->rank;
    double                 *a = test_values_read(from, one->a), *b = test_values_read(from, one->b);
    double                 *m = one->m == TM_NONE ? NULL : test_values_read(from, one->m);
    for (int64_t e = 0, row = 0; experts && e < w->shape.n[0]; e++)
        for (int64_t i = 0; i < w->shape.n[1]; i++, row++)
            add_row(values + row * width, width, b + row * rank, a + e * rank * width, attr);
    for (int64_t part = 0, row = 0; !experts && part < attr->parts; part++)
        for (int64_t i = 0; i < attr->part[part].rows; i++, row++) {
            double *at = values + (attr->part[part].column + i) * width;
            add_row(at, width, b + row * rank, a + part * rank * width, attr);
            if (m) stretch_row(at, width, m[row]);
        }
    free(a), free(b), free(m);
}

/* Same model without adapters. */
static void merge_into(tm_trainer *to, const tm_trainer *from)
{
    const tm_graph *graph = tm_trainer_step_of(from)->graph, *plain = tm_trainer_step_of(to)->graph;
    for (size_t i = 0, p = 0; i < graph->n_tensors; i++) {
        const tm_tensor *w = &graph->tensors[i];
        if (w->role != TM_ROLE_PARAMETER || w->adapts != TM_NONE) continue;
        while (plain->tensors[p].role != TM_ROLE_PARAMETER) p++;
        assert_string_equal(plain->tensors[p].name, w->name);
        double *values = test_values_read(from, (tm_tensor_id)i);
        for (const tm_adapter *one = w->adapter; one; one = one->next) merge(values, w, one, from);
        test_values_write(to, (tm_tensor_id)p++, values);
        free(values);
    }
}

/* B, which begins as 0; lengths become others. */
static void set(tm_trainer *trainer, tm_tensor_id id, bool length)
{
    if (id == TM_NONE) return;
    double *values = test_values_read(trainer, id);
    int64_t n = tm_shape_elements(tm_graph_at(tm_trainer_step_of(trainer)->graph, id)->shape);
    for (int64_t k = 0; k < n; k++) {
        double drawn = 0.5 * golden_unit(length ? "m" : "b", (uint32_t)k);
        values[k] = length ? values[k] * (1 + drawn) : drawn;
    }
    test_values_write(trainer, id, values);
    free(values);
}

static void family_with(tm_model_family which, tm_adapters adapters, int64_t least)
{
    tm_device      *device = test_device_open("cpu", 2);
    tm_step_options o = test_family_options(which);
    if (which == TM_FAMILY_MIXTRAL)
        o.shape.moe = four_experts(), o.shape.moe.normalise = true, o.shape.moe.aux_loss = 0;
    tm_step_options adapted = o;
    adapted.adapters = adapters;
    test_batch      batch = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 7);
    tm_trainer     *plain = test_trainer_open(device, &o, 5), *with = test_trainer_open(device, &adapted, 5);
    const tm_graph *graph = tm_trainer_step_of(with)->graph;
    assert_true(tm_adapters_describe(graph).modules >= least);
    double before = test_evaluate(plain, batch.tokens, batch.targets);
    double first = test_evaluate(with, batch.tokens, batch.targets); /* b is 0: not a bit; logits that are rescaled */
    bool   turned = adapters.dora && strstr(adapters.targets, "lm_head"); /* are nodes, summed in another order */
    assert_true(turned ? fabs(first - before) < 1e-6 * before : !(first != before));
    for (size_t i = 0; i < graph->n_tensors; i++)
        for (const tm_adapter *one = graph->tensors[i].adapter; one; one = one->next)
            set(with, one->b, false), set(with, one->m, true);
    merge_into(plain, with);
    double merged = test_evaluate(plain, batch.tokens, batch.targets);
    double result = test_evaluate(with, batch.tokens, batch.targets);
    if (!(fabs(merged - result) <= 1e-6 * fabs(merged) && fabs(merged - before) > 2e-5 * fabs(before)))
        fail_msg("family %d, %s, DoRA %d: %.10g, merged %.10g, before %.10g", (int)which, adapters.targets,
                 adapters.dora, result, merged, before);
    test_batch_fini(&batch);
    tm_trainer_close(plain), tm_trainer_close(with);
    tm_device_close(device);
}

TEST(an_adapter_is_its_merged_model)
{
    static const struct {
        tm_model_family family;
        const char     *targets;
        int64_t         least;
        bool            dora; /* possible */
    } rows[] = {
        { TM_FAMILY_LLAMA, "all-linear", 14, true },
        { TM_FAMILY_LLAMA, "wqkv,o_proj", 4, true }, /* one adapter of the fused matrix */
        { TM_FAMILY_QWEN3, "q_proj,k_proj,down_proj", 6, true },
        { TM_FAMILY_GPT, "all-linear", 8, true }, /* with biases, which keep their size */
        { TM_FAMILY_MIXTRAL, "all-linear", 8, true },
        { TM_FAMILY_LLAMA, "v_proj,lm_head", 3, true },
        { TM_FAMILY_MIXTRAL, "o_proj,experts.gate_up_proj,mlp.experts.down_proj", 6, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int dora = 0; dora <= rows[i].dora; dora++)
            family_with(rows[i].family, lora(3, 4.5, rows[i].targets, dora), rows[i].least);
    family_with(TM_FAMILY_LLAMA, lora(200, 300, "all-linear", false), 14); /* above all sizes: wasteful, and right */
}

/* Ranks and factors by module: those of a matrix are several adapters, one behind the other. */
TEST(ranks_by_pattern)
{
    static const tm_pattern_value ranks[] = { { "(q_proj|wq)", 2 }, { "layers\\.1\\..*k_proj", 5 }, { "mlp.*", 4 } };
    static const tm_pattern_value alphas[] = { { "v_proj", 12 },
                                               { "down_proj", 1 },
                                               { "layers\\.0\\..*k_proj", 6.75 } };
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
    tm_adapters a = { 0 };
    for (int dora = 0; dora < 2; dora++) {
        a = lora(3, 4.5, "all-linear", dora);
        a.ranks = ranks, a.n_ranks = 3;
        a.alphas = alphas, a.n_alphas = 3;
        family_with(TM_FAMILY_LLAMA, a, 14);
        family_with(TM_FAMILY_QWEN3, a, 14);
        tm_adapters biased = lora(3, 4.5, "wq,wv", dora);
        biased.ranks = ranks, biased.n_ranks = 1;
        family_with(TM_FAMILY_QWEN2, biased, 4);
    }
    tm_step_options o = test_llama_options();
    o.adapters = a;
    tm_device      *device = test_device_open("cpu", 1);
    tm_trainer     *trainer = test_trainer_open(device, &o, 5);
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    for (size_t k = 0, i; k < sizeof wanted / sizeof wanted[0]; k++) {
        for (i = 0; strcmp(graph->tensors[i].name, wanted[k].matrix) != 0;) assert_true(++i < graph->n_tensors);
        const tm_adapter *one = graph->tensors[i].adapter;
        for (int n = 0; n < wanted[k].n; n++, one = one->next) {
            assert_non_null(one);
            assert_true(one->attr.rank == wanted[k].rank[n] && one->attr.parts == wanted[k].parts[n]);
            assert_true(fabs(one->attr.scale - wanted[k].scale[n]) < 1e-12);
        }
        assert_null(one);
    }
    tm_adapters_facts facts = tm_adapters_describe(graph);
    assert_true(facts.least == 2 && facts.most == 5);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* --- modules of a folder ------------------------------------------------------------------------------------------ */

/* One that is not there is named, wherever it stands. */
TEST(modules_that_are_not_there_are_refused)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int bad = -1; bad < 3; bad++) {
        tm_adapted_module modules[] = { { "model.layers.0.self_attn.q_proj", 4, 8 },
                                        { "model.layers.1.self_attn.q_proj", 4, 8 },
                                        { "model.layers.1.mlp.down_proj", 4, 8 } };
        tm_step_options   o = test_llama_options();
        tm_step          *step = NULL;
        tm_error          err = { 0 };
        o.adapters = lora(4, 8, "", false);
        o.adapters.modules = modules, o.adapters.n_modules = 3;
        if (bad >= 0) modules[bad].name = "model.layers.7.self_attn.q_proj";
        assert_int_equal(tm_step_create(&o, &chooser, &step, &err), bad < 0 ? TM_OK : TM_FORMAT);
        if (bad < 0)
            assert_int_equal(tm_adapters_describe(step->graph).modules, 3);
        else
            assert_non_null(strstr(err.text, "'test' holds an adapter of 'model.layers.7.self_attn.q_proj', and the"));
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

/* --- what the base is held in ------------------------------------------------------------------------------------- */

/* `run`: bytes of the blocks of a piece of a matrix. */
typedef struct {
    const double *values;
    char         *run;
} quantized;

static void give(void *context, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)((const quantized *)context)->values[first + i];
}

static tm_status keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy(((const quantized *)context)->run + offset, bytes, n);
    return TM_OK;
}

/* Its bytes are those of the numbers that float32 would hold, quantized as a whole. */
static void is_quantized(const tm_trainer *trainer, tm_tensor_id id, const double *values)
{
    const tm_tensor *t = tm_graph_at(tm_trainer_step_of(trainer)->graph, id);
    size_t           size = tm_tensor_bytes(t->shape, t->dtype);
    char            *found = malloc(size), *wanted = malloc(size);
    tm_error         err = { 0 };
    for (int64_t begin = 0, end = 0; begin < tm_shape_elements(t->shape); begin = end) {
        quantized q = { values + begin, wanted + tm_blocked_bytes(t->dtype, begin) };
        tm_nf4_io io = { give, keep, &q, 1 };
        end = tm_nf4_run_end(t, begin);
        assert_int_equal(tm_blocked_store(t->dtype, &io, end - begin, &err), TM_OK);
    }
    assert_int_equal(tm_trainer_read(trainer, id, 0, found, size, &err), TM_OK);
    if (memcmp(found, wanted, size) != 0) fail_msg("'%s' has other values", t->name);
    free(found), free(wanted);
}

/* FFN widths whose pieces begin anywhere among the blocks that are made at a time; the last is made in two parts. */
TEST(a_base_in_blocks_computes_with_its_decoded_values)
{
    static const int64_t  widths[] = { 390, 97, 4097 };
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_E4M3_BLOCKS, TM_E4M3_BLOCKS };
    static const double   most_apart[] = { 0.12, 0.03, 0.03 }; /* 4 bits: about 9 %; 3 of fraction: 2.3 % */
    for (int i = 0; i < 6; i++) {
        tm_device      *device = test_device_open("cpu", 2);
        tm_step_options o = test_llama_options(), q;
        o.shape.dim = 128, o.shape.n_heads = 4, o.shape.ffn_dim = widths[i / 2], o.shape.n_layers = 1;
        o.adapters = lora(4, 8, "all-linear", i % 2);
        q = o;
        q.adapters.base = formats[i / 2];
        test_batch      batch = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 3);
        tm_trainer     *plain = test_trainer_open(device, &o, 9), *small = test_trainer_open(device, &q, 9);
        const tm_graph *graph = tm_trainer_step_of(small)->graph;
        int             coded = 0;
        for (size_t k = 0; k < graph->n_tensors; k++) {
            const tm_tensor *t = &graph->tensors[k];
            bool             length = strstr(t->name, "lora_magnitude") != NULL; /* of the decoded rows */
            if (t->role != TM_ROLE_PARAMETER || (t->trained && !length)) continue;
            double *values = test_values_read(small, (tm_tensor_id)k), *was = test_values_read(plain, (tm_tensor_id)k);
            double  apart = 0, size = 0;
            for (int64_t e = 0; e < tm_shape_elements(t->shape); e++)
                apart += (values[e] - was[e]) * (values[e] - was[e]), size += was[e] * was[e];
            if (t->dtype == formats[i / 2]) {
                coded++;
                assert_true(apart > 0 && sqrt(apart / size) < most_apart[i / 2]);
                is_quantized(small, (tm_tensor_id)k, was);
            }
            test_values_write(plain, (tm_tensor_id)k, values);
            free(values), free(was);
        }
        assert_int_equal(coded, 4);
        for (int t = 1; t <= 3; t++) {
            tm_step_result a = test_step(plain, t, 1e-2, 1, &batch), b = test_step(small, t, 1e-2, 1, &batch);
            assert_true(!(a.loss != b.loss) && !(a.grad_norm != b.grad_norm));
        }
        test_batch_fini(&batch);
        tm_trainer_close(plain), tm_trainer_close(small);
        tm_device_close(device);
    }
}
