/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ranks.h - one command, several ranks: started under an MPI's launcher by --ranks N, or by somebody else under it.
 */
#ifndef TM_CLI_RANKS_H
#define TM_CLI_RANKS_H

#include "cli/command.h"
#include "comm/comm.h"

/* In the environment of ranks that --ranks started: a folder through which they and their supervisor speak, with a file
 * KIND.RANK for each sign. pid: the number of its process; done: it has ended as it should, with this exit code;
 * failed: it gave up, with this exit code. */
#define TM_RANKS_FOLDER "TRAINMARK_RANKS_FOLDER"

/* How ranks are to be started. */
typedef struct {
    int64_t     ranks;    /* --ranks */
    const char *mpi;      /* "openmpi", "mpich"; NULL: whichever is there */
    int64_t     restarts; /* after failures (exit code 1) the command begins again, so many times */
} tm_cli_start;

/* --ranks N in a process that no launcher started: starts N of this very command under the launcher of an MPI on this
 * host, and waits for them. *started: it did, and the status is theirs; they have said what there is to say where
 * err->text is "". SIGINT, SIGTERM and SIGHUP ask the ranks to save and stop, a second one ends them. No process is
 * left, whatever happens to one. */
TM_MUST_USE tm_status tm_cli_start_ranks(const tm_cli_start *start, const tm_cli_line *line, bool *started,
                                         tm_error *err);

/* The world of this process: alone, or that which a launcher has started. Each rank of a host keeps to its share of the
 * processors (unless the launcher has given them different ones). `ranks`: what --ranks says, 0: nothing; another
 * number than there are is TM_INVALID. Ranks above 0 print nothing to standard output from now on; SIGUSR1 is like
 * SIGINT. */
TM_MUST_USE tm_status tm_cli_open_ranks(int64_t ranks, double deadline_s, tm_comm **world, tm_error *err);
/* Has a command that ended with `st` failed, and with it all ranks? Else it came to its end on all of them. */
bool tm_cli_ranks_failed(tm_status st);
/* Closes the world of a command that ended with `st`. A failure ends all ranks, at once and with its exit code: does
 * not return then. What the first rank says the others need not: their *err loses its text. NULL is fine. */
void tm_cli_close_ranks(tm_comm *world, tm_status st, tm_error *err);

/* Rows for the three options; members ranks (int64_t), mpi (text), deadline_s (double). */
#define TM_OPTION_RANKS(type)                                                                                          \
    { "ranks",       0,                                                                                                \
      TM_OPTION_I64, offsetof(type, ranks),                                                                            \
      .value = "N",  .lo = 1,                                                                                          \
      .hi = 256,     .help = "processes on this machine that work together, started under MPI (docs/ranks.md)" },      \
        { "mpi",                                                                                                       \
          0,                                                                                                           \
          TM_OPTION_CHOICE,                                                                                            \
          offsetof(type, mpi),                                                                                         \
          .value = "NAME",                                                                                             \
          .choices = "openmpi|mpich",                                                                                  \
          .help = "MPI that --ranks uses; default: whichever is there" },                                              \
    {                                                                                                                  \
        "deadline", 0, TM_OPTION_F64, offsetof(type, deadline_s), .value = "SECONDS", .lo = 0, .hi = 1e6,              \
                                                                  .help = "seconds to wait for a rank (0 means 300)"   \
    }

#endif
