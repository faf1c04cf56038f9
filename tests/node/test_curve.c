/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of products and of rates under load on a made-up node: a core is slow at one shape, or multiplies wrongly;
 * all of it or a core becomes slow in the middle, and sensors say why, or are not there. This file takes the place of
 * apps/node/load.c, apps/node/watch.c and base/clock.c in its program: time is what the products take. */
#include "apps/node/checks.h"
#include "apps/node/load.h"
#include "apps/node/watch.h"

#include "base/arena.h"
#include "base/random.h"

#include <sched.h>

#include "node/made_clock.h"
#include "support/test.h"
#include "node/one_check.h"

enum { CALLS_UNTIL = 32 }; /* samples before the fall */

static double fall_of_all, fall_of_core; /* parts */
static double slow;                      /* part, of the second product at the broken core */
static int    wrong_call;                /* of the first product there */
static double late_share = 1;            /* of a processor, that threads have behind the fall */
static bool   has_sensors, clock_falls, throttles, wrong;
static int    broken;   /* processor */
static int    readings; /* of sensors: samples that are done */

struct tm_node_load {
    uint64_t runs, samples;
    int      product;
    bool     is_broken;
};

struct tm_node_watch {
    int none;
};

int tm_node_products(bool gpu, tm_node_product out[TM_NODE_PRODUCTS])
{
    assert_false(gpu);
    for (int i = 0; i < TM_NODE_PRODUCTS; i++) {
        out[i] =
            (tm_node_product){ .dtype = i < 2 ? TM_F32 : TM_BF16, .m = 10, .n = 10, .k = i, .flops = 1e5 * (i + 1) };
        snprintf(out[i].name, sizeof out[i].name, "product %d", i);
    }
    return 3;
}

/* There is none of bfloat16. */
tm_status tm_node_load_open(tm_device *device, const tm_node_product *product, uint64_t seed, tm_node_load **out,
                            tm_error *err)
{
    cpu_set_t set;
    (void)device;
    assert_int_equal(seed, 7);
    if (product->dtype == TM_BF16) return tm_fail(err, TM_UNSUPPORTED, "no kernel");
    *out = memset(tm_alloc(sizeof **out), 0, sizeof **out);
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    (*out)->is_broken = CPU_COUNT(&set) == 1 && CPU_ISSET(broken, &set);
    (*out)->product = (int)product->k;
    return TM_OK;
}

void tm_node_load_close(tm_node_load *load)
{
    free(load);
}

tm_status tm_node_load_move(tm_node_load *load, tm_error *err)
{
    (void)load, (void)err;
    return TM_OK;
}

/* 1 GFLOP/s, give or take a percent. */
tm_status tm_node_load_run(tm_node_load *load, int64_t calls, double *seconds, tm_error *err)
{
    (void)err;
    const bool late = load->samples >= CALLS_UNTIL;
    *seconds =
        (double)calls * 1e-4 * (load->product + 1) * (1 + 0.01 * tm_random_normal(3, load->is_broken, load->runs++));
    if (late) *seconds /= (1 - fall_of_all) * (load->is_broken ? 1 - fall_of_core : 1);
    if (load->product == 1 && load->is_broken) *seconds /= 1 - slow;
    made_work(*seconds, late ? late_share : 1);
    return TM_OK;
}

/* Once a sample. */
tm_status tm_node_load_verify(tm_node_load *load, char text[TM_NODE_TEXT], tm_error *err)
{
    (void)err;
    bool is = load->is_broken && load->product == 0 && (int)load->samples + 1 == wrong_call;
    is = is || (wrong && load->is_broken && load->samples > 2);
    snprintf(text, TM_NODE_TEXT, "%s", is ? "a product is 3" : "");
    load->samples++;
    return TM_OK;
}

tm_node_watch *tm_node_watch_processors(const int *processors, size_t n, const char *sysroot)
{
    assert_true(n > 0 && processors[0] == first_processor());
    assert_string_equal(sysroot, "/made/up");
    readings = 0;
    return tm_alloc(sizeof(tm_node_watch));
}

