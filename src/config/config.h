/* SPDX-License-Identifier: Apache-2.0 */
/* config/config.h - key tables and everything that fills a configuration.
 *
 * Every key of a run is a row (tm_key) that its room owns. The rows drive parsing, ranges, help, "did you mean", the
 * printed configuration and the page docs/configuration.md. A value is found in the highest layer that has it:
 *
 *     default < model preset < trainer preset < file < environment < command line < program
 *
 * whatever the order of the calls below. Key and choice names ignore letter case and the difference of '-' and '_'.
 * Strings that a configuration hands out live as long as it does. Not for use by two threads while it is being filled.
 */
#ifndef TM_CONFIG_CONFIG_H
#define TM_CONFIG_CONFIG_H

#include "base/arena.h"
#include "base/hub.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* MAPS: a list of maps, [{a: 1, b: [x, y]}, ...]; as text "a=1 b=x|y,...", which may be given instead of a map.
 * LISTS: a list of lists, [[x, y], [z]]; as text "x|y,z". */
typedef enum {
    TM_KEY_BOOL,
    TM_KEY_I64,
    TM_KEY_F64,
    TM_KEY_TEXT,
    TM_KEY_CHOICE,
    TM_KEY_LIST,
    TM_KEY_MAPS,
    TM_KEY_LISTS
} tm_key_kind;

typedef enum {
    TM_KEY_USED,
    TM_KEY_SAID,    /* used, and of who starts the ranks: config.yaml has it only where it is given */
    TM_KEY_IGNORED, /* accepted and ignored, listed once */
    TM_KEY_UNBUILT  /* any value but the default is exit 4 naming the feature */
} tm_key_state;

/* A row. A name that ends in ".*" stands for every key below it (TM_KEY_IGNORED or TM_KEY_UNBUILT only). */
typedef struct {
    const char *name; /* "training.seq_len" */
    tm_key_kind kind;
    const char *fallback;  /* default as text; NULL = null (unset); only such a key may be given as null */
    double      lo, hi;    /* numbers only, both included; lo == hi: no limit */
    const char *choices;   /* TM_KEY_CHOICE: "a|b|c", aliases behind '=' ("float32=fp32|bfloat16=bf16");
                            * other kinds of an unbuilt key: further values that do no harm ("-1|1") */
    const char  *synonyms; /* "seq_length,training.seq_length", may be NULL */
    const char  *help;
    tm_key_state state;
    const char  *feature;  /* TM_KEY_UNBUILT: what is not supported, in words */
    const char  *instead;  /* the same where it is built, but not by this key: what does it, in words; else NULL */
    bool         numbered; /* TM_KEY_CHOICE: one of them may be given with a number, "hip:1" */
    bool         quiet;    /* changes no number of a run (names, folders, log settings): not part of the hash */
    /* With which other keys it counts; NULL: always. "a,b=x/y|c": a is on (neither null, false, none nor 0), and b is x
     * or y or c is on; "!a": it is not on; "a!=x": another value. Given where it would change nothing it is refused. */
    const char *when;
} tm_key;

typedef struct tm_config tm_config;

/* A room's check and derivation over several keys, called by tm_config_finish in the order of registration, also after
 * another has failed. What it returns is one problem; it reports more with tm_config_report. */
typedef tm_status (*tm_config_rule)(tm_config *config, tm_error *err);

tm_config *tm_config_create(void); /* holds the rows of this room: work_group ..., launch.*, job.* */
/* Holds no rows: the options of a command that reads no configuration file. `help` is the command line that lists them,
 * for messages ("trainmark bench gemm --help"); borrowed. */
tm_config *tm_config_create_options(const char *help);
void       tm_config_destroy(tm_config *config); /* NULL is fine */

/* Small objects that live as long as the configuration. */
tm_arena *tm_config_arena(const tm_config *config);

