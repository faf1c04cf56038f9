/* SPDX-License-Identifier: Apache-2.0 */
/* Products in low precision among ranks: scales of weights are those of whole tensors, scales of earlier steps go by
 * what was largest on any rank, random numbers by the micro-batches of all. So copies and shards have the bits of one
 * rank that sums as they do. */
#include "support/test.h"
#include "graph/value.h"
#include "ranks_fixture.h"
#include "support/folder.h"

static tm_step_options with_recipe(const char *recipe, const char *second)
{
    tm_step_options o = model_options(0);
    o.shape.dim = 64, o.shape.ffn_dim = 96, o.shape.head_dim = 32; /* whole blocks */
    o.seq = 32;
    o.layout.reshard = true;
    o.quantize = (tm_quantize){ .on = true, .switch_step = second ? 2 : -1, .history = 4, .seed = 1 };
    o.quantize.recipe[0] = *tm_quantize_recipe_find(recipe);
    if (second) o.quantize.recipe[1] = *tm_quantize_recipe_find(second);
    return o;
}

/* Nothing is clipped: the norm is added in another order. `shard` 0: one rank that sums as `replicate` do. */
static job train_unclipped(tm_step_options o, int replicate, int shard, tm_sharing sharing, int begin, int steps,
                           const char *load, const char *save)
{
    job j = ranks_job(o, replicate, shard ? shard : 1, sharing, steps);
    j.max_norm = 1e9, j.begin = begin, j.load = load, j.save = save;
    if (shard > 0) {
        run_job(&j);
        return j;
    }
    j.whole = j.o.layout.parts = replicate;
    j.replicate = 1;
    rank_body(NULL, &j);
    return j;
}

static void same(const job *a, const job *b, const char *what, const char *recipe)
{
    for (int t = a->begin > b->begin ? a->begin : b->begin; t < a->steps; t++)
        if (!(a->loss[t] == b->loss[t]))
            fail_msg("%s, %s: step %d: loss %.9g, wanted %.9g", recipe, what, t + 1, a->loss[t], b->loss[t]);
    if (a->weights[0] != b->weights[0]) fail_msg("%s, %s: other weights", recipe, what);
}

static void every_recipe_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (int i = 0; tm_quantize_recipe_at(i); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const char     *recipe = tm_quantize_recipe_at(i)->name;
            tm_step_options o = with_recipe(recipe, NULL);
            o.accumulation = 2;
            if (bf16) o.precision = &tm_precision_bf16;
            job alone = train_unclipped(o, 2, 0, TM_SHARE_COPIES, 0, 4, NULL, NULL);
            job copies = train_unclipped(o, 2, 1, TM_SHARE_COPIES, 0, 4, NULL, NULL);
            same(&copies, &alone, "copies", recipe);
            o.accumulation = 1; /* several micro-batches are added up in another order where gradients are parts */
            copies = train_unclipped(o, 2, 1, TM_SHARE_COPIES, 0, 4, NULL, NULL);
            for (int s = TM_SHARE_OPTIMIZER; s <= TM_SHARE_ALL; s++) {
                job shards = train_unclipped(o, 1, 2, (tm_sharing)s, 0, 4, NULL, NULL);
                same(&shards, &copies, "shards", recipe);
            }
        }
}

/* The scales of the next step. */
static void take_scales(job *j, const tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    double        *scales = test_values_read(trainer, step->quantized.scale);
    memcpy(j->taken, scales, step->quantized.n_rows * sizeof *scales);
    free(scales);
}

static void delayed_scales_go_by_all_ranks(void **state)
{
    enum { MOST_ROWS = 256 };
    (void)state;
    double          alone[MOST_ROWS] = { 0 }, ranks[MOST_ROWS] = { 0 }, own[MOST_ROWS] = { 0 };
    tm_step_options o = with_recipe("fp8_delayed", NULL);
    job             j = ranks_job(o, 3, 1, TM_SHARE_COPIES, 3);
    j.rate = 0; /* so that the weights are the same ones in spite of the order of sums */
    j.look = take_scales, j.taken = ranks;
    run_job(&j);
    j.whole = 3, j.replicate = 1, j.taken = alone;
    rank_body(NULL, &j);
    j.whole = 1, j.taken = own;
    rank_body(NULL, &j);
    assert_true(alone[0] > 0);
    assert_memory_equal(alone, ranks, sizeof alone);
    assert_memory_not_equal(alone, own, sizeof alone); /* what the first rank's samples alone would give */
}

/* Scales, histories and counters are those of the run, not of a rank. */
static void any_layout_goes_on_from_any_other(void **state)
{
    static const char *const recipes[][2] = { { "fp8_delayed", NULL }, { "nvfp4", NULL }, { "mxfp4", "fp8_delayed" } };
    static const struct {
        int        replicate, shard;
        tm_sharing sharing;
    } all[] = { { 2, 0, TM_SHARE_COPIES }, { 2, 1, TM_SHARE_COPIES }, { 1, 2, TM_SHARE_ALL } };
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        tm_step_options o = with_recipe(recipes[i][0], recipes[i][1]);
        job             whole = train_unclipped(o, 2, 1, TM_SHARE_COPIES, 0, 5, NULL, NULL);
        for (int a = 0; a < 3; a++) {
            char *folder = test_tree_make();
            train_unclipped(o, all[a].replicate, all[a].shard, all[a].sharing, 0, 3, NULL, folder);
            for (int b = 0; b < 3; b++) {
                job goes_on = train_unclipped(o, all[b].replicate, all[b].shard, all[b].sharing, 3, 5, folder, NULL);
                same(&goes_on, &whole, a == b ? "the same layout" : "another layout", recipes[i][0]);
            }
            test_tree_remove(folder);
        }
    }
}

static const struct CMUnitTest tests[] = {
    full_test(every_recipe_has_the_bits_of_one_rank),
    cmocka_unit_test(delayed_scales_go_by_all_ranks),
    cmocka_unit_test(any_layout_goes_on_from_any_other),
};

TM_TESTS(tests, NULL, NULL)
