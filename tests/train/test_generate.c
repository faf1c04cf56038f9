/* SPDX-License-Identifier: Apache-2.0 */
/* Text at the end of a run: each token is drawn from what the model says of those before it, of which a full window
 * keeps its second half. (On other devices, and by ranks: tests/differential.) */
#include "support/test.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/source_files.h"
#include "support/training.h"
#include "train/generate/generate.h"
#include "train/generate/sample.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 257, SEQ = 16, PROMPT = SEQ / 4, MORE = 40 };

static int64_t expected_text(tm_trainer *trainer, const tm_source *source, uint64_t seed, int32_t *all)
{
    const tm_sampler sampler = { .temperature = 0.8, .top_p = 1, .seed = seed };
    int64_t          from = 0, n = PROMPT;
    double           logits[VOCAB];
    tm_error         err = { 0 };
    int32_t          window[SEQ + 1];
    tm_source_sample(source, TM_SPLIT_VALIDATION, 0, window);
    memcpy(all, window, PROMPT * sizeof *all);
    for (; n < PROMPT + MORE; n++) {
        memset(window, 0, sizeof window);
        if (n - from == SEQ) from += SEQ / 2;
        memcpy(window, all + from, (size_t)(n - from) * sizeof *window);
        assert_int_equal(tm_trainer_logits(trainer, window, (int32_t)(n - from - 1), logits, &err), TM_OK);
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
    tm_error          err = { 0 };
    test_source_files_write();
    of.path = test_in_folder("text.txt");
    if (tm_source_open(&of, &source, &err) != TM_OK) fail_msg("%s", err.text);
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
        assert_int_equal(tm_generate(trainer, source, seed, MORE, 60, &written, &decoded, &err), TM_OK);
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

TEST_FIXTURE(NULL, test_folder_teardown)
