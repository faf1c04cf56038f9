/* SPDX-License-Identifier: Apache-2.0 */
/* Published figures: the tables agree with themselves, and only like is put beside like. */

#include "support/test.h"

#include "apps/bench/bench.h"
#include "apps/bench/published.h"

static tm_published *built_in(void)
{
    tm_published *reference;
    tm_error      err = { 0 };
    assert_int_equal(tm_published_read("reference", &reference, &err), TM_OK);
    return reference;
}

static const char *text(const tm_table *table, size_t row, const char *column)
{
    const tm_cell *cell = tm_table_cell(table, row, (size_t)tm_table_find(table, column));
    return cell->kind == TM_CELL_TEXT ? cell->text : "";
}

static double number(const tm_table *table, size_t row, const char *column)
{
    const tm_cell *cell = tm_table_cell(table, row, (size_t)tm_table_find(table, column));
    return cell->kind == TM_CELL_F64 ? cell->f64 : cell->kind == TM_CELL_I64 ? (double)cell->i64 : (double)NAN;
}

/* "8192x8192x8192" with the time that the note gives: 2 M N K / time is the value, as far as its digits go. */
TEST(products_agree_with_their_times)
{
    tm_published *reference = built_in();
    tm_table     *table = tm_published_list(reference, "gemm");
    int           checked = 0;
    for (size_t i = 0; i < tm_table_n_rows(table); i++) {
        double      m, n, k, ms;
        const char *at = strstr(text(table, i, "note"), "median ");
        if (!at || sscanf(at, "median %lf", &ms) != 1) continue;
        assert_int_equal(sscanf(text(table, i, "row"), "%lfx%lfx%lf", &m, &n, &k), 3);
        double tflops = 2 * m * n * k / (ms * 1e9);
        assert_true(fabs(tflops / number(table, i, "value") - 1) < 0.5e-3 / ms + 1e-3);
        checked++;
    }
    assert_int_equal(checked, 14);
    tm_table_destroy(table);
    tm_published_destroy(reference);
}

/* tokens/s x 6 N gives the published TFLOP/s: the GPT suite's own counting. */
TEST(the_suite_counts_6n)
{
    static const struct {
        const char *row;
        double      parameters;
    } sizes[] = { { "small", 30124416 },  { "medium", 123972864 }, { "large", 354102272 }, { "xl", 773006080 },
                  { "1.5b", 1437307392 }, { "3b", 2646965760 },    { "7b", 5243875328 },   { "13b", 10120207360 } };
    tm_published *reference = built_in();
    tm_table     *table = tm_published_list(reference, "gpt");
    for (size_t s = 0; s < 8; s++) {
        double rate = NAN, tflops = NAN;
        for (size_t i = 0; i < tm_table_n_rows(table); i++) {
            if (strcmp(text(table, i, "row"), sizes[s].row) != 0) continue;
            if (strcmp(text(table, i, "column"), "tokens_per_second") == 0) rate = number(table, i, "value");
            if (strcmp(text(table, i, "column"), "tflops_6n") == 0) tflops = number(table, i, "value");
        }
        assert_true(fabs(6 * sizes[s].parameters * rate / 1e12 - tflops) < 0.06);
    }
    tm_table_destroy(table);
    tm_published_destroy(reference);
}

static tm_table *measured(const char *workload, const char *name, const char *column, double value)
{
    tm_table *table = tm_table_create(workload);
    tm_table_column(table, "case", 0);
    tm_table_column(table, column, 0);
    tm_table_row(table);
    tm_table_text(table, "case", name);
    tm_table_f64(table, column, value);
    return table;
}

/* A row that is compared has what was measured, the quotient, and the published row as it is listed. */
TEST(a_compared_row_is_the_published_one)
{
    static const char *const columns[] = { "device", "dtype", "batch", "seq", "source", "date", "note", "unit" };
    tm_published            *reference = built_in();
    tm_table *here = measured("gpt", "small", "tflops_6n", 12.5), *all = tm_published_list(reference, "gpt");
    tm_table *table = tm_published_compare(reference, here);
    size_t    row = 0;
    while (strcmp(text(all, row, "row"), "small") != 0 || strcmp(text(all, row, "column"), "tflops_6n") != 0) row++;
    assert_int_equal(tm_table_n_rows(table), 1);
    assert_string_equal(text(table, 0, "case"), "small");
    assert_string_equal(text(table, 0, "column"), "tflops_6n");
    assert_true(number(table, 0, "measured") == 12.5);
    assert_true(number(table, 0, "published") == number(all, row, "value"));
    assert_true(fabs(number(table, 0, "ratio") * number(all, row, "value") - 12.5) < 1e-9);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        assert_string_equal(text(table, 0, columns[i]), text(all, row, columns[i]));
    assert_int_equal(tm_table_n_notes(table), 1);
    assert_int_equal(strncmp(tm_table_note_at(table, 0), "measured: here, per device; published: ", 39), 0);
    tm_table_destroy(table), tm_table_destroy(here), tm_table_destroy(all);
    tm_published_destroy(reference);
}

#define HEADER "workload,row,device,devices,scope,dtype,batch,seq,column,value,unit,convention,source,date,note\n"
