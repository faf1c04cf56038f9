/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches of whole blocks of rows add up to the bits of one. (Other splits: tests/oracle.) */
#include "support/test.h"
#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gradients of `sequences` x seq in `accumulation` pieces; the trainer is the caller's to close. */
static tm_trainer *split(tm_device *device, tm_step_options options, int64_t sequences, int64_t accumulation,
                         double *loss)
{
    options.accumulation = accumulation;
    options.micro_batch = sequences / accumulation;
    tm_trainer *trainer = test_trainer_open(device, &options, 7);
    test_batch  batch = test_batch_random(sequences, options.seq, options.shape.vocab_size, 8);
    /* the mean is over the targets of the whole batch, wherever they are: none in the first sequence */
    for (int64_t i = 0; i < batch.rows; i++) {
        int64_t sequence = i / options.seq;
        if (sequence != 0 && (sequence == 1 || i % 5 != 0)) continue;
        batch.targets[i] = TM_IGNORED_TARGET;
        batch.target_tokens--;
    }
    *loss = test_gradients(trainer, &batch);
    test_batch_fini(&batch);
    return trainer;
}

/* The gradient of each parameter, in bits. */
static void same_gradients(const tm_trainer *a, const tm_trainer *b, const char *what)
{
    const tm_graph *g = tm_trainer_step_of(a)->graph, *h = tm_trainer_step_of(b)->graph;
    for (size_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TM_ROLE_PARAMETER) continue;
        tm_tensor_id p = g->tensors[t].gradient, q = h->tensors[t].gradient;
        void        *x = test_tensor_read(a, p), *y = test_tensor_read(b, q);
        if (memcmp(x, y, tm_trainer_step_of(a)->plan->places[p].bytes) != 0)
            fail_msg("%s: '%s' differs by %.3g", what, g->tensors[p].name, test_relative_difference(a, b, p, q));
        free(x);
        free(y);
    }
}

TEST(splits_at_512_tokens_change_no_bit)
{
    tm_device *device = test_device_open("cpu", 2);
    for (int kind = 0; kind < 3; kind++) { /* llama; gpt with a head of its own; gpt with a tied one */
        tm_step_options options = test_family_options(kind > 0 ? TM_FAMILY_GPT : TM_FAMILY_LLAMA);
        double          whole_loss, loss;
        options.seq = 512;
        options.recompute.cheap = true;
        options.shape.tied = kind == 2;
        tm_trainer *whole = split(device, options, 4, 1, &whole_loss);
        for (int64_t parts = 2; parts <= 4; parts += 2) {
            char        what[64];
            tm_trainer *part = split(device, options, 4, parts, &loss);
            snprintf(what, sizeof what, "kind %d in %lld parts", kind, (long long)parts);
            if (!(loss == whole_loss)) fail_msg("%s: loss %.17g against %.17g", what, loss, whole_loss);
            same_gradients(part, whole, what);
            tm_trainer_close(part);
        }
        tm_trainer_close(whole);
    }
    tm_device_close(device);
}
