/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines on several GPUs that are emulated: every order of stages trains as processors do in the same layout, and as
 * one GPU; two runs have the same bits, played or launched one by one; who hangs, dies or fails between two stages is
 * named. */
#include "support/test.h"
#include "gpu/rank_jobs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGES(n) .ranks = (n), .stages = (n)
static const plan_of layouts[] = {
    { .words = "1F1B", STAGES(2), .order = TM_PIPELINE_1F1B },
    { .words = "interleaved", STAGES(2), .order = TM_PIPELINE_INTERLEAVED, .chunks = 2, .layers = 4 },
    { .words = "ZBV, tied", STAGES(2), .order = TM_PIPELINE_ZBV, .chunks = 2, .layers = 4, .tied = true },
    { .words = "GPipe, tied", STAGES(2), .order = TM_PIPELINE_GPIPE, .tied = true },
    { .words = "zero bubble", STAGES(2), .order = TM_PIPELINE_INTERLEAVED_ZERO, .layers = 4 },
    { .words = "DualPipeV", STAGES(2), .order = TM_PIPELINE_DUAL_V, .chunks = 2, .layers = 4, .samples = 4 },
    { .words = "a divided head", STAGES(2), .order = TM_PIPELINE_1F1B, .divide_head = true },
    { .words = "a divided head, tied, interleaved",
      STAGES(2),
      .order = TM_PIPELINE_INTERLEAVED,
      .chunks = 2,
      .layers = 4,
      .tied = true,
      .divide_head = true },
    { .words = "1F1B of four", STAGES(4), .order = TM_PIPELINE_1F1B, .layers = 4 },
    { .words = "ZBV of four, a divided head",
      STAGES(4),
      .order = TM_PIPELINE_ZBV,
      .chunks = 2,
      .layers = 8,
      .samples = 8,
      .divide_head = true },
    { .words = "interleaved zero bubble of four",
      STAGES(4),
      .order = TM_PIPELINE_INTERLEAVED_ZERO,
      .chunks = 2,
      .layers = 8 },
    { .words = "DualPipeV of four", STAGES(4), .order = TM_PIPELINE_DUAL_V, .chunks = 2, .layers = 8, .samples = 8 },
    { .words = "stages of copies", .ranks = 4, .stages = 2, .copies = 2, .order = TM_PIPELINE_1F1B },
    { .words = "stages of shards", .ranks = 4, .stages = 2, .sharing = TM_SHARE_ALL, .order = TM_PIPELINE_1F1B },
    { .words = "stages of shards that are let go",
      .ranks = 4,
      .stages = 2,
      .sharing = TM_SHARE_ALL,
      .let_go = true,
      .order = TM_PIPELINE_INTERLEAVED,
      .chunks = 2,
      .layers = 4 },
    { .words = "stages of shards of the optimizer",
      .ranks = 4,
      .stages = 2,
      .sharing = TM_SHARE_OPTIMIZER,
      .tied = true,
      .order = TM_PIPELINE_ZBV,
      .chunks = 2,
      .layers = 4 },
    { .words = "stages of parts of matrices", .ranks = 4, .stages = 2, .tensor = 2, .order = TM_PIPELINE_1F1B },
    { .words = "stages of parts of sequences, keys in a ring",
      .ranks = 4,
      .stages = 2,
      .context = 2,
      .ring = true,
      .sharing = TM_SHARE_ALL,
      .order = TM_PIPELINE_1F1B },
    { .words = "1F1B of eight", STAGES(8), .order = TM_PIPELINE_1F1B, .layers = 8, .samples = 8 },
    { .words = "stages of shards of parts",
      .ranks = 8,
      .stages = 2,
      .tensor = 2,
      .sharing = TM_SHARE_ALL,
      .order = TM_PIPELINE_INTERLEAVED,
      .chunks = 2,
      .layers = 4 },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], HALF = LAYOUTS / 2 + 1 };

static void train_layouts(const char *device, int from, int to, const tm_precision *precision)
{
    begin_on(device);
    for (int k = from; k < to; k++) {
        const plan_of *p = &layouts[k];
        plan_of one = { .words = "one rank", .ranks = 1, .samples = p->samples, .layers = p->layers, .tied = p->tied };
        job     j = new_job(device, &one, precision);
        found   alone = run_job(&j, TM_OK);
        trains(device, p, precision, &alone);
    }
}

FULL_TEST(stages_train_on_cuda)
{
    train_layouts("cuda", 0, 2, &tm_precision_f32);
}

FULL_TEST(more_stages_train_on_cuda)
{
    train_layouts("cuda", 2, HALF, &tm_precision_f32);
}

FULL_TEST(all_stages_train_on_cuda)
{
    train_layouts("cuda", HALF, LAYOUTS, &tm_precision_f32);
}

FULL_TEST(stages_train_on_hip)
{
    train_layouts("hip", 0, HALF, &tm_precision_bf16);
}

FULL_TEST(all_stages_train_on_hip)
{
    train_layouts("hip", HALF, LAYOUTS, &tm_precision_bf16);
}

