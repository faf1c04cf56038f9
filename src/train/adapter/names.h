/* SPDX-License-Identifier: Apache-2.0 */
/* train/adapter/names.h - private to the room: modules by their names, ours and those in files, and lists of names. */
#ifndef TM_TRAIN_ADAPTER_NAMES_H
#define TM_TRAIN_ADAPTER_NAMES_H

#include "base/text.h"
#include "train/adapter/adapters.h"

enum { TM_MAX_TARGETS = 32 };

/* A list of names of modules, with patterns (* ? [abc]). */
typedef struct {
    const char *key; /* for messages */
    char        text[TM_MAX_TARGETS_TEXT];
    const char *name[TM_MAX_TARGETS];
    bool        used[TM_MAX_TARGETS];
    int         n;
    bool        all;     /* all-linear is among them */
    tm_text     nearest; /* to a name that nothing is called */
    int         distance;
} adapter_list;

/* TM_INVALID: too many. Free `nearest`. */
TM_MUST_USE tm_status adapter_list_read(adapter_list *list, const char *key, const char *text, const char *place,
                                        tm_error *err);
/* Is the last part of a name, or all of it, in the list? */
bool adapter_listed(adapter_list *list, const char *module);

/* A module, or the matrix that several are rows of, by our name and by that in files ("": it has none there). */
typedef struct {
    tm_text ours, theirs;
} adapter_names;
adapter_names adapter_names_of(const tm_model_shape *shape, const char *piece);
void          adapter_names_fini(adapter_names *names);
/* Is one the other, or all of it behind a dot? (Files may have a prefix more.) */
bool adapter_same_name(const char *a, const char *b);
/* Do both pieces have one name in files, as query, key and value of GPT-2? */
bool adapter_same_module(const tm_model_shape *shape, const char *a, const char *b);

#endif