/* Rows and presets are borrowed and must outlive the configuration. A name given twice is a bug. */
void tm_config_add_keys(tm_config *config, const tm_key *keys, size_t n);
/* `alias`: another name for it, or NULL. */
void tm_config_add_preset(tm_config *config, const char *name, const char *alias, const char *const *pairs);
void tm_config_add_rule(tm_config *config, tm_config_rule rule);
/* Called after all rules, with what they derived: judges, and derives nothing. */
void tm_config_add_check(tm_config *config, tm_config_rule check);
/* For rules: keeps the problem in *err, if `st` says that there is one, clears *err, and the rule goes on;
 * tm_config_finish tells all problems at once, but none that names a key whose value was refused: it may follow from
 * that. Returns whether there was one. */
bool tm_config_report(tm_config *config, tm_status st, tm_error *err);
/* The value meant for this key, or for keys of this section ("model."), was refused: what a rule says of them is no
 * problem of its own. */
void tm_config_spoil(tm_config *config, const char *name);
/* Unknown keys of files and the command line are then noted instead of refused (--allow-unknown-keys). */
void tm_config_allow_unknown(tm_config *config, bool allow);
/* Values that ask for what is not supported are then listed by tm_config_unbuilt instead of refused; for plans, which
 * say what they leave out. */
void tm_config_allow_unbuilt(tm_config *config, bool allow);
/* tm_config_finish keeps its notes to itself: of a run that has told them, and is read again. */
void tm_config_keep_notes(tm_config *config);
/* A list given to a key that takes a single value is then an axis of a sweep, and the key has its first value; else it
 * is refused. */
void tm_config_allow_axes(tm_config *config, bool allow);
/* An axis that is in force: no higher layer gives the key another value. In the order in which they were given. A
 * single value "auto" is one, too, of a key whose row has it (choices "auto"): the caller searches. */
typedef struct {
    const char        *key; /* as it was given */
    const char        *row; /* ours that it stands for */
    const char *const *values;
    size_t             n;
    const char        *place;
} tm_config_axis;
const tm_config_axis *tm_config_axes(const tm_config *config, size_t *n);
/* Where ${VAR} looks: NULL-terminated "NAME=value" strings, borrowed. Without this call: the process's environment. */
void tm_config_use_environment(tm_config *config, char *const *environ_like);

/* Replaces the model preset. Names are file stems; case, '-' against '_' and a suffix ".yaml" do not matter. */
TM_MUST_USE tm_status tm_config_apply_preset(tm_config *config, const char *name, tm_error *err);
/* Is there such a compiled-in preset? Returns its name as registered, or NULL. */
const char *tm_config_find_preset(const tm_config *config, const char *name);
/* A folder where experiments find their presets, as they do in primus/configs of a folder above them (--config-path);
 * at most eight. */
void tm_config_add_path(tm_config *config, const char *path);
/* Of the words of a command line, before the file is read: train_args=NAME, accelerate_config=NAME, launcher=NAME say
 * which files of Hydra's groups a file of FluxBenchmark's launcher is made of. */
void tm_config_choose_groups(tm_config *config, int argc, char *const *argv);
/* An experiment file (it has `modules`), a nested or dotted file of keys, a job file of TorchTitan (.toml), a recipe of
 * torchtune (it has components) or a model file of pytorch-training-benchmark (.json); `extends` and ${VAR:default} in
 * all of them. What is wrong with single keys is kept until tm_config_finish, which tells everything at once. */
TM_MUST_USE tm_status tm_config_load_file(tm_config *config, const char *path, tm_error *err);
/* Loads the file that EXP names if neither a file nor a preset was given before. Wrong values are kept. */
TM_MUST_USE tm_status tm_config_apply_environment(tm_config *config, char *const *environ_like, tm_error *err);
/* --a.b.c VALUE, --a.b.c=VALUE, a.b.c=VALUE; VALUE is a scalar, a flow list or a flow map. A boolean needs no VALUE.
 * `--model NAME` applies a preset, unless a row is called `model`. TM_USAGE: all that is no override at all. A wrong
 * key or value is kept until tm_config_finish, as those of files are. */
