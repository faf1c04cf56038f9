/* SPDX-License-Identifier: Apache-2.0 */
/* token/read_json.h - what both readers of tokenizer.json use; private to this room. */
#ifndef TM_TOKEN_READ_JSON_H
#define TM_TOKEN_READ_JSON_H

#include "token/internal.h"

/* TM_UNSUPPORTED: "'FILE': WHERE 'WHAT' is not supported". */
TM_MUST_USE tm_status tm_json_refuse(const tm_reading *r, const char *where, const char *what);
/* TM_UNSUPPORTED naming a key that is not in the list " a b c " and not null; TM_FORMAT if it is not an object. */
TM_MUST_USE tm_status tm_json_keys(const tm_reading *r, const char *where, json_t *object, const char *known);
bool                  tm_rule_flag(json_t *object, const char *key, bool otherwise);

#endif
