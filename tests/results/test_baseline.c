/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs of each side: which of them count, when they finished, what is no side. */
#include "results/baseline.h"

#include "support/test.h"

typedef struct {
    tm_result *runs[16];
    size_t     n;
} runs;

/* Adds a run: its verdict, time and rate (0: it has none), and other members ("", or ",\"threads\":2"). */
static void add(runs *side, const char *verdict, const char *finished, double rate, const char *more)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    tm_text_printf(&text,
                   "{\"format\":\"trainmark.result/1\",\"model\":\"m\",\"verdict\":\"%s\",\"finished\":\"%s\","
                   "\"step_seconds\":[1,2]%s",
                   verdict, finished, more);
    if (rate > 0) tm_text_printf(&text, ",\"tokens_per_second_per_device\":{\"median\":%.9g}", rate);
    tm_text_add(&text, "}");
    if (tm_result_parse("r", &text, NULL, NULL, &side->runs[side->n++], &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&text);
}

static void drop(runs *side)
{
    for (size_t i = 0; i < side->n; i++) tm_result_destroy(side->runs[i]);
    side->n = 0;
}

static tm_status judge(const runs *a, const runs *b, double accepted, tm_baseline_result *out, tm_error *err)
{
    tm_baseline_side x = { "A", (const tm_result *const *)a->runs, a->n };
    tm_baseline_side y = { "B", (const tm_result *const *)b->runs, b->n };
    return tm_results_baseline(&x, &y, accepted, out, err);
}

static const char *cell(const tm_table *table, size_t row, const char *column)
{
    const tm_cell *c = tm_table_cell(table, row, (size_t)tm_table_find(table, column));
    return c->kind == TM_CELL_TEXT ? c->text : "";
}

TEST(what_counts)
{
    runs               a = { 0 }, b = { 0 };
    tm_baseline_result r;
    tm_error           err = { 0 };
    char               when[2][32];
    for (int i = 0; i < 5; i++) { /* over midnight, the end of a leap year's February, and that of a year: in turns */
        static const char *const days[] = { "2027-12-31", "2028-01-01", "2028-02-28", "2028-02-29", "2028-03-01" };
        snprintf(when[0], sizeof when[0], "%sT23:5%d:00Z", days[i], i);
        snprintf(when[1], sizeof when[1], "%sT23:5%d:30Z", days[i], i);
        add(&a, i % 2 ? "valid" : "not-judged", when[0], 90 + 0.1 * (i % 3), "");
        add(&b, "valid", when[1], 100 + 0.1 * (i % 2), "");
    }
    assert_int_equal(judge(&a, &b, 0.025, &r, &err), TM_OK);
    assert_int_equal(r.judged.verdict, TM_STARTS_SLOWER);
    assert_true(r.judged.in_turns && r.counted[0] == 5 && r.counted[1] == 5);
    assert_true(fabs(r.judged.slowdown - 0.0995) < 1e-3);
    assert_string_equal(cell(r.verdict, 0, "verdict"), "slower");
    assert_string_equal(cell(r.sides, 0, "left_out"), "");
    tm_table_destroy(r.sides);
    tm_table_destroy(r.verdict);
    /* What does not count changes nothing. */
    const tm_starts_result before = r.judged;
    add(&a, "noisy", "2028-03-02T00:00:00Z", 10, "");
    add(&a, "noisy", "2028-03-02T00:00:01Z", 10, "");
    add(&b, "invalid", "2028-03-02T00:00:02Z", 1000, "");
    add(&b, "valid", "2028-03-02T00:00:03Z", 0, "");
    assert_int_equal(judge(&a, &b, 0.025, &r, &err), TM_OK);
    assert_true(r.counted[0] == 5 && r.counted[1] == 5);
    assert_true(fabs(r.judged.lo - before.lo) < 1e-15 && r.judged.verdict == before.verdict);
    assert_string_equal(cell(r.sides, 0, "left_out"), "2 noisy");
    assert_string_equal(cell(r.sides, 1, "left_out"), "1 invalid, 1 without a rate");
    tm_table_destroy(r.sides);
    tm_table_destroy(r.verdict);
    drop(&a);
    drop(&b);
}

TEST(what_is_no_side)
{
    static const struct {
        const char *time, *more;
        double      rate;
        const char *text;
    } cases[] = {
        { "2028-01-01T00:01:00Z", "", 5, "'r' and 'r' of B are the same run; a start counts once" },
        { "2028-01-01T00:02:00Z", ",\"threads\":2", 5,
          "'r' and 'r' of B differ in threads (, 2); the starts of a side are of one configuration" },
        { "2028-01-01T00:02:00Z", ",\"devices\":8", 5,
          "'r' and 'r' of B differ in devices (, 8); the starts of a side are of one configuration" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        runs               a = { 0 }, b = { 0 };
        tm_baseline_result r;
        tm_error           err = { 0 };
        add(&a, "valid", "2028-01-01T00:00:00Z", 5, "");
        add(&b, "valid", "2028-01-01T00:01:00Z", 5, "");
        add(&b, "valid", cases[i].time, cases[i].rate, cases[i].more);
        assert_int_equal(judge(&a, &b, 0.025, &r, &err), TM_INVALID);
        assert_string_equal(err.text, cases[i].text);
        assert_true(!r.sides && !r.verdict);
        drop(&a);
        drop(&b);
    }
    runs               a = { 0 }, b = { 0 };
    tm_baseline_result r;
    tm_error           err = { 0 };
    add(&a, "valid", "2028-01-01T00:00:00Z", 5, "");
    add(&b, "valid", "2028-01-01T00:01:00Z", 0, "");
    assert_int_equal(judge(&a, &b, 0.025, &r, &err), TM_INVALID);
    assert_string_equal(err.text, "'r' has no rate to compare with its baseline");
    drop(&a);
    drop(&b);
}
