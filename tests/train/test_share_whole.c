/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that need whole tensors, among ranks that share weights: tensors are dealt out, and the bits are those of
 * ranks that each update everything; every moment is on one rank. Parts that are rounded by chance, or whose rounding
 * is kept, have these bits, too. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/folder.h"

#include "op/quantize.h"

static const tm_sharing sharings[] = { TM_SHARE_OPTIMIZER, TM_SHARE_GRADIENTS, TM_SHARE_ALL };

enum { MUON, MEGATRON, ADAFACTOR, ADAM8, ADAM8_BNB, STOCHASTIC, STOCHASTIC_MUON, KAHAN, SGD_STOCHASTIC, KINDS };
static const char *const names[] = { "Muon",           "Megatron's Muon",  "Adafactor",
                                     "AdamW8bit",      "bitsandbytes",     "AdamW by chance",
                                     "Muon by chance", "AdamW with Kahan", "SGD by chance" };

static tm_step_options with_update(int kind, int model)
{
    static const tm_optimizer *const optimizers[] = { &tm_optimizer_muon,      &tm_optimizer_muon,
                                                      &tm_optimizer_adafactor, &tm_optimizer_adamw8bit,
                                                      &tm_optimizer_adamw8bit, &tm_optimizer_adamw,
                                                      &tm_optimizer_muon,      &tm_optimizer_adamw,
                                                      &tm_optimizer_sgd };
    tm_step_options                  o = model_options(model);
    o.shape.dim = 64, o.shape.ffn_dim = 96, o.shape.head_dim = 32; /* moments of 8 bits begin at 4096 elements */
    o.layout.reshard = true;
    o.optimizer = optimizers[kind];
    o.hyper = (tm_hyper){ .weight_decay = 0.1,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .momentum = 0.95,
                          .nesterov = kind != MEGATRON,
                          .beta2_decay = -0.8,
                          .eps1 = (double)NAN,
                          .eps2 = 1e-3,
                          .clip_threshold = 1,
                          .decay_matrices_only = true };
    if (kind == MEGATRON) o.hyper.definition = TM_DEFINED_MEGATRON;
    if (kind == MUON) o.hyper.definition = TM_DEFINED_TORCH;
    if (kind == ADAM8_BNB) o.hyper.definition = TM_DEFINED_BITSANDBYTES;
    if (kind == STOCHASTIC || kind == STOCHASTIC_MUON || kind == SGD_STOCHASTIC) o.hyper.stochastic = true;
    if (kind == KAHAN) o.hyper.kahan = true;
    if (kind >= STOCHASTIC) o.precision = &tm_precision_bf16_pure;
    return o;
}

/* Nothing is clipped: the norm is added in another order. */
static job unclipped(tm_step_options o, int replicate, int shard, tm_sharing sharing, int steps)
{
    job j = ranks_job(o, replicate, shard, sharing, steps);
    j.max_norm = 1e9;
    run_job(&j);
    return j;
}

static void whole_tensors_have_the_bits_of_copies(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            tm_step_options o = with_update(kind, ranks == 4 ? 1 : ranks == 5 ? 2 : 0);
            job             copies = unclipped(o, ranks, 1, TM_SHARE_COPIES, 3);
            for (size_t s = 0; s < 3; s++) {
                job shards = unclipped(o, 1, ranks, sharings[s], 3);
                for (int t = 0; t < 3; t++)
                    if (!(shards.loss[t] == copies.loss[t]))
                        fail_msg("%s, %d ranks, sharing %d: step %d: loss %.9g, wanted %.9g", names[kind], ranks,
                                 (int)sharings[s], t + 1, shards.loss[t], copies.loss[t]);
                if (shards.weights[0] != copies.weights[0])
                    fail_msg("%s, %d ranks, sharing %d: other weights", names[kind], ranks, (int)sharings[s]);
            }
        }
}

