/* SPDX-License-Identifier: Apache-2.0 */
/* The collective calls of an MPI as its launcher starts it, for bench/collectives_osu.sh: private buffers, a barrier
 * before every sample, the slowest rank's time, the median over the samples. Prints "CALL BYTES SECONDS".
 *
 *   mpi_calls CALL MIN MAX FACTOR MILLISECONDS    CALL: all-reduce, ..., or all; bytes as nccl-tests counts them, time
 *                                                 for each row
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000, KINDS = 6 };

static const char *const names[KINDS] = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "p2p"
};

static int    rank, size;
static float *send, *receive;

static void call(int kind, size_t bytes)
{
    int count = (int)(bytes / sizeof(float)), part = count / size;
    switch (kind) {
    case 0:
        MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Allgather(send, part, MPI_FLOAT, receive, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Reduce_scatter_block(send, receive, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Alltoall(send, part, MPI_FLOAT, receive, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case 4:
        MPI_Bcast(send, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    default:
        if (rank % 2 == 0 && rank + 1 < size) MPI_Send(send, count, MPI_FLOAT, rank + 1, 0, MPI_COMM_WORLD);
        if (rank % 2 == 1) MPI_Recv(receive, count, MPI_FLOAT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static double sample(int kind, size_t bytes, int loops)
{
    double slowest, own;
    MPI_Barrier(MPI_COMM_WORLD);
    own = MPI_Wtime();
    for (int i = 0; i < loops; i++) call(kind, bytes);
    own = (MPI_Wtime() - own) / loops;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int kind, size_t bytes, double limit)
{
    static double seconds[MOST];
    double        warm = 0, sum = 0;
    int           n = 0, loops = 1;
    for (int i = 0; i < 3; i++) warm = sample(kind, bytes, 1);
    if (warm < 200e-6) loops = (int)(200e-6 / (warm > 1e-7 ? warm : 1e-7)) + 1;
    MPI_Bcast(&loops, 1, MPI_INT, 0, MPI_COMM_WORLD);
    while (n < MOST && (sum < limit || n < 5)) { /* the times are those of all ranks: all stop together */
        seconds[n] = sample(kind, bytes, loops);
        sum += seconds[n++] * loops;
    }
    qsort(seconds, (size_t)n, sizeof seconds[0], ascending);
    if (rank == 0) printf("%s %zu %.9g\n", names[kind], bytes, seconds[n / 2]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 6) return 2;
    size_t most = strtoull(argv[3], NULL, 10);
    send = malloc(most + 4096);
    receive = malloc(most + 4096);
    if (!send || !receive) return 1;
    for (size_t i = 0; i < most / sizeof(float); i++) send[i] = receive[i] = (float)(i % 5);
    for (int kind = 0; kind < KINDS; kind++) {
        if (strcmp(argv[1], "all") != 0 && strcmp(argv[1], names[kind]) != 0) continue;
        for (size_t bytes = strtoull(argv[2], NULL, 10); bytes <= most; bytes *= strtoull(argv[4], NULL, 10))
            measure(kind, bytes, atof(argv[5]) * 1e-3);
    }
    MPI_Finalize();
    return 0;
}
