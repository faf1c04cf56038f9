/* SPDX-License-Identifier: Apache-2.0 */
/* record/compare.c - published figures beside those of the run. */
#include "apps/bench/published.h"
#include "base/plain.h"
#include "record/record.h"
#include "record/sink.h"
#include "apps/bench/bench.h"
#include "record/sink_kind.h"
#include "record/table.h"
#include "stats/sampling.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tm_sink       head;
    FILE         *out;
    const char   *model;
    tm_published *reference;
    run_record    run;
} compare_sink;

/* "tflops_exact_causal" */
static void column_name(char out[64], const char *convention)
{
    snprintf(out, 64, "tflops_%s", convention);
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
}

/* The run as one row: its name, its rate, and the arithmetic of that rate by every convention; per device. */
static tm_table *measured_table(const char *model, const tm_run_started *start, const tm_run_ended *end)
{
    char      name[64];
    tm_table *table = tm_table_create("run");
    tm_table_column(table, "case", 0);
    tm_table_column(table, "tokens_per_second", 0);
    for (size_t i = 0; i < start->n_flops_per_token; i++) {
        column_name(name, start->flops_per_token[i].name);
        tm_table_column(table, name, 0);
    }
    double rate = end->speed->median_rate;
    tm_table_row(table);
    tm_table_text(table, "case", model);
    tm_table_f64(table, "tokens_per_second", rate);
    for (size_t i = 0; i < start->n_flops_per_token; i++) {
        column_name(name, start->flops_per_token[i].name);
        tm_table_f64(table, name, rate * start->flops_per_token[i].value / 1e12);
    }
    return table;
}

static void compare(compare_sink *self, const tm_run_ended *end)
{
    tm_table *measured = measured_table(self->model, &self->run.start, end);
    tm_table *table = tm_published_compare(self->reference, measured);
    tm_text   text = { 0 };
    if (!self->model)
        tm_text_printf(
            &text,
            "nothing to compare: dimensions of %s were changed, and there is no published figure of such a model\n",
            self->run.start.model);
    else if (tm_table_n_rows(table) == 0)
        tm_text_printf(&text, "no published figure for %s; `trainmark reference` lists all\n", self->run.start.model);
    else
        tm_table_show(table, &(tm_table_view){ .width = tm_terminal_width(fileno(self->out), TM_TABLE_WIDTH) }, &text);
    if (!tm_plain_put(self->out, text.data, TM_PLAIN_LINES) || fflush(self->out) != 0)
        (void)tm_fail(&self->head.error, TM_IO, "cannot write the comparison: %s", strerror(errno));
    tm_text_fini(&text);
    tm_table_destroy(table);
    tm_table_destroy(measured);
}

static void handle(tm_sink *sink, const tm_event *event)
{
    compare_sink *self = (compare_sink *)sink;
    run_record_add(&self->run, event);
    if (event->kind == TM_EVENT_RUN_ENDED && event->run_ended.verdict != TM_VERDICT_INVALID &&
        isfinite(event->run_ended.speed->median_rate))
        compare(self, &event->run_ended);
}

static void finish(tm_sink *sink)
{
    compare_sink *self = (compare_sink *)sink;
    tm_published_destroy(self->reference);
    run_record_fini(&self->run);
}

tm_status tm_compare_sink_open(const tm_compare_options *options, tm_sink **out, tm_error *err)
{
    tm_published *reference;
    TM_TRY(tm_published_read(options->path, &reference, err));
    compare_sink *self = tm_alloc(sizeof *self);
    *self = (compare_sink){ .head = { .handle = handle, .close = finish },
                            .out = options->out ? options->out : stdout,
                            .model = options->model,
                            .reference = reference };
    run_record_init(&self->run);
    *out = &self->head;
    return TM_OK;
}

/* The model's name if it has the dimensions that the name stands for, else NULL: a published figure is of no other. */
static const char *published_model(const tm_output_options *o)
{
    tm_model_shape        shape;
    const tm_model_shape *own = &o->run->step.shape;
    int64_t               seq;
    const char           *preset = tm_config_preset(o->config);
    if (!preset || tm_bench_model(preset, &shape, &seq, NULL) != TM_OK) return NULL;
    bool same = tm_model_parameters(&shape) == tm_model_parameters(own) && shape.n_layers == own->n_layers;
    for (int i = 0; i < TM_FLOPS_COUNT; i++)
        same = same && tm_model_flops_per_token(&shape, (tm_flops_convention)i, seq) ==
                           tm_model_flops_per_token(own, (tm_flops_convention)i, seq);
    return same ? preset : NULL;
}

static bool compares(const tm_output_options *o)
{
    return o->compare;
}

static tm_status open_compare(const tm_output_options *o, const char *path, tm_arena *arena, tm_sink **out,
                              tm_error *err)
{
    (void)path;
    (void)arena;
    return tm_compare_sink_open(&(tm_compare_options){ .path = o->compare, .model = published_model(o) }, out, err);
}

const record_sink_kind record_compare_kind = { .wanted = compares, .open = open_compare };
