/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an A/B session: written and read back, figures by hand, reports by rules, and damaged records. */
#include "support/test.h"

#include "base/arena.h"
#include "ab_rules.h"
#include "apps/bench/ab.h"

static char *copy_of(const char *text)
{
    return strcpy(tm_alloc(strlen(text) + 1), text);
}

static void add(tm_ab_session *s, int64_t round, int64_t block, tm_ab_side side, double seconds, double tokens)
{
    double     steps[2] = { seconds, seconds };
    tm_ab_turn turn = { .round = round,
                        .block = block,
                        .side = side,
                        .kind = block < 0 ? TM_AB_WARMUP : TM_AB_COUNTED,
                        .first_step = 1,
                        .n = 2,
                        .seconds = steps,
                        .work = 2 * tokens,
                        .cut = 1 };
    tm_ab_session_add(s, &turn);
}

/* Rounds of two blocks; A takes 1 s, B `b` s and the copy of A 1.01 s a step. */
static tm_ab_session make(int rounds, double b, double a_tokens, double b_tokens)
{
    static const tm_ab_side order[6] = { TM_AB_B, TM_AB_A, TM_AB_AGAIN, TM_AB_AGAIN, TM_AB_A, TM_AB_B };
    const double            seconds[3] = { 1, b, 1.01 }, tokens[3] = { a_tokens, b_tokens, a_tokens };
    tm_ab_session           s = { .a = copy_of("a \"quoted\""),
                                  .b = copy_of("b"),
                                  .turn_seconds = 0.2,
                                  .budget_seconds = 120,
                                  .target = 0.01,
                                  .least_pairs = 12,
                                  .least_difference = 0.001,
                                  .seed = 3,
                                  .seconds = 61.5,
                                  .end = TM_AB_END_TARGET };
    for (int round = 0; round < rounds; round++) {
        for (int side = 0; side < TM_AB_SIDES; side++) add(&s, round, -1, (tm_ab_side)side, 5, 10);
        for (int i = 0; i < 12; i++)
            add(&s, round, 2 * round + i / 6, order[i % 6], seconds[order[i % 6]], tokens[order[i % 6]]);
    }
    return s;
}

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-9)) fail_msg("%.12g is not %.12g", value, wanted);
}

TEST(figures_by_hand)
{
    tm_ab_session s = make(8, 1.2, 64, 64);
    tm_ab_figures f = tm_ab_figures_of(&s);
    near(f.paired.b.ratio, 1.2 / sqrt(1.01));
    near(f.paired.control.ratio, 1.01);
    assert_int_equal(f.paired.pairs, 16);
    assert_int_equal(f.paired.rounds, 8);
    assert_int_equal(f.paired.verdict, TM_PAIRED_SLOWER);
    near(f.step_seconds[0], (1 + 1.01) / 2);
    near(f.step_seconds[1], 1.2);
    near(f.tokens_per_second[1], 64 / 1.2);
    assert_int_equal(f.turns, 96);
    assert_int_equal(f.steps, 192);
    assert_int_equal(f.warmup_turns, 24);
    assert_int_equal(f.warmup_steps, 48);
    assert_int_equal(f.cut_steps, 120);
    tm_ab_session_fini(&s);
    s = make(8, 1.2, 64, 128); /* twice the tokens in 1.2 times the time */
    f = tm_ab_figures_of(&s);
    near(f.paired.b.ratio, 0.6 / sqrt(1.01));
    assert_int_equal(f.paired.verdict, TM_PAIRED_FASTER);
    tm_ab_session_fini(&s);
    s = make(8, 1.2, 64, 0); /* B does not tell its tokens: steps are compared */
    f = tm_ab_figures_of(&s);
    near(f.paired.b.ratio, 1.2 / sqrt(1.01));
    assert_false(f.tokens);
    assert_true(isnan(f.tokens_per_second[0]));
    tm_ab_session_fini(&s);
}

TEST(reports_have_the_figures_of_the_record)
{
    static const int    rounds[] = { 0, 1, 5, 6, 13 };
    static const double b[] = { 1, 1.001, 0.5 };
    for (int i = 0; i < 15; i++) {
        tm_ab_session s = make(rounds[i / 3], b[i % 3], 32.5, i % 3 == 2 ? 0 : 32.5);
        s.end = (tm_ab_end)(i % 3);
        s.whole_runs = i % 2;
        if (i % 4 == 0) s.b_build = copy_of("trainmark 2, commit y");
        report_is_right(&s);
        tm_ab_session_fini(&s);
    }
}

TEST(written_and_read)
{
    tm_text       first = { 0 }, second = { 0 };
    tm_ab_session s = make(7, 1.07, 64, 64), back = { 0 };
    tm_error      err = { 0 };
    s.b_build = copy_of("trainmark 9.8, commit \"x\"");
    tm_ab_session_print(&s, &first);
    if (tm_ab_session_parse(first.data, "x", &back, &err) != TM_OK) fail_msg("%s", err.text);
    tm_ab_session_print(&back, &second);
    assert_string_equal(first.data, second.data);
    assert_null(back.a_build);
    assert_string_equal(back.b_build, s.b_build);
    assert_string_equal(back.a, s.a);
    assert_int_equal(back.n_turns, s.n_turns);
    assert_int_equal(tm_ab_figures_of(&back).paired.verdict, TM_PAIRED_SLOWER);
    tm_ab_session_fini(&s);
    tm_ab_session_fini(&back);
    tm_text_fini(&first);
    tm_text_fini(&second);
}

