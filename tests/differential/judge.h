/* SPDX-License-Identifier: Apache-2.0 */
/* tests/differential/judge.h - runs a case in several ways and compares what comes of them. */
#ifndef TM_TESTS_DIFFERENTIAL_JUDGE_H
#define TM_TESTS_DIFFERENTIAL_JUDGE_H

#include "cases.h"

typedef enum { DIED, PASSED, REFUSED, FAILED } outcome;

enum { COMPARISONS = 13 };
extern const char *const comparisons[COMPARISONS]; /* their rows */

typedef struct {
    outcome outcome;
    int     made[COMPARISONS], impossible[COMPARISONS]; /* comparisons; those of which a run refuses the other side */
    char    text[4096];                                 /* why it is refused, or what differs */
} judgement;

/* In this process, in the folder of the data. `folder`: empty, for what the runs write. */
void judge(const setting *s, const char *folder, judgement *out);

/* The same in a process of its own: an assertion, a crash or 60 s of processor time are a failure, too. */
judgement judge_apart(const setting *s);

/* The smallest setting that still fails, by leaving out rows and lowering values, and its judgement. */
setting shrink(setting s, judgement *out);

/* What somebody needs who wants to see it again. */
void describe_failure(const setting *s, const judgement *j, tm_text *out);

#endif
