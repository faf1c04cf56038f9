/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several GPUs that are emulated, a process for each rank, over stand-ins for NCCL and RCCL: losses of every
 * step are those of processors in the same layout, and of one rank; two runs have the same bits; a checkpoint goes on
 * with another number of ranks; what fails, hangs or dies is named. */
#include "support/test.h"
#include "gpu/emulated.h"
#include "gpu/rank_jobs.h"
#include "support/folder.h"

#include <signal.h>

/* --- layouts: shards and parts, stages, experts ------------------------------------------------------------------- */

#define COPIES "ranks=2 copies=2"
#define SHARDS "ranks=2 sharing=weights"
#define STAGES "ranks=2 stages=2 order=1f1b"
#define EXPERTS "ranks=2 experts=2 mixture=1 sharing=weights percent=50"

static const char *const divided[] = {
    SHARDS,
    "ranks=2 tensor=2 whole_rows=1",
    COPIES,
    "ranks=2 sharing=optimizer",
    "ranks=2 sharing=gradients narrow=1",
    "ranks=2 context=2 sharing=weights",
    "ranks=4 context=4 sharing=weights ring=1",
    "ranks=4 copies=2 sharing=weights",
    "ranks=4 tensor=2 sharing=weights keeps=1",
    "ranks=2 sharing=weights codes=1", /* parts of a fused weight are products, whose gradients are sums of their own */
};
static const char *const staged[] = {
    "ranks=2 stages=2 order=zbv chunks=2 layers=4 tied=1",
    "ranks=2 stages=2 order=gpipe tied=1",
    "ranks=2 stages=2 order=interleaved_zero layers=4",
    "ranks=2 stages=2 order=dual_v chunks=2 layers=4 samples=4",
    "ranks=2 stages=2 order=interleaved chunks=2 layers=4 tied=1 divide_head=1",
    "ranks=4 stages=4 order=1f1b layers=4",
    "ranks=4 stages=2 sharing=weights let_go=1 order=interleaved chunks=2 layers=4",
    "ranks=4 stages=2 sharing=optimizer tied=1 order=zbv chunks=2 layers=4",
    "ranks=4 stages=2 context=2 ring=1 sharing=weights order=1f1b",
    "ranks=8 stages=2 tensor=2 sharing=weights order=interleaved chunks=2 layers=4",
};
static const char *const of_experts[] = {
    EXPERTS,
    "ranks=2 experts=2 mixture=1 sharing=optimizer",
    "ranks=4 copies=2 experts=2 mixture=1 sharing=gradients",
    "ranks=4 experts=4 tensor=2 mixture=1 sharing=weights",
    "ranks=4 stages=2 experts=2 mixture=1 sharing=weights order=interleaved chunks=2 layers=4",
    "ranks=8 experts=8 mixture=1 samples=8 sharing=weights percent=100",
};

/* Those from number `from` on, `step` apart. */
static void train_layouts(const char *device, const char *const *all, size_t n, size_t from, size_t step)
{
    begin_on(device);
    for (size_t k = from; k < n; k += step) {
        plan_of p = plan_from(all[k]);
        if (!p.codes || strcmp(device, "hip") == 0) /* formats of gfx942 */
            trains(device, &p, k % 2 ? &tm_precision_bf16 : &tm_precision_f32);
    }
}

