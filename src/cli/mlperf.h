/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf.h - the commands behind `trainmark mlperf`. One is a file cli/mlperf_NAME.c and a line in mlperf.def. */
#ifndef TM_CLI_MLPERF_H
#define TM_CLI_MLPERF_H

#include "base/json.h"
#include "base/status.h"
#include "cli/command.h"
#include "apps/mlperf/check.h"
#include "apps/mlperf/reference.h"
#include "apps/mlperf/score.h"
#include "apps/mlperf/seeds.h"

#define TM_MLPERF_COMMAND(name) extern const tm_cli_command tm_mlperf_command_##name;
#include "cli/mlperf.def"
#undef TM_MLPERF_COMMAND

/* What the commands that judge results share: the members that a command has rows for. */
typedef struct {
    const char *ruleset_name, *reference_path;
    bool        json, full, no_write, werror;

    char              **folders; /* (n) */
    size_t              n;
    tm_ruleset          ruleset;
    const tm_reference *reference; /* NULL: those built in */
} tm_mlperf_options;

#define TM_MLPERF_RULESET(type)                                                                                        \
    {                                                                                                                  \
        "ruleset", 0, TM_OPTION_CHOICE, offsetof(type, ruleset_name),                                                  \
            .value = "R", .fallback = "5.1.0", .choices = "5.1.0|6.0.0|6.1.0", .help = "rules of MLPerf Training"      \
    }
#define TM_MLPERF_REFERENCE(type)                                                                                      \
    {                                                                                                                  \
        "reference", 0, TM_OPTION_TEXT, offsetof(type, reference_path),                                                \
            .value = "FILE", .help = "reference records of your own, in the public format (docs/mlperf-score.md)"      \
    }

/* Fills the lower half of line->options, a tm_mlperf_options. The errors of tm_reference_read; the reference lives as
 * long as the line. */
TM_MUST_USE tm_status tm_mlperf_read_options(tm_cli_line *line, const tm_mlperf_options **out, tm_error *err);

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
