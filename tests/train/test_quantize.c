/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision in a training step: what the pass puts where, products as a scalar loop over what the
 * factors hold, the same bits for any number of threads, delayed scales, a switch of recipes, refusals. */
#include "support/test.h"
#include "graph/value.h"
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
        seen[i] = train(&o, 1, 2);
        if (train(&o, 3, 2) != seen[i]) fail_msg("%s: other bits with three threads", name);
        for (int k = 0; k < i; k++)
            if (seen[k] == seen[i] && (i % 2) == (k % 2) && !may_agree(name, tm_quantize_recipe_at(k)->name))
                fail_msg("%s computes what %s does", name, tm_quantize_recipe_at(k)->name);
    }
}

TEST(every_recipe_trains_with_the_same_bits_for_any_threads)
{
    check_every_recipe(false);
}

TEST(every_recipe_trains_experts_and_the_head)
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

/* A recipe of linears leaves experts, routers and the head as they are; whoever names them is told. */
TEST(linears_are_not_experts)
{
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
        o.quantize.only[0] = words[w], o.quantize.n_only = 1;
        refused(&chooser, &o, "quantize.experts_recipe is for experts, quantize.output_recipe for the output head");
    }
    tm_device_close(device);
}

/* Whatever leaves all of them: a run without a quantized product has no recipe's name. */
TEST(a_recipe_that_would_quantize_nothing_is_refused)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options o = options_with("fp8_tensorwise", NULL, 0);
    o.quantize.skip_small = true;
    refused(&chooser, &o,
            "recipe fp8_tensorwise would quantize no linear layer of a block of this model (it leaves 14 as too small "
            "(auto_filter_small_kn)); leave the recipe out (quantize.recipe), or change what it leaves");
    o.quantize.left_out[0] = "feed_forward", o.quantize.n_left_out = 1, o.quantize.first_layer = 1;
    refused(&chooser, &o,
            "recipe fp8_tensorwise would quantize no linear layer of a block of this model (it leaves 3 by their names "
            "(quantize.filter_fqns, quantize.fqns), 7 by their layers (first_last_layers_bf16), 4 as too small "
            "(auto_filter_small_kn)); leave the recipe out (quantize.recipe), or change what it leaves");
    o.quantize.left_out[0] = "attention", o.quantize.first_layer = 0, o.quantize.skip_small = false;
    o.shape.ffn_dim = 92;
    refused(&chooser, &o,
            "recipe fp8_tensorwise would quantize no linear layer of a block of this model (it leaves 8 by their names "
            "(quantize.filter_fqns, quantize.fqns), 6 with inputs or outputs that are no multiples of 16); leave the "
            "recipe out (quantize.recipe), or change what it leaves");
    o = expert_options("mxfp8"); /* each kind by itself */
    o.quantize.head = o.quantize.recipe[0] = o.quantize.experts;
    o.quantize.left_out[0] = "experts", o.quantize.n_left_out = 1;
    refused(&chooser, &o,
            "recipe mxfp8 would quantize no expert of this model (it leaves 48 by their names (quantize.filter_fqns, "
            "quantize.fqns)); leave the recipe out (quantize.experts_recipe), or change what it leaves");
    o.quantize.left_out[0] = "output";
    refused(&chooser, &o,
            "recipe mxfp8 would quantize no output head of this model (it leaves 1 by their names "
            "(quantize.filter_fqns, quantize.fqns)); leave the recipe out (quantize.output_recipe), or change what it "
            "leaves");
    tm_device_close(device);
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

static const tm_view none = { .shape = { .rank = -1 } };

/* One call of the kernel that a plan would take. */
static void run_call(tm_device *device, tm_call *call)
{
    tm_chooser       chooser = tm_device_chooser(device);
    const tm_kernel *kernel = chooser.choose(chooser.context, call, NULL);
    assert_non_null(kernel);
    call->threads = 2;
    call->workspace_bytes = kernel->workspace ? kernel->workspace(call) : 0;
    call->workspace = malloc(call->workspace_bytes + 64);
    assert_non_null(call->workspace);
    kernel->run(call);
    free(call->workspace);
}

static tm_call call_of(const tm_op *op, const void *attr, tm_view a, tm_view b, tm_view c, tm_view out)
{
    tm_call call = { .op = op, .attr = attr };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int i = 0; i < TM_MAX_OUT; i++) call.out[i].shape.rank = -1;
    call.in[0] = a, call.in[1] = b, call.in[2] = c, call.out[0] = out;
    return call;
}

