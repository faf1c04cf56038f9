/* SPDX-License-Identifier: Apache-2.0 */
/* The judge on made-up fleets: what is planted is found at its place, clean fleets give no finding; majorities, ties,
 * kinds of nodes, and what earlier certificates change. Seeds are fixed. */
#include "support/test.h"

#include "base/random.h"
#include "apps/node/judge.h"

enum { RANKS = 16 };

typedef struct {
    tm_node_site    sites[RANKS];
    tm_node_outcome outcome;
} fleet;

static tm_node_site site_of(const char *host, int number, const char *kind)
{
    tm_node_site s = { .number = number };
    snprintf(s.host, sizeof s.host, "%s", host);
    snprintf(s.kind, sizeof s.kind, "%s", kind);
    return s;
}

/* One rank for each of n hosts a, b, c, ... */
static void hosts(fleet *f, int n)
{
    *f = (fleet){ 0 };
    for (int i = 0; i < n; i++) f->sites[i] = site_of((char[]){ (char)('a' + i), 0 }, i, "cpu");
}

static void add_figure(fleet *f, int rank, const char *place, tm_node_sense sense, double value, double half,
                       double floor)
{
    tm_node_figure figure = { .name = "product",
                              .unit = "GFLOP/s",
                              .sense = sense,
                              .value = value,
                              .low = value - half,
                              .high = value + half,
                              .floor = floor };
    snprintf(figure.place, sizeof figure.place, "%s", place);
    tm_node_figure_add(&f->outcome, &figure);
    f->outcome.figures[f->outcome.n_figures - 1].rank = rank;
}

static void add_fact(fleet *f, int rank, const char *name, const char *place, bool kept, const char *text)
{
    tm_node_fact_add(&f->outcome, name, place, kept, text);
    f->outcome.facts[f->outcome.n_facts - 1].rank = rank;
}

static void judge(fleet *f)
{
    tm_node_judge(f->sites, &f->outcome, NULL, 0);
}

static void found(const fleet *f, size_t i, int rank, const char *place, const char *words)
{
    if (f->outcome.n_findings <= i) fail_msg("%zu findings, wanted one with '%s'", f->outcome.n_findings, words);
    const tm_node_finding *one = &f->outcome.findings[i];
    if (one->rank != rank || strcmp(one->place, place) != 0 || !strstr(one->text, words))
        fail_msg("rank %d, '%s': %s; wanted rank %d, '%s': %s", one->rank, one->place, one->text, rank, place, words);
    assert_int_equal(f->outcome.verdict, TM_NODE_FAIL);
}

static void nothing(fleet *f)
{
    if (f->outcome.n_findings > 0) fail_msg("found: %s", f->outcome.findings[0].text);
    assert_int_equal(f->outcome.verdict, TM_NODE_PASS);
    tm_node_outcome_fini(&f->outcome);
}

/* --- the rule ----------------------------------------------------------------------------------------------------- */

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12)) fail_msg("%.15g is not %.15g", value, wanted);
}

