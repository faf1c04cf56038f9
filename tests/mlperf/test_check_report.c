/* SPDX-License-Identifier: Apache-2.0 */
/* What a compliance report says, word for word, as text and as JSON. */
#include "mlperf/check.h"
#include "support/mllog.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

static void is(const mllog *log, bool werror, const char *words, const char *json_words)
{
    tm_text         text = { 0 }, out = { 0 }, json = { 0 };
    tm_mllog       *parsed;
    tm_check_report report;
    tm_error        err = { 0 };
    mllog_print(log, &text);
    assert_int_equal(tm_mllog_parse("x", text.data ? text.data : "", text.length, &parsed, &err), TM_OK);
    tm_check_log(parsed, TM_RULESET_5_1_0, werror, &report);
    tm_check_print(&report, "run.txt", &out);
    assert_string_equal(out.data, words);
    if (json_words) {
        tm_check_json(&report, "run.txt", &(tm_json){ .out = &json });
        assert_string_equal(json.data, json_words);
    }
    tm_check_report_fini(&report);
    assert_null(report.messages.messages);
    tm_mllog_free(parsed);
    tm_text_fini(&text);
    tm_text_fini(&out);
    tm_text_fini(&json);
}

TEST(of_a_log_that_complies)
{
    mllog log = mllog_8b();
    is(&log, true, "run.txt: SUCCESS (common, closed_common, closed_llama31_8b)\n",
       "{\"file\": \"run.txt\", \"verdict\": \"SUCCESS\", \"benchmark\": \"llama31_8b\", \"known_to_public_checker\": "
       "true, "
       "\"public_checker_exception\": false, \"rule_sets\": [\"common\", \"closed_common\", \"closed_llama31_8b\"], "
       "\"messages\": [], \"warnings\": []}");
    log = mllog_tiny(0.1);
    is(&log, true,
       "run.txt: SUCCESS (common, closed_common, closed_trainmark_tiny)\n"
       "  trainmark_tiny is a benchmark of trainmark's own: the public checker does not know it\n",
       "{\"file\": \"run.txt\", \"verdict\": \"SUCCESS\", \"benchmark\": \"trainmark_tiny\", "
       "\"known_to_public_checker\": false, \"public_checker_exception\": false, \"rule_sets\": [\"common\", "
       "\"closed_common\", \"closed_trainmark_tiny\"], \"messages\": [], \"warnings\": []}");
}

TEST(of_no_log)
{
    mllog empty = { .n = 0 };
    is(&empty, false, "run.txt: FAILED\n  No log lines detected\n",
       "{\"file\": \"run.txt\", \"verdict\": \"FAILED\", \"benchmark\": null, \"known_to_public_checker\": true, "
       "\"public_checker_exception\": false, \"rule_sets\": [], \"messages\": [{\"set\": null, \"key\": null, "
       "\"text\": "
       "\"No log lines detected\"}], \"warnings\": []}");
}

/* Ten lines that cannot be read are named, more are counted. */
TEST(of_lines_that_cannot_be_read)
{
    for (int n = 1; n <= 13; n += n == 1 ? 9 : n == 10 ? 1 : 2) { /* 1, 10, 11, 13 */
        mllog log = mllog_8b();
        char  words[2048];
        int   at = snprintf(words, sizeof words, "run.txt: FAILED\n  Log lines had parsing errors.\n");
        for (int i = 0; i < n; i++) {
            strcpy(mllog_insert(&log, &log.lines[2], "", "", "")->raw, ":::MLLOG {");
            if (i < 10)
                at += snprintf(words + at, sizeof words - (size_t)at,
                               "  line %d (record %d): this line cannot be read: expected a member's name in double "
                               "quotes, at byte 1 after the token\n",
                               3 + i, 2 + i);
        }
        if (n > 10) snprintf(words + at, sizeof words - (size_t)at, "  %d more lines cannot be read\n", n - 10);
        is(&log, false, words, NULL);
    }
}

