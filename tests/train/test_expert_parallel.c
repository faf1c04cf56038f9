/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are divided among ranks: rows are sent to them and back, whoever gets how many; ranks follow one rank
 * with all samples, have the same bits every time, hold their experts and no others. */
#include "support/test.h"
#include "ranks_fixture.h"

static const char *const names[MIXTURES] = { "mixtral", "deepseek", "gpt_oss", "qwen3_moe" };

static tm_step_options options_of(int kind)
{
    tm_step_options o = mixture_options(kind);
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    return o;
}

typedef struct {
    int        replicate, shard, experts;
    tm_sharing sharing;
    double     capacity;
} divided;

static job run_divided(tm_step_options o, divided d, int steps)
{
    job j = { .o = o,
              .replicate = d.replicate,
              .shard = d.shard,
              .experts = d.experts,
              .steps = steps,
              .rate = 2e-3,
              .max_norm = 1 };
    j.o.layout.sharing = d.sharing;
    j.o.layout.expert_capacity = d.capacity;
    run_job(&j);
    return j;
}

static void check_close(const job *have, const job *want, const char *name, divided d, double bound)
{
    double far = apart(have, want);
    for (int t = 0; t < want->steps; t++) far = fmax(far, fabs(have->norm[t] - want->norm[t]) / want->norm[t] / 10);
    print_message("# %s, %d x %d ranks, experts / %d, capacity %g: %.3g apart\n", name, d.replicate, d.shard, d.experts,
                  d.capacity, far);
    if (!(far <= bound))
        fail_msg("%s, %d x %d ranks, experts / %d, %g: losses or norms are %.3g apart", name, d.replicate, d.shard,
                 d.experts, d.capacity, far);
}

static void ranks_follow_one_rank(void **state)
{
    static const divided layouts[] = { { 1, 2, 2, TM_SHARE_ALL, 2 },       { 1, 4, 4, TM_SHARE_ALL, 2 },
                                       { 1, 4, 2, TM_SHARE_ALL, 2 },       { 2, 2, 2, TM_SHARE_ALL, 0 },
                                       { 1, 4, 2, TM_SHARE_OPTIMIZER, 1 }, { 1, 4, 2, TM_SHARE_GRADIENTS, 1 },
                                       { 2, 2, 2, TM_SHARE_COPIES, 1 } };
    (void)state;
    for (int kind = 0; kind < MIXTURES; kind++)
        for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++) {
            divided d = layouts[l];
            int     steps = l < 2 && kind <= DEEPSEEK ? MOST_STEPS : 5;
            if (kind > DEEPSEEK && l != 1 && l != 3) continue;
            job alone = run_alone(options_of(kind), d.replicate * d.shard, 1, steps);
            job together = run_divided(options_of(kind), d, steps);
            check_close(&together, &alone, names[kind], d, 1e-5);
        }
}

/* In float64 all that is left is rounding: no gradient is missing, none counts twice. Afterwards one rank reads what
 * four have saved: the weights are those of one rank. */
static void gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    for (int kind = 0; kind < MIXTURES; kind++) {
        tm_step_options o = options_of(kind);
        divided         d = { 1, 4, 2, TM_SHARE_ALL, 0.75 };
        o.precision = &tm_precision_f64;
        job alone = { .o = o, .replicate = 1, .shard = 1, .device = "reference", .steps = 3, .whole = 4 };
        job together = { .o = o, .replicate = 1, .shard = 4, .experts = 2, .device = "reference", .steps = 3 };
        alone.rate = together.rate = 2e-3, alone.max_norm = together.max_norm = 1;
        together.o.layout.expert_capacity = d.capacity;
        rank_body(NULL, &alone);
        run_job(&together);
        check_close(&together, &alone, names[kind], d, 1e-12);
    }
}