TEST(damaged_records)
{
    const struct {
        const char *from, *to, *why;
    } rows[] = { { "trainmark.ab/1", "trainmark.ab/9", "line 1" },
                 { "\"seed\": 3", "\"seed\": \"3\"", "line 1" },
                 { "\"side\": \"A again\"", "\"side\": \"C\"", "line" },
                 { "\"round\": 1", "\"round\": -1", "out of range" },
                 { "\"block\": 1, ", "\"block\": 9, ", "follow each other" },
                 { "[1.07, 1.07]", "[1.07, -1.07]", "positive" },
                 { "[1.07, 1.07]", "[]", "at least one step" },
                 { "[1.07, 1.07]", "7", "not a list" },
                 { "{\"end\"", "{\"ende\"", "line" },
                 { "\"seconds\": 61.5}\n", "\"seconds\": 61.5}\n{}\n", "after the end" },
                 { "{\"round\": 0", "{{", "not a JSON object" } };
    tm_text       whole = { 0 };
    tm_ab_session s = make(2, 1.07, 64, 64);
    tm_ab_session_print(&s, &whole);
    tm_ab_session_fini(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text  bad = { 0 };
        tm_error err = { 0 };
        char    *at = strstr(whole.data, rows[i].from);
        if (!at) fail_msg("no '%s' in the record", rows[i].from);
        tm_text_add_n(&bad, whole.data, (size_t)(at - whole.data));
        tm_text_printf(&bad, "%s%s", rows[i].to, at + strlen(rows[i].from));
        assert_int_equal(tm_ab_session_parse(bad.data, "file.x", &s, &err), TM_FORMAT);
        if (!strstr(err.text, rows[i].why) || !strstr(err.text, "file.x")) fail_msg("row %zu: %s", i, err.text);
        tm_ab_session_fini(&s);
        tm_text_fini(&bad);
    }
    for (size_t n = 0; n < whole.length - 1; n += 97) { /* torn */
        char    *torn = tm_alloc(n + 1);
        tm_error err = { 0 };
        memcpy(torn, whole.data, n);
        torn[n] = '\0';
        assert_int_equal(tm_ab_session_parse(torn, "x", &s, &err), TM_FORMAT);
        tm_ab_session_fini(&s);
        free(torn);
    }
    tm_text_fini(&whole);
}

/* A session of rounds of one block: `rest` seconds to start, then twelve turns of the length that the budget makes
 * usual, or of a step where that is longer; it ends when the next round has no room. */
static tm_ab_session played(double budget, double rest, double step)
{
    tm_ab_session s = { .budget_seconds = budget, .turn_seconds = tm_ab_usual_turn(budget), .end = TM_AB_END_BUDGET };
    int           steps = (int)ceil(s.turn_seconds / step - 1e-9);
    double        turn = steps * step, *seconds = malloc((size_t)steps * sizeof *seconds);
    for (int i = 0; i < steps; i++) seconds[i] = step;
    for (int64_t round = 0; s.seconds + rest + 12 * turn <= budget; round++) {
        s.seconds += rest + 12 * turn;
        for (int i = 0; i < 12; i++) {
            tm_ab_turn one = { .round = round,
                               .block = i < 6 ? -1 : round,
                               .side = (tm_ab_side)(i % 3),
                               .kind = i < 6 ? TM_AB_WARMUP : TM_AB_COUNTED,
                               .first_step = 1,
                               .n = steps,
                               .seconds = seconds };
            tm_ab_session_add(&s, &one);
        }
    }
    free(seconds);
    return s;
}

/* What a session that was too short asks for is enough for six rounds, and not much more than that. */
TEST(the_budget_asked_for_is_enough)
{
    static const struct {
        double budget, rest, step;
    } cases[] = { { 3, .2, .002 }, { 10, 1.2, .002 }, { 10, 2, .03 }, { 12, 1, .3 }, { 60, 12, .5 }, { 20, .2, 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_ab_session s = played(cases[i].budget, cases[i].rest, cases[i].step);
        double        needed = tm_ab_budget_needed(&s);
        assert_true(s.n_turns > 0 && s.n_turns < 72 && needed > cases[i].budget);
        tm_ab_session_fini(&s);
        s = played(needed, cases[i].rest, cases[i].step);
        if (s.n_turns < 72 || s.n_turns > 96)
            fail_msg("case %zu: %.1f s for %.1f rounds", i, needed, (double)s.n_turns / 12);
        tm_ab_session_fini(&s);
    }
    tm_ab_session nothing = { .turn_seconds = 0.2, .budget_seconds = 10 };
    assert_true(isnan(tm_ab_budget_needed(&nothing)));
    near(tm_ab_usual_turn(1), 0.05);
    near(tm_ab_usual_turn(16), 0.1);
    near(tm_ab_usual_turn(1e6), 0.2);
}
