/* SPDX-License-Identifier: Apache-2.0 */
/* All outputs of a run together: which ones it wants, whose failure counts, and what a run that never began leaves. */
#include "support/folder.h"
#include "support/fake_run.h"
#include "support/full_config.h"
#include "support/whole.h"

#include "base/file.h"
#include "record/outputs.h"
#include "record/sink_kind.h"
#include "results/store.h"

#include "support/test.h"

typedef struct {
    tm_config        *config;
    tm_run_options    run;
    tm_environment   *environment;
    tm_checks         checks;
    tm_output_options options;
} fixture;

static void begin(fixture *f)
{
    tm_error err = { 0 };
    *f = (fixture){ .config = test_full_config(), .environment = tm_environment_read("") };
    if (tm_config_apply_preset(f->config, "tiny-llama", &err) != TM_OK || tm_config_finish(f->config, &err) != TM_OK)
        fail_msg("%s", err.text);
    tm_config_set(f->config, "log.file", test_in_folder("lines.txt"), "test");
    if (tm_run_options_read(f->config, &f->run, &err) != TM_OK) fail_msg("%s", err.text);
    const char *inside = test_in_folder("x"), *slash = strrchr(inside, '/');
    static char folder[256];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - inside), inside);
    f->options = (tm_output_options){ .folder = folder,
                                      .config = f->config,
                                      .run = &f->run,
                                      .environment = f->environment,
                                      .checks = &f->checks,
                                      .command = "" };
}

static void end(fixture *f)
{
    tm_environment_destroy(f->environment);
    tm_config_destroy(f->config);
}

static void emit_run(const tm_outputs *outputs)
{
    tm_event events[] = { fake_started(), fake_step(1), fake_ended(1, TM_VERDICT_VALID, "") };
    for (size_t i = 0; i < 3; i++) tm_event_emit(tm_outputs_bus(outputs), &events[i]);
}

/* Nothing was trained: an empty file would look like a run that died. */
TEST_WITH(a_run_that_never_began, NULL, test_folder_teardown)
{
    fixture     f;
    tm_error    err = { 0 };
    tm_outputs *outputs;
    bool        began = true;
    begin(&f);
    assert_int_equal(tm_outputs_open(&f.options, &outputs, &err), TM_OK);
    assert_true(tm_file_exists(test_in_folder("metrics.jsonl")));
    assert_int_equal(tm_outputs_close(outputs, TM_INVALID, &began, &err), TM_INVALID);
    assert_false(began);
    assert_false(tm_file_exists(test_in_folder("metrics.jsonl")));
    f.options.perf_csv = test_in_folder("other.csv"); /* and one that has an output which cannot be opened */
    assert_int_equal(tm_file_write(f.options.perf_csv, "1\n", 2, &err), TM_OK);
    assert_int_equal(tm_outputs_open(&f.options, &outputs, &err), TM_INVALID);
    assert_false(tm_file_exists(test_in_folder("metrics.jsonl")));
    err = (tm_error){ 0 };
    tm_config_set(f.config, "log.file", "/nowhere/lines.txt", "test");
    assert_int_equal(tm_outputs_open(&f.options, &outputs, &err), TM_INVALID);
    assert_string_equal(err.text, "cannot append to '/nowhere/lines.txt' (log.file, test): cannot open "
                                  "'/nowhere/lines.txt': No such file or directory; name another file");
    end(&f);
}

/* The settings are vital; the loss of another output is told at once, and is the end's failure unless
 * something worse happened. */
