/* SPDX-License-Identifier: Apache-2.0 */
/* Records, logs and configurations. */
#include "fuzz.h"

#include "apps/bench/ab.h"
#include "apps/bench/published.h"
#include "apps/check/report.h"
#include "apps/mlperf/breakdown.h"
#include "apps/mlperf/check.h"
#include "apps/mlperf/reference.h"
#include "apps/mlperf/seeds.h"
#include "apps/mlperf/system_desc.h"
#include "base/log.h"
#include "base/words.h"
#include "plan/hardware.h"
#include "support/full_config.h"
#include "system/sample.h"
#include "system/thresholds.h"

#include <math.h>

/* A stranger's record of an A/B session (`trainmark ab --from`) and the words of --a-command: what is read
 * prints, and what is printed reads back as the same. */
static void ab_session_words_of(const char *text)
{
    tm_arena *arena = tm_arena_create();
    tm_error  err = { 0 };
    char    **argv;
    int       argc;
    if (tm_words_split(text, "--a-command", arena, &argv, &argc, &err) == TM_OK) {
        for (int i = 0; i < argc; i++) TM_ASSERT(strlen(argv[i]) <= strlen(text));
        TM_ASSERT(!argv[argc]);
    } else {
        TM_ASSERT(err.status == TM_INVALID && *err.text);
    }
    tm_arena_destroy(arena);
}

FUZZ(ab_session)
{
    tm_text       text = { 0 }, first = { 0 }, second = { 0 };
    tm_ab_session session = { 0 }, again = { 0 };
    tm_error      err = { 0 };
    tm_text_add_n(&text, (const char *)data, size);
    ab_session_words_of(text.data);
    tm_status st = tm_ab_session_parse(text.data, "x", &session, &err);
    fuzz_told(st, &err, "x");
    if (st == TM_OK) {
        tm_ab_session_print(&session, &first);
        TM_ASSERT(tm_ab_session_parse(first.data, "x", &again, &err) == TM_OK);
        tm_ab_session_print(&again, &second);
        TM_ASSERT(strcmp(first.data, second.data) == 0);
        first.length = second.length = 0;
        tm_ab_print_text(&session, &first);
        tm_ab_print_json(&session, &second);
        TM_ASSERT(strstr(first.data, "verdict") && strstr(second.data, "verdict"));
    }
    tm_ab_session_fini(&session);
    tm_ab_session_fini(&again);
    tm_text_fini(&text);
    tm_text_fini(&first);
    tm_text_fini(&second);
}

/* Files of published figures: any bytes give a table or a message. */
FUZZ(published)
{
    tm_published *reference;
    tm_error      err = { 0 };
    tm_status     st = tm_published_read(fuzz_file("x.csv", data, size), &reference, &err);
    fuzz_told(st, &err, "");
    if (st != TM_OK) return;
    tm_table *table = tm_published_list(reference, NULL);
    TM_ASSERT(tm_table_n_rows(table) > 0);
    tm_table_destroy(tm_published_compare(reference, table));
    tm_table_destroy(table);
    tm_published_destroy(reference);
}

/* The reading of MLPerf-style logs, their JSON and the compliance check. What is read prints as JSON that reads
 * the same; a log that passes has the lines that every rule set wants. */
/* Printed, read and printed again: the same text. */
static void mllog_print_and_read(const tm_json_value *value)
{
    tm_arena   *arena = tm_arena_create();
    tm_text     first = { 0 }, second = { 0 };
    const char *problem;
    size_t      where;
    tm_json_print(value, &first);
    const tm_json_value *again = tm_json_parse(arena, first.data, first.length, &problem, &where);
    TM_ASSERT(again);
    tm_json_print(again, &second);
    TM_ASSERT(strcmp(first.data, second.data) == 0);
    TM_ASSERT(tm_json_equal(value, again) || strstr(first.data, "NaN"));
    tm_text_fini(&first);
    tm_text_fini(&second);
    tm_arena_destroy(arena);
}

static void mllog_check(const tm_mllog *log, tm_ruleset ruleset, bool werror)
{
    tm_check_report report;
    tm_text         text = { 0 }, json = { 0 };
    tm_check_log(log, ruleset, werror, &report);
    TM_ASSERT(!report.passed || (report.n_sets == 3 && !report.exception));
    tm_check_print(&report, "x", &text);
    tm_check_json(&report, "x", &(tm_json){ .out = &json });
    tm_text_fini(&text);
    tm_text_fini(&json);
    tm_check_report_fini(&report);
}