tm_node_watch *tm_node_watch_gpu(const tm_device *device)
{
    (void)device;
    return NULL;
}

void tm_node_watch_close(tm_node_watch *watch)
{
    free(watch);
}

void tm_node_watch_read(tm_node_watch *watch, double seconds, tm_node_sensed *out)
{
    (void)watch, (void)seconds;
    const double nan = (double)NAN;
    const bool   late = readings++ >= CALLS_UNTIL;
    *out = (tm_node_sensed){ nan, nan, nan, nan, nan };
    if (!has_sensors) return;
    out->clock_mhz = late && clock_falls ? 2500 : 3000;
    out->throttles = late && throttles ? 4 : 1;
    out->hottest_c = 70, out->watts = 200;
}

static tm_node_outcome check(void)
{
    const tm_node_options options = { .seed = 7, .devices = "cpu", .sysroot = "/made/up" };
    const tm_node_task    task = { .options = &options, .seconds = 0.1, .ranks = 1, .first = true };
    tm_node_outcome       out = { 0 };
    tm_error              err = { 0 };
    broken = first_processor();
    if (node_check_curve(&task, &out, &err) != TM_OK) fail_msg("%s", err.text);
    return out;
}

static void has(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("'%s' lacks '%s'", text, words);
}

TEST(a_steady_node_passes)
{
    for (int i = 0; i < 2; i++) {
        has_sensors = i > 0;
        tm_node_outcome out = check();
        assert_int_equal(out.verdict, TM_NODE_PASS);
        assert_int_equal(out.n_findings + out.n_told, 0);
        has(out.reach, i ? "clock yes, temperature yes, power yes, throttling yes" : "clock none, temperature none");
        const tm_node_figure *early = find_figure(&out, "early rate", "CPU"),
                             *late = find_figure(&out, "late rate", "CPU");
        assert_true(early && late && fabs(early->value / late->value - 1) < 0.02);
        assert_true((find_figure(&out, "clock under load", "CPU") != NULL) == has_sensors);
        assert_true((find_figure(&out, "power", "CPU") != NULL) == has_sensors);
        tm_node_outcome_fini(&out);
    }
}

TEST(a_fall_with_a_cause_is_a_finding)
{
    has_sensors = true, fall_of_all = 0.1;
    for (int i = 0; i < 2; i++) {
        clock_falls = i == 0, throttles = i == 1;
        tm_node_outcome out = check();
        assert_int_equal(out.verdict, TM_NODE_FAIL);
        assert_int_equal(out.n_findings, 1);
        assert_string_equal(out.findings[0].place, "CPU");
        has(out.findings[0].text, "the rate falls by ");
        has(out.findings[0].text, i ? "3 throttlings" : "clock 3000 to 2500 MHz");
        const double by = strtod(out.findings[0].text + strlen("the rate falls by "), NULL);
        if (fabs(by - 10) > 1.5) fail_msg("by %g %%", by);
        tm_node_outcome_fini(&out);
    }
}

TEST(a_fall_without_a_cause_is_no_verdict)
{
    fall_of_all = 0.1, clock_falls = throttles = false;
    for (int i = 0; i < 2; i++) {
        has_sensors = i > 0;
        tm_node_outcome out = check();
        assert_int_equal(out.verdict, TM_NODE_NO_VERDICT);
        has(out.reason, i ? "no sensor says why" : "there are no sensors of clock and temperature");
        tm_node_outcome_fini(&out);
    }
}

TEST(a_fall_beside_other_work_is_no_verdict)
{
    fall_of_all = 0.1, late_share = 0.9;
    tm_node_outcome out = check();
    assert_int_equal(out.verdict, TM_NODE_NO_VERDICT);
    has(out.reason, "other work took the processors from then on");
    tm_node_outcome_fini(&out);
}

