/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/schedule.c - in which order a step runs its programs. */
#include "train/step/schedule.h"

#include "train/step/stages.h"

static void add_work(tm_step *step, tm_step_schedule *to, const tm_program *program, int64_t micro_batch, int64_t count)
{
    TM_ASSERT(program);
    *tm_schedule_add(step, to) = (tm_work){ .program = program, .micro_batch = micro_batch, .count = count };
}

static void schedule_micro_batches(tm_step *step)
{
    const tm_plan *plan = step->plan;
    int64_t        n = step->options.accumulation;
    int64_t        parts = step->options.layout.parts > 1 ? step->options.layout.parts : 1, each = n / parts;
    for (int64_t part = 0; part < parts; part++) {
        add_work(step, &step->training, step->first, part * each, 1);
        const tm_program *last = tm_plan_program(plan, "last");
        int64_t           further = each - 1 - (last != NULL);
        if (further > 0) add_work(step, &step->training, step->further, part * each + 1, further);
        if (last) add_work(step, &step->training, last, part * each + each - 1, 1);
        if (part + 1 < parts)
            add_work(step, &step->training, tm_plan_program(plan, part ? "part.further" : "part.first"),
                     TM_BEHIND_MICRO_BATCH, 1);
    }
}

/* A program for each stage of this rank. */
static void schedule_held_out(tm_step *step, tm_step_schedule *to, const char *name)
{
    int chunks = stages_cut(step) ? step->model.parallel.chunks : 1;
    for (int c = 0; c < chunks; c++)
        add_work(step, to, tm_plan_program(step->plan, stages_cut(step) ? stages_program(step, name, false, c) : name),
                 0, 1);
}

void step_schedule(tm_step *step)
{
    const tm_plan *plan = step->plan;
    step->first = tm_plan_program(plan, "first");
    step->further = tm_plan_program(plan, "further");
    step->update = tm_plan_program(plan, "update");
    step->evaluate = tm_plan_program(plan, "evaluate");
    step->forward = step->first_row == TM_NONE ? step->evaluate : tm_plan_program(plan, "forward");
    step->sample = tm_plan_program(plan, "sample");
    step->look = tm_plan_program(plan, "microscope");
    step->average = tm_plan_program(plan, "average");
    step->copies = tm_plan_program(plan, "copies");
    if (stages_cut(step))
        stages_schedule(step);
    else
        schedule_micro_batches(step);
    add_work(step, &step->training, step->update, TM_NO_MICRO_BATCH, 1);
    schedule_held_out(step, &step->evaluation, "evaluate");
    if (step->first_row == TM_NONE)
        step->trial = step->evaluation;
    else
        schedule_held_out(step, &step->trial, stages_cut(step) ? "trial" : "forward");
    if (step->options.exact) schedule_held_out(step, &step->exact, "exact");
    if (step->options.validation_batch > 0) schedule_held_out(step, &step->validation, "validate");
    if (step->options.sample) schedule_held_out(step, &step->sampling, "sample");
}
