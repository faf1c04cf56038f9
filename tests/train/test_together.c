/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are not of one run are listed by what they lack; those that most ranks agree
 * with are right. */
#include "support/test.h"
#include "data/source.h"

#include <stdio.h>

#define run_world world_of_run /* the name is that of another function here */
#include "train/run/run_state.h"
#undef run_world
#include "rank_run.h"

enum { MOST = 40, DEADLINE = 120 };

typedef struct {
    uint64_t  configuration[MOST], order[MOST];
    uint64_t  seed[MOST]; /* of the data */
    tm_status status[MOST];
    tm_error  err[MOST];
} job;

static void check_same(tm_comm *comm, void *context)
{
    job              *j = context;
    int               rank = tm_comm_rank(comm), ranks = tm_comm_size(comm);
    tm_pipeline_list  list = { .hash = j->order[rank] };
    tm_source_options data = { .name = "mock", .vocab = 64, .seq = 8, .seed = 7 };
    tm_run_options    o = { .config_hash = j->configuration[rank] };
    tm_source        *source;
    tm_ranks          own;
    if (j->seed[rank]) data.name = "synthetic";
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = ranks;
    if (j->order[rank]) o.step.layout.list = &list;
    rank_join(comm, &o, &own);
    CHECK_OK(tm_source_open(&data, &source, err));
    run r = { .options = &o, .source = source };
    j->err[rank] = (tm_error){ 0 };
    j->status[rank] = run_check_same(&r, &j->err[rank]);
    tm_source_close(source);
    tm_ranks_close(&own);
}

/* All ranks say the same; `said` NULL: nothing. */
static void check(job *j, int ranks, const char *said)
{
    char wanted[400];
    snprintf(wanted, sizeof wanted,
             "not all ranks are of one run: %s differs from that of the others; start all %d with the same program, "
             "configuration and data",
             said ? said : "", ranks);
    run_world(ranks, NULL, DEADLINE, false, check_same, j);
    for (int r = 0; r < ranks; r++) {
        const char *at = strstr(j->err[r].text, "not all");
        assert_int_equal(j->status[r], said ? TM_INVALID : TM_OK);
        if (said) assert_string_equal(at ? at : j->err[r].text, wanted);
    }
}

TEST(ranks_that_differ_are_listed)
{
    job j = { .configuration = { 0 } };
    check(&j, 1, NULL);
    check(&j, 5, NULL);
    for (int r = 0; r < MOST; r++) j.configuration[r] = 3, j.order[r] = 4;
    check(&j, 5, NULL);
    j.order[0] = 5;
    check(&j, 5, "the configuration of rank 0");
    j.configuration[0] = 3 ^ 4 ^ 5; /* what the file changes counts beside the keys */
    check(&j, 5, NULL);
    j = (job){ .configuration = { 0, 0, 1, 0, 1 } };
    check(&j, 5, "the configuration of ranks 2, 4");
    j.seed[1] = 1;
    check(&j, 5, "the configuration of ranks 2, 4; the data of rank 1");
    j = (job){ .configuration = { 0, 0, 1, 1 } };
    check(&j, 4, "the configuration of ranks 2, 3");
    j = (job){ .configuration = { 9, 8, 8, 1 } };
    check(&j, 4, "the configuration of ranks 0, 3");
}

/* --- what ranks have read ---------------------------------------------------------------------------------------- */

typedef struct {
    bool    alike; /* every rank reads what rank 0 does */
    int64_t seen[MOST], unique[MOST];
} count;

static void count_samples(tm_comm *comm, void *context)
{
    count            *k = context;
    int               rank = tm_comm_rank(comm), ranks = tm_comm_size(comm);
    tm_source_options data = { .name = "mock", .vocab = 64, .seq = 8, .seed = 7 };
    tm_run_options    o = { .steps = 1 };
    tm_source        *source;
    tm_ranks          own;
    tm_batch          batch;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = ranks;
    rank_join(comm, &o, &own);
    CHECK_OK(tm_source_open(&data, &source, err));
    tm_loader_part part = { k->alike ? 0 : rank, ranks };
    run            r = { .options = &o, .source = source };
    r.loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, 2 * ranks, part, 0, 0);
    for (int i = 0; i < 3; i++) tm_loader_next(r.loader, &batch);
    CHECK_OK(run_count_samples(&r, &k->seen[rank], &k->unique[rank], err));
    tm_loader_close(r.loader);
    tm_source_close(source);
    tm_ranks_close(&own);
}

/* 3 batches of 2 samples each: those of all ranks count, and the same one on two ranks is one. */
TEST(samples_of_all_ranks_count)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int alike = 0; alike < 2; alike++) {
            count k = { .alike = alike };
            run_world(ranks, NULL, DEADLINE, false, count_samples, &k);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(k.seen[r], 6 * ranks);
                assert_int_equal(k.unique[r], alike ? 6 : 6 * ranks);
            }
        }
}
