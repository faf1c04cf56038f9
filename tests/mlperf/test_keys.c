/* SPDX-License-Identifier: Apache-2.0 */
/* What mlperf.benchmark makes of a configuration: keys that nobody gave follow from the benchmark's row and the batch,
 * and say so; what is no run of the benchmark is refused, each problem by its key. */
#include "support/folder.h"
#include "support/full_config.h"

#include "base/file.h"
#include "apps/mlperf/benchmark.h"
#include "apps/mlperf/keys.h"
#include "train/run/run.h"

#include "support/test.h"

#define ON "--mlperf.enable true --mlperf.submission_org Us --validation.enable true "
#define TINY "tiny-llama " ON "--mlperf.benchmark trainmark_tiny --data.source synthetic "
#define LORA "micro-llama " ON "--mlperf.benchmark trainmark_tiny_lora --data.source reports "
#define FLUX "tiny-flux " ON "--mlperf.benchmark trainmark_tiny_flux --data.source gaussians "
#define BATCH(global, local) "--training.global_batch_size " #global " --training.local_batch_size " #local " "

enum { MOST_PROBLEMS = 6 };

/* FOLDER: one with a config.json. Without problems: it settles. */
static const struct {
    const char *words, *problems[MOST_PROBLEMS];
} runs[] = {
    { TINY, { NULL } },
    { TINY BATCH(16, 8), { NULL } },
    { TINY BATCH(96, 32), { NULL } },
    { TINY BATCH(1, 1), { NULL } },
    { TINY BATCH(16, 8) "--mlperf.eval_interval_samples 1", { NULL } },
    { TINY BATCH(16, 8) "--mlperf.eval_interval_samples 33", { NULL } },
    { TINY "--validation.freq 3 --validation.first 4 --validation.steps 5 --training.target_loss 0.5 "
           "--training.stop_at_target true",
      { NULL } },
    { TINY "--model.init hf --model.init_std 0.5", { NULL } },
    { TINY "--model.hf_assets_path FOLDER/nowhere", { NULL } },
    { TINY "--model.n_layers 4 --model.rope_theta 10000.0", { NULL } }, /* as the preset says */
    { LORA "--lora.rank 4 --model.hf_assets_path FOLDER", { NULL } },
    { FLUX, { NULL } },
    { FLUX "--data.flow_protocol mlperf", { NULL } },
    { FLUX BATCH(12, 4), { NULL } },
    { "llama3.1_8B " ON "--mlperf.benchmark llama31_8b --data.source megatron --training.seq_len 8192 "
      "--data.path FOLDER " BATCH(36, 1),
      { NULL } },
    { "llama3.1_8B " ON "--mlperf.benchmark llama31_8b --data.source megatron --training.seq_len 8192 "
      "--data.path FOLDER --validation.local_batch_size 7 " BATCH(36, 1),
      { NULL } },
    { "flux_12b " ON "--mlperf.benchmark flux1 --data.source latents --data.path FOLDER", { NULL } },
    { "gpt_oss_20B_mlperf " ON "--mlperf.benchmark gpt_oss_20b --data.source megatron --data.path FOLDER", { NULL } },
    { "tiny-llama " ON, { "mlperf.enable (command line) wants mlperf.benchmark: one of llama31_8b|" } },
    { TINY "--mlperf.benchmark ''", { "wants mlperf.benchmark: one of llama31_8b|" } },
    { TINY "--mlperf.submission_org ''", { "wants mlperf.submission_org" } },
    { TINY "--mlperf.eval_interval_samples 0", { "'mlperf.eval_interval_samples' (command line) is out of range" } },
    { TINY "--validation.enable false", { "validation.enable is false (command line)" } },
    { TINY "--checkpoint.enable true", { "checkpoint.enable (command line) and mlperf.enable" } },
    { TINY "--data.source mock", { "on data.source synthetic, found mock (command line)" } },
    { TINY "--model.n_layers 3", { "trains tiny-llama as it is; leave out model.n_layers (command line)" } },
    { TINY "--model.n_layers 3 --model.dim 64 --data.source mock --checkpoint.enable true",
      { "model.n_layers (", "model.dim (", "found mock (", "checkpoint.enable (" } },
    { TINY "--lora.rank 2", { "trains all weights; leave out lora.rank" } },
    { TINY "--model.hf_assets_path FOLDER", { "trains new weights; leave out model.hf_assets_path (command line)" } },
    { TINY "--mlperf.benchmark llama31_8b",
      { "trains the model llama3.1_8B, found tiny-llama; name that model", "found synthetic (command line)" } },
    { TINY "--training.global_batch_size 0", { "training.global_batch_size (command line) is 0" } },
    { "gpt-small " ON "--mlperf.benchmark trainmark_tiny", { "trains the model tiny-llama, found gpt-small" } },
    { LORA, { "trains adapters (LoRA) of a frozen model; give lora.rank" } },
    { LORA "--lora.rank 4", { "give its folder, or let `trainmark mlperf run` make it by mlperf.base" } },
    { "llama2_70B " ON "--mlperf.benchmark llama2_70b_lora --data.source govreport --lora.rank 16 --data.path FOLDER",
      { "model.hf_assets_path names none; give its folder" } },
    { FLUX "--data.flow_protocol torchtitan", { "by data.flow_protocol mlperf, found torchtitan (command line)" } },
    { FLUX "--data.flow_shift auto", { "leave out data.flow_shift (command line)" } },
};

