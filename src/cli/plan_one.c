/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_one.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tm_status plan_one_open(char *const *words, int argc, char *const *more, int n, plan_one *out, tm_error *err)
{
    *out = (plan_one){ .arena = tm_arena_create(), .cli = { .predicts = true } };
    char **all = tm_arena_take(out->arena, (size_t)(argc + n + 1) * sizeof *all);
    for (int i = 0; i < argc; i++) all[i] = words[i];
    for (int i = 0; i < n; i++) all[argc + i] = more[i];
    tm_cli_line *line = tm_arena_take(out->arena, sizeof *line);
    *line = (tm_cli_line){ .command = &tm_command_plan,
                           .name = "plan",
                           .argc = argc + n,
                           .argv = all,
                           .options = &out->cli,
                           .arena = out->arena };
    line->words = tm_arena_take(out->arena, (size_t)(argc + n + 1) * sizeof *line->words);
    out->line = line;
    TM_TRY(tm_cli_configure(line, "tiny-llama", true, &out->config, err));
    if (out->cli.machine) {
        tm_parameters known = tm_parameters_fitted();
        out->machine = *out->cli.machine;
        out->machine.imbalance = out->cli.imbalance;
        out->machine.device = tm_hardware_reached(&out->cli.machine->device, &known);
    }
    return tm_run_options_read(out->config, &out->run, err);
}

void plan_one_fini(plan_one *p)
{
    tm_step_destroy(p->step);
    tm_device_close(p->device);
    tm_config_destroy(p->config);
    tm_arena_destroy(p->arena);
    *p = (plan_one){ 0 };
}

tm_status plan_one_compute(plan_one *p, bool traced, tm_error *err)
{
    TM_TRY(tm_cli_open_device(&p->cli, &p->run, true, &p->device, err));
    tm_chooser chooser = tm_device_chooser(p->device);
    TM_TRY(tm_step_create(&p->run.step, &chooser, &p->step, err));
    TM_TRY(tm_simulate(p->step, &chooser, &p->machine, traced, p->arena, &p->time, err));
    tm_simulate_loader(&p->time, (double)(p->run.step.micro_batch * p->run.step.seq * p->run.step.accumulation),
                       p->cli.loader);
    p->bytes = p->time.bytes;
    p->tokens = (double)(p->run.step.micro_batch * p->run.step.seq * p->run.step.accumulation) *
                tm_layout_data_ranks(&p->run.step.layout);
    return TM_OK;
}

tm_status plan_one_ranks(plan_one *p, tm_error *err)
{
    tm_chooser chooser = tm_device_chooser(p->device);
    TM_TRY(explain_each_rank(&p->run.step, p->step, &chooser, &p->ranks, err));
    p->bytes = (double)explain_most(&p->ranks);
    return TM_OK;
}

double plan_one_room(const plan_one *p)
{
    return (double)p->cli.memory_bytes;
}

double plan_one_width(const plan_one *p)
{
    tm_parameters known = tm_parameters_fitted();
    return known.of[p->run.step.shape.moe.experts > 0 ? TM_PARAMETER_WIDTH_EXPERTS : TM_PARAMETER_WIDTH_DENSE];
}

/* A micro-batch that is tried. */
typedef struct {
    const plan_one *p;
    tm_chooser      chooser;
    tm_step_options options; /* of the rank of the pipeline that needs most */
    double          more;    /* bytes that another rank like it needs beside them */
    bool            divides; /* the sequences of a step are given: micro-batches divide those of a rank */
} trial;

/* Bytes of the plan; INFINITY: none can be made. */
static double bytes_of(const trial *t, int64_t batch)
{
    tm_step_options o = t->options;
    tm_error        own = { 0 };
    tm_step        *step;
    int64_t         sequences = o.micro_batch * o.accumulation;
    o.micro_batch = batch;
    if (t->divides) o.accumulation = sequences / batch;
    if (tm_step_create(&o, &t->chooser, &step, &own) != TM_OK) return (double)INFINITY;
    double bytes = (double)step->plan->arena_bytes;
    tm_step_destroy(step);
    return bytes + t->more;
}

static bool fits(const trial *t, int64_t batch)
{
    return bytes_of(t, batch) <= plan_one_room(t->p);
}

/* A plan grows nearly as its batch does: a guess from two of them, then its neighbours. */
static int64_t largest(const trial *t, int64_t most)
{
    int64_t now = t->options.micro_batch, other = now > 1 ? 1 : 2;
    double  room = plan_one_room(t->p), bytes = t->p->bytes, second = bytes_of(t, other);
    double  each = (bytes - second) / (double)(now - other);
    if (!(each > 0) || isinf(each)) return bytes <= room ? now : second <= room ? other : 0;
    int64_t batch = now + (int64_t)floor((room - bytes) / each);
    if (batch > most) batch = most;
    if (batch < 0) batch = 0;
    while (batch > 0 && !fits(t, batch)) batch--;
    while (batch < most && fits(t, batch + 1)) batch++;
    return batch;
}

int64_t plan_one_largest(const plan_one *p, int64_t most)
{
    trial   t = { .p = p, .chooser = tm_device_chooser(p->device), .options = p->run.step };
    int64_t sequences = t.options.micro_batch * t.options.accumulation;
    int     at[TM_AXES] = { 0 };
    at[TM_AXIS_PP] = p->time.fullest;
    if (t.options.layout.mesh.degree[0] > 0) t.options.layout.rank = tm_mesh_rank(&t.options.layout.mesh, at);
    t.more = p->bytes - p->time.bytes; /* time.bytes: of that rank's plan */
    t.divides = tm_config_is_set(p->config, "training.global_batch_size");
    if (!t.divides) return largest(&t, most);
    for (int64_t batch = most < sequences ? most : sequences; batch > 0; batch--)
        if (sequences % batch == 0 && fits(&t, batch)) return batch;
    return 0;
}
