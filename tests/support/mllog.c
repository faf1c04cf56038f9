/* SPDX-License-Identifier: Apache-2.0 */
#include "support/mllog.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rows "KEY VALUE", parted by "; "; behind " @" the number of samples, and the status. */
#define HEAD(benchmark)                                                                                                \
    "cache_clear true; init_start null; submission_benchmark \"" benchmark "\"; submission_org \"ORG\"; "              \
    "submission_division \"closed\"; submission_status \"onprem\"; submission_platform \"PLATFORM\"; seed 4242; "
#define ADAMW                                                                                                          \
    "opt_name \"adamw\"; opt_adamw_beta_1 0.9; opt_adamw_beta_2 0.95; opt_adamw_weight_decay 0.1; "                    \
    "opt_gradient_clip_norm 1.0; "
/* Of the hardware and the formats; required from 6.1.0 on. */
#define DISCLOSED                                                                                                      \
    "lowest_numerical_precision_in_linear \"fp8\"; lowest_numerical_precision_in_attn \"bfloat16\"; "                  \
    "lowest_numerical_precision_in_comm \"bfloat16\"; tensor_parallelism 1; pipeline_parallelism 1; "                  \
    "context_parallelism 1; expert_parallelism 1; micro_batch_size 2; config_filename \"config.sh\"; "
#define RUN(accuracy, samples)                                                                                         \
    "init_stop null; run_start null; block_start null @0; block_stop null @" samples "; eval_start null @" samples     \
    "; eval_accuracy " accuracy " @" samples "; eval_stop null @" samples "; run_stop null @" samples " success"

static const char text_8b[] =
    HEAD("llama31_8b") "global_batch_size 32; gradient_accumulation_steps 2; max_sequence_length 8192; "
                       "eval_samples 1024; max_steps 1200000; opt_base_learning_rate 0.0008; "
                       "opt_end_learning_rate 8e-05; opt_adamw_epsilon 1e-05; opt_learning_rate_warmup_steps 128; "
                       "opt_learning_rate_decay_steps 1199872; "
                       "opt_learning_rate_decay_schedule \"cosine with linear warmup\"; " ADAMW DISCLOSED RUN(
                           "3.287374973297119", "12288") "; train_samples 12288";
static const char text_lora[] =
    HEAD("llama2_70b_lora") "global_batch_size 8; train_samples 3901; eval_samples 173; "
                            "opt_base_learning_rate 0.0004; opt_learning_rate_training_steps 1024; "
                            "opt_learning_rate_warmup_factor 0.0; opt_adamw_weight_decay 0.0001; "
                            "opt_gradient_clip_norm 0.3; gradient_accumulation_steps 1; lora_rank 16; "
                            "lora_alpha 32; " DISCLOSED RUN("0.9249", "1536");
static const char                                       text_flux[] = HEAD(
                                          "flux1") "global_batch_size 2048; gradient_accumulation_steps 1; train_samples 1099776; "
             "eval_samples 29696; evaluation_frequency 262144; opt_base_learning_rate 0.00025; "
             "opt_adamw_epsilon 1e-08; opt_learning_rate_warmup_steps 0; " ADAMW DISCLOSED RUN("0.58592", "9961472");

static const char *samples_text(char out[MLLOG_BYTES], int64_t samples, const char *status)
{
    int n = snprintf(out, MLLOG_BYTES, ", \"samples_count\": %lld", (long long)samples);
    if (status) snprintf(out + n, (size_t)(MLLOG_BYTES - n), ", \"status\": \"%s\"", status);
    return out;
}

/* Times in the order of the lines, a minute between them; init_stop a minute behind init_start. */
static mllog build(const char *text)
{
    mllog   log = { .n = 0 };
    int64_t start = 1700000000000;
    bool    running = false;
    while (*text) {
        char        row[2 * MLLOG_BYTES], metadata[MLLOG_BYTES] = "";
        const char *end = strstr(text, "; ");
        size_t      n = end ? (size_t)(end - text) : strlen(text);
        snprintf(row, sizeof row, "%.*s", (int)n, text);
        char *value = strchr(row, ' '), *at = strstr(row, " @");
        *value++ = '\0';
        if (at) samples_text(metadata, strtoll(at + 2, NULL, 10), strstr(at, "success"));
        if (at) *at = '\0';
        running = running || strcmp(row, "init_stop") == 0;
        mllog_insert(&log, NULL, row, value, metadata)->time_ms = running ? start += 60000 : start;
        text += n + (end ? 2 : 0);
    }
    return log;
}

