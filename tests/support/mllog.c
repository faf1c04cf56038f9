/* SPDX-License-Identifier: Apache-2.0 */
#include "support/mllog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const char *key, *value, *metadata;
} row;

#define AT(count) ", \"samples_count\": " #count

/* Of the hardware and the formats; required from 6.1.0 on. */
#define DISCLOSED                                                                                                      \
    { "lowest_numerical_precision_in_linear", "\"fp8\"", "" },                                                         \
        { "lowest_numerical_precision_in_attn", "\"bfloat16\"", "" },                                                  \
        { "lowest_numerical_precision_in_comm", "\"bfloat16\"", "" }, { "tensor_parallelism", "1", "" },               \
        { "pipeline_parallelism", "1", "" }, { "context_parallelism", "1", "" }, { "expert_parallelism", "1", "" },    \
        { "micro_batch_size", "2", "" },                                                                               \
    {                                                                                                                  \
        "config_filename", "\"config.sh\"", ""                                                                         \
    }

static const row rows_8b[] = {
    { "cache_clear", "true", "" },
    { "init_start", "null", "" },
    { "submission_benchmark", "\"llama31_8b\"", "" },
    { "submission_org", "\"ORG\"", "" },
    { "submission_division", "\"closed\"", "" },
    { "submission_status", "\"onprem\"", "" },
    { "submission_platform", "\"PLATFORM\"", "" },
    { "seed", "4242", "" },
    { "global_batch_size", "32", "" },
    { "gradient_accumulation_steps", "2", "" },
    { "max_sequence_length", "8192", "" },
    { "eval_samples", "1024", "" },
    { "max_steps", "1200000", "" },
    { "opt_name", "\"adamw\"", "" },
    { "opt_base_learning_rate", "0.0008", "" },
    { "opt_end_learning_rate", "8e-05", "" },
    { "opt_adamw_beta_1", "0.9", "" },
    { "opt_adamw_beta_2", "0.95", "" },
    { "opt_adamw_epsilon", "1e-05", "" },
    { "opt_adamw_weight_decay", "0.1", "" },
    { "opt_gradient_clip_norm", "1.0", "" },
    { "opt_learning_rate_warmup_steps", "128", "" },
    { "opt_learning_rate_decay_steps", "1199872", "" },
    { "opt_learning_rate_decay_schedule", "\"cosine with linear warmup\"", "" },
    DISCLOSED,
    { "init_stop", "null", "" },
    { "run_start", "null", "" },
    { "block_start", "null", AT(0) },
    { "block_stop", "null", AT(12288) },
    { "eval_start", "null", AT(12288) },
    { "eval_accuracy", "3.287374973297119", AT(12288) },
    { "eval_stop", "null", AT(12288) },
    { "run_stop", "null", AT(12288) ", \"status\": \"success\"" },
    { "train_samples", "12288", "" },
};

static const row rows_lora[] = {
    { "cache_clear", "true", "" },
    { "init_start", "null", "" },
    { "submission_benchmark", "\"llama2_70b_lora\"", "" },
    { "submission_org", "\"ORG\"", "" },
    { "submission_division", "\"closed\"", "" },
    { "submission_status", "\"onprem\"", "" },
    { "submission_platform", "\"PLATFORM\"", "" },
    { "seed", "4242", "" },
    { "global_batch_size", "8", "" },
    { "train_samples", "3901", "" },
    { "eval_samples", "173", "" },
    { "opt_base_learning_rate", "0.0004", "" },
    { "opt_learning_rate_training_steps", "1024", "" },
    { "opt_learning_rate_warmup_factor", "0.0", "" },
    { "opt_adamw_weight_decay", "0.0001", "" },
    { "opt_gradient_clip_norm", "0.3", "" },
    { "gradient_accumulation_steps", "1", "" },
    { "lora_rank", "16", "" },
    { "lora_alpha", "32", "" },
    DISCLOSED,
    { "init_stop", "null", "" },
    { "run_start", "null", "" },
    { "block_start", "null", AT(0) },
    { "block_stop", "null", AT(1536) },
    { "eval_start", "null", AT(1536) },
    { "eval_accuracy", "0.9249", AT(1536) },
    { "eval_stop", "null", AT(1536) },
    { "run_stop", "null", AT(1536) ", \"status\": \"success\"" },
};

static const row rows_flux[] = {
    { "cache_clear", "true", "" },
    { "init_start", "null", "" },
    { "submission_benchmark", "\"flux1\"", "" },
    { "submission_org", "\"ORG\"", "" },
    { "submission_division", "\"closed\"", "" },
    { "submission_status", "\"onprem\"", "" },
    { "submission_platform", "\"PLATFORM\"", "" },
    { "seed", "4242", "" },
    { "global_batch_size", "2048", "" },
    { "gradient_accumulation_steps", "1", "" },
    { "train_samples", "1099776", "" },
    { "eval_samples", "29696", "" },
    { "evaluation_frequency", "262144", "" },
    { "opt_name", "\"adamw\"", "" },
    { "opt_base_learning_rate", "0.00025", "" },
    { "opt_adamw_beta_1", "0.9", "" },
    { "opt_adamw_beta_2", "0.95", "" },
    { "opt_adamw_epsilon", "1e-08", "" },
    { "opt_adamw_weight_decay", "0.1", "" },
    { "opt_gradient_clip_norm", "1.0", "" },
    { "opt_learning_rate_warmup_steps", "0", "" },
    DISCLOSED,
    { "init_stop", "null", "" },
    { "run_start", "null", "" },
    { "block_start", "null", AT(0) },
    { "block_stop", "null", AT(9961472) },
    { "eval_start", "null", AT(9961472) },
    { "eval_accuracy", "0.58592", AT(9961472) },
    { "eval_stop", "null", AT(9961472) },
    { "run_stop", "null", AT(9961472) ", \"status\": \"success\"" },
};

/* Times in the order of the lines, a minute between them; init_stop a minute behind init_start. */
static mllog build(const row *rows, size_t n)
{
    mllog log = { .n = 0 };
    for (size_t i = 0; i < n; i++) mllog_insert(&log, NULL, rows[i].key, rows[i].value, rows[i].metadata);
    int64_t start = 1700000000000;
    bool    running = false;
    for (size_t i = 0; i < n; i++) {
        running = running || strcmp(rows[i].key, "init_stop") == 0;
        log.lines[i].time_ms = running ? start += 60000 : start;
    }
    return log;
}

mllog mllog_8b(void)
{
    return build(rows_8b, sizeof rows_8b / sizeof *rows_8b);
}

mllog mllog_lora(void)
{
    return build(rows_lora, sizeof rows_lora / sizeof *rows_lora);
}

mllog mllog_flux(void)
{
    return build(rows_flux, sizeof rows_flux / sizeof *rows_flux);
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
        if (*l->raw)
            tm_text_printf(out, "%s\n", l->raw);
        else
            tm_text_printf(out,
                           ":::MLLOG {\"namespace\": \"\", \"time_ms\": %lld, \"event_type\": \"POINT_IN_TIME\", "
                           "\"key\": \"%s\", \"value\": %s, \"metadata\": {\"file\": \"x.c\", \"lineno\": %zu%s}}\n",
                           (long long)l->time_ms, l->key, l->value, i + 1, l->metadata);
    }
}
