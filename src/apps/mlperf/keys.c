/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/keys.h"

#include "base/file.h"
#include "model/keys.h"
#include "model/presets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key keys[] = {
    { .name = "mlperf.enable", .kind = TM_KEY_BOOL, .fallback = "false",
      .help = "write an MLPerf-style log of the run; needs mlperf.benchmark and mlperf.submission_org" },
    { .name = "mlperf.benchmark", .kind = TM_KEY_CHOICE,
      .choices = "llama31_8b|llama2_70b_lora|flux1|gpt_oss_20b|trainmark_tiny|trainmark_tiny_lora|trainmark_tiny_flux",
      .help = "sets the target loss and the evaluation interval" },
    { .name = "mlperf.base", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "experiment whose model is fine-tuned, beside this file: `trainmark mlperf run` trains it once, before the "
          "first run" },
    { .name = "mlperf.log", .kind = TM_KEY_TEXT, .fallback = "result_0.txt", .quiet = true,
      .when = "mlperf.enable",
      .help = "file of the log, relative to the run directory" },
    { .name = "mlperf.eval_interval_samples", .kind = TM_KEY_I64, .lo = 1, .hi = (double)(1LL << 40),
      .when = "mlperf.enable",
      .help = "samples from one evaluation to the next, rounded up to whole steps; null: the benchmark's" },
    { .name = "mlperf.clear_caches", .kind = TM_KEY_BOOL, .fallback = "true", .quiet = true,
      .when = "mlperf.enable",
      .help = "drop the file system's caches before the run, as root; without it the log does not comply" },
    { .name = "mlperf.submission_org", .kind = TM_KEY_TEXT, .quiet = true, .when = "mlperf.enable",
      .help = "organization that ran it; there is no default" },
    { .name = "mlperf.submission_platform", .kind = TM_KEY_TEXT, .quiet = true,
      .when = "mlperf.enable",
      .help = "system it ran on; null: the name of the processor" },
    { .name = "mlperf.submission_division", .kind = TM_KEY_CHOICE, .fallback = "closed", .choices = "closed|open",
      .quiet = true, .when = "mlperf.enable", .help = "closed: the rules fix model, data and most of the recipe" },
    { .name = "mlperf.submission_status", .kind = TM_KEY_CHOICE, .fallback = "onprem",
      .choices = "onprem|cloud|preview|research", .quiet = true,
      .when = "mlperf.enable",
      .help = "availability of the system" },
    { .name = "mlperf.submission_poc_name", .kind = TM_KEY_TEXT, .quiet = true, .when = "mlperf.enable",
      .help = "name of the contact; null: not logged" },
    { .name = "mlperf.submission_poc_email", .kind = TM_KEY_TEXT, .quiet = true, .when = "mlperf.enable",
      .help = "e-mail address of the contact; null: not logged" },
};
/* clang-format on */

const tm_mlperf_benchmark *tm_mlperf_benchmark_of(const tm_config *config)
{
    return tm_config_bool(config, "mlperf.enable")
               ? tm_mlperf_benchmark_find(tm_config_text(config, "mlperf.benchmark"))
               : NULL;
}

static bool is_empty(const tm_config *config, const char *key)
{
    const char *text = tm_config_text(config, key);
    return !text || !*text;
}

/* The text of a key of a preset; NULL: it says nothing of it. */
static const char *preset_says(const char *preset, const char *key)
{
    size_t           n, length = strlen(key);
    const tm_preset *presets = tm_model_presets(&n);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; strcmp(presets[i].name, preset) == 0 && presets[i].pairs[k]; k++)
            if (strncmp(presets[i].pairs[k], key, length) == 0 && presets[i].pairs[k][length] == '=')
                return presets[i].pairs[k] + length + 1;
    return NULL;
}

static bool same_value(const char *a, const char *b)
{
    char  *end[2];
    double x = strtod(a, &end[0]), y = strtod(b, &end[1]);
    bool   numbers = *a && *b && !*end[0] && !*end[1];
    return numbers ? x <= y && x >= y : strcmp(a, b) == 0;
}

