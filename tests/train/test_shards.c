/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share the optimizer's state, gradients and weights of a model: they follow one rank with all samples, have
 * the same bits every time, and hold their part and no more. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/folder.h"

static const tm_sharing  sharings[] = { TM_SHARE_OPTIMIZER, TM_SHARE_GRADIENTS, TM_SHARE_ALL };
static const char *const names[] = {
    [TM_SHARE_OPTIMIZER] = "optimizer", [TM_SHARE_GRADIENTS] = "gradients", [TM_SHARE_ALL] = "all"
};

static void check_follows(tm_step_options o, int k, int replicate, int shard, tm_sharing sharing, const job *alone)
{
    job    together = run_ranks(o, replicate, shard, sharing, alone->steps);
    double far = apart(&together, alone);
    if (!(far <= 1e-5))
        fail_msg("model %d, %s, %d x %d ranks: losses are %.3g apart", k, names[sharing], replicate, shard, far);
    for (int t = 0; t < alone->steps; t++)
        if (!(fabs(together.norm[t] - alone->norm[t]) <= 1e-5 * alone->norm[t]))
            fail_msg("model %d, %s, %d x %d ranks: step %d: norm %.9g, wanted %.9g", k, names[sharing], replicate,
                     shard, t + 1, together.norm[t], alone->norm[t]);
}

static void shares_follow_one_rank(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            job alone = run_alone(model_options(k), ranks, 1, ranks == 2 ? MOST_STEPS : 6);
            for (size_t s = 0; s < 3; s++) {
                tm_step_options o = model_options(k);
                o.layout.reshard = s == 2 && ranks != 3;
                o.layout.prefetch = ranks - 2;
                check_follows(o, k, 1, ranks, sharings[s], &alone);
            }
        }
}

/* Several micro-batches are added up in the shares, copies of shards reduced among each other; casts and recomputation
 * see gathered weights. */
static void layouts_compose(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++)
        for (int variant = 0; variant < (k < 2 ? 3 : 2); variant++) {
            tm_step_options o = model_options(k);
            o.accumulation = variant == 1 ? 1 : 2;
            if (variant == 1) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            job alone = run_alone(o, 4, 1, 3);
            for (size_t s = 0; s < 3; s++)
                for (int hybrid = 0; hybrid < 2; hybrid++) {
                    tm_step_options own = o;
                    own.layout.reshard = variant != 2;
                    own.layout.prefetch = 1;
                    check_follows(own, k, hybrid ? 2 : 1, hybrid ? 2 : 4, sharings[s], &alone);
                }
        }
}

/* In bfloat16 another order of additions can round a product elsewhere: nearer than its steps, and the same each time.
 */
static void bfloat16_is_close_and_repeats(void **state)
{
    (void)state;
    tm_step_options o = model_options(0);
    o.precision = &tm_precision_bf16;
    o.layout.reshard = true;
    job alone = run_alone(o, 2, 1, 10);
    for (size_t s = 0; s < 3; s++) {
        job once = run_ranks(o, 1, 2, sharings[s], 10), twice = run_ranks(o, 1, 2, sharings[s], 10);
        assert_true(apart(&once, &alone) < 2e-3);
        assert_true(once.weights[0] == twice.weights[0]);
    }
}

/* Bytes that the gathers of a micro-batch send, of rank 0 of two. */
static double gathered_bytes(int k, const tm_precision *precision)
{
    tm_step_options o = model_options(k);
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    double          bytes = 0;
    o.precision = precision;
    o.layout.mesh = tm_mesh_one();
    o.layout.mesh.degree[TM_AXIS_SHARD] = 2;
    o.layout.sharing = TM_SHARE_ALL;
    o.layout.reshard = true;
    tm_step *step = test_step_plan(&o, &chooser);
    for (size_t x = 0; x < step->first->count; x++)
        if (step->first->instructions[x].call.op == &tm_op_all_gather) bytes += step->first->instructions[x].cost.wire;
    tm_step_destroy(step);
    tm_device_close(device);
    return bytes;
}

