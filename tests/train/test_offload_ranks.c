/* SPDX-License-Identifier: Apache-2.0 */
/* Offloaded training on several ranks: each has a file for what it holds, and in every layout the bits are those
 * without. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/folder.h"

enum { FORMS = 4 };

typedef struct {
    int               model, replicate, shard, context, tensor, experts;
    tm_sharing        sharing;
    int               stages, chunks;
    tm_pipeline_order order;
} layout;

static const layout layouts[] = {
    { 0, 2, 1, 1, 1, 1, TM_SHARE_COPIES, 0, 0, 0 },    { 0, 1, 2, 1, 1, 1, TM_SHARE_OPTIMIZER, 0, 0, 0 },
    { 1, 1, 2, 1, 1, 1, TM_SHARE_GRADIENTS, 0, 0, 0 }, { 0, 1, 4, 1, 1, 1, TM_SHARE_ALL, 0, 0, 0 },
    { 2, 2, 2, 1, 1, 1, TM_SHARE_ALL, 0, 0, 0 },       { 1, 1, 2, 2, 1, 1, TM_SHARE_ALL, 0, 0, 0 },
    { 0, 1, 1, 2, 1, 1, TM_SHARE_ALL, 0, 0, 0 },       { 0, 1, 1, 1, 2, 1, TM_SHARE_COPIES, 0, 0, 0 },
    { 1, 1, 2, 1, 2, 1, TM_SHARE_ALL, 0, 0, 0 },       { 2, 1, 1, 1, 2, 1, TM_SHARE_COPIES, 0, 0, 0 },
    { 2, 1, 2, 1, 1, 2, TM_SHARE_ALL, 0, 0, 0 },       { 2, 2, 2, 1, 1, 2, TM_SHARE_OPTIMIZER, 0, 0, 0 },
    { 2, 1, 2, 1, 2, 2, TM_SHARE_ALL, 0, 0, 0 },
};

/* Stages of a pipeline: what a micro-batch keeps is away while others are at work. */
static const layout staged[] = {
    { 0, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 1, TM_PIPELINE_1F1B },
    { 1, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 1, TM_PIPELINE_GPIPE },
    { 2, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 2, TM_PIPELINE_INTERLEAVED },
    { 0, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 2, TM_PIPELINE_INTERLEAVED_ZERO },
    { 1, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 2, TM_PIPELINE_ZBV },
    { 0, 1, 1, 1, 1, 1, TM_SHARE_COPIES, 2, 2, TM_PIPELINE_DUAL_V },
    { 0, 1, 2, 1, 1, 1, TM_SHARE_ALL, 2, 1, TM_PIPELINE_1F1B },
    { 1, 1, 1, 1, 2, 1, TM_SHARE_COPIES, 2, 1, TM_PIPELINE_1F1B },
};

/* Activations of 4 KiB and more, and blocks enough for something to be away in between. */
static job job_of(const layout *l, int form, bool whole, const char *folder)
{
    job j = ranks_job(model_options(l->model), l->replicate, l->shard, l->sharing, 4);
    j.o.shape.n_layers = 4;
    j.o.shape.n_heads = j.o.shape.n_kv_heads = 2;
    j.o.seq = 32;
    j.o.micro_batch = 2;
    j.o.accumulation = 2;
    j.o.layout.reshard = true;
    j.o.layout.prefetch = 1;
    j.o.layout.expert_capacity = 2;
    j.o.layout.ring = l->context > 1 && l->shard == 1;
    j.o.offload =
        (tm_offload){ .optimizer = form & 1, .activations = form & 2, .space = TM_SPACE_DISK, .folder = folder };
    if (whole) j.o.optimizer = &tm_optimizer_muon;
    j.context = l->context;
    j.tensor = l->tensor;
    j.experts = l->experts;
    j.stages = l->stages;
    if (l->stages) j.o.accumulation = 4;
    j.o.layout.order = l->order;
    j.o.layout.chunks = l->chunks;
    return j;
}

