/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision in a training step: what the pass puts where, a switch of recipes; no two recipes are the
 * same. (Scales: tests/oracle; what is refused: tests/golden/refusals.txt.) */
#include "train/settings/quantize.h"
#include "words.h"

#include <math.h>
#include <stdlib.h>

/* Whole blocks. */
#define LLAMA SMALL_LLAMA "--model.ffn_dim 96 --model.n_kv_heads 2 "
#define EXPERTS LLAMA "--model.n_experts 8 --model.n_experts_per_token 2 --model.moe_ffn_dim 64 "

static uint64_t train(const tm_step_options *options, int steps)
{
    tm_trainer *trainer = test_trainer_on("cpu", 2, options, 1);
    for (int t = 1; t <= steps; t++) {
        test_batch batch = test_batch_random(options->micro_batch * options->accumulation, options->seq,
                                             options->shape.vocab_size, (uint64_t)t);
        assert_true(isfinite(test_step(trainer, t, 1e-3, 1, &batch).loss));
        test_batch_fini(&batch);
    }
    uint64_t hash = test_weights_hash(trainer);
    test_trainer_end(trainer);
    return hash;
}

/* Of 8 bits, with scales that are powers of two: they make a difference only where something underflows. */
static bool has_powers_of_two(const char *name)
{
    return !strcmp(name, "fp8_rowwise") || !strcmp(name, "fp8_blockwise") || !strncmp(name, "mxfp8", 5);
}

/* Which recipes may give the same bits in this small model: TransformerEngine's current is torchao's tensorwise, too.
 */
static bool may_agree(const char *a, const char *b)
{
    return !strcmp(a, "fp8_current") || (has_powers_of_two(a) && has_powers_of_two(b));
}

/* Linears, or experts whose rows are no multiples of blocks and the output head. */
static void check_every_recipe(bool experts)
{
    uint64_t seen[32];
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        const char *name = tm_quantize_recipe_at(i)->name;
        char        words[200];
        snprintf(words, sizeof words,
                 experts ? "--quantize.experts_recipe %s --quantize.output_recipe %s " : "--quantize.recipe %s ", name,
                 name);
        tm_step_options o = step_of(experts ? EXPERTS : LLAMA, words);
        if (i % 2) o.precision = &tm_precision_bf16, o.accumulation = 2;
        seen[i] = train(&o, 2);
        for (int k = 0; k < i; k++)
            if (seen[k] == seen[i] && (i % 2) == (k % 2) && !may_agree(name, tm_quantize_recipe_at(k)->name))
                fail_msg("%s computes what %s does", name, tm_quantize_recipe_at(k)->name);
    }
}

TEST(recipes_train_apart)
{
    check_every_recipe(false);
}

TEST(recipes_of_experts_and_the_head_train_apart)
{
    check_every_recipe(true);
}

static int count(const tm_program *program)
{
    int n = 0;
    for (size_t x = 0; x < program->count; x++) n += program->instructions[x].node->op == TM_OP_quantize;
    return n;
}

/* Of two layers with four linears, or experts with two: three factors forward and backward, each for two products. The
 * rows of the record that are of `name`: one for each factor, of x one for w1 and w3. */
