/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/pictures.c - what a model of images draws after an evaluation: for the first held-out samples' texts, each
 * time from the same noise. */
#include "train/run/run_state.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Room for a held-out sample and what is drawn for it. */
typedef struct {
    void        *field[TM_MAX_FIELDS];
    float       *x, *pixels;
    double      *times;
    const float *text, *pooled; /* of the fields */
} canvas;

static canvas open_canvas(const run *r, int64_t n)
{
    const tm_step_options *step = &r->options->step;
    const tm_flux_shape   *shape = &step->shape.flux;
    canvas                 c = { .x = tm_alloc((size_t)n * sizeof(float)) };
    c.pixels = tm_alloc((size_t)(16 * shape->rows * 16 * shape->columns * 3) * sizeof(float));
    c.times = tm_alloc((size_t)(r->options->pictures->steps + 1) * sizeof *c.times);
    for (int f = 0; f < step->n_fields; f++) {
        c.field[f] = tm_alloc(tm_tensor_bytes(step->fields[f].shape, step->fields[f].dtype));
        if (strcmp(step->fields[f].name, "text") == 0) c.text = c.field[f];
        if (strcmp(step->fields[f].name, "pooled") == 0) c.pooled = c.field[f];
    }
    TM_ASSERT(c.text && c.pooled);
    tm_euler_times_of(r->options->pictures->times, shape->rows * shape->columns, r->options->pictures->steps, c.times);
    return c;
}

static void close_canvas(canvas *c)
{
    for (int f = 0; f < TM_MAX_FIELDS; f++) free(c->field[f]);
    free(c->x);
    free(c->pixels);
    free(c->times);
}

static tm_status draw(run *r, int64_t step, int64_t number, canvas *c, tm_error *err)
{
    const tm_run_pictures  *wanted = r->options->pictures;
    const tm_flux_shape    *shape = &r->options->step.shape.flux;
    const tm_euler_velocity velocity = tm_euler_of_trainer(r->trainer);
    const int64_t           begin = tm_now_ns();
    const tm_euler_prompt   prompt = { .text = c->text, .pooled = c->pooled };
    const tm_euler_drawing  drawing = { .prompt = &prompt, .times = c->times, .steps = wanted->steps };
    int64_t                 weight;
    TM_TRY(tm_source_row(r->held_out, TM_SPLIT_VALIDATION, number, NULL, c->field, &weight, err));
    tm_euler_noise(r->options->seed + (uint64_t)number, velocity.n, c->x);
    TM_TRY(tm_euler_draw(&velocity, &drawing, c->x, err));
    if (!wanted->decode) return TM_OK;
    TM_TRY(wanted->decode(wanted->context, c->x, c->pixels, err));
    tm_event event = { .kind = TM_EVENT_PICTURE };
    event.picture = (tm_picture_drawn){ .step = step,
                                        .number = number,
                                        .height = 16 * shape->rows,
                                        .width = 16 * shape->columns,
                                        .pixels = c->pixels,
                                        .caption = tm_source_caption(r->held_out, TM_SPLIT_VALIDATION, number),
                                        .seconds = (double)(tm_now_ns() - begin) * 1e-9 };
    tm_event_emit(r->bus, &event);
    return TM_OK;
}

tm_status run_draw(run *r, int64_t step, tm_error *err)
{
    const tm_run_pictures *wanted = r->options->pictures;
    if (!wanted || r->evaluates_only) return TM_OK;
    int64_t   held_out = tm_source_describe(r->held_out)->validation_samples;
    canvas    c = open_canvas(r, tm_euler_of_trainer(r->trainer).n);
    tm_status st = TM_OK;
    for (int64_t i = 0; i < wanted->n && i < held_out && st == TM_OK; i++) st = draw(r, step, i, &c, err);
    close_canvas(&c);
    return st;
}
