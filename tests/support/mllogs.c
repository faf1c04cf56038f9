/* SPDX-License-Identifier: Apache-2.0 */
#include "support/mllogs.h"

#include "support/test.h"

#include "base/file.h"

enum { START_S = 1700000000 };

/* "KEY VALUE" a line. */
static const char settings_8b[] = "gradient_accumulation_steps 2\nmax_sequence_length 8192\neval_samples 1024\n"
                                  "max_steps 1200000\nopt_name \"adamw\"\nopt_base_learning_rate 0.0008\n"
                                  "opt_end_learning_rate 8e-05\nopt_adamw_beta_1 0.9\nopt_adamw_beta_2 0.95\n"
                                  "opt_adamw_epsilon 1e-05\nopt_adamw_weight_decay 0.1\nopt_gradient_clip_norm 1.0\n"
                                  "opt_learning_rate_warmup_steps 128\nopt_learning_rate_decay_steps 1199872\n"
                                  "opt_learning_rate_decay_schedule \"cosine with linear warmup\"\n";
static const char settings_lora[] = "train_samples 3901\neval_samples 173\nopt_base_learning_rate 0.0004\n"
                                    "opt_learning_rate_training_steps 1024\nopt_learning_rate_warmup_factor 0.0\n"
                                    "opt_adamw_weight_decay 0.0001\nopt_gradient_clip_norm 0.3\n"
                                    "gradient_accumulation_steps 1\nlora_rank 16\nlora_alpha 32\n";
static const char settings_flux[] = "gradient_accumulation_steps 1\ntrain_samples 1099776\neval_samples 29696\n"
                                    "evaluation_frequency 262144\nopt_name \"adamw\"\nopt_base_learning_rate 0.00025\n"
                                    "opt_adamw_beta_1 0.9\nopt_adamw_beta_2 0.95\nopt_adamw_epsilon 1e-08\n"
                                    "opt_adamw_weight_decay 0.1\nopt_gradient_clip_norm 1.0\n"
                                    "opt_learning_rate_warmup_steps 0\n";
/* Of the hardware and the formats; required from 6.1.0 on. */
static const char disclosed[] = "lowest_numerical_precision_in_linear \"fp8\"\n"
                                "lowest_numerical_precision_in_attn \"bfloat16\"\n"
                                "lowest_numerical_precision_in_comm \"bfloat16\"\ntensor_parallelism 1\n"
                                "pipeline_parallelism 1\ncontext_parallelism 1\nexpert_parallelism 1\n"
                                "micro_batch_size 2\nconfig_filename \"config.sh\"\n";

static void add_lines(mllog *log, const char *text)
{
    char key[64], value[MLLOG_BYTES];
    for (; *text; text += strcspn(text, "\n") + 1) {
        assert_int_equal(sscanf(text, "%63s %159[^\n]", key, value), 2);
        mllog_insert(log, NULL, key, value, "");
    }
}

static void add_at(mllog *log, const char *key, const char *value, int64_t samples, const char *more)
{
    char metadata[MLLOG_BYTES];
    snprintf(metadata, sizeof metadata, ", \"samples_count\": %lld%s", (long long)samples, more);
    mllog_insert(log, NULL, key, value, metadata);
}

/* A block and its evaluation, of which four lines come at the end. */
static void add_block(mllog *log, int64_t from, int64_t to, const char *loss)
{
    add_at(log, "block_start", "null", from, "");
    add_at(log, "block_stop", "null", to, "");
    add_at(log, "eval_start", "null", to, "");
    add_at(log, "eval_accuracy", loss, to, "");
    add_at(log, "eval_stop", "null", to, "");
}

static mllog head(const char *benchmark, int64_t batch, const char *settings)
{
    mllog log = { .n = 0 };
    char  text[600];
    snprintf(text, sizeof text,
             "cache_clear true\ninit_start null\nsubmission_benchmark \"%s\"\nsubmission_org \"ORG\"\n"
             "submission_division \"closed\"\nsubmission_status \"onprem\"\nsubmission_platform \"PLATFORM\"\n"
             "seed 4242\nglobal_batch_size %lld\n",
             benchmark, (long long)batch);
    add_lines(&log, text);
    add_lines(&log, settings);
    add_lines(&log, disclosed);
    add_lines(&log, "init_stop null\nrun_start null\n");
    return log;
}

