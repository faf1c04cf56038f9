/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark mlperf explain` over results that are made up, no two of whose figures are alike: every member of the JSON
 * is the figure that was made up, every cell and ratio of the text is that member in its unit, to its last digit. What
 * the figures are: tests/mlperf/test_breakdown.c. */
#include "support/test.h"
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "apps/mlperf/breakdown.h"
#include "told.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>

/* --- results that are made up ------------------------------------------------------------------------------------- */

typedef struct {
    const char *benchmark;
    double      rate; /* samples/s: on both sides of where digits change */
    size_t      used, runs, of_spread;
    const char *problem;
    bool        valid;
    int64_t     batch;
} made_result;

#define FORTY "a_benchmark_whose_name_has_forty_letters"

static const made_result made[] = {
    { "llama31_8b", 9.9994, 3, 3, 3, NULL, true, 64 },    { "llama31_8b", 10, 2, 2, 2, NULL, false, 0 },
    { NULL, 99.994, 1, 1, 1, NULL, true, 8192 },          { NULL, 100, 1, 2, 2, "a run is bad", false, 1 },
    { FORTY, 999.94, 5, 0, 5, NULL, true, 12 },           { FORTY, 1000, 4, 1, 0, NULL, true, 16 },
    { "llama31_8b", 123456.7, 2, 1, 4, NULL, true, 640 }, { "flux1", NAN, 2, 1, 2, NULL, true, 5 },
    { "flux1", 0.5, 0, 1, 1, "none counts", false, 2 },
};

enum { MOST = 16, RUNS = 3 };

static double             last;
static tm_submission      submissions[sizeof made / sizeof made[0]];
static int                opened;
static tm_breakdown       results[MOST]; /* what the command was told, in its order */
static tm_breakdown_ratio ratios[MOST];
static size_t             n_results, n_ratios;

/* Another number each time. */
static double another(void)
{
    last = fmod(last * 5 + 37.015625, 997);
    return last;
}

static size_t number_of(const tm_submission *s)
{
    return (size_t)(s - submissions);
}

tm_status tm_submission_open(const char *path, tm_ruleset ruleset, tm_submission **out, tm_error *err)
{
    size_t i = (size_t)(path[0] - 'a');
    assert_int_equal(ruleset, TM_RULESET_6_0_0);
    if (i >= sizeof made / sizeof made[0]) return tm_fail(err, TM_INVALID, "there is no '%s'", path);
    submissions[i] = (tm_submission){ .path = path, .benchmark = made[i].benchmark };
    opened++;
    *out = &submissions[i];
    return TM_OK;
}

void tm_submission_close(tm_submission *s)
{
    assert_true(s == &submissions[number_of(s)]);
    opened--;
}

/* Nobody asks for these. */
tm_submission *tm_submission_create(const char *path, tm_ruleset ruleset)
{
    (void)path, (void)ruleset;
    return NULL;
}

void tm_submission_add(tm_submission *s, const char *name, tm_mllog *log)
{
    (void)s, (void)name, (void)log;
}

tm_status tm_submission_judge(const tm_submission *s, const tm_reference *given, bool full, tm_rcp_verdict *out,
                              tm_error *err)
{
    (void)s, (void)given, (void)full, (void)out;
    return tm_fail(err, TM_INTERNAL, "nobody asks for this");
}

static void make_spread(tm_spread *s, double mean, size_t n)
{
    *s = (tm_spread){ .mean = n ? mean : (double)NAN, .deviation = another() / 40, .geometric = another(), .n = n };
}

static tm_breakdown_run make_run(size_t i)
{
    static const char *const names[] = { "result_0.txt", "result_1.txt", "result_2.txt" };
    tm_breakdown_run         r = { .name = names[i], .used = i != 1, .evaluations = 3 + i };
    double *const            values[] = { &r.seconds,  &r.init_s, &r.train_s,    &r.eval_s,         &r.samples,
                                          &r.crossing, &r.rate,   &r.first_rate, &r.rate_variation, &r.tracked };
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) *values[k] = another();
    if (i == 2) r.tracked = r.first_rate = (double)NAN;
    return r;
}

tm_status tm_breakdown_compute(const tm_submission *submission, const tm_reference *given, tm_breakdown *out,
                               tm_error *err)
{
    static tm_breakdown_run runs[MOST][RUNS];
    size_t                  i = number_of(submission);
    const made_result      *m = &made[i];
    (void)err;
    assert_null(given);
    *out = (tm_breakdown){ .runs = runs[n_results], .n = m->runs, .used = m->used };
    for (size_t k = 0; k < m->runs; k++) runs[n_results][k] = make_run(k);
    out->score = (tm_score){ .problem = m->problem,
                             .valid = m->valid,
                             .minutes = another(),
                             .scaled = another(),
                             .factor = 1 + another() / 1000,
                             .rcp = { .batch = m->batch } };
    tm_spread *const spreads[] = { &out->seconds,      &out->samples,  &out->init_s,
                                   &out->evaluation_s, &out->crossing, &out->overshoot };
    for (size_t k = 0; k < sizeof spreads / sizeof spreads[0]; k++)
        make_spread(spreads[k], 40 * another(), m->of_spread);
    make_spread(&out->rate, m->rate, m->of_spread);
    make_spread(&out->first_rate, m->rate * 1.00005, m->of_spread);
    make_spread(&out->tracked, m->rate * 0.99995, m->of_spread);
    make_spread(&out->train_share, (70 + 3 * (double)i) / 100, m->of_spread);
    make_spread(&out->eval_share, (8 + (double)i) / 80, m->of_spread);
    double *const values[] = { &out->rate_variation, &out->interval, &out->rounding_share, &out->best_interval };
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) *values[k] = another();
    out->rate_variation /= 1000, out->rounding_share /= 1000;
    for (int k = 0; k < TM_BREAKDOWN_FINER; k++)
        out->finer[k] = (tm_breakdown_finer){ .parts = 2 * k + 2,
                                              .saved_s = another(),
                                              .evaluations_s = another(),
                                              .net_s = (k ? -1 : 1) * another(),
                                              .scaled_s = i % 3 == 2 ? (double)NAN : another() };
    results[n_results++] = *out;
    return TM_OK;
}

bool tm_breakdown_compare(const tm_submission *of_a, const tm_breakdown *a, const tm_submission *of_b,
                          const tm_breakdown *b, tm_breakdown_ratio *out)
{
    assert_true(a->used == made[number_of(of_a)].used && b->used == made[number_of(of_b)].used);
    assert_true(number_of(of_a) <= number_of(of_b));
    if (a->score.problem || b->score.problem) return false;
    *out = (tm_breakdown_ratio){ another() / 100, another() / 100, another() / 100,
                                 another() / 100, another() / 100, another() / 100 };
    ratios[n_ratios++] = *out;
    return true;
}

/* --- JSON is what was told -----------------------------------------------------------------------------------------
 */

typedef struct {
    const char *name;
    size_t      offset;
} member;

static const member spreads[] = { { "seconds", offsetof(tm_breakdown, seconds) },
                                  { "samples", offsetof(tm_breakdown, samples) },
                                  { "samples_per_s", offsetof(tm_breakdown, rate) },
                                  { "training_share", offsetof(tm_breakdown, train_share) },
                                  { "evaluation_share", offsetof(tm_breakdown, eval_share) },
                                  { "initialisation_s", offsetof(tm_breakdown, init_s) },
                                  { "one_evaluation_s", offsetof(tm_breakdown, evaluation_s) },
                                  { "samples_at_target", offsetof(tm_breakdown, crossing) },
                                  { "samples_beyond_target", offsetof(tm_breakdown, overshoot) },
                                  { "first_block_samples_per_s", offsetof(tm_breakdown, first_rate) },
                                  { "tracked_throughput", offsetof(tm_breakdown, tracked) },
                                  { NULL, 0 } },
                    figures[] = { { "rcp_scaling_factor", offsetof(tm_breakdown, score.factor) },
                                  { "block_rate_variation", offsetof(tm_breakdown, rate_variation) },
                                  { "interval_samples", offsetof(tm_breakdown, interval) },
                                  { "rounding_share_of_variance", offsetof(tm_breakdown, rounding_share) },
                                  { "best_interval_samples", offsetof(tm_breakdown, best_interval) },
                                  { NULL, 0 } },
                    of_spread[] = { { "mean", offsetof(tm_spread, mean) },
                                    { "deviation", offsetof(tm_spread, deviation) },
                                    { "geometric_mean", offsetof(tm_spread, geometric) },
                                    { NULL, 0 } },
                    of_finer[] = { { "saved_s", offsetof(tm_breakdown_finer, saved_s) },
                                   { "evaluations_s", offsetof(tm_breakdown_finer, evaluations_s) },
                                   { "net_s", offsetof(tm_breakdown_finer, net_s) },
                                   { "scaled_net_s", offsetof(tm_breakdown_finer, scaled_s) },
                                   { NULL, 0 } },
                    of_run[] = { { "seconds", offsetof(tm_breakdown_run, seconds) },
                                 { "initialisation_s", offsetof(tm_breakdown_run, init_s) },
                                 { "training_s", offsetof(tm_breakdown_run, train_s) },
                                 { "evaluation_s", offsetof(tm_breakdown_run, eval_s) },
                                 { "samples", offsetof(tm_breakdown_run, samples) },
                                 { "samples_at_target", offsetof(tm_breakdown_run, crossing) },
                                 { "samples_per_s", offsetof(tm_breakdown_run, rate) },
                                 { "first_block_samples_per_s", offsetof(tm_breakdown_run, first_rate) },
                                 { "block_rate_variation", offsetof(tm_breakdown_run, rate_variation) },
                                 { "tracked_throughput", offsetof(tm_breakdown_run, tracked) },
                                 { NULL, 0 } },
                    of_ratio[] = { { "scaled_minutes", offsetof(tm_breakdown_ratio, scaled) },
                                   { "samples", offsetof(tm_breakdown_ratio, samples) },
                                   { "time_per_sample", offsetof(tm_breakdown_ratio, rate) },
                                   { "time_outside_of_training", offsetof(tm_breakdown_ratio, overhead) },
                                   { "trimming", offsetof(tm_breakdown_ratio, trimming) },
                                   { "factor", offsetof(tm_breakdown_ratio, factor) },
                                   { NULL, 0 } };

static void number_is(const json_t *object, const char *name, double wanted)
{
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value) != !isfinite(wanted) || (isfinite(wanted) && json_number_value(value) != wanted))
        fail_msg("%s is %g, wanted %g", name, json_number_value(value), wanted);
}

/* The numbers of a struct, and `others` members beside them. */
static void numbers_are(const json_t *object, const member *members, const void *from, size_t others)
{
    for (; members->name; members++, others++)
        number_is(object, members->name, *(const double *)((const char *)from + members->offset));
    assert_int_equal(json_object_size(object), others);
}

static void result_is(const json_t *object, const tm_breakdown *b, const char *folder)
{
    const made_result *m = &made[folder[0] - 'a'];
    const json_t      *finer = json_object_get(object, "finer_intervals"), *runs = json_object_get(object, "runs");
    assert_string_equal(json_string_value(json_object_get(object, "folder")), folder);
    if (m->benchmark) assert_string_equal(json_string_value(json_object_get(object, "benchmark")), m->benchmark);
    assert_int_equal(json_is_null(json_object_get(object, "benchmark")), !m->benchmark);
    assert_int_equal(json_is_true(json_object_get(object, "valid")), m->valid);
    number_is(object, "scaled_minutes", m->problem ? (double)NAN : b->score.scaled);
    number_is(object, "runs_that_count", (double)m->used);
    for (const member *s = spreads; s->name; s++) {
        const tm_spread *spread = (const tm_spread *)((const char *)b + s->offset);
        numbers_are(json_object_get(object, s->name), of_spread, spread, 1);
        number_is(json_object_get(object, s->name), "n", (double)spread->n);
    }
    numbers_are(object, figures, b, 5 + sizeof spreads / sizeof spreads[0] - 1 + 2);
    assert_int_equal(json_array_size(finer), TM_BREAKDOWN_FINER);
    for (size_t i = 0; i < TM_BREAKDOWN_FINER; i++) {
        numbers_are(json_array_get(finer, i), of_finer, &b->finer[i], 1);
        number_is(json_array_get(finer, i), "parts", b->finer[i].parts);
    }
    assert_int_equal(json_array_size(runs), m->runs);
    for (size_t i = 0; i < m->runs; i++) {
        const json_t *run = json_array_get(runs, i);
        numbers_are(run, of_run, &b->runs[i], 3);
        number_is(run, "evaluations", (double)b->runs[i].evaluations);
        assert_string_equal(json_string_value(json_object_get(run, "file")), b->runs[i].name);
        assert_int_equal(json_is_true(json_object_get(run, "counts")), b->runs[i].used);
    }
}

/* The first result of the same benchmark as result i. */
static size_t first_like(const char *folders, size_t i)
{
    const char *name = made[folders[i] - 'a'].benchmark;
    for (size_t k = 0; name && k < i; k++) {
        const char *other = made[folders[k] - 'a'].benchmark;
        if (other && strcmp(name, other) == 0) return k;
    }
    return i;
}

/* --- the text is the JSON ------------------------------------------------------------------------------------------
 */

enum { RATE = -1, CELL_AT = 38, CELL = 23 };

/* Member `name` times `factor`. A spread has its deviation beside it, a share only its mean. */
static const struct {
    const char *label, *name;
    double      factor;
    int         decimals; /* RATE: four digits */
    const char *unit;
    bool        is_signed, mean_only;
} rows[] = {
    { "score, scaled minutes", "scaled_minutes", 1, 2, "", false, false },
    { "time to train, minutes", "seconds", 1. / 60, 2, "", false, false },
    { "  samples to the target", "samples", 1, 0, "", false, false },
    { "  samples/s of training", "samples_per_s", 1, RATE, "", false, false },
    { "  time in training", "training_share", 100, 2, "%", false, true },
    { "  time in evaluation", "evaluation_share", 100, 2, "%", false, true },
    { "initialization (not included), s", "initialisation_s", 1, 1, "", false, false },
    { "one evaluation, s", "one_evaluation_s", 1, 2, "", false, false },
    { "samples/s of the first block", "first_block_samples_per_s", 1, RATE, "", false, true },
    { "spread of blocks within a run", "block_rate_variation", 100, 2, "%", false, false },
    { "throughput that the runs logged", "tracked_throughput", 1, RATE, "", false, false },
    { "evaluation interval, samples", "interval_samples", 1, 0, "", false, false },
    { "  samples at the target itself", "samples_at_target", 1, 0, "", false, false },
    { "  samples beyond the target", "samples_beyond_target", 1, 0, "", false, true },
    { "  rounding in the variance of samples", "rounding_share_of_variance", 100, 0, "%", false, false },
    { "  interval of least expected time", "best_interval_samples", 1, 0, "", false, false },
    { "  time change with half the interval", "0 net_s", 1, 1, " s", true, false },
    { "    the same in scaled time", "0 scaled_net_s", 1, 1, " s", true, false },
    { "  time change with a quarter of it", "1 net_s", 1, 1, " s", true, false },
    { "    the same in scaled time", "1 scaled_net_s", 1, 1, " s", true, false },
};

static void format(char out[40], double value, int decimals, const char *unit, bool is_signed)
{
    if (decimals == RATE)
        for (decimals = 3; decimals > 0 && value >= pow(10, 4 - decimals); decimals--) {
        }
    if (isfinite(value))
        snprintf(out, 40, is_signed ? "%+.*f%s" : "%.*f%s", decimals, value, unit);
    else
        strcpy(out, "-");
}

/* The line with that label, the `nth` of them, has this in the result's column. */
static void cell_is(const char *label, int nth, size_t column, const char *wanted)
{
    char begin[80], cell[40];
    snprintf(begin, sizeof begin, "\n%-38s ", label);
    const char *line = strstr(told.data, begin);
    for (; line && nth; nth--) line = strstr(line + 1, begin);
    if (!line) fail_msg("no line '%s' in\n%s", label, told.data);
    const char *at = line + 1 + CELL_AT + CELL * column;
    snprintf(cell, sizeof cell, "%22s", wanted);
    if (strncmp(at + 1, cell, strlen(cell)) != 0 || !strchr(" \n", at[1 + strlen(cell)]))
        fail_msg("'%s', column %zu: '%.24s', wanted '%s'", label, column, at, wanted);
}

static double mean_of(const json_t *result, const char *name)
{
    const json_t *mean = json_object_get(json_object_get(result, name), "mean");
    return json_is_number(mean) ? json_number_value(mean) : (double)NAN;
}

static void cells_are(const json_t *result, size_t column, const made_result *m)
{
    char wanted[80];
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        const char   *name = rows[k].name;
        const json_t *from = result;
        if (strchr("01", name[0]))
            from = json_array_get(json_object_get(result, "finer_intervals"), (size_t)(name[0] - '0')), name += 2;
        const json_t *value = json_object_get(from, name), *spread = json_is_object(value) ? value : NULL;
        if (spread) value = json_object_get(spread, "mean");
        double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
        format(wanted, number * rows[k].factor, rows[k].decimals, rows[k].unit, rows[k].is_signed);
        if (spread && !rows[k].mean_only && json_integer_value(json_object_get(spread, "n")) > 1)
            snprintf(wanted + strlen(wanted), 40, " +- %.2f%%",
                     100 * json_number_value(json_object_get(spread, "deviation")) / number);
        cell_is(rows[k].label, strcmp(rows[k].name, "1 scaled_net_s") == 0, column, wanted);
    }
    double factor = json_number_value(json_object_get(result, "rcp_scaling_factor"));
    double rest = 1 - mean_of(result, "training_share") - mean_of(result, "evaluation_share");
    format(wanted, m->problem ? (double)NAN : factor, 5, "", false);
    cell_is("  factor of the convergence test", 0, column, wanted);
    format(wanted, 100 * (rest < 0 ? 0 : rest), 2, "%", false);
    cell_is("  time in neither", 0, column, wanted);
    format(wanted, mean_of(result, "samples_beyond_target") / mean_of(result, "samples_per_s") / 60, 2, "", false);
    cell_is("  minutes beyond the target", 0, column, wanted);
    format(wanted, m->batch ? (double)m->batch : (double)NAN, 0, "", false);
    cell_is("global batch size", 0, column, wanted);
    snprintf(wanted, sizeof wanted, "%zu of %zu", m->used, m->runs);
    cell_is("runs that count", 0, column, wanted);
    snprintf(wanted, sizeof wanted, "%.31s", m->benchmark ? m->benchmark : "-");
    if (!strstr(told.data, "name_has")) cell_is("benchmark", 0, column, wanted); /* which is wider than its column */
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static tm_status explain(const char *words, tm_error *err)
{
    char copy[300], *rest = copy, *argv[40];
    int  argc = 0;
    *err = (tm_error){ 0 };
    snprintf(copy, sizeof copy, "mlperf explain|--ruleset|6.0.0|%s", words);
    for (char *word; (word = strsep(&rest, "|"));) argv[argc++] = word;
    argv[argc] = NULL;
    last = 1, n_results = n_ratios = told.length = 0;
    told_begin();
    tm_status st = tm_cli_call(&tm_mlperf_command_explain, "mlperf explain", argc, argv, err);
    told_end(st, err);
    assert_int_equal(opened, 0);
    return st;
}

static void ratios_are(const json_t *all, const char *folders)
{
    size_t n = 0;
    for (size_t i = 1; folders[i]; i++) {
        size_t      base = first_like(folders, i);
        char        begin[40];
        const char *line;
        double      x[6];
        snprintf(begin, sizeof begin, "\n%c / ", (char)('A' + i));
        line = strstr(told.data, begin);
        assert_int_equal(line != NULL, base < i);
        if (base == i) continue;
        assert_int_equal(line[5], 'A' + base);
        if (made[folders[i] - 'a'].problem || made[folders[base] - 'a'].problem) {
            assert_non_null(strstr(line, ": no ratio: one of them has no score\n"));
            continue;
        }
        const json_t *ratio = json_array_get(all, n);
        number_is(ratio, "of", (double)i);
        number_is(ratio, "to", (double)base);
        numbers_are(ratio, of_ratio, &ratios[n++], 2);
        assert_int_equal(
            sscanf(line + 6,
                   ": scaled minutes x %lf = samples x %lf, time per sample x %lf, time outside of training "
                   "x %lf, trimming x %lf, factor x %lf",
                   &x[0], &x[1], &x[2], &x[3], &x[4], &x[5]),
            6);
        for (size_t k = 0; k < 6; k++)
            assert_true(fabs(x[k] - json_number_value(json_object_get(ratio, of_ratio[k].name))) <= 0.5001e-4);
    }
    assert_int_equal(json_array_size(all), n);
}

/* One letter a result. */
static void all_is_said(const char *folders, tm_status wanted)
{
    char     words[2 * MOST + 16] = "";
    tm_error err;
    for (const char *f = folders; *f; f++) snprintf(words + strlen(words), 3, "%s%c", f > folders ? "|" : "", *f);
    size_t n = strlen(words);
    strcpy(words + n, "|--json");
    assert_int_equal(explain(words, &err), wanted);
    json_t *root = json_loads(told.data, JSON_DISABLE_EOF_CHECK, NULL), *all = json_object_get(root, "results");
    assert_true(json_is_false(json_object_get(root, "verified_by_mlcommons")));
    assert_int_equal(json_array_size(all), strlen(folders));
    for (size_t i = 0; folders[i]; i++) result_is(json_array_get(all, i), &results[i], (char[]){ folders[i], 0 });
    words[n] = '\0';
    assert_int_equal(explain(words, &err), wanted); /* of the same figures */
    for (size_t i = 0; folders[i]; i++) {
        char line[40];
        cells_are(json_array_get(all, i), i, &made[folders[i] - 'a']);
        snprintf(line, sizeof line, "%c  %c\n", (char)('A' + i), folders[i]);
        assert_non_null(strstr(told.data, line));
        snprintf(line, sizeof line, "\n%c has no valid score\n", (char)('A' + i));
        assert_int_equal(strstr(told.data, line) != NULL, !made[folders[i] - 'a'].valid);
    }
    if (strchr(folders, 'e')) assert_non_null(strstr(told.data, " a_benchmark_whose_name_has_fort "));
    assert_non_null(strstr(told.data, "\nNot verified by MLCommons Association.\n->"));
    ratios_are(json_object_get(root, "ratios"), folders);
    if (wanted != TM_OK) assert_string_equal(err.text, "no run of 'i' counts: there is nothing to explain");
    json_decref(root);
}

TEST(figures_are_those_of_the_breakdown)
{
    tm_error err;
    all_is_said("a", TM_OK);
    all_is_said("abcdefgh", TM_OK);
    all_is_said("ha", TM_OK);
    all_is_said("di", TM_NEGATIVE);
    all_is_said("ia", TM_NEGATIVE);
    all_is_said("acehacehacehaceh", TM_OK);
    assert_int_equal(explain("a folder|b\tx\x01y\x7fz\xc3\xa4", &err), TM_OK);
    assert_non_null(strstr(told.data, "A  a folder\nB  b?x?y?z\xc3\xa4\n"));
    assert_int_equal(explain("a|nowhere", &err), TM_INVALID);
    assert_string_equal(err.text, "there is no 'nowhere'");
    assert_int_equal(explain("a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a|a", &err), TM_USAGE);
    assert_string_equal(err.text, "17 directories; at most 16 at a time");
    assert_int_equal(n_results, 0);
    tm_text_fini(&told);
}

TESTS_ALONE
TEST_FIXTURE(told_enter, told_leave)
