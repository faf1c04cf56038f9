/* SPDX-License-Identifier: Apache-2.0 */
/* config/hydra.h - files that Hydra composes: a list `defaults` names files of groups, which come first (private). */
#ifndef TM_CONFIG_HYDRA_H
#define TM_CONFIG_HYDRA_H

#include "config/load.h"
#include "config/yaml.h"

/* Is it a file of FluxBenchmark's launcher: does it have its sections, or a `defaults` that names its groups? */
bool tm_hydra_is_launcher(const tm_yaml *root);

/* The text of one of the launcher's own files, for a path like "fluxbenchmark:single_run.yaml"; NULL: it is none. What
 * it names is built in, too, whatever files there are. */
const char *tm_hydra_built_in(const char *path);

/* A file to be composed. `section` is where its keys belong: "", or the group that names it. */
typedef struct {
    const tm_yaml *root;
    const char    *name, *folder; /* folder: with the slash, "" for the current one */
    const char    *section;
    int            depth;
} tm_hydra_file;

/* Reads a file; appends the leaves of a tree below `section`. Of load.c. */
typedef struct {
    tm_status (*parse)(tm_loader *l, const char *path, const tm_yaml **root);
    tm_status (*take)(tm_loader *l, const tm_hydra_file *file);
} tm_hydra_reader;

/* The leaves of the files that `defaults` names, those of the command line's groups (config->groups) instead, then its
 * own. A file that is not there is one of the launcher's own, whose values are built in, or an error. */
TM_MUST_USE tm_status tm_hydra_compose(tm_loader *l, const tm_hydra_file *file, const tm_hydra_reader *reader);

#endif
