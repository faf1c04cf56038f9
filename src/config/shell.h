/* SPDX-License-Identifier: Apache-2.0 */
/* config/shell.h - a shell file of variables (config_MI300X_1x8x1.sh) as the tree that YAML documents become (private
 * to config/). It is read, never executed. */
#ifndef TM_CONFIG_SHELL_H
#define TM_CONFIG_SHELL_H

#include "config/yaml.h"

/* What stands for a value that only a shell can compute: $(...), `...`. */
#define TM_SHELL_COMPUTED "(computed by the shell)"

/* As tm_yaml_parse: a map of the variables that `[export] NAME=VALUE` gives, several of them parted by ';' or '&&', the
 * last of a name counts. ${NAME}, ${NAME:-default} and $NAME are what the file said of it before, else what
 * `environment` ("NAME=value" strings, NULL behind the last) does. TM_FORMAT with file and line: any other statement, a
 * variable that nothing sets. */
TM_MUST_USE tm_status tm_shell_parse(tm_arena *arena, const char *bytes, size_t length, const char *name,
                                     char *const *environment, const tm_yaml **root, tm_error *err);

#endif
