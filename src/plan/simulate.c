/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate.h"

#include "device/device.h"
#include "plan/instruction.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- a program ---------------------------------------------------------------------------------------------------- */

static void add_line(tm_simulated_line line[TM_SIMULATED_LINES], size_t *n, const char *name, double seconds)
{
    size_t i = 0;
    while (i < *n && strcmp(line[i].name, name) != 0) i++;
    if (i == *n) {
        TM_ASSERT(i < TM_SIMULATED_LINES);
        line[(*n)++] = (tm_simulated_line){ name, 0 };
    }
    line[i].seconds += seconds;
}

/* What the compute stream waits for when it stands still until the end of an instruction of that stream. */
static const char *waited_for(tm_stream stream)
{
    return stream == TM_ON_COPY ? TM_SIMULATED_COPIES : TM_SIMULATED_COMMUNICATION;
}

/* When an instruction may begin; *last: the stream that it waits for longest, its own where it waits for none. */
static double begin_of(const tm_simulated_program *p, const tm_instruction *x, const double *free_at, tm_stream *last)
{
    double begin = free_at[x->stream];
    *last = x->stream;
    for (int s = 0; s < TM_STREAMS; s++) {
        if (x->waits[s] < 0 || p->instruction[x->waits[s]].end <= begin) continue;
        begin = p->instruction[x->waits[s]].end;
        *last = (tm_stream)s;
    }
    return begin;
}

static void add_instruction(tm_simulated_program *p, size_t i, const tm_instruction *x, plan_seconds takes,
                            double *free_at)
{
    tm_stream last;
    double    begin = begin_of(p, x, free_at, &last), end = begin + takes.work + takes.more + takes.launch;
    p->instruction[i] = (tm_simulated_instruction){ begin, end };
    p->busy[x->stream] += end - begin;
    if (x->stream == TM_ON_COMPUTE) {
        if (begin > free_at[x->stream]) add_line(p->line, &p->n_lines, waited_for(last), begin - free_at[x->stream]);
        add_line(p->line, &p->n_lines, tm_ledger_line(x), takes.work);
        if (takes.more > 0) add_line(p->line, &p->n_lines, TM_SIMULATED_IMBALANCE, takes.more);
        add_line(p->line, &p->n_lines, TM_SIMULATED_LAUNCHES, takes.launch);
    }
    free_at[x->stream] = end;
}

tm_status tm_simulate_program(const tm_program *program, size_t tensors, const tm_mesh *mesh,
                              const tm_machine_plan *machine, tm_arena *arena, tm_simulated_program *out, tm_error *err)
{
    double       free_at[TM_STREAMS] = { 0 };
    plan_context context = plan_context_of(machine, mesh, program, tensors);
    tm_status    st = TM_OK;
    *out =
        (tm_simulated_program){ .instruction = tm_arena_take(arena, (program->count + 1) * sizeof *out->instruction) };
    for (size_t i = 0; i < program->count && st == TM_OK; i++) {
        plan_seconds takes;
        st = plan_time_instruction(&context, &program->instructions[i], &takes, err);
        if (st == TM_OK) add_instruction(out, i, &program->instructions[i], takes, free_at);
    }
    plan_context_fini(&context);
    tm_stream last = TM_ON_COMPUTE;
    for (int s = 0; s < TM_STREAMS; s++)
        if (free_at[s] > free_at[last]) last = (tm_stream)s;
    out->seconds = free_at[last];
    if (last != TM_ON_COMPUTE)
        add_line(out->line, &out->n_lines, waited_for(last), out->seconds - free_at[TM_ON_COMPUTE]);
    return st;
}

/* --- the programs of a part --------------------------------------------------------------------------------------- */

/* A piece of a schedule: a program, and how often it runs one after the other. */
typedef struct {
    size_t  program;
    int64_t micro_batch; /* the first; -1: none */
    int64_t count;
} planned_work;

/* A rank of a pipeline, or of all that are alike one: what is kept of its step. */
typedef struct {
    tm_simulated_program *programs; /* those that no step runs have no instructions */
    tm_simulated_piece  **pieces;   /* of a trace: (programs, 1 + instructions) the program, then what it has */
    size_t               *n_pieces;
    bool                 *shown; /* (programs) they are in the trace */
    planned_work         *works;
    size_t                n_works;
    double                work; /* seconds of a step in which it runs programs */
    double                flops, bytes;
} part;

