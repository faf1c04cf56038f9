/* SPDX-License-Identifier: Apache-2.0 */
/* The check of products on a node of which one core is slow at one shape, or multiplies wrongly. This file takes the
 * place of apps/node/load.c in its program: a load takes a made-up time. */
#include "apps/node/checks.h"
#include "apps/node/load.h"

#include "base/arena.h"
#include "base/random.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "node/one_check.h"

static int    broken; /* processor */
static double slow;   /* part, of the second product there */
static int    wrong_call;

struct tm_node_load {
    tm_device *device;
    int        product;
    uint64_t   calls, verified;
};

static bool at_broken_core(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 && CPU_ISSET(broken, &set);
}

int tm_node_products(bool gpu, tm_node_product out[TM_NODE_PRODUCTS])
{
    assert_false(gpu);
    for (int i = 0; i < 3; i++) {
        out[i] = (tm_node_product){ .dtype = TM_F32, .m = 10, .n = 10, .k = 5 * (i + 1), .flops = 1000. * (i + 1) };
        snprintf(out[i].name, sizeof out[i].name, "product %d", i);
    }
    return 3;
}

tm_status tm_node_load_open(tm_device *device, const tm_node_product *product, uint64_t seed, tm_node_load **out,
                            tm_error *err)
{
    assert_int_equal(seed, 7);
    if (product->k == 15) return tm_fail(err, TM_UNSUPPORTED, "no kernel");
    *out = memset(tm_alloc(sizeof **out), 0, sizeof **out);
    (*out)->device = device;
    (*out)->product = (int)(product->k / 5 - 1);
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
    const double noise = 0.01 * tm_random_normal(3, (uint64_t)first_processor(), load->calls++);
    *seconds = (double)calls * 1e-6 * (load->product + 1) * (1 + noise);
    if (load->product == 1 && at_broken_core()) *seconds /= 1 - slow;
    return TM_OK;
}

tm_status tm_node_load_verify(tm_node_load *load, char wrong[TM_NODE_TEXT], tm_error *err)
{
    (void)err;
    const bool is = at_broken_core() && load->product == 0 && (int)++load->verified == wrong_call;
    snprintf(wrong, TM_NODE_TEXT, "%s", is ? "element (1, 2) is 3; expected: 4" : "");
    return TM_OK;
}

/* Without time there are the least rounds, on every machine. */
static tm_node_outcome check(double part, int wrong)
{
    const tm_node_options options = { .seed = 7, .devices = "cpu" };
    const tm_node_task    task = { .options = &options, .seconds = 0, .ranks = 1, .first = true };
    tm_node_outcome       out = { 0 };
    tm_error              err = { 0 };
    slow = part, wrong_call = wrong, broken = first_processor();
    if (node_check_product(&task, &out, &err) != TM_OK) fail_msg("%s", err.text);
    return out;
}

TEST(rates_are_those_of_the_cores)
{
    for (int turn = 0; turn < 2; turn++) {
        tm_node_outcome out = check(turn ? 0.2 : 0, 0);
        const double    wanted[2] = { 1, turn ? 0.8 : 1 };
        size_t          cores = 0;
        assert_int_equal(out.verdict, TM_NODE_PASS);
        for (int i = 0; i < 2; i++) {
            char                  name[32], whole[48];
            double                sum = 0;
            const tm_node_figure *f, *all;
            snprintf(name, sizeof name, "product %d", i);
            f = find_figure(&out, name, core_of(first_processor()));
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

TEST(a_wrong_product_is_a_finding)
{
    for (int call = 1; call <= 5; call += 2) {
        tm_node_outcome out = check(0, call);
        assert_int_equal(out.n_findings, 1);
        assert_string_equal(out.findings[0].place, core_of(first_processor()));
        assert_string_equal(out.findings[0].text, "product 0: element (1, 2) is 3; expected: 4 (1 wrong)");
        tm_node_outcome_fini(&out);
    }
}

TESTS_ALONE
