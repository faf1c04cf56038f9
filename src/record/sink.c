/* SPDX-License-Identifier: Apache-2.0 */
#include "record/sink.h"

#include "base/again.h"
#include "base/file.h"
#include "base/plain.h"
#include "record/record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tm_status tm_sink_close(tm_sink *sink, tm_error *err)
{
    if (!sink) return TM_OK;
    if (sink->close) sink->close(sink);
    tm_status status = sink->error.status;
    if (status != TM_OK && err && err->status == TM_OK) *err = sink->error;
    free(sink);
    return status;
}

const tm_error *tm_sink_error(const tm_sink *sink)
{
    return sink->error.status == TM_OK ? NULL : &sink->error;
}

void record_text_reserve(tm_text *text, size_t bytes)
{
    text->data = tm_realloc(text->data, bytes);
    text->capacity = bytes;
    text->data[text->length] = '\0';
}

void record_sink_write(tm_sink *sink, const char *path, const tm_text *text)
{
    tm_status status = tm_file_write(path, text->data, text->length, &sink->error);
    TM_ASSERT(status == TM_OK || sink->error.status != TM_OK);
}

void record_sink_append(tm_sink *sink, int fd, const char *path, off_t *complete_bytes, const tm_text *line)
{
    if (sink->error.status != TM_OK) return;
    if (!tm_again_write(fd, line->data, line->length)) {
        (void)tm_fail(&sink->error, TM_IO, "cannot write to '%s': %s; lines after those already in it are lost", path,
                      strerror(errno));
        if (ftruncate(fd, *complete_bytes) != 0) return; /* a torn line stays: the error is told already */
        return;
    }
    *complete_bytes += (off_t)line->length;
}

void run_record_init(run_record *run)
{
    *run = (run_record){ .arena = tm_arena_create() };
}

void run_record_fini(run_record *run)
{
    tm_arena_destroy(run->arena);
}

static const char *keep(run_record *run, const char *text)
{
    tm_text plain = { 0 }; /* of one line */
    tm_plain_add(&plain, text ? text : "", 0);
    const char *kept = tm_arena_text(run->arena, plain.data);
    tm_text_fini(&plain);
    return kept;
}

static void keep_outline(run_record *run, const tm_run_started *start)
{
    tm_line_work   *work = tm_arena_take(run->arena, (start->n_work + 1) * sizeof *work);
    tm_class_bytes *along = tm_arena_take(run->arena, (start->n_memory_along + 1) * sizeof *along);
    for (size_t i = 0; i < start->n_work; i++) {
        work[i] = start->work[i];
        work[i].name = keep(run, start->work[i].name);
    }
    for (size_t i = 0; i < start->n_memory_along; i++) {
        int64_t *bytes = tm_arena_take(run->arena, (start->n_points + 1) * sizeof *bytes);
        memcpy(bytes, start->memory_along[i].bytes, start->n_points * sizeof *bytes);
        along[i] = (tm_class_bytes){ keep(run, start->memory_along[i].name), bytes };
    }
    run->start.work = work;
    run->start.memory_along = along;
}

static void keep_start(run_record *run, const tm_run_started *start)
{
    run->start = *start;
    run->start.model = keep(run, start->model);
    run->start.precision = keep(run, start->precision);
    run->start.device = keep(run, start->device);
    run->start.kernels = start->kernels ? keep(run, start->kernels) : NULL;
    run->start.sums = start->sums ? keep(run, start->sums) : NULL;
    run->start.data_source = keep(run, start->data_source);
    run->start.encoders = start->encoders ? keep(run, start->encoders) : NULL;
    tm_named_f64 *flops = tm_arena_take(run->arena, start->n_flops_per_token * sizeof *flops);
    for (size_t i = 0; i < start->n_flops_per_token; i++)
        flops[i] = (tm_named_f64){ keep(run, start->flops_per_token[i].name), start->flops_per_token[i].value };
    tm_named_i64 *memory = tm_arena_take(run->arena, start->n_memory * sizeof *memory);
    for (size_t i = 0; i < start->n_memory; i++)
        memory[i] = (tm_named_i64){ keep(run, start->memory[i].name), start->memory[i].value };
    keep_outline(run, start);
    run->start.recipe.optimizer = keep(run, start->recipe.optimizer);
    run->start.recipe.schedule = keep(run, start->recipe.schedule);
    const char **formats[] = { &run->start.recipe.precision_linear, &run->start.recipe.precision_attention,
                               &run->start.recipe.precision_communication };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (*formats[i]) *formats[i] = keep(run, *formats[i]);
    run->start.flops_per_token = flops;
    run->start.memory = memory;
    run->started = true;
}

