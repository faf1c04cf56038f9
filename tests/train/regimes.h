/* SPDX-License-Identifier: Apache-2.0 */
/* tests/train/regimes.h - in which formats weights, gradients and moments are kept, and by which optimizer they move.
 */
#ifndef TM_TESTS_REGIMES_H
#define TM_TESTS_REGIMES_H

#include "words.h"

#define MASTER "--training.dtype bfloat16 "
#define PURE MASTER "--training.regime pure "
#define CHANCE "--optimizer.bf16_stochastic_round true "
#define NARROW_MOMENTS "--optimizer.implementation fused_opt_states_bf16 "
#define MOMENTUM "--optimizer.name SGD --optimizer.momentum 0.9 "
#define MUON "--optimizer.name Muon --optimizer.momentum 0.95 "

static const struct {
    const char *words;
    double      bytes; /* of a parameter: weight, gradient and moments */
} regimes[] = {
    { "", 16 },
    { "--optimizer.decay matrices --optimizer.beta2 0.999 --optimizer.eps 1e-3 ", 16 },
    { MASTER, 16 },
    { MASTER NARROW_MOMENTS, 12 },
    { NARROW_MOMENTS CHANCE, 12 },
    { PURE, 8 },
    { PURE CHANCE, 8 },
    { PURE "--optimizer.kahan_sum true ", 10 },
    { MASTER "--optimizer.name AdamW8bit ", 10 },
    { PURE "--optimizer.name AdamW8bit " CHANCE, 6 },
    { PURE "--optimizer.name AdamW8bit --optimizer.definition bitsandbytes ", 6 },
    { "--optimizer.name SGD ", 8 },
    { PURE "--optimizer.name SGD " CHANCE, 4 },
    { PURE MOMENTUM CHANCE, 6 },
    { MOMENTUM "--optimizer.nesterov true ", 12 },
    { MUON, 13.2 },
    { PURE MUON "--optimizer.definition megatron " CHANCE, 6.6 },
    { "--optimizer.name Adafactor --optimizer.eps1 1e-7 ", 8 },
    { PURE "--optimizer.name Adafactor " CHANCE, 4 },
};
enum { REGIMES = sizeof regimes / sizeof regimes[0] };

#endif
