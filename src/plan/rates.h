/* SPDX-License-Identifier: Apache-2.0 */
/* plan/rates.h - how long a piece of a step takes on hardware: a product, a stream through memory, attention, a
 * collective. Pure functions of tm_hardware; times in seconds. docs/plan.md has the formulas.
 */
#ifndef TM_PLAN_RATES_H
#define TM_PLAN_RATES_H

#include "op/op.h"
#include "plan/hardware.h"

typedef enum { TM_RATE_F32, TM_RATE_BF16, TM_RATE_FP8, TM_RATE_FP4 } tm_rate_format; /* of a product's factors */

/* TFLOP/s of the best product in that format; 0: the hardware has none. */
double tm_rate_best(const tm_hardware *hw, tm_rate_format format);
/* TFLOP/s of the data sheet; 0: none. */
double tm_rate_peak(const tm_hardware *hw, tm_rate_format format);

/* `count` products (m, k) x (k, n) one after the other or as one launch (launches 0: its time is not counted), which
 * move `bytes` in all. max(FLOPs / (best x tiles x waves x depth), bytes / memory) + launch. */
double tm_time_product(const tm_hardware *hw, tm_rate_format format, double m, double n, double k, double count,
                       double bytes, double launches);
/* What of the best rate that shape reaches, 0 .. 1: tiles that are not full, a last wave that is not, a short k. */
double tm_product_share(const tm_hardware *hw, double m, double n, double k, double count);

/* `bytes` read and written, with `vector` operations, in so many kernels. */
double tm_time_stream(const tm_hardware *hw, double bytes, double vector, double launches);

/* Attention over `flops` of visible pairs (2 per multiply-add) of heads of `width` elements. */
double tm_time_attention(const tm_hardware *hw, bool backward, double flops, double width, double launches);

enum { TM_OP_NAME_BYTES = 64 };
/* What a hardware file calls the op of a call. */
void tm_hardware_op_name(const tm_call *call, char out[TM_OP_NAME_BYTES]);
/* A call of an op, on hardware where that was measured: its three times added up. Below 0: the file does not have it.
 */
double tm_time_op(const tm_hardware *hw, const tm_call *call, const tm_cost *cost);

/* --- between devices ------------------------------------------------------------------------------------------------
 */

typedef enum { TM_MOVE_ALL_REDUCE, TM_MOVE_ALL_GATHER, TM_MOVE_REDUCE_SCATTER, TM_MOVE_ALL_TO_ALL } tm_move;

/* A group of `ranks` devices, of which links join each to near - 1 others (near divides ranks); the rest is reached
 * over the network, through the NIC of each device. */
typedef struct {
    int ranks, near;
} tm_group_plan;

/* The group of every `stride`-th rank, `ranks` of them, of nodes of so many devices, whose ranks are neighbours. */
tm_group_plan tm_group_plan_of(const tm_machine_plan *machine, int ranks, int stride);

/* S bytes: of all-reduce the tensor, of all-gather and reduce-scatter the whole one, of all-to-all what a rank has. */
double tm_time_move(const tm_hardware *hw, tm_move move, double bytes, tm_group_plan group);
/* From one stage to the next. */
double tm_time_send(const tm_hardware *hw, double bytes, bool near);

#endif