/* As many rounds as it takes, with or without recomputation, with several micro-batches. */
static void rounds_change_nothing_but_their_number(void **state)
{
    static const double capacities[] = { 0, 2, 1, 0.4 };
    (void)state;
    for (int variant = 0; variant < 3; variant++) {
        tm_step_options o = options_of(variant == 2 ? DEEPSEEK : MIXTRAL);
        if (variant == 1) o.recompute = (tm_recompute){ .cheap = true };
        if (variant == 2) o.recompute = (tm_recompute){ .every_n = 1 };
        o.accumulation = variant == 0 ? 2 : 1;
        job    alone = run_alone(o, 4, 1, 4);
        size_t bytes[4];
        for (int c = 0; c < 4; c++) {
            divided d = { 1, 4, 4, TM_SHARE_ALL, capacities[c] };
            job     together = run_divided(o, d, 4);
            check_close(&together, &alone, names[variant == 2], d, 1e-5);
            bytes[c] = together.arena[0];
        }
        assert_true(bytes[2] < bytes[1] && bytes[1] <= bytes[0]); /* less room, less memory */
    }
}

/* Every row to the same experts: the bias of the router decides. */
static void all_to_the_last(const job *j, tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *tensor = &step->graph->tensors[i];
        float            bias[16] = { 0 };
        if (tensor->role != TM_ROLE_STATE || !strstr(tensor->name, "expert_bias")) continue;
        int64_t n = tm_shape_elements(tensor->shape);
        CHECK(n <= 16);
        bias[n - 1] = 100;
        CHECK_OK(tm_trainer_write(trainer, (tm_tensor_id)i, 0, bias, (size_t)n * sizeof *bias, err));
    }
    (void)j;
}

static void one_expert_may_get_all_and_others_none(void **state)
{
    (void)state;
    for (int c = 0; c < 2; c++) {
        divided         d = { 1, 4, 4, TM_SHARE_ALL, c ? 0.7 : 2 };
        tm_step_options o = options_of(MIXTRAL);
        o.shape.moe.top_k = 1;
        o.shape.moe.bias_rate = 0;
        job alone = { .o = o, .replicate = 1, .shard = 1, .steps = 5, .whole = 4, .change = all_to_the_last };
        job together = { .o = o, .replicate = 1, .shard = 4, .experts = 4, .steps = 5, .change = all_to_the_last };
        alone.rate = together.rate = 2e-3, alone.max_norm = together.max_norm = 1;
        together.o.layout.expert_capacity = d.capacity;
        rank_body(NULL, &alone);
        run_job(&together);
        check_close(&together, &alone, "all to one expert", d, 1e-5);
    }
}

static void forced_balance_needs_one_round(void **state)
{
    (void)state;
    tm_step_options o = options_of(MIXTRAL);
    o.shape.moe.uniform = true;
    divided d = { 1, 2, 2, TM_SHARE_ALL, 1 };
    job     alone = run_alone(o, 2, 1, 4), together = run_divided(o, d, 4);
    check_close(&together, &alone, "uniform", d, 1e-5);
    tm_parallel p = { .experts = { .axes = 1U << TM_AXIS_EP, .ranks = 2 }, .expert_capacity = 1 };
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 1);
    o.shape.moe.uniform = false;
    assert_int_equal(tm_moe_exchange(&o.shape, &p, 16).rounds, 2);
}

static void bits_are_the_same_every_time(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        tm_step_options o = options_of(DEEPSEEK);
        divided         d = { 1, 4, 2, TM_SHARE_ALL, 1 };
        if (bf16) o.precision = &tm_precision_bf16;
        job once = run_divided(o, d, 6), twice = run_divided(o, d, 6), alone = run_alone(o, 4, 1, 6);
        assert_true(once.weights[0] == twice.weights[0]);
        assert_true(apart(&once, &alone) < (bf16 ? 2e-3 : 1e-5));
    }
}

/* Of the weights, gradients and moments of experts a rank has those of its own, divided by the ranks that share them.
 */
