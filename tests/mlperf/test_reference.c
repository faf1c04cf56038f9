/* SPDX-License-Identifier: Apache-2.0 */
/* Reference records: every statistic as the public checker prints it, pruning, choice, quantiles. */
#include "support/test.h"

#include "apps/mlperf/reference.h"
#include "support/folder.h"

static tm_arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = tm_arena_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tm_arena_destroy(arena);
    return test_folder_teardown(NULL);
}

static void exactly(double value, double wanted, const char *what)
{
    if (!(value >= wanted && value <= wanted)) fail_msg("%s: %.17g is not %.17g", what, value, wanted);
}

enum { R51 = TM_RULESET_5_1_0, R60 = TM_RULESET_6_0_0, R61 = TM_RULESET_6_1_0 };

TEST(published_statistics)
{
    const struct {
        const char *benchmark;
        int         batch;
        double      mean, deviation, max_speedup, minimum;
        bool        pruned;
        int         ruleset;
    } rows[] = {
        { "llama31_8b", 16, 161109.33333333334, 4387.693626496726, 1.0201988160016358, 157919.5454909007, false, R51 },
        { "llama31_8b", 32, 178858.66666666666, 7165.0736883859045, 1.0299965952657717, 173649.76494948068, false,
          R51 },
        { "llama31_8b", 64, 226645.33333333334, 10623.969156581734, 1.0352795604804523, 218921.86611715954, false,
          R51 },
        { "llama31_8b", 96, 278640.0, 11417.48385591151, 1.0307033773414442, 270339.6594262775, false, R51 },
        { "llama31_8b", 128, 344746.6666666667, 24352.261549186762, 1.054132742755422, 327042.93556571007, false, R51 },
        { "llama2_70b_lora", 8, 3178.6666666666665, 299.91358755481554, 1.0736439248523562, 2960.6339616775513, false,
          R51 },
        { "llama2_70b_lora", 16, 4032.0, 411.3462774840682, 1.0801087714179227, 3732.957371234894, false, R51 },
        { "llama2_70b_lora", 32, 6037.333333333333, 323.56415128997224, 1.0405415317258553, 5802.107027212778, true,
          R51 },
        { "llama2_70b_lora", 128, 11264.0, 844.8000000000001, 1.0576681742239389, 10649.842998504639, false, R51 },
        { "flux1", 512, 8170154.666666667, 252462.50151782937, 1.0229804994575638, 7986618.1916457815, false, R51 },
        { "flux1", 1024, 8752696.888888888, 577163.4633946954, 1.0503520716645824, 8333107.65505298, false, R51 },
        { "flux1", 2048, 10733340.444444444, 600504.3331835, 1.0423974856054605, 10296782.746180695, false, R51 },
        { "flux1", 4096, 15626695.111111112, 479085.64192453097, 1.0227961017121723, 15278406.991336636, false, R51 },
        { "flux1", 512, 7223523.555555556, 152854.90535223266, 1.0156238727526143, 7112400.31802114, false, R60 },
        { "flux1", 1024, 8490552.888888888, 240258.9445957007, 1.0210037300256005, 8315888.2178383395, true, R61 },
        { "flux1", 2048, 10296433.777777778, 700959.5271215022, 1.0520685717116232, 9786846.6510946, false, R60 },
        { "flux1", 4096, 15379114.666666666, 500653.863856617, 1.0242400491397154, 15015146.771095276, false, R61 },
        { "gpt_oss_20b", 16, 194560.0, 8034.322532734169, 1.030949865008065, 188719.16724920273, false, R60 },
        { "gpt_oss_20b", 32, 234837.33333333334, 7673.853540431951, 1.0243339974540289, 229258.5562102, true, R60 },
        { "gpt_oss_20b", 64, 301056.0, 14783.950129786017, 1.0370217170785487, 290308.2886712551, false, R61 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char                what[64];
        tm_reference_record r;
        const tm_reference *reference = tm_reference_built_in(rows[i].benchmark, (tm_ruleset)rows[i].ruleset, arena);
        snprintf(what, sizeof what, "%s %d", rows[i].benchmark, rows[i].batch);
        assert_int_equal(tm_reference_choose(reference, rows[i].batch, true, &r), TM_REFERENCE_FOUND);
        assert_int_equal(r.batch, rows[i].batch);
        assert_int_equal(r.n, 20);
        assert_true(r.whole);
        exactly(r.mean, rows[i].mean, what);
        exactly(r.deviation, rows[i].deviation, what);
        exactly(r.minimum, rows[i].minimum, what);
        exactly(r.max_speedup, rows[i].max_speedup, what);
        assert_int_equal(r.pruned, rows[i].pruned);
        for (size_t k = 1; k < r.n; k++) assert_true(r.samples[k - 1] <= r.samples[k]);
    }
    assert_int_equal(tm_reference_built_in("llama31_8b", TM_RULESET_5_1_0, arena)->n, 5);
    assert_int_equal(tm_reference_built_in("llama2_70b_lora", TM_RULESET_5_1_0, arena)->n, 4);
    assert_null(tm_reference_built_in("llama31_405b", TM_RULESET_5_1_0, arena));
    assert_null(tm_reference_built_in("", TM_RULESET_5_1_0, arena));
    assert_int_equal(tm_reference_built_in("flux1", TM_RULESET_5_1_0, arena)->n, 4); /* those of one round */
    assert_int_equal(tm_reference_built_in("flux1", TM_RULESET_6_1_0, arena)->n, 4);
    assert_null(tm_reference_built_in("gpt_oss_20b", TM_RULESET_5_1_0, arena));
}

/* Records whose values are all `mean`: no deviation, the minimum is the mean. */
static tm_reference flat(const double (*points)[2], size_t n)
{
    tm_reference reference = { .kind = tm_reference_kind_find("llama31_8b"), .n = n };
    reference.records = tm_arena_take(arena, n * sizeof *reference.records);
    for (size_t i = 0; i < n; i++) {
        tm_reference_record *r = &reference.records[i];
        *r = (tm_reference_record){ .batch = (int64_t)points[i][0], .n = 20 };
        r->samples = tm_arena_take(arena, 20 * sizeof *r->samples);
        for (size_t k = 0; k < 20; k++) r->samples[k] = points[i][1];
    }
    tm_reference_finish(&reference);
    return reference;
}

TEST(pruning_is_one_forward_pass)
{
    const double points[][2] = { { 64, 150 }, { 8, 110 }, { 128, 160 }, { 16, 100 }, { 48, 128 }, { 32, 130 } };
    tm_reference reference = flat(points, 6);
    const struct {
        int  batch;
        bool pruned;
    } wanted[] = { { 8, true }, { 16, false }, { 32, true }, { 48, false }, { 64, true }, { 128, false } };
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(reference.records[i].batch, wanted[i].batch);
        assert_int_equal(reference.records[i].pruned, wanted[i].pruned);
        exactly(reference.records[i].minimum, reference.records[i].mean, "no deviation");
        exactly(reference.records[i].max_speedup, 1, "no deviation");
    }
    const double equal[][2] = { { 16, 100 }, { 32, 100 }, { 64, 100 } };
    reference = flat(equal, 3);
    for (size_t i = 0; i < 3; i++) assert_false(reference.records[i].pruned);
}

