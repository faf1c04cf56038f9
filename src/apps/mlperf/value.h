/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/value.h - JSON values as Python's json module reads them: NaN, Infinity and -Infinity are numbers,
 * integers have any length, a member given twice counts as the last one says. (base/json.h writes, jansson reads files
 * of our own; neither knows these.) Text comes in as Latin-1 and is kept as UTF-8.
 */
#ifndef TM_MLPERF_VALUE_H
#define TM_MLPERF_VALUE_H

#include "base/arena.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    TM_JSON_NULL,
    TM_JSON_BOOL,
    TM_JSON_NUMBER,
    TM_JSON_TEXT,
    TM_JSON_LIST,
    TM_JSON_OBJECT,
} tm_json_kind;

typedef struct tm_json_value tm_json_value;
struct tm_json_value {
    tm_json_kind kind;
    bool         integer; /* a number without point and exponent */
    bool         boolean;
    double       number; /* nearest double, of integers too; a bool as 0 or 1 */
    /* Text in UTF-8, U+0000 as the bytes C0 80, so that it ends at the first NUL; of a number the literal. */
    const char          *text;
    const char          *name;  /* of a member; else NULL */
    const tm_json_value *first; /* item or member, in the order of the text; NULL: none */
    const tm_json_value *next;  /* behind this one in the same list or object */
};

/* Most nesting, digits of an integer and members of an object that are read. */
enum { TM_JSON_DEPTH = 200, TM_JSON_DIGITS = 4300, TM_JSON_MEMBERS = 4096 };

/* Parses `length` bytes that hold one value and white space around it. The value lives in `arena`. NULL if they do not;
 * then *problem is what was wrong (a constant) and *where the byte. */
const tm_json_value *tm_json_parse(tm_arena *arena, const char *bytes, size_t length, const char **problem,
                                   size_t *where);

/* The last member of that name; NULL if there is none or `object` is NULL or no object. */
const tm_json_value *tm_json_member(const tm_json_value *object, const char *name);
/* Is it this text? NULL is not. */
bool tm_json_is_text(const tm_json_value *value, const char *text);
/* Is it a number in Python's eyes, where True is 1? */
bool tm_json_is_number(const tm_json_value *value);
/* Python's ==: 1 equals 1.0 and true; integers are compared by all their digits; NaN equals nothing; text never equals
 * a number. */
bool tm_json_equal(const tm_json_value *a, const tm_json_value *b);
/* Appends the value as Python's json.dumps prints it; a number prints as its literal. */
void tm_json_print(const tm_json_value *value, tm_text *out);
/* Appends UTF-8 `text` quoted, ASCII only: \" \\ \n \r \t \b \f, else \uXXXX. Bytes that are not UTF-8 become \ufffd.
 */
void tm_json_print_text(const char *text, tm_text *out);

#endif
