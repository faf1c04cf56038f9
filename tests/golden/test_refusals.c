/* SPDX-License-Identifier: Apache-2.0 */
/* What a run refuses, to the letter: keys that contradict each other, that a model cannot have, that are not supported.
 * tests/golden/refusals.txt has a line of keys and, below it, indented, what is said of them; or `planned`, where they
 * are the nearest that is let pass. TM_RECORD=1 build/release/tests/golden/test_refusals writes what is said anew. */
#include "support/full_config.h"
#include "support/training.h"
#include "support/whole.h"

#include "base/file.h"
#include "train/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *const records = "tests/golden/refusals.txt";

/* With the status in front; a blank line within it would end the record. */
static void say(const tm_error *err, tm_text *out)
{
    tm_text_printf(out, "%d: ", (int)err->status);
    for (const char *c = err->text; *c; c++) tm_text_add_n(out, *c == '\n' ? "\n    " : c, *c == '\n' ? 5 : 1);
}

static void look_at(const char *words, tm_text *out)
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
    if (st == TM_OK)
        tm_text_add(out, "planned");
    else
        say(&err, out);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(config);
}

static void refusals_are_as_recorded(void **state)
{
    (void)state;
    tm_text  text = { 0 }, record = { 0 };
    tm_error err = { 0 };
    int      n = 0;
    if (tm_file_read(records, 1 << 20, &text, &err) != TM_OK) fail_msg("%s", err.text);
    for (char *line = text.data, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        if (*line == '#' || !*line) {
            tm_text_printf(&record, "%s\n", line);
            continue;
        }
        if (*line == ' ') continue; /* what was said */
        tm_text_printf(&record, "%s\n    ", line);
        look_at(line, &record);
        tm_text_add(&record, "\n");
        n++;
    }
    assert_true(n > 60);
    tm_text_fini(&text);
    whole_is(records, &record);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(refusals_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