FUZZ(mllog)
{
    tm_mllog *log;
    tm_error  err = { 0 };
    tm_status st = tm_mllog_parse("x", (const char *)data, size, &log, &err);
    TM_ASSERT((st == TM_OK) == (log != NULL));
    if (st != TM_OK) return;
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    for (size_t i = 0; i < n; i++) {
        TM_ASSERT((records[i].state == TM_MLLOG_GOOD) == (records[i].problem == NULL));
        TM_ASSERT((records[i].state == TM_MLLOG_GOOD) == (records[i].value && records[i].metadata));
        if (records[i].object) mllog_print_and_read(records[i].object);
    }
    for (int r = 0; r < TM_RULESET_COUNT; r++) mllog_check(log, (tm_ruleset)r, r == 1);
    tm_mllog_free(log);
}

/* The files of users that are JSON: reference records and system descriptions. Records that are read have
 * statistics that make sense and judge every batch. */
static void mlperf_json_check(const tm_reference *reference)
{
    bool kept = false;
    for (size_t i = 0; i < reference->n; i++) {
        const tm_reference_record *r = &reference->records[i];
        TM_ASSERT(r->batch >= 1 && (i == 0 || r->batch > reference->records[i - 1].batch));
        TM_ASSERT(r->mean >= r->samples[0] * (1 - 1e-12) && r->mean <= r->samples[r->n - 1] * (1 + 1e-12));
        TM_ASSERT(r->deviation >= 0 && isfinite(r->deviation));
        TM_ASSERT(r->minimum >= 0 && r->minimum <= r->mean);
        TM_ASSERT(r->max_speedup >= 1);
        kept = kept || !r->pruned;
    }
    TM_ASSERT(kept);
    const int64_t batches[] = { 1, reference->records[0].batch + 1, reference->records[reference->n - 1].batch,
                                INT64_MAX };
    for (int i = 0; i < 8; i++) {
        tm_reference_record r;
        tm_reference_choice choice = tm_reference_choose(reference, batches[i / 2], i % 2, &r);
        TM_ASSERT(choice != TM_REFERENCE_NONE);
        if (choice != TM_REFERENCE_MISSING) TM_ASSERT(r.mean > 0 && r.minimum <= r.mean * (1 + 1e-12));
    }
}

FUZZ(mlperf_json)
{
    tm_arena           *arena = tm_arena_create();
    tm_error            err = { 0 };
    const tm_reference *reference;
    if (tm_reference_parse("x", (const char *)data, size, arena, &reference, &err) == TM_OK)
        mlperf_json_check(reference);
    else
        TM_ASSERT(tm_status_exit_code(err.status) == 4 && *err.text);
    tm_system_desc desc = tm_system_desc_check("x", (const char *)data, size, arena);
    TM_ASSERT(desc.object || desc.errors.n > 0);
    tm_system_desc_product(&desc, "number_of_nodes", "accelerators_per_node", arena);
    tm_arena_destroy(arena);
}

/* What is made of MLPerf-style logs: three runs of the same log are judged, scored and taken apart, and their
 * seeds compared. A convergence test that passes has a record and enough samples; a valid score is a positive number.
 */
static void mlperf_score_judge(const tm_submission *s, bool full)
{
    tm_rcp_verdict v;
    tm_error       err = { 0 };
    tm_text        text = { 0 };
    tm_status      st = tm_submission_judge(s, NULL, full, &v, &err);
    TM_ASSERT(st == TM_OK && v.message && v.factor >= 1);
    TM_ASSERT(!v.passed || (v.judged && v.samples * (1 + 1e-12) >= v.record.minimum));
    TM_ASSERT(v.factor <= 1 || tm_rcp_scales(&v));
    tm_rcp_print(&v, &text);
    TM_ASSERT(strstr(text.data, v.passed ? "RCP test PASSED" : "RCP test FAILED"));
    tm_text_fini(&text);
}

FUZZ(mlperf_score)
{
    tm_submission *s = tm_submission_create("x", TM_RULESET_5_1_0);
    tm_error       err = { 0 };
    for (int i = 0; i < 3; i++) {
        tm_mllog *log;
        if (tm_mllog_parse("x", (const char *)data, size, &log, &err) != TM_OK) break;
        tm_submission_add(s, "x", log);
    }
    if (s->n == 3) {
        tm_breakdown       b;
        tm_breakdown_ratio r;
        mlperf_score_judge(s, false);
        mlperf_score_judge(s, true);
        tm_seeds_report seeds = tm_seeds_check(s);
        TM_ASSERT(!seeds.passed); /* three times the same, or none at all */
        tm_status st = tm_breakdown_compute(s, NULL, &b, &err);
        TM_ASSERT(st == TM_OK);
        TM_ASSERT(!b.score.valid); /* three runs are not ten */
        for (size_t i = 0; i < b.n; i++) TM_ASSERT(!b.runs[i].used || (b.runs[i].seconds > 0 && b.runs[i].rate > 0));
        if (tm_breakdown_compare(s, &b, s, &b, &r)) TM_ASSERT(fabs(r.scaled - 1) < 1e-9 || isnan(r.scaled));
    }
    tm_submission_close(s);
}

