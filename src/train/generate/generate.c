/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generate/generate.h"

#include "base/clock.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double temperature = 0.8;

enum { CHUNK_BYTES = 1 << 20 };

typedef struct {
    tm_trainer      *trainer;
    const tm_tensor *hidden, *head; /* NULL: another stage has them */
    int64_t          vocab;
    double          *scores; /* (V) */
    double          *turns;  /* of the rows of the head that are here; NULL: their lengths are not changed */
    char            *rows;   /* of the head, as many as are read at a time */
    char            *state;  /* one row of what comes out of the last layer */
} writer;

/* Rows of the head that are read at a time. */
static int64_t rows_of(size_t head_row)
{
    return 1 + (int64_t)(CHUNK_BYTES / head_row);
}

/* scores[first ..] = head[first ..] state / temperature, for `count` rows of the head. */
static void score_rows(writer *w, int64_t first, int64_t count)
{
    int64_t width = w->head->shape.n[1];
    for (int64_t v = 0; v < count; v++) {
        double dot = 0;
        for (int64_t c = 0; c < width; c++)
            dot += tm_value_get(w->rows, w->head->dtype, v * width + c) * tm_value_get(w->state, w->hidden->dtype, c);
        w->scores[first + v] = dot / temperature;
    }
}

/* Of the rows of the head that are here, of which row `first` is the first one. */
static tm_status score_adapter(writer *w, int64_t first, tm_error *err)
{
    int64_t width = w->head->shape.n[1];
    double *state = tm_alloc((size_t)width * sizeof *state);
    for (int64_t c = 0; c < width; c++) state[c] = tm_value_get(w->state, w->hidden->dtype, c);
    tm_status st = tm_trainer_adapt_logits(w->trainer, state, 1 / temperature, w->turns, w->scores + first, err);
    free(state);
    return st;
}

/* scores = head hidden[row] / temperature, of all ranks that have parts of the head. */
static tm_status score(writer *w, int64_t row, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(w->trainer);
    const tm_cut  *cut = w->head->cut;
    int64_t        width = w->head->shape.n[1];
    int64_t        here = w->head->shape.n[0], first = cut ? w->head->pieces[0].begin : 0;
    size_t         head_row = tm_tensor_bytes(tm_shape_1(width), w->head->dtype),
           state_row = tm_tensor_bytes(tm_shape_1(width), w->hidden->dtype);
    const int64_t part = rows_of(head_row);
    TM_TRY(tm_trainer_read(w->trainer, step->sample_hidden, (size_t)row * state_row, w->state, state_row, err));
    for (int64_t v = 0; v < here; v += part) {
        int64_t n = here - v < part ? here - v : part;
        TM_TRY(tm_trainer_read(w->trainer, step->model.head, (size_t)v * head_row, w->rows, (size_t)n * head_row, err));
        score_rows(w, first + v, n);
    }
    TM_TRY(score_adapter(w, first, err));
    return cut ? tm_trainer_sum(w->trainer, cut->axes, w->scores, (size_t)w->vocab, err) : TM_OK;
}

/* Draws from softmax(head hidden[row] / temperature); the last stage has both, or every stage a piece of the head. */
static tm_status draw(writer *w, int64_t row, double uniform, int32_t *out, tm_error *err)
{
    const int64_t vocab = w->vocab;
    double        most = -(double)INFINITY, sum = 0;
    memset(w->scores, 0, (size_t)vocab * sizeof *w->scores);
    if (w->hidden) TM_TRY(score(w, row, err));
    TM_TRY(tm_trainer_sum(w->trainer, 1U << TM_AXIS_PP, w->scores, (size_t)vocab, err));
    for (int64_t v = 0; v < vocab; v++) most = fmax(most, w->scores[v]);
    for (int64_t v = 0; v < vocab; v++) sum += w->scores[v] = exp(w->scores[v] - most);
    double at = uniform * sum;
    *out = (int32_t)(vocab - 1);
    for (int64_t v = 0; v < vocab; v++)
        if ((at -= w->scores[v]) < 0) {
            *out = (int32_t)v;
            break;
        }
    return TM_OK;
}

/* Goes on with the `prompt` tokens of all[] until there are n more or time is up; *count: tokens of all[]. */
static tm_status go_on(writer *w, uint64_t seed, int64_t prompt, int64_t n, int64_t deadline, int32_t *window,
                       int32_t *all, int64_t *count, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(w->trainer);
    int64_t        seq = step->options.seq, length = prompt;
    for (*count = prompt; *count < prompt + n; ++*count) {
        double late = tm_now_ns() >= deadline; /* ranks end together */
        TM_TRY(tm_trainer_sum(w->trainer, TM_AXES_WORLD, &late, 1, err));
        if (late > 0) break;
        if (length == seq) { /* the window is full: its second half goes on */
            length = seq - seq / 2;
            memmove(window, window + seq / 2, (size_t)length * sizeof *window);
        }
        double  uniform = tm_random_uniform(seed, tm_random_stream("generate"), (uint64_t)*count);
        int32_t next;
        TM_TRY(tm_trainer_write(w->trainer, step->sample_tokens, 0, window, (size_t)seq * sizeof *window, err));
        for (size_t i = 0; i < step->sampling.n; i++)
            TM_TRY(tm_trainer_run(w->trainer, step->sampling.work[i].program, err));
        TM_TRY(draw(w, length - 1, uniform, &next, err));
        window[length++] = all[*count] = next;
    }
    return TM_OK;
}

tm_status tm_generate(tm_trainer *trainer, const tm_source *source, uint64_t seed, int64_t n, double seconds,
                      tm_text *out, char **text, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    TM_ASSERT(step->sampling.n > 0);
    int64_t seq = step->options.seq, prompt = seq / 4 < 64 ? seq / 4 : 64,
            deadline = tm_now_ns() + (int64_t)(seconds * 1e9), count;
    if (prompt < 1) prompt = 1;
    writer w = { .trainer = trainer, .vocab = step->options.shape.vocab_size };
    if (step->sample_hidden != TM_NONE) {
        w.hidden = tm_graph_at(step->graph, step->sample_hidden);
        w.head = tm_graph_at(step->graph, step->model.head);
        size_t head_row = tm_tensor_bytes(tm_shape_1(w.head->shape.n[1]), w.head->dtype);
        w.rows = tm_alloc((size_t)rows_of(head_row) * head_row);
        w.state = tm_alloc(tm_tensor_bytes(tm_shape_1(w.head->shape.n[1]), w.hidden->dtype));
    }
    w.scores = tm_alloc((size_t)w.vocab * sizeof *w.scores);
    tm_split split = tm_source_describe(source)->validation_samples > 0 ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
    int32_t *window = tm_alloc((size_t)(seq + 1) * sizeof *window), *all = tm_alloc((size_t)(prompt + n) * sizeof *all);
    tm_source_sample(source, split, 0, window);
    memcpy(all, window, (size_t)prompt * sizeof *all);
    memset(window + prompt, 0, (size_t)(seq + 1 - prompt) * sizeof *window);
    tm_status st = w.head ? tm_trainer_head_turns(trainer, &w.turns, err) : TM_OK;
    if (st == TM_OK) st = go_on(&w, seed, prompt, n, deadline, window, all, &count, err);
    if (st == TM_OK) *text = tm_source_decode(source, all, count, out);
    free(w.scores);
    free(w.turns);
    free(w.state);
    free(w.rows);
    free(all);
    free(window);
    return st;
}
