/* SPDX-License-Identifier: Apache-2.0 */
/* record/table_cell.h - private to the room: cells as text, for files and for people. */
#ifndef TM_RECORD_TABLE_CELL_H
#define TM_RECORD_TABLE_CELL_H

#include "base/table.h"
#include "base/text.h"

/* A cell as text; digits < 0: all of them. `buffer` holds numbers. */
const char *table_cell_text(const tm_cell *cell, int digits, char buffer[64]);
/* Columns of a terminal that it takes in markdown, where a bar is escaped. */
size_t table_cell_width(const char *text);
/* Appends " text |" in markdown, blanks filling up to `width`, on the left if `right`. */
void table_add_padded(tm_text *out, const char *text, size_t width, bool right);

#endif
