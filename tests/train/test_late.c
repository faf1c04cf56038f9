/* SPDX-License-Identifier: Apache-2.0 */
/* On the device `late`, which does nothing before it is waited for and hides its memory, as on cpu: what is fed is
 * there when a program runs, and text is drawn from what the model says. Whole runs on it: tests/differential. */
#include "support/test.h"
#include "data/source.h"
#include "ranks_fixture.h"
#include "support/folder.h"
#include "train/generate/generate.h"
#include "support/full_config.h"

enum { VOCAB = 257, SEQ = 16 };

static tm_step_options options_of_run(void)
{
    tm_step_options o = test_llama_options();
    o.shape.n_layers = 1;
    o.seq = SEQ;
    o.sample = true;
    return o;
}

/* What comes out of the last layer for a token of the window, counted from 0: logits of a head that is the identity. */
static float *hidden_of(tm_trainer *trainer, const int32_t *window, int32_t token)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    int64_t        dim = step->options.shape.dim, vocab = step->options.shape.vocab_size;
    tm_error       err = { 0 };
    float         *head = calloc((size_t)(vocab * dim), sizeof *head), *hidden = malloc((size_t)dim * sizeof *hidden);
    double        *logits = malloc((size_t)vocab * sizeof *logits);
    assert_true(head && hidden && logits && vocab >= dim);
    for (int64_t c = 0; c < dim; c++) head[c * dim + c] = 1;
    test_tensor_write(trainer, step->model.head, head);
    assert_int_equal(tm_trainer_logits(trainer, window, token, logits, &err), TM_OK);
    for (int64_t c = 0; c < dim; c++) hidden[c] = (float)logits[c];
    free(head);
    free(logits);
    return hidden;
}

/* A head made so that after the true beginning of the text '!' is certain, '#' one token earlier, and '?' after four
 * zeros. */
TEST(text_is_drawn_from_what_the_model_says)
{
    enum { PROMPT = SEQ / 4, MANY = 300 };
    char             *folder = test_tree_make();
    tm_source_options text = { .name = "text", .validation_fraction = 0.1, .vocab = VOCAB, .seq = SEQ, .seed = 7 };
    tm_text           squares = { 0 };
    for (int i = 0; i < 2000; i++) tm_text_printf(&squares, "%d\n", i * i);
    test_file_write(folder, "text.txt", squares.data);
    text.path = folder;
    for (int d = 0; d < 2; d++) {
        tm_device      *device = test_device_open(d ? "late" : "cpu", 1);
        tm_step_options o = options_of_run();
        int64_t         dim = o.shape.dim;
        o.shape.vocab_size = MANY;
        tm_trainer *trainer = test_trainer_open(device, &o, 3);
        tm_error    err = { 0 };
        tm_source  *source;
        int32_t     window[SEQ + 1], zeros[SEQ] = { 0 };
        if (tm_source_open(&text, &source, &err) != TM_OK) fail_msg("%s", err.text);
        tm_source_sample(source, TM_SPLIT_VALIDATION, 0, window);
        memset(window + PROMPT, 0, sizeof window - PROMPT * sizeof *window);
        float *is = hidden_of(trainer, window, PROMPT - 1), *before = hidden_of(trainer, window, PROMPT - 2);
        float *other = hidden_of(trainer, zeros, PROMPT - 1);
        float *head = calloc(MANY * (size_t)dim, sizeof *head);
        assert_non_null(head);
        for (int64_t c = 0; c < dim; c++) {
            head['!' * dim + c] = 2 * is[c];
            head['#' * dim + c] = 2 * before[c];
            head['?' * dim + c] = 2 * other[c];
        }
        test_tensor_write(trainer, tm_trainer_step_of(trainer)->model.head, head);
        for (uint64_t seed = 1; seed <= 6; seed++) {
            tm_text written = { 0 };
            char   *decoded = NULL;
            assert_int_equal(tm_generate(trainer, source, seed, 1, 60, &written, &decoded, &err), TM_OK);
            assert_non_null(decoded);
            assert_int_equal(written.data[written.length - 1] == '!', seed <= 3);
            int32_t *fed = test_tensor_read(trainer, tm_trainer_step_of(trainer)->sample_tokens);
            assert_memory_equal(fed, window, SEQ * sizeof *fed); /* nothing of the data behind its beginning */
            free(fed);
            tm_text_fini(&written);
            for (int64_t c = 0; c < dim && seed == 3; c++) head[(MANY - 1) * dim + c] = 4 * is[c]; /* the last one */
            test_tensor_write(trainer, tm_trainer_step_of(trainer)->model.head, head);
        }
        free(is);
        free(before);
        free(other);
        free(head);
        tm_source_close(source);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
    tm_text_fini(&squares);
    test_tree_remove(folder);
}