typedef struct {
    const tm_machine_plan *machine;
    tm_arena              *arena;
    part                  *parts; /* (n_parts) */
    int                    n_parts;
    tm_simulation         *out;
    size_t                 room; /* of pieces */
    bool                   traced;
} walk;

static const tm_simulated_program *times_of(const part *p, const planned_work *work)
{
    return &p->programs[work->program];
}

/* The number of a program, which may be one in a slot. */
static size_t number_of(const tm_step *step, const tm_program *program)
{
    const tm_plan *plan = step->plan;
    for (size_t p = 0; p < plan->n_programs; p++)
        if (program == &plan->programs[p]) return p;
    return (size_t)(program - plan->in_slot) % plan->n_programs;
}

/* What a trace says of a program, from its own beginning. */
static void describe_program(const walk *w, part *p, size_t n, const tm_program *program)
{
    tm_simulated_piece *piece = tm_arena_take(w->arena, (program->count + 1) * sizeof *piece);
    const char         *name = tm_arena_format(w->arena, "%s", program->name);
    p->pieces[n] = piece;
    p->n_pieces[n] = program->count + 1;
    *piece++ = (tm_simulated_piece){ .program = name, .seconds = p->programs[n].seconds };
    for (size_t i = 0; i < program->count; i++) {
        const tm_instruction           *x = &program->instructions[i];
        const tm_simulated_instruction *at = &p->programs[n].instruction[i];
        *piece++ =
            (tm_simulated_piece){ .program = name,
                                  .name = x->call.op->name,
                                  .path = tm_arena_format(w->arena, "%s", x->node->module ? x->node->module : ""),
                                  .stream = x->stream,
                                  .begin = at->begin,
                                  .seconds = at->end - at->begin };
    }
}

static tm_status time_part(const walk *w, const tm_step *step, part *p, tm_error *err)
{
    size_t n_programs = step->plan->n_programs;
    p->programs = tm_arena_take(w->arena, n_programs * sizeof *p->programs);
    p->pieces = tm_arena_take(w->arena, n_programs * sizeof *p->pieces);
    p->n_pieces = tm_arena_take(w->arena, n_programs * sizeof *p->n_pieces);
    p->shown = tm_arena_take(w->arena, n_programs * sizeof *p->shown);
    p->works = tm_arena_take(w->arena, (step->training.n + 1) * sizeof *p->works);
    p->n_works = step->training.n;
    p->bytes = (double)step->plan->arena_bytes;
    for (size_t k = 0; k < p->n_works; k++) {
        const tm_work *work = &step->training.work[k];
        size_t         n = number_of(step, work->program);
        planned_work  *own = &p->works[k];
        *own = (planned_work){ n, work->micro_batch, work->count };
        if (work->micro_batch < 0) own->micro_batch = -1;
        if (work->micro_batch < 0 || work->count < 1) own->count = 1;
        if (!p->programs[n].instruction) {
            TM_TRY(tm_simulate_program(&step->plan->programs[n], step->graph->n_tensors, &step->options.layout.mesh,
                                       w->machine, w->arena, &p->programs[n], err));
            if (w->traced) describe_program(w, p, n, &step->plan->programs[n]);
        }
        p->work += (double)own->count * p->programs[n].seconds;
        p->flops += (double)own->count * work->program->cost.flops;
    }
    return TM_OK;
}

/* Steps of the other ranks of the pipeline are those with the first place in all other axes; none is kept. */
static tm_status time_parts(const walk *w, const tm_step *step, const tm_chooser *chooser, tm_error *err)
{
    tm_step_options o = step->options;
    TM_TRY(time_part(w, step, &w->parts[0], err));
    for (int p = 1; p < w->n_parts; p++) {
        int      at[TM_AXES] = { 0 };
        tm_step *own;
        at[TM_AXIS_PP] = p;
        o.layout.rank = tm_mesh_rank(&o.layout.mesh, at);
        TM_TRY(tm_step_create(&o, chooser, &own, err));
        tm_status st = time_part(w, own, &w->parts[p], err);
        tm_step_destroy(own);
        TM_TRY(st);
    }
    return TM_OK;
}

/* --- the trace ---------------------------------------------------------------------------------------------------- */