/* A key that the words give has that value, any other is derived: this number or word. */
static void settled(const tm_config *config, const char *words, const char *key, const char *wanted)
{
    const char *given = strstr(words, key), *value = tm_config_text(config, key);
    size_t      n = given ? strcspn(given + strlen(key) + 1, " ") : strlen(wanted);
    if (given) wanted = given + strlen(key) + 1;
    if (!value || strlen(value) != n || strncmp(value, wanted, n) != 0)
        fail_msg("%s: %s is %s, wanted %.*s", words, key, value ? value : "null", (int)n, wanted);
    assert_string_equal(tm_config_place(config, key),
                        given ? "command line" : "derived from mlperf.benchmark (command line)");
}

static void settled_number(const tm_config *config, const char *words, const char *key, double wanted)
{
    char text[32];
    settled(config, words, key, tm_format_double(text, wanted));
}

static void follows_from_the_benchmark(const tm_config *config, const char *words)
{
    tm_mlperf_benchmark b = *tm_mlperf_benchmark_of(config);
    int64_t             batch = tm_config_i64(config, "training.global_batch_size");
    const char         *interval = strstr(words, "interval_samples "), *own = strstr(words, "validation.local_batch");
    int64_t             rows = tm_config_i64(config, own ? "validation.local_batch_size" : "training.local_batch_size");
    assert_non_null(strstr(words, b.name));
    if (interval) b.interval_samples = atoi(strchr(interval, ' '));
    settled_number(config, words, "validation.freq", ceil((double)b.interval_samples / (double)batch));
    settled_number(config, words, "validation.first", (double)tm_mlperf_first_eval_step(&b, batch));
    settled_number(config, words, "training.target_loss", b.target);
    settled(config, words, "training.stop_at_target", "false");
    if (b.protocol) settled(config, words, "data.flow_protocol", b.protocol);
    if (b.eval_samples) settled_number(config, words, "validation.steps", ceil((double)b.eval_samples / (double)rows));
}

static void read_run(const char *words, const char *const problems[MOST_PROBLEMS])
{
    const char    *inside = test_in_folder("config.json"), *rest = words;
    char           given[2048];
    tm_run_options options;
    tm_error       err = { 0 };
    tm_config     *config = test_full_config();
    for (size_t n = 0; n + 1 < sizeof given; rest++, n = strlen(given)) {
        bool folder = strncmp(rest, "FOLDER", 6) == 0;
        snprintf(given + n, sizeof given - n, "%.*s", folder ? (int)(strrchr(inside, '/') - inside) : 1,
                 folder ? inside : rest);
        if (folder) rest += 5;
        if (!*rest) break;
    }
    tm_status st = test_read_run(config, given, &options, &err);
    size_t    n = 0, length;
    while (n < MOST_PROBLEMS && problems[n]) {
        if (!strstr(err.text, problems[n])) fail_msg("%s: '%s', wanted '%s'", words, err.text, problems[n]);
        n++;
    }
    assert_int_equal(st, n ? TM_INVALID : TM_OK);
    for (const char *line = NULL; (line = tm_error_next(&err, line, &length));) n--;
    if (n) fail_msg("%s: %s", words, err.text);
    if (st == TM_OK) follows_from_the_benchmark(config, words);
    tm_config_destroy(config);
}

TEST(keys_follow_from_the_benchmark)
{
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder("config.json"), "{}", 2, &err), TM_OK);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) read_run(runs[i].words, runs[i].problems);
    /* One that is not logged is none. */
    tm_config     *config = test_full_config();
    tm_run_options options;
    assert_int_equal(test_read_run(config, "tiny-llama --mlperf.benchmark trainmark_tiny", &options, &err), TM_OK);
    assert_null(tm_mlperf_benchmark_of(config));
    assert_string_equal(tm_config_place(config, "validation.freq"), "preset tiny-llama");
    tm_config_destroy(config);
}

TEST_FIXTURE(NULL, test_folder_teardown)
