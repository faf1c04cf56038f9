/* SPDX-License-Identifier: Apache-2.0 */
/* cli/habits.h - words of other programs' command lines as ours: what they are started with (launchers.c), report
 * scripts
 * (-t -m -p -s -n -f -b -l), tags of the MAD catalogue with its recipes (recipes.c), and habits of its runner. What
 * asks for something that cannot be done is an error, never skipped. */
#ifndef TM_CLI_HABITS_H
#define TM_CLI_HABITS_H

#include "base/arena.h"
#include "base/status.h"
#include "config/config.h"

/* The compiled-in preset that `name` means, whatever the case, '-', '_' and the suffix: "Llama-3.1-8B" and
 * "llama3.1_8B". NULL: none. */
const char *tm_habit_model(const tm_config *config, const char *name);
/* "pyt_train_llama-3.1-8b" for a preset; in `arena`. */
const char *tm_habit_tag(tm_arena *arena, const char *preset);
/* The preset that a tag of the catalogue means ("primus_pyt_train_llama-3.1-8b"), or NULL. */
const char *tm_habit_preset(const tm_config *config, const char *tag);

/* Takes what starts a training there off the front of a command line (argv[0] is the command): torchrun, primus-cli,
 * tune run, madengine run, scripts of MAD and Primus, with their options; what they say of nodes and devices becomes
 * launch.*, a file behind --config the subject. Scripts are not executed. Changes the environment where --env of a
 * launcher does. TM_USAGE, TM_UNSUPPORTED: an option that would be lost. */
TM_MUST_USE tm_status tm_launcher_translate(tm_arena *arena, int *argc, char ***argv, tm_error *err);

/* How the MAD catalogue ("mad": its own scripts, "primus": Primus' pages, "megatron": Megatron-LM's) trains a preset:
 * words of a command line. */
enum { TM_HABIT_RECIPE_WORDS = 16 };
typedef struct {
    const char *task, *text; /* NULL: nothing is known */
    const char *gpu;         /* whose batch it is; NULL: of any */
    char       *words[TM_HABIT_RECIPE_WORDS];
    int         n;
} tm_habit_recipe;
/* task, precision ("BF16"), gpu ("MI300X"): NULL, not said. In `arena`. */
tm_habit_recipe tm_habit_recipe_find(tm_arena *arena, const char *by, const char *task, const char *preset,
                                     const char *precision, const char *gpu);

/* Rewrites a command line (argv[0] is the command): words of others become the subject and --key value, in front of the
 * rest, which therefore wins. *argc and *argv are replaced when there are any, else left; the words live in `arena`.
 * TM_USAGE, TM_INVALID, TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_habits_translate(tm_config *config, tm_arena *arena, int *argc, char ***argv, tm_error *err);

/* Has the entry of a preset the tag: its name, that of a family ("llama3"), or one that all have ("pyt")? */
bool tm_habit_selects(const tm_config *config, const char *tag, const char *preset);

#endif