/* Shares are cast before they are gathered: half the bytes, and the very bits of weights that are whole in float32 on
 * every rank and cast there (the layout `gradients`, whose sums are the same). What is read in float32 is gathered so:
 * tables whose sum is rounded (GPT), routers. */
static void weights_travel_in_the_format_of_the_computation(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++)
        for (int variant = 0; variant < 2; variant++) {
            tm_step_options o = model_options(k);
            o.precision = &tm_precision_bf16;
            o.accumulation = 2;
            o.layout.reshard = true;
            o.layout.prefetch = variant;
            if (variant == 1) o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
            job cast_behind = ranks_job(o, 1, 4, TM_SHARE_GRADIENTS, 5), cast_ahead = cast_behind;
            cast_ahead.o.layout.sharing = TM_SHARE_ALL;
            cast_ahead.max_norm = cast_behind.max_norm = 1e9; /* the norm of other units is added in another order */
            run_job(&cast_behind);
            run_job(&cast_ahead);
            for (int t = 0; t < 5; t++)
                if (!(cast_ahead.loss[t] == cast_behind.loss[t]))
                    fail_msg("model %d, step %d: loss %.9g, wanted %.9g", k, t + 1, cast_ahead.loss[t],
                             cast_behind.loss[t]);
            assert_true(cast_ahead.evaluation[0] == cast_behind.evaluation[0]);
            assert_true(cast_ahead.weights[0] == cast_behind.weights[0]);
        }
    double wide = gathered_bytes(0, &tm_precision_f32), narrow = gathered_bytes(0, &tm_precision_bf16);
    assert_true(wide > 0 && narrow == wide / 2);
    wide = gathered_bytes(1, &tm_precision_f32), narrow = gathered_bytes(1, &tm_precision_bf16);
    assert_true(narrow > wide / 2 && narrow < wide);
}

/* Weights, gradients and moments: a rank has its share of each unit (a whole number of 16 elements), and moments for
 * what of it is used. */
static void a_rank_holds_its_share(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            job             whole = run_alone(model_options(k), 1, 1, 1);
            size_t          elements = whole.states[0] / 16; /* weights, gradients, two moments of four bytes */
            size_t          first = 0, sum = 0;
            job             all = run_ranks(model_options(k), 1, ranks, TM_SHARE_ALL, 1);
            tm_step_options o = model_options(k);
            tm_device      *device = test_device_open("cpu", 1);
            tm_chooser      chooser = tm_device_chooser(device);
            for (int r = 0; r < ranks; r++) {
                o.layout = all.o.layout;
                o.layout.mesh = tm_mesh_one();
                o.layout.mesh.degree[TM_AXIS_SHARD] = ranks;
                o.layout.rank = r;
                tm_step *step = test_step_plan(&o, &chooser); /* no rank runs: a plan needs none */
                assert_int_equal(step->plan->arena_bytes, all.arena[r]);
                size_t shares = 0, moments = 0;
                for (size_t u = 0; u < step->units.n_units; u++) {
                    const tm_unit *unit = &step->units.units[u];
                    int64_t        from = r * unit->share, to = from + unit->share;
                    if (to > unit->used) to = unit->used;
                    assert_true(unit->share % 16 == 0 && unit->share * ranks < unit->used + 16 * ranks);
                    shares += (size_t)unit->share;
                    moments += to > from ? (size_t)(to - from) : 0;
                }
                assert_int_equal(all.states[r], 8 * shares + 8 * moments);
                first = r == 0 ? shares : first;
                sum += moments;
                tm_step_destroy(step);
            }
            assert_int_equal(sum, elements); /* every element has its moments once */
            assert_true(first * (size_t)ranks >= elements && first * (size_t)ranks < elements + elements / 10);
            tm_device_close(device);
        }
}