/* The row of a phase, made on first sight; the emitter's own "unaccounted" is left to be worked out. NULL: no row left.
 */
static double *ledger_row(run_ledger *ledger, const char *name)
{
    for (int i = 0; i < ledger->count; i++)
        if (strncmp(ledger->names[i], name, LEDGER_NAME_BYTES - 1) == 0) return &ledger->seconds[i];
    if (ledger->count == LEDGER_ROWS || strcmp(name, "unaccounted") == 0) return NULL;
    snprintf(ledger->names[ledger->count], LEDGER_NAME_BYTES, "%s", name);
    ledger->seconds[ledger->count] = 0;
    return &ledger->seconds[ledger->count++];
}

static void ledger_add(run_ledger *ledger, const tm_step_done *step)
{
    for (size_t i = 0; i < step->n_phases; i++) {
        double *row = ledger_row(ledger, step->phases[i].name);
        if (row) *row += step->phases[i].value;
    }
    ledger->step_seconds += step->seconds;
    ledger->steps++;
}

double run_ledger_unaccounted(const run_ledger *ledger)
{
    double rest = ledger->step_seconds;
    for (int i = 0; i < ledger->count; i++) rest -= ledger->seconds[i];
    return rest > 0 && ledger->steps > 0 ? rest / (double)ledger->steps : 0;
}

/* All looks of a run are of the same tensors. */
static void keep_look(run_record *run, const tm_look *look)
{
    run_looks  *looks = &run->looks;
    size_t      n = look->n_tensors;
    bool        first = looks->looks++ == 0;
    const char *own = first ? keep(run, look->format) : looks->last.format;
    const char *reference = first ? keep(run, look->reference) : looks->last.reference;
    if (first) looks->tensors = tm_arena_take(run->arena, (n + 1) * sizeof *looks->tensors);
    looks->last = *look;
    looks->last.tensors = looks->tensors;
    looks->last.format = own, looks->last.reference = reference;
    for (size_t i = 0; i < n; i++) {
        const char *name = first ? keep(run, look->tensors[i].name) : looks->tensors[i].name;
        const char *kind = first ? keep(run, look->tensors[i].kind) : looks->tensors[i].kind;
        const char *format = first ? keep(run, look->tensors[i].format) : looks->tensors[i].format;
        looks->tensors[i] = look->tensors[i];
        looks->tensors[i].name = name, looks->tensors[i].kind = kind, looks->tensors[i].format = format;
        looks->tensors[i].exponents = looks->tensors[i].reference_exponents = NULL;
    }
    if (look->first) looks->last.first = &looks->tensors[look->first - look->tensors];
    if (look->worst) looks->last.worst = &looks->tensors[look->worst - look->tensors];
    if (!look->first || looks->first_step > 0) return;
    looks->first_step = look->step;
    looks->first_name = looks->last.first->name;
}

void run_record_add(run_record *run, const tm_event *event)
{
    if (event->kind == TM_EVENT_RUN_STARTED) keep_start(run, &event->run_started);
    if (event->kind == TM_EVENT_RUN_ENDED) run->ended = true;
    if (event->kind == TM_EVENT_LOOK) keep_look(run, &event->look);
    if (event->kind != TM_EVENT_STEP_DONE) return;
    if (run->steps == 1) { /* the first step counts only while it is alone */
        memset(run->ledger.seconds, 0, sizeof run->ledger.seconds);
        run->ledger.step_seconds = 0;
        run->ledger.steps = 0;
    }
    ledger_add(&run->ledger, &event->step_done);
    run->last = event->step_done;
    run->last.phases = NULL;
    run->last.n_phases = 0;
    run->stepped = true;
    run->steps++;
    run->targets += event->step_done.target_tokens;
}

void record_print_straggler(tm_json *json, const tm_straggler *straggler)
{
    tm_json_i64(json, "rank", straggler->rank);
    tm_json_string(json, "host", straggler->host);
    tm_json_string(json, "cause", straggler->disturbed ? "other programs" : "slow");
    tm_json_i64(json, "since", straggler->since);
    tm_json_f64(json, "behind_percent", 100 * straggler->behind);
    tm_json_f64(json, "low_percent", 100 * straggler->low);
    tm_json_f64(json, "high_percent", 100 * straggler->high);
    tm_json_string(json, "phase", straggler->phase);
    tm_json_f64(json, "waited_seconds", straggler->waited_seconds);
}
