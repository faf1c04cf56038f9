/* SPDX-License-Identifier: Apache-2.0 */
/* Tables on a terminal, by their properties: they fit, they hold the main columns and lose no cell, and a number times
 * the unit of its title is the number of the CSV file. */
#include "base/random.h"
#include "base/terminal.h"
#include "record/table.h"
#include "support/test.h"

static size_t widest_line(const char *text)
{
    size_t most = 0;
    for (const char *line = text; *line;) {
        size_t  n = strcspn(line, "\n");
        tm_text one = { 0 };
        tm_text_add_n(&one, line, n);
        size_t cells = one.data ? tm_terminal_cells(one.data) : 0;
        if (cells > most) most = cells;
        tm_text_fini(&one);
        line += n + (line[n] == '\n');
    }
    return most;
}

static uint64_t below(uint64_t seed, uint64_t index, uint64_t n)
{
    return tm_random_below(seed, 3, index, n);
}

/* Up to 40 columns of words, whole numbers and figures; some empty, some the same in all rows. */
static tm_table *random_table(uint64_t seed)
{
    static const char *const words[] = { "a", "model", "of", "µs", "some|size", "模型", "twelve chars", "x" };
    int                      n = 1 + (int)below(seed, 0, 40), rows = (int)below(seed, 1, 6);
    uint64_t                 at = 10;
    char                     name[40];
    tm_table                *table = tm_table_create("t");
    for (int c = 0; c < n; c++) {
        snprintf(name, sizeof name, "c%d%s", c, (const char *[]){ "", "_ms", "_tflops", "_gbps", "_pct" }[c % 5]);
        tm_table_column(table, name, 0);
    }
    for (int row = 0; row < rows; row++) {
        tm_table_row(table);
        for (int c = 0; c < n; c++) {
            uint64_t kind = below(seed, 1000 + (uint64_t)c, 5);
            tm_text  text = { 0 };
            snprintf(name, sizeof name, "%s", tm_table_column_at(table, (size_t)c)->name);
            if (kind == 0) tm_table_i64(table, name, (int64_t)below(seed, at++, 1000000));
            if (kind == 1) tm_table_f64(table, name, pow(10, (double)below(seed, at++, 12) - 6) * 3.1);
            for (uint64_t k = below(seed, at++, 12); k > 0 && kind == 2; k--)
                tm_text_printf(&text, "%s%s", text.length ? " " : "", words[below(seed, at++, 8)]);
            if (text.data) tm_table_text(table, name, text.data);
            if (kind == 3) tm_table_text(table, name, "same");
            tm_text_fini(&text);
        }
    }
    return table;
}

/* It fits, and every word and whole number of every cell is there, in a grid, in a list, or in what all rows have. */
TEST(nothing_is_lost)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        tm_table *table = random_table(seed);
        tm_text   text = { 0 };
        tm_text_add(&text, ""); /* a row may hold nothing */
        tm_table_show(table, &(tm_table_view){ .width = 40 + seed, .all = true }, &text);
        if (widest_line(text.data) > 40 + seed)
            fail_msg("seed %d: wider than %d\n%s", (int)seed, (int)seed + 40, text.data);
        for (size_t row = 0; row < tm_table_n_rows(table); row++)
            for (size_t c = 0; c < tm_table_n_columns(table); c++) {
                const tm_cell *cell = tm_table_cell(table, row, c);
                char           number[32];
                const char    *rest = cell->kind == TM_CELL_TEXT ? cell->text : number;
                snprintf(number, sizeof number, "%lld", cell->kind == TM_CELL_I64 ? (long long)cell->i64 : 0);
                if (cell->kind != TM_CELL_TEXT && cell->kind != TM_CELL_I64) continue;
                for (size_t n; *rest; rest += n + (rest[n] == ' ')) {
                    char word[64];
                    n = strcspn(rest, " ");
                    snprintf(word, sizeof word, "%.*s", (int)n, rest);
                    char *bar = strchr(word, '|');
                    if (bar) *bar = '\0'; /* escaped in a grid */
                    if (!strstr(text.data, word)) fail_msg("seed %d: no '%s' in\n%s", (int)seed, word, text.data);
                }
            }
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
}

/* Without all: rows stay lines of one grid. What is told above is the same in all rows, what is named below is less
 * important than what is shown, and no column is missing. Of one row, and of less than three columns, nothing is left
 * out. */
