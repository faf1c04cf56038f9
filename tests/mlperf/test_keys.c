/* SPDX-License-Identifier: Apache-2.0 */
/* What mlperf.benchmark makes of a configuration, or refuses, to the letter: keys that nobody gave and their origins,
 * one problem or several. After a change that is meant: TM_RECORD=1 build/release/tests/mlperf/test_keys; git diff
 * tests/mlperf/whole-keys.txt
 */
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "base/file.h"
#include "mlperf/benchmark.h"
#include "mlperf/keys.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define ON "--mlperf.enable true --mlperf.submission_org Us "
#define TINY "tiny-llama " ON "--mlperf.benchmark trainmark_tiny --data.source synthetic --validation.enable true "
#define LORA "micro-llama " ON "--mlperf.benchmark trainmark_tiny_lora --data.source reports --validation.enable true "
#define FLUX "tiny-flux " ON "--mlperf.benchmark trainmark_tiny_flux --data.source gaussians --validation.enable true "

/* FOLDER: one with a config.json. */
static const char *const runs[] = {
    "tiny-llama --mlperf.benchmark trainmark_tiny",
    "tiny-llama " ON,
    "tiny-llama --mlperf.enable true --mlperf.benchmark trainmark_tiny --validation.enable true",
    TINY,
    TINY "--training.global_batch_size 16 --training.local_batch_size 8",
    TINY "--training.global_batch_size 96 --training.local_batch_size 32",
    TINY "--training.global_batch_size 96 --training.local_batch_size 32 --validation.local_batch_size 7",
    TINY "--training.global_batch_size 16 --training.local_batch_size 8 --mlperf.eval_interval_samples 1",
    TINY "--training.global_batch_size 16 --training.local_batch_size 8 --mlperf.eval_interval_samples 33",
    TINY "--mlperf.eval_interval_samples 0",
    TINY "--validation.freq 3 --validation.first 4 --validation.steps 5 --training.target_loss 0.5 "
         "--training.stop_at_target true",
    TINY "--validation.enable false",
    TINY "--checkpoint.enable true",
    TINY "--data.source mock",
    TINY "--model.n_layers 3",
    TINY "--model.init hf --model.init_std 0.5",
    TINY "--model.n_layers 3 --model.dim 64 --data.source mock --checkpoint.enable true",
    TINY "--lora.rank 2",
    TINY "--model.hf_assets_path FOLDER",
    TINY "--model.hf_assets_path FOLDER/nowhere",
    TINY "--mlperf.benchmark llama31_8b",
    TINY "--mlperf.submission_org ''",
    TINY "--mlperf.benchmark ''",
    TINY "--training.global_batch_size 0",
    TINY "--training.global_batch_size 1 --training.local_batch_size 1",
    "gpt-small " ON "--mlperf.benchmark trainmark_tiny --validation.enable true",
    LORA,
    LORA "--lora.rank 4",
    LORA "--lora.rank 4 --model.hf_assets_path FOLDER",
    "llama2_70B " ON "--mlperf.benchmark llama2_70b_lora --data.source govreport --validation.enable true --lora.rank "
    "16 --data.path FOLDER",
    FLUX,
    FLUX "--data.flow_protocol mlperf",
    FLUX "--data.flow_protocol torchtitan",
    FLUX "--data.flow_shift auto",
    FLUX "--training.global_batch_size 12 --training.local_batch_size 4",
    "llama3.1_8B " ON "--mlperf.benchmark llama31_8b --data.source megatron --validation.enable true "
    "--training.global_batch_size 32 --training.local_batch_size 1 --training.seq_len 8192 --data.path FOLDER",
    "flux_12b " ON "--mlperf.benchmark flux1 --data.source latents --validation.enable true --data.path FOLDER",
    "gpt_oss_20B_mlperf " ON
    "--mlperf.benchmark gpt_oss_20b --data.source megatron --validation.enable true --data.path FOLDER",
};

static const char *const told[] = {
    "mlperf.enable",
    "mlperf.benchmark",
    "mlperf.log",
    "mlperf.clear_caches",
    "validation.freq",
    "validation.first",
    "validation.steps",
    "training.target_loss",
    "data.flow_protocol",
    "training.stop_at_target",
    "mlperf.submission_division",
    "mlperf.submission_status",
};

static void add_run(tm_text *out, const char *words)
{
    char           given[2048] = "";
    tm_run_options options;
    tm_error       err = { 0 };
    tm_config     *config = test_full_config();
    tm_text        log = { 0 };
    const char    *inside = test_in_folder("config.json"), *slash = strrchr(inside, '/');
    for (const char *w = words; *w; w++) {
        size_t n = strlen(given);
        if (strncmp(w, "FOLDER", 6) == 0)
            snprintf(given + n, sizeof given - n, "%.*s", (int)(slash - inside), inside), w += 5;
        else
            snprintf(given + n, sizeof given - n, "%c", *w);
    }
    tm_text_printf(out, "\n%s\n", words);
    whole_log_open();
    tm_status st = test_read_run(config, given, &options, &err);
    whole_log_take(&log);
    whole_log_close();
    tm_text said = { 0 };
    tm_text_printf(&said, "%s%s\n", log.data ? log.data : "", st == TM_OK ? "" : err.text);
    for (char *at; (at = strstr(said.data, "/tmp/")) != NULL && slash;) { /* the folder's own name */
        size_t n = (size_t)(slash - inside);
        if (strncmp(at, inside, n) != 0) break;
        memmove(at, "FOLDER", 6);
        memmove(at + 6, at + n, strlen(at + n) + 1);
        said.length = strlen(said.data);
    }
    tm_text_printf(out, "  %d: %s", (int)st, said.data);
    const tm_mlperf_benchmark *b = st == TM_OK ? tm_mlperf_benchmark_of(config) : NULL;
    for (size_t i = 0; st == TM_OK && i < sizeof told / sizeof *told; i++) {
        const char *value = tm_config_text(config, told[i]);
        tm_text_printf(out, "  %s = %s (%s)\n", told[i], value ? value : "null", tm_config_place(config, told[i]));
    }
    if (st == TM_OK) tm_text_printf(out, "  benchmark %s\n", b ? b->name : "none");
    tm_text_fini(&said);
    tm_text_fini(&log);
    tm_config_destroy(config);
}

TEST(configurations_are_as_recorded)
{
    tm_text  out = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_file_write(test_in_folder("config.json"), "{}", 2, &err), TM_OK);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) add_run(&out, runs[i]);
    test_folder_remove();
    whole_is("tests/mlperf/whole-keys.txt", &out);
}
