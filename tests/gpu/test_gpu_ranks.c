/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several GPUs that are emulated, a process for each rank, over stand-ins for NCCL and RCCL: losses of every
 * step are those of processors in the same layout, and of one rank; two runs have the same bits; a checkpoint goes on
 * with another number of ranks; what fails, hangs or dies is named. */
#include "support/test.h"
#include "gpu/rank_jobs.h"
#include "support/folder.h"
#include "support/training.h"

#include "base/clock.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- layouts ------------------------------------------------------------------------------------------------------ */

static const plan_of layouts[] = {
    { .words = "two copies", .ranks = 2, .copies = 2 },
    { .words = "two shards of the optimizer", .ranks = 2, .sharing = TM_SHARE_OPTIMIZER },
    { .words = "two shards of gradients", .ranks = 2, .sharing = TM_SHARE_GRADIENTS },
    { .words = "two shards of weights", .ranks = 2, .sharing = TM_SHARE_ALL },
    { .words = "parts of matrices", .ranks = 2, .tensor = 2 },
    { .words = "parts of matrices, whole rows", .ranks = 2, .tensor = 2, .whole_rows = true },
    { .words = "parts of sequences", .ranks = 2, .context = 2, .sharing = TM_SHARE_ALL },
    { .words = "keys in a ring", .ranks = 2, .context = 2, .sharing = TM_SHARE_ALL, .ring = true },
    { .words = "sums in bfloat16", .ranks = 2, .sharing = TM_SHARE_ALL, .narrow = true },
    { .words = "keys in a ring of four", .ranks = 4, .context = 4, .sharing = TM_SHARE_ALL, .ring = true },
    { .words = "copies of shards", .ranks = 4, .copies = 2, .sharing = TM_SHARE_ALL },
    { .words = "shards of parts", .ranks = 4, .tensor = 2, .sharing = TM_SHARE_ALL, .keeps = true },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* `from`, and those `step` apart, up to `last`. */
static void all_layouts(const char *device, int from, int step, int last, const tm_precision *precision)
{
    static const plan_of one = { .words = "one rank", .ranks = 1 };
    begin_on(device);
    job   j = new_job(device, &one, precision);
    found alone = run_job(&j, TM_OK);
    for (int k = from; k <= last; k += step) trains(device, &layouts[k], precision, &alone);
}

TEST(layouts_train_on_cuda)
{
    /* Quick: shards of weights, and parts of matrices: every collective that layouts take. */
    bool full = test_is_full();
    all_layouts("cuda", full ? 0 : 3, full ? 1 : 2, full ? LAYOUTS - 1 : 5, &tm_precision_f32);
}

FULL_TEST(layouts_train_on_hip)
{
    all_layouts("hip", test_is_full() ? 0 : 3, test_is_full() ? 1 : 8, LAYOUTS - 1, &tm_precision_bf16);
}

/* Parts of a fused weight are products of their own, whose gradients are sums of their own. */
FULL_TEST(codes_are_multiplied_in_shards)
{
    static const plan_of with[] = { { .words = "one rank, codes", .ranks = 1, .codes = true },
                                    { .words = "shards, codes", .ranks = 2, .sharing = TM_SHARE_ALL, .codes = true } };
    begin_on("hip");
    job   j = new_job("hip", &with[0], &tm_precision_f32);
    found alone = run_job(&j, TM_OK);
    trains("hip", &with[1], &tm_precision_f32, &alone);
}

/* --- the same again ----------------------------------------------------------------------------------------------- */

/* Played, and launched one by one. */
FULL_TEST(two_runs_have_the_same_bits)
{
    begin_on("cuda");
    job   j = new_job("cuda", &layouts[3], &tm_precision_bf16);
    found a = run_job(&j, TM_OK);
    for (int k = 0; k < 2; k++) {
        j.one_by_one = k;
        found b = run_job(&j, TM_OK);
        assert_memory_equal(a.loss, b.loss, sizeof a.loss);
        assert_memory_equal(a.norm, b.norm, sizeof a.norm);
        assert_true(a.weights == b.weights && a.weights != 0);
    }
}

/* From two GPUs to four, to one, and to processors. */
FULL_TEST(checkpoints_go_on_with_other_ranks)
{
    static const plan_of four = { .words = "four copies", .ranks = 4, .copies = 4 },
                         one = { .words = "one rank", .ranks = 1 };
    static const struct {
        const char    *device;
        const plan_of *plan;
    } after[] = { { "hip", &four }, { "hip", &one }, { "cpu", &layouts[0] } };
    begin_on("hip");
    job   whole = new_job("hip", &layouts[3], &tm_precision_f32);
    found wanted = run_job(&whole, TM_OK);
    for (size_t i = 0; i < sizeof after / sizeof after[0]; i++) {
        char *folder = test_tree_make();
        job   first = whole, second = new_job(after[i].device, after[i].plan, &tm_precision_f32);
        first.folder = second.folder = folder;
        first.stop_after = 2;
        found a = run_job(&first, TM_INTERRUPTED);
        assert_int_equal(a.last_step, 2);
        found b = run_job(&second, TM_OK);
        compare_runs(&second, &b, &wanted, 3, 1e-4);
        test_tree_remove(folder);
    }
}

/* --- when something goes wrong ------------------------------------------------------------------------------------ */

/* A job of two copies with a deadline of a second, in which rank 1 meets that: what rank 0 says, and the second one's
 * end. */
static void goes_wrong(const char *variable, const char *value, int death, const char *of_0, const char *of_1)
{
    int codes[MOST];
    job j = new_job("cuda", &layouts[0], &tm_precision_f32);
    j.deadline = 2;
    j.death = death;
    if (variable) setenv(variable, value, 1);
    found *all = run_all(&j, codes);
    if (variable) unsetenv(variable);
    if (all[0].status == TM_OK || codes[0] != 1 || !strstr(all[0].said, of_0))
        fail_msg("%s=%s: rank 0: exit code %d, status %d: %s; wanted: %s", variable, value, codes[0],
                 (int)all[0].status, all[0].said, of_0);
    if (of_1 ? !strstr(all[1].said, of_1) : codes[1] != 128 + SIGKILL)
        fail_msg("%s=%s: rank 1: exit code %d: %s; wanted: %s", variable, value, codes[1], all[1].said, of_1);
    end_all(all);
}

FULL_TEST(failures_name_rank_and_call)
{
    begin_on("cuda");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "rank 0 has waited 2 s for the end of all-reduce (sum) of ",
               "rank 1 has waited 2 s for the end of all-reduce (sum) of ");
    goes_wrong("STANDIN_HANG", "1@2=", 0, "float32 'gradients of layer 1' on GPU 0 (0000:10:00.0); all ranks are there",
               "on GPU 1 (0000:11:00.0)");
    goes_wrong("STANDIN_RETURN", "1@2=3", 0, "rank 1", "rank 1: ncclAllReduce (all-reduce (sum) of ");
    goes_wrong(NULL, NULL, SIGKILL, "rank 1", NULL);
    goes_wrong(NULL, NULL, SIGSTOP, "rank 1 of group world is late", NULL);
}
