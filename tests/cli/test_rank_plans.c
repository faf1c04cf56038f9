/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of the ranks of a plan, beside a plan of each of them: places that are alike are planned once. */
#include "support/test.h"

#include "cli/plan_one.h"

static int rank_at(const tm_mesh *mesh, int part, int place)
{
    int at[TM_AXES] = { 0 };
    at[TM_AXIS_PP] = part;
    at[TM_AXIS_SHARD] = place / mesh->degree[TM_AXIS_CP];
    at[TM_AXIS_CP] = place % mesh->degree[TM_AXIS_CP];
    return tm_mesh_rank(mesh, at);
}

static size_t bytes_at(const plan_one *p, int rank)
{
    tm_step_options o = p->run.step;
    tm_chooser      chooser = tm_device_chooser(p->device);
    tm_error        err = { 0 };
    tm_step        *step;
    o.layout.rank = rank;
    if (tm_step_create(&o, &chooser, &step, &err) != TM_OK) fail_msg("%s", err.text);
    size_t bytes = step->plan->arena_bytes;
    tm_step_destroy(step);
    return bytes;
}

/* Words behind `plan`, parted by blanks. */
static void compare(const char *words)
{
    tm_arena *arena = tm_arena_create();
    char     *argv[16], *rest = tm_arena_text(arena, words);
    tm_error  err = { 0 };
    plan_one  p;
    int       argc = 0;
    argv[argc++] = (char *)"plan";
    for (char *word; (word = strsep(&rest, " "));) argv[argc++] = word;
    if (plan_one_open(argv, argc, NULL, 0, &p, &err) != TM_OK || plan_one_compute(&p, false, &err) != TM_OK ||
        plan_one_ranks(&p, &err) != TM_OK)
        fail_msg("%s: %s", words, err.text);
    for (size_t i = 0; i < p.ranks.n; i++) {
        const rank_plan *row = &p.ranks.rows[i];
        if (p.ranks.n == MOST_RANK_PLANS && i + 1 == p.ranks.n) break; /* of several kinds, the most */
        for (int place = row->first; place <= row->last; place++) {
            size_t bytes = bytes_at(&p, rank_at(&p.run.step.layout.mesh, row->part, place));
            if (bytes != row->bytes)
                fail_msg("%s: stage %d, place %d: %zu bytes are told, %zu planned", words, row->part, place, row->bytes,
                         bytes);
        }
    }
    plan_one_fini(&p);
    tm_arena_destroy(arena);
}

TEST(ranks_need_what_is_told)
{
    static const char *const plans[] = {
        "tiny-llama --platform 2x8xH100",
        "tiny-llama --platform 7xH100 --optimizer.name Muon",
        "tiny-llama --platform 12xMI300X --optimizer.name AdamW8bit",
        "tiny-llama --platform 12xMI300X --parallelism.data_parallel_shard_strategy optim",
        "tiny-llama --platform 12xMI300X --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 4",
        "micro-llama --platform 5xH100 --optimizer.name Adafactor",
        "mixtral_8x7B --model.n_layers 1 --model.dim 256 --platform 8xH100 --parallelism.expert_parallel_degree 4",
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) compare(plans[i]);
}