TEST(limits_by_hand)
{
    double         gap;
    tm_node_sample x = { 90, 0, 0.01 }, others[] = { { 99, 0, 0.02 }, { 100, 0, 0.01 }, { 103, 0, 0.01 } };
    near(tm_node_limit(TM_NODE_SPEED, &x, others, 3, &gap), 3 * 1.4826 * 1 / 100); /* distances 1, 0, 3 */
    near(gap, 0.1);
    near(tm_node_limit(TM_NODE_TIME, &x, others, 3, &gap), 3 * 1.4826 * 1 / 100);
    near(gap, -0.1);
    x.floor = 0.04;
    near(tm_node_limit(TM_NODE_SPEED, &x, others, 3, &gap), 0.08); /* two floors */
    near(tm_node_limit(TM_NODE_SPEED, &x, others, 2, &gap), 0.12); /* three: the spread of two is not known */
    near(gap, 9.0 / 99);                                           /* than the worst of two */
    x.error = 3, others[1].error = 4;
    near(tm_node_limit(TM_NODE_SPEED, &x, others + 1, 1, &gap), 0.25); /* five errors of the difference */
    others[1].value = 0;
    assert_true(isnan(tm_node_limit(TM_NODE_SPEED, &x, others + 1, 1, &gap)));
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* A faster place is no fault; without a floor, alone, or only told, nothing is one. */
TEST(no_fault)
{
    fleet f;
    hosts(&f, 2);
    for (int i = 0; i < 5; i++) add_figure(&f, 0, "core", TM_NODE_SPEED, i == 2 ? 200 : 100, 0.1, 0.01);
    judge(&f);
    nothing(&f);
    for (int i = 0; i < 5; i++) add_figure(&f, 0, "core", TM_NODE_SPEED, i == 2 ? 50 : 100, 0.1, 0);
    for (int i = 0; i < 5; i++) add_figure(&f, 0, "core", TM_NODE_SPEED, i == 2 ? (double)NAN : 100, 0.1, 0.01);
    for (int i = 0; i < 5; i++) add_figure(&f, 0, "core", TM_NODE_SPEED, i == 2 ? 50 : 100, 0.1, (double)NAN);
    for (int i = 0; i < 5; i++) add_figure(&f, 0, "core", TM_NODE_TOLD, i == 2 ? 50 : 100, 0.1, 0.01);
    judge(&f);
    nothing(&f);
    add_figure(&f, 0, "core", TM_NODE_SPEED, 5, 0.1, 0.01);
    judge(&f);
    assert_string_equal(f.outcome.reach, ""); /* nothing to compare with: no reach */
    nothing(&f);
}

/* Cores are not compared with the whole CPU, nor with a GPU; of three places one is fast, and no other is to blame. */
TEST(other_places)
{
    fleet f;
    hosts(&f, 1);
    for (int i = 0; i < 9; i++) {
        char place[16];
        snprintf(place, sizeof place, i == 8 ? "CPU" : i < 4 ? "core %d" : "cuda:%d", i % 4);
        add_figure(&f, 0, place, TM_NODE_SPEED, i < 4 ? 100 : 300, 0.1, 0.01);
    }
    judge(&f);
    nothing(&f);
    hosts(&f, 1);
    for (int i = 0; i < 3; i++)
        add_figure(&f, 0, (char[]){ 'a', (char)('0' + i), 0 }, TM_NODE_SPEED, i == 2 ? 200 : 100, 0.1, 0.01);
    judge(&f);
    nothing(&f);
    hosts(&f, 1);
    for (int i = 0; i < 3; i++)
        add_figure(&f, 0, (char[]){ 'a', (char)('0' + i), 0 }, TM_NODE_TIME, i == 2 ? 200 : 100, 0.1, 0.01);
    judge(&f);
    assert_int_equal(f.outcome.n_findings, 1);
    found(&f, 0, 0, "a2", "worse than the slower of the 2 other places;");
    tm_node_outcome_fini(&f.outcome);
}

/* A whole node is slow, and its places agree; among two nodes, and among four. */
TEST(slow_nodes)
{
    for (int n = 2; n <= 4; n += 2) {
        fleet f;
        hosts(&f, n);
        for (int i = 0; i < 3 * n; i++)
            add_figure(&f, i % n, "core", TM_NODE_SPEED, i % n == 1 ? 90 : 100 + 0.1 * (i / n), 0.1, 0.02);
        judge(&f);
        assert_int_equal(f.outcome.n_findings, 1);
        found(&f, 0, 1, "", n == 2 ? "worse than the other node;" : "the median of the 3 other nodes;");
        assert_non_null(strstr(f.outcome.findings[0].text, "at b"));
        tm_node_outcome_fini(&f.outcome);
    }
    fleet f; /* of another kind: not compared */
    hosts(&f, 2);
    f.sites[1] = site_of("b", 1, "other cpu");
    add_figure(&f, 0, "", TM_NODE_SPEED, 100, 0.1, 0.01);
    add_figure(&f, 1, "", TM_NODE_SPEED, 50, 0.1, 0.01);
    judge(&f);
    nothing(&f);
}

/* The floor is the 95 % bound of a difference of two measurements of one place: 1.96 sqrt(2) deviations. Part of the
 * deviation is within a measurement, and seen in its interval. Here the floor itself is an estimate, 20 % off. */
static double measured(uint64_t seed, uint64_t i, double truth, double deviation, double *floor)
{
    *floor = 1.96 * 1.4142135623730951 * deviation * (0.8 + 0.4 * tm_random_uniform(seed, 1, i));
    return truth * (1 + deviation * tm_random_normal(seed, 0, i));
}

/* A made-up node or fleet: up to 4 nodes with up to 8 places each; `slow`: how much the one at place `culprit` is. */
static void make(fleet *f, uint64_t seed, double slow, int culprit, int *n_places, int *n_nodes)
{
    const double deviation = pow(10, -3 + 1.5 * tm_random_uniform(seed, 2, 0)); /* 0.1 % to 3 % */
    *n_nodes = 1 + (int)tm_random_below(seed, 2, 1, 4);
    *n_places = 1 + (int)tm_random_below(seed, 2, 2, 8);
    hosts(f, *n_nodes);
    for (int i = 0; i < *n_nodes * *n_places; i++) {
        char   place[16];
        double floor, value = measured(seed, (uint64_t)i, 100, deviation, &floor);
        snprintf(place, sizeof place, "core %d", i % *n_places);
        if (i == culprit) value *= 1 - slow * floor;
        add_figure(f, i / *n_places, place, TM_NODE_SPEED, value, 1.96 * 50 * deviation, floor);
    }
}

TEST(no_false_alarm)
{
    enum { FLEETS = 10000 };
    int alarms = 0, places, nodes;
    for (uint64_t seed = 0; seed < FLEETS; seed++) {
        fleet f;
        make(&f, seed, 0, -1, &places, &nodes);
        judge(&f);
        alarms += f.outcome.n_findings > 0;
        tm_node_outcome_fini(&f.outcome);
    }
    if (alarms > 0) fail_msg("%d of %d clean fleets have a finding", alarms, FLEETS);
}

/* Slower by three floors, which is what reach promises: found at its place, and nothing else is. */
TEST(planted_is_found)
{
    int tried = 0, hit = 0, places, nodes;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        fleet f;
        make(&f, seed, 3 / (1 - 0.2), 0, &places, &nodes); /* its floor may be told 20 % too small */
        judge(&f);
        if (places >= 4) {
            tried++;
            hit += f.outcome.n_findings == 1 && strcmp(f.outcome.findings[0].place, "core 0") == 0;
        }
        tm_node_outcome_fini(&f.outcome);
    }
    if (tried < 300 || hit < 0.97 * tried) fail_msg("%d of %d found", hit, tried);
}

