/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/table_rules.h - rules of every row of a benchmark's table: figures follow from the shapes, the times and
 * the ceilings of the row; times are those of the clock that the test moves. */
#ifndef TM_TESTS_BENCH_TABLE_RULES_H
#define TM_TESTS_BENCH_TABLE_RULES_H

#include "bench/tables.h"

static inline const char *words_at(const tm_table *table, size_t row, const char *column)
{
    int            at = tm_table_find(table, column);
    const tm_cell *cell = at < 0 ? NULL : tm_table_cell(table, row, (size_t)at);
    return cell && cell->kind == TM_CELL_TEXT ? cell->text : "";
}

static inline bool truth_at(const tm_table *table, size_t row, const char *column)
{
    int at = tm_table_find(table, column);
    return at >= 0 && tm_table_cell(table, row, (size_t)at)->truth;
}

/* The cell is this, to nine digits. */
static inline void cell_is(const tm_table *table, size_t row, const char *column, double wanted)
{
    double is = number_at(table, row, column);
    if (isnan(is) && isnan(wanted)) return;
    if (!(fabs(is - wanted) <= 1e-9 * fabs(wanted)))
        fail_msg("row %zu: %s is %.12g, wanted %.12g", row, column, is, wanted);
}

static inline void cell_within(const tm_table *table, size_t row, const char *column, double lo, double hi)
{
    double is = number_at(table, row, column);
    if (!(is >= lo && is <= hi)) fail_msg("row %zu: %s is %.9g, not in %.9g .. %.9g", row, column, is, lo, hi);
}

static inline double bytes_of_format(const char *dtype)
{
    return strcmp(dtype, "float32") == 0 ? 4 : strcmp(dtype, "float64") == 0 ? 8 : 2;
}

/* Less than a second cannot be judged, and the reason has the length, which is `least` seconds at least. */
static inline void verdict_follows_length(const tm_table *table, size_t row, double least)
{
    const char *verdict = words_at(table, row, "verdict"), *reason = words_at(table, row, "reason");
    bool        too_short = strstr(reason, "are too short to judge the machine by") != NULL;
    if (!*verdict || (least < 0.9) != too_short) fail_msg("row %zu: %s, '%s'", row, verdict, reason);
    if (too_short) assert_string_equal(verdict, "not-judged");
    if (too_short && !(strtod(reason, NULL) < 1 && strtod(reason, NULL) >= 0.94 * least))
        fail_msg("row %zu: '%s'", row, reason);
}

/* Times of samples: in order, around their mean, as long as kernels of `kernel_us` and up to a sixth more take. */
static inline void samples_are_regular(const tm_table *table, size_t row, double kernels, double kernel_us)
{
    double n = number_at(table, row, "n"), median = number_at(table, row, "median_ms");
    assert_true(n >= 1 && number_at(table, row, "loops") >= 1 && *words_at(table, row, "stop"));
    check_intervals(table, row);
    cell_within(table, row, "median_ms", kernels * kernel_us * 0.99e-3, kernels * kernel_us * 1.18e-3 + 4e-4);
    cell_within(table, row, "p95_ms", median, kernels * kernel_us * 1.18e-3 + 4e-4);
    cell_within(table, row, "outliers", 0, n);
    if (n > 1) cell_within(table, row, "cv", 0, 0.09);
    if (n < 2) assert_true(isnan(number_at(table, row, "cv")));
    verdict_follows_length(table, row, n * median * 1e-3);
}

static inline bool row_is_skipped(const tm_table *table, size_t row, const char *measured)
{
    bool skipped = *words_at(table, row, "skipped") != '\0';
    char list[200], *rest = list;
    snprintf(list, sizeof list, "%s", measured);
    for (char *one; (one = strsep(&rest, " "));)
        if (isnan(number_at(table, row, one)) != skipped)
            fail_msg("row %zu: %s, skipped: '%s'", row, one, words_at(table, row, "skipped"));
    return skipped;
}

