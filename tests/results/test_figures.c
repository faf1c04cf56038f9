/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that verify recomputes, against the raw times and records of the run. Each member of a result is recomputed
 * or said not to be. */
#include "support/test.h"
#include "results/made_runs.h"
#include "base/hash.h"
#include "results/compare.h"
#include "results/verify.h"
#include "stats/sampling.h"

#include <jansson.h>
#include <math.h>

/* --- verify ------------------------------------------------------------------------------------------------------- */

/* A run under verification, and what verify printed of it. */
typedef struct {
    const char *what;
    tm_result  *run;
    json_t     *tree, *lines; /* result.json; the records of metrics.jsonl, NULL: none */
    tm_table   *table;
    double      first; /* step of this process */
} verified;

static double number_of(json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_at(const verified *v, size_t row, const char *column)
{
    const tm_cell *cell = tm_table_cell(v->table, row, (size_t)tm_table_find(v->table, column));
    return cell->kind == TM_CELL_TEXT ? cell->text : "";
}

/* As verify prints it; "null": NAN. */
static double number_in(const char *text)
{
    char  *end;
    double value = strtod(text, &end);
    return end > text && *end == '\0' ? value : (double)NAN;
}

/* A row of this figure was recomputed as `value`. */
static void expect(const verified *v, const char *figure, double value)
{
    const char *found = NULL;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        if (strcmp(text_at(v, row, "figure"), figure) != 0) continue;
        found = text_at(v, row, "recomputed");
        bool known = strcmp(found, "null") == 0 || !isnan(number_in(found));
        if (known && close_to(number_in(found), value)) return;
    }
    fail_msg("%s: %s is %.17g, verify: %s", v->what, figure, value, found ? found : "no row");
}

/* Figures that follow from the times of the steps. */
static void times_are_summed_up(const verified *v)
{
    size_t            n, used;
    const double     *seconds = tm_result_numbers(v->run, "step_seconds", &n);
    double            sum = 0, classes = 0, drift, tokens, images, first = v->first;
    tm_sample_summary s = tm_stats_summarize(seconds, NULL, number_of(at_path(v->tree, "batch_tokens")), (int64_t)n);
    images = number_of(at_path(v->tree, "images_per_second_per_device/median"));
    tokens = round(s.median_rate / images); /* of an image */
    drift = s.steady.drift;
    used = n > 1 ? n - 1 : n;
    for (size_t i = n - used; i < n; i++) sum += seconds[i];
    const struct {
        const char *figure;
        double      value;
    } all[] = {
        { "tokens_per_second_per_device/median", s.median_rate },
        { "tokens_per_second_per_device/lo", s.median_rate_lo },
        { "tokens_per_second_per_device/hi", s.median_rate_hi },
        { "tokens_per_second_per_device/n", (double)s.n },
        { "tokens_per_second_per_device_overall/value", s.rate },
        { "tokens_per_second_per_device_overall/lo", s.rate_lo },
        { "tokens_per_second_per_device_overall/hi", s.rate_hi },
        { "tokens_per_second_per_device_overall/n", (double)s.n },
        { "tokens_per_second_per_device_overall/effective_n", s.effective_n },
        { "tokens_per_second_per_device_overall/half_width_percent", 50 * (s.rate_hi - s.rate_lo) / s.rate },
        { "steps/warmup", (double)s.warmup },
        { "step_time/median", s.median },
        { "step_time/p5", s.p5 },
        { "step_time/p95", s.p95 },
        { "step_time/variation_percent", 100 * s.variation },
        { "step_time/outliers", (double)s.outliers },
        { "steady_state/drift_percent", drift },
        { "steady_state/drift_lo", s.steady.drift_lo },
        { "steady_state/drift_hi", s.steady.drift_hi },
        { "steady_state/shift_percent", isnan(drift) ? drift : s.steady.shift },
        { "steady_state/shift_step", s.steady.shift_at ? first + (double)s.steady.shift_at : (double)NAN },
        { "steps/done", (double)n },
        { "phases/steps", (double)used },
        { "phases/step_seconds", sum / (double)used },
        { "phases/mean_seconds (sum)", sum / (double)used },
        { "images_per_second_per_device/median", s.median_rate / tokens },
        { "images_per_second_per_device/lo", s.median_rate_lo / tokens },
        { "images_per_second_per_device/hi", s.median_rate_hi / tokens },
        { "images_per_second_per_device/n", (double)s.n },
    };
    const size_t of_images = 4, count = sizeof all / sizeof all[0];
    for (size_t i = 0; i < count - (isnan(images) ? of_images : 0); i++) expect(v, all[i].figure, all[i].value);
    const char *name;
    json_t     *one;
    size_t      i;
    json_object_foreach(at_path(v->tree, "memory/planned_by_class"), name, one) classes += json_number_value(one);
    expect(v, "memory/planned_bytes", classes);
    json_array_foreach(json_object_get(v->tree, "flops"), i, one)
    {
        char   figure[160];
        double rate = s.median_rate * json_number_value(json_object_get(one, "per_token"));
        snprintf(figure, sizeof figure, "flops/%s/per_second_per_device",
                 json_string_value(json_object_get(one, "convention")));
        expect(v, figure, rate);
        strcpy(strrchr(figure, '/'), "/mfu_percent");
        expect(v, figure, 100 * rate / number_of(json_object_get(v->tree, "peak_flops_per_second")));
    }
}

