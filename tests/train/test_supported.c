/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what cannot be combined: the example of every row is planned without its last words and refused with
 * them, by that row, which names both options and the way out. */
#include "support/test.h"
#include "support/full_config.h"
#include "support/training.h"
#include "train/run/run.h"
#include "train/step/supported.h"

static tm_status plan(const char *words, tm_error *err)
{
    tm_config     *config = test_full_config();
    tm_run_options options;
    tm_device     *device = test_device_open("cpu", 1);
    tm_chooser     chooser = tm_device_chooser(device);
    tm_step       *step = NULL;
    tm_status      st = test_read_run(config, words, &options, err);
    if (st == TM_OK) st = tm_step_create(&options.step, &chooser, &step, err);
    tm_step_destroy(step);
    tm_device_close(device);
    tm_config_destroy(config);
    return st;
}

TEST(every_row_is_asked_for_by_its_example)
{
    for (size_t i = 0; i < tm_n_not_together; i++) {
        const tm_not_together *row = &tm_not_together_rows[i];
        char                   words[1000];
        tm_error               err = { 0 };
        snprintf(words, sizeof words, "%s", row->base);
        if (plan(words, &err) != TM_OK) fail_msg("%s: %s", words, err.text);
        snprintf(words, sizeof words, "%s %s", row->base, row->more);
        if (plan(words, &err) != TM_UNSUPPORTED) fail_msg("%s: not refused: %s", words, err.text);
        if (!strstr(err.text, row->what) || !strstr(err.text, row->with) || !strstr(err.text, row->way))
            fail_msg("%s: row %zu: %s", words, i, err.text);
    }
}

/* Two rows for one pair would hide each other. */
TEST(pairs_are_there_once)
{
    for (size_t i = 0; i < tm_n_not_together; i++)
        for (size_t k = i + 1; k < tm_n_not_together; k++)
            assert_true(strcmp(tm_not_together_rows[i].what, tm_not_together_rows[k].what) != 0 ||
                        strcmp(tm_not_together_rows[i].with, tm_not_together_rows[k].with) != 0);
}
