/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline whose ranks share sequences, divide experts, share the optimizer's state and have copies, in
 * every schedule: they follow one rank with the same samples, have its gradients in float64, the same bits every time,
 * and go on from what other layouts saved. */
#include "support/test.h"
#include "ranks_fixture.h"

enum { LLAMA, GPT, MIXTURE, LATENT, ALL, IMAGES = ALL };
static const char *const models[] = { "llama", "gpt", "mixtral", "deepseek", "flux" };

typedef struct {
    int               model, stages, chunks;
    tm_pipeline_order order;
    int64_t           micro_batches;
    int               replicate, shard, context, experts;
    double            capacity;
    int               steps;
} layout;

static tm_step_options options_of(const layout *l)
{
    tm_step_options o = l->model == IMAGES   ? shareable(3)
                        : l->model < MIXTURE ? model_options(l->model)
                                             : mixture_options(l->model == LATENT ? DEEPSEEK : MIXTRAL);
    o.shape.n_layers = 4;
    if (l->model == IMAGES) o.shape.n_layers = o.shape.flux.n_single = 2;
    o.accumulation = l->micro_batches;
    o.layout.order = l->order;
    o.layout.chunks = l->chunks;
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.expert_capacity = l->capacity;
    return o;
}

static job job_of(const layout *l)
{
    job j = { .o = options_of(l), .replicate = l->replicate, .shard = l->shard, .steps = l->steps, .rate = 2e-3 };
    j.context = l->context;
    j.experts = l->experts;
    j.stages = l->stages;
    j.max_norm = 1;
    return j;
}

static void describe(char out[120], const layout *l)
{
    snprintf(out, 120, "%s, %d stages (%s, %d each) x %d x %d, cp %d, ep %d", models[l->model], l->stages,
             tm_pipeline_name(l->order), l->chunks, l->replicate, l->shard, l->context, l->experts);
}

static void check_follows(const job *j, const job *alone, const layout *l)
{
    char   what[120];
    double far = apart(j, alone);
    describe(what, l);
    print_message("# %s: losses %.3g apart over %d steps\n", what, far, l->steps);
    if (!(far <= 1e-5)) fail_msg("%s: losses are %.3g apart", what, far);
    for (int t = 0; t < alone->steps; t++)
        if (!(fabs(j->norm[t] - alone->norm[t]) <= 2e-5 * alone->norm[t]))
            fail_msg("%s: step %d: norm %.9g, wanted %.9g", what, t + 1, j->norm[t], alone->norm[t]);
    if (!(fabs(j->evaluation[0] - alone->evaluation[0]) <= 1e-5 * alone->evaluation[0]))
        fail_msg("%s: evaluation %.9g, wanted %.9g", what, j->evaluation[0], alone->evaluation[0]);
}

static const layout layouts[] = {
    { LLAMA, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1, 2, 1, 0, MOST_STEPS },
    { MIXTURE, 2, 1, TM_PIPELINE_1F1B, 2, 1, 2, 1, 2, 2, MOST_STEPS },
    { LATENT, 2, 1, TM_PIPELINE_1F1B, 2, 1, 2, 1, 2, 2, MOST_STEPS },
    { MIXTURE, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1, 2, 2, 2, MOST_STEPS },
    { GPT, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 1, 1, 2, 1, 0, 5 },
    { LLAMA, 2, 2, TM_PIPELINE_ZBV, 4, 1, 2, 2, 1, 0, 5 },
    { LLAMA, 4, 1, TM_PIPELINE_GPIPE, 4, 1, 1, 2, 1, 0, 5 },
    { MIXTURE, 2, 2, TM_PIPELINE_ZBV, 4, 1, 2, 1, 2, 1, 5 },
    { MIXTURE, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO, 4, 2, 1, 2, 2, 1, 5 },
    { LATENT, 2, 1, TM_PIPELINE_INTERLEAVED_ZERO, 4, 1, 2, 2, 4, 0.7, 5 },
    { LATENT, 2, 2, TM_PIPELINE_INTERLEAVED, 4, 2, 2, 1, 2, 0, 5 },
    { GPT, 2, 2, TM_PIPELINE_ZBV, 4, 2, 1, 2, 1, 0, 5 },
    { GPT, 2, 2, TM_PIPELINE_DUAL_V, 4, 1, 2, 1, 1, 0, 5 },
    { MIXTURE, 2, 2, TM_PIPELINE_DUAL_V, 4, 1, 1, 2, 2, 1, 5 },
    { IMAGES, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1, 2, 1, 0, MOST_STEPS },
    { IMAGES, 2, 2, TM_PIPELINE_ZBV, 4, 1, 2, 2, 1, 0, 5 },
    { IMAGES, 4, 1, TM_PIPELINE_INTERLEAVED_ZERO, 4, 2, 1, 1, 1, 0, 5 },
    { MIXTURE, 1, 1, TM_PIPELINE_1F1B, 2, 1, 1, 4, 4, 1, MOST_STEPS },
    { LATENT, 1, 1, TM_PIPELINE_1F1B, 2, 1, 2, 2, 2, 2, MOST_STEPS },
};

