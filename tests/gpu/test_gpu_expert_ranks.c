/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on several GPUs that are emulated: each GPU has a part of them, and rows go where they are routed, as uneven
 * as they come. Trainings are those of processors in the same layout, and of one GPU. */
#include "support/test.h"
#include "gpu/rank_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const plan_of layouts[] = {
    { .words = "experts of two", .ranks = 2, .experts = 2, .sharing = TM_SHARE_OPTIMIZER },
    { .words = "experts of two in rounds", .ranks = 2, .experts = 2, .sharing = TM_SHARE_ALL, .capacity = 0.5 },
    { .words = "experts of four", .ranks = 4, .experts = 4, .sharing = TM_SHARE_ALL },
    { .words = "shards of experts", .ranks = 4, .experts = 2, .sharing = TM_SHARE_ALL },
    { .words = "copies of experts", .ranks = 4, .copies = 2, .experts = 2, .sharing = TM_SHARE_GRADIENTS },
    { .words = "experts among parts of matrices", .ranks = 4, .experts = 4, .tensor = 2, .sharing = TM_SHARE_ALL },
    { .words = "experts in stages",
      .ranks = 4,
      .stages = 2,
      .experts = 2,
      .sharing = TM_SHARE_ALL,
      .order = TM_PIPELINE_INTERLEAVED,
      .chunks = 2,
      .layers = 4 },
    { .words = "experts of eight in rounds",
      .ranks = 8,
      .experts = 8,
      .samples = 8,
      .sharing = TM_SHARE_ALL,
      .capacity = 1 },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], HALF = LAYOUTS - 2 };

static plan_of mixture_of(int k)
{
    plan_of p = layouts[k];
    p.mixture = true;
    return p;
}

static void train_layouts(const char *device, int from, int to, const tm_precision *precision)
{
    begin_on(device);
    for (int k = from; k < to; k++) {
        plan_of p = mixture_of(k),
                one = { .words = "one rank", .ranks = 1, .samples = p.samples, .layers = p.layers, .mixture = true };
        job   j = new_job(device, &one, precision);
        found alone = run_job(&j, TM_OK);
        trains(device, &p, precision, &alone);
    }
}

FULL_TEST(experts_train_on_cuda)
{
    train_layouts("cuda", 1, 2, &tm_precision_f32);
}

FULL_TEST(more_experts_train_on_cuda)
{
    train_layouts("cuda", 2, HALF, &tm_precision_f32);
}

FULL_TEST(all_experts_train_on_cuda)
{
    train_layouts("cuda", HALF, LAYOUTS, &tm_precision_f32);
}

FULL_TEST(experts_train_on_hip)
{
    train_layouts("hip", 0, HALF, &tm_precision_f32);
}

/* Played, and launched one by one. */
FULL_TEST(two_runs_have_the_same_bits)
{
    plan_of p = mixture_of(1);
    begin_on("cuda");
    job   j = new_job("cuda", &p, &tm_precision_bf16);
    found a = run_job(&j, TM_OK);
    for (int k = 0; k < 2; k++) {
        j.one_by_one = k;
        found b = run_job(&j, TM_OK);
        assert_memory_equal(a.loss, b.loss, sizeof a.loss);
        assert_memory_equal(a.norm, b.norm, sizeof a.norm);
        assert_true(a.weights == b.weights && a.weights != 0);
    }
}

/* Rank 1 fails in a call of an exchange: both end, and it says in which. */
FULL_TEST(every_call_fails_once)
{
    static const char *const calls[] = { "ncclAllGather@1=3", "ncclGroupStart@1=3", "ncclSend@3=3",
                                         "ncclRecv@3=3",      "ncclGroupEnd@1=3",   "ncclGroupEnd@7=6" };
    plan_of                  p = mixture_of(1);
    begin_on("cuda");
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char value[64], words[64];
        int  codes[MOST];
        job  j = new_job("cuda", &p, &tm_precision_f32);
        j.deadline = 2;
        snprintf(value, sizeof value, "1:%s", calls[i]);
        snprintf(words, sizeof words, "rank 1: %.*s (all-", (int)strcspn(calls[i], "@"), calls[i]);
        setenv("STANDIN_NCCL_FAIL", value, 1);
        found *all = run_all(&j, codes);
        unsetenv("STANDIN_NCCL_FAIL");
        if (codes[0] != 1 || codes[1] != 1 || !strstr(all[1].said, words))
            fail_msg("%s: exit codes %d, %d: %s; wanted: %s", value, codes[0], codes[1], all[1].said, words);
        end_all(all);
    }
}
