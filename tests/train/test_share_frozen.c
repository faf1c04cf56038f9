/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that train adapters, or some of the weights, beside frozen ones: in copies and in shards they follow one rank;
 * frozen weights are held in parts and have no gradient, blocks of 4 and 8 bits stay whole. */
#include "support/test.h"
#include "graph/blocks.h"
#include "ranks_fixture.h"
#include "support/folder.h"

static const tm_sharing  sharings[] = { TM_SHARE_OPTIMIZER, TM_SHARE_GRADIENTS, TM_SHARE_ALL };
static const char *const names[] = { [TM_SHARE_COPIES] = "copies",
                                     [TM_SHARE_OPTIMIZER] = "optimizer",
                                     [TM_SHARE_GRADIENTS] = "gradients",
                                     [TM_SHARE_ALL] = "all" };

static tm_adapters lora(const char *targets)
{
    tm_adapters a = { .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

enum { LORA, DROPPED, DORA, GPT, EXPERTS, NF4, E4M3, KINDS };

/* Blocks hold 64 elements, groups of them 16,384: matrices of more than one group, and of parts of one. */
static tm_step_options adapted(int kind)
{
    tm_step_options o = model_options(kind == GPT ? 1 : kind == EXPERTS ? 2 : 0);
    o.layout.reshard = true;
    o.layout.prefetch = 1;
    o.adapters = lora(kind == EXPERTS ? "all-linear,experts.gate_up_proj,experts.down_proj" : "all-linear");
    o.adapters.dora = kind == DORA;
    o.adapters.dropout = kind == DROPPED ? 0.25 : 0;
    o.adapters.base = kind == NF4 ? TM_NF4_BLOCKS : kind == E4M3 ? TM_E4M3_BLOCKS : TM_DTYPE_COUNT;
    if (kind == NF4 || kind == E4M3) o.shape.dim = 96, o.shape.ffn_dim = 272, o.shape.head_dim = 48;
    return o;
}

static void check_follows(const tm_step_options *o, const char *what, int replicate, int shard, tm_sharing sharing,
                          const job *alone)
{
    job    together = ranks_job(*o, replicate, shard, sharing, alone->steps);
    double far;
    together.rate = alone->rate;
    run_job(&together);
    far = apart(&together, alone);
    if (!(far <= 1e-5))
        fail_msg("%s, %s, %d x %d ranks: losses are %.3g apart", what, names[sharing], replicate, shard, far);
    for (int t = 0; t < alone->steps; t++)
        if (!(fabs(together.norm[t] - alone->norm[t]) <= 1e-4 * alone->norm[t]))
            fail_msg("%s, %s, %d x %d ranks: step %d: norm %.9g, wanted %.9g", what, names[sharing], replicate, shard,
                     t + 1, together.norm[t], alone->norm[t]);
}

static void adapters_follow_one_rank(void **state)
{
    static const char *const kinds[] = { "LoRA", "dropout", "DoRA", "GPT", "experts", "NF4", "E4M3" };
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            tm_step_options o = adapted(kind);
            job             alone = run_alone(o, ranks, 1, ranks == 2 ? MOST_STEPS : 4);
            assert_true(alone.loss[alone.steps - 1] != alone.loss[0]);
            check_follows(&o, kinds[kind], ranks, 1, TM_SHARE_COPIES, &alone);
            for (size_t s = 0; s < 3; s++) check_follows(&o, kinds[kind], 1, ranks, sharings[s], &alone);
            if (ranks == 4) check_follows(&o, kinds[kind], 2, 2, TM_SHARE_ALL, &alone);
            o.layout.reshard = false;
            if (ranks == 4) check_follows(&o, kinds[kind], 1, 4, TM_SHARE_ALL, &alone);
        }
}

static void rank_of_rate_zero(tm_step_options o, int shard, uint64_t wanted)
{
    job j = ranks_job(o, 1, shard, TM_SHARE_ALL, 1);
    j.rate = 0;
    run_job(&j);
    if (j.weights[0] != wanted) fail_msg("%d ranks begin with other weights than one", shard);
}

/* Every byte of every weight, also of blocks and their scales. */
static void every_cut_begins_with_the_same_weights(void **state)
{
    (void)state;
    for (int kind = DORA; kind < KINDS; kind++) {
        job alone = { .o = adapted(kind), .replicate = 1, .shard = 1, .steps = 1, .whole = 1 };
        rank_body(NULL, &alone);
        for (int shard = 2; shard <= 5; shard++) rank_of_rate_zero(adapted(kind), shard, alone.weights[0]);
    }
}

/* Of the weights that are not trained a rank has its part in the format that they are held in; of the trained ones
 * weights, gradients and two moments. */
static void a_rank_holds_its_share(void **state)
{
    (void)state;
    for (int kind = DORA; kind < KINDS; kind++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            job        all = run_ranks(adapted(kind), 1, ranks, TM_SHARE_ALL, 1);
            tm_device *device = test_device_open("cpu", 1);
            tm_chooser chooser = tm_device_chooser(device);
            size_t     frozen = 0, units = 0;
            for (int r = 0; r < ranks; r++) {
                tm_step_options o = all.o;
                o.layout.mesh = tm_mesh_one();
                o.layout.mesh.degree[TM_AXIS_SHARD] = ranks;
                o.layout.rank = r;
                tm_step *step = test_step_plan(&o, &chooser);
                size_t   wanted = 0;
                units = step->units.n_units;
                for (size_t u = 0; u < units; u++) {
                    const tm_unit *unit = &step->units.units[u];
                    int64_t        from = r * unit->share, to = from + unit->share;
                    bool           blocked = tm_dtype_blocked(unit->dtype);
                    assert_true(unit->share % (blocked ? TM_NF4_GROUP : 16) == 0);
                    wanted += tm_tensor_bytes(tm_shape_1(unit->share), unit->dtype);
                    if (!tm_units_trained(unit)) {
                        frozen += tm_tensor_bytes(tm_shape_1(unit->share), unit->dtype);
                        assert_true(unit->gradients == TM_NONE);
                        continue;
                    }
                    if (to > unit->used) to = unit->used;
                    wanted += 4 * (size_t)unit->share + (to > from ? 8 * (size_t)(to - from) : 0);
                }
                assert_int_equal(all.states[r], wanted);
                assert_int_equal(step->plan->arena_bytes, all.arena[r]);
                tm_step_destroy(step);
            }
            /* all parts together: the frozen weights once, and what fills groups and units up */
            tm_step_options o = adapted(kind);
            tm_step        *step = test_step_plan(&o, &chooser);
            size_t          base = tm_adapters_describe(step->graph).frozen_bytes, matrices = 2 * 4;
            size_t          most = kind == NF4 ? TM_NF4_GROUP_BYTES : kind == E4M3 ? TM_E4M3_GROUP_BYTES : 64;
            assert_true(frozen >= base && frozen <= base + (matrices + units * (size_t)ranks) * most);
            tm_step_destroy(step);
            tm_device_close(device);
        }
}

/* Units of a layer, of several formats, are gathered once for its forward and once for its backward pass. */
static void units_of_a_layer_are_gathered_together(void **state)
{
    (void)state;
    for (int kind = DORA; kind < KINDS; kind++) {
        tm_step_options o = adapted(kind);
        tm_device      *device = test_device_open("cpu", 1);
        tm_chooser      chooser = tm_device_chooser(device);
        size_t          gathers = 0;
        o.layout.mesh = tm_mesh_one();
        o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
        o.layout.sharing = TM_SHARE_ALL;
        tm_step *step = test_step_plan(&o, &chooser);
        for (size_t x = 0; x < step->first->count; x++)
            gathers += step->first->instructions[x].call.op == &tm_op_all_gather;
        assert_true(step->units.n_units > 4 && gathers >= step->units.n_units && gathers <= 2 * step->units.n_units);
        tm_step_destroy(step);
        tm_device_close(device);
    }
}

/* One of the layouts that four micro-batches can be divided among, from `begin` to `steps`. */
static job run_layout(int kind, int which, int begin, int steps, const char *load, const char *save)
{
    static const struct {
        int        replicate, shard;
        tm_sharing sharing;
    } all[] = { { 1, 1, TM_SHARE_COPIES },
                { 2, 1, TM_SHARE_COPIES },
                { 1, 2, TM_SHARE_GRADIENTS },
                { 1, 4, TM_SHARE_ALL },
                { 2, 2, TM_SHARE_ALL } };
    return run_part(adapted(kind), all[which].replicate, all[which].shard, all[which].sharing, begin, steps, load,
                    save);
}

/* A checkpoint has the adapters and their moments, in pieces, and fits every other layout. */
static void any_layout_goes_on_from_any_other(void **state)
{
    enum { LAYOUTS = 5 };
    (void)state;
    for (int kind = DORA; kind < KINDS; kind += NF4 - DORA) {
        job whole = run_layout(kind, 0, 0, 4, NULL, NULL);
        for (int a = 0; a < LAYOUTS; a++) {
            char *folder = test_tree_make();
            job   saved = run_layout(kind, a, 0, 3, NULL, folder);
            for (int b = 0; b < LAYOUTS; b++) {
                job loaded = run_layout(kind, b, 3, 4, folder, NULL);
                if (!(fabs(loaded.loss[3] - whole.loss[3]) <= 1e-5 * whole.loss[3]))
                    fail_msg("kind %d: layout %d goes on from %d: loss %.9g, wanted %.9g", kind, b, a, loaded.loss[3],
                             whole.loss[3]);
                loaded = run_layout(kind, b, 3, 3, folder, NULL);
                if (loaded.weights[0] != saved.weights[0]) fail_msg("layout %d of %d: other weights", b, a);
            }
            test_tree_remove(folder);
        }
    }
}

/* What a rank puts into a checkpoint: of a base nothing. */
static void checkpoints_hold_what_is_trained(void **state)
{
    (void)state;
    tm_step_options o = adapted(NF4);
    tm_device      *device = test_device_open("cpu", 1);
    o.layout.mesh = tm_mesh_one();
    tm_trainer                 *trainer = test_trainer_open(device, &o, 7);
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        if (!strstr(tensors[i].name, "lora_")) fail_msg("'%s' is in the checkpoint", tensors[i].name);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Frozen by a group, in another format than the trained ones. */
static void frozen_groups_follow_one_rank(void **state)
{
    static const tm_dtype formats[] = { TM_DTYPE_COUNT, TM_BF16, TM_E4M3 };
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        tm_step_options o = model_options(f == 0 ? 2 : 0);
        o.layout.reshard = true;
        o.n_groups = 2;
        o.groups[0] = (tm_group){ .place = "", .lr_scale = 1, .hyper = o.hyper, .format = TM_DTYPE_COUNT };
        o.groups[1] = (tm_group){ .patterns = "*layers.0.*|*embed*", /* names of files */
                                  .place = "test",
                                  .lr_scale = 1,
                                  .hyper = o.hyper,
                                  .frozen = true,
                                  .format = formats[f] };
        job alone = run_alone(o, 4, 1, 6);
        for (size_t s = 0; s < 3; s++) check_follows(&o, "a group", 1, 4, sharings[s], &alone);
        check_follows(&o, "a group", 2, 2, TM_SHARE_ALL, &alone);
        check_follows(&o, "a group", 4, 1, TM_SHARE_COPIES, &alone);
    }
}

static const struct CMUnitTest tests[] = {
    full_test(adapters_follow_one_rank),
    cmocka_unit_test(every_cut_begins_with_the_same_weights),
    cmocka_unit_test(a_rank_holds_its_share),
    cmocka_unit_test(units_of_a_layer_are_gathered_together),
    full_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(checkpoints_hold_what_is_trained),
    cmocka_unit_test(frozen_groups_follow_one_rank),
};

TM_TESTS(tests, NULL, NULL)
