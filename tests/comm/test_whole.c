/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes of ranks and what is wrong with them, and launches that do not fit. */
#include "support/test.h"
#include "comm/mesh/mesh.h"
#include "world.h"

/* --- meshes -------------------------------------------------------------------------------------- */

/* pp, dp_replicate, dp_shard, cp, tp, ep; ranks. Then the mesh that it becomes and its efsdp; 0: what the refusal says.
 */
static const struct {
    int64_t     degrees[7];
    const char *text;
    int         efsdp;
} wanted[] = {
    { { 1, 1, 1, 1, 1, 1, 1 }, "one rank", 1 },
    { { 2, 3, 4, 2, 2, 8, 96 }, "pp 2 x dp_replicate 3 x dp_shard 4 x cp 2 x tp 2 x ep 8", 2 },
    { { 1, 1, -1, 1, 1, 1, 8 }, "dp_shard 8", 8 },
    { { 1, -1, 2, 1, 1, 1, 6 }, "dp_replicate 3 x dp_shard 2", 2 },
    { { -1, 1, 1, 1, 2, 1, 10 }, "pp 5 x tp 2", 2 },
    { { 1, 1, 2, -1, 2, 4, 8 }, "dp_shard 2 x cp 2 x tp 2 x ep 4", 2 },
    { { 1, 2, 1, 1, -1, 1, 4 }, "dp_replicate 2 x tp 2", 2 },
    { { 1, 1, -1, 1, 1, 1, 1048576 }, "dp_shard 1048576", 1048576 },
    { { 1, 1, -1, 1, 1, 1, 1048577 }, "1 to 1048576 ranks, found 1048577", 0 },
    { { 1, 1, -1, 1, 1, 1, 0 }, "1 to 1048576 ranks, found 0", 0 },
    { { 1, -1, -1, 1, 1, 1, 6 }, "replicate_degree and parallelism.data_parallel_shard_degree are -1; only one", 0 },
    { { -1, 1, 1, 1, -1, 1, 6 }, "pipeline_parallel_degree and parallelism.tensor_parallel_degree are -1", 0 },
    { { 1, 0, 1, 1, 1, 1, 6 }, "data_parallel_replicate_degree must be -1 or at least 1, found 0", 0 },
    { { 1, 1, 1, -2, 1, 1, 6 }, "context_parallel_degree must be -1 or at least 1, found -2", 0 },
    /* products that do not fit: one is left open; shards give way, or copies, or neither can */
    { { 1, 2, -1, 1, 1, 1, 7 }, "does not divide the 7 ranks that parallelism.data_parallel_shard_degree -1", 0 },
    { { 1, 2, -1, 1, 1, 1, 7 }, "dp_replicate 2 multiply to 2, which", 0 },
    { { 1, 2, -1, 1, 1, 1, 7 }, "; start 6 or 8 ranks, or change one", 0 },
    { { 2, 2, -1, 1, 2, 1, 7 }, "; start 8 ranks, or change one", 0 },
    { { 1, 2, 3, 1, 1, 1, 8 },
      "multiply to 6, and there are 8 ranks; set parallelism.data_parallel_shard_degree to 4 ",
      0 },
    { { 1, 2, 3, 1, 1, 1, 8 }, "or start 6 ranks (--ranks)", 0 },
    { { 1, 2, 3, 1, 1, 1, 7 }, "and there are 7 ranks; start 6 ranks (--ranks), or 6 or 8 with ", 0 },
    { { 1, 2, 1, 1, 1, 1, 6 }, "; set parallelism.data_parallel_replicate_degree to 6 ", 0 },
    { { 1, 1, 1, 1, 2, 1, 5 }, "; start 2 ranks (--ranks), or 4 or 6 with ", 0 },
    { { 2, 4, 1, 1, 1, 1, 7 }, ", or 6 or 8 with parallelism.data_parallel_replicate_degree -1", 0 },
    { { 1048576, 1048576, 1048576, 1048576, 1, 1, 6 }, "there are 6 ranks; start 4611686018427387903 ranks", 0 },
    /* experts */
    { { 1, 1, 6, 1, 1, 4, 6 }, "is 4, and must divide dp_shard x cp x tp, which is 6; 3 or 6 would do", 0 },
    { { 1, 1, 6, 1, 1, 0, 6 }, "; 1 would do", 0 },
    { { 1, 1, 6, 1, 1, 6, 6 }, "dp_shard 6 x ep 6", 1 },
    { { 1, 3, 1, 2, 2, 4, 12 }, "dp_replicate 3 x cp 2 x tp 2 x ep 4", 1 },
    { { 1, 3, 1, 2, 2, 3, 12 }, "which is 4; 2 or 4 would do", 0 },
};

static tm_mesh mesh_of(const int64_t *degrees)
{
    static const tm_axis axes[] = { TM_AXIS_PP, TM_AXIS_REPLICATE, TM_AXIS_SHARD, TM_AXIS_CP, TM_AXIS_TP, TM_AXIS_EP };
    tm_mesh              mesh = tm_mesh_one();
    for (int a = 0; a < 6; a++) mesh.degree[axes[a]] = (int)degrees[a];
    return mesh;
}