/* One problem among others: the rule goes on. */
#define WRONG(...) tm_config_report(config, tm_fail(err, TM_INVALID, __VA_ARGS__), err)

/* The name of a benchmark is a logged value, too: it must be what runs. Also where a folder describes the model. */
static tm_status check_model(tm_config *config, const tm_mlperf_benchmark *b, tm_error *err)
{
    static const char free_keys[] = " model.name model.flavor model.init model.init_std model.max_seq_len "
                                    "model.hf_assets_path ";
    const char       *preset = tm_config_preset(config); /* a resolved configuration has its name only */
    size_t            n;
    const tm_key     *rows = tm_model_keys(&n);
    if (!preset) preset = tm_config_text(config, "model.name");
    if (!preset || strcmp(preset, b->model) != 0)
        return tm_fail(err, TM_INVALID, "mlperf.benchmark %s (%s) trains the model %s, found %s; name that model",
                       b->name, tm_config_place(config, "mlperf.benchmark"), b->model, preset ? preset : "another one");
    for (size_t i = 0; i < n; i++) {
        char word[96];
        snprintf(word, sizeof word, " %s ", rows[i].name);
        if (strstr(free_keys, word)) continue;
        const char *wanted = preset_says(preset, rows[i].name), *is = tm_config_text(config, rows[i].name);
        if (tm_config_is_changed(config, rows[i].name) && !(wanted && is && same_value(wanted, is)))
            WRONG("mlperf.benchmark %s trains %s as it is; leave out %s (%s)", b->name, b->model, rows[i].name,
                  tm_config_place(config, rows[i].name));
        else if (wanted && is && !same_value(wanted, is))
            WRONG("mlperf.benchmark %s trains %s, whose %s is %s; found %s (%s)", b->name, b->model, rows[i].name,
                  wanted, is, tm_config_place(config, rows[i].name));
    }
    return TM_OK;
}

static tm_status check_data(tm_config *config, const tm_mlperf_benchmark *b, tm_error *err)
{
    const char *source = tm_config_text(config, "data.source"), *key = "data.flow_protocol";
    if (strcmp(source, b->source) != 0)
        WRONG("mlperf.benchmark %s is trained on data.source %s, found %s (%s)", b->name, b->source, source,
              tm_config_place(config, "data.source"));
    if (b->protocol && tm_config_is_set(config, key) && strcmp(tm_config_text(config, key), b->protocol) != 0)
        WRONG("mlperf.benchmark %s is evaluated by %s %s, found %s (%s)", b->name, key, b->protocol,
              tm_config_text(config, key), tm_config_place(config, key));
    static const char *const times[] = { "data.flow_times", "data.flow_shift" };
    for (size_t i = 0; b->protocol && i < sizeof times / sizeof times[0]; i++)
        if (tm_config_text(config, times[i]))
            WRONG("mlperf.benchmark %s is trained at the times of %s %s; leave out %s (%s)", b->name, key, b->protocol,
                  times[i], tm_config_place(config, times[i]));
    return TM_OK;
}

