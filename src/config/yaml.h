/* SPDX-License-Identifier: Apache-2.0 */
/* config/yaml.h - a YAML document as a tree, with limits: what a stranger's file can cost is bounded before it is read.
 */
#ifndef TM_CONFIG_YAML_H
#define TM_CONFIG_YAML_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TM_YAML_MAX_BYTES = 1 << 20, /* of a file */
    TM_YAML_MAX_DEPTH = 32,
    TM_YAML_MAX_NODES = 10000, /* after the expansion of aliases */
};

typedef enum { TM_YAML_SCALAR, TM_YAML_LIST, TM_YAML_MAP } tm_yaml_kind;

typedef struct tm_yaml tm_yaml;

typedef struct tm_yaml_item {
    const char          *key; /* NULL in a list */
    int                  line;
    const tm_yaml       *value;
    struct tm_yaml_item *next;
} tm_yaml_item;

/* A node may be shared by several parents (aliases). */
struct tm_yaml {
    tm_yaml_kind  kind;
    int           line;  /* from 1 */
    const char   *text;  /* scalar, free of NUL */
    bool          plain; /* scalar without quotes */
    tm_yaml_item *first; /* list or map */
    size_t        count;
    int           nodes, height; /* of the expanded subtree */
};

/* `name` is for messages. *root is NULL for an empty document; everything lives in the arena. TM_FORMAT with place and
 * cause: not YAML, a limit, a key with two values, a recursive alias, a second document. */
TM_MUST_USE tm_status tm_yaml_parse(tm_arena *arena, const char *bytes, size_t length, const char *name,
                                    const tm_yaml **root, tm_error *err);
/* The value of a map's key, or NULL. */
const tm_yaml *tm_yaml_get(const tm_yaml *map, const char *key);
/* Plain "", "~", "null", "Null" or "NULL". */
bool tm_yaml_is_null(const tm_yaml *node);

#endif
