/* SPDX-License-Identifier: Apache-2.0 */
/* Paired comparisons: values worked out by hand, and what the verdict promises, counted over synthetic sessions with
 * drift, autocorrelation, bursts, and processes that differ from one start to the next. Seeds are fixed. */
#include "support/test.h"

#include "base/random.h"
#include "stats/paired.h"

static void near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("%.9g is not %.9g", value, wanted);
}

TEST(pair_by_hand)
{
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

TEST(result_by_hand)
{
    tm_pair pairs[12];
    for (int i = 0; i < 12; i++)
        pairs[i] = (tm_pair){ .ratio = 1.02 + 0.001 * (i % 4), .control = i % 2 ? 1.001 : 0.999, .round = i / 2 };
    tm_paired_result r = tm_paired_judge(pairs, 12, 0);
    /* Of the 21 means of two rounds six are of two low ones, nine mixed, six of two high ones; of six rounds only the
     * outermost means enclose 95 %. */
    near(r.b.ratio, sqrt(sqrt(1.02 * 1.021 * 1.022 * 1.023)), 1e-12);
    near(r.b.lo, sqrt(1.02 * 1.021), 1e-12);
    near(r.b.hi, sqrt(1.022 * 1.023), 1e-12);
    near(r.control.ratio, sqrt(1.001 * 0.999), 1e-12);
    assert_int_equal(r.pairs, 12);
    assert_int_equal(r.rounds, 6);
    near(r.floor, fmax(fabs(r.control.lo - 1), fabs(r.control.hi - 1)), 1e-15);
    near(r.half_width, (r.b.hi - r.b.lo) / 2 / r.b.ratio, 1e-15);
    /* normal quantiles of 0.8 and 0.975 */
    near(r.detectable, fmax(r.half_width, r.floor) + 1.5 * 0.84162123357291 / 1.95996398454005 * r.half_width, 1e-12);
    assert_int_equal(r.verdict, TM_PAIRED_SLOWER);
    tm_paired_result again = tm_paired_judge(pairs, 12, 0);
    assert_memory_equal(&again.b, &r.b, sizeof r.b);
    /* B and A in each other's place: the inverse. */
    for (int i = 0; i < 12; i++) pairs[i].ratio = 1 / pairs[i].ratio;
    again = tm_paired_judge(pairs, 12, 0);
    near(again.b.ratio * r.b.ratio, 1, 1e-12);
    assert_int_equal(again.verdict, TM_PAIRED_FASTER);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Above 100 rounds the rank of the ends is the normal approximation's: 3.3 % outside, 2.132 deviations of the signed
 * ranks' sum. */
TEST(many_rounds)
{
    enum { N = 120, WALSH = N * (N + 1) / 2 };
    static tm_pair pairs[N];
    static double  x[N], mean[WALSH];
    int            n = 0;
    for (int i = 0; i < N; i++) {
        x[i] = 1e-4 * ((i * 7919) % 1009);
        pairs[i] = (tm_pair){ .ratio = exp(x[i]), .control = 1, .round = i };
    }
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++) mean[n++] = (x[i] + x[j]) / 2;
    qsort(mean, WALSH, sizeof *mean, ascending);
    int              k = (int)floor(N * (N + 1) / 4. - 2.13208329 * sqrt(N * (N + 1) * (2 * N + 1) / 24.));
    tm_paired_result r = tm_paired_judge(pairs, N, 0);
    assert_int_equal(r.rounds, N);
    if (!(fabs(log(r.b.lo) - mean[k - 1]) < 1e-12 || fabs(log(r.b.lo) - mean[k]) < 1e-12))
        fail_msg("lo %.17g, order statistics %.17g, %.17g", log(r.b.lo), mean[k - 1], mean[k]);
    if (!(fabs(log(r.b.hi) - mean[WALSH - k]) < 1e-12 || fabs(log(r.b.hi) - mean[WALSH - 1 - k]) < 1e-12))
        fail_msg("hi %.17g, order statistics %.17g, %.17g", log(r.b.hi), mean[WALSH - k], mean[WALSH - 1 - k]);
}

/* Without any scatter: how far another copy of A is from A, or the least difference, decides. */
TEST(floor_decides)
{
    static const struct {
        double            ratio, control, least, floor;
        tm_paired_verdict verdict;
    } rows[] = {
        { 1.02, 1.025, 0, 0.025, TM_PAIRED_NO_DIFFERENCE },
        { 1.02, 1 / 1.015, 0, 1 - 1 / 1.015, TM_PAIRED_SLOWER },
        { 1.003, 1.0001, 0.005, 0.005, TM_PAIRED_NO_DIFFERENCE },
        { 1.003, 1.0001, 0.002, 0.002, TM_PAIRED_SLOWER },
        { 1.003, 1.02, 0.005, 0.02, TM_PAIRED_NO_DIFFERENCE },
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        tm_pair pairs[24];
        for (int i = 0; i < 24; i++)
            pairs[i] = (tm_pair){ .ratio = rows[k].ratio, .control = rows[k].control, .round = i / 3 };
        tm_paired_result r = tm_paired_judge(pairs, 24, rows[k].least);
        near(r.b.lo, rows[k].ratio, 1e-9);
        near(r.floor, rows[k].floor, 1e-9);
        near(r.detectable, rows[k].floor, 1e-9);
        assert_int_equal(r.verdict, rows[k].verdict);
    }
}

/* How many of the 2^u ways to choose among the ranks 1 .. u have a sum of at most `most`, by trying all. */
static int64_t sets_with_sum(int u, int most)
{
    int64_t found = 0;
    for (int64_t set = 0; set < (int64_t)1 << u; set++) {
        int sum = 0;
        for (int i = 0; i < u; i++) sum += set >> i & 1 ? i + 1 : 0;
        found += sum <= most;
    }
    return found;
}

/* The ends of the interval are the k-th of the means from either side; k from all sign patterns of the rounds. */
TEST(interval_is_the_signed_rank_one)
{
    for (int u = TM_PAIRED_UNITS; u <= 17; u++) {
        tm_pair pairs[17];
        double  mean[17 * 9];
        int     n = 0, k = 0;
        for (int i = 0; i < u; i++)
            pairs[i] = (tm_pair){ .ratio = exp(0.001 * pow(1.37, i)), .control = 1, .round = i };
        for (int i = 0; i < u; i++)
            for (int j = i; j < u; j++) mean[n++] = 0.0005 * (pow(1.37, i) + pow(1.37, j));
        qsort(mean, (size_t)n, sizeof *mean, ascending);
        while ((double)sets_with_sum(u, k) / (double)((int64_t)1 << u) <= 0.0165) k++;
        tm_paired_result r = tm_paired_judge(pairs, u, 0);
        near(log(r.b.lo), mean[k - 1], 1e-12);
        near(log(r.b.hi), mean[n - k], 1e-12);
        near(log(r.b.ratio), (mean[(n - 1) / 2] + mean[n / 2]) / 2, 1e-12);
    }
}

/* A round counts once, however many pairs it has, and with its median. */
TEST(a_round_counts_once)
{
    enum { N = 1200 };
    tm_pair *pairs = malloc(N * sizeof *pairs);
    for (int i = 0; i < N; i++)
        pairs[i] = (tm_pair){ .ratio = 1 + 0.01 * (i / 200 - 2) + 1e-5 * (i % 7), .control = 1, .round = i / 200 };
    tm_paired_result r = tm_paired_judge(pairs, N, 0);
    assert_int_equal(r.rounds, 6);
    if (!(r.half_width > 0.02)) fail_msg("half-width %.4f", r.half_width);
    for (int i = 0; i < N; i++) pairs[i].round = 0;
    r = tm_paired_judge(pairs, N, 0);
    assert_int_equal(r.rounds, 1);
    assert_int_equal(r.verdict, TM_PAIRED_TOO_SHORT);
    assert_true(isnan(r.b.lo) && isnan(r.floor) && isfinite(r.b.ratio));
    free(pairs);
    tm_pair outlier[24];
    for (int i = 0; i < 24; i++) outlier[i] = (tm_pair){ .ratio = i % 3 ? 1.01 : 5, .control = 1, .round = i / 3 };
    near(tm_paired_judge(outlier, 24, 0).b.hi, 1.01, 1e-12);
}

TEST(too_few)
{
    tm_pair pairs[TM_PAIRED_UNITS];
    for (int i = 0; i < TM_PAIRED_UNITS; i++) pairs[i] = (tm_pair){ .ratio = 2, .control = 1, .round = i };
    for (int n = 0; n < TM_PAIRED_UNITS; n++) {
        tm_paired_result r = tm_paired_judge(pairs, n, 0);
        assert_int_equal(r.verdict, TM_PAIRED_TOO_SHORT);
        assert_true(isnan(r.b.lo) && isnan(r.floor) && isnan(r.half_width) && isnan(r.b.ratio) == (n == 0));
        assert_false(tm_paired_enough(&r, 1, 0));
    }
    tm_paired_result r = tm_paired_judge(pairs, TM_PAIRED_UNITS, 0);
    assert_int_equal(r.verdict, TM_PAIRED_SLOWER);
    assert_true(tm_paired_enough(&r, 0.01, TM_PAIRED_UNITS));
    assert_false(tm_paired_enough(&r, 0.01, TM_PAIRED_UNITS + 1));
    assert_false(tm_paired_enough(&r, 0, TM_PAIRED_UNITS)); /* 0: never */
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

/* A session as `trainmark ab` holds it: judged after every round, ended early. */
static tm_paired_result session(const scenario *s, uint64_t seed, double planted)
{
    static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    weather          w = { .seed = seed };
    int              n = 0, turns = 6 * s->rounds * s->blocks;
    tm_pair         *pairs = malloc((size_t)(s->rounds * s->blocks) * sizeof *pairs);
    double           drift = s->drift * draw(&w) / turns;
    w.slow = s->slow * draw(&w);
    tm_paired_result r = tm_paired_judge(pairs, 0, 0);
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
        }
        r = tm_paired_judge(pairs, n, 0);
        if (tm_paired_enough(&r, 0.01, 12)) break;
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
    { "bursts", 0, .01, 0, 0, 0, .05, .5, 12, 8, 4, 85 },
    { "starts differ by 0.5 %", .005, .01, 0, 0, 0, 0, 0, 12, 6, 4, 95 },
    { "starts differ by 1 %", .01, .01, 0, 0, 0, 0, 0, 12, 6, 4, 70 },
    { "ten minutes", .005, .03, .03, .9, .1, .02, .3, 60, 6, 4, 88 },
    { "all at once", .007, .015, .03, .9, .1, .02, .3, 12, 8, 4, 85 },
    { "whole runs", .005, .01, .01, .8, .05, 0, 0, 14, 1, 4, 90 },
    { "six rounds", .005, .01, .01, .8, .05, 0, 0, 6, 6, 4, 80 },
};

/* Alarms without a difference, eyes for one of 3 %, and intervals that hold the truth in at least 94 of 100 sessions,
 * also in those that ended early (docs/ab.md has the counts). */
FULL_TEST(promises)
{
    enum { TRIALS = 1000 };
    bool kept = true;
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
        print_message("# %-24s %3d alarms, 3 %% seen %4d times, interval holds the truth %4d times\n", s->name, alarms,
                      slower, covered);
        kept &= alarms <= 10 * s->alarms && slower >= 10 * s->seen && faster == 0 && covered >= 940;
    }
    assert_true(kept);
}

/* What `detectable` says: of sessions with such a difference about four in five see it. */
TEST(detectable_is_what_it_says)
{
    enum { TRIALS = 200 };
    const scenario *s = &scenarios[1];
    double          mean = 0;
    int             seen = 0;
    for (uint64_t t = 0; t < TRIALS; t++) mean += session(s, 1000 + t, 0).detectable / TRIALS;
    for (uint64_t t = 0; t < TRIALS; t++) seen += session(s, 90000 + t, mean).verdict == TM_PAIRED_SLOWER;
    if (seen < TRIALS * 70 / 100 || seen > TRIALS * 92 / 100)
        fail_msg("%d of %d sessions saw %.4f", seen, TRIALS, mean);
}
