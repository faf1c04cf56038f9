/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/dnn_raw.h - calls of the stand-in for cuDNN (tests/standins/cudnn.c), for tests of it: each must succeed.
 */
#ifndef TESTS_GPU_DNN_RAW_H
#define TESTS_GPU_DNN_RAW_H

#include "gpu/runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cudnn_graph.h of cuDNN 9.19. */
enum { CONFIG = 3, HEURISTICS, PLAN, OF_POINTWISE = 13, GRAPH = 15, PACK, TENSOR, MATMUL, OF_MATMUL };
enum { REDUCTION = 21, OF_REDUCTION, OF_RESHAPE = 31 };
enum { T_HANDLE = 0, T_FORMAT, T_BOOL, T_I64, T_ADDRESS = 6, T_HEURISTIC = 8, T_FUNCTION = 14, T_DESCRIPTOR };
enum { F32 = 0, I32 = 4, BF16 = 9, BOOLEAN = 11 };
enum { ADD = 0, MUL = 1, DIV = 6, SUB = 9, EXP = 13, LOG = 15, NOT_LESS = 303, INDEX = 501, SELECT = 601 };

typedef struct {
    int (*create)(void **), (*destroy)(void *), (*set_stream)(void *, void *), (*make)(int, void **), (*drop)(void *);
    int (*set)(void *, int, int, int64_t, const void *), (*finish)(void *), (*execute)(void *, void *, void *);
    int (*get)(void *, int, int, int64_t, int64_t *, void *);
    size_t (*version)(void), (*workspace)(void);
    void (*last_words)(char *, size_t);
    int (*held)(void), (*executed)(void);

    tm_gpu *gpu;
    void   *handle, *stream;
    void   *all[200]; /* descriptors */
    int     n_all;
    void   *operations[32];
    int     n_operations;
} dnn_raw_state;

extern dnn_raw_state dnn_raw;

typedef struct {
    int64_t n[4], stride[4];
} layout;

enum { Q = 1, K, V, O, STATISTICS, SCALE, HIDDEN };

typedef struct {
    int64_t B, queries, keys, H, J, D;
} shape;

typedef struct {
    const shape *s;
    uint16_t    *qkv;              /* on the host: (B, rows, H + 2 J, D) */
    char        *at, *o, *st, *ws; /* on the GPU */
    size_t       bytes, bytes_o, bytes_st;
    float        scale, hidden;
    void        *plan;
} trial;

void dnn_raw_must(tm_status st, const tm_error *err);
/* For TEST_FIXTURE: the stand-ins, a handle with a stream. The end fails where something is left. */
int   dnn_raw_begin(void **state);
int   dnn_raw_end(void **state);
void  dnn_raw_good(int status);
void *dnn_raw_make(int kind);
void  dnn_raw_set(void *d, int name, int type, int64_t n, const void *values);
void  dnn_raw_set_descriptor(void *d, int name, void *value);
/* Not finalized. */
void *dnn_raw_unfinished(int64_t uid, int format, layout l, bool inner);
void *dnn_raw_tensor(int64_t uid, int format, layout l, bool inner);
/* By value: float32. */
void *dnn_raw_number(int64_t uid);
/* Not finalized; axis < 0: none. */
void *dnn_raw_pointwise(int function, void *x, void *b, void *t, void *y, int64_t axis);
/* Finalizes the operation, and puts it into dnn_raw.operations. */
void  dnn_raw_add(void *operation);
void *dnn_raw_apply(int function, void *x, void *b, void *y);
/* Not finalized. */
void *dnn_raw_matmul(void *a, void *b, void *c);
void *dnn_raw_reduce(int function, void *x, void *y);
/* How many configurations there are; *plan: that of the first. */
int64_t dnn_raw_plan_of(void *const *of, int n, void **plan);
/* Causal attention of that shape. */
int64_t dnn_raw_compose(const shape *s, void **plan);
/* With a plan and memory; columns of queries, keys and values in rows of one matrix. */
void dnn_raw_open_trial(trial *t, const shape *s);
void dnn_raw_close_trial(trial *t);
/* The numbers and addresses of a trial, but for o and the workspace. */
void *dnn_raw_pack_of(const trial *t, const char *o, const char *ws);
/* Elements of a row of queries, keys and values. */
int64_t dnn_raw_row(const shape *s);

#endif