/* The record of an evaluation, NULL: of a step, of this process: the first (0), the last (-1). */
static json_t *record(const verified *v, const char *event, int which)
{
    size_t  i;
    json_t *line, *found = NULL;
    json_array_foreach(v->lines, i, line)
    {
        const char *kind = json_string_value(json_object_get(line, "event"));
        if ((event ? !kind || strcmp(kind, event) != 0 : kind != NULL) ||
            json_number_value(json_object_get(line, "step")) < v->first)
            continue;
        if (which == 0 && found) break;
        found = line;
    }
    return found;
}

/* Figures that follow from the records of steps and evaluations. */
static void records_are_summed_up(const verified *v)
{
    json_t     *last = record(v, NULL, -1), *evaluation = record(v, "evaluation", -1), *line, *one;
    json_t     *start = json_array_get(v->lines, 0);
    const char *name;
    char        figure[160];
    size_t      i, n = 0;
    expect(v, "steps/first", number_of(json_object_get(record(v, NULL, 0), "step")));
    expect(v, "loss/last", number_of(json_object_get(last, "loss")));
    expect(v, "loss/validation", number_of(json_object_get(evaluation, "loss")));
    expect(v, "bits_per_byte", number_of(json_object_get(evaluation, "bits_per_byte")));
    if (number_of(json_object_get(start, "step")) <= 1)
        expect(v, "loss/first", number_of(json_object_get(start, "loss")));
    if (json_object_get(last, "used_bytes"))
        expect(v, "memory/planned_bytes", number_of(json_object_get(last, "used_bytes")));
    if (json_object_get(last, "resident_bytes"))
        expect(v, "memory/resident_bytes", number_of(json_object_get(last, "resident_bytes")));
    json_object_foreach(json_object_get(v->tree, "preference"), name, one)
    {
        snprintf(figure, sizeof figure, "preference/%s", name);
        expect(v, figure, number_of(json_object_get(evaluation ? evaluation : last, name)));
    }
    json_array_foreach(v->lines, i, line) n +=
        !json_object_get(line, "event") && number_of(json_object_get(line, "step")) >= v->first;
    json_object_foreach(at_path(v->tree, "phases/mean_seconds"), name, one)
    {
        double sum = 0;
        if (strcmp(name, "unaccounted") == 0) continue; /* the rest */
        json_array_foreach(v->lines, i, line)
        {
            bool own = !json_object_get(line, "event") && number_of(json_object_get(line, "step")) >= v->first;
            if (own && (n == 1 || line != record(v, NULL, 0)))
                sum += json_number_value(json_object_get(json_object_get(line, "phases"), name));
        }
        snprintf(figure, sizeof figure, "phases/mean_seconds/%s", name);
        expect(v, figure, sum / (double)(n > 1 ? n - 1 : n));
    }
}

