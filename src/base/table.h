/* SPDX-License-Identifier: Apache-2.0 */
/* base/table.h - a result as rows under named columns, with notes below.
 *
 * Whoever measures fills a table; record/table.h writes it in any format. A cell that is never set is empty (null in
 * JSON): "not measured" is not zero. All strings are copied.
 */
#ifndef TM_BASE_TABLE_H
#define TM_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { TM_CELL_EMPTY, TM_CELL_TEXT, TM_CELL_I64, TM_CELL_F64, TM_CELL_BOOL } tm_cell_kind;

typedef struct {
    tm_cell_kind kind;
    union {
        const char *text;
        int64_t     i64;
        double      f64;
        bool        truth;
    };
} tm_cell;

typedef struct {
    const char *name;   /* "avg_time_ms": the key of the machine formats, unit included */
    int         digits; /* significant digits where people read (markdown); 0: 4. Machine formats hold all digits */
} tm_column;

typedef struct tm_table tm_table;

/* `name` is one word ("gemm"). The caller destroys it. */
tm_table *tm_table_create(const char *name);
void      tm_table_destroy(tm_table *table); /* NULL is fine */

/* Columns are added before the first row; a name given twice is a bug. */
void tm_table_column(tm_table *table, const char *name, int digits);
void tm_table_columns(tm_table *table, const tm_column *columns, size_t n);
/* Names the columns that people see unless they ask for all, the most important one first; the others are in files.
 * Without a call: all, in their order. A name that is no column is a bug. */
void tm_table_brief(tm_table *table, const char *const *columns, size_t n);
bool tm_table_is_brief(const tm_table *table, size_t column);
/* 0: the most important column. Those that are not brief come behind those that are. */
size_t tm_table_rank(const tm_table *table, size_t column);
/* A new row, all cells empty; the setters below fill the newest. Asking for a column that is not there is a bug. */
void tm_table_row(tm_table *table);
void tm_table_text(tm_table *table, const char *column, const char *value); /* NULL: empty */
void tm_table_printf(tm_table *table, const char *column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tm_table_i64(tm_table *table, const char *column, int64_t value);
void tm_table_f64(tm_table *table, const char *column, double value); /* NAN: empty */
void tm_table_bool(tm_table *table, const char *column, bool value);
/* One line said about the whole table. */
void tm_table_note(tm_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char      *tm_table_name(const tm_table *table);
size_t           tm_table_n_columns(const tm_table *table);
size_t           tm_table_n_rows(const tm_table *table);
size_t           tm_table_n_notes(const tm_table *table);
const tm_column *tm_table_column_at(const tm_table *table, size_t column);
/* The column's place, or -1. */
int            tm_table_find(const tm_table *table, const char *column);
const tm_cell *tm_table_cell(const tm_table *table, size_t row, size_t column);
const char    *tm_table_note_at(const tm_table *table, size_t note);

#endif
