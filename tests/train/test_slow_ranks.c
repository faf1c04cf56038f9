/* SPDX-License-Identifier: Apache-2.0 */
/* Who is behind, and who is named while a run of several ranks goes on, by clocks of which the test knows how fast they
 * go: each rank's own goes on whenever it looks at it. What ranks compute is the same, whoever is slow.
 */
#include "support/test.h"
#include "support/looked_clock.h"
#include "support/training.h"

#include "rank_run.h"
#include "run_fixture.h"

enum { STEPS = 40, MOST_RANKS = 4, DEADLINE = 1000000, USUAL = 1000000 };

typedef struct {
    tm_sink      sink;
    int          ranks, stages;
    double       share[MOST_RANKS]; /* by which a rank's work takes longer */
    int          told;              /* findings in the course of the run */
    tm_straggler first, last;       /* of them; of those at the end */
    size_t       n_last;
    tm_rank_told ranks_told[MOST_RANKS];
    size_t       n_ranks_told;
    bool         has_host; /* which the world tells as long as it is there */
    double       losses[STEPS];
} job;

static void listen(tm_sink *sink, const tm_event *event)
{
    job *j = (job *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) j->losses[event->step_done.step - 1] = event->step_done.loss;
    if (event->kind == TM_EVENT_STRAGGLER && j->told++ == 0) {
        j->first = event->straggler;
        j->has_host = event->straggler.host[0] != 0;
    }
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    j->n_ranks_told = event->run_ended.n_ranks;
    CHECK(j->n_ranks_told <= MOST_RANKS);
    memcpy(j->ranks_told, event->run_ended.ranks, j->n_ranks_told * sizeof *j->ranks_told);
    j->n_last = event->run_ended.n_stragglers;
    if (j->n_last > 0) j->last = event->run_ended.stragglers[0];
}

static tm_run_options options_of(const job *j)
{
    tm_run_options o = small_run("synthetic", STEPS);
    o.learning_rate = 3e-3;
    o.schedule.warmup_steps = 0, o.schedule.decay_ratio = 0;
    o.step.shape.dim = 32, o.step.shape.ffn_dim = 64, o.step.shape.head_dim = 16;
    o.step.seq = o.source.seq = 16;
    o.step.n_fields = 0;
    o.step.micro_batch = 1;
    o.step.accumulation = j->stages;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = j->ranks / j->stages;
    o.step.layout.mesh.degree[TM_AXIS_PP] = j->stages;
    return o;
}

static void run_rank(tm_comm *comm, void *context)
{
    job           *j = context;
    tm_run_options o = options_of(j);
    tm_device     *device;
    look_ns = (int64_t)(USUAL * (1 + j->share[tm_comm_rank(comm)]));
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    CHECK_OK(rank_run(comm, &o, device, &j->sink, NULL, NULL, err));
}

/* By which the others of its stage take longer, in the middle; -1: there are none. */
static double middle_of(const job *j, int rank)
{
    const int each = j->ranks / j->stages;
    double    others[MOST_RANKS];
    int       n = 0;
    for (int r = rank / each * each; r < (rank / each + 1) * each; r++) {
        if (r == rank) continue;
        int at = n++;
        for (; at > 0 && others[at - 1] > j->share[r]; at--) others[at] = others[at - 1];
        others[at] = j->share[r];
    }
    return n == 0 ? -1 : (others[(n - 1) / 2] + others[n / 2]) / 2;
}

/* A step of a rank is some dozens of looks: long enough for an exchange behind each. Stages of a pipeline do not work
 * alike; alone in its own, a rank is compared with nobody. */
TEST(a_rank_is_behind_the_others_of_its_stage_and_is_named)
{
    static const struct {
        int    ranks, stages;
        double share[MOST_RANKS];
        int    slow; /* who is named in the run; -1: nobody; -2: is not looked at */
    } cases[] = {
        { 2, 1, { 0, 0.1 }, 1 },
        { 2, 1, { 0.03, 0 }, 0 },
        { 3, 1, { 0, 0, 0.1 }, 2 },
        { 3, 1, { 0, 0, 0 }, -1 },
        { 4, 2, { 0, 0, 0, 0.05 }, 3 },
        { 2, 2, { 0, 0.3 }, -1 },
        { 4, 2, { 0, 0, 0.3, 0.3 }, -1 },
        { 4, 1, { 0.05, 0.1, 0.2, 0.31 }, -2 },
        { 4, 2, { 0, 0.09, 0.4, 0.3 }, -2 },
    };
    double losses[STEPS] = { 0 };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        job j = { .sink = { .handle = listen }, .ranks = cases[c].ranks, .stages = cases[c].stages };
        memcpy(j.share, cases[c].share, sizeof j.share);
        run_world(j.ranks, NULL, DEADLINE, false, run_rank, &j);
        if (c == 2) memcpy(losses, j.losses, sizeof losses);
        if (c == 3) assert_memory_equal(losses, j.losses, sizeof losses); /* whoever is slow */
        assert_int_equal(j.n_ranks_told, j.ranks);
        for (int r = 0; r < j.ranks; r++) {
            const tm_rank_told *t = &j.ranks_told[r];
            double              middle = middle_of(&j, r), wanted = (1 + j.share[r]) / (1 + middle) - 1;
            if (middle >= 0 && !(fabs(t->behind - wanted) < 1e-6))
                fail_msg("case %zu, rank %d: %.9g behind, not %.9g", c, r, t->behind, wanted);
            assert_true(t->rank == r && t->busy_seconds > 0 && t->busy_seconds < t->step_seconds);
        }
        if (cases[c].slow == -1) assert_true(j.told == 0 && j.n_last == 0);
        if (cases[c].slow < 0) continue;
        if (j.told != 1) fail_msg("case %zu: %d findings", c, j.told);
        assert_true(j.first.rank == cases[c].slow && !j.first.disturbed && !j.first.again && j.has_host);
        assert_true(fabs(j.first.behind - j.share[cases[c].slow]) < 1e-6);
        assert_true(j.first.step <= 20 && j.first.since == 1);
        assert_true(j.n_last == 1 && j.last.rank == j.first.rank && j.last.step == j.first.step);
        assert_true(j.last.waited_seconds >= j.first.waited_seconds);
    }
}

TESTS_ALONE