#define COUNT(all) (sizeof(all) / sizeof(all)[0])
#define TRAIN(all, device)                                                                                             \
    FULL_TEST(all##_train_on_##device)                                                                                 \
    {                                                                                                                  \
        train_layouts(#device, all, COUNT(all), 0, 2);                                                                 \
    }                                                                                                                  \
    FULL_TEST(all##_train_on_##device##_too)                                                                           \
    {                                                                                                                  \
        train_layouts(#device, all, COUNT(all), 1, 2);                                                                 \
    }
TRAIN(divided, cuda)
TRAIN(divided, hip)
TRAIN(staged, cuda)
TRAIN(staged, hip)
TRAIN(of_experts, cuda)

/* Shards of weights, parts of matrices, stages: every collective that layouts take, and messages. */
TEST(layouts_train_on_cuda)
{
    static const char *const all[] = { SHARDS, "ranks=2 tensor=2 whole_rows=1", STAGES };
    train_layouts("cuda", all, COUNT(all), 0, 1);
}

/* --- the same again ----------------------------------------------------------------------------------------------- */

/* Played, and launched one by one. */
FULL_TEST(two_runs_have_the_same_bits)
{
    const char *const all[] = { SHARDS, staged[0], EXPERTS };
    begin_on("cuda");
    for (size_t i = 0; i < COUNT(all); i++) {
        plan_of p = plan_from(all[i]);
        job     j = new_job("cuda", &p, &tm_precision_bf16);
        found   a = run_job(&j, TM_OK);
        for (int k = 0; k < 2; k++) {
            j.one_by_one = k;
            found b = run_job(&j, TM_OK);
            assert_memory_equal(a.loss, b.loss, sizeof a.loss);
            assert_memory_equal(a.norm, b.norm, sizeof a.norm);
            assert_true(a.weights == b.weights && a.weights != 0);
        }
    }
}

/* From two GPUs to four, to one, and to processors. */
FULL_TEST(checkpoints_go_on_with_other_ranks)
{
    static const char *const after[][2] = { { "hip", "ranks=4 copies=4" }, { "hip", "ranks=1" }, { "cpu", COPIES } };
    plan_of                  p = plan_from(SHARDS);
    begin_on("hip");
    job   whole = new_job("hip", &p, &tm_precision_f32);
    found wanted = run_job(&whole, TM_OK);
    for (size_t i = 0; i < COUNT(after); i++) {
        char   *folder = test_tree_make();
        plan_of other = plan_from(after[i][1]);
        job     first = whole, second = new_job(after[i][0], &other, &tm_precision_f32);
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

typedef struct {
    const char *layout, *set; /* "VARIABLE=VALUE"; without a sign nothing */
    const char *says[2];      /* each rank; NULL: anything */
    int         death;        /* of rank 1 */
} mishap;

/* Two ranks with a deadline of two seconds: both end with an error. */
static void goes_wrong(const mishap *m)
{
    plan_of p = plan_from(m->layout);
    int     codes[MOST];
    char    variable[40];
    size_t  sign = strcspn(m->set, "=");
    job     j = new_job("cuda", &p, &tm_precision_f32);
    j.deadline = 2;
    j.death = m->death;
    snprintf(variable, sizeof variable, "%.*s", (int)sign, m->set);
    if (m->set[sign]) setenv(variable, m->set + sign + 1, 1);
    found *all = run_all(&j, codes);
    unsetenv(variable);
    for (int r = 0; r < 2; r++) {
        if (r == 1 && m->death && codes[1] == 128 + SIGKILL) continue;
        if (codes[r] != 1 || (m->says[r] && !strstr(all[r].said, m->says[r])))
            fail_msg("%s, %s: rank %d: exit code %d, status %d: %s; wanted: %s", m->layout, m->set, r, codes[r],
                     (int)all[r].status, all[r].said, m->says[r] ? m->says[r] : "a failure");
    }
    end_all(all);
}

/* Of stages rank 1 is in the communicator of activations the receiver, in that of gradients the sender. */
FULL_TEST(failures_name_rank_and_call)
{
    static const mishap all[] = {
        { COPIES, "STANDIN_HANG=1@2=",
          .says = { "rank 0 has waited 2 s for the end of all-reduce (sum) of ",
                    "rank 1 has waited 2 s for the end of all-reduce (sum) of " } },
        { COPIES, "STANDIN_HANG=1@2=",
          .says = { "float32 'gradients of layer 1' on GPU 0 (0000:10:00.0); all ranks are there",
                    "on GPU 1 (0000:11:00.0)" } },
        { COPIES, "STANDIN_RETURN=1@2=3", .says = { "rank 1", "rank 1: ncclAllReduce (all-reduce (sum) of " } },
        { COPIES, "dies", { "rank 1" }, SIGKILL },
        { COPIES, "stops", { "rank 1 of group world is late" }, SIGSTOP },
        { STAGES, "STANDIN_HANG=1@2=",
          .says = { "bytes 'gradients of stage 1, from rank 1' on GPU 0 (0000:10:00.0)",
                    "bytes 'activations of stage 0, from rank 0' on GPU 1 (0000:11:00.0)" } },
        { STAGES, "STANDIN_NCCL_FAIL=1:ncclRecv@2=3",
          .says = { "rank 1", "'activations of stage 0, from rank 0'): internal" } },
        { STAGES, "STANDIN_NCCL_FAIL=0:ncclSend@2=3",
          .says = { "'activations of stage 0, to rank 1'): internal", "rank 0" } },
        { STAGES, "STANDIN_ASYNC=1@2=6", .says = { "rank 1", "rank 1: what was under way (" } },
        { EXPERTS, "STANDIN_NCCL_FAIL=1:ncclAllGather@1=3", .says = { NULL, "rank 1: ncclAllGather (all-" } },
        { EXPERTS, "STANDIN_NCCL_FAIL=1:ncclSend@3=3", .says = { NULL, "rank 1: ncclSend (all-" } },
        { EXPERTS, "STANDIN_NCCL_FAIL=1:ncclRecv@3=3", .says = { NULL, "rank 1: ncclRecv (all-" } },
        { EXPERTS, "STANDIN_NCCL_FAIL=1:ncclGroupEnd@7=6", .says = { NULL, "rank 1: ncclGroupEnd (all-" } },
    };
    begin_on("cuda");
    for (size_t i = 0; i < COUNT(all); i++) goes_wrong(&all[i]);
}

/* Each call of the library fails once on a rank, each of the driver on both. */
FULL_TEST(every_call_fails_once)
{
    static const char *const library[] = { "ncclCommInitRankConfig@3", "ncclSend@1", "ncclRecv@1", "ncclAllReduce@1",
                                           "ncclCommGetAsyncError@1" };
    /* this one, and all behind it */
    static const char driver[] =
        "cuMemAlloc_v2@3 cuMemHostAlloc@3 cuStreamCreate@5 cuEventCreate@5 cuEventRecord@30 "
        "cuStreamWaitEvent@30 cuMemcpyDtoDAsync_v2@5 cuMemcpyDtoHAsync_v2@40 cuMemcpyHtoDAsync_v2@5 "
        "cuStreamQuery@40 cuStreamBeginCapture_v2@3 cuStreamEndCapture@3 "
        "cuGraphInstantiateWithFlags@3 cuGraphLaunch@2 cuLaunchKernel@50";
    const char *call;
    char        value[80], words[64];
    begin_on("cuda");
    for (size_t i = 0; i < COUNT(library); i++)
        for (int r = 0; r < 2; r++) {
            mishap m = { .layout = STAGES, .set = value };
            snprintf(value, sizeof value, "STANDIN_NCCL_FAIL=%d:%s=3", r, library[i]);
            snprintf(words, sizeof words, "rank %d: %.*s", r, (int)strcspn(library[i], "@"), library[i]);
            m.says[r] = words;
            goes_wrong(&m);
        }
    for (int i = 0; (call = word_of(driver, i)); i++) {
        snprintf(value, sizeof value, "STANDIN_GPU_FAIL=%s=2", call);
        goes_wrong(&(mishap){ .layout = STAGES, .set = value });
    }
}
