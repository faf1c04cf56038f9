/* SPDX-License-Identifier: Apache-2.0 */
/* cli/ranks.c - ranks from the inside: the world of a command, its beginning and its end. How they are started:
 * cli/start_ranks.c. */
#include "cli/ranks.h"

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Leaves a sign for the process that started the ranks: what a launcher says of their ends is not enough. */
static void leave_sign(const char *kind, int rank, long number)
{
    const char *folder = getenv(TM_RANKS_FOLDER);
    char        path[4200], text[24];
    tm_error    ignored = { 0 };
    if (!folder || !*folder) return;
    snprintf(path, sizeof path, "%.4000s/%s.%d", folder, kind, rank);
    int n = snprintf(text, sizeof text, "%ld\n", number);
    if (tm_file_write(path, text, (size_t)n, &ignored) != TM_OK) tm_warn("%s", ignored.text);
}

static void on_stop(int signal_number)
{
    (void)signal_number;
    tm_cli_stop = 1;
}

/* Before the world is opened: libraries start threads. */
static void settle_process(const tm_comm_launch *launch)
{
    struct sigaction action = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    if (launch->ranks == 1) return;
    sigaction(SIGUSR1, &action, NULL);
    if (getenv(TM_RANKS_FOLDER)) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the launcher is gone: nobody is left behind */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO); /* some launchers leave it open for ever */
    if (launch->rank > 0) dup2(null, STDOUT_FILENO);
    close(null);
}

/* Where all ranks of a host may use the same processors, each takes its share. */
static tm_status share_processors(tm_comm *world, tm_error *err)
{
    int           rank = tm_comm_rank(world), size = tm_comm_size(world);
    tm_comm_place own = tm_comm_place_of(world, rank);
    uint64_t      mask = tm_cpu_affinity_hash(), *masks = calloc((size_t)size, sizeof *masks);
    bool          alike = mask != 0;
    TM_ASSERT(masks);
    tm_collective gather = { .kind = TM_COMM_ALL_GATHER,
                             .format = TM_COMM_INT64,
                             .send = &mask,
                             .receive = masks,
                             .count = 1,
                             .what = "affinity masks",
                             .step = -1 };
    tm_status     st = tm_comm_run(world, &gather, err);
    for (int r = 0; r < size && st == TM_OK; r++)
        alike = alike && (tm_comm_place_of(world, r).host != own.host || masks[r] == mask);
    free(masks);
    if (st == TM_OK && alike && tm_cpu_take_share(own.local_rank, own.local_size) == 0)
        tm_warn("rank %d cannot keep to its share of the processors", rank);
    return st;
}

/* Libraries that an MPI loads take signals for themselves: its hwloc starts every OpenCL platform, and the compiler of
 * one (PoCL) has SIGUSR1 and SIGTERM then, so that a rank that is asked to stop would not. */
static tm_status open_world(const tm_comm_options *options, tm_comm **world, tm_error *err)
{
    static const int ours[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGPIPE, SIGBUS };
    enum { N = sizeof ours / sizeof ours[0] };
    struct sigaction before[N];
    for (int i = 0; i < N; i++) sigaction(ours[i], NULL, &before[i]);
    tm_status st = tm_comm_open(options, world, err);
    for (int i = 0; i < N; i++) sigaction(ours[i], &before[i], NULL);
    return st;
}

tm_status tm_cli_open_ranks(int64_t ranks, double deadline_s, tm_comm **world, tm_error *err)
{
    tm_comm_launch launch = tm_comm_launched();
    *world = NULL;
    if (ranks > 0 && ranks != launch.ranks)
        return tm_fail(err, TM_INVALID,
                       "--ranks is %lld, but %d were launched (by %s); leave --ranks out or give the same",
                       (long long)ranks, launch.ranks, launch.launcher);
    if (launch.ranks > 1) tm_cli_heed_stop(); /* ranks stop together or not at all */
    settle_process(&launch);
    leave_sign("pid", launch.rank, (long)getpid());
    TM_TRY(open_world(&(tm_comm_options){ .deadline_seconds = deadline_s }, world, err));
    return launch.ranks > 1 ? share_processors(*world, err) : TM_OK;
}

bool tm_cli_ranks_failed(tm_status st)
{
    return st != TM_OK && st != TM_NUMBERS && st != TM_NEGATIVE && st != TM_INTERRUPTED;
}

void tm_cli_close_ranks(tm_comm *world, tm_status st, tm_error *err)
{
    if (!world) return;
    int  rank = tm_comm_rank(world);
    bool alone = tm_comm_size(world) == 1;
    if (!alone && tm_cli_ranks_failed(st)) {
        leave_sign("failed", rank, tm_status_exit_code(st));
        tm_comm_abort(world, tm_status_exit_code(st), err->text);
    }
    tm_comm_close(world);
    if (rank > 0) err->text[0] = '\0';
    if (!alone) leave_sign("done", rank, tm_status_exit_code(st));
}