/* What a certificate says of its own numbers. */
static void certificates_are_read(const verified *v, const char *which)
{
    json_t *tree = json_object_get(v->tree, which);
    bool    done = json_is_true(json_object_get(tree, "done")), agrees, fails;
    double  expected = number_of(json_object_get(tree, "expected")),
           measured = number_of(json_object_get(tree, "measured"));
    double apart =
        fabs(number_of(json_object_get(tree, "step_loss")) - number_of(json_object_get(tree, "evaluated_loss")));
    bool evaluated = json_is_number(json_object_get(tree, "evaluated_loss")),
         loss = json_is_true(json_object_get(tree, "loss_agrees"));
    bool gradients = json_is_true(json_object_get(tree, "gradients")),
         looked = json_is_true(json_object_get(tree, "looked_ahead"));
    char figure[96];
    agrees = fabs(measured - expected) <= sqrt(3) * number_of(json_object_get(tree, "band"));
    fails =
        (evaluated && !loss) || (done && !gradients) ||
        (looked && !(json_is_true(json_object_get(tree, "causal")) && json_is_true(json_object_get(tree, "context"))));
    const struct {
        const char *member, *recomputed; /* NULL: it has no row */
    } rows[] = {
        { "done", done || !isnan(expected) ? !isnan(expected) ? "true" : "false" : NULL },
        { "loss_agrees", !evaluated                                               ? NULL
                         : apart <= number_of(json_object_get(tree, "loss_band")) ? "true"
                                                                                  : "false" },
        { "gradients", !done || !gradients ? NULL
                       : agrees            ? "true"
                                           : "off by" },
        { "reason", (done || looked) && fails ? "" : NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *found = NULL;
        snprintf(figure, sizeof figure, "%s/%s", which, rows[i].member);
        for (size_t row = 0; row < tm_table_n_rows(v->table); row++)
            if (strcmp(text_at(v, row, "figure"), figure) == 0 &&
                strcmp(text_at(v, row, "verdict"), "not verified") != 0)
                found = text_at(v, row, "recomputed");
        if (!found != !rows[i].recomputed ||
            (found && strncmp(found, rows[i].recomputed, strlen(rows[i].recomputed)) != 0))
            fail_msg("%s: %s is %s, wanted %s", v->what, figure, found ? found : "not there", rows[i].recomputed);
    }
}

/* Rows agree with the file, verdicts with their rows, and the count with the verdicts. */
static void rows_are_consistent(const verified *v, size_t wrong)
{
    size_t differ = 0;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        const char *figure = text_at(v, row, "figure"), *written = text_at(v, row, "written"),
                   *again = text_at(v, row, "recomputed"), *verdict = text_at(v, row, "verdict");
        json_t *member = at_path(v->tree, figure);
        bool    ok = strcmp(verdict, "ok") == 0, differs = strcmp(verdict, "differs") == 0, same;
        differ += differs;
        if (!ok && !differs) {
            assert_string_equal(verdict, "not verified");
            if (*written || *again) fail_msg("%s: %s has values: %s, %s", v->what, figure, written, again);
            continue;
        }
        if (member && strcmp(figure, "digest") != 0)
            assert_string_equal(written, json_is_null(member) ? "null" : tm_result_shown(v->run, figure));
        same = strstr(figure, "(metrics.jsonl)")
                   ? strtol(written, NULL, 10) == strtol(again, NULL, 10)
                   : strcmp(written, again) == 0 ||
                         (!isnan(number_in(written)) && close_to(number_in(written), number_in(again)));
        /* phases that exceed the steps are found by the verdict */
        if (strcmp(figure, "phases/mean_seconds (sum)") == 0)
            same = isnan(number_in(again)) || fabs(number_in(written) - number_in(again)) <= 1e-9 * number_in(again) ||
                   number_in(written) > number_in(again);
        if (same != ok) fail_msg("%s: %s, %s and %s: %s", v->what, figure, written, again, verdict);
    }
    if (differ != wrong) fail_msg("%s: %zu rows differ, %zu are counted", v->what, differ, wrong);
}

/* How many rows are of `path` or of a member in it. */
static size_t rows_of(const verified *v, const char *path)
{
    size_t n = strlen(path), count = 0;
    for (size_t row = 0; row < tm_table_n_rows(v->table); row++) {
        const char *figure = text_at(v, row, "figure");
        count += strncmp(figure, path, n) == 0 && (!figure[n] || figure[n] == '/');
    }
    return count;
}

/* Each member of the file is recomputed, or is said not to be: once. */
static void nothing_is_left_out(const verified *v)
{
    /* Part of another row: of one of the certificate, of the verdict. */
    static const char *const read_with[] = { "/measured",  "/band",      "/step_loss",       "/evaluated_loss",
                                             "/loss_band", "/gradients", "steps/interrupted" };
    const char              *key, *name;
    json_t                  *member, *one;
    char                     path[192];
    json_object_foreach(v->tree, key, member)
    {
        bool exempt = strcmp(key, "format") == 0 || strcmp(key, "digest") == 0 || strcmp(key, "metrics_digest") == 0;
        bool whole = !json_is_object(member);
        if (exempt) continue;
        if (rows_of(v, key) == 0 && !json_is_null(member)) fail_msg("%s: no row of %s", v->what, key);
        for (size_t row = 0; row < tm_table_n_rows(v->table); row++)
            if (strcmp(text_at(v, row, "figure"), key) == 0) {
                whole = true;
                if (json_is_null(member)) fail_msg("%s: a row of %s, which is null", v->what, key);
                if (rows_of(v, key) != 1) fail_msg("%s: %zu rows of %s", v->what, rows_of(v, key), key);
            }
        json_object_foreach(whole ? NULL : member, name, one)
        {
            size_t n = 0;
            snprintf(path, sizeof path, "%s/%s", key, name);
            for (size_t i = 0; i < sizeof read_with / sizeof read_with[0]; i++)
                n += strcmp(path, read_with[i]) == 0 ||
                     (strncmp(key, "certificate", 11) == 0 && strcmp(path + strlen(key), read_with[i]) == 0);
            n += rows_of(v, path);
            if (n == 0 && !json_is_null(one)) fail_msg("%s: no row of %s", v->what, path);
        }
    }
    if (rows_of(v, "metrics.jsonl") != (size_t)!v->lines) fail_msg("%s: metrics.jsonl has the wrong rows", v->what);
}