TEST(the_least_important_are_left_out)
{
    int dropped = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        tm_table   *table = random_table(seed);
        tm_text     text = { 0 };
        size_t      n = tm_table_n_columns(table), width = 60 + below(seed, 3, 141), most = 0, least = n, named = 0;
        const char *order[40];
        for (size_t i = 0; i < n; i++) /* the last column is the most important one */
            order[i] = tm_table_column_at(table, n - 1 - i)->name;
        tm_table_brief(table, order, n);
        tm_text_add(&text, "");
        tm_table_show(table, &(tm_table_view){ .width = width, .rest = "--all" }, &text);
        if (widest_line(text.data) > width) fail_msg("seed %d: wider than %zu\n%s", (int)seed, width, text.data);
        char *below_it = strstr(text.data, " left out: ");
        if (below_it) {
            dropped++;
            assert_true(tm_table_n_rows(table) > 1 && strstr(below_it, "--all"));
            char *grid = strncmp(text.data, "| ", 2) == 0 ? text.data : strstr(text.data, "\n| ");
            assert_non_null(grid);
            grid[strcspn(grid + 1, "\n") + 1] = '\0'; /* titles; what is told above stands before them */
            for (size_t c = 0; c < n; c++) {
                char        title[40], list[40];
                const char *name = tm_table_column_at(table, c)->name;
                size_t      rank = tm_table_rank(table, c);
                snprintf(title, sizeof title, "%.*s ", (int)strcspn(name, "_"), name);
                snprintf(list, sizeof list, " %s", name);
                char *at = strstr(below_it, list);
                bool  out = at && strchr(",;\n", at[strlen(list)]), in = strstr(grid + (*grid == '\n'), title) != NULL;
                named += out;
                if (out && in) fail_msg("seed %d: %s is left out and shown\n%s", (int)seed, name, grid);
                if (in && rank > most) most = rank;
                if (out && rank < least) least = rank;
            }
            assert_true(named > 0 && most < least);
        }
        tm_text_fini(&text);
        tm_table_destroy(table);
    }
    assert_true(dropped > 50);
}

/* Columns, " " between them; rows, each with its cells, ", " between them: a whole number, "": none, or words. */
static tm_table *table_of(const char *columns, const char *const *rows, size_t n)
{
    tm_table *table = tm_table_create("t");
    char      text[200], *rest = text;
    strcpy(text, columns);
    for (char *name; (name = strsep(&rest, " "));) tm_table_column(table, name, 0);
    for (size_t row = 0; row < n; row++) {
        size_t column = 0;
        tm_table_row(table);
        rest = strcpy(text, rows[row]);
        for (char *cell; (cell = strsep(&rest, ",")); column++) {
            const char *name = tm_table_column_at(table, column)->name;
            cell += *cell == ' ';
            if (*cell && strspn(cell, "0123456789") == strlen(cell))
                tm_table_i64(table, name, atoll(cell));
            else if (*cell)
                tm_table_text(table, name, cell);
        }
    }
    return table;
}

static void shows(const tm_table *table, tm_table_view view, const char *wanted)
{
    tm_text text = { 0 };
    tm_table_show(table, &view, &text);
    assert_string_equal(text.data, wanted);
    tm_text_fini(&text);
}

/* A table is a grid as long as it fits, to the character; words of a text go on below it. */
TEST(the_edge)
{
    static const char *const numbers[] = { "1, 12345678", "2, 12345679" }, *const words[] = {
        "7, the budget ended before it"
    };
    tm_table *table = table_of("first second", numbers, 2), *other = table_of("n why", words, 1);
    shows(table, (tm_table_view){ .width = 20 },
          "| first |   second |\n|------:|---------:|\n|     1 | 12345678 |\n|     2 | 12345679 |\n");
    shows(table, (tm_table_view){ .width = 19 }, "first   1\nsecond  12345678\n\nfirst   2\nsecond  12345679\n");
    shows(
        other, (tm_table_view){ .width = 25 },
        "| n | why               |\n|--:|-------------------|\n| 7 | the budget ended  |\n|   | before it         |\n");
    tm_table_destroy(table);
    tm_table_destroy(other);
}

