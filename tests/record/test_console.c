/* SPDX-License-Identifier: Apache-2.0 */
/* Step lines against the expressions of the parsers that read them, and the whole console output of a run. */
#include "support/test.h"

#include "../support/fake_run.h"
#include "base/log.h"
#include "base/terminal.h"
#include "record/record.h"
#include "record/step_line.h"

#include <regex.h>

/* POSIX has no \d, \s, \w, (?: and \b: the expressions of the interface, spelled for regcomp. */
static const char *const tps_pattern = "tps:[[:space:]]*([0-9]+\\.[0-9]+|[0-9]{1,3}(,[0-9]{3})*(\\.[0-9]+)?|[0-9]+)";
static const char *const tflops_pattern = "tflops:[[:space:]]*([0-9][0-9.eE+-]*)";

/* The first group of the first match, without thousands separators. */
static double matched(const char *pattern, const char *text)
{
    regex_t    regex;
    regmatch_t match[2];
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED), 0);
    int missed = regexec(&regex, text, 2, match, 0);
    regfree(&regex);
    if (missed) fail_msg("\"%s\" does not match %s", text, pattern);
    char digits[64];
    int  n = 0;
    for (regoff_t i = match[1].rm_so; i < match[1].rm_eo; i++)
        if (text[i] != ',') digits[n++] = text[i];
    digits[n] = '\0';
    char  *end;
    double value = strtod(digits, &end);
    assert_int_equal(*end, '\0');
    return value;
}

static int matches(const char *pattern, const char *text)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    int missed = regexec(&regex, text, 0, NULL, 0);
    regfree(&regex);
    return !missed;
}

TEST(example_line_to_the_letter)
{
    line_figures f = { .step = 10,
                       .loss = 7.91234,
                       .grad_norm = 1.2345,
                       .tokens_per_second = 9375.2,
                       .flops_per_token = 542.9e12 / 9375.2,
                       .peak_flops = 542.9e12 / 0.4152 };
    f.used_bytes = (int64_t)(96.41 * (1 << 30));
    f.limit_bytes = (int64_t)(96.41 / 0.5024 * (1 << 30));
    tm_text text = { 0 };
    line_torchtitan(&text, &f, false);
    assert_string_equal(text.data,
                        "step: 10  loss:  7.91234  grad_norm:  1.2345  memory: 96.41GiB(50.24%)  tps: 9,375  "
                        "tflops: 542.90  mfu: 41.52%\n");
    assert_true(fabs(matched(tps_pattern, text.data) - 9375) < 1e-9); /* conformance item 1 */
    assert_true(fabs(matched(tflops_pattern, text.data) - 542.9) < 1e-9);
    text.length = 0;
    f.step = 3;
    f.peak_flops = 0;
    line_torchtitan(&text, &f, false);
    assert_non_null(strstr(text.data, "step:  3  loss"));
    assert_non_null(strstr(text.data, "  mfu: N/A\n"));
    text.length = 0;
    line_validation(&text, &f, false);
    assert_string_equal(text.data, "validate step:  3  loss:  7.9123  memory: 96.41GiB(50.24%)  tps: 9,375\n");
    text.length = 0;
    line_peak(&text, 1307.4e12);
    line_peak(&text, 0);
    assert_string_equal(text.data,
                        "Peak FLOPS used for computing MFU: 1.307e+15\nPeak FLOPS used for computing MFU: N/A\n");
    tm_text_fini(&text);
}