/* Times in the order of the lines, a minute between them; init_stop a minute behind init_start. */
static mllog shortest(const char *benchmark, int64_t batch, const char *settings, int64_t samples, const char *loss)
{
    mllog   log = head(benchmark, batch, settings);
    int64_t start = START_S * INT64_C(1000);
    bool    running = false;
    add_block(&log, 0, samples, loss);
    add_at(&log, "run_stop", "null", samples, ", \"status\": \"success\"");
    if (settings == settings_8b) add_lines(&log, "train_samples 12288\n");
    for (size_t i = 0; i < log.n; i++) {
        running = running || strcmp(log.lines[i].key, "init_stop") == 0;
        log.lines[i].time_ms = running ? start += 60000 : start;
    }
    return log;
}

mllog mllog_8b(void)
{
    return shortest("llama31_8b", 32, settings_8b, 12288, "3.287374973297119");
}

mllog mllog_lora(void)
{
    return shortest("llama2_70b_lora", 8, settings_lora, 1536, "0.9249");
}

mllog mllog_flux(void)
{
    return shortest("flux1", 2048, settings_flux, 9961472, "0.58592");
}

mllog mllog_gpt_oss(void)
{
    return shortest("gpt_oss_20b", 32, settings_8b, 12288, "3.3399");
}

mllog mllog_tiny(double loss)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", loss);
    mllog log = shortest("trainmark_tiny", 32, settings_8b, 12288, text);
    mllog_set(&log, "max_sequence_length", "128");
    mllog_set(&log, "max_steps", "900");
    mllog_set(&log, "opt_learning_rate_decay_steps", "800");
    return log;
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

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
    *line = (mllog_line){ .time_ms = i ? line[-1].time_ms : START_S * INT64_C(1000) };
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

/* --- whole runs --------------------------------------------------------------------------------------------------- */

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

static void set_number(mllog *log, const char *key, int64_t value, bool told)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    mllog_set(log, key, text);
    if (!told) mllog_drop(log, key);
}

static mllog lines_of(const test_mllog *run)
{
    bool    lora = strcmp(run->benchmark, "llama2_70b_lora") == 0;
    mllog   log = head(run->benchmark, run->batch, lora ? settings_lora : settings_8b);
    int64_t interval = run->interval ? run->interval : run->samples, first = run->first ? run->first : interval;
    int64_t n = (run->samples - first) / interval + 1, train_ms = run->run_ms - n * run->eval_ms, done = 0;
    char    status[64];
    if (!lora) mllog_insert(&log, mllog_find(&log, "eval_samples", 0), "train_samples", "3901", "");
    set_number(&log, "gradient_accumulation_steps", 1, true);
    set_number(&log, "global_batch_size", run->batch, run->batch > 0);
    set_number(&log, "seed", run->seed, run->seed >= 0);
    for (size_t i = 0; i < log.n; i++) log.lines[i].time_ms = run->start_ms - (i + 2 < log.n ? run->init_ms : 0);
    if (run->extra)
        snprintf(mllog_insert(&log, mllog_find(&log, "init_stop", 0), "", "", "")->raw, MLLOG_RAW, "%.*s",
                 (int)strlen(run->extra) - 1, run->extra);
    for (int64_t i = 0; i < n; i++) {
        char    loss[32];
        int64_t samples = first + i * interval, begun = run->start_ms + i * run->eval_ms;
        int64_t end = begun + train_ms * samples / run->samples;
        add_block(&log, done, samples, tm_format_double(loss, run->loss + run->slope * (double)(n - 1 - i)));
        mllog_line *l = &log.lines[log.n - 5];
        l[0].time_ms = begun + train_ms * done / run->samples, l[1].time_ms = l[2].time_ms = end;
        l[3].time_ms = l[4].time_ms = end + run->eval_ms;
        done = samples;
    }
    if (!run->status) return log;
    snprintf(status, sizeof status, ", \"status\": \"%s\"", run->status);
    add_at(&log, "run_stop", "null", done, status);
    log.lines[log.n - 1].time_ms = run->start_ms + run->run_ms;
    return log;
}

tm_mllog *test_mllog_make(const test_mllog *run)
{
    tm_text     text = { 0 };
    tm_mllog   *out = NULL;
    const mllog log = lines_of(run);
    mllog_print(&log, &text);
    assert_ok(tm_mllog_parse("a test's log", text.data, text.length, &out, err));
    tm_text_fini(&text);
    return out;
}

void test_mllog_write(const test_mllog *run, const char *folder, int number)
{
    tm_text     text = { 0 }, path = { 0 };
    const mllog log = lines_of(run);
    mllog_print(&log, &text);
    tm_text_printf(&path, "%s/result_%d.txt", folder, number);
    assert_ok(tm_file_write(path.data, text.data, text.length, err));
    tm_text_fini(&text);
    tm_text_fini(&path);
}
