/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision among ranks that divide matrices, and experts: scales are those of whole tensors, whichever
 * rank has which part. In float64, where sums in another order turn no code over, ranks have the losses, norms and
 * gradients of one rank to 12 digits with every recipe; in float32 they follow it to a bound. */
#include "support/test.h"
#include "graph/value.h"
#include "ranks_fixture.h"

enum { LINEARS, HEAD, TIED, GPT, EXPERTS, LATENTS, SWITCH, IMAGES, KINDS };
static const char *const kinds[] = { "linears", "head", "tied", "GPT", "experts", "latents", "switch", "images" };

/* Parts of two ranks are whole blocks of 128. */
static tm_step_options options_of(int kind, const char *recipe)
{
    const tm_quantize_recipe *of = tm_quantize_recipe_find(recipe);
    tm_step_options           o = kind == LATENTS  ? mixture_options(DEEPSEEK)
                                  : kind == IMAGES ? shareable(3)
                                                   : model_options(kind == GPT       ? 1
                                                                   : kind == EXPERTS ? 2
                                                                                     : 0);
    if (kind != IMAGES) o.seq = 32, o.shape.n_heads = o.shape.n_kv_heads = 4;
    if (kind < LATENTS || kind == SWITCH)
        o.shape.dim = 64, o.shape.head_dim = 64, o.shape.ffn_dim = 256, o.shape.vocab_size = 256;
    if (kind == EXPERTS) o.shape.moe.ffn_dim = 256;
    o.shape.tied = kind == TIED;
    o.layout.reshard = true;
    o.quantize = (tm_quantize){ .on = true, .switch_step = -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *of;
    if (kind == EXPERTS || kind == LATENTS) o.quantize.experts = *of;
    if (kind == HEAD || kind == TIED) o.quantize.head = *of, o.loss_chunk = 7;
    if (kind == SWITCH) o.quantize.switch_step = 2, o.quantize.recipe[1] = *tm_quantize_recipe_find("fp8_delayed");
    if (kind == IMAGES) o.quantize.left_out[0] = "linear2", o.quantize.n_left_out = 1;
    return o;
}

typedef struct {
    int  tensor, experts, replicate, shard, context, stages;
    bool whole_rows;
} layout;

static job job_of(tm_step_options o, const layout *l, int steps)
{
    job j = { .o = o, .replicate = l->replicate, .shard = l->shard, .context = l->context, .tensor = l->tensor };
    j.experts = l->experts;
    j.stages = l->stages > 1 ? l->stages : 0;
    j.o.layout.sharing = l->shard > 1 ? TM_SHARE_ALL : TM_SHARE_COPIES;
    j.o.layout.whole_rows = l->whole_rows;
    j.steps = steps;
    j.rate = 2e-3;
    return j;
}

static job in_double(job j)
{
    j.o.precision = &tm_precision_f64;
    j.o.optimizer = &tm_optimizer_sgd;
    j.o.hyper = (tm_hyper){ 0 };
    j.device = "reference", j.rate = 0.1;
    return j;
}

static job alone_with(tm_step_options o, int whole, int steps)
{
    const layout one = { .tensor = 1, .experts = 1, .replicate = 1, .shard = 1 };
    job          j = in_double(job_of(o, &one, steps));
    j.whole = whole;
    return j;
}

static void check_close(const job *j, const job *alone, const char *what, const char *recipe)
{
    double far = 0;
    for (int t = j->begin > alone->begin ? j->begin : alone->begin; t < j->steps; t++) {
        far = fmax(far, fabs(j->loss[t] / alone->loss[t] - 1));
        far = fmax(far, fabs(j->norm[t] / alone->norm[t] - 1) / 10);
        if (!isfinite(j->loss[t]) || !isfinite(j->norm[t])) far = INFINITY;
    }
    far = fmax(far, fabs(j->evaluation[0] / alone->evaluation[0] - 1));
    if (!(far <= 1e-12)) fail_msg("%s, %s: losses and norms are %.3g apart", recipe, what, far);
}

static const layout divided = { .tensor = 2, .experts = 1, .replicate = 1, .shard = 1 };

/* Rows between the matrices are divided, and are not. */
static void every_recipe_has_the_numbers_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        const char *recipe = tm_quantize_recipe_at(i)->name;
        for (int kind = 0; kind < 2; kind++) {
            job    alone = alone_with(options_of(kind ? HEAD : EXPERTS, recipe), 1, 3);
            layout l = divided;
            l.whole_rows = (i + kind) % 2;
            job j = in_double(job_of(options_of(kind ? HEAD : EXPERTS, recipe), &l, 3));
            rank_body(NULL, &alone);
            run_job(&j);
            check_close(&j, &alone, kinds[kind ? HEAD : EXPERTS], recipe);
        }
    }
}