TEST(quantiles)
{
    /* To 22 digits: 1.710882079909428441936, 1.705617919759273233604. The public checker's library is 4 and 2 units of
     * the last place off, which no printed digit of a record shows. */
    exactly(tm_student_quantile_95(24), 1.710882079909428441936, "24");
    exactly(tm_student_quantile_95(26), 1.705617919759273233604, "26");
    assert_true(fabs(tm_student_quantile_95(24) - 1.7108820799094275) < 2e-15);
    assert_true(fabs(tm_student_quantile_95(26) - 1.7056179197592727) < 2e-15);
    /* Closed forms: tan(0.45 pi) and 0.9 sqrt(2 / 0.19). */
    exactly(tm_student_quantile_95(1), 6.313751514675043098979, "1");
    exactly(tm_student_quantile_95(2), 2.919985580353725686961, "2");
    double before = (double)INFINITY;
    for (int n = 1; n <= 300; n++) {
        double t = tm_student_quantile_95(n);
        assert_true(t < before && t > 1.6448536269514722); /* falls towards the normal's */
        before = t;
    }
    assert_true(fabs(tm_student_quantile_95(20000) - 1.6449306) < 1e-6); /* Cornish-Fisher: z + (z^3 + z) / 4n */
}

TEST(numpy_order)
{
    double x[300], plain = 0;
    for (int i = 0; i < 300; i++) plain += x[i] = 1.0 / (i + 3);
    assert_true(fabs(tm_numpy_sum(x, 300) - plain) < 1e-14 * plain);
    double       by_hand = 0;
    const double seven[] = { 1e16, 1, 1, 1, 1, 1, -1e16 };
    for (int i = 0; i < 7; i++) by_hand += seven[i];
    exactly(tm_numpy_sum(seven, 7), by_hand, "in order below eight");
    const double nine[] = { 1e16, 1, 1, 1, 1, 1, 1, 1, -1e16 }; /* ((1e16+1)+2)+(2+2) - 1e16 */
    exactly(tm_numpy_sum(nine, 9), 6, "a tree of eight, then the rest");
    double most[129] = { 1e16 }; /* in a lane of eight ones are lost beside 1e16 */
    for (int i = 1; i < 129; i++) most[i] = 1;
    exactly(tm_numpy_sum(most, 7), 1e16, "seven in order");
    exactly(tm_numpy_sum(most, 8), 1e16 + 6, "eight lanes of one");
    exactly(tm_numpy_sum(most, 128), 1e16 + 112, "eight lanes of sixteen");
    exactly(tm_numpy_sum(most, 129), (1e16 + 56) + 65, "two times eight lanes of eight, and one");
    /* Halves above 128: 129 = 64 + 65. The same sums, taken apart. */
    exactly(tm_numpy_sum(x, 129), tm_numpy_sum(x, 64) + tm_numpy_sum(x + 64, 65), "halves");
    exactly(tm_numpy_sum(x, 300), tm_numpy_sum(x, 144) + tm_numpy_sum(x + 144, 156), "halves of multiples of 8");
}

/* The third published benchmark: three runs, and a minimum that is lowered. */
TEST(relief_and_few_runs)
{
    double       x[] = { 250000, 260000, 270000, 280000, 260000, 260000 };
    tm_reference reference = { .kind = tm_reference_kind_find("llama31_405b"), .n = 1 };
    reference.records = tm_arena_take(arena, sizeof *reference.records);
    reference.records[0] = (tm_reference_record){ .batch = 1152, .samples = x, .n = 6 };
    tm_reference_finish(&reference);
    const tm_reference_record *r = &reference.records[0];
    exactly(r->mean, 262500, "mean");
    double threshold = r->mean - tm_student_quantile_95(3) * r->deviation * sqrt(1.0 / 4 + 1.0 / 1);
    assert_true(fabs(r->minimum - threshold) < 0.0001);
    exactly(r->max_speedup, r->mean / (r->minimum - 46080), "max speedup");
    tm_reference_record high = *r, between;
    high.batch = 4608;
    between = tm_reference_between(&reference, 2304, r, &high);
    exactly(between.max_speedup, between.mean / (between.minimum - 46080), "max speedup between");
}

TESTS_IN_ORDER
TEST_FIXTURE(set_up, tear_down)
