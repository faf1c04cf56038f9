/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that divide the matrices of models with experts (tensor parallel): a part of every expert each, or, where they
 * divide experts, too, whole experts and rows of their own; heads of latent attention. They follow one rank with the
 * same samples, beside all other layouts, have its gradients in float64, and go on from each other's checkpoints. */
#include "support/test.h"
#include "ranks_fixture.h"

static const char *const names[MIXTURES] = { "mixtral", "deepseek", "gpt_oss", "qwen3_moe" };

typedef struct {
    int    kind, replicate, shard, context, tensor, experts, stages;
    bool   whole_rows;
    double capacity;
    int    steps;
} layout;

static tm_step_options options_of(const layout *l)
{
    tm_step_options o = mixture_options(l->kind);
    o.shape.n_heads = o.shape.n_kv_heads = 4;
    o.accumulation = l->stages > 1 ? 2 : 1;
    if (l->kind == DEEPSEEK && l->stages == 0) o.shape.mla.q_rank = 0;
    if (l->stages > 1) o.shape.n_layers = 4;
    if (l->kind == QWEN) o.shape.moe.aux_loss = 0.02, o.shape.moe.aux_per_sequence = true;
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    o.layout.whole_rows = l->whole_rows;
    o.layout.expert_capacity = l->capacity;
    return o;
}

static job job_of(const layout *l)
{
    job j = { .o = options_of(l), .replicate = l->replicate, .shard = l->shard, .steps = l->steps, .rate = 2e-3 };
    j.context = l->context;
    j.tensor = l->tensor;
    j.experts = l->experts;
    j.stages = l->stages > 1 ? l->stages : 0;
    j.max_norm = 1;
    return j;
}

static void describe(char out[120], const layout *l)
{
    snprintf(out, 120, "%s, %d x %d, cp %d, tp %d, ep %d, pp %d, %s rows", names[l->kind], l->replicate, l->shard,
             l->context, l->tensor, l->experts, l->stages, l->whole_rows ? "whole" : "divided");
}

static void check_follows(const job *j, const job *alone, const layout *l, double bound)
{
    char   what[120];
    double far = apart(j, alone);
    describe(what, l);
    for (int t = 0; t < l->steps; t++) far = fmax(far, fabs(j->norm[t] - alone->norm[t]) / alone->norm[t] / 10);
    far = fmax(far, fabs(j->evaluation[0] - alone->evaluation[0]) / fabs(alone->evaluation[0]));
    print_message("# %s: %.3g apart over %d steps\n", what, far, l->steps);
    if (!(far <= bound)) fail_msg("%s: losses, norms or evaluations are %.3g apart", what, far);
}

static const layout layouts[] = {
    { MIXTRAL, 1, 1, 1, 2, 1, 1, false, 0, MOST_STEPS },
    { DEEPSEEK, 1, 1, 1, 2, 1, 1, false, 0, MOST_STEPS },
    { QWEN, 1, 1, 1, 2, 1, 1, true, 0, MOST_STEPS },
    { GPT_OSS, 1, 1, 1, 2, 1, 1, false, 0, MOST_STEPS },
    { MIXTRAL, 1, 1, 1, 2, 2, 1, false, 2, MOST_STEPS },
    { DEEPSEEK, 1, 2, 1, 2, 4, 1, false, 2, MOST_STEPS },
    { DEEPSEEK, 1, 1, 1, 2, 1, 0, true, 0, 5 },
    { DEEPSEEK, 1, 1, 1, 2, 1, 0, false, 0, 5 },
    { MIXTRAL, 2, 2, 1, 2, 1, 1, false, 0, 5 },
    { GPT_OSS, 1, 2, 1, 4, 1, 1, false, 0, 5 },
    { QWEN, 1, 1, 2, 2, 1, 1, false, 0, 5 },
    { DEEPSEEK, 1, 1, 2, 2, 1, 1, true, 0, 5 },
    { QWEN, 1, 1, 2, 2, 4, 1, false, 1, 5 },
    { MIXTRAL, 1, 2, 2, 2, 2, 1, false, 1, 5 },
    { GPT_OSS, 1, 2, 1, 2, 2, 1, false, 0, 5 },
    { MIXTRAL, 1, 1, 1, 2, 1, 2, false, 0, 5 },
    { DEEPSEEK, 1, 2, 1, 2, 2, 2, false, 1, 5 },
};

static void divided_mixtures_follow_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        if (getenv("ONLY") && i != (size_t)atoi(getenv("ONLY"))) continue;
        job alone = run_alone(options_of(l), l->replicate * l->shard, 1, l->steps), j = job_of(l);
        run_job(&j);
        check_follows(&j, &alone, l, 1e-5);
    }
}

static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char what[120];
        if (getenv("ONLY") && i != (size_t)atoi(getenv("ONLY"))) continue;
        describe(what, &layouts[i]);
        check_sgd_step(job_of(&layouts[i]), layouts[i].replicate * layouts[i].shard, what);
    }
}

/* Load and balance of experts, from which their bias moves, too. */
static void what_is_told_of_experts_is_that_of_all_tokens(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) {
        layout l = {
            variant % 2 ? QWEN : MIXTRAL, 1, 1, variant >= 4 ? 2 : 1, 2, variant >= 2 ? 2 : 1, 1, false, 0, 2
        };
        job j = job_of(&l), one = run_alone(options_of(&l), 1, 1, l.steps);
        run_job(&j);
        assert_true(j.result.n_measures == one.result.n_measures && one.result.n_measures > 1);
        for (size_t m = 0; m < one.result.n_measures; m++) {
            tm_named_f64 have = j.result.measures[m], want = one.result.measures[m];
            if (!(fabs(have.value - want.value) <= 1e-6 * fabs(want.value)))
                fail_msg("variant %d: %s is %.9g, wanted %.9g", variant, want.name, have.value, want.value);
        }
    }
}

