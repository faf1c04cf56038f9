/* SPDX-License-Identifier: Apache-2.0 */
#include "support/mllogs.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

test_mllog test_mllog_good(const char *benchmark, int64_t batch, int64_t samples, int run)
{
    bool lora = strcmp(benchmark, "llama2_70b_lora") == 0;
    return (test_mllog){ .benchmark = benchmark,
                         .batch = batch,
                         .samples = samples,
                         .start_ms = 1700000060000 + run * 10000000LL,
                         .run_ms = samples * 33,
                         .init_ms = 60000,
                         .status = "success",
                         .loss = lora ? 0.924 : 3.29,
                         .seed = 1000 + run };
}

static void add(tm_text *out, int64_t ms, const char *key, const char *value, const char *metadata)
{
    size_t      n = strlen(key);
    const char *type = n > 6 && strcmp(key + n - 6, "_start") == 0  ? "INTERVAL_START"
                       : n > 5 && strcmp(key + n - 5, "_stop") == 0 ? "INTERVAL_END"
                                                                    : "POINT_IN_TIME";
    tm_text_printf(
        out,
        ":::MLLOG {\"namespace\": \"\", \"time_ms\": %lld, \"event_type\": \"%s\", \"key\": \"%s\", \"value\": %s, "
        "\"metadata\": {\"file\": \"/run/log.py\", \"lineno\": %d%s}}\n",
        (long long)ms, type, key, value, (int)strlen(key) * 7, metadata);
}

static void add_number(tm_text *out, int64_t ms, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    add(out, ms, key, text, "");
}

static const char *const settings_8b[] = {
    "max_sequence_length",
    "8192",
    "eval_samples",
    "1024",
    "max_steps",
    "1200000",
    "opt_name",
    "\"adamw\"",
    "opt_base_learning_rate",
    "0.0008",
    "opt_end_learning_rate",
    "8e-05",
    "opt_adamw_beta_1",
    "0.9",
    "opt_adamw_beta_2",
    "0.95",
    "opt_adamw_epsilon",
    "1e-05",
    "opt_adamw_weight_decay",
    "0.1",
    "opt_gradient_clip_norm",
    "1.0",
    "opt_learning_rate_warmup_steps",
    "128",
    "opt_learning_rate_decay_steps",
    "1199872",
    "opt_learning_rate_decay_schedule",
    "\"cosine with linear warmup\"",
    NULL,
};
static const char *const settings_lora[] = {
    "eval_samples",
    "173",
    "opt_base_learning_rate",
    "0.0004",
    "opt_learning_rate_training_steps",
    "1024",
    "opt_learning_rate_warmup_factor",
    "0.0",
    "opt_adamw_weight_decay",
    "0.0001",
    "opt_gradient_clip_norm",
    "0.3",
    "lora_rank",
    "16",
    "lora_alpha",
    "32",
    NULL,
};

static void print_head(const test_mllog *log, tm_text *out)
{
    int64_t ms = log->start_ms - log->init_ms;
    tm_text benchmark = { 0 };
    tm_text_printf(&benchmark, "\"%s\"", log->benchmark);
    add(out, ms, "cache_clear", "true", "");
    add(out, ms, "init_start", "null", "");
    add(out, ms, "submission_benchmark", benchmark.data, "");
    tm_text_fini(&benchmark);
    add(out, ms, "submission_org", "\"Somebody\"", "");
    add(out, ms, "submission_division", "\"closed\"", "");
    add(out, ms, "submission_status", "\"onprem\"", "");
    add(out, ms, "submission_platform", "\"1xBOX\"", "");
    if (log->seed >= 0) add_number(out, ms, "seed", log->seed);
    if (log->batch > 0) add_number(out, ms, "global_batch_size", log->batch);
    add(out, ms, "gradient_accumulation_steps", "1", "");
    add(out, ms, "train_samples", "3901", "");
    const char *const *s = strcmp(log->benchmark, "llama2_70b_lora") == 0 ? settings_lora : settings_8b;
    for (; *s; s += 2) add(out, ms, s[0], s[1], "");
    if (log->extra) tm_text_add(out, log->extra);
    add(out, log->start_ms, "init_stop", "null", "");
    add(out, log->start_ms, "run_start", "null", "");
}

void test_mllog_print(const test_mllog *log, tm_text *out)
{
    print_head(log, out);
    int64_t interval = log->interval ? log->interval : log->samples, first = log->first ? log->first : interval;
    int64_t n = (log->samples - first) / interval + 1, train_ms = log->run_ms - n * log->eval_ms, done = 0;
    for (int64_t i = 0; i < n; i++) {
        char    before[64], after[96], loss[32];
        int64_t samples = first + i * interval,
                begin = log->start_ms + train_ms * done / log->samples + i * log->eval_ms;
        int64_t end = log->start_ms + train_ms * samples / log->samples + i * log->eval_ms;
        snprintf(before, sizeof before, ", \"samples_count\": %lld", (long long)done);
        snprintf(after, sizeof after, ", \"samples_count\": %lld", (long long)samples);
        add(out, begin, "block_start", "null", before);
        add(out, end, "block_stop", "null", after);
        add(out, end, "eval_start", "null", after);
        add(out, end + log->eval_ms, "eval_accuracy",
            tm_format_double(loss, log->loss + log->slope * (double)(n - 1 - i)), after);
        add(out, end + log->eval_ms, "eval_stop", "null", after);
        done = samples;
    }
    char last[96];
    snprintf(last, sizeof last, ", \"samples_count\": %lld, \"status\": \"%s\"", (long long)done,
             log->status ? log->status : "");
    if (log->status) add(out, log->start_ms + log->run_ms, "run_stop", "null", last);
}

tm_mllog *test_mllog_make(const test_mllog *log)
{
    tm_text   text = { 0 };
    tm_mllog *out = NULL;
    tm_error  err = { 0 };
    test_mllog_print(log, &text);
    tm_status st = tm_mllog_parse("a test's log", text.data, text.length, &out, &err);
    tm_text_fini(&text);
    TM_ASSERT(st == TM_OK);
    return out;
}

void test_mllog_write(const test_mllog *log, const char *folder, int number)
{
    tm_text  text = { 0 }, path = { 0 };
    tm_error err = { 0 };
    test_mllog_print(log, &text);
    tm_text_printf(&path, "%s/result_%d.txt", folder, number);
    tm_status st = tm_file_write(path.data, text.data, text.length, &err);
    tm_text_fini(&text);
    tm_text_fini(&path);
    TM_ASSERT(st == TM_OK);
}