/* The whole text: what all rows have above, the rows, what is left out below. */
TEST(rows_of_eighty_columns_compare)
{
    static const char *const brief[] = { "name", "rate", "size", "why", "tag", "device", "threads" };
    static const char *const rows[] = { "cpu, first, 2, B, 10, few words, 7",
                                        "cpu, the second, 2, A, 11, no more words than these six, 6" };
    tm_table                *table = table_of("device name threads tag rate why size", rows, 2);
    tm_table_brief(table, brief, 7);
    shows(table, (tm_table_view){ .width = 52, .rest = "-v" },
          "all rows: device cpu, threads 2\n\n"
          "| name       | rate | why                   | size |\n"
          "|------------|-----:|-----------------------|-----:|\n"
          "| first      |   10 | few words             |    7 |\n"
          "| the second |   11 | no more words than    |    6 |\n"
          "|            |      | these six             |      |\n\n"
          "1 column left out: tag; -v has it\n");
    shows(table, (tm_table_view){ .width = 41, .rest = "-v" },
          "all rows: device cpu, threads 2\n\n"
          "| name       | rate | size |\n"
          "|------------|-----:|-----:|\n"
          "| first      |   10 |    7 |\n"
          "| the second |   11 |    6 |\n\n"
          "2 columns left out: why, tag; -v has them\n");
    tm_table_destroy(table);
}

/* The number of a person's table, times its unit, is that of the file. */
TEST(units_are_those_of_the_size)
{
    static const struct {
        const char *column;
        double      scale;
    } columns[] = { { "avg_time_ms", 1e-3 }, { "step_s", 1 },           { "tflops", 1e12 },   { "tflops_6n", 1e12 },
                    { "fwd_tflops", 1e12 },  { "bandwidth_gbps", 1e9 }, { "best_mbps", 1e6 }, { "tflop", 1e12 } };
    static const struct {
        const char *unit;
        double      size;
    } units[] = { { "ns", 1e-9 },     { "us", 1e-6 },      { "ms", 1e-3 },      { "s", 1 },        { "MFLOP/s", 1e6 },
                  { "GFLOP/s", 1e9 }, { "TFLOP/s", 1e12 }, { "PFLOP/s", 1e15 }, { "MB/s", 1e6 },   { "GB/s", 1e9 },
                  { "TB/s", 1e12 },   { "MFLOP", 1e6 },    { "GFLOP", 1e9 },    { "TFLOP", 1e12 }, { "PFLOP", 1e15 } };
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        for (int exponent = -9; exponent <= 6; exponent++) {
            double    value = 1.2345 * pow(10, exponent), size = 0;
            char      title[64], digits[64];
            tm_table *table = tm_table_create("t");
            tm_text   text = { 0 };
            tm_table_column(table, columns[c].column, 5);
            tm_table_row(table);
            tm_table_f64(table, columns[c].column, value);
            tm_table_show(table, &(tm_table_view){ .width = 80 }, &text);
            assert_int_equal(sscanf(text.data, "| %63[^|]|\n|%*[-:]|\n| %63[^|]|", title, digits), 2);
            char *end = title + strlen(title);
            while (end > title && end[-1] == ' ') *--end = '\0';
            const char *unit = strrchr(title, ' ') ? strrchr(title, ' ') + 1 : title;
            for (size_t u = 0; u < sizeof units / sizeof *units; u++)
                if (strcmp(units[u].unit, unit) == 0) size = units[u].size;
            double shown = strtod(digits, NULL), physical = value * columns[c].scale;
            if (!(fabs(shown * size / physical - 1) < 1e-3)) fail_msg("%s %g: %s", columns[c].column, value, text.data);
            bool at_the_end =
                strcmp(unit, "s") == 0 || strcmp(unit, "ns") == 0 || unit[0] == 'M' || unit[0] == 'P' || unit[0] == 'T';
            if (!at_the_end) assert_true(shown >= 0.9999 && shown < 1000.5);
            assert_null(strstr(title, "tflops"));
            tm_text_fini(&text);
            tm_table_destroy(table);
        }
}

/* One unit for a column: that of its largest number, so that rows compare by eye. */
TEST(a_column_has_one_unit)
{
    tm_table *table = tm_table_create("t");
    tm_table_column(table, "median_ms", 3);
    for (int row = 0; row < 3; row++) {
        tm_table_row(table);
        if (row < 2) tm_table_f64(table, "median_ms", row ? 0.25 : 0.001);
    }
    shows(table, (tm_table_view){ .width = 80 },
          "| median us |\n|----------:|\n|         1 |\n|       250 |\n|           |\n");
    tm_table_destroy(table);
}
