/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run/outline.h"

#include <stdlib.h>
#include <string.h>

static void add_work(step_outline *out, const char *name, const tm_cost *cost, double times)
{
    size_t i = 0;
    while (i < out->n_work && strcmp(out->work[i].name, name) != 0) i++;
    if (i == TM_LEDGER_LINES) return;
    if (i == out->n_work) out->work[out->n_work++] = (tm_line_work){ .name = name };
    out->work[i].flops += times * cost->flops;
    out->work[i].bytes += times * cost->bytes;
}

static size_t class_of(step_outline *out, const char *name)
{
    size_t i = 0;
    while (i < out->n_classes && strcmp(out->classes[i].name, name) != 0) i++;
    if (i == out->n_classes) out->classes[out->n_classes++] = (tm_class_bytes){ .name = name };
    return i;
}

/* Live bytes by instruction and class, `count` + 1 numbers each. */
typedef struct {
    int64_t *live[TM_MEMORY_CLASSES];
    size_t   count;
} program_bytes;

/* What the tensor takes in the program: while its own instructions run, from when it is written (gradients that lend
 * their memory), or all the time. */
static void add_tensor(const tm_plan *plan, int32_t index, size_t id, size_t at, program_bytes *b)
{
    const tm_place *p = &plan->places[id];
    bool            own = p->program == index && p->shares < 0 && p->first >= 0;
    bool            across = p->program == TM_ACROSS && p->first <= index && index <= p->last;
    bool            always = (p->program == TM_PERSISTENT && p->first == -1) || across;
    if (own) {
        b->live[at][p->first] += (int64_t)p->bytes;
        b->live[at][p->last + 1] -= (int64_t)p->bytes;
    } else if (always) {
        const int32_t *written = plan->programs[index].written;
        b->live[at][written ? written[id] : 0] += (int64_t)p->bytes * (across ? plan->graph->slots : 1);
    }
}

static void take_program(const tm_plan *plan, int32_t index, step_outline *out, program_bytes *b)
{
    const tm_program *program = &plan->programs[index];
    b->count = program->count;
    for (int c = 0; c < TM_MEMORY_CLASSES; c++) b->live[c] = tm_alloc((program->count + 1) * sizeof *b->live[c]);
    for (size_t i = 0; i < plan->graph->n_tensors; i++) {
        const tm_tensor *tensor = &plan->graph->tensors[i];
        if (tensor->space != TM_SPACE_DEVICE || plan->places[i].bytes == 0) continue;
        add_tensor(plan, index, i, class_of(out, tm_role_memory_class(tensor->role)), b);
    }
    for (int c = 0; c < TM_MEMORY_CLASSES; c++)
        for (size_t x = 1; x < program->count; x++) b->live[c][x] += b->live[c][x - 1];
    size_t workspace = class_of(out, tm_role_memory_class(TM_ROLE_WORKSPACE));
    for (size_t x = 0; x < program->count; x++)
        b->live[workspace][x] += (int64_t)program->instructions[x].call.workspace_bytes;
}

static int64_t bytes_at(const program_bytes *b, size_t x)
{
    int64_t sum = 0;
    for (int c = 0; c < TM_MEMORY_CLASSES; c++) sum += b->live[c][x];
    return sum;
}

static size_t fullest(const program_bytes *b, size_t first, size_t end)
{
    size_t at = first;
    for (size_t x = first; x < end; x++)
        if (bytes_at(b, x) > bytes_at(b, at)) at = x;
    return at;
}

/* The programs of a step, each once. */
static size_t programs_of(const tm_step *step, int32_t *indices)
{
    size_t n = 0;
    for (size_t i = 0; i < step->training.n; i++) {
        size_t index = 0, k = 0;
        while (index < step->plan->n_programs &&
               strcmp(step->plan->programs[index].name, step->training.work[i].program->name) != 0)
            index++;
        while (k < n && indices[k] != (int32_t)index) k++;
        if (index == step->plan->n_programs || k < n) continue;
        indices[n++] = (int32_t)index;
    }
    return n;
}

void step_outline_make(const tm_step *step, tm_arena *arena, step_outline *out)
{
    int32_t *indices = tm_arena_take(arena, step->plan->n_programs * sizeof *indices);
    size_t   all = 0, n = programs_of(step, indices);
    for (size_t i = 0; i < n; i++) all += step->plan->programs[indices[i]].count;
    size_t stretch = all / OUTLINE_POINTS + 1;
    *out = (step_outline){ 0 };
    for (size_t i = 0; i < step->training.n; i++) {
        const tm_work *work = &step->training.work[i];
        for (size_t x = 0; x < work->program->count; x++) {
            const tm_instruction *one = &work->program->instructions[x];
            add_work(out, one->line ? one->line : one->call.op->group, &one->cost, (double)work->count);
        }
    }
    int64_t *bytes[TM_MEMORY_CLASSES];
    for (int c = 0; c < TM_MEMORY_CLASSES; c++) bytes[c] = tm_arena_take(arena, (all / stretch + n) * sizeof *bytes[c]);
    for (size_t i = 0; i < n; i++) {
        program_bytes b;
        take_program(step->plan, indices[i], out, &b);
        for (size_t first = 0; first < b.count; first += stretch) {
            size_t end = first + stretch < b.count ? first + stretch : b.count, at = fullest(&b, first, end);
            for (int c = 0; c < TM_MEMORY_CLASSES; c++) bytes[c][out->n_points] = b.live[c][at];
            out->n_points++;
        }
        for (int c = 0; c < TM_MEMORY_CLASSES; c++) free(b.live[c]);
    }
    for (size_t c = 0; c < out->n_classes; c++) out->classes[c].bytes = bytes[c];
}
