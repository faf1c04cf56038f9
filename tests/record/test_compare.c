/* SPDX-License-Identifier: Apache-2.0 */
/* --compare: published figures of the model that was run, or why there are none. */
#include "support/fake_run.h"
#include "support/full_config.h"

#include "record/record.h"
#include "record/sink_kind.h"
#include "stats/sampling.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

/* A run that is not valid, or has no speed, is compared with nothing. */
TEST(nothing_is_said_of_what_is_no_result)
{
    for (int i = 0; i < 3; i++) {
        char              *text = NULL;
        size_t             bytes = 0;
        tm_sink           *sink;
        tm_compare_options options = { .path = "reference",
                                       .model = "llama3.1_8B",
                                       .out = open_memstream(&text, &bytes) };
        assert_int_equal(tm_compare_sink_open(&options, &sink, NULL), TM_OK);
        fake_emit(sink, fake_started());
        for (int64_t step = 1; step <= FAKE_STEPS; step++) fake_emit(sink, fake_step(step));
        tm_event          end = fake_ended(FAKE_STEPS, i == 0 ? TM_VERDICT_INVALID : TM_VERDICT_NOISY, "");
        tm_sample_summary speed = *end.run_ended.speed;
        if (i == 1) speed.median_rate = (double)NAN;
        end.run_ended.speed = &speed;
        fake_emit(sink, end);
        fake_close(sink);
        fclose(options.out);
        assert_true((bytes > 0) == (i == 2));
        free(text);
    }
}

/* Where the figures cannot be written, the run is told so. */
TEST(a_full_output_is_reported)
{
    tm_sink           *sink;
    tm_error           err = { 0 };
    tm_compare_options options = { .path = "reference", .model = "llama3.1_8B", .out = fopen("/dev/full", "w") };
    tm_event           start = fake_started();
    start.run_started.model = "llama3.1_8B";
    if (!options.out) skip();
    assert_int_equal(tm_compare_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, start);
    fake_emit(sink, fake_step(1));
    fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
    assert_int_equal(tm_sink_close(sink, &err), TM_IO);
    assert_string_equal(err.text, "cannot write the comparison: No space left on device");
    fclose(options.out);
}

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
    tm_event start = fake_started();
    start.run_started.model = tm_config_preset(config);
    fflush(stdout);
    int own = dup(STDOUT_FILENO);
    assert_true(own >= 0 && dup2(fileno(out), STDOUT_FILENO) >= 0);
    fake_emit(sink, start);
    fake_emit(sink, fake_step(1));
    fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
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
    is_compared("llama3.1_8B --data.source mock", "| MI300X ", true);
    is_compared("llama3.1_8B --data.source mock --training.seq_len 128", "| MI300X ", true);
    is_compared("llama3.1_8B --data.source mock --model.n_layers 31",
                "nothing to compare: dimensions of llama3.1_8B were changed, and there is no published figure", false);
    is_compared("llama3.1_8B --data.source mock --model.sliding_window 64", "nothing to compare", false);
    is_compared("tiny-llama --data.source mock", "no published figure for tiny-llama", false);
}
