/* SPDX-License-Identifier: Apache-2.0 */
/* results/convert.h - one speed, said in every way in which speeds are published: tokens, samples, steps, and FLOP/s by
 * each convention (docs/flops.md). Everything goes by way of tokens per second and device.
 */
#ifndef TM_RESULTS_CONVERT_H
#define TM_RESULTS_CONVERT_H

#include "base/table.h"
#include "model/shape.h"

/* What a figure was published of. */
typedef struct {
    tm_model_shape shape;
    int64_t        seq;
    int64_t        devices;         /* >= 1 */
    int64_t        batch;           /* sequences of one step on all devices; 0: unknown */
    double         lora_parameters; /* of adapters, for the conventions of LoRA */
    double         peak_flops;      /* of a device, FLOP/s; 0: unknown */
} tm_speed_basis;

/* The i-th convention: those of model/shape.h, then
 *   lora         4 N_mm + 12 L H hd T + 6 N_lora: frozen weights have no gradients of their own, attention in full
 *   lora-causal  the same with half of the attention
 * NULL behind the last. */
const char *tm_convention_name(size_t i);
/* FLOPs of a token; NAN: there is no such convention. Letter case does not matter. */
double tm_convention_flops(const tm_speed_basis *basis, const char *convention);

/* Tokens per second and device of a figure: `value` in `unit`, of all devices together if `all`. Units: FLOP/s with any
 * prefix (of `convention`), tokens/s, samples/s (sequences/s, images/s), s/step or ms/step, days (of `tokens` in all:
 * the budget). TM_USAGE: an unknown unit or convention; TM_INVALID: what it needs is not known. */
TM_MUST_USE tm_status tm_speed_of(const tm_speed_basis *basis, double value, const char *unit, const char *convention,
                                  bool all, double *tokens_per_second, tm_error *err);

/* Every other way to say it, a row each: quantity, unit, per device, all devices. tokens > 0: and how long that many
 * take. The caller destroys it. */
tm_table *tm_speed_table(const tm_speed_basis *basis, double tokens_per_second, double tokens);

/* "15T", "300B", "1e12", "8,192": a number of tokens. NAN: it is none. */
double tm_token_count(const char *text);

#endif
