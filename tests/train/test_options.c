/* SPDX-License-Identifier: Apache-2.0 */
/* Keys become options of a run: batches are what ranks and micro-batches make of them, the later of two places counts,
 * and what does not fit is refused by the name of its key. (That each key changes what it should: test_key_effects.c,
 * and the oracle.) */
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"

#include "train/run/run.h"
#include "option_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a preset and words of a command line. */
static tm_status read_words(const char *preset, const char *words, tm_run_options *options, tm_error *err)
{
    tm_config *config = test_full_config();
    char       all[3000];
    snprintf(all, sizeof all, "%s%s%s", preset, *preset ? " " : "", words);
    tm_status st = test_read_run(config, all, options, err);
    tm_config_destroy(config);
    return st;
}

/* By the name of the key, with exit code 4; up to the end of a range nothing is. */
TEST(what_does_not_fit_is_named)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tm_run_options options;
        tm_error       err = { 0 };
        bool           own = strncmp(refused[i].words, "--", 2) != 0; /* a preset of its own */
        tm_status      st = read_words(own ? "" : "tiny-llama", refused[i].words, &options, &err);
        const char    *named = refused[i].named, *text = err.text + (err.text[0] == '\'');
        if (st == TM_OK ? named != NULL : !named || tm_status_exit_code(st) != 4)
            fail_msg("%s: %d %s", refused[i].words, (int)st, err.text);
        const size_t n = named ? strlen(named) : 0;
        if (named && (strncmp(text, named, n) != 0 || (text[n] >= 'a' && text[n] <= 'z') || text[n] == '_'))
            fail_msg("%s: wanted %s: %s", refused[i].words, named, err.text);
    }
}

/* A step has the samples of all ranks' micro-batches: what is not given follows, what does not divide is refused. */
TEST(batches_are_products)
{
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int local = 1; local <= 3; local++)
            for (int global = 0; global <= 18; global++)
                for (int passes = 0; passes <= 3; passes++) {
                    char           words[300];
                    tm_run_options options;
                    tm_error       err = { 0 };
                    const int      once = ranks * local, times = passes > 0 ? passes : global > 0 ? global / once : 1;
                    const bool     fits = global == 0 || global == times * once;
                    int n = snprintf(words, sizeof words, "--training.local_batch_size %d --training.steps 5 ", local);
                    if (ranks > 1) n += snprintf(words + n, sizeof words - (size_t)n, "--parallelism.ranks %d ", ranks);
                    if (global > 0)
                        n += snprintf(words + n, sizeof words - (size_t)n, "--training.global_batch_size %d ", global);
                    if (passes > 0)
                        snprintf(words + n, sizeof words - (size_t)n, "--training.grad_accumulation %d ", passes);
                    tm_status st = read_words("tiny-llama", words, &options, &err);
                    if (st != (fits && times > 0 ? TM_OK : TM_INVALID)) fail_msg("%s: %d %s", words, (int)st, err.text);
                    if (st != TM_OK) continue;
                    assert_int_equal(options.step.accumulation, times);
                    assert_int_equal(options.source.samples, 5 * times * once);
                }
}

/* Two keys that say one thing: the one of the later place counts; of a file and of the command line here. */
TEST(the_later_place_counts)
{
    static const struct {
        const char *file, *words, *key, *wanted;
    } cases[] = {
        { "optimizer.lr: 0.002\nmin_lr: 0.0005\n", "--lr_scheduler.min_lr_factor 0.5", "lr_scheduler.min_lr_factor",
          "0.5" },
        { "optimizer.lr: 0.002\nlr_scheduler.min_lr_factor: 0.5\n", "--min_lr 0.0005", "lr_scheduler.min_lr_factor",
          "0.25" },
        { "optimizer.lr: 0.002\nmin_lr: 9\n", "--lr_scheduler.min_lr_factor 0.5", "lr_scheduler.min_lr_factor", "0.5" },
        { "recompute_granularity: full\n", "--activation_checkpoint.mode none", "activation_checkpoint.mode", "none" },
        { "activation_checkpoint.mode: none\n", "--recompute_granularity full", "activation_checkpoint.mode", "full" },
        { "use_distributed_optimizer: true\n",
          "--parallelism.ranks 2 --parallelism.data_parallel_shard_strategy optim_grads",
          "parallelism.data_parallel_shard_strategy", "optim_grads" },
        { "parallelism.data_parallel_shard_strategy: optim_grads\n",
          "--parallelism.ranks 2 --use_distributed_optimizer true", "parallelism.data_parallel_shard_strategy",
          "optim" },
        { "training.steps: 7\n", "--training.epochs 2", "training.steps", "7" },
        { "training.epochs: 2\n", "--training.steps 7", "training.steps", "7" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        tm_error       err = { 0 };
        char           words[300];
        const char    *path = test_file_write(test_folder(), "keys.yaml", cases[i].file);
        assert_int_equal(tm_config_load_file(config, path, &err), TM_OK);
        snprintf(words, sizeof words, "tiny-llama %s", cases[i].words);
        if (test_read_run(config, words, &options, &err) != TM_OK) fail_msg("%zu: %s", i, err.text);
        if (strcmp(tm_config_text(config, cases[i].key), cases[i].wanted) != 0)
            fail_msg("%zu: %s is %s", i, cases[i].key, tm_config_text(config, cases[i].key));
        assert_int_equal(tm_run_counts_epochs(config), i == 7);
        tm_config_destroy(config);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
