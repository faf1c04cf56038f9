/* SPDX-License-Identifier: Apache-2.0 */
/* The report of two made-up runs in every form, and every chart of them, to the letter:
 * tests/golden/whole-report.txt. The runs are tests/golden/whole-result*.txt, of which one says all, one little. */
#include "results/report.h"
#include "made_runs.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static tm_result *read_run(const char *name, const char *result, const char *metrics)
{
    tm_error   err = { 0 };
    tm_result *run = NULL;
    tm_text    json = fake_read(result), lines = { 0 };
    if (metrics) lines = fake_read(metrics);
    if (tm_result_parse(name, &json, metrics ? &lines : NULL, NULL, &run, &err) != TM_OK) fail_msg("%s", err.text);
    tm_text_fini(&json);
    tm_text_fini(&lines);
    return run;
}

static void reports(tm_text *out, const tm_result *const *runs, size_t n)
{
    tm_error err = { 0 };
    for (int format = TM_REPORT_HTML; format <= TM_REPORT_JSON; format++) {
        tm_text_printf(out, "== %zu, form %d\n", n, format);
        assert_int_equal(tm_results_report(runs, n, (tm_report_format)format, out, &err), TM_OK);
    }
    for (size_t i = 0; tm_report_chart(i); i++) {
        tm_text_printf(out, "== %s\n", tm_report_chart(i));
        tm_error  none = { 0 };
        tm_status st = tm_results_plot(runs, n, tm_report_chart(i), out, &none);
        tm_text_printf(out, "-> %s %s\n", tm_status_text(st), none.text);
    }
    tm_status st = tm_results_plot(runs, n, "pie", out, &err);
    tm_text_printf(out, "-> %s %s\n", tm_status_text(st), err.text);
}

static void reports_say_all(void **state)
{
    (void)state;
    tm_text          out = { 0 }, cut = { 0 };
    tm_result       *one = read_run("rich", rich, "tests/golden/whole-metrics.txt");
    tm_result       *other = read_run("po<or", poor, NULL);
    const tm_result *both[] = { one, other }, *turned[] = { other, one };
    reports(&out, both, 1);
    reports(&out, both, 2);
    reports(&out, turned, 1);
    reports(&out, turned, 2);
    tm_result_destroy(one);
    tm_result_destroy(other);
    for (const char *c = out.data; *c; c++) {
        if (*c == '<' && c > out.data && c[-1] != '\n') tm_text_add(&cut, "\n");
        tm_text_add_n(&cut, c, 1);
    }
    tm_text_fini(&out);
    whole_is("tests/golden/whole-report.txt", &cut);
}

/* Of more phases than 64 the first are drawn. */
static void sixty_four_phases(void **state)
{
    (void)state;
    tm_text     phases = { 0 }, out = { 0 };
    tm_error    err = { 0 };
    const char *begin = "\"mean_seconds\": {", *at;
    char        name[16];
    for (int n = 64; n <= 66; n++) {
        phases.length = out.length = 0;
        tm_text_add(&phases, begin);
        for (int i = 0; i < n; i++) tm_text_printf(&phases, "%s\"phase%02d\": 0.5", i ? ", " : "", i);
        tm_text_add(&phases, ", ");
        const char      *pairs[] = { begin, phases.data, NULL };
        tm_result       *run = run_of("many", rich, pairs, NULL);
        const tm_result *one = run;
        assert_int_equal(tm_results_plot(&one, 1, "ledger", &out, &err), TM_OK);
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "phase%02d", i);
            at = strstr(out.data, name);
            assert_true(i < 64 ? at != NULL : at == NULL);
        }
        assert_null(strstr(out.data, "unaccounted"));
        tm_result_destroy(run);
    }
    tm_text_fini(&phases);
    tm_text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_say_all),
        cmocka_unit_test(sixty_four_phases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
