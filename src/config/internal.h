/* SPDX-License-Identifier: Apache-2.0 */
/* config/internal.h - what the files of this room share. */
#ifndef TM_CONFIG_INTERNAL_H
#define TM_CONFIG_INTERNAL_H

#include "base/arena.h"
#include "config/config.h"

typedef enum {
    LAYER_DEFAULT,
    LAYER_PRESET,     /* compiled-in model preset */
    LAYER_MODEL_FILE, /* the user's model preset file */
    LAYER_TRAINER,
    LAYER_FILE,
    LAYER_ENVIRONMENT,
    LAYER_COMMAND,
    LAYER_PROGRAM,
    LAYER_COUNT
} tm_layer;

/* A value of one layer. `text` is canonical (numbers in their shortest form), NULL = null. */
typedef struct {
    const char *text, *origin;
    const char *source; /* file it came from, to tell a duplicate from an override; compared by content */
    bool        present, secret;
    bool        came_along; /* translated from a key of another program, which may ignore it */
    tm_layer    follows;    /* in LAYER_PROGRAM: the layer of the key that a derived value follows from */
} tm_value;

typedef struct {
    tm_key   key;
    size_t   length; /* of its name: others are not compared */
    tm_value layers[LAYER_COUNT];
} tm_entry;

typedef struct tm_framework tm_framework;

typedef struct {
    const char        *name;
    const char        *alias; /* or NULL */
    const char *const *pairs; /* "model.dim=4096", NULL-terminated */
} tm_config_preset_row;

/* A key of another program: its values by layer (config/foreign.h). */
typedef struct {
    const tm_framework          *framework;
    const struct tm_foreign_key *row;
    const char                  *path;
    tm_value                     layers[LAYER_COUNT];
} tm_foreign_value;

enum { TM_CONFIG_GROUPS = 3 }; /* train_args, accelerate_config, launcher: config/hydra.c */

struct tm_config {
    tm_arena             *arena;
    tm_entry             *entries;
    size_t                n_entries, entries_capacity;
    tm_config_preset_row *presets;
    size_t                n_presets, presets_capacity;
    tm_config_rule       *rules, *checks;
    size_t                n_rules, rules_capacity, n_checks, checks_capacity;
    char *const          *environment;
    const char           *preset; /* in force */
    const char           *help;   /* command that lists the rows; NULL: docs/configuration.md does */
    bool                  allow_unknown, allow_unbuilt, keeps_notes, file_loaded;
    const char           *file;      /* the first one loaded */
    const tm_framework   *framework; /* of the file that was loaded; NULL: our own keys */
    tm_foreign_value     *foreign;
    size_t                n_foreign, foreign_capacity, n_accepted[2]; /* [1]: tune speed only */
    bool                  allow_axes;
    tm_config_axis       *axes;
    tm_layer             *axis_layers; /* (n_axes) */
    size_t                n_axes, axes_capacity;
    tm_text               accepted;    /* a line for each */
    tm_text               model_keys;  /* those that ask for a family that is not supported */
    tm_text               family_keys; /* what else is refused of a model of such a name, a line for each */
    const char           *module;      /* of the experiment that was loaded: "pre_trainer"; NULL: none was */
    const char           *model_named; /* the model that an experiment names, without folder and suffix */
    const char           *paths[8];    /* --config-path */
    int                   n_paths;
    const char           *groups[TM_CONFIG_GROUPS]; /* files of Hydra's groups that the command line names, or NULL */
    const struct tm_yaml *references;               /* ${name} means this value of the file that is being read */
    tm_error              problems;
    tm_text               spoiled;    /* keys whose value was refused, a line for each */
    bool                  judging;    /* rules are asked: they may see what follows from such a value */
    int                   loads;      /* files read so far */
    const char           *experiment; /* path of the experiment file that was loaded */
    tm_text               unknown;    /* keys that --allow-unknown-keys let through, ", " between */
    tm_text               notes, unbuilt;
};

/* A value on its way into the configuration. */
typedef struct {
    const char *text; /* NULL = null */
    bool        secret, came_along;
    const char *origin, *source; /* see tm_value; source may be NULL */
} tm_given;