/* The JSON that `trainmark check` reads: files of limits, and reports of other nodes. */
static void thresholds_limits(const char *text, size_t size)
{
    tm_thresholds  *t;
    tm_error        err = { 0 };
    const tm_metric metrics[] = { { "training.loss_decreased", 1 }, { "gemm.gflops_per_sec", (double)NAN } };
    tm_status       st = tm_thresholds_parse(text, size, "x", &t, &err);
    TM_ASSERT((st == TM_OK) == (t != NULL) && (st == TM_OK || (tm_status_exit_code(st) == 4 && *err.text)));
    if (st != TM_OK) return;
    const tm_gate *gates;
    size_t         n;
    st = tm_thresholds_judge(t, "MBS=4,GBS=32,PRECISION=bf16", metrics, 2, &gates, &n, &err);
    for (size_t i = 0; st == TM_OK && i < n; i++)
        TM_ASSERT(gates[i].kind == TM_GATE_INFO || !gates[i].passed || !isnan(gates[i].measured));
    tm_thresholds_destroy(t);
}

/* What was read prints, and reads, as the same. */
static void thresholds_report(const char *text, size_t size)
{
    tm_checks first = { 0 }, second = { 0 };
    tm_error  err = { 0 };
    if (tm_checks_parse(text, size, "x", &first, &err) == TM_OK) {
        tm_text once = { 0 }, twice = { 0 }, lines = { 0 };
        tm_checks_print(&first, &(tm_check_view){ 0 }, &lines);
        tm_checks_print_json(&first, &once);
        if (tm_checks_parse(once.data, once.length, "own", &second, &err) != TM_OK)
            tm_assert_failed(err.text, "own thresholds_report", 0);
        tm_checks_print_json(&second, &twice);
        TM_ASSERT(strcmp(once.data, twice.data) == 0);
        tm_text_fini(&once);
        tm_text_fini(&twice);
        tm_text_fini(&lines);
    } else {
        TM_ASSERT(err.status == TM_FORMAT && *err.text);
    }
    tm_checks_fini(&first);
    tm_checks_fini(&second);
}

FUZZ(thresholds)
{
    thresholds_limits((const char *)data, size);
    thresholds_report((const char *)data, size);
}

/* Hardware files: what is accepted, whole or as a part, has numbers above 0 with sources, and its printed form
 * is read as the same. */
static bool hardware_read_one(tm_arena *arena, const char *path, bool part, tm_hardware *out)
{
    tm_error  err = { 0 };
    tm_status st = part ? tm_hardware_read_part(arena, path, out, &err) : tm_hardware_read(arena, path, out, &err);
    TM_ASSERT((st == TM_OK) == (err.status == TM_OK));
    TM_ASSERT(st == TM_OK || (tm_status_exit_code(st) == 4 && *err.text));
    return st == TM_OK;
}

static void hardware_check(const tm_hardware *hw)
{
    for (int i = 0; i < TM_HARDWARE_NUMBERS; i++) {
        TM_ASSERT(isfinite(hw->number[i]) && hw->number[i] >= 0);
        TM_ASSERT((hw->number[i] > 0) == (hw->source[i] != NULL));
    }
    for (size_t i = 0; i < hw->n_ops; i++) {
        TM_ASSERT(hw->op[i].call >= 0 && hw->op[i].flops >= 0 && hw->op[i].bytes >= 0);
        TM_ASSERT(hw->op[i].call + hw->op[i].flops + hw->op[i].bytes > 0 && *hw->op[i].source);
    }
}

static void hardware_compare(const tm_hardware *a, const tm_hardware *b)
{
    TM_ASSERT(strcmp(a->name, b->name) == 0 && strcmp(a->maker, b->maker) == 0 && a->n_ops == b->n_ops);
    TM_ASSERT(memcmp(a->number, b->number, sizeof a->number) == 0);
    for (size_t i = 0; i < a->n_ops; i++) TM_ASSERT(strcmp(a->op[i].name, b->op[i].name) == 0);
}

FUZZ(hardware)
{
    for (int part = 0; part < 2; part++) {
        tm_arena   *arena = tm_arena_create();
        tm_text     text = { 0 };
        tm_hardware first, again;
        if (hardware_read_one(arena, fuzz_file("x.yaml", data, size), part, &first)) {
            hardware_check(&first);
            tm_hardware_print(&first, &text);
            TM_ASSERT(hardware_read_one(arena, fuzz_file("x.yaml", text.data, text.length), part, &again));
            hardware_compare(&first, &again);
        }
        tm_text_fini(&text);
        tm_arena_destroy(arena);
    }
}

