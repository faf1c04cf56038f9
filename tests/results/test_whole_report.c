/* SPDX-License-Identifier: Apache-2.0 */
/* The report of two made-up runs in every form, and every chart of them, to the letter:
 * tests/golden/whole-report.txt. The runs are tests/golden/whole-result*.txt, of which one says all, one little. */
#include "results/report.h"
#include "made_runs.h"
#include "base/file.h"
#include "support/folder.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

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

/* What of two runs is told in rows: figures, checks, everything below what was run on what. */
static void rows_of_what_was_run(void **state)
{
    static const char *const two[] = {
        "\"checks\": null",
        "\"checks\": {\"fail\": 1, \"not_passed\": [{\"id\": \"numa\", \"status\": \"WARN\", \"observed\": \"a<b & "
        "c\"}, "
        "{\"id\": \"memlock\", \"observed\": 8}]}",
        "\"environment\": null",
        "\"environment\": {\"os\": {\"host\": \"h\", \"n\": {\"deep\": true, \"none\": {}}}, \"z\": [1], \"w\": null, "
        "\"x\": -2.50, \"y\": false}",
        "\"configuration\": null",
        "\"configuration\": {\"model.dim\": 64, \"exp_name\": \"<e>\"}",
        NULL
    };
    static const char *const one[] = { "\"environment\": null",
                                       "\"environment\": {\"os\": {\"host\": \"k\"}, \"x\": 7}", NULL };
    (void)state;
    tm_text          html = { 0 }, out = { 0 };
    tm_error         err = { 0 };
    tm_result       *runs[] = { run_of("a/rich", rich, two, NULL), run_of("po<or", poor, one, NULL) };
    const tm_result *both[] = { runs[0], runs[1] }, *turned[] = { runs[1], runs[0] };
    assert_int_equal(tm_results_report(both, 2, TM_REPORT_HTML, &html, &err), TM_OK);
    tm_text_add(&out, strstr(html.data, "<h2>Figures"));
    html.length = 0;
    assert_int_equal(tm_results_report(turned, 2, TM_REPORT_HTML, &html, &err), TM_OK);
    tm_text_add(&out, strstr(html.data, "<h2>System checks"));
    tm_text_fini(&html);
    for (int i = 0; i < 2; i++) tm_result_destroy(runs[i]);
    whole_is("tests/results/whole-rows.txt", &out);
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

/* Two pixels to a unit, where librsvg is. */
static void pictures_have_their_size(void **state)
{
    (void)state;
    tm_text          svg = { 0 }, png = { 0 };
    tm_error         err = { 0 };
    int              width, height;
    tm_result       *run = read_run("rich", rich, "tests/golden/whole-metrics.txt");
    const tm_result *one = run;
    assert_int_equal(tm_results_plot(&one, 1, "loss", &svg, &err), TM_OK);
    assert_int_equal(sscanf(strstr(svg.data, "viewBox="), "viewBox=\"0 0 %d %d\"", &width, &height), 2);
    pid_t child = fork(); /* fontconfig never lets its files go */
    if (child == 0) {
        tm_status st = tm_results_raster(&svg, &png, &err);
        if (st != TM_OK) _exit(st == TM_UNSUPPORTED ? 0 : 1);
        const unsigned char *size = (const unsigned char *)png.data + 16;
        bool                 wide = (size[0] << 24 | size[1] << 16 | size[2] << 8 | size[3]) == 2 * width;
        bool                 high = (size[4] << 24 | size[5] << 16 | size[6] << 8 | size[7]) == 2 * height;
        _exit(memcmp(png.data, "\x89PNG\r\n\x1a\n", 8) == 0 && wide && high ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tm_text_fini(&svg);
    tm_text_fini(&png);
    tm_result_destroy(run);
}

/* A folder of a run: its metrics are those of the file beside. */
static void folders_have_metrics(void **state)
{
    (void)state;
    tm_text    json = fake_read(rich), lines = fake_read("tests/golden/whole-metrics.txt");
    tm_error   err = { 0 };
    tm_result *run = NULL, *whole = read_run("rich", rich, "tests/golden/whole-metrics.txt");
    size_t     n, wanted;
    assert_int_equal(tm_file_write(test_in_folder("result.json"), json.data, json.length, &err), TM_OK);
    assert_int_equal(tm_file_write(test_in_folder("metrics.jsonl"), lines.data, lines.length, &err), TM_OK);
    assert_int_equal(tm_result_load(test_folder(), NULL, &run, &err), TM_OK);
    (void)tm_result_steps(run, &n);
    (void)tm_result_steps(whole, &wanted);
    assert_true(n == wanted && n > 0);
    tm_result_destroy(run);
    tm_result_destroy(whole);
    tm_text_fini(&json);
    tm_text_fini(&lines);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(reports_say_all),
    cmocka_unit_test(rows_of_what_was_run),
    cmocka_unit_test(sixty_four_phases),
    cmocka_unit_test(pictures_have_their_size),
    cmocka_unit_test_teardown(folders_have_metrics, test_folder_teardown),
};

TM_TESTS(tests, NULL, NULL)
