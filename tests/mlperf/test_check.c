/* SPDX-License-Identifier: Apache-2.0 */
/* Compliance: the public checker's verdict for every change of a compliant log that its rules were tried on; messages;
 * and that a log without a required line never passes, whatever else happens to it. */
#include "mlperf/check.h"

#include "base/random.h"
#include "mlperf/benchmark.h"
#include "support/mllog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include <jansson.h>

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct {
    bool    passed, exception;
    size_t  warnings;
    tm_text text; /* the printed report */
} outcome;

/* The report as JSON says the same. */
static void json_is_the_report(const char *text, const tm_check_report *report)
{
    json_t *json = json_loads(text, 0, NULL);
    if (!json) fail_msg("no JSON: %s", text);
    assert_string_equal(json_string_value(json_object_get(json, "file")), "x");
    assert_string_equal(json_string_value(json_object_get(json, "verdict")), report->passed ? "SUCCESS" : "FAILED");
    assert_int_equal(json_array_size(json_object_get(json, "warnings")), report->warnings.n);
    const json_t *list = json_object_get(json, "messages");
    assert_int_equal(json_array_size(list), report->messages.n);
    for (size_t i = 0; i < report->messages.n; i++) {
        const json_t *message = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(message, "text")), report->messages.messages[i].text);
        assert_int_equal(json_integer_value(json_object_get(message, "line")), report->messages.messages[i].line);
    }
    json_decref(json);
}

static outcome check_text(const tm_text *text, tm_ruleset ruleset, bool werror)
{
    tm_mllog       *log;
    tm_check_report report;
    tm_error        err = { 0 };
    outcome         o = { 0 };
    assert_int_equal(tm_mllog_parse("x", text->data ? text->data : "", text->length, &log, &err), TM_OK);
    tm_check_log(log, ruleset, werror, &report);
    o.passed = report.passed;
    o.exception = report.exception;
    o.warnings = report.warnings.n;
    assert_true(report.passed == (report.messages.n == 0));
    tm_check_print(&report, "x", &o.text);
    tm_text json = { 0 };
    tm_json_open(&(tm_json){ .out = &json }, NULL, '[');
    tm_check_json(&report, "x", &(tm_json){ .out = &json });
    json_is_the_report(json.data + 1, &report);
    tm_text_fini(&json);
    tm_check_report_fini(&report);
    tm_mllog_free(log);
    return o;
}

static outcome check(const mllog *log, tm_ruleset ruleset, bool werror)
{
    tm_text text = { 0 };
    mllog_print(log, &text);
    outcome o = check_text(&text, ruleset, werror);
    tm_text_fini(&text);
    return o;
}

/* `word` has to be in the report. */
static void wants(const mllog *log, tm_ruleset ruleset, bool pass, const char *word)
{
    outcome o = check(log, ruleset, false);
    if (o.passed != pass || !strstr(o.text.data, word))
        fail_msg("wanted %s and '%s':\n%s", pass ? "SUCCESS" : "FAILED", word, o.text.data);
    tm_text_fini(&o.text);
}

static void passes(const mllog *log)
{
    wants(log, TM_RULESET_5_1_0, true, "SUCCESS");
}

static void fails(const mllog *log, const char *word)
{
    wants(log, TM_RULESET_5_1_0, false, word);
}

/* --- the table of verdicts ---------------------------------------------------------------------------------------- */

TEST(the_shortest_logs_pass)
{
    const mllog logs[] = { mllog_gpt_oss(), mllog_8b(), mllog_lora(), mllog_flux(), mllog_tiny(TM_MLPERF_TINY_TARGET) };
    for (size_t i = 0; i < 5; i++)
        for (int r = i == 0 ? TM_RULESET_6_0_0 : 0; r < TM_RULESET_COUNT; r++) {
            outcome o = check(&logs[i], (tm_ruleset)r, true);
            if (!o.passed) fail_msg("%s", o.text.data);
            tm_text_fini(&o.text);
        }
}

