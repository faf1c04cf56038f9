/* SPDX-License-Identifier: Apache-2.0 */
/* data/safetensors.h - named tensors in files that are mapped, not read; one file, or shards under an index.
 *
 *   bytes 0-7        N, little-endian: length of the header
 *   bytes 8 .. 8+N   JSON, blanks may follow: {"__metadata__": {name: text, ...}, NAME: {"dtype": "BF16",
 *                    "shape": [2048, 768], "data_offsets": [begin, end]}, ...}
 *   then             the tensors, row-major, little-endian, one behind the other without gaps; offsets count from here
 *
 * An index is JSON, {"metadata": {...}, "weight_map": {NAME: FILE, ...}}, the files beside it. Nothing that such a file
 * says is believed before it is checked: sizes, overflow, gaps, overlaps, names given twice, names of files that lead
 * elsewhere.
 */
#ifndef TM_DATA_SAFETENSORS_H
#define TM_DATA_SAFETENSORS_H

#include "base/status.h"
#include "base/text.h"
#include "graph/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most files of a model: five times the most published, and what a process may have open where nobody raised that. */
enum { TM_SAFETENSORS_MAX_FILES = 1000 };

/* X(name in a file, bits of an element, our format; TM_DTYPE_COUNT: none) */
/* clang-format off: it does not come to rest here */
#define TM_SAFETENSORS_DTYPES(X)                                                                                       \
    X("F64", 64, TM_F64)                                                                                               \
    X("F32", 32, TM_F32)                                                                                               \
    X("F16", 16, TM_F16)                                                                                               \
    X("BF16", 16, TM_BF16)                                                                                             \
    X("I64", 64, TM_I64)                                                                                               \
    X("I32", 32, TM_I32)                                                                                               \
    X("I16", 16, TM_DTYPE_COUNT)                                                                                       \
    X("I8", 8, TM_DTYPE_COUNT)                                                                                         \
    X("U8", 8, TM_U8)                                                                                                  \
    X("U16", 16, TM_DTYPE_COUNT)                                                                                       \
    X("U32", 32, TM_DTYPE_COUNT)                                                                                       \
    X("U64", 64, TM_DTYPE_COUNT)                                                                                       \
    X("BOOL", 8, TM_DTYPE_COUNT)                                                                                       \
    X("F8_E4M3", 8, TM_E4M3)                                                                                           \
    X("F8_E5M2", 8, TM_E5M2)                                                                                           \
    X("F8_E8M0", 8, TM_E8M0)                                                                                           \
    X("F8_E4M3FNUZ", 8, TM_E4M3FNUZ)                                                                                   \
    X("F8_E5M2FNUZ", 8, TM_E5M2FNUZ)                                                                                   \
    X("F4", 4, TM_E2M1)                                                                                                \
    X("F6_E2M3", 6, TM_DTYPE_COUNT)                                                                                    \
    X("F6_E3M2", 6, TM_DTYPE_COUNT)                                                                                    \
    X("C64", 64, TM_DTYPE_COUNT)
/* clang-format on */

enum { TM_SAFETENSORS_MAX_RANK = 8 };

typedef struct {
    const char    *name;
    const char    *dtype_name; /* "BF16" */
    tm_dtype       dtype;      /* TM_DTYPE_COUNT: no format of ours */
    int            rank;       /* 0: one number */
    int64_t        n[TM_SAFETENSORS_MAX_RANK];
    const uint8_t *data; /* in the map, at any address: copy before reading elements; NULL when bytes is 0 */
    size_t         bytes;
    const char    *file;   /* path, for messages */
    int64_t        offset; /* of `data` in the file, for messages */
} tm_stored_tensor;

typedef struct tm_safetensors tm_safetensors;

/* Opens a file, or an index (a name that ends in ".json") with all its shards. TM_INVALID: unreadable; TM_FORMAT:
 * damaged or hostile, naming file, tensor and offset. */
TM_MUST_USE tm_status tm_safetensors_open(const char *path, tm_safetensors **out, tm_error *err);
/* A file that is in memory already and outlives *out; `name` is for messages. */
TM_MUST_USE tm_status tm_safetensors_parse(const char *name, const uint8_t *bytes, size_t size, tm_safetensors **out,
                                           tm_error *err);
/* Tensors of another kind of file: the list is copied; all that it points to lives until release(owner), which closing
 * *out does, and a failure. TM_FORMAT: two have one name. */
TM_MUST_USE tm_status tm_safetensors_of(const tm_stored_tensor *tensors, size_t n, void *owner,
                                        void (*release)(void *owner), tm_safetensors **out, tm_error *err);
void                  tm_safetensors_close(tm_safetensors *set); /* NULL is fine */

/* All tensors in the order of their names; *n is their number. Valid until the set is closed. */
const tm_stored_tensor *tm_safetensors_list(const tm_safetensors *set, size_t *n);
const tm_stored_tensor *tm_safetensors_find(const tm_safetensors *set, const char *name); /* NULL: not there */
/* A text of __metadata__ (of the first shard that has it), or NULL. */
const char *tm_safetensors_metadata(const tm_safetensors *set, const char *key);
/* TM_INVALID if a file has become shorter since it was opened; to be asked before long reading. */
TM_MUST_USE tm_status tm_safetensors_check(const tm_safetensors *set, tm_error *err);
/* "[2048, 768]" */
char *tm_stored_shape_text(char out[192], const tm_stored_tensor *tensor);

/* Names of tensors for a message: the first five, then "...". Zero-initialise; free with tm_text_fini(&list.text). */
typedef struct {
    tm_text text;
    size_t  n; /* of all that were added */
} tm_name_list;
void tm_name_list_add(tm_name_list *list, const char *name);

/* "BF16"; NULL: the format has no name in such a file. */
const char *tm_safetensors_dtype_name(tm_dtype dtype);

/* --- writing ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    tm_dtype    dtype; /* with a name in the table above */
    int         rank;
    int64_t     n[TM_SAFETENSORS_MAX_RANK];
} tm_tensor_heading;

typedef struct tm_safetensors_writer tm_safetensors_writer;

/* The header, but for its length in front: padded with blanks so that data begins at a multiple of 64. `metadata` as
 * below. Adds to *out; returns the bytes of all tensors. */
size_t tm_safetensors_header(tm_text *out, const tm_tensor_heading *tensors, size_t n,
                             const char *const (*metadata)[2]);
/* Writes the header, padded with blanks so that data begins at a multiple of 64. metadata: pairs {"format", "pt"},
 * ended by NULL; may be NULL. The file replaces `path` when it is closed, complete. A format without a name in the
 * table is a bug. TM_IO. */
TM_MUST_USE tm_status tm_safetensors_create(const char *path, const tm_tensor_heading *tensors, size_t n,
                                            const char *const (*metadata)[2], tm_safetensors_writer **out,
                                            tm_error *err);
/* The bytes of all tensors in their order, in pieces of any length. A failure is remembered until the end. */
void tm_safetensors_write(tm_safetensors_writer *writer, const void *bytes, size_t n);
/* Too few or too many bytes are a bug. TM_IO: nothing is left behind. */
TM_MUST_USE tm_status tm_safetensors_finish(tm_safetensors_writer *writer, tm_error *err);
void                  tm_safetensors_abandon(tm_safetensors_writer *writer); /* removes what was written */

#endif
