/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "base/log.h"
#include "base/program.h"
#include "cli/cli.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Do other tasks need the processors that our threads would use? At five moments in a row, 2 ms apart: some short task
 * is no reason. A quiet machine says no at the first. */
static bool processors_are_wanted(void)
{
    int threads = tm_cpu_threads_allowed(), processors = tm_cpu_online("");
    for (int i = 0; i < 5; i++) {
        int others = tm_cpu_running_tasks("") - 1;
        if (threads < 2 || processors < 1 || others + threads <= processors) return false;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    return true;
}

/* Set for the program that is started again, and taken away there: its children are not told. */
static const char again[] = "TRAINMARK_WAITING_SLEEPS";

static void restart_if_wanted(char **argv)
{
    static const char *const computing[] = { "run", "bench", "ab" };
    bool                     computes = false;
    for (int i = 0; i < 3; i++) computes = computes || strcmp(argv[1], computing[i]) == 0;
    for (int i = 2; argv[1] && argv[i]; i++)
        computes = computes && strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0 &&
                   strcmp(argv[i], "--dry-run") != 0;
    /* Of a node, every core is measured by itself, in processor time: nobody gains by spinning. */
    const bool certifies = argv[1] && strcmp(argv[1], "certify") == 0;
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    if (!certifies && (!computes || tm_comm_launched().ranks > 1)) return;
    char self[TM_PROGRAM_PATH];
    if (!certifies && !processors_are_wanted()) {
        if (strcmp(argv[1], "ab") == 0)
            setenv("GOMP_SPINCOUNT", "300000", 1); /* as without; the sides do not ask again */
        return;
    }
    if (tm_program_path(self, NULL) != TM_OK) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv(again, "1", 1);
    execv(self, argv);
    unsetenv(again);
    unsetenv("OMP_WAIT_POLICY"); /* it could not be started again: what is said is what counts */
}

bool tm_cli_settle_waiting(char **argv)
{
    bool sleeps = getenv(again) != NULL;
    unsetenv(again);
    if (!sleeps) restart_if_wanted(argv);
    return sleeps && strcmp(argv[1], "certify") != 0; /* there it is always so */
}

void tm_cli_tell_waiting(void)
{
    tm_note("other processes were using the CPU at the start, so idle worker threads slept instead of spinning "
            "(OMP_WAIT_POLICY=passive)");
}
