/* SPDX-License-Identifier: Apache-2.0 */
/* Several starts against several: values worked out by hand, who took turns, and the promises counted on 400 recorded
 * starts: no alarm where nothing differs, a slowdown of 5 % seen. */
#include "support/test.h"

#include "base/random.h"
#include "stats/series.h"
#include "stats/starts.h"

static void near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("%.9g is not %.9g", value, wanted);
}

/* Speeds, the i-th at when[i]. */
static tm_start *starts(const double *speed, const double *when, int n, tm_start out[64])
{
    for (int i = 0; i < n; i++) out[i] = (tm_start){ speed[i], when ? when[i] : (double)NAN };
    return out;
}

/* a, b, a, b, ... one per minute. */
static tm_starts_result in_turns(const double *a, const double *b, int n, double accepted)
{
    tm_start x[64], y[64];
    for (int i = 0; i < n; i++) {
        x[i] = (tm_start){ a[i], 120.0 * i };
        y[i] = (tm_start){ b[i], 120.0 * i + 60 };
    }
    return tm_starts_judge(x, n, y, n, accepted);
}

/* Without times: the means of the logarithms, one deviation, Student's t for 99 %. */
TEST(by_hand)
{
    tm_start         x[64], y[64];
    const double     a[] = { exp(.01), exp(-.01), exp(.01), exp(-.01), 1 };
    const double     b[] = { exp(.12), exp(.08), exp(.12), exp(.08), exp(.12), exp(.08) };
    double           deviation = sqrt((4e-4 + 6 * 4e-4) / 9), half = 3.250 * deviation * sqrt(1. / 5 + 1. / 6);
    tm_starts_result r = tm_starts_judge(starts(a, NULL, 5, x), 5, starts(b, NULL, 6, y), 6, 0.05);
    near(r.slowdown, 1 - exp(-.1), 1e-12);
    near(r.lo, 1 - exp(-.1 + half), 1e-4);
    near(r.hi, 1 - exp(-.1 - half), 1e-4);
    near(r.spread[0], .01, 1e-12);
    near(r.spread[1], sqrt(4.8e-4), 1e-12);
    assert_false(r.in_turns);
    assert_int_equal(r.verdict, TM_STARTS_APART);
    assert_int_equal(tm_starts_judge(x, 5, y, 6, 0.096).verdict, TM_STARTS_KEPT); /* more is accepted */
    assert_int_equal(tm_starts_judge(y, 6, x, 5, 0.05).verdict, TM_STARTS_KEPT);  /* it is faster */
    assert_int_equal(tm_starts_judge(y, 6, x, 5, 0.01).verdict, TM_STARTS_IMPRECISE);
}

/* What is a constant, a slowdown and a straight line in the order of time is fitted without a rest; with a rest that no
 * line explains, the change is what least squares say: normal equations of 3 x 3 by Cramer's rule. */
TEST(a_drift_is_no_difference)
{
    double a[7], b[7], rest[14], m[3][4] = { { 0 } };
    for (int i = 0; i < 7; i++) {
        a[i] = exp(-.03 + .02 * 2 * i);
        b[i] = exp(.02 * (2 * i + 1));
    }
    tm_starts_result r = in_turns(a, b, 7, 0.025);
    near(r.slowdown, 1 - exp(-.03), 1e-12);
    near(r.hi - r.lo, 0, 1e-9);
    assert_true(r.in_turns);
    assert_int_equal(r.verdict, TM_STARTS_SLOWER);
    for (int i = 0; i < 14; i++) {
        double *side = i % 2 ? b : a, row[3] = { 1, 1 - i % 2, i };
        rest[i] = 0.01 * tm_random_normal(4, 1, (uint64_t)i);
        side[i / 2] *= exp(rest[i]);
        for (int j = 0; j < 3; j++) {
            for (int k = 0; k < 3; k++) m[j][k] += row[j] * row[k];
            m[j][3] += row[j] * log(side[i / 2]);
        }
    }
    r = in_turns(a, b, 7, 0.025);
    double d[2];
    for (int c = 0; c < 2; c++) { /* the determinant, and with the second column replaced */
        double n[3][3];
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 3; k++) n[j][k] = c && k == 1 ? m[j][3] : m[j][k];
        d[c] = n[0][0] * (n[1][1] * n[2][2] - n[1][2] * n[2][1]) - n[0][1] * (n[1][0] * n[2][2] - n[1][2] * n[2][0]) +
               n[0][2] * (n[1][0] * n[2][1] - n[1][1] * n[2][0]);
    }
    near(log(1 - r.slowdown), d[1] / d[0], 1e-9);
}

