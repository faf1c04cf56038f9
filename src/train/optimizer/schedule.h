/* SPDX-License-Identifier: Apache-2.0 */
/* train/optimizer/schedule.h - the learning-rate factor of each step.
 *
 * All functions are pure: a resumed run needs nothing but the step number.
 */
#ifndef TM_TRAIN_OPTIMIZER_SCHEDULE_H
#define TM_TRAIN_OPTIMIZER_SCHEDULE_H

#include "base/status.h"

#include <stdint.h>

typedef enum {
    TM_SCHEDULE_WARMUP_STABLE_DECAY, /* TorchTitan's; without a stable part it is warm-up + linear / sqrt / cosine */
    TM_SCHEDULE_NEMO,                /* NeMo's cosine with linear warm-up, which MLPerf's llama31_8b prescribes */
    TM_SCHEDULE_MEGATRON,            /* Megatron-LM's and Megatron-Bridge's: step n has the rate of n - 1 steps done */
    TM_SCHEDULE_TORCHTUNE,           /* torchtune's cosine with warm-up, in one or several waves */
} tm_schedule_kind;

/* What is left of the way at p, 0 .. 1: 1 - p, 1 - sqrt(p), half a cosine, 2 / 2^p - 1; and Megatron-LM's root. */
typedef enum {
    TM_DECAY_LINEAR,
    TM_DECAY_SQRT,
    TM_DECAY_COSINE,
    TM_DECAY_EXPONENTIAL,
    TM_DECAY_INVERSE_SQRT,
} tm_decay_shape;

typedef struct {
    tm_schedule_kind kind;
    int64_t          steps;         /* S, planned total, >= 1 */
    int64_t          warmup_steps;  /* W, >= 0; beyond S it counts as S, Megatron's must be below it */
    double           decay_ratio;   /* part of S that decays, 0 .. 1; negative: everything after the warm-up */
    tm_decay_shape   decay;         /* warmup-stable-decay and Megatron's */
    double           min_lr_factor; /* m, 0 .. 1: where the decay ends; not torchtune's */
    /* What some kinds have besides; 0 where they have not. */
    int64_t last_steps;      /* the decay is that of so many last steps, if > 0; before decay_ratio */
    double  warmup_fraction; /* Megatron's: W is this part of S, if > 0; need not be a whole number */
    double  warmup_factor;   /* Megatron's: where the warm-up begins, 0 .. 1 */
    double  cycles;          /* torchtune's: waves of the cosine; half a one ends at 0 */
    int64_t batch;           /* Megatron's root without a warm-up counts samples: those of a step */
} tm_schedule;

/* TM_INVALID with the offending field, its value and its range. */
TM_MUST_USE tm_status tm_schedule_check(const tm_schedule *schedule, tm_error *err);

/* The factor of the learning rate in step `step`, counted from 0; the schedule has passed tm_schedule_check.
 *
 * Warmup-stable-decay: D = round(S decay_ratio), half to even, or S - W; at most S - W. N = S + 1 - W - D (the 1 keeps
 * the last step above the minimum).
 *     s < W         (s + 1) / W
 *     s < W + N     1
 *     else          m + (1 - m) a,  a = 1 - p | 1 - sqrt(p) | (1 + cos(pi p)) / 2,  p = (s + 1 - W - N) / D
 * Megatron's: W > 0 and s <= W: f + (1 - f) s / W, f the warm-up's beginning; without a decay 1; s > S: m;
 *     inverse root: max(m, sqrt(max(W B, 1) / max(s B, 1))), B samples of a step;
 *     else m + (1 - m) a, p = (s - W) / (S - W), or of L last steps a = 1 up to S - L, then p = (s - S + L) / L
 * torchtune's: s < W: s / W; else max(0, (1 + cos(2 pi c (s - W) / max(1, S - W))) / 2), c waves
 * NeMo's: s <= W and W > 0: (s + 1) / (W + 1); s <= S: m + (1 - m) (1 + cos(pi (s - W) / (S - W))) / 2; else m.
 * From step S on the value of p = 1 (the end of the decay) stays. */
double tm_schedule_factor(const tm_schedule *schedule, int64_t step);
/* Steps over which the rate falls: D or L; S - W where there is neither. */
int64_t tm_schedule_decay_steps(const tm_schedule *schedule);
/* In words: "cosine with linear warmup" is NeMo's alone. A constant. */
const char *tm_schedule_words(const tm_schedule *schedule);

#endif