TEST_WITH(whose_failure_counts, NULL, test_folder_teardown)
{
    fixture     f;
    tm_error    err = { 0 };
    tm_outputs *outputs;
    bool        began;
    tm_text     log = { 0 };
    begin(&f);
    assert_int_equal(mkdir(test_in_folder("config.yaml"), 0777), 0);
    assert_int_equal(tm_outputs_open(&f.options, &outputs, &err), TM_OK);
    emit_run(outputs);
    tm_status st = tm_event_failure(tm_outputs_bus(outputs), &err);
    assert_int_equal(st, TM_INVALID);
    assert_non_null(strstr(err.text, "config.yaml"));
    whole_log_open();
    assert_int_equal(tm_outputs_close(outputs, st, &began, &err), TM_INVALID);
    whole_log_take(&log);
    assert_false(log.data && strstr(log.data, "config.yaml")); /* what ended the run is told with its end, once */
    assert_int_equal(rmdir(test_in_folder("config.yaml")), 0);
    assert_int_equal(unlink(test_in_folder("result.json")), 0);
    assert_int_equal(mkdir(test_in_folder("result.json"), 0777), 0);
    for (int i = 0; i < 2; i++) {
        tm_status before = i == 0 ? TM_OK : TM_NUMBERS;
        err = (tm_error){ 0 };
        assert_int_equal(tm_outputs_open(&f.options, &outputs, &err), TM_OK);
        emit_run(outputs);
        assert_int_equal(tm_event_failure(tm_outputs_bus(outputs), &err), TM_OK);
        assert_int_equal(tm_outputs_close(outputs, before, &began, &err), i == 0 ? TM_IO : TM_NUMBERS);
        log.length = 0;
        whole_log_take(&log);
        const char *told = strstr(log.data, "result.json"); /* while the run goes on, and only then */
        assert_true(told && strstr(told, "; the run goes on without it") && !strstr(told + 1, "result.json"));
        assert_true(i == 0 ? strstr(err.text, "result.json") != NULL : err.status == TM_OK);
    }
    assert_int_equal(rmdir(test_in_folder("result.json")), 0);
    whole_log_close();
    tm_text_fini(&log);
    end(&f);
}

/* Runs: whole, without its end, and without its beginning. Opens the store between them. */
static size_t stored_after(fixture *f, int events, tm_status st, const char *logged, tm_arena *arena, tm_stored **rows)
{
    const tm_store_filter any = { 0 };
    tm_error              err = { 0 };
    tm_outputs           *outputs;
    tm_store             *store;
    tm_text               log = { 0 };
    bool                  began;
    size_t                n;
    const tm_event        all[] = { fake_started(), fake_step(1), fake_ended(1, TM_VERDICT_NOISY, "too short") };
    whole_log_open();
    assert_int_equal(tm_outputs_open(&f->options, &outputs, &err), TM_OK);
    for (int i = 0; i < events; i++) tm_event_emit(tm_outputs_bus(outputs), &all[i]);
    assert_int_equal(tm_outputs_close(outputs, st, &began, &err), st);
    assert_int_equal(began, events > 0);
    whole_log_take(&log);
    whole_log_close();
    bool says = log.data && strstr(log.data, "stored as result");
    assert_true(says == (logged != NULL));
    if (logged && !strstr(log.data, logged)) fail_msg("no '%s' in: %s", logged, log.data);
    if (!logged && log.data && strstr(log.data, f->options.folder)) fail_msg("%s", log.data);
    tm_text_fini(&log);
    assert_int_equal(tm_store_open(test_in_folder("all.db"), false, &store, &err), TM_OK);
    assert_int_equal(tm_store_list(store, &any, arena, rows, &n, &err), TM_OK);
    tm_store_close(store);
    return n;
}

/* A run is stored when it has ended, with its folder and label, and not before. */
TEST_WITH(what_is_stored, NULL, test_folder_teardown)
{
    fixture    f;
    tm_stored *rows;
    tm_arena  *arena = tm_arena_create();
    begin(&f);
    tm_config_set(f.config, "store.path", test_in_folder("all.db"), "test");
    tm_config_set(f.config, "store.label", "the first", "test");
    assert_int_equal(stored_after(&f, 0, TM_INVALID, NULL, arena, &rows), 0);
    assert_int_equal(stored_after(&f, 2, TM_NUMBERS, NULL, arena, &rows), 0);
    assert_int_equal(stored_after(&f, 3, TM_OK, "stored as result 1", arena, &rows), 1);
    assert_string_equal(rows[0].kind, "run");
    assert_string_equal(rows[0].name, "llama-small");
    assert_string_equal(rows[0].verdict, tm_verdict_name(TM_VERDICT_NOISY));
    assert_string_equal(rows[0].label, "the first");
    assert_non_null(strstr(rows[0].folder, f.options.folder));
    assert_int_equal(stored_after(&f, 2, TM_NUMBERS, NULL, arena, &rows), 1);
    assert_int_equal(stored_after(&f, 3, TM_OK, "stored as result 2", arena, &rows), 2);
    tm_arena_destroy(arena);
    end(&f);
}

static int prepare(void **state)
{
    (void)state;
    setenv("TRAINMARK_STORE", "none", 1); /* never the user's */
    return 0;
}

TEST_FIXTURE(prepare, NULL)