/* y = x w^T of the last linear of the last layer: blocks of 512 k, fused multiply-adds, over what the factors hold. */
TEST(products_are_scalar_loops_over_quantized_factors)
{
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
            tm_view vy = { TM_F32, tm_shape_2(N, M), y, 0 };
            for (int k = 0; k < 3; k++) {
                tm_call call = call_of(k < 2 ? &tm_op_quantize : &tm_op_linear, k < 2 ? &attr : NULL,
                                       k == 0   ? vx
                                       : k == 1 ? vw
                                                : vqx,
                                       k == 2 ? vqw : none, none,
                                       k == 0   ? vqx
                                       : k == 1 ? vqw
                                                : vy);
                attr.recipe[0] = z[k == 0 ? TM_FACTOR_X : TM_FACTOR_W];
                if (r == 2) attr.recipe[0].scaled = TM_SCALED_BLOCK; /* 33 lines are no squares' */
                attr.end[0] = k == 0 ? N : M;
                run_call(device, &call);
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
    assert_true(train(&first, 2, 2) == train(&both, 2, 2) && train(&first, 2, 3) != train(&both, 2, 3));
}

enum { E = 4, R = 69, K = 64, M = 48, CUT = 16, FILLED = 96 };
static const int32_t begins[E + 1] = { 0, 5, 5, 37, 69 }; /* some, none, a block, a block */

/* A factor (rows, columns) of experts, their rows between `begins`, or (E, rows, columns) of weights. */
static void quantize(tm_device *device, tm_quantize_attr *attr, bool weights, int64_t rows, int64_t columns,
                     const float *x, float *y)
{
    tm_shape shape = weights ? tm_shape_3(E, rows, columns) : tm_shape_2(rows, columns);
    tm_call  call = call_of(&tm_op_quantize, attr, (tm_view){ TM_F32, shape, (void *)(uintptr_t)x, 0 }, none, none,
                            (tm_view){ TM_F32, shape, y, 0 });
    if (!weights) call.in[TM_QUANTIZE_OFFSETS] = (tm_view){ TM_I32, tm_shape_1(E + 1), (void *)(uintptr_t)begins, 0 };
    run_call(device, &call);
}

/* Columns [from, from + n) of `rows` rows, on their own, filled up with zeros: what they become. */
static void check_alone(tm_device *device, tm_quantize_attr attr, const float *x, const float *y, int64_t ld,
                        int64_t rows, int64_t from, int64_t n)
{
    static float a[FILLED * K], b[FILLED * K];
    int64_t      filled = attr.down ? (rows + 31) / 32 * 32 : rows;
    tm_shape     shape = tm_shape_2(filled, n);
    memset(a, 0, sizeof a);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) a[r * n + c] = x[r * ld + from + c];
    if (rows == 0) return;
    attr.cut_columns = 0, attr.n_parts = 1, attr.end[0] = (int32_t)filled;
    if (attr.down && rows < TM_ROTATED) attr.recipe[0].rotation = TM_ROTATE_NOT; /* as so few rows are not */
    tm_call call =
        call_of(&tm_op_quantize, &attr, (tm_view){ TM_F32, shape, a, 0 }, none, none, (tm_view){ TM_F32, shape, b, 0 });
    run_call(device, &call);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) assert_true(b[r * n + c] == y[r * ld + from + c]);
}

/* Each expert is quantized as if it were alone, each part of its weights, too. */
static void quantize_experts(tm_device *device, const tm_quantize_recipe *recipe, tm_factor factor, const float *x,
                             float *y)
{
    bool             weights = factor == TM_FACTOR_W || factor == TM_FACTOR_W_DX;
    bool             of_x = factor == TM_FACTOR_X || factor == TM_FACTOR_X_DW;
    int64_t          rows = weights ? M : R, columns = weights || of_x ? K : M;
    tm_quantize_attr attr = { .recipe[0] = recipe->factor[factor], .switch_step = -1 };
    attr.down = factor == TM_FACTOR_W_DX || factor == TM_FACTOR_DY_DW || factor == TM_FACTOR_X_DW;
    attr.cut_columns = !weights && !of_x;
    attr.n_parts = of_x ? 1 : 2;
    attr.end[0] = of_x ? R : CUT, attr.end[1] = M;
    attr.recipe[0].stochastic = 0;
    quantize(device, &attr, weights, rows, columns, x, y);
    for (int e = 0; e < E; e++)
        for (int p = 0; p < attr.n_parts; p++) {
            int64_t first = p > 0 ? CUT : 0, n = of_x ? 0 : p > 0 ? M - CUT : CUT;
            int64_t row = weights ? e * M + first : begins[e], n_rows = weights ? n : begins[e + 1] - begins[e];
            check_alone(device, attr, x + row * columns, y + row * columns, columns, n_rows,
                        weights || of_x ? 0 : first, weights || of_x ? K : n);
        }
}