static void every_model_has_the_numbers_of_one_rank(void **state)
{
    static const char *const recipes[] = { "fp8_tensorwise", "fp8_rowwise", "fp8_delayed", "fp8_rowwise_with_gw_hp" };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int r = 0; r < 4; r++) {
            if (r / 2 != kind % 2 && !getenv("TM_LONG")) continue; /* two of four of each */
            tm_step_options o = options_of(kind, recipes[r]);
            layout          l = divided;
            l.whole_rows = r % 2 == kind % 2;
            job alone = alone_with(o, 1, 4), j = in_double(job_of(o, &l, 4));
            rank_body(NULL, &alone);
            run_job(&j);
            check_close(&j, &alone, kinds[kind], recipes[r]);
        }
}

/* Element by element. */
static void gradients_are_those_of_one_rank(void **state)
{
    static const char *const recipes[] = { "fp8_tensorwise", "fp8_rowwise", "nvfp4" };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int r = 0; r < (kind < GPT || kind == EXPERTS ? 3 : 2); r++) {
            char what[60];
            snprintf(what, sizeof what, "%s, %s", kinds[kind], recipes[r]);
            check_sgd_step(job_of(options_of(kind, recipes[r]), &divided, 1), 1, what);
        }
}

/* Experts that ranks of the same samples divide see the rows that one rank sees, in the same order. */
static void divided_experts_have_the_numbers_of_one_rank(void **state)
{
    const layout l = { .tensor = 2, .experts = 2, .replicate = 1, .shard = 1 };
    (void)state;
    for (int i = 0; tm_quantize_recipe_at(i); i++) {
        const char     *recipe = tm_quantize_recipe_at(i)->name;
        tm_step_options o = options_of(EXPERTS, recipe);
        if (o.quantize.experts.factor[TM_FACTOR_DY].stochastic) /* whose numbers go by a rank's own rows */
            o.quantize.experts = *tm_quantize_recipe_find("mxfp4");
        job alone = alone_with(o, 1, 3), j = in_double(job_of(o, &l, 3));
        rank_body(NULL, &alone);
        run_job(&j);
        check_close(&j, &alone, "divided experts", recipe);
    }
}

/* Other samples on the ranks that divide experts: scales of rows by themselves. */
static void divided_experts_beside_other_samples(void **state)
{
    static const layout layouts[] = { { 1, 2, 1, 2, 1, 1, false },
                                      { 1, 2, 2, 2, 1, 1, false },
                                      { 1, 2, 1, 2, 1, 2, false },
                                      { 1, 4, 1, 2, 2, 1, false } };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout   *l = &layouts[i];
        tm_step_options o = options_of(EXPERTS, "fp8_rowwise_with_gw_hp");
        o.shape.moe.aux_loss = 0;
        if (l->stages > 1) o.accumulation = 2;
        job alone = alone_with(o, l->replicate * l->shard, 3), j = in_double(job_of(o, l, 3));
        rank_body(NULL, &alone);
        run_job(&j);
        check_close(&j, &alone, "divided experts, other samples", "fp8_rowwise_with_gw_hp");
    }
}

