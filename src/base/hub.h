/* SPDX-License-Identifier: Apache-2.0 */
/* base/hub.h - names of models and data sets of the Hugging Face hub, found in its cache of downloads on this machine.
 * Nothing is downloaded.
 *
 * The cache is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else hub/ of HF_HOME, else of XDG_CACHE_HOME/huggingface, else
 * of ~/.cache/huggingface. In it (huggingface_hub, file_download.py and _snapshot_download.py):
 *
 *     models--ORG--NAME/refs/main              the commit of a branch or tag
 *     models--ORG--NAME/snapshots/COMMIT/...   its files: links to ../../blobs/..., or copies
 *     models--ORG--NAME/blobs/X.incomplete     a download that has not ended
 *     models--ORG--NAME/trees/COMMIT.json      all files that the commit has (since 2026)
 */
#ifndef TM_BASE_HUB_H
#define TM_BASE_HUB_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

typedef enum { TM_HUB_MODEL, TM_HUB_DATASET } tm_hub_kind;

typedef struct {
    tm_text path;   /* to use: what was given, or a snapshot (a file or pattern of it) */
    tm_text found;  /* "'ORG/NAME', revision main, commit 0123..., in the Hugging Face cache DIR"; data NULL: a path */
    bool    absent; /* not even a part of it is in the cache */
} tm_hub_place;

/* Where `given` is: a path that exists (it wins), or NAME, ORG/NAME, ORG/NAME@REVISION, also behind "hf://" and
 * "datasets/"; of a data set ORG/NAME/PATH too. REVISION is a branch, a tag or a commit; without it main. What can be
 * neither stays as it is, for the caller to say what it lacks there. TM_INVALID: not in the cache, or not this
 * revision; TM_FORMAT: damaged, a part of it is missing; both with the command that downloads it. Free with
 * tm_hub_place_fini, also then. */
TM_MUST_USE tm_status tm_hub_find(tm_hub_kind kind, const char *given, tm_hub_place *out, tm_error *err);
void                  tm_hub_place_fini(tm_hub_place *place);

/* The files that a data set's name alone means: *path, a snapshot, becomes one file or one directory of it. TM_INVALID:
 * there are several splits or directories, by name; TM_UNSUPPORTED: no file is of a kind that is read (private to
 * base/). */
TM_MUST_USE tm_status tm_hub_choose(const char *name, tm_text *path, tm_error *err);

/* Of a path into a snapshot of a cache: ORG/NAME and the commit. */
typedef struct {
    char name[200], commit[72];
    bool dataset;
    int  repository; /* length of the path of models--ORG--NAME */
} tm_hub_origin;
bool tm_hub_origin_of(const char *path, tm_hub_origin *out);

/* TM_FORMAT: the directory is a snapshot of which files of weights are missing, by name: shards of an index, or what
 * the commit has where a part of it is here. */
TM_MUST_USE tm_status tm_hub_check_weights(const char *folder, tm_error *err);

#endif