/* Conformance item 2. */
TEST(megatron_lines)
{
    line_figures f = { .step = 12,
                       .steps = 50,
                       .loss = 6.25,
                       .grad_norm = 1.5,
                       .learning_rate = 1e-4,
                       .tokens_per_second = 9375,
                       .tokens_per_second_average = 9000,
                       .flops_per_token = 57.91e9,
                       .step_seconds = 3.5,
                       .step_seconds_average = 3.6,
                       .sequences = 8,
                       .samples = 100,
                       .date = "2026-01-31 12:00:00" };
    tm_text      text = { 0 };
    line_megatron(&text, &f);
    assert_string_equal(text.data, " [2026-01-31 12:00:00] iteration       12/      50 | consumed samples:          "
                                   "100 | elapsed time per iteration (ms): "
                                   "3500.0/3600.0 | throughput per GPU (TFLOP/s/GPU): 542.9/521.2 | tokens per GPU "
                                   "(tokens/s/GPU): 9375.0/9000.0 | "
                                   "learning rate: 1.000000E-04 | global batch size:     8 | lm loss: 6.250000E+00 | "
                                   "loss scale: 1.0 | grad norm: 1.500 | "
                                   "number of skipped iterations: 0 | number of nan iterations: 0 |\n");
    assert_true(fabs(matched("TFLOP/s/GPU\\):[[:space:]]*([0-9]+\\.?[0-9]*)/", text.data) - 542.9) < 1e-9);
    assert_true(
        fabs(matched("throughput per GPU[[:space:]]*\\([^)]*\\)[[:space:]]*:[[:space:]]*([0-9.eE+-]+)", text.data) -
             542.9) < 1e-9);
    const char *pattern =
        "iteration[[:space:]]+[0-9]+[[:space:]]*/[[:space:]]*[0-9]+[^\n]*lm loss:[[:space:]]*([0-9.eE+-]+)";
    assert_true(fabs(matched(pattern, text.data) - 6.25) < 1e-9);
    assert_true(fabs(matched("iteration[[:space:]]+([0-9]+)[[:space:]]*/", text.data) - 12) < 1e-9);
    text.length = 0;
    f.step = 1000;
    f.samples = 8000;
    line_megatron(&text, &f);
    assert_true(fabs(matched("consumed samples:[[:space:]]*([0-9]+)", text.data) - 8000) < 1e-9);
    tm_text_fini(&text);
}

/* Conformance item 3. */
TEST(performance_line)
{
    const char *pattern =
        "performance:[[:space:]]+([0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?)(/[^ ,]+)?,?[[:space:]]+[^ ,\n]+\n$";
    const double values[] = { 14164.2, 3.25, 1234567.8, 0.00001234, 1e18, 1000.04, 999.996 };
    for (size_t i = 0; i < 7; i++) { /* a tenth from a thousand on, else five digits */
        tm_text text = { 0 };
        line_performance(&text, values[i], "tokens_per_second");
        assert_true(fabs(matched(pattern, text.data) / values[i] - 1) < 1e-4);
        if (i == 0) assert_string_equal(text.data, "performance: 14164.2 tokens_per_second\n");
        if (i >= 5)
            assert_string_equal(text.data, i == 5 ? "performance: 1000.0 tokens_per_second\n"
                                                  : "performance: 1000 tokens_per_second\n");
        tm_text_fini(&text);
    }
}

static const char *const valid_reason =
    "validation loss 1.1100 is within 0.05 nat of the entropy of the language, 1.0800";

/* What is printed of these events, or of a whole run (NULL). */
static char *printed(const tm_event *events, size_t n, tm_console_options options)
{
    tm_sink *sink = NULL;
    tm_error err = { 0 };
    char    *text = NULL;
    size_t   bytes = 0;
    options.out = open_memstream(&text, &bytes);
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    for (size_t i = 0; i < n; i++) fake_emit(sink, events[i]);
    if (!events) fake_run(sink, TM_VERDICT_VALID, valid_reason);
    fake_close(sink);
    fclose(options.out);
    return text;
}

/* The whole output of a run, byte for byte. */
TEST(golden_output)
{
    char   *text = printed(NULL, 0, (tm_console_options){ .log_freq = 20 });
    tm_text golden = fake_read("tests/golden/console.txt");
    assert_string_equal(text, golden.data);
    for (const char *line = text; line && *line;) { /* the step line is the parsers', the rest is for people */
        size_t n = strcspn(line, "\n");
        if (strncmp(line, "step:", 5) != 0) assert_in_range(n, 0, 100);
        line += n + 1;
    }
    free(text);
    tm_text_fini(&golden);
}

/* Conformance item 4. */
TEST(no_failure_words)
{
    static const char words[] =
        "OutOfMemoryError|HIP out of memory|CUDA out of memory|RuntimeError:|AssertionError:|ValueError:|SystemExit|"
        "failed (exitcode:|Traceback (most recent call last)|FAILED|Exception:|ImportError:|ModuleNotFoundError:|"
        "NCCL ERROR|NCCL timeout|HW Exception by GPU|GPU Hang|Uncorrectable error|GPU Reset|loss: NaN|loss: Inf";
    for (int style = 0; style < 2; style++) {
        tm_console_options options = { .log_freq = 1, .style = (tm_log_style)style };
        char              *text = printed(NULL, 0, options), list[sizeof words], *rest = list;
        strcpy(list, words);
        for (char *word; (word = strsep(&rest, "|"));)
            if (strstr(text, word)) fail_msg("\"%s\" is in the output", word);
        if (style == TM_LOG_STYLE_TORCHTITAN) assert_false(matches("(nan|inf)([^a-z]|$)", text));
        free(text);
    }
}

