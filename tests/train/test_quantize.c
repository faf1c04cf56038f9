/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision in a training step: what the pass puts where, delayed scales, a switch of recipes; no two
 * recipes are the same. (Threads: tests/differential.) */
#include "support/test.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tm_step_options options_with(const char *recipe, const char *second, int64_t at)
{
    tm_step_options o = test_llama_options();
    o.shape.ffn_dim = 96; /* whole blocks */
    o.quantize = (tm_quantize){ .on = true, .switch_step = second ? at : -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *tm_quantize_recipe_find(recipe);
    if (second) o.quantize.recipe[1] = *tm_quantize_recipe_find(second);
    return o;
}

static uint64_t train(const tm_step_options *options, int steps)
{
    tm_device  *device = test_device_open("cpu", 2);
    tm_trainer *trainer = test_trainer_open(device, options, 1);
    for (int t = 1; t <= steps; t++) {
        test_batch batch = test_batch_random(options->micro_batch * options->accumulation, options->seq,
                                             options->shape.vocab_size, (uint64_t)t);
        assert_true(isfinite(test_step(trainer, t, 1e-3, 1, &batch).loss));
        test_batch_fini(&batch);
    }
    uint64_t hash = test_weights_hash(trainer);
    tm_trainer_close(trainer);
    tm_device_close(device);
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

static tm_step_options expert_options(const char *recipe)
{
    tm_step_options o = options_with("mxfp8", NULL, 0);
    o.shape.moe = (tm_moe_shape){ .experts = 8, .top_k = 2, .ffn_dim = 64, .scale = 1 };
    o.quantize.recipe[0] = (tm_quantize_recipe){ 0 };
    o.quantize.experts = *tm_quantize_recipe_find(recipe);
    return o;
}

/* Linears, or experts whose rows are no multiples of blocks and the output head. */
static void check_every_recipe(bool experts)
{
    uint64_t seen[32];
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        const char     *name = tm_quantize_recipe_at(i)->name;
        tm_step_options o = experts ? expert_options(name) : options_with(name, NULL, 0);
        if (experts) o.quantize.head = o.quantize.experts;
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

static void refused(const tm_chooser *chooser, const tm_step_options *o, const char *says)
{
    tm_step *step;
    tm_error err = { 0 };
    assert_int_equal(tm_step_create(o, chooser, &step, &err), TM_UNSUPPORTED);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
}

/* Number of nodes of `quantize` in a program. */
static int count(const tm_program *program)
{
    int n = 0;
    for (size_t x = 0; x < program->count; x++) n += program->instructions[x].node->op == TM_OP_quantize;
    return n;
}

TEST(the_pass_takes_the_linears_that_it_is_told)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options o = options_with("fp8_rowwise", NULL, 0);
    tm_step        *step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 2 * 4 * 6); /* layers, linears, factors */
    assert_int_equal(count(step->evaluate), 2 * 4 * 2);
    assert_true(step->quantized.n_linears == 8 && step->quantized.n_left == 0);
    double flops = tm_schedule_flops(&step->training);
    tm_step_destroy(step);
    o.quantize.on = false;
    step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 0);
    assert_true(tm_schedule_flops(&step->training) == flops);
    tm_step_destroy(step);
    o = options_with("fp8_rowwise_with_gw_hp", NULL, 0);
    o.quantize.left_out[0] = "feed_forward", o.quantize.n_left_out = 1;
    step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 2 * 2 * 4);
    tm_step_destroy(step);
    o.quantize.n_left_out = 0, o.quantize.only[0] = ".wo", o.quantize.n_only = 1, o.quantize.first_layer = 1;
    step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 4);
    tm_step_destroy(step);
    o.quantize.only[0] = ".wk";
    refused(&chooser, &o, "is one product of 3 linear layers, and only 1");
    o = options_with("mxfp8", NULL, 0);
    o.micro_batch = 1, o.seq = 24;
    refused(&chooser, &o, "summed over 24 elements");
    for (int at = -1; at < 2; at++) { /* that comes after no step, or one; or never */
        o = options_with("fp8_rowwise", "mxfp8", at);
        o.micro_batch = 1, o.seq = 24;
        if (at < 0)
            tm_step_destroy(test_step_plan(&o, &chooser));
        else
            refused(&chooser, &o, "recipe mxfp8 does not fit");
    }
    tm_device_close(device);
}