/* A line that is JSON but no record ends the public checker; one that is no JSON does not (above). */
TEST(of_a_line_that_lacks_members)
{
    mllog log = mllog_8b();
    strcpy(mllog_insert(&log, &log.lines[2], "", "", "")->raw, ":::MLLOG {}");
    is(&log, false,
       "run.txt: FAILED\n  Log lines had parsing errors.\n"
       "  line 3 (record 2): this line cannot be read: it has no member \"time_ms\"\n"
       "  the public checker stops with an exception here\n",
       NULL);
}

TEST(of_a_key_that_fails_often)
{
    for (int n = 9; n <= 12; n++) {
        mllog log = mllog_8b();
        char  words[4096];
        int   at = snprintf(words, sizeof words, "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n");
        for (int i = 1; i < n; i++) mllog_double(&log, "max_steps");
        mllog_set(&log, "max_steps", "8");
        for (int i = 0; i < n && i < 10; i++)
            at += snprintf(words + at, sizeof words - (size_t)at,
                           "  line %d (record %d): CHECK for 'max_steps' failed: wanted value == 1200000; value is 8 "
                           "[closed_llama31_8b]\n",
                           13 + i, 12 + i);
        if (n > 10)
            at += snprintf(words + at, sizeof words - (size_t)at,
                           "  CHECK for 'max_steps' failed %d more times [closed_llama31_8b]\n", n - 10);
        snprintf(words + at, sizeof words - (size_t)at,
                 "  warning: Required EXACTLY_ONE occurrence of 'max_steps' but found %d, all with the value 8 "
                 "[closed_llama31_8b]\n",
                 n);
        is(&log, false, words, NULL);
    }
}

/* Values are shown up to 80 bytes of JSON. */
TEST(of_lines_that_are_repeated)
{
    char  value[128], words[2048];
    mllog log = mllog_8b();
    snprintf(value, sizeof value, "\"%078d\"", 5);
    mllog_set(&log, "opt_base_learning_rate", value);
    snprintf(mllog_double(&log, "opt_base_learning_rate")->value, MLLOG_BYTES, "\"%079d\"", 6);
    snprintf(words, sizeof words,
             "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n"
             "  Required EXACTLY_ONE occurrence of 'opt_base_learning_rate' but found 2 with different values: [%s, "
             "\"%079d...] [closed_llama31_8b]\n",
             value, 6);
    is(&log, false, words, NULL);
    mllog_double(&log, "opt_base_learning_rate");
    mllog_set(&log, "opt_base_learning_rate", "1");
    is(&log, false,
       "run.txt: SUCCESS (common, closed_common, closed_llama31_8b)\n"
       "  warning: Required EXACTLY_ONE occurrence of 'opt_base_learning_rate' but found 3, all with the value 1 "
       "[closed_llama31_8b]\n",
       "{\"file\": \"run.txt\", \"verdict\": \"SUCCESS\", \"benchmark\": \"llama31_8b\", \"known_to_public_checker\": "
       "true, "
       "\"public_checker_exception\": false, \"rule_sets\": [\"common\", \"closed_common\", \"closed_llama31_8b\"], "
       "\"messages\": [], \"warnings\": [{\"set\": \"closed_llama31_8b\", \"key\": \"opt_base_learning_rate\", "
       "\"text\": "
       "\"Required EXACTLY_ONE occurrence of 'opt_base_learning_rate' but found 3, all with the value 1\"}]}");
    is(&log, true,
       "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n"
       "  Required EXACTLY_ONE occurrence of 'opt_base_learning_rate' but found 3, all with the value 1 "
       "[closed_llama31_8b]\n",
       NULL);
    strcpy(mllog_find(&log, "opt_base_learning_rate", 1)->value, "2");
    strcpy(mllog_find(&log, "opt_base_learning_rate", 2)->value, "3");
    is(&log, false,
       "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n"
       "  Required EXACTLY_ONE occurrence of 'opt_base_learning_rate' but found 3 with different values: [1, 2, ...] "
       "[closed_llama31_8b]\n",
       NULL);
}

