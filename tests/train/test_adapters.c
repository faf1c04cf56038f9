/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters: which modules have them, and what their base is held in. (What they compute: tests/hf/test_parity.c; how
 * they train: tests/oracle, tests/differential; what is refused: tests/golden/refusals.txt.) */
#include "support/test.h"
#include "graph/blocks.h"
#include "graph/nf4.h"
#include "support/golden.h"
#include "support/training.h"

static tm_adapters lora(int64_t rank, double alpha, const char *targets, bool dora)
{
    tm_adapters a = { .rank = rank, .alpha = alpha, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1, .dora = dora };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

/* In float64, also with what is computed again, and in float32. */
TEST(golden_numbers_of_lora)
{
    for (int way = 0; way < 3; way++) {
        golden_numbers  wanted = golden_read("llama-tiny-lora");
        tm_step_options o = golden_llama_options(way < 2 ? &tm_precision_f64 : &tm_precision_f32);
        int32_t         tokens[64];
        o.adapters = lora(2, 4, "q_proj,v_proj", false);
        if (way == 1) o.recompute = (tm_recompute){ .every_n = 1, .save = { [TM_OP_linear] = 2 } };
        tm_trainer *trainer = test_trainer_on(way < 2 ? "reference" : "cpu", 2, &o, 1);
        golden_fill(trainer);
        golden_tokens(tokens, 13, 64);
        test_begin(trainer, 1, 1e-2, 1.0, 12);
        test_accumulate(trainer, 0, tokens, tokens + 1);
        tm_step_result result = test_update(trainer);
        golden_close("loss", result.loss, wanted.loss, way < 2 ? 1e-9 : 1e-5);
        golden_close("norm", result.grad_norm, wanted.norm, way < 2 ? 1e-9 : 1e-4);
        golden_check_gradients(trainer, &wanted, way < 2 ? 1e-9 : 1e-4);
        assert_int_equal(tm_adapters_describe(tm_trainer_step_of(trainer)->graph).trained, wanted.parameters);
        test_trainer_end(trainer);
    }
}

/* What is added is 0 in the beginning, and lengths are those of the rows. */
TEST(adapters_begin_as_their_base)
{
    double loss[3];
    for (int way = 0; way < 3; way++) {
        tm_step_options o = golden_llama_options(&tm_precision_f64);
        int32_t         tokens[64];
        if (way) o.adapters = lora(2, 4, "all-linear", way == 2);
        tm_trainer *trainer = test_trainer_on("reference", 1, &o, 1);
        golden_tokens(tokens, 13, 64);
        test_begin(trainer, 1, 1e-2, 1.0, 12);
        test_accumulate(trainer, 0, tokens, tokens + 1);
        loss[way] = test_update(trainer).loss;
        golden_close("loss", loss[way], loss[0], 1e-12);
        test_trainer_end(trainer);
    }
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
    tm_step_options o = test_llama_options();
    o.adapters = lora(3, 4.5, "all-linear", false);
    o.adapters.ranks = ranks, o.adapters.n_ranks = 3;
    o.adapters.alphas = alphas, o.adapters.n_alphas = 3;
    tm_trainer     *trainer = test_trainer_on("cpu", 1, &o, 5);
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
    test_trainer_end(trainer);
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
    for (int64_t begin = 0, end = 0; begin < tm_shape_elements(t->shape); begin = end) {
        quantized q = { values + begin, wanted + tm_blocked_bytes(t->dtype, begin) };
        tm_nf4_io io = { give, keep, &q, 1 };
        end = tm_nf4_run_end(t, begin);
        assert_ok(tm_blocked_store(t->dtype, &io, end - begin, err));
    }
    assert_ok(tm_trainer_read(trainer, id, 0, found, size, err));
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