/* Adapters of weights that are there, or all weights from the beginning. */
static tm_status check_weights(tm_config *config, const tm_mlperf_benchmark *b, tm_error *err)
{
    const char *folder = tm_config_text(config, "model.hf_assets_path");
    char        model[1024] = "";
    bool        ranks = tm_config_i64(config, "lora.rank") > 0;
    if (b->adapters != ranks)
        return tm_fail(err, TM_INVALID, "mlperf.benchmark %s (%s) trains %s; %s", b->name,
                       tm_config_place(config, "mlperf.benchmark"),
                       ranks ? "all weights" : "adapters (LoRA) of a frozen model",
                       ranks ? "leave out lora.rank" : "give lora.rank");
    if (folder) snprintf(model, sizeof model, "%s/config.json", folder);
    if (!b->adapters && tm_file_exists(model)) /* else it is a tokenizer's */
        return tm_fail(err, TM_INVALID, "mlperf.benchmark %s trains new weights; leave out model.hf_assets_path (%s)",
                       b->name, tm_config_place(config, "model.hf_assets_path"));
    if (!b->adapters || folder) return TM_OK;
    if (tm_config_plans(config)) { /* those that a file of another program names are left out by name */
        if (!tm_config_weights(config))
            tm_config_leave_out(config, "the weights of the base model (model.hf_assets_path)");
        return TM_OK;
    }
    return tm_fail(err, TM_INVALID,
                   "mlperf.benchmark %s (%s) fine-tunes a base model, but model.hf_assets_path names none; give its "
                   "folder%s",
                   b->name, tm_config_place(config, "mlperf.benchmark"),
                   b->public ? "" : ", or let `trainmark mlperf run` make it by mlperf.base");
}

static tm_status check_run(tm_config *config, const tm_mlperf_benchmark *b, tm_error *err)
{
    if (is_empty(config, "mlperf.submission_org"))
        WRONG("mlperf.enable (%s) wants mlperf.submission_org: who ran it has no default",
              tm_config_place(config, "mlperf.enable"));
    if (tm_config_bool(config, "checkpoint.enable"))
        WRONG("checkpoint.enable (%s) and mlperf.enable: the clock of such a run may not pause, so it is not resumed; "
              "leave one out",
              tm_config_place(config, "checkpoint.enable"));
    if (!tm_config_bool(config, "validation.enable"))
        WRONG("mlperf.enable wants evaluations, but validation.enable is false (%s)",
              tm_config_place(config, "validation.enable"));
    tm_config_report(config, check_model(config, b, err), err);
    tm_config_report(config, check_data(config, b, err), err);
    return check_weights(config, b, err);
}

/* Fills a key that nobody gave. */
static void settle(tm_config *config, const char *key, const char *value)
{
    if (!tm_config_is_set(config, key)) tm_config_derive(config, key, value, "mlperf.benchmark");
}

static void settle_i64(tm_config *config, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    settle(config, key, text);
}

static tm_status rule(tm_config *config, tm_error *err)
{
    if (!tm_config_bool(config, "mlperf.enable")) return TM_OK;
    if (is_empty(config, "mlperf.benchmark"))
        return tm_fail(err, TM_INVALID, "mlperf.enable (%s) wants mlperf.benchmark: one of %s",
                       tm_config_place(config, "mlperf.enable"), keys[1].choices);
    tm_mlperf_benchmark b = *tm_mlperf_benchmark_find(tm_config_text(config, "mlperf.benchmark"));
    TM_TRY(check_run(config, &b, err));
    int64_t batch = tm_config_i64(config, "training.global_batch_size");
    if (batch < 1) return TM_OK; /* refused by another rule */
    int64_t rows =
        tm_config_i64(config, tm_config_text(config, "validation.local_batch_size") ? "validation.local_batch_size"
                                                                                    : "training.local_batch_size");
    char target[32];
    if (tm_config_text(config, "mlperf.eval_interval_samples"))
        b.interval_samples = tm_config_i64(config, "mlperf.eval_interval_samples");
    settle_i64(config, "validation.freq", tm_mlperf_eval_steps(&b, batch));
    settle_i64(config, "validation.first", tm_mlperf_first_eval_step(&b, batch));
    if (b.eval_samples) settle_i64(config, "validation.steps", (b.eval_samples + rows - 1) / rows);
    settle(config, "training.target_loss", tm_format_double(target, b.target));
    settle(config, "training.stop_at_target", "false");
    if (b.protocol) settle(config, "data.flow_protocol", b.protocol);
    return TM_OK;
}

void tm_mlperf_configure(tm_config *config)
{
    tm_config_add_keys(config, keys, sizeof keys / sizeof keys[0]);
    tm_config_add_rule(config, rule);
}