TEST(meshes_are_filled)
{
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        char      text[160];
        tm_error  err = { 0 };
        tm_mesh   mesh = mesh_of(wanted[i].degrees);
        tm_status st = tm_mesh_fill(&mesh, wanted[i].degrees[6], &err);
        assert_int_equal(st, wanted[i].efsdp ? TM_OK : TM_INVALID);
        if (st != TM_OK && !strstr(err.text, wanted[i].text)) fail_msg("%s: %s", wanted[i].text, err.text);
        if (st != TM_OK) continue;
        assert_string_equal(tm_mesh_text(text, &mesh), wanted[i].text);
        assert_int_equal(tm_mesh_ranks(&mesh), wanted[i].degrees[6]);
        assert_int_equal(mesh.degree[TM_AXIS_EFSDP], wanted[i].efsdp);
    }
}

/* --- launches ------------------------------------------------------------------------------------ */

TEST(worlds_that_cannot_be)
{
    static const int ranks[] = { -1, 0, 257 };
    for (int i = 0; i < 3; i++) {
        tm_comm *comm[1];
        assert_refused(tm_comm_open_threads(ranks[i], 1, comm, err), TM_INVALID, " may be 1 to 256 ");
    }
}

static const struct {
    const char *set[4], *engine, *launch, *refused; /* engine by launcher, rank of ranks; why not */
    /* clang-format off */
} launches[] = {
    { { NULL }, "self", "self by nothing, rank 0 of 1", NULL },
    { { NULL }, "gloo", "self by nothing, rank 0 of 1", "'gloo' is no engine for ranks" },
    { { NULL }, "openmpi", "self by nothing, rank 0 of 1", "ranks over openmpi need trainmark-openmpi.so" },
    { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, NULL, "openmpi by mpirun of Open MPI, rank 1 of 4",
      "ranks over openmpi need trainmark-openmpi.so" },
    { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "self", "openmpi by mpirun of Open MPI, rank 1 of 4",
      "this is rank 1 of 4, launched by mpirun of Open MPI: not a world of its own" },
    { { "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "mpich", "openmpi by mpirun of Open MPI, rank 1 of 4",
      "ranks over mpich need trainmark-mpich.so" },
    { { "PMI_RANK=2", "PMI_SIZE=3" }, NULL, "mpich by mpiexec of MPICH, or srun --mpi=pmi2, rank 2 of 3",
      "ranks over mpich need trainmark-mpich.so" },
    { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "PMIX_RANK=1" }, NULL, "openmpi by srun --mpi=pmix, rank 1 of 2",
      "ranks over openmpi need trainmark-openmpi.so" },
    { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0" }, NULL,
      "none by srun without an MPI, rank 1 of 2",
      "this is rank 1 of 2, launched by srun without an MPI, which starts no MPI" },
    { { "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2" }, "self", "self by nothing, rank 0 of 1", NULL },
    { { "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3" }, NULL, "tcp by torchrun or its like, rank 3 of 8",
      "this is rank 3 of 8, launched by torchrun or its like, but MASTER_ADDR and MASTER_PORT do not say where ranks meet" },
    { { "RANK=3", "WORLD_SIZE=8" }, "self", "self by nothing, rank 0 of 1", NULL },
    { { "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0" }, NULL, "self by nothing, rank 0 of 1", NULL },
    { { "RANK=x", "WORLD_SIZE=8", "LOCAL_RANK=0" }, NULL, "self by nothing, rank 0 of 1", NULL },
    { { "RANK=1", "WORLD_SIZE=0", "LOCAL_RANK=0" }, NULL, "self by nothing, rank 0 of 1", NULL },
    { { "PMI_RANK=2", "PMI_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4" }, "gloo",
      "openmpi by mpirun of Open MPI, rank 1 of 4", "'gloo' is no engine for ranks" },
};
/* clang-format on */

/* What a process is told that was launched by something that does not fit. */
TEST(launches_say_what_fits)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",    "PMI_SIZE",   "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",        "PMIX_RANK",   "RANK",       "WORLD_SIZE",
        "LOCAL_RANK",           "TORCHELASTIC_RUN_ID",  "MASTER_ADDR", "MASTER_PORT"
    };
    setenv("TRAINMARK_MODULES", "/nowhere", 1);
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        tm_comm *world = NULL;
        tm_error err = { 0 };
        char     launch[120];
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) unsetenv(names[k]);
        for (int k = 0; k < 4 && launches[i].set[k]; k++) putenv((char *)launches[i].set[k]);
        tm_comm_launch l = tm_comm_launched();
        snprintf(launch, sizeof launch, "%s by %s, rank %d of %d", l.engine ? l.engine : "none", l.launcher, l.rank,
                 l.ranks);
        assert_string_equal(launch, launches[i].launch);
        tm_status st =
            tm_comm_open(&(tm_comm_options){ .engine = launches[i].engine, .deadline_seconds = 1 }, &world, &err);
        assert_int_equal(st, launches[i].refused ? TM_INVALID : TM_OK);
        if (launches[i].refused)
            assert_int_equal(strncmp(err.text, launches[i].refused, strlen(launches[i].refused)), 0);
        if (!launches[i].refused) assert_string_equal(tm_comm_engine_name(world), "threads");
        tm_comm_close(world);
    }
    assert_false(tm_comm_engine_built("openmpi"));
}