/* Without one of its lines a log fails, but for a few keys. */
TEST(only_some_lines_may_be_left_out)
{
    static const char *const optional[] = { "submission_status", "seed", "opt_learning_rate_warmup_factor",
                                            "eval_start", "eval_stop" };
    const mllog              logs[] = { mllog_8b(), mllog_lora(), mllog_flux(), mllog_gpt_oss() };
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < logs[k].n; i++) {
            mllog       log = logs[k];
            const char *key = logs[k].lines[i].key;
            bool        may = false, disclosed = strncmp(key, "lowest_", 7) == 0 || strstr(key, "_parallelism") ||
                                          strcmp(key, "micro_batch_size") == 0 || strcmp(key, "config_filename") == 0;
            for (size_t j = 0; j < 5; j++) may = may || strcmp(key, optional[j]) == 0;
            mllog_drop(&log, key);
            for (int r = k == 3 ? TM_RULESET_6_0_0 : 0; r < TM_RULESET_COUNT; r++) {
                bool passes_it = may || (disclosed && r < TM_RULESET_6_1_0);
                wants(&log, (tm_ruleset)r, passes_it, passes_it ? "SUCCESS" : key);
            }
        }
}

TEST(repeated_lines)
{
    static const char *const keys[] = { "global_batch_size", "submission_division" };
    for (size_t i = 0; i < 2; i++) {
        mllog log = mllog_8b();
        mllog_double(&log, keys[i]);
        outcome o = check(&log, TM_RULESET_5_1_0, false);
        assert_true(o.passed && o.warnings == 1);
        assert_non_null(strstr(o.text.data, "warning: Required EXACTLY_ONE occurrence of"));
        tm_text_fini(&o.text);
        o = check(&log, TM_RULESET_5_1_0, true);
        assert_true(!o.passed && o.warnings == 0);
        tm_text_fini(&o.text);
    }
    mllog log = mllog_8b();
    mllog_set(&log, "global_batch_size", "64");
    strcpy(mllog_double(&log, "global_batch_size")->value, "32");
    fails(&log, "Required EXACTLY_ONE occurrence of 'global_batch_size' but found 2 with different values: [64, 32]");
    strcpy(mllog_find(&log, "global_batch_size", 0)->value, "32.0"); /* equal to 32 */
    passes(&log);
    log = mllog_8b(); /* eight ranks */
    for (int i = 0; i < 7; i++) mllog_double(&log, "init_start");
    passes(&log);
}

TEST(order_of_lines)
{
    mllog log = mllog_8b();
    mllog_move(&log, "opt_learning_rate_decay_steps", "opt_learning_rate_warmup_steps");
    fails(&log, "Failed executing CHECK code: for 'opt_learning_rate_decay_steps'");
    log = mllog_8b();
    mllog_move(&log, "submission_division", "run_start");
    fails(&log, "submission_division has to come before init_stop");
    log = mllog_8b();
    mllog_double(&log, "init_start");
    mllog_move(&log, "init_start", "block_stop");
    fails(&log, "CHECK for 'init_start' failed: wanted not run_started");
    log = mllog_8b();
    mllog_move(&log, "run_start", "init_stop");
    fails(&log, "CHECK for 'run_start' failed: wanted init_stopped");
    log = mllog_8b();
    mllog_move(&log, "block_start", "run_start");
    fails(&log, "CHECK for 'block_start' failed: wanted run_started");
    log = mllog_8b();
    mllog_move(&log, "train_samples", "cache_clear");
    passes(&log);
}

TEST(time_to_start)
{
    mllog   log = mllog_8b();
    int64_t begin = mllog_find(&log, "init_start", 0)->time_ms;
    mllog_find(&log, "init_stop", 0)->time_ms = begin + 1799999;
    passes(&log);
    mllog_find(&log, "init_stop", 0)->time_ms = begin + 1800000;
    fails(&log, "takes less than 30 minutes; it takes 1800000 ms");
    mllog_double(&log, "init_start");
    mllog_find(&log, "init_start", 1)->time_ms += 60000; /* the first one counts */
    fails(&log, "it takes 1800000 ms");
    mllog_find(&log, "init_start", 1)->time_ms = begin - 1; /* the earliest, wherever it stands */
    mllog_find(&log, "init_stop", 0)->time_ms = begin + 1799999;
    fails(&log, "it takes 1800000 ms");
}

