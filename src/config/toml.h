/* SPDX-License-Identifier: Apache-2.0 */
/* config/toml.h - a TOML document as the tree that YAML documents become, with their limits (private to config/).
 *
 * TOML 1.0 without what a configuration has no use for: dates are taken as text. No library of the distributions reads
 * TOML in C and says where a value stands. */
#ifndef TM_CONFIG_TOML_H
#define TM_CONFIG_TOML_H

#include "config/yaml.h"

/* As tm_yaml_parse: *root is NULL for an empty document. Tables are maps, arrays of tables lists of maps. TM_FORMAT
 * with file, line and cause. */
TM_MUST_USE tm_status tm_toml_parse(tm_arena *arena, const char *bytes, size_t length, const char *name,
                                    const tm_yaml **root, tm_error *err);

#endif
