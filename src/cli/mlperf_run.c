/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_run.c - `trainmark mlperf run`: N trainings with N seeds, then what the rules say of them. */
#include "cli/cli.h"
#include "cli/mlperf.h"
#include "cli/mlperf_repeat.h"

#include <stdio.h>

/* One of the commands that judge, as if it were typed; *judged is the first negative verdict. With --json what they
 * print are the elements of an array. */
static tm_status judge(const tm_cli_command *command, const tm_repeat *r, bool with_reference, tm_status *judged,
                       tm_error *verdict, tm_error *err)
{
    char    *argv[9], name[32];
    int      n = 0;
    tm_error own = { 0 };
    argv[n++] = (char *)command->name;
    argv[n++] = (char *)r->folder;
    argv[n++] = (char *)"--ruleset";
    argv[n++] = (char *)tm_ruleset_name(r->ruleset);
    if (with_reference && r->reference_path) argv[n++] = (char *)"--reference";
    if (with_reference && r->reference_path) argv[n++] = (char *)r->reference_path;
    if (r->json) argv[n++] = (char *)"--json";
    argv[n] = NULL;
    snprintf(name, sizeof name, "mlperf %s", command->name);
    if (r->json)
        printf("%s", command == &tm_mlperf_command_check ? "[\n" : ",\n");
    else
        printf("\n--- %s\n", name);
    tm_status st = tm_cli_call(command, name, n, argv, &own);
    if (st == TM_NEGATIVE && *judged == TM_OK) {
        *judged = st;
        *verdict = own;
    }
    if (st == TM_OK || st == TM_NEGATIVE) return TM_OK;
    *err = own;
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    tm_repeat *r;
    tm_status  judged = TM_OK;
    tm_error   verdict = { 0 };
    TM_TRY(tm_repeat_read(line, &r, err));
    if (r->dry_run) return tm_repeat_plan(r, line->arena, err);
    TM_TRY(tm_repeat_run(r, err));
    TM_TRY(judge(&tm_mlperf_command_check, r, false, &judged, &verdict, err));
    TM_TRY(judge(&tm_mlperf_command_seeds, r, false, &judged, &verdict, err));
    TM_TRY(judge(&tm_mlperf_command_rcp, r, true, &judged, &verdict, err));
    TM_TRY(judge(&tm_mlperf_command_score, r, true, &judged, &verdict, err));
    if (r->json) printf("]\n");
    if (judged != TM_OK) *err = verdict;
    return judged;
}

static const tm_option rows[] = { TM_REPEAT_ROWS("10"), TM_MLPERF_REFERENCE(tm_repeat) };

const tm_cli_command tm_mlperf_command_run = {
    .name = "run",
    .summary = "train N times with N seeds, then check the logs and compute the score",
    .words = "FILE --mlperf.submission_org NAME",
    .most = -1,
    .about =
        "FILE is a YAML file, or the shell file of a submission (config_*.sh), which is read and not executed.\n\n"
        "Trains N times, each time as a process of its own with another seed, into DIR/result_0.txt ...; then checks "
        "the logs, their seeds and convergence, and computes the score. If it was interrupted, the same command "
        "continues where it stopped.\n\n"
        "Exit code 0: a valid score, 5: none.",
    TM_CLI_OPTIONS(rows, tm_repeat),
    .passes = true,
    .run = run,
};
