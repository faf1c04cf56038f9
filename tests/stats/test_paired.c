/* SPDX-License-Identifier: Apache-2.0 */
/* Paired comparisons: values worked out by hand, and what the verdict promises, counted over synthetic sessions with
 * drift, autocorrelation, bursts, and processes that differ from one start to the next. Seeds are fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/random.h"
#include "stats/paired.h"

#include <math.h>
#include <stdlib.h>

static void near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("%.9g is not %.9g", value, wanted);
}

static void pair_by_hand(void **state)
{
    (void)state;
    tm_pair pair = tm_pair_of((double[]){ 1, 4 }, (double[]){ 3, 12 }, (double[]){ 2, 8 }, 7);
    near(pair.ratio, 6 / sqrt(2.0 * 4), 1e-12); /* geometric means 2, 6 and 4 */
    near(pair.control, 2, 1e-12);
    assert_int_equal(pair.round, 7);
    /* A linear drift in the logarithm, x y z z y x: no ratio moves. */
    double g[6];
    for (int i = 0; i < 6; i++) g[i] = exp(0.1 * i);
    pair = tm_pair_of((double[]){ g[0], g[5] }, (double[]){ 2 * g[1], 2 * g[4] }, (double[]){ g[2], g[3] }, 0);
    near(pair.ratio, 2, 1e-12);
    near(pair.control, 1, 1e-12);
}

static void result_by_hand(void **state)
{
    (void)state;
    tm_pair pairs[12];
    for (int i = 0; i < 12; i++)
        pairs[i] = (tm_pair){ .ratio = 1.02 + 0.001 * (i % 4), .control = i % 2 ? 1.001 : 0.999, .round = i / 2 };
    tm_paired_result r = tm_paired_judge(pairs, 12, 0, 1);
    near(r.b.ratio, sqrt(1.021 * 1.022), 1e-9);
    near(r.control.ratio, 1, 1e-6);
    assert_int_equal(r.pairs, 12);
    assert_int_equal(r.rounds, 6);
    assert_int_equal(r.units, 6);
    assert_true(r.rounds_are_units);
    assert_true(r.b.lo < r.b.ratio && r.b.ratio < r.b.hi && r.b.lo > 1.01 && r.b.hi < 1.03);
    near(r.floor, fmax(fabs(r.control.lo - 1), fabs(r.control.hi - 1)), 1e-15);
    near(r.half_width, (r.b.hi - r.b.lo) / 2 / r.b.ratio, 1e-15);
    assert_true(r.detectable > r.floor && r.detectable > r.half_width);
    assert_int_equal(r.verdict, TM_PAIRED_SLOWER);
    tm_paired_result again = tm_paired_judge(pairs, 12, 0, 1);
    assert_memory_equal(&again.b, &r.b, sizeof r.b);
    /* B and A in each other's place: the inverse, to the bit of the resamples drawn. */
    for (int i = 0; i < 12; i++) pairs[i].ratio = 1 / pairs[i].ratio;
    again = tm_paired_judge(pairs, 12, 0, 1);
    near(again.b.ratio * r.b.ratio, 1, 1e-12);
    assert_int_equal(again.verdict, TM_PAIRED_FASTER);
}

static void floor_decides(void **state)
{
    (void)state;
    tm_pair pairs[24]; /* B is 2 % slower without any doubt, but so is another copy of A */
    for (int i = 0; i < 24; i++) pairs[i] = (tm_pair){ .ratio = 1.02, .control = 1.025, .round = i / 3 };
    tm_paired_result r = tm_paired_judge(pairs, 24, 0, 1);
    assert_true(r.b.lo > 1);
    near(r.floor, 0.025, 1e-9);
    assert_int_equal(r.verdict, TM_PAIRED_NO_DIFFERENCE);
    for (int i = 0; i < 24; i++) pairs[i].control = 1 / 1.015;
    assert_int_equal(tm_paired_judge(pairs, 24, 0, 1).verdict, TM_PAIRED_SLOWER);
}

