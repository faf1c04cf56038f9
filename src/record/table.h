/* SPDX-License-Identifier: Apache-2.0 */
/* record/table.h - a result table as text: markdown for files that people read, csv, tsv, json and jsonl for programs.
 *
 * Markdown rounds to the column's digits; the other formats print every number so that it reads back the same. An empty
 * cell is empty in markdown, csv and tsv, null in JSON. Notes are lines under a markdown table and the member "notes"
 * of a json file; csv, tsv and jsonl hold rows only.
 */
#ifndef TM_RECORD_TABLE_H
#define TM_RECORD_TABLE_H

#include "base/status.h"
#include "base/table.h"
#include "base/text.h"

typedef enum { TM_TABLE_MARKDOWN, TM_TABLE_CSV, TM_TABLE_TSV, TM_TABLE_JSON, TM_TABLE_JSONL } tm_table_format;

/* What people see of a table: markdown of `width` characters at most, as far as single words permit. The columns are
 * those of tm_table_brief, or all; those that are empty are left out. A column of times, FLOP or bytes gets the unit of
 * its size, which its title names: "avg_time_ms" becomes "avg_time us". Of a table that is too wide, columns that say
 * the same in all rows are told above it, the least important of the others (tm_table_rank) are left out and named
 * below it, and the widest column of texts is broken into lines. Each row is a list of names and values where all
 * columns are asked for and do not fit, where there is one row only, and where not even three columns fit. Notes are
 * left to the terminal, so that commands in them can be copied. A table without rows is its notes. */
enum { TM_TABLE_WIDTH = 120 }; /* where there is no terminal: the same everywhere */
typedef struct {
    size_t      width;
    bool        all;  /* columns: --verbose */
    const char *rest; /* what shows the columns that are left out ("-v or --json"); NULL: is not told */
} tm_table_view;
void tm_table_show(const tm_table *table, const tm_table_view *view, tm_text *out);

/* The format that a file name's extension (.md .csv .tsv .json .jsonl, each also with .gz behind it) asks for;
 * TM_USAGE, naming the known ones, for any other. For a check before the measurement. */
TM_MUST_USE tm_status tm_table_format_of(const char *path, tm_table_format *format, tm_error *err);

/* Appends the table. */
void tm_table_print(const tm_table *table, tm_table_format format, tm_text *out);

/* Writes the file as a whole or not at all (TM_IO); .gz is compressed. */
TM_MUST_USE tm_status tm_table_write(const tm_table *table, const char *path, tm_error *err);

#endif
