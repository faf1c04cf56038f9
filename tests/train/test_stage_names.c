/* SPDX-License-Identifier: Apache-2.0 */
/* Stages by the names of their modules: what is read. (What is refused: test_options.c. Uneven cuts train
 * in tests/differential.) */
#include "support/test.h"
#include "ranks_fixture.h"
#include "support/full_config.h"
#include "train/run/run.h"
#include "train/pipeline/names.h"

static tm_status read_names(const char *words, tm_run_options *out, tm_config **config, tm_error *err)
{
    *config = test_full_config();
    assert_int_equal(tm_config_apply_preset(*config, "tiny-llama", err), TM_OK);
    test_apply_words(*config, "--model.n_layers 4 --parallelism.ranks 2 --parallelism.pipeline_parallel_degree 2");
    test_apply_words(*config, words);
    tm_status st = tm_config_finish(*config, err);
    return st == TM_OK ? tm_run_options_read(*config, out, err) : st;
}

#define NAMES "--parallelism.module_fqns_per_model_part="

TEST(names_cut_the_model)
{
    static const struct {
        const char *words;
        int         chunks, first[4];
    } cases[] = {
        { NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2,layers.3,norm,output]]", 1, { 0, 1 } },
        { NAMES "tok_embeddings|layers.0|layers.1|layers.2|layers.3,norm|output", 1, { 0, 4 } },
        { NAMES "[[tok_embeddings],[layers.2,layers.0,layers.3,layers.1,output,norm]]", 1, { 0, 0 } },
        { NAMES "tok_embeddings|layers.0|,layers.1|layers.2|layers.3|norm|output|", 1, { 0, 1 } },
        { NAMES "[[tok_embeddings,layers.0],[layers.1,layers.2],[layers.3],[norm,output]] "
                "--parallelism.pipeline_parallel_schedule=Interleaved1F1B",
          2,
          { 0, 1, 3, 4 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options o;
        tm_config     *config;
        tm_error       err = { 0 };
        if (read_names(cases[i].words, &o, &config, &err) != TM_OK) fail_msg("%s: %s", cases[i].words, err.text);
        assert_int_equal(o.step.layout.chunks, cases[i].chunks);
        assert_non_null(o.step.layout.first_blocks);
        for (int s = 0; s < 2 * cases[i].chunks; s++)
            assert_int_equal(o.step.layout.first_blocks[s], cases[i].first[s]);
        tm_config_destroy(config);
    }
}
