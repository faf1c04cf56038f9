/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generate/generate.h"

#include "base/clock.h"
#include "train/generate/sample.h"

#include <stdlib.h>
#include <string.h>

/* Goes on with the `prompt` tokens of all[] until there are n more or time is up; *count: tokens of all[]. */
static tm_status go_on(tm_trainer *trainer, uint64_t seed, int64_t prompt, int64_t n, int64_t deadline, int32_t *window,
                       int32_t *all, int64_t *count, tm_error *err)
{
    const tm_step   *step = tm_trainer_step_of(trainer);
    const tm_sampler sampler = { .temperature = 0.8, .top_p = 1, .seed = seed };
    int64_t          seq = step->options.seq, vocab = step->options.shape.vocab_size, length = prompt;
    double          *logits = tm_alloc((size_t)vocab * sizeof *logits);
    tm_status        st = TM_OK;
    for (*count = prompt; *count < prompt + n && st == TM_OK; ++*count) {
        double late = tm_now_ns() >= deadline; /* ranks end together */
        st = tm_trainer_sum(trainer, TM_AXES_WORLD, &late, 1, err);
        if (st != TM_OK || late > 0) break;
        if (length == seq) { /* the window is full: its second half goes on */
            length = seq - seq / 2;
            memmove(window, window + seq / 2, (size_t)length * sizeof *window);
        }
        st = tm_trainer_logits(trainer, window, (int32_t)(length - 1), logits, err);
        if (st == TM_OK) window[length++] = all[*count] = tm_sample(&sampler, logits, vocab, *count);
    }
    free(logits);
    return st;
}

tm_status tm_generate(tm_trainer *trainer, const tm_source *source, uint64_t seed, int64_t n, double seconds,
                      tm_text *out, char **text, tm_error *err)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    int64_t        seq = step->options.seq, prompt = seq / 4 < 64 ? seq / 4 : 64,
            deadline = tm_now_ns() + (int64_t)(seconds * 1e9), count;
    if (prompt < 1) prompt = 1;
    tm_split split = tm_source_describe(source)->validation_samples > 0 ? TM_SPLIT_VALIDATION : TM_SPLIT_TRAIN;
    int32_t *window = tm_alloc((size_t)(seq + 1) * sizeof *window), *all = tm_alloc((size_t)(prompt + n) * sizeof *all);
    tm_source_sample(source, split, 0, window);
    memcpy(all, window, (size_t)prompt * sizeof *all);
    memset(window + prompt, 0, (size_t)(seq + 1 - prompt) * sizeof *window);
    tm_status st = go_on(trainer, seed, prompt, n, deadline, window, all, &count, err);
    if (st == TM_OK) *text = tm_source_decode(source, all, count, out);
    free(all);
    free(window);
    return st;
}