static void shards_follow_one_rank(void **state)
{
    (void)state;
    for (int kind = MUON; kind < STOCHASTIC; kind++) {
        tm_step_options o = with_update(kind, 0);
        job             alone = run_alone(o, 4, 1, kind == MUON || kind == ADAFACTOR ? MOST_STEPS : 5);
        job             shards = run_ranks(o, 1, 4, TM_SHARE_ALL, alone.steps);
        job             hybrid = run_ranks(o, 2, 2, TM_SHARE_ALL, alone.steps);
        /* a moment of 8 bits can be rounded to the next code */
        double most = kind == ADAM8 || kind == ADAM8_BNB ? 1e-4 : 1e-5;
        if (!(apart(&shards, &alone) <= most) || !(apart(&hybrid, &alone) <= most))
            fail_msg("%s: losses are %.3g and %.3g apart", names[kind], apart(&shards, &alone), apart(&hybrid, &alone));
    }
}

/* Bytes of the moments of a parameter. */
static size_t moment_bytes(const tm_step *step, tm_tensor_id id)
{
    const tm_tensor   *of = tm_graph_at(step->graph, id);
    tm_optimizer_state states[TM_MAX_STATES];
    tm_hyper           hyper = step->options.hyper;
    size_t             bytes = 0;
    hyper.in_block = of->layer >= 0;
    int n = step->options.optimizer->states(&hyper, of->shape, states);
    for (int k = 0; k < n; k++) {
        tm_dtype format = states[k].format == TM_STATE_BYTE        ? TM_U8
                          : states[k].format == TM_STATE_PARAMETER ? of->dtype
                          : states[k].format == TM_STATE_WIDE      ? step->options.precision->wide
                                                                   : step->options.precision->moment;
        bytes += tm_tensor_bytes(states[k].shape, format);
    }
    return bytes;
}

static size_t moments_here(const tm_step *step)
{
    size_t bytes = 0;
    for (size_t i = 0; i < step->graph->n_tensors; i++)
        if (step->graph->tensors[i].role == TM_ROLE_MOMENT) bytes += step->plan->places[i].bytes;
    return bytes;
}

/* Each tensor's moments are on one rank, as evenly as whole tensors can be. */
static void moments_are_dealt_out(void **state)
{
    enum { RANKS = 3 };
    (void)state;
    for (int kind = 0; kind < KAHAN; kind++) {
        if (kind == STOCHASTIC) continue; /* AdamW updates parts, whatever it rounds to */
        tm_step_options o = with_update(kind, 0);
        tm_device      *device = test_device_open("cpu", 1);
        tm_chooser      chooser = tm_device_chooser(device);
        tm_step        *alone = test_step_plan(&o, &chooser);
        size_t          sum = 0;
        int64_t         load[RANKS] = { 0 }, all = 0, largest = 0;
        for (int r = 0; r < RANKS; r++) {
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_SHARD] = RANKS;
            o.layout.sharing = TM_SHARE_ALL;
            o.layout.rank = r;
            tm_step *step = test_step_plan(&o, &chooser);
            size_t   wanted = 0;
            for (size_t u = 0; u < step->units.n_units; u++)
                for (size_t m = 0; m < step->units.units[u].n_members; m++) {
                    const tm_unit_member *member = &step->units.units[u].members[m];
                    assert_true(member->owner >= 0 && member->owner < RANKS);
                    if (member->owner == r) wanted += moment_bytes(step, member->parameter), load[r] += member->count;
                    if (r == 0) all += member->count;
                    if (member->count > largest) largest = member->count;
                }
            assert_int_equal(moments_here(step), wanted);
            sum += wanted;
            tm_step_destroy(step);
        }
        assert_int_equal(sum, moments_here(alone));
        for (int r = 0; r < RANKS; r++) assert_true(load[r] <= all / RANKS + largest);
        tm_step_destroy(alone);
        tm_device_close(device);
    }
}