/* The floor is the far end of the control's interval, on whichever side. */
static void floor_has_two_ends(void **state)
{
    (void)state;
    tm_pair pairs[24];
    for (int i = 0; i < 24; i++) pairs[i] = (tm_pair){ .ratio = 1, .control = 1 + 0.01 * (i / 3 % 4), .round = i / 3 };
    tm_paired_result r = tm_paired_judge(pairs, 24, 0, 1);
    assert_true(r.control.hi - 1 > fabs(r.control.lo - 1));
    near(r.floor, r.control.hi - 1, 1e-15);
    for (int i = 0; i < 24; i++) pairs[i].control = 1 / pairs[i].control;
    r = tm_paired_judge(pairs, 24, 0, 1);
    near(r.floor, 1 - r.control.lo, 1e-15);
}

/* However sure a session is, a difference below the least one is none. */
static void least_difference(void **state)
{
    (void)state;
    tm_pair pairs[24];
    for (int i = 0; i < 24; i++) pairs[i] = (tm_pair){ .ratio = 1.003, .control = 1.0001, .round = i / 3 };
    tm_paired_result r = tm_paired_judge(pairs, 24, 0.005, 1);
    near(r.floor, 0.005, 1e-15);
    near(r.detectable, 0.005, 1e-9); /* no scatter at all here */
    assert_int_equal(r.verdict, TM_PAIRED_NO_DIFFERENCE);
    assert_int_equal(tm_paired_judge(pairs, 24, 0.002, 1).verdict, TM_PAIRED_SLOWER);
    for (int i = 0; i < 24; i++) pairs[i].control = 1.02;
    near(tm_paired_judge(pairs, 24, 0.005, 1).floor, 0.02, 1e-9);
}

/* Two perfect copies of A, and a B that is 1 % slower on average but now so, now so. */
static void an_interval_that_holds_1_is_no_difference(void **state)
{
    (void)state;
    tm_pair pairs[24];
    for (int i = 0; i < 24; i++)
        pairs[i] = (tm_pair){ .ratio = 1.01 + 0.05 * (i / 3 % 3 - 1), .control = 1, .round = i / 3 };
    tm_paired_result r = tm_paired_judge(pairs, 24, 0, 1);
    assert_true(r.b.lo < 1 && r.b.hi > 1 && r.b.ratio - 1 > r.floor);
    assert_int_equal(r.verdict, TM_PAIRED_NO_DIFFERENCE);
    for (int i = 0; i < 24; i++) pairs[i].ratio = 1 / pairs[i].ratio;
    assert_int_equal(tm_paired_judge(pairs, 24, 0, 1).verdict, TM_PAIRED_NO_DIFFERENCE);
}

/* Six starts that differ by 1 % each, 200 pairs of each that agree: there are six values to judge by, not 1,200. */
static void rounds_are_what_is_independent(void **state)
{
    (void)state;
    enum { N = 1200 };
    tm_pair *pairs = malloc(N * sizeof *pairs);
    for (int i = 0; i < N; i++)
        pairs[i] = (tm_pair){ .ratio = 1 + 0.01 * (i / 200 - 2) + 1e-5 * (i % 7), .control = 1, .round = i / 200 };
    tm_paired_result r = tm_paired_judge(pairs, N, 0, 1);
    assert_int_equal(r.units, 6);
    if (!(r.half_width > 0.02)) fail_msg("half-width %.4f", r.half_width);
    for (int i = 0; i < N; i++) pairs[i].round = 0;
    r = tm_paired_judge(pairs, N, 0, 1);
    assert_true(!r.rounds_are_units && r.units == N / 11);
    free(pairs);
}