/* Every line is there at once, whatever comes after it. */
TEST(lines_are_told_at_once)
{
    static const char *const wanted[] = { "Peak FLOPS", "step:  1 ", "validate step:  1 ", "step:  2 ", "verdict" };
    char                    *text = NULL;
    size_t                   bytes = 0, before = 0;
    tm_sink                 *sink;
    tm_error                 err = { 0 };
    tm_console_options       options = { .out = open_memstream(&text, &bytes), .log_freq = 1 };
    tm_event                 evaluation = { .kind = TM_EVENT_EVALUATION,
                                            .evaluation = { .step = 1, .loss = 2.5, .tokens = 100, .seconds = 0.5 } };
    tm_event events[] = { fake_started(), fake_step(1), evaluation, fake_step(2), fake_ended(2, TM_VERDICT_VALID, "") };
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        events[1] = fake_step(1), events[3] = fake_step(2);
        fake_emit(sink, events[i]);
        if (bytes == before || !strstr(text + before, wanted[i]))
            fail_msg("event %zu: no '%s' in '%s'", i, wanted[i], bytes == before ? "" : text + before);
        before = bytes;
    }
    fake_close(sink);
    assert_int_equal(bytes, before);
    fclose(options.out);
    free(text);
}

TEST(what_is_no_number_is_counted)
{
    tm_event events[] = { fake_started(), fake_step(1), fake_step(2), fake_step(3), fake_step(4) };
    events[0].run_started.flops_per_token = (const tm_named_f64[]){ { "none", 6e12 } };
    events[0].run_started.n_flops_per_token = 0;
    events[2].step_done.grad_norm = (double)INFINITY;
    events[3].step_done.grad_norm = events[3].step_done.loss = (double)NAN;
    events[4].step_done.loss = (double)NAN;
    char *text = printed(events, 5, (tm_console_options){ .log_freq = 1, .style = TM_LOG_STYLE_MEGATRON });
    for (int i = 0; i < 4; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "number of nan iterations: %d |", i);
        assert_non_null(strstr(text, wanted));
    }
    for (const char *at = text; (at = strstr(at, "throughput per GPU")) != NULL; at++) /* nobody counted any */
        assert_memory_equal(at, "throughput per GPU (TFLOP/s/GPU): 0.0/0.0 |", 43);
    free(text);
}

/* On the terminal of the panel lines go above it; the report follows when it is gone, and nothing is drawn any more. */
TEST(the_report_follows_the_panel)
{
    tm_terminal_size   size = { 100, 40 };
    char              *text = NULL;
    size_t             bytes = 0;
    tm_sink           *sink = NULL;
    tm_error           err = { 0 };
    tm_console_options options = { .out = open_memstream(&text, &bytes), .log_freq = 1, .panel_size = &size };
    options.panel = options.out;
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    fake_emit(sink, fake_step(1));
    fake_emit(sink, (tm_event){ .kind = TM_EVENT_EVALUATION_STARTED, .evaluation_started = { 1, 64 } });
    fflush(options.out);
    assert_non_null(strstr(text, "ETA"));
    fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
    fflush(options.out);
    const char *report = strstr(text, "whole process"), *last = strstr(text, "performance: ");
    assert_true(report && last && !strstr(report, "ETA") && strchr(last, '\n')[1] == '\0');
    const size_t before = bytes;
    tm_log_set_level(TM_LOG_INFO);
    tm_note("nobody draws above what is gone");
    fake_close(sink);
    fflush(options.out);
    assert_int_equal(bytes, before);
    fclose(options.out);
    free(text);
}

TEST(a_full_output_is_reported)
{
    tm_sink           *sink = NULL;
    tm_error           err = { 0 };
    tm_console_options options = { .log_freq = 1, .out = fopen("/dev/full", "w") };
    if (!options.out) skip();
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_VALID, "");
    assert_int_equal(tm_sink_close(sink, &err), TM_IO);
    assert_non_null(strstr(err.text, "No space left"));
    fclose(options.out);
}
