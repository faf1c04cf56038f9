/* SPDX-License-Identifier: Apache-2.0 */
/* data/token_list.h - token ids in a file: a JSON array of whole numbers, or a numpy array of int32 or int64 with one
 * axis (or one row). */
#ifndef TM_DATA_TOKEN_LIST_H
#define TM_DATA_TOKEN_LIST_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* *out is the caller's to free. Every id is in 0 .. vocab - 1. TM_INVALID: unreadable, or an id beyond the vocabulary;
 * TM_FORMAT: no such file. */
TM_MUST_USE tm_status tm_token_list_read(const char *path, int64_t vocab, int32_t **out, int64_t *n, tm_error *err);
/* The same of bytes in memory; `name` is for messages. */
TM_MUST_USE tm_status tm_token_list_parse(const char *name, const uint8_t *bytes, size_t size, int64_t vocab,
                                          int32_t **out, int64_t *n, tm_error *err);

#endif
