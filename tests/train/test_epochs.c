/* SPDX-License-Identifier: Apache-2.0 */
/* The length of a run in passes over its data: ceil(E N / B) steps, schedule and configuration say the same. */
#include "support/test.h"
#include "data/source.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 23, MANY = 1000 };

/* Rows of one sample each. */
static void write_rows(const char *name, int rows)
{
    tm_text text = { 0 };
    for (int i = 0; i < rows; i++)
        tm_text_printf(&text, "{\"prompt\": \"What is %d?\", \"completion\": \"A number.\"}\n", i);
    test_file_write(test_folder(), name, text.data);
    tm_text_fini(&text);
}

typedef struct {
    tm_config     *config;
    tm_run_options options;
    tm_error       err;
} settled;

/* Reads words, opens the data, and settles epochs; `called`: as if the data had this name. */
static tm_status settle_as(settled *s, const char *words, const char *called)
{
    char       all[1200];
    tm_source *source = NULL;
    *s = (settled){ .config = test_full_config() };
    snprintf(all, sizeof all,
             "tiny-llama --model.vocab_size 257 --training.seq_len 128 --validation.enable false "
             "--lr_scheduler.warmup_steps 2 %s",
             words);
    tm_status st = test_read_run(s->config, all, &s->options, &s->err);
    if (st == TM_OK) st = tm_source_open(&s->options.source, &source, &s->err);
    if (called) s->options.source.name = called;
    if (st == TM_OK) st = tm_run_settle_epochs(s->config, source, &s->options, &s->err);
    tm_source_close(source);
    return st;
}

static tm_status settle(settled *s, const char *words)
{
    return settle_as(s, words, NULL);
}

static char *of_rows(char *words, size_t size, const char *more)
{
    snprintf(words, size, "--data.source sft --data.packed false --data.validation_fraction 0 --data.path %s %s",
             test_in_folder("rows.jsonl"), more);
    return words;
}

TEST(steps_are_epochs_by_samples)
{
    static const struct {
        const char *words;
        int64_t     steps;
    } cases[] = {
        { "--training.epochs 1 --training.local_batch_size 1", 23 },
        { "--training.epochs 1 --training.local_batch_size 4", 6 },
        { "--training.epochs 3 --training.local_batch_size 4", 18 },                               /* 69 / 4 */
        { "--training.epochs 2 --training.local_batch_size 2 --training.grad_accumulation 3", 8 }, /* 46 / 6 */
        { "--training.epochs 0.5 --training.local_batch_size 4", 3 },
        { "--training.epochs 0.001 --training.local_batch_size 4", 1 },
        { "--num_train_epochs 2 --training.local_batch_size 23", 2 },
        { "--training.epochs 2 --training.local_batch_size 2 --parallelism.ranks 4 "
          "--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 4",
          6 }, /* 46 / 8 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        settled s;
        char    words[800], steps[32];
        if (settle(&s, of_rows(words, sizeof words, cases[i].words)) != TM_OK) fail_msg("%s", s.err.text);
        if (s.options.steps != cases[i].steps)
            fail_msg("%s: %lld steps, not %lld", cases[i].words, (long long)s.options.steps, (long long)cases[i].steps);
        assert_int_equal(s.options.schedule.steps, cases[i].steps);
        snprintf(steps, sizeof steps, "%lld", (long long)cases[i].steps);
        assert_string_equal(tm_config_text(s.config, "training.steps"), steps);
        assert_int_equal(s.options.config_hash, tm_config_hash(s.config));
        tm_config_destroy(s.config);
    }
}

static int begin(void **state)
{
    (void)state;
    write_rows("rows.jsonl", ROWS);
    write_rows("many.jsonl", MANY);
    return 0;
}

TEST_FIXTURE(begin, test_folder_teardown)