/* --- facts -------------------------------------------------------------------------------------------------------- */

TEST(majority)
{
    fleet f;
    hosts(&f, 3);
    for (int i = 0; i < 6; i++)
        add_fact(&f, i % 3, "step", i < 3 ? "core 0" : "core 1", false, i == 4 ? "bad" : "good");
    add_fact(&f, 0, "other", "core 0", false, "alone");
    judge(&f);
    assert_int_equal(f.outcome.n_findings, 1);
    found(&f, 0, 1, "core 1", "step is 'bad'; expected: 'good', which 5 of 6 places have");
    tm_node_outcome_fini(&f.outcome);
    hosts(&f, 2);
    f.sites[1] = site_of("b", 1, "other cpu");
    for (int i = 0; i < 2; i++) add_fact(&f, i, "step", "", false, i ? "x" : "y");
    judge(&f);
    nothing(&f);
}

TEST(ties)
{
    fleet f;
    hosts(&f, 4);
    add_fact(&f, 0, "step", "core 0", false, "x");
    add_fact(&f, 1, "step", "core 1", false, "y");
    judge(&f);
    assert_int_equal(f.outcome.n_findings, 2);
    found(&f, 0, 0, "core 0", "'y' at core 1, rank 1 of b: one of the two");
    found(&f, 1, 1, "core 1", "'x' at core 0, rank 0 of a: one of the two");
    tm_node_outcome_fini(&f.outcome);
    for (int i = 0; i < 4; i++) add_fact(&f, i, "step", "", false, i < 2 ? "x" : "y");
    judge(&f);
    assert_int_equal(f.outcome.n_findings, 4);
    found(&f, 3, 3, "", "no majority");
    tm_node_outcome_fini(&f.outcome);
}

/* --- earlier certificates ----------------------------------------------------------------------------------------- */

