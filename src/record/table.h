/* SPDX-License-Identifier: Apache-2.0 */
/* record/table.h - a result table as text: markdown for people, csv, tsv, json and jsonl for programs.
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

/* TERMINAL: markdown whose lines have 120 characters at most, as far as single columns do. Columns that say the same in
 * all rows are left out of a wider table and told below it; what does not fit beside the first column stands below,
 * beside it again, or beside numbers of the rows where the first column does not tell them apart. A table without rows
 * is its notes. */
typedef enum {
    TM_TABLE_MARKDOWN,
    TM_TABLE_CSV,
    TM_TABLE_TSV,
    TM_TABLE_JSON,
    TM_TABLE_JSONL,
    TM_TABLE_TERMINAL
} tm_table_format;

/* The format that a file name's extension (.md .csv .tsv .json .jsonl, each also with .gz behind it) asks for;
 * TM_USAGE, naming the known ones, for any other. For a check before the measurement. */
TM_MUST_USE tm_status tm_table_format_of(const char *path, tm_table_format *format, tm_error *err);

/* Appends the table. */
void tm_table_print(const tm_table *table, tm_table_format format, tm_text *out);

/* Writes the file as a whole or not at all (TM_IO); .gz is compressed. */
TM_MUST_USE tm_status tm_table_write(const tm_table *table, const char *path, tm_error *err);

#endif