static void layouts_compose(void **state)
{
    static const char *const recipes[] = { "fp8_rowwise_with_gw_hp", "fp8_delayed" };
    static const layout      layouts[] = { { 2, 1, 2, 1, 1, 1, false }, { 2, 1, 1, 2, 1, 1, false },
                                           { 2, 1, 1, 1, 2, 1, false }, { 2, 1, 1, 1, 1, 2, true },
                                           { 4, 1, 1, 1, 1, 1, false }, { 2, 2, 1, 2, 1, 2, false } };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (int r = 0; r < 2; r++) {
            if (r != (int)(i / 2) % 2 && !getenv("TM_LONG")) continue; /* one of two of each */
            const layout   *l = &layouts[i];
            tm_step_options o = options_of(l->experts > 1 || i % 2 ? EXPERTS : HEAD, recipes[r]);
            o.shape.moe.aux_loss = 0;
            o.accumulation = 2;
            if (r == 1) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            job  alone = alone_with(o, l->replicate * l->shard, 3), j = in_double(job_of(o, l, 3));
            char what[60];
            rank_body(NULL, &alone);
            run_job(&j);
            snprintf(what, sizeof what, "layout %d", (int)i);
            check_close(&j, &alone, what, recipes[r]);
        }
}

/* Codes on an edge turn over where sums have another last bit, so losses are a little apart; how far is what a reader
 * may count on (docs/low-precision.md). */
static void ranks_follow_one_rank(void **state)
{
    static const char *const recipes[] = { "fp8_tensorwise", "fp8_rowwise", "fp8_delayed", "mxfp8" };
    (void)state;
    for (int r = 0; r < 4; r++) {
        tm_step_options o = options_of(LINEARS, recipes[r]);
        job             alone = run_alone(o, 1, 1, MOST_STEPS), j = job_of(o, &divided, MOST_STEPS);
        j.max_norm = 1;
        run_job(&j);
        double far = apart(&j, &alone);
        print_message("# %s: losses %.3g apart, %.4g -> %.4g\n", recipes[r], far, alone.loss[0],
                      alone.loss[MOST_STEPS - 1]);
        if (!(far <= 5e-4)) fail_msg("%s: losses are %.3g apart", recipes[r], far);
    }
}

/* Every rank has the scales of whole tensors. */
static void take_tables(job *j, const tm_trainer *trainer)
{
    enum { MOST = 4096 };
    const tm_step      *step = tm_trainer_step_of(trainer);
    const tm_quantized *q = &step->quantized;
    const tm_tensor_id  all[] = { q->history, q->scale };
    double             *to = j->taken;
    for (int i = 0; i < 2; i++) {
        size_t  n = (size_t)tm_shape_elements(tm_graph_at(step->graph, all[i])->shape);
        double *values = test_values_read(trainer, all[i]);
        assert_true(n <= MOST / 2);
        memcpy(to + i * MOST / 2, values, n * sizeof *values);
        free(values);
    }
}

static void delayed_scales_are_those_of_one_rank(void **state)
{
    static const layout layouts[] = { { 2, 1, 1, 1, 1, 1, false }, { 2, 2, 1, 1, 1, 1, false } };
    static double       own[4096], ranks[4096];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tm_step_options o = options_of(EXPERTS, "fp8_delayed");
        job             alone = alone_with(o, 1, 3), j = in_double(job_of(o, &layouts[i], 3));
        memset(own, 0, sizeof own), memset(ranks, 0, sizeof ranks);
        alone.look = j.look = take_tables;
        alone.taken = own, j.taken = ranks;
        rank_body(NULL, &alone);
        run_job(&j);
        assert_true(own[0] > 0);
        for (int k = 0; k < 4096; k++)
            if (!(fabs(own[k] - ranks[k]) <= 1e-6 * fabs(own[k])))
                fail_msg("layout %d: number %d of the tables is %.9g, wanted %.9g", (int)i, k, ranks[k], own[k]);
    }
}

/* Two ranks save, one goes on, then ranks that divide experts: a run that nobody stopped. */
static void checkpoints_fit_other_layouts(void **state)
{
    static const char *const recipes[] = { "fp8_delayed", "fp8_tensorwise" };
    const layout             experts = { .tensor = 2, .experts = 2, .replicate = 1, .shard = 1 };
    (void)state;
    for (int r = 0; r < 2; r++) {
        tm_step_options o = options_of(EXPERTS, recipes[r]);
        char           *first = test_tree_make(), *second = test_tree_make(), *third = test_tree_make();
        job             whole = alone_with(o, 1, 5), two = in_double(job_of(o, &divided, 2)), one = alone_with(o, 1, 3);
        job             parts = in_double(job_of(o, &experts, 4)), again = alone_with(o, 1, 5);
        rank_body(NULL, &whole);
        two.save = first;
        run_job(&two);
        one.begin = 2, one.load = first, one.save = second;
        rank_body(NULL, &one);
        parts.begin = 3, parts.load = second, parts.save = third;
        run_job(&parts);
        again.begin = 4, again.load = third;
        rank_body(NULL, &again);
        check_close(&again, &whole, "goes on", recipes[r]);
        test_tree_remove(first);
        test_tree_remove(second);
        test_tree_remove(third);
    }
}

