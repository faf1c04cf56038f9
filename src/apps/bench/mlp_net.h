/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/mlp_net.h - a plain network of linear layers with an activation between them, trained on one fixed batch
 * (private to bench/; docs/bench-mlp.md).
 *
 *   y = W_n act(... act(W_1 x + b_1) ...) + b_n,   loss = mean of (y - t)^2,   AdamW
 */
#ifndef TM_BENCH_MLP_NET_H
#define TM_BENCH_MLP_NET_H

#include "apps/bench/bench.h"

enum { TM_MLP_LAYERS = 16 };

typedef struct {
    int64_t             width[TM_MLP_LAYERS + 1]; /* of the input, then of every layer's output */
    int                 layers;
    int64_t             batch;
    tm_op_id            activation;   /* TM_OP_relu or TM_OP_gelu */
    bool                bias, update; /* update: with AdamW; otherwise forward and backward only */
    const tm_precision *precision;
    double              learning_rate;
} tm_mlp_options;

typedef struct tm_mlp tm_mlp;

/* Plans: no memory. TM_UNSUPPORTED: the device lacks a kernel. */
TM_MUST_USE tm_status tm_mlp_create(const tm_mlp_options *options, tm_device *device, tm_mlp **out, tm_error *err);
void                  tm_mlp_destroy(tm_mlp *mlp); /* NULL is fine */

size_t  tm_mlp_bytes(const tm_mlp *mlp); /* of the arena */
int64_t tm_mlp_parameters(const tm_mlp *mlp);
double  tm_mlp_flops(const tm_mlp *mlp); /* executed by a step */

/* Takes the arena; weights normal with the deviation 1 / sqrt(3 inputs) of the usual uniform initial values,
 * biases zero, inputs and targets standard normal. TM_NOMEM. */
TM_MUST_USE tm_status tm_mlp_open(tm_mlp *mlp, tm_bench *bench, tm_error *err);

/* One iteration; adds to *ledger (may be NULL). *loss: before the update. TM_DEVICE: the device failed. */
TM_MUST_USE tm_status tm_mlp_step(tm_mlp *mlp, tm_ledger *ledger, double *loss, tm_error *err);

typedef struct {
    bool   correct;
    double worst;                /* largest error as a part of its bound */
    double found, wanted, bound; /* there */
} tm_mlp_check;

/* Runs the forward pass and holds three samples' outputs against float64, with the rounding errors carried along. */
TM_MUST_USE tm_status tm_mlp_verify(tm_mlp *mlp, tm_mlp_check *out, tm_error *err);

#endif