static job run_layout(const layout *l)
{
    job j = job_of(l);
    if (j.stages == 1) j.stages = 0;
    run_job(&j);
    return j;
}

static void layouts_follow_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        if (getenv("ONLY") && i != (size_t)atoi(getenv("ONLY"))) continue;
        job alone = run_alone(options_of(l), l->replicate * l->shard, 1, l->steps), together = run_layout(l);
        check_follows(&together, &alone, l);
    }
}

/* The same with weights that are gathered for each micro-batch, and experts likewise. */
static void weights_that_are_let_go_follow_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        layout l = layouts[i];
        if (l.stages == 1 || l.model == GPT || l.shard * l.context == 1) continue; /* tied tables are refused */
        l.steps = 5;
        job alone = { .o = options_of(&l), .replicate = 1, .shard = 1 }, j = job_of(&l);
        j.o.shape.tied = alone.o.shape.tied = false;
        j.o.layout.let_go = j.o.layout.reshard = true;
        alone = run_alone(alone.o, l.replicate * l.shard, 1, l.steps);
        run_job(&j);
        check_follows(&j, &alone, &l);
    }
}

static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char what[120];
        job  j = job_of(&layouts[i]);
        if (j.stages == 1) j.stages = 0;
        describe(what, &layouts[i]);
        check_sgd_step(j, j.replicate * j.shard, what);
    }
}

/* Places in documents are those of whole sequences on every stage. */
static void documents_stay_apart(void **state)
{
    (void)state;
    for (int model = LLAMA; model < ALL; model++) {
        layout l = { model, 2, 1, TM_PIPELINE_1F1B, 2, 1, 1, 2, 1, 2, 5 };
        job    j = job_of(&l);
        j.o = with_documents(j.o);
        job alone = run_alone(j.o, 1, 1, l.steps);
        run_job(&j);
        check_follows(&j, &alone, &l);
    }
}

static void bits_are_the_same_every_time(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const layout l = { LATENT, 2, 2, TM_PIPELINE_ZBV, 4, 1, 1, 2, 2, 1, 4 };
        job          once = job_of(&l), twice, alone;
        if (bf16) once.o.precision = &tm_precision_bf16;
        twice = once;
        run_job(&once);
        run_job(&twice);
        alone = run_alone(once.o, 1, 1, l.steps);
        for (int t = 0; t < l.steps; t++) assert_true(once.loss[t] == twice.loss[t] && once.norm[t] == twice.norm[t]);
        assert_true(once.weights[0] == twice.weights[0]);
        assert_true(apart(&once, &alone) < (bf16 ? 4e-3 : 1e-5));
    }
}

/* Each layout goes on from what the one before it saved; so does one rank. */
static void any_layout_goes_on(void **state)
{
    static const layout all[] = { { LATENT, 2, 1, TM_PIPELINE_1F1B, 4, 1, 1, 2, 2, 1, 5 },
                                  { LATENT, 4, 1, TM_PIPELINE_1F1B, 4, 1, 1, 2, 1, 1, 5 },
                                  { LATENT, 2, 2, TM_PIPELINE_ZBV, 2, 1, 2, 2, 4, 0, 5 },
                                  { LATENT, 1, 1, TM_PIPELINE_1F1B, 2, 1, 2, 2, 2, 1, 5 },
                                  { LATENT, 1, 1, TM_PIPELINE_1F1B, 4, 1, 1, 1, 1, 0, 5 } };
    enum { LAYOUTS = sizeof all / sizeof all[0] };
    (void)state;
    job whole = run_alone(options_of(&all[LAYOUTS - 1]), 1, 1, 5);
    for (int a = 0; a < LAYOUTS; a++) {
        char *folder = test_tree_make();
        for (int k = 0; k < 2; k++) {
            const layout *l = &all[(a + k) % LAYOUTS];
            job           j = job_of(l);
            if (j.stages == 1) j.stages = 0;
            j.begin = k ? 3 : 0, j.steps = k ? 5 : 3;
            j.load = k ? folder : NULL, j.save = k ? NULL : folder;
            if (ranks_of(&j) == 1)
                rank_body(NULL, &j);
            else
                run_job(&j);
            for (int t = j.begin; t < j.steps; t++)
                if (!(fabs(j.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]))
                    fail_msg("layout %d of %d: step %d: loss %.9g, wanted %.9g", (a + k) % LAYOUTS, a, t + 1, j.loss[t],
                             whole.loss[t]);
        }
        test_tree_remove(folder);
    }
}

static const struct CMUnitTest tests[] = {
    full_test(layouts_follow_one_rank),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    full_test(weights_that_are_let_go_follow_one_rank),
    cmocka_unit_test(documents_stay_apart),
    cmocka_unit_test(any_layout_goes_on),
    cmocka_unit_test(bits_are_the_same_every_time),
};

TM_TESTS(tests, NULL, NULL)
