/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf.h - the commands behind `trainmark mlperf`. One is a file cli/mlperf_NAME.c and a line in mlperf.def. */
#ifndef TM_CLI_MLPERF_H
#define TM_CLI_MLPERF_H

#include "base/status.h"

/* argv[0] is the command's name ("check"). Results go to stdout; the status becomes the exit code. */
#define TM_MLPERF_COMMAND(name, summary) tm_status tm_mlperf_command_##name(int argc, char **argv, tm_error *err);
#include "cli/mlperf.def"
#undef TM_MLPERF_COMMAND

#endif