/* The parsers of the kernel's files: any bytes give finite sums that are not negative, or "unknown". */
static void kernel_files_known_or_unknown(double value)
{
    TM_ASSERT(isnan(value) || value >= 0);
}

FUZZ(kernel_files)
{
    char *text = malloc(size + 1); /* exactly: the sanitizer sees one byte too many */
    TM_ASSERT(text);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    uint8_t bits[SAMPLE_CPUS / 8];
    double  busy, iowait, steal;
    if (!sample_parse_cpus(text, bits)) memset(bits, 0xff, sizeof bits);
    int count = sample_parse_stat(text, bits, &busy, &iowait, &steal);
    TM_ASSERT(count >= 0 && isnan(busy) == (count == 0) && isnan(steal) == (count == 0));
    kernel_files_known_or_unknown(busy);
    kernel_files_known_or_unknown(iowait);
    kernel_files_known_or_unknown(steal);
    kernel_files_known_or_unknown(sample_parse_throttled(text));
    kernel_files_known_or_unknown(sample_parse_pressure(text));
    kernel_files_known_or_unknown(sample_parse_migrations(text));
    free(text);
}

/* What a stranger's configuration file goes through: YAML, substitution, rows, rules, and the printed form,
 * which must load again and resolve to the same configuration. */
#define SECRET "a-secret-word"

static char *const yaml_environment[] = { "HOME=/home/x", "N=3", "MY_TOKEN=" SECRET, "EMPTY=", NULL };

/* `spoken`: the file itself holds the secret word, not by way of the variable. */
static tm_config *yaml_load(const char *path, bool finish, bool plan, bool spoken, tm_error *err)
{
    tm_config *config = test_full_config();
    tm_log_set_level(TM_LOG_ERROR);
    tm_config_use_environment(config, yaml_environment);
    tm_config_allow_unbuilt(config, plan);
    tm_status st = tm_config_load_file(config, path, err);
    if (st == TM_OK && finish) st = tm_config_finish(config, err);
    fuzz_told(st, err, "");
    TM_ASSERT(spoken || !strstr(err->text, SECRET));
    return config;
}

FUZZ(yaml)
{
    bool       spoken = memmem(data, size, SECRET, strlen(SECRET)) != NULL;
    tm_error   err = { 0 };
    tm_config *first = yaml_load(fuzz_file("x.yaml", data, size), true, false, spoken, &err);
    if (err.status == TM_OK) {
        tm_text printed = { 0 }, reprinted = { 0 };
        tm_config_print_yaml(first, &printed, true);
        TM_ASSERT(spoken || !strstr(printed.data, SECRET));
        tm_config *second = yaml_load(fuzz_file("again.yaml", printed.data, printed.length), false, false, true, &err);
        if (!strstr(printed.data, "\"***\"")) { /* a masked value may be of the wrong kind */
            if (err.status != TM_OK) tm_assert_failed(err.text, "the printed form does not yaml_load", 0);
            tm_config_print_yaml(first, &reprinted, false);
            printed.length = 0;
            tm_config_print_yaml(second, &printed, false);
            TM_ASSERT(strcmp(printed.data, reprinted.data) == 0);
        }
        tm_text_fini(&printed);
        tm_text_fini(&reprinted);
        tm_config_destroy(second);
    }
    tm_config_destroy(first);
}

/* What files of other programs go through: TOML, recipes, experiments, their translation and the rules. The
 * first byte says how the file ends, the rest is the file. What loads is printed and must load again. */
FUZZ(foreign)
{
    static const char *const names[] = { "x.toml", "x.json", "x.yaml" };
    if (size == 0) return;
    tm_error   err = { 0 };
    tm_config *first = yaml_load(fuzz_file(names[data[0] % 3], data + 1, size - 1), true, true, true, &err);
    if (err.status == TM_OK) {
        tm_text printed = { 0 };
        tm_config_print_yaml(first, &printed, true);
        const char *again = fuzz_file("again.yaml", printed.data, printed.length);
        tm_config  *second = yaml_load(again, false, true, true, &err);
        if (err.status != TM_OK && !strstr(printed.data, "***"))
            tm_assert_failed(err.text, "the printed form does not load", 0);
        /* Not the text: keys without effect are printed only where they have their own default. */
        TM_ASSERT(strstr(printed.data, "***") || tm_config_hash(first) == tm_config_hash(second));
        tm_text_fini(&printed);
        tm_config_destroy(second);
    }
    tm_config_destroy(first);
}