static json_t *records_of(const tm_text *text)
{
    json_t *all = text ? json_array() : NULL;
    for (const char *at = text ? text->data : NULL, *end; at && (end = strchr(at, '\n')); at = end + 1)
        json_array_append_new(all, json_loadb(at, (size_t)(end - at), 0, NULL));
    return all;
}

/* Of a run with the records of all its steps, or without any. `text`: the records. */
static void verify(const char *what, tm_result *run)
{
    verified v = { .what = what,
                   .run = run,
                   .tree = json_loads(tm_result_document(run, TM_DOCUMENT_RESULT)->data, 0, NULL),
                   .lines = records_of(tm_result_document(run, TM_DOCUMENT_METRICS)) };
    size_t   wrong = 0, n;
    tm_error err = { 0 };
    assert_int_equal(tm_results_verify(run, NULL, &v.table, &wrong, &err), TM_OK);
    v.first = number_of(at_path(v.tree, "steps/first"));
    tm_result_numbers(run, "step_seconds", &n);
    rows_are_consistent(&v, wrong);
    times_are_summed_up(&v);
    if (v.lines && n && json_array_size(v.lines) >= n) records_are_summed_up(&v);
    certificates_are_read(&v, "certificate");
    certificates_are_read(&v, "certificate_after");
    if (!v.lines) nothing_is_left_out(&v);
    json_decref(v.tree);
    json_decref(v.lines);
    tm_table_destroy(v.table);
    tm_result_destroy(run);
}

/* Sixteen steps: enough for intervals and a steady state. */
static const char *const long_run[] = {
    "[0.5, 1, 1.5, 2]",
    "[0.5, 0.25, 0.26, 0.25, 0.24, 0.25, 0.27, 0.25, 0.26, 0.25, 0.24, 0.25, 0.25, 0.26, 0.25, 0.75]",
    "\"first\": 31",
    "\"first\": 1",
    "\"batch_tokens\": 4096",
    "\"batch_tokens\": 512",
    NULL
};
static const char *const images[] = {
    "[0.5, 1]", "[0.5, 0.25, 0.26, 0.25, 0.24, 0.25, 0.27, 0.25, 0.26, 0.25, 0.24, 0.25, 0.25, 0.26, 0.25, 0.75]",
    "\"median\": 2,", "\"median\": 8,", NULL
};
static const char *const bare[] = { ",\n  \"metrics_digest\": \"daa13e4f205dc5ba\"",
                                    "",
                                    ",\n  \"digest\": \"################\"",
                                    "",
                                    "\"n\": 1234",
                                    "\"n\": null",
                                    "\"median\": 4096,",
                                    "",
                                    NULL };

TEST(figures_follow_from_times)
{
    static const char *const none[] = { "[0.5, 1, 1.5, 2]", "[]", NULL };
    verify("four steps", run_of("rich", rich, NULL, NULL));
    verify("two images", run_of("poor", poor, NULL, NULL));
    verify("sixteen steps", run_of("long", rich, long_run, NULL));
    verify("images of sixteen steps", run_of("images", poor, images, NULL));
    verify("no steps", run_of("none", rich, none, NULL));
    verify("members are missing", run_of("bare", rich, bare, NULL));
}

