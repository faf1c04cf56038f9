/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl and result.json: read back with independent readers, and what happens when the disk is full.
 */
#include "support/test.h"

#include "../support/folder.h"
#include "../support/fake_run.h"
#include "base/arena.h"
#include "base/file.h"
#include "record/record.h"
#include "record/sink.h"
#include "stats/sampling.h"

#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

static tm_sink *open_metrics(const char *path)
{
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    tm_metrics_options options = { path, NULL };
    if (tm_metrics_sink_open(&options, &sink, &err) != TM_OK) fail_msg("%s", err.text);
    return sink;
}

static json_t *line_of(const tm_text *text, int index)
{
    const char *line = text->data;
    for (int i = 0; i < index; i++) {
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    json_t *record = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    assert_non_null(record);
    return record;
}

static double real_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("\"%s\" is not a number", key);
    return json_number_value(value);
}

static int lines_of(const tm_text *text)
{
    int n = 0;
    for (size_t i = 0; i < text->length; i++) n += text->data[i] == '\n';
    return n;
}

TEST(metrics_records)
{
    const char *path = test_in_folder("metrics.jsonl");
    tm_sink    *sink = open_metrics(path);
    fake_emit(sink, fake_started());
    fake_emit(sink, fake_step(3));
    tm_text text = fake_read(path); /* there when the event returns */
    assert_int_equal(lines_of(&text), 1);
    tm_text_fini(&text);
    tm_event broken = fake_step(4);
    broken.step_done.loss = (double)NAN;
    fake_emit(sink, broken);
    fake_emit(sink, fake_evaluation(4));
    fake_emit(sink, fake_checkpoint(4));
    fake_close(sink);
    text = fake_read(path);
    assert_int_equal(lines_of(&text), 4);
    json_t  *step = line_of(&text, 0);
    tm_event sent = fake_step(3);
    assert_true(real_of(step, "learning_rate") == sent.step_done.learning_rate); /* 1e-3 / 3 to the last bit */
    assert_int_equal(json_integer_value(json_object_get(step, "used_bytes")), 49048576);
    assert_true(real_of(json_object_get(step, "phases"), "optimizer") == sent.step_done.phases[3].value);
    assert_non_null(strstr(text.data, "\"grad_norm\": 1.25,")); /* shortest, not 1.2500000000 */
    json_decref(step);
    step = line_of(&text, 1);
    assert_true(json_is_null(json_object_get(step, "loss")));
    json_decref(step);
    tm_text_fini(&text);
}

/* A run that dies leaves no one else's result. What the machine was and how it was checked is that of the options. */
TEST(result_of_this_run)
{
    const char       *path = test_in_folder("result.json");
    tm_error          err = { 0 };
    tm_sink          *sink = NULL;
    tm_environment   *environment = tm_environment_read("");
    tm_checks         checks = { 0 };
    tm_result_options options = { .path = path, .environment = environment, .checks = &checks };
    tm_checks_add(&checks, &(tm_check_result){ .id = "smt", .status = TM_CHECK_INFO, .observed = "1" });
    tm_checks_add(&checks, &(tm_check_result){ .id = "governor", .status = TM_CHECK_WARN, .observed = "powersave" });
    assert_int_equal(tm_file_write(path, "old", 3, &err), TM_OK);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    assert_false(tm_file_exists(path));
    fake_close(sink);
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_NOISY, "line \"one\"\nline two");
    fake_close(sink);
    json_t *result = json_load_file(path, 0, NULL);
    assert_non_null(result);
    assert_string_equal(json_string_value(json_object_get(result, "reason")), "line \"one\"\nline two");
    assert_true(json_is_object(json_object_get(json_object_get(result, "environment"), "cpu")));
    json_t *host = json_object_get(result, "checks"), *bad = json_object_get(host, "not_passed");
    assert_true(real_of(host, "warn") == 1 && real_of(host, "info") == 1 && real_of(host, "fail") == 0);
    assert_int_equal(json_array_size(bad), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(bad, 0), "id")), "governor");
    json_decref(result);
    tm_environment_destroy(environment);
    tm_checks_fini(&checks);
}

