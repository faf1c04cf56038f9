/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision against torchao (fp8_*, mxfp8) and against a numpy model of the published descriptions
 * (mxfp4, nvfp4): losses of 20 steps of a tiny Llama with quantized linears or a quantized output head, and of a tiny
 * Mixtral of one layer with quantized experts; scales of the first. tests/golden/quantize.txt is made by
 * tools/make_quantize_fixture.py. */
#include "base/cpu.h"
#include "support/golden.h"
#include "support/training.h"

#include "support/test.h"

enum { STEPS = 20, BATCHES = 4, BATCH = 2, SEQ = 32, VOCAB = 96 };

/* kind: "losses" quantizes the linears of the blocks, "experts", "output" those. */
static tm_step_options options_of(const char *kind, const char *recipe)
{
    tm_step_options o = { .precision = &tm_precision_f32,
                          .micro_batch = BATCH,
                          .seq = SEQ,
                          .accumulation = 1,
                          .optimizer = &tm_optimizer_sgd };
    o.shape = (tm_model_shape){ .family = TM_FAMILY_LLAMA,
                                .vocab_size = VOCAB,
                                .dim = 64,
                                .n_layers = 2,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 16,
                                .ffn_dim = 96,
                                .max_seq_len = 64,
                                .norm_eps = 1e-5,
                                .rope_theta = 10000,
                                .init = TM_INIT_HF };
    o.quantize.switch_step = -1;
    if (strcmp(kind, "experts") == 0) {
        o.shape.family = TM_FAMILY_MIXTRAL;
        o.shape.n_layers = 1;
        o.shape.moe = (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .scale = 1, .normalise = true };
    }
    if (strcmp(recipe, "none") == 0) return o;
    const tm_quantize_recipe *of = tm_quantize_recipe_find(recipe);
    if (!of) fail_msg("no recipe '%s'", recipe);
    tm_quantize_recipe *to = strcmp(kind, "experts") == 0  ? &o.quantize.experts
                             : strcmp(kind, "output") == 0 ? &o.quantize.head
                                                           : &o.quantize.recipe[0];
    o.quantize.on = true;
    *to = *of;
    for (int f = 0; f < TM_FACTORS; f++) to->factor[f].stochastic = 0;
    return o;
}

/* Step t of the tokens, which come again after BATCHES. */
static test_batch batch_of(const int32_t *tokens, int t)
{
    test_batch batch = { .rows = (int64_t)BATCH * SEQ, .target_tokens = (int64_t)BATCH * SEQ };
    batch.tokens = malloc(sizeof(int32_t) * BATCH * SEQ);
    batch.targets = malloc(sizeof(int32_t) * BATCH * SEQ);
    assert_true(batch.tokens && batch.targets);
    for (int row = 0; row < BATCH; row++)
        for (int i = 0; i < SEQ; i++) {
            const int32_t *at = tokens + ((t % BATCHES) * BATCH + row) * (SEQ + 1) + i;
            batch.tokens[row * SEQ + i] = at[0];
            batch.targets[row * SEQ + i] = at[1];
        }
    return batch;
}

/* Trains; *record: of the first step, the caller's to free, NULL without one. Returns the largest difference. */
static double worst_of(tm_trainer *trainer, double rate, const double wanted[STEPS], double **record)
{
    int32_t tokens[BATCHES * BATCH * (SEQ + 1)];
    double  worst = 0;
    golden_fill(trainer);
    golden_tokens(tokens, BATCHES * BATCH * (SEQ + 1), VOCAB);
    for (int t = 0; t < STEPS; t++) {
        test_batch batch = batch_of(tokens, t);
        double     loss = test_step(trainer, t + 1, rate, 1, &batch).loss;
        worst = fmax(worst, fabs(loss - wanted[t]));
        tm_tensor_id id = tm_trainer_step_of(trainer)->quantized.record;
        if (t == 0 && id != TM_NONE) *record = test_values_read(trainer, id);
        test_batch_fini(&batch);
    }
    return worst;
}

/* The scale of a factor of a linear with this public name. */
static double scale_of(const tm_trainer *trainer, const double *record, const char *linear, const char *factor)
{
    const tm_quantized *made = &tm_trainer_step_of(trainer)->quantized;
    tm_tensor_id        weight = TM_NONE;
    char                wanted[200], name[200], text[160];
    snprintf(wanted, sizeof wanted, "%s.weight", linear);
    for (size_t i = 0; i < made->n_rows; i++) {
        snprintf(name, sizeof name, "%s.weight", made->rows[i].name);
        if (made->rows[i].factor != TM_FACTOR_W || strcmp(golden_public_name(name, text), wanted) != 0) continue;
        weight = made->rows[i].weight;
        if (strcmp(factor, "w") == 0) return record[i * TM_QUANTIZE_RECORD + 1];
    }
    for (size_t i = 0; i < made->n_rows; i++)
        if (made->rows[i].weight == weight && made->rows[i].factor == TM_FACTOR_X)
            return record[i * TM_QUANTIZE_RECORD + 1];
    fail_msg("no row of %s", linear);
    return 0;
}

TEST(losses_and_scales_are_those_of_others)
{
    FILE       *file = fopen("tests/golden/quantize.txt", "r");
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *trainer = NULL;
    double     *record = NULL, plain[STEPS], apart = 0;
    char        kind[16], name[64];
    int         runs = 0, scales = 0;
    assert_non_null(file);
    while (fscanf(file, "%15s %63s", kind, name) == 2) {
        if (strcmp(kind, "scale") == 0) {
            char   linear[128], factor[16];
            double wanted, is;
            assert_int_equal(fscanf(file, "%127s %15s %lf", linear, factor, &wanted), 3);
            is = scale_of(trainer, record, linear, factor);
            /* x comes from products whose sums have another order: its largest number may end differently. */
            if (fabs(is / wanted - 1) > (factor[0] == 'w' ? 1e-8 : 1e-5))
                fail_msg("%s, %s of %s: scale %.9g, not %.9g", name, factor, linear, is, wanted);
            scales++;
            continue;
        }
        double wanted[STEPS], rate;
        assert_int_equal(fscanf(file, "%lf", &rate), 1);
        for (int t = 0; t < STEPS; t++) assert_int_equal(fscanf(file, "%lf", &wanted[t]), 1);
        free(record);
        tm_trainer_close(trainer);
        record = NULL;
        tm_step_options options = options_of(kind, name);
        trainer = test_trainer_open(device, &options, 1);
        double worst = worst_of(trainer, rate, wanted, &record);
        bool   is_plain = strcmp(name, "none") == 0; /* the first of each kind */
        if (is_plain) memcpy(plain, wanted, sizeof plain);
        runs++;
        apart = 0;
        for (int t = 0; t < STEPS; t++) apart = fmax(apart, fabs(wanted[t] - plain[t]));
        print_message("# %s %s: %.1e off, %.1e from float32\n", kind, name, worst, apart);
        /* Sums of other kernels may end on the other side of a step of a format: still nearer than float32 is. */
        double most = is_plain || tm_cpu_isa_probe().avx2 ? 1e-3 : apart / 3;
        if (!(worst <= most)) fail_msg("%s %s: a loss is off by %g", kind, name, worst);
        assert_true(is_plain || apart > 3 * worst); /* or it says nothing about the recipe */
    }
    free(record);
    tm_trainer_close(trainer);
    tm_device_close(device);
    fclose(file);
    assert_int_equal(runs, 17);
    assert_int_equal(scales, 56);
}