TEST(values_8b)
{
    const struct {
        const char *key, *value, *word; /* NULL: passes */
    } cases[] = {
        { "eval_accuracy", "3.3", NULL },
        { "eval_accuracy", "3.3000001", "Failed checks for eval_accuracy" },
        { "eval_accuracy", "0.0", "Failed checks for eval_accuracy" },
        { "eval_accuracy", "NaN", "Failed checks for eval_accuracy" },
        { "eval_accuracy", "null", "exception" },
        { "eval_accuracy", "\"3.2\"", "exception" },
        { "eval_samples", "1000", "wanted value == 1024; value is 1000" },
        { "eval_samples", "1024.0", NULL },
        { "opt_adamw_beta_2", "0.9500001", "wanted value == 0.95; value is 0.9500001" },
        { "opt_gradient_clip_norm", "1", NULL },
        { "opt_gradient_clip_norm", "true", NULL }, /* Python's True is 1 */
        { "opt_adamw_epsilon", "\"1e-05\"", "wanted value == 1e-05; value is \"1e-05\"" },
        { "opt_adamw_epsilon", "0.00001", NULL },
        { "gradient_accumulation_steps", "0", "wanted value > 0; value is 0" },
        { "gradient_accumulation_steps", "\"2\"", "Failed executing CHECK code: for 'gradient_accumulation_steps'" },
        { "submission_org", "\"\"", "wanted value != ''" },
        { "submission_org", "null", NULL },
        { "train_samples", "\"\"", "wanted value != ''" },
        { "opt_name", "\"adam\"", "wanted value == 'adamw'; value is \"adam\"" },
        { "opt_learning_rate_decay_steps", "1200000", "1200000 - opt_learning_rate_warmup_steps" },
        { "opt_learning_rate_warmup_steps", "\"128\"", "Failed executing CHECK code" },
        { "max_steps", "1200000.5", "wanted value == 1200000; value is 1200000.5" },
        { "submission_division", "\"Closed\"", "no rule set here for submission_division \"Closed\"" },
        { "submission_division", "3", "no rule set here for submission_division 3" },
        { "submission_benchmark", "\"bert\"", "public checker stops with an exception" },
        { "submission_benchmark", "\"common\"", "no rule set here" },
        { "submission_benchmark", "\"rgat\"", "no rule set here for submission_benchmark \"rgat\"" },
        { "submission_benchmark", "\"gpt_oss_20b\"", "public checker stops with an exception" },
        { "submission_benchmark", "{}", "no rule set here" },
        { "cache_clear", "null", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_8b();
        mllog_set(&log, cases[i].key, cases[i].value);
        wants(&log, TM_RULESET_5_1_0, !cases[i].word, cases[i].word ? cases[i].word : "SUCCESS");
    }
}

TEST(values_lora)
{
    const struct {
        const char *key, *value, *word;
    } cases[] = {
        { "lora_alpha", "64", NULL },
        { "lora_rank", "8", "wanted value == 16; value is 8" },
        { "opt_adamw_weight_decay", "0.1", NULL },
        { "opt_gradient_clip_norm", "1.0", NULL },
        { "eval_accuracy", "0.925", NULL },
        { "eval_accuracy", "0.9251", "Failed checks for eval_accuracy: no line with 0 < value <= 0.925" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_lora();
        mllog_set(&log, cases[i].key, cases[i].value);
        wants(&log, TM_RULESET_5_1_0, !cases[i].word, cases[i].word ? cases[i].word : "SUCCESS");
    }
}

TEST(metadata)
{
    const struct {
        const char *key, *metadata, *word;
    } cases[] = {
        { "eval_accuracy", ", \"epoch_num\": 1", "wanted metadata has 'samples_count'; metadata is {\"file\"" },
        { "run_stop", ", \"samples_count\": 1", "wanted metadata has 'status'" },
        { "run_stop", ", \"status\": \"aborted\"", NULL },
        { "run_stop", ", \"status\": null", NULL },
        { "block_start", "", "wanted metadata has 'epoch_count' or 'samples_count'" },
        { "block_start", ", \"samples_count\": -1", "wanted 'samples_count' in metadata >= 0" },
        { "block_start", ", \"samples_count\": \"0\"", "Failed executing CHECK code: for 'block_start'" },
        { "block_start", ", \"epoch_count\": 1", "wanted metadata with 'epoch_count' has 'first_epoch_num'" },
        { "block_start", ", \"epoch_count\": 1, \"first_epoch_num\": 0", NULL },
        { "block_start", ", \"epoch_count\": 0, \"first_epoch_num\": 0", "wanted 'epoch_count' in metadata > 0" },
        { "block_stop", ", \"epoch_num\": 1", "wanted metadata has 'first_epoch_num' or 'samples_count'" },
        { "eval_start", "", "wanted metadata has 'epoch_num' or 'samples_count'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_8b();
        strcpy(mllog_find(&log, cases[i].key, 0)->metadata, cases[i].metadata);
        wants(&log, TM_RULESET_5_1_0, !cases[i].word, cases[i].word ? cases[i].word : "SUCCESS");
    }
}

TEST(evaluations)
{
    mllog log = mllog_8b();
    mllog_insert(&log, mllog_find(&log, "block_stop", 0), "eval_accuracy", "NaN", ", \"samples_count\": 1");
    passes(&log);
    log = mllog_8b(); /* met early, missed at the end */
    mllog_insert(&log, mllog_find(&log, "run_stop", 0), "eval_accuracy", "9.9", ", \"samples_count\": 99");
    passes(&log);
}

TEST(blocks_and_epochs)
{
    mllog log = mllog_8b();
    mllog_drop(&log, "block_start");
    mllog_drop(&log, "block_stop");
    fails(&log, "Required AT_LEAST_ONE occurrence of 'block_start' or 'epoch_start'");
    mllog_insert(&log, mllog_find(&log, "eval_start", 0), "epoch_start", "null", ", \"epoch_num\": 0");
    mllog_insert(&log, mllog_find(&log, "eval_start", 0), "epoch_stop", "null", ", \"epoch_num\": 0");
    passes(&log);
    log = mllog_8b();
    mllog_drop(&log, "eval_start");
    mllog_drop(&log, "eval_stop");
    passes(&log);
}

TEST(odd_lines)
{
    const struct {
        const char *line, *word;
    } cases[] = {
        { "loss 3.2", NULL },
        { "rank 7: 12% :::MLLOG {\"time_ms\": \"1700000000000\", \"key\": \"extra\", \"value\": [1], \"metadata\": {}}",
          NULL },
        { ":::MLLOG {\"time_ms\": 1, \"key\": \"max_st", "Log lines had parsing errors." },
        { ":::MLLOG {\"time_ms\": \"1.2.3\", \"key\": \"x\", \"value\": 1, \"metadata\": {}}", "line 5 (record 4)" },
        { ":::MLLOG {\"time_ms\": 1, \"key\": \"x\", \"value\": 1}", "public checker stops with an exception" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_8b();
        strcpy(mllog_insert(&log, &log.lines[4], "", "", "")->raw, cases[i].line);
        wants(&log, TM_RULESET_5_1_0, !cases[i].word, cases[i].word ? cases[i].word : "SUCCESS");
    }
    mllog empty = { .n = 0 };
    fails(&empty, "No log lines detected");
    mllog log = mllog_8b(); /* a null metadata matters only where something is looked for in it */
    strcpy(mllog_find(&log, "seed", 0)->raw,
           ":::MLLOG {\"time_ms\": 1, \"key\": \"seed\", \"value\": 1, \"metadata\": null}");
    passes(&log);
    strcpy(mllog_find(&log, "run_stop", 0)->raw,
           ":::MLLOG {\"time_ms\": 1, \"key\": \"run_stop\", \"value\": 1, \"metadata\": null}");
    fails(&log, "Failed executing CHECK code: for 'run_stop'");
}

TEST(open_division)
{
    mllog log = mllog_lora();
    mllog_set(&log, "submission_division", "\"open\"");
    fails(&log, "wanted metadata has 'epoch_num'");
    wants(&log, TM_RULESET_6_0_0, true, "open_llama2_70b_lora");
    wants(&log, TM_RULESET_6_1_0, true, "open_llama2_70b_lora");
    strcpy(mllog_find(&log, "eval_accuracy", 0)->metadata, ", \"epoch_num\": 1");
    passes(&log);
    mllog_find(&log, "init_stop", 0)->time_ms = mllog_find(&log, "init_start", 0)->time_ms + 14399999;
    passes(&log);
    mllog_find(&log, "init_stop", 0)->time_ms++;
    fails(&log, "less than 240 minutes");
}

TEST(values_flux)
{
    const struct {
        const char *key, *value;
        bool        passes_6, passes_61;
    } cases[] = {
        { "opt_adamw_epsilon", "1e-05", false, false },     { "opt_learning_rate_warmup_steps", "-1", false, false },
        { "opt_base_learning_rate", "0", true, true },      { "evaluation_frequency", "262080", false, false },
        { "eval_accuracy", "0.586", true, true },           { "eval_accuracy", "0.5861", false, false },
        { "global_batch_size", "1152", true, false },       /* 228 steps: 262,656 images */
        { "evaluation_frequency", "262656", false, false }, /* the batch is 2048 */
        { "global_batch_size", "\"2048\"", false, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_flux();
        mllog_set(&log, cases[i].key, cases[i].value);
        for (int r = 0; r < TM_RULESET_COUNT; r++) {
            bool pass = r == TM_RULESET_6_1_0 ? cases[i].passes_61 : cases[i].passes_6;
            wants(&log, (tm_ruleset)r, pass, pass ? "SUCCESS" : "FAILED");
        }
    }
    mllog log = mllog_flux();
    mllog_set(&log, "global_batch_size", "1152");
    mllog_set(&log, "evaluation_frequency", "262656");
    wants(&log, TM_RULESET_6_1_0, true, "closed_flux1");
    wants(&log, TM_RULESET_6_0_0, false, "wanted value == 262144; value is 262656");
    mllog_drop(&log, "global_batch_size");
    wants(&log, TM_RULESET_6_1_0, false, "262144 rounded up to a multiple of global_batch_size, which comes first");
}

TEST(values_gpt_oss)
{
    mllog log = mllog_gpt_oss();
    mllog_set(&log, "eval_accuracy", "3.34");
    wants(&log, TM_RULESET_6_0_0, true, "closed_gpt_oss_20b");
    mllog_set(&log, "eval_accuracy", "3.3401");
    wants(&log, TM_RULESET_6_0_0, false, "no line with 0 < value <= 3.34");
    log = mllog_gpt_oss();
    mllog_set(&log, "opt_learning_rate_decay_steps", "1199871");
    wants(&log, TM_RULESET_6_1_0, false, "1200000 - opt_learning_rate_warmup_steps");
    log = mllog_gpt_oss();
    mllog_set(&log, "submission_division", "\"open\"");
    mllog_set(&log, "opt_adamw_beta_2", "0.5");
    wants(&log, TM_RULESET_6_1_0, true, "open_gpt_oss_20b");
    mllog_drop(&log, "opt_adamw_beta_2");
    wants(&log, TM_RULESET_6_1_0, false, "opt_adamw_beta_2");
    log = mllog_flux(); /* whose open division has another key for the loss */
    mllog_set(&log, "submission_division", "\"open\"");
    wants(&log, TM_RULESET_6_0_0, false, "occurrence of 'averaged_validation_loss' but found 0");
    mllog_insert(&log, NULL, "averaged_validation_loss", "0.5", ", \"samples_count\": 1");
    wants(&log, TM_RULESET_6_0_0, true, "open_flux1");
}

TEST(later_rulesets)
{
    const struct {
        const char *key, *value;
        bool        passes_6, passes_61;
    } cases[] = {
        { "lowest_numerical_precision_in_linear", "\"fp8\"", true, true },
        { "lowest_numerical_precision_in_linear", "\"fp7\"", false, false },
        { "lowest_numerical_precision_in_linear", "\"mxfp6\"", false, true },
        { "lowest_numerical_precision_in_attn", "\"Graphcore FLOAT 16.16\"", true, true },
        { "lowest_numerical_precision_in_comm", "16", false, false },
        { "tensor_parallelism", "8.000001", true, true },
        { "tensor_parallelism", "0", true, false },
        { "pipeline_parallelism", "1.5", false, false },
        { "micro_batch_size", "Infinity", false, false },
        { "expert_parallelism", "\"8\"", false, false },
        { "config_filename", "\"\"", true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mllog log = mllog_8b();
        mllog_set(&log, cases[i].key, cases[i].value);
        passes(&log);
        wants(&log, TM_RULESET_6_0_0, cases[i].passes_6, cases[i].passes_6 ? "SUCCESS" : cases[i].key);
        wants(&log, TM_RULESET_6_1_0, cases[i].passes_61, cases[i].passes_61 ? "SUCCESS" : cases[i].key);
    }
}

TEST(a_later_set_replaces_earlier_messages)
{
    mllog log = mllog_8b(); /* common wants a value that is not empty, the benchmark's set wants 1024 */
    mllog_set(&log, "eval_samples", "\"\"");
    outcome o = check(&log, TM_RULESET_5_1_0, false);
    assert_non_null(strstr(o.text.data, "[closed_llama31_8b]"));
    assert_null(strstr(o.text.data, "[common]"));
    tm_text_fini(&o.text);
}

TEST(messages_name_lines_of_the_file)
{
    mllog log = mllog_8b();
    mllog_set(&log, "max_steps", "7"); /* record 12 */
    strcpy(mllog_insert(&log, log.lines, "", "", "")->raw, "starting\r\n10%\r20%");
    fails(&log, "line 16 (record 12): CHECK for 'max_steps' failed: wanted value == 1200000; value is 7");
    log = mllog_8b();
    for (int i = 0; i < 40; i++) strcpy(mllog_double(&log, "max_steps")->value, "6");
    fails(&log, "CHECK for 'max_steps' failed 30 more times");
}

TEST(the_built_in_benchmark)
{
    mllog log = mllog_tiny(TM_MLPERF_TINY_TARGET);
    wants(&log, TM_RULESET_5_1_0, true, "the public checker does not know it");
    log = mllog_tiny(TM_MLPERF_TINY_TARGET + 0.001);
    fails(&log, "Failed checks for eval_accuracy");
    log = mllog_tiny(TM_MLPERF_TINY_TARGET);
    mllog_drop(&log, "max_steps");
    fails(&log, "'max_steps'");
}

/* --- mutated logs ------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t seed, n;
} dice;

static uint64_t roll(dice *d, uint64_t sides)
{
    return tm_random_u64(d->seed, 99, d->n++) % sides;
}

/* Drops, doubles, swaps and corrupts lines of a log. */
static void mutate(mllog *log, dice *d)
{
    size_t     i = roll(d, log->n), j = roll(d, log->n);
    mllog_line line = log->lines[i];
    switch (roll(d, 4)) {
    case 0:
        memmove(&log->lines[i], &log->lines[i + 1], (log->n - i - 1) * sizeof line);
        log->n--;
        break;
    case 1:
        *mllog_insert(log, &log->lines[j], "", "", "") = line;
        break;
    case 2:
        log->lines[i] = log->lines[j];
        log->lines[j] = line;
        break;
    default: {
        char *field = roll(d, 2) ? log->lines[i].value : log->lines[i].key;
        if (*field) field[roll(d, strlen(field))] = (char)roll(d, 256);
    }
    }
}

/* Is a key of the shortest log that may not be left out missing? */
static bool lacks_required(const mllog *log, const mllog *whole)
{
    static const char free_keys[] =
        " submission_status seed opt_learning_rate_warmup_factor eval_start eval_stop "
        /* wanted from 6.1.0 on */
        "config_filename micro_batch_size lowest_numerical_precision_in_linear lowest_numerical_precision_in_attn "
        "lowest_numerical_precision_in_comm tensor_parallelism pipeline_parallelism context_parallelism "
        "expert_parallelism ";
    for (size_t i = 0; i < whole->n; i++) {
        char   word[80];
        size_t j = 0;
        snprintf(word, sizeof word, " %s ", whole->lines[i].key);
        if (strstr(free_keys, word)) continue;
        while (j < log->n && strcmp(log->lines[j].key, whole->lines[i].key) != 0) j++;
        if (j == log->n) return true;
    }
    return false;
}

TEST(mutated_logs_never_pass_without_a_required_line)
{
    int passed = 0, lacking = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        const mllog whole = seed % 2 ? mllog_8b() : mllog_lora();
        mllog       log = whole;
        dice        d = { .seed = seed };
        for (uint64_t n = 1 + roll(&d, 3); n > 0; n--) mutate(&log, &d);
        tm_text text = { 0 };
        mllog_print(&log, &text);
        if (roll(&d, 4) == 0) text.data[roll(&d, text.length)] = (char)roll(&d, 256);
        if (roll(&d, 8) == 0) text.length = roll(&d, text.length); /* cut short */
        outcome o = check_text(&text, (tm_ruleset)roll(&d, TM_RULESET_COUNT), roll(&d, 2));
        bool    lacks = lacks_required(&log, &whole);
        if (lacks && o.passed) fail_msg("seed %llu passed:\n%s", (unsigned long long)seed, text.data);
        passed += o.passed;
        lacking += lacks;
        tm_text_fini(&text);
        tm_text_fini(&o.text);
    }
    assert_true(lacking > 200 && passed > 50); /* the test is about something */
}

/* --- real logs ---------------------------------------------------------------------------------------------------- */

TEST(published_logs_comply)
{
    static const char *const cases[] = { "amd_mi300x_lora", "amd_mi355x_8b" };
    const char              *root = getenv("TRAINMARK_MLPERF_LOGS");
    for (size_t k = 0; k < 2; k++) {
        char            path[512];
        tm_mllog_folder folder;
        tm_error        err = { 0 };
        snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/data/mlperf", cases[k]);
        if (tm_mllog_folder_list(path, &folder, &err) != TM_OK) {
            tm_mllog_folder_fini(&folder);
            print_message("SKIPPED: %s; TRAINMARK_MLPERF_LOGS names the folder with the published logs\n", err.text);
            skip();
        }
        assert_int_equal(folder.n, 10);
        for (size_t i = 0; i < folder.n; i++)
            for (int r = 0; r < TM_RULESET_6_1_0; r++) { /* of v5.1: what 6.1.0 wants besides is not in them */
                tm_mllog       *log;
                tm_check_report report;
                assert_int_equal(tm_mllog_read(folder.files[i].path, &log, &err), TM_OK);
                tm_check_log(log, (tm_ruleset)r, true, &report);
                assert_true(report.passed && report.warnings.n == 0 && report.n_sets == 3);
                assert_string_equal(report.benchmark, k ? "llama31_8b" : "llama2_70b_lora");
                tm_check_report_fini(&report);
                tm_mllog_free(log);
            }
        tm_mllog_folder_fini(&folder);
    }
}

TEST(rulesets_have_names)
{
    tm_ruleset r;
    tm_error   err = { 0 };
    assert_int_equal(tm_ruleset_find("6.1.0", &r, &err), TM_OK);
    assert_int_equal(r, TM_RULESET_6_1_0);
    assert_int_equal(tm_ruleset_find("5.0.0", &r, &err), TM_USAGE);
}