/* C (M, N) += A (M, K) B (K, N): 2 M N K FLOP; each operand is read or written once. */
static inline void gemm_row(const tm_table *table, size_t row)
{
    double      m = number_at(table, row, "M"), n = number_at(table, row, "N"), k = number_at(table, row, "K");
    const char *dtype = words_at(table, row, "dtype"), *c_dtype = words_at(table, row, "c_dtype");
    double      bytes = bytes_of_format(dtype) * (m * k + k * n) + bytes_of_format(c_dtype) * m * n;
    double      seconds = number_at(table, row, "avg_time_ms") * 1e-3, flops = 2 * m * n * k;
    char        name[64];
    snprintf(name, sizeof name, "%.0fx%.0fx%.0f", m, n, k);
    assert_string_equal(words_at(table, row, "case"), name);
    assert_string_equal(words_at(table, row, "host"), "here");
    cell_is(table, row, "world", 1);
    cell_is(table, row, "rank", 0);
    cell_is(table, row, "threads", 1);
    cell_is(table, row, "tflop", flops * 1e-12);
    cell_is(table, row, "arith_intensity", flops / bytes);
    if (row_is_skipped(table, row, "avg_time_ms tflops bandwidth_gbps peak_pct median_ms")) return;
    cell_is(table, row, "tflops", flops / seconds * 1e-12);
    cell_is(table, row, "bandwidth_gbps", bytes / seconds * 1e-9);
    cell_is(table, row, "peak_pct", 100 * flops / seconds / (strcmp(dtype, "bfloat16") == 0 ? 2e15 : 1e15));
    cell_within(table, row, "avg_time_ms", number_at(table, row, "p5_ms") * 0.999,
                number_at(table, row, "p95_ms") * 1.001);
    assert_true(truth_at(table, row, "correct"));
    cell_within(table, row, "error_of_bound", 1e-6, 1);
    samples_are_regular(table, row, 1, 37);
}

/* Pairs of a query and a key that it sees, of each head: all, the triangle, or a band of window + 1. */
static inline double pairs_seen(double t, bool causal, double window)
{
    double pairs = 0;
    for (double i = 0; i < t; i++) pairs += !causal ? t : window > 0 && i + 1 > window ? window : i + 1;
    return pairs;
}

/* Two products forward, five backward; the convention counts half of the square where attention is causal. */
static inline void attention_row(const tm_table *table, size_t row, bool measured)
{
    double b = number_at(table, row, "batch_size"), t = number_at(table, row, "seqlen_q"),
           h = number_at(table, row, "num_head_q"), d = number_at(table, row, "head_dim_qk"),
           window = number_at(table, row, "window");
    bool        causal = truth_at(table, row, "causal");
    const char *convention = words_at(table, row, "convention");
    double      each = 4 * b * h * d, pairs = pairs_seen(t, causal, window), counted = causal ? t * t / 2 : t * t;
    cell_is(table, row, "seqlen_kv", t);
    cell_is(table, row, "head_dim_v", d);
    assert_string_equal(convention, !causal ? "full" : window > 0 && window < t ? "window" : "causal-half");
    if (row_is_skipped(table, row, "fwd_tflops fwd_time bwd_tflops bwd_time fwd_tflops_executed n")) return;
    if (strcmp(convention, "window") == 0) counted = t * window;
    static const char *const ways[][2] = { { "fwd", "1" }, { "bwd", "2.5" } };
    for (int i = 0; i < 2; i++) {
        char   name[64];
        double seconds, times = strtod(ways[i][1], NULL);
        snprintf(name, sizeof name, "%s_time", ways[i][0]);
        seconds = number_at(table, row, name) * 1e-3;
        if (measured) cell_within(table, row, name, 0.0366, 0.0437);
        snprintf(name, sizeof name, "%s_median", ways[i][0]);
        if (measured) cell_within(table, row, name, 0.0366, 0.0437);
        snprintf(name, sizeof name, "%s_tflops", ways[i][0]);
        cell_is(table, row, name, times * each * counted / seconds * 1e-12);
        snprintf(name, sizeof name, "%s_tflops_executed", ways[i][0]);
        cell_is(table, row, name, times * each * pairs / seconds * 1e-12);
    }
    if (measured) cell_within(table, row, "error_of_bound", 1e-6, 1);
    cell_within(table, row, "n", 3, 1e6);
    if (measured)
        verdict_follows_length(table, row,
                               1e-3 * number_at(table, row, "n") *
                                   (number_at(table, row, "fwd_time") + number_at(table, row, "bwd_time")));
}

