/* SPDX-License-Identifier: Apache-2.0 */
/* What outputs keep between events, whatever becomes of the events: the start, the ledger of phases, the looks; which
 * records of an earlier run stay. */
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

/* Texts that are changed behind the back of who keeps them. */
static char words[16][24];

static const char *word(int i)
{
    snprintf(words[i], sizeof words[i], "word %c", 'a' + i);
    return words[i];
}

TEST(the_start_is_copied)
{
    tm_line_work   work[2] = { { word(0), 1, 2 }, { word(1), 3, 4 } };
    int64_t        first[3] = { 5, 6, 7 }, second[3] = { 8, 9, 10 };
    tm_class_bytes along[2] = { { word(2), first }, { word(3), second } };
    tm_named_f64   flops[2] = { { word(4), 11 }, { word(5), 12 } };
    tm_named_i64   memory[2] = { { word(6), 13 }, { word(7), 14 } };
    tm_event       event = fake_started();
    run_record     run;
    event.run_started.model = word(8);
    event.run_started.precision = word(9);
    event.run_started.device = word(10);
    event.run_started.kernels = word(11);
    event.run_started.sums = word(12);
    event.run_started.data_source = "two\nlines\033[1m";
    event.run_started.work = work, event.run_started.n_work = 2;
    event.run_started.memory_along = along, event.run_started.n_memory_along = 2, event.run_started.n_points = 3;
    event.run_started.flops_per_token = flops, event.run_started.n_flops_per_token = 2;
    event.run_started.memory = memory, event.run_started.n_memory = 2;
    event.run_started.recipe.optimizer = word(13);
    event.run_started.recipe.schedule = NULL;
    event.run_started.recipe.precision_linear = word(14);
    event.run_started.recipe.precision_communication = word(15);
    run_record_init(&run);
    assert_false(run.started || run.ended || run.stepped);
    run_record_add(&run, &event);
    memset(words, 'x', sizeof words);
    memset(work, 0, sizeof work), memset(along, 0, sizeof along), memset(flops, 0, sizeof flops);
    memset(memory, 0, sizeof memory), memset(first, 0, sizeof first), memset(second, 0, sizeof second);
    const tm_run_started *s = &run.start;
    assert_true(run.started);
    const char *const kept[] = { s->work[0].name,
                                 s->work[1].name,
                                 s->memory_along[0].name,
                                 s->memory_along[1].name,
                                 s->flops_per_token[0].name,
                                 s->flops_per_token[1].name,
                                 s->memory[0].name,
                                 s->memory[1].name,
                                 s->model,
                                 s->precision,
                                 s->device,
                                 s->kernels,
                                 s->sums,
                                 s->recipe.optimizer,
                                 s->recipe.precision_linear,
                                 s->recipe.precision_communication };
    for (int i = 0; i < 16; i++) {
        char wanted[24];
        snprintf(wanted, sizeof wanted, "word %c", 'a' + i);
        assert_string_equal(kept[i], wanted);
    }
    assert_true(s->work[0].flops == 1 && s->work[0].bytes == 2 && s->work[1].flops == 3 && s->work[1].bytes == 4);
    for (int i = 0; i < 3; i++)
        assert_true(s->memory_along[0].bytes[i] == 5 + i && s->memory_along[1].bytes[i] == 8 + i);
    assert_true(s->flops_per_token[0].value == 11 && s->flops_per_token[1].value == 12);
    assert_true(s->memory[0].value == 13 && s->memory[1].value == 14);
    assert_null(s->recipe.precision_attention);
    assert_string_equal(s->recipe.schedule, "");
    assert_null(strchr(s->data_source, '\n'));
    assert_null(strchr(s->data_source, '\033'));
    run_record_fini(&run);
}

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

TEST(looks_are_kept)
{
    run_record     run;
    tm_event       event = fake_look(4);
    tm_look_tensor tensors[2];
    char           name[] = "name", kind[] = "kind", format[] = "form", of_look[] = "of look", reference[] = "refer";
    run_record_init(&run);
    memcpy(tensors, event.look.tensors, sizeof tensors);
    tensors[1].name = name, tensors[1].kind = kind, tensors[1].format = format;
    event.look.tensors = tensors;
    event.look.format = of_look, event.look.reference = reference;
    event.look.first = NULL;
    event.look.worst = &tensors[0];
    run_record_add(&run, &event);
    name[0] = kind[0] = format[0] = of_look[0] = reference[0] = '#';
    assert_true(run.looks.looks == 1 && run.looks.first_step == 0 && !run.looks.first_name);
    assert_true(run.looks.last.worst == &run.looks.tensors[0] && !run.looks.last.first);
    event.look.step = 6;
    event.look.first = event.look.worst = &tensors[1];
    tensors[1].error = 0.75;
    run_record_add(&run, &event);
    event.look.step = 8;
    event.look.first = &tensors[0];
    event.look.loss = 5;
    tensors[0].error = 0.5;
    run_record_add(&run, &event);
    memset(tensors, 0, sizeof tensors);
    const run_looks *l = &run.looks;
    assert_true(l->looks == 3 && l->first_step == 6 && l->last.step == 8 && l->last.loss == 5);
    assert_string_equal(l->first_name, "name");
    assert_string_equal(l->last.format, "of look");
    assert_string_equal(l->last.reference, "refer");
    assert_true(l->last.tensors == l->tensors && l->last.first == &l->tensors[0] && l->last.worst == &l->tensors[1]);
    assert_true(l->tensors[0].error == 0.5 && l->tensors[1].error == 0.75);
    assert_string_equal(l->tensors[1].kind, "kind");
    assert_string_equal(l->tensors[1].format, "form");
    assert_true(!l->tensors[0].exponents && !l->tensors[1].reference_exponents);
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
