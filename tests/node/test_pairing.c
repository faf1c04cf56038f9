/* SPDX-License-Identifier: Apache-2.0 */
/* The groups by which a bad rank or link is found: in made-up worlds of 4 to 1,024, and in worlds of threads on a clock
 * that is made up. */
#include "support/test.h"

#include "base/random.h"
#include "comm/world.h"
#include "apps/node/among.h"
#include "apps/node/pairing.h"

/* A world with one bad end (b < 0), a bad link (a, b), or nothing (a < 0). Returns how many groupings it took. */
static int play(int n, int a, int b, double factor, double noise, uint64_t seed, tm_pairing_verdict *v)
{
    tm_pairing p = { .n = n, .least = 0.25 };
    uint64_t   at = 0;
    for (tm_grouping *g = tm_pairing_next(&p); g; g = tm_pairing_next(&p)) {
        int size[2] = { 0 };
        for (int i = 0; i < n; i++) size[tm_pairing_side(&p, g->mask, i)]++;
        for (int side = 0; side < 2; side++) {
            const bool in =
                a >= 0 && tm_pairing_side(&p, g->mask, a) == side && (b < 0 || tm_pairing_side(&p, g->mask, b) == side);
            assert_int_equal(size[side], g->size[side]);
            for (int k = 0; k < TM_PAIRING_PARTS; k++)
                g->seconds[side][k] = size[side] < 2 ? 0
                                                     : (double)(size[side] - 1) / size[side] * (in ? factor : 1) *
                                                           exp(noise * tm_random_normal(seed, 1, at++));
        }
    }
    *v = tm_pairing_judge(&p);
    return p.asked;
}

static int bits_of(int n)
{
    int bits = 0;
    while (1 << bits < n) bits++;
    return bits;
}

TEST(the_bad_end_or_link)
{
    tm_pairing_verdict v;
    for (int n = 4; n <= 21; n++) /* all of them */
        for (int a = 0; a < n; a++)
            for (int b = -1; b < n; b++) {
                if (b == a) continue;
                const int asked = play(n, a, b, 2, 0, 0, &v);
                assert_true(asked <= 2 * bits_of(n) - 1);
                assert_int_equal(v.found, b < 0 ? 1 : 2);
                assert_true(b < 0 ? v.end[0] == a
                                  : (v.end[0] == a && v.end[1] == b) || (v.end[0] == b && v.end[1] == a));
                assert_true(fabs(v.part - 0.5) < 1e-9);
            }
    for (uint64_t seed = 0; seed < 300; seed++) { /* drawn, with noise */
        const int n = 4 + (int)tm_random_below(seed, 2, 0, 1021), a = (int)tm_random_below(seed, 2, 1, (uint64_t)n);
        const int b = seed % 2 ? -1 : (a + 1 + (int)tm_random_below(seed, 2, 2, (uint64_t)n - 1)) % n;
        const int asked = play(n, a, b, 2, 0.03, seed, &v);
        assert_true(asked <= 2 * bits_of(n) - 1);
        assert_int_equal(v.found, b < 0 ? 1 : 2);
        assert_true(b < 0 ? v.end[0] == a : (v.end[0] == a && v.end[1] == b) || (v.end[0] == b && v.end[1] == a));
    }
    /* The largest worlds, and those beside them. */
    for (int n = 1023; n <= 1024; n++)
        for (int a = 0; a < n; a += 93)
            for (int b = n - 1; b > a; b -= 87) {
                play(n, a, b, 1.7, 0.02, (uint64_t)a, &v);
                assert_true(v.found == 2 && ((v.end[0] == a && v.end[1] == b) || (v.end[0] == b && v.end[1] == a)));
            }
}

TEST(noise_is_no_fault)
{
    tm_pairing_verdict v;
    for (uint64_t seed = 0; seed < (test_is_full() ? 20000 : 2000); seed++) {
        const int n = 4 + (int)tm_random_below(seed, 2, 0, 60);
        play(n, -1, -1, 1, 0.01 + 0.3 * tm_random_uniform(seed, 3, 0), seed, &v);
        assert_int_equal(v.found, 0);
    }
}

/* --- the check on a made-up clock ------------------------------------------------------------ */

enum { MOST = 8 };
typedef struct {
    int64_t         now_ns;
    int             bad[2]; /* -1: none */
    uint64_t        calls;
    tm_node_outcome out[MOST];
} made_up;

static int64_t made_up_now(void *data)
{
    return ((made_up *)data)->now_ns;
}

/* The group is slow if the bad ranks are in it: its ranks tell each other who they are. */
static tm_status timed_call(void *data, tm_comm *comm, const tm_collective *c, tm_error *err)
{
    made_up *m = data;
    int64_t  own = (int64_t)m->calls >> 32, all[MOST] = { 0 };
    int      in = 0;
    TM_TRY(tm_comm_run(comm,
                       &(tm_collective){ .kind = TM_COMM_ALL_GATHER,
                                         .format = TM_COMM_INT64,
                                         .send = &own,
                                         .receive = all,
                                         .count = 1,
                                         .what = "who",
                                         .step = -1 },
                       err));
    for (int r = 0; r < tm_comm_size(comm); r++) in += all[r] == m->bad[0] || all[r] == m->bad[1];
    const bool   slow = m->bad[0] >= 0 && in == (m->bad[1] < 0 ? 1 : 2);
    const double share = (double)(tm_comm_size(comm) - 1) / tm_comm_size(comm);
    m->now_ns += (int64_t)(1e6 * share * (slow ? 2 : 1) * (1 + 0.02 * tm_random_uniform(1, (uint64_t)own, m->calls++)));
    return tm_comm_run(comm, c, err);
}

static void check_pairs(tm_comm *comm, void *context)
{
    made_up        *m = context, mine = *m;
    const int       rank = tm_comm_rank(comm);
    tm_node_calls   calls = { timed_call, &mine, made_up_now };
    tm_node_options options = { .world = comm, .sysroot = "" };
    tm_node_task    task = { .options = &options, .seconds = 0, .rank = rank, .ranks = tm_comm_size(comm) };
    mine.calls = (uint64_t)rank << 32;
    CHECK_OK(tm_node_pairs(&task, &calls, &m->out[rank], err));
}

TEST(slow_groups)
{
    static const int hosts[] = { 0, 1, 2, 3, 4 };
    static const struct {
        int         ranks, bad[2];
        const char *place; /* NULL: no finding */
    } rows[] = { { 3, { -1, -1 }, NULL },      { 4, { -1, -1 }, NULL },      { 5, { -1, -1 }, NULL },
                 { 5, { 4, -1 }, "rank 4 (" }, { 4, { 2, -1 }, "rank 2 (" }, { 5, { 1, 3 }, "<-> rank " } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        made_up m = { .bad = { rows[i].bad[0], rows[i].bad[1] } };
        run_world(rows[i].ranks, hosts, 60, false, check_pairs, &m);
        assert_int_equal(m.out[0].verdict, rows[i].ranks < 4 ? TM_NODE_SKIP
                                           : rows[i].place   ? TM_NODE_FAIL
                                                             : TM_NODE_PASS);
        assert_int_equal(m.out[0].n_findings, rows[i].place != NULL);
        if (rows[i].place) assert_non_null(strstr(m.out[0].findings[0].place, rows[i].place));
        if (rows[i].place)
            assert_true(m.out[0].findings[0].rank == rows[i].bad[0] || m.out[0].findings[0].rank == rows[i].bad[1]);
        for (int r = 0; r < rows[i].ranks; r++) tm_node_outcome_fini(&m.out[r]);
    }
}
