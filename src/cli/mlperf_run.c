/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_run.c - `trainmark mlperf run`: N trainings with N seeds, then what the rules say of them. */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "cli/mlperf_repeat.h"

#include <stdio.h>

static const char help[] =
    "usage: trainmark mlperf run FILE.yaml --mlperf.submission_org NAME --out DIR [--runs N] [--key value ...]\n\n"
    "Trains N times (10; or the variable NEXP), each time as a process of its own with another seed, into\n"
    "DIR/result_0.txt ...; then checks the logs, their seeds and convergence, and computes the score. A command that "
    "was\n"
    "interrupted goes on where it stopped. Exit code 0: a valid score, 5: none.\n\n"
    "  --out DIR          where the logs go (or LOGDIR)\n"
    "  --runs N           runs of the result\n"
    "  --seed S           seeds S, S + 1, ... (or SEED) instead of the system's entropy\n"
    "  --reference FILE   reference records of your own (docs/mlperf-score.md)\n"
    "  --ruleset R        5.1.0 (default), 6.0.0 or 6.1.0\n";

typedef tm_status (*command)(int argc, char **argv, tm_error *err);

/* One of the commands that judge, as if it were typed; *judged is the first negative verdict. */
static tm_status judge(const char *name, command run, const tm_repeat *r, bool with_reference, tm_status *judged,
                       tm_error *verdict, tm_error *err)
{
    char    *argv[8];
    int      n = 0;
    tm_error own = { 0 };
    argv[n++] = (char *)name;
    argv[n++] = (char *)r->folder;
    argv[n++] = (char *)"--ruleset";
    argv[n++] = (char *)tm_ruleset_name(r->ruleset);
    if (with_reference && r->reference) argv[n++] = (char *)"--reference";
    if (with_reference && r->reference) argv[n++] = (char *)r->reference;
    argv[n] = NULL;
    printf("\n--- mlperf %s\n", name);
    tm_status st = run(n, argv, &own);
    if (st == TM_NEGATIVE && *judged == TM_OK) {
        *judged = st;
        *verdict = own;
    }
    if (st == TM_OK || st == TM_NEGATIVE) return TM_OK;
    *err = own;
    return st;
}

tm_status tm_mlperf_command_run(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    tm_repeat r;
    tm_arena *arena = tm_arena_create();
    tm_status judged = TM_OK, st = tm_repeat_read(argc, argv, 10, true, false, arena, &r, err);
    tm_error  verdict = { 0 };
    if (st == TM_OK) st = tm_repeat_run(&r, err);
    if (st == TM_OK) st = judge("check", tm_mlperf_command_check, &r, false, &judged, &verdict, err);
    if (st == TM_OK) st = judge("seeds", tm_mlperf_command_seeds, &r, false, &judged, &verdict, err);
    if (st == TM_OK) st = judge("rcp", tm_mlperf_command_rcp, &r, true, &judged, &verdict, err);
    if (st == TM_OK) st = judge("score", tm_mlperf_command_score, &r, true, &judged, &verdict, err);
    if (st == TM_OK && judged != TM_OK) {
        *err = verdict;
        st = judged;
    }
    tm_arena_destroy(arena);
    return st;
}