/* Certificates of one node each, newest first: host and what its driver was. */
static void with_earlier(fleet *now, size_t n, const char *const host[], const char *const driver[],
                         const double speed[])
{
    static const char *const cores[] = { "core 0", "core 1", "core 2" };
    static const double      offset[] = { -10, 0, 10 };
    fleet                    before[8];
    tm_node_earlier          earlier[8] = { 0 };
    for (size_t i = 0; i < n; i++) {
        hosts(&before[i], 1);
        before[i].sites[0] = site_of(host[i], 0, "cpu");
        if (driver) add_fact(&before[i], 0, "driver", "", true, driver[i]);
        if (driver) add_fact(&before[i], 0, "hash", "", false, "of another draw");
        for (int k = 0; k < 3 && speed; k++) /* the median counts, of two the upper one */
            if (i > 0 || k < 2) add_figure(&before[i], 0, cores[k], TM_NODE_SPEED, speed[i] + offset[k], 0.1, 0.01);
        earlier[i] = (tm_node_earlier){ "2026-01-31T12:00:00Z", before[i].sites, &before[i].outcome };
    }
    tm_node_judge(now->sites, &now->outcome, earlier, n);
    for (size_t i = 0; i < n; i++) tm_node_outcome_fini(&before[i].outcome);
}

TEST(drift)
{
    fleet f;
    hosts(&f, 1);
    add_fact(&f, 0, "driver", "", true, "2");
    add_fact(&f, 0, "hash", "", false, "of this draw");
    with_earlier(&f, 3, (const char *[]){ "a", "b", "a" }, (const char *[]){ "1", "1", "2" }, NULL);
    assert_int_equal(f.outcome.n_told, 1); /* its last one, not the one before */
    assert_string_equal(f.outcome.told[0].text, "driver is '2'; it was '1' on 2026-01-31");
    nothing(&f); /* one other is no fleet */
    hosts(&f, 1);
    add_fact(&f, 0, "driver", "", true, "2");
    with_earlier(&f, 4, (const char *[]){ "b", "c", "c", "b" }, (const char *[]){ "1", "1", "2", "2" }, NULL);
    found(&f, 0, 0, "", "'1', which all 2 other nodes");
    tm_node_outcome_fini(&f.outcome);
    hosts(&f, 1);
    add_fact(&f, 0, "driver", "", true, "2");
    with_earlier(&f, 3, (const char *[]){ "b", "c", "d" }, (const char *[]){ "1", "1", "3" }, NULL);
    nothing(&f); /* the others do not agree */
    hosts(&f, 2);
    for (int i = 0; i < 2; i++) add_fact(&f, i, "driver", "", true, "2");
    with_earlier(&f, 2, (const char *[]){ "c", "d" }, (const char *[]){ "1", "1" }, NULL);
    nothing(&f); /* it is not alone */
}

/* The latest of each other node counts: of two the slower one, of more the median; one is no fleet. */
TEST(figures_of_earlier_certificates)
{
    static const struct {
        size_t      n;
        const char *host[4];
        double      speed[4];
        const char *words; /* NULL: 95 is no fault */
    } rows[] = { { 1, { "b" }, { 100 }, NULL },
                 { 2, { "b", "c" }, { 100, 101 }, "the slower of 2 nodes of earlier certificates" },
                 { 2, { "b", "c" }, { 100, 95.5 }, NULL },
                 { 3, { "a", "a", "b" }, { 100, 100, 100 }, NULL },
                 { 3, { "b", "c", "b" }, { 100, 100, 50 }, "the slower of 2 nodes" },
                 { 3, { "b", "c", "c" }, { 100, 50, 100 }, NULL },
                 { 4, { "b", "c", "d", "e" }, { 100, 100, 50, 100 }, "the median of 4 nodes" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fleet f;
        hosts(&f, 1);
        add_figure(&f, 0, "core 0", TM_NODE_SPEED, 95, 0.1, 0.01);
        with_earlier(&f, rows[i].n, rows[i].host, NULL, rows[i].speed);
        if (!rows[i].words) {
            nothing(&f);
            continue;
        }
        assert_int_equal(f.outcome.n_findings, 1);
        if (!strstr(f.outcome.findings[0].text, rows[i].words)) fail_msg("row %zu: %s", i, f.outcome.findings[0].text);
        tm_node_outcome_fini(&f.outcome);
    }
}
