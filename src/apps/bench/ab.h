/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab.h - two programs take turns on one machine, and the turns are judged (docs/ab.md).
 *
 * Three processes live at a time: A, B and A again. A turn is a stretch of whole steps of one of them while the others
 * stand still; a block is six turns, two of each in mirrored order; a round is what one set of processes did. The
 * record of a session holds every step, and every figure is made from the record: a stored session says the same as a
 * live one.
 */
#ifndef TM_BENCH_AB_H
#define TM_BENCH_AB_H

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"
#include "stats/paired.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* --- the record of a session -------------------------------------------------------------------------------------- */

typedef enum { TM_AB_A, TM_AB_B, TM_AB_AGAIN, TM_AB_SIDES } tm_ab_side;
typedef enum { TM_AB_COUNTED, TM_AB_WARMUP } tm_ab_kind;
typedef enum { TM_AB_END_BUDGET, TM_AB_END_TARGET, TM_AB_END_INTERRUPTED, TM_AB_ENDS } tm_ab_end;

typedef struct {
    int64_t    round, block; /* block: -1 for warm-up turns in front of the blocks of a round */
    tm_ab_side side;
    tm_ab_kind kind;
    int64_t    first_step; /* of this process, from 1 */
    int64_t    n;          /* whole steps */
    double    *seconds;    /* of each */
    double     work;       /* tokens of all n steps; 0 where a program does not tell */
    int64_t    cut;        /* steps that a stop cut in two: seen, not counted */
} tm_ab_turn;

typedef struct {
    char       *a, *b;             /* as given on the command line */
    char       *a_build, *b_build; /* "trainmark 0.1.0, commit 42fbcc046832"; NULL: not told */
    bool        whole_runs;
    double      turn_seconds, budget_seconds, target, least_difference;
    int64_t     least_pairs;
    uint64_t    seed;
    tm_ab_end   end;
    double      seconds; /* of the session */
    tm_ab_turn *turns;
    int64_t     n_turns;
    size_t      room;
} tm_ab_session;

void tm_ab_session_fini(tm_ab_session *session);
/* Appends a turn; `seconds` (n of them) are copied. */
void tm_ab_session_add(tm_ab_session *session, const tm_ab_turn *turn);

/* One JSON object per line: the session, each turn, the end. */
void tm_ab_session_print(const tm_ab_session *session, tm_text *out);
/* Reads what tm_ab_session_print wrote; `path` is for messages. TM_FORMAT with the line. Fill a zeroed session. */
TM_MUST_USE tm_status tm_ab_session_parse(const char *text, const char *path, tm_ab_session *out, tm_error *err);

/* The pairs of all complete blocks of turns [from, to); the caller frees. B's times are multiplied by `b_factor` (1,
 * but for trials that plant a difference in a record). roles: which recorded side plays A, B and A again; NULL: each
 * itself. */
tm_pair *tm_ab_pairs(const tm_ab_session *session, int64_t from, int64_t to, const int roles[TM_AB_SIDES],
                     double b_factor, int64_t *n);

/* --- figures ------------------------------------------------------------------------------------------------------ */

typedef struct {
    tm_paired_result paired;
    bool             tokens;               /* time is compared per token: both sides tell their tokens; else per step */
    double           step_seconds[2];      /* of A (both copies) and B: median over the turns of the mean step */
    double           tokens_per_second[2]; /* the same of the rate; NAN without tokens */
    int64_t          turns, warmup_turns, steps, warmup_steps, cut_steps;
} tm_ab_figures;

tm_ab_figures tm_ab_figures_of(const tm_ab_session *session);
/* Seconds that a session of TM_PAIRED_UNITS rounds takes, by the turns of this one and the time that it had, with a
 * tenth to spare; turns of the usual length are as long as that budget makes them. NAN: no turn is known. */
double tm_ab_budget_needed(const tm_ab_session *session);
void   tm_ab_print_text(const tm_ab_session *session, tm_text *out);
void   tm_ab_print_json(const tm_ab_session *session, tm_text *out);

/* The length of a turn where none is given, in seconds: 0.2, or a 160th of the budget, at least 0.05. A round is twelve
 * turns and the start of three processes, so that eight rounds fit where a start takes no longer than two turns or so.
 */
double tm_ab_usual_turn(double budget_seconds);

/* --- a live session ----------------------------------------------------------------------------------------------- */

/* A program that takes turns. One that knows the protocol of train/run/interleave.h pauses between two steps by itself;
 * any other prints a line when a step is done, and is stopped in the middle of the next one. */
typedef struct {
    const char  *text;    /* for people */
    const char  *build;   /* of a trainmark, see tm_ab_build_read; NULL: not told */
    char *const *argv;    /* ends with NULL */
    bool         turns;   /* speaks train/run/interleave.h; "--out FOLDER" is added to its words */
    const char  *pattern; /* extended regular expression of the lines that are steps; NULL: all lines */
} tm_ab_program;

typedef struct {
    tm_ab_program a, b;
    const char   *folder; /* run directories of programs that speak train/run/interleave.h are made below it */
    bool          whole_runs;
    double        turn_seconds, budget_seconds;
    double        target; /* relative half-width that ends the session early; 0: none does */
    int64_t       least_pairs;
    double        least_difference; /* relative; a smaller one is none, however sure */
    uint64_t      seed;             /* of the order of the turns, and of the bootstrap */
    const volatile sig_atomic_t *stop;
    FILE                        *progress; /* one line that is written again and again; NULL: none */
} tm_ab_options;

/* Which trainmark is that, by what it prints for `version`: "trainmark VERSION, commit COMMIT" is added to *out
 * ("commit unknown" of one built outside a checkout). False, and nothing is added, if no trainmark prints that. */
bool tm_ab_build_parse(const char *answer, tm_text *out);
/* Asks the program `binary` (looked up in PATH). `flag`, for messages, is the option that names it. TM_INVALID when it
 * cannot be executed, does not answer within 10 s or is no trainmark; TM_INTERRUPTED when *stop was set (may be
 * NULL). */
TM_MUST_USE tm_status tm_ab_build_read(const char *binary, const char *flag, const volatile sig_atomic_t *stop,
                                       tm_text *out, tm_error *err);

/* Runs a session into a zeroed record. TM_INTERRUPTED when *stop was set: the record holds what was done until then.
 * TM_INVALID when a program cannot be started, ends too early or prints no steps, with its last words; when not even
 * one block fits in the budget. No child is left when this returns. */
TM_MUST_USE tm_status tm_ab_run(const tm_ab_options *options, tm_ab_session *out, tm_error *err);

#endif
