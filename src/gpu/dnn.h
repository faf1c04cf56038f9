/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/dnn.h - attention and its gradients by NVIDIA's cuDNN, loaded at run time.
 *
 * What is asked for is a graph of operations on tensors of four dimensions (gpu/dnn_graph.h); the library finds a
 * kernel for the whole of it. Factors are bfloat16, sums float32. Gradients are asked for in the form whose sums have
 * one order: gradients of scores are stored, in the workspace. So two runs with one version on one kind of GPU leave
 * the same bits.
 */
#ifndef TM_GPU_DNN_H
#define TM_GPU_DNN_H

#include "gpu/runtime.h"

typedef struct tm_gpu_dnn           tm_gpu_dnn;
typedef struct tm_gpu_dnn_attention tm_gpu_dnn_attention; /* a shape, with a kernel for it */

/* The library is the file that TRAINMARK_CUDNN names, else one of where toolkits, drivers and Python packages put it.
 * TM_UNSUPPORTED: there is none, it is too old (before 9.10), or TRAINMARK_CUDNN is `none`; the text says what to do.
 * TM_DEVICE: it is there, and fails. */
TM_MUST_USE tm_status tm_gpu_dnn_open(tm_gpu *gpu, tm_gpu_dnn **out, tm_error *err);
void                  tm_gpu_dnn_close(tm_gpu_dnn *dnn); /* NULL is fine; no work of it is left in a stream */
/* Will an NVIDIA GPU have it? Where one is here, or a file is named: whether it can be loaded. Else yes. */
TM_MUST_USE tm_status tm_gpu_dnn_expect(tm_error *err);
/* "cuDNN 9.19.0", and the file that was loaded. */
const char *tm_gpu_dnn_name(const tm_gpu_dnn *dnn);
const char *tm_gpu_dnn_library(const tm_gpu_dnn *dnn);

/* B sequences of queries and of keys, from position 0 on, in H heads; query head h reads key head h / (H / J). Rows of
 * q (B queries, H dim_qk), k (B keys, J dim_qk), v (B keys, J dim_v), o (B queries, H dim_v) and of their gradients may
 * lie apart: ld, elements from row to row, in this order. Statistics: float32 (B, heads of all, queries), heads_of_all:
 * from sequence to sequence. */
typedef struct {
    int64_t gradients; /* 1: those of q, k and v; 0: o and its statistics */
    int64_t sequences, queries, keys, heads, kv_heads, dim_qk, dim_v;
    int64_t ld_q, ld_k, ld_v, ld_o; /* the gradient of o has its rows as o has */
    int64_t ld_dq, ld_dk, ld_dv;    /* of gradients */
    int64_t heads_of_all;           /* >= heads: of the tensor that these heads are part of */
    int64_t causal;                 /* 1: query i sees keys j <= i */
    int64_t window;                 /* > 0, causal only: and i - window < j */
} tm_gpu_attention_shape;

/* Bytes of workspace that every kernel for the shape can do with, as versions 9.19 and 9.26 were seen to ask for. */
size_t tm_gpu_dnn_bytes(const tm_gpu_attention_shape *shape);

/* Asks the library at the first call with a shape. TM_UNSUPPORTED: it has no kernel for it, or one that wants more
 * workspace; the error's text is also in *why, and stays. */
TM_MUST_USE tm_status tm_gpu_dnn_find(tm_gpu_dnn *dnn, const tm_gpu_attention_shape *shape, tm_gpu_dnn_attention **out,
                                      const char **why, tm_error *err);

typedef struct {
    const void *q, *k, *v;
    void       *o, *statistics; /* ln of the sums of e^score; gradients read both */
    const void *d_o;
    void       *dq, *dk, *dv, *workspace;
    float       scale; /* of the scores */
} tm_gpu_attention_operands;

/* Puts it into `stream`. Neither takes memory nor waits. */
TM_MUST_USE tm_status tm_gpu_dnn_attend(tm_gpu_dnn *dnn, const tm_gpu_dnn_attention *attention, void *stream,
                                        const tm_gpu_attention_operands *operands, tm_error *err);

#endif