TM_MUST_USE tm_status tm_config_apply_arguments(tm_config *config, int argc, char **argv, tm_error *err);
/* Is `name` a key, of ours or of another program, or a section of keys? */
bool tm_config_has(const tm_config *config, const char *name);
/* How many words of a command line the override `word` covers, `next` (may be NULL) being the one behind it: 2 if that
 * is its value, 1 if not, 0 if `word` is no override. */
int tm_config_argument_words(const tm_config *config, const char *word, const char *next);
/* Foreign keys are translated, model.name and model.flavor turned into their preset, ranges and unbuilt features
 * checked; all that is wrong is told at once. Then the rules are called, and notes (keys accepted and ignored, one
 * line) go to the log. Call once, last. */
TM_MUST_USE tm_status tm_config_finish(tm_config *config, tm_error *err);

/* Asking for a key that has no row, or for a number where the row is text, is a bug. A null reads as false or NAN;
 * reading a null integer is a bug: ask tm_config_text first. Integers can be read as f64. */
bool    tm_config_bool(const tm_config *config, const char *key);
int64_t tm_config_i64(const tm_config *config, const char *key);
double  tm_config_f64(const tm_config *config, const char *key);
const char *
tm_config_text(const tm_config *config,
               const char *key); /* any kind; lists as "a,b", of lists "a|b,c", maps as "k=a|b l=c"; NULL when null */
/* Is there such a row? */
bool tm_config_is_row(const tm_config *config, const char *key);
/* Given by a file, the environment, the command line or the program? */
bool tm_config_is_set(const tm_config *config, const char *key);
/* Given as above, and not as what it would be anyway? A resolved configuration gives every key. */
bool tm_config_is_changed(const tm_config *config, const char *key);
/* "default", "preset llama3.1_8B", "file x.yaml:12", "environment PRIMUS_SEQ_LENGTH", "command line" */
const char *tm_config_origin(const tm_config *config, const char *key);
/* The same for messages: "x.yaml:12", "environment PRIMUS_SEQ_LENGTH", "command line". */
const char *tm_config_place(const tm_config *config, const char *key);
/* The layer that decides, 0 = default; to compare two keys that say different things. */
int tm_config_rank(const tm_config *config, const char *key);
/* Like tm_config_text, but "***" for a value that came from a secret variable; what reports and messages print. */
const char *tm_config_shown(const tm_config *config, const char *key);
/* Sets from the program, above all else; a wrong value is a bug. NULL value: null. An origin that begins with "derived"
 * does not count as set; one that begins with "default" fills the default instead and loses to all that was given. */
void tm_config_set(tm_config *config, const char *key, const char *value, const char *origin);
/* Sets what follows from another key, which has a value: "derived from training.mock_data (x.yaml:3)". */
void tm_config_derive(tm_config *config, const char *key, const char *value, const char *from);

/* A key whose value is a path or a name of the hub: the value becomes the path where it is, its origin says what it
 * was, and a note where it was found. Once found, it stays. TM_INVALID as tm_hub_find, naming the key. */
TM_MUST_USE tm_status tm_config_find_hub(tm_config *config, const char *key, tm_hub_kind kind, tm_error *err);

/* What a file says that describes a model and is not one of ours (config.json): above the preset, below everything else
 * that was given. TM_INVALID for a value that the key cannot have, naming `origin`. */
TM_MUST_USE tm_status tm_config_describe(tm_config *config, const char *key, const char *value, const char *origin,
                                         tm_error *err);

/* A value of a resolved configuration, as tm_config_text tells it (NULL: null), as if `file` gave it. TM_INVALID for an
 * unknown key or a value that it cannot have. Before tm_config_finish. */
