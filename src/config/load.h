/* SPDX-License-Identifier: Apache-2.0 */
/* config/load.h - what is read of files, shared by load.c (leaves of files) and experiment.c (what their places mean).
 *
 * A file becomes a list of leaves, dotted path and text; the leaves of what it extends stand before its own, and a
 * later leaf of the same key wins. Maps thereby merge deeply, scalars and lists replace. */
#ifndef TM_CONFIG_LOAD_H
#define TM_CONFIG_LOAD_H

#include "config/foreign.h"

enum { TM_LOAD_PATH_MAX = 4096 };

typedef struct {
    const char *path;
    const char *text; /* NULL = null */
    bool        secret, is_list, has_maps;
    const char *origin, *source, *folder; /* folder: of the file, with the slash, "" for the current one */
} tm_leaf;

typedef struct {
    tm_config  *config;
    tm_arena   *arena; /* trees and leaves, until the load is done */
    tm_leaf    *leaves;
    size_t      n, capacity, bytes;
    int         files;
    bool        strict; /* what is wrong ends the load */
    bool        preset; /* the file is one that an experiment names */
    const char *file;   /* the first one */
    tm_error   *err;
} tm_loader;

bool tm_begins(const char *text, const char *prefix);

/* A leaf as the value of the key `path`. What is wrong with it is kept, and told with everything else. */
tm_status tm_load_leaf(tm_loader *l, tm_layer layer, const tm_leaf *value, const char *path);
/* Gives the file of a preset to a layer, which is cleared. */
tm_status tm_load_preset_file(tm_loader *l, const char *path, tm_layer layer);
/* Which program's keys an experiment has; NULL: none is named. post: its module is one of post-training. */
tm_status tm_load_framework(const tm_loader *l, const tm_leaf *framework, bool post);
/* The leaves of an experiment: its module, the presets that it names, its overrides. */
tm_status tm_load_experiment(tm_loader *l);

#endif
