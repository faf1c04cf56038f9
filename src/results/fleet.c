/* SPDX-License-Identifier: Apache-2.0 */
#include "results/fleet.h"

#include "base/file.h"
#include "results/chart.h"
#include "results/compare.h"
#include "results/internal.h"
#include "results/report_charts.h"
#include "results/trend.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a log says when a machine, a link or a device has failed. */
static const struct {
    const char *words, *what;
} signatures[] = {
    { "NCCL ERROR", "a collective failed" },
    { "NCCL timeout", "a collective timed out" },
    { "ncclRemoteError", "another rank failed" },
    { "ncclSystemError", "a collective failed" },
    { "Watchdog caught collective operation timeout", "a collective timed out" },
    { "HW Exception by GPU", "a fault of the device" },
    { "GPU Hang", "the device hung" },
    { "GPU reset", "the device was reset" },
    { "Uncorrectable error", "memory that cannot be corrected" },
    { "uncorrectable ECC", "memory that cannot be corrected" },
    { "Memory access fault by GPU", "a fault of the device" },
    { "torch.distributed.elastic.multiprocessing", "a worker failed" },
    { "Out of memory: Killed process", "killed for memory" },
    { "CUDA out of memory", "out of memory" },
    { "HIP out of memory", "out of memory" },
    { "Segmentation fault", "a crash" },
    { "trainmark: error", "the run ended with an error" },
};
enum { SIGNATURES = sizeof signatures / sizeof signatures[0] };

/* The verdicts of one run, on their way into the table. */
typedef struct {
    const tm_result        *run;
    const char             *host;
    tm_table               *table;
    const tm_fleet_options *options;
    double                  median; /* tokens per second and device of all runs; NAN: too few */
    bool                    failed;
} judge;

typedef enum { PASS, FAIL, RECORD } status;

static void add_row(judge *j, const char *gate, status st, const char *expected, double actual, const char *unit,
                    const char *detail)
{
    static const char *const names[] = { "PASS", "FAIL", "RECORD" };
    tm_table                *t = j->table;
    tm_table_row(t);
    tm_table_text(t, "host", j->host);
    tm_table_text(t, "gate", gate);
    tm_table_text(t, "expected", expected);
    tm_table_f64(t, "actual", actual);
    tm_table_text(t, "unit", unit);
    tm_table_text(t, "status", names[st]);
    tm_table_text(t, "detail", detail);
    j->failed |= st == FAIL;
}

static void judge_run(judge *j)
{
    const char *verdict = tm_result_string(j->run, "verdict"), *reason = tm_result_string(j->run, "reason");
    bool        interrupted = tm_result_true(j->run, "steps/interrupted");
    bool        bad = !verdict || strcmp(verdict, "invalid") == 0 || interrupted;
    char        detail[400];
    snprintf(detail, sizeof detail, "%.20s%s: %.300s", verdict ? verdict : "no verdict",
             interrupted ? ", interrupted" : "", reason ? reason : "");
    add_row(j, "run", bad ? FAIL : PASS, "not invalid", (double)NAN, NULL, detail);
}

static void judge_numbers(judge *j)
{
    size_t                n, bad = 0;
    const tm_result_step *steps = tm_result_steps(j->run, &n);
    char                  detail[80] = "";
    for (size_t i = 0; i < n; i++) {
        if (isfinite(steps[i].loss) && isfinite(steps[i].grad_norm)) continue;
        if (bad++ == 0) snprintf(detail, sizeof detail, "first at step %lld", (long long)steps[i].step);
    }
    add_row(j, "numbers",
            n == 0 ? RECORD
            : bad  ? FAIL
                   : PASS,
            "0", (double)bad, "steps that are not finite", n == 0 ? "no metrics.jsonl" : detail);
}

static void judge_trend(judge *j)
{
    double slope = tm_results_loss_slope(j->run);
    add_row(j, "loss trend",
            isnan(slope) ? RECORD
            : slope <= 0 ? PASS
                         : FAIL,
            "<= 0", slope, "nats per step", isnan(slope) ? "too few steps" : "");
}

static void judge_speed(judge *j)
{
    double speed = tm_result_number(j->run, "tokens_per_second_per_device/median");
    double least = j->median * (1 - j->options->tolerance / 100);
    char   expected[64] = "", detail[80] = "";
    if (isfinite(j->median)) {
        snprintf(expected, sizeof expected, ">= %.6g", least);
        if (isfinite(speed))
            snprintf(detail, sizeof detail, "%+.1f %% of the median of all", 100 * (speed / j->median - 1));
    } else {
        snprintf(detail, sizeof detail, "fewer than three runs: no median to compare with");
    }
    status st = !isfinite(j->median) ? RECORD : speed >= least ? PASS : FAIL; /* a speed that is none fails */
    add_row(j, "speed", st, expected, speed, "tokens/s/device", detail);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);
    return n > e && strcmp(name + n - e, end) == 0;
}