static void bits_are_the_same_every_time(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        layout l = { variant % 2 ? DEEPSEEK : GPT_OSS, 1, 2, 1, 2, variant < 2 ? 1 : 2, 1, false, 1, 4 };
        job    once = job_of(&l), twice;
        if (variant % 2 == 0) once.o.precision = &tm_precision_bf16;
        twice = once;
        run_job(&once);
        run_job(&twice);
        job alone = run_alone(once.o, 2, 1, l.steps);
        assert_true(once.weights[0] == twice.weights[0]);
        assert_true(apart(&once, &alone) < (variant % 2 ? 1e-5 : 4e-3));
    }
}

/* Every cut begins with the same model; what one layout saved the next one goes on with. */
static void any_layout_goes_on(void **state)
{
    static const layout all[] = {
        { DEEPSEEK, 1, 1, 1, 2, 1, 1, false, 0, 4 }, { DEEPSEEK, 1, 2, 1, 2, 2, 1, false, 1, 4 },
        { DEEPSEEK, 1, 2, 1, 4, 1, 1, false, 0, 4 }, { DEEPSEEK, 1, 1, 1, 1, 1, 1, false, 0, 4 },
        { DEEPSEEK, 1, 2, 1, 1, 2, 1, false, 2, 4 }, { DEEPSEEK, 1, 1, 1, 2, 2, 1, false, 1, 4 }
    };
    enum { LAYOUTS = sizeof all / sizeof all[0] };
    (void)state;
    for (int kind = DEEPSEEK; kind <= GPT_OSS; kind++) {
        layout one = all[3];
        one.kind = kind;
        job whole = run_alone(options_of(&one), 2, 1, 4), begin = run_alone(options_of(&one), 1, 1, 0);
        for (int a = 0; a < LAYOUTS; a++) {
            char *folder = test_tree_make();
            for (int k = -1; k < 2; k++) {
                layout l = all[(a + (k > 0)) % LAYOUTS];
                l.kind = kind;
                job j = job_of(&l);
                j.o.accumulation = 2 / l.shard;
                j.begin = k > 0 ? 2 : 0, j.steps = k < 0 ? 0 : k ? 4 : 2;
                j.load = k > 0 ? folder : NULL, j.save = k == 0 ? folder : NULL;
                run_job(&j);
                if (k < 0 && j.weights[0] != begin.weights[0]) fail_msg("layout %d begins with other weights", a);
                for (int t = j.begin; t < j.steps; t++)
                    if (!(fabs(j.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]))
                        fail_msg("%s, layout %d of %d: step %d: loss %.9g, wanted %.9g", names[kind], (a + k) % LAYOUTS,
                                 a, t + 1, j.loss[t], whole.loss[t]);
            }
            test_tree_remove(folder);
        }
    }
}

/* Of an expert's matrices a rank has its part; of a router all. */
static void a_rank_holds_its_part(void **state)
{
    (void)state;
    for (int kind = 0; kind < MIXTURES; kind++) {
        layout l = { kind, 1, 1, 1, 2, 1, 1, false, 0, 1 };
        job    whole = run_alone(options_of(&l), 1, 1, 1), j = job_of(&l);
        run_job(&j);
        for (int r = 0; r < 2; r++) /* matrices are most of a model */
            assert_true(j.states[r] > whole.states[0] / 2 && j.states[r] < whole.states[0] * 6 / 10);
    }
}

static void refused(tm_step_options o, int tensor, int experts, tm_status wanted, const char *says)
{
    tm_error   err = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = NULL;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_TP] = tensor;
    o.layout.mesh.degree[TM_AXIS_EP] = experts;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), wanted);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    tm_device_close(device);
}

static void what_cannot_be_divided_is_refused(void **state)
{
    layout          l = { DEEPSEEK, 1, 1, 1, 2, 1, 1, false, 0, 1 };
    tm_step_options o = options_of(&l);
    (void)state;
    o.shape.moe.ffn_dim = 15;
    refused(o, 2, 1, TM_INVALID, "does not divide model.moe_ffn_dim, which is 15");
    refused(o, 2, 2, TM_INVALID, "the width of the shared experts");
    o = options_of(&l);
    refused(o, 3, 1, TM_INVALID, "model.n_heads, which is 4");
    o.layout.whole_rows = true;
    refused(o, 2, 2, TM_UNSUPPORTED, "parallelism.enable_sequence_parallel true");
    l.kind = QWEN;
    o = options_of(&l);
    o.micro_batch = 3;
    refused(o, 2, 2, TM_UNSUPPORTED, "set training.local_batch_size to 1");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(divided_mixtures_follow_one_rank),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(what_is_told_of_experts_is_that_of_all_tokens),
    cmocka_unit_test(bits_are_the_same_every_time),
    cmocka_unit_test(any_layout_goes_on),
    cmocka_unit_test(a_rank_holds_its_part),
    cmocka_unit_test(what_cannot_be_divided_is_refused),
};

TM_TESTS(tests, NULL, NULL)
