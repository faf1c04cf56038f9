/* SPDX-License-Identifier: Apache-2.0 */
/* Keys become options of a run: batches are what ranks and micro-batches make of them, epochs become steps, the later
 * of two places counts. (What each key changes: test_key_effects.c; what does not fit: tests/golden/refusals.txt.) */
#include "support/test.h"
#include "support/folder.h"
#include "data/source.h"
#include "support/full_config.h"

#include "train/run/run.h"

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

/* ceil(E N / B) steps of 23 rows of one sample each; schedule and configuration say the same. */
TEST(epochs_are_steps)
{
    static const struct {
        const char *words;
        int64_t     steps;
    } cases[] = {
        { "--training.epochs 1 --training.local_batch_size 1", 23 },
        { "--training.epochs 3 --training.local_batch_size 4", 18 },                               /* 69 / 4 */
        { "--training.epochs 2 --training.local_batch_size 2 --training.grad_accumulation 3", 8 }, /* 46 / 6 */
        { "--training.epochs 0.001 --training.local_batch_size 4", 1 },
        { "--num_train_epochs 2 --training.local_batch_size 23", 2 },
        { "--training.epochs 2 --training.local_batch_size 2 --parallelism.ranks 4 ", 6 }, /* 46 / 8 */
    };
    tm_text rows = { 0 };
    for (int i = 0; i < 23; i++) tm_text_printf(&rows, "{\"prompt\": \"What is %d?\", \"completion\": \"It.\"}\n", i);
    const char *path = test_file_write(test_folder(), "rows.jsonl", rows.data);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_config     *config = test_full_config();
        tm_run_options options;
        tm_source     *source;
        tm_error       err = { 0 };
        char           words[1200];
        snprintf(words, sizeof words,
                 "tiny-llama --model.vocab_size 257 --training.seq_len 128 --lr_scheduler.warmup_steps 2 --data.source "
                 "sft --data.packed false --data.validation_fraction 0 --data.path %s %s",
                 path, cases[i].words);
        tm_status st = test_read_run(config, words, &options, &err);
        if (st == TM_OK) st = tm_source_open(&options.source, &source, &err);
        if (st == TM_OK) st = tm_run_settle_epochs(config, source, &options, &err);
        if (st != TM_OK || options.steps != cases[i].steps || options.schedule.steps != options.steps ||
            atoll(tm_config_text(config, "training.steps")) != options.steps ||
            options.config_hash != tm_config_hash(config))
            fail_msg("%s: %lld steps %s", cases[i].words, (long long)options.steps, err.text);
        tm_source_close(source);
        tm_config_destroy(config);
    }
    tm_text_fini(&rows);
}

TEST_FIXTURE(NULL, test_folder_teardown)