mllog mllog_8b(void)
{
    return build(text_8b);
}

mllog mllog_lora(void)
{
    return build(text_lora);
}

mllog mllog_flux(void)
{
    return build(text_flux);
}

mllog mllog_gpt_oss(void)
{
    mllog log = mllog_8b();
    mllog_set(&log, "submission_benchmark", "\"gpt_oss_20b\"");
    mllog_set(&log, "eval_accuracy", "3.3399");
    return log;
}

mllog mllog_tiny(double loss)
{
    mllog log = mllog_8b();
    char  text[32];
    snprintf(text, sizeof text, "%.17g", loss);
    mllog_set(&log, "submission_benchmark", "\"trainmark_tiny\"");
    mllog_set(&log, "eval_accuracy", text);
    mllog_set(&log, "max_sequence_length", "128");
    mllog_set(&log, "max_steps", "900");
    mllog_set(&log, "opt_learning_rate_decay_steps", "800");
    return log;
}

mllog_line *mllog_find(mllog *log, const char *key, size_t nth)
{
    for (size_t i = 0; i < log->n; i++)
        if (strcmp(log->lines[i].key, key) == 0 && nth-- == 0) return &log->lines[i];
    fail_msg("the log has no line '%s'", key);
    return NULL;
}

void mllog_set(mllog *log, const char *key, const char *value)
{
    for (size_t i = 0; i < log->n; i++)
        if (strcmp(log->lines[i].key, key) == 0) snprintf(log->lines[i].value, MLLOG_BYTES, "%s", value);
}

static void remove_at(mllog *log, size_t i)
{
    memmove(&log->lines[i], &log->lines[i + 1], (log->n - i - 1) * sizeof *log->lines);
    log->n--;
}

void mllog_drop(mllog *log, const char *key)
{
    for (size_t i = log->n; i-- > 0;)
        if (strcmp(log->lines[i].key, key) == 0) remove_at(log, i);
}

mllog_line *mllog_insert(mllog *log, mllog_line *at, const char *key, const char *value, const char *metadata)
{
    size_t i = at ? (size_t)(at - log->lines) : log->n;
    assert_true(log->n < MLLOG_LINES);
    memmove(&log->lines[i + 1], &log->lines[i], (log->n - i) * sizeof *log->lines);
    log->n++;
    mllog_line *line = &log->lines[i];
    *line = (mllog_line){ .time_ms = i ? line[-1].time_ms : 1700000000000 };
    snprintf(line->key, sizeof line->key, "%s", key);
    snprintf(line->value, sizeof line->value, "%s", value);
    snprintf(line->metadata, sizeof line->metadata, "%s", metadata);
    return line;
}

mllog_line *mllog_double(mllog *log, const char *key)
{
    mllog_line line = *mllog_find(log, key, 0);
    return mllog_insert(log, mllog_find(log, key, 0) + 1, line.key, line.value, line.metadata);
}

void mllog_move(mllog *log, const char *key, const char *before)
{
    mllog_line line = *mllog_find(log, key, 0);
    remove_at(log, (size_t)(mllog_find(log, key, 0) - log->lines));
    *mllog_insert(log, mllog_find(log, before, 0), "", "", "") = line;
}

void mllog_print(const mllog *log, tm_text *out)
{
    for (size_t i = 0; i < log->n; i++) {
        const mllog_line *l = &log->lines[i];
        const char       *end = strrchr(l->key, '_');
        const char       *type = end && strcmp(end, "_start") == 0  ? "INTERVAL_START"
                                 : end && strcmp(end, "_stop") == 0 ? "INTERVAL_END"
                                                                    : "POINT_IN_TIME";
        if (*l->raw)
            tm_text_printf(out, "%s\n", l->raw);
        else
            tm_text_printf(out,
                           ":::MLLOG {\"namespace\": \"\", \"time_ms\": %lld, \"event_type\": \"%s\", \"key\": \"%s\", "
                           "\"value\": %s, \"metadata\": {\"file\": \"x.c\", \"lineno\": %zu%s}}\n",
                           (long long)l->time_ms, type, l->key, l->value, i + 1, l->metadata);
    }
}