/* One of the layouts that four micro-batches can be divided among, from `load` to step `steps`, saved to `save`. */
static job run_layout(int which, int begin, int steps, const char *load, const char *save)
{
    static const struct {
        int        replicate, shard;
        tm_sharing sharing;
    } all[] = { { 1, 1, TM_SHARE_COPIES },    { 2, 1, TM_SHARE_COPIES }, { 1, 2, TM_SHARE_OPTIMIZER },
                { 2, 2, TM_SHARE_GRADIENTS }, { 1, 4, TM_SHARE_ALL },    { 2, 2, TM_SHARE_ALL } };
    return run_part(model_options(2), all[which].replicate, all[which].shard, all[which].sharing, begin, steps, load,
                    save);
}

/* What one layout saved every other one loads, bit for bit, and goes on with as one rank would. */
static void any_layout_goes_on_from_any_other(void **state)
{
    enum { LAYOUTS = 6 };
    (void)state;
    job whole = run_layout(0, 0, 5, NULL, NULL);
    for (int a = 0; a < LAYOUTS; a++) {
        char *folder = test_tree_make();
        job   saved = run_layout(a, 0, 3, NULL, folder);
        for (int b = 0; b < LAYOUTS; b++) {
            job loaded = run_layout(b, 3, 3, folder, NULL);
            if (loaded.weights[0] != saved.weights[0]) fail_msg("layout %d of %d: other weights", b, a);
        }
        for (int b = a % 2; b < LAYOUTS; b += 2) {
            job goes_on = run_layout(b, 3, 5, folder, NULL);
            for (int t = 3; t < 5; t++)
                if (!(fabs(goes_on.loss[t] - whole.loss[t]) <= 1e-5 * whole.loss[t]) ||
                    !(fabs(goes_on.norm[t] - whole.norm[t]) <= 1e-4 * whole.norm[t]))
                    fail_msg("layout %d goes on from %d: step %d: loss %.9g, wanted %.9g; norm %.9g, wanted %.9g", b, a,
                             t + 1, goes_on.loss[t], whole.loss[t], goes_on.norm[t], whole.norm[t]);
        }
        test_tree_remove(folder);
    }
}

/* Every parameter, written in pieces that end anywhere in it and read in others. */
static void write_in_pieces(const job *j, tm_trainer *trainer)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    (void)j;
    for (size_t id = 0; id < graph->n_tensors; id++) {
        const tm_tensor *t = &graph->tensors[id];
        if (t->role != TM_ROLE_PARAMETER) continue;
        int64_t n = tm_shape_elements(t->shape);
        float  *values = malloc((size_t)n * sizeof *values), *found = malloc((size_t)n * sizeof *found);
        for (int64_t i = 0; i < n; i++) values[i] = (float)((i * 37 + (int64_t)id) % 1009) / 1009, found[i] = -1;
        for (int64_t at = 0; at < n; at += 101)
            CHECK_OK(tm_trainer_write(trainer, (tm_tensor_id)id, (size_t)at * 4, values + at,
                                      (size_t)(n - at < 101 ? n - at : 101) * 4, err));
        for (int64_t at = 0; at < n; at += 67)
            CHECK_OK(tm_trainer_read(trainer, (tm_tensor_id)id, (size_t)at * 4, found + at,
                                     (size_t)(n - at < 67 ? n - at : 67) * 4, err));
        CHECK(memcmp(values, found, (size_t)n * sizeof *values) == 0);
        free(values);
        free(found);
    }
}

static void tensors_are_written_in_pieces(void **state)
{
    (void)state;
    for (size_t s = 0; s < 3; s++) {
        job j = { .o = model_options(0),
                  .replicate = 1,
                  .shard = 3,
                  .steps = 1,
                  .rate = 0,
                  .max_norm = 1,
                  .change = write_in_pieces };
        j.o.layout.sharing = sharings[s];
        run_job(&j);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shares_follow_one_rank),        full_test(layouts_compose),
    cmocka_unit_test(bfloat16_is_close_and_repeats), cmocka_unit_test(weights_travel_in_the_format_of_the_computation),
    cmocka_unit_test(a_rank_holds_its_share),        cmocka_unit_test(any_layout_goes_on_from_any_other),
    cmocka_unit_test(tensors_are_written_in_pieces),
};

TM_TESTS(tests, NULL, NULL)
