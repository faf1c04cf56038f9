/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/engine.h - who computes a matrix product: our kernel, a library that is on the machine, the float64
 * reference (private to bench/). Libraries are loaded when asked for, with declarations of our own; nothing is linked.
 */
#ifndef TM_BENCH_ENGINE_H
#define TM_BENCH_ENGINE_H

#include "apps/bench/product.h"

typedef struct tm_engine tm_engine;

struct tm_engine {
    const char *name; /* "trainmark", "oneDNN", "OpenBLAS", "BLIS", "MKL", "reference" */
    char        version[96];
    char        kernel[96]; /* what it computes with, as far as it tells */
    char        pool[64];   /* whose threads */
    char        path[256];  /* of the library; empty otherwise */
    int         threads;    /* as it reports after it was told */
    bool        slow;       /* takes no part in rounds: hundreds of times slower */
    char        why[200];   /* what `prepare` says of the last product */
    double      rate;       /* FLOP/s seen so far, 0: none */
    /* What it cannot do, or NULL. */
    const char *(*refuse)(const tm_engine *engine, const tm_product *product);
    /* C of `turn` = product of A and B of `turn`. */
    void (*run)(tm_engine *engine, const tm_operands *operands, int64_t turn);
    /* Of a GPU (engine_gpu.c), else NULL. Before the series of a product: *why NULL, or what it cannot do. */
    tm_status (*prepare)(tm_engine *engine, const tm_product *product, const char **why, tm_error *err);
    /* Instead of `run`: so many turns in a row, and their seconds by the GPU's clock. */
    tm_status (*series)(tm_engine *engine, const tm_operands *operands, int64_t turn, int64_t calls, double *seconds,
                        tm_error *err);
    void (*close)(tm_engine *engine); /* ends `context`; NULL: it is freed */
    tm_bench *bench;
    void     *library;     /* dlopen handle */
    void     *context;     /* of the engine's own, allocated */
    void (*call[3])(void); /* the products of the library: float32, bfloat16, float16 (NULL: none) */
};

enum { TM_ENGINES = 8 };
typedef struct {
    tm_engine items[TM_ENGINES];
    size_t    count;
} tm_engine_list;

/* Our kernel on the device. TM_UNSUPPORTED where it has none. */
TM_MUST_USE tm_status tm_engine_own(tm_bench *bench, tm_engine *engine, tm_error *err);
/* Those of a GPU. Without a name: what training takes for a product, the maker's library or our kernel; `libraries`:
 * our kernel, and the library in turns with it; `only`: that library. TM_UNSUPPORTED: the device has it not. */
TM_MUST_USE tm_status tm_engines_gpu(tm_bench *bench, bool libraries, const char *only, tm_engine_list *list,
                                     tm_error *err);
/* The product in float64, rounded once. */
void tm_engine_reference(tm_bench *bench, tm_engine *engine);
/* Adds the libraries that are found; those that are not, and those that were refused, are notes of the table. `only`:
 * NULL for all, otherwise the one of that name, and TM_UNSUPPORTED if it is not there. */
TM_MUST_USE tm_status tm_engine_libraries(tm_bench *bench, const char *only, tm_engine_list *list, tm_error *err);
void                  tm_engine_close(tm_engine *engine);

#endif