/* Once a run is under way, recording it takes no more memory. */
TEST(steady_recording_allocates_nothing)
{
    tm_error           err = { 0 };
    tm_sink           *sinks[2] = { NULL };
    char              *data = NULL;
    size_t             bytes = 0;
    tm_metrics_options metrics = { test_in_folder("metrics.jsonl"), NULL };
    tm_console_options console = { .out = open_memstream(&data, &bytes), .log_freq = 1, .verbose = true };
    assert_int_equal(tm_metrics_sink_open(&metrics, &sinks[0], &err), TM_OK);
    assert_int_equal(tm_console_sink_open(&console, &sinks[1], &err), TM_OK);
    for (int i = 0; i < 2; i++) fake_emit(sinks[i], fake_started());
    unsigned long long before = tm_alloc_count();
    for (int step = 1; step <= FAKE_STEPS; step++)
        for (int i = 0; i < 2; i++) fake_emit(sinks[i], fake_step(step));
    assert_int_equal(tm_alloc_count(), before);
    for (int i = 0; i < 2; i++) fake_close(sinks[i]);
    fclose(console.out);
    free(data);
}

/* docs/result-json.md names every member, so that nobody has to guess. */
TEST(every_member_is_documented)
{
    tm_error          err = { 0 };
    tm_sink          *sink = NULL;
    tm_checks         checks = { 0 };
    tm_result_options options = { .path = test_in_folder("result.json"), .checks = &checks };
    assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
    fake_run(sink, TM_VERDICT_VALID, "");
    fake_close(sink);
    tm_text page = fake_read("docs/result-json.md"), facts = fake_read("docs/statistics.md");
    tm_text_add(&page, facts.data); /* the facts of the machine */
    tm_text_fini(&facts);
    json_t     *result = json_load_file(options.path, 0, NULL), *member, *part;
    const char *name, *inner;
    assert_true(json_object_size(result) > 20);
    json_object_foreach(result, name, member)
    {
        char quoted[128];
        snprintf(quoted, sizeof quoted, "`%s`", name);
        if (!strstr(page.data, quoted)) fail_msg("%s is not in docs/result-json.md", quoted);
        json_object_foreach(member, inner, part)
        {
            snprintf(quoted, sizeof quoted, "`%s`", inner);
            if (!strstr(page.data, quoted)) fail_msg("%s.%s is not in docs/result-json.md", name, quoted);
        }
    }
    json_decref(result);
    tm_text_fini(&page);
}

/* A run in which nothing diverged has no step at which it did, and no worst tensor. */
TEST(a_result_of_looks_that_agree)
{
    for (int diverges = 0; diverges < 2; diverges++) {
        tm_result_options options = { .path = test_in_folder("looks.json") };
        tm_event          look = fake_look(7);
        tm_sink          *sink;
        tm_error          err = { 0 };
        if (!diverges) look.look.first = look.look.worst = NULL;
        assert_int_equal(tm_result_sink_open(&options, &sink, &err), TM_OK);
        fake_emit(sink, fake_started());
        fake_emit(sink, look);
        fake_emit(sink, fake_ended(1, TM_VERDICT_VALID, ""));
        fake_close(sink);
        tm_text text = fake_read(options.path);
        assert_non_null(
            strstr(text.data, diverges ? "\"first_divergent_step\": 7," : "\"first_divergent_step\": null,"));
        assert_non_null(strstr(text.data, diverges ? "\"worst\": \"layers.0.w1.weight.grad\"" : "\"worst\": null"));
        json_t *result = json_loads(text.data, 0, NULL); /* what nobody gave is null; of one rank there is no list */
        assert_true(json_is_null(json_object_get(result, "checks")));
        assert_true(json_is_null(json_object_get(result, "environment")));
        assert_null(json_object_get(result, "ranks"));
        json_decref(result);
        tm_text_fini(&text);
    }
}

/* --- what is kept between events; records of an earlier run ------------------------------------- */

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