/* --- runs of several evaluations ---------------------------------------------------------------------------------- */

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

static void set_number(mllog *log, const char *key, int64_t value, bool given)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    mllog_set(log, key, text);
    if (!given) mllog_drop(log, key);
}

static void add(mllog *log, int64_t ms, const char *key, const char *value, int64_t samples)
{
    char metadata[MLLOG_BYTES];
    mllog_insert(log, NULL, key, value, samples_text(metadata, samples, NULL))->time_ms = ms;
}

void test_mllog_print(const test_mllog *of, tm_text *out)
{
    mllog log = strcmp(of->benchmark, "llama2_70b_lora") == 0 ? mllog_lora() : mllog_8b();
    char  text[MLLOG_BYTES];
    log.n = (size_t)(mllog_find(&log, "run_start", 0) + 1 - log.lines);
    for (size_t i = 0; i < log.n; i++) log.lines[i].time_ms = of->start_ms - (i + 2 < log.n ? of->init_ms : 0);
    snprintf(text, sizeof text, "\"%s\"", of->benchmark);
    mllog_set(&log, "submission_benchmark", text);
    set_number(&log, "seed", of->seed, of->seed >= 0);
    set_number(&log, "global_batch_size", of->batch, of->batch > 0);
    set_number(&log, "gradient_accumulation_steps", 1, true);
    if (strcmp(of->benchmark, "llama2_70b_lora") != 0) /* before the run here */
        mllog_insert(&log, mllog_find(&log, "init_stop", 0), "train_samples", "3901", "");
    for (const char *at = of->extra; at && *at; at += strcspn(at, "\n") + 1)
        snprintf(mllog_insert(&log, mllog_find(&log, "init_stop", 0), "", "", "")->raw, MLLOG_BYTES, "%.*s",
                 (int)strcspn(at, "\n"), at);
    int64_t interval = of->interval ? of->interval : of->samples, first = of->first ? of->first : interval;
    int64_t n = (of->samples - first) / interval + 1, train_ms = of->run_ms - n * of->eval_ms, done = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t samples = first + i * interval, waited = of->start_ms + i * of->eval_ms;
        int64_t end = waited + train_ms * samples / of->samples;
        add(&log, waited + train_ms * done / of->samples, "block_start", "null", done);
        add(&log, end, "block_stop", "null", samples);
        add(&log, end, "eval_start", "null", samples);
        add(&log, end + of->eval_ms, "eval_accuracy",
            tm_format_double(text, of->loss + of->slope * (double)(n - 1 - i)), samples);
        add(&log, end + of->eval_ms, "eval_stop", "null", samples);
        done = samples;
    }
    if (of->status)
        mllog_insert(&log, NULL, "run_stop", "null", samples_text(text, done, of->status))->time_ms =
            of->start_ms + of->run_ms;
    mllog_print(&log, out);
}

tm_mllog *test_mllog_make(const test_mllog *log)
{
    tm_text   text = { 0 };
    tm_mllog *out = NULL;
    tm_error  err = { 0 };
    test_mllog_print(log, &text);
    assert_int_equal(tm_mllog_parse("a test's log", text.data, text.length, &out, &err), TM_OK);
    tm_text_fini(&text);
    return out;
}

void test_mllog_write(const test_mllog *log, const char *folder, int number)
{
    tm_text  text = { 0 }, path = { 0 };
    tm_error err = { 0 };
    test_mllog_print(log, &text);
    tm_text_printf(&path, "%s/result_%d.txt", folder, number);
    assert_int_equal(tm_file_write(path.data, text.data, text.length, &err), TM_OK);
    tm_text_fini(&text);
    tm_text_fini(&path);
}