/* y = x w^T, dx = dy w and dw = dy^T x of experts: fused multiply-adds over what the factors hold. */
static void check_products(tm_device *device, const float *const q[TM_FACTORS], const char *recipe)
{
    static float y[R * M], dx[R * K], dw[E * M * K];
    tm_view      offsets = { TM_I32, tm_shape_1(E + 1), (void *)(uintptr_t)begins, 0 };
    tm_view      view[TM_FACTORS];
    for (int f = 0; f < TM_FACTORS; f++) {
        bool of_x = f == TM_FACTOR_X || f == TM_FACTOR_X_DW;
        view[f] = (tm_view){ TM_F32, tm_shape_2(R, of_x ? K : M), (void *)(uintptr_t)q[f], 0 };
        if (f == TM_FACTOR_W || f == TM_FACTOR_W_DX) view[f].shape = tm_shape_3(E, M, K);
    }
    tm_call calls[3] = {
        call_of(&tm_op_grouped_linear, NULL, view[TM_FACTOR_X], view[TM_FACTOR_W], offsets,
                (tm_view){ TM_F32, tm_shape_2(R, M), y, 0 }),
        call_of(&tm_op_grouped_linear_dgrad, NULL, view[TM_FACTOR_DY], view[TM_FACTOR_W_DX], offsets,
                (tm_view){ TM_F32, tm_shape_2(R, K), dx, 0 }),
        call_of(&tm_op_grouped_linear_wgrad, NULL, view[TM_FACTOR_DY_DW], view[TM_FACTOR_X_DW], offsets,
                (tm_view){ TM_F32, tm_shape_3(E, M, K), dw, 0 }),
    };
    for (int i = 0; i < 3; i++) run_call(device, &calls[i]);
    for (int e = 0; e < E; e++) {
        for (int r = begins[e]; r < begins[e + 1]; r++) {
            for (int m = 0; m < M; m++) {
                float sum = 0;
                for (int k = 0; k < K; k++)
                    sum = fmaf(q[TM_FACTOR_X][r * K + k], q[TM_FACTOR_W][(e * M + m) * K + k], sum);
                if (sum != y[r * M + m]) fail_msg("%s: y (%d, %d)", recipe, r, m);
            }
            for (int k = 0; k < K; k++) {
                float sum = 0;
                for (int m = 0; m < M; m++)
                    sum = fmaf(q[TM_FACTOR_DY][r * M + m], q[TM_FACTOR_W_DX][(e * M + m) * K + k], sum);
                if (sum != dx[r * K + k]) fail_msg("%s: dx (%d, %d)", recipe, r, k);
            }
        }
        for (int m = 0; m < M; m++)
            for (int k = 0; k < K; k++) {
                float sum = 0;
                for (int r = begins[e]; r < begins[e + 1]; r++)
                    sum = fmaf(q[TM_FACTOR_DY_DW][r * M + m], q[TM_FACTOR_X_DW][r * K + k], sum);
                if (sum != dw[(e * M + m) * K + k]) fail_msg("%s: dw (%d, %d, %d)", recipe, e, m, k);
            }
    }
}

TEST(products_of_experts_are_scalar_loops)
{
    static float             x[R * K], w[E * M * K], dy[R * M], q[TM_FACTORS][E * M * K];
    static const char *const recipes[] = { "fp8_tensorwise", "fp8_rowwise", "mxfp8", "mxfp4", "nvfp4" };
    tm_device               *device = test_device_open("cpu", 2);
    bool                     fused = strcmp(tm_device_describe(device)->sums[0], "fused") == 0;
    for (int i = 0; i < R * K; i++) x[i] = (float)sin(i * 0.7) * (1 + (float)(i % 13));
    for (int i = 0; i < E * M * K; i++) w[i] = (float)cos(i * 1.3) * (1 + (float)(i % 7));
    for (int i = 0; i < R * M; i++) dy[i] = (float)cos(i * 0.3) * (1 + (float)(i % 11));
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes && fused; r++) {
        const tm_quantize_recipe *recipe = tm_quantize_recipe_find(recipes[r]);
        const float              *from[TM_FACTORS] = { x, w, dy, w, dy, x }, *to[TM_FACTORS];
        for (int f = 0; f < TM_FACTORS; f++) {
            quantize_experts(device, recipe, (tm_factor)f, from[f], q[f]);
            assert_true(q[f][3] != from[f][3] || q[f][4] != from[f][4]);
            to[f] = q[f];
        }
        check_products(device, to, recipes[r]);
    }
    tm_device_close(device);
}
