/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generate.h"

#include "base/clock.h"
#include "base/random.h"
#include "graph/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double temperature = 0.8;

/* Draws from softmax(head hidden[row] / temperature). `scores` holds V doubles. */
static int32_t draw(const tm_trainer *trainer, int64_t row, double uniform, double *scores)
{
    const tm_step   *step = tm_trainer_step_of(trainer);
    const tm_tensor *hidden = tm_graph_at(step->graph, step->sample_hidden),
                    *head = tm_graph_at(step->graph, step->model.head);
    const void *h = tm_trainer_address(trainer, step->sample_hidden),
               *w = tm_trainer_address(trainer, step->model.head);
    int64_t          vocab = head->shape.n[0], width = head->shape.n[1];
    double           most = -(double)INFINITY, sum = 0;
    for (int64_t v = 0; v < vocab; v++) {
        double dot = 0;
        for (int64_t c = 0; c < width; c++)
            dot += tm_value_get(w, head->dtype, v * width + c) * tm_value_get(h, hidden->dtype, row * width + c);
        scores[v] = dot / temperature;
        if (scores[v] > most) most = scores[v];
    }
    for (int64_t v = 0; v < vocab; v++) sum += scores[v] = exp(scores[v] - most);
    double at = uniform * sum;
    for (int64_t v = 0; v < vocab; v++)
        if ((at -= scores[v]) < 0) return (int32_t)v;
    return (int32_t)(vocab - 1);
}

char *tm_generate(tm_trainer *trainer, const tm_source *source, uint64_t seed, int64_t n, double seconds, tm_text *out)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    TM_ASSERT(step->sampling.n > 0);
    int64_t seq = step->options.seq, prompt = seq / 4 < 64 ? seq / 4 : 64,
            deadline = tm_now_ns() + (int64_t)(seconds * 1e9);
    if (prompt < 1) prompt = 1;
    tm_split split = tm_source_describe(source)->validation_samples > 0 ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
    int32_t *window = tm_alloc((size_t)(seq + 1) * sizeof *window), *all = tm_alloc((size_t)(prompt + n) * sizeof *all);
    double  *scores = tm_alloc((size_t)step->options.shape.vocab_size * sizeof *scores);
    tm_source_sample(source, split, 0, window);
    memcpy(all, window, (size_t)prompt * sizeof *all);
    memset(window + prompt, 0, (size_t)(seq + 1 - prompt) * sizeof *window);
    int64_t length = prompt, count = prompt;
    for (; count < prompt + n && tm_now_ns() < deadline; count++) {
        if (length == seq) { /* the window is full: its second half goes on */
            length = seq - seq / 2;
            memmove(window, window + seq / 2, (size_t)length * sizeof *window);
        }
        memcpy(tm_trainer_address(trainer, step->sample_tokens), window, (size_t)seq * sizeof *window);
        for (size_t i = 0; i < step->sampling.n; i++) tm_trainer_run(trainer, step->sampling.work[i].program);
        int32_t next =
            draw(trainer, length - 1, tm_random_uniform(seed, tm_random_stream("generate"), (uint64_t)count), scores);
        window[length++] = all[count] = next;
    }
    char *text = tm_source_decode(source, all, count, out);
    free(scores);
    free(all);
    free(window);
    return text;
}
