/* SPDX-License-Identifier: Apache-2.0 */
/* No layout takes less time or memory than its bound says: a search may leave out what cannot be among the best. */
#include "support/test.h"

#include "device/device.h"
#include "plan/bound.h"
#include "plan/simulate.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"

typedef struct {
    tm_device *device;
    tm_chooser chooser;
    tm_arena  *arena;
    double     nearest; /* bound of a time, of the time */
    int        n;
} fixture;

static double degree(const tm_layout *l, tm_axis axis)
{
    return l->mesh.degree[0] ? l->mesh.degree[axis] : 1;
}

static tm_sketch sketch_of(const tm_step_options *o, bool full, double idle)
{
    const tm_layout *l = &o->layout;
    return (tm_sketch){ .tp = (int)degree(l, TM_AXIS_TP),
                        .pp = (int)degree(l, TM_AXIS_PP),
                        .cp = (int)degree(l, TM_AXIS_CP),
                        .ep = (int)degree(l, TM_AXIS_EP),
                        .replicate = (int)degree(l, TM_AXIS_REPLICATE),
                        .shard = (int)degree(l, TM_AXIS_SHARD),
                        .shares_all = l->sharing == TM_SHARE_ALL,
                        .full = full,
                        .moments_away = o->offload.optimizer,
                        .idle = idle,
                        .micro = o->micro_batch,
                        .accumulation = o->accumulation };
}

/* words: with a %s for the layout's; `idle`: as cli/plan_layouts.c has it. */
static void check(fixture *f, const char *words, const char *platform, double idle)
{
    tm_run_options  run;
    tm_machine_plan machine;
    tm_bound        bound;
    tm_simulation   s;
    tm_config      *config = test_run_of(words, &run);
    assert_ok(tm_machine_plan_read(f->arena, platform, &machine, err));
    int64_t global = run.step.micro_batch * run.step.accumulation * tm_layout_data_ranks(&run.step.layout);
    assert_ok(tm_bound_of(&run.step, global, &machine, &f->chooser, &bound, err));
    tm_step *step = test_step_plan(&run.step, &f->chooser);
    assert_ok(tm_simulate(step, &f->chooser, &machine, false, f->arena, &s, err));
    tm_sketch sketch = sketch_of(&run.step, strstr(words, "mode full") != NULL, idle);
    double    seconds = tm_bound_seconds(&bound, &sketch), bytes = tm_bound_bytes(&bound, &sketch);
    if (!(seconds > 0 && seconds <= s.step)) fail_msg("%s: bound %g s, step %g s", words, seconds, s.step);
    if (!(bytes > 0 && bytes <= s.bytes)) fail_msg("%s: bound %g B, plan %g B", words, bytes, s.bytes);
    f->nearest = fmax(f->nearest, seconds / s.step);
    f->n++;
    tm_step_destroy(step);
    tm_config_destroy(config);
}

#define SMALL                                                                                                          \
    "llama3.2_1B --model.n_layers 8 --training.seq_len 4096 --training.dtype bfloat16 --parallelism.ranks 8 "          \
    "--launch.gpus_per_node 8 --training.global_batch_size 32 "

static const struct {
    const char *words;
    double      idle;
} orders[] = {
    { "", 1 },
    { "--parallelism.pipeline_parallel_schedule Interleaved1F1B", 0.5 },
    { "--parallelism.pipeline_parallel_schedule ZBVZeroBubble", 1. / 6 },
};

TEST(nothing_is_below_its_bound)
{
    static const char *const platforms[] = { "8xMI300X", "8xH100" }, *const modes[] = { "none", "full" },
                             *const shares[] = { "optim", "optim_grads_params" };
    fixture                         f = { .device = test_device_open("cpu", 1), .arena = tm_arena_create() };
    assert_ok(tm_device_limit_isa(f.device, "base", err));
    f.chooser = tm_device_chooser(f.device);
    for (int tp = 1; tp <= 8; tp *= 2)
        for (int pp = 1; tp * pp <= 8; pp *= 4)
            for (int order = 0; order < (pp > 1 ? 3 : 1); order++)
                for (int k = 0; k < 4; k++) {
                    char words[800];
                    int  micro = 1 + k % 2 * 3, shard = 8 / tp / pp;
                    snprintf(words, sizeof words,
                             SMALL "--parallelism.tensor_parallel_degree %d --parallelism.pipeline_parallel_degree %d "
                                   "--parallelism.data_parallel_shard_degree %d "
                                   "--parallelism.data_parallel_shard_strategy %s --activation_checkpoint.mode %s "
                                   "--training.local_batch_size %d %s",
                             tp, pp, shard, shares[pp == 1 && k / 2], modes[k / 2], micro, orders[order].words);
                    check(&f, words, platforms[k % 2], orders[order].idle);
                }
    assert_int_equal(f.n, 4 * (4 + 3 * 2));
    assert_true(f.nearest > 0.5); /* a bound that is far below everything would be of no use */
    tm_arena_destroy(f.arena);
    tm_device_close(f.device);
}

#define GATHERS                                                                                                        \
    "llama3.2_1B --model.n_layers 4 --training.dtype bfloat16 --training.seq_len 64 --training.local_batch_size 1 "    \
    "--training.global_batch_size 512 --parallelism.ranks 16 --launch.gpus_per_node 8 "

TEST(experts_and_adapters_are_not_below)
{
    static const char *const words[] = {
        "mixtral_8x7B --model.n_layers 2 --training.dtype bfloat16 --parallelism.ranks 8 --launch.gpus_per_node 8 "
        "--parallelism.expert_parallel_degree 8",
        "mixtral_8x7B --model.n_layers 2 --training.dtype bfloat16 --parallelism.ranks 8 --launch.gpus_per_node 8 "
        "--parallelism.data_parallel_shard_strategy optim --training.global_batch_size 16 --training.local_batch_size "
        "2",
        "llama3.2_1B --model.n_layers 4 --training.dtype bfloat16 --parallelism.ranks 8 --launch.gpus_per_node 8 "
        "--training.offload optimizer",
        "llama3.2_1B --model.n_layers 4 --training.dtype bfloat16 --parallelism.ranks 2 --launch.gpus_per_node 8 "
        "--training.offload all --parallelism.data_parallel_shard_strategy optim",
        "llama3.2_1B --lora.rank 16 --training.dtype bfloat16 --parallelism.ranks 8 --launch.gpus_per_node 8",
        GATHERS,
        "llama3.2_1B --training.seq_len 16384 --training.dtype bfloat16 --parallelism.ranks 8 --launch.gpus_per_node 8 "
        "--parallelism.context_parallel_degree 4 --training.local_batch_size 1"
    };
    fixture f = { .device = test_device_open("cpu", 1), .arena = tm_arena_create() };
    f.chooser = tm_device_chooser(f.device);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        f.nearest = 0;
        check(&f, words[i], "8xH100", 1);
        if (strcmp(words[i], GATHERS) == 0) assert_true(f.nearest > 0.1); /* for each micro-batch */
    }
    tm_arena_destroy(f.arena);
    tm_device_close(f.device);
}
