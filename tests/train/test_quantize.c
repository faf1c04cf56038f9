/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision in a training step: what the pass puts where, products as a scalar loop over what the
 * factors hold, the same bits for any number of threads, delayed scales, a switch of recipes, refusals. */
#include "graph/value.h"
#include "support/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tm_step_options options_with(const char *recipe, const char *second, int64_t at)
{
    tm_step_options o = test_llama_options();
    o.shape.ffn_dim = 96; /* whole blocks */
    o.quantize = (tm_quantize){ .on = true, .switch_step = second ? at : -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *tm_quantize_recipe_find(recipe);
    if (second) o.quantize.recipe[1] = *tm_quantize_recipe_find(second);
    return o;
}

static uint64_t train(const tm_step_options *options, int threads, int steps)
{
    tm_device  *device = test_device_open("cpu", threads);
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

/* Which recipes may give the same bits in this small model: TransformerEngine's current is torchao's tensorwise, and
 * scales that are powers of two make a difference only where something underflows. */
static bool may_agree(const char *a, const char *b)
{
    return !strcmp(a, "fp8_current") || (!strcmp(a, "fp8_blockwise") && !strcmp(b, "fp8_rowwise"));
}

static void every_recipe_trains_with_the_same_bits_for_any_threads(void **state)
{
    (void)state;
    uint64_t seen[32];
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        tm_step_options o = options_with(tm_quantize_recipe_at(i)->name, NULL, 0);
        if (i % 2) o.precision = &tm_precision_bf16, o.accumulation = 2;
        seen[i] = train(&o, 1, 2);
        if (train(&o, 3, 2) != seen[i]) fail_msg("%s: other bits with three threads", o.quantize.recipe[0].name);
        for (int k = 0; k < i; k++)
            if (seen[k] == seen[i] && (i % 2) == (k % 2) &&
                !may_agree(o.quantize.recipe[0].name, tm_quantize_recipe_at(k)->name))
                fail_msg("%s computes what %s does", o.quantize.recipe[0].name, tm_quantize_recipe_at(k)->name);
    }
}

/* Number of nodes of `quantize` in a program. */
static int count(const tm_program *program)
{
    int n = 0;
    for (size_t x = 0; x < program->count; x++) n += program->instructions[x].node->op == TM_OP_quantize;
    return n;
}

static void the_pass_takes_the_linears_that_it_is_told(void **state)
{
    (void)state;
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
    tm_error err = { 0 };
    o.quantize.only[0] = ".wk";
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "is one product of 3 linear layers, and only 1"));
    o = options_with("mxfp8", NULL, 0);
    o.micro_batch = 1, o.seq = 24, err = (tm_error){ 0 };
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "summed over 24 elements"));
    tm_device_close(device);
}

/* Routers and experts stay as they are; whoever names them is told. */
static void experts_and_routers_are_not_quantized(void **state)
{
    (void)state;
    static const char *const words[] = { "experts", "router", "output" };
    tm_device               *device = test_device_open("cpu", 1);
    tm_chooser               chooser = tm_device_chooser(device);
    tm_step_options          o = options_with("mxfp8", NULL, 0);
    o.shape.moe = (tm_moe_shape){ .experts = 32, .top_k = 2, .ffn_dim = 64, .scale = 1 };
    tm_step *step = test_step_plan(&o, &chooser);
    assert_int_equal(count(step->first), 2 * 2 * 6); /* queries, keys and values; the output of attention */
    for (size_t i = 0; i < step->quantized.n_rows; i++)
        assert_non_null(strstr(step->quantized.rows[i].name, "attention"));
    tm_step_destroy(step);
    for (int w = 0; w < 3; w++) {
        tm_error err = { 0 };
        o.quantize.only[0] = words[w], o.quantize.n_only = 1;
        assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
        assert_non_null(strstr(err.text, "experts, routers and the output head are not quantized"));
    }
    tm_device_close(device);
}

/* y = x w^T of the last linear of the last layer: blocks of 512 k, fused multiply-adds, over what the factors hold. */
static void products_are_scalar_loops_over_quantized_factors(void **state)
{
    (void)state;
    tm_device  *device = test_device_open("cpu", 2);
    const char *recipes[] = { "fp8_tensorwise", "mxfp4", "nvfp4" };
    if (strcmp(tm_device_describe(device)->sums[0], "fused") == 0)
        for (int r = 0; r < 3; r++) {
            tm_step_options o = options_with(recipes[r], NULL, 0);
            tm_quantizer   *z = o.quantize.recipe[0].factor;
            enum { N = 33, K = 64, M = 48 };
            static float     x[N * K], w[M * K], qx[N * K], qw[M * K], y[N * M];
            tm_quantize_attr attr = { .switch_step = -1, .n_parts = 1, .end = { N } };
            for (int i = 0; i < N * K; i++) x[i] = (float)sin(i * 0.7) * (1 + (float)(i % 13));
            for (int i = 0; i < M * K; i++) w[i] = (float)cos(i * 1.3) * (1 + (float)(i % 7));
            tm_view vx = { TM_F32, tm_shape_2(N, K), x, 0 }, vqx = { TM_F32, tm_shape_2(N, K), qx, 0 };
            tm_view vw = { TM_F32, tm_shape_2(M, K), w, 0 }, vqw = { TM_F32, tm_shape_2(M, K), qw, 0 };
            for (int k = 0; k < 3; k++) {
                tm_call call = { .op = k < 2 ? &tm_op_quantize : &tm_op_linear, .attr = k < 2 ? &attr : NULL };
                for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
                for (int i = 0; i < TM_MAX_OUT; i++) call.out[i].shape.rank = -1;
                attr.recipe[0] = z[k == 0 ? TM_FACTOR_X : TM_FACTOR_W];
                if (r == 2) attr.recipe[0].scaled = TM_SCALED_BLOCK; /* 33 lines are no squares' */
                attr.end[0] = k == 0 ? N : M;
                call.in[0] = k == 0 ? vx : k == 1 ? vw : vqx;
                call.out[0] = k == 0 ? vqx : k == 1 ? vqw : (tm_view){ TM_F32, tm_shape_2(N, M), y, 0 };
                if (k == 2) call.in[1] = vqw;
                call.threads = 2;
                tm_chooser       chooser = tm_device_chooser(device);
                const tm_kernel *kernel = chooser.choose(chooser.context, &call, NULL);
                call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
                call.workspace = malloc(call.workspace_bytes + 64);
                kernel->run(&call);
                free(call.workspace);
            }
            bool moved = false;
            for (int n = 0; n < N; n++)
                for (int m = 0; m < M; m++) {
                    float sum = 0;
                    for (int k = 0; k < K; k++) sum = fmaf(qx[n * K + k], qw[m * K + k], sum);
                    if (sum != y[n * M + m])
                        fail_msg("%s: (%d, %d) is %g, not %g", recipes[r], n, m, (double)y[n * M + m], (double)sum);
                    moved |= qx[n * K] != x[n * K];
                }
            assert_true(moved);
        }
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
static void delayed_scales_and_a_switch(void **state)
{
    (void)state;
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
    assert_true(train(&first, 2, 2) == train(&both, 2, 2) && train(&first, 2, 3) != train(&both, 2, 3));
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recipe_trains_with_the_same_bits_for_any_threads),
        cmocka_unit_test(experts_and_routers_are_not_quantized),
        cmocka_unit_test(the_pass_takes_the_linears_that_it_is_told),
        cmocka_unit_test(products_are_scalar_loops_over_quantized_factors),
        cmocka_unit_test(delayed_scales_and_a_switch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