static void a_rank_holds_its_experts(void **state)
{
    (void)state;
    job whole = run_alone(options_of(MIXTRAL), 1, 1, 1);
    for (int experts = 1; experts <= 4; experts *= 2) {
        job    together = run_divided(options_of(MIXTRAL), (divided){ 1, 4, experts, TM_SHARE_ALL, 2 }, 1);
        size_t sum = 0, slack = 16 * 16 * 4 * 16; /* units are filled up */
        for (int r = 0; r < 4; r++) sum += together.states[r];
        if (sum < whole.states[0] || sum > whole.states[0] + slack)
            fail_msg("experts / %d: %zu bytes of all ranks, %zu of one", experts, sum, whole.states[0]);
    }
}

/* What one layout saved the others load, bit for bit, and go on with. */
static void any_layout_goes_on_from_any_other(void **state)
{
    static const divided layouts[] = { { 1, 1, 1, TM_SHARE_ALL, 2 },
                                       { 1, 2, 2, TM_SHARE_ALL, 2 },
                                       { 1, 4, 4, TM_SHARE_ALL, 1 },
                                       { 1, 4, 2, TM_SHARE_OPTIMIZER, 2 },
                                       { 2, 2, 2, TM_SHARE_ALL, 0 } };
    enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };
    (void)state;
    job whole = run_alone(options_of(DEEPSEEK), 4, 1, 5);
    for (int a = 0; a < LAYOUTS; a++) {
        char *folder = test_tree_make();
        for (int b = -1; b < LAYOUTS; b++) {
            divided d = layouts[b < 0 ? a : b];
            if (b > 0 && (a + b) % 2) continue;
            job j = { .o = options_of(DEEPSEEK), .replicate = d.replicate, .shard = d.shard, .experts = d.experts };
            j.o.accumulation = 4 / (d.replicate * d.shard);
            j.o.layout.sharing = d.sharing, j.o.layout.expert_capacity = d.capacity;
            j.rate = 2e-3, j.max_norm = 1;
            j.begin = b < 0 ? 0 : 3, j.steps = b < 0 ? 3 : 5;
            j.load = b < 0 ? NULL : folder, j.save = b < 0 ? folder : NULL;
            if (d.replicate * d.shard == 1)
                rank_body(NULL, &j);
            else
                run_job(&j);
            for (int t = 3; t < j.steps; t++)
                if (!(fabs(j.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]))
                    fail_msg("layout %d goes on from %d: step %d: loss %.9g, wanted %.9g", b, a, t + 1, j.loss[t],
                             whole.loss[t]);
        }
        test_tree_remove(folder);
    }
}

static void refused(tm_step_options o, int experts, tm_status wanted, const char *says)
{
    tm_error   err = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = NULL;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_SHARD] = o.layout.mesh.degree[TM_AXIS_EP] = experts;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), wanted);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    tm_device_close(device);
}

static void what_does_not_divide_is_refused(void **state)
{
    (void)state;
    tm_step_options o = options_of(MIXTRAL);
    refused(o, 3, TM_INVALID, "must divide model.n_experts, which is 4; 2 or 4 would do");
    refused(o, 8, TM_INVALID, "must divide model.n_experts, which is 4; 4 would do");
    refused(model_options(0), 2, TM_INVALID, "the model has no experts");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_follow_one_rank),
    cmocka_unit_test(gradients_are_those_of_one_rank),
    cmocka_unit_test(rounds_change_nothing_but_their_number),
    cmocka_unit_test(one_expert_may_get_all_and_others_none),
    cmocka_unit_test(forced_balance_needs_one_round),
    cmocka_unit_test(bits_are_the_same_every_time),
    cmocka_unit_test(a_rank_holds_its_experts),
    cmocka_unit_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(what_does_not_divide_is_refused),
};

TM_TESTS(tests, NULL, NULL)
