/* SPDX-License-Identifier: Apache-2.0 */
/* cli/habits.h - words of other programs' command lines as ours: report scripts (-t -m -p -s -n -f -b -l), tags of the
 * MAD catalogue, and habits of its runner. What asks for something that cannot be done is an error, never skipped. */
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

/* Rewrites a command line (argv[0] is the command): words of others become the subject and --key value, in front of the
 * rest, which therefore wins. *argc and *argv are replaced when there are any, else left; the words live in `arena`.
 * TM_USAGE, TM_INVALID, TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_habits_translate(const tm_config *config, tm_arena *arena, int *argc, char ***argv,
                                          tm_error *err);

/* Has the entry of a preset the tag: its name, that of a family ("llama3"), or one that all have ("pyt")? */
bool tm_habit_selects(const tm_config *config, const char *tag, const char *preset);

#endif
