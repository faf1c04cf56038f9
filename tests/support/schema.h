/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/schema.h - a small checker of JSON Schema (2020-12): type, const, enum, properties, required,
 * additionalProperties, items, anyOf, minimum, minLength, maxLength; a keyword that it does not know is an error. */
#ifndef TM_TESTS_SCHEMA_H
#define TM_TESTS_SCHEMA_H

#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>

/* Is `value` what the schema describes? If not, *why says where and what. */
bool schema_check(const json_t *schema, const json_t *value, const char *path, tm_text *why);

#endif
