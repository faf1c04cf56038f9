/* SPDX-License-Identifier: Apache-2.0 */
/* Constants from published rows: those that are compiled in, those that made-up rows were made with, and how well rows
 * are predicted whose source was left out. */
#include "support/test.h"

#include "base/file.h"
#include "plan/fit.h"
#include "support/folder.h"

static tm_published_rows read_rows(tm_arena *arena, const char *path)
{
    tm_published_rows rows;
    assert_ok(tm_rows_read(arena, path, &rows, err));
    return rows;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The compiled-in constants are where the fit ends that begins with the priors. */
TEST(constants_are_those_of_the_rows)
{
    tm_arena         *arena = tm_arena_create();
    tm_published_rows rows = read_rows(arena, "configs/calibration/training.csv");
    tm_parameters     start, known = tm_parameters_fitted();
    for (int i = 0; i < TM_PARAMETER_COUNT; i++) start.of[i] = tm_parameter_rows()[i].prior;
    tm_parameters p = tm_fit(&rows, NULL, &start);
    for (int i = 0; i < TM_PARAMETER_COUNT; i++)
        if (tm_parameter_rows()[i].doubt > 0 && fabs(p.of[i] / known.of[i] - 1) > 0.002)
            fail_msg("%s: %g compiled in, %g fitted; `trainmark plan --rows configs/calibration/training.csv --fit` "
                     "prints all",
                     tm_parameter_rows()[i].name, known.of[i], p.of[i]);
    tm_arena_destroy(arena);
}

/* What is claimed in docs/plan-theirs.md. A row that cannot be expressed is a miss. */
TEST(rows_left_out_are_predicted)
{
    tm_arena         *arena = tm_arena_create();
    tm_published_rows rows = read_rows(arena, "configs/calibration/training.csv");
    tm_parameters     known = tm_parameters_fitted();
    double           *errors = tm_arena_take(arena, rows.n * sizeof *errors);
    size_t            inside = 0, told = 0;
    tm_fit_without_each(&rows, &known, errors);
    for (size_t i = 0; i < rows.n; i++) {
        const tm_published_row *row = &rows.row[i];
        double width = known.of[row->job.shape.moe.experts > 0 ? TM_PARAMETER_WIDTH_EXPERTS : TM_PARAMETER_WIDTH_DENSE];
        told += !row->refused;
        inside += !row->refused && fabs(errors[i]) <= width;
        errors[i] = row->refused ? (double)INFINITY : fabs(exp(errors[i]) - 1);
    }
    qsort(errors, rows.n, sizeof *errors, compare);
    assert_true(rows.n >= 140);
    if (errors[rows.n / 2] > 0.10) fail_msg("median error %g", errors[rows.n / 2]);
    double most = errors[(size_t)ceil(0.9 * (double)rows.n) - 1];
    if (most > 0.20) fail_msg("nine of ten errors are within %g", most);
    double share = (double)inside / (double)told;
    if (share < 0.85 || share > 0.95) fail_msg("%g of the rows are inside their intervals", share);
    tm_arena_destroy(arena);
}

static const char page_path[] = "docs/plan-rows.md";
static const char page_head[] = "# Published rows, and what is predicted for them\n\n"
                                "The rows of `configs/calibration/training.csv`, source by source: tokens/s of a "
                                "device, as published and as predicted by\n"
                                "the constants that are compiled in, with the error; the last column is the error with "
                                "constants that were fitted without\n"
                                "the row's source ([how](plan-theirs.md)). `TM_UPDATE_DOCS=1 "
                                "build/release/tests/plan/test_fit` writes this page anew.\n";

static void add_rows(tm_text *page, const tm_published_rows *rows, const char *source, const double *errors)
{
    tm_parameters p = tm_parameters_fitted();
    tm_text_printf(
        page,
        "\n## %s\n\n| row | model | hardware | devices | precision | published | predicted | error | left out |\n"
        "|---|---|---|---:|---|---:|---:|---:|---:|\n",
        source);
    for (size_t i = 0; i < rows->n; i++) {
        const tm_published_row *row = &rows->row[i];
        if (strcmp(row->source, source) != 0) continue;
        tm_text_printf(page, "| %s | %s | %s | ", row->id, row->model, row->hardware);
        if (row->refused) {
            tm_text_printf(page, "| %s | | | not predicted: %s | |\n", row->precision, row->refused);
            continue;
        }
        double predicted = tm_row_predict(row, &p);
        tm_text_printf(page, "%d | %s | %.0f | %.0f | %+.0f %% | %+.0f %% |\n", row->job.devices, row->precision,
                       row->published, predicted, 100 * (predicted / row->published - 1), 100 * (exp(errors[i]) - 1));
    }
}

TEST(the_page_of_rows_is_true)
{
    tm_arena         *arena = tm_arena_create();
    tm_published_rows rows = read_rows(arena, "configs/calibration/training.csv");
    tm_parameters     known = tm_parameters_fitted();
    double           *errors = tm_arena_take(arena, rows.n * sizeof *errors);
    tm_text           page = { 0 }, found = { 0 };
    tm_fit_without_each(&rows, &known, errors);
    tm_text_add(&page, page_head);
    for (size_t i = 0; i < rows.n; i++) {
        bool first = true;
        for (size_t k = 0; k < i; k++) first = first && strcmp(rows.row[k].source, rows.row[i].source) != 0;
        if (first) add_rows(&page, &rows, rows.row[i].source, errors);
    }
    if (getenv("TM_UPDATE_DOCS")) assert_ok(tm_file_write(page_path, page.data, page.length, err));
    assert_ok(tm_file_read(page_path, 1 << 20, &found, err));
    assert_string_equal(found.data, page.data);
    tm_text_fini(&page);
    tm_text_fini(&found);
    tm_arena_destroy(arena);
}

/* Speeds that the model itself gives with other constants: the fit finds these, as far as rows depend on them. */
TEST(planted_constants_are_found)
{
    static const struct {
        tm_parameter which;
        double       times;
    } planted[] = { { TM_PARAMETER_PRODUCT_BF16, 0.9 },
                    { TM_PARAMETER_PRODUCT_FP8, 1.1 },
                    { TM_PARAMETER_STREAM, 1.2 },
                    { TM_PARAMETER_FLASH_2, 0.85 },
                    { TM_PARAMETER_TENSOR, 1.2 } };
    tm_arena         *arena = tm_arena_create();
    tm_published_rows rows = read_rows(arena, "configs/calibration/training.csv");
    tm_parameters     start, other;
    for (int i = 0; i < TM_PARAMETER_COUNT; i++) start.of[i] = other.of[i] = tm_parameter_rows()[i].prior;
    for (size_t k = 0; k < sizeof planted / sizeof planted[0]; k++) other.of[planted[k].which] *= planted[k].times;
    for (size_t i = 0; i < rows.n; i++)
        if (!rows.row[i].refused) rows.row[i].published = tm_row_predict(&rows.row[i], &other);
    tm_parameters p = tm_fit(&rows, NULL, &start);
    for (size_t k = 0; k < sizeof planted / sizeof planted[0]; k++) {
        double moved = log(p.of[planted[k].which] / start.of[planted[k].which]) / log(planted[k].times);
        if (moved < 0.5 || moved > 1.3)
            fail_msg("%s: %g of the way", tm_parameter_rows()[planted[k].which].name, moved);
    }
    tm_arena_destroy(arena);
}

static const char head[] =
    "id,source,date,model,hardware,gpus,precision,dp,tp,pp,vp,cp,ep,micro_batch,global_batch,seq,"
    "recompute,metric,unit,convention,value,notes\n";
/* A file of these lines below the head. */
static tm_status read_lines(tm_arena *arena, const char *lines, tm_published_rows *rows, tm_error *err)
{
    const char *path = test_in_folder("rows.csv");
    tm_text     text = { 0 };
    tm_text_printf(&text, "%s%s\n", head, lines);
    assert_int_equal(tm_file_write(path, text.data, text.length, err), TM_OK);
    tm_text_fini(&text);
    return tm_rows_read(arena, path, rows, err);
}

TEST(rows_that_cannot_be_expressed_are_named)
{
    tm_parameters p = tm_parameters_fitted();
    tm_text       table = { 0 };
    int           n = 0;
    assert_int_equal(tm_file_read("tests/plan/rows.txt", 1 << 20, &table, NULL), TM_OK);
    for (char *lines = table.data, *line; (line = strsep(&lines, "\n"));) {
        char *wanted = strstr(line, " -> ");
        if (*line == '#' || !wanted) continue;
        tm_arena         *arena = tm_arena_create();
        tm_error          err = { 0 };
        tm_published_rows rows;
        *wanted = '\0';
        wanted += strlen(" -> ");
        tm_status st = read_lines(arena, line, &rows, &err);
        if (*wanted == '!') {
            if (st != TM_FORMAT || !strstr(err.text, wanted + 1))
                fail_msg("%s: '%s' lacks '%s'", line, err.text, wanted);
        } else {
            if (st != TM_OK || rows.n != 1) fail_msg("%s: %s", line, err.text);
            const char *why = rows.row[0].refused;
            if (!*wanted && (why || !(tm_row_predict(&rows.row[0], &p) > 0))) fail_msg("%s: %s", line, why);
            if (*wanted && (!why || !strstr(why, wanted)))
                fail_msg("%s: '%s' lacks '%s'", line, why ? why : "", wanted);
        }
        tm_arena_destroy(arena);
        n++;
    }
    assert_true(n > 15);
    tm_text_fini(&table);
}

/* A batch that fits and one that does not, said right and wrong; rows that say nothing. */
TEST(verdicts_are_those_of_the_rows)
{
    static const struct {
        const char *row;
        int         said, right;
    } of[] = {
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,8,1,1,,1,,1,8,8192,full,throughput,tok/s/GPU,,9000,", 1, 1 },
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,8,1,1,,1,,900,8,8192,full,throughput,tok/s/GPU,,9000,", 1, 0 },
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,8,1,1,,1,,1,8,8192,,throughput,tok/s/GPU,,9000,", 0, 0 },
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,8,1,1,,1,,,8,8192,full,throughput,tok/s/GPU,,9000,", 0, 0 },
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,,,,,,,1,8,8192,full,throughput,tok/s/GPU,,9000,", 0, 0 },
        { "a,PTB,,Llama-3.1-8B,MI300X,8,bf16,8,1,1,,1,,,,4096,none,max micro-batch,seq,,2,", 2, 1 },
        { "a,PTB,,Llama-3.1-8B,MI300X,8,bf16,8,1,1,,1,,,,4096,none,max micro-batch,seq,,900,", 2, 1 },
        { "a,PTB,,Llama-3.1-8B,MI300X,8,bf16,8,1,1,,1,,,,4096,none,recommended batch,seq,,2,", 1, 1 },
        { "a,TT,,Llama-3.1-8B,H100,8,bf16,8,1,1,,1,,1,8,8192,full,peak memory,GiB,,70,", 1, 1 },
        { "a,KOR,,GPT-22B,A100-80G,8,fp16,1,8,1,,1,,4,4,2048,full,weights+grads+optimizer,GiB,,45,", 0, 0 },
    };
    tm_parameters p = tm_parameters_fitted();
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        tm_arena         *arena = tm_arena_create();
        bool              right[2] = { false };
        tm_published_rows rows;
        assert_ok(read_lines(arena, of[i].row, &rows, err));
        int said = tm_row_verdicts(&rows.row[0], &p, right);
        if (said != of[i].said || right[0] + right[1] != of[i].right)
            fail_msg("row %zu: %d said, %d right", i, said, right[0] + right[1]);
        tm_arena_destroy(arena);
    }
}

