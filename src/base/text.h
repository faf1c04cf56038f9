/* SPDX-License-Identifier: Apache-2.0 */
/* base/text.h - a growing string, and the few text helpers that every room needs. */
#ifndef TM_BASE_TEXT_H
#define TM_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; free with tm_text_fini. `data` is NUL-terminated once anything was added, NULL before. */
typedef struct {
    char  *data;
    size_t length, capacity;
} tm_text;

void tm_text_add(tm_text *text, const char *string);
void tm_text_add_n(tm_text *text, const char *bytes, size_t n);
void tm_text_printf(tm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tm_text_fini(tm_text *text);

/* Appends the words of `words` and a line end, in lines of at most `width` columns where the words permit it: `column`
 * of the first line are taken, the others begin behind `indent` blanks. */
void tm_text_fill(tm_text *text, const char *words, size_t column, size_t indent, size_t width);

/* Length of the valid UTF-8 sequence at s (1-4), or 0. */
size_t tm_utf8_length(const unsigned char *s);
/* Code points of a UTF-8 text: the columns that most of them take on a terminal. */
size_t tm_utf8_width(const char *text);

/* Shortest decimal that reads back as the same double ("0.1", "1000", "nan", "inf"). With an exponent only where the
 * size is below 1e-4 or from 1e17 on ("1e-08"); 0 is "0". Returns out. */
char *tm_format_double(char out[32], double value);
/* With thousands separators, whatever the locale: 1234567 -> "1,234,567". Returns out. */
char *tm_format_grouped(char out[40], int64_t value);
/* Binary units: 1536 -> "1.50 KiB". Returns out. */
char *tm_format_bytes(char out[32], double bytes);

/* Edit distance of two short strings, letter case ignored; for "did you mean". */
int tm_edit_distance(const char *a, const char *b);
/* Equal when letter case and the difference between '-' and '_' are ignored? Dots count as themselves. */
bool tm_names_equal(const char *a, const char *b);

#endif