TEST(the_pass_takes_the_linears_that_it_is_told)
{
    static const struct {
        const char *words, *more;
        int         first, evaluate;
        const char *name;
        int         rows;
    } cases[] = {
        { LLAMA, "", 0, 0, "layers.1.feed_forward.w2", 0 },
        { LLAMA, "--quantize.recipe fp8_rowwise", 2 * 4 * 6, 2 * 4 * 2, "layers.1.feed_forward.w2", 6 },
        { LLAMA, "--quantize.recipe fp8_rowwise_with_gw_hp --quantize.filter_fqns [feed_forward]", 2 * 2 * 4, 2 * 2 * 2,
          "layers.1.feed_forward.w2", 0 },
        { LLAMA, "--quantize.recipe fp8_rowwise --quantize.fqns [layers.1.attention.wo]", 6, 2, "layers.1.attention.wo",
          6 },
        { EXPERTS, "--quantize.experts_recipe mxfp8", 2 * 2 * 6, 2 * 2 * 2, "layers.1.moe.experts.3.w13", 2 },
        { EXPERTS, "--quantize.experts_recipe mxfp8", 2 * 2 * 6, 2 * 2 * 2, "layers.1.moe.experts.7.w3", 4 },
        { EXPERTS, "--model.converters [quantize.grouped_mm.mx] --quantize.grouped_mm.mx.fqns [layers.1.moe]", 2 * 6,
          2 * 2, "layers.0.moe.experts.0.w2", 0 },
        { LLAMA, "--quantize.recipe fp8_rowwise --quantize.output_recipe fp8_rowwise --quantize.fqns [layers.0]", 5 * 6,
          4 * 2 + 2, "output", 6 },
    };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[700];
        int  rows = 0;
        snprintf(words, sizeof words, "%s%s", cases[i].words, cases[i].more);
        tm_step *step = plan_words(words, 0, &chooser), *whole = plan_words(cases[i].words, 0, &chooser);
        for (size_t r = 0; r < step->quantized.n_rows; r++)
            rows += strcmp(step->quantized.rows[r].name, cases[i].name) == 0;
        if (count(step->first) != cases[i].first || count(step->evaluate) != cases[i].evaluate || rows != cases[i].rows)
            fail_msg("%s: %d, %d, %d rows", cases[i].more, count(step->first), count(step->evaluate), rows);
        assert_true(tm_schedule_flops(&step->training) == tm_schedule_flops(&whole->training));
        tm_step_destroy(step), tm_step_destroy(whole);
    }
    tm_device_close(device);
}

/* Until the switch it is the first recipe's run, then another one. (Scales: tests/oracle.) */
TEST(a_switch_comes_when_it_is_told)
{
    tm_step_options first = step_of(LLAMA, "--quantize.recipe mxfp8 "), both = first;
    both.quantize.recipe[1] = *tm_quantize_recipe_find("fp8_delayed");
    both.quantize.switch_step = 2;
    assert_true(train(&first, 2) == train(&both, 2) && train(&first, 3) != train(&both, 3));
}

/* As the device multiplies them, unless the key says which. */
TEST(formats_of_8_bits_are_the_devices)
{
    static const struct {
        const char *words;
        bool        taken;
        uint8_t     x, dy;
    } all[] = { { "--quantize.recipe fp8_tensorwise ", true, TM_E4M3FNUZ, TM_E5M2FNUZ },
                { "--quantize.recipe fp8_blockwise ", true, TM_E4M3FNUZ, TM_E4M3FNUZ },
                { "--quantize.recipe fp8_tensorwise --quantize.fnuz false ", false, TM_E4M3, TM_E5M2 },
                { "--quantize.recipe fp8_tensorwise --quantize.fnuz true ", false, TM_E4M3FNUZ, TM_E5M2FNUZ },
                { "--quantize.recipe mxfp8 ", false, TM_E4M3, TM_E4M3 },
                { "--quantize.recipe nvfp4 ", false, TM_E2M1, TM_E2M1 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_step_options     o = step_of(LLAMA, all[i].words);
        const tm_quantizer *factor = o.quantize.recipe[0].factor;
        if (train_quantize_take_fnuz(&o.quantize) != all[i].taken) fail_msg("%s", all[i].words);
        if (factor[TM_FACTOR_X].format != all[i].x || factor[TM_FACTOR_DY].format != all[i].dy)
            fail_msg("%s: %s", all[i].words, tm_dtype_name((tm_dtype)factor[TM_FACTOR_X].format));
    }
    tm_step_options o = step_of(EXPERTS, "--quantize.experts_recipe fp8_rowwise --quantize.output_recipe fp8_current ");
    assert_true(train_quantize_take_fnuz(&o.quantize));
    assert_int_equal(o.quantize.experts.factor[TM_FACTOR_X].format, TM_E4M3FNUZ);
    assert_int_equal(o.quantize.head.factor[TM_FACTOR_DY].format, TM_E5M2FNUZ);
}