/* Played, and launched one by one. */
FULL_TEST(two_runs_have_the_same_bits)
{
    begin_on("cuda");
    job   j = new_job("cuda", &layouts[2], &tm_precision_bf16);
    found a = run_job(&j, TM_OK);
    for (int k = 0; k < 2; k++) {
        j.one_by_one = k;
        found b = run_job(&j, TM_OK);
        assert_memory_equal(a.loss, b.loss, sizeof a.loss);
        assert_memory_equal(a.norm, b.norm, sizeof a.norm);
        assert_true(a.weights == b.weights && a.weights != 0);
    }
}

/* --- when something goes wrong ------------------------------------------------------------------------------------ */

/* Two stages with a deadline of two seconds: both end with an error; what they say, NULL: anything. */
static void goes_wrong(const char *variable, const char *value, int death, const char *of_0, const char *of_1)
{
    int codes[MOST];
    job j = new_job("cuda", &layouts[0], &tm_precision_f32);
    j.deadline = 2;
    j.death = death;
    if (variable) setenv(variable, value, 1);
    found *all = run_all(&j, codes);
    if (variable) unsetenv(variable);
    const char *of[] = { of_0, of_1 };
    for (int r = 0; r < 2; r++) {
        if (r == 1 && death && codes[1] == 128 + SIGKILL) continue;
        if (codes[r] != 1 || (of[r] && !strstr(all[r].said, of[r])))
            fail_msg("%s=%s: rank %d: exit code %d, status %d: %s; wanted: %s", variable, value, r, codes[r],
                     (int)all[r].status, all[r].said, of[r] ? of[r] : "a failure");
    }
    end_all(all);
}

/* Rank 1 is in the communicator of activations the receiver, in that of gradients the sender. */
FULL_TEST(failures_name_rank_and_call)
{
    begin_on("cuda");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "rank 0 has waited 2 s for the end of message of ",
               "rank 1 has waited 2 s for the end of message of ");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "bytes 'gradients of stage 1, from rank 1' on GPU 0 (0000:10:00.0)",
               "bytes 'activations of stage 0, from rank 0' on GPU 1 (0000:11:00.0)");
    goes_wrong("STANDIN_NCCL_FAIL", "1:ncclRecv@2=3", 0, "rank 1", "'activations of stage 0, from rank 0'): internal");
    goes_wrong("STANDIN_NCCL_FAIL", "0:ncclSend@2=3", 0, "'activations of stage 0, to rank 1'): internal", "rank 0");
    goes_wrong("STANDIN_ASYNC", "1@2=6", 0, "rank 1", "rank 1: what was under way (");
    goes_wrong(NULL, NULL, SIGKILL, "rank 1", NULL);
    goes_wrong(NULL, NULL, SIGSTOP, "rank 1 of group world is late", NULL);
}

/* Each call of the library fails once on a rank, each of the driver on both. */
FULL_TEST(every_call_fails_once)
{
    static const char *const library[] = { "ncclCommInitRankConfig", "ncclSend", "ncclRecv", "ncclAllReduce",
                                           "ncclCommGetAsyncError" };
    static const struct {
        const char *name;
        int         call; /* this one, and all behind it */
    } driver[] = { { "cuMemAlloc_v2", 3 },
                   { "cuMemHostAlloc", 3 },
                   { "cuStreamCreate", 5 },
                   { "cuEventCreate", 5 },
                   { "cuEventRecord", 30 },
                   { "cuStreamWaitEvent", 30 },
                   { "cuMemcpyDtoDAsync_v2", 5 },
                   { "cuMemcpyDtoHAsync_v2", 40 },
                   { "cuMemcpyHtoDAsync_v2", 5 },
                   { "cuStreamQuery", 40 },
                   { "cuStreamBeginCapture_v2", 3 },
                   { "cuStreamEndCapture", 3 },
                   { "cuGraphInstantiateWithFlags", 3 },
                   { "cuGraphLaunch", 2 },
                   { "cuLaunchKernel", 50 } };
    char value[64], words[64];
    begin_on("cuda");
    goes_wrong("STANDIN_NCCL_FAIL", "0:ncclGetUniqueId@2=2", 0, "ncclGetUniqueId", "ncclGetUniqueId");
    for (size_t i = 0; i < sizeof library / sizeof library[0]; i++)
        for (int r = 0; r < 2; r++) {
            snprintf(value, sizeof value, "%d:%s@%d=3", r, library[i], i == 0 ? 3 : 1);
            snprintf(words, sizeof words, "rank %d: %s", r, library[i]);
            goes_wrong("STANDIN_NCCL_FAIL", value, 0, r == 0 ? words : NULL, r == 1 ? words : NULL);
        }
    for (size_t i = 0; i < sizeof driver / sizeof driver[0]; i++) {
        snprintf(value, sizeof value, "%s@%d=2", driver[i].name, driver[i].call);
        goes_wrong("STANDIN_GPU_FAIL", value, 0, NULL, NULL);
    }
}