static int rows_named(const tm_step *step, const char *name)
{
    int n = 0;
    for (size_t i = 0; i < step->quantized.n_rows; i++) n += strcmp(step->quantized.rows[i].name, name) == 0;
    return n;
}

/* Each expert has rows of its own: 2 of w1 and w3, 1 of what both share, x. */
TEST(experts_and_the_head_have_recipes)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options o = expert_options("mxfp8");
    tm_step        *step = test_step_plan(&o, &chooser);
    double          flops = tm_schedule_flops(&step->training);
    assert_int_equal(count(step->first), 2 * 2 * 6);
    assert_int_equal(step->quantized.n_rows, 2 * 8 * (2 + 2 * 4 + 6));
    assert_int_equal(rows_named(step, "layers.1.moe.experts.3.w13"), 2);
    assert_int_equal(rows_named(step, "layers.1.moe.experts.7.w3"), 4);
    assert_int_equal(rows_named(step, "layers.0.moe.experts.0.w2"), 6);
    tm_step_destroy(step);
    o.quantize.only_experts[0] = "layers.1.moe", o.quantize.n_only_experts = 1;
    step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 2 * 6);
    tm_step_destroy(step);
    o.quantize.only_experts[0] = "feed_forward";
    refused(&chooser, &o, "'feed_forward' in the fqns of quantize.grouped_mm");
    o = expert_options("fp8_rowwise");
    o.shape.moe.ffn_dim = 40;
    refused(&chooser, &o, "needs inputs and outputs that are multiples of 16, and 'layers.0.moe.experts.0.w1'");
    o.shape.moe = (tm_moe_shape){ 0 };
    refused(&chooser, &o, "recipe fp8_rowwise is for experts, and the model has none");
    o = expert_options("mxfp8"); /* the products of the head are other nodes then, and the same FLOPs */
    o.quantize.head = o.quantize.experts, o.quantize.experts.name = NULL;
    step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 6);
    assert_int_equal(rows_named(step, "output"), 6);
    assert_true(tm_schedule_flops(&step->training) == flops);
    tm_step_destroy(step);
    tm_device_close(device);
}

static const double *row_of(const tm_step *step, const double *table, const char *name, tm_factor factor)
{
    for (size_t i = 0; i < step->quantized.n_rows; i++)
        if (step->quantized.rows[i].factor == factor && strcmp(step->quantized.rows[i].name, name) == 0)
            return table + i * TM_QUANTIZE_RECORD;
    fail_msg("no row '%s'", name);
    return NULL;
}

/* A delayed scale is 1 at first and follows from the largest numbers of the steps before; two micro-batches are one
 * step of the history; at a switch all begins anew. */
TEST(delayed_scales_and_a_switch)
{
    tm_device *device = test_device_open("cpu", 2);
    for (int later = 0; later < 2; later++) {
        tm_step_options o = later ? options_with("mxfp8", "fp8_delayed", 2) : options_with("fp8_delayed", NULL, 0);
        o.accumulation = 2;
        tm_trainer    *trainer = test_trainer_open(device, &o, 1);
        const tm_step *step = tm_trainer_step_of(trainer);
        double         most = 0;
        for (int t = 1; t <= 5; t++) {
            test_batch batch = test_batch_random(o.micro_batch * 2, o.seq, o.shape.vocab_size, (uint64_t)t);
            test_step(trainer, t, 1e-2, 1, &batch);
            test_batch_fini(&batch);
            double       *record = test_values_read(trainer, step->quantized.record);
            double       *scale = test_values_read(trainer, step->quantized.scale);
            const double *row = row_of(step, record, "layers.1.feed_forward.w2", TM_FACTOR_W);
            size_t        index = (size_t)(row - record) / TM_QUANTIZE_RECORD;
            bool          on = !later || t > 2;
            double        used = !on ? 0 : most > 0 ? (double)(float)(448 / most) : 1;
            if (on) assert_true(row[1] == used);
            if (later && t <= 2) assert_true(row[1] == exp2(rint(log2(row[1]))) && scale[index] == 1);
            most = on ? fmax(most, row[0]) : 0;
            if (on && t <= 4) assert_true(scale[index] == (double)(float)(448 / most));
            free(record);
            free(scale);
        }
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
    /* until the switch it is the first recipe's run, then another one */
    tm_step_options first = options_with("mxfp8", NULL, 0), both = options_with("mxfp8", "fp8_delayed", 2);
    assert_true(train(&first, 2) == train(&both, 2) && train(&first, 3) != train(&both, 3));
}
