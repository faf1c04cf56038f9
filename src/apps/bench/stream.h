/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/stream.h - what `bench stream` measures on CPUs and on GPUs (private to bench/). */
#ifndef TM_BENCH_STREAM_H
#define TM_BENCH_STREAM_H

#include "apps/bench/bench.h"

/* A row of the table. */
typedef struct {
    tm_stream_kernel kernel;
    const char      *stores, *by; /* which stores; what did it */
    int64_t          n, element;  /* elements of an array; bytes of one */
    int              arrays;      /* that a call reads or writes */
    bool             correct;
} tm_stream_row;

/* Adds it with its samples; a wrong result makes the numbers invalid. */
void tm_stream_put(tm_bench *bench, const tm_stream_row *row, const tm_samples *samples);

/* The memory of a GPU, by its driver's copy and by kernels of training steps, in float32. n: elements; 0: as many as
 * are more than its caches hold. */
TM_MUST_USE tm_status tm_stream_on_gpu(tm_bench *bench, int64_t n, tm_error *err);

#endif
