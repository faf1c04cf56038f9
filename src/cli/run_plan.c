/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark run --dry-run`: what would be trained, in how much memory. */
#include "base/json.h"
#include "base/plain.h"
#include "base/secret.h"
#include "cli/explain_ranks.h"
#include "cli/run_job.h"
#include "base/cpu.h"

/* What opening the data would take; data that is not here does not stop a plan. */
static void print_data(const run_job *j, tm_text *out)
{
    tm_text  text = { 0 };
    tm_error own = { 0 };
    if (tm_source_outline(&j->options.source, &text, &own) != TM_OK)
        tm_text_printf(out, "# data: not read: %s\n", own.text);
    else if (text.length)
        tm_text_printf(out, "# data: %s", text.data);
    tm_text_fini(&text);
}

/* What a dry run finds out: what it needs on its device, and what there is. */
typedef struct {
    const tm_plan *plan;      /* of rank 0 */
    int64_t        available; /* bytes; 0: not known */
    const char    *whose;     /* memory that is */
    rank_plans     ranks;
} fit;

static bool fits(const fit *f)
{
    return f->available <= 0 || explain_most(&f->ranks) <= (size_t)f->available;
}

static void print_plan_text(const run_job *j, const fit *f, tm_text *out)
{
    char bytes[32];
    tm_config_print_yaml(j->config, out, true);
    tm_text_printf(out, "\n# model: %s, %lld parameters\n# memory plan: %s\n", j->options.model_name,
                   (long long)tm_model_parameters(&j->options.step.shape),
                   tm_format_bytes(bytes, (double)f->plan->arena_bytes));
    for (size_t i = 0; i < f->plan->n_classes; i++)
        tm_text_printf(out, "#   %-12s %12s\n", f->plan->by_class[i].name,
                       tm_format_bytes(bytes, (double)f->plan->by_class[i].value));
    tm_plan_print_spaces(f->plan, "# ", out);
    explain_plans(&f->ranks, &j->options.step.layout.mesh, out);
    tm_cli_print_platform(j->cli, j->device, "# platform: ", out);
    if (fits(f) && !j->cli->memory_bytes)
        tm_text_add(out, "# fits into the memory of this machine\n"); /* how much is free differs from run to run */
    else
        tm_text_printf(out, "# %s %s of %s\n", fits(f) ? "fits into the" : "does not fit into the",
                       tm_format_bytes(bytes, (double)f->available), f->whose);
    print_data(j, out);
    tm_cli_add_lines(out, "# planned without: ", tm_config_unbuilt(j->config));
    tm_text_printf(out, "# run directory: %s\n# nothing was trained: --dry-run\n", j->folder.data);
}

static void print_plan_json(const run_job *j, const fit *f, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "model", j->options.model_name);
    tm_json_i64(&json, "parameters", tm_model_parameters(&j->options.step.shape));
    tm_json_open(&json, "memory", '{');
    tm_json_i64(&json, "plan_bytes", (int64_t)f->plan->arena_bytes);
    for (size_t i = 0; i < f->plan->n_classes; i++)
        tm_json_i64(&json, f->plan->by_class[i].name, (int64_t)f->plan->by_class[i].value);
    tm_json_close(&json, '}');
    for (size_t i = 0; f->ranks.n > 1 && i < f->ranks.n; i++) {
        if (i == 0) tm_json_open(&json, "ranks", '[');
        tm_json_open(&json, NULL, '{');
        tm_json_i64(&json, "pipeline_part", f->ranks.rows[i].part);
        tm_json_i64(&json, "first_place", f->ranks.rows[i].first);
        tm_json_i64(&json, "last_place", f->ranks.rows[i].last);
        tm_json_i64(&json, "plan_bytes", (int64_t)f->ranks.rows[i].bytes);
        tm_json_close(&json, '}');
        if (i + 1 == f->ranks.n) tm_json_close(&json, ']');
    }
    tm_cli_platform_json(j->cli, j->device, &json);
    if (f->available > 0) tm_json_i64(&json, "available_bytes", f->available);
    tm_json_bool(&json, "fits", fits(f));
    tm_cli_json_lines(&json, "planned_without", tm_config_unbuilt(j->config));
    tm_cli_json_lines(&json, "accepted", tm_config_accepted(j->config));
    tm_json_string(&json, "run_directory", j->folder.data);
    tm_json_open(&json, "configuration", '{');
    tm_config_print_json(j->config, &json);
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

tm_status run_print_plan(run_job *j, tm_error *err)
{
    tm_text    out = { 0 };
    char       need[32], have[32];
    tm_chooser chooser = tm_device_chooser(j->device);
    tm_step   *step;
    TM_TRY(tm_step_create(&j->options.step, &chooser, &step, err));
    const tm_gpu_sheet *gpu = j->cli->hardware.gpu;
    bool                its = gpu && j->cli->memory_bytes == gpu->memory_bytes;
    fit                 f = { step->plan, j->cli->memory_bytes, its ? gpu->name : "--memory", .ranks = { .n = 0 } };
    if (!j->cli->memory_bytes)
        f = (fit){ step->plan, tm_memory_available_bytes(""), "this machine", .ranks = { .n = 0 } };
    tm_status st = explain_each_rank(&j->options.step, step, &chooser, &f.ranks, err);
    if (st != TM_OK) {
        tm_step_destroy(step);
        return st;
    }
    if (j->cli->json)
        print_plan_json(j, &f, &out);
    else
        print_plan_text(j, &f, &out);
    tm_secret_mask(&out);
    st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    if (st == TM_OK && !fits(&f))
        st = tm_fail(
            err, TM_NOMEM, "the plan needs %s and %s are available (%s); %s; --memory SIZE plans for another device",
            tm_format_bytes(need, (double)explain_most(&f.ranks)), tm_format_bytes(have, (double)f.available), f.whose,
            step->plan->persistent_bytes > (size_t)f.available ? "weights, gradients and the optimizer's state alone "
                                                                 "need more: take more devices (--parallelism.ranks N, "
                                                                 "--platform NxGPU) or a smaller model"
                                                               : "lower training.local_batch_size or training.seq_len");
    tm_step_destroy(step);
    return st;
}