static void add_piece(walk *w, tm_simulated_piece piece, int number, int64_t micro_batch, double begin)
{
    tm_simulation *s = w->out;
    if (s->n_pieces == w->room) { /* the old ones stay in the arena */
        w->room = w->room ? 2 * w->room : 1024;
        tm_simulated_piece *more = tm_arena_take(w->arena, w->room * sizeof *more);
        if (s->n_pieces) memcpy(more, s->piece, s->n_pieces * sizeof *more);
        s->piece = more;
    }
    piece.part = number;
    piece.micro_batch = micro_batch;
    piece.begin += begin;
    s->piece[s->n_pieces++] = piece;
}

/* A run of a program, and its instructions when they were not shown before. */
static void show_run(walk *w, int number, const planned_work *work, int64_t micro_batch, double begin)
{
    const part *p = &w->parts[number];
    size_t      n = work->program;
    if (!w->traced) return;
    for (size_t i = 0; i < (p->shown[n] ? 1 : p->n_pieces[n]); i++)
        add_piece(w, p->pieces[n][i], number, micro_batch, begin);
    p->shown[n] = true;
}

/* --- a pipeline --------------------------------------------------------------------------------------------------- */

typedef struct {
    const walk          *w;
    tm_pipeline          pipeline;
    const planned_work **of[TM_PIPELINE_RANKS];   /* (actions) the work that an action begins with */
    size_t               n[TM_PIPELINE_RANKS];    /* actions */
    bool                *both[TM_PIPELINE_RANKS]; /* (actions) it is two programs */
    double               bytes;                   /* of a message */
    int                  near;                    /* stages that follow each other on ranks that links join */
} line_up;

/* The works of a part are its actions in their order; a whole backward of an order that parts them is two. */
static void line_up_part(line_up *l, int number)
{
    const planned_work *works = l->w->parts[number].works;
    bool                parts = tm_pipeline_parts(&l->pipeline);
    tm_pipeline_action *actions = tm_pipeline_actions(&l->pipeline, number, &l->n[number]);
    size_t              n = l->n[number], at = 0;
    l->of[number] = tm_arena_take(l->w->arena, (n + 1) * sizeof *l->of[number]);
    l->both[number] = tm_arena_take(l->w->arena, (n + 1) * sizeof *l->both[number]);
    for (size_t k = 0; k < n; k++) {
        while (works[at].micro_batch < 0) at++;
        l->of[number][k] = &works[at];
        l->both[number][k] = parts && actions[k].kind == TM_DO_BACKWARD;
        at += l->both[number][k] ? 2 : 1;
    }
    free(actions);
}

static double length_of(const void *context, int rank, size_t k, bool input)
{
    const line_up      *l = context;
    const part         *p = &l->w->parts[rank];
    const planned_work *work = l->of[rank][k];
    double              first = times_of(p, work)->seconds;
    return l->both[rank][k] && !input ? first + times_of(p, &work[1])->seconds : first;
}

/* Stages pass on the same matrix everywhere; its gradient is as large. */
static double message_bytes(const tm_step *step)
{
    double most = 0, bytes;
    for (size_t k = 0; k < step->training.n && most == 0; k++) {
        const tm_work *work = &step->training.work[k];
        for (size_t x = 0; work->micro_batch >= 0 && x < work->program->count; x++)
            if (plan_is_stage_message(&work->program->instructions[x], &bytes)) most = fmax(most, bytes);
    }
    return most;
}

static double message_of(const void *context, int from, int to)
{
    const line_up *l = context;
    int            here = tm_pipeline_rank(&l->pipeline, from), there = tm_pipeline_rank(&l->pipeline, to);
    return tm_time_send(&l->w->machine->device, l->bytes, here / l->near == there / l->near);
}

/* The programs of a part in front of its micro-batches, or behind them, one after the other; returns their end. */
static double run_works(walk *w, int number, bool in_front, double begin)
{
    const part *p = &w->parts[number];
    bool        seen = false;
    for (size_t k = 0; k < p->n_works; k++) {
        seen = seen || p->works[k].micro_batch >= 0;
        if (p->works[k].micro_batch >= 0 || seen == in_front) continue;
        show_run(w, number, &p->works[k], -1, begin);
        begin += times_of(p, &p->works[k])->seconds;
    }
    return begin;
}

static void show_actions(walk *w, const line_up *l, const tm_pipeline_times *times, int number, double begin)
{
    for (size_t k = 0; k < l->n[number] && w->traced; k++) {
        const planned_work *work = l->of[number][k];
        double              at = begin + times->begin[number][k];
        for (int i = 0; i < (l->both[number][k] ? 2 : 1); i++) {
            show_run(w, number, &work[i], work[i].micro_batch, at);
            at += times_of(&w->parts[number], &work[i])->seconds;
        }
    }
}

