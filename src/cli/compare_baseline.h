/* SPDX-License-Identifier: Apache-2.0 */
/* cli/compare_baseline.h - the runs of the two sides of `trainmark compare A... --baseline [B...]`, and the verdict. */
#ifndef TM_CLI_COMPARE_BASELINE_H
#define TM_CLI_COMPARE_BASELINE_H

#include "cli/command.h"
#include "results/baseline.h"

/* Runs that were loaded; the array lives with the arena. */
typedef struct {
    tm_result **runs;
    size_t      n;
} compare_side;

/* Loads the runs that `words` name; a folder without a result.json stands for the runs in it, by name. */
TM_MUST_USE tm_status compare_side_load(char *const *words, int n, const char *store, tm_arena *arena,
                                        compare_side *out, tm_error *err);
/* Loads the newest stored starts of `a`'s configuration on its host that are older, not invalid, and of one build:
 * until as many of them count as a has, and TM_STARTS_LEAST at least. TM_INVALID: there is none. */
TM_MUST_USE tm_status compare_side_find(const compare_side *a, const char *store, tm_arena *arena, compare_side *out,
                                        tm_error *err);
void                  compare_side_fini(compare_side *side);

/* How many of the words stand in front of --baseline. */
int compare_words_before(const tm_cli_line *line);

/* Judges, into *out, whose tables the caller destroys. */
TM_MUST_USE tm_status compare_judge(const compare_side *a, const compare_side *base, double percent,
                                    tm_baseline_result *out, tm_error *err);
/* The verdict as a status: TM_NEGATIVE where A is slower, TM_UNDECIDED where there is none, with what would give one.
 */
TM_MUST_USE tm_status compare_verdict(const tm_baseline_result *r, double percent, tm_error *err);

#endif