TEST(figures_follow_from_records)
{
    static const char *const one_time[] = {
        "[0.5, 1, 1.5, 2]", "[0.5]", "\"data\": 0.125", "\"data\": 2", "\"first\": 31", "\"first\": 34", NULL
    };
    /* A run that was resumed: its records begin before its own steps. */
    static const char from_one[] =
        "{\"step\": 1, \"loss\": 5, \"seconds\": 0.5, \"phases\": {\"data\": 9}}\n"
        "{\"step\": 2, \"loss\": 6, \"seconds\": 1, \"phases\": {\"data\": 0.25}}\n"
        "{\"event\": \"evaluation\", \"step\": 2, \"loss\": 2.5, \"tokens\": 1, \"seconds\": 1}\n"
        "{\"event\": \"evaluation\", \"step\": 3, \"loss\": 2.75, \"tokens\": 1, \"seconds\": 1}\n"
        "{\"step\": 3, \"loss\": 7, \"seconds\": 1.5, \"phases\": {\"data\": 0.5, \"forward\": 1}}\n"
        "{\"step\": 4, \"loss\": 2, \"seconds\": 2.5, \"phases\": {\"data\": 0.75, \"forward\": 2}}\n";
    static const char *const first[] = { "\"first\": 31", "\"first\": 1", NULL };
    static const char *const late[] = { "\"first\": 31", "\"first\": 2", "[0.5, 1, 1.5, 2]", "[1, 1.5, 2]", NULL };
    static const char *const unevaluated[] = { "\"first\": 31", "\"first\": 4", "[0.5, 1, 1.5, 2]", "[2.5]", NULL };
    tm_text                  lines = told_text(metrics);
    verify("four steps", run_of("rich", rich, NULL, lines.data));
    verify("one time", run_of("one", rich, one_time, lines.data));
    verify("from the first step", run_of("whole", rich, first, from_one));
    verify("from the second step", run_of("late", rich, late, from_one));
    verify("no evaluation", run_of("alone", rich, unevaluated, from_one));
    tm_text_fini(&lines);
}

/* The verdict of a row; "": there is none. */
static const char *verdict_of(const tm_table *table, const char *figure)
{
    for (size_t row = 0; row < tm_table_n_rows(table); row++)
        if (strcmp(tm_table_cell(table, row, 0)->text, figure) == 0) return tm_table_cell(table, row, 3)->text;
    return "";
}

/* Sealed by its own digests; a changed byte is found by the digest of its file. */
TEST(digests_are_of_the_whole_file)
{
    static const char *const changes[][3] = { { "ok", "ok", NULL },
                                              { "differs", "ok", "\"seed\"" },
                                              { "ok", "differs", "{" } };
    for (int i = 0; i < 3; i++) {
        char              sums[2][24];
        tm_text           lines = told_text(metrics);
        const char *const inner[] = { "daa13e4f205dc5ba", sums[0], NULL };
        snprintf(sums[0], sizeof sums[0], "%016llx", (unsigned long long)tm_hash(lines.data, lines.length));
        tm_text json = changed(rich, inner);
        char   *mark = strstr(json.data, ",\n  \"digest\""), *value = strstr(json.data, ": \"################\"\n}");
        snprintf(sums[1], sizeof sums[1], "%016llx",
                 (unsigned long long)tm_hash(json.data, (size_t)(mark - json.data)));
        memcpy(value + 3, sums[1], 16);
        if (i == 1) strstr(json.data, "\"seed\"")[1] = 'd';
        if (i == 2) lines.data[lines.length - 1] = ' ';
        tm_result *run = parsed("sealed", &json, &lines);
        tm_table  *table;
        size_t     wrong;
        tm_error   err = { 0 };
        assert_int_equal(tm_results_verify(run, NULL, &table, &wrong, &err), TM_OK);
        assert_string_equal(verdict_of(table, "digest"), changes[i][0]);
        assert_string_equal(verdict_of(table, "metrics_digest"), changes[i][1]);
        tm_table_destroy(table);
        tm_result_destroy(run);
    }
}

TEST(what_has_no_raw_numbers_is_refused)
{
    tm_text          json = { 0 };
    tm_table        *table = NULL;
    size_t           wrong = 0, n;
    tm_error         err = { 0 };
    const tm_metric *all;
    const char      *cells[2];
    tm_text_add(&json, "{\"name\": \"gemm\", \"rows\": [{\"M\": 2}]}");
    tm_result *bench = parsed("bench.json", &json, NULL);
    assert_int_equal(tm_results_verify(bench, NULL, &table, &wrong, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "'bench.json' is a table of a benchmark"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_results_metrics(bench, &all, &n, cells, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "'bench.json' is a benchmark"));
    tm_result_destroy(bench);
    /* fewer records than steps */
    tm_text lines = told_text(metrics);
    *strstr(lines.data, "{\"step\": 33") = '\0';
    tm_result *few = run_of("few", rich, NULL, lines.data);
    assert_int_equal(tm_results_verify(few, NULL, &table, &wrong, &err), TM_OK);
    assert_string_equal(verdict_of(table, "metrics.jsonl"), "differs");
    assert_string_equal(verdict_of(table, "loss"), "not verified");
    tm_table_destroy(table);
    tm_result_destroy(few);
    tm_text_fini(&lines);
}