/* The pipeline as often as there are parts of the sum, between what all ranks do in front and behind. */
static tm_status run_pipeline(walk *w, const tm_step *step, tm_error *err)
{
    const tm_layout  *layout = &step->options.layout;
    line_up           l = { .w = w, .pipeline = tm_layout_pipeline(layout, step->options.accumulation) };
    tm_pipeline_times times;
    double            front = 0, behind = 0;
    int64_t           again = layout->parts > 1 ? layout->parts : 1;
    TM_TRY(plan_check_messages(w->machine, &layout->mesh, err));
    l.near = plan_group(w->machine, &layout->mesh, 1U << TM_AXIS_PP).near;
    l.bytes = message_bytes(step);
    for (int p = 0; p < w->n_parts; p++) line_up_part(&l, p);
    tm_pipeline_simulate_each(&l.pipeline, &(tm_pipeline_lengths){ length_of, message_of, &l }, &times);
    for (int p = 0; p < w->n_parts; p++) front = fmax(front, run_works(w, p, true, 0));
    for (int64_t k = 0; k < again; k++)
        for (int p = 0; p < w->n_parts; p++) show_actions(w, &l, &times, p, front + (double)k * times.end);
    double end = front + (double)again * times.end;
    for (int p = 0; p < w->n_parts; p++) behind = fmax(behind, run_works(w, p, false, end));
    w->out->step = behind;
    bool ends = !isnan(times.end);
    tm_pipeline_times_fini(&times);
    return ends ? TM_OK
                : tm_fail(err, TM_INVALID,
                          "in the order of parallelism.pipeline_parallel_schedule some ranks wait for ever");
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static void run_alone(walk *w)
{
    const part *p = &w->parts[0];
    for (size_t k = 0; k < p->n_works; k++) {
        const planned_work *work = &p->works[k];
        double              seconds = times_of(p, work)->seconds;
        for (int64_t i = 0; i < work->count && w->traced; i++)
            show_run(w, 0, work, work->micro_batch < 0 ? -1 : work->micro_batch + i,
                     w->out->step + (double)i * seconds);
        w->out->step += (double)work->count * seconds;
    }
}

/* The lines of the part that works longest: what it does, and the time in which it waits for others. */
static void add_up(const walk *w)
{
    tm_simulation *s = w->out;
    for (int p = 0; p < w->n_parts; p++) {
        if (w->parts[p].work > w->parts[s->part].work) s->part = p;
        if (w->parts[p].bytes > w->parts[s->fullest].bytes) s->fullest = p;
    }
    s->bytes = w->parts[s->fullest].bytes;
    const part *slowest = &w->parts[s->part];
    for (size_t k = 0; k < slowest->n_works; k++) {
        double                      count = (double)slowest->works[k].count;
        const tm_simulated_program *times = times_of(slowest, &slowest->works[k]);
        for (size_t i = 0; i < times->n_lines; i++)
            add_line(s->line, &s->n_lines, times->line[i].name, count * times->line[i].seconds);
        for (int i = 0; i < TM_STREAMS; i++) s->busy[i] += count * times->busy[i];
    }
    s->flops = slowest->flops;
    if (w->n_parts > 1) add_line(s->line, &s->n_lines, TM_SIMULATED_BUBBLE, s->step - slowest->work);
}

tm_status tm_simulate(const tm_step *step, const tm_chooser *chooser, const tm_machine_plan *machine, bool traced,
                      tm_arena *arena, tm_simulation *out, tm_error *err)
{
    walk w = { .machine = machine, .arena = arena, .out = out, .traced = traced };
    *out = (tm_simulation){ 0 };
    w.n_parts = tm_layout_size(&step->options.layout, 1U << TM_AXIS_PP);
    w.parts = tm_arena_take(arena, (size_t)w.n_parts * sizeof *w.parts);
    TM_TRY(time_parts(&w, step, chooser, err));
    if (w.n_parts > 1)
        TM_TRY(run_pipeline(&w, step, err));
    else
        run_alone(&w);
    add_up(&w);
    return TM_OK;
}

void tm_simulate_loader(tm_simulation *s, double tokens, double rate)
{
    double wait = rate > 0 ? tokens / rate - s->step : 0;
    if (!(wait > 0)) return;
    add_line(s->line, &s->n_lines, TM_SIMULATED_LOADER, wait);
    s->step += wait;
}