/* The first signature in a log: its line, or 0. */
static size_t find_signature(const char *text, const char **what)
{
    size_t line = 1;
    for (const char *p = text; *p; line++) {
        size_t n = strcspn(p, "\n");
        for (size_t i = 0; i < SIGNATURES; i++) {
            const char *at = strstr(p, signatures[i].words);
            if (!at || at >= p + n) continue;
            *what = signatures[i].what;
            return line;
        }
        p += n + (p[n] == '\n');
    }
    return 0;
}

/* The logs of a run: files in its directory that end in .log, .out, .err or .txt; the MLPerf-style ones of its own are
 * none. */
static void judge_logs(judge *j)
{
    enum { MOST = 64 << 20 };
    const char *path = tm_result_path(j->run), *slash = path ? strrchr(path, '/') : NULL;
    tm_text     folder = { 0 }, detail = { 0 };
    size_t      files = 0, found = 0;
    if (path) tm_text_printf(&folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    DIR *open = path ? opendir(folder.data) : NULL;
    for (struct dirent *entry; open && (entry = readdir(open));) {
        const char *name = entry->d_name, *what = "";
        tm_text     file = { 0 }, text = { 0 };
        tm_error    own = { 0 };
        bool        is_log = ends_with(name, ".log") || ends_with(name, ".out") || ends_with(name, ".err") ||
                      (ends_with(name, ".txt") && strncmp(name, "result_", 7) != 0);
        if (!is_log) continue;
        tm_text_printf(&file, "%s/%s", folder.data, name);
        if (tm_file_read(file.data, MOST, &text, &own) == TM_OK) {
            size_t line = find_signature(text.data ? text.data : "", &what);
            files++;
            found += line > 0;
            if (line > 0) tm_text_printf(&detail, "%s%s:%zu: %s", detail.length ? "; " : "", name, line, what);
        } else {
            tm_text_printf(&detail, "%s%s", detail.length ? "; " : "", own.text);
            found++; /* what cannot be read is not clean */
        }
        tm_text_fini(&file);
        tm_text_fini(&text);
    }
    if (open) closedir(open);
    if (files + found == 0) tm_text_add(&detail, "no log in the run directory");
    add_row(j, "log",
            found   ? FAIL
            : files ? PASS
                    : RECORD,
            "0", (double)found, "logs with a failure", detail.data ? detail.data : "");
    tm_text_fini(&folder);
    tm_text_fini(&detail);
}

static tm_status judge_limits(judge *j, tm_error *err)
{
    const tm_metric *metrics;
    const tm_gate   *gates;
    const char      *cells[2], *cell = j->options->cell;
    size_t           n, n_gates;
    tm_error         ignored = { 0 };
    if (!j->options->limits) return TM_OK;
    TM_TRY(tm_results_metrics(j->run, &metrics, &n, cells, err));
    if (!cell) cell = tm_thresholds_has(j->options->limits, cells[1], &ignored) == TM_OK ? cells[1] : cells[0];
    TM_TRY(tm_thresholds_judge(j->options->limits, cell, metrics, n, &gates, &n_gates, err));
    for (size_t i = 0; i < n_gates; i++) {
        static const char *const signs[] = { ">=", "<=", "info" };
        char                     expected[64];
        snprintf(expected, sizeof expected, "%s %.6g", signs[gates[i].kind], gates[i].limit);
        add_row(j, gates[i].metric,
                gates[i].kind == TM_GATE_INFO ? RECORD
                : gates[i].passed             ? PASS
                                              : FAIL,
                expected, gates[i].measured, NULL, cell);
    }
    return TM_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the runs that have a speed. */
static double median_speed(const tm_result *const *runs, size_t n)
{
    enum { FEWEST = 3 };
    double *speeds = tm_alloc((n + 1) * sizeof *speeds), median = (double)NAN;
    size_t  known = 0;
    for (size_t i = 0; i < n; i++) {
        double speed = tm_result_number(runs[i], "tokens_per_second_per_device/median");
        if (isfinite(speed)) speeds[known++] = speed;
    }
    qsort(speeds, known, sizeof *speeds, by_value);
    if (known >= FEWEST) median = (speeds[(known - 1) / 2] + speeds[known / 2]) / 2;
    free(speeds);
    return median;
}

/* The host, with the run's name where several runs are of one. */
static const char *host_of(const tm_result *const *runs, size_t n, size_t i, tm_arena *arena)
{
    const char *host = tm_result_string(runs[i], "environment/os/host");
    size_t      same = 0;
    for (size_t k = 0; k < n; k++) {
        const char *other = tm_result_string(runs[k], "environment/os/host");
        same += host && other && strcmp(host, other) == 0;
    }
    if (!host) return tm_result_name(runs[i]);
    return same > 1 ? tm_arena_format(arena, "%s (%s)", host, tm_result_name(runs[i])) : host;
}

tm_status tm_results_fleet(const tm_result *const *runs, size_t n, const tm_fleet_options *options, tm_table **out,
                           size_t *failed, tm_error *err)
{
    static const tm_column columns[] = { { "host", 0 }, { "gate", 0 },   { "expected", 0 }, { "actual", 6 },
                                         { "unit", 0 }, { "status", 0 }, { "detail", 0 } };
    tm_arena              *arena = tm_arena_create();
    tm_table              *table = *out = tm_table_create("fleet");
    tm_status              st = TM_OK;
    *failed = 0;
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < n && st == TM_OK; i++)
        if (tm_result_kind_of(runs[i]) != TM_RESULT_RUN)
            st = tm_fail(err, TM_INVALID, "'%s' is %s; a fleet report takes runs", tm_result_name(runs[i]),
                         tm_result_what(runs[i]));
    double median = st == TM_OK ? median_speed(runs, n) : 0;
    for (size_t i = 0; i < n && st == TM_OK; i++) {
        judge j = { .run = runs[i], .table = table, .options = options, .median = median };
        j.host = host_of(runs, n, i, arena);
        judge_run(&j);
        judge_numbers(&j);
        judge_trend(&j);
        judge_speed(&j);
        judge_logs(&j);
        st = judge_limits(&j, err);
        *failed += j.failed;
    }
    if (st == TM_OK) tm_table_note(table, "%zu of %zu runs pass", n - *failed, n);
    tm_arena_destroy(arena);
    return st;
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

static void add_cell(tm_text *out, const char *tag, const char *class_name, const char *text)
{
    tm_text_printf(out, "<%s%s%s%s>", tag, class_name ? " class=\"" : "", class_name ? class_name : "",
                   class_name ? "\"" : "");
    chart_escape(out, text);
    tm_text_printf(out, "</%s>", tag);
}

/* A number with six digits: the table as CSV or JSON has all. */
static const char *cell_of(const tm_table *table, size_t row, const char *column, char buffer[40])
{
    const tm_cell *cell = tm_table_cell(table, row, (size_t)tm_table_find(table, column));
    if (cell->kind == TM_CELL_TEXT) return cell->text;
    if (cell->kind != TM_CELL_F64) return "";
    snprintf(buffer, 40, "%.6g", cell->f64);
    return buffer;
}

static const char *class_of(const char *text)
{
    return strcmp(text, "PASS") == 0 ? "valid" : strcmp(text, "FAIL") == 0 ? "invalid" : "noisy";
}

static void add_rows(const tm_table *table, tm_text *out)
{
    tm_text_add(out, "<table id=\"gates\"><tr>");
    for (size_t c = 0; c < tm_table_n_columns(table); c++)
        add_cell(out, "th", NULL, tm_table_column_at(table, c)->name);
    tm_text_add(out, "</tr>\n");
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        tm_text_add(out, "<tr>");
        for (size_t c = 0; c < tm_table_n_columns(table); c++) {
            char        buffer[40];
            const char *name = tm_table_column_at(table, c)->name, *text = cell_of(table, row, name, buffer);
            add_cell(out, "td", strcmp(name, "status") == 0 ? class_of(text) : NULL, text);
        }
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table>\n");
}

tm_status tm_results_fleet_page(const tm_result *const *runs, size_t n, const tm_table *table, tm_text *out,
                                tm_error *err)
{
    report_runs r;
    TM_TRY(report_prepare(runs, n, &r, err));
    report_page_begin(&r, "Fleet report", out);
    tm_text_add(out, "<p><b>");
    chart_escape(out, tm_table_note_at(table, 0));
    tm_text_add(out, "</b></p>\n<div class=\"charts\">\n");
    for (const report_chart *c = report_charts; c->name; c++)
        if (strcmp(c->name, "loss") == 0 || strcmp(c->name, "speed") == 0) report_page_chart(&r, c, out);
    tm_text_add(out, "</div>\n<h2>Gates</h2>\n");
    add_rows(table, out);
    report_page_end(out);
    tm_arena_destroy(r.arena);
    return TM_OK;
}
