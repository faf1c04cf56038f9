/* SPDX-License-Identifier: Apache-2.0 */
/* The environment as a table, which variables it has, and secrets, which stay out. Fact by fact: test_machine.c. */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/clock.h"
#include "base/csv.h"
#include "base/file.h"
#include "system/environment.h"
#include "base/secret.h"
#include "made_machine.h"

#include <dlfcn.h>
#include <jansson.h>
#include <time.h>

static void expect(const tm_environment *e, const char *section, const char *item, const char *name, const char *wanted)
{
    const char *text = tm_environment_text(e, section, item, name);
    if (!text && !wanted) return;
    if (!text || !wanted || strcmp(text, wanted) != 0)
        fail_msg("%s.%s is %s, not %s", section, name, text ? text : "unknown", wanted ? wanted : "unknown");
}

/* Which variables are recorded, and how. */
TEST(whole_variables)
{
    static char *const variables[] = { "NCCL_A=1",
                                       "NCCL=2",
                                       "OMP_NUM_THREADS=",
                                       "RANK=3",
                                       "RANKS=4",
                                       "RAN=5",
                                       "EXP=a=b",
                                       "NOEQUALS",
                                       "PRIMUS_X=x y",
                                       "pipeline=p",
                                       "Pipeline=q",
                                       "SEED=0",
                                       "NEXP=9",
                                       "HIP_=h",
                                       "HIPBLASLT_TUNING_OVERRIDE_FILE=f",
                                       "HOME=/x",
                                       "TRAINMARK_STORE=none",
                                       "LOGDIR=l",
                                       "SLURM_NODEID=1",
                                       "SLURM_JOB_ID=7" };
    enum { N = sizeof variables / sizeof variables[0] };
    static char *some[N + 1], *kept[4096]; /* setenv takes the list that it made before away */
    for (int i = 0; environ[i] && i < 4095; i++) kept[i] = environ[i];
    memcpy(some, variables, sizeof variables);
    environ = some;
    tm_environment *e = tm_environment_read(test_in_folder("empty"));
    environ = kept;
    tm_text text = { 0 };
    tm_json json = { .out = &text };
    tm_environment_print_json(e, &json, NULL);
    char *from = strstr(text.data, "\"variables\""), *to = strstr(text.data, ", \"process\"");
    assert_true(from && to);
    *to = '\0';
    assert_string_equal(
        from, "\"variables\": {\"NCCL_A\": \"1\", \"OMP_NUM_THREADS\": null, \"RANK\": \"3\", \"EXP\": \"a=b\", "
              "\"PRIMUS_X\": \"x y\", \"pipeline\": \"p\", \"SEED\": \"0\", \"NEXP\": \"9\", \"HIP_\": \"h\", "
              "\"HIPBLASLT_TUNING_OVERRIDE_FILE\": \"f\", \"TRAINMARK_STORE\": \"none\", \"LOGDIR\": \"l\", "
              "\"SLURM_NODEID\": \"1\"}, \"variables_left_out\": {\"count\": 6}");
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

/* What perf.csv keeps of them. */
TEST(variables_as_options)
{
    static char *variables[] = {
        "OMP_NUM_THREADS=4", "RCCL_MSCCL_ENABLE=0",      "HSA_X=it's", "NCCL_TOKEN=secret", "NCCL_DEBUG=a b",
        "HIP_EMPTY=",        "CUDA_VISIBLE_DEVICES=0,1", NULL
    };
    static char *kept[4096]; /* setenv takes the list that it made before away */
    tm_text      text = { 0 };
    for (int i = 0; environ[i] && i < 4095; i++) kept[i] = environ[i];
    environ = variables;
    tm_environment *e = tm_environment_read(test_in_folder("empty"));
    environ = kept;
    tm_environment_print_options(e, &text);
    assert_string_equal(text.data, "-e CUDA_VISIBLE_DEVICES=0,1 -e HIP_EMPTY= -e HSA_X='it'\\''s' -e NCCL_DEBUG='a b' "
                                   "-e NCCL_TOKEN='***' -e RCCL_MSCCL_ENABLE=0");
    tm_text_fini(&text);
    tm_environment_destroy(e);
}

TEST(secrets_stay_out)
{
    setenv("NCCL_SECRET_THING", "abc", 1);
    setenv("MY_API_KEY", "hunter22", 1);
    setenv("SOME_TOKEN", "1", 1); /* too short to be searched for */
    setenv("PRIMUS_TEAM", "team-hunter22-x", 1);
    setenv("NOT_ON_THE_LIST", "private", 1);
    setenv("OMP_NUM_THREADS", "2", 1);
    tm_environment *e = tm_environment_read("");
    expect(e, "variables", NULL, "NCCL_SECRET_THING", "***");
    expect(e, "variables", NULL, "PRIMUS_TEAM", "team-***-x");
    expect(e, "variables", NULL, "OMP_NUM_THREADS", "2");
    expect(e, "variables", NULL, "NOT_ON_THE_LIST", NULL);
    expect(e, "variables", NULL, "MY_API_KEY", NULL);
    tm_environment_destroy(e);

    static const char arguments[] =
        "trainmark\0run\0--hub.token\0abc\0api_key=xyz\0--data.tokenizer\0bpe\0training.tokens=5\0"
        "--note\0it's hunter22\0--password\0--steps\0"
        "11\0--db_pass=q\0";
    tm_text line = { 0 };
    tm_secret_command_line(&line, arguments, sizeof arguments - 1);
    assert_string_equal(line.data, "trainmark run --hub.token *** api_key=*** --data.tokenizer bpe training.tokens=5 "
                                   "--note 'it'\\''s ***' --password --steps 11 --db_pass=***");
    tm_text_fini(&line);
    assert_true(tm_secret_name("hf_token") && tm_secret_name("AWS_SECRET") && tm_secret_name("SSH_KEY") &&
                tm_secret_name("PGPASSWORD"));
    assert_false(tm_secret_name("OMP_NUM_THREADS"));
    unsetenv("NCCL_SECRET_THING");
    unsetenv("MY_API_KEY");
}
