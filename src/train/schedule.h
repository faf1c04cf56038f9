/* SPDX-License-Identifier: Apache-2.0 */
/* train/schedule.h - numbers that steer a step: the learning-rate factor of each step and the clipping coefficient.
 *
 * All functions are pure: a resumed run needs nothing but the step number.
 */
#ifndef TM_TRAIN_SCHEDULE_H
#define TM_TRAIN_SCHEDULE_H

#include "base/status.h"

#include <stdint.h>

typedef enum {
    TM_SCHEDULE_CONSTANT,            /* 1, after the warm-up of warmup-stable-decay */
    TM_SCHEDULE_WARMUP_STABLE_DECAY, /* TorchTitan's; without a stable part it is warm-up + linear / sqrt / cosine */
    TM_SCHEDULE_COSINE,              /* Hugging Face's and torchtune's, with warm-up; its first step has factor 0 */
    TM_SCHEDULE_NEMO,                /* NeMo's cosine with linear warm-up, which MLPerf's llama31_8b prescribes */
} tm_schedule_kind;

typedef enum { TM_DECAY_LINEAR, TM_DECAY_SQRT, TM_DECAY_COSINE } tm_decay_shape;

typedef struct {
    tm_schedule_kind kind;
    int64_t          steps;         /* S, planned total, >= 1 */
    int64_t          warmup_steps;  /* W, >= 0; beyond S it counts as S */
    double           decay_ratio;   /* part of S that decays, 0 .. 1; negative: everything after the warm-up */
    tm_decay_shape   decay;         /* warmup-stable-decay only */
    double           min_lr_factor; /* m, 0 .. 1: where the decay ends; warmup-stable-decay and NeMo's */
    double           cycles;        /* cosine only: waves after the warm-up; 0.5 ends at 0 */
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
 * Cosine: s < W: s / W; else max(0, (1 + cos(2 pi cycles (s - W) / (S - W))) / 2).
 * NeMo's: s <= W and W > 0: (s + 1) / (W + 1); s <= S: m + (1 - m) (1 + cos(pi (s - W) / (S - W))) / 2; else m.
 * From step S on the value of p = 1 (the end of the decay) stays. */
double tm_schedule_factor(const tm_schedule *schedule, int64_t step);
/* Steps over which the rate falls: D; S - W where there is no D; 0 for a constant one. */
int64_t tm_schedule_decay_steps(const tm_schedule *schedule);
/* In words: "cosine with linear warmup" is NeMo's alone. A constant. */
const char *tm_schedule_words(const tm_schedule *schedule);

/* Global-norm clipping, every gradient times min(1, max_norm / (norm + 1e-6)) (PyTorch's constant). max_norm > 0,
 * INFINITY: never clips. A norm that is NaN gives NaN: a broken step is not repaired. */
double tm_clip_coefficient(double norm, double max_norm);

#endif
