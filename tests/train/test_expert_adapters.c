/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters beside experts that ranks divide: those of attention, and those of the experts, each rank having its own
 * experts'. They follow one rank with all samples, and go on from each other's checkpoints. */
#include "support/test.h"
#include "ranks_fixture.h"

static tm_adapters lora(const char *targets)
{
    tm_adapters a = { .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

enum { ATTENTION, EXPERTS, BOTH, SHARED, KINDS };
static const char *const names[] = { "attention", "experts", "both", "DeepSeek" };

static tm_step_options adapted(int kind)
{
    static const char *const targets[] = { "q_proj,o_proj", "experts.gate_up_proj,experts.down_proj",
                                           "all-linear,experts.gate_up_proj,experts.down_proj",
                                           "all-linear,experts.down_proj" };
    tm_step_options          o = mixture_options(kind == SHARED ? DEEPSEEK : MIXTRAL);
    o.shape.n_kv_heads = o.shape.n_heads;
    o.adapters = lora(targets[kind]);
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    return o;
}

typedef struct {
    int        replicate, shard, tensor, experts;
    tm_sharing sharing;
    double     capacity;
} divided;

static job job_of(tm_step_options o, divided d, int steps)
{
    job j = ranks_job(o, d.replicate, d.shard, d.sharing, steps);
    j.tensor = d.tensor, j.experts = d.experts;
    j.rate = 2e-3;
    j.o.layout.expert_capacity = d.capacity;
    return j;
}

static job alone_with(const job *j)
{
    job alone = ranks_job(j->o, 1, 1, TM_SHARE_COPIES, j->steps);
    alone.rate = j->rate, alone.whole = j->replicate * j->shard;
    rank_body(NULL, &alone);
    assert_true(fabs(alone.loss[alone.steps - 1] - alone.loss[0]) > 1e-3 * alone.loss[0]);
    return alone;
}

static void check_follows(const job *j, const job *alone, const char *what, double bound)
{
    double far = apart(j, alone);
    print_message("# %s: losses %.3g apart, %.4g -> %.4g\n", what, far, alone->loss[0], alone->loss[alone->steps - 1]);
    if (!(far <= bound)) fail_msg("%s: losses are %.3g apart", what, far);
    for (int t = 0; t < alone->steps; t++)
        if (!(fabs(j->norm[t] - alone->norm[t]) <= 10 * bound * alone->norm[t]))
            fail_msg("%s: step %d: norm %.9g, wanted %.9g", what, t + 1, j->norm[t], alone->norm[t]);
}

static void adapters_follow_one_rank(void **state)
{
    static const divided layouts[] = { { 1, 2, 1, 2, TM_SHARE_ALL, 2 },       { 1, 4, 1, 2, TM_SHARE_ALL, 0.6 },
                                       { 2, 2, 1, 2, TM_SHARE_COPIES, 0 },    { 1, 4, 1, 4, TM_SHARE_OPTIMIZER, 1 },
                                       { 1, 4, 1, 2, TM_SHARE_GRADIENTS, 1 }, { 1, 2, 2, 2, TM_SHARE_ALL, 2 },
                                       { 1, 1, 2, 2, TM_SHARE_COPIES, 2 } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
            char            what[96];
            tm_step_options o = adapted(kind);
            if (l % 3 == 1) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            if (l % 3 == 2) o.accumulation = 2;
            job j = job_of(o, layouts[l], l == 0 ? MOST_STEPS : 5), alone = alone_with(&j);
            run_job(&j);
            snprintf(what, sizeof what, "%s, %d x %d, tp %d, ep %d, sharing %d", names[kind], layouts[l].replicate,
                     layouts[l].shard, layouts[l].tensor, layouts[l].experts, (int)layouts[l].sharing);
            check_follows(&j, &alone, what, 1e-5);
        }
}

/* An adapter that all experts share: of one expert it is that expert's own, to the bit; of several it learns, and
 * follows one rank among ranks that share all. Ranks that divide experts have one each. */
static void experts_share_an_adapter(void **state)
{
    (void)state;
    tm_step_options own = adapted(EXPERTS);
    own.shape.moe.experts = own.shape.moe.top_k = 1;
    tm_step_options common = own;
    common.adapters = lora("w13,w2");
    common.adapters.shared = common.adapters.by_matrix = true;
    job a = ranks_job(own, 1, 1, TM_SHARE_COPIES, 4), b = ranks_job(common, 1, 1, TM_SHARE_COPIES, 4);
    a.rate = b.rate = 2e-3;
    rank_body(NULL, &a);
    rank_body(NULL, &b);
    for (int t = 0; t < 4; t++)
        if (memcmp(&a.loss[t], &b.loss[t], sizeof a.loss[t]) != 0)
            fail_msg("step %d: loss %.17g of one shared adapter, %.17g of its own", t + 1, b.loss[t], a.loss[t]);
    tm_step_options all = adapted(EXPERTS);
    all.adapters = common.adapters;
    static const divided layouts[] = { { 1, 2, 1, 1, TM_SHARE_ALL, 0 }, { 1, 2, 1, 2, TM_SHARE_ALL, 0.6 } };
    job                  among = job_of(all, layouts[0], 5), alone = alone_with(&among);
    run_job(&among);
    check_follows(&among, &alone, "shared, 1 x 2", 1e-5);
    job apart_from = job_of(all, layouts[1], 5);
    run_job(&apart_from);
    print_message("# shared by the experts of a rank: %.3g from one for all\n", apart(&apart_from, &alone));
    assert_true(apart(&apart_from, &alone) > 1e-7 && apart(&apart_from, &alone) < 1e-2);
}

static void gradients_agree_in_double_precision(void **state)
{
    static const divided layouts[] = { { 1, 4, 1, 2, TM_SHARE_ALL, 0.75 }, { 1, 2, 2, 2, TM_SHARE_ALL, 1 } };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t l = 0; l < 2; l++) {
            tm_step_options o = adapted(kind);
            o.precision = &tm_precision_f64;
            job j = job_of(o, layouts[l], 3);
            j.device = "reference";
            job alone = ranks_job(o, 1, 1, TM_SHARE_COPIES, 3);
            alone.device = "reference", alone.rate = j.rate, alone.whole = j.replicate * j.shard;
            rank_body(NULL, &alone);
            run_job(&j);
            check_follows(&j, &alone, names[kind], 1e-12);
        }
}

static job run_layout(int which, int begin, int steps, const char *load, const char *save)
{
    static const divided all[] = { { 1, 1, 1, 1, TM_SHARE_COPIES, 2 },
                                   { 1, 2, 1, 2, TM_SHARE_ALL, 2 },
                                   { 1, 4, 1, 4, TM_SHARE_OPTIMIZER, 2 },
                                   { 1, 2, 2, 2, TM_SHARE_ALL, 2 } };
    job                  j = job_of(adapted(BOTH), all[which], steps);
    j.o.accumulation = 4 / all[which].shard;
    j.begin = begin, j.load = load, j.save = save;
    run_any(&j);
    return j;
}

static void any_layout_goes_on_from_any_other(void **state)
{
    enum { LAYOUTS = 4 };
    (void)state;
    job whole = run_layout(0, 0, 4, NULL, NULL);
    for (int a = 0; a < LAYOUTS; a++) {
        char *folder = test_tree_make();
        job   saved = run_layout(a, 0, 2, NULL, folder);
        for (int b = 0; b < LAYOUTS; b++) {
            job loaded = run_layout(b, 2, 2, folder, NULL);
            if (loaded.weights[0] != saved.weights[0]) fail_msg("layout %d from %d: other weights", b, a);
            loaded = run_layout(b, 2, 4, folder, NULL);
            if (!(fabs(loaded.loss[3] - whole.loss[3]) <= 1e-5 * whole.loss[3]))
                fail_msg("layout %d goes on from %d: loss %.9g, wanted %.9g", b, a, loaded.loss[3], whole.loss[3]);
        }
        test_tree_remove(folder);
    }
}

static const struct CMUnitTest tests[] = {
    full_test(adapters_follow_one_rank),
    cmocka_unit_test(experts_share_an_adapter),
    cmocka_unit_test(gradients_agree_in_double_precision),
    cmocka_unit_test(any_layout_goes_on_from_any_other),
};

TM_TESTS(tests, NULL, NULL)