TEST(throttling_without_a_fall_is_told)
{
    fall_of_all = 0, has_sensors = throttles = true, clock_falls = false;
    tm_node_outcome out = check();
    assert_int_equal(out.verdict, TM_NODE_PASS);
    assert_int_equal(out.n_told, 1);
    has(out.told[0].text, "heat throttles it");
    tm_node_outcome_fini(&out);
}

/* The figure says which. */
TEST(a_core_that_falls_keeps_less)
{
    fall_of_all = 0, fall_of_core = 0.2, has_sensors = throttles = false;
    tm_node_outcome out = check();
    size_t          n = 0;
    for (size_t i = 0; i < out.n_figures; i++) {
        const tm_node_figure *f = &out.figures[i];
        if (strcmp(f->name, "rate kept under load") != 0) continue;
        const double wanted = strcmp(f->place, core_of(broken)) == 0 ? 80 : 100;
        n++;
        if (fabs(f->value - wanted) > 3) fail_msg("%s keeps %g %%", f->place, f->value);
        assert_true(f->sense == TM_NODE_SPEED && f->floor >= 0.01 && f->floor < 0.05 && f->low < f->value);
    }
    assert_true(n > 0);
    tm_node_outcome_fini(&out);
}

TEST(a_wrong_product_is_a_finding)
{
    fall_of_core = 0, wrong = true;
    tm_node_outcome out = check();
    assert_int_equal(out.n_findings, 1);
    assert_string_equal(out.findings[0].text, "under load: a product is 3");
    tm_node_outcome_fini(&out);
    wrong = false;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* Without time there are the least rounds, on every machine. */
static tm_node_outcome check_products(double part, int call)
{
    const tm_node_options options = { .seed = 7, .devices = "cpu" };
    const tm_node_task    task = { .options = &options, .seconds = 0, .ranks = 1, .first = true };
    tm_node_outcome       out = { 0 };
    tm_error              err = { 0 };
    slow = part, wrong_call = call, broken = first_processor();
    if (node_check_product(&task, &out, &err) != TM_OK) fail_msg("%s", err.text);
    return out;
}

TEST(rates_are_those_of_the_cores)
{
    for (int turn = 0; turn < 2; turn++) {
        tm_node_outcome out = check_products(turn ? 0.2 : 0, 0);
        const double    wanted[2] = { 1, turn ? 0.8 : 1 };
        size_t          cores = 0;
        assert_int_equal(out.verdict, TM_NODE_PASS);
        for (int i = 0; i < 2; i++) {
            char                  name[32], whole[48];
            double                sum = 0;
            const tm_node_figure *f, *all;
            snprintf(name, sizeof name, "product %d", i);
            f = find_figure(&out, name, core_of(broken));
            snprintf(whole, sizeof whole, "%s, all cores", name);
            all = find_figure(&out, whole, "CPU");
            if (fabs(f->value - wanted[i]) > 0.02) fail_msg("%s: %g", name, f->value);
            assert_true(f->low < f->value && f->value < f->high && f->floor >= 0.01 && f->floor < 0.05);
            assert_string_equal(f->unit, "GFLOP/s");
            assert_int_equal(f->sense, TM_NODE_SPEED);
            cores = 0;
            for (size_t k = 0; k < out.n_figures; k++)
                if (strcmp(out.figures[k].name, name) == 0) sum += out.figures[k].value, cores++;
            if (fabs(all->value / sum - 1) > 0.01) fail_msg("%g of all, %g by cores", all->value, sum);
        }
        assert_int_equal(out.n_figures, 2 * (cores + 1)); /* none of what has no kernel */
        tm_node_outcome_fini(&out);
    }
}

TEST(a_product_that_is_wrong_once_is_a_finding)
{
    for (int call = 1; call <= 5; call += 2) {
        tm_node_outcome out = check_products(0, call);
        assert_int_equal(out.n_findings, 1);
        assert_string_equal(out.findings[0].place, core_of(broken));
        assert_string_equal(out.findings[0].text, "product 0: a product is 3 (1 wrong)");
        tm_node_outcome_fini(&out);
    }
}

TESTS_ALONE
