/* SPDX-License-Identifier: Apache-2.0 */
/* results/metrics.c - a run's figures by the names that files of limits have (system/thresholds.h). */
#include "results/compare.h"
#include "results/internal.h"
#include "results/trend.h"

#include <math.h>
#include <string.h>

/* The word of a cell's PRECISION. */
static const char *precision_word(const char *precision)
{
    static const char *const words[][2] = { { "float32", "fp32" }, { "bfloat16", "bf16" }, { "float16", "fp16" } };
    for (size_t i = 0; precision && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(precision, words[i][0]) == 0) return words[i][1];
    return precision ? precision : "unknown";
}

/* Mean of the counted steps, from the raw times. */
static double mean_seconds(const tm_result *run)
{
    size_t        n;
    const double *seconds = tm_result_numbers(run, "step_seconds", &n);
    double        sum = 0, warmup = tm_result_number(run, "steps/warmup");
    size_t        first = warmup > 0 ? (size_t)warmup : 0;
    for (size_t i = first; i < n; i++) sum += seconds[i];
    return n > first ? sum / (double)(n - first) : (double)NAN;
}

static double option_of(const tm_result *run, const char *key)
{
    tm_text     path = { 0 };
    const char *text;
    double      value;
    tm_text_printf(&path, "configuration/%s", key);
    value = tm_result_number(run, path.data);
    text = tm_result_string(run, path.data);
    if (text) value = strtod(text, NULL);
    tm_text_fini(&path);
    return value;
}

static void name_cells(const tm_result *run, tm_arena *arena, const char *cells[2])
{
    double      batch = option_of(run, "training.local_batch_size"), seq = option_of(run, "training.seq_len");
    double      global = tm_result_number(run, "batch_tokens") * tm_result_number(run, "devices") / seq;
    const char *precision = precision_word(tm_result_string(run, "precision"));
    cells[0] = tm_arena_format(arena, "MBS=%.0f,GBS=%.0f,PRECISION=%s", batch, global, precision);
    cells[1] = tm_arena_format(arena, "NNODES=1,STEPS=%.0f,PRECISION=%s,BATCH=%.0f,GBS=%.0f,SEQLEN=%.0f",
                               tm_result_number(run, "steps/planned"), precision, batch, global, seq);
}

tm_status tm_results_metrics(const tm_result *run, const tm_metric **metrics, size_t *n, const char *cells[2],
                             tm_error *err)
{
    if (tm_result_kind_of(run) != TM_RESULT_RUN)
        return tm_fail(err, TM_INVALID, "'%s' is %s; files of limits are for runs", tm_result_name(run),
                       tm_result_what(run));
    tm_arena    *arena = results_arena(run);
    double       rate = tm_result_number(run, "tokens_per_second_per_device/median");
    double       mean = mean_seconds(run), median = tm_result_number(run, "step_time/median");
    double       slope = tm_results_loss_slope(run);
    const double used = tm_result_number(run, "memory/used_bytes"), limit = tm_result_number(run, "memory/limit_bytes");
    const tm_metric all[] = {
        { "training.tflops_per_sec_per_gpu", tm_result_flops(run, "titan") * rate / 1e12 },
        { "training.tokens_per_sec_per_gpu", rate },
        { "training.tokens_per_sec_total", rate * tm_result_number(run, "devices") },
        { "training.tokens_per_gpu", rate },
        { "training.elapsed_time_per_iteration", 1e3 * mean },
        { "training.step_time_seconds", median },
        { "training.step_time_mean_ms", 1e3 * mean },
        { "training.step_time_p50_ms", 1e3 * median },
        { "training.step_time_p95_ms", 1e3 * tm_result_number(run, "step_time/p95") },
        { "training.mem_usage", used / limit },
        { "training.loss", tm_result_number(run, "loss/last") },
        { "training.final_loss", tm_result_number(run, "loss/last") },
        { "training.loss_decreased", isfinite(slope) ? (slope <= 0 ? 1 : 0) : (double)NAN },
        { "training.eval_loss", tm_result_number(run, "loss/validation") },
    };
    tm_metric *out = tm_arena_take(arena, sizeof all);
    *n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (isfinite(all[i].value)) out[(*n)++] = all[i];
    *metrics = out;
    name_cells(run, arena, cells);
    return TM_OK;
}