/* What a unit's gradients and weights are gathered with before its update belongs to the layer of the unit. */
static void gathers_belong_to_the_layer_of_their_unit(void **state)
{
    (void)state;
    for (size_t s = 1; s < sizeof sharings / sizeof sharings[0]; s++) {
        tm_step_options o = with_update(MUON, 0);
        tm_device      *device = test_device_open("cpu", 1);
        tm_chooser      chooser = tm_device_chooser(device);
        size_t          found = 0;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
        o.layout.sharing = sharings[s];
        tm_step *step = test_step_plan(&o, &chooser);
        for (size_t u = 0; u < step->units.n_units; u++) {
            const tm_unit *unit = &step->units.units[u];
            for (size_t k = 0; k < step->graph->n_segments; k++)
                for (size_t x = 0; x < step->graph->segments[k]->n_nodes; x++) {
                    const tm_node *node = &step->graph->segments[k]->nodes[x];
                    if (node->op != TM_OP_all_gather || node->phase != TM_PHASE_UPDATE) continue;
                    if (node->in[0] != unit->gradients && node->in[0] != unit->weights) continue;
                    assert_int_equal(node->layer, unit->layer < INT32_MAX ? unit->layer : -1);
                    found++;
                }
        }
        assert_int_equal(found, step->units.n_units * s);
        tm_step_destroy(step);
        tm_device_close(device);
    }
}

/* All of these have the same bits: sums of four in the same order, nothing clipped. */
static job run_layout(int kind, int which, int begin, int steps, const char *load, const char *save)
{
    static const struct {
        int        replicate, shard, parts;
        tm_sharing sharing;
    } all[] = { { 1, 1, 4, TM_SHARE_COPIES },
                { 4, 1, 0, TM_SHARE_COPIES },
                { 1, 4, 0, TM_SHARE_OPTIMIZER },
                { 1, 4, 0, TM_SHARE_GRADIENTS },
                { 1, 4, 0, TM_SHARE_ALL } };
    job j = { .o = with_update(kind, 0), .replicate = all[which].replicate, .shard = all[which].shard };
    j.o.layout.sharing = all[which].sharing;
    j.o.layout.parts = all[which].parts;
    j.rate = 2e-3, j.max_norm = 1e9, j.begin = begin, j.steps = steps, j.load = load, j.save = save;
    if (which == 0) {
        j.whole = 4;
        rank_body(NULL, &j);
    } else {
        run_world(4, NULL, 60, false, rank_body, &j);
    }
    return j;
}

static void any_layout_goes_on_from_any_other(void **state)
{
    enum { LAYOUTS = 5 };
    (void)state;
    for (int kind = MUON; kind < STOCHASTIC; kind++) { /* one rank with parts has gradients in float32 */
        if (kind == MEGATRON) continue;
        job whole = run_layout(kind, 0, 0, 4, NULL, NULL);
        for (int a = 0; a < LAYOUTS; a++) {
            char *folder = test_tree_make();
            run_layout(kind, a, 0, 2, NULL, folder);
            for (int b = 0; b < LAYOUTS; b++) {
                job goes_on = run_layout(kind, b, 2, 4, folder, NULL);
                if (goes_on.weights[0] != whole.weights[0])
                    fail_msg("%s: layout %d goes on from %d to other weights", names[kind], b, a);
            }
            test_tree_remove(folder);
        }
    }
}

static void refused(tm_step_options o, tm_axis axis, const char *says)
{
    tm_error   err = { 0 };
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    tm_step   *step = NULL;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
    o.layout.mesh.degree[axis] = 2;
    o.layout.sharing = TM_SHARE_ALL;
    o.accumulation = 2;
    assert_int_equal(tm_mesh_fill(&o.layout.mesh, axis == TM_AXIS_EP ? 2 : 4, &err), TM_OK);
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    tm_device_close(device);
}

static void whole_tensors_of_divided_experts_are_refused(void **state)
{
    (void)state;
    refused(with_update(MUON, 2), TM_AXIS_EP, "experts that ranks divide (parallelism.expert_parallel_degree)");
}

static const struct CMUnitTest tests[] = {
    full_test(whole_tensors_have_the_bits_of_copies), cmocka_unit_test(shards_follow_one_rank),
    cmocka_unit_test(moments_are_dealt_out),          cmocka_unit_test(gathers_belong_to_the_layer_of_their_unit),
    full_test(any_layout_goes_on_from_any_other),     cmocka_unit_test(whole_tensors_of_divided_experts_are_refused),
};

TM_TESTS(tests, NULL, NULL)