/* Copy and scale move two arrays, the sum and the triad three, the dot product two. */
static inline void stream_row(const tm_table *table, size_t row)
{
    static const struct {
        const char *kernel;
        double      arrays;
    } kernels[] = { { "copy", 2 }, { "mul", 2 }, { "add", 3 }, { "triad", 3 }, { "dot", 2 } };
    double      elements = number_at(table, row, "elements"), arrays = 0;
    const char *kernel = words_at(table, row, "kernel");
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (strcmp(kernel, kernels[i].kernel) == 0) arrays = kernels[i].arrays;
    assert_true(arrays > 0);
    cell_is(table, row, "array_mib", 8 * elements / 0x1p20);
    if (row_is_skipped(table, row, "best_mbps median_mbps median_ms n")) return;
    cell_is(table, row, "median_mbps", arrays * 8 * elements / number_at(table, row, "median_ms") * 1e-3);
    cell_within(table, row, "best_mbps", number_at(table, row, "median_mbps"), arrays * 8 * elements / 0.0369 * 1e-3);
    assert_true(truth_at(table, row, "correct"));
    samples_are_regular(table, row, 1, 37);
}

/* Layers of the widths in the name: their parameters; by 6 N, and by the products that a step executes (the first layer
 * needs no gradient of its input). `bias`: layers have one. */
static inline void mlp_row(const tm_table *table, size_t row, bool bias, bool measured)
{
    double width[20], weights = 0, first = 0, biases = 0, batch = number_at(table, row, "batch");
    int    n = 0;
    for (const char *at = words_at(table, row, "case"); *at; at += strcspn(at, "-"), at += *at == '-')
        width[n++] = strtod(at, NULL);
    for (int i = 0; i + 1 < n; i++) weights += width[i] * width[i + 1], biases += bias ? width[i + 1] : 0;
    first = width[0] * width[1];
    if (row_is_skipped(table, row, "step_ms fwd_ms bwd_ms loss_ms samples_per_second tflops_6n tflops_executed n"))
        return;
    double step = number_at(table, row, "step_ms") * 1e-3, all = 0;
    cell_is(table, row, "parameters", weights + biases);
    cell_is(table, row, "samples_per_second", batch / step);
    cell_is(table, row, "tflops_6n", 6 * (weights + biases) * batch / step * 1e-12);
    cell_is(table, row, "tflops_executed", 2 * batch * (3 * weights - first) / step * 1e-12);
    static const char *const parts[] = { "fwd_ms", "bwd_ms", "loss_ms", "update_ms" };
    for (int i = 0; i < 4; i++)
        if (!isnan(number_at(table, row, parts[i]))) all += number_at(table, row, parts[i]) * 1e-3;
    assert_true(fabs(all - step) <= (measured ? 0.04 : 1) * step);
    cell_within(table, row, "memory_gb", 4 * (weights + biases) * 1e-9, 1e-5 + 17 * (weights + biases) * 1e-9);
    if (!measured) return;
    cell_within(table, row, "error_of_bound", 1e-7, 1);
    check_intervals(table, row);
    verdict_follows_length(table, row, number_at(table, row, "n") * step);
}

/* Notes name the ceilings; the numbers of the machine are not looked at. */
static inline bool table_notes(const tm_table *table, const char *words)
{
    for (size_t i = 0; i < tm_table_n_notes(table); i++)
        if (strstr(tm_table_note_at(table, i), words)) return true;
    return false;
}

/* Runs a workload: `rows` rows that follow `rule`, and words that must be said: by the error, a row or a note. */
static inline void table_follows(const trial *what, size_t rows, tm_status status, const char *words,
                                 void (*rule)(const tm_table *table, size_t row))
{
    tried t = try_workload(what);
    if (t.status != status || tm_table_n_rows(t.table) != rows)
        fail_msg("%s: %zu rows, %s: %s", what->arguments, tm_table_n_rows(t.table), tm_status_text(t.status),
                 t.err.text);
    for (size_t row = 0; row < rows; row++) rule(t.table, row);
    bool said = !words || strstr(t.err.text, words) || table_notes(t.table, words);
    for (size_t row = 0; row < rows && words; row++) {
        said = said || strstr(words_at(t.table, row, "skipped"), words);
        for (size_t c = 0; c < tm_table_n_columns(t.table); c++) {
            const tm_cell *cell = tm_table_cell(t.table, row, c);
            said = said || (cell->kind == TM_CELL_TEXT && strcmp(cell->text, words) == 0);
        }
    }
    if (!said) fail_msg("%s: nobody says '%s': %s", what->arguments, words, t.err.text);
    for (size_t i = 0; i < tm_table_n_notes(t.table); i++)
        if (strstr(tm_table_note_at(t.table, i), "(null)")) fail_msg("%s", tm_table_note_at(t.table, i));
    tried_fini(&t);
}

#endif
