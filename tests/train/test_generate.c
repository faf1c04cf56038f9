/* SPDX-License-Identifier: Apache-2.0 */
/* Text at the end of a run: each token is drawn from what the model says of those before it, of which a full window
 * keeps its second half. (On other devices, and by ranks: tests/differential.) */
#include "support/test.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/source_files.h"
#include "support/training.h"
#include "train/generate/euler.h"
#include "train/generate/generate.h"
#include "train/generate/sample.h"

enum { VOCAB = 257, SEQ = 16, PROMPT = SEQ / 4, MORE = 40 };

static int64_t expected_text(tm_trainer *trainer, const tm_source *source, uint64_t seed, int32_t *all)
{
    const tm_sampler sampler = { .temperature = 0.8, .top_p = 1, .seed = seed };
    int64_t          from = 0, n = PROMPT;
    double           logits[VOCAB];
    int32_t          window[SEQ + 1];
    tm_source_sample(source, TM_SPLIT_VALIDATION, 0, window);
    memcpy(all, window, PROMPT * sizeof *all);
    for (; n < PROMPT + MORE; n++) {
        memset(window, 0, sizeof window);
        if (n - from == SEQ) from += SEQ / 2;
        memcpy(window, all + from, (size_t)(n - from) * sizeof *window);
        assert_ok(tm_trainer_logits(trainer, window, (int32_t)(n - from - 1), logits, err));
        all[n] = tm_sample(&sampler, logits, VOCAB, n);
    }
    return n;
}

TEST(text_is_drawn_from_what_the_model_says)
{
    tm_source_options of = { .name = "text", .validation_fraction = 0.1, .vocab = VOCAB, .seq = SEQ, .seed = 7 };
    tm_step_options   o = test_llama_options();
    tm_device        *device = test_device_open("cpu", 1);
    tm_source        *source;
    test_source_files_write();
    of.path = test_in_folder("text.txt");
    assert_ok(tm_source_open(&of, &source, err));
    o.seq = SEQ, o.sample = true, o.shape.vocab_size = VOCAB;
    tm_trainer *trainer = test_trainer_open(device, &o, 3);
    test_batch  batch = test_batch_random(2, SEQ, VOCAB, 5);
    for (int t = 1; t < 4; t++) test_step(trainer, t, 0.01, 1, &batch); /* so that places matter */
    for (uint64_t seed = 1; seed < 4; seed++) {
        tm_text wanted = { 0 }, written = { 0 };
        char   *decoded = NULL, *is;
        int32_t all[PROMPT + MORE];
        int64_t n = expected_text(trainer, source, seed, all);
        is = tm_source_decode(source, all, n, &wanted);
        assert_ok(tm_generate(trainer, source, seed, MORE, 60, &written, &decoded, err));
        assert_true(is && decoded);
        assert_int_equal(written.length, wanted.length);
        assert_memory_equal(written.data, wanted.data, wanted.length);
        tm_text_fini(&wanted), tm_text_fini(&written);
    }
    test_batch_fini(&batch);
    tm_trainer_close(trainer);
    tm_source_close(source);
    tm_device_close(device);
}

/* A trainer and a program with the same weights predict the same, each field at its place; a picture is the noise and
 * what lies between the times of the velocity of the prompt, away from that of another one. */
TEST(pictures_are_drawn_along_the_velocity)
{
    enum { STEPS = 3 };
    static const double  times[STEPS + 1] = { 1, 0.7, 0.3, 0 };
    tm_step_options      o = golden_flux_options(&tm_precision_f32);
    const tm_flux_shape *shape = &o.shape.flux;
    tm_device           *device = test_device_open("cpu", 1);
    tm_euler            *euler;
    o.sample = true;
    tm_trainer *trainer = test_trainer_open(device, &o, 3);
    golden_fill(trainer);
    assert_ok(tm_euler_open(device, &o.shape, o.precision, &euler, err));
    const tm_forward       *forward = tm_euler_forward(euler);
    const tm_graph         *from = tm_trainer_step_of(trainer)->graph, *to = forward->plan->graph;
    const tm_euler_velocity of[2] = { tm_euler_of_trainer(trainer), tm_euler_of(euler) };
    for (size_t i = 0; i < from->n_tensors; i++)
        for (size_t k = 0; k < to->n_tensors && from->tensors[i].role == TM_ROLE_PARAMETER; k++) {
            if (strcmp(from->tensors[i].name, to->tensors[k].name) != 0) continue;
            void *values = test_tensor_read(trainer, (tm_tensor_id)i);
            assert_ok(tm_forward_put(forward, (tm_tensor_id)k, values, err));
            assert_ok(tm_device_wait(device, err));
            free(values);
        }
    const int64_t n = of[0].n, texts = shape->text_len * shape->text_dim;
    float        *x = malloc(5 * (size_t)n * sizeof *x), *y = x + n, *v = y + n, *other = v + n, *drawn = other + n;
    float        *text = malloc((size_t)(texts + 1) * sizeof *text), *pooled = malloc((size_t)shape->vector_dim * 4);
    const tm_euler_prompt  prompt = { text, pooled }, none = { text + 1, pooled };
    const tm_euler_drawing drawing = { &prompt, &none, 1.5, times, STEPS, NULL };
    for (int64_t i = 0; i <= texts; i++) text[i] = (float)golden_unit("text", (uint32_t)i);
    for (int64_t i = 0; i < shape->vector_dim; i++) pooled[i] = (float)golden_unit("pooled", (uint32_t)i);
    tm_euler_noise(5, n, x);
    memcpy(drawn, x, (size_t)n * sizeof *x);
    assert_int_equal(of[1].n, n);
    assert_ok(tm_euler_draw(&of[0], &drawing, drawn, err));
    memcpy(y, x, (size_t)n * sizeof *x);
    for (int s = 0; s < STEPS; s++) {
        assert_ok(of[1].predict(of[1].context, &prompt, y, (float)times[s], v, err));
        assert_ok(of[1].predict(of[1].context, &none, y, (float)times[s], other, err));
        for (int64_t i = 0; i < n; i++)
            y[i] += (float)((times[s + 1] - times[s]) * ((double)other[i] + 1.5 * (double)(v[i] - other[i])));
    }
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)(drawn[i] - y[i])) <= 1e-4 && y[i] != x[i]))
            fail_msg("%d: from %g to %g, by a program %g", (int)i, (double)x[i], (double)drawn[i], (double)y[i]);
    free(x), free(text), free(pooled);
    tm_euler_close(euler);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST_FIXTURE(NULL, test_folder_teardown)
