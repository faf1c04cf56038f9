/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark plan --as torchtitan`: the same training in a trainer based on PyTorch. */
#include "base/json.h"
#include "cli/plan_one.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tm_status no_such(const char *name, tm_error *err)
{
    tm_text names = { 0 };
    for (size_t i = 0; tm_trainer_row_at(i); i++)
        tm_text_printf(&names, "%s%s", i ? ", " : "", tm_trainer_row_at(i)->name);
    tm_status st = tm_fail(err, TM_INVALID, "--as '%.40s': wanted one of %s", name, names.data);
    tm_text_fini(&names);
    return st;
}

static int degree(const tm_layout *layout, tm_axis axis)
{
    return layout->mesh.degree[0] > 0 ? layout->mesh.degree[axis] : 1;
}

static tm_again again_of(const tm_config *config)
{
    const char *mode = tm_config_text(config, "activation_checkpoint.mode");
    if (strcmp(mode, "full") == 0) return TM_AGAIN_FULL;
    return strcmp(mode, "selective") == 0 ? TM_AGAIN_PER_OP : TM_AGAIN_NONE;
}

static tm_status job_of(plan_one *p, tm_their_job *j, tm_error *err)
{
    const tm_step_options *o = &p->run.step;
    const tm_layout       *l = &o->layout;
    const tm_trainer_row  *trainer = tm_trainer_row_find(p->cli.as);
    if (!trainer) return no_such(p->cli.as, err);
    if (tm_model_images(&o->shape))
        return tm_fail(err, TM_UNSUPPORTED, "--as: models of images are not described for other trainers");
    *j = (tm_their_job){
        .trainer = trainer, .device = &p->cli.machine->device, .shape = o->shape, .sharing = trainer->sharing
    };
    j->fusion = trainer->fusion;
    j->format = o->quantize.on ? TM_RATE_FP8 : strcmp(o->precision->name, "float32") == 0 ? TM_RATE_F32 : TM_RATE_BF16;
    j->adapter = o->adapters.rank > 0;
    j->early = trainer->early;
    j->permutes_apart = trainer->permutes_apart;
    j->sequence_parallel = !trainer->early;
    j->fused_loss = strcmp(trainer->name, "torchtitan") == 0;
    j->layout_known = true;
    j->devices = p->cli.machine->nodes * p->cli.machine->devices;
    j->dp = degree(l, TM_AXIS_REPLICATE) * degree(l, TM_AXIS_SHARD);
    j->tp = degree(l, TM_AXIS_TP);
    j->pp = degree(l, TM_AXIS_PP);
    j->cp = degree(l, TM_AXIS_CP);
    j->ep = degree(l, TM_AXIS_EP);
    j->vp = l->chunks > 0 ? l->chunks : 1;
    j->bubble = 1;
    j->imbalance = p->cli.imbalance;
    j->loader = p->cli.loader;
    j->micro_batch = (double)o->micro_batch;
    j->accumulation = (double)o->accumulation;
    j->seq = (double)o->seq;
    j->again = again_of(p->config);
    if (tm_rate_best(j->device, j->format) <= 0)
        return tm_fail(err, TM_INVALID, "the file of %s has no rate of products in that format", j->device->name);
    return TM_OK;
}

static void print_text(const plan_one *p, const tm_their_job *j, const tm_their_time *t, const tm_their_memory *m,
                       double room, tm_text *out)
{
    char   need[32], have[32], all[40];
    double width = plan_one_width(p), rate = t->tokens_per_second * j->devices;
    tm_text_printf(out, "%s as %s (%s) on %d x %s\n", p->run.model_name, j->trainer->name, j->trainer->what, j->devices,
                   j->device->name);
    tm_text_printf(out, "%s: %s of %s on the device with the most\n", m->needed <= room ? "FITS" : "OUT OF MEMORY",
                   tm_format_bytes(need, m->needed), tm_format_bytes(have, room));
    for (int i = 0; i < TM_THEIRS_CLASSES; i++)
        if (m->bytes[i] > 0)
            tm_text_printf(out, "  %-34s %12s\n", tm_their_class_name((tm_their_class)i),
                           tm_format_bytes(need, m->bytes[i]));
    tm_text_printf(out, "\npredicted time of a step: %.4g s\n", t->step);
    for (int i = 0; i < TM_THEIR_TIMES; i++)
        if (t->seconds[i] > 0.001 * t->step)
            tm_text_printf(out, "  %-34s %10.4g s %5.1f %%\n", tm_their_line_name((tm_their_line)i), t->seconds[i],
                           100 * t->seconds[i] / t->step);
    tm_text_printf(out, "\npredicted: %s tokens/s, %.5g of each device, 90 %% interval %.5g to %.5g\n",
                   tm_format_grouped(all, (int64_t)(rate + 0.5)), t->tokens_per_second,
                   t->tokens_per_second * exp(-width), t->tokens_per_second * exp(width));
    plan_print_cost(p, rate, out);
    plan_print_supposed(p, out);
    tm_text_add(
        out,
        "nothing was measured: `trainmark plan --explain` prints the constants, docs/plan-theirs.md the formulas\n");
}

static void print_json(const plan_one *p, const tm_their_job *j, const tm_their_time *t, const tm_their_memory *m,
                       double room, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    double  width = plan_one_width(p);
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "model", p->run.model_name);
    tm_json_string(&json, "as", j->trainer->name);
    tm_json_string(&json, "hardware", j->device->name);
    tm_json_i64(&json, "devices", j->devices);
    tm_json_open(&json, "memory", '{');
    tm_json_string(&json, "verdict", m->needed <= room ? "FITS" : "OUT OF MEMORY");
    tm_json_f64(&json, "total", m->total);
    for (int i = 0; i < TM_THEIRS_CLASSES; i++) tm_json_f64(&json, tm_their_class_name((tm_their_class)i), m->bytes[i]);
    tm_json_close(&json, '}');
    tm_json_open(&json, "predicted", '{');
    tm_json_f64(&json, "step_s", t->step);
    tm_json_f64(&json, "tokens_per_second_of_a_device", t->tokens_per_second);
    tm_json_f64(&json, "tokens_per_second_of_a_device_low", t->tokens_per_second * exp(-width));
    tm_json_f64(&json, "tokens_per_second_of_a_device_high", t->tokens_per_second * exp(width));
    tm_json_open(&json, "seconds", '{');
    for (int i = 0; i < TM_THEIR_TIMES; i++) tm_json_f64(&json, tm_their_line_name((tm_their_line)i), t->seconds[i]);
    tm_json_close(&json, '}');
    tm_json_close(&json, '}');
    plan_cost_json(p, t->tokens_per_second * j->devices, &json);
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

tm_status plan_as(plan_one *p, tm_text *out, tm_error *err)
{
    tm_their_job  job;
    tm_parameters known = tm_parameters_fitted();
    TM_TRY(job_of(p, &job, err));
    tm_their_time   t = tm_their_time_of(&job, &known);
    tm_their_memory m = tm_their_memory_of(&job, t.again, &known);
    double          room = tm_their_room(job.device, &known);
    (p->cli.json ? print_json : print_text)(p, &job, &t, &m, room, out);
    char need[32], have[32];
    return m.needed <= room ? TM_OK
                            : tm_fail(err, TM_NOMEM, "%s would need %s, and a device has %s", job.trainer->name,
                                      tm_format_bytes(need, m.needed), tm_format_bytes(have, room));
}