static void too_few(void **state)
{
    (void)state;
    tm_pair pairs[TM_PAIRED_UNITS];
    for (int i = 0; i < TM_PAIRED_UNITS; i++) pairs[i] = (tm_pair){ .ratio = 2, .control = 1, .round = 0 };
    for (int n = 0; n < TM_PAIRED_UNITS; n++) {
        tm_paired_result r = tm_paired_judge(pairs, n, 0, 1);
        assert_int_equal(r.verdict, TM_PAIRED_NOT_JUDGED);
        assert_true(isnan(r.b.lo) && isnan(r.floor) && isnan(r.half_width) && isnan(r.b.ratio) == (n == 0));
        assert_false(tm_paired_enough(&r, 1, 0, true));
    }
    tm_paired_result r = tm_paired_judge(pairs, TM_PAIRED_UNITS, 0, 1);
    assert_int_equal(r.verdict, TM_PAIRED_SLOWER);
    assert_false(r.rounds_are_units);
    assert_true(tm_paired_enough(&r, 0.01, TM_PAIRED_UNITS, true));
    assert_false(tm_paired_enough(&r, 0.01, TM_PAIRED_UNITS, false)); /* rounds are wanted */
    assert_false(tm_paired_enough(&r, 0.01, TM_PAIRED_UNITS + 1, true));
    assert_false(tm_paired_enough(&r, 0, TM_PAIRED_UNITS, true)); /* 0: never */
}

/* --- synthetic sessions ------------------------------------------------------------------------------------------- */

/* The logarithm of a turn's time is the sum of these. Standard deviations, but for what is said otherwise. */
typedef struct {
    const char *name;
    double      process;     /* of one process, for its life */
    double      white;       /* of one turn */
    double      slow, keeps; /* first-order autoregression: deviation, and what stays from one turn to the next */
    double      drift;       /* over the whole session, linear */
    double burst, strength;  /* probability that one begins in a turn (it lasts 1 to 8 turns); up to so much slower */
    int    rounds, blocks;
    int    alarms; /* of 100 trials without a difference, at most */
    int    seen;   /* of 100 trials with 3 %, at least */
} scenario;

/* Values of one session, one after the other. */
typedef struct {
    uint64_t seed, drawn;
    double   slow;
    int      burst, turn;
} weather;

static double draw(weather *w)
{
    return tm_random_normal(w->seed, 1, w->drawn++);
}

static double uniform(weather *w)
{
    return tm_random_uniform(w->seed, 2, w->drawn++);
}

static double turn_of(weather *w, const scenario *s, double drift)
{
    w->slow = s->keeps * w->slow + sqrt(1 - s->keeps * s->keeps) * s->slow * draw(w);
    if (w->burst > 0)
        w->burst--;
    else if (uniform(w) < s->burst)
        w->burst = 1 + (int)(8 * uniform(w));
    return s->white * draw(w) + w->slow + drift * w->turn++ + (w->burst ? s->strength * uniform(w) : 0);
}

/* A session as `trainmark ab` holds it: judged after every round (with only one, after every block), ended early. */
static tm_paired_result session(const scenario *s, uint64_t seed, double planted)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    weather          w = { .seed = seed };
    int              n = 0, turns = 6 * s->rounds * s->blocks;
    tm_pair         *pairs = malloc((size_t)(s->rounds * s->blocks) * sizeof *pairs);
    double           drift = s->drift * draw(&w) / turns;
    w.slow = s->slow * draw(&w);
    tm_paired_result r = tm_paired_judge(pairs, 0, 0, seed);
    for (int round = 0; round < s->rounds; round++) {
        double process[3] = { s->process * draw(&w), s->process * draw(&w) + log(1 + planted), s->process * draw(&w) };
        for (int block = 0; block < s->blocks; block++) {
            const int *order = orders[(int)(6 * uniform(&w))];
            double     seconds[3][2];
            int        had[3] = { 0 };
            for (int i = 0; i < 6; i++) {
                int side = order[i < 3 ? i : 5 - i];
                seconds[side][had[side]++] = exp(process[side] + turn_of(&w, s, drift));
            }
            pairs[n++] = tm_pair_of(seconds[0], seconds[1], seconds[2], round);
            if (s->rounds > 1 && block + 1 < s->blocks) continue;
            r = tm_paired_judge(pairs, n, 0, seed);
            if (tm_paired_enough(&r, 0.01, 12, s->rounds == 1)) {
                free(pairs);
                return r;
            }
        }
    }
    free(pairs);
    return r;
}

