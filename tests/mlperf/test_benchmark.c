/* SPDX-License-Identifier: Apache-2.0 */
/* When the benchmarks are evaluated. */
#include "mlperf/benchmark.h"

#include "support/test.h"

#include "base/log.h"
#include "mlperf/reference.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/whole.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(evaluations_by_batch)
{
    const struct {
        const char *name;
        int64_t     batch, interval, first; /* sequences */
    } cases[] = {
        { "llama31_8b", 32, 12288, 12288 },    { "llama31_8b", 36, 12312, 12312 },
        { "llama31_8b", 12289, 12289, 12289 }, { "llama2_70b_lora", 8, 384, 1536 },
        { "llama2_70b_lora", 9, 387, 1548 },   { "llama2_70b_lora", 16, 384, 1920 },
        { "llama2_70b_lora", 64, 384, 4224 },  { "llama2_70b_lora", 72, 432, 5184 },
        { "trainmark_tiny", 16, 80, 80 },      { "flux1", 2048, 262144, 262144 },
        { "flux1", 1152, 262656, 262656 },     { "flux1", 64, 262144, 262144 },
        { "gpt_oss_20b", 32, 12288, 12288 },   { "trainmark_tiny_lora", 8, 64, 64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tm_mlperf_benchmark *b = tm_mlperf_benchmark_find(cases[i].name);
        assert_non_null(b);
        assert_int_equal(tm_mlperf_eval_steps(b, cases[i].batch) * cases[i].batch, cases[i].interval);
        assert_int_equal(tm_mlperf_first_eval_step(b, cases[i].batch) * cases[i].batch, cases[i].first);
    }
    assert_null(tm_mlperf_benchmark_find("llama3"));
}

/* Each is judged by the convergence test, so that each says how many runs a result has. */
TEST(every_benchmark_says_its_runs)
{
    for (const tm_mlperf_benchmark *b = tm_mlperf_benchmarks; b->name; b++) {
        const tm_reference_kind *kind = tm_reference_kind_find(b->name);
        if (!kind || kind->runs < 3) fail_msg("%s", b->name);
    }
}

/* What a benchmark settles of a configuration that leaves it open. */
TEST(benchmarks_settle_keys)
{
    static const char *const keys[] = { "validation.freq",      "validation.first",        "validation.steps",
                                        "training.target_loss", "training.stop_at_target", "data.flow_protocol" };
    tm_text                  out = { 0 };
    struct dirent          **files;
    int                      n = scandir("configs/experiments/mlperf", &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strncmp(files[i]->d_name, "trainmark_tiny", 14) == 0) {
            tm_config *config = test_full_config();
            tm_error   err = { 0 };
            char       path[400];
            snprintf(path, sizeof path, "configs/experiments/mlperf/%s", files[i]->d_name);
            tm_text text = fake_read(path);
            char   *protocol = strstr(text.data, "flow_protocol"); /* which the benchmark gives, too */
            if (protocol) memset(protocol, ' ', strcspn(protocol, ",") + 1);
            tm_status st =
                tm_config_load_file(config, test_file_write(test_folder(), files[i]->d_name, text.data), &err);
            tm_text_fini(&text);
            test_apply_words(config, "--mlperf.enable true --mlperf.submission_org Org");
            if (st == TM_OK) st = tm_config_finish(config, &err);
            tm_text_printf(&out, "== %s: %s\n", files[i]->d_name, st == TM_OK ? "settles" : "is refused");
            for (size_t k = 0; st == TM_OK && k < sizeof keys / sizeof keys[0]; k++) {
                const char *value = tm_config_text(config, keys[k]);
                tm_text_printf(&out, "%s = %s (%.4s)\n", keys[k], value ? value : "-",
                               tm_config_origin(config, keys[k]));
            }
            tm_config_destroy(config);
        }
        free(files[i]);
    }
    free(files);
    whole_is("tests/mlperf/whole-settled.txt", &out);
}

TEST_FIXTURE(NULL, test_folder_teardown)
