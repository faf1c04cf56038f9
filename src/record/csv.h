/* SPDX-License-Identifier: Apache-2.0 */
/* record/csv.h - private to the room: RFC 4180 cells. */
#ifndef TM_RECORD_CSV_H
#define TM_RECORD_CSV_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a cell, quoted only if it holds a comma, a quote or a line break; `first` leaves out the comma before it. */
void csv_add(tm_text *out, const char *cell, bool first);

/* Splits one record that starts at *cursor into at most `max` cells, stored one after the other in `storage` (emptied
 * first), their offsets in `offsets`. Quoted cells may hold line breaks. Moves *cursor behind the record's line end.
 * Returns the number of cells of the record (it may be above `max`), 0 at the end of the text. */
size_t csv_read(const char **cursor, tm_text *storage, size_t *offsets, size_t max);

#endif
