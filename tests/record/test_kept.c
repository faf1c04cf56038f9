/* SPDX-License-Identifier: Apache-2.0 */
/* What outputs keep between events, whatever becomes of the events: the start, the ledger of phases, the looks; which
 * records of an earlier run stay; tables in files of every name; rows beside those of others. */
#include "record/sink.h"

#include "base/file.h"
#include "record/record.h"
#include "record/table.h"
#include "stats/sampling.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

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
    fake_close(sink);
    return fake_read(path);
}

TEST(only_records_of_earlier_steps_stay)
{
    static const char old[] = "{\"step\": 1}\n{\"step\": 3, \"b\": 1}\nno record\n\n{\"loss\": 2}\n{\"step\": 2.5}\n"
                              "{\"step\": 4}\n{\"event\": \"x\", \"step\": 2}\n{\"step\": -1}\n{\"step\": 2";
    tm_text           text = resumed_at(4, old);
    assert_string_equal(text.data,
                        "{\"step\": 1}\n{\"step\": 3, \"b\": 1}\n{\"event\": \"x\", \"step\": 2}\n{\"step\": -1}\n");
    tm_text_fini(&text);
    text = resumed_at(2, old);
    assert_string_equal(text.data, "{\"step\": 1}\n{\"step\": -1}\n");
    tm_text_fini(&text);
    text = resumed_at(1, old);
    assert_int_equal(text.length, 0);
    tm_text_fini(&text);
}

/* --- tables ----------------------------------------------------------------------------------------- */

static tm_table *one_cell(double value)
{
    tm_table *table = tm_table_create("t");
    tm_table_column(table, "x", 3);
    tm_table_row(table);
    tm_table_f64(table, "x", value);
    return table;
}

