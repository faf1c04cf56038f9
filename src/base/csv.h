/* SPDX-License-Identifier: Apache-2.0 */
/* base/csv.h - comma-separated cells as in RFC 4180. */
#ifndef TM_BASE_CSV_H
#define TM_BASE_CSV_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a cell, quoted only if it holds a comma, a quote or a line break; `first` leaves out the comma before it.
 * What a terminal would obey is shown instead (base/plain.h); what a spreadsheet would take for a formula (=, +, - or @
 * first, and not a number) gets a ' in front, which tm_csv_read takes away. */
void tm_csv_add(tm_text *out, const char *cell, bool first);

/* Splits one record that starts at *cursor into at most `max` cells, stored one after the other in `storage` (emptied
 * first), their offsets in `offsets`. Quoted cells may hold line breaks. Moves *cursor behind the record's line end.
 * Returns the number of cells of the record (it may be above `max`), 0 at the end of the text. */
size_t tm_csv_read(const char **cursor, tm_text *storage, size_t *offsets, size_t max);

#endif
