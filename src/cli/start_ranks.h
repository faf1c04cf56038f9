/* SPDX-License-Identifier: Apache-2.0 */
/* cli/start_ranks.h - what the process that starts ranks and the ranks themselves agree on: a folder with a file
 * KIND.RANK for each sign. pid: the number of its process; done: it has ended as it should, with this exit code;
 * failed: it gave up, with this exit code. */
#ifndef TM_CLI_START_RANKS_H
#define TM_CLI_START_RANKS_H

#define TM_RANKS_FOLDER "TRAINMARK_RANKS_FOLDER"

#endif