tm_entry       *tm_entry_find(const tm_config *config, const char *name); /* exact row name or synonym, or wildcard */
const tm_value *tm_entry_value(const tm_entry *entry);
bool            tm_entry_is_wildcard(const tm_entry *entry);
const char     *tm_place(const char *origin); /* "file x.yaml:3" -> "x.yaml:3" */

/* Does the row count, by its condition? Is it given, and counts nowhere? */
bool tm_entry_counts(const tm_config *config, const tm_entry *entry);
bool tm_entry_is_idle(const tm_config *config, const tm_entry *entry);
/* The layer that decides its value; of a derived one that of the key from which it follows. */
tm_layer tm_entry_decider(const tm_entry *entry);
/* What was given and counts nowhere is refused; a note says so where what it belongs to was switched off (a true or
 * false key of the same layer, any key of a higher one), or where it stands in another program's file, which it did no
 * harm. Where rules have failed (not `settled`) only what was given decides, nothing that they would have derived. */
void tm_config_check_effects(tm_config *config, bool settled);
void tm_config_say_when(const tm_key *key, tm_text *out); /* "applies only with ..."; nothing without a condition */

/* Keeps a problem; tm_config_finish reports all of them. */
void tm_config_problem(tm_config *config, const tm_error *err);
/* Finds the row of `path`, coerces and stores. Scalar "model" applies a preset. Keys of the file's framework are kept
 * for their translation. */
tm_status tm_config_give(tm_config *config, tm_layer layer, const char *path, const tm_given *given, tm_error *err);
/* The same for keys that are surely our own. */
tm_status tm_config_give_own(tm_config *config, tm_layer layer, const char *path, const tm_given *given, tm_error *err);
/* The stem of "dir/Llama3.1_8B.yaml" into out. */
void tm_stem_of(const char *name, char out[128]);
/* Is there a row for it, of ours or of the framework's? */
bool tm_config_knows(const tm_config *config, const char *path);
/* The row of ours that `path` stands for: by itself, or as a key of another program that is mapped to it without a
 * conversion. NULL: none. */
tm_entry *tm_config_target(const tm_config *config, const char *path);
/* A higher or later value of `path`: it is no axis any more. */
void tm_axes_drop(tm_config *config, tm_layer layer, const char *path);
/* `list`: "a,b,c". */
void tm_axes_add(tm_config *config, tm_layer layer, const char *path, const char *list, const char *origin);
/* Is it a key that will be translated? */
bool tm_config_translates(const tm_config *config, const char *path);
/* Do rows stand below `path` ("training")? */
bool      tm_config_is_section(const tm_config *config, const char *path);
tm_status tm_config_unknown(tm_config *config, const char *path, const char *place, tm_error *err);
/* Parses bytes as YAML (an option's value) and gives every leaf below `path`. */
tm_status tm_config_give_yaml(tm_config *config, tm_layer layer, const char *path, const char *yaml, const char *origin,
                              tm_error *err);
void      tm_config_clear_layer(tm_config *config, tm_layer layer);
const tm_config_preset_row *tm_preset_find(const tm_config *config, const char *name);
/* Fills `layer` with a preset's pairs. */
tm_status tm_preset_fill(tm_config *config, const tm_config_preset_row *preset, tm_layer layer, tm_error *err);
/* The nearest of n names, NULL if none is near. */
const char *tm_nearest(const char *name, const char *const *names, size_t n);
/* What is to be done about a file that is not there: "check the path", "did you mean 'FILE'?", and the model that it is
 * called after, if there is one. In the arena. */
const char *tm_config_meant(const tm_config *config, const char *path);

/* Text to canonical text; *out is NULL for null. `place` and `secret` are for the message. */
tm_status tm_value_coerce(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out, tm_error *err);
tm_status tm_value_check_range(const tm_key *key, const tm_value *value, tm_error *err);

/* ${VAR} and ${VAR:default}; "$${" stands for "${". Sets *secret if a secret variable took part. */
tm_status   tm_substitute(const tm_config *config, const char *text, const char *place, tm_text *out, bool *secret,
                          tm_error *err);
const char *tm_environment_find(char *const *environment, const char *name);

const tm_key *tm_config_keys(size_t *n);

#endif
