/* SPDX-License-Identifier: Apache-2.0 */
/* The check of training steps on a node of which one core is broken. This file takes the place of apps/node/training.c
 * and base/clock.c in its program: a training is three made-up tensors and takes a hundredth of a second; a fault flips
 * a bit of one. */
#include "apps/node/checks.h"
#include "apps/node/training.h"

#include <sched.h>
#include <stdatomic.h>

#include "node/made_clock.h"
#include "support/test.h"
#include "node/one_check.h"

typedef enum { NONE, ONCE, ALWAYS, EVERY_TIME_ELSE, FAILS, LACKS } fault;
static fault      planted;
static int        in_run; /* of the broken core, from 1 on: ONCE */
static int        broken; /* processor */
static atomic_int runs;   /* of the llama in float32 at the broken core */

/* Is this a thread of a core, and of the broken one? */
static bool at_broken_core(void)
{
    cpu_set_t set;
    return gettid() != getpid() && sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
           CPU_ISSET(broken, &set);
}

const char *tm_node_model_name(int model)
{
    return model == 0 ? "llama" : "gpt";
}

bool tm_node_format_at(int i, tm_node_format *out)
{
    static const tm_precision *const plain[] = { &tm_precision_f32, &tm_precision_bf16 };
    if (i < 2) *out = (tm_node_format){ .name = plain[i]->name, .precision = plain[i], .models = 2 };
    return i < 2;
}

tm_status tm_node_train(tm_device *device, const tm_node_format *format, int model, uint64_t seed, tm_node_trace *out,
                        tm_error *err)
{
    unsigned char values[16] = { (unsigned char)seed, (unsigned char)model, (unsigned char)format->precision->compute };
    (void)device;
    made_work(0.01, 1);
    const bool here = model == 0 && format->precision == &tm_precision_f32 && at_broken_core();
    const int  run = here ? atomic_fetch_add(&runs, 1) + 1 : 0;
    if (here && planted == FAILS) return tm_fail(err, TM_DEVICE, "the device is gone");
    if (here && planted == LACKS) return tm_fail(err, TM_UNSUPPORTED, "no kernel");
    tm_node_trace_add(out, "x", 1, values, 16);
    if (here && ((planted == ONCE && run == in_run) || planted == ALWAYS)) values[5] ^= 16;
    if (here && planted == EVERY_TIME_ELSE) values[6] = (unsigned char)run;
    tm_node_trace_add(out, "layers.0.wq", 1, values, 16);
    tm_node_trace_add(out, "z", 1, values, 2);
    return TM_OK;
}

/* Until the broken core has done at least so many runs. */
static tm_node_outcome check(fault what, int run, int least_runs)
{
    tm_node_outcome out = { 0 };
    planted = what, in_run = run, broken = first_processor();
    for (double seconds = 0.05;; seconds *= 2) {
        const tm_node_options options = { .seed = 7, .devices = "cpu" };
        const tm_node_task    task = { .options = &options, .seconds = seconds, .ranks = 1, .first = true };
        tm_error              err = { 0 };
        atomic_store(&runs, 0);
        assert_int_equal(node_check_step(&task, &out, &err), TM_OK);
        if (runs >= least_runs) return out;
        tm_node_outcome_fini(&out);
    }
}

/* Facts of float32 that are not as most are. */
static size_t odd_facts(const tm_node_outcome *out, char place[TM_NODE_PLACE])
{
    size_t odd = 0;
    for (size_t i = 0; i < out->n_facts; i++) {
        size_t same = 0, all = 0;
        for (size_t k = 0; k < out->n_facts; k++) {
            if (strcmp(out->facts[i].name, out->facts[k].name) != 0) continue;
            all++;
            same += strcmp(out->facts[i].text, out->facts[k].text) == 0;
        }
        if (2 * same > all || strcmp(out->facts[i].place, "CPU") == 0) continue;
        odd++;
        strcpy(place, out->facts[i].place);
    }
    return odd;
}

static void expect(fault what, int run, int least_runs, const char *words[3])
{
    tm_node_outcome out = check(what, run, least_runs);
    assert_int_equal(out.n_findings, 1);
    assert_string_equal(out.findings[0].place, core_of(broken));
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strstr(out.findings[0].text, words[i])) fail_msg("'%s' lacks '%s'", out.findings[0].text, words[i]);
    assert_int_equal(out.verdict, TM_NODE_FAIL);
    tm_node_outcome_fini(&out);
}

TEST(a_good_node_passes)
{
    char            place[TM_NODE_PLACE];
    tm_node_outcome out = check(NONE, 0, 2);
    assert_int_equal(out.verdict, TM_NODE_PASS);
    assert_int_equal(out.n_findings, 0);
    assert_true(out.n_facts >= 4 && out.n_facts % 2 == 0); /* two formats, a core and the CPU at least */
    assert_int_equal(odd_facts(&out, place), 0);
    assert_non_null(strstr(out.facts[0].name, "step in float32, "));
    assert_non_null(strstr(out.reach, "2 of 2 formats"));
    tm_node_outcome_fini(&out);
}

TEST(one_flipped_bit_is_named)
{
    static const char *const numbers[] = { "", "run 1 differs", "run 2 differs", "run 3 differs" };
    for (int run = 1; run <= 3; run++)
        expect(ONCE, run, 4,
               (const char *[3]){ numbers[run], "step 1, first in layers.0.wq: 1 bit; 1 of 3 tensors",
                                  "llama in float32" });
}

TEST(a_core_that_is_always_wrong_has_another_fact)
{
    char            place[TM_NODE_PLACE];
    tm_node_outcome out = check(ALWAYS, 0, 2);
    assert_int_equal(out.n_findings, 0); /* it agrees with itself; who compares names it */
    assert_int_equal(odd_facts(&out, place), 1);
    assert_string_equal(place, core_of(broken));
    tm_node_outcome_fini(&out);
}

TEST(no_two_runs_agree)
{
    expect(EVERY_TIME_ELSE, 0, 3, (const char *[3]){ "no two of three runs agree", "layers.0.wq", NULL });
}

TEST(a_failure_is_a_finding_and_a_lack_is_told)
{
    expect(FAILS, 0, 1, (const char *[3]){ "the device is gone", "llama in float32", NULL });
    tm_node_outcome out = check(LACKS, 0, 1);
    assert_int_equal(out.n_findings, 0);
    assert_non_null(strstr(out.reach, "cannot train float32"));
    tm_node_outcome_fini(&out);
}

TESTS_ALONE