static const scenario scenarios[] = {
    { "quiet", 0, .01, 0, 0, 0, 0, 0, 12, 6, 4, 99 },
    { "noisy turns", 0, .03, 0, 0, 0, 0, 0, 12, 8, 4, 90 },
    { "slow waves", 0, .01, .03, .9, 0, 0, 0, 12, 6, 4, 95 },
    { "very slow waves", 0, .01, .06, .99, 0, 0, 0, 12, 6, 4, 95 },
    { "drift of 30 %", 0, .01, 0, 0, .3, 0, 0, 12, 6, 4, 99 },
    { "bursts", 0, .01, 0, 0, 0, .05, .5, 12, 8, 4, 90 },
    { "starts differ by 0.7 %", .005, .01, 0, 0, 0, 0, 0, 12, 6, 4, 95 },
    { "all at once", .007, .015, .03, .9, .1, .02, .3, 12, 8, 4, 85 },
    { "whole runs", .005, .01, .01, .8, .05, 0, 0, 14, 1, 4, 90 },
    { "one round", 0, .01, .03, .9, .1, .01, .3, 1, 60, 4, 85 },
};

/* Alarms without a difference, and eyes for one of 3 %: bounds far enough from what was counted that only a real change
 * of the method crosses them, near enough that they are worth something (docs/ab.md has the counts of 1,000). */
static void promises(void **state)
{
    (void)state;
    enum { TRIALS = 100 };
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        const scenario *s = &scenarios[i];
        int             alarms = 0, slower = 0, faster = 0, covered = 0;
        for (uint64_t t = 0; t < TRIALS; t++) {
            tm_paired_result none = session(s, 1000 + t, 0), some = session(s, 50000 + t, 0.03);
            alarms += none.verdict == TM_PAIRED_SLOWER || none.verdict == TM_PAIRED_FASTER;
            covered += none.b.lo <= 1 && none.b.hi >= 1;
            slower += some.verdict == TM_PAIRED_SLOWER;
            faster += some.verdict == TM_PAIRED_FASTER;
        }
        print_message("# %-24s %3d alarms, 3 %% seen %3d times, interval holds the truth %3d times\n", s->name, alarms,
                      slower, covered);
        if (alarms > s->alarms || slower < s->seen || faster > 0 || covered < 84)
            fail_msg("%s: %d alarms (at most %d), %d seen (at least %d), %d faster, %d covered (at least 84)", s->name,
                     alarms, s->alarms, slower, s->seen, faster, covered);
    }
}

/* What `detectable` says: of sessions with such a difference about four in five see it. */
static void detectable_is_what_it_says(void **state)
{
    (void)state;
    enum { TRIALS = 200 };
    const scenario *s = &scenarios[1];
    double          mean = 0;
    int             seen = 0;
    for (uint64_t t = 0; t < TRIALS; t++) mean += session(s, 1000 + t, 0).detectable / TRIALS;
    for (uint64_t t = 0; t < TRIALS; t++) seen += session(s, 90000 + t, mean).verdict == TM_PAIRED_SLOWER;
    if (seen < TRIALS * 70 / 100 || seen > TRIALS * 92 / 100)
        fail_msg("%d of %d sessions saw %.4f", seen, TRIALS, mean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_by_hand),
        cmocka_unit_test(result_by_hand),
        cmocka_unit_test(floor_decides),
        cmocka_unit_test(floor_has_two_ends),
        cmocka_unit_test(least_difference),
        cmocka_unit_test(an_interval_that_holds_1_is_no_difference),
        cmocka_unit_test(rounds_are_what_is_independent),
        cmocka_unit_test(too_few),
        cmocka_unit_test(promises),
        cmocka_unit_test(detectable_is_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
