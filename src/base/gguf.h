/* SPDX-License-Identifier: Apache-2.0 */
/* base/gguf.h - GGUF files, as llama.cpp has them: named values, then named tensors.
 *
 *   bytes 0-3     "GGUF", then the version (uint32: 2 or 3), the numbers of tensors and of values (uint64 each)
 *   values        key (text), type (uint32), value; a text is its length (uint64) and bytes; an array is a type
 *                 (uint32), a number (uint64) and as many values
 *   tensors       name (text), number of axes (uint32), axes (uint64, the innermost first), format (uint32), offset
 *   data          begins at a multiple of general.alignment (32 unless given), and so does each tensor in it
 *
 * All little-endian. Nothing that such a file says is believed before it is checked: no memory is taken for a number
 * that is only claimed. What tensors and keys mean is not known here. */
#ifndef TM_BASE_GGUF_H
#define TM_BASE_GGUF_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    TM_GGUF_U8,
    TM_GGUF_I8,
    TM_GGUF_U16,
    TM_GGUF_I16,
    TM_GGUF_U32,
    TM_GGUF_I32,
    TM_GGUF_F32,
    TM_GGUF_BOOL,
    TM_GGUF_TEXT,
    TM_GGUF_ARRAY,
    TM_GGUF_U64,
    TM_GGUF_I64,
    TM_GGUF_F64,
    TM_GGUF_TYPES,
} tm_gguf_type;

/* Formats of tensors that are read and written, by the numbers that files have. */
enum { TM_GGUF_FORMAT_F32 = 0, TM_GGUF_FORMAT_F16 = 1, TM_GGUF_FORMAT_Q8_0 = 8, TM_GGUF_FORMAT_BF16 = 30 };

/* general.file_type: the format of most matrices. */
enum { TM_GGUF_MOSTLY_F32 = 0, TM_GGUF_MOSTLY_Q8_0 = 7, TM_GGUF_MOSTLY_BF16 = 32 };

/* q8_0: blocks of 32 elements of a row, a float16 scale d and 32 int8 q: d q. */
enum { TM_Q8_0_ELEMENTS = 32, TM_Q8_0_BYTES = 34, TM_GGUF_MAX_AXES = 4 };

typedef struct {
    const char    *key;
    tm_gguf_type   type; /* of an array: of its elements */
    bool           array;
    uint64_t       count; /* elements of an array, else 1 */
    const uint8_t *bytes; /* the values, as the file has them, at any address */
} tm_gguf_value;

typedef struct {
    const char    *name;
    int            rank;
    int64_t        n[TM_GGUF_MAX_AXES]; /* the outermost first, unlike in the file */
    uint32_t       format;
    const uint8_t *data;   /* at a multiple of the alignment in the file; NULL: a format that is not read */
    size_t         bytes;  /* 0: such a format */
    int64_t        offset; /* in the file */
} tm_gguf_tensor;

typedef struct tm_gguf tm_gguf;

/* Is there a file that is called so ("x.gguf") or begins so? */
bool tm_is_gguf(const char *path);
/* TM_INVALID: unreadable; TM_FORMAT: damaged or hostile, naming file, key or tensor; TM_UNSUPPORTED: another version,
 * or byte order. The file stays mapped until it is closed. */
TM_MUST_USE tm_status tm_gguf_open(const char *path, tm_gguf **out, tm_error *err);
/* A file that is in memory already and outlives *out; `name` is for messages. */
TM_MUST_USE tm_status tm_gguf_parse(const char *name, const uint8_t *bytes, size_t size, tm_gguf **out, tm_error *err);
void                  tm_gguf_close(tm_gguf *gguf); /* NULL is fine */

const char          *tm_gguf_name(const tm_gguf *gguf);
const tm_gguf_value *tm_gguf_values(const tm_gguf *gguf, size_t *n); /* in the order of their keys */
/* In the order of their names. */
const tm_gguf_tensor *tm_gguf_tensors(const tm_gguf *gguf, size_t *n);
const tm_gguf_value  *tm_gguf_find(const tm_gguf *gguf, const char *key);         /* NULL: not there */
const tm_gguf_tensor *tm_gguf_find_tensor(const tm_gguf *gguf, const char *name); /* NULL: not there */

/* A text, *n bytes long and not ended by a NUL; NULL: no such key, or no text. */
const char *tm_gguf_text(const tm_gguf *gguf, const char *key, size_t *n);
/* A whole number of any type; false: no such key, no number, or beyond int64. */
bool tm_gguf_whole(const tm_gguf *gguf, const char *key, int64_t *out);
/* Element i of a value or array of numbers; false ones and true ones are 0 and 1. */
double tm_gguf_number(const tm_gguf_value *value, uint64_t i);
/* The text that begins at *at, within an array of texts, *n bytes long; *at goes behind it. */
const char *tm_gguf_next_text(const uint8_t **at, size_t *n);
/* An array of that type and its number of elements, NULL: no such key, or something else. */
const tm_gguf_value *tm_gguf_array(const tm_gguf *gguf, const char *key, tm_gguf_type type);

/* "q4_K", or "number 77" in `room`. */
const char *tm_gguf_format_name(uint32_t format, char room[32]);
/* Bytes of n elements, a multiple of 32 for q8_0; 0: a format that is not read. */
size_t tm_gguf_bytes(uint32_t format, int64_t n);

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Values, in the order in which they are put; zero-initialise, free with tm_text_fini(&head.bytes). */
typedef struct {
    tm_text  bytes;
    uint64_t count;
} tm_gguf_head;

void tm_gguf_put_u32(tm_gguf_head *head, const char *key, uint32_t value);
void tm_gguf_put_f32(tm_gguf_head *head, const char *key, float value);
void tm_gguf_put_bool(tm_gguf_head *head, const char *key, bool value);
void tm_gguf_put_text(tm_gguf_head *head, const char *key, const char *text, size_t n);
/* The beginning of an array; `count` elements follow, by the two below. */
void tm_gguf_put_array(tm_gguf_head *head, const char *key, tm_gguf_type type, uint64_t count);
void tm_gguf_add_text(tm_gguf_head *head, const char *text, size_t n);
void tm_gguf_add_number(tm_gguf_head *head, tm_gguf_type type, double value); /* TM_GGUF_I32, TM_GGUF_F32 */

typedef struct tm_gguf_writer tm_gguf_writer;

/* Writes all but the data; of the tensors name, rank, axes and format count. The file replaces `path` when it is
 * closed, complete. TM_IO. */
TM_MUST_USE tm_status tm_gguf_create(const char *path, const tm_gguf_head *head, const tm_gguf_tensor *tensors,
                                     size_t n, tm_gguf_writer **out, tm_error *err);
/* All bytes of the next tensor. TM_IO. */
TM_MUST_USE tm_status tm_gguf_write(tm_gguf_writer *writer, const void *bytes, size_t n, tm_error *err);
/* Fewer tensors than were announced are a bug. TM_IO: nothing is left behind. */
TM_MUST_USE tm_status tm_gguf_finish(tm_gguf_writer *writer, tm_error *err);
void                  tm_gguf_abandon(tm_gguf_writer *writer); /* removes what was written; NULL is fine */

#endif
