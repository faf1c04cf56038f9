/* SPDX-License-Identifier: Apache-2.0 */
/* comm/launch.c - what this process was launched by, and the world that follows from it. */
#include "comm/group.h"
#include "comm/engine/tcp.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/program.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tm_comm_number(const char *variable, int none)
{
    const char *text = getenv(variable);
    char       *end;
    long        value = text && *text ? strtol(text, &end, 10) : none;
    return text && *text && *end == '\0' && value >= 0 && value < 1 << 24 ? (int)value : none;
}

/* In this order: inside an allocation of Slurm its variables are there without a process being a rank, and mpirun's
 * come on top of srun's, as torchrun's do where srun has started one on each node. */
tm_comm_launch tm_comm_launched(void)
{
    static const struct {
        const char *engine, *rank, *size, *besides, *launcher;
    } rows[] = {
        { "tcp", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "torchrun" },
        { "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, "mpirun of Open MPI" },
        { "openmpi", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "srun --mpi=pmix" },
        { "mpich", "PMI_RANK", "PMI_SIZE", NULL, "mpiexec of MPICH, or srun --mpi=pmi2" },
        { NULL, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "srun without an MPI" },
        { "tcp", "RANK", "WORLD_SIZE", "LOCAL_RANK", "torchrun or its like" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int rank = tm_comm_number(rows[i].rank, -1), size = tm_comm_number(rows[i].size, -1);
        if (rank < 0 || size < 1 || (rows[i].besides && !getenv(rows[i].besides))) continue;
        if (size > 1) return (tm_comm_launch){ rows[i].engine, rows[i].launcher, rank, size };
    }
    return (tm_comm_launch){ "self", "nothing", 0, 1 };
}

/* --- modules --------------------------------------------------------------------------------- */

static const char *package_of(const char *engine)
{
    return strcmp(engine, "mpich") == 0 ? "mpich libmpich-dev" : "openmpi-bin libopenmpi-dev";
}

/* Beside the program, or where it is installed: PREFIX/bin and PREFIX/lib/trainmark. */
static bool find_module(const char *engine, char path[PATH_MAX])
{
    static const char *const places[] = { "", "/../lib/trainmark" };
    const char              *given = getenv("TRAINMARK_MODULES");
    char                     self[TM_PROGRAM_PATH];
    if (given && *given) {
        snprintf(path, PATH_MAX, "%.3000s/trainmark-%s.so", given, engine);
        return tm_file_exists(path);
    }
    if (tm_program_path(self, NULL) != TM_OK) return false;
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, PATH_MAX, "%.3000s%s/trainmark-%s.so", self, places[i], engine);
        if (tm_file_exists(path)) return true;
    }
    return false;
}

bool tm_comm_engine_built(const char *engine)
{
    char path[PATH_MAX];
    return find_module(engine, path);
}

/* The library's own symbols are global: its plugins look for them. */
static tm_status load(const char *engine, tm_comm_ports *ports, tm_error *err)
{
    char path[PATH_MAX];
    if (strcmp(engine, "openmpi") != 0 && strcmp(engine, "mpich") != 0)
        return tm_fail(err, TM_INVALID, "'%s' is no engine for ranks; there are: self, openmpi, mpich, tcp", engine);
    if (!find_module(engine, path))
        return tm_fail(
            err, TM_INVALID,
            "ranks over %s need trainmark-%s.so, which was not built; `apt-get install %s`, then build again", engine,
            engine, package_of(engine));
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        return tm_fail(err, TM_INVALID, "'%s' cannot be loaded: %s; `apt-get install %s`", path, dlerror(),
                       package_of(engine));
    tm_comm_module_open open_module;
    void               *symbol = dlsym(module, TM_COMM_MODULE_SYMBOL);
    if (!symbol) return tm_fail(err, TM_INVALID, "'%s' is no module of trainmark: %s", path, dlerror());
    memcpy(&open_module, &symbol, sizeof symbol);
    const char *why = open_module(ports);
    return why ? tm_fail(err, TM_IO, "%s does not start: %s", engine, why) : TM_OK;
}

/* --- worlds ---------------------------------------------------------------------------------- */

enum { START_S = 5 }; /* that ranks need longer than the others: engines with deadlines of their own say more */

static tm_status open_loaded(const tm_comm_ports *ports, double deadline_seconds, tm_comm **world, tm_error *err)
{
    void      **segment = tm_alloc((size_t)ports->size * sizeof *segment);
    const char *why = NULL;
    int         local = 0;
    for (int r = 0; r < ports->size; r++) local += ports->host[r] == ports->host[ports->rank];
    if (local > TM_COMM_LOCAL)
        why = "more than 256 ranks on one host";
    else
        why = ports->engine->share(ports->own, tm_comm_segment_bytes(local), segment);
    if (!why) *world = tm_comm_world_open(ports, segment, deadline_seconds);
    free(segment);
    return why ? tm_fail(err, TM_INVALID, "%s cannot share memory among the ranks of a host: %s", ports->engine->name,
                         why)
               : TM_OK;
}

/* A launcher of one MPI starts programs of another as worlds of one each: they would all train alone, and all write. */
static tm_status check_size(const tm_comm_launch *launch, const tm_comm_ports *ports, tm_error *err)
{
    if (ports->size == launch->ranks) return TM_OK;
    ports->engine->close(ports->own, false);
    return tm_fail(
        err, TM_INVALID,
        "this is rank %d of %d by its launcher (%s), but alone (%d of %d) by %s: the launcher is another MPI's; "
        "start with that of %s, or with --ranks %d",
        launch->rank, launch->ranks, launch->launcher, ports->rank, ports->size, ports->engine->name,
        ports->engine->name, launch->ranks);
}

static tm_status open_several(const tm_comm_launch *launch, const char *engine, double deadline, tm_comm **world,
                              tm_error *err)
{
    tm_comm_ports ports;
    if (strcmp(engine, "tcp") == 0) {
        TM_TRY(tm_comm_tcp_open(deadline, &ports, err));
        return open_loaded(&ports, deadline, world, err);
    }
    TM_TRY(load(engine, &ports, err));
    TM_TRY(check_size(launch, &ports, err));
    return open_loaded(&ports, deadline, world, err);
}

tm_status tm_comm_open(const tm_comm_options *options, tm_comm **world, tm_error *err)
{
    tm_comm_launch launch = tm_comm_launched();
    bool           told = options && options->deadline_seconds > 0;
    double         deadline = told ? options->deadline_seconds : TM_COMM_DEADLINE_S;
    const char    *engine = options && options->engine ? options->engine : launch.engine;
    *world = NULL;
    if (!engine)
        return tm_fail(err, TM_INVALID,
                       "this is rank %d of %d, launched by %s, which starts no MPI; use --ranks %d, mpirun, or "
                       "srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH)",
                       launch.rank, launch.ranks, launch.launcher, launch.ranks);
    if (strcmp(engine, "self") == 0) {
        if (launch.ranks == 1) return tm_comm_open_threads(1, deadline, world, err);
        return tm_fail(err, TM_INVALID, "this is rank %d of %d, launched by %s: not a world of its own", launch.rank,
                       launch.ranks, launch.launcher);
    }
    tm_comm_watchdog *guard = tm_comm_watchdog_begin(launch.rank, deadline + START_S, "the start of all ranks");
    tm_status         st = open_several(&launch, engine, deadline, world, err);
    tm_comm_watchdog_end(guard);
    return st;
}