TEST(numbers_as_people_read_them)
{
    static const struct {
        double      value;
        const char *text;
    } rows[] = { { 0, "0" },
                 { 1, "1" },
                 { -1, "-1" },
                 { 999.4, "999" },
                 { 999.6, "1000" },
                 { 1234.5, "1234" },
                 { -1235.5, "-1236" },
                 { 999999999999999, "999999999999999" },
                 { 1e15, "1e+15" },
                 { -1e15, "-1e+15" },
                 { -999999999999999, "-999999999999999" },
                 { 0.00012, "0.00012" },
                 { 0.000012345, "1.23e-05" },
                 { -0.000012345, "-1.23e-05" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_table *table = one_cell(rows[i].value);
        tm_text   text = { 0 };
        char      wanted[64];
        tm_table_print(table, TM_TABLE_MARKDOWN, &text);
        char *last = strrchr(text.data, '|');
        *last = '\0';
        const char *cell = strrchr(text.data, '|') + 1;
        snprintf(wanted, sizeof wanted, " %s ", rows[i].text);
        assert_string_equal(cell, wanted);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
}

TEST(every_name_of_a_table)
{
    static const struct {
        const char     *name;
        tm_table_format format;
    } rows[] = { { "a.md", TM_TABLE_MARKDOWN }, { "a.csv", TM_TABLE_CSV },      { "a.tsv", TM_TABLE_TSV },
                 { "a.json", TM_TABLE_JSON },   { "a.jsonl", TM_TABLE_JSONL },  { "a.md.gz", TM_TABLE_MARKDOWN },
                 { "a.tsv.gz", TM_TABLE_TSV },  { "a.json.gz", TM_TABLE_JSON }, { "a.jsonl.gz", TM_TABLE_JSONL },
                 { "a.csv.gz", TM_TABLE_CSV } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_table_format format = (tm_table_format)77;
        tm_table       *table = one_cell(1.5);
        tm_text         text = { 0 };
        tm_error        err = { 0 };
        char            found[400] = { 0 };
        const char     *path = test_in_folder(rows[i].name);
        assert_int_equal(tm_table_format_of(path, &format, &err), TM_OK);
        assert_int_equal(format, rows[i].format);
        assert_int_equal(tm_table_write(table, path, &err), TM_OK);
        tm_table_print(table, format, &text);
        gzFile file = gzopen(path, "rb"); /* reads what is not packed, too */
        assert_non_null(file);
        assert_int_equal(gzread(file, found, sizeof found - 1), text.length);
        assert_int_equal(!gzdirect(file), strstr(path, ".gz") != NULL);
        gzclose(file);
        assert_string_equal(found, text.data);
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
    static const char *const none[] = { "x.txt", ".csv", ".gz", "csv", ".csv.gz", "x.csvgz", "x.csv.gz.gz" };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        tm_table_format format;
        tm_error        err = { 0 };
        char            wanted[200];
        assert_int_equal(tm_table_format_of(none[i], &format, &err), TM_USAGE);
        snprintf(wanted, sizeof wanted,
                 "%s: the extension decides the format; wanted: .md, .csv, .tsv, .json or .jsonl, each also with .gz",
                 none[i]);
        assert_string_equal(err.text, wanted);
    }
}

/* A table without rows, without columns, of one row; a column that is empty everywhere. */
TEST(poor_tables)
{
    tm_table *table = tm_table_create("t");
    tm_text   text = { 0 };
    tm_table_print(table, TM_TABLE_MARKDOWN, &text);
    tm_table_show(table, &(tm_table_view){ .width = TM_TABLE_WIDTH }, &text);
    tm_table_print(table, TM_TABLE_CSV, &text);
    tm_table_print(table, TM_TABLE_JSONL, &text);
    assert_string_equal(text.data, "|\n|\n|\n|\n\n");
    text.length = 0;
    tm_table_column(table, "ab", 0);
    tm_table_column(table, "c", 0);
    tm_table_print(table, TM_TABLE_MARKDOWN, &text);
    tm_table_show(table, &(tm_table_view){ .width = TM_TABLE_WIDTH }, &text);
    tm_table_print(table, TM_TABLE_JSON, &text);
    assert_string_equal(text.data, "| ab | c |\n|---:|--:|\n| ab | c |\n|---:|--:|\n"
                                   "{\n  \"name\": \"t\",\n  \"rows\": [],\n  \"notes\": []\n}\n");
    text.length = 0;
    tm_table_row(table);
    tm_table_text(table, "c", "\r\nx\t|");
    tm_table_print(table, TM_TABLE_MARKDOWN, &text);
    tm_table_print(table, TM_TABLE_TSV, &text);
    assert_string_equal(text.data, "| ab | c      |\n|---:|--------|\n|    | \r x\t\\| |\nab\tc\n\t  x |\n");
    tm_text_fini(&text);
    tm_table_destroy(table);
}

/* --- rows beside those of others -------------------------------------------------------------------- */

static const char *const header =
    "model,n_gpus,nnodes,gpus_per_node,training_precision,pipeline,args,tags,docker_file,base_docker,docker_sha,"
    "docker_image,git_commit,machine_name,deployment_type,launcher,gpu_architecture,performance,metric,relative_change,"
    "status,build_duration,test_duration,dataname,data_provider_type,data_size,data_download_duration,build_number,"
    "additional_docker_run_options\n";

/* What a run appends to a file of these lines: its row, without what is before. */
static char *appended(const char *lines)
{
    tm_text         file = { 0 };
    tm_error        err = { 0 };
    tm_sink        *sink = NULL;
    tm_perf_options options = { .path = test_in_folder("all.csv"), .append = true };
    tm_text_printf(&file, "%s%s", header, lines);
    assert_int_equal(tm_file_write(options.path, file.data, file.length, &err), TM_OK);
    assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
    tm_event          end = fake_ended(FAKE_STEPS, TM_VERDICT_VALID, "");
    tm_sample_summary speed = *end.run_ended.speed;
    speed.median_rate = 1000;
    end.run_ended.speed = &speed;
    end.run_ended.seconds = 12.5;
    fake_emit(sink, fake_started());
    fake_emit(sink, end);
    fake_close(sink);
    tm_text text = fake_read(options.path);
    assert_memory_equal(text.data, file.data, file.length);
    char *own = strdup(text.data + file.length);
    tm_text_fini(&text);
    tm_text_fini(&file);
    return own;
}

#define ROW(model, gpus, precision, args, architecture, performance, status)                                           \
    model "," gpus ",9,9," precision ",p," args ",t,,,,,,,,," architecture "," performance                             \
          ",tokens_per_second,," status ",,,,,,,,\n"

TEST(a_baseline_is_of_the_same_run)
{
    static const struct {
        const char *lines, *change;
    } rows[] = {
        { "", "" },
        { ROW("llama-small", "0", "float32", "", "", "800", "SUCCESS"), "25.00" },
        { ROW("llama-smal", "0", "float32", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "1", "float32", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float16", "", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "a", "", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "", "x", "800", "SUCCESS"), "" },
        { ROW("llama-small", "0", "float32", "", "", "800", "FAILURE"), "" },
        { ROW("llama-small", "0", "float32", "", "", "0", "SUCCESS")
              ROW("llama-small", "0", "float32", "", "", "-5", "SUCCESS")
                  ROW("llama-small", "0", "float32", "", "", "1600", "SUCCESS")
                      ROW("llama-small", "0", "float32", "", "", "800", "SUCCESS"),
          "-37.50" },
        { "llama-small,0,9,9,float32,SUCCESS\n" ROW("llama-small", "0", "float32", "", "", "2000", "SUCCESS"),
          "-50.00" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *own = appended(rows[i].lines), wanted[300];
        snprintf(wanted, sizeof wanted,
                 "llama-small,0,1,0,float32,,,,,,,,,,,,,1000,tokens_per_second,%s,SUCCESS,,12.5,synthetic,,,,,\n",
                 rows[i].change);
        assert_string_equal(own, wanted);
        free(own);
    }
    char whole[] = ROW("llama-small", "0", "float16", "", "", "800", "SUCCESS");
    whole[strlen(whole) - 1] = '\0';
    char *own = appended(whole); /* a row without its line end is ended first */
    assert_memory_equal(own, "\nllama-small,0,1,", 17);
    free(own);
}

TEST(another_header_is_quoted_in_part)
{
    tm_error        err = { 0 };
    tm_sink        *sink = NULL;
    tm_text         wanted = { 0 };
    char            line[400];
    tm_perf_options options = { .path = test_in_folder("other.csv"), .append = true };
    for (int n = 299; n <= 302; n++) {
        memset(line, 'h', sizeof line);
        line[n] = '\n';
        err = (tm_error){ 0 };
        assert_int_equal(tm_file_write(options.path, line, (size_t)n + 1, &err), TM_OK);
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_INVALID);
        wanted.length = 0;
        tm_text_printf(&wanted, "cannot append to '%s': header is \"%.*s\", wanted \"%.*s\"; name another file",
                       options.path, n < 300 ? n : 300, line, (int)strlen(header) - 1, header);
        assert_string_equal(err.text, wanted.data);
    }
    /* One character more or less is another header. */
    for (int off = -1; off <= 1; off += 2) {
        wanted.length = 0;
        tm_text_printf(&wanted, "%.*s%s\n", (int)strlen(header) - 1 + (off < 0 ? -1 : 0), header, off > 0 ? "s" : "");
        assert_int_equal(tm_file_write(options.path, wanted.data, wanted.length, &err), TM_OK);
        assert_int_equal(tm_perf_sink_open(&options, &sink, NULL), TM_INVALID);
    }
    tm_text_fini(&wanted);
}

/* A row that does not fit, wholly or in part, is taken back, with the cause. */
TEST(a_row_that_does_not_fit)
{
    tm_perf_options options = { .path = test_in_folder("full.csv"), .append = true };
    struct rlimit   was, small;
    char            wanted[800];
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    for (size_t more = 0; more < 20; more += 10) {
        tm_error err = { 0 };
        tm_sink *sink = NULL;
        assert_int_equal(tm_file_write(options.path, header, strlen(header), &err), TM_OK);
        assert_int_equal(tm_perf_sink_open(&options, &sink, &err), TM_OK);
        small = (struct rlimit){ .rlim_cur = strlen(header) + more, .rlim_max = was.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        tm_event start = fake_started(), end = fake_ended(FAKE_STEPS, TM_VERDICT_VALID, "");
        sink->handle(sink, &start);
        sink->handle(sink, &end);
        tm_status st = tm_sink_close(sink, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        assert_int_equal(st, TM_IO);
        snprintf(wanted, sizeof wanted, "cannot append to '%s': File too large", options.path);
        assert_string_equal(err.text, wanted);
        tm_text text = fake_read(options.path);
        assert_string_equal(text.data, header);
        tm_text_fini(&text);
    }
}

/* The step of an evaluation is its own, its speed that of what it read. */
TEST(an_evaluation_has_its_own_step)
{
    char              *told = NULL;
    size_t             bytes = 0;
    tm_error           err = { 0 };
    tm_sink           *sink = NULL;
    tm_console_options options = { .out = open_memstream(&told, &bytes), .log_freq = 100 };
    assert_int_equal(tm_console_sink_open(&options, &sink, &err), TM_OK);
    fake_emit(sink, fake_started());
    fake_emit(sink, fake_step(3));
    fake_emit(sink, fake_evaluation(47));
    tm_event none = fake_evaluation(48);
    none.evaluation.seconds = 0;
    fake_emit(sink, none);
    fake_close(sink);
    fclose(options.out);
    assert_non_null(strstr(told, "validate step: 47  loss:  1.1100  memory:  0.05GiB(0.57%)  tps: 32,768\n"));
    assert_non_null(strstr(told, "validate step: 48  loss:  1.1100  memory:  0.05GiB(0.57%)  tps: 0\n"));
    free(told);
}

TEST_FIXTURE(NULL, test_folder_teardown)
