/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that divide matrices with adapters beside them, and one rank with the same samples. */
#ifndef TM_TESTS_ADAPTERS_FIXTURE_H
#define TM_TESTS_ADAPTERS_FIXTURE_H

#include "ranks_fixture.h"

static inline tm_adapters lora(const char *targets)
{
    tm_adapters a = { .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .seed = 1 };
    snprintf(a.targets, sizeof a.targets, "%s", targets);
    return a;
}

static inline job start(tm_step_options o, int tensor, int replicate, int shard, int steps)
{
    job j = ranks_job(o, replicate, shard, shard > 1 ? TM_SHARE_ALL : TM_SHARE_COPIES, steps);
    j.tensor = tensor;
    j.rate = 2e-3;
    j.o.layout.reshard = true;
    return j;
}

/* One rank with the samples of `whole`. */
static inline job alone_with(const job *j, int whole)
{
    job alone = ranks_job(j->o, 1, 1, TM_SHARE_COPIES, j->steps);
    alone.rate = j->rate, alone.whole = whole, alone.change = j->change;
    rank_body(NULL, &alone);
    assert_true(fabs(alone.evaluation[0] - alone.loss[0]) > 1e-5 * alone.loss[0]); /* something is learnt */
    return alone;
}

/* One of several layouts, the last one with `most` ranks that divide matrices, from `load` to step `steps`, saved to
 * `save`. */
enum { OTHER_LAYOUTS = 5 };
static inline job run_layout(tm_step_options o, int which, int most, void (*change)(const job *, tm_trainer *),
                             int begin, int steps, const char *load, const char *save)
{
    const struct {
        int tensor, replicate, shard;
    } all[OTHER_LAYOUTS] = { { 2, 1, 1 }, { 1, 1, 1 }, { most, 1, 1 }, { 2, 1, 2 }, { 1, 1, 4 } };
    job j = start(o, all[which].tensor, all[which].replicate, all[which].shard, steps);
    j.o.accumulation = 4 / all[which].shard;
    j.begin = begin, j.load = load, j.save = save, j.change = change;
    run_any(&j);
    return j;
}

/* Two steps in one layout, two more in any other one. */
static inline void layouts_go_on(tm_step_options o, int most, void (*change)(const job *, tm_trainer *),
                                 const char *what)
{
    job whole = run_layout(o, 1, most, change, 0, 4, NULL, NULL);
    for (int a = 0; a < OTHER_LAYOUTS; a++) {
        char *folder = test_tree_make();
        job   saved = run_layout(o, a, most, change, 0, 2, NULL, folder);
        for (int b = 0; b < OTHER_LAYOUTS; b++) {
            job loaded = run_layout(o, b, most, change, 2, 2, folder, NULL);
            if (loaded.weights[0] != saved.weights[0]) fail_msg("%s: layout %d from %d: other weights", what, b, a);
            loaded = run_layout(o, b, most, change, 2, 4, folder, NULL);
            if (!(fabs(loaded.loss[3] - whole.loss[3]) <= 1e-5 * whole.loss[3]))
                fail_msg("%s: layout %d goes on from %d: loss %.9g, wanted %.9g", what, b, a, loaded.loss[3],
                         whole.loss[3]);
        }
        test_tree_remove(folder);
    }
}

#endif