TEST(too_few)
{
    tm_start     a[64], b[64];
    const double x[] = { 100, 101, 99, 100, 102 }, slow[] = { 50, 51, 49, 50, 50 };
    const double when[] = { 0, 2, 4, 6, 8 }, later[] = { 1, 3, 5, 7, 9 };
    for (int n = 0; n < 5; n++)
        for (int swap = 0; swap < 2; swap++) {
            starts(slow, when, 5, a);
            starts(x, later, 5, b);
            tm_starts_result r = tm_starts_judge(a, swap ? 5 : n, b, swap ? n : 5, 0.025);
            assert_int_equal(r.verdict, TM_STARTS_FEW);
            assert_true(isnan(r.lo) && isnan(r.hi) && isnan(r.slowdown) == (n == 0));
            assert_true(r.needed >= TM_STARTS_LEAST);
        }
    assert_int_equal(tm_starts_judge(a, 5, b, 5, 0.025).verdict, TM_STARTS_SLOWER);
    assert_int_equal(tm_starts_judge(NULL, 0, NULL, 0, 0.025).verdict, TM_STARTS_FEW);
    assert_int_equal(tm_starts_judge(a, 1, b, 1, 0.025).needed, TM_STARTS_LEAST); /* a spread that nobody has seen */
    /* Equal to the last digit: no spread. */
    const double     same[] = { 7, 7, 7, 7, 7 }, less[] = { 6, 6, 6, 6, 6 };
    tm_starts_result r = in_turns(same, same, 5, 0.025);
    assert_int_equal(r.verdict, TM_STARTS_KEPT);
    near(r.hi - r.lo, 0, 1e-12);
    assert_int_equal(in_turns(less, same, 5, 0.025).verdict, TM_STARTS_SLOWER);
}

/* With so many starts half of the interval is what is accepted; with one fewer of each side it is wider. */
TEST(needed_is_enough)
{
    double x[64], y[64];
    for (int i = 0; i < 8; i++) {
        x[i] = exp(.015 * (i % 4 < 2 ? 1 : -1));
        y[i] = exp(.015 * (i % 4 < 2 ? -1 : 1));
    }
    tm_starts_result r = in_turns(x, y, 8, 0.012);
    double           s = .015 * sqrt(16 / 13.); /* of 16 starts, less constant, side and line, which are none here */
    assert_int_equal(r.verdict, TM_STARTS_IMPRECISE);
    assert_in_range(r.needed, 9, 63);
    for (int64_t k = r.needed - 1; k <= r.needed; k++) {
        bool wide = tm_stats_student_of(2.5758293, 2 * (double)k - 3) * s * sqrt(2 / (double)k) > 0.012;
        assert_int_equal(wide, k < r.needed);
    }
    const double wild[] = { 1, 2, 16, 4, 8 }, other[] = { 4, 1, 2, 16, 4 };
    assert_int_equal(in_turns(wild, other, 5, 0.001).needed, TM_STARTS_MOST_NEEDED);
}

