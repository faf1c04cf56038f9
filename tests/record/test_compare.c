/* SPDX-License-Identifier: Apache-2.0 */
/* --compare: published figures of the model that was run, or why there are none. */
#include "support/fake_run.h"
#include "support/full_config.h"

#include "record/record.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"
#include "train/run/run.h"

#include "support/test.h"

/* What a run of these words prints that was asked to compare itself: the published figures, or that there are none. */
static void is_compared(const char *words, const char *wanted, bool table)
{
    tm_run_options    run;
    tm_config        *config = test_full_config();
    tm_error          err = { 0 };
    tm_output_options o = { .folder = "nowhere", .config = config, .run = &run };
    tm_sink          *sink;
    FILE             *out = tmpfile();
    tm_text           text = { 0 };
    char              part[4096];
    if (test_read_run(config, words, &run, &err) != TM_OK) fail_msg("%s", err.text);
    assert_false(record_compare_kind.wanted(&o));
    o.compare = "reference";
    assert_true(record_compare_kind.wanted(&o));
    assert_int_equal(record_compare_kind.open(&o, NULL, NULL, &sink, &err), TM_OK);
    tm_event start = fake_started(), end = fake_ended(1, TM_VERDICT_VALID, "");
    start.run_started.model = tm_config_preset(config);
    start.run_started.flops_per_token =
        (tm_named_f64[]){ { "matmul", 123e12 / end.run_ended.speed->median_rate }, { "6 N", 1 } };
    start.run_started.n_flops_per_token = 2;
    fflush(stdout);
    int own = dup(STDOUT_FILENO);
    assert_true(own >= 0 && dup2(fileno(out), STDOUT_FILENO) >= 0);
    fake_emit(sink, start);
    fake_emit(sink, fake_step(1));
    fake_emit(sink, end);
    fake_close(sink);
    fflush(stdout);
    assert_true(dup2(own, STDOUT_FILENO) >= 0);
    close(own);
    rewind(out);
    for (size_t n; (n = fread(part, 1, sizeof part, out)) > 0;) tm_text_add_n(&text, part, n);
    fclose(out);
    tm_text_add(&text, "");
    if (!strstr(text.data, wanted) || (strchr(text.data, '|') != NULL) != table)
        fail_msg("%s: no '%s' in: %s", words, wanted, text.data);
    tm_text_fini(&text);
    tm_config_destroy(config);
}

/* Published figures are of models as they are named: of no other number of layers or heads, nor of experts that work.
 */
TEST(only_the_model_itself_is_compared)
{
    is_compared("llama3.1_8B --data.source mock", " 123 ", true); /* by the convention of the published figure */
    is_compared("llama3.1_8B --data.source mock --training.seq_len 128", "| MI300X ", true);
    is_compared("llama3.1_8B --data.source mock --model.n_layers 31",
                "nothing to compare: dimensions of llama3.1_8B were changed, and there is no published figure", false);
    is_compared("llama3.1_8B --data.source mock --model.sliding_window 64", "nothing to compare", false);
    is_compared("tiny-llama --data.source mock", "no published figure for tiny-llama", false);
}
