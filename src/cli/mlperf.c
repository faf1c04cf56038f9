/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf.c - `trainmark mlperf COMMAND`; the commands are those of mlperf.def. */
#include "cli/mlperf.h"

static const tm_cli_command *const commands[] = {
#define TM_MLPERF_COMMAND(name) &tm_mlperf_command_##name,
#include "cli/mlperf.def"
#undef TM_MLPERF_COMMAND
    NULL,
};

const tm_cli_command tm_command_mlperf = {
    .name = "mlperf",
    .summary = "MLPerf-style logs: check, convergence, score",
    .about =
        "MLPerf-style logs, rules, convergence and score (docs/mlperf.md). What these commands print is not verified "
        "by MLCommons Association.",
    .commands = commands,
};
