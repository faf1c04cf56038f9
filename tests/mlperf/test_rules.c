/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of test that rules are made of: every verdict at its limits, and word for word what a failed one says. */
#include "apps/mlperf/rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

static const char *const three[] = { "one", "two", "three", NULL }, *const lone[] = { "only", NULL };

static const tm_json_value *json(tm_arena *arena, const char *text)
{
    const char          *problem;
    size_t               where;
    const tm_json_value *value = text ? tm_json_parse(arena, text, strlen(text), &problem, &where) : NULL;
    if (text && !value) fail_msg("%s: %s", text, problem);
    return value;
}

/* P: passed, F: failed, I: impossible. */
static char verdict(test_result result)
{
    return result == TEST_PASSED ? 'P' : result == TEST_FAILED ? 'F' : result == TEST_IMPOSSIBLE ? 'I' : '?';
}

/* Each of `values`, JSON texts behind their verdict: "P1.5 F\"x\"", none with a blank. */
static void verdicts(const rule_test *t, const rule_memory *memory, bool metadata, const char *values)
{
    tm_arena *arena = tm_arena_create();
    for (const char *at = values; *at; at += strspn(at, " ")) {
        size_t                n = strcspn(at, " ");
        const char           *text = tm_arena_format(arena, "%.*s", (int)n - 1, at + 1);
        const tm_json_value  *value = json(arena, text), *null = json(arena, "null");
        const tm_mllog_record record = { .value = metadata ? null : value, .metadata = metadata ? value : null };
        char                  is = verdict(rule_test_run(t, &record, memory));
        if (is != *at) fail_msg("kind %d, %s: %c, not %c", t->kind, text, is, *at);
        at += n;
    }
    tm_arena_destroy(arena);
}

