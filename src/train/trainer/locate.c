/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/locate.h"

#include "base/arena.h"
#include "graph/value.h"
#include "train/parallel/agree.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 22 };

struct tm_locator {
    tm_trainer         *trainer;
    tm_trainer_observer observer;
    tm_nonfinite        found;
    bool                any;
    int64_t             order;   /* instructions of the step so far */
    double              largest; /* of the operands of the instruction under way; NAN: none is finite */
    const char         *operand;
    char               *chunk; /* (CHUNK) */
};

/* What is in a view. */
typedef struct {
    int64_t count, first, elements; /* first: the number of the first one that is not finite */
    double  value, largest;
} scanned;

/* Formats that have values which are not finite, in whole bytes. */
static bool scans(const tm_view *view)
{
    const tm_dtype d = view->dtype;
    return tm_view_present(view) && view->data && tm_dtype_floating(d) && tm_dtype_bits(d) >= 8 && d != TM_NF4_BLOCKS &&
           d != TM_E4M3_BLOCKS;
}

static void scan_values(const void *values, tm_dtype dtype, int64_t n, int64_t first, scanned *s)
{
    for (int64_t i = 0; i < n; i++) {
        double value = tm_value_get(values, dtype, i);
        if (isfinite(value)) {
            if (!(fabs(value) <= s->largest)) s->largest = fabs(value);
        } else if (s->count++ == 0) {
            s->first = first + i;
            s->value = value;
        }
    }
}

/* Rows of `ld` elements apart, in pieces that fit the chunk. */
static tm_status scan(tm_locator *l, const tm_view *view, scanned *s, tm_error *err)
{
    const size_t  size = tm_dtype_bytes(view->dtype);
    const int64_t n = tm_shape_elements(view->shape), most = CHUNK / (int64_t)size;
    const int64_t columns = view->shape.rank > 0 && n > 0 ? view->shape.n[view->shape.rank - 1] : 1;
    const int64_t run = tm_view_dense(view) ? n : columns;
    tm_device    *device = tm_trainer_device(l->trainer);
    *s = (scanned){ .elements = n, .largest = (double)NAN };
    for (int64_t at = 0; at < n;) {
        int64_t    place = run == n ? at : at / columns * tm_view_ld(view) + at % columns, left = run - at % run;
        int64_t    part = left < most ? left : most;
        tm_address from = { (uintptr_t)view->data + (size_t)place * size };
        TM_TRY(tm_device_read(device, l->chunk, from, (size_t)part * size, err));
        TM_TRY(tm_device_wait(device, err));
        scan_values(l->chunk, view->dtype, part, at, s);
        at += part;
    }
    return TM_OK;
}

/* --- what it was -------------------------------------------------------------------------------------------------- */

static const char *const phases[] = { "forward", "backward", "update" };

/* The largest number of a format, by doubling until it is none any more. */
static double largest_of(tm_dtype dtype)
{
    double most = 1, stored = 0;
    for (double next = 1; next < 1e308; next *= 2) {
        tm_value_set(&stored, dtype, 0, next);
        double back = tm_value_get(&stored, dtype, 0);
        if (!isfinite(back) || back < next) break;
        most = next;
    }
    return 2 * most;
}

static const char *cause_of_operand(const tm_tensor *tensor)
{
    switch (tensor->role) {
    case TM_ROLE_PARAMETER:
    case TM_ROLE_UNIT:
    case TM_ROLE_COPY:
        return TM_CAUSE_WEIGHT;
    case TM_ROLE_INPUT:
        return TM_CAUSE_INPUT;
    default:
        return TM_CAUSE_STATE;
    }
}

static const char *cause_of_output(const tm_locator *l, const tm_instruction *i, tm_dtype dtype)
{
    if (strcmp(i->call.op->group, "communication") == 0) return TM_CAUSE_RECEIVED;
    return l->largest * l->largest > largest_of(dtype) ? TM_CAUSE_OVERFLOW : TM_CAUSE_COMPUTED; /* NAN: computed */
}