TM_MUST_USE tm_status tm_config_give_resolved(tm_config *config, const char *key, const char *text, const char *file,
                                              tm_error *err);

/* The compiled-in model preset in force, or NULL. */
const char *tm_config_preset(const tm_config *config);
/* Was a configuration file loaded? */
bool tm_config_from_file(const tm_config *config);
/* The path of the first one; NULL: none was. */
const char *tm_config_file(const tm_config *config);
/* The module of an experiment ("pre_trainer"); NULL: no experiment was loaded. */
const char *tm_config_module(const tm_config *config);
/* Adds a line to the notes; for rules. */
void tm_config_note(tm_config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What tm_config_finish noted, one note per line, or "". */
const char *tm_config_notes(const tm_config *config);
/* Is this for a plan, which lists what is not supported? */
bool tm_config_plans(const tm_config *config);
/* Adds a line to tm_config_unbuilt; for rules, in plans. */
void tm_config_leave_out(tm_config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Has something gone wrong already? Then a rule need not look at what other rules derive. */
bool tm_config_failed(const tm_config *config);
/* Keys of another program that change no number of the run, a line each: what the key does, its value, its place; or
 * "". */
const char *tm_config_accepted(const tm_config *config);
/* What a key of that program was given, or NULL; before tm_config_finish. */
const char *tm_config_foreign(const tm_config *config, const char *name);
/* The directory of the weights as a file of another program gives it, in keys that are no key of ours; or NULL. */
const char *tm_config_weights(const tm_config *config);
/* Where: "exp.yaml:12"; "default of megatron" if it was not given. */
const char *tm_config_foreign_place(const tm_config *config, const char *name);
/* The program whose keys the loaded file has ("megatron"), NULL: ours. */
const char *tm_config_framework(const tm_config *config);
/* The i-th program whose files are read: its name, and what they are in *what. NULL behind the last. */
const char *tm_config_framework_at(size_t i, const char **what);
/* The rows of a framework as a table for a terminal. TM_USAGE names those that there are. */
TM_MUST_USE tm_status tm_config_print_framework(const char *name, tm_text *out, tm_error *err);
/* The same as an array of JSON: name, kind, mapped_to or accepted, meaning, default, with. */
TM_MUST_USE tm_status tm_config_framework_json(const char *name, tm_text *out, tm_error *err);
/* What tm_config_allow_unbuilt let pass, a line each: "feature (key = value, file x.yaml:12)"; or "". */
const char *tm_config_unbuilt(const tm_config *config);
/* Appends `text` with every value that came from a secret variable (4 characters or more) replaced by "***"; for
 * messages that are made outside of this room. */
void tm_config_mask(const tm_config *config, const char *text, tm_text *out);

/* The resolved configuration as YAML that loads again; secrets masked; origins as comments. */
void tm_config_print_yaml(const tm_config *config, tm_text *out, bool with_origins);
/* The same as members of an open JSON object, {"key": value}; secrets masked. */
void tm_config_print_json(const tm_config *config, tm_json *json);
/* Every row as markdown tables, one per section. */
void tm_config_print_reference(const tm_config *config, tm_text *out);
/* The rows in the order of their registration. */
size_t        tm_config_n_keys(const tm_config *config);
const tm_key *tm_config_key_at(const tm_config *config, size_t i);
/* Appends "help (range; default X)". */
void tm_config_describe_key(const tm_key *key, tm_text *out);
/* Rows as help text for a terminal of `width` characters; `section` ("training") or NULL for all. */
void tm_config_print_help(const tm_config *config, const char *section, size_t width, tm_text *out);
/* XXH64 of the resolved values that change results; the order of registration does not matter. */
uint64_t tm_config_hash(const tm_config *config);
/* Appends the keys by which the hashes of two differ, with both values: "optimizer.lr (0.1 to 0.2)"; at most 8. */
void tm_config_changes(const tm_config *before, const tm_config *after, tm_text *out);

#endif
