/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/step.c - what a step itself can do, however it was built (build.c). */
#include "train/step/step.h"

#include <stdlib.h>
#include <string.h>

int64_t tm_step_loss_chunk(int64_t rows, int64_t vocab, int64_t least)
{
    const int64_t unit = 512, limit_bytes = 32 << 20;
    if (vocab < 1) return rows; /* there are no logits */
    int64_t fits = limit_bytes / (vocab * 4) / unit * unit;
    if (fits < unit) fits = unit;
    if (fits < least) fits = least;
    return fits < rows ? fits : rows;
}

tm_work *tm_schedule_add(tm_step *step, tm_step_schedule *to)
{
    if (to->n == to->capacity) {
        tm_work *before = to->work;
        to->capacity = to->capacity ? 2 * to->capacity : 8;
        to->work = tm_arena_take(step->graph->arena, to->capacity * sizeof *to->work);
        if (to->n) memcpy(to->work, before, to->n * sizeof *to->work);
    }
    return &to->work[to->n++];
}

double tm_schedule_flops(const tm_step_schedule *schedule)
{
    double flops = 0;
    for (size_t i = 0; i < schedule->n; i++)
        flops += (double)schedule->work[i].count * schedule->work[i].program->cost.flops;
    return flops;
}

void tm_step_destroy(tm_step *step)
{
    if (!step) return;
    tm_plan_destroy(step->plan);
    tm_units_fini(&step->units);
    tm_quantized_fini(&step->quantized);
    tm_microscope_fini(&step->microscope);
    tm_graph_destroy(step->graph);
    free(step);
}
