/* SPDX-License-Identifier: Apache-2.0 */
/* What outputs keep between events: the ledger of phases; which records of an earlier run stay. */
#include "record/sink.h"

#include "base/file.h"
#include "record/record.h"
#include "stats/sampling.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

/* --- what events said ----------------------------------------------------------------------------- */

static void add_step(run_record *run, double seconds, const tm_named_f64 *phases, size_t n)
{
    run_record_add(run, &(tm_event){ .kind = TM_EVENT_STEP_DONE,
                                     .step_done = { .seconds = seconds, .phases = phases, .n_phases = n } });
}

/* Sums are those of the steps after the first, of the first while it is alone. */
TEST(phases_add_up)
{
    static const char longest[] = "a name of exactly forty-seven characters, so long",
                      longer[] = "a name of exactly forty-seven characters, so long that it is cut";
    const tm_named_f64 first[] = { { "one", 100 }, { "two", 200 } };
    const tm_named_f64 later[] = { { "two", 2 }, { longest, 3 }, { longer, 4 }, { "unaccounted", 50 }, { "one", 1 } };
    run_record         run;
    run_record_init(&run);
    assert_true(run_ledger_unaccounted(&run.ledger) == 0);
    add_step(&run, 310, first, 2);
    assert_true(run.ledger.count == 2 && run.ledger.seconds[0] == 100 && run.ledger.seconds[1] == 200);
    assert_true(run.ledger.steps == 1 && run.ledger.step_seconds == 310 && run.steps == 1);
    assert_true(run_ledger_unaccounted(&run.ledger) == 10);
    add_step(&run, 12, later, 5);
    assert_true(run.ledger.seconds[0] == 1 && run.ledger.seconds[1] == 2 && run.ledger.seconds[2] == 7);
    assert_true(run.ledger.count == 3 && run.ledger.steps == 1 && run.ledger.step_seconds == 12 && run.steps == 2);
    assert_true(run_ledger_unaccounted(&run.ledger) == 2);
    add_step(&run, 14, later, 5);
    assert_true(run.ledger.seconds[0] == 2 && run.ledger.seconds[2] == 14 && run.ledger.steps == 2 && run.steps == 3);
    assert_true(run_ledger_unaccounted(&run.ledger) == 3);
    add_step(&run, 1, later, 5); /* less than its phases: never below 0 */
    assert_true(run_ledger_unaccounted(&run.ledger) == 0);
    assert_true(run.stepped && !run.last.phases && run.last.n_phases == 0 && run.last.seconds == 1);
    assert_int_equal(strlen(run.ledger.names[2]), LEDGER_NAME_BYTES - 1);
    /* As many rows as there are, and one more. */
    char         names[LEDGER_ROWS][16];
    tm_named_f64 many[LEDGER_ROWS];
    for (int i = 0; i < LEDGER_ROWS; i++) {
        snprintf(names[i], sizeof names[i], "phase %d", i);
        many[i] = (tm_named_f64){ names[i], i };
    }
    add_step(&run, 1, many, LEDGER_ROWS);
    assert_int_equal(run.ledger.count, LEDGER_ROWS);
    assert_string_equal(run.ledger.names[LEDGER_ROWS - 1], "phase 60");
    assert_true(run.ledger.seconds[LEDGER_ROWS - 1] == LEDGER_ROWS - 4);
    run_record_fini(&run);
}

/* --- records of an earlier run --------------------------------------------------------------------- */

/* What is in the file after one more step. */
static tm_text resumed_at(int64_t first_step, const char *before)
{
    const char        *path = test_in_folder("metrics.jsonl");
    tm_metrics_options options = { path, NULL };
    tm_event           start = fake_started();
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    assert_int_equal(tm_file_write(path, before, strlen(before), &err), TM_OK);
    assert_int_equal(tm_metrics_sink_open(&options, &sink, &err), TM_OK);
    start.run_started.first_step = first_step;
    fake_emit(sink, start);
    fake_emit(sink, fake_step(first_step));
    fake_close(sink);
    return fake_read(path);
}

TEST(only_records_of_earlier_steps_stay)
{
    static const char old[] = "{\"step\": 1}\n{\"step\": 3, \"b\": 1}\nno record\n\n{\"loss\": 2}\n{\"step\": 2.5}\n"
                              "{\"step\": 4}\n{\"event\": \"x\", \"step\": 2}\n{\"step\": -1}\n{\"step\": 2";
    static const struct {
        int64_t     first;
        const char *kept;
    } rows[] = { { 4, "{\"step\": 1}\n{\"step\": 3, \"b\": 1}\n{\"event\": \"x\", \"step\": 2}\n{\"step\": -1}\n" },
                 { 2, "{\"step\": 1}\n{\"step\": -1}\n" },
                 { 1, "" } };
    for (size_t i = 0; i < 3; i++) {
        char    own[32];
        tm_text text = resumed_at(rows[i].first, old);
        size_t  n = strlen(rows[i].kept);
        snprintf(own, sizeof own, "{\"step\": %d, ", (int)rows[i].first);
        assert_memory_equal(text.data, rows[i].kept, n);
        assert_memory_equal(text.data + n, own, strlen(own));
        assert_ptr_equal(strchr(text.data + n, '\n') + 1, text.data + text.length);
        tm_text_fini(&text);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
