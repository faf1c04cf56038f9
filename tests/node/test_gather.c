/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes of the ranks of a world of threads, in those of the first one: each has other numbers of figures, facts and
 * findings. */
#include "support/test.h"

#include "apps/node/node.h"

#include <pthread.h>

enum { RANKS = 5 };

typedef struct {
    tm_comm         *comm;
    int              rank;
    tm_node_outcome *outcomes;
    tm_status        st;
    tm_error         err;
} rank_of;

/* Rank r: r figures, 3 - r % 3 facts, a finding at rank 2 of which it accuses rank 4, one that is told by all but the
 * first. The last one skips all. */
static void fill(tm_node_outcome *o, int r)
{
    for (int i = 0; i < r; i++) tm_node_figure_add(o, &(tm_node_figure){ .name = "speed", .value = 10 * r + i });
    for (int i = 0; i < 3 - r % 3; i++) tm_node_fact_add(o, "hash", "core", i == 1, (char[]){ (char)('a' + r), 0 });
    if (r == 2) tm_node_find(o, 4, "there", "seen by %d", r);
    if (r == 3) tm_node_undecided(o, "noise");
    if (r > 0) tm_node_tell(o, -1, "here", "told by %d", r);
    if (r == RANKS - 1) tm_node_skip(o, "not here");
    o->seconds = r;
}

static void *gather(void *argument)
{
    rank_of *r = argument;
    size_t   n;
    tm_node_checks(&n);
    fill(&r->outcomes[0], r->rank);
    for (size_t i = 1; i < n; i++) tm_node_skip(&r->outcomes[i], "not asked for");
    r->st = tm_node_gather(r->comm, r->outcomes, &r->err);
    tm_comm_close(r->comm);
    return NULL;
}

static void see(const tm_node_outcome *o)
{
    size_t figures = 0, facts = 0;
    assert_int_equal(o->verdict, TM_NODE_FAIL);
    assert_int_equal(o->n_figures, 0 + 1 + 2 + 3 + 4);
    assert_int_equal(o->n_facts, 3 + 2 + 1 + 3 + 2);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < r; i++, figures++) {
            assert_int_equal(o->figures[figures].rank, r);
            assert_true(o->figures[figures].value == 10 * r + i);
        }
        for (int i = 0; i < 3 - r % 3; i++, facts++) {
            assert_int_equal(o->facts[facts].rank, r);
            assert_int_equal(o->facts[facts].text[0], 'a' + r);
            assert_int_equal(o->facts[facts].kept, i == 1);
        }
    }
    assert_int_equal(o->n_findings, 1);
    assert_int_equal(o->findings[0].rank, 4);
    assert_string_equal(o->findings[0].text, "seen by 2");
    assert_int_equal(o->n_told, RANKS - 1);
    for (int r = 1; r < RANKS; r++) assert_int_equal(o->told[r - 1].rank, r);
    assert_true(o->seconds == RANKS - 1);
}

TEST(outcomes_of_all_ranks)
{
    size_t    n;
    tm_comm  *comm[RANKS];
    rank_of   ranks[RANKS];
    pthread_t threads[RANKS];
    tm_error  err = { 0 };
    tm_node_checks(&n);
    assert_int_equal(tm_comm_open_threads(RANKS, 60, comm, &err), TM_OK);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (rank_of){ .comm = comm[r], .rank = r, .outcomes = calloc(n, sizeof(tm_node_outcome)) };
        assert_int_equal(pthread_create(&threads[r], NULL, gather, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++)
        if (ranks[r].st != TM_OK) fail_msg("rank %d: %s", r, ranks[r].err.text);
    see(&ranks[0].outcomes[0]);
    if (n > 1) assert_int_equal(ranks[0].outcomes[1].verdict, TM_NODE_SKIP);
    for (int r = 0; r < RANKS; r++) {
        for (size_t i = 0; i < n; i++) tm_node_outcome_fini(&ranks[r].outcomes[i]);
        free(ranks[r].outcomes);
    }
}