/* The emitter's texts may change after the event. Of what it does not tell there is nothing. */
TEST(what_was_told_is_kept)
{
    char            text[] = "told";
    tm_event        start = fake_started();
    tm_run_started *s = &start.run_started;
    const char    **told[] = { &s->model,
                               &s->precision,
                               &s->device,
                               &s->data_source,
                               &s->recipe.optimizer,
                               &s->recipe.schedule,
                               &s->kernels,
                               &s->sums,
                               &s->encoders,
                               &s->recipe.precision_linear,
                               &s->recipe.precision_attention,
                               &s->recipe.precision_communication };
    for (int tells = 0; tells < 2; tells++) {
        run_record run;
        run_record_init(&run);
        for (size_t i = 0; i < 12; i++) *told[i] = tells ? text : NULL;
        run_record_add(&run, &start);
        if (tells) memset(text, '?', 4);
        for (size_t i = 0; i < 12; i++) {
            const char *kept = *(const char **)((char *)&run.start + ((char *)told[i] - (char *)s));
            if (tells || i < 6) assert_string_equal(kept, tells ? "told" : "");
            if (!tells && i >= 6) assert_null(kept);
        }
        run_record_fini(&run);
    }
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

/* --- faults ---------------------------------------------------------------------------------- */

/* The sink of metrics, of the result, of a file of one row or of several. */
static tm_status open_sink(size_t which, const char *path, tm_sink **out, tm_error *err)
{
    const tm_metrics_options metrics = { path, NULL };
    const tm_result_options  result = { .path = path };
    const tm_perf_options    perf = { .path = path, .append = which == 3 };
    return which == 0   ? tm_metrics_sink_open(&metrics, out, err)
           : which == 1 ? tm_result_sink_open(&result, out, err)
                        : tm_perf_sink_open(&perf, out, err);
}

/* A file-size limit of 300 bytes: the failure is told, and no torn record stays. */
TEST(file_size_limit)
{
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < 4; i++) {
        struct rlimit was, small;
        char          path[256];
        strcpy(path, test_in_folder("limited"));
        unlink(path);
        getrlimit(RLIMIT_FSIZE, &was);
        small = (struct rlimit){ .rlim_cur = 300, .rlim_max = was.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        tm_sink  *sink = NULL;
        tm_error  err = { 0 };
        tm_status opened = open_sink(i, path, &sink, &err), closed = TM_OK;
        if (opened == TM_OK) {
            fake_run(sink, TM_VERDICT_VALID, "");
            closed = tm_sink_close(sink, &err);
        }
        setrlimit(RLIMIT_FSIZE, &was);
        assert_int_equal(opened, TM_OK);
        assert_int_equal(closed, TM_IO);
        assert_int_equal(tm_status_exit_code(closed), 1);
        assert_non_null(strstr(err.text, "limited"));
        assert_int_equal(tm_file_exists(path), i == 0 || i == 3);
        if (i == 1 || i == 2) continue;
        tm_text text = fake_read(path);
        assert_true(i == 0 ? text.length > 0 && text.data[text.length - 1] == '\n' : text.length == 0);
        if (i == 0) json_decref(line_of(&text, lines_of(&text) - 1));
        tm_text_fini(&text);
    }
}

/* Of a run that goes on, records of before stay. */
TEST(a_full_disk_takes_no_earlier_record)
{
    static const char old[] = "{\"step\": 1, \"loss\": 2.5}\n";
    const char       *path = test_in_folder("metrics.jsonl");
    struct rlimit     was;
    tm_event          start = fake_started();
    tm_error          err = { 0 };
    assert_int_equal(tm_file_write(path, old, strlen(old), &err), TM_OK);
    tm_sink *sink = open_metrics(path);
    start.run_started.first_step = 2;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ sizeof old + 9, was.rlim_max }), 0);
    fake_emit(sink, start);
    fake_emit(sink, fake_step(2));
    tm_status closed = tm_sink_close(sink, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(closed, TM_IO);
    tm_text text = fake_read(path);
    assert_string_equal(text.data, old);
    tm_text_fini(&text);
}

TEST_FIXTURE(NULL, test_folder_teardown)