/* Each rank of divided experts lists those of all; what is judged is the whole model. */
static void ranks_list_the_factors_of_one_rank(void **state)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        tm_step_options o = options_of(kind, "fp8_rowwise");
        tm_step        *alone = test_step_plan(&o, &chooser);
        for (int rank = 0; rank < 4; rank++) {
            bool experts = rank >= 2 && kind == EXPERTS;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_TP] = 2;
            o.layout.mesh.degree[TM_AXIS_EP] = experts ? 2 : 1;
            o.layout.rank = rank % 2;
            tm_step *step = test_step_plan(&o, &chooser);
            size_t   elsewhere = 0;
            assert_int_equal(step->quantized.n_rows, alone->quantized.n_rows);
            for (size_t i = 0; i < step->quantized.n_rows; i++) {
                assert_string_equal(step->quantized.rows[i].name, alone->quantized.rows[i].name);
                assert_true(step->quantized.rows[i].factor == alone->quantized.rows[i].factor);
                elsewhere += step->quantized.rows[i].elsewhere;
            }
            assert_true((elsewhere > 0) == experts);
            tm_step_destroy(step);
        }
        o.layout.mesh = (tm_mesh){ 0 };
        tm_step_destroy(alone);
    }
    tm_device_close(device);
}

/* What an expert is sent is quantized together, so it must come at once. */
static void rounds_are_refused(void **state)
{
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options o = options_of(EXPERTS, "fp8_rowwise");
    (void)state;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_SHARD] = o.layout.mesh.degree[TM_AXIS_EP] = 4;
    for (int whole = 0; whole < 2; whole++) {
        tm_error err = { 0 };
        tm_step *step = NULL;
        o.layout.expert_capacity = whole ? 0 : 1;
        assert_int_equal(tm_step_create(&o, &chooser, &step, &err), whole ? TM_OK : TM_UNSUPPORTED);
        if (!whole) assert_non_null(strstr(err.text, "whose rows come in one round"));
        tm_step_destroy(step);
    }
    tm_device_close(device);
}

static void what_cannot_be_divided_is_refused(void **state)
{
    (void)state;
    tm_step_options o = options_of(LINEARS, "fp8_blockwise");
    tensor_refused(o, 4, TM_UNSUPPORTED,
                   "divided within a block; leave it out (quantize.filter_fqns), take a lower degree");
    o = options_of(LINEARS, "mxfp8");
    o.shape.head_dim = 16;
    tensor_refused(o, 4, TM_UNSUPPORTED, "are divided within a block");
    o = options_of(GPT, "nvfp4");
    tensor_refused(o, 2, TM_UNSUPPORTED, "several runs of its rows, and rounding at random goes by one");
    o = options_of(IMAGES, "fp8_tensorwise");
    o.quantize.n_left_out = 0;
    tensor_refused(o, 2, TM_UNSUPPORTED, "a rank has two runs of its columns");
}

static const struct CMUnitTest tests[] = {
    full_test(every_recipe_has_the_numbers_of_one_rank),
    full_test(every_model_has_the_numbers_of_one_rank),
    full_test(gradients_are_those_of_one_rank),
    full_test(divided_experts_have_the_numbers_of_one_rank),
    full_test(divided_experts_beside_other_samples),
    full_test(layouts_compose),
    full_test(ranks_follow_one_rank),
    cmocka_unit_test(delayed_scales_are_those_of_one_rank),
    cmocka_unit_test(checkpoints_fit_other_layouts),
    cmocka_unit_test(ranks_list_the_factors_of_one_rank),
    cmocka_unit_test(rounds_are_refused),
    cmocka_unit_test(what_cannot_be_divided_is_refused),
};

TM_TESTS(tests, NULL, NULL)