TEST(of_what_is_missing)
{
    mllog log = mllog_8b();
    mllog_drop(&log, "cache_clear");
    mllog_drop(&log, "block_start");
    mllog_drop(&log, "block_stop");
    mllog_drop(&log, "max_steps");
    mllog_set(&log, "eval_accuracy", "4");
    is(&log, false,
       "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n"
       "  Required AT_LEAST_ONE occurrence of 'cache_clear' but found 0 [common]\n"
       "  Required AT_LEAST_ONE occurrence of 'block_start' or 'epoch_start' [common]\n"
       "  Required AT_LEAST_ONE occurrence of 'block_stop' or 'epoch_stop' [common]\n"
       "  Required AT_LEAST_ONE occurrence of 'epoch_start' or 'block_start' [common]\n"
       "  Required AT_LEAST_ONE occurrence of 'epoch_stop' or 'block_stop' [common]\n"
       "  Required EXACTLY_ONE occurrence of 'max_steps' but found 0 [closed_llama31_8b]\n"
       "  Failed checks for eval_accuracy: no line with 0 < value <= 3.3 [closed_llama31_8b]\n",
       NULL);
}

TEST(of_benchmarks_that_are_not_known)
{
    mllog log = mllog_8b();
    mllog_set(&log, "submission_benchmark", "[\"x\"]");
    is(&log, false,
       "run.txt: FAILED (common, closed_common)\n"
       "  line 3 (record 2): CHECK for 'submission_benchmark' failed: wanted value is one of 'retinanet', 'flux1', "
       "'dlrm_dcnv2', 'llama31_8b', 'rgat', 'llama2_70b_lora', 'llama31_405b', 'trainmark_tiny', "
       "'trainmark_tiny_lora', "
       "'trainmark_tiny_flux'; value is [\"x\"] [closed_common]\n"
       "  line 3 (record 2): no rule set here for submission_benchmark [\"x\"]: it cannot be checked [closed_common]\n"
       "  the public checker stops with an exception here\n",
       NULL);
    log = mllog_8b();
    mllog_set(&log, "submission_benchmark", "\"rgat\"");
    is(&log, false,
       "run.txt: FAILED (common, closed_common)\n"
       "  line 3 (record 2): no rule set here for submission_benchmark \"rgat\": it cannot be checked "
       "[closed_common]\n",
       "{\"file\": \"run.txt\", \"verdict\": \"FAILED\", \"benchmark\": \"rgat\", \"known_to_public_checker\": true, "
       "\"public_checker_exception\": false, \"rule_sets\": [\"common\", \"closed_common\"], \"messages\": [{\"set\": "
       "\"closed_common\", \"key\": \"submission_benchmark\", \"line\": 3, \"record\": 2, \"text\": \"no rule set here "
       "for "
       "submission_benchmark \\\"rgat\\\": it cannot be checked\"}], \"warnings\": []}");
}

/* The first evaluation that is none ends the public checker; what is said of it stays. */
TEST(of_an_exception)
{
    mllog log = mllog_8b();
    mllog_set(&log, "eval_accuracy", "null");
    mllog_double(&log, "eval_accuracy");
    is(&log, false,
       "run.txt: FAILED (common, closed_common, closed_llama31_8b)\n"
       "  line 39 (record 38): Failed executing CHECK code: for 'eval_accuracy': 0 < value <= 3.3; value is null "
       "[closed_llama31_8b]\n"
       "  Failed checks for eval_accuracy: no line with 0 < value <= 3.3 [closed_llama31_8b]\n"
       "  the public checker stops with an exception here\n",
       NULL);
}

TEST(rulesets)
{
    static const char *const names[] = { "5.1.0", "6.0.0", "6.1.0" };
    tm_error                 err = { 0 };
    for (int i = 0; i < 3; i++) {
        tm_ruleset found = TM_RULESET_COUNT;
        assert_string_equal(tm_ruleset_name((tm_ruleset)i), names[i]);
        assert_int_equal(tm_ruleset_find(names[i], &found, &err), TM_OK);
        assert_int_equal(found, i);
    }
    tm_ruleset none;
    assert_int_equal(tm_ruleset_find("6.2.0", &none, &err), TM_USAGE);
    assert_string_equal(err.text, "no ruleset '6.2.0'; there are 5.1.0, 6.0.0 and 6.1.0");
}