/* Copies in the programs of a step. */
static void count_copies(job *j, const tm_trainer *trainer)
{
    const tm_plan *plan = tm_trainer_step_of(trainer)->plan;
    size_t        *n = j->taken;
    for (size_t p = 0; p < plan->n_programs; p++)
        for (size_t x = 0; x < plan->programs[p].count; x++) {
            const tm_op *op = plan->programs[p].instructions[x].call.op;
            *n += op == &tm_op_fetch || op == &tm_op_store;
        }
    assert_true((*n > 0) == (plan->spaces[TM_SPACE_DISK].arena_bytes > 0));
}

static void check_forms(const layout *l, bool whole, const char *folder)
{
    job resident = job_of(l, 0, whole, folder);
    run_job(&resident);
    for (int form = 1; form < FORMS; form++) {
        size_t copies = 0;
        job    j = job_of(l, form, whole, folder);
        j.look = count_copies;
        j.taken = &copies;
        run_job(&j);
        assert_true(copies > 4);
        if (form == 1 || form == 3 || l->stages) assert_true(j.arena[0] < resident.arena[0]);
        for (int t = 0; t < j.steps; t++)
            if (j.loss[t] != resident.loss[t] || j.norm[t] != resident.norm[t] || j.weights[0] != resident.weights[0])
                fail_msg(
                    "model %d, %d x %d, cp %d, tp %d, ep %d, pp %d, order %d, sharing %d, form %d%s: other bits in "
                    "step %d",
                    l->model, l->replicate, l->shard, l->context, l->tensor, l->experts, l->stages, (int)l->order,
                    (int)l->sharing, form, whole ? ", whole tensors" : "", t + 1);
    }
}

static void offload_changes_no_bit_of_any_rank(void **state)
{
    (void)state;
    char *folder = test_tree_make();
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) check_forms(&layouts[i], false, folder);
    test_tree_remove(folder);
}

static void offload_changes_no_bit_of_any_stage(void **state)
{
    (void)state;
    char *folder = test_tree_make();
    for (size_t i = 0; i < sizeof staged / sizeof staged[0]; i++) check_forms(&staged[i], false, folder);
    test_tree_remove(folder);
}

/* Each tensor's moments are one rank's. */
static void offload_of_whole_updates_changes_no_bit(void **state)
{
    (void)state;
    char *folder = test_tree_make();
    for (size_t i = 1; i < 4; i++) check_forms(&layouts[i], true, folder);
    test_tree_remove(folder);
}

/* What offloads and what does not go on from each other's checkpoints. */
static void checkpoints_pass_between_ranks_and_forms(void **state)
{
    (void)state;
    char *offloaded = test_tree_make(), *folder = test_tree_make();
    for (int from = 0; from < FORMS; from += 3) {
        char *saved = test_tree_make();
        job   first = job_of(&layouts[3], from, false, offloaded), next = job_of(&layouts[1], 3 - from, false, folder);
        job   whole = job_of(&layouts[3], 0, false, NULL);
        first.steps = 2, first.save = saved;
        next.begin = 2, next.load = saved, next.o.accumulation = 4;
        run_job(&first);
        run_job(&next);
        run_job(&whole);
        if (!(fabs(next.loss[3] - whole.loss[3]) <= 1e-5 * whole.loss[3]))
            fail_msg("from form %d: loss %.9g, wanted %.9g", from, next.loss[3], whole.loss[3]);
        test_tree_remove(saved);
    }
    test_tree_remove(offloaded);
    test_tree_remove(folder);
}

static const struct CMUnitTest tests[] = {
    full_test(offload_changes_no_bit_of_any_rank),
    cmocka_unit_test(offload_changes_no_bit_of_any_stage),
    cmocka_unit_test(offload_of_whole_updates_changes_no_bit),
    cmocka_unit_test(checkpoints_pass_between_ranks_and_forms),
};

TM_TESTS(tests, NULL, NULL)