static void note(tm_locator *l, const tm_program *program, size_t at, int64_t micro_batch, tm_tensor_id id,
                 const scanned *s, const char *cause)
{
    const tm_instruction *i = &program->instructions[at];
    const tm_tensor      *tensor = tm_graph_at(tm_trainer_step_of(l->trainer)->graph, id);
    const int64_t         columns = tensor->shape.rank > 0 ? tensor->shape.n[tensor->shape.rank - 1] : 1;
    tm_nonfinite         *f = &l->found;
    *f = (tm_nonfinite){ .located = true,
                         .instruction = (int64_t)at,
                         .order = l->order,
                         .layer = i->node->layer,
                         .micro_batch = micro_batch,
                         .row = s->first / columns,
                         .column = s->first % columns,
                         .count = s->count,
                         .elements = s->elements,
                         .value = s->value,
                         .largest = l->largest };
    snprintf(f->cause, sizeof f->cause, "%s", cause);
    snprintf(f->op, sizeof f->op, "%s", i->call.op->name);
    snprintf(f->program, sizeof f->program, "%s", program->name);
    snprintf(f->tensor, sizeof f->tensor, "%s", tensor->name);
    snprintf(f->format, sizeof f->format, "%s", tm_dtype_name(tensor->dtype));
    snprintf(f->phase, sizeof f->phase, "%s", phases[i->node->phase]);
    snprintf(f->operand, sizeof f->operand, "%s", l->operand ? l->operand : "");
    l->any = true;
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* Operands first: an output may take the memory of one. What is not finite among them was so before the step. */
static tm_status before(void *context, const tm_program *program, size_t at, int64_t micro_batch, tm_error *err)
{
    tm_locator           *l = context;
    const tm_instruction *i = &program->instructions[at];
    const tm_graph       *graph = tm_trainer_step_of(l->trainer)->graph;
    int                   culprit = -1;
    scanned               bad = { 0 };
    l->largest = (double)NAN;
    l->operand = NULL;
    for (int k = 0; k < TM_MAX_IN && !l->any; k++) {
        scanned s;
        if (i->node->in[k] == TM_NONE || !scans(&i->call.in[k])) continue;
        TM_TRY(scan(l, &i->call.in[k], &s, err));
        if (s.count > 0 && culprit < 0) culprit = k, bad = s;
        if (!(s.largest > 0) || s.largest <= l->largest) continue; /* NAN: it has none */
        l->largest = s.largest;
        l->operand = tm_graph_at(graph, i->node->in[k])->name;
    }
    if (culprit >= 0)
        note(l, program, at, micro_batch, i->node->in[culprit], &bad,
             cause_of_operand(tm_graph_at(graph, i->node->in[culprit])));
    return TM_OK;
}

static tm_status behind(void *context, const tm_program *program, size_t at, int64_t micro_batch, tm_error *err)
{
    tm_locator           *l = context;
    const tm_instruction *i = &program->instructions[at];
    for (int k = 0; k < TM_MAX_OUT && !l->any; k++) {
        scanned s;
        if (i->node->out[k] == TM_NONE || !scans(&i->call.out[k])) continue;
        TM_TRY(scan(l, &i->call.out[k], &s, err));
        if (s.count > 0)
            note(l, program, at, micro_batch, i->node->out[k], &s, cause_of_output(l, i, i->call.out[k].dtype));
    }
    l->order++;
    return TM_OK;
}

tm_locator *tm_locator_open(tm_trainer *trainer)
{
    tm_locator *l = tm_alloc(sizeof *l);
    l->trainer = trainer;
    l->chunk = tm_alloc(CHUNK);
    l->observer = (tm_trainer_observer){ l, before, behind };
    tm_trainer_observe(trainer, &l->observer);
    return l;
}

void tm_locator_close(tm_locator *l)
{
    if (!l) return;
    tm_trainer_observe(l->trainer, NULL);
    free(l->chunk);
    free(l);
}

const tm_nonfinite *tm_locator_found(const tm_locator *l)
{
    return l->any ? &l->found : NULL;
}

/* --- up to the norm ----------------------------------------------------------------------------------------------- */

/* Does an instruction write what the step began with, but for states, which are small and can be kept? */
static bool writes_weights(const tm_graph *graph, const tm_node *node)
{
    const unsigned kept = 1U << TM_ROLE_PARAMETER | 1U << TM_ROLE_MOMENT | 1U << TM_ROLE_UNIT | 1U << TM_ROLE_COPY;
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (node->out[k] != TM_NONE && kept >> tm_graph_at(graph, tm_graph_base(graph, node->out[k]))->role & 1U)
            return true;
    return false;
}

size_t tm_trainer_norm_end(const tm_trainer *trainer)
{
    const tm_step    *step = tm_trainer_step_of(trainer);
    const tm_program *update = step->update;
    tm_tensor_id      loss = tm_graph_base(step->graph, step->loss), clip = tm_graph_base(step->graph, step->clip);
    size_t            end = 0;
    for (size_t x = 0; x < update->count; x++)
        for (int k = 0; k < TM_MAX_OUT; k++) {
            tm_tensor_id out = update->instructions[x].node->out[k];
            if (out == TM_NONE) continue;
            out = tm_graph_base(step->graph, out);
            if (out == loss || out == clip) end = x + 1;
        }
    for (size_t x = 0; x < end; x++)
        if (writes_weights(step->graph, update->instructions[x].node)) return 0;
    return step->options.early_updates ? 0 : end;
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

/* Is `a` told before `b`? */
static bool earlier(const tm_nonfinite *a, const tm_nonfinite *b)
{
    bool given = strcmp(a->cause, TM_CAUSE_RECEIVED) == 0, also = strcmp(b->cause, TM_CAUSE_RECEIVED) == 0;
    if (given != also) return also;
    return a->order != b->order ? a->order < b->order : a->rank < b->rank;
}

tm_status tm_locate_agree(tm_comm *world, tm_nonfinite *found, bool *any, tm_error *err)
{
    const int    ranks = agree_ranks(world);
    tm_nonfinite own = *found, *all = tm_alloc((size_t)ranks * sizeof own);
    own.located = *any;
    tm_status           st = agree_gather(world, "values that are not finite", &own, sizeof own, all, err);
    const tm_nonfinite *first = NULL;
    for (int r = 0; r < ranks && st == TM_OK; r++)
        if (all[r].located && (!first || earlier(&all[r], first))) first = &all[r];
    if (first) *found = *first;
    *any = first != NULL;
    free(all);
    return st;
}

/* --- in words ----------------------------------------------------------------------------------------------------- */

static const char *value_name(double value)
{
    return isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void tm_nonfinite_print(const tm_nonfinite *f, tm_text *out)
{
    if (!f->located) {
        tm_text_printf(out, "step %lld; `trainmark replay` of it finds the place", (long long)f->step);
        return;
    }
    tm_text_printf(out, "step %lld, ", (long long)f->step);
    if (f->ranks > 1) tm_text_printf(out, "rank %d, ", f->rank);
    tm_text_printf(out, "%s (%s", f->tensor, f->op);
    if (f->layer >= 0) tm_text_printf(out, ", layer %d", f->layer);
    tm_text_printf(out, ", %s", f->phase);
    if (f->micro_batch >= 0) tm_text_printf(out, ", micro-batch %lld", (long long)f->micro_batch);
    tm_text_printf(out, ", program %s, instruction %lld): %lld of %lld values, first %s at row %lld, column %lld; ",
                   f->program, (long long)f->instruction, (long long)f->count, (long long)f->elements,
                   value_name(f->value), (long long)f->row, (long long)f->column);
    if (strcmp(f->cause, TM_CAUSE_WEIGHT) == 0)
        tm_text_add(out, "the weight was so before the step");
    else if (strcmp(f->cause, TM_CAUSE_STATE) == 0)
        tm_text_add(out, "it was so before the step");
    else if (strcmp(f->cause, TM_CAUSE_INPUT) == 0)
        tm_text_add(out, "the batch holds it");
    else if (strcmp(f->cause, TM_CAUSE_RECEIVED) == 0)
        tm_text_add(out, "other ranks sent it, or the sum overflowed");
    else if (isnan(f->largest))
        tm_text_add(out, "its operands are 0");
    else
        tm_text_printf(out, "its operands are finite, the largest %g in %s%s", f->largest, f->operand,
                       strcmp(f->cause, TM_CAUSE_OVERFLOW) == 0 ? ": an overflow" : "");
}

static void print_place(const tm_nonfinite *f, tm_json *json)
{
    tm_json_i64(json, "rank", f->rank);
    tm_json_string(json, "cause", f->cause);
    tm_json_string(json, "op", f->op);
    tm_json_string(json, "tensor", f->tensor);
    tm_json_string(json, "format", f->format);
    tm_json_i64(json, "layer", f->layer);
    tm_json_string(json, "phase", f->phase);
    tm_json_i64(json, "micro_batch", f->micro_batch);
    tm_json_string(json, "program", f->program);
    tm_json_i64(json, "instruction", f->instruction);
    tm_json_open(json, "element", '[');
    tm_json_i64(json, NULL, f->row);
    tm_json_i64(json, NULL, f->column);
    tm_json_close(json, ']');
    tm_json_i64(json, "count", f->count);
    tm_json_i64(json, "elements", f->elements);
    tm_json_string(json, "value", value_name(f->value));
    tm_json_f64(json, "largest_operand", f->largest);
    tm_json_string(json, "operand", f->operand[0] ? f->operand : NULL);
    tm_json_bool(json, "repeated", f->repeated);
}

void tm_nonfinite_json(const tm_nonfinite *f, const char *key, tm_json *json)
{
    tm_text place = { 0 };
    if (!f) {
        tm_json_string(json, key, NULL);
        return;
    }
    tm_nonfinite_print(f, &place);
    tm_json_open(json, key, '{');
    tm_json_i64(json, "step", f->step);
    tm_json_string(json, "place", place.data);
    tm_json_bool(json, "located", f->located);
    if (f->located) print_place(f, json);
    tm_json_close(json, '}');
    tm_text_fini(&place);
}
