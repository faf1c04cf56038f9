/* SPDX-License-Identifier: Apache-2.0 */
/* What `plan` says of our program on a machine. */
#include "base/json.h"
#include "cli/plan_one.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double RISKY = 0.92; /* of the room: what fragments and libraries need more is not known */
enum { FAR = 8 };                 /* times the batch that is set: larger ones are not tried */

typedef struct {
    double  need, room;
    int64_t largest;
} fit;

static const char *verdict(const fit *f)
{
    return f->need > f->room ? "OUT OF MEMORY" : f->need > RISKY * f->room ? "AT RISK" : "FITS";
}

static tm_named_i64 largest_class(const tm_plan *plan)
{
    tm_named_i64 best = { "", 0 };
    for (size_t i = 0; i < plan->n_classes; i++)
        if (plan->by_class[i].value > best.value) best = plan->by_class[i];
    return best;
}

/* Which key says how many sequences a program works on. */
static const char *key_of_batch(const plan_one *p)
{
    bool piped = tm_layout_size(&p->run.step.layout, 1U << TM_AXIS_PP) > 1;
    return piped ? "parallelism.pipeline_parallel_microbatch_size" : "training.local_batch_size";
}

static void print_memory(const plan_one *p, const fit *f, tm_text *out)
{
    char need[32], room[32], most[32];
    tm_named_i64 class = largest_class(p->step->plan);
    tm_text_printf(out, "%s: %s of %s on the rank with the most; %s: %s\n", verdict(f), tm_format_bytes(need, f->need),
                   tm_format_bytes(room, f->room), class.name, tm_format_bytes(most, (double)class.value));
    explain_plans(&p->ranks, &p->run.step.layout.mesh, out);
    if (f->largest > 0)
        tm_text_printf(out, "largest %s that fits: %s%lld (%lld is set)\n", key_of_batch(p),
                       f->largest >= FAR * p->run.step.micro_batch ? "at least " : "", (long long)f->largest,
                       (long long)p->run.step.micro_batch);
    else
        tm_text_add(out, "no batch fits: take more devices, parts of matrices (parallelism.tensor_parallel_degree), "
                         "stages, or activation_checkpoint.mode full\n");
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const tm_simulated_line *)a)->seconds, y = ((const tm_simulated_line *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_ledger(const tm_simulation *time, tm_text *out)
{
    enum { CELLS = 30 };
    tm_simulated_line line[TM_SIMULATED_LINES];
    memcpy(line, time->line, sizeof line);
    qsort(line, time->n_lines, sizeof *line, by_seconds);
    tm_text_printf(out, "\npredicted time of a step: %.4g s\n", time->step);
    for (size_t i = 0; i < time->n_lines; i++) {
        double share = line[i].seconds / time->step;
        char   bar[CELLS + 1];
        int    n = (int)(CELLS * share + 0.5);
        if (share < 0.001) continue;
        memset(bar, '#', (size_t)n);
        bar[n] = '\0';
        tm_text_printf(out, "  %-24s %10.4g s %5.1f %%%s%s\n", line[i].name, line[i].seconds, 100 * share,
                       n ? "  " : "", bar);
    }
    tm_text_printf(out, "what limits it: %s, %.0f %% of the time\n", line[0].name, 100 * line[0].seconds / time->step);
}

static tm_rate_format format_of(const plan_one *p)
{
    return strcmp(p->run.step.precision->name, "float32") == 0 ? TM_RATE_F32 : TM_RATE_BF16;
}

static void print_speed(const plan_one *p, double rate, double devices, tm_text *out)
{
    double width = plan_one_width(p), peak = tm_rate_peak(&p->cli.machine->device, format_of(p));
    char   all[40], low[40], high[40];
    tm_text_printf(out, "predicted: %s tokens/s, 90 %% interval %s to %s; %.5g of each device\n",
                   tm_format_grouped(all, (int64_t)(rate + 0.5)), tm_format_grouped(low, (int64_t)(rate * exp(-width))),
                   tm_format_grouped(high, (int64_t)(rate * exp(width))), rate / devices);
    for (int i = 0; i < TM_FLOPS_COUNT; i++) {
        double tflops = rate / devices * 1e-12 *
                        tm_model_flops_per_token(&p->run.step.shape, (tm_flops_convention)i, p->run.step.seq);
        tm_text_printf(out, "  %-12s %8.5g TFLOP/s of each device", tm_flops_convention_name((tm_flops_convention)i),
                       tflops);
        if (peak > 0) tm_text_printf(out, ", MFU %.3g %%", 100 * tflops / peak);
        tm_text_add(out, "\n");
    }
}

void plan_print_supposed(const plan_one *p, tm_text *out)
{
    bool even = p->run.step.shape.moe.experts > 0 && p->cli.imbalance <= 1;
    if (!even && p->cli.loader > 0) return;
    tm_text_printf(out, "supposed: %s%s%s\n", even ? "experts have equal rows (--expert-imbalance 1)" : "",
                   even && p->cli.loader <= 0 ? "; " : "",
                   p->cli.loader <= 0 ? "no step waits for data (--loader-rate)" : "");
}

static void print_text(const plan_one *p, const fit *f, double rate, double devices, tm_text *out)
{
    char n[40], mesh[160];
    tm_text_printf(out, "%s: %s parameters, %s", p->run.model_name,
                   tm_format_grouped(n, tm_model_parameters(&p->run.step.shape)), p->run.step.precision->name);
    if (p->run.step.layout.mesh.degree[0] > 0 && devices > 1)
        tm_text_printf(out, ", %s", tm_mesh_text(mesh, &p->run.step.layout.mesh));
    tm_text_printf(out, "; %lld x %lld tokens, %lld micro-batch%s\n", (long long)p->run.step.micro_batch,
                   (long long)p->run.step.seq, (long long)p->run.step.accumulation,
                   p->run.step.accumulation == 1 ? "" : "es");
    tm_text_printf(out, "hardware: %d x %d x %s\n", p->cli.machine->nodes, p->cli.machine->devices,
                   p->cli.machine->device.name);
    print_memory(p, f, out);
    print_ledger(&p->time, out);
    tm_text_add(out, "\n");
    print_speed(p, rate, devices, out);
    plan_print_cost(p, rate, out);
    tm_text_add(out, "\n");
    plan_print_supposed(p, out);
    tm_text_printf(out,
                   "nothing was measured: the times are predicted from the hardware file; the interval is that of "
                   "published trainings (docs/plan.md)\nthe plan is of the program for %s: kernels and workspaces "
                   "differ on other devices\n",
                   tm_device_describe(p->device)->name);
}

static void print_json(const plan_one *p, const fit *f, double rate, double devices, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    double  width = plan_one_width(p);
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "model", p->run.model_name);
    tm_json_i64(&json, "parameters", tm_model_parameters(&p->run.step.shape));
    tm_json_string(&json, "precision", p->run.step.precision->name);
    tm_json_open(&json, "hardware", '{');
    tm_json_string(&json, "name", p->cli.machine->device.name);
    tm_json_i64(&json, "nodes", p->cli.machine->nodes);
    tm_json_i64(&json, "devices_of_a_node", p->cli.machine->devices);
    tm_json_close(&json, '}');
    tm_json_open(&json, "layout", '{');
    for (int a = 0; a < TM_AXES; a++)
        tm_json_i64(&json, tm_axis_name((tm_axis)a),
                    p->run.step.layout.mesh.degree[0] ? p->run.step.layout.mesh.degree[a] : 1);
    tm_json_i64(&json, "local_batch_size", p->run.step.micro_batch);
    tm_json_i64(&json, "seq_len", p->run.step.seq);
    tm_json_i64(&json, "micro_batches", p->run.step.accumulation);
    tm_json_close(&json, '}');
    tm_json_open(&json, "memory", '{');
    tm_json_string(&json, "verdict", verdict(f));
    tm_json_i64(&json, "plan_bytes", (int64_t)f->need);
    tm_json_i64(&json, "available_bytes", (int64_t)f->room);
    tm_json_i64(&json, "largest_local_batch_size", f->largest);
    for (size_t i = 0; i < p->step->plan->n_classes; i++)
        tm_json_i64(&json, p->step->plan->by_class[i].name, (int64_t)p->step->plan->by_class[i].value);
    tm_json_close(&json, '}');
    tm_json_open(&json, "predicted", '{');
    tm_json_f64(&json, "step_s", p->time.step);
    tm_json_f64(&json, "tokens_per_second", rate);
    tm_json_f64(&json, "tokens_per_second_low", rate * exp(-width));
    tm_json_f64(&json, "tokens_per_second_high", rate * exp(width));
    tm_json_f64(&json, "tokens_per_second_of_a_device", rate / devices);
    tm_json_open(&json, "tflops_of_a_device", '{');
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        tm_json_f64(&json, tm_flops_convention_name((tm_flops_convention)i),
                    rate / devices * 1e-12 *
                        tm_model_flops_per_token(&p->run.step.shape, (tm_flops_convention)i, p->run.step.seq));
    tm_json_close(&json, '}');
    tm_json_open(&json, "seconds", '{');
    for (size_t i = 0; i < p->time.n_lines; i++) tm_json_f64(&json, p->time.line[i].name, p->time.line[i].seconds);
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    plan_cost_json(p, rate, &json);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

tm_status plan_print(const plan_one *p, tm_text *out, tm_error *err)
{
    fit    f = { .need = p->bytes, .room = plan_one_room(p) };
    double devices = (double)p->cli.machine->nodes * p->cli.machine->devices, rate = p->tokens / p->time.step;
    char   need[32], room[32];
    f.largest = plan_one_largest(p, FAR * p->run.step.micro_batch);
    if (p->cli.json)
        print_json(p, &f, rate, devices, out);
    else
        print_text(p, &f, rate, devices, out);
    if (f.need <= f.room) return TM_OK;
    return tm_fail(err, TM_NOMEM, "the plan needs %s, and a rank has %s; --search finds a layout that fits",
                   tm_format_bytes(need, f.need), tm_format_bytes(room, f.room));
}
