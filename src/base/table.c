/* SPDX-License-Identifier: Apache-2.0 */
#include "base/table.h"

#include "base/arena.h"
#include "base/status.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tm_table {
    tm_arena    *arena;
    const char  *name;
    tm_column   *columns;
    tm_cell     *cells; /* row after row */
    const char **notes;
    size_t      *brief; /* (n_columns) place in the list, from 1; 0: not there. NULL: all of them */
    size_t       n_columns, columns_capacity, n_rows, cells_capacity, n_notes, notes_capacity;
};

tm_table *tm_table_create(const char *name)
{
    tm_table *table = tm_alloc(sizeof *table);
    *table = (tm_table){ .arena = tm_arena_create() };
    table->name = tm_arena_text(table->arena, name);
    return table;
}

void tm_table_destroy(tm_table *table)
{
    if (!table) return;
    tm_arena_destroy(table->arena);
    free(table->columns);
    free(table->cells);
    free(table->notes);
    free(table->brief);
    free(table);
}

void tm_table_column(tm_table *table, const char *name, int digits)
{
    TM_ASSERT(table->n_rows == 0 && !table->brief && tm_table_find(table, name) < 0);
    table->columns = tm_grow(table->columns, &table->columns_capacity, table->n_columns, sizeof *table->columns);
    table->columns[table->n_columns++] = (tm_column){ tm_arena_text(table->arena, name), digits ? digits : 4 };
}

void tm_table_columns(tm_table *table, const tm_column *columns, size_t n)
{
    for (size_t i = 0; i < n; i++) tm_table_column(table, columns[i].name, columns[i].digits);
}

void tm_table_brief(tm_table *table, const char *const *columns, size_t n)
{
    free(table->brief);
    table->brief = tm_alloc((table->n_columns + 1) * sizeof *table->brief);
    memset(table->brief, 0, (table->n_columns + 1) * sizeof *table->brief);
    for (size_t i = 0; i < n; i++) {
        int at = tm_table_find(table, columns[i]);
        TM_ASSERT(at >= 0);
        table->brief[at] = i + 1;
    }
}

size_t tm_table_rank(const tm_table *table, size_t column)
{
    if (!table->brief) return column;
    return table->brief[column] ? table->brief[column] - 1 : table->n_columns + column;
}

bool tm_table_is_brief(const tm_table *table, size_t column)
{
    return !table->brief || table->brief[column] > 0;
}

void tm_table_row(tm_table *table)
{
    for (size_t i = 0; i < table->n_columns; i++) {
        size_t at = table->n_rows * table->n_columns + i;
        table->cells = tm_grow(table->cells, &table->cells_capacity, at, sizeof *table->cells);
        table->cells[at] = (tm_cell){ .kind = TM_CELL_EMPTY };
    }
    table->n_rows++;
}

static tm_cell *newest(tm_table *table, const char *column)
{
    int at = tm_table_find(table, column);
    TM_ASSERT(at >= 0 && table->n_rows > 0);
    return &table->cells[(table->n_rows - 1) * table->n_columns + (size_t)at];
}

void tm_table_text(tm_table *table, const char *column, const char *value)
{
    tm_cell *cell = newest(table, column);
    if (value) *cell = (tm_cell){ .kind = TM_CELL_TEXT, .text = tm_arena_text(table->arena, value) };
}

static const char *formatted(tm_table *table, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static const char *formatted(tm_table *table, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    TM_ASSERT(length >= 0);
    char *text = tm_arena_take(table->arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void tm_table_printf(tm_table *table, const char *column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = formatted(table, format, args);
    va_end(args);
    *newest(table, column) = (tm_cell){ .kind = TM_CELL_TEXT, .text = text };
}

void tm_table_i64(tm_table *table, const char *column, int64_t value)
{
    *newest(table, column) = (tm_cell){ .kind = TM_CELL_I64, .i64 = value };
}

void tm_table_f64(tm_table *table, const char *column, double value)
{
    tm_cell *cell = newest(table, column);
    if (!isnan(value)) *cell = (tm_cell){ .kind = TM_CELL_F64, .f64 = value };
}

void tm_table_bool(tm_table *table, const char *column, bool value)
{
    *newest(table, column) = (tm_cell){ .kind = TM_CELL_BOOL, .truth = value };
}

void tm_table_note(tm_table *table, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = formatted(table, format, args);
    va_end(args);
    table->notes = tm_grow(table->notes, &table->notes_capacity, table->n_notes, sizeof *table->notes);
    table->notes[table->n_notes++] = text;
}

const char *tm_table_name(const tm_table *table)
{
    return table->name;
}

size_t tm_table_n_columns(const tm_table *table)
{
    return table->n_columns;
}

size_t tm_table_n_rows(const tm_table *table)
{
    return table->n_rows;
}

size_t tm_table_n_notes(const tm_table *table)
{
    return table->n_notes;
}

const tm_column *tm_table_column_at(const tm_table *table, size_t column)
{
    TM_ASSERT(column < table->n_columns);
    return &table->columns[column];
}

int tm_table_find(const tm_table *table, const char *column)
{
    for (size_t i = 0; i < table->n_columns; i++)
        if (strcmp(table->columns[i].name, column) == 0) return (int)i;
    return -1;
}

const tm_cell *tm_table_cell(const tm_table *table, size_t row, size_t column)
{
    TM_ASSERT(row < table->n_rows && column < table->n_columns);
    return &table->cells[row * table->n_columns + column];
}

const char *tm_table_note_at(const tm_table *table, size_t note)
{
    TM_ASSERT(note < table->n_notes);
    return table->notes[note];
}
