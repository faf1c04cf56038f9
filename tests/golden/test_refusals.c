/* SPDX-License-Identifier: Apache-2.0 */
/* What a run refuses: keys that contradict each other, that a model cannot have, that are not supported. A line of
 * tests/golden/refusals.txt has keys, " -> ", and the status with the words that the message names; or `planned`, where
 * they are the nearest that is let pass. */
#include "support/full_config.h"
#include "support/refusal.h"
#include "support/training.h"

#include "base/file.h"
#include "train/run/run.h"

#include "support/test.h"

/* Empty, or what is otherwise than `wanted`. */
static void look_at(const char *words, char *wanted, tm_text *out)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_error       err = { 0 };
    tm_device     *device = NULL;
    tm_step       *step = NULL;
    tm_status      st = test_read_run(config, words, &options, &err);
    if (st == TM_OK) st = tm_device_open_planning("cpu", 1, &device, &err);
    tm_chooser chooser = { 0 };
    if (device) chooser = tm_device_chooser(device);
    if (st == TM_OK) st = tm_step_create(&options.step, &chooser, &step, &err);
    assert_int_equal(err.status, st);
    refusal_is_sound(&err);
    bool planned = strcmp(wanted, "planned") == 0;
    if (planned != (st == TM_OK) || (!planned && strtol(wanted, &wanted, 10) != st))
        tm_text_printf(out, "%s\n  status %d %s\n", words, (int)st, err.text);
    for (char *word; !planned && (word = strsep(&wanted, " "));)
        if (!strstr(err.text, word)) tm_text_printf(out, "%s\n  '%s' is not in: %s\n", words, word, err.text);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(config);
}

TEST(contradictions_are_refused)
{
    tm_text  text = { 0 }, wrong = { 0 }, words = { 0 };
    tm_error err = { 0 };
    int      n = 0;
    if (tm_file_read("tests/golden/refusals.txt", 1 << 20, &text, &err) != TM_OK) fail_msg("%s", err.text);
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n"));) {
        char *wanted = strstr(line, " -> ");
        if (*line == '#' || !*line) continue;
        assert_non_null(wanted);
        *wanted = '\0';
        words.length = 0;
        bool llama = strncmp(line, "llama ", 6) == 0;
        tm_text_printf(&words, "%s%s", llama ? "tiny-llama --training.seq_len 32 --training.local_batch_size 2" : "",
                       line + (llama ? 5 : 0));
        look_at(words.data, wanted + strlen(" -> "), &wrong);
        n++;
    }
    assert_true(n > 60);
    if (wrong.length > 0) fail_msg("%s", wrong.data);
    tm_text_fini(&text);
    tm_text_fini(&words);
    tm_text_fini(&wrong);
}