TEST(values_at_their_limits)
{
    static const struct {
        rule_test   t;
        const char *values;
    } rows[] = {
        { { .kind = TEST_NONE }, "Pnull P0 P\"\"" },
        { { .kind = TEST_NOT_EMPTY }, "F\"\" P\"a\" P0 Pnull P[] P{}" },
        { { .kind = TEST_TEXT, .a = "adamw" }, "P\"adamw\" F\"adam\" F\"adamw2\" F\"\" F1 Fnull" },
        { { .kind = TEST_NUMBER, .lo = 2.5 }, "P2.5 P2.50 F2.4 F2.6 F\"2.5\" Fnull FNaN F[]" },
        { { .kind = TEST_NUMBER, .lo = 1 }, "P1 P1.0 Ptrue Ffalse F2" },
        { { .kind = TEST_ONE_OF, .list = three }, "P\"one\" P\"two\" P\"three\" F\"four\" F\"\" F1 Fnull" },
        { { .kind = TEST_ABOVE, .lo = 3 }, "F3 F2.9 P3.1 P4 FNaN I\"4\" Inull PInfinity F-Infinity" },
        { { .kind = TEST_NOT_BELOW, .lo = 3 }, "P3 F2.9 P3.1 FNaN I\"4\" I[] PInfinity" },
        { { .kind = TEST_BELOW, .hi = 3 }, "F3 P2.9 F3.1 FNaN I\"2\" P-Infinity" },
        { { .kind = TEST_WITHIN, .lo = 1, .hi = 3 }, "F1 P1.1 P3 F3.1 F0 FNaN I\"2\" Inull" },
        { { .kind = TEST_WHOLE },
          "P0 P-4 P7.0 P7.000009 F7.000011 F7.00002 P6.999991 F6.999989 F7.5 INaN IInfinity I\"7\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        verdicts(&rows[i].t, &(rule_memory){ 0 }, false, rows[i].values);
}

TEST(values_beside_what_came_before)
{
    tm_arena       *arena = tm_arena_create();
    const rule_test rest = { .kind = TEST_REST, .lo = 100 }, up = { .kind = TEST_ROUNDED_UP, .lo = 100 };
    rule_memory     m = { 0 };
    verdicts(&rest, &m, false, "I100 I\"x\"");
    m.warmup = json(arena, "\"7\"");
    verdicts(&rest, &m, false, "I93");
    m.warmup = json(arena, "7");
    verdicts(&rest, &m, false, "P93 F100 F107 F92 F94 F\"93\" Fnull");
    verdicts(&up, &m, false, "I100");
    m.batch = json(arena, "\"32\"");
    verdicts(&up, &m, false, "I128");
    m.batch = json(arena, "0");
    verdicts(&up, &m, false, "I100 I0");
    m.batch = json(arena, "-32");
    verdicts(&up, &m, false, "I128 I96");
    m.batch = json(arena, "32");
    verdicts(&up, &m, false, "P128 F100 F96 F160 F\"128\" Fnull");
    m.batch = json(arena, "25");
    verdicts(&up, &m, false, "P100 F125 F75");
    m.batch = json(arena, "0.5");
    verdicts(&up, &m, false, "P100 F100.5");
    tm_arena_destroy(arena);
}

TEST(metadata_at_its_limits)
{
    static const struct {
        rule_test   t;
        const char *values;
    } rows[] = {
        { { .kind = TEST_HAS, .a = "x" }, "P{\"x\":0} P{\"x\":null} F{\"y\":1} F{} I[] I\"x\" I1 Inull" },
        { { .kind = TEST_HAS, .a = "x", .b = "y" }, "P{\"x\":0} P{\"y\":1} P{\"x\":0,\"y\":1} F{\"z\":1} F{} I[]" },
        { { .kind = TEST_IF_HAS, .a = "x", .b = "y" },
          "P{} P{\"y\":1} F{\"x\":0} P{\"x\":0,\"y\":1} F{\"x\":0,\"z\":1} I0" },
        { { .kind = TEST_IF_ABOVE, .a = "x", .lo = 5 },
          "P{} P{\"y\":1} F{\"x\":5} P{\"x\":5.5} F{\"x\":4} I{\"x\":\"6\"} I[]" },
        { { .kind = TEST_IF_NOT_BELOW, .a = "x", .lo = 5 },
          "P{} P{\"x\":5} P{\"x\":6} F{\"x\":4.5} I{\"x\":null} Inull" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        verdicts(&rows[i].t, &(rule_memory){ 0 }, true, rows[i].values);
}

TEST(states_and_the_time_of_the_initialisation)
{
    for (int set = 0; set < STATE_COUNT; set++)
        for (int asked = 0; asked < STATE_COUNT; asked++) {
            rule_memory m = { 0 };
            m.is[set] = true;
            verdicts(&(rule_test){ .kind = TEST_IS, .state = (rule_state)asked }, &m, false,
                     set == asked ? "P0" : "F0");
            verdicts(&(rule_test){ .kind = TEST_IS_NOT, .state = (rule_state)asked }, &m, false,
                     set == asked ? "F0" : "P0");
        }
    const rule_test t = { .kind = TEST_INIT_TIME };
    rule_memory     m = { .first_init_ms = 5000, .limit_minutes = 30 };
    tm_mllog_record r = { .time_ms = 5000 + 30 * 60000 };
    assert_int_equal(rule_test_run(&t, &r, &m), TEST_FAILED);
    r.time_ms -= 1;
    assert_int_equal(rule_test_run(&t, &r, &m), TEST_PASSED);
    m.limit_minutes = 0;
    r.time_ms = 5000;
    assert_int_equal(rule_test_run(&t, &r, &m), TEST_FAILED);
    m.first_init_ms = (double)INFINITY;
    assert_int_equal(rule_test_run(&t, &r, &m), TEST_PASSED);
}

/* --- words ---------------------------------------------------------------------------------------------------------
 */

TEST(what_each_wants)
{
    static const struct {
        rule_test   t;
        const char *words;
    } rows[] = {
        { { .kind = TEST_NONE }, "" },
        { { .kind = TEST_NOT_EMPTY }, "value != ''" },
        { { .kind = TEST_TEXT, .a = "adamw" }, "value == 'adamw'" },
        { { .kind = TEST_NUMBER, .lo = 2.5, .hi = 7 }, "value == 2.5" },
        { { .kind = TEST_ONE_OF, .list = three }, "value is one of 'one', 'two', 'three'" },
        { { .kind = TEST_ONE_OF, .list = lone }, "value is one of 'only'" },
        { { .kind = TEST_ABOVE, .lo = 3, .hi = 7 }, "value > 3" },
        { { .kind = TEST_NOT_BELOW, .lo = 3, .hi = 7 }, "value >= 3" },
        { { .kind = TEST_BELOW, .lo = 3, .hi = 7 }, "value < 7" },
        { { .kind = TEST_WITHIN, .lo = 1e-05, .hi = 3.3 }, "1e-05 < value <= 3.3" },
        { { .kind = TEST_WHOLE }, "value is a whole number" },
        { { .kind = TEST_REST, .lo = 1200000 }, "value == 1200000 - opt_learning_rate_warmup_steps, which come first" },
        { { .kind = TEST_ROUNDED_UP, .lo = 262144 },
          "value == 262144 rounded up to a multiple of global_batch_size, which comes first" },
        { { .kind = TEST_HAS, .a = "x", .b = "y" }, "metadata has 'x' or 'y'" },
        { { .kind = TEST_HAS, .a = "x" }, "metadata has 'x'" },
        { { .kind = TEST_IF_HAS, .a = "x", .b = "y" }, "metadata with 'x' has 'y'" },
        { { .kind = TEST_IF_ABOVE, .a = "x", .lo = 5 }, "'x' in metadata > 5" },
        { { .kind = TEST_IF_NOT_BELOW, .a = "x", .lo = 5 }, "'x' in metadata >= 5" },
        { { .kind = TEST_IS, .state = STATE_INIT_STARTED }, "init_started" },
        { { .kind = TEST_IS, .state = STATE_INIT_STOPPED }, "init_stopped" },
        { { .kind = TEST_IS, .state = STATE_RUN_STARTED }, "run_started" },
        { { .kind = TEST_IS_NOT, .state = STATE_RUN_STOPPED }, "not run_stopped" },
        { { .kind = TEST_INIT_TIME }, "initialisation takes less than 240 minutes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text out = { 0 };
        tm_text_add(&out, "|");
        rule_test_describe(&rows[i].t, &(rule_memory){ .limit_minutes = 240 }, &out);
        assert_string_equal(out.data + 1, rows[i].words);
        tm_text_fini(&out);
    }
}

static void found(const rule_test *t, const tm_mllog_record *r, const rule_memory *m, const char *words)
{
    tm_text out = { 0 };
    tm_text_add(&out, "; ");
    rule_test_found(t, r, m, &out);
    assert_string_equal(out.data + 2, words);
    tm_text_fini(&out);
}

TEST(what_each_found)
{
    tm_arena             *arena = tm_arena_create();
    const tm_mllog_record r = { .value = json(arena, "[1, \"a\"]"),
                                .metadata = json(arena, "{\"x\": 2}"),
                                .time_ms = 7500 };
    rule_memory           m = { .first_init_ms = 7000, .limit_minutes = 30 };
    const rule_test       rest = { .kind = TEST_REST, .lo = 5 };
    for (int kind = TEST_HAS; kind <= TEST_IF_NOT_BELOW; kind++)
        found(&(rule_test){ .kind = (rule_test_kind)kind, .a = "x" }, &r, &m, "metadata is {\"x\": 2}");
    for (int kind = TEST_NOT_EMPTY; kind <= TEST_ROUNDED_UP; kind++)
        if (kind != TEST_REST) found(&(rule_test){ .kind = (rule_test_kind)kind }, &r, &m, "value is [1, \"a\"]");
    found(&rest, &r, &m, "value is [1, \"a\"], warm-up steps did not come yet");
    m.warmup = json(arena, "12");
    found(&rest, &r, &m, "value is [1, \"a\"], warm-up is 12");
    m.is[STATE_RUN_STARTED] = true;
    found(&(rule_test){ .kind = TEST_IS, .state = STATE_RUN_STARTED }, &r, &m, "at this line it is set");
    found(&(rule_test){ .kind = TEST_IS_NOT, .state = STATE_RUN_STARTED }, &r, &m, "at this line it is set");
    found(&(rule_test){ .kind = TEST_IS, .state = STATE_RUN_STOPPED }, &r, &m, "at this line it is not set");
    found(&(rule_test){ .kind = TEST_INIT_TIME }, &r, &m, "it takes 500 ms");
    m.limit_minutes = 0;
    found(&(rule_test){ .kind = TEST_INIT_TIME }, &r, &m,
          "it takes 500 ms, and submission_division has to come before init_stop");
    tm_arena_destroy(arena);
}

/* 160 bytes of JSON are shown whole, of more the first 160. */
TEST(long_values_are_cut)
{
    tm_arena *arena = tm_arena_create();
    for (int n = 158; n <= 159; n++) { /* and two quotes */
        char text[200], words[200];
        snprintf(text, sizeof text, "\"%0*d\"", n, 7);
        snprintf(words, sizeof words, "value is %.160s%s", text, n == 158 ? "" : " ...");
        const tm_mllog_record r = { .value = json(arena, text) };
        found(&(rule_test){ .kind = TEST_NUMBER }, &r, &(rule_memory){ 0 }, words);
    }
    tm_arena_destroy(arena);
}