/* An empty cell of a source that gives the stages of a rank elsewhere is one stage; of another, two. */
TEST(stages_of_a_rank_are_one_where_others_are_given)
{
    static const char *const files[2][2] = {
        { "a,MB,,Llama-3.1-8B,H100,8,bf16,1,1,8,,1,,1,64,8192,,throughput,tok/s/GPU,,9000,\n"
          "b,MB,,Llama-3.1-8B,H100,8,bf16,1,1,8,4,1,,1,64,8192,,throughput,tok/s/GPU,,9000,",
          "14" },
        { "a,MB,,Llama-3.1-8B,H100,8,bf16,1,1,8,,1,,1,64,8192,,throughput,tok/s/GPU,,9000,\n"
          "b,ML51,,Llama-3.1-8B,H100,8,bf16,1,1,8,4,1,,1,64,8192,,throughput,tok/s/GPU,,9000,",
          "24" },
    };
    for (int i = 0; i < 2; i++) {
        tm_arena         *arena = tm_arena_create();
        tm_published_rows rows;
        assert_ok(read_lines(arena, files[i][0], &rows, err));
        for (int k = 0; k < 2; k++) assert_int_equal(rows.row[k].job.vp, files[i][1][k] - '0');
        tm_arena_destroy(arena);
    }
}

TEST_FIXTURE(NULL, test_folder_teardown)
