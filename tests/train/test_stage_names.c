/* SPDX-License-Identifier: Apache-2.0 */
/* Stages by the names of their modules: what is read, and what is refused. (Uneven cuts train in tests/differential.)
 */
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

TEST(wrong_names_are_refused)
{
    static const char *const cases[][2] = {
        { "[[tok_embeddings,layers.0,layers.1],[layers.2,layers.3,layers.4,norm,output]]",
          "parallelism.module_fqns_per_model_part (command line): stage 1 has 'layers.4', which the model does not "
          "have; its modules are tok_embeddings, layers.0 .. layers.3, norm, output" },
        { "[[tok_embeddings,layers.0,layers.1],[layers.1,layers.2,layers.3,norm,output]]",
          "'layers.1' is in stage 0 and in stage 1; leave it out of one" },
        { "[[tok_embeddings,layers.0,layers.0],[layers.1,layers.2,layers.3,norm,output]]",
          "'layers.0' is in stage 0 and in stage 0;" },
        { "[[layers.0],[layers.1,layers.2,layers.3,norm,output]]",
          "'tok_embeddings' is in none of the 2 stages; add it to one" },
        { "[[tok_embeddings,layers.0],[layers.1,layers.3,norm,output]]",
          "'layers.2' is in none of the 2 stages; add it to one" },
        { "[[tok_embeddings,layers.0,layers.2],[layers.1,layers.3,norm,output]]",
          "'layers.2' is in stage 0, and 'layers.1', which comes before it, in stage 1; stages must follow the order" },
        { "[[tok_embeddings,layers.0,x2345678901234567890123456789012345678901234567890123456789]]",
          "stage 0 has 'x2345678901234567890123456789012345678901234567890123456789', which" },
        { "[[tok_embeddings,layers.0,x23456789012345678901234567890123456789012345678901234567890]]",
          "stage 0 has 'x23456789012345678901234567890123456789012345678901234567890', which" },
        { "[[tok_embeddings,layers.0,x2345678901234567890123456789012345678901234567890123456789012]]",
          "stage 0 has 'x23456789012345678901234567890123456789012345678901234567890', which" },
        { "[[tok_embeddings,layers.0,layers.1,layers.2],[layers.3,norm,output,layers]]",
          "stage 1 has 'layers', which the model does not have" },
        { "[[layers.0,layers.1],[tok_embeddings,layers.2,layers.3,norm,output]]",
          "'tok_embeddings' is in stage 1; what lies in front of the blocks must be in stage 0" },
        { "[[tok_embeddings,layers.0,layers.1,norm],[layers.2,layers.3,output]]",
          "'norm' is in stage 0; what lies behind the blocks must be in the last one, 1" },
        { "[[],[tok_embeddings,layers.0,layers.1,layers.2,layers.3,norm,output]]", "stage 0 has no modules" },
        { "[[tok_embeddings,layers.0,layers.1,layers.2,layers.3,norm,output]]",
          "has 1 stages, which the 2 ranks of parallelism.pipeline_parallel_degree cannot have equally many of, 32 at "
          "most; make it a multiple of 2" },
        { "[[tok_embeddings,layers.0,layers.1],[layers.2,layers.3,norm,output]] "
          "--parallelism.pipeline_parallel_layers_per_stage=2",
          "it applies only without parallelism.module_fqns_per_model_part" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char           words[400];
        tm_run_options o;
        tm_config     *config;
        tm_error       err = { 0 };
        snprintf(words, sizeof words, NAMES "%s", cases[i][0]);
        tm_status st = read_names(words, &o, &config, &err);
        assert_int_equal(tm_status_exit_code(st), 4);
        if (!strstr(err.text, cases[i][1])) fail_msg("'%s' does not say '%s'", err.text, cases[i][1]);
        tm_config_destroy(config);
    }
}
