/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/words.h - steps by the words of a command line. */
#ifndef TM_TESTS_TRAIN_WORDS_H
#define TM_TESTS_TRAIN_WORDS_H

#include "support/test.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"

/* Two layers of dim 64. */
#define SMALL_LLAMA                                                                                                    \
    "tiny-llama --model.n_layers 2 --model.dim 64 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 160 "         \
    "--model.vocab_size 96 --training.seq_len 32 --training.local_batch_size 2 "

/* Its options, without filters of names, which are the configuration's. */
static inline tm_step_options step_of(const char *model, const char *more)
{
    tm_run_options options;
    char           words[1500];
    snprintf(words, sizeof words, "%s %s", model, more);
    tm_config *config = test_run_of(words, &options);
    assert_int_equal(options.step.quantize.n_left_out + options.step.quantize.n_only, 0);
    for (int g = 0; g < options.step.n_groups; g++) options.step.groups[g].place = "test";
    options.step.adapters.place = "test";
    tm_config_destroy(config);
    return options.step;
}

/* The plan of a rank; the caller's to destroy. */
static inline tm_step *plan_words(const char *words, int rank, const tm_chooser *chooser)
{
    tm_run_options options;
    tm_step       *step;
    tm_error       err = { 0 };
    tm_config     *config = test_run_of(words, &options);
    options.step.layout.rank = rank;
    options.step.offload.folder = "/tmp";
    if (tm_step_create(&options.step, chooser, &step, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
    tm_config_destroy(config);
    return step;
}

#endif
