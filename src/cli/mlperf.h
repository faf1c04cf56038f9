/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf.h - the commands behind `trainmark mlperf`. One is a file cli/mlperf_NAME.c and a line in mlperf.def. */
#ifndef TM_CLI_MLPERF_H
#define TM_CLI_MLPERF_H

#include "base/json.h"
#include "base/status.h"
#include "mlperf/check.h"
#include "mlperf/reference.h"
#include "mlperf/score.h"
#include "mlperf/seeds.h"

/* argv[0] is the command's name ("check"). Results go to stdout; the status becomes the exit code. */
#define TM_MLPERF_COMMAND(name, summary) tm_status tm_mlperf_command_##name(int argc, char **argv, tm_error *err);
#include "cli/mlperf.def"
#undef TM_MLPERF_COMMAND

/* What the commands that judge results share. */
enum {
    TM_MLPERF_FULL = 1,      /* --full */
    TM_MLPERF_REFERENCE = 2, /* --reference FILE */
    TM_MLPERF_NO_WRITE = 4,  /* --no-write */
    TM_MLPERF_MANY = 8,      /* more than one folder */
    TM_MLPERF_WERROR = 16,   /* --werror */
};

typedef struct {
    char              **folders; /* (n) */
    size_t              n;
    tm_ruleset          ruleset;
    const tm_reference *reference; /* NULL: those built in */
    bool                json, full, no_write, werror;
} tm_mlperf_options;

/* Reads a command line: --json and --ruleset always, the others if `takes` has their bit. TM_USAGE for anything else
 * and without a folder; the errors of tm_reference_read. The reference lives in `arena`. */
TM_MUST_USE tm_status tm_mlperf_read_options(int argc, char **argv, unsigned takes, tm_arena *arena,
                                             tm_mlperf_options *out, tm_error *err);

/* tm_cli_print of what holds names from other people's files: control characters become '?'. */
TM_MUST_USE tm_status tm_mlperf_print(tm_text *text, tm_error *err);

/* Sentences as a member of an open JSON object, or one a line behind "word: ". */
void tm_mlperf_notes_json(const char *key, const tm_notes *notes, tm_json *json);
void tm_mlperf_notes_print(const char *word, const tm_notes *notes, tm_text *out);
/* Reports as members of an open JSON object: "rcp", "seeds", and those of a score. */
void tm_mlperf_rcp_json(const tm_rcp_verdict *verdict, tm_json *json);
void tm_mlperf_seeds_json(const tm_seeds_report *report, tm_json *json);
void tm_mlperf_score_json(const tm_submission *submission, const tm_score *score, tm_json *json);

#endif