TEST(who_took_turns)
{
    static const struct {
        const char *order; /* in time; '=': the one before and the one behind it are of the same second */
        bool        turns;
    } cases[] = { { "abababababab", true },        { "abbaabbaab", true },      { "aaaaabbbbb", false },
                  { "aaaaaaaabab", true },         { "a=ab=ba=ab=ba=b", true }, { "aaaaa=bbbbb", false },
                  { "a=a=a=a=a=b=b=b=b=b", true }, { "aaaaa", false },          { "", false } };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        tm_start a[16], b[16];
        double   now = 1000;
        int      n_a = 0, n_b = 0;
        for (const char *p = cases[c].order; *p; p++) {
            if (*p == '=') {
                now--;
                continue;
            }
            if (*p == 'a')
                a[n_a++] = (tm_start){ 1, now++ };
            else
                b[n_b++] = (tm_start){ 1, now++ };
        }
        for (int i = 0; i < n_a / 2; i++) { /* in which order they are given says nothing */
            tm_start swap = a[i];
            a[i] = a[n_a - 1 - i];
            a[n_a - 1 - i] = swap;
        }
        if (tm_starts_judge(a, n_a, b, n_b, 1).in_turns != cases[c].turns) fail_msg("%s", cases[c].order);
        if (n_b == 0) continue;
        b[0].when = (double)NAN;
        assert_false(tm_starts_judge(a, n_a, b, n_b, 1).in_turns);
    }
}

/* --- recorded starts ---------------------------------------------------------------------------------------------- */

enum { RECORDED = 400, MOST = 10 };

typedef struct {
    int trials, slower, kept, apart, imprecise;
} counts;

/* One comparison of 2 k speeds in the order of time: the two sides in turns, x y y x x y ..., or one after the other;
 * which of them is A, chance decides. A's speed is multiplied by `factor`. */
static tm_starts_verdict compare(const double *speed, int k, bool turns, bool a_first, double factor)
{
    tm_start side[2][MOST];
    for (int i = 0; i < k; i++) {
        int x = turns ? 2 * i + i % 2 : i, y = turns ? 2 * i + 1 - i % 2 : k + i;
        side[!a_first][i] = (tm_start){ speed[x] * (a_first ? factor : 1), x };
        side[a_first][i] = (tm_start){ speed[y] * (a_first ? 1 : factor), y };
    }
    return tm_starts_judge(side[0], k, side[1], k, 0.025).verdict;
}

static void add(counts *c, tm_starts_verdict verdict)
{
    c->trials++;
    c->slower += verdict == TM_STARTS_SLOWER;
    c->kept += verdict == TM_STARTS_KEPT;
    c->apart += verdict == TM_STARTS_APART;
    c->imprecise += verdict == TM_STARTS_IMPRECISE;
}

/* Every window of 2 k recorded starts in a row that are not noisy, two starts apart. */
TEST(recorded_starts_keep_the_promises)
{
    double calm[RECORDED];
    char   word[80];
    int    n = 0;
    bool   kept = true;
    FILE  *file = fopen("tests/stats/recorded_starts.txt", "r");
    assert_non_null(file);
    while (fscanf(file, "%79s", word) == 1)
        if (strtod(word, NULL) > 10000) calm[n++] = strtod(word, NULL);
    fclose(file);
    for (int k = TM_STARTS_LEAST; k <= MOST; k++) {
        counts none = { 0 }, slow = { 0 }, apart = { 0 };
        for (int from = 0; from + 2 * k <= n; from += 2) {
            bool first = tm_random_below(3, 1, (uint64_t)from, 2);
            add(&none, compare(calm + from, k, true, first, 1));
            add(&slow, compare(calm + from, k, true, first, 1 / 1.05));
            add(&apart, compare(calm + from, k, false, first, 1));
        }
        print_message("# %2d starts of each: equal: slower %d, no verdict %d of %d; 5 %% slower: seen %d of %d, no "
                      "verdict %d; one "
                      "after the other: %d look slower\n",
                      k, none.slower, none.imprecise, none.trials, slow.slower, slow.trials, slow.imprecise,
                      apart.apart);
        kept &= none.trials >= 100 && none.slower == 0 && none.kept >= none.trials * 65 / 100;
        kept &= slow.slower * 100 >= slow.trials * (k < 7 ? 95 : 100) && slow.kept == 0;
        kept &= apart.slower == 0 && apart.apart > 0; /* the machine alone looks like a slowdown: turns are needed */
    }
    assert_true(kept);
}
