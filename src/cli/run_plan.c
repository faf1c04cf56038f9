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
        tm_text_printf(out, "data: not read: %s\n", own.text);
    else if (text.length)
        tm_text_printf(out, "data: %s", text.data);
    tm_text_fini(&text);
}

/* What a dry run finds out: what it needs on its device, and what there is. */
typedef struct {
    const tm_plan *plan;      /* of rank 0 */
    int64_t        available; /* bytes; 0: not known */
    const char    *whose;     /* memory that is */
    char           note[80];  /* what is kept of it */
    const tm_mesh *mesh;
    bool           ranked; /* several ranks */
    rank_plans     ranks;
} fit;

static bool fits(const fit *f)
{
    return f->available <= 0 || explain_most(&f->ranks) <= (size_t)f->available;
}

/* A class of memory with a bar: the whole width is the memory that there is, or the plan where that is larger. */
static void print_class(tm_text *out, const char *name, double bytes, double whole)
{
    enum { CELLS = 40 };
    char text[32], bar[CELLS + 1];
    int  n = whole > 0 && bytes > 0 ? (int)(CELLS * bytes / whole + 0.5) : 0;
    memset(bar, '#', (size_t)n);
    bar[n] = '\0';
    tm_text_printf(out, "  %-12s %12s%s%s\n", name, tm_format_bytes(text, bytes), n ? "  " : "", bar);
}

static void print_memory(const fit *f, tm_text *out)
{
    char   need[32], have[32];
    double most = (double)explain_most(&f->ranks), available = (double)f->available;
    double whole = most > available ? most : available;
    tm_text_printf(out, "\nmemory%s\n", f->ranks.n > 1 ? " of rank 0" : f->ranked ? " of each rank" : "");
    for (size_t i = 0; i < f->plan->n_classes; i++)
        print_class(out, f->plan->by_class[i].name, (double)f->plan->by_class[i].value, whole);
    print_class(out, "plan", (double)f->plan->arena_bytes, whole);
    if (available > most) print_class(out, "free", available - most, whole);
    tm_plan_print_spaces(f->plan, "  ", out);
    explain_plans(&f->ranks, f->mesh, out);
    if (available > 0)
        tm_text_printf(out, "%s %s %s of %s%s\n", tm_format_bytes(need, most), fits(f) ? "fit into" : "do not fit into",
                       tm_format_bytes(have, available), f->whose, f->note);
}

/* The largest batch that fits. Plans of very large ones can take seconds: not far beyond the one that is set. */
static void print_largest(const run_job *j, const fit *f, const tm_sweep_options *search, tm_text *out)
{
    enum { FAR = 4 };
    int64_t  batch, now = tm_config_i64(j->config, "training.local_batch_size");
    tm_error own = { 0 }, refused = { 0 };
    if (tm_cli_largest_batch(search, now, (int64_t)explain_most(&f->ranks), FAR * now, &batch, &refused, &own) !=
        TM_OK) {
        tm_text_printf(out, "largest batch: not found: %s\n", own.text);
        return;
    }
    tm_text_add(out, "largest training.local_batch_size that fits");
    if (tm_config_is_set(j->config, "training.global_batch_size"))
        tm_text_printf(out, " and divides training.global_batch_size %lld",
                       (long long)tm_config_i64(j->config, "training.global_batch_size"));
    tm_text_printf(out, ": %s%lld", batch == FAR * now ? "at least " : "", (long long)batch);
    if (batch == now)
        tm_text_add(out, ", the one that is set\n");
    else if (batch == 0)
        tm_text_printf(out, " (none; %lld is set)\n", (long long)now);
    else
        tm_text_printf(out, " (%lld is set; `auto` takes the largest)\n", (long long)now);
    if (refused.text[0] && !tm_config_is_set(j->config, "training.global_batch_size"))
        tm_text_printf(out, "larger batches are refused: %s\n", refused.text);
}

static void print_plan_text(const run_job *j, const fit *f, const tm_sweep_options *search, tm_text *out)
{
    char n[40], mesh[160];
    tm_text_printf(out, "%s: %s parameters, %s", j->options.model_name,
                   tm_format_grouped(n, tm_model_parameters(&j->options.step.shape)),
                   tm_config_text(j->config, "training.dtype"));
    if (f->ranked) tm_text_printf(out, ", %d ranks (%s)", tm_mesh_ranks(f->mesh), tm_mesh_text(mesh, f->mesh));
    tm_text_add(out, "\n");
    print_memory(f, out);
    print_largest(j, f, search, out);
    tm_cli_print_platform(j->cli, j->device, "platform: ", out);
    print_data(j, out);
    if (tm_config_bool(j->config, "mlperf.enable"))
        tm_text_printf(out, "benchmark: %s of %s\n", tm_config_text(j->config, "mlperf.benchmark"),
                       tm_config_text(j->config, "mlperf.submission_org"));
    tm_cli_add_lines(out, "not included in this plan: ", tm_config_unbuilt(j->config));
    tm_text_printf(out,
                   "run directory: %s\nnothing was trained: --dry-run; --print-config prints the configuration, "
                   "`trainmark explain` the program\n",
                   j->folder.data);
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

/* Whose memory it must fit into. */
static void name_memory(const run_job *j, fit *f)
{
    const tm_gpu_sheet *gpu = j->cli->hardware.gpu;
    char                kept[32], all[32];
    f->available = j->cli->memory_bytes ? j->cli->memory_bytes : tm_memory_available_bytes("");
    f->whose = j->cli->memory_bytes ? "--memory" : "this machine";
    if (!gpu || j->cli->memory_bytes != tm_platform_usable(gpu)) return;
    f->whose = gpu->name;
    snprintf(f->note, sizeof f->note, " (%s of its %s are kept for driver and libraries)",
             tm_format_bytes(kept, (double)(gpu->memory_bytes - f->available)),
             tm_format_bytes(all, (double)gpu->memory_bytes));
}

static tm_status print_config(const run_job *j, tm_error *err)
{
    tm_text out = { 0 };
    tm_config_print_yaml(j->config, &out, true);
    tm_secret_mask(&out);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

tm_status run_print_plan(run_job *j, const tm_sweep_options *search, tm_error *err)
{
    tm_text    out = { 0 };
    char       need[32], have[32];
    tm_chooser chooser = tm_device_chooser(j->device);
    tm_step   *step;
    if (j->cli->print_config) return print_config(j, err);
    TM_TRY(tm_step_create(&j->options.step, &chooser, &step, err));
    fit f = { .plan = step->plan, .mesh = &j->options.step.layout.mesh };
    f.ranked = tm_mesh_ranks(f.mesh) > 1;
    name_memory(j, &f);
    tm_status st = explain_each_rank(&j->options.step, step, &chooser, &f.ranks, err);
    if (st != TM_OK) {
        tm_step_destroy(step);
        return st;
    }
    if (j->cli->json)
        print_plan_json(j, &f, &out);
    else
        print_plan_text(j, &f, search, &out);
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
            : strcmp(tm_config_text(j->config, "activation_checkpoint.mode"), "full") == 0
                ? "lower training.local_batch_size or training.seq_len"
                : "lower training.local_batch_size or training.seq_len, or set activation_checkpoint.mode full");
    tm_step_destroy(step);
    return st;
}
